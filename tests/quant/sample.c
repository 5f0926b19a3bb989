/* sample.c - see sample.h. */
#include "sample.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "quant/bf16/bf16_kernels.h"
#include "quant/gguf/gguf.h"

#define GGUF(name, group, half, halves)                 \
	{                                               \
		name, "gguf", 0, group, 0, half, halves \
	}
const struct kind kinds[] = {
	{ "f32", NULL, 32, 0, DT_F32 },   { "f16", NULL, 16, 0, DT_F16 },   { "bf16", NULL, 16, 0, DT_BF16 },
	{ "affine1", "affine", 1, 0, 0 }, { "affine2", "affine", 2, 0, 0 }, { "affine3", "affine", 3, 0, 0 },
	{ "affine4", "affine", 4, 0, 0 }, { "affine5", "affine", 5, 0, 0 }, { "affine6", "affine", 6, 0, 0 },
	{ "affine8", "affine", 8, 0, 0 }, { "mxfp4", "mxfp4", 4, 32, 0 },   { "nvfp4", "nvfp4", 4, 16, 0 },
	{ "mxfp8", "mxfp8", 8, 32, 0 },   { "fp8", "fp8", 8, 128, DT_F32 }, GGUF("Q4_0", 32, 0, 1),
	GGUF("Q4_1", 32, 0, 2),           GGUF("Q5_0", 32, 0, 1),           GGUF("Q5_1", 32, 0, 2),
	GGUF("Q8_0", 32, 0, 1),           GGUF("Q2_K", 16, 80, 2),          GGUF("Q3_K", 16, 108, 1),
	GGUF("Q4_K", 32, 0, 2),           GGUF("Q5_K", 32, 0, 2),           GGUF("Q6_K", 16, 208, 1),
	GGUF("IQ2_XXS", 32, 0, 1),        GGUF("IQ2_XS", 16, 0, 1),         GGUF("IQ2_S", 16, 0, 1),
	GGUF("IQ3_XXS", 32, 0, 1),        GGUF("IQ3_S", 32, 0, 1),          GGUF("IQ1_S", 32, 0, 1),
	GGUF("IQ1_M", 16, 0, 0),          GGUF("IQ4_NL", 32, 0, 1),         GGUF("IQ4_XS", 32, 0, 1),
	GGUF("TQ1_0", 32, 52, 1),         GGUF("TQ2_0", 32, 64, 1),         GGUF("MXFP4", 32, 0, 0),
	GGUF("NVFP4", 16, 0, 0),          GGUF("Q1_0", 32, 0, 1),           GGUF("Q2_0", 32, 0, 1),
	GGUF("PQ2_0", 32, 0, 1),          GGUF("PTQ1_0", 32, 26, 1),
};
const size_t n_kinds = sizeof kinds / sizeof *kinds;

const char *const value_name[VALUES] = { "random",          "all codes largest", "scales zero",
	                                 "denormal scales", "huge scales",       "all codes 0 or largest" };

static uint16_t f16_random(void)
{
	uint16_t h;

	do {
		h = (uint16_t)bits();
	} while ((h & 0x7c00) == 0x7c00);
	return h;
}

static float scale_value(enum value v)
{
	switch (v) {
	case V_ZERO_SCALE: return 0;
	case V_TINY: return uniform() * 0x1p-130f;
	case V_HUGE: return uniform() * 0x1p100f;
	default: return uniform() * 0.1f;
	}
}

static void put_number(uint8_t *p, enum dtype t, float f, enum value v)
{
	uint16_t h = t == DT_F16 ? f16_random() : float_to_bf16(f);

	if (t == DT_F16 && v == V_ZERO_SCALE)
		h = 0;
	if (t == DT_F16 && v == V_TINY)
		h &= 0x83ff;
	if (t == DT_F32)
		memcpy(p, &f, 4);
	else
		memcpy(p, &h, 2);
}

static void fill_codes(uint8_t *p, size_t n, enum value v)
{
	for (size_t i = 0; i < n; i++)
		p[i] = v == V_MOST ? 0xff : v == V_EDGE ? (bits() & 1 ? 0xff : 0) : (uint8_t)bits();
}

static uint8_t scale_byte(enum dtype t, enum value v)
{
	uint8_t b = (uint8_t)bits();

	if (t == DT_F8_E4M3)
		return v == V_ZERO_SCALE ? 0 : v == V_TINY ? b & 7 : b;
	return v == V_ZERO_SCALE || v == V_TINY ? (uint8_t)(b & 1) : v == V_HUGE ? 200 + b % 20 : 110 + b % 20;
}

