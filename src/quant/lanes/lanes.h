/* lanes.h - sixteen floats at once, written four times: C, AVX2, AVX-512, NEON.
 *
 * Sources that include this are compiled once per level (meson gives each its
 * flags) and name what they export with LANES().  Every operation is exact or
 * rounded once in the same place at every level, so code written over it gives
 * the same bits everywhere; that is what "16 partial sums" in format.h is made
 * of.  Only kernel sources under quant/ and backend/cpu/ include it.
 *
 * `_n` forms touch the first n <= 16 lanes of memory only. */
#ifndef QUANT_LANES_H
#define QUANT_LANES_H

#include <stdint.h>
#include <string.h>

/* An intrinsic or two must be inlined; a loop over sixteen floats must not be, or
 * the C level takes minutes to compile under the sanitizers. */
#if defined(__AVX2__) || defined(LANES_NEON)
#define LANES_INLINE static inline __attribute__((always_inline, unused))
#else
#define LANES_INLINE static __attribute__((unused))
#endif

#if defined(__AVX512F__)

#include <immintrin.h>
#define LANES(name) name##_avx512
#define LANES_REGISTERS 32 /* how many v16 the processor's registers hold; 0: it is an array */

typedef __m512 v16;

LANES_INLINE __mmask16 v16_mask(int n)
{
	return (__mmask16)((1u << n) - 1);
}
LANES_INLINE v16 v16_zero(void)
{
	return _mm512_setzero_ps();
}
LANES_INLINE v16 v16_set1(float f)
{
	return _mm512_set1_ps(f);
}
LANES_INLINE v16 v16_load(const void *p)
{
	return _mm512_loadu_ps(p);
}
LANES_INLINE v16 v16_load_n(const void *p, int n)
{
	return _mm512_maskz_loadu_ps(v16_mask(n), p);
}
LANES_INLINE v16 v16_load_bf16(const void *p)
{
	__m512i h = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p));

	return _mm512_castsi512_ps(_mm512_slli_epi32(h, 16));
}
LANES_INLINE v16 v16_load_bf16_n(const void *p, int n)
{
	__m512i h = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(v16_mask(n), p));

	return _mm512_castsi512_ps(_mm512_slli_epi32(h, 16));
}
LANES_INLINE v16 v16_load_f16(const void *p)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}
LANES_INLINE v16 v16_load_f16_n(const void *p, int n)
{
	return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(v16_mask(n), p));
}
LANES_INLINE v16 v16_load_u8(const void *p)
{
	return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(p)));
}
/* A 256th of E4M3 as MLX reads it, which is an f16 with its exponent 8 too small. */
LANES_INLINE v16 v16_load_e4m3(const void *p)
{
	/* A half's sign, a 0 for its highest bit of the exponent, and the byte's seven other bits. */
	__m256i b = _mm256_cvtepi8_epi16(_mm_loadu_si128(p));

	return _mm512_cvtph_ps(_mm256_and_si256(_mm256_slli_epi16(b, 7), _mm256_set1_epi16((short)0xbfff)));
}
LANES_INLINE void v16_load_e4m3s(v16 to[2], const void *p) /* of 32 bytes */
{
	__m512i b = _mm512_cvtepi8_epi16(_mm256_loadu_si256(p));
	__m512i h = _mm512_and_si512(_mm512_slli_epi16(b, 7), _mm512_set1_epi16((short)0xbfff));

	to[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(h));
	to[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(h, 1));
}
LANES_INLINE void v16_store(void *p, v16 a)
{
	_mm512_storeu_ps(p, a);
}
LANES_INLINE void v16_store_n(void *p, v16 a, int n)
{
	_mm512_mask_storeu_ps(p, v16_mask(n), a);
}
LANES_INLINE v16 v16_add(v16 a, v16 b)
{
	return _mm512_add_ps(a, b);
}
LANES_INLINE v16 v16_sub(v16 a, v16 b)
{
	return _mm512_sub_ps(a, b);
}
LANES_INLINE v16 v16_mul(v16 a, v16 b)
{
	return _mm512_mul_ps(a, b);
}
LANES_INLINE v16 v16_div(v16 a, v16 b)
{
	return _mm512_div_ps(a, b);
}
LANES_INLINE v16 v16_max(v16 a, v16 b)
{
	return _mm512_max_ps(a, b);
} /* a > b ? a : b */
LANES_INLINE v16 v16_min(v16 a, v16 b)
{
	return _mm512_min_ps(a, b);
} /* a < b ? a : b */
LANES_INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
	return _mm512_fmadd_ps(a, b, c);
}
/* Lanes from n on keep c, to the bit. */
LANES_INLINE v16 v16_fma_n(v16 a, v16 b, v16 c, int n)
{
	return _mm512_mask3_fmadd_ps(a, b, c, v16_mask(n));
}
LANES_INLINE v16 v16_abs(v16 a)
{
	return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7fffffff)));
}
/* Lanes that are not below least: numbers from it on, and NaN. */
typedef __mmask16 v16_lanes;
LANES_INLINE v16_lanes v16_not_below(v16 a, float least)
{
	return _mm512_cmp_ps_mask(a, _mm512_set1_ps(least), _CMP_NLT_UQ);
}
/* p * 2^k with k the integer in the low bits of t = k + 1.5 * 2^23, in the lanes `in`; 0 in others.  Here one
 * instruction; elsewhere in two steps. */
