/* coded_avx512.h - what the kernels for quantised weights with AVX-512 share: unpacking codes of any width to bytes,
 * and prefetching codes. */
#ifndef QUANT_CODED_AVX512_H
#define QUANT_CODED_AVX512_H

#include <immintrin.h>

#include "quant/coded/coded_kernels.h"
#include "quant/lanes/transpose512.h"

#define INLINE static inline __attribute__((always_inline))

/* How codes are stored, seen by the kernels.  UNPACKED: a byte each, out of rows in blocks. */
enum how { NIBBLES, NIBBLES_LUT, BYTES, STREAM, UNPACKED, UNPACKED_LUT };

static inline enum how how_of(const struct coding *c)
{
	if (c->block)
		return c->lut ? UNPACKED_LUT : UNPACKED;
	return c->bits == 4 ? (c->lut ? NIBBLES_LUT : NIBBLES) : c->bits == 8 ? BYTES : STREAM;
}

/* gcc 12 spills tiles of the intrinsic to half speed. */
INLINE __m512i dot512(__m512i acc, __m512i u, __m512i s)
{
	__asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(u), "v"(s));
	return acc;
}

/* ---- codes of any width: 64 at a time ---- */

struct stream {
	__m512i words;     /* lane L gets the 16-bit words its 16 codes begin in */
	__m512i low, high; /* bytes of codes 0-7 and 8-15 of a lane */
	__m512i lift;      /* moves a code to the top of its 16 bits */
	__m512i drop;      /* and back down: the upper half of a product with 2^bits */
	__mmask64 whole;   /* the bytes of 64 codes */
	int bits;
};

static inline struct stream stream_make(int bits)
{
	uint16_t words[32], lift[8];
	uint8_t low[16], high[16];
	struct stream s = { .bits = bits };

	for (int l = 0; l < 4; l++)
		for (int i = 0; i < 8; i++)
			words[8 * l + i] = (uint16_t)(bits * l + i);
	for (int k = 0; k < 8; k++) {
		low[2 * k] = (uint8_t)(k * bits / 8);
		low[2 * k + 1] = (uint8_t)(k * bits / 8 + 1);
		high[2 * k] = (uint8_t)(low[2 * k] + bits);
		high[2 * k + 1] = (uint8_t)(low[2 * k + 1] + bits);
		lift[k] = (uint16_t)(1 << (16 - bits - k * bits % 8));
	}
	s.words = _mm512_loadu_si512(words);
	s.low = _mm512_broadcast_i32x4(_mm_loadu_si128((void *)low));
	s.high = _mm512_broadcast_i32x4(_mm_loadu_si128((void *)high));
	s.lift = _mm512_broadcast_i32x4(_mm_loadu_si128((void *)lift));
	s.drop = _mm512_set1_epi16((short)(1 << bits));
	s.whole = ((__mmask64)1 << 8 * bits) - 1;
	return s;
}

INLINE __m512i stream_codes(const struct stream *s, __m512i raw)
{
	__m512i w = _mm512_permutexvar_epi16(s->words, raw);
	__m512i a = _mm512_mullo_epi16(_mm512_shuffle_epi8(w, s->low), s->lift);
	__m512i b = _mm512_mullo_epi16(_mm512_shuffle_epi8(w, s->high), s->lift);

	return _mm512_packus_epi16(_mm512_mulhi_epu16(a, s->drop), _mm512_mulhi_epu16(b, s->drop));
}

INLINE __mmask64 first_bytes(int n)
{
	return n >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << n) - 1;
}

/* 64 codes of 4 bits, a byte of two in each 16 bits, in order. */
INLINE __m512i nibbles_in_order(__m512i v)
{
	return _mm512_and_si512(_mm512_or_si512(v, _mm512_slli_epi16(v, 4)), _mm512_set1_epi8(15));
}

/* ---- blocks ---- */

