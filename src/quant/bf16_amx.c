/* bf16_amx.c - products over bf16 weights with tiles of bf16, in the order that
 * format.h states for them.
 *
 * One tile instruction takes 32 inputs of 16 outputs by 16 rows.  Weights lie as a
 * tile wants them, but in 16 streams; they are copied to a panel row by row, so that
 * memory is read in rising order.  The activations, 16 rows by pairs of inputs, are
 * laid out once a call.
 *
 * For few rows the copy costs more than the products.  They are made of the same
 * steps with fused multiply-adds instead, 16 outputs side by side.  Denormals count as
 * zeros there as well, by MXCSR. */
#include <assert.h>
#include <immintrin.h>
#include <string.h>

#include "quant/levels.h"
#include "quant/transpose512.h"

#define INLINE static inline __attribute__((always_inline))

enum {
	B_OUT = 16, B_ROWS = ACTS_TILE, B_IN = 32,      /* outputs, rows and inputs of a tile */
	B_BYTES = 64, B_SUMS = B_OUT * B_ROWS, B_SIZE = B_OUT * B_IN,
	B_STRETCH = 512,                                /* inputs for which two tiles of outputs stay in the first cache */
	B_AHEAD = 512,                                  /* bytes of a row that are fetched before they are used */
	D_ROWS = ACTS_TILED - 1,                        /* without tiles, at once */
	B_FEW = 2,                                      /* tiles of rows for which whole rows of weights are read at once */
};

/* All eight registers alike. */
static void configure(void)
{
	struct { uint8_t palette, start_row, reserved[14]; uint16_t row_bytes[16]; uint8_t rows[16]; }
		__attribute__((aligned(64))) c = { .palette = 1 };

	for (int i = 0; i < 8; i++) {
		c.rows[i] = 16;
		c.row_bytes[i] = B_BYTES;
	}
	/* gcc 12's intrinsic says it reads 8 bytes; stores to the others may go. */
	__asm__ volatile("" : : "m"(c));
	_tile_loadconfig(&c);
}

/* [blocks of 32 inputs][16 pairs][16 rows][2]; zeros beyond the last row and input. */
void acts_pairs_amx(uint8_t *tile, const struct acts *a, int r0, int rows)
{
	for (int k = 0; k < a->cols; k += B_IN, tile += B_SIZE * 2) {
		int have = a->cols - k < B_IN ? a->cols - k : B_IN;
		__mmask16 lo = (__mmask16)(have >= 16 ? 0xffff : (1u << have) - 1);
		__mmask16 hi = (__mmask16)(have <= 16 ? 0 : have == B_IN ? 0xffff : (1u << (have - 16)) - 1);
		__m512i t[16];

		for (int r = 0; r < 16; r++) {
			const float *x = a->f + (size_t)(r0 + (r < rows ? r : 0)) * a->ld + k;

			t[r] = r < rows ? (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(hi, x + 16), _mm512_maskz_loadu_ps(lo, x)) :
			                  _mm512_setzero_si512();
		}
		transpose16(t);
		for (int i = 0; i < 16; i++)
			_mm512_storeu_si512(tile + i * B_BYTES, t[i]);
	}
}

/* The memory of a call, out of the thread's scratch. */
struct room {
	uint8_t *panel[2];                      /* [16 outputs][inputs of a stretch, and a line]; for few rows of all */
	float *f;                               /* [tiles of rows][2][16 outputs][16 rows] */
	uint8_t *pairs;                         /* of B_ROWS rows */
};

/* Bytes from one output of a panel to the next: a line more than its inputs, so that
 * a tile's 16 do not fall on one another in the cache. */
static size_t panel_step(int inputs)
{
	return ((size_t)inputs + B_IN - 1) / B_IN * B_BYTES + B_BYTES;
}

static size_t panel_bytes(int cols)
{
	return B_OUT * panel_step(cols > B_STRETCH ? cols : B_STRETCH);
}

static size_t direct_bytes(int cols)
{
	return D_ROWS * ((size_t)cols + B_IN) * sizeof(float);
}

