/* kv_amx.c - see kv_tiles.h; in the order that format.h states.
 *
 * Scores: 16 keys, as they lie in the cache, by 32 dims are one operand, pairs of dims of
 * 16 queries the other; so sixteen queries' scores of a key are one vector, and softmax is
 * lane by lane.  Values: their weights, turned to a row a query, are one operand, pairs
 * of positions by 16 dims the other.  Two tiles of either side at a time. */
#include <assert.h>
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "quant/kv_tiles.h"
#include "quant/levels.h"
#include "quant/tile_config.h"
#include "quant/transpose512.h"

#define INLINE static inline __attribute__((always_inline))

enum {
	T_BYTES = 64, T_SIZE = 1024,            /* of a tile: from row to row, and all */
	BLOCK = 32,                             /* dims or positions that an instruction sums */
	BLOCKS = KV_SEGMENT / BLOCK,
	SCORES = KV_SEGMENT * 16,               /* floats of a tile of queries */
};

static size_t query_bytes(int dim) { return (size_t)dim / BLOCK * 2 * T_SIZE; }
static size_t pairs_bytes(int dim) { return (size_t)dim / 16 * BLOCKS * T_SIZE; }

/* ---- queries and values as operands ---- */

/* [2 tiles][dim / 32][16 pairs of dims][16 queries][2] */
static void queries(uint8_t *to, const float *const *q, int n, int dim)
{
	for (int j = 0; j < KV_QUERIES; j += 16)
		for (int k = 0; k < dim; k += BLOCK, to += T_SIZE) {
			__m512i t[16];

			for (int r = 0; r < 16; r++)
				t[r] = j + r < n ? (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(q[j + r] + k + 16), _mm512_loadu_ps(q[j + r] + k)) :
				                   _mm512_setzero_si512();
			transpose16(t);
			for (int i = 0; i < 16; i++)
				_mm512_store_si512(to + i * T_BYTES, t[i]);
		}
}

/* [dim / 32][blocks of 32 positions][2][16 pairs of positions][16 dims][2].  Rows are read in
 * rising order; tiles of a block lie close enough for their lines to stay in the first cache. */
static void values(uint8_t *to, const struct kv_segment *seg, int n, int dim)
{
	enum { AHEAD = 4096 };  /* bytes */
	const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
	size_t step = (size_t)dim * 2;

	for (int at = 0; at < n; at += BLOCK)
		for (int i = 0; i < 16; i++) {
			int r = at + 2 * i;
			const uint8_t *a = seg->value[r < n ? r / KV_RUN : 0] + (size_t)(r % KV_RUN) * step, *b = a + step;
			uint8_t *p = to + (size_t)(at / BLOCK) * 2 * T_SIZE + i * T_BYTES;

			for (int k = 0; k < dim; k += BLOCK, a += T_BYTES, b += T_BYTES, p += BLOCKS * 2 * T_SIZE) {
				__m512i x = r < n ? _mm512_loadu_si512(a) : _mm512_setzero_si512();
				__m512i y = r + 1 < n ? _mm512_loadu_si512(b) : _mm512_setzero_si512();

				_mm_prefetch((const char *)a + AHEAD, _MM_HINT_T0);
				_mm_prefetch((const char *)b + AHEAD, _MM_HINT_T0);
				x = _mm512_permutexvar_epi64(order, x);
				y = _mm512_permutexvar_epi64(order, y);
				_mm512_store_si512(p, _mm512_unpacklo_epi16(x, y));
				_mm512_store_si512(p + T_SIZE, _mm512_unpackhi_epi16(x, y));
			}
		}
}

