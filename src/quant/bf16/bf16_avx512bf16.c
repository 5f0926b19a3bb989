/* bf16_avx512bf16.c - products over bf16 weights with AVX-512's dot product of bf16, in the
 * order that format.h states for them, by bf16_dots512.h: the bits of bf16_amx.c.
 *
 * A block of 32 inputs of 16 outputs is wanted turned, so that a vector has a pair of inputs of all 16;
 * a row's pair is multiplied with it from where it lies.  Weights laid out (packed.h) are read so as they lie.
 * Rows of a file are turned first: for few rows between registers; for more, turned blocks of 32 outputs are kept
 * in the first cache for all rows. */
#include <assert.h>
#include <immintrin.h>
#include <x86intrin.h>

#include "base/part.h"
#include "quant/bf16/bf16_dots512.h"
#include "quant/bf16/bf16_kernels.h"
#include "quant/coded/packed_layout.h"
#include "quant/kernel_rows.h"
#include "quant/lanes/lane_table.h"
#include "quant/lanes/transpose512.h"
#include "quant/trial.h"

#define INLINE DOTS_INLINE

enum {
	OUT = OUT_ONCE,
	BLOCK = DOTS_BLOCK,
	LINE = DOTS_LINE,           /* outputs of a vector, inputs of a block and their bytes */
	TURNED = DOTS_PAIRS * LINE, /* bytes of a transposed block */
	STRETCH = 128,              /* inputs for which blocks of two vectors of outputs are kept */
	AHEAD = 66 * LINE,          /* bytes of weights laid out that few rows ask for ahead */
};
_Static_assert((int)OUT == (int)BLOCK_OUT && BLOCK_INPUTS % BLOCK == 0, "a block laid out is whole turned blocks");

/* Bytes from one row of activations to the next. */
static size_t pairs_step(int cols)
{
	return ((size_t)cols + BLOCK - 1) / BLOCK * LINE;
}

INLINE __mmask32 inputs_of(int n)
{
	return n >= BLOCK ? ~(__mmask32)0 : ((__mmask32)1 << n) - 1;
}
INLINE __mmask16 lanes_of(int n)
{
	return (__mmask16)(n >= 16 ? 0xffff : n <= 0 ? 0 : (1u << n) - 1);
}

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

/* Addresses of the weights of 16 outputs: their rows, the last one repeated where there are fewer; or, packed, one run. */
struct lines {
	const uint8_t *row[OUT], *laid;
	int cols;
};

static struct lines lines_of(const struct weight *w, const uint8_t *blocks, int o, int n)
{
	struct lines l = { .cols = w->cols };

	if (blocks)
		l.laid = packed_at(w, blocks, o, 0);
	for (int i = 0; i < OUT && !blocks; i++)
		l.row[i] = w->data + (size_t)(o + (i < n ? i : n - 1)) * w->row_bytes;
	return l;
}

/* t[j] = pair j of the block at input k, of all 16. */
INLINE void block_turned(__m512i t[OUT], const struct lines *l, int k, const bool laid)
{
	__mmask32 left = inputs_of(l->cols - k);

	if (laid) {
#pragma GCC unroll 16
		for (int j = 0; j < OUT; j++)
			t[j] = _mm512_load_si512(l->laid + (size_t)(k / BLOCK) * TURNED + (size_t)j * LINE);
		return;
	}
	if (l->cols - k >= BLOCK)
#pragma GCC unroll 16
		for (int i = 0; i < OUT; i++)
			t[i] = dots_paired(_mm512_loadu_si512(l->row[i] + 2 * (size_t)k));
	else
#pragma GCC unroll 16
		for (int i = 0; i < OUT; i++)
			t[i] = dots_paired(_mm512_maskz_loadu_epi16(left, l->row[i] + 2 * (size_t)k));
	transpose16(t);
}

/* Outputs [o, o + 16) of w, or 32, of which those in `mask` are computed, to out.  blocks NULL: from rows. */
struct outputs {
	float *out;
	size_t ld;
	const struct weight *w;
	const uint8_t *blocks;
	int o;
	__mmask16 mask[2];
};