void sample_lay_out(struct sample *s)
{
	int rows = s->w.rows;

	for (int o = 0, some; o < rows && s->packed.p; o += some) {
		some = pick(2) ? rows - o : BLOCK_OUT;
		packed_fill(s->packed.p + (size_t)o * (packed_bytes(&s->w) / (size_t)rows), &s->w, o, some);
	}
}

/* Blocks of a type; their first scales are numbers. */
static int sample_gguf(struct sample *s, const struct kind *k, int rows, int cols, enum value v, int at_end,
                       size_t skip)
{
	const struct gguf_type *type = gguf_type_named(k->name);
	size_t n = (size_t)rows * (size_t)(cols / type->block) * (size_t)type->block_bytes;
	struct err err;

	fence_make(&s->data, n, at_end, skip);
	fill_codes(s->data.p, n, v);
	for (size_t b = 0; b < n; b += (size_t)type->block_bytes)
		for (int i = 0; i < k->halves; i++) {
			uint8_t *half = s->data.p + b + k->half + 2 * i;
			uint16_t h = v == V_ZERO_SCALE ? 0 : v == V_TINY ? f16_random() & 0x83ff : f16_random();

			memcpy(half, &h, sizeof h);
		}
	return weight_gguf(&s->w, "sample", type, rows, cols, s->data.p, n, &err);
}

void sample_make(struct sample *s, const struct kind *k, int rows, int cols, int group, enum dtype st, enum value v)
{
	struct err err;
	int rc, at_end = pick(4) > 0;
	size_t skip = (size_t)pick(9), n, groups;

	memset(s, 0, sizeof *s);
	n = (size_t)rows * (size_t)cols * (size_t)k->bits / 8;
	if (!is_gguf(k))
		fence_make(&s->data, n, at_end, skip);
	if (is_gguf(k)) {
		rc = sample_gguf(s, k, rows, cols, v, at_end, skip);
	} else if (!k->mode) {
		size_t size = (size_t)dtype_size(k->plain);

		for (size_t i = 0; i < n; i += size)
			put_number(s->data.p + i, k->plain, v == V_MOST ? 1e4f : scale_value(v), v);
		rc = weight_plain(&s->w, "sample", k->plain, rows, cols, s->data.p, n, &err);
	} else {
		fill_codes(s->data.p, n, v);
		if (k->group)
			st = k->plain ? k->plain : k->group == 16 ? DT_F8_E4M3 : DT_F8_E8M0;
		groups = (size_t)rows * (size_t)(cols / group);
		fence_make(&s->scales, groups * (size_t)dtype_size(st), pick(4) > 0, (size_t)pick(9));
		for (size_t i = 0; i < groups && k->group; i++)
			if (st == DT_F32)
				put_number(s->scales.p + 4 * i, st, scale_value(v), v);
			else
				s->scales.p[i] = scale_byte(st, v);
		if (!k->group) {
			size_t size = (size_t)dtype_size(st);

			fence_make(&s->biases, groups * size, pick(4) > 0, (size_t)pick(9));
			for (size_t i = 0; i < groups; i++) {
				put_number(s->scales.p + i * size, st, scale_value(v), v);
				put_number(s->biases.p + i * size, st, scale_value(v == V_ZERO_SCALE ? V_RANDOM : v),
				           v);
			}
		}
		rc = weight_coded(&s->w, "sample", k->mode, k->bits, group, rows, cols, s->data.p, n, s->scales.p,
		                  s->scales.bytes, k->group ? NULL : s->biases.p, s->biases.bytes, st, &err);
	}
	if (rc)
		printf("%s\n", err.msg);
	assert(!rc);
	s->bare = s->w;
	if (!packed_fit(&s->w))
		return;
	fence_make(&s->packed, packed_bytes(&s->w), 1, 0);
	sample_lay_out(s);
	atomic_store(&s->made.at, s->packed.p);
	s->bare.packed = &s->made;
	s->bare.data = s->bare.scales = s->bare.biases = fence_nothing();
}

void sample_drop(struct sample *s)
{
	fence_drop(&s->data);
	fence_drop(&s->scales);
	fence_drop(&s->biases);
	fence_drop(&s->packed);
}

static unsigned code_at(const struct weight *w, int bit_count, int o, int i)
{
	const uint8_t *p = w->data + (size_t)o * w->row_bytes;
	unsigned v = 0;

	for (int b = 0; b < bit_count; b++) {
		int at = i * bit_count + b;

		v |= (unsigned)(p[at / 8] >> at % 8 & 1) << b;
	}
	return v;
}