LANES_INLINE v16 v16_scale2(v16 p, v16 t, v16_lanes in)
{
	return _mm512_maskz_scalef_ps(in, p, _mm512_sub_ps(t, _mm512_set1_ps(12582912.0f)));
}
/* Integers in [-128, 127] to bytes. */
LANES_INLINE void v16_store_i8(void *p, v16 a)
{
	_mm_storeu_si128(p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a)));
}
/* To the nearest bf16, even if two are; what is not a number stays so (float_to_bf16). */
LANES_INLINE void v16_store_bf16(void *p, v16 a)
{
	__m512i u = _mm512_castps_si512(a), top = _mm512_srli_epi32(u, 16), one = _mm512_set1_epi32(1);
	__m512i r = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), _mm512_and_si512(top, one));

	r = _mm512_mask_or_epi32(_mm512_srli_epi32(r, 16), _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), top,
	                         _mm512_set1_epi32(0x40));
	_mm256_storeu_si256(p, _mm512_cvtepi32_epi16(r));
}
/* The fixed tree: 8 apart, 4, 2, 1. */
LANES_INLINE float v16_sum(v16 a)
{
	__m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
	__m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));

	c = _mm_add_ps(c, _mm_movehl_ps(c, c));
	return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
}
/* Sums of the 4 x 4 f[r][q], each in the order of v16_sum; rows of query q in the
 * q-th quarter. */
LANES_INLINE v16 v16_sums_4x4(v16 f[4][4])
{
	v16 a[4];

#pragma GCC unroll 4
	for (int r = 0; r < 4; r++) {
		v16 x = _mm512_add_ps(_mm512_shuffle_f32x4(f[r][0], f[r][1], 0x44),
		                      _mm512_shuffle_f32x4(f[r][0], f[r][1], 0xee));
		v16 y = _mm512_add_ps(_mm512_shuffle_f32x4(f[r][2], f[r][3], 0x44),
		                      _mm512_shuffle_f32x4(f[r][2], f[r][3], 0xee));

		a[r] = _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xdd));
	}
	a[0] = _mm512_add_ps(_mm512_shuffle_ps(a[0], a[1], 0x44), _mm512_shuffle_ps(a[0], a[1], 0xee));
	a[2] = _mm512_add_ps(_mm512_shuffle_ps(a[2], a[3], 0x44), _mm512_shuffle_ps(a[2], a[3], 0xee));
	return _mm512_add_ps(_mm512_shuffle_ps(a[0], a[2], 0x88), _mm512_shuffle_ps(a[0], a[2], 0xdd));
}
LANES_INLINE float v16_top(v16 a)
{
	__m256 b = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
	__m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));

	c = _mm_max_ps(c, _mm_movehl_ps(c, c));
	return _mm_cvtss_f32(_mm_max_ss(c, _mm_shuffle_ps(c, c, 1)));
}

#elif defined(__AVX2__)

#include <immintrin.h>
#define LANES(name) name##_avx2
#define LANES_REGISTERS 8

typedef struct {
	__m256 a, b;
} v16;

