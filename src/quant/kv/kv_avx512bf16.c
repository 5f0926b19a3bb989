/* kv_avx512bf16.c - see kv_tiles.h; in the order that format.h states, by bf16_dots512.h: the
 * bits of kv_amx.c.
 *
 * Many queries: 32 queries are a panel, of which pairs of a key's dims take their part, so that
 * sixteen queries' scores of a key are one vector and softmax is lane by lane; values are panels
 * of 32 dims, of which pairs of a query's weights take theirs.  Both fit the first cache.
 *
 * What few queries cost is reading the cache, so nothing is laid: 16 keys at a time are turned
 * between registers, and pairs of values as they come.  Values are prefetched during scores, and
 * the keys that follow during values. */
#include <assert.h>
#include <immintrin.h>
#include <string.h>

#include "quant/bf16/bf16_dots512.h"
#include "quant/bf16/bf16_kernels.h"
#include "quant/kv/kv_ask.h"
#include "quant/kv/kv_softmax512.h"
#include "quant/lanes/transpose512.h"

#define INLINE DOTS_INLINE

enum {
	LINE = DOTS_LINE,
	BLOCK = DOTS_BLOCK,
	PAIRS = DOTS_PAIRS,
	WIDE = 2 * LINE, /* bytes of a pair of two vectors */
	FEW = 8,
	TURNED = 16, /* queries; keys */
};
_Static_assert((int)BLOCK == (int)KV_SUMMED && (int)TURNED == (int)KV_RUN, "a run of keys is turned");

static size_t row_bytes(int dim)
{
	return (size_t)dim * 2;
}
/* A panel of two vectors, n inputs. */
static size_t panel_bytes(int n, bool floats)
{
	return (size_t)(n / 2 * WIDE) << floats;
}

/* ---- queries, keys and values as operands ---- */

/* n <= 16 queries' block of dims at k, as rows of pairs. */
INLINE void queries_paired(__m512i t[16], const float *const *q, int n, int k)
{
	for (int i = 0; i < 16; i++)
		t[i] = i < n ? dots_paired((__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(q[i] + k + 16),
		                                                        _mm512_loadu_ps(q[i] + k))) :
		               _mm512_setzero_si512();
}

/* Bytes of few queries' row, and of one's first n inputs: pairs, or as floats of each block the upper halves and the
 * lower ones. */
static size_t few_bytes(int n, bool floats)
{
	return row_bytes(n) << floats;
}

/* All as a panel; few as rows, which are less. */
INLINE void queries(uint8_t *to, const float *const *q, int n, int dim, bool few, const bool floats)
{
	__m512i t[16];

	for (int k = 0; few && k < dim; k += BLOCK) {
		queries_paired(t, q, n, k);
		for (int j = 0; j < FEW; j++) {
			uint8_t *row = to + (size_t)j * few_bytes(dim, floats) + few_bytes(k, floats);

			if (floats)
				dots_halves_store((float *)(void *)row, t[j]);
			else
				_mm512_store_si512(row, t[j]);
		}
	}
	for (int v = 0; !few && v < 2; v++, to += LINE)
		for (int k = 0; k < dim; k += BLOCK) {
			queries_paired(t, q + 16 * v, n - 16 * v, k);
			transpose16(t);
			for (int j = 0; j < PAIRS; j++)
				dots_panel_store(to + panel_bytes(k, floats), WIDE, j, t[j], floats);
		}
}

/* Two rows' 32 dims to 16 pairs of the first 16, and of the others. */
INLINE void values_paired(__m512i pair[2], __m512i upper, __m512i lower)
{
	const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);

	upper = _mm512_permutexvar_epi64(order, upper);
	lower = _mm512_permutexvar_epi64(order, lower);
	pair[0] = _mm512_unpacklo_epi16(lower, upper);
	pair[1] = _mm512_unpackhi_epi16(lower, upper);
}

static const uint8_t *row_at(const uint8_t *const *run, int r, int dim)
{
	return run[r / KV_RUN] + row_bytes(r % KV_RUN * dim);
}

/* Keys as rows of pairs, whole tiles of rows; then values, a panel for each 32 dims. */
static size_t keys_bytes(int dim)
{
	return KV_SEGMENT * row_bytes(dim);
}

