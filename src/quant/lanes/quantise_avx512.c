/* quantise_avx512.c - activations to int8 in groups of 64, the commonest; the bits of lane_kernels.c.
 *
 * Four groups at a time: their largest numbers and their sums come of one tree each, a group to a
 * quarter of a vector, and their scales of one division.  A code beyond 127 there cannot be: |x| / (max|x| / 127)
 * with all its roundings is below 127.5.  What is not a number becomes the least integer, and saturated
 * -128, which nothing else does; it is to be 127. */
#include <assert.h>
#include <immintrin.h>
#include <string.h>

#include "quant/lanes/lane_table.h"

#define INLINE static inline __attribute__((always_inline))

enum { GROUP = 64, LANES4 = 4 };

/* The largest |x| of a group, by lanes.  In this order what is not a number is passed over. */
INLINE __m512 tops(const float *x)
{
	__m512 a = _mm512_max_ps(_mm512_abs_ps(_mm512_loadu_ps(x)), _mm512_setzero_ps());
	__m512 b = _mm512_max_ps(_mm512_abs_ps(_mm512_loadu_ps(x + 16)), _mm512_setzero_ps());

	a = _mm512_max_ps(_mm512_abs_ps(_mm512_loadu_ps(x + 32)), a);
	b = _mm512_max_ps(_mm512_abs_ps(_mm512_loadu_ps(x + 48)), b);
	return _mm512_max_ps(a, b);
}

/* The first of each quarter. */
INLINE __m128i quarters(__m512i v)
{
	return _mm512_castsi512_si128(
		_mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12), v));
}

/* Element i: the largest of v[i]. */
INLINE __m128 top_of(const __m512 v[LANES4])
{
	__m512 x = _mm512_max_ps(_mm512_shuffle_f32x4(v[0], v[1], 0x44), _mm512_shuffle_f32x4(v[0], v[1], 0xee));
	__m512 y = _mm512_max_ps(_mm512_shuffle_f32x4(v[2], v[3], 0x44), _mm512_shuffle_f32x4(v[2], v[3], 0xee));

	x = _mm512_max_ps(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xdd));
	x = _mm512_max_ps(x, _mm512_permute_ps(x, 0x4e));
	x = _mm512_max_ps(x, _mm512_permute_ps(x, 0xb1));
	return _mm_castsi128_ps(quarters(_mm512_castps_si512(x)));
}

/* Element i: the sum of v[i]. */
INLINE __m128i sum_of(const __m512i v[LANES4])
{
	__m512i x = _mm512_add_epi32(_mm512_shuffle_i32x4(v[0], v[1], 0x44), _mm512_shuffle_i32x4(v[0], v[1], 0xee));
	__m512i y = _mm512_add_epi32(_mm512_shuffle_i32x4(v[2], v[3], 0x44), _mm512_shuffle_i32x4(v[2], v[3], 0xee));

	x = _mm512_add_epi32(_mm512_shuffle_i32x4(x, y, 0x88), _mm512_shuffle_i32x4(x, y, 0xdd));
	x = _mm512_add_epi32(x, _mm512_shuffle_epi32(x, 0x4e));
	x = _mm512_add_epi32(x, _mm512_shuffle_epi32(x, 0xb1));
	return quarters(x);
}

/* 64 codes, in order. */
INLINE __m512i codes(const float *x, __m512 inv)
{
	__m512i a = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), inv));
	__m512i b = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 16), inv));
	__m512i c = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 32), inv));
	__m512i d = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 48), inv));
	__m512i q = _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));

	q = _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), q);
	return _mm512_mask_mov_epi8(q, _mm512_cmpeq_epi8_mask(q, _mm512_set1_epi8(-128)), _mm512_set1_epi8(127));
}

/* n <= 4 groups. */
INLINE void groups(int8_t *q, float *scale, int32_t *sum, float *scaled_sum, const float *x, const int n)
{
	__m512 top[LANES4];
	__m512i s[LANES4];
	__m128 amax, by, inv, scaled;
	__m128i sums;
	__mmask8 some;

#pragma GCC unroll 4
	for (int i = 0; i < LANES4; i++)
		top[i] = i < n ? tops(x + GROUP * i) : _mm512_setzero_ps();
	amax = top_of(top);
	some = _mm_cmp_ps_mask(amax, _mm_set1_ps(1e-30f), _CMP_NLT_UQ);
	by = _mm_maskz_div_ps(some, amax, _mm_set1_ps(127.0f));
	inv = _mm_maskz_div_ps(some, _mm_set1_ps(1.0f), by);
#pragma GCC unroll 4
	for (int i = 0; i < n; i++) {
		__m512i v = codes(x + GROUP * i,
		                  _mm512_permutexvar_ps(_mm512_set1_epi32(i), _mm512_castps128_ps512(inv)));

		_mm512_storeu_si512(q + GROUP * i, v);
		s[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), v);
	}
#pragma GCC unroll 4
	for (int i = n; i < LANES4; i++)
		s[i] = _mm512_setzero_si512();
	sums = sum_of(s);
	scaled = _mm_mul_ps(by, _mm_cvtepi32_ps(sums));
	/* Masked, gcc 12 makes stores of a quarter of them, which touch all of it. */
	memcpy(scale, &by, (size_t)n * sizeof *scale);
	memcpy(sum, &sums, (size_t)n * sizeof *sum);
	memcpy(scaled_sum, &scaled, (size_t)n * sizeof *scaled_sum);
}

void acts_quantise_avx512(int8_t *q, float *scale, int32_t *sum, float *scaled_sum, const float *x, int cols, int group)
{
	int g = 0;

	if (group != GROUP) {
		lane_table_avx512.quantise(q, scale, sum, scaled_sum, x, cols, group);
		return;
	}
	assert(cols % GROUP == 0);
	for (; g + 4 <= cols / GROUP; g += 4)
		groups(q + GROUP * g, scale + g, sum + g, scaled_sum + g, x + GROUP * g, 4);
	for (; g + 2 <= cols / GROUP; g += 2)
		groups(q + GROUP * g, scale + g, sum + g, scaled_sum + g, x + GROUP * g, 2);
	if (g < cols / GROUP)
		groups(q + GROUP * g, scale + g, sum + g, scaled_sum + g, x + GROUP * g, 1);
}
