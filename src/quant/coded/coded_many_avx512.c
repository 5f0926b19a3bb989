/* coded_many_avx512.c - many rows over coded weights with vpdpbusd; the bits of coded.c.
 *
 * Codes of 32 outputs are unpacked into quads of inputs, [inputs / 4][32][4], and a tile of
 * rows by outputs runs over them.  With more than WHOLE inputs a stretch of STRETCH is
 * unpacked at a time, so that it stays in the first cache for all rows; the sums in float wait in memory
 * between two stretches, which changes no bit of them.
 *
 * A tile of six rows is bound by arithmetic: of 240 vector instructions 192 are products and
 * 48 the float steps of a group of 64. So what comes from memory is prefetched: the next
 * codes one line a group, the lines of outputs before the tile that writes them, and with stretches
 * the activations, which may be more than the second cache holds. If few rows take a panel of
 * all inputs, codes are prefetched while those before them are unpacked. */
#include <assert.h>
#include <immintrin.h>
#include <string.h>

#include "base/part.h"
#include "quant/coded/coded_avx512.h"
#include "quant/coded/planes.h"
#include "quant/lanes/transpose512.h"

enum { STRETCH = 512, WHOLE = 1024, TILE_ROWS = 6, FEW = 48 };

/* ---- codes of 16 outputs to panel[quad * 128 + ...][16][4] ----
 *
 * `next` bytes on lies what the next panel unpacks; if that is not 0 it is asked for now. */

INLINE void panel_nibbles(uint8_t *panel, const uint8_t *const row[16], int cols, size_t next, bool has_lut,
                          __m512i lut)
{
	const __m512i spread_low = _mm512_broadcast_i32x4(
		_mm_setr_epi8(0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9, 12, 12, 13, 13));
	const __m512i spread_high = _mm512_broadcast_i32x4(
		_mm_setr_epi8(2, 2, 3, 3, 6, 6, 7, 7, 10, 10, 11, 11, 14, 14, 15, 15));
	const __m512i low = _mm512_set1_epi16(0x000f), high = _mm512_set1_epi16(0x0f00);

	for (int k = 0; k < cols; k += 128) {
		int have = cols - k < 128 ? cols - k : 128;
		__m512i t[16];

		for (int i = 0; i < 16; i++) {
			t[i] = _mm512_maskz_loadu_epi8(first_bytes(have / 2), row[i] + k / 2);
			if (next)
				_mm_prefetch(row[i] + k / 2 + next, _MM_HINT_T1);
		}
		transpose16(t);
		for (int j = 0; j < have / 8; j++) {
			__m512i a = _mm512_shuffle_epi8(t[j], spread_low), b = _mm512_shuffle_epi8(t[j], spread_high);

			/* (v >> 4 & high) | (v & low) */
			a = _mm512_ternarylogic_epi32(_mm512_srli_epi16(a, 4), high, _mm512_and_si512(a, low), 0xea);
			b = _mm512_ternarylogic_epi32(_mm512_srli_epi16(b, 4), high, _mm512_and_si512(b, low), 0xea);
			if (has_lut) {
				a = _mm512_shuffle_epi8(lut, a);
				b = _mm512_shuffle_epi8(lut, b);
			}
			_mm512_storeu_si512(panel + (size_t)(k / 4 + 2 * j) * 128, a);
			_mm512_storeu_si512(panel + (size_t)(k / 4 + 2 * j + 1) * 128, b);
		}
	}
}