/* ---- few rows ---- */

INLINE void few_store(const struct outputs *s, const __m512 *acc, const int R)
{
#pragma GCC unroll 8
	for (int r = 0; r < R; r++)
		_mm512_mask_storeu_ps(s->out + (size_t)r * s->ld, s->mask[0], acc[r]);
}

/* 16 outputs by R rows, x_step apart.  Meanwhile as many that follow are asked for, a line for each that
 * is read, in the order in which they lie: outputs side by side would be runs of their own, and slower. */
INLINE void few_rows(const struct outputs *s, const uint8_t *x, size_t x_step, const int R)
{
	const struct weight *w = s->w;
	const struct lines l = lines_of(w, NULL, s->o, w->rows - s->o);
	const uint8_t *next = w->data + (size_t)(s->o + 2 * OUT <= w->rows ? s->o + OUT : s->o) * w->row_bytes;
	__m512 acc[FEW_ROWS];

#pragma GCC unroll 8
	for (int r = 0; r < R; r++)
		acc[r] = _mm512_setzero_ps();
	for (int k = 0; k < w->cols; k += BLOCK, x += LINE, next += OUT * LINE) {
		__m512i t[OUT];

		block_turned(t, &l, k, false);
#pragma GCC unroll 16
		for (int j = 0; j < OUT; j++)
			_mm_prefetch(next + LINE * j, _MM_HINT_T0);
		dots_turned(acc, t, x, x_step, R);
	}
	few_store(s, acc, R);
}

/* few_rows over packed weights: multiplies all rows by one pair, then by the next, so that a line is read when it is
 * needed.  Row by row, as few_rows does, a block's lines are read at once and waited for, which reaches five eighths to
 * nine tenths of the memory's bandwidth. */
INLINE void few_laid(const struct outputs *s, const uint8_t *x, size_t x_step, const int R)
{
	const uint8_t *at = packed_at(s->w, s->blocks, s->o, 0);
	__m512 acc[FEW_ROWS];

#pragma GCC unroll 8
	for (int r = 0; r < R; r++)
		acc[r] = _mm512_setzero_ps();
	for (int k = 0; k < s->w->cols; k += BLOCK, x += LINE) {
		__m512 sum[2][FEW_ROWS];

#pragma GCC unroll 8
		for (int r = 0; r < R; r++)
			sum[0][r] = sum[1][r] = _mm512_setzero_ps();
#pragma GCC unroll 16
		for (int j = 0; j < DOTS_PAIRS; j++, at += LINE) {
			__m512i w = _mm512_load_si512(at);

			_mm_prefetch(at + AHEAD, _MM_HINT_T0);
#pragma GCC unroll 8
			for (int r = 0; r < R; r++)
				sum[j % 2][r] = dots_pair(sum[j % 2][r], w, x + (size_t)r * x_step + 4 * j);
		}
#pragma GCC unroll 8
		for (int r = 0; r < R; r++)
			acc[r] = _mm512_add_ps(acc[r], _mm512_add_ps(sum[0][r], sum[1][r]));
	}
	few_store(s, acc, R);
}

typedef void few_fn(const struct outputs *, const uint8_t *, size_t);
#define FEW(weights, R)                                                                           \
	static void few_##weights##_##R(const struct outputs *s, const uint8_t *x, size_t x_step) \
	{                                                                                         \
		few_##weights(s, x, x_step, R);                                                   \
	}
ROWS_TO_8(FEW, rows)
ROWS_TO_8(FEW, laid)
static few_fn *const fews[2][FEW_ROWS] = { { NAMES_TO_8(few_rows_) }, { NAMES_TO_8(few_laid_) } };

/* ---- many rows ---- */

