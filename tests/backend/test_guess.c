/* test_guess.c - the small form of a router (guess.h) gives nearly the router's own scores at every level; shapes that
 * do not fit have none; and numbers that Q8_0 does not take are refused. */
#include <math.h>

#include "backend/cpu/guess.h"
#include "base/rng.h"
#include "check.h"

enum { EXPERTS = 48, COLS = 192 };

static float matrix[EXPERTS * COLS], x[COLS];

static void fill(void)
{
	for (int i = 0; i < EXPERTS * COLS; i++)
		matrix[i] = (float)rng_uniform(1, (uint64_t)i, 0) * 2 - 1;
	for (int i = 0; i < COLS; i++)
		x[i] = (float)rng_uniform(2, (uint64_t)i, 0) * 2 - 1;
}

static struct weight router(int rows, int cols)
{
	struct weight w;
	struct err err;

	CHECK(!weight_plain(&w, "router", DT_F32, rows, cols, matrix, (size_t)rows * (size_t)cols * sizeof *matrix,
	                    &err),
	      "%s", err.msg);
	return w;
}

/* Eight bits of a weight and of an activation: the error of a sum of COLS products is some hundredths, where scores are
 * spread over several units. */
static void scores(struct cpu_backend *c, const struct guess_router *g)
{
	float out[EXPERTS];
	struct acts a;
	struct product job = { .w = &g->w, .x = &a, .r1 = 1, .out = out, .ld = EXPERTS };

	cpu_acts(c, &a, x, 1, COLS, cpu_act_group(c, &g->w, ARITH_FAST, 1), 0);
	cpu_products(c, ARITH_FAST, &job, 1);
	for (int o = 0; o < EXPERTS; o++) {
		double want = 0;

		for (int i = 0; i < COLS; i++)
			want += (double)matrix[o * COLS + i] * (double)x[i];
		CHECK(fabs(want - (double)out[o]) < 0.15, "score %d: %g in floats, %g small", o, want, (double)out[o]);
	}
}

static void level(enum cpu_level at)
{
	struct backend *be = backend_cpu_open(2, at);
	struct cpu_backend *c = (struct cpu_backend *)be;
	struct weight w = router(EXPERTS, COLS), narrow = router(EXPERTS, COLS - 32), odd = router(EXPERTS - 1, COLS);
	size_t n = guess_router_bytes(c, &w);
	struct guess_router g;
	uint8_t *to;

	CHECK(!guess_router_bytes(c, &narrow) && !guess_router_bytes(c, &odd), "shapes that are no whole blocks");
	CHECK(n, "%s: none", cpu_level_name(at));
	to = aligned_alloc(64, n);
	CHECK(to && guess_router_make(&g, &w, to), "the small form");
	scores(c, &g);
	matrix[5 * COLS + 7] = INFINITY;
	CHECK(!guess_router_make(&g, &w, to) && !g.w.rows, "a router with an infinity");
	fill();
	free(to);
	be->ops->close(be);
}

int main(void)
{
	fill();
	for (enum cpu_level at = CPU_SCALAR; at < CPU_LEVELS; at = cpu_level_next(at))
		level(at);
	return 0;
}