/* lut: of codes that it makes others of; NULL: it does not. */
INLINE void panel_bytes(uint8_t *panel, const uint8_t *const row[16], int cols, size_t next, bool is_stream,
                        const struct stream *s, const __m512i *lut)
{
	for (int k = 0; k < cols; k += 64) {
		int have = cols - k < 64 ? cols - k : 64;
		__m512i t[16];

		for (int i = 0; i < 16; i++) {
			const uint8_t *p = row[i] + (is_stream ? (size_t)k / 8 * (size_t)s->bits : (size_t)k);

			if (is_stream)
				t[i] = stream_codes(s, _mm512_maskz_loadu_epi8(first_bytes(have * s->bits / 8), p));
			else
				t[i] = _mm512_maskz_loadu_epi8(first_bytes(have), p);
			if (next)
				_mm_prefetch(p + next, _MM_HINT_T1);
		}
		transpose16(t);
		for (int j = 0; j < have / 4; j++)
			_mm512_storeu_si512(panel + (size_t)(k / 4 + j) * 128,
			                    lut ? _mm512_shuffle_epi8(*lut, t[j]) : t[j]);
	}
}

/* Inputs [k0, k1) of outputs o .. o + n_out - 1, n_out <= 16, whose rows are blocks; what is beyond the last repeats
 * it. */
static void panel_unpacked(uint8_t *panel, const struct weight *w, int o, int n_out, int k0, int k1, const __m512i *lut)
{
	uint8_t code[16][FILE_BLOCK_MOST];
	const uint8_t *row[16];

	for (int k = k0; k < k1; k += FILE_BLOCK_MOST, panel += 128 * FILE_BLOCK_MOST / 4) {
		int n = k1 - k < FILE_BLOCK_MOST ? k1 - k : FILE_BLOCK_MOST;

		for (int i = 0; i < 16; i++) {
			row[i] = code[i < n_out ? i : n_out - 1];
			if (i < n_out)
				file_block_codes(code[i], w, o + i, k, n);
		}
		if (lut)
			panel_bytes(panel, row, n, 0, false, NULL, lut);
		else
			panel_bytes(panel, row, n, 0, false, NULL, NULL);
	}
}

/* The panel of n packed blocks, which have the words of 16 outputs side by side. */
INLINE void panel_blocks(uint8_t *panel, const uint8_t *at, int n, const int bits)
{
	const __m512i low = _mm512_set1_epi8(15);

	for (int g = 0; g < n; g++, at += BLOCK_LINE)
#pragma GCC unroll 16
		for (int i = 0; i < 2 * bits; i++, at += BLOCK_LINE, panel += 128 * (8 / bits)) {
			__m512i v = _mm512_load_si512(at);

			if (bits == 8) {
				_mm512_storeu_si512(panel, v);
				continue;
			}
			_mm512_storeu_si512(panel, _mm512_and_si512(v, low));
			_mm512_storeu_si512(panel + 128, _mm512_and_si512(_mm512_srli_epi16(v, 4), low));
		}
}

/* ---- rows by outputs ---- */

/* A stretch of inputs of a panel, and the activations that it is multiplied with. */
struct panel {
	const uint8_t *code;       /* [inputs / 4][PANEL_OUT][4] */
	const float *scale, *bias; /* [groups][PANEL_OUT]; bias NULL when there is none */
	const struct acts *x;
	int k, groups; /* where the stretch begins, and how long it is */
	int group, zero;
	const uint8_t *ahead; /* codes to prefetch, */
	size_t hop;           /* bytes of them at each group; 0: none */
	size_t on;            /* from a tile's inputs to the next one's */
};

/* Where the sums of rows come from and go to, of which n_out are real. */
struct sums {
	const float *from; /* [rows][PANEL_OUT]; NULL: zeros */
	float *to;         /* [rows][ld] */
	size_t ld;
	int n_out;
};

/* R rows from row r0 by 32 outputs.  far: inputs of the next tile are asked for, one line of each
 * row at a group. */