INLINE void lay(uint8_t *to, const struct kv_segment *seg, int n, int dim, const bool floats)
{
	uint8_t *panel = to + keys_bytes(dim);
	int first = seg->first, begin = first / BLOCK * BLOCK;

	to += (size_t)begin * row_bytes(dim);
	for (int r = begin; r < (n + DOTS_ROWS - 1) / DOTS_ROWS * DOTS_ROWS; r++) {
		const uint8_t *from = row_at(seg->key, r, dim);

		for (size_t k = 0; k < row_bytes(dim); k += LINE, to += LINE)
			_mm512_store_si512(to, dots_paired(_mm512_loadu_si512(from + k)));
	}
	for (int at = begin; at < n; at += BLOCK)
		for (int j = 0; j < PAIRS; j++) {
			int u = at + dots_upper_of(j), l = at + dots_lower_of(j);
			bool upper_seen = u >= first && u < n, lower_seen = l >= first && l < n;
			const uint8_t *upper = row_at(seg->value, upper_seen ? u : 0, dim),
				      *lower = row_at(seg->value, lower_seen ? l : 0, dim);

			for (int k = 0; k < dim; k += BLOCK, upper += LINE, lower += LINE) {
				uint8_t *block = panel + (size_t)(k / BLOCK) * panel_bytes(KV_SEGMENT, floats) +
				                 panel_bytes(at, floats);
				__m512i pair[2];

				values_paired(pair, upper_seen ? _mm512_loadu_si512(upper) : _mm512_setzero_si512(),
				              lower_seen ? _mm512_loadu_si512(lower) : _mm512_setzero_si512());
				dots_panel_store(block, WIDE, j, pair[0], floats);
				dots_panel_store(block + LINE, WIDE, j, pair[1], floats);
			}
		}
}

/* ---- many queries ---- */

/* The first position of the block in which the segment begins. */
static int begin_of(const struct kv_segment *seg)
{
	return seg->first / BLOCK * BLOCK;
}

/* Scores of positions below n. */
INLINE void many_scores(struct kv_work *k, const struct kv_attend *a, int n, int dim, struct kv_ask *next, const int V,
                        const bool floats)
{
	int begin = begin_of(a->seg);
	struct dots d = { .out = k->s[0] + begin * KV_LANES,
		          .ld = KV_LANES,
		          .beside = KV_SCORES,
		          .panel = a->queries,
		          .step = WIDE,
		          .vector = LINE,
		          .x = a->laid + (size_t)begin * row_bytes(dim),
		          .row = row_bytes(dim),
		          .block = LINE,
		          .n = dim / BLOCK,
		          .mask = { 0xffff, 0xffff } };
	int tiles = (n - begin + DOTS_ROWS - 1) / DOTS_ROWS, lines = kv_ask_share(next, tiles);

	for (int i = 0; i < tiles; i++, d.out += DOTS_ROWS * KV_LANES, d.x += DOTS_ROWS * d.row) {
		kv_ask(next, lines);
		dots_tile(&d, true, DOTS_ROWS, V, floats);
	}
}

/* Blocks of positions below n. */
INLINE void many_mix(const struct kv_attend *a, const struct kv_work *k, int n, int dim, const bool floats)
{
	int begin = begin_of(a->seg), first = begin / BLOCK;
	struct dots d = { .ld = (size_t)dim,
		          .beside = KV_LANES,
		          .panel = a->laid + keys_bytes(dim) + panel_bytes(begin, floats),
		          .step = WIDE,
		          .vector = LINE,
		          .row = LINE,
		          .block = KV_LANES * LINE,
		          .n = n - first,
		          .mask = { 0xffff, 0xffff } };

	for (int i = 0; i < dim; i += BLOCK, d.panel += panel_bytes(KV_SEGMENT, floats))
		for (int q = 0; q < a->n; q += DOTS_ROWS) {
			d.out = a->acc + (size_t)q * (size_t)dim + i;
			d.x = k->w[q / KV_LANES] + (size_t)(first * KV_LANES + q % KV_LANES) * LINE;
			dots_tile(&d, true, DOTS_ROWS, 2, floats);
		}
}

/* ---- few queries ---- */

