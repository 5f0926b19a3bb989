/* bf16_amx.c - products over bf16 weights with tiles of bf16, in the order that
 * format.h states for them.
 *
 * One tile instruction takes 32 inputs of 16 outputs by 16 rows.  Weights lie as a
 * tile wants them, but in 16 streams; they are copied to a panel row by row, so that
 * memory is read in rising order.  The activations, 16 rows by pairs of inputs, are
 * laid out once a call.
 *
 * For few rows the copy costs more than the products: weights are loaded from where they
 * are, and the tiles of activations and sums are as wide as there are rows. */
#include <assert.h>
#include <immintrin.h>
#include <string.h>

#include "quant/bf16/bf16_kernels.h"
#include "quant/kernel_rows.h"
#include "quant/lanes/tile_config.h"
#include "quant/lanes/transpose512.h"

#define INLINE static inline __attribute__((always_inline))

enum {
	B_OUT = 16,
	B_ROWS = ACTS_TILE,
	B_IN = 32, /* outputs, rows and inputs of a tile */
	B_BYTES = 64,
	B_SUMS = B_OUT * B_ROWS,
	B_SIZE = B_OUT * B_IN,
	B_STRETCH = 512,         /* inputs for which two tiles of outputs stay in the first cache */
	B_AHEAD = 512,           /* bytes of a row that are fetched before they are used */
	D_ROWS = ACTS_TILED - 1, /* rows that are laid out in no wider a tile */
	B_FEW = 2,               /* tiles of rows for which weights are not copied */
};

/* The first n of 16 lanes. */
INLINE __mmask16 lanes_of(int n)
{
	return (__mmask16)(n >= 16 ? 0xffff : n <= 0 ? 0 : (1u << n) - 1);
}

/* [blocks of 32 inputs][16 pairs][16 rows][2]; zeros beyond the last row and input. */
void acts_pairs_amx(uint8_t *tile, const struct acts *a, int r0, int rows)
{
	for (int k = 0; k < a->cols; k += B_IN, tile += B_SIZE * 2) {
		__mmask16 lo = lanes_of(a->cols - k), hi = lanes_of(a->cols - k - 16);
		__m512i t[16];

		for (int r = 0; r < 16; r++) {
			const float *x = a->f + (size_t)(r0 + (r < rows ? r : 0)) * a->ld + k;

			t[r] = r < rows ? (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(hi, x + 16),
			                                               _mm512_maskz_loadu_ps(lo, x)) :
			                  _mm512_setzero_si512();
		}
		transpose16(t);
		for (int i = 0; i < 16; i++)
			_mm512_storeu_si512(tile + i * B_BYTES, t[i]);
	}
}

/* The memory of a call, out of the thread's scratch. */
struct pairs_scratch {
	uint8_t *panel[2]; /* [16 outputs][inputs of a stretch, and a line] */
	float *f;          /* [tiles of rows][2][16 outputs][16 rows] */
	uint8_t *pairs;    /* of B_ROWS rows */
};

/* Bytes from one output of a panel to the next: a line more than its inputs, so that
 * a tile's 16 do not fall on one another in the cache. */
static size_t panel_step(int inputs)
{
	return ((size_t)inputs + B_IN - 1) / B_IN * B_BYTES + B_BYTES;
}

static size_t panel_bytes(void)
{
	return B_OUT * panel_step(B_STRETCH);
}

size_t bf16_scratch_amx(int cols)
{
	return 2 * panel_bytes() + (size_t)TILED_ROWS / B_ROWS * 2 * B_SUMS * sizeof(float) + acts_pairs_bytes(cols);
}

/* Inputs [k0, k1) of n outputs to a panel, in rising order of memory; rows from n on are zeros. */
static void panel_copy(uint8_t *to, const struct weight *w, int o, int n, int k0, int k1)
{
	int whole = (k1 - k0) / B_IN, left = (k1 - k0) % B_IN;
	const uint8_t *from = w->data + (size_t)o * w->row_bytes + 2 * (size_t)k0;
	size_t step = panel_step(k1 - k0);

	for (int j = 0; j < n; j++, from += w->row_bytes, to += step) {
		for (int i = 0; i < whole; i++)
			_mm512_storeu_si512(to + i * B_BYTES, _mm512_loadu_si512(from + i * B_BYTES));
		if (left)
			_mm512_storeu_si512(to + whole * B_BYTES, _mm512_maskz_loadu_epi16(((__mmask32)1 << left) - 1,
			                                                                   from + whole * B_BYTES));
	}
	memset(to, 0, (size_t)(B_OUT - n) * step);
}

