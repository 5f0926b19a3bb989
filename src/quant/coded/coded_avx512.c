/* coded_avx512.c - what the kernels with AVX-512 and with tiles share: scales of 16 outputs side by side, codes of 16
 * outputs as bytes in order; and the peak of vpdpbusd. */
#include <assert.h>
#include <immintrin.h>
#include <string.h>

#include "quant/coded/coded_avx512.h"
#include "quant/coded/coded_prefetch.h"
#include "quant/coded/planes.h"
#include "quant/lanes/transpose512.h"

/* ---- scales of 16 outputs, transposed to [groups][16] ---- */

/* n <= 16 stored scales as floats. */
INLINE __m512 scales_load(const uint8_t *p, enum dtype t, int n)
{
	__mmask16 m = (__mmask16)((1u << n) - 1);
	__m512i b;

	switch (t) {
	case DT_F32: return _mm512_maskz_loadu_ps(m, p);
	case DT_F16: return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, p));
	case DT_F8_E4M3:
		b = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(m, p));
		b = _mm512_or_si512(_mm512_slli_epi32(_mm512_and_si512(b, _mm512_set1_epi32(0x7f)), 7),
		                    _mm512_slli_epi32(_mm512_and_si512(b, _mm512_set1_epi32(0x80)), 8));
		return _mm512_mul_ps(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(b)), _mm512_set1_ps(256.0f));
	case DT_F8_E8M0:
		b = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(m, p));
		{
			__m512i f = _mm512_slli_epi32(b, 23);

			f = _mm512_mask_mov_epi32(f, _mm512_cmpeq_epi32_mask(b, _mm512_setzero_si512()),
			                          _mm512_set1_epi32(0x00400000));
			f = _mm512_mask_mov_epi32(f, _mm512_cmpeq_epi32_mask(b, _mm512_set1_epi32(255)),
			                          _mm512_set1_epi32(0x7fc00000));
			return _mm512_castsi512_ps(f);
		}
	default:
		b = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, p));
		return _mm512_castsi512_ps(_mm512_slli_epi32(b, 16));
	}
}

/* Outputs o .. o + n - 1 to lanes 0 .. n - 1 of to[g * step], the rest 0. */
INLINE void scales_typed(float *to, size_t step, const uint8_t *p, enum dtype t, int size, float unit, int groups,
                         int o, int n)
{
	size_t row = (size_t)groups * (size_t)size;

	p += (size_t)o * row;
	for (int g = 0; g < groups; g += 16, p += 16 * size) {
		int m = groups - g < 16 ? groups - g : 16;
		__m512i v[16];

		for (int i = 0; i < 16; i++) {
			__m512 f = i < n ? scales_load(p + (size_t)i * row, t, m) : _mm512_setzero_ps();

			if (unit != 1.0f)
				f = _mm512_mul_ps(f, _mm512_set1_ps(unit));
			v[i] = _mm512_castps_si512(f);
		}
		transpose16(v);
		for (int i = 0; i < m; i++)
			_mm512_storeu_si512(to + (size_t)(g + i) * step, v[i]);
	}
}

static void scales_make(float *to, size_t step, const uint8_t *p, enum dtype t, float unit, int groups, int o, int n)
{
	switch (t) {
	case DT_F32: scales_typed(to, step, p, DT_F32, 4, unit, groups, o, n); break;
	case DT_F16: scales_typed(to, step, p, DT_F16, 2, unit, groups, o, n); break;
	case DT_BF16: scales_typed(to, step, p, DT_BF16, 2, unit, groups, o, n); break;
	case DT_F8_E4M3: scales_typed(to, step, p, DT_F8_E4M3, 1, unit, groups, o, n); break;
	default: scales_typed(to, step, p, DT_F8_E8M0, 1, unit, groups, o, n); break;
	}
}

/* Scales and biases of bf16, side by side so that one transposition does both. */
static void scales_paired(float *scale, float *bias, size_t step, const struct weight *w, int o, int n)
{
	static const uint16_t pairs[32] = { 0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
		                            8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47 };
	const __m512i pair = _mm512_loadu_si512(pairs), high = _mm512_set1_epi32((int)0xffff0000);
	int groups = w->cols / w->group;
	size_t row = 2 * (size_t)groups;
	const uint8_t *s = w->scales + (size_t)o * row, *b = w->biases + (size_t)o * row;

	for (int g = 0; g < groups; g += 16, s += 32, b += 32) {
		int m = groups - g < 16 ? groups - g : 16;
		__mmask16 k = (__mmask16)((1u << m) - 1);
		__m512i v[16];

		for (int i = 0; i < 16; i++) {
			size_t at = (size_t)i * row;

			v[i] = _mm512_setzero_si512();
			if (i < n)
				v[i] = _mm512_permutex2var_epi16(
					_mm512_castsi256_si512(_mm256_maskz_loadu_epi16(k, s + at)), pair,
					_mm512_castsi256_si512(_mm256_maskz_loadu_epi16(k, b + at)));
		}
		transpose16(v);
		for (int i = 0; i < m; i++) {
			_mm512_storeu_si512(scale + (size_t)(g + i) * step, _mm512_slli_epi32(v[i], 16));
			_mm512_storeu_si512(bias + (size_t)(g + i) * step, _mm512_and_si512(v[i], high));
		}
	}
}

