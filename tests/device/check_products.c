/* check_products.c - kernels/coded.cl and plain.cl, and the quantiser of rows.cl: products and embedded rows of the processor's
 * linear and embed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device/lay.h"
#include "base/alloc.h"
#include "check.h"
#include "quant/gguf/gguf.h"

static const struct dmem none;

struct product {
	struct weight w;
	uint8_t *data;
	uint8_t *scales, *biases; /* of a type that goes with the group */
	float *x, *want;
	int rows;
	char what[96];
};

/* Runs linear of the processor; outputs may be further apart than the device's. */
static void reference(struct check *c, struct product *p)
{
	struct pass pass = { .be = c->cpu, .arith = ARITH_FAST, .n_row = p->rows };
	struct linear job = { .w = &p->w, .out = p->want, .ld = (size_t)p->w.rows };

	c->cpu->ops->linear(&pass, &job, 1, p->x, p->rows, p->w.cols);
}

static void embedded(struct check *c, struct product *p, const char *module, struct dmem w, struct dmem sb, int kind)
{
	enum { N = 5 };
	int32_t tok[N] = { 0, p->w.rows - 1, p->w.rows / 2, -1, 1 };
	struct pass pass = { .be = c->cpu, .arith = ARITH_FAST, .n_row = N, .tok = tok };
	size_t n = (size_t)N * (size_t)p->w.cols;
	float *want = xmalloc(n * sizeof *want);
	struct dmem out = check_up(c, NULL, n * sizeof *want), dt = check_up(c, tok, sizeof tok);
	int gx = (p->w.cols + 255) / 256;

	c->cpu->ops->embed(&pass, want, &p->w);
	if (sb.base)
		check_run(
			c, module, "embed", 256, gx, N,
			ARGS(darg_mem(out), darg_mem(w), darg_mem(sb), darg_mem(dt), darg_int(p->w.cols / p->w.group)));
	else
		check_run(c, module, "embed", 256, gx, N,
		          ARGS(darg_mem(out), darg_mem(w), darg_mem(dt), darg_int(kind), darg_int(p->w.cols)));
	check_alike(c, p->what, want, out, n);
	free(want);
}

static void coded_on_device(struct check *c, struct product *p)
{
	const struct weight *w = &p->w;
	const char *module = lay_module(w);
	int groups = w->cols / w->group, all = p->rows * groups;
	uint32_t *codes = xmalloc(lay_code_bytes(w));
	float *scales = xmalloc(lay_scale_bytes(w));
	struct dmem dw, ds, dx, q, qs, qss, out;
	struct darg args[14];

	lay_coded(codes, scales, w);
	dw = check_up(c, codes, lay_code_bytes(w)), ds = check_up(c, scales, lay_scale_bytes(w));
	dx = check_up(c, p->x, (size_t)p->rows * (size_t)w->cols * sizeof(float));
	q = check_up(c, NULL, (size_t)p->rows * (size_t)w->cols);
	qs = check_up(c, NULL, (size_t)all * sizeof(float)), qss = check_up(c, NULL, (size_t)all * sizeof(float));
	out = check_up(c, NULL, (size_t)p->rows * (size_t)w->rows * sizeof(float));
	check_run(c, "rows", "quantise", 64, (all + 3) / 4, 1,
	          ARGS(darg_mem(q), darg_mem(qs), darg_mem(qss), darg_mem(dx), darg_int(w->group), darg_int(all)));
	memcpy(args,
	       (struct darg[14]){ darg_mem(out), darg_mem(dw), darg_mem(ds), darg_mem(q), darg_mem(qs), darg_mem(qss),
	                          darg_mem(none), darg_mem(none), darg_mem(none), darg_int(w->rows), darg_int(groups),
	                          darg_int(p->rows), darg_int(w->rows), darg_int(0) },
	       sizeof args);
	for (int many = p->rows > 8; many < 2; many++) {
		check_run(c, module, many ? "many" : "few", many ? 128 : 256,
		          many ? (w->rows + 63) / 64 : (w->rows + 15) / 16, many ? (p->rows + 63) / 64 : 1, args, 14);
		snprintf(p->what, sizeof p->what, "%s of %s: %d rows of %d by %d", many ? "many" : "few", module,
		         p->rows, w->cols, w->rows);
		check_alike(c, p->what, p->want, out, (size_t)p->rows * (size_t)w->rows);
	}
	snprintf(p->what, sizeof p->what, "embed of %s: %d by %d", module, w->cols, w->rows);
	embedded(c, p, module, dw, ds, 0);
	free(codes), free(scales);
}

