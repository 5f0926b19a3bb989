/* bf16_avx512bf16.c - products over bf16 weights with AVX-512's dot product of bf16, in the
 * order that format.h states for them, by bf16_dots512.h: the bits of bf16_amx.c.
 *
 * A block of 32 inputs of 16 outputs is turned, so that a vector has a pair of inputs of all 16;
 * a row's pair is multiplied with it from where it lies.  For few rows that is done between
 * registers; for more, turned blocks of 32 outputs are kept in the first cache for all rows. */
#include <assert.h>
#include <immintrin.h>
#include <x86intrin.h>

#include "quant/bf16_dots512.h"
#include "quant/levels.h"
#include "quant/transpose512.h"
#include "quant/trial.h"

#define INLINE DOTS_INLINE

enum {
	OUT = OUT_ONCE, BLOCK = DOTS_BLOCK, LINE = DOTS_LINE,   /* outputs of a vector, inputs of a block and their bytes */
	STRETCH = 128,                          /* inputs for which blocks of two vectors of outputs are kept */
};

/* Bytes from one row of activations to the next. */
static size_t pairs_step(int cols) { return ((size_t)cols + BLOCK - 1) / BLOCK * LINE; }

INLINE __mmask32 inputs_of(int n) { return n >= BLOCK ? ~(__mmask32)0 : ((__mmask32)1 << n) - 1; }
INLINE __mmask16 lanes_of(int n) { return (__mmask16)(n >= 16 ? 0xffff : n <= 0 ? 0 : (1u << n) - 1); }

/* [rows][blocks of 32 inputs][16 pairs]; zeros beyond the last input. */
void acts_pairs_avx512bf16(uint8_t *tile, const struct acts *a, int r0, int rows)
{
	for (int r = r0; r < r0 + rows; r++) {
		const float *x = a->f + (size_t)r * a->ld;

		for (int k = 0; k < a->cols; k += BLOCK, tile += LINE) {
			__m512 lo = _mm512_maskz_loadu_ps(lanes_of(a->cols - k), x + k);
			__m512 hi = _mm512_maskz_loadu_ps(lanes_of(a->cols - k - 16), x + k + 16);

			_mm512_storeu_si512(tile, dots_paired((__m512i)_mm512_cvtne2ps_pbh(hi, lo)));
		}
	}
}

/* What is read of 16 outputs, or of n: the others are the last again. */
struct lines {
	const uint8_t *row[OUT];
	int cols;
};

static struct lines lines_of(const struct weight *w, int o, int n)
{
	struct lines l = { .cols = w->cols };

	for (int i = 0; i < OUT; i++)
		l.row[i] = w->data + (size_t)(o + (i < n ? i : n - 1)) * w->row_bytes;
	return l;
}

/* t[j] = pair j of the block at input k, of all 16. */
INLINE void block_turned(__m512i t[OUT], const struct lines *l, int k)
{
	if (l->cols - k >= BLOCK) {
#pragma GCC unroll 16
		for (int i = 0; i < OUT; i++)
			t[i] = dots_paired(_mm512_loadu_si512(l->row[i] + 2 * (size_t)k));
	} else {
		__mmask32 left = inputs_of(l->cols - k);

#pragma GCC unroll 16
		for (int i = 0; i < OUT; i++)
			t[i] = dots_paired(_mm512_maskz_loadu_epi16(left, l->row[i] + 2 * (size_t)k));
	}
	transpose16(t);
}

/* ---- few rows ---- */

/* n <= 16 outputs from o on by R rows, x_step apart.  Meanwhile as many that follow are asked for, a line for each that
 * is read, in the order in which they lie: outputs side by side would be runs of their own, and slower. */
