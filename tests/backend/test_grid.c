/* LayerNorm, heads on a grid, bounds and GELU by the error function, of every level: against plain C, and all levels and
 * numbers of threads alike by memcmp. */
#include <math.h>
#include <string.h>

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/rng.h"
#include "check.h"

enum { ROWS = 37, COLS = 83, HEADS = 3, DIM = 24, WIDE = 32, PLACES = 9 };

static uint64_t counter;

static void fill(float *x, size_t n, double scale)
{
	for (size_t i = 0; i < n; i++)
		x[i] = (float)((rng_uniform(5, counter++, 0) * 2 - 1) * scale);
}

static void near(const char *what, const float *got, const double *want, size_t n, double bound)
{
	for (size_t i = 0; i < n; i++)
		CHECK(fabs((double)got[i] - want[i]) <= bound, "%s[%zu]: %g, %g wanted", what, i, (double)got[i],
		      want[i]);
}

/* What all levels computed, one result after the other. */
struct results {
	float v[4][ROWS * HEADS * WIDE];
};

static void norm_and_bounds(struct pass *p, struct results *r, const float *in, const float *gain, const float *bias)
{
	static double want[ROWS * COLS];

	p->be->ops->layer_norm(p, r->v[0], in, ROWS, COLS, gain, bias, 1e-6f);
	for (int i = 0; i < ROWS; i++) {
		const float *x = in + i * COLS;
		double mean = 0, var = 0;

		for (int k = 0; k < COLS; k++)
			mean += (double)x[k] / COLS;
		for (int k = 0; k < COLS; k++)
			var += ((double)x[k] - mean) * ((double)x[k] - mean) / COLS;
		for (int k = 0; k < COLS; k++)
			want[i * COLS + k] = ((double)x[k] - mean) / sqrt(var + 1e-6) * (double)gain[k] +
			                     (double)bias[k];
	}
	near("layer_norm", r->v[0], want, ROWS * COLS, 2e-5);
	memcpy(r->v[1], in, ROWS * COLS * sizeof(float));
	p->be->ops->affine(p, r->v[1], ROWS, COLS, gain, bias, -1.5f, 2.0f);
	for (int i = 0; i < ROWS * COLS; i++)
		want[i] = fmin(2, fmax(-1.5, (double)in[i] * (double)gain[i % COLS] + (double)bias[i % COLS]));
	near("affine", r->v[1], want, ROWS * COLS, 1e-5);
}

static void heads_on_grid(struct pass *p, struct results *r, const float *in, const float *angle, bool halves)
{
	static float cosines[2][PLACES * 6], sines[2][PLACES * 6];
	static double want[ROWS * HEADS * WIDE];
	struct grid_rope rope = { { cosines[0], cosines[1] }, { sines[0], sines[1] }, DIM / 4, halves };
	int32_t at[ROWS][2];
	int f = rope.freqs, apart = halves ? f : 2 * f;

	for (int a = 0; a < 2; a++)
		for (int i = 0; i < PLACES * f; i++) {
			cosines[a][i] = cosf(angle[a * PLACES * f + i]);
			sines[a][i] = sinf(angle[a * PLACES * f + i]);
		}
	memset(want, 0, sizeof want);
	for (int i = 0; i < ROWS; i++) {
		at[i][0] = i % PLACES;
		at[i][1] = i * 5 % PLACES;
		for (int h = 0; h < HEADS; h++) {
			const float *x = in + (i * HEADS + h) * DIM;
			double *y = want + (i * HEADS + h) * WIDE;

			for (int a = 0; a < 2; a++)
				for (int k = 0; k < f; k++) {
					int d = a * (halves ? 2 * f : f) + k;
					double c = (double)cosines[a][at[i][a] * f + k],
					       s = (double)sines[a][at[i][a] * f + k];

					y[d] = (double)x[d] * c - (double)x[d + apart] * s;
					y[d + apart] = (double)x[d + apart] * c + (double)x[d] * s;
				}
		}
	}
	p->grid = (const int32_t(*)[2])at;
	p->n_row = ROWS;
	p->be->ops->heads(p, r->v[2], WIDE, in, DIM, ROWS, HEADS, &rope);
	near("heads", r->v[2], want, ROWS * HEADS * WIDE, 1e-5);
	p->be->ops->heads(p, r->v[3], DIM, r->v[2], WIDE, ROWS, HEADS, NULL);
	for (int i = 0; i < ROWS * HEADS; i++)
		CHECK(!memcmp(r->v[3] + i * DIM, r->v[2] + i * WIDE, DIM * sizeof(float)), "head %d", i);
}

static void gelu(struct pass *p, const float *in, float *out)
{
	static float one[1] = { 1 };
	static double want[ROWS * COLS];
	struct err err;
	struct weight w;
	struct linear job = { .w = &w, .out = out, .ld = 1, .act = { .kind = ACT_GELU_ERF } };

	CHECK(!weight_plain(&w, "one", DT_F32, 1, 1, one, sizeof one, &err), "%s", err.msg);
	p->be->ops->linear(p, &job, 1, in, ROWS * COLS, 1);
	for (int i = 0; i < ROWS * COLS; i++)
		want[i] = (double)in[i] * (1 + erf((double)in[i] / sqrt(2))) / 2;
	near("gelu", out, want, ROWS * COLS, 1e-6);
}

static void all(enum cpu_level level, int threads, const float *in, const float *gain, struct results r[2], float *g)
{
	struct backend *be = backend_cpu_open(threads, level);
	struct pass p = { .be = be, .arith = ARITH_F32 };

	for (int halves = 0; halves < 2; halves++) {
		norm_and_bounds(&p, &r[halves], in, gain, gain + COLS);
		heads_on_grid(&p, &r[halves], in, gain, halves);
	}
	gelu(&p, in, g);
	be->ops->close(be);
}

int main(void)
{
	static float in[ROWS * COLS], gain[2 * PLACES * 6 + 2 * COLS], g[2][ROWS * COLS];
	static struct results first[2], r[2];

	fill(in, ROWS * COLS, 4);
	fill(gain, sizeof gain / sizeof *gain, 2);
	all(CPU_SCALAR, 1, in, gain, first, g[0]);
	for (enum cpu_level level = CPU_SCALAR; level < CPU_LEVELS; level = cpu_level_next(level))
		for (int threads = 1; threads <= 3; threads += 2) {
			memset(r, 0, sizeof r);
			all(level, threads, in, gain, r, g[1]);
			CHECK(!memcmp(first, r, sizeof r) && !memcmp(g[0], g[1], sizeof g[0]), "level %d, %d threads",
			      (int)level, threads);
		}
	return 0;
}