size_t bf16_scratch_amx(int cols)
{
	size_t tiled = 2 * panel_bytes(cols) + (size_t)TILED_ROWS / B_ROWS * 2 * B_SUMS * sizeof(float) + acts_pairs_bytes(cols);

	return tiled > direct_bytes(cols) ? tiled : direct_bytes(cols);
}

/* Inputs [k0, k1) of n outputs on their way to a panel, in rising order of memory,
 * as many lines at a time as one asks for. */
struct copy {
	const uint8_t *from;
	uint8_t *to;
	size_t row_bytes, step;
	int row, n;                             /* rows from n on are zeros */
	int line, lines;                        /* of a row */
	__mmask32 last;                         /* inputs of its last line */
};

static struct copy copy_start(uint8_t *to, const struct weight *w, int o, int n, int k0, int k1)
{
	int lines = (k1 - k0 + B_IN - 1) / B_IN, left = k1 - k0 - (lines - 1) * B_IN;

	return (struct copy){ .from = w->data + (size_t)o * w->row_bytes + 2 * (size_t)k0, .to = to,
	                      .row_bytes = w->row_bytes, .step = panel_step(k1 - k0), .n = n, .lines = lines,
	                      .last = left == B_IN ? ~(__mmask32)0 : ((__mmask32)1 << left) - 1 };
}

INLINE void copy_lines(struct copy *c, int count)
{
	while (count > 0 && c->row < B_OUT) {
		const uint8_t *from = c->from + (size_t)c->row * c->row_bytes + (size_t)c->line * B_BYTES;
		uint8_t *to = c->to + (size_t)c->row * c->step + (size_t)c->line * B_BYTES;
		int left = c->lines - c->line, now = count < left ? count : left, whole = now == left ? now - 1 : now;

		if (c->row < c->n) {
			for (int i = 0; i < whole; i++) {
				_mm512_storeu_si512(to + i * B_BYTES, _mm512_loadu_si512(from + i * B_BYTES));
			}
			if (whole < now)
				_mm512_storeu_si512(to + whole * B_BYTES, _mm512_maskz_loadu_epi16(c->last, from + whole * B_BYTES));
		} else {
			memset(to, 0, (size_t)now * B_BYTES);
		}
		count -= now;
		c->line += now;
		if (c->line == c->lines) {
			c->line = 0;
			c->row++;
		}
	}
}

/* One or two tiles of outputs by one or two of rows, n blocks of inputs.  pairs_far
 * lies between the rows'; f: [2 of rows][2 of outputs].  Between the blocks it brings
 * in 16 lines of what comes next, so that reading and arithmetic overlap. */
