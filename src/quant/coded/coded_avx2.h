/* coded_avx2.h - what the kernels for coded weights with AVX2 share.  For files that are compiled
 * twice, with and without AVX-VNNI: LEVEL gives their functions two names. */
#ifndef QUANT_CODED_AVX2_H
#define QUANT_CODED_AVX2_H

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

#if defined(__AVXVNNI__)
#define LEVEL(name) name##_avxvnni
enum { VNNI = 1 };
#else
#define LEVEL(name) name##_avx2
enum { VNNI = 0 };
#endif

/* Bytes of a row's activations of a group of 64: as int16 where codes of 8 bits are multiplied so. */
#define INPUTS(bits) ((bits) == 8 && !VNNI ? 2 * 64 : 64)

/* acc plus pairs of products in 16 bits. */
INLINE __m256i widen(__m256i acc, __m256i p)
{
	return _mm256_add_epi32(acc, _mm256_madd_epi16(p, _mm256_set1_epi16(1)));
}

/* Transposes eight rows of eight dwords. */
INLINE void transpose8(__m256i t[8])
{
	__m256i u[8];

#pragma GCC unroll 4
	for (int i = 0; i < 8; i += 2) {
		u[i] = _mm256_unpacklo_epi32(t[i], t[i + 1]);
		u[i + 1] = _mm256_unpackhi_epi32(t[i], t[i + 1]);
	}
#pragma GCC unroll 2
	for (int i = 0; i < 8; i += 4) {
		t[i] = _mm256_unpacklo_epi64(u[i], u[i + 2]);
		t[i + 1] = _mm256_unpackhi_epi64(u[i], u[i + 2]);
		t[i + 2] = _mm256_unpacklo_epi64(u[i + 1], u[i + 3]);
		t[i + 3] = _mm256_unpackhi_epi64(u[i + 1], u[i + 3]);
	}
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		u[i] = _mm256_permute2x128_si256(t[i], t[i + 4], 0x20);
		u[i + 4] = _mm256_permute2x128_si256(t[i], t[i + 4], 0x31);
	}
#pragma GCC unroll 8
	for (int i = 0; i < 8; i++)
		t[i] = u[i];
}

/* Four rows of 16 bytes in each half to four columns of their 32 bits. */
INLINE void transpose4(__m256i t[4])
{
	__m256i a = _mm256_unpacklo_epi32(t[0], t[1]), b = _mm256_unpackhi_epi32(t[0], t[1]);
	__m256i c = _mm256_unpacklo_epi32(t[2], t[3]), d = _mm256_unpackhi_epi32(t[2], t[3]);

	t[0] = _mm256_unpacklo_epi64(a, c);
	t[1] = _mm256_unpackhi_epi64(a, c);
	t[2] = _mm256_unpacklo_epi64(b, d);
	t[3] = _mm256_unpackhi_epi64(b, d);
}

#endif
