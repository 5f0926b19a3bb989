/* kv_amx.c - see kv_tiles.h; in the order that format.h states.
 *
 * Scores: 16 keys, as they lie in the cache, by 32 dims are one operand, pairs of dims of
 * 16 queries the other; so sixteen queries' scores of a key are one vector, and softmax is
 * lane by lane.  Values: their weights, turned to a row a query, are one operand, pairs
 * of positions by 16 dims the other.  Two tiles of either side at a time. */
#include <assert.h>
#include <immintrin.h>
#include <string.h>

#include "quant/kv/kv_ask.h"
#include "quant/kv/kv_softmax512.h"
#include "quant/lanes/tile_config.h"
#include "quant/lanes/transpose512.h"

#define INLINE static inline __attribute__((always_inline))

enum {
	T_BYTES = 64,
	T_SIZE = 1024,     /* of a tile: from row to row, and all */
	BLOCK = KV_SUMMED, /* dims or positions that an instruction sums */
};

static size_t query_bytes(int dim)
{
	return (size_t)dim / BLOCK * 2 * T_SIZE;
}
static size_t laid_bytes(int dim)
{
	return (size_t)dim / 16 * KV_BLOCKS * T_SIZE;
}

/* ---- queries and values as operands ---- */

/* [2 tiles][dim / 32][16 pairs of dims][16 queries][2] */
static void queries(uint8_t *to, const float *const *q, int n, int dim, bool few)
{
	(void)few;
	for (int j = 0; j < KV_QUERIES; j += 16)
		for (int k = 0; k < dim; k += BLOCK, to += T_SIZE) {
			__m512i t[16];

			for (int r = 0; r < 16; r++)
				t[r] = j + r < n ? (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(q[j + r] + k + 16),
				                                                _mm512_loadu_ps(q[j + r] + k)) :
				                   _mm512_setzero_si512();
			transpose16(t);
			for (int i = 0; i < 16; i++)
				_mm512_store_si512(to + i * T_BYTES, t[i]);
		}
}

/* [dim / 32][blocks of 32 positions][2][16 pairs of positions][16 dims][2].  Rows are read in
 * rising order; tiles of a block lie close enough for their lines to stay in the first cache. */
INLINE void lay_asking(uint8_t *to, const struct kv_segment *seg, int n, int dim, struct kv_ask *next)
{
	enum { AHEAD = 4096 }; /* bytes */
	const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
	size_t step = (size_t)dim * 2;

	for (int at = seg->first / BLOCK * BLOCK; at < n; at += BLOCK)
		for (int i = 0; i < 16; i++) {
			int r = at + 2 * i;
			bool seen[2] = { r >= seg->first && r < n, r + 1 >= seg->first && r + 1 < n };
			const uint8_t *a = seg->value[r < n ? r / KV_RUN : 0] + (size_t)(r % KV_RUN) * step,
				      *b = a + step;
			uint8_t *p = to + (size_t)(at / BLOCK) * 2 * T_SIZE + i * T_BYTES;

			for (int k = 0; k < dim; k += BLOCK, a += T_BYTES, b += T_BYTES, p += KV_BLOCKS * 2 * T_SIZE) {
				__m512i x = seen[0] ? _mm512_loadu_si512(a) : _mm512_setzero_si512();
				__m512i y = seen[1] ? _mm512_loadu_si512(b) : _mm512_setzero_si512();

				if (next) { /* half of it; the last product takes the rest */
					kv_ask(next, k % (2 * BLOCK) ? 2 : 0);
				} else {
					_mm_prefetch((const char *)a + AHEAD, _MM_HINT_T0);
					_mm_prefetch((const char *)b + AHEAD, _MM_HINT_T0);
				}
				x = _mm512_permutexvar_epi64(order, x);
				y = _mm512_permutexvar_epi64(order, y);
				_mm512_store_si512(p, _mm512_unpacklo_epi16(x, y));
				_mm512_store_si512(p + T_SIZE, _mm512_unpackhi_epi16(x, y));
			}
		}
}

static void lay(uint8_t *to, const struct kv_segment *seg, int n, int dim)
{
	lay_asking(to, seg, n, dim, NULL);
}

/* ---- registers 0 to 3: sums, two of the first 16 queries and two of the others ---- */

INLINE void sums_zero(void)
{
	_tile_zero(0);
	_tile_zero(1);
	_tile_zero(2);
	_tile_zero(3);
}

/* The second of a pair lies `beside` floats on; rows are `step` bytes apart. */
INLINE void sums_store(float *first, float *others, size_t beside, size_t step, const bool two)
{
	_tile_stored(0, first, step);
	_tile_stored(1, first + beside, step);
	if (two) {
		_tile_stored(2, others, step);
		_tile_stored(3, others + beside, step);
	}
}

/* ---- scores ---- */

/* Asks for a part of the 32 keys after these, in rising order of memory. */
INLINE void ahead(const uint8_t *const next[2], size_t step, size_t at)
{
	const uint8_t *p = at < KV_RUN * step ? next[0] + at : next[1] + (at - KV_RUN * step);

#pragma GCC unroll 32
	for (int i = 0; i < 32; i++)
		_mm_prefetch((const char *)p + i * 64, _MM_HINT_T0);
}