/* Scales, and biases where there are any, of outputs o .. o + n - 1. */
static void scales_of(float *scale, float *bias, size_t step, const struct weight *w, int o, int n)
{
	const struct coding *c = w->fmt->coding;
	int groups = w->cols / w->group;
	const uint8_t *blocks = packed_of(w);

	if (blocks && c->block) {
		if (n)
			planes_lanes_avx512(scale, bias, step, w, blocks, o);
		else
			file_block_lanes(scale, bias, step, w, o, 0);
		return;
	}
	if (blocks) {
		const uint8_t *at = packed_at(w, blocks, o, 1) - BLOCK_LINE;

		assert(o % BLOCK_OUT == 0 && (n == BLOCK_OUT || n == 0));
		for (int g = 0; g < groups; g++, at += n ? packed_block_bytes(w) : 0) {
			__m512i v = n ? _mm512_load_si512(at) : _mm512_setzero_si512();

			_mm512_storeu_ps(scale + (size_t)g * step, block_scales(v));
			_mm512_storeu_ps(bias + (size_t)g * step, block_biases(v));
		}
		return;
	}
	if (c->block) {
		file_block_lanes(scale, bias, step, w, o, n);
		return;
	}
	if (c->bias && w->scale_type == DT_BF16 && c->scale_unit == 1.0f) {
		scales_paired(scale, bias, step, w, o, n);
		return;
	}
	scales_make(scale, step, w->scales, w->scale_type, c->scale_unit, groups, o, n);
	if (c->bias)
		scales_make(bias, step, w->biases, w->scale_type, 1.0f, groups, o, n);
}

/* ---- for the kernels with tiles ---- */

/* 64 codes at p, `have` of them real; zeros, or what the lut makes of them, behind. */
INLINE __m512i codes_in_order(const uint8_t *p, int have, const enum how how, __m512i lut, const struct stream *s)
{
	__m512i v;

	if (how == BYTES)
		return _mm512_maskz_loadu_epi8(first_bytes(have), p);
	if (how == STREAM)
		return stream_codes(s, _mm512_maskz_loadu_epi8(first_bytes(have * s->bits / 8), p));
	v = _mm512_cvtepu8_epi16(have == 64 ? _mm256_loadu_si256((const void *)p) :
	                                      _mm256_maskz_loadu_epi8((__mmask32)first_bytes(have / 2), p));
	v = nibbles_in_order(v);
	return how == NIBBLES_LUT ? _mm512_shuffle_epi8(lut, v) : v;
}

INLINE void codes_of_16(uint8_t *to, const struct coded_span *c, const enum how how, __m512i lut,
                        const struct stream *s)
{
	size_t bits = (size_t)c->w->fmt->coding->bits, next = PANEL_OUT * c->w->row_bytes;
	int wide = c->inputs == 64;

	for (int i = 0; i < 16; i++) {
		const uint8_t *row = c->w->data + (size_t)(c->o + (i < c->n ? i : c->n - 1)) * c->w->row_bytes;
		uint8_t *at = to + i * c->inputs;

		for (int k = c->k0; k < c->k1; k += 64) {
			const uint8_t *p = row + (size_t)k / 8 * bits;
			__m512i v = codes_in_order(p, c->k1 - k < 64 ? c->k1 - k : 64, how, lut, s);

			if (c->ahead)
				_mm_prefetch(p + next, _MM_HINT_T1);
			if (wide) {
				_mm512_store_si512(at + 16 * (k - c->k0), v);
				continue;
			}
			_mm256_store_si256((void *)(at + 16 * (k - c->k0)), _mm512_castsi512_si256(v));
			if (c->k1 - k > 32)
				_mm256_store_si256((void *)(at + 16 * (k - c->k0 + 32)),
				                   _mm512_extracti64x4_epi64(v, 1));
		}
	}
}