/* All bits set in lanes below n, for lanes 0-7 and 8-15. */
LANES_INLINE __m256i v16_mask_at(int n, int first)
{
	__m256i i = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(first));

	return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), i);
}
LANES_INLINE v16 v16_zero(void)
{
	return (v16){ _mm256_setzero_ps(), _mm256_setzero_ps() };
}
LANES_INLINE v16 v16_set1(float f)
{
	return (v16){ _mm256_set1_ps(f), _mm256_set1_ps(f) };
}
LANES_INLINE v16 v16_load(const void *p)
{
	return (v16){ _mm256_loadu_ps(p), _mm256_loadu_ps((const float *)p + 8) };
}
LANES_INLINE v16 v16_load_n(const void *p, int n)
{
	return (v16){ _mm256_maskload_ps(p, v16_mask_at(n, 0)),
		      _mm256_maskload_ps((const float *)p + 8, v16_mask_at(n, 8)) };
}
LANES_INLINE __m256 v16_bf16_half(__m128i h)
{
	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
LANES_INLINE v16 v16_load_bf16(const void *p)
{
	const uint8_t *b = p;

	return (v16){ v16_bf16_half(_mm_loadu_si128((const void *)b)),
		      v16_bf16_half(_mm_loadu_si128((const void *)(b + 16))) };
}
LANES_INLINE v16 v16_load_bf16_n(const void *p, int n)
{
	uint16_t t[16] = { 0 };

	memcpy(t, p, (size_t)n * 2);
	return v16_load_bf16(t);
}
LANES_INLINE v16 v16_load_f16(const void *p)
{
	const uint8_t *b = p;

	return (v16){ _mm256_cvtph_ps(_mm_loadu_si128((const void *)b)),
		      _mm256_cvtph_ps(_mm_loadu_si128((const void *)(b + 16))) };
}
LANES_INLINE v16 v16_load_f16_n(const void *p, int n)
{
	uint16_t t[16] = { 0 };

	memcpy(t, p, (size_t)n * 2);
	return v16_load_f16(t);
}
LANES_INLINE v16 v16_load_u8(const void *p)
{
	__m128i b = _mm_loadu_si128(p);

	return (v16){ _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(b)),
		      _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(b, 8))) };
}
LANES_INLINE v16 v16_load_e4m3(const void *p)
{
	/* A half's sign, a 0 for its highest bit of the exponent, and the byte's seven other bits. */
	__m256i b = _mm256_cvtepi8_epi16(_mm_loadu_si128(p));
	__m256i h = _mm256_and_si256(_mm256_slli_epi16(b, 7), _mm256_set1_epi16((short)0xbfff));

	return (v16){ _mm256_cvtph_ps(_mm256_castsi256_si128(h)), _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1)) };
}
LANES_INLINE void v16_store(void *p, v16 a)
{
	_mm256_storeu_ps(p, a.a);
	_mm256_storeu_ps((float *)p + 8, a.b);
}
LANES_INLINE void v16_store_n(void *p, v16 a, int n)
{
	_mm256_maskstore_ps(p, v16_mask_at(n, 0), a.a);
	_mm256_maskstore_ps((float *)p + 8, v16_mask_at(n, 8), a.b);
}
LANES_INLINE v16 v16_add(v16 a, v16 b)
{
	return (v16){ _mm256_add_ps(a.a, b.a), _mm256_add_ps(a.b, b.b) };
}
LANES_INLINE v16 v16_sub(v16 a, v16 b)
{
	return (v16){ _mm256_sub_ps(a.a, b.a), _mm256_sub_ps(a.b, b.b) };
}
LANES_INLINE v16 v16_mul(v16 a, v16 b)
{
	return (v16){ _mm256_mul_ps(a.a, b.a), _mm256_mul_ps(a.b, b.b) };
}
LANES_INLINE v16 v16_div(v16 a, v16 b)
{
	return (v16){ _mm256_div_ps(a.a, b.a), _mm256_div_ps(a.b, b.b) };
}
LANES_INLINE v16 v16_max(v16 a, v16 b)
{
	return (v16){ _mm256_max_ps(a.a, b.a), _mm256_max_ps(a.b, b.b) };
}
LANES_INLINE v16 v16_min(v16 a, v16 b)
{
	return (v16){ _mm256_min_ps(a.a, b.a), _mm256_min_ps(a.b, b.b) };
}
LANES_INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
	return (v16){ _mm256_fmadd_ps(a.a, b.a, c.a), _mm256_fmadd_ps(a.b, b.b, c.b) };
}
LANES_INLINE v16 v16_fma_n(v16 a, v16 b, v16 c, int n)
{
	v16 r = v16_fma(a, b, c);

	return (v16){ _mm256_blendv_ps(c.a, r.a, _mm256_castsi256_ps(v16_mask_at(n, 0))),
		      _mm256_blendv_ps(c.b, r.b, _mm256_castsi256_ps(v16_mask_at(n, 8))) };
}
LANES_INLINE v16 v16_abs(v16 a)
{
	__m256 m = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));

	return (v16){ _mm256_and_ps(a.a, m), _mm256_and_ps(a.b, m) };
}
LANES_INLINE __m256 v16_scale2_half(__m256 p, __m256 t)
{
	__m256i k = _mm256_sub_epi32(_mm256_castps_si256(t), _mm256_set1_epi32(0x4b400000));
	__m256i h = _mm256_srai_epi32(k, 1);
	__m256i one = _mm256_set1_epi32(127);

	p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(h, one), 23)));
	h = _mm256_sub_epi32(k, h);
	return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(h, one), 23)));
}
typedef v16 v16_lanes; /* all bits set in the lanes that are meant */
LANES_INLINE v16_lanes v16_not_below(v16 a, float least)
{
	__m256 x = _mm256_set1_ps(least);

	return (v16){ _mm256_cmp_ps(a.a, x, _CMP_NLT_UQ), _mm256_cmp_ps(a.b, x, _CMP_NLT_UQ) };
}
LANES_INLINE v16 v16_scale2(v16 p, v16 t, v16_lanes in)
{
	return (v16){ _mm256_and_ps(v16_scale2_half(p.a, t.a), in.a), _mm256_and_ps(v16_scale2_half(p.b, t.b), in.b) };
}
LANES_INLINE void v16_store_i8(void *p, v16 a)
{
	__m256i w = _mm256_packs_epi32(_mm256_cvtps_epi32(a.a), _mm256_cvtps_epi32(a.b));

	w = _mm256_permute4x64_epi64(w, 0xd8);
	_mm_storeu_si128(p, _mm_packs_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
}
LANES_INLINE __m256i v16_half_to_bf16(__m256 a)
{
	__m256i u = _mm256_castps_si256(a), top = _mm256_srli_epi32(u, 16);
	__m256i r = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)),
	                             _mm256_and_si256(top, _mm256_set1_epi32(1)));
	__m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));

	return _mm256_blendv_epi8(_mm256_srli_epi32(r, 16), _mm256_or_si256(top, _mm256_set1_epi32(0x40)), nan);
}
LANES_INLINE void v16_store_bf16(void *p, v16 a)
{
	__m256i w = _mm256_packus_epi32(v16_half_to_bf16(a.a), v16_half_to_bf16(a.b));

	_mm256_storeu_si256(p, _mm256_permute4x64_epi64(w, 0xd8));
}
LANES_INLINE float v16_sum(v16 a)
{
	__m256 b = _mm256_add_ps(a.a, a.b);
	__m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));

	c = _mm_add_ps(c, _mm_movehl_ps(c, c));
	return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
}
LANES_INLINE float v16_top(v16 a)
{
	__m256 b = _mm256_max_ps(a.a, a.b);
	__m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));

	c = _mm_max_ps(c, _mm_movehl_ps(c, c));
	return _mm_cvtss_f32(_mm_max_ss(c, _mm_shuffle_ps(c, c, 1)));
}