/* s: [tiles][KV_SEGMENT positions][16 queries] of n blocks of positions. */
INLINE void scores_run(float *s, const struct kv_attend *a, int n, int dim, struct kv_ask *next_rows, const bool two,
                       const bool fresh)
{
	size_t step = (size_t)dim * 2, far = query_bytes(dim) / 2;
	int last = (a->seg->n - 1) / KV_RUN, first = a->seg->first / BLOCK,
	    lines = kv_ask_share(next_rows, (n - first) * (dim / BLOCK));

	s += first * BLOCK * 16;
	for (int i = first; i < n; i++, s += BLOCK * 16) {
		const uint8_t *q = a->queries, *key[2], *next[2];

		for (int h = 0; h < 2; h++) {
			int run = 2 * i + h, then = run + 2;

			key[h] = a->seg->key[run <= last ? run : last];
			next[h] = then <= last ? a->seg->key[then] : a->seg->value[h <= last ? h : 0];
		}
		__asm__ volatile("" : : : "memory"); /* gcc 12's loads do not say that they read */
		sums_zero();
#pragma GCC unroll 2
		for (int k = 0; k < dim / BLOCK; k++, q += T_SIZE) {
			if (fresh)
				ahead(next, step, (size_t)k * 32 * 64);
			else
				kv_ask(next_rows, lines);
			_tile_loadd(4, key[0] + k * T_BYTES, step);
			_tile_loadd(6, q, T_BYTES);
			_tile_dpbf16ps(0, 4, 6);
			_tile_loadd(5, key[1] + k * T_BYTES, step);
			_tile_dpbf16ps(1, 5, 6);
			if (two) {
				_tile_loadd(7, q + far, T_BYTES);
				_tile_dpbf16ps(2, 4, 7);
				_tile_dpbf16ps(3, 5, 7);
			}
		}
		sums_store(s, s + KV_SCORES, 16 * 16, T_BYTES, two);
		__asm__ volatile("" : : : "memory");
	}
}

/* ---- weights times values ---- */

INLINE void mix_run(const struct kv_attend *a, const uint8_t *w, int n, int dim, struct kv_ask *next, const bool two)
{
	size_t step = (size_t)dim * sizeof(float), far = KV_BLOCKS * T_SIZE;
	int first = a->seg->first / BLOCK;

	__asm__ volatile("" : : : "memory");
	for (int d = 0; d < dim; d += 32) {
		const uint8_t *v = (a->laid ? a->laid : a->room) +
		                   ((size_t)d / 32 * KV_BLOCKS + (size_t)first) * 2 * T_SIZE;
		const uint8_t *p = w + (size_t)first * T_SIZE;
		float *to = a->acc + d;

		sums_zero();
#pragma GCC unroll 4
		for (int b = first; b < n; b++, v += 2 * T_SIZE, p += T_SIZE) {
			if (next)
				kv_ask(next, 16);
			_tile_loadd(6, v, T_BYTES);
			_tile_loadd(4, p, T_BYTES);
			_tile_dpbf16ps(0, 4, 6);
			_tile_loadd(7, v + T_SIZE, T_BYTES);
			_tile_dpbf16ps(1, 4, 7);
			if (two) {
				_tile_loadd(5, p + far, T_BYTES);
				_tile_dpbf16ps(2, 5, 6);
				_tile_dpbf16ps(3, 5, 7);
			}
		}
		sums_store(to, to + 16 * dim, 16, step, two);
	}
	__asm__ volatile("" : : : "memory");
}

static void attend(const struct kv_attend *a, int dim, float scale)
{
	struct kv_work *k = a->work;
	int n = (a->see[a->n - 1] + BLOCK - 1) / BLOCK, first = a->seg->first / KV_RUN;
	bool two = a->n > 16;
	struct kv_ask next = kv_ask_runs(a->ask, a->n_ask, KV_RUN * (size_t)dim * 2),
		      values = kv_ask_runs(a->seg->value + first, (a->seg->n + KV_RUN - 1) / KV_RUN - first,
	                                   next.bytes);

	assert(n > a->seg->first / BLOCK && n <= KV_BLOCKS && a->see[a->n - 1] <= a->seg->n && scale > 0);
	tile_config_whole();
	if (!a->laid)
		scores_run(k->s[0], a, n, dim, &values, false, false);
	else if (two && a->fresh)
		scores_run(k->s[0], a, n, dim, &next, true, true);
	else if (two)
		scores_run(k->s[0], a, n, dim, &next, true, false);
	else if (a->fresh)
		scores_run(k->s[0], a, n, dim, &next, false, true);
	else
		scores_run(k->s[0], a, n, dim, &next, false, false);
	for (int t = 0; t <= two; t++)
		kv_weights(k->w[t], k->s[t], a->from + 16 * t, a->see + 16 * t, a->seg->first / BLOCK, n, scale,
		           a->max + 16 * t, a->sum + 16 * t);
	if (!a->laid)
		lay_asking(a->room, a->seg, a->see[a->n - 1], dim, &next);
	if (!a->laid)
		mix_run(a, k->w[0], n, dim, &next, false);
	else if (two)
		mix_run(a, k->w[0], n, dim, NULL, true);
	else
		mix_run(a, k->w[0], n, dim, NULL, false);
	_tile_release();
}

const struct kv_tiles kv_tiles_amx = {
	.query_bytes = query_bytes,
	.laid_bytes = laid_bytes,
	.work_bytes = sizeof(struct kv_work),
	.few = 16,
	.queries = queries,
	.lay = lay,
	.finite = kv_finite_bf16,
	.attend = attend,
	.merge = kv_merge,
};
