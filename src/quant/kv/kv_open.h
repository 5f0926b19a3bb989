/* kv_open.h - inside quant/: dequantises a cache row's codes into registers, at each level.
 * Only kv_coded.c includes it; docs/kv-cache.md has the layouts. */
#ifndef QUANT_KV_OPEN_H
#define QUANT_KV_OPEN_H

#include <string.h>

#include "quant/kv/kv_coded.h"
#include "quant/lanes/lane_table.h"
#include "quant/lanes/lanes.h"

LANES_INLINE int kv_chunks(int dim)
{
	return (dim + KV_CHUNK - 1) / KV_CHUNK;
}

/* Loads the scales and biases of a row's groups, zeros beyond the first `groups` of 16; a
 * rotated row has one scale and no bias. */
LANES_INLINE void kv_scales(float *scale, float *bias, const uint8_t *p, int groups, const bool turned)
{
	if (turned) {
		memcpy(scale, p, sizeof *scale);
		*bias = 0;
		return;
	}
	v16_store(scale, v16_load_f16_n(p, groups));
	v16_store(bias, v16_load_f16_n(p + 2 * groups, groups));
}

#if defined(__AVX512F__)

/* Codes 0 .. 63, a byte each, below 1 << bits. */
LANES_INLINE __m512i kv_open(const uint8_t *p, const int bits)
{
	__m512i c;

	if (bits == 8)
		return _mm512_loadu_si512(p);
	if (bits == 4) {
		c = _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)p));
		c = _mm512_srlv_epi64(c, _mm512_setr_epi64(0, 0, 0, 0, 4, 4, 4, 4));
		c = _mm512_and_si512(c, _mm512_set1_epi8(15));
	} else {
		c = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)p));
		c = _mm512_srlv_epi64(c, _mm512_setr_epi64(0, 0, 2, 2, 4, 4, 6, 6));
		c = _mm512_and_si512(c, _mm512_set1_epi8(3));
	}
	if (bits == 3) {
		uint64_t upper;

		memcpy(&upper, p + 16, sizeof upper);
		c = _mm512_mask_add_epi8(c, upper, c, _mm512_set1_epi8(4));
	}
	return c;
}

/* Codes 0, 2, ... 62, then 1, 3, ... 63, as int16; with book, the entries that they name. */
LANES_INLINE void kv_open_pairs(int16_t *out, const uint8_t *p, const int bits, const bool book)
{
	__m512i c = kv_open(p, bits), odd = _mm512_srli_epi16(c, 8);

	if (book) { /* of a word only five bits count, and a code has at most four */
		__m512i b = _mm512_broadcast_i64x4(_mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)kv_book(bits))));

		c = _mm512_permutexvar_epi16(c, b);
		odd = _mm512_permutexvar_epi16(odd, b);
	} else {
		c = _mm512_and_si512(c, _mm512_set1_epi16(255));
	}
	_mm512_storeu_si512(out, c);
	_mm512_storeu_si512(out + 32, odd);
}

LANES_INLINE v16 kv_bytes16(const uint8_t *p)
{
	return v16_load_u8(p);
}

/* The values of a chunk's codes; scale[0] is that of the chunk's first group. */
LANES_INLINE void kv_values(v16 out[4], const uint8_t *p, const float *scale, const float *bias, const int bits,
                            const int group)
{
	const v16 count = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
	v16 lo, hi;
	__m512i c;

	if (bits == 8) {
#pragma GCC unroll 4
		for (int v = 0; v < 4; v++) {
			int g = group == 32 ? v / 2 : 0;

			out[v] = v16_fma(v16_set1(scale[g]), v16_load_u8(p + 16 * v), v16_set1(bias[g]));
		}
	} else if (bits == 4) { /* the sixteen values that a code may stand for, then one for each code */
		__m512i d = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(p + 16)));

		c = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p));
		lo = group ? v16_fma(v16_set1(scale[0]), count, v16_set1(bias[0])) :
		             v16_mul(v16_set1(scale[0]), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(
								 _mm_loadu_si128((const void *)kv_book(4)))));
		hi = group == 32 ? v16_fma(v16_set1(scale[1]), count, v16_set1(bias[1])) : lo;
		out[0] = _mm512_permutexvar_ps(c, lo);
		out[1] = _mm512_permutexvar_ps(d, lo);
		out[2] = _mm512_permutexvar_ps(_mm512_srli_epi32(c, 4), hi);
		out[3] = _mm512_permutexvar_ps(_mm512_srli_epi32(d, 4), hi);
	} else { /* the book repeats after four entries: of the index two bits count */
		v16 all = v16_mul(v16_set1(scale[0]), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(
							      _mm_loadu_si128((const void *)kv_book(bits)))));
		uint64_t upper;

		c = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p));
		lo = _mm512_shuffle_f32x4(all, all, 0x00);
		hi = _mm512_shuffle_f32x4(all, all, 0x55);
		if (bits == 3)
			memcpy(&upper, p + 16, sizeof upper);