#elif defined(LANES_NEON) /* not __ARM_NEON, which compilers define for the scalar level too */

#include <arm_neon.h>
#define LANES(name) name##_neon
#define LANES_REGISTERS 8

typedef struct {
	float32x4_t v[4];
} v16;

#define LANES_QUADS _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)

LANES_INLINE v16 v16_set1(float f)
{
	v16 r;
	LANES_QUADS r.v[i] = vdupq_n_f32(f);
	return r;
}
LANES_INLINE v16 v16_zero(void)
{
	return v16_set1(0.0f);
}
LANES_INLINE v16 v16_load(const void *p)
{
	v16 r;
	LANES_QUADS r.v[i] = vreinterpretq_f32_u8(vld1q_u8((const uint8_t *)p + 16 * i));
	return r;
}
LANES_INLINE v16 v16_load_n(const void *p, int n)
{
	float t[16] = { 0 };

	memcpy(t, p, (size_t)n * 4);
	return v16_load(t);
}
LANES_INLINE v16 v16_load_bf16(const void *p)
{
	const uint8_t *b = p;
	v16 r;

	LANES_QUADS r.v[i] = vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(b + 8 * i)), 16));
	return r;
}
LANES_INLINE v16 v16_load_bf16_n(const void *p, int n)
{
	uint16_t t[16] = { 0 };

	memcpy(t, p, (size_t)n * 2);
	return v16_load_bf16(t);
}
LANES_INLINE v16 v16_load_f16(const void *p)
{
	const uint8_t *b = p;
	v16 r;

	LANES_QUADS r.v[i] = vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(b + 8 * i)));
	return r;
}
LANES_INLINE v16 v16_load_f16_n(const void *p, int n)
{
	uint16_t t[16] = { 0 };

	memcpy(t, p, (size_t)n * 2);
	return v16_load_f16(t);
}
LANES_INLINE v16 v16_load_u8(const void *p)
{
	uint8x16_t b = vld1q_u8(p);
	uint16x8_t low = vmovl_u8(vget_low_u8(b)), high = vmovl_high_u8(b);

	return (v16){ { vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))), vcvtq_f32_u32(vmovl_high_u16(low)),
		        vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))), vcvtq_f32_u32(vmovl_high_u16(high)) } };
}
LANES_INLINE v16 v16_load_e4m3(const void *p)
{
	uint8x16_t b = vld1q_u8(p);
	uint16x8_t h[2] = { vmovl_u8(vget_low_u8(b)), vmovl_high_u8(b) };
	v16 r;

#pragma GCC unroll 2
	for (int i = 0; i < 2; i++) {
		h[i] = vorrq_u16(vshlq_n_u16(vandq_u16(h[i], vdupq_n_u16(0x7f)), 7),
		                 vshlq_n_u16(vandq_u16(h[i], vdupq_n_u16(0x80)), 8));
		r.v[2 * i] = vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(h[i])));
		r.v[2 * i + 1] = vcvt_high_f32_f16(vreinterpretq_f16_u16(h[i]));
	}
	return r;
}
LANES_INLINE void v16_store(void *p, v16 a)
{
	LANES_QUADS vst1q_u8((uint8_t *)p + 16 * i, vreinterpretq_u8_f32(a.v[i]));
}
LANES_INLINE void v16_store_n(void *p, v16 a, int n)
{
	float t[16];

	v16_store(t, a);
	memcpy(p, t, (size_t)n * 4);
}
LANES_INLINE v16 v16_add(v16 a, v16 b)
{
	LANES_QUADS a.v[i] = vaddq_f32(a.v[i], b.v[i]);
	return a;
}
LANES_INLINE v16 v16_sub(v16 a, v16 b)
{
	LANES_QUADS a.v[i] = vsubq_f32(a.v[i], b.v[i]);
	return a;
}
LANES_INLINE v16 v16_mul(v16 a, v16 b)
{
	LANES_QUADS a.v[i] = vmulq_f32(a.v[i], b.v[i]);
	return a;
}
LANES_INLINE v16 v16_div(v16 a, v16 b)
{
	LANES_QUADS a.v[i] = vdivq_f32(a.v[i], b.v[i]);
	return a;
}
/* Not vmaxq_f32, which gives another result for NaN. */
LANES_INLINE float32x4_t v16_larger(float32x4_t a, float32x4_t b)
{
	return vbslq_f32(vcgtq_f32(a, b), a, b);
}
LANES_INLINE v16 v16_max(v16 a, v16 b)
{
	LANES_QUADS a.v[i] = v16_larger(a.v[i], b.v[i]);
	return a;
}
LANES_INLINE v16 v16_min(v16 a, v16 b)
{
	LANES_QUADS a.v[i] = vbslq_f32(vcltq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]);
	return a;
}
LANES_INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
	LANES_QUADS c.v[i] = vfmaq_f32(c.v[i], a.v[i], b.v[i]);
	return c;
}
LANES_INLINE v16 v16_fma_n(v16 a, v16 b, v16 c, int n)
{
	static const int32_t count[4] = { 0, 1, 2, 3 };
	v16 r = v16_fma(a, b, c);

	LANES_QUADS r.v[i] = vbslq_f32(vcltq_s32(vld1q_s32(count), vdupq_n_s32(n - 4 * i)), r.v[i], c.v[i]);
	return r;
}
LANES_INLINE v16 v16_abs(v16 a)
{
	LANES_QUADS a.v[i] = vabsq_f32(a.v[i]);
	return a;
}
typedef struct {
	uint32x4_t v[4];
} v16_lanes; /* all bits set in the lanes that are meant */
LANES_INLINE v16_lanes v16_not_below(v16 a, float least)
{
	v16_lanes r;

	LANES_QUADS r.v[i] = vmvnq_u32(vcltq_f32(a.v[i], vdupq_n_f32(least)));
	return r;
}
LANES_INLINE float32x4_t v16_pow2(int32x4_t k) /* 2^k for k in [-126, 127] */
{
	return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(k, vdupq_n_s32(127)), 23));
}
LANES_INLINE v16 v16_scale2(v16 p, v16 t, v16_lanes in)
{
	LANES_QUADS
	{
		int32x4_t k = vsubq_s32(vreinterpretq_s32_f32(t.v[i]), vdupq_n_s32(0x4b400000)), h = vshrq_n_s32(k, 1);

		p.v[i] = vmulq_f32(vmulq_f32(p.v[i], v16_pow2(h)), v16_pow2(vsubq_s32(k, h)));
		p.v[i] = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(p.v[i]), in.v[i]));
	}
	return p;
}
LANES_INLINE void v16_store_i8(void *p, v16 a)
{
	int16x8_t h[2];

#pragma GCC unroll 2
	for (int i = 0; i < 2; i++)
		h[i] = vcombine_s16(vqmovn_s32(vcvtnq_s32_f32(a.v[2 * i])), vqmovn_s32(vcvtnq_s32_f32(a.v[2 * i + 1])));
	vst1q_s8(p, vcombine_s8(vqmovn_s16(h[0]), vqmovn_s16(h[1])));
}
LANES_INLINE void v16_store_bf16(void *p, v16 a)
{
	LANES_QUADS
	{
		uint32x4_t u = vreinterpretq_u32_f32(a.v[i]), top = vshrq_n_u32(u, 16);
		uint32x4_t r = vaddq_u32(vaddq_u32(u, vdupq_n_u32(0x7fff)), vandq_u32(top, vdupq_n_u32(1)));
		uint32x4_t number = vceqq_f32(a.v[i], a.v[i]);

		r = vbslq_u32(number, vshrq_n_u32(r, 16), vorrq_u32(top, vdupq_n_u32(0x40)));
		vst1_u8((uint8_t *)p + 8 * i, vreinterpret_u8_u16(vmovn_u32(r)));
	}
}
LANES_INLINE float v16_sum(v16 a)
{
	float32x4_t b = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
	float32x2_t c = vadd_f32(vget_low_f32(b), vget_high_f32(b));

	return vget_lane_f32(c, 0) + vget_lane_f32(c, 1);
}
LANES_INLINE float v16_top(v16 a)
{
	float32x4_t b = v16_larger(v16_larger(a.v[0], a.v[2]), v16_larger(a.v[1], a.v[3]));
	float t[4];

	vst1q_f32(t, b);
	t[0] = t[0] > t[2] ? t[0] : t[2];
	t[1] = t[1] > t[3] ? t[1] : t[3];
	return t[0] > t[1] ? t[0] : t[1];
}

