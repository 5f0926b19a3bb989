/* check_moe.c - kernels/moe.cl, and coded.cl and plain.cl by expert: the operation moe of the backend over the device against the
 * processor's, at its best level and at scalar. */
#include <stdlib.h>
#include <string.h>

#include "backend/device/device_backend.h"
#include "base/alloc.h"
#include "check.h"
#include "quant/gguf/gguf.h"

struct mix_case {
	const char *what;
	int experts, k, cols, inner, shared;
	/* Of an expert's first matrices, and of its last: 4 and 8 affine codes, 16 bf16, 32 f32, or one of these. */
	enum { MXFP4 = 100, Q4_K, Q6_K } bits[2];
	enum moe_route route;
	struct activation act;
	enum { GATED, UP_ALONE, PAIRS } form;
	int groups, groups_used;
	/* What else there is.  LOVED: all rows choose expert 1; SHUNNED: none chooses the first half. */
	enum {
		NORMALISED = 1,
		BIASED = 2,
		SELECTED = 4,
		SCALED = 8,
		STRICT = 16,
		LOVED = 32,
		SHUNNED = 64,
		WEIGHS_INPUT = 128,
		SHARED_ROUTER = 256,
		SHARED_UP_ALONE = 512,
		ADDS = 1024
	} with;
};
static const struct mix_case cases[] = {
	{ "softmax, ties",
	  8,
	  3,
	  128,
	  64,
	  64,
	  { 4, 4 },
	  ROUTE_SOFTMAX,
	  { .kind = ACT_SILU },
	  GATED,
	  0,
	  0,
	  NORMALISED | SHARED_ROUTER },
	{ "softmax, one expert has all rows",
	  5,
	  1,
	  64,
	  64,
	  0,
	  { 8, 8 },
	  ROUTE_SOFTMAX,
	  { .kind = ACT_GELU_TANH },
	  GATED,
	  0,
	  0,
	  LOVED | ADDS },
	{ "softmax, experts without rows",
	  300,
	  4,
	  64,
	  64,
	  64,
	  { 4, 8 },
	  ROUTE_SOFTMAX,
	  { .kind = ACT_SILU },
	  GATED,
	  0,
	  0,
	  SHUNNED | SELECTED },
	{ "sigmoids in groups",
	  16,
	  4,
	  64,
	  128,
	  64,
	  { 8, 4 },
	  ROUTE_SIGMOID,
	  { .kind = ACT_RELU2 },
	  UP_ALONE,
	  4,
	  2,
	  NORMALISED | SELECTED | SCALED | SHARED_UP_ALONE },
	{ "sigmoids in groups, strict",
	  12,
	  5,
	  64,
	  64,
	  0,
	  { 4, 16 },
	  ROUTE_SIGMOID,
	  { .kind = ACT_SILU },
	  GATED,
	  6,
	  3,
	  STRICT | SELECTED },
	{ "the chosen's softmax, pairs with biases",
	  6,
	  2,
	  64,
	  64,
	  0,
	  { 16, 16 },
	  ROUTE_TOP,
	  { ACT_CLAMPED, 1.702f, 7.0f, 0 },
	  PAIRS,
	  0,
	  0,
	  BIASED | ADDS },
	{ "pairs of codes", 6, 4, 64, 64, 0, { 8, 8 }, ROUTE_TOP, { ACT_CLIPPED, 0, 1.5f, 0 }, PAIRS, 0, 0, BIASED },
	{ "two rounds", 7, 2, 50, 33, 0, { 32, 16 }, ROUTE_ROUNDS, { .kind = ACT_SILU }, GATED, 0, 0, 0 },
	{ "roots of softplus",
	  9,
	  3,
	  64,
	  64,
	  64,
	  { 4, 32 },
	  ROUTE_ROOT,
	  { .kind = ACT_SILU },
	  GATED,
	  0,
	  0,
	  SCALED | SELECTED | NORMALISED },
	{ "weights of inputs",
	  4,
	  1,
	  128,
	  64,
	  64,
	  { 4, 4 },
	  ROUTE_SIGMOID,
	  { .kind = ACT_SILU },
	  GATED,
	  0,
	  0,
	  WEIGHS_INPUT },
	{ "pairs of mxfp4",
	  6,
	  4,
	  64,
	  64,
	  0,
	  { MXFP4, MXFP4 },
	  ROUTE_TOP,
	  { ACT_CLAMPED, 1.702f, 7.0f, 0 },
	  PAIRS,
	  0,
	  0,
	  BIASED },
	{ "types of GGUF",
	  5,
	  2,
	  256,
	  256,
	  0,
	  { Q4_K, Q6_K },
	  ROUTE_SOFTMAX,
	  { .kind = ACT_SILU },
	  GATED,
	  0,
	  0,
	  NORMALISED },
	{ "weights of inputs, plain",
	  4,
	  2,
	  40,
	  24,
	  0,
	  { 16, 32 },
	  ROUTE_SIGMOID,
	  { .kind = ACT_SILU },
	  GATED,
	  0,
	  0,
	  WEIGHS_INPUT },
};