/* R queries' scores of positions below n, the others' 0. */
INLINE void few_scores(float *s, const struct kv_attend *a, int n, int dim, struct kv_ask *next, const int R,
                       const bool floats)
{
	size_t row = few_bytes(dim, floats);

	s += begin_of(a->seg) * KV_LANES;
	for (int i = begin_of(a->seg); i < n; i += TURNED, s += TURNED * KV_LANES) {
		const uint8_t *x = a->queries, *key = a->seg->key[i / KV_RUN];
		__m512 acc[FEW];
		__m512i t[TURNED];

#pragma GCC unroll 8
		for (int r = 0; r < R; r++)
			acc[r] = _mm512_setzero_ps();
		for (int k = 0; k < dim; k += BLOCK, x += few_bytes(BLOCK, floats), key += LINE) {
#pragma GCC unroll 16
			for (int j = 0; j < TURNED; j++)
				t[j] = dots_paired(_mm512_loadu_si512(key + (size_t)j * row_bytes(dim)));
			kv_ask(next, TURNED);
			transpose16(t);
			if (floats)
				dots_turned_floats(acc, t, (const float *)(const void *)x, row / sizeof(float), R);
			else
				dots_turned(acc, t, x, row, R);
		}
#pragma GCC unroll 16
		for (int r = 0; r < TURNED; r++)
			t[r] = r < R ? _mm512_castps_si512(acc[r < FEW ? r : 0]) : _mm512_setzero_si512();
		transpose16(t);
#pragma GCC unroll 16
		for (int j = 0; j < TURNED; j++)
			_mm512_store_ps(s + j * KV_LANES, _mm512_castsi512_ps(t[j]));
	}
}

/* A block of values, from position `at` on, of which those of [seg->first, n) are read, for DOTS_ROWS queries. */
INLINE void few_block(float *acc, const uint8_t *w, const struct kv_segment *seg, int at, int n, int dim,
                      struct kv_ask *next, const bool whole)
{
	for (int k = 0; k < dim; k += BLOCK) {
		__m512 sum[2][DOTS_ROWS][2];

#pragma GCC unroll 4
		for (int r = 0; r < DOTS_ROWS; r++)
			sum[0][r][0] = sum[0][r][1] = sum[1][r][0] = sum[1][r][1] = _mm512_setzero_ps();
		if (next)
			kv_ask(next, BLOCK);
#pragma GCC unroll 16
		for (int j = 0; j < PAIRS; j++) {
			int u = at + dots_upper_of(j), l = at + dots_lower_of(j), first = seg->first;
			__m512i pair[2];

			values_paired(pair,
			              whole || (u >= first && u < n) ?
			                      _mm512_loadu_si512(row_at(seg->value, u, dim) + 2 * k) :
			                      _mm512_setzero_si512(),
			              whole || (l >= first && l < n) ?
			                      _mm512_loadu_si512(row_at(seg->value, l, dim) + 2 * k) :
			                      _mm512_setzero_si512());
#pragma GCC unroll 4
			for (int r = 0; r < DOTS_ROWS; r++) {
				__m512i weights = _mm512_set1_epi32(
					*(const int32_t *)(const void *)(w + r * LINE + 4 * j));

				__asm__("" : "+v"(weights));
				sum[j % 2][r][0] = _mm512_dpbf16_ps(sum[j % 2][r][0], (__m512bh)pair[0],
				                                    (__m512bh)weights);
				sum[j % 2][r][1] = _mm512_dpbf16_ps(sum[j % 2][r][1], (__m512bh)pair[1],
				                                    (__m512bh)weights);
			}
		}
#pragma GCC unroll 4
		for (int r = 0; r < DOTS_ROWS; r++)
#pragma GCC unroll 2
			for (int v = 0; v < 2; v++) {
				float *to = acc + (size_t)r * (size_t)dim + k + 16 * v;

				_mm512_store_ps(to, _mm512_add_ps(_mm512_load_ps(to),
				                                  _mm512_add_ps(sum[0][r][v], sum[1][r][v])));
			}
	}
}

/* A value's 32 dims times a weight of each query, the steps of one half of a pair. */
INLINE void few_row(__m512 sum[DOTS_ROWS][2], __m512i value, const float *w)
{
	__m512 even = dots_lower(value), odd = dots_upper(value);

#pragma GCC unroll 4
	for (int r = 0; r < DOTS_ROWS; r++) {
		__m512 weight = _mm512_set1_ps(w[r * BLOCK]);

		__asm__("" : "+v"(weight));
		sum[r][0] = _mm512_fmadd_ps(even, weight, sum[r][0]);
		sum[r][1] = _mm512_fmadd_ps(odd, weight, sum[r][1]);
	}
}