#else

#include "quant/format.h"

#define LANES(name) name##_scalar
#define LANES_REGISTERS 0

typedef struct {
	float v[16];
} v16;

#define LANES_EACH for (int i = 0; i < 16; i++)

LANES_INLINE v16 v16_set1(float f)
{
	v16 r;
	LANES_EACH r.v[i] = f;
	return r;
}
LANES_INLINE v16 v16_zero(void)
{
	return v16_set1(0.0f);
}
LANES_INLINE v16 v16_load_n(const void *p, int n)
{
	v16 r = v16_zero();

	memcpy(r.v, p, (size_t)n * sizeof(float));
	return r;
}
LANES_INLINE v16 v16_load(const void *p)
{
	return v16_load_n(p, 16);
}
LANES_INLINE v16 v16_load_bf16_n(const void *p, int n)
{
	uint16_t t[16] = { 0 };
	v16 r;

	memcpy(t, p, (size_t)n * 2);
	LANES_EACH r.v[i] = bf16_to_float(t[i]);
	return r;
}
LANES_INLINE v16 v16_load_bf16(const void *p)
{
	return v16_load_bf16_n(p, 16);
}
LANES_INLINE v16 v16_load_f16_n(const void *p, int n)
{
	uint16_t t[16] = { 0 };
	v16 r;

	memcpy(t, p, (size_t)n * 2);
	LANES_EACH r.v[i] = f16_to_float(t[i]);
	return r;
}
LANES_INLINE v16 v16_load_f16(const void *p)
{
	return v16_load_f16_n(p, 16);
}
LANES_INLINE v16 v16_load_u8(const void *p)
{
	v16 r;
	LANES_EACH r.v[i] = ((const uint8_t *)p)[i];
	return r;
}
LANES_INLINE v16 v16_load_e4m3(const void *p)
{
	v16 r;

	LANES_EACH
	{
		uint8_t b = ((const uint8_t *)p)[i];

		r.v[i] = (b & 0x80 ? -1.0f : 1.0f) * f16_to_float((uint16_t)((b & 0x7f) << 7));
	}
	return r;
}
LANES_INLINE void v16_store_n(void *p, v16 a, int n)
{
	memcpy(p, a.v, (size_t)n * sizeof(float));
}
LANES_INLINE void v16_store(void *p, v16 a)
{
	v16_store_n(p, a, 16);
}
LANES_INLINE v16 v16_add(v16 a, v16 b)
{
	LANES_EACH a.v[i] += b.v[i];
	return a;
}
LANES_INLINE v16 v16_sub(v16 a, v16 b)
{
	LANES_EACH a.v[i] -= b.v[i];
	return a;
}
LANES_INLINE v16 v16_mul(v16 a, v16 b)
{
	LANES_EACH a.v[i] *= b.v[i];
	return a;
}
LANES_INLINE v16 v16_div(v16 a, v16 b)
{
	LANES_EACH a.v[i] /= b.v[i];
	return a;
}
LANES_INLINE v16 v16_max(v16 a, v16 b)
{
	LANES_EACH a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
	return a;
}
LANES_INLINE v16 v16_min(v16 a, v16 b)
{
	LANES_EACH a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
	return a;
}
LANES_INLINE v16 v16_fma_n(v16 a, v16 b, v16 c, int n)
{
	for (int i = 0; i < n; i++)
		c.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
	return c;
}
LANES_INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
	return v16_fma_n(a, b, c, 16);
}
LANES_INLINE v16 v16_abs(v16 a)
{
	LANES_EACH a.v[i] = __builtin_fabsf(a.v[i]);
	return a;
}
LANES_INLINE float v16_pow2(uint32_t k) /* 2^(int)k for k in [-126, 127] */
{
	float f;

	k = (k + 127) << 23;
	memcpy(&f, &k, 4);
	return f;
}
typedef v16 v16_lanes; /* 1 in the lanes that are meant, else 0 */
LANES_INLINE v16_lanes v16_not_below(v16 a, float least)
{
	LANES_EACH a.v[i] = a.v[i] < least ? 0.0f : 1.0f;
	return a;
}
LANES_INLINE v16 v16_scale2(v16 p, v16 t, v16_lanes in)
{
	LANES_EACH
	{
		uint32_t u;
		int32_t k, h;

		memcpy(&u, &t.v[i], 4);
		k = (int32_t)(u - 0x4b400000u);
		h = k >> 1;
		p.v[i] *= v16_pow2((uint32_t)h);
		p.v[i] *= v16_pow2((uint32_t)k - (uint32_t)h);
		if (in.v[i] == 0.0f)
			p.v[i] = 0.0f;
	}
	return p;
}
LANES_INLINE void v16_store_i8(void *p, v16 a)
{
	int8_t *o = p;

	LANES_EACH o[i] = (int8_t)a.v[i];
}
LANES_INLINE void v16_store_bf16(void *p, v16 a)
{
	uint16_t o[16];

	LANES_EACH o[i] = float_to_bf16(a.v[i]);
	memcpy(p, o, sizeof o);
}
LANES_INLINE float v16_sum(v16 a)
{
	for (int h = 8; h; h /= 2)
		for (int i = 0; i < h; i++)
			a.v[i] += a.v[i + h];
	return a.v[0];
}
LANES_INLINE float v16_top(v16 a)
{
	for (int h = 8; h; h /= 2)
		for (int i = 0; i < h; i++)
			a.v[i] = a.v[i] > a.v[i + h] ? a.v[i] : a.v[i + h];
	return a.v[0];
}