INLINE void few_block(float *out, size_t ld, const struct weight *w, int o, int n, const uint8_t *x, size_t x_step,
                      const int R)
{
	const struct lines l = lines_of(w, o, n);
	const uint8_t *next = w->data + (size_t)(o + 2 * OUT <= w->rows ? o + OUT : o) * w->row_bytes;
	__m512 acc[FEW_ROWS];

#pragma GCC unroll 8
	for (int r = 0; r < R; r++)
		acc[r] = _mm512_setzero_ps();
	for (int k = 0; k < w->cols; k += BLOCK, x += LINE, next += OUT * LINE) {
		__m512i t[OUT];

		block_turned(t, &l, k);
#pragma GCC unroll 16
		for (int j = 0; j < OUT; j++)
			_mm_prefetch(next + LINE * j, _MM_HINT_T0);
		dots_turned(acc, t, x, x_step, R);
	}
#pragma GCC unroll 8
	for (int r = 0; r < R; r++)
		_mm512_mask_storeu_ps(out + (size_t)r * ld, lanes_of(n), acc[r]);
}

typedef void few_fn(float *, size_t, const struct weight *, int, int, const uint8_t *, size_t);
#define FEW(R) \
	static void few_##R(float *out, size_t ld, const struct weight *w, int o, int n, const uint8_t *x, size_t x_step) \
	{ \
		few_block(out, ld, w, o, n, x, x_step, R); \
	}
FEW(1) FEW(2) FEW(3) FEW(4) FEW(5) FEW(6) FEW(7) FEW(8)
static few_fn *const fews[FEW_ROWS] = { few_1, few_2, few_3, few_4, few_5, few_6, few_7, few_8 };

/* ---- many rows ---- */

/* Inputs [k0, k1) of n <= 16 V outputs as a panel.  The same of as many outputs that follow is asked for meanwhile. */
INLINE void panel_turn(uint8_t *to, const struct weight *w, int o, int n, int k0, int k1, const int V, const bool floats)
{
	const size_t next = (size_t)V * LINE;
	size_t ahead = (size_t)(OUT * V) * w->row_bytes;

	for (int v = 0; v < V; v++, to += LINE) {
		int left = n - OUT * v;
		const struct lines l = lines_of(w, o + OUT * v, left < OUT ? left : OUT);
		uint8_t *p = to;

		for (int k = k0; k < k1; k += BLOCK, p += next * OUT * (floats ? 2 : 1)) {
			__m512i t[OUT];

			block_turned(t, &l, k);
#pragma GCC unroll 16
			for (int j = 0; j < OUT; j++) {
				_mm_prefetch(l.row[j] + 2 * (size_t)k + ahead, _MM_HINT_T1);
				dots_panel_store(p, next, j, t[j], floats);
			}
		}
	}
}

/* n <= 16 V outputs from o on. */
INLINE void many_rows(float *out, size_t ld, const struct weight *w, int o, int n, const uint8_t *x, int rows,
                      uint8_t *panel, const int V, const bool floats)
{
	struct dots d = { .ld = ld, .beside = OUT, .panel = panel, .step = (size_t)V * LINE, .row = pairs_step(w->cols),
	                  .block = LINE, .mask = { lanes_of(n), lanes_of(n - OUT) } };

	for (int k = 0; k < w->cols; k += STRETCH) {
		int end = w->cols - k < STRETCH ? w->cols : k + STRETCH, r = 0;

		panel_turn(panel, w, o, n, k, end, V, floats);
		d.n = (end - k + BLOCK - 1) / BLOCK;
		d.out = out;
		d.x = x + (size_t)(k / BLOCK) * LINE;
		for (; r + DOTS_ROWS <= rows; r += DOTS_ROWS, d.out += DOTS_ROWS * ld, d.x += DOTS_ROWS * d.row)
			dots_tile(&d, k == 0, DOTS_ROWS, V, floats);
		for (; r < rows; r++, d.out += ld, d.x += d.row)
			dots_tile(&d, k == 0, 1, V, floats);
	}
}

typedef void many_fn(float *, size_t, const struct weight *, int, int, const uint8_t *, int, uint8_t *);
#define MANY(name, V, floats) \
	static void name(float *out, size_t ld, const struct weight *w, int o, int n, const uint8_t *x, int rows, \
	                 uint8_t *panel) \
	{ \
		many_rows(out, ld, w, o, n, x, rows, panel, V, floats); \
	}