INLINE void tile_run(const struct panel *t, int r0, const struct sums *s, const int R, const bool far)
{
	size_t cols = (size_t)t->x->cols, groups = cols / (size_t)t->group,
	       at = (size_t)r0 * groups + (size_t)(t->k / t->group);
	const int8_t *q = t->x->q + (size_t)r0 * cols + (size_t)t->k;
	const float *scale = t->x->scale + at, *scaled_sum = t->x->scaled_sum + at;
	const int32_t *sum = t->x->sum + at;
	const uint8_t *p = t->code;
	__m512 f0[TILE_ROWS], f1[TILE_ROWS];
	__mmask16 m0 = (__mmask16)(s->n_out >= 16 ? 0xffff : (1u << s->n_out) - 1);
	__mmask16 m1 = (__mmask16)(s->n_out > 16 ? (1u << (s->n_out - 16)) - 1 : 0);

#pragma GCC unroll 6
	for (int r = 0; r < R; r++) {
		f0[r] = s->from ? _mm512_loadu_ps(s->from + r * PANEL_OUT) : _mm512_setzero_ps();
		f1[r] = s->from ? _mm512_loadu_ps(s->from + r * PANEL_OUT + 16) : _mm512_setzero_ps();
	}
	for (int g = 0; g < t->groups; g++) {
		__m512i i0[TILE_ROWS], i1[TILE_ROWS];
		__m512 s0, s1;

#pragma GCC unroll 6
		for (int r = 0; r < R; r++)
			i0[r] = i1[r] = t->zero ? _mm512_set1_epi32(-t->zero * sum[(size_t)r * groups + (size_t)g]) :
			                          _mm512_setzero_si512();
		for (int k = 0; k < t->group; k += 8, p += 256, q += 8)
#pragma GCC unroll 2
			for (int j = 0; j < 2; j++) {
				__m512i a = _mm512_loadu_si512(p + 128 * j), b = _mm512_loadu_si512(p + 128 * j + 64);

#pragma GCC unroll 6
				for (int r = 0; r < R; r++) {
					int32_t four;
					__m512i x;

					memcpy(&four, q + (size_t)r * cols + 4 * j, 4);
					x = _mm512_set1_epi32(four);
					i0[r] = dot512(i0[r], a, x);
					i1[r] = dot512(i1[r], b, x);
				}
			}
#pragma GCC unroll 6
		for (int r = 0; r < R && far; r++)
			_mm_prefetch(q + t->on + (size_t)r * cols - t->group, _MM_HINT_T0);
		for (size_t b = 0; b < t->hop; b += 64)
			_mm_prefetch(t->ahead + (size_t)g * t->hop + b, _MM_HINT_T1);
		s0 = _mm512_loadu_ps(t->scale + 32 * (size_t)g);
		s1 = _mm512_loadu_ps(t->scale + 32 * (size_t)g + 16);
#pragma GCC unroll 6
		for (int r = 0; r < R; r++) {
			__m512 xs = _mm512_set1_ps(scale[(size_t)r * groups + (size_t)g]);

			f0[r] = _mm512_fmadd_ps(s0, _mm512_mul_ps(_mm512_cvtepi32_ps(i0[r]), xs), f0[r]);
			f1[r] = _mm512_fmadd_ps(s1, _mm512_mul_ps(_mm512_cvtepi32_ps(i1[r]), xs), f1[r]);
		}
		if (!t->bias)
			continue;
		s0 = _mm512_loadu_ps(t->bias + 32 * (size_t)g);
		s1 = _mm512_loadu_ps(t->bias + 32 * (size_t)g + 16);
#pragma GCC unroll 6
		for (int r = 0; r < R; r++) {
			__m512 xs = _mm512_set1_ps(scaled_sum[(size_t)r * groups + (size_t)g]);

			f0[r] = _mm512_fmadd_ps(s0, xs, f0[r]);
			f1[r] = _mm512_fmadd_ps(s1, xs, f1[r]);
		}
	}
#pragma GCC unroll 6
	for (int r = 0; r < R; r++) {
		_mm512_mask_storeu_ps(s->to + (size_t)r * s->ld, m0, f0[r]);
		if (m1)
			_mm512_mask_storeu_ps(s->to + (size_t)r * s->ld + 16, m1, f1[r]);
	}
}

typedef void tile_fn(const struct panel *, int, const struct sums *);
#define TILE(name, R, far)                                                                 \
	static void tile_##name##_##R(const struct panel *t, int r0, const struct sums *s) \
	{                                                                                  \
		tile_run(t, r0, s, R, far);                                                \
	}