/* Transposes inputs [k0, k1) of 16 V outputs to a panel, and prefetches those inputs of the next 16 V outputs. */
INLINE void panel_turn(uint8_t *to, const struct outputs *s, int k0, int k1, const int V, const bool floats,
                       const bool laid)
{
	const size_t next = (size_t)V * LINE;
	size_t ahead = laid ? (size_t)V * packed_step(s->w) : (size_t)(OUT * V) * s->w->row_bytes;

	for (int v = 0; v < V; v++, to += LINE) {
		const struct lines l = lines_of(s->w, s->blocks, s->o + OUT * v, s->w->rows - s->o - OUT * v);
		uint8_t *p = to;

		for (int k = k0; k < k1; k += BLOCK, p += next * OUT * (floats ? 2 : 1)) {
			const uint8_t *line = laid ? l.laid + (size_t)(k / BLOCK) * TURNED : NULL;
			__m512i t[OUT];

			block_turned(t, &l, k, laid);
#pragma GCC unroll 16
			for (int j = 0; j < OUT; j++) {
				_mm_prefetch((laid ? line + j * LINE : l.row[j] + 2 * (size_t)k) + ahead, _MM_HINT_T1);
				dots_panel_store(p, next, j, t[j], floats);
			}
		}
	}
}

/* Lines [*line, *line + n) of each of V runs, `apart` from one another. */
INLINE void ask_lines(const uint8_t *at, size_t apart, int *line, int n, const int V)
{
	for (int i = 0; i < n; i++, ++*line)
#pragma GCC unroll 2
		for (int v = 0; v < V; v++)
			_mm_prefetch(at + (size_t)v * apart + (size_t)*line * LINE, _MM_HINT_T0);
}

/* 16 V outputs by rows > FEW_ROWS, cut evenly into tiles of DOTS_ROWS and of one less.  Packed weights are a panel as
 * they lie, and tiles prefetch the next stretch of them. */
INLINE void many_rows(const struct outputs *s, const uint8_t *x, int rows, uint8_t *panel, const int V,
                      const bool floats, const bool laid)
{
	const struct weight *w = s->w;
	const bool as_it_lies = laid && !floats;
	const size_t run = laid ? packed_step(w) : 0;
	int tiles = (rows + DOTS_ROWS - 1) / DOTS_ROWS, each = (STRETCH / BLOCK * DOTS_PAIRS + tiles - 1) / tiles;
	struct dots d = { .ld = s->ld,
		          .beside = OUT,
		          .panel = panel,
		          .step = (size_t)(as_it_lies ? 1 : V) * LINE,
		          .vector = as_it_lies ? run : LINE,
		          .row = pairs_step(w->cols),
		          .block = LINE,
		          .mask = { s->mask[0], s->mask[1] } };

	for (int k = 0; k < w->cols; k += STRETCH) {
		int end = w->cols - k < STRETCH ? w->cols : k + STRETCH, line = 0;
		const uint8_t *next = NULL;

		if (as_it_lies) {
			d.panel = packed_at(w, s->blocks, s->o, 0) + (size_t)(k / BLOCK) * TURNED;
			next = end < w->cols ? d.panel + STRETCH / BLOCK * TURNED :
			                       packed_at(w, s->blocks, s->o + OUT * V, 0);
		} else {
			panel_turn(panel, s, k, end, V, floats, laid);
		}
		d.n = (end - k + BLOCK - 1) / BLOCK;
		for (int i = 0; i < tiles; i++) {
			int r = part_begin(rows, i, tiles), n = part_begin(rows, i + 1, tiles) - r;

			d.out = s->out + (size_t)r * d.ld;
			d.x = x + (size_t)(k / BLOCK) * LINE + (size_t)r * d.row;
			if (as_it_lies)
				ask_lines(next, run, &line, each, V);
			if (n == DOTS_ROWS)
				dots_tile(&d, k == 0, DOTS_ROWS, V, floats);
			else
				dots_tile(&d, k == 0, DOTS_ROWS - 1, V, floats);
		}
	}
}

typedef void many_fn(const struct outputs *, const uint8_t *, int, uint8_t *);
#define MANY(name, V, floats, laid)                                                           \
	static void name(const struct outputs *s, const uint8_t *x, int rows, uint8_t *panel) \
	{                                                                                     \
		many_rows(s, x, rows, panel, V, floats, laid);                                \
	}
