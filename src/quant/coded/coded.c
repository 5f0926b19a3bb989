/* coded.c - the plain C product over coded weights, and reading codes and scales.
 * This is the truth that coded_avx2.c, coded_avx512.c and coded_amx.c repeat to
 * the bit. */
#include <assert.h>
#include <string.h>

#include "quant/coded/planes.h"
#include "quant/levels.h"

/* Stored codes to codes. */
static void code_values(uint8_t *code, const struct coding *c, int n)
{
	for (int i = 0; i < n && c->lut; i++)
		code[i] = c->lut[code[i]];
}

void coding_row(uint8_t *out, const struct weight *w, int o)
{
	const struct coding *c = w->fmt->coding;
	const uint8_t *p = w->data + (size_t)o * w->row_bytes, *blocks = blocks_of(w);
	unsigned mask = (1u << c->bits) - 1;

	if (c->block && blocks) {
		planes_row(out, w, blocks, o);
		return;
	}
	if (c->block) {
		file_block_codes(out, w, o, 0, w->cols);
		code_values(out, c, w->cols);
		return;
	}
	if (blocks) { /* to the end of out, so that what becomes of a byte never stands before it */
		uint8_t *row = out + (size_t)w->cols - (size_t)w->cols * (size_t)c->bits / 8;

		block_row(row, w, blocks, o);
		p = row;
	}

	if (c->bits == 8) {
		if (p != out)
			memcpy(out, p, (size_t)w->cols);
		return;
	}
	for (int i = 0; i < w->cols; i++) {
		size_t bit = (size_t)i * (size_t)c->bits;
		unsigned shift = bit & 7, v = p[bit >> 3] >> shift;

		if (shift + (unsigned)c->bits > 8)
			v |= (unsigned)p[(bit >> 3) + 1] << (8 - shift);
		out[i] = (uint8_t)(v & mask);
	}
	code_values(out, c, w->cols);
}

/* Out of the block that has group g. */
static void one_scale(float *scale, float *bias, const struct weight *w, int o, int g)
{
	float scales[FILE_BLOCK_GROUPS], biases[FILE_BLOCK_GROUPS] = { 0 };
	int groups = w->fmt->coding->block->length / w->group;

	file_block_scales(scales, biases, w, o, g / groups * groups, groups);
	*scale = scales[g % groups];
	*bias = biases[g % groups];
}

void coding_scale(float *scale, float *bias, const struct weight *w, int o, int g)
{
	const struct coding *c = w->fmt->coding;
	size_t size = (size_t)dtype_size(w->scale_type);
	size_t at = ((size_t)o * (size_t)(w->cols / w->group) + (size_t)g) * size;
	const uint8_t *blocks = blocks_of(w);

	if (c->block && blocks) {
		planes_scale(scale, bias, w, blocks, o, g);
		return;
	}
	if (blocks) {
		block_scale(scale, bias, w, blocks, o, g);
		return;
	}
	if (c->block) {
		one_scale(scale, bias, w, o, g);
		return;
	}
	*bias = 0.0f;
	if (w->scale_type == DT_F8_E4M3)
		*scale = e4m3_mlx(w->scales[at]);
	else
		dtype_to_float(scale, w->scales + at, w->scale_type, 1);
	*scale *= c->scale_unit;
	if (c->bias)
		dtype_to_float(bias, w->biases + at, w->scale_type, 1);
}

float *coded_beside(float *to, const struct acts *x, int r0, int n)
{
	size_t groups = (size_t)(x->cols / x->group), at = (size_t)r0 * groups;

	for (size_t g = 0; g < groups; g++)
		for (size_t r = 0; r < (size_t)n; r++, to += 2) {
			to[0] = x->scale[at + r * groups + g];
			to[1] = x->scaled_sum[at + r * groups + g];
		}
	return to;
}

void coded_mul_scalar(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                      int r1, void *scratch)
{
	const struct coding *c = w->fmt->coding;
	int groups = w->cols / w->group;
	uint8_t *code = scratch;

	assert(x->cols == w->cols && x->group == w->group);
	for (int o = o0; o < o1; o++) {
		coding_row(code, w, o);
		for (int r = r0; r < r1; r++) {
			const int8_t *q = x->q + (size_t)r * (size_t)x->cols;
			float acc = 0.0f;

			for (int g = 0; g < groups; g++) {
				size_t at = (size_t)r * (size_t)groups + (size_t)g;
				int32_t isum = -c->zero * x->sum[at];
				float scale, bias;

				for (int i = g * w->group; i < (g + 1) * w->group; i++)
					isum += (int32_t)code[i] * q[i];
				coding_scale(&scale, &bias, w, o, g);
				acc = __builtin_fmaf(scale, x->scale[at] * (float)isum, acc);
				if (c->bias)
					acc = __builtin_fmaf(bias, x->scaled_sum[at], acc);
			}
			out[(size_t)(r - r0) * ld + (size_t)(o - o0)] = acc;
		}
	}
}

bool coded_is_g64(const struct weight *w)
{
	const struct coding *c = w->fmt->coding;

	return w->group == 64 && c->bias && !c->lut && !c->zero && (c->bits == 4 || c->bits == 8) &&
	       w->row_bytes % 64 == 0;
}

double coded_peak_scalar(int64_t n)
{
	enum { LENGTH = 64 };
	uint8_t u[LENGTH];
	int8_t s[LENGTH];
	int32_t sum = 0;
	volatile int32_t keep;

	memset(u, 3, sizeof u);
	memset(s, -5, sizeof s);
	for (int64_t k = 0; k < n; k++) {
		__asm__("" : "+m"(u), "+m"(s)); /* other values, for all the compiler knows */
		for (int i = 0; i < LENGTH; i++)
			sum += (int32_t)u[i] * s[i];
	}
	keep = sum;
	(void)keep;
	return 2.0 * LENGTH * (double)n;
}

void coded_kernels(struct kernels *k, enum cpu_level level)
{
	*k = (struct kernels){ .mul = { lane_table(level)->mul_decoded, coded_mul_scalar },
		               .acts = ACTS_INT8,
		               .blocks = true };
#if defined(__x86_64__)
	if (level >= CPU_AVX2)
		k->mul[ARITH_FAST] = coded_mul_avx2;
	if (level >= CPU_AVXVNNI && cpu_has_avxvnni())
		k->mul[ARITH_FAST] = coded_mul_avxvnni;
	if (level >= CPU_AVX512) {
		k->mul[ARITH_FAST] = blocks_tiles_slow() ? coded_mul_avx512_panels : coded_mul_avx512;
		k->asking = ASKING_512;
	}
	if (level >= CPU_AMX) {
		k->mul[ARITH_FAST] = coded_mul_amx;
		k->asking = ASKING_TILED;
	}
#endif
}