/* few_block by multiply-adds: sums are of even dims and of odd ones, so that a value's line is not transposed. */
INLINE void few_block_floats(float *acc, const uint8_t *w, const struct kv_segment *seg, int at, int n, int dim,
                             struct kv_ask *next, const bool whole)
{
	const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
		      high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
	float f[DOTS_ROWS * BLOCK] __attribute__((aligned(64)));

	for (int r = 0; r < DOTS_ROWS; r++)
		dots_halves_store(f + r * BLOCK, _mm512_load_si512(w + r * LINE));
	for (int k = 0; k < dim; k += BLOCK) {
		__m512 sum[2][DOTS_ROWS][2];

#pragma GCC unroll 4
		for (int r = 0; r < DOTS_ROWS; r++)
			sum[0][r][0] = sum[0][r][1] = sum[1][r][0] = sum[1][r][1] = _mm512_setzero_ps();
		if (next)
			kv_ask(next, BLOCK);
#pragma GCC unroll 16
		for (int j = 0; j < PAIRS; j++)
#pragma GCC unroll 2
			for (int half = 0; half < 2; half++) {
				int i = at + (half ? dots_lower_of(j) : dots_upper_of(j));

				few_row(sum[j % 2],
				        whole || (i >= seg->first && i < n) ?
				                _mm512_loadu_si512(row_at(seg->value, i, dim) + 2 * k) :
				                _mm512_setzero_si512(),
				        f + half * PAIRS + j);
			}
#pragma GCC unroll 4
		for (int r = 0; r < DOTS_ROWS; r++) {
			__m512 even = _mm512_add_ps(sum[0][r][0], sum[1][r][0]),
			       odd = _mm512_add_ps(sum[0][r][1], sum[1][r][1]);
			float *to = acc + (size_t)r * (size_t)dim + k;

			_mm512_store_ps(to, _mm512_add_ps(_mm512_load_ps(to), _mm512_permutex2var_ps(even, low, odd)));
			_mm512_store_ps(to + 16, _mm512_add_ps(_mm512_load_ps(to + 16),
			                                       _mm512_permutex2var_ps(even, high, odd)));
		}
	}
}

INLINE void few_mix(const struct kv_attend *a, const struct kv_work *k, int n, int dim, struct kv_ask *next,
                    const bool floats)
{
	int blocks = (n + BLOCK - 1) / BLOCK;

	memset(a->acc, 0, (size_t)((a->n + DOTS_ROWS - 1) / DOTS_ROWS * DOTS_ROWS) * (size_t)dim * sizeof(float));
	for (int b = begin_of(a->seg) / BLOCK; b < blocks; b++)
		for (int q = 0; q < a->n; q += DOTS_ROWS) {
			float *acc = a->acc + (size_t)q * (size_t)dim;
			const uint8_t *w = k->w[0] + (size_t)b * KV_LANES * LINE + (size_t)q * LINE;
			bool whole = (b + 1) * BLOCK <= n && b * BLOCK >= a->seg->first;

			if (floats && whole)
				few_block_floats(acc, w, a->seg, b * BLOCK, n, dim, q ? NULL : next, true);
			else if (floats)
				few_block_floats(acc, w, a->seg, b * BLOCK, n, dim, q ? NULL : next, false);
			else if (whole)
				few_block(acc, w, a->seg, b * BLOCK, n, dim, q ? NULL : next, true);
			else
				few_block(acc, w, a->seg, b * BLOCK, n, dim, q ? NULL : next, false);
		}
}

/* ---- all ---- */

typedef void scores_fn(struct kv_work *, const struct kv_attend *, int n, int dim, struct kv_ask *);
typedef void mix_fn(const struct kv_attend *, const struct kv_work *, int n, int dim, struct kv_ask *);

/* Not inlined: MXCSR changes between them. */
#define SCORES(name, call)                                                                                       \
	static __attribute__((noinline)) void name(struct kv_work *k, const struct kv_attend *a, int n, int dim, \
	                                           struct kv_ask *next)                                          \
	{                                                                                                        \
		call;                                                                                            \
	}
#define MIX(name, call)                                                                                                \
	static __attribute__((noinline)) void name(const struct kv_attend *a, const struct kv_work *k, int n, int dim, \
	                                           struct kv_ask *next)                                                \
	{                                                                                                              \
		call;                                                                                                  \
	}