#endif

#ifndef __AVX512F__
LANES_INLINE void v16_load_e4m3s(v16 to[2], const void *p)
{
	to[0] = v16_load_e4m3(p);
	to[1] = v16_load_e4m3((const uint8_t *)p + 16);
}
#endif

/* Nearest integer, ties to even, for |a| < 2^22. */
LANES_INLINE v16 v16_rint(v16 a)
{
	v16 magic = v16_set1(12582912.0f); /* 1.5 * 2^23: below it floats have no fraction left */

	return v16_sub(v16_add(a, magic), magic);
}

/* Vectors of one operation on exponentials, side by side: a single one is a chain of twenty steps, of which a
 * processor's queues hold few.  The C level's compilers need not see through it. */
#if LANES_REGISTERS >= 32
enum { LANES_ABREAST = 4 };
#else
enum { LANES_ABREAST = 1 }; /* with AVX2 one is two already, with NEON four, and registers are few */
#endif
#define ABREAST(n) _Pragma("GCC unroll 4") for (int v = 0; v < (n); v++)

/* exp of N vectors: x = k ln 2 + r, |r| <= ln 2 / 2, Taylor to r^7 (rest 5e-9), relative
 * error below 1.2e-7 as test_ops measures; 0 below -87, so that no result is denormal, which devices may flush; inf
 * above 88.73. */
