/* coded_amx.c - products over coded weights with tiles of int8; the bits of coded.c.
 *
 * One tile instruction sums 64 inputs of 16 rows by 16 outputs: 2,048 operations a
 * cycle where vpdpbusd does 256.  The panel of coded_avx512.c, quads of inputs by
 * outputs, is such a tile as it stands, and so are rows of activations.  A group of
 * 64 inputs is one instruction, one of 32 half a tile, one of 128 two.  What then
 * bounds are the float steps: four instructions per group, row and 16 outputs. */
#include <assert.h>
#include <immintrin.h>

#include "quant/levels.h"

#define INLINE static inline __attribute__((always_inline))

enum { T_ROWS = 16, T_OUT = 16, T_BYTES = 64 };         /* a tile: rows, outputs, bytes of a row */

struct tile_config {
	uint8_t palette, start_row, reserved[14];
	uint16_t row_bytes[16];
	uint8_t rows[16];
} __attribute__((aligned(64)));

/* Registers 0, 1: sums; 2, 3: activations; 4, 5: codes.  Two of each, so that a
 * group's float steps overlap with the next one's sums. */
static void configure(int rows, int inputs)
{
	struct tile_config c = { .palette = 1 };

	for (int i = 0; i < 2; i++) {
		c.rows[i] = c.rows[2 + i] = (uint8_t)rows;
		c.rows[4 + i] = (uint8_t)(inputs / 4);
		c.row_bytes[i] = c.row_bytes[4 + i] = T_BYTES;
		c.row_bytes[2 + i] = (uint16_t)inputs;
	}
	/* gcc 12's intrinsic says it reads 8 bytes; stores to the others may go. */
	__asm__ volatile("" : : "m"(c));
	_tile_loadconfig(&c);
}

/* What a tile of rows by outputs reads, and where its sums go. */
struct tile {
	const int8_t *q;                        /* its first row; cols apart */
	const uint8_t *code;                    /* of its 16 outputs */
	const float *scale, *bias;              /* [groups][PANEL_OUT], likewise */
	const float *beside;                    /* of its first row, acts.beside */
	const int32_t *xsum;                    /* its first row; groups apart */
	size_t cols, rows;                      /* of the activations */
	int group, groups, inputs, zero;
	int32_t (*sums)[T_ROWS * T_OUT];        /* [2] */
};

#define GROUP_SUMS(N, ROWS, CODES) \
	INLINE void group_sums_##N(const struct tile *t, int g) \
	{ \
		const int8_t *q = t->q + (size_t)g * (size_t)t->group; \
		const uint8_t *code = t->code + (size_t)g * (size_t)t->group * PANEL_OUT; \
 \
		_tile_zero(N); \
		for (int k = 0; k < t->group; k += t->inputs) { \
			_tile_loadd(ROWS, q + k, t->cols); \
			_tile_loadd(CODES, code + (size_t)k * PANEL_OUT, PANEL_OUT * 4); \
			_tile_dpbsud(N, ROWS, CODES); \
		} \
		_tile_stored(N, t->sums[N], T_BYTES); \
	}
GROUP_SUMS(0, 2, 4)
GROUP_SUMS(1, 3, 5)

/* What a code's zero adds to the sums of a group. */
INLINE void take_zero(const struct tile *t, int g, int32_t *isum, const int R)
{
	for (int r = 0; r < R; r++) {
		__m512i v = _mm512_load_si512(isum + r * T_OUT);
		int32_t zero = t->zero * t->xsum[(size_t)r * (size_t)t->groups + (size_t)g];

		_mm512_store_si512(isum + r * T_OUT, _mm512_sub_epi32(v, _mm512_set1_epi32(zero)));
	}
}

/* The float steps of one group, as in format.h, for R rows of 16 outputs. */
INLINE void group_steps(__m512 f[], const struct tile *t, int g, int32_t *isum, const int R, const bool has_bias)
{
	const float *xs = t->beside + (size_t)g * 2 * t->rows, *ss = xs + t->rows;
	__m512 s = _mm512_loadu_ps(t->scale + (size_t)g * PANEL_OUT), b = _mm512_setzero_ps();

	if (has_bias)
		b = _mm512_loadu_ps(t->bias + (size_t)g * PANEL_OUT);
#pragma GCC unroll 16
	for (int r = 0; r < R; r++) {
		__m512 v = _mm512_cvtepi32_ps(_mm512_load_si512(isum + r * T_OUT));

		f[r] = _mm512_fmadd_ps(s, _mm512_mul_ps(v, _mm512_set1_ps(xs[r])), f[r]);
		if (has_bias)
			f[r] = _mm512_fmadd_ps(b, _mm512_set1_ps(ss[r]), f[r]);
	}
}