MANY(many_dot_1, 1, false, false)
MANY(many_dot_2, 2, false, false)
MANY(many_dot_laid_1, 1, false, true)
MANY(many_dot_laid_2, 2, false, true)
MANY(many_floats_1, 1, true, false)
MANY(many_floats_2, 2, true, false)
MANY(many_floats_laid_1, 1, true, true)
MANY(many_floats_laid_2, 2, true, true)
static many_fn *const manys[2][2][2] = {
	/* floats, laid out, two vectors */
	{ { many_dot_1, many_dot_2 }, { many_dot_laid_1, many_dot_laid_2 } },
	{ { many_floats_1, many_floats_2 }, { many_floats_laid_1, many_floats_laid_2 } },
};

/* ---- all ---- */

enum { PANEL_BYTES = 2 * OUT * STRETCH * (int)sizeof(float) };

size_t bf16_scratch_avx512bf16(int cols)
{
	return PANEL_BYTES + acts_pairs_bytes(cols);
}

/* By rows of pairs.  On its own, so that nothing of it is computed before the caller says what denormals count. */
static __attribute__((noinline)) void mul_pairs(float *out, size_t ld, const struct weight *w, const uint8_t *blocks,
                                                int o0, int o1, const uint8_t *x, int rows, uint8_t *panel, bool floats)
{
	bool few = rows <= FEW_ROWS;
	int most = few ? OUT : 2 * OUT;

	for (int o = blocks ? o0 / OUT * OUT : o0; o < o1; o += most) {
		__mmask16 before = o < o0 ? lanes_of(o0 - o) : 0;
		struct outputs s = { out + (o - o0), ld, w,
			             blocks,         o,  { lanes_of(o1 - o) & ~before, lanes_of(o1 - o - OUT) } };

		if (few)
			fews[blocks != NULL][rows - 1](&s, x, pairs_step(w->cols));
		else
			manys[floats][blocks != NULL][o1 - o > OUT](&s, x, rows, panel);
	}
}

static void mul(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0, int r1,
                uint8_t *scratch, bool floats)
{
	int most = x->pairs ? TILED_ROWS : ACTS_TILE;
	uint8_t *here = scratch + PANEL_BYTES;
	const uint8_t *blocks = packed_of(w);
	unsigned mode = _mm_getcsr();

	assert(x->cols == w->cols);
	_mm_setcsr(mode | DOTS_ZEROS);
	for (int r = r0; r < r1; r += most) {
		int rows = r1 - r < most ? r1 - r : most;

		if (!x->pairs)
			acts_pairs_avx512bf16(here, x, r, rows);
		mul_pairs(out + (size_t)(r - r0) * ld, ld, w, blocks, o0, o1,
		          x->pairs ? x->pairs + (size_t)r * pairs_step(w->cols) : here, rows, scratch, floats);
	}
	_mm_setcsr(mode);
}

void bf16_mul_dot(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0, int r1,
                  void *scratch)
{
	mul(out, ld, w, o0, o1, x, r0, r1, scratch, false);
}

void bf16_mul_floats(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                     int r1, void *scratch)
{
	mul(out, ld, w, o0, o1, x, r0, r1, scratch, true);
}

double bf16_peak_avx512bf16(int64_t n)
{
	enum { CHAINS = 16 };          /* latency times throughput */
	volatile int one = 0x3f803f80; /* two of 1 */
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
	enum { ROUNDS = 1024 }; /* the counter may step by dozens of ticks */
	uint64_t start = __rdtsc();
	double ops = peak(ROUNDS);

	return (double)(__rdtsc() - start) / ops;
}
static double each_dot(void)
{
	return each(bf16_peak_avx512bf16);
}
static double each_multiply_add(void)
{
	return each(lane_table_avx512.peak);
}

bool bf16_dot_slow(void)
{
	static atomic_int known;

	return trial_slower(&known, each_dot, each_multiply_add, 1.3);
}