#pragma GCC unroll 4
		for (int v = 0; v < 4; v++) {
			__m512i at = _mm512_srli_epi32(c, 2 * v);

			out[v] = _mm512_permutexvar_ps(at, lo);
			if (bits == 3)
				out[v] = _mm512_mask_permutexvar_ps(out[v], (__mmask16)(upper >> 16 * v), at, hi);
		}
	}
}

#else

#if defined(__AVX2__)

/* Bytes from codes 0 .. 31 (a) and 32 .. 63 (b); with book, its entries. */
struct kv_bytes {
	__m256i a, b;
};

LANES_INLINE __m256i kv_spread(uint32_t bits) /* 4 in byte i where bit i is set */
{
	const __m256i from = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3,
	                                      3, 3, 3, 3, 3, 3, 3);
	const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
	__m256i c = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), from), bit);

	return _mm256_and_si256(_mm256_cmpeq_epi8(c, bit), _mm256_set1_epi8(4));
}

LANES_INLINE struct kv_bytes kv_open(const uint8_t *p, const int bits, const bool book)
{
	struct kv_bytes c;

	if (bits == 8) {
		c.a = _mm256_loadu_si256((const void *)p);
		c.b = _mm256_loadu_si256((const void *)(p + 32));
	} else if (bits == 4) {
		c.a = _mm256_loadu_si256((const void *)p);
		c.b = _mm256_and_si256(_mm256_srli_epi16(c.a, 4), _mm256_set1_epi8(15));
		c.a = _mm256_and_si256(c.a, _mm256_set1_epi8(15));
	} else {
		__m256i w = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)p)), three = _mm256_set1_epi8(3);

		c.a = _mm256_and_si256(_mm256_srlv_epi64(w, _mm256_setr_epi64x(0, 0, 2, 2)), three);
		c.b = _mm256_and_si256(_mm256_srlv_epi64(w, _mm256_setr_epi64x(4, 4, 6, 6)), three);
		if (bits == 3) {
			uint32_t upper[2];

			memcpy(upper, p + 16, sizeof upper);
			c.a = _mm256_or_si256(c.a, kv_spread(upper[0]));
			c.b = _mm256_or_si256(c.b, kv_spread(upper[1]));
		}
	}
	if (book) {
		__m256i b = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)kv_book(bits)));

		c.a = _mm256_shuffle_epi8(b, c.a);
		c.b = _mm256_shuffle_epi8(b, c.b);
	}
	return c;
}

LANES_INLINE void kv_pairs(int16_t *out, __m256i c, const bool book)
{
	__m256i even = book ? _mm256_srai_epi16(_mm256_slli_epi16(c, 8), 8) :
	                      _mm256_and_si256(c, _mm256_set1_epi16(255));

	_mm256_storeu_si256((void *)out, even);
	_mm256_storeu_si256((void *)(out + 32), book ? _mm256_srai_epi16(c, 8) : _mm256_srli_epi16(c, 8));
}

LANES_INLINE void kv_open_pairs(int16_t *out, const uint8_t *p, const int bits, const bool book)
{
	struct kv_bytes c = kv_open(p, bits, book);

	kv_pairs(out, c.a, book);
	kv_pairs(out + 16, c.b, book);
}

LANES_INLINE __m256i kv_word(__m128i c, const bool book)
{
	return book ? _mm256_cvtepi8_epi16(c) : _mm256_cvtepu8_epi16(c);
}

LANES_INLINE void kv_open_words(int16_t *out, const uint8_t *p, const int bits, const bool book)
{
	struct kv_bytes c = kv_open(p, bits, book);

	_mm256_storeu_si256((void *)out, kv_word(_mm256_castsi256_si128(c.a), book));
	_mm256_storeu_si256((void *)(out + 16), kv_word(_mm256_extracti128_si256(c.a, 1), book));
	_mm256_storeu_si256((void *)(out + 32), kv_word(_mm256_castsi256_si128(c.b), book));
	_mm256_storeu_si256((void *)(out + 48), kv_word(_mm256_extracti128_si256(c.b, 1), book));
}