MANY(many_dot_1, 1, false) MANY(many_dot_2, 2, false) MANY(many_floats_1, 1, true) MANY(many_floats_2, 2, true)
static many_fn *const manys[2][2] = { { many_dot_1, many_dot_2 }, { many_floats_1, many_floats_2 } };

/* ---- all ---- */

enum { PANEL_BYTES = 2 * OUT * STRETCH * (int)sizeof(float) };

size_t bf16_scratch_avx512bf16(int cols)
{
	return PANEL_BYTES + acts_pairs_bytes(cols);
}

/* By rows of pairs.  On its own, so that nothing of it is computed before the caller says what denormals count. */
static __attribute__((noinline)) void mul_pairs(float *out, size_t ld, const struct weight *w, int o0, int o1,
                                                const uint8_t *x, int rows, uint8_t *panel, bool floats)
{
	bool few = rows <= FEW_ROWS;

	for (int o = o0, n; o < o1; o += n, out += n) {
		int most = few ? OUT : 2 * OUT;

		n = o1 - o < most ? o1 - o : most;
		if (few)
			fews[rows - 1](out, ld, w, o, n, x, pairs_step(w->cols));
		else
			manys[floats][n > OUT](out, ld, w, o, n, x, rows, panel);
	}
}

static void mul(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0, int r1,
                uint8_t *scratch, bool floats)
{
	int most = x->pairs ? TILED_ROWS : ACTS_TILE;
	uint8_t *here = scratch + PANEL_BYTES;
	unsigned mode = _mm_getcsr();

	assert(x->cols == w->cols);
	_mm_setcsr(mode | DOTS_ZEROS);
	for (int r = r0; r < r1; r += most) {
		int rows = r1 - r < most ? r1 - r : most;

		if (!x->pairs)
			acts_pairs_avx512bf16(here, x, r, rows);
		mul_pairs(out + (size_t)(r - r0) * ld, ld, w, o0, o1,
		          x->pairs ? x->pairs + (size_t)r * pairs_step(w->cols) : here, rows, scratch, floats);
	}
	_mm_setcsr(mode);
}

void bf16_mul_dot(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0, int r1,
                  void *scratch)
{
	mul(out, ld, w, o0, o1, x, r0, r1, scratch, false);
}

void bf16_mul_floats(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0, int r1,
                     void *scratch)
{
	mul(out, ld, w, o0, o1, x, r0, r1, scratch, true);
}

double bf16_peak_avx512bf16(int64_t n)
{
	enum { CHAINS = 16 };                   /* latency times throughput */
	volatile int one = 0x3f803f80;          /* two of 1 */
	__m512i w = _mm512_set1_epi32(one);
	__m512 sum[CHAINS];
	volatile float keep;

	for (int i = 0; i < CHAINS; i++)
		sum[i] = _mm512_setzero_ps();
	for (int64_t k = 0; k < n; k++)
#pragma GCC unroll 16
		for (int i = 0; i < CHAINS; i++)
			sum[i] = _mm512_dpbf16_ps(sum[i], (__m512bh)w, (__m512bh)w);
	for (int i = 1; i < CHAINS; i++)
		sum[0] = _mm512_add_ps(sum[0], sum[i]);
	keep = _mm512_reduce_add_ps(sum[0]);
	(void)keep;
	return 2.0 * 2 * OUT * CHAINS * (double)n;
}

/* Which of the two is faster differs between processors by factors.  The bits are the same. */
static double each(quant_peak_fn *peak)
{
	enum { ROUNDS = 1024 };  /* the counter may step by dozens of ticks */
	uint64_t start = __rdtsc();
	double ops = peak(ROUNDS);

	return (double)(__rdtsc() - start) / ops;
}
static double each_dot(void) { return each(bf16_peak_avx512bf16); }
static double each_multiply_add(void) { return each(lane_table_avx512.peak); }

bool bf16_dot_slow(void)
{
	static atomic_int known;

	return trial_slower(&known, each_dot, each_multiply_add, 1.3);
}