/* Ends p. */
static void compared(struct check *c, struct product *p)
{
	p->x = check_floats((size_t)p->rows * (size_t)p->w.cols, (uint32_t)p->w.rows);
	p->want = xmalloc((size_t)p->rows * (size_t)p->w.rows * sizeof(float));
	reference(c, p);
	coded_on_device(c, p);
	check_done(c);
	free(p->data), free(p->scales), free(p->biases), free(p->x), free(p->want);
}

static uint8_t *random_bytes(size_t n, uint32_t *seed)
{
	uint8_t *to = xmalloc(n);

	for (size_t i = 0; i < n; i++)
		to[i] = (uint8_t)(check_random(seed) >> 8);
	return to;
}

/* n numbers of a type, their absolute values about 2^exponent. */
static uint8_t *scales_of(enum dtype type, size_t n, int exponent, uint32_t *seed)
{
	uint8_t *to = xmalloc(n * (size_t)dtype_size(type));

	for (size_t i = 0; i < n; i++) {
		uint32_t r = check_random(seed);
		float f = ldexpf(1.0f + (float)(r & 0xffff) * 0x1p-16f, exponent) * (r >> 31 ? -1.0f : 1.0f);
		uint16_t h = type == DT_F16 ? float_to_f16(f) : float_to_bf16(f);

		if (type == DT_F32)
			memcpy(to + 4 * i, &f, 4);
		else
			memcpy(to + 2 * i, &h, 2);
	}
	return to;
}

static void affine(struct check *c, int bits, int group, int cols, int outputs, int rows)
{
	struct product p = { .rows = rows };
	size_t bytes = (size_t)outputs * (size_t)cols * (size_t)bits / 8,
	       groups = (size_t)outputs * (size_t)(cols / group);
	uint32_t seed = (uint32_t)(bits * cols + rows);
	enum dtype type = group == 64 ? DT_BF16 : group == 32 ? DT_F16 : DT_F32;
	struct err err = { 0 };

	p.data = random_bytes(bytes, &seed);
	p.scales = scales_of(type, groups, -8, &seed), p.biases = scales_of(type, groups, -5, &seed);
	check_ok(weight_coded(&p.w, "w", "affine", bits, group, outputs, cols, p.data, bytes, p.scales,
	                      groups * (size_t)dtype_size(type), p.biases, groups * (size_t)dtype_size(type), type,
	                      &err),
	         &err);
	compared(c, &p);
}

/* "mxfp4" and "nvfp4" as folders have them, whose rows have zeros of either sign. */
static void fp4(struct check *c, const char *mode, int group, int cols, int outputs, int rows)
{
	struct product p = { .rows = rows };
	size_t bytes = (size_t)outputs * (size_t)cols / 2, groups = (size_t)outputs * (size_t)(cols / group);
	uint32_t seed = (uint32_t)(cols + rows);
	struct err err = { 0 };

	p.data = random_bytes(bytes, &seed), p.scales = random_bytes(groups, &seed);
	for (size_t i = 0; i < groups; i++)
		p.scales[i] = group == 32 ? 96 + p.scales[i] % 64 : p.scales[i];
	check_ok(weight_coded(&p.w, "w", mode, 4, group, outputs, cols, p.data, bytes, p.scales, groups, NULL, 0, DT_U8,
	                      &err),
	         &err);
	compared(c, &p);
}

/* Rows of random blocks of a type of GGUF; `half`, `halves`: where each has its numbers of 16 bits. */
static void blocks(struct check *c, const char *name, int half, int halves, int cols, int outputs, int rows)
{
	const struct gguf_type *type = gguf_type_named(name);
	size_t n = (size_t)outputs * (size_t)(cols / type->block) * (size_t)type->block_bytes;
	struct product p = { .rows = rows };
	uint32_t seed = (uint32_t)(cols + rows + type->id);
	struct err err = { 0 };

	p.data = random_bytes(n, &seed);
	for (size_t b = 0; b < n; b += (size_t)type->block_bytes)
		for (int i = 0; i < halves; i++) {
			uint16_t h = (uint16_t)((check_random(&seed) & 0x83ff) | 0x1c00);

			memcpy(p.data + b + half + 2 * i, &h, sizeof h);
		}
	check_ok(weight_gguf(&p.w, "w", type, outputs, cols, p.data, n, &err), &err);
	compared(c, &p);
}