/* coded_codes_avx512 for weights whose rows are GGUF blocks. */
static void codes_of_blocked(uint8_t *to, const struct coded_span *c, const bool has_lut, __m512i lut)
{
	uint8_t code[FILE_BLOCK_MOST] __attribute__((aligned(64)));

	for (int i = 0; i < 16; i++)
		for (int k = c->k0; k < c->k1; k += FILE_BLOCK_MOST) {
			int n = c->k1 - k < FILE_BLOCK_MOST ? c->k1 - k : FILE_BLOCK_MOST;
			uint8_t *at = to + i * c->inputs + 16 * (k - c->k0);

			file_block_codes(code, c->w, c->o + (i < c->n ? i : c->n - 1), k, n);
			for (int j = 0; j < n && has_lut; j += 64)
				_mm512_store_si512(code + j, _mm512_shuffle_epi8(lut, _mm512_load_si512(code + j)));
			for (int j = 0; j < n; j += c->inputs)
				memcpy(at + 16 * j, code + j, (size_t)c->inputs);
		}
}

/* coded_codes_avx512 for planes: 16 quads of 16 outputs, transposed. */
static void codes_of_planes(uint8_t *to, const struct coded_span *c)
{
	__m512i v[16];

	for (int k = c->k0; k < c->k1; k += BLOCK_INPUTS, to += 16 * BLOCK_INPUTS) {
		planes_panel_avx512((uint8_t *)v, BLOCK_LINE, c->w, packed_of(c->w), c->o, k, k + BLOCK_INPUTS);
		transpose16(v);
		for (int i = 0; i < 16; i++) {
			if (c->inputs == BLOCK_INPUTS) {
				_mm512_store_si512(to + BLOCK_INPUTS * i, v[i]);
				continue;
			}
			_mm256_store_si256((void *)(to + 32 * i), _mm512_castsi512_si256(v[i]));
			_mm256_store_si256((void *)(to + 32 * (16 + i)), _mm512_extracti64x4_epi64(v[i], 1));
		}
	}
}

void coded_codes_avx512(uint8_t *to, const struct coded_span *span)
{
	const struct coding *c = span->w->fmt->coding;
	__m512i lut = c->lut ? _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)c->lut)) : _mm512_setzero_si512();
	struct stream s;

	if (c->block && packed_of(span->w)) {
		codes_of_planes(to, span);
		return;
	}
	if (packed_of(span->w)) {
		const struct weight *w = span->w;
		const uint8_t *at = packed_at(w, packed_of(w), span->o, span->k0 / BLOCK_INPUTS);
		size_t next = span->ahead ? PANEL_OUT / BLOCK_OUT * packed_step(w) : 0;
		int n = (span->k1 - span->k0) / BLOCK_INPUTS;

		assert(span->o % BLOCK_OUT == 0 && span->n == BLOCK_OUT && span->inputs == BLOCK_INPUTS);
		if (c->bits == 4)
			codes_of_blocks(to, at, n, next, 4);
		else
			codes_of_blocks(to, at, n, next, 8);
		return;
	}
	switch (how_of(c)) {
	case NIBBLES: codes_of_16(to, span, NIBBLES, lut, NULL); break;
	case NIBBLES_LUT: codes_of_16(to, span, NIBBLES_LUT, lut, NULL); break;
	case BYTES: codes_of_16(to, span, BYTES, lut, NULL); break;
	case UNPACKED: codes_of_blocked(to, span, false, lut); break;
	case UNPACKED_LUT: codes_of_blocked(to, span, true, lut); break;
	default: s = stream_make(c->bits); codes_of_16(to, span, STREAM, lut, &s);
	}
}

void coded_scales_only_avx512(float *scale, float *bias, size_t step, const struct weight *w, int o, int n)
{
	scales_of(scale, bias, step, w, o, n);
}

void coded_scales_avx512(float *scale, float *bias, size_t step, const struct weight *w, int o, int n)
{
	scales_of(scale, bias, step, w, o, n);
	if (!packed_of(w))
		coded_prefetch_scales(w, o + 32, 16);
}

double coded_peak_avx512(int64_t n)
{
	enum { CHAINS = 12 };
	__m512i a[CHAINS], u = _mm512_set1_epi8(3), s = _mm512_set1_epi8(-5);
	volatile int keep;

	for (int i = 0; i < CHAINS; i++)
		a[i] = _mm512_setzero_si512();
	for (int64_t k = 0; k < n; k++)
#pragma GCC unroll 12
		for (int i = 0; i < CHAINS; i++)
			a[i] = dot512(a[i], u, s);
	for (int i = 1; i < CHAINS; i++)
		a[0] = _mm512_add_epi32(a[0], a[i]);
	keep = _mm512_reduce_add_epi32(a[0]);
	(void)keep;
	return 2.0 * 64 * CHAINS * (double)n;
}