#define TILES(name, far)   \
	TILE(name, 1, far) \
	TILE(name, 2, far) \
	TILE(name, 3, far) \
	TILE(name, 4, far) \
	TILE(name, 5, far) \
	TILE(name, 6, far)
TILES(near, false)
TILES(far, true)
#define PICK(name)                                                                                         \
	{                                                                                                  \
		NULL, tile_##name##_1, tile_##name##_2, tile_##name##_3, tile_##name##_4, tile_##name##_5, \
			tile_##name##_6                                                                    \
	}
static tile_fn *const tiles[2][TILE_ROWS + 1] = { PICK(near), PICK(far) };

/* ---- panels ---- */

struct panel_scratch {
	float *scale, *bias; /* [groups][PANEL_OUT] */
	uint8_t *code;       /* [a stretch of inputs / 4][PANEL_OUT][4] */
	float *f;            /* [rows][PANEL_OUT] */
	__m512i lut;
	struct stream stream;
};

/* Inputs [k0, k1) of n_out outputs from o on. */
static void panel_codes(const struct panel_scratch *m, const struct weight *w, int o, int n_out, int k0, int k1,
                        bool ahead)
{
	const struct coding *c = w->fmt->coding;
	size_t next = ahead ? PANEL_OUT * w->row_bytes : 0;
	const uint8_t *blocks = packed_of(w);

	for (int h = 0; h < 2; h++) {
		const uint8_t *row[16];
		uint8_t *to = m->code + 64 * h;

		if (blocks && c->block) {
			planes_panel_avx512(to, 128, w, blocks, o + (16 * h < n_out ? 16 * h : 0), k0, k1);
			continue;
		}
		if (blocks) { /* so is what is beyond the last output */
			const uint8_t *from = packed_at(w, blocks, o + (16 * h < n_out ? 16 * h : 0),
			                                k0 / BLOCK_INPUTS);

			if (c->bits == 4)
				panel_blocks(to, from, (k1 - k0) / BLOCK_INPUTS, 4);
			else
				panel_blocks(to, from, (k1 - k0) / BLOCK_INPUTS, 8);
			continue;
		}
		if (c->block) {
			int first = 16 * h < n_out ? 16 * h : 0;

			panel_unpacked(to, w, o + first, n_out - first < 16 ? n_out - first : 16, k0, k1,
			               c->lut ? &m->lut : NULL);
			continue;
		}
		for (int i = 0; i < 16; i++) { /* what is beyond the last output repeats it */
			int at = 16 * h + i < n_out ? 16 * h + i : n_out - 1;

			row[i] = w->data + (size_t)(o + at) * w->row_bytes + (size_t)k0 / 8 * (size_t)c->bits;
		}
		switch (how_of(c)) {
		case NIBBLES: panel_nibbles(to, row, k1 - k0, next, false, m->lut); break;
		case NIBBLES_LUT: panel_nibbles(to, row, k1 - k0, next, true, m->lut); break;
		case BYTES: panel_bytes(to, row, k1 - k0, next, false, NULL, NULL); break;
		default: panel_bytes(to, row, k1 - k0, next, true, &m->stream, NULL);
		}
	}
}

static void panel_scales(const struct panel_scratch *m, const struct weight *w, int o, int n_out)
{
	for (int h = 0; h < 2; h++) {
		int n = n_out - 16 * h < 16 ? n_out - 16 * h : 16;

		coded_scales_only_avx512(m->scale + 16 * h, m->bias + 16 * h, PANEL_OUT, w, o + 16 * h, n > 0 ? n : 0);
	}
}

/* Before tile i of n: asks for its share of what the panels take next, codes from input k on,
 * the first output's while the tile runs. */