LANES_INLINE v16 kv_word16(const int16_t *p)
{
	return (v16){ _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm_loadu_si128((const void *)p))),
		      _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm_loadu_si128((const void *)(p + 8)))) };
}

#elif defined(LANES_NEON)

/* Codes of quarter i of a chunk, a byte each; with book, its entries. */
LANES_INLINE uint8x16_t kv_open_quarter(const uint8_t *p, const int bits, const bool book, const int i)
{
	static const uint8_t bit[16] = { 1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128 };
	uint8x16_t c;

	if (bits == 8)
		return vld1q_u8(p + 16 * i);
	if (bits == 4) {
		c = vld1q_u8(p + 16 * (i % 2));
		c = i < 2 ? vandq_u8(c, vdupq_n_u8(15)) : vshrq_n_u8(c, 4);
	} else {
		c = vandq_u8(vshlq_u8(vld1q_u8(p), vdupq_n_s8((int8_t)(-2 * i))), vdupq_n_u8(3));
	}
	if (bits == 3) {
		uint8x16_t upper = vcombine_u8(vdup_n_u8(p[16 + 2 * i]), vdup_n_u8(p[17 + 2 * i]));

		c = vorrq_u8(c, vandq_u8(vtstq_u8(upper, vld1q_u8(bit)), vdupq_n_u8(4)));
	}
	return book ? vqtbl1q_u8(vreinterpretq_u8_s8(vld1q_s8(kv_book(bits))), c) : c;
}

LANES_INLINE void kv_open_words(int16_t *out, const uint8_t *p, const int bits, const bool book)
{
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		uint8x16_t c = kv_open_quarter(p, bits, book, i);
		int8x16_t s = vreinterpretq_s8_u8(c);

		vst1q_s16(out + 16 * i,
		          book ? vmovl_s8(vget_low_s8(s)) : vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(c))));
		vst1q_s16(out + 16 * i + 8, book ? vmovl_high_s8(s) : vreinterpretq_s16_u16(vmovl_high_u8(c)));
	}
}

LANES_INLINE void kv_open_pairs(int16_t *out, const uint8_t *p, const int bits, const bool book)
{
	int16_t c[KV_CHUNK];

	kv_open_words(c, p, bits, book);
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		int16x8x2_t t = vld2q_s16(c + 16 * i);

		vst1q_s16(out + 8 * i, t.val[0]);
		vst1q_s16(out + 32 + 8 * i, t.val[1]);
	}
}

LANES_INLINE v16 kv_word16(const int16_t *p)
{
	v16 r;
	LANES_QUADS r.v[i] = vcvtq_f32_s32(vmovl_s16(vld1_s16(p + 4 * i)));
	return r;
}

#else

LANES_INLINE void kv_open_words(int16_t *out, const uint8_t *p, const int bits, const bool book)
{
	for (int i = 0; i < KV_CHUNK; i++) {
		int c = kv_code_at(p, bits, i);

		out[i] = (int16_t)(book ? kv_book(bits)[c] : c);
	}
}

LANES_INLINE void kv_open_pairs(int16_t *out, const uint8_t *p, const int bits, const bool book)
{
	int16_t c[KV_CHUNK];

	kv_open_words(c, p, bits, book);
	for (int i = 0; i < KV_CHUNK; i++)
		out[i % 2 * 32 + i / 2] = c[i];
}

LANES_INLINE v16 kv_word16(const int16_t *p)
{
	v16 r;
	LANES_EACH r.v[i] = p[i];
	return r;
}

#endif

LANES_INLINE void kv_values(v16 out[4], const uint8_t *p, const float *scale, const float *bias, const int bits,
                            const int group)
{
	int16_t c[KV_CHUNK];

	kv_open_words(c, p, bits, group == 0);
#pragma GCC unroll 4
	for (int v = 0; v < 4; v++) {
		int g = group == 32 ? v / 2 : 0;

		out[v] = group ? v16_fma(v16_set1(scale[g]), kv_word16(c + 16 * v), v16_set1(bias[g])) :
		                 v16_mul(v16_set1(scale[0]), kv_word16(c + 16 * v));
	}
}

#endif

#endif
