/* bf16_dots512.h - inside quant/: products by AVX-512's dot product of bf16, in the order of
 * tiles of bf16 that format.h states.  For files compiled with AVX-512 BF16.
 *
 * The instruction adds two products to each lane, that of the pair's upper halves first and that
 * of the lower ones then, each a fused step.  The sum of even inputs and that of odd ones are
 * therefore made of pairs of inputs 4 i (above) and 4 i + 2, and of 4 i + 1 and 4 i + 3: both
 * sides are shuffled so, four inputs at a time, and nothing else has to be paid for the order.
 *
 * Some processors (Sapphire Rapids) make a dot product in the time of four fused multiply-adds of
 * floats, which are half the work.  There panels are kept as floats, and the same steps are made
 * one by one.
 *
 * Additions between blocks count denormals as zeros too: the caller sets DOTS_ZEROS in MXCSR around a
 * function that is not inlined. */
#ifndef QUANT_BF16_DOTS512_H
#define QUANT_BF16_DOTS512_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DOTS_INLINE static inline __attribute__((always_inline))

enum {
	DOTS_BLOCK = 32, /* inputs */
	DOTS_PAIRS = DOTS_BLOCK / 2,
	DOTS_LINE = 64,      /* bytes of a row's block, and of a pair of 16 columns */
	DOTS_ROWS = 4,       /* of a tile of sums */
	DOTS_INPUTS = 512,   /* at most, of rows made floats */
	DOTS_ZEROS = 0x8040, /* of MXCSR: denormals are zeros, before and after, as the dot product has it */
};

/* Inputs a b c d of each four to the pairs (c, a), (d, b). */
DOTS_INLINE __m512i dots_paired(__m512i v)
{
	const __m512i order = _mm512_broadcast_i32x4(
		_mm_setr_epi8(4, 5, 0, 1, 6, 7, 2, 3, 12, 13, 8, 9, 14, 15, 10, 11));

	return _mm512_shuffle_epi8(v, order);
}

/* The inputs that are the upper and the lower half of pair j of a block. */
DOTS_INLINE int dots_upper_of(int j)
{
	return j / 2 * 4 + j % 2;
}
DOTS_INLINE int dots_lower_of(int j)
{
	return dots_upper_of(j) + 2;
}

/* acc plus both products of a row's pair with those of 16 columns; the instruction takes the row's where it is. */
DOTS_INLINE __m512 dots_pair(__m512 acc, __m512i columns, const uint8_t *pair)
{
	__asm__("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(columns), "m"(*(const int32_t *)pair));
	return acc;
}

/* acc plus a block of R <= 8 rows, `row` bytes apart, by 16 columns, whose pair j is t[j]. */
DOTS_INLINE void dots_turned(__m512 acc[8], const __m512i t[DOTS_PAIRS], const uint8_t *x, size_t row, const int R)
{
#pragma GCC unroll 8
	for (int r = 0; r < R; r++) {
		const uint8_t *pair = x + (size_t)r * row;
		__m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();

#pragma GCC unroll 8
		for (int j = 0; j < DOTS_PAIRS; j += 2) {
			even = dots_pair(even, t[j], pair + 4 * j);
			odd = dots_pair(odd, t[j + 1], pair + 4 * j + 4);
		}
		acc[r] = _mm512_add_ps(acc[r], _mm512_add_ps(even, odd));
	}
}

/* The upper and the lower halves of pairs as floats. */
DOTS_INLINE __m512 dots_upper(__m512i pairs)
{
	return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(-0x10000)));
}
DOTS_INLINE __m512 dots_lower(__m512i pairs)
{
	return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}

/* A block's 16 pairs as floats: [upper, lower][16]. */
DOTS_INLINE void dots_halves_store(float *to, __m512i pairs)
{
	_mm512_store_ps(to, dots_upper(pairs));
	_mm512_store_ps(to + DOTS_PAIRS, dots_lower(pairs));
}

/* dots_turned by multiply-adds: the rows' block as dots_halves_store left it, `row` floats apart; R is 4 or 8. */
DOTS_INLINE void dots_turned_floats(__m512 acc[8], const __m512i t[DOTS_PAIRS], const float *x, size_t row, const int R)
{
#pragma GCC unroll 2
	for (int r0 = 0; r0 < R; r0 += DOTS_ROWS) {
		__m512 sum[2][DOTS_ROWS];

#pragma GCC unroll 4
		for (int r = 0; r < DOTS_ROWS; r++)
			sum[0][r] = sum[1][r] = _mm512_setzero_ps();
#pragma GCC unroll 32
		for (int i = 0; i < 2 * DOTS_PAIRS; i++) { /* of two pairs both upper halves, then both lower ones */
			int half = i / 2 % 2, j = i / 4 * 2 + i % 2;
			__m512 w = half ? dots_lower(t[j]) : dots_upper(t[j]);

#pragma GCC unroll 4
			for (int r = 0; r < DOTS_ROWS; r++)
				sum[j % 2][r] = _mm512_fmadd_ps(
					w, _mm512_set1_ps(x[(size_t)(r0 + r) * row + (size_t)(half * DOTS_PAIRS + j)]),
					sum[j % 2][r]);
		}
#pragma GCC unroll 4
		for (int r = 0; r < DOTS_ROWS; r++)
			acc[r0 + r] = _mm512_add_ps(acc[r0 + r], _mm512_add_ps(sum[0][r], sum[1][r]));
	}
}