INLINE void ask(struct panel *t, const struct weight *w, int o, int i, int n, int k, int stretch)
{
	int share = PANEL_OUT * i / n, outputs = PANEL_OUT * (i + 1) / n - share,
	    at = k < w->cols ? o + share : o + share + PANEL_OUT;
	size_t bits = (size_t)w->fmt->coding->bits;

	t->hop = outputs && at < w->rows ? (size_t)w->group * bits / 8 : 0;
	t->ahead = w->data + (size_t)(t->hop ? at : 0) * w->row_bytes + (size_t)(k < w->cols ? k : 0) * bits / 8;
	if (t->hop && packed_of(w)) {
		int from = k < w->cols ? k : 0;
		size_t bytes;

		t->ahead = blocks_share(w, at, from, w->cols - from < stretch ? w->cols : from + stretch, &bytes);
		t->hop = packed_block_bytes(w) / BLOCK_OUT * (size_t)w->group / BLOCK_INPUTS;
	}
	if (outputs > 1)
		coded_prefetch_codes(w, o + share + 1, outputs - 1, k, stretch);
}

/* n_out <= PANEL_OUT outputs from o on by rows [r0, r1), which are at most TILED_ROWS. */
static void mul_panel(float *out, size_t ld, const struct weight *w, int o, int n_out, const struct acts *x, int r0,
                      int r1, const struct panel_scratch *m)
{
	const struct coding *c = w->fmt->coding;
	int rows = r1 - r0, n = (rows + TILE_ROWS - 1) / TILE_ROWS;
	int stretch = w->cols <= WHOLE || w->group > STRETCH ? w->cols : STRETCH / w->group * w->group;
	bool early = stretch == w->cols && rows <= FEW;
	struct panel t = { .code = m->code, .x = x, .group = w->group, .zero = c->zero };

	panel_scales(m, w, o, n_out);
	for (int k = 0; k < w->cols; k += stretch) {
		int end = w->cols - k < stretch ? w->cols : k + stretch;
		size_t scales = (size_t)(k / w->group) * PANEL_OUT;
		bool last = end == w->cols;

		panel_codes(m, w, o, n_out, k, end, early);
		t.scale = m->scale + scales;
		t.bias = c->bias ? m->bias + scales : NULL;
		t.k = k;
		t.groups = (end - k) / w->group;
		for (int i = 0, r = 0, next; i < n; i++, r = next) {
			float *f = m->f + (size_t)r * PANEL_OUT;
			struct sums s = { k ? f : NULL, last ? out + (size_t)r * ld : f, last ? ld : PANEL_OUT,
				          last ? n_out : PANEL_OUT };

			next = part_begin(rows, i + 1, n);
			for (int j = r; last && j < next; j++)
				for (int h = 0; h < n_out; h += 16)
					__builtin_prefetch(out + (size_t)j * ld + h, 1);
			t.on = i + 1 < n ? (size_t)(next - r) * (size_t)w->cols : 0;
			if (!early)
				ask(&t, w, o, i, n, end, stretch);
			tiles[stretch < w->cols][next - r](&t, r0 + r, &s);
		}
	}
}

void coded_many_avx512(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                       int r1, void *scratch)
{
	const struct coding *c = w->fmt->coding;
	size_t scales = (size_t)(w->cols / w->group) * PANEL_OUT;
	struct panel_scratch m = { .scale = scratch };

	assert(w->group % 16 == 0);
	m.bias = m.scale + scales;
	m.code = (uint8_t *)(m.bias + scales);
	m.f = (float *)(m.code + (size_t)PANEL_OUT * (size_t)w->cols);
	m.lut = c->lut ? _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)c->lut)) : _mm512_setzero_si512();
	if (how_of(c) == STREAM)
		m.stream = stream_make(c->bits);
	for (int i = 0, n = (r1 - r0 + TILED_ROWS - 1) / TILED_ROWS, r = r0, end; i < n; i++, r = end) {
		end = r0 + part_begin(r1 - r0, i + 1, n);
		for (int o = o0; o < o1; o += PANEL_OUT)
			mul_panel(out + (size_t)(r - r0) * ld + (o - o0), ld, w, o,
			          o1 - o < PANEL_OUT ? o1 - o : PANEL_OUT, x, r, end, &m);
	}
}