static void plain(struct check *c, enum dtype type, int cols, int outputs, int rows)
{
	struct product p = { .rows = rows };
	size_t n = (size_t)outputs * (size_t)cols, bytes = n * (size_t)dtype_size(type);
	float *f = check_floats(n, (uint32_t)cols);
	struct dmem dw, dx, out;
	struct err err = { 0 };
	int kind = type == DT_F32 ? 2 : type == DT_F16;

	p.data = xmalloc(bytes);
	for (size_t i = 0; i < n; i++) {
		uint16_t h = type == DT_F16 ? float_to_f16(f[i]) : float_to_bf16(f[i]);

		if (type == DT_F32)
			memcpy(p.data + 4 * i, f + i, 4);
		else
			memcpy(p.data + 2 * i, &h, 2);
	}
	check_ok(weight_plain(&p.w, "w", type, outputs, cols, p.data, bytes, &err), &err);
	p.x = check_floats((size_t)rows * (size_t)cols, 77),
	p.want = xmalloc((size_t)rows * (size_t)outputs * sizeof(float));
	reference(c, &p);
	dw = check_up(c, p.data, bytes), dx = check_up(c, p.x, (size_t)rows * (size_t)cols * sizeof(float));
	out = check_up(c, NULL, (size_t)rows * (size_t)outputs * sizeof(float));
	check_run(c, "plain", "plain", 256, (outputs + 31) / 32, (rows + 3) / 4,
	          ARGS(darg_mem(out), darg_mem(dw), darg_mem(dx), darg_mem(none), darg_mem(none), darg_mem(none),
	               darg_int(kind), darg_int(outputs), darg_int(outputs), darg_int(cols), darg_int(rows),
	               darg_int(0)));
	snprintf(p.what, sizeof p.what, "plain %s: %d rows of %d by %d", dtype_name(type), rows, cols, outputs);
	check_alike(c, p.what, p.want, out, (size_t)rows * (size_t)outputs);
	snprintf(p.what, sizeof p.what, "embed of %s: %d by %d", dtype_name(type), cols, outputs);
	embedded(c, &p, "plain", dw, (struct dmem){ 0 }, kind);
	check_done(c);
	free(f), free(p.data), free(p.x), free(p.want);
}

/* A product with a bias, to its own memory. */
static struct dmem finished(struct check *c, const float *w, const float *bias, const float *x, int cols, int outputs,
                            int rows)
{
	struct dmem out = check_up(c, NULL, (size_t)rows * (size_t)outputs * sizeof(float));

	check_run(c, "plain", "plain", 256, (outputs + 31) / 32, (rows + 3) / 4,
	          ARGS(darg_mem(out), darg_mem(check_up(c, w, (size_t)outputs * (size_t)cols * sizeof *w)),
	               darg_mem(check_up(c, x, (size_t)rows * (size_t)cols * sizeof *x)),
	               darg_mem(check_up(c, bias, (size_t)outputs * sizeof *bias)), darg_mem(none), darg_mem(none),
	               darg_int(2), darg_int(outputs), darg_int(outputs), darg_int(cols), darg_int(rows), darg_int(0)));
	return out;
}