/* One or two tiles of outputs by one or two of rows, n blocks of inputs.  pairs_far
 * lies between the rows'; f: [2 of rows][2 of outputs]. */
INLINE void tiles_run(float *f, const uint8_t *const panel[2], size_t step, const uint8_t *pairs, size_t pairs_far,
                      int n, bool first, const bool outs, const bool rows)
{
	__asm__ volatile("" : : : "memory"); /* gcc 12's loads do not say that they read */
	if (first) {
		_tile_zero(0);
		_tile_zero(1);
		_tile_zero(2);
		_tile_zero(3);
	} else {
		_tile_loadd(0, f, B_BYTES);
		if (outs)
			_tile_loadd(1, f + B_SUMS, B_BYTES);
		if (rows)
			_tile_loadd(2, f + 2 * B_SUMS, B_BYTES);
		if (outs && rows)
			_tile_loadd(3, f + 3 * B_SUMS, B_BYTES);
	}
	for (int i = 0; i < n; i++) {
		size_t at = (size_t)i * B_BYTES;
		const uint8_t *p = pairs + (size_t)i * B_SIZE * 2;

		_tile_loadd(4, panel[0] + at, step);
		_tile_loadd(6, p, B_BYTES);
		_tile_dpbf16ps(0, 4, 6);
		if (outs) {
			_tile_loadd(5, panel[1] + at, step);
			_tile_dpbf16ps(1, 5, 6);
		}
		if (rows) {
			_tile_loadd(7, p + pairs_far, B_BYTES);
			_tile_dpbf16ps(2, 4, 7);
		}
		if (outs && rows)
			_tile_dpbf16ps(3, 5, 7);
	}
	_tile_stored(0, f, B_BYTES);
	if (outs)
		_tile_stored(1, f + B_SUMS, B_BYTES);
	if (rows)
		_tile_stored(2, f + 2 * B_SUMS, B_BYTES);
	if (outs && rows)
		_tile_stored(3, f + 3 * B_SUMS, B_BYTES);
	__asm__ volatile("" : : : "memory");
}

/* n_out <= 32 outputs from o on, by n tiles of rows; to m->f. */
static void many_rows(const struct weight *w, int o, int n_out, const uint8_t *pairs, int n,
                      const struct pairs_scratch *m)
{
	const uint8_t *const panel[2] = { m->panel[0], m->panel[1] };
	bool outs = n_out > B_OUT;
	size_t far = acts_pairs_bytes(w->cols);

	for (int k = 0; k < w->cols; k += B_STRETCH) {
		int end = w->cols - k < B_STRETCH ? w->cols : k + B_STRETCH, blocks = (end - k + B_IN - 1) / B_IN;
		size_t step = panel_step(end - k);

		for (int h = 0; h <= outs; h++) {
			int left = n_out - B_OUT * h;

			panel_copy(m->panel[h], w, o + B_OUT * h, left < B_OUT ? left : B_OUT, k, end);
		}
		for (int i = 0; i < n; i += 2) {
			const uint8_t *p = pairs + (size_t)i * far + (size_t)(k / B_IN) * B_SIZE * 2;
			float *f = m->f + (size_t)i * 2 * B_SUMS;

			if (outs && i + 1 < n)
				tiles_run(f, panel, step, p, far, blocks, k == 0, true, true);
			else if (outs)
				tiles_run(f, panel, step, p, far, blocks, k == 0, true, false);
			else if (i + 1 < n)
				tiles_run(f, panel, step, p, far, blocks, k == 0, false, true);
			else
				tiles_run(f, panel, step, p, far, blocks, k == 0, false, false);
		}
	}
}