SCORES(scores_few_dot_4, few_scores(k->s[0], a, n, dim, next, 4, false))
SCORES(scores_few_dot_8, few_scores(k->s[0], a, n, dim, next, 8, false))
SCORES(scores_few_floats_4, few_scores(k->s[0], a, n, dim, next, 4, true))
SCORES(scores_few_floats_8, few_scores(k->s[0], a, n, dim, next, 8, true))
SCORES(scores_dot_1, many_scores(k, a, n, dim, next, 1, false))
SCORES(scores_dot_2, many_scores(k, a, n, dim, next, 2, false))
SCORES(scores_floats_1, many_scores(k, a, n, dim, next, 1, true))
SCORES(scores_floats_2, many_scores(k, a, n, dim, next, 2, true))
MIX(mix_few_dot, few_mix(a, k, n, dim, next, false))
MIX(mix_few_floats, few_mix(a, k, n, dim, next, true))
MIX(mix_dot, many_mix(a, k, (n + BLOCK - 1) / BLOCK, dim, false))
MIX(mix_floats, many_mix(a, k, (n + BLOCK - 1) / BLOCK, dim, true))

static void attend(const struct kv_attend *a, int dim, float scale, scores_fn *scores, mix_fn *mix)
{
	struct kv_work *k = a->work;
	int n = a->see[a->n - 1], first = a->seg->first / KV_RUN;
	unsigned mode = _mm_getcsr();
	struct kv_ask next = kv_ask_runs(a->ask, a->n_ask, KV_RUN * row_bytes(dim)),
		      values = kv_ask_runs(a->seg->value + first, (n + KV_RUN - 1) / KV_RUN - first, next.bytes);

	assert(n > a->seg->first && n <= a->seg->n && scale > 0);
	_mm_setcsr(mode | DOTS_ZEROS);
	scores(k, a, n, dim, a->laid ? &next : &values);
	_mm_setcsr(mode);
	for (int t = 0; t * KV_LANES < a->n; t++)
		kv_weights_paired(k->w[t], k->s[t], a->from + KV_LANES * t, a->see + KV_LANES * t,
		                  begin_of(a->seg) / BLOCK, (n + BLOCK - 1) / BLOCK, scale, a->max + KV_LANES * t,
		                  a->sum + KV_LANES * t);
	_mm_setcsr(mode | DOTS_ZEROS);
	mix(a, k, n, dim, &next);
	_mm_setcsr(mode);
}

#define WAY(name, floats)                                                                                            \
	static size_t name##_query_bytes(int dim)                                                                    \
	{                                                                                                            \
		return panel_bytes(dim, floats);                                                                     \
	}                                                                                                            \
	static size_t name##_laid_bytes(int dim)                                                                     \
	{                                                                                                            \
		return keys_bytes(dim) + (size_t)(dim / BLOCK) * panel_bytes(KV_SEGMENT, floats);                    \
	}                                                                                                            \
	static void name##_queries(uint8_t *to, const float *const *q, int n, int dim, bool few)                     \
	{                                                                                                            \
		queries(to, q, n, dim, few, floats);                                                                 \
	}                                                                                                            \
	static void name##_lay(uint8_t *to, const struct kv_segment *seg, int n, int dim)                            \
	{                                                                                                            \
		lay(to, seg, n, dim, floats);                                                                        \
	}                                                                                                            \
	static void name##_attend(const struct kv_attend *a, int dim, float scale)                                   \
	{                                                                                                            \
		if (!a->laid)                                                                                        \
			attend(a, dim, scale, a->n <= 4 ? scores_few_##name##_4 : scores_few_##name##_8,             \
			       mix_few_##name);                                                                      \
		else                                                                                                 \
			attend(a, dim, scale, a->n <= KV_LANES ? scores_##name##_1 : scores_##name##_2, mix_##name); \
	}                                                                                                            \
	const struct kv_tiles kv_tiles_##name = {                                                                    \
		.query_bytes = name##_query_bytes,                                                                   \
		.laid_bytes = name##_laid_bytes,                                                                     \
		.work_bytes = sizeof(struct kv_work),                                                                \
		.few = FEW,                                                                                          \
		.queries = name##_queries,                                                                           \
		.lay = name##_lay,                                                                                   \
		.finite = kv_finite_bf16,                                                                            \
		.attend = name##_attend,                                                                             \
		.merge = kv_merge,                                                                                   \
	};
WAY(dot, false)
WAY(floats, true)