INLINE void group_end(__m512 f[], const struct tile *t, int g, int32_t *isum, const int R, const bool has_bias)
{
	if (t->zero)
		take_zero(t, g, isum, R);
	group_steps(f, t, g, isum, R, has_bias);
}

INLINE void tile_run(float *out, size_t ld, const struct tile *t, __mmask16 outs, const int R, const bool has_bias)
{
	__m512 f[T_ROWS];

#pragma GCC unroll 16
	for (int r = 0; r < R; r++)
		f[r] = _mm512_setzero_ps();
	group_sums_0(t, 0);
	for (int g = 0; g < t->groups; g += 2) {
		if (g + 1 < t->groups)
			group_sums_1(t, g + 1);
		group_end(f, t, g, t->sums[0], R, has_bias);
		if (g + 1 == t->groups)
			break;
		if (g + 2 < t->groups)
			group_sums_0(t, g + 2);
		group_end(f, t, g + 1, t->sums[1], R, has_bias);
	}
#pragma GCC unroll 16
	for (int r = 0; r < R; r++)
		_mm512_mask_storeu_ps(out + (size_t)r * ld, outs, f[r]);
}

typedef void tile_fn(float *out, size_t ld, const struct tile *, __mmask16 outs);
#define TILE(R) \
	static void tile_##R(float *out, size_t ld, const struct tile *t, __mmask16 outs) \
	{ \
		if (t->bias) \
			tile_run(out, ld, t, outs, R, true); \
		else \
			tile_run(out, ld, t, outs, R, false); \
	}
TILE(5) TILE(6) TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12) TILE(13) TILE(14) TILE(15) TILE(16)
/* Up to DIRECT_ROWS rows never come here. */
static tile_fn *const tiles[T_ROWS + 1] = {
	[5] = tile_5, tile_6, tile_7, tile_8, tile_9, tile_10, tile_11, tile_12, tile_13, tile_14, tile_15, tile_16
};

static void panel_rows_amx(float *out, size_t ld, const struct panel *p, int r0, int rows, int n_out)
{
	int32_t sums[2][T_ROWS * T_OUT] __attribute__((aligned(64)));
	int high = rows < T_ROWS ? rows : T_ROWS;
	struct tile t = {
		.cols = (size_t)p->x->cols, .group = p->group, .groups = p->groups, .zero = p->zero,
		.inputs = p->group % T_BYTES ? 32 : T_BYTES, .sums = sums, .rows = (size_t)p->x->rows,
	};

	configure(high, t.inputs);
	for (int i = 0; i < rows; i += T_ROWS) {
		/* The last tile repeats rows of the one before it, to the same bits. */
		int r = i < rows - high ? i : rows - high;

		t.q = p->x->q + (size_t)(r0 + r) * t.cols;
		t.beside = p->x->beside + r0 + r;
		t.xsum = p->x->sum + (size_t)(r0 + r) * (size_t)t.groups;
		for (int o = 0; o < n_out; o += T_OUT) {
			int n = n_out - o < T_OUT ? n_out - o : T_OUT;

			t.code = p->code + 4 * o;
			t.scale = p->scale + o;
			t.bias = p->bias ? p->bias + o : NULL;
			tiles[high](out + (size_t)r * ld + o, ld, &t, (__mmask16)((1u << n) - 1));
		}
	}
	_tile_release();
}

double coded_peak_amx(int64_t n)
{
	configure(T_ROWS, T_BYTES);
	_tile_zero(0);
	_tile_zero(1);
	_tile_zero(2);
	_tile_zero(3);
	_tile_zero(4);
	_tile_zero(5);
	for (int64_t k = 0; k < n; k++) {
		_tile_dpbsud(0, 2, 4);
		_tile_dpbsud(1, 3, 5);
	}
	_tile_release();
	return 2.0 * 2 * T_ROWS * T_OUT * T_BYTES * (double)n;
}

void coded_mul_amx(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0, int r1,
                   void *scratch)
{
	if (r1 - r0 <= DIRECT_ROWS || w->group % 32 || !x->beside)
		coded_mul_avx512(out, ld, w, o0, o1, x, r0, r1, scratch);
	else
		coded_panels_avx512(out, ld, w, o0, o1, x, r0, r1, scratch, panel_rows_amx);
}