/* A tile of sums to out: a row of n_out outputs at a time. */
static void tile_out(float *out, size_t ld, const float *f, int rows, int n_out)
{
	__mmask16 mask = (__mmask16)((1u << n_out) - 1);
	__m512i t[16];

	for (int o = 0; o < B_OUT; o++)
		t[o] = _mm512_loadu_si512(f + o * B_ROWS);
	transpose16(t);
	for (int r = 0; r < rows; r++)
		_mm512_mask_storeu_ps(out + (size_t)r * ld, mask, _mm512_castsi512_ps(t[r]));
}

/* The sums of n tiles of rows by n_out <= 32 outputs. */
static void sums_out(float *out, size_t ld, const float *f, int rows, int n_out)
{
	for (int r = 0; r < rows; r += B_ROWS, f += 2 * B_SUMS)
		for (int o = 0; o < n_out; o += B_OUT)
			tile_out(out + (size_t)r * ld + o, ld, f + o / B_OUT * B_SUMS,
			         rows - r < B_ROWS ? rows - r : B_ROWS, n_out - o < B_OUT ? n_out - o : B_OUT);
}

/* ---- few rows: weights as they lie ---- */

/* Registers 0, 1: sums; 4: weights; 6, 7: activations of R rows. n outputs at a time. */
static void configure_direct(int n, int R)
{
	struct tile_config c = { .palette = 1 };

	c.rows[0] = c.rows[1] = c.rows[4] = (uint8_t)n;
	c.rows[6] = c.rows[7] = B_IN / 2;
	c.row_bytes[0] = c.row_bytes[1] = c.row_bytes[6] = c.row_bytes[7] = (uint16_t)(4 * R);
	c.row_bytes[4] = B_BYTES;
	tile_config_load(&c);
}

/* R rows as bf16 by pairs, [blocks of 32 inputs][16 pairs][R][2]; zeros beyond the last input. */
static void pairs_direct(uint32_t *to, const struct acts *x, int r0, int R)
{
	for (int k = 0; k < x->cols; k += B_IN, to += (size_t)R * (B_IN / 2)) {
		__mmask16 lo = lanes_of(x->cols - k), hi = lanes_of(x->cols - k - 16);

		for (int r = 0; r < R; r++) {
			const float *f = x->f + (size_t)(r0 + r) * x->ld + k;
			uint32_t pair[B_IN / 2];

			_mm512_storeu_si512(pair, (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(hi, f + 16),
			                                                       _mm512_maskz_loadu_ps(lo, f)));
			for (int i = 0; i < B_IN / 2; i++)
				to[i * R + r] = pair[i];
		}
	}
}

/* n <= 16 outputs from o on by one or two tiles of R rows, which are pairs_far apart;
 * sums to f: [tiles][n][R].  Prefetches the inputs B_AHEAD later, of these outputs or of the
 * next: the hardware prefetcher does not follow this many rows.  For the same reason twice as
 * many outputs at a time are slower. */
INLINE void outputs_direct(float *f, const struct weight *w, int o, int n, const uint8_t *pairs, size_t pairs_far,
                           int R, uint8_t *tail, const bool two)
{
	size_t step = w->row_bytes, bytes = step / B_BYTES * B_BYTES;
	const uint8_t *from = w->data + (size_t)o * step;
	int left = w->cols % B_IN;

	__asm__ volatile("" : : : "memory"); /* gcc 12's loads do not say that they read */
	_tile_zero(0);
	_tile_zero(1);
	for (size_t at = 0; at < bytes; at += B_BYTES, from += B_BYTES, pairs += (size_t)R * B_BYTES) {
		const uint8_t *ahead = from + B_AHEAD + (at + B_AHEAD < step ? 0 : (B_OUT - 1) * step);

#pragma GCC unroll 16
		for (int j = 0; j < B_OUT; j++)
			_mm_prefetch((const char *)ahead + (size_t)j * step, _MM_HINT_T0);
		_tile_loadd(6, pairs, 4 * R);
		_tile_loadd(4, from, step);
		_tile_dpbf16ps(0, 4, 6);
		if (two) {
			_tile_loadd(7, pairs + pairs_far, 4 * R);
			_tile_dpbf16ps(1, 4, 7);
		}
	}
	if (left) {
		for (int j = 0; j < n; j++)
			_mm512_storeu_si512(tail + j * B_BYTES, _mm512_maskz_loadu_epi16(((__mmask32)1 << left) - 1,
			                                                                 from + (size_t)j * step));
		__asm__ volatile("" : : : "memory");
		_tile_loadd(6, pairs, 4 * R);
		_tile_loadd(4, tail, B_BYTES);
		_tile_dpbf16ps(0, 4, 6);
		if (two) {
			_tile_loadd(7, pairs + pairs_far, 4 * R);
			_tile_dpbf16ps(1, 4, 7);
		}
	}
	_tile_stored(0, f, 4 * R);
	if (two)
		_tile_stored(1, f + B_SUMS, 4 * R);
	__asm__ volatile("" : : : "memory");
}