/* Biases, and the activations that change their factor, which linear alone has. */
static void activated(struct check *c, enum act kind)
{
	enum { COLS = 50, OUTPUTS = 90, ROWS = 3, ALL = ROWS * OUTPUTS };
	float *w = check_floats(2 * OUTPUTS * COLS, 21), *bias = check_floats(2 * OUTPUTS, 22),
	      *x = check_floats(ROWS * COLS, 23);
	float *want = xmalloc(ALL * sizeof *want);
	struct weight gate, factor;
	struct linear up = { .w = &factor, .bias = bias + OUTPUTS }, job = {
		.w = &gate, .out = want, .ld = OUTPUTS, .bias = bias, .up = &up, .act = { kind, 1.702f, 7.0f }
	};
	struct pass pass = { .be = c->cpu, .arith = ARITH_FAST, .n_row = ROWS };
	struct err err = { 0 };
	struct dmem out, y;
	char what[64];

	check_ok(weight_plain(&gate, "gate", DT_F32, OUTPUTS, COLS, w, OUTPUTS * COLS * sizeof *w, &err), &err);
	check_ok(weight_plain(&factor, "factor", DT_F32, OUTPUTS, COLS, w + OUTPUTS * COLS, OUTPUTS * COLS * sizeof *w,
	                      &err),
	         &err);
	c->cpu->ops->linear(&pass, &job, 1, x, ROWS, COLS);
	out = finished(c, w, bias, x, COLS, OUTPUTS, ROWS);
	y = finished(c, w + OUTPUTS * COLS, bias + OUTPUTS, x, COLS, OUTPUTS, ROWS);
	check_run(c, "rows", "gate", 256, (ALL + 255) / 256, 1,
	          ARGS(darg_mem(out), darg_mem(y), darg_int(ALL), darg_int((int)kind), darg_float(1.702f),
	               darg_float(7.0f)));
	snprintf(what, sizeof what, "product with biases and activation %d", (int)kind);
	check_alike(c, what, want, out, ALL);
	check_done(c);
	free(w), free(bias), free(x), free(want);
}

/* Types of GGUF: what they have of numbers of 16 bits, and where; every module that one of them has. */
static void all_blocks(struct check *c)
{
	static const struct {
		const char *name;
		int half, halves;
		bool small, many;
	} types[] = {
		{ "Q8_0", 0, 1, false, true },     { "Q4_K", 0, 2, false, true },    { "Q6_K", 208, 1, true, true },
		{ "Q5_K", 0, 2, true, true },      { "Q4_0", 0, 1, false, false },   { "MXFP4", 0, 0, true, true },
		{ "NVFP4", 0, 0, false, false },   { "Q3_K", 108, 1, false, false }, { "Q2_K", 80, 2, false, true },
		{ "Q5_0", 0, 1, false, false },    { "Q4_1", 0, 2, false, false },   { "Q5_1", 0, 2, false, false },
		{ "TQ1_0", 52, 1, false, false },  { "TQ2_0", 64, 1, false, false }, { "Q1_0", 0, 1, false, false },
		{ "IQ4_NL", 0, 1, false, false },  { "IQ4_XS", 0, 1, false, true },  { "IQ3_S", 0, 1, false, false },
		{ "IQ3_XXS", 0, 1, false, false }, { "IQ2_S", 0, 1, false, false },  { "IQ2_XS", 0, 1, false, false },
		{ "IQ2_XXS", 0, 1, false, false }, { "IQ1_S", 0, 1, false, false },  { "IQ1_M", 0, 0, false, false },
		{ "Q2_0", 0, 1, false, false },    { "PQ2_0", 0, 1, false, false },  { "PTQ1_0", 26, 1, false, false },
	};

	for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
		if (c->small && !types[i].small)
			continue;
		blocks(c, types[i].name, types[i].half, types[i].halves, c->small ? 256 : 1280, 40, 3);
		if (!c->small && types[i].many)
			blocks(c, types[i].name, types[i].half, types[i].halves, 512, 130, 70);
	}
}

void check_products(struct check *c)
{
	static const int group[] = { 64, 32, 128 };

	for (int bits = 4; bits <= 8; bits += 4)
		for (int g = 0; g < (c->small ? 1 : 3); g++) {
			affine(c, bits, group[g], c->small ? 128 : 768, c->small ? 16 : 200, c->small ? 3 : 1);
			if (c->small)
				continue;
			affine(c, bits, group[g], 2560, 80, 3);
			affine(c, bits, group[g], 256, 64, 8);
			affine(c, bits, group[g], 384, 130, 70);
		}
	all_blocks(c);
	if (!c->small) {
		for (int bits = 1; bits <= 6; bits += bits == 3 ? 2 : 1)
			affine(c, bits, bits == 6 ? 128 : 64, 768, 40, 3);
		fp4(c, "mxfp4", 32, 768, 40, 3);
		fp4(c, "nvfp4", 16, 768, 40, 3);
	}
	activated(c, ACT_NONE);
	activated(c, ACT_CLAMPED);
	activated(c, ACT_LIMITED);
	for (int type = DT_F16; type <= DT_F32; type++) {
		plain(c, (enum dtype)type, 50, 20, 3);
		if (c->small)
			continue;
		plain(c, (enum dtype)type, 1024, 70, 5);
		plain(c, (enum dtype)type, 257, 33, 9);
	}
}
