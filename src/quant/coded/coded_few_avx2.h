/* coded_few_avx2.h - affine codes of 4 or 8 bits in groups of 64 with AVX2: words of 8 outputs by some rows, in
 * registers. For files that are compiled twice, as coded_avx2.h says.
 *
 * Without vpdpbusd eight pairs of products of 4 bits are summed in 16 bits (15 x 127 x 16 =
 * 30480), and codes of 8 bits are multiplied as 16 bits, those of even inputs and those of odd. */
#ifndef QUANT_CODED_G64_AVX2_H
#define QUANT_CODED_G64_AVX2_H

#include "quant/coded/coded_avx2.h"
#include "quant/coded/coded_kernels.h"

/* One row's activations to where groups are `step` bytes apart.  4 bits in rows: each eight in the order 0 2 4 6 1 3 5
 * 7. 4 bits in blocks, and 8 bits: unchanged; 8 bits without vpdpbusd: as int16, each four in the order 0 2 1 3. */
void LEVEL(coded_inputs)(int8_t *to, size_t step, const int8_t *q, int cols, int bits, bool blocks);

/* Rows up to which, with vpdpbusd, it is faster to shift the sums of the bytes' upper codes than the codes. */
enum { APART_ROWS = 4 };

INLINE __m256i quad(const int8_t *q)
{
	return _mm256_castps_si256(_mm256_broadcast_ss((const float *)(const void *)q));
}

INLINE __m256i dot_vnni(__m256i acc, __m256i w, __m256i x)
{
	__asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc) : "x"(w), "x"(x));
	return acc;
}

/* 4 words of each of 8 outputs as codes in CODES vectors, as they are multiplied; of 4 bits apart: the upper ones where
 * they are. */
#define CODES(bits) ((bits) == 8 && VNNI ? 4 : 8)
INLINE void split(__m256i c[8], const __m256i t[4], const bool apart, const int bits)
{
	const __m256i low = bits == 4 ? _mm256_set1_epi8(15) : _mm256_set1_epi16(255);

#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		if (bits == 8 && VNNI) {
			c[i] = t[i];
			continue;
		}
		c[2 * i] = _mm256_and_si256(t[i], low);
		c[2 * i + 1] = apart     ? _mm256_andnot_si256(low, t[i]) :
		               bits == 8 ? _mm256_srli_epi16(t[i], 8) :
		                           _mm256_and_si256(_mm256_srli_epi16(t[i], 4), low);
	}
}

/* R rows, `row` bytes apart. */
INLINE void rows_at(const int8_t *at[], const int8_t *q, size_t row, const int R)
{
#pragma GCC unroll 8
	for (int r = 0; r < R; r++)
		at[r] = q + (size_t)r * row;
}

/* v, and where they are summed apart high, plus the products of codes of 8 outputs with R rows from q[row] on; of
 * the first ones, what they are set to. */
INLINE void multiply(__m256i v[], __m256i high[], const __m256i c[8], const int8_t *const q[], const bool first,
                     const bool apart, const int bits, const int R)
{
	const int n = CODES(bits);

#pragma GCC unroll 8
	for (int r = 0; r < R; r++) {
		__m256i s = first ? _mm256_setzero_si256() : v[r], u = first ? s : high[r], p = s;

#pragma GCC unroll 8
		for (int i = 0; i < n; i++) {
			__m256i x = quad(q[r] + 4 * i);

			if (VNNI && apart && i % 2) {
				u = dot_vnni(u, c[i], x);
			} else if (VNNI) {
				s = dot_vnni(s, c[i], x);
			} else if (bits == 4) {
				x = _mm256_maddubs_epi16(c[i], x);
				p = i ? _mm256_add_epi16(p, x) : x;
				__asm__("" : "+x"(p)); /* in this order: gcc 12 makes trees and spills them */
			} else {
				x = _mm256_madd_epi16(c[i], x);
				s = first && i == 0 ? x : _mm256_add_epi32(s, x);
				__asm__("" : "+x"(s));
			}
		}
		if (bits == 4 && !VNNI)
			s = first ? _mm256_madd_epi16(p, _mm256_set1_epi16(1)) : widen(s, p);
		v[r] = s;
		high[r] = u;
	}
}

/* Up to FEW_ROWS rows as blocks are multiplied with them. */
struct block_rows {
	const int8_t *q; /* [rows][row] */
	size_t row;
	const float *beside; /* [groups][rows][scale, scaled sum] */
	int n;
};
/* Rows r0 .. r0 + n - 1 of x; what is laid out of them is at `to` on.  Returns where that ends. */
int8_t *LEVEL(block_rows_of)(struct block_rows *d, int8_t *to, const struct acts *x, int r0, int n, int bits);
/* n times 16 outputs of w, whose blocks those at `blocks` are. */
void LEVEL(packed_rows)(float *out, size_t ld, const struct weight *w, const uint8_t *blocks, int n,
                        const struct block_rows *d);

/* Scales and biases of 8 outputs, of half a block's last line. */
INLINE __m256 block_scales8(__m256i v)
{
	return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
}
INLINE __m256 block_biases8(__m256i v)
{
	return _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000)));
}

#endif