/* The scale (p: w->scales) or bias (p: w->biases) of group g of output o. */
static float scale_at(const struct weight *w, const uint8_t *p, int o, int g)
{
	size_t i = (size_t)o * (size_t)(w->cols / w->group) + (size_t)g;
	float f;

	if (w->scale_type == DT_F8_E4M3 && (p[i] & 0x7f) == 0x7f)
		return p[i] & 0x80 ? -480 : 480; /* MLX has no NaN there */
	dtype_to_float(&f, p + i * (size_t)dtype_size(w->scale_type), w->scale_type, 1);
	return f;
}

static const int twice_e2m1[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

void coded_row_make(struct coded_row *t, const struct kind *k, const struct weight *w, int o)
{
	const struct coding *c = w->fmt->coding;
	int groups = w->cols / w->group;
	uint8_t *code = is_gguf(k) ? xmalloc((size_t)w->cols) : NULL;

	t->code = xmalloc((size_t)w->cols * sizeof *t->code);
	t->scale = xmalloc((size_t)groups * 2 * sizeof *t->scale);
	t->bias = (is_gguf(k) ? c->bias : !k->group) ? t->scale + groups : NULL;
	if (code)
		coding_row(code, w, o);
	for (int i = 0; i < w->cols; i++) {
		unsigned v = code ? code[i] : code_at(w, k->bits, o, i);

		t->code[i] = (int16_t)(code ? (int)v - c->zero : k->group ? twice_e2m1[v] : (int)v);
	}
	for (int g = 0; g < groups; g++) {
		if (code) {
			coding_scale(&t->scale[g], &t->scale[groups + g], w, o, g);
			continue;
		}
		t->scale[g] = scale_at(w, w->scales, o, g) * (k->group ? 0.5f : 1);
		if (t->bias)
			t->bias[g] = scale_at(w, w->biases, o, g);
	}
	free(code);
}

void coded_row_drop(struct coded_row *t)
{
	free(t->code);
	free(t->scale);
}

float truth_coded(const struct coded_row *t, const struct acts *x, int r)
{
	int groups = x->cols / x->group;
	float acc = 0;

	for (int g = 0; g < groups; g++) {
		float xs = x->scale[r * groups + g];
		long isum = 0, xsum = 0;

		for (int i = g * x->group; i < (g + 1) * x->group; i++) {
			int q = x->q[r * x->cols + i];

			isum += (long)t->code[i] * q;
			xsum += q;
		}
		acc = fmaf(t->scale[g], xs * (float)isum, acc);
		if (t->bias)
			acc = fmaf(t->bias[g], xs * (float)xsum, acc);
	}
	return acc;
}

static float no_denormal(float f)
{
	return fabsf(f) < 0x1p-126f ? copysignf(0, f) : f;
}

/* Whether a result is denormal is asked of it as rounded to 24 bits, however small; so what has
 * been rounded up to the least normal number may count as zero. */
static float fma_no_denormal(float a, float b, float c)
{
	float sum = fmaf(a, b, c);

	if (fabsf(sum) == 0x1p-126f && fabsf(fmaf(a * 0x1p64f, b, c * 0x1p64f)) < 0x1p-62f)
		return copysignf(0, sum);
	return no_denormal(sum);
}

static float truth_pairs(const float *w, const float *x, int n)
{
	float acc = 0;

	for (int k = 0; k < n; k += 32) {
		float part[2] = { 0, 0 };

		for (int i = 0; i < 32; i++) {
			float a = k + i < n ? bf16_to_float(float_to_bf16(no_denormal(x[k + i]))) : 0,
			      b = k + i < n ? no_denormal(w[k + i]) : 0;

			part[i % 2] = fma_no_denormal(a, b, part[i % 2]);
		}
		acc = no_denormal(acc + no_denormal(part[0] + part[1]));
	}
	return acc;
}

/* a + b rounded to odd; denormals count as zero. */
static float add_odd(float a, float b)
{
	double sum = (double)a + (double)b, back = sum - (double)a,
	       lost = ((double)a - (sum - back)) + ((double)b - back);
	float f = (float)sum;
	uint32_t bits;

	if (isnan(sum) || isinf(sum))
		return f;
	if (fabs(sum) >= 0x1p128)
		return copysignf(INFINITY, f);
	if (fabs(sum) < 0x1p-126)
		return copysignf(0, f);
	if ((double)f == sum && lost == 0)
		return f;
	if (fabs((double)f) > fabs(sum) || ((double)f == sum && (lost < 0) == (f > 0)))
		f = nextafterf(f, 0);
	memcpy(&bits, &f, sizeof bits);
	bits |= 1;
	memcpy(&f, &bits, sizeof f);
	return f;
}

/* The product of numbers of 8 bits, which a float holds unless it is too large or too small. */
static float mul_exact(float a, float b)
{
	return no_denormal(a * b);
}

static float truth_bfmmla(const float *w, const float *x, int n)
{
	float acc = 0;

	for (int k = 0; k < (n + 7) / 8 * 8; k += 2) {
		float a[2] = { 0 }, b[2] = { 0 };

		for (int i = 0; i < 2 && k + i < n; i++) {
			a[i] = no_denormal(bf16_to_float(float_to_bf16(x[k + i])));
			b[i] = no_denormal(w[k + i]);
		}
		acc = add_odd(acc, add_odd(mul_exact(a[0], b[0]), mul_exact(a[1], b[1])));
	}
	return acc;
}

float truth_bf16(const char *order, const float *w, const float *x, int n)
{
	return strcmp(order, "bfmmla") ? truth_pairs(w, x, n) : truth_bfmmla(w, x, n);
}

/* ---- activations ---- */

void rows_make(struct rows *x, int n, int cols, int group, enum value v, enum cpu_level level)
{
	float *f = fence_make(&x->f, (size_t)n * (size_t)cols * 4, 1, 0);
	size_t groups;
	float far = pick(2) ? 0x1p-90f : 0x1p90f; /* beside denormals of weights */

	x->q.map = x->scale.map = x->sum.map = x->scaled.map = x->tiles.map = x->pairs.map = NULL;
	for (int i = 0; i < n * cols; i++)
		f[i] = v == V_MOST ? 1 : v == V_EDGE ? (bits() & 1 ? 3.0f : -3.0f) : uniform() * (pick(50) ? 1 : 30);
	if (v == V_TINY)
		for (int i = 0; i < n * cols; i++)
			f[i] *= far;
	if (n > 1 && v == V_RANDOM)
		memset(f + cols, 0, (size_t)cols * 4); /* a row of zeros */
	x->a = (struct acts){ .rows = n, .cols = cols, .f = f, .ld = (size_t)cols, .group = group };
	if (!group)
		return;
	groups = (size_t)n * (size_t)(cols / group);
	x->a.q = fence_make(&x->q, (size_t)n * (size_t)cols, 1, 0);
	x->a.scale = fence_make(&x->scale, groups * 4, 1, 0);
	x->a.sum = fence_make(&x->sum, groups * 4, 1, 0);
	x->a.scaled_sum = fence_make(&x->scaled, groups * 4, 1, 0);
	for (int r = 0; r < n; r++) {
		size_t g = (size_t)r * (size_t)(cols / group);

		acts_quantiser(level)((int8_t *)x->q.p + (size_t)r * (size_t)cols, (float *)x->scale.p + g,
		                      (int32_t *)x->sum.p + g, (float *)x->scaled.p + g, f + (size_t)r * (size_t)cols,
		                      cols, group);
	}
	if (acts_tiler(cpu_detect()) && pick(4)) { /* the other levels must not mind */
		size_t bytes = acts_tile_bytes(cols, group);

		x->a.tiles = fence_make(&x->tiles, (size_t)((n + ACTS_TILE - 1) / ACTS_TILE) * bytes, 1, 0);
		for (int r = 0; r < n; r += ACTS_TILE)
			acts_tiler(cpu_detect())((uint8_t *)x->tiles.p + (size_t)(r / ACTS_TILE) * bytes, &x->a, r,
			                         n - r < ACTS_TILE ? n - r : ACTS_TILE);
	}
}

void rows_pair(struct rows *x, enum cpu_level level)
{
	acts_tile_fn *pair = acts_pairer(level) ? acts_pairer(level) : acts_pairer(cpu_detect());
	size_t bytes = acts_pairs_bytes(x->a.cols);

	fence_drop(&x->pairs);
	x->pairs.map = NULL;
	x->a.pairs = NULL;
	if (!pair || !pick(4))
		return;
	x->a.pairs = fence_make(&x->pairs, (size_t)((x->a.rows + ACTS_TILE - 1) / ACTS_TILE) * bytes, 1, 0);
	for (int r = 0; r < x->a.rows; r += ACTS_TILE)
		pair(x->pairs.p + (size_t)(r / ACTS_TILE) * bytes, &x->a, r,
		     x->a.rows - r < ACTS_TILE ? x->a.rows - r : ACTS_TILE);
}

void rows_drop(struct rows *x)
{
	fence_drop(&x->f);
	fence_drop(&x->q);
	fence_drop(&x->scale);
	fence_drop(&x->sum);
	fence_drop(&x->scaled);
	fence_drop(&x->tiles);
	fence_drop(&x->pairs);
}