LANES_INLINE void v16_exps(v16 *x, const int N)
{
	static const float taylor[] = { 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f };
	v16 magic = v16_set1(12582912.0f), t[LANES_ABREAST], r[LANES_ABREAST], p[LANES_ABREAST];
	v16_lanes in[LANES_ABREAST];

	ABREAST(N) in[v] = v16_not_below(x[v], -87.0f);
	ABREAST(N) x[v] = v16_max(v16_set1(-87.0f), x[v]);
	ABREAST(N) x[v] = v16_min(v16_set1(89.0f), x[v]); /* this order keeps a NaN */
	ABREAST(N) t[v] = v16_fma(x[v], v16_set1(0x1.715476p+0f), magic);
	ABREAST(N) p[v] = v16_sub(t[v], magic);
	ABREAST(N) r[v] = v16_fma(p[v], v16_set1(-0x1.62e4p-1f), x[v]); /* ln 2 in two parts, the first of 14 bits */
	ABREAST(N) r[v] = v16_fma(p[v], v16_set1(-0x1.7f7d1cp-20f), r[v]);
	ABREAST(N) p[v] = v16_set1(1.0f / 5040);
#pragma GCC unroll 7
	for (int i = 0; i < 7; i++)
		ABREAST(N) p[v] = v16_fma(p[v], r[v], v16_set1(taylor[i]));
	ABREAST(N) x[v] = v16_scale2(p[v], t[v], in[v]);
}

