/* test_profile.c - counters around the operations: they count what was asked for
 * and change no bit. */
#include <assert.h>
#include <string.h>

#include "backend/profile.h"

enum { N = 3, ROWS = 40, COLS = 128, GROUP = 64 };

static void make(struct weight *w, const char *name, int bits, int rows, int cols)
{
	enum { MOST = 64 * COLS };
	static uint8_t data[MOST], scales[MOST / GROUP * 2], biases[sizeof scales];
	size_t n = (size_t)rows * (size_t)cols, n_scale = n / GROUP * 2;
	struct err err;
	int rc;

	assert(n <= MOST);
	for (size_t i = 0; i < sizeof data; i++)
		data[i] = (uint8_t)(i * 37 >> 2);
	for (size_t i = 0; i < sizeof scales; i += 2)
		scales[i + 1] = biases[i + 1] = (uint8_t)(0x3c + i % 4);
	rc = weight_coded(w, name, "affine", bits, GROUP, rows, cols, data, n * (size_t)bits / 8, scales, n_scale,
	                  biases, n_scale, DT_BF16, &err);
	assert(!rc);
}

/* Of a mixture those experts count that the rows chose, each once: three rows that all choose two of eight read two. */
static void test_mixture(struct backend *be)
{
	enum { EXPERTS = 8, TOP = 2, INNER = 64 };
	static float router[EXPERTS * COLS], bias[EXPERTS] = { [1] = 9, [6] = 8 };
	struct weight by, in[EXPERTS], out[EXPERTS];
	float x[N * COLS], y[N * COLS];
	struct moe m = { .experts = EXPERTS,
		         .top_k = TOP,
		         .inner = INNER,
		         .router = &by,
		         .router_bias = bias,
		         .gate = in,
		         .up = in,
		         .down = out,
		         .act = { .kind = ACT_SILU } };
	struct pass p = { .be = be, .arith = ARITH_FAST, .n_row = N };
	double experts = 3.0 * INNER * COLS / 2 + 2.0 * 2 * 3 * INNER * COLS / GROUP,
	       each = 2.0 * N * TOP * INNER * COLS;
	struct profile f;
	struct err err;
	int rc = weight_plain(&by, "router", DT_F32, EXPERTS, COLS, router, sizeof router, &err);

	assert(!rc);
	for (int e = 0; e < EXPERTS; e++) {
		make(&in[e], "experts.up_proj", 4, INNER, COLS);
		make(&out[e], "experts.down_proj", 4, COLS, INNER);
	}
	for (int i = 0; i < N * COLS; i++)
		x[i] = (float)(i % 31) / 9 - 1;
	profile_start(&f, be, backend_cpu_choices(be));
	be->ops->moe(&p, y, false, &m, x, NULL, N, COLS);
	profile_stop(&f, be);
	assert(p.experts_used == TOP && f.n == 1 && !strcmp(f.row[0].op, "moe"));
	assert(f.row[0].bytes == TOP * experts + sizeof router);
	assert(f.row[0].int_ops == 3 * each);
}

int main(void)
{
	const double scales = 2.0 * 2 * ROWS * COLS / GROUP, products = 2.0 * N * ROWS * COLS;
	struct backend *be = backend_cpu_open(2, cpu_detect());
	const struct backend_ops *plain = be->ops;
	struct weight w4, w8;
	float in[N * COLS], out[2][N * ROWS], one[N * ROWS], sum[COLS] = { 0 };
	struct linear both[] = { { &w4, out[0], ROWS, NULL, false }, { &w8, out[1], ROWS, NULL, false } };
	struct linear single = { &w4, one, ROWS, NULL, false };
	struct pass p = { .be = be, .arith = ARITH_FAST, .n_row = N };
	struct profile f;
	struct op_cost all;

	make(&w4, "a.layers.17.mlp.up_proj.weight", 4, ROWS, COLS);
	make(&w8, "lm_head", 8, ROWS, COLS);
	for (int i = 0; i < N * COLS; i++)
		in[i] = (float)(i % 29) / 7 - 2;

	be->ops->linear(&p, &single, 1, in, N, COLS);
	profile_start(&f, be, backend_cpu_choices(be));
	be->ops->linear(&p, both, 2, in, N, COLS);
	be->ops->linear(&p, both, 2, in, N, COLS);
	be->ops->linear(&p, &both[1], 1, in, N, COLS);
	be->ops->norm(&p, sum, in, 1, COLS, NULL, 1e-6f);
	profile_stop(&f, be);
	assert(be->ops == plain && !be->profile);
	be->ops->linear(&p, both, 2, in, N, COLS);
	assert(!memcmp(one, out[0], sizeof one));

	assert(f.n == 3);
	assert(!strcmp(f.row[0].op, "linear") && !strcmp(f.row[0].what, "mlp.up_proj +1") && f.row[0].calls == 2);
	assert(f.row[0].bytes == 2 * (ROWS * COLS / 2 + ROWS * COLS + 2 * scales));
	assert(f.row[0].int_ops == 4 * products && f.row[0].float_ops == 0);
	assert(!strcmp(f.row[1].what, "lm_head") && f.row[1].bytes == ROWS * COLS + scales);
	assert(!strcmp(f.row[2].op, "norm") && f.row[2].calls == 1 && f.row[2].bytes == 0);
	all = profile_total(&f);
	assert(all.calls == 4 && all.int_ops == 5 * products && all.ns >= f.row[0].ns);

	/* In the reference arithmetic the same products are of floats. */
	p.arith = ARITH_F32;
	profile_start(&f, be, backend_cpu_choices(be));
	be->ops->linear(&p, &single, 1, in, N, COLS);
	profile_stop(&f, be);
	assert(f.n == 1 && f.row[0].int_ops == 0 && f.row[0].float_ops == products);
	test_mixture(be);
	be->ops->close(be);
	return 0;
}
