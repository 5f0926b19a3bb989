/* coded_avx512.h - what the kernels for coded weights with AVX-512 share: codes of any width as bytes, and
 * asking for them. */
#ifndef QUANT_CODED_AVX512_H
#define QUANT_CODED_AVX512_H

#include <immintrin.h>

#include "quant/levels.h"

#define INLINE static inline __attribute__((always_inline))

/* How codes are stored, seen by the kernels. */
enum how { NIBBLES, NIBBLES_LUT, BYTES, STREAM };

static inline enum how how_of(const struct coding *c)
{
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
	__m512i words;          /* lane L gets the 16-bit words its 16 codes begin in */
	__m512i low, high;      /* bytes of codes 0-7 and 8-15 of a lane */
	__m512i lift;           /* moves a code to the top of its 16 bits */
	__m512i drop;           /* and back down: the upper half of a product with 2^bits */
	__mmask64 whole;        /* the bytes of 64 codes */
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

INLINE __mmask64 first_bytes(int n) { return n >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << n) - 1; }

/* ---- memory ---- */

/* Asks for inputs [k, k + stretch) of n outputs from o on; beyond the last input, for those of
 * the next panel.  Inlined: gcc 12 drops calls of functions that do nothing but ask. */
INLINE void coded_ask_codes(const struct weight *w, int o, int n, int k, int stretch)
{
	size_t bits = (size_t)w->fmt->coding->bits, at, end;

	if (k >= w->cols) {
		k = 0;
		o += PANEL_OUT;
	}
	if (o + n > w->rows)
		return;
	at = (size_t)k * bits / 8;
	end = (size_t)(w->cols - k < stretch ? w->cols : k + stretch) * bits / 8;
	for (const uint8_t *row = w->data + (size_t)o * w->row_bytes; n--; row += w->row_bytes)
		for (size_t i = at; i < end; i += 64)
			_mm_prefetch(row + i, _MM_HINT_T1);
}

#endif