/* 64 codes of 4 bits, of 8 words of a block. */
INLINE __m512i block_nibbles(__m256i words)
{
	__m512i v = _mm512_cvtepu32_epi64(words);

	return _mm512_and_si512(_mm512_or_si512(v, _mm512_slli_epi64(v, 28)), _mm512_set1_epi8(15));
}

/* A group's scales and biases, out of their line. */
INLINE __m512 block_scales(__m512i line)
{
	return _mm512_castsi512_ps(_mm512_slli_epi32(line, 16));
}
INLINE __m512 block_biases(__m512i line)
{
	return _mm512_castsi512_ps(_mm512_and_si512(line, _mm512_set1_epi32((int)0xffff0000)));
}

/* Unpacks the codes, of 4 or 8 bits, of n packed blocks to [n][16 outputs][64]; n is even for 4 bits.  Prefetches the lines
 * `next` bytes ahead; next 0: none. */
INLINE void codes_of_blocks(uint8_t *to, const uint8_t *at, int n, size_t next, const int bits)
{
	const int per = 8 / bits, words = 16 / per;

	for (int g = 0; g < n; g += per, to += per * BLOCK_OUT * BLOCK_INPUTS) {
		__m512i v[16];

#pragma GCC unroll 2
		for (int h = 0; h < per; h++, at += BLOCK_LINE)
#pragma GCC unroll 16
			for (int i = 0; i < words; i++, at += BLOCK_LINE) {
				v[h * words + i] = _mm512_load_si512(at);
				if (next)
					_mm_prefetch(at + next, _MM_HINT_T1);
			}
		transpose16(v);
#pragma GCC unroll 16
		for (int i = 0; i < BLOCK_OUT; i++) {
			if (bits == 8) {
				_mm512_store_si512(to + BLOCK_INPUTS * i, v[i]);
				continue;
			}
			_mm512_store_si512(to + BLOCK_INPUTS * i, block_nibbles(_mm512_castsi512_si256(v[i])));
			_mm512_store_si512(to + BLOCK_INPUTS * (BLOCK_OUT + i),
			                   block_nibbles(_mm512_extracti64x4_epi64(v[i], 1)));
		}
	}
}

/* ---- memory ---- */

/* One sixteenth of the packed bytes of inputs [k, end) of the block of output o: the part that output o prefetches.
 * *bytes: its length. */
INLINE const uint8_t *blocks_share(const struct weight *w, int o, int k, int end, size_t *bytes)
{
	*bytes = (size_t)((end - k) / BLOCK_INPUTS) * packed_block_bytes(w) / BLOCK_OUT;
	return packed_at(w, packed_of(w), o, k / BLOCK_INPUTS) + (size_t)(o % BLOCK_OUT) * *bytes;
}

INLINE void blocks_ask(const struct weight *w, int o, int n, int k, int end)
{
	for (int i = 0; i < n; i++) {
		size_t bytes;
		const uint8_t *at = blocks_share(w, o + i, k, end, &bytes);

		for (size_t b = 0; b < bytes; b += BLOCK_LINE)
			_mm_prefetch(at + b, _MM_HINT_T1);
	}
}

/* Prefetches inputs [k, k + stretch) of n outputs from o on; beyond the last input, the first inputs of
 * the next panel.  Inlined: gcc 12 drops calls of functions that do nothing but prefetch. */
INLINE void coded_prefetch_codes(const struct weight *w, int o, int n, int k, int stretch)
{
	size_t bits = (size_t)w->fmt->coding->bits, at, end;

	if (k >= w->cols) {
		k = 0;
		o += PANEL_OUT;
	}
	if (o + n > w->rows)
		return;
	if (packed_of(w)) {
		blocks_ask(w, o, n, k, w->cols - k < stretch ? w->cols : k + stretch);
		return;
	}
	at = (size_t)k * bits / 8;
	end = (size_t)(w->cols - k < stretch ? w->cols : k + stretch) * bits / 8;
	for (const uint8_t *row = w->data + (size_t)o * w->row_bytes; n--; row += w->row_bytes)
		for (size_t i = at; i < end; i += 64)
			_mm_prefetch(row + i, _MM_HINT_T1);
}

#endif