/* All that a mixture names, in one piece of memory that is placed. */
struct made {
	uint8_t *mem;
	size_t used, cap;
	struct moe m;
	struct weight router, one[4], gate[300], up[300], down[300];
	uint32_t seed;
};

static uint8_t *take(struct made *d, size_t n)
{
	uint8_t *p = d->mem + d->used;

	d->used += (n + 63) / 64 * 64;
	if (d->used > d->cap)
		abort();
	return p;
}

static float *floats(struct made *d, size_t n, float by)
{
	float *x = check_floats(n, d->seed++), *to = (float *)(void *)take(d, n * sizeof *to);

	for (size_t i = 0; i < n; i++)
		to[i] = x[i] > 2 || x[i] < -2 ? by : x[i] * by;
	free(x);
	return to;
}

static uint8_t *bytes(struct made *d, size_t n)
{
	uint8_t *to = take(d, n);

	for (size_t i = 0; i < n; i++)
		to[i] = (uint8_t)(check_random(&d->seed) >> 8);
	return to;
}

static void matrix_mxfp4(struct made *d, struct weight *w, int rows, int cols)
{
	size_t n = (size_t)rows * (size_t)cols, codes = n / 2, groups = n / 32;
	uint8_t *c = bytes(d, codes), *s = bytes(d, groups);
	struct err err = { 0 };

	for (size_t i = 0; i < groups; i++)
		s[i] = 118 + s[i] % 8;
	check_ok(weight_coded(w, "w", "mxfp4", 4, 32, rows, cols, c, codes, s, groups, NULL, 0, DT_U8, &err), &err);
}

/* Random blocks, whose f16 scales are about 2^-10. */
static void matrix_gguf(struct made *d, struct weight *w, bool q4, int rows, int cols)
{
	const struct gguf_type *type = gguf_type_named(q4 ? "Q4_K" : "Q6_K");
	size_t each = (size_t)type->block_bytes, n = (size_t)rows * (size_t)(cols / type->block) * each;
	uint8_t *b = bytes(d, n);
	struct err err = { 0 };

	for (size_t i = 0; i < n; i += each)
		for (int k = 0; k < 1 + q4; k++) {
			uint16_t h = (uint16_t)(0x1400 | (check_random(&d->seed) & 0x83ff));

			memcpy(b + i + (q4 ? 2 * k : 208), &h, sizeof h);
		}
	check_ok(weight_gguf(w, "w", type, rows, cols, b, n, &err), &err);
}