static bool all_finite(const struct kv_segment *seg, int from, int to, int dim)
{
	const __m512i magnitude = _mm512_set1_epi16(0x7fff), infinity = _mm512_set1_epi16(0x7f80);
	__m512i top = _mm512_setzero_si512();
	size_t step = (size_t)dim * 2;

	for (int r = from; r < to; r++) {
		const uint8_t *p = seg->value[r / KV_RUN] + (size_t)(r % KV_RUN) * step;

		for (size_t i = 0; i < step; i += T_BYTES)
			top = _mm512_max_epu16(top, _mm512_and_si512(_mm512_loadu_si512(p + i), magnitude));
	}
	return !_mm512_cmpge_epu16_mask(top, infinity);
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

/* Asks for one of the BLOCKS * dim / 32 parts of a->ask. */
INLINE void ask_part(const struct kv_attend *a, size_t run_bytes, size_t part)
{
	size_t bytes = (size_t)a->n_ask * KV_RUN * BLOCK * 2 / BLOCKS, at = part * bytes;
	const uint8_t *p = a->ask[at / run_bytes] + at % run_bytes;

	for (size_t i = 0; i < bytes; i += 64)
		_mm_prefetch((const char *)p + i, _MM_HINT_T1);
}

/* s: [tiles][KV_SEGMENT positions][16 queries] of n blocks of positions. */
INLINE void scores_run(float *s, const struct kv_attend *a, int n, int dim, const bool two, const bool fresh)
{
	size_t step = (size_t)dim * 2, far = query_bytes(dim) / 2;
	int last = (a->seg->n - 1) / KV_RUN;

	for (int i = 0; i < n; i++, s += BLOCK * 16) {
		const uint8_t *q = a->queries, *key[2], *next[2];

		for (int h = 0; h < 2; h++) {
			int run = 2 * i + h, then = run + 2;

			key[h] = a->seg->key[run <= last ? run : last];
			next[h] = then <= last ? a->seg->key[then] : a->seg->value[h <= last ? h : 0];
		}
		__asm__ volatile("" : : : "memory");       /* gcc 12's loads do not say that they read */
		sums_zero();
#pragma GCC unroll 2
		for (int k = 0; k < dim / BLOCK; k++, q += T_SIZE) {
			if (fresh)
				ahead(next, step, (size_t)k * 32 * 64);
			else if (a->n_ask)
				ask_part(a, KV_RUN * step, (size_t)(i * (dim / BLOCK) + k));
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
		sums_store(s, s + SCORES, 16 * 16, T_BYTES, two);
		__asm__ volatile("" : : : "memory");
	}
}

/* ---- weights ---- */

/* 2^x for x <= 0: x = k + r, k whole, a polynomial of r (relative error 1e-7, 2^0 = 1
 * exactly), and k added to its exponent.  Below -126 something below 2^-125, at -127 and
 * below 0.  A NaN stays one: it has no bits where k is taken from. */
INLINE __m512 exp2_down(__m512 x)
{
	const __m512 magic = _mm512_set1_ps(12582912.0f);       /* 1.5 * 2^23: below it floats have no fraction left */
	__m512 t, r, p;

	x = _mm512_max_ps(_mm512_set1_ps(-127.0f), x);
	t = _mm512_add_ps(x, magic);
	r = _mm512_sub_ps(x, _mm512_sub_ps(t, magic));
	p = _mm512_set1_ps(0x1.5bba18p-10f);
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.3cea8cp-7f));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.c6b752p-5f));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.ebf9bcp-3f));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.62e42ap-1f));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
	return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(t), 23)));
}

INLINE __m512 binary(float scale) { return _mm512_set1_ps(scale * 0x1.715476p+0f); }

/* Scores of n blocks of positions to weights: w [n][16 queries][32 positions]. */
static void weights(uint8_t *w, float *s, const int32_t *see, int n, float scale, float *max, float *sum)
{
	const __m512i pairs = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5,
	                                       20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
	const __m512 none = _mm512_set1_ps(-INFINITY), c = binary(scale);
	__m512i sees = _mm512_loadu_si512(see);
	int least = _mm512_reduce_min_epi32(sees);
	__m512 top[4] = { none, none, none, none }, even = _mm512_setzero_ps(), odd = even;

	for (int i = least > 0 ? least : 0; i < n * BLOCK; i++)
		_mm512_mask_store_ps(s + i * 16, _mm512_cmple_epi32_mask(sees, _mm512_set1_epi32(i)), none);
	for (int i = 0; i < n * BLOCK; i += 4)
#pragma GCC unroll 4
		for (int j = 0; j < 4; j++)
			top[j] = _mm512_max_ps(_mm512_load_ps(s + (i + j) * 16), top[j]);
	top[0] = _mm512_max_ps(_mm512_max_ps(top[0], top[1]), _mm512_max_ps(top[2], top[3]));
	_mm512_store_ps(max, top[0]);
	for (int b = 0; b < n; b++, s += BLOCK * 16, w += T_SIZE) {
		__m512i t[16];

#pragma GCC unroll 16
		for (int i = 0; i < 16; i++) {
			__m512 x = _mm512_load_ps(s + 2 * i * 16), y = _mm512_load_ps(s + (2 * i + 1) * 16);

			x = exp2_down(_mm512_mul_ps(_mm512_sub_ps(x, top[0]), c));
			y = exp2_down(_mm512_mul_ps(_mm512_sub_ps(y, top[0]), c));
			t[i] = _mm512_permutexvar_epi16(pairs, (__m512i)_mm512_cvtne2ps_pbh(y, x));
			even = _mm512_add_ps(even, _mm512_castsi512_ps(_mm512_slli_epi32(t[i], 16)));
			odd = _mm512_add_ps(odd, _mm512_castsi512_ps(_mm512_and_si512(t[i], _mm512_set1_epi32((int)0xffff0000))));
		}
		transpose16(t);
#pragma GCC unroll 16
		for (int i = 0; i < 16; i++)
			_mm512_store_si512(w + i * T_BYTES, t[i]);
	}
	_mm512_store_ps(sum, _mm512_add_ps(even, odd));
}