INLINE void tiles_run(float *f, const uint8_t *const panel[2], size_t step, const uint8_t *pairs, size_t pairs_far, int n,
                      bool first, struct copy *next, const bool outs, const bool rows)
{
	__asm__ volatile("" : : : "memory");       /* gcc 12's loads do not say that they read */
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
		if (next)
			copy_lines(next, B_OUT);
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
static void many_rows(const struct weight *w, int o, int n_out, const uint8_t *pairs, int n, const struct room *m)
{
	const uint8_t *const panel[2] = { m->panel[0], m->panel[1] };
	bool outs = n_out > B_OUT;
	size_t far = acts_pairs_bytes(w->cols);

	for (int k = 0; k < w->cols; k += B_STRETCH) {
		int end = w->cols - k < B_STRETCH ? w->cols : k + B_STRETCH, blocks = (end - k + B_IN - 1) / B_IN;
		size_t step = panel_step(end - k);

		for (int h = 0; h <= outs; h++) {
			int left = n_out - B_OUT * h;
			struct copy c = copy_start(m->panel[h], w, o + B_OUT * h, left < B_OUT ? left : B_OUT, k, end);

			copy_lines(&c, B_OUT * blocks);
		}
		for (int i = 0; i < n; i += 2) {
			const uint8_t *p = pairs + (size_t)i * far + (size_t)(k / B_IN) * B_SIZE * 2;
			float *f = m->f + (size_t)i * 2 * B_SUMS;

			if (outs && i + 1 < n)
				tiles_run(f, panel, step, p, far, blocks, k == 0, NULL, true, true);
			else if (outs)
				tiles_run(f, panel, step, p, far, blocks, k == 0, NULL, true, false);
			else if (i + 1 < n)
				tiles_run(f, panel, step, p, far, blocks, k == 0, NULL, false, true);
			else
				tiles_run(f, panel, step, p, far, blocks, k == 0, NULL, false, false);
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
			tile_out(out + (size_t)r * ld + o, ld, f + o / B_OUT * B_SUMS, rows - r < B_ROWS ? rows - r : B_ROWS,
			         n_out - o < B_OUT ? n_out - o : B_OUT);
}

/* One or two tiles of rows: the next outputs are read while these are multiplied. */
static void few_rows(float *out, size_t ld, const struct weight *w, int o0, int o1, const uint8_t *pairs, int rows,
                     const struct room *m)
{
	int blocks = (w->cols + B_IN - 1) / B_IN, turn = 0;
	size_t step = panel_step(w->cols), far = acts_pairs_bytes(w->cols);
	struct copy c = copy_start(m->panel[0], w, o0, o1 - o0 < B_OUT ? o1 - o0 : B_OUT, 0, w->cols);

	copy_lines(&c, B_OUT * blocks);
	for (int o = o0; o < o1; o += B_OUT, turn = !turn) {
		const uint8_t *const panel[2] = { m->panel[turn], NULL };
		int left = o1 - o - B_OUT;

		if (left > 0)
			c = copy_start(m->panel[!turn], w, o + B_OUT, left < B_OUT ? left : B_OUT, 0, w->cols);
		if (rows > B_ROWS)
			tiles_run(m->f, panel, step, pairs, far, blocks, true, &c, false, true);
		else
			tiles_run(m->f, panel, step, pairs, far, blocks, true, &c, false, false);
		sums_out(out + (o - o0), ld, m->f, rows, left < 0 ? o1 - o : B_OUT);
	}
}

/* ---- few rows, without tiles ---- */

/* Rounded to bf16, zeros up to whole blocks. */
static void row_round(float *to, const float *x, int cols)
{
	for (int k = 0; k < cols; k += 16) {
		__mmask16 m = (__mmask16)(cols - k >= 16 ? 0xffff : (1u << (cols - k)) - 1);
		__m256i h = (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(m, x + k));

		_mm512_storeu_si512(to + k, _mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
	}
	if ((cols + 15) / 16 % 2)
		memset(to + (cols + 15) / 16 * 16, 0, 16 * sizeof(*to));
}

/* 16 outputs side by side, a block of inputs of all after the other: 16 streams, which
 * the processor fetches ahead by itself. */
INLINE void direct(float *out, size_t ld, const struct weight *w, int o0, int o1, const float *x, size_t far, const int R)
{
	__m512i hi = _mm512_set1_epi32((int)0xffff0000);
	int tail = w->cols % B_IN;
	__mmask32 last = tail ? ((__mmask32)1 << tail) - 1 : ~(__mmask32)0;

	for (int o = o0; o < o1; o += B_OUT) {
		int n = o1 - o < B_OUT ? o1 - o : B_OUT;
		const uint8_t *from = w->data + (size_t)o * w->row_bytes;
		size_t step = w->row_bytes;
		__m512 acc[D_ROWS];

#pragma GCC unroll 4
		for (int r = 0; r < R; r++)
			acc[r] = _mm512_setzero_ps();
		for (int k = 0; k < w->cols; k += B_IN, from += B_BYTES) {
			__m512i t[16];
			__m512 even[D_ROWS], odd[D_ROWS];

			if (n == B_OUT && k + B_IN <= w->cols) {
#pragma GCC unroll 16
				for (int j = 0; j < B_OUT; j++) {
					_mm_prefetch((const char *)from + (size_t)j * step + B_AHEAD, _MM_HINT_T0);
					t[j] = _mm512_loadu_si512(from + (size_t)j * step);
				}
			} else {
				for (int j = 0; j < B_OUT; j++)
					t[j] = j >= n ? _mm512_setzero_si512() :
					       _mm512_maskz_loadu_epi16(k + B_IN <= w->cols ? ~(__mmask32)0 : last, from + (size_t)j * step);
			}
			transpose16(t);
#pragma GCC unroll 4
			for (int r = 0; r < R; r++)
				even[r] = odd[r] = _mm512_setzero_ps();
#pragma GCC unroll 16
			for (int i = 0; i < 16; i++) {
				__m512 e = _mm512_castsi512_ps(_mm512_slli_epi32(t[i], 16)), d = _mm512_castsi512_ps(_mm512_and_si512(t[i], hi));

#pragma GCC unroll 4
				for (int r = 0; r < R; r++) {
					const float *at = x + (size_t)r * far + k + 2 * i;

					even[r] = _mm512_fmadd_ps(_mm512_set1_ps(at[0]), e, even[r]);
					odd[r] = _mm512_fmadd_ps(_mm512_set1_ps(at[1]), d, odd[r]);
				}
			}
#pragma GCC unroll 4
			for (int r = 0; r < R; r++)
				acc[r] = _mm512_add_ps(acc[r], _mm512_add_ps(even[r], odd[r]));
		}
#pragma GCC unroll 4
		for (int r = 0; r < R; r++)
			_mm512_mask_storeu_ps(out + (size_t)r * ld + (o - o0), (__mmask16)((1u << n) - 1), acc[r]);
	}
}

static void mul_direct(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0, int rows,
                       float *scratch)
{
	enum { FLUSH = 0x8040 };                /* denormal results and operands count as zero */
	size_t far = ((size_t)w->cols + B_IN - 1) / B_IN * B_IN;
	unsigned before = _mm_getcsr();

	_mm_setcsr(before | FLUSH);
	for (int r = 0; r < rows; r++)
		row_round(scratch + (size_t)r * far, x->f + (size_t)(r0 + r) * x->ld, w->cols);
	if (rows == 1)
		direct(out, ld, w, o0, o1, scratch, far, 1);
	else if (rows == 2)
		direct(out, ld, w, o0, o1, scratch, far, 2);
	else if (rows == 3)
		direct(out, ld, w, o0, o1, scratch, far, 3);
	else
		direct(out, ld, w, o0, o1, scratch, far, 4);
	_mm_setcsr(before);
}

/* ---- all ---- */

void bf16_mul_amx(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0, int r1,
                  void *scratch)
{
	size_t pairs_bytes = acts_pairs_bytes(w->cols);
	bool given = x->pairs && r0 % B_ROWS == 0;
	int most = given ? TILED_ROWS : B_ROWS;
	struct room m;

	assert(x->cols == w->cols);
	if (r1 - r0 <= D_ROWS) {
		mul_direct(out, ld, w, o0, o1, x, r0, r1 - r0, scratch);
		return;
	}
	m.panel[0] = scratch;
	m.panel[1] = m.panel[0] + panel_bytes(w->cols);
	m.f = (float *)(m.panel[1] + panel_bytes(w->cols));
	m.pairs = (uint8_t *)(m.f + (size_t)TILED_ROWS / B_ROWS * 2 * B_SUMS);
	configure();
	for (int r = r0; r < r1; r += most) {
		int rows = r1 - r < most ? r1 - r : most, n = (rows + B_ROWS - 1) / B_ROWS;
		const uint8_t *pairs = given ? x->pairs + (size_t)(r / B_ROWS) * pairs_bytes : m.pairs;
		float *to = out + (size_t)(r - r0) * ld;

		if (!given)
			acts_pairs_amx(m.pairs, x, r, rows);
		if (n <= B_FEW) {
			few_rows(to, ld, w, o0, o1, pairs, rows, &m);
			continue;
		}
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
	configure();
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
