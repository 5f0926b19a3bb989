/* planes_signs_vbmi.c - one row over planes (planes.h) of codes of one bit, with the byte permutation of AVX512-VBMI; the bits
 * of coded.c.
 *
 * Dot products of bytes take a shift, a mask and a product for each four codes of 16 outputs, which is more than memory
 * waits for.  A group of one bit's codes is one line, [16 outputs][4 bytes]: bit b of byte i is the sign of input 4 b + i.
 * So each byte is two indexes of four bits, into tables of the sums that four signed activations can have, and one
 * permutation looks up 64 of them.  Bits 0, 1, 4 and 5 are one index, where they are, and the byte's place i is bits 2 and 3:
 * a table has 64 entries, and what the products leave in four vectors becomes one by packing alone.
 *
 * A sum is kept as sum + BIAS, its lower six bits and the rest in a table each, so that two of them fit a byte. */
#include <assert.h>
#include <immintrin.h>

#include "quant/coded/coded_kernels.h"
#include "quant/coded/planes.h"

#define INLINE static inline __attribute__((always_inline))

enum { GROUP = 32, OUT = BLOCK_OUT, LINE = BLOCK_LINE, BIAS = 512, LOW_BITS = 6, LOOKED_UP = 8 };
/* Runs of 16 outputs that share each look at the tables, and how many bytes before their use their lines are prefetched
 * where planes_hints says so. */
enum { RUNS_ONCE = 4, AHEAD = 768 };

/* The tables of a group: [bits 0, 1, 4, 5 | bits 2, 3, 6, 7][lower bits | the rest]. */
struct tables {
	uint8_t at[2][2][LINE];
};
_Static_assert(sizeof(struct tables) == SIGNS_TABLES * GROUP, "coded_scratch counts these");

/* The table of four activations of each place: x has the four of place i, plus 128, in dword i.  One entry's index has the
 * signs of the first two in bits 0 and 1, those of the others in bits 4 and 5. */
INLINE void table_fill(uint8_t to[2][LINE], const uint32_t x[4], __m512i signs, __m512i start)
{
	const __m512i low = _mm512_set1_epi16((1 << LOW_BITS) - 1);
	__m512i v[4], a, b;

#pragma GCC unroll 4
	for (int i = 0; i < 4; i++)
		v[i] = _mm512_dpbusd_epi32(start, _mm512_set1_epi32((int)x[i]), signs);
	a = _mm512_packus_epi32(v[0], v[1]);
	b = _mm512_packus_epi32(v[2], v[3]);
	_mm512_store_si512(to[0], _mm512_packus_epi16(_mm512_and_si512(a, low), _mm512_and_si512(b, low)));
	_mm512_store_si512(to[1], _mm512_packus_epi16(_mm512_srli_epi16(a, LOW_BITS), _mm512_srli_epi16(b, LOW_BITS)));
}

static void tables_fill(struct tables *to, const int8_t *q, int groups)
{
	/* [table][place][bits 0, 1, 4, 5 or 2, 3, 6, 7]: the input of bit b of byte i is 4 b + i */
	static const uint8_t from[GROUP] = { 0, 4,  16, 20, 1, 5,  17, 21, 2,  6,  18, 22, 3,  7,  19, 23,
		                             8, 12, 24, 28, 9, 13, 25, 29, 10, 14, 26, 30, 11, 15, 27, 31 };
	/* entry o of a table adds input i where bit i of o is set, and subtracts it where not */
	const __mmask64 plus = 0xfedcba9876543210;
	const __m512i s = _mm512_mask_blend_epi8(plus, _mm512_set1_epi8(-1), _mm512_set1_epi8(1));
	const __m512i moved = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8((char)128), s);
	const __m512i b = _mm512_sub_epi32(_mm512_set1_epi32(BIAS), moved);
	const __m256i order = _mm256_loadu_si256((const void *)from);

	for (int g = 0; g < groups; g++, q += GROUP) {
		__m256i v = _mm256_permutexvar_epi8(order, _mm256_loadu_si256((const void *)q));
		uint32_t x[8];

		_mm256_storeu_si256((void *)x, _mm256_xor_si256(v, _mm256_set1_epi8((char)0x80)));
		table_fill(to[g].at[0], x, s, b);
		table_fill(to[g].at[1], x + 4, s, b);
	}
}