/* The divisor 1 + e^-x: of 1 for a sigmoid, of x for SiLU. */
LANES_INLINE void v16_logistic_divisors(v16 *d, const v16 *x, const int N)
{
	ABREAST(N) d[v] = v16_sub(v16_zero(), x[v]);
	v16_exps(d, N);
	ABREAST(N) d[v] = v16_add(v16_set1(1.0f), d[v]);
}

LANES_INLINE void v16_sigmoids(v16 *x, const int N)
{
	v16 d[LANES_ABREAST];

	v16_logistic_divisors(d, x, N);
	ABREAST(N) x[v] = v16_div(v16_set1(1.0f), d[v]);
}

LANES_INLINE void v16_silus(v16 *x, const int N)
{
	v16 d[LANES_ABREAST];

	v16_logistic_divisors(d, x, N);
	ABREAST(N) x[v] = v16_div(x[v], d[v]);
}

/* GELU by the tanh form: x (1 + tanh y) / 2 = x / (1 + e^-2y) with y = sqrt(2 / pi) (x + 0.044715 x^3). */
LANES_INLINE void v16_gelus(v16 *x, const int N)
{
	v16 d[LANES_ABREAST], y[LANES_ABREAST];

	ABREAST(N) y[v] = v16_mul(x[v], x[v]);
	ABREAST(N) y[v] = v16_fma(y[v], v16_set1(0x1.2444f2p-4f), v16_set1(0x1.988454p+0f));
	ABREAST(N) y[v] = v16_mul(y[v], x[v]);
	v16_logistic_divisors(d, y, N);
	ABREAST(N) x[v] = v16_div(x[v], d[v]);
}

/* GELU by the error function: x (1 + erf z) / 2 with z = x / sqrt 2, and erfc |z| = t e^(-z^2 + a polynomial of t),
 * t = 1 / (1 + |z| / 2), a Chebyshev fit whose relative error is below 1.2e-7 everywhere (Press et al., Numerical
 * Recipes, 6.2). */
LANES_INLINE void v16_gelus_erf(v16 *x, const int N)
{
	static const float a[] = { -0.82215223f, 1.48851587f, -1.13520398f, 0.27886807f, -0.18628806f,
		                   0.09678418f,  0.37409196f, 1.00002368f,  -1.26551223f };
	v16 z[LANES_ABREAST], t[LANES_ABREAST], p[LANES_ABREAST];

	ABREAST(N) z[v] = v16_mul(v16_abs(x[v]), v16_set1(0x1.6a09e6p-1f));
	ABREAST(N) t[v] = v16_div(v16_set1(1.0f), v16_fma(z[v], v16_set1(0.5f), v16_set1(1.0f)));
	ABREAST(N) p[v] = v16_set1(0.17087277f);
#pragma GCC unroll 9
	for (int i = 0; i < 9; i++)
		ABREAST(N) p[v] = v16_fma(p[v], t[v], v16_set1(a[i]));
	ABREAST(N) p[v] = v16_sub(p[v], v16_mul(z[v], z[v]));
	v16_exps(p, N);
	ABREAST(N) p[v] = v16_mul(v16_mul(p[v], t[v]), v16_set1(0.5f)); /* erfc |z| / 2 */
	/* x > 0: x - x p; else x p, which is -|x| p. */
	ABREAST(N) p[v] = v16_mul(v16_abs(x[v]), p[v]);
	ABREAST(N) x[v] = v16_sub(v16_max(v16_zero(), x[v]), p[v]);
}

LANES_INLINE v16 v16_exp(v16 x)
{
	v16_exps(&x, 1);
	return x;
}

#endif