static void matrix(struct made *d, struct weight *w, int bits, int rows, int cols)
{
	enum { GROUP = 64 };
	size_t n = (size_t)rows * (size_t)cols, codes = n * (size_t)bits / 8, groups = n / GROUP;
	struct err err = { 0 };
	float *f;

	if (bits == MXFP4) {
		matrix_mxfp4(d, w, rows, cols);
		return;
	}
	if (bits > MXFP4) {
		matrix_gguf(d, w, bits == Q4_K, rows, cols);
		return;
	}
	if (bits == 32) {
		f = floats(d, n, 0.3f);
		check_ok(weight_plain(w, "w", DT_F32, rows, cols, f, 4 * n, &err), &err);
		return;
	}
	f = check_floats(2 * n, d->seed++);
	if (bits == 16) {
		uint16_t *h = (uint16_t *)(void *)take(d, 2 * n);

		for (size_t i = 0; i < n; i++)
			h[i] = float_to_bf16(f[i] > 2 || f[i] < -2 ? 0.2f : f[i] * 0.2f);
		check_ok(weight_plain(w, "w", DT_BF16, rows, cols, h, 2 * n, &err), &err);
	} else {
		uint8_t *c = bytes(d, codes);
		uint16_t *s = (uint16_t *)(void *)take(d, 2 * groups), *b = (uint16_t *)(void *)take(d, 2 * groups);

		for (size_t i = 0; i < groups; i++) {
			s[i] = (uint16_t)(0x3b80 | (check_random(&d->seed) & 0x807f));
			b[i] = (uint16_t)(0x3d00 | (check_random(&d->seed) & 0x807f));
		}
		check_ok(weight_coded(w, "w", "affine", bits, GROUP, rows, cols, c, codes, s, 2 * groups, b, 2 * groups,
		                      DT_BF16, &err),
		         &err);
	}
	free(f);
}

/* Rows of the router in pairs of equals, so that scores are. */
static void router(struct made *d, const struct mix_case *c)
{
	float *f;

	matrix(d, &d->router, 32, c->experts, c->cols);
	f = (float *)(void *)(uintptr_t)d->router.data;
	for (int e = 1; e < c->experts; e += 2)
		memcpy(f + (size_t)e * (size_t)c->cols, f + (size_t)(e - 1) * (size_t)c->cols,
		       (size_t)c->cols * sizeof *f);
	d->m.router = &d->router;
	if (!(c->with & (BIASED | LOVED | SHUNNED)))
		return;
	d->m.router_bias = f = floats(d, (size_t)c->experts, c->with & BIASED ? 0.5f : 0.0f);
	if (c->with & LOVED)
		f[1] = 200.0f;
	for (int e = 0; e < c->experts / 2 && c->with & SHUNNED; e++)
		f[e] = -40.0f;
}

static void shared(struct made *d, const struct mix_case *c)
{
	if (!c->shared)
		return;
	d->m.shared_inner = c->shared;
	matrix(d, &d->one[1], c->bits[0], c->shared, c->cols);
	matrix(d, &d->one[2], c->bits[1], c->cols, c->shared);
	d->m.shared_up = &d->one[1];
	d->m.shared_down = &d->one[2];
	if (!(c->with & SHARED_UP_ALONE)) {
		matrix(d, &d->one[0], c->bits[0], c->shared, c->cols);
		d->m.shared_gate = &d->one[0];
		d->m.shared_act.kind = ACT_GELU_ERF;
	}
	if (c->with & SHARED_ROUTER) {
		matrix(d, &d->one[3], 32, 1, c->cols);
		d->m.shared_router = &d->one[3];
	}
}