/* Sums of a group of 16 outputs, out of its line. */
INLINE __m512i line_sums(__m512i v, const __m512i t[2][2])
{
	const __m512i index = _mm512_set1_epi8(0x33), place = _mm512_set1_epi32(0x0c080400);
	enum { INDEX_OR_PLACE = 0xea };
	__m512i sum = _mm512_set1_epi32(-LOOKED_UP * BIAS);
	__m512i a = _mm512_ternarylogic_epi32(v, index, place, INDEX_OR_PLACE);
	__m512i b = _mm512_ternarylogic_epi32(_mm512_srli_epi16(v, 2), index, place, INDEX_OR_PLACE);
	__m512i low = _mm512_add_epi8(_mm512_permutexvar_epi8(a, t[0][0]), _mm512_permutexvar_epi8(b, t[1][0]));
	__m512i rest = _mm512_add_epi8(_mm512_permutexvar_epi8(a, t[0][1]), _mm512_permutexvar_epi8(b, t[1][1]));

	sum = _mm512_dpbusd_epi32(sum, low, _mm512_set1_epi8(1));
	return _mm512_dpbusd_epi32(sum, rest, _mm512_set1_epi8(1 << LOW_BITS));
}

/* 16 outputs of each of K runs, `step` bytes apart; p: the first one's scales. */
INLINE void outputs_run(float *out, const uint8_t *p, size_t step, const struct plane_scales *s, int blocks, int per,
                        const struct tables *tables, const float *scale, size_t ahead, const int K)
{
	__m512 acc[RUNS_ONCE], factor[RUNS_ONCE];
	const uint8_t *at = p + s->end;

#pragma GCC unroll 4
	for (int k = 0; k < K; k++)
		acc[k] = _mm512_setzero_ps();
	for (int n = 0; n < blocks; n++) {
#pragma GCC unroll 4
		for (int k = 0; k < K; k++)
			factor[k] = _mm512_cvtph_ps(
				_mm256_loadu_si256((const void *)(p + (size_t)k * step + s->d + (size_t)n * OUT * 2)));
		for (int i = 0; i < per; i++, at += LINE, tables++, scale++) {
			__m512i t[2][2];

#pragma GCC unroll 4
			for (int j = 0; j < 4; j++)
				t[j / 2][j % 2] = _mm512_load_si512(tables->at[j / 2][j % 2]);
#pragma GCC unroll 4
			for (int k = 0; k < K; k++) {
				const uint8_t *line = at + (size_t)k * step;
				__m512i sum = line_sums(_mm512_load_si512(line), t);
				__m512 f = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_set1_ps(*scale));

				_mm_prefetch((const char *)line + ahead, _MM_HINT_T0);
				acc[k] = _mm512_fmadd_ps(factor[k], f, acc[k]);
			}
		}
	}
#pragma GCC unroll 4
	for (int k = 0; k < K; k++)
		_mm512_storeu_ps(out + OUT * k, acc[k]);
}

void planes_one_vbmi(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                     int r1, void *scratch)
{
	const struct coding *c = w->fmt->coding;
	int groups = w->cols / GROUP, per, o = o0;
	struct plane_scales s;
	size_t step, ahead = planes_hints(c) ? AHEAD : 0;
	const uint8_t *p;
	const float *scale;

	if (c->bits != 1 || c->lut || c->block->kind != SCALE_BLOCK) {
		planes_few_avx512(out, ld, w, o0, o1, x, r0, r1, scratch);
		return;
	}
	per = c->block->length / GROUP;
	assert(r1 - r0 == 1 && w->group == GROUP && c->zero == 1 && o0 % OUT == 0 && o1 % OUT == 0);
	s = planes_scales(w);
	step = packed_step(w);
	p = packed_of(w) + (size_t)(o0 / OUT) * step;
	scale = x->scale + (size_t)r0 * (size_t)groups;
	tables_fill(scratch, x->q + (size_t)r0 * (size_t)x->cols, groups);
	for (; o + RUNS_ONCE * OUT <= o1; o += RUNS_ONCE * OUT, p += RUNS_ONCE * step)
		outputs_run(out + (o - o0), p, step, &s, groups / per, per, scratch, scale, ahead, RUNS_ONCE);
	for (; o < o1; o += OUT, p += step)
		outputs_run(out + (o - o0), p, step, &s, groups / per, per, scratch, scale, ahead, 1);
}