/* ---- weights times values ---- */

INLINE void mix_run(const struct kv_attend *a, const uint8_t *w, int n, int dim, const bool two)
{
	size_t step = (size_t)dim * sizeof(float), far = BLOCKS * T_SIZE;

	__asm__ volatile("" : : : "memory");
	for (int d = 0; d < dim; d += 32) {
		const uint8_t *v = a->pairs + (size_t)d / 32 * BLOCKS * 2 * T_SIZE, *p = w;
		float *to = a->acc + d;

		sums_zero();
#pragma GCC unroll 4
		for (int b = 0; b < n; b++, v += 2 * T_SIZE, p += T_SIZE) {
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

struct work {
	float s[2][SCORES];
	uint8_t w[2][BLOCKS * T_SIZE];
};

static void attend(const struct kv_attend *a, int dim, float scale)
{
	struct work *k = a->work;
	int n = (a->see[a->n - 1] + BLOCK - 1) / BLOCK;
	bool two = a->n > 16;

	assert(n > 0 && n <= BLOCKS && a->see[a->n - 1] <= a->seg->n && scale > 0);
	tile_config_whole();
	if (two && a->fresh)
		scores_run(k->s[0], a, n, dim, true, true);
	else if (two)
		scores_run(k->s[0], a, n, dim, true, false);
	else
		scores_run(k->s[0], a, n, dim, false, true);
	for (int t = 0; t <= two; t++)
		weights(k->w[t], k->s[t], a->see + 16 * t, n, scale, a->max + 16 * t, a->sum + 16 * t);
	if (two)
		mix_run(a, k->w[0], n, dim, true);
	else
		mix_run(a, k->w[0], n, dim, false);
	_tile_release();
}

static void merge(float *all, float *max, float *sum, const float *acc, const float *m, const float *l, int n, int dim,
                  float scale)
{
	const __m512 c = binary(scale);

	for (; n > 0; n -= 16, max += 16, sum += 16, m += 16, l += 16) {
		__mmask16 mask = (__mmask16)(n >= 16 ? 0xffff : (1u << n) - 1);
		__m512 old = _mm512_maskz_loadu_ps(mask, max), new = _mm512_maskz_loadu_ps(mask, m), top = _mm512_max_ps(new, old);
		__m512 f = exp2_down(_mm512_mul_ps(_mm512_sub_ps(old, top), c)), g = exp2_down(_mm512_mul_ps(_mm512_sub_ps(new, top), c));
		float fs[16], gs[16];

		_mm512_storeu_ps(fs, f);
		_mm512_storeu_ps(gs, g);
		_mm512_mask_storeu_ps(max, mask, top);
		_mm512_mask_storeu_ps(sum, mask, _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, l), g,
		                                                 _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, sum), f)));
		for (int j = 0; j < 16 && j < n; j++) {
			__m512 x = _mm512_set1_ps(fs[j]), y = _mm512_set1_ps(gs[j]);

			for (int i = 0; i < dim; i += 16, all += 16, acc += 16)
				_mm512_storeu_ps(all, _mm512_fmadd_ps(_mm512_loadu_ps(acc), y, _mm512_mul_ps(_mm512_loadu_ps(all), x)));
		}
	}
}

const struct kv_tiles kv_tiles_amx = {
	.query_bytes = query_bytes, .pairs_bytes = pairs_bytes, .work_bytes = sizeof(struct work),
	.queries = queries, .values = values, .finite = all_finite, .attend = attend, .merge = merge,
};