/* A panel is, of each block of inputs, [16 pairs][vectors of 16 columns][16 columns], or as floats
 * [8 twos of pairs][both upper, both lower][vectors][16 columns]: pair j of one vector, `step` bytes
 * being a pair of all its vectors. */
DOTS_INLINE void dots_panel_store(uint8_t *block, size_t step, int j, __m512i pair, const bool floats)
{
	if (floats) {
		_mm512_store_ps(block + step * (size_t)(j / 2 * 4 + j % 2), dots_upper(pair));
		_mm512_store_ps(block + step * (size_t)(j / 2 * 4 + j % 2 + 2), dots_lower(pair));
	} else {
		_mm512_store_si512(block + step * (size_t)j, pair);
	}
}

/* Where a tile of sums reads and writes. */
struct dots {
	float *out;        /* columns of row 0 */
	size_t ld, beside; /* floats to the next row, and to the next vector of columns */
	const uint8_t *panel;
	size_t step, vector; /* bytes to the next pair, and to the same pair of the next vector */
	const uint8_t *x;    /* pairs of row 0, block 0 */
	size_t row, block;   /* bytes to the next */
	int n;               /* blocks */
	__mmask16 mask[2];   /* columns, of each vector */
};

/* Blocks of R rows as floats, [blocks][R][upper, lower][16 pairs]. */
DOTS_INLINE void dots_rows_as_floats(float *to, const struct dots *d, const int R)
{
	const uint8_t *x = d->x;

	for (int i = 0; i < d->n; i++, x += d->block)
		for (int r = 0; r < R; r++, to += DOTS_BLOCK)
			dots_halves_store(to, _mm512_loadu_si512(x + (size_t)r * d->row));
}

/* One pair, or half of one as floats, of R rows by V vectors of columns. */
DOTS_INLINE void dots_step(__m512 sum[DOTS_ROWS][2], const uint8_t *panel, size_t vector, const float *f,
                           const uint8_t *x, size_t row, const int R, const int V, const bool floats)
{
	__m512i w[2];

#pragma GCC unroll 2
	for (int v = 0; v < V; v++)
		w[v] = _mm512_load_si512(panel + (size_t)v * vector);
#pragma GCC unroll 4
	for (int r = 0; r < R; r++) {
		__m512i pair = floats ? _mm512_castps_si512(_mm512_set1_ps(f[r * DOTS_BLOCK])) :
		                        _mm512_set1_epi32(*(const int32_t *)(const void *)(x + (size_t)r * row));

		__asm__("" : "+v"(pair)); /* loaded once, not by each instruction: loads would bind */
#pragma GCC unroll 2
		for (int v = 0; v < V; v++)
			sum[r][v] = floats ? _mm512_fmadd_ps(_mm512_castsi512_ps(w[v]), _mm512_castsi512_ps(pair),
			                                     sum[r][v]) :
			                     _mm512_dpbf16_ps(sum[r][v], (__m512bh)w[v], (__m512bh)pair);
	}
}

/* R rows by V vectors of columns; `first`: from zero, not from what is in out. */
DOTS_INLINE void dots_tile(const struct dots *d, bool first, const int R, const int V, const bool floats)
{
	const int halves = floats ? 2 : 1;
	float f[DOTS_ROWS * DOTS_INPUTS] __attribute__((aligned(64))), *from = f;
	const uint8_t *panel = d->panel, *x = d->x;
	__m512 acc[DOTS_ROWS][2];

	if (floats)
		dots_rows_as_floats(f, d, R);
#pragma GCC unroll 4
	for (int r = 0; r < R; r++)
#pragma GCC unroll 2
		for (int v = 0; v < V; v++)
			acc[r][v] = first ? _mm512_setzero_ps() :
			                    _mm512_maskz_loadu_ps(d->mask[v],
			                                          d->out + (size_t)r * d->ld + (size_t)v * d->beside);
	for (int i = 0; i < d->n; i++, x += d->block, from += R * DOTS_BLOCK) {
		__m512 sum[2][DOTS_ROWS][2];

#pragma GCC unroll 4
		for (int r = 0; r < R; r++)
#pragma GCC unroll 2
			for (int v = 0; v < V; v++)
				sum[0][r][v] = sum[1][r][v] = _mm512_setzero_ps();
#pragma GCC unroll 8
		for (int j = 0; j < DOTS_PAIRS; j += 2)
#pragma GCC unroll 2
			for (int half = 0; half < halves; half++)
#pragma GCC unroll 2
				for (int odd = 0; odd < 2; odd++, panel += d->step)
					dots_step(sum[odd], panel, d->vector, from + half * DOTS_PAIRS + j + odd,
					          x + 4 * (j + odd), d->row, R, V, floats);
#pragma GCC unroll 4
		for (int r = 0; r < R; r++)
#pragma GCC unroll 2
			for (int v = 0; v < V; v++)
				acc[r][v] = _mm512_add_ps(acc[r][v], _mm512_add_ps(sum[0][r][v], sum[1][r][v]));
	}
#pragma GCC unroll 4
	for (int r = 0; r < R; r++)
#pragma GCC unroll 2
		for (int v = 0; v < V; v++)
			_mm512_mask_storeu_ps(d->out + (size_t)r * d->ld + (size_t)v * d->beside, d->mask[v],
			                      acc[r][v]);
}

#endif