/* rows <= 32 rows in tiles of R: B_ROWS, or rows. */
static void mul_direct(float *out, size_t ld, const struct weight *w, int o0, int o1, const uint8_t *pairs, int R,
                       int rows, const struct pairs_scratch *m)
{
	size_t far = acts_pairs_bytes(w->cols);
	float sums[2 * B_SUMS];

	configure_direct(B_OUT, R);
	for (int o = o0; o < o1; o += B_OUT) {
		int n = o1 - o < B_OUT ? o1 - o : B_OUT;

		if (n < B_OUT)
			configure_direct(n, R);
		if (rows > B_ROWS)
			outputs_direct(sums, w, o, n, pairs, far, R, m->panel[0], true);
		else
			outputs_direct(sums, w, o, n, pairs, far, R, m->panel[0], false);
		for (int r = 0; r < rows && R < B_ROWS; r++)
			for (int i = 0; i < n; i++)
				out[(size_t)r * ld + (size_t)(o - o0 + i)] = sums[i * R + r];
		for (int r = 0; r < rows && R == B_ROWS; r += B_ROWS)
			tile_out(out + (size_t)r * ld + (o - o0), ld, sums + r / B_ROWS * B_SUMS,
			         rows - r < B_ROWS ? rows - r : B_ROWS, n);
	}
}

/* ---- all ---- */

void bf16_mul_amx(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0, int r1,
                  void *scratch)
{
	size_t pairs_bytes = acts_pairs_bytes(w->cols);
	bool given = x->pairs && r0 % B_ROWS == 0;
	int most = given ? TILED_ROWS : B_ROWS;
	struct pairs_scratch m;

	assert(x->cols == w->cols);
	m.panel[0] = scratch;
	m.panel[1] = m.panel[0] + panel_bytes();
	m.f = (float *)(m.panel[1] + panel_bytes());
	m.pairs = (uint8_t *)(m.f + (size_t)TILED_ROWS / B_ROWS * 2 * B_SUMS);
	if (r1 - r0 <= D_ROWS) {
		pairs_direct((uint32_t *)m.pairs, x, r0, r1 - r0);
		mul_direct(out, ld, w, o0, o1, m.pairs, r1 - r0, r1 - r0, &m);
		_tile_release();
		return;
	}
	for (int r = r0; r < r1; r += most) {
		int rows = r1 - r < most ? r1 - r : most, n = (rows + B_ROWS - 1) / B_ROWS;
		const uint8_t *pairs = given ? x->pairs + (size_t)(r / B_ROWS) * pairs_bytes : m.pairs;
		float *to = out + (size_t)(r - r0) * ld;

		if (!given)
			acts_pairs_amx(m.pairs, x, r, rows);
		if (n <= B_FEW) {
			mul_direct(to, ld, w, o0, o1, pairs, B_ROWS, rows, &m);
			continue;
		}
		tile_config_whole();
		for (int o = o0; o < o1; o += 2 * B_OUT) {
			int n_out = o1 - o < 2 * B_OUT ? o1 - o : 2 * B_OUT;

			many_rows(w, o, n_out, pairs, n, &m);
			sums_out(to + (o - o0), ld, m.f, rows, n_out);
		}
	}
	_tile_release();
}

double bf16_peak_amx(int64_t n)
{
	tile_config_whole();
	_tile_zero(0);
	_tile_zero(1);
	_tile_zero(4);
	_tile_zero(5);
	_tile_zero(6);
	_tile_zero(7);
	for (int64_t k = 0; k < n; k++) {
		_tile_dpbf16ps(0, 4, 6);
		_tile_dpbf16ps(1, 5, 7);
	}
	_tile_release();
	return 2.0 * 2 * B_ROWS * B_SIZE * (double)n;
}