static void make(struct made *d, const struct mix_case *c)
{
	int first = c->form == PAIRS ? 2 * c->inner : c->inner;

	d->m = (struct moe){ .experts = c->experts,
		             .top_k = c->k,
		             .inner = c->inner,
		             .normalise = c->with & NORMALISED,
		             .act = c->act,
		             .route = c->route,
		             .groups = c->groups,
		             .groups_used = c->groups_used,
		             .groups_strict = c->with & STRICT,
		             .scale = c->with & SCALED ? 2.5f : 0,
		             .norm_eps = 1e-20f,
		             .jitter = 0.05f,
		             .weight_input = c->with & WEIGHS_INPUT,
		             .down = d->down };
	d->used = 0;
	router(d, c);
	shared(d, c);
	for (int e = 0; e < c->experts; e++) {
		if (c->form != UP_ALONE)
			matrix(d, &d->gate[e], c->bits[0], first, c->cols);
		if (c->form != PAIRS)
			matrix(d, &d->up[e], c->bits[0], c->inner, c->cols);
		matrix(d, &d->down[e], c->bits[1], c->cols, c->inner);
	}
	d->m.gate = c->form == UP_ALONE ? NULL : d->gate;
	d->m.up = c->form == PAIRS ? NULL : d->up;
	if (c->with & BIASED) {
		d->m.gate_bias = floats(d, (size_t)(c->experts * first), 0.3f);
		d->m.down_bias = floats(d, (size_t)(c->experts * c->cols), 0.3f);
	}
	if (c->with & SELECTED) {
		float *bias = floats(d, (size_t)c->experts, 0.2f);

		/* Scores below that of experts whose group was not chosen. */
		for (int e = 0; e < c->experts && c->groups; e++)
			bias[e] -= 1.0f;
		d->m.select_bias = bias;
	}
	if (c->with & SCALED)
		d->m.expert_scale = floats(d, (size_t)c->experts, 1.5f);
}

/* out[rows][cols] of x, and of what is there where the case adds. */
static void compute(struct backend *be, const struct made *d, const struct mix_case *c, int rows, const float *x,
                    float *out)
{
	size_t bytes = (size_t)rows * (size_t)c->cols * sizeof *x;
	struct pass p = { .be = be, .arith = ARITH_FAST };
	float *in = be->ops->alloc(be, bytes), *far = be->ops->alloc(be, bytes);

	be->ops->write(be, in, x, bytes);
	be->ops->write(be, far, x, bytes);
	be->ops->moe(&p, far, c->with & ADDS, &d->m, in, NULL, rows, c->cols);
	check_ok(be->ops->read(be, out, far, bytes), &be->failed);
	be->ops->free(be, in, bytes);
	be->ops->free(be, far, bytes);
}

static void one_case(struct check *c, struct made *d, const struct mix_case *m, struct backend *device, int rows)
{
	struct backend *scalar = backend_cpu_open(1, CPU_SCALAR);
	size_t n = (size_t)rows * (size_t)m->cols;
	float *x = check_floats(n, (uint32_t)rows), *want = xmalloc(n * sizeof *want),
	      *again = xmalloc(n * sizeof *again), *got = xmalloc(n * sizeof *got);
	char what[120];

	for (size_t i = 0; i < n; i++)
		x[i] = x[i] > 4 || x[i] < -4 ? 0.25f : x[i];
	compute(c->cpu, d, m, rows, x, want);
	compute(scalar, d, m, rows, x, again);
	compute(device, d, m, rows, x, got);
	snprintf(what, sizeof what, "mixture, %s: %d rows", m->what, rows);
	check_floats_alike(c, what, want, got, n);
	check_floats_alike(c, "the same at level scalar", again, got, n);
	scalar->ops->close(scalar);
	free(x), free(want), free(again), free(got);
}

void check_moe(struct check *c)
{
	static const int rows[] = { 1, 3, 20, 90 };
	struct backend *device = check_backend(c);
	struct made *d = xcalloc(1, sizeof *d);
	struct err err = { 0 };

	d->cap = (size_t)32 << 20;
	d->mem = xcalloc(1, d->cap);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct placed placed = { .p = d->mem };

		if (c->small && cases[i].experts > 100)
			continue;
		make(d, &cases[i]);
		placed.bytes = d->used;
		check_ok(device->ops->place(device, &placed, 1, &err), &err);
		for (int k = c->small; k < (c->small ? 2 : 4); k++)
			one_case(c, d, &cases[i], device, rows[k]);
		device->ops->unplace(device, &placed, 1);
	}
	device->ops->close(device);
	check_done(c);
	free(d->mem), free(d);
}
