/* kv_coded.c - cache rows of small codes, compiled once per level.
 *
 * A row is its codes, CHUNK elements at a time, then what they are multiplied by:
 * a scale and a bias per group (affine), or one scale (turned rows, whose codes
 * number the entries of a book).  Attention reads the codes: keys meet an int16
 * query in integers, values pass through registers on their way into the sum.
 *
 * The order of roundings of a score, the same at every level and for any number
 * of queries and rows: lane j of 16 takes the elements whose number mod 64 is
 * 4j .. 4j + 3.  It begins at bias[j] * sum[j], sum being the query's over group j
 * (0: no bias, or no such group), and for each group in rising order
 *     f[j] = fma(scale[group], (float)isum[j], f[j])
 * with isum exact over the lane's elements of the group; then the fixed tree of
 * lanes.h, then times the query's scale.  A turned row is one group. */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "quant/kv/kv_coded.h"
#include "quant/kv/kv_open.h"
#include "quant/lanes/hadamard.h"

enum { Q_MOST = 127 * 128 }; /* of a query's codes: int16 */
enum { MIX_ROWS = 16 };      /* of values: a batch */
_Static_assert((int)KV_CHUNK == (int)KV_PANEL, "a chunk is opened to a panel");

/* ---- the rotation ---- */

static void signs(float *x, int n, const uint16_t *negative, float factor)
{
	for (int i = 0; i < n; i += 16)
		v16_store(x + i, v16_mul(v16_signs(v16_load(x + i), negative[i / 16]), v16_set1(factor)));
}

/* H S2 H S1 / n: one round would leave a vector with one large element on two values. */
static void turn(float *x, int n)
{
	signs(x, n, kv_signs[0], 1.0f);
	hadamard_sums(x, n);
	signs(x, n, kv_signs[1], 1.0f / (float)n); /* a power of two: exact */
	hadamard_sums(x, n);
}

static void turn_back(float *x, int n)
{
	hadamard_sums(x, n);
	signs(x, n, kv_signs[1], 1.0f / (float)n);
	hadamard_sums(x, n);
	signs(x, n, kv_signs[0], 1.0f);
}

/* ---- queries ---- */

/* As score reads it: int16 codes for whole chunks, of each first the even elements and then
 * the odd ones, so that products of neighbours add up by lane; then this. */
struct query {
	float sum[KV_GROUPS_MAX]; /* by group; whole numbers, exact */
	float scale;
};

static size_t codes_bytes(int dim)
{
	return (size_t)kv_chunks(dim) * KV_CHUNK * 2;
}

static size_t query_bytes(int dim)
{
	return (codes_bytes(dim) + sizeof(struct query) + 63) / 64 * 64;
}

LANES_INLINE const struct query *query_head(const void *query, int dim)
{
	return (const void *)((const uint8_t *)query + codes_bytes(dim));
}

/* Elements i .. i + 15 as codes: whole numbers. */
LANES_INLINE v16 query_codes(const float *q, int dim, int i, v16 inv)
{
	v16 v = v16_mul(i + 16 <= dim ? v16_load(q + i) : v16_load_n(q + i, i < dim ? dim - i : 0), inv);

	/* In this order a NaN becomes a number. */
	v = v16_max(v16_min(v, v16_set1((float)Q_MOST)), v16_set1(-(float)Q_MOST));
	return v16_rint(v);
}

LANES_INLINE void query_write(int16_t *to, struct query *head, const float *q, int dim, v16 inv, const int group)
{
	for (int i = 0, n = kv_chunks(dim) * KV_CHUNK; i < n; i += KV_CHUNK, to += KV_CHUNK) {
		float v[KV_CHUNK];

		for (int k = 0; k < KV_CHUNK; k += 16)
			v16_store(v + k, query_codes(q, dim, i + k, inv));
		for (int k = 0; k < KV_CHUNK / 2; k++) {
			to[k] = (int16_t)v[2 * k];
			to[KV_CHUNK / 2 + k] = (int16_t)v[2 * k + 1];
		}
		for (int k = 0; group && k < KV_CHUNK && i + k < dim; k += 16)
			head->sum[(i + k) / (group ? group : 1)] += v16_sum(v16_load(v + k));
	}
}

LANES_INLINE void query_make(void *to, const float *q, int dim, const int group)
{
	struct query head = { 0 };
	v16 most = v16_zero();
	float top;
	int i;

	for (i = 0; i + 16 <= dim; i += 16)
		most = v16_max(v16_abs(v16_load(q + i)), most);
	if (i < dim)
		most = v16_max(v16_abs(v16_load_n(q + i, dim - i)), most);
	top = v16_top(most);
	head.scale = top < 1e-30f ? 0.0f : top / (float)Q_MOST;
	query_write(to, &head, q, dim, v16_set1(top < 1e-30f ? 0.0f : 1.0f / head.scale), group);
	memcpy((uint8_t *)to + codes_bytes(dim), &head, sizeof head);
}

/* ---- scores ---- */

/* Sixteen int32, and a tile of rows by queries whose sums registers hold. */
#if defined(__AVX512F__)
typedef __m512i ints;
enum { SCORE_R = 4, SCORE_Q = 4 };

LANES_INLINE v16 ints_float(ints a)
{
	return _mm512_cvtepi32_ps(a);
}
/* The products of a chunk, by lane; and that added to a. */
LANES_INLINE ints ints_product(const int16_t *code, const int16_t *q)
{
	ints even = _mm512_madd_epi16(_mm512_loadu_si512(code), _mm512_loadu_si512(q));

	return _mm512_dpwssd_epi32(even, _mm512_loadu_si512(code + 32), _mm512_loadu_si512(q + 32));
}
LANES_INLINE ints ints_dot(ints a, const int16_t *code, const int16_t *q)
{
	a = _mm512_dpwssd_epi32(a, _mm512_loadu_si512(code), _mm512_loadu_si512(q));
	return _mm512_dpwssd_epi32(a, _mm512_loadu_si512(code + 32), _mm512_loadu_si512(q + 32));
}
/* x in lanes 0-7, y in the others. */
LANES_INLINE v16 v16_halves(float x, float y)
{
	return _mm512_mask_mov_ps(v16_set1(x), 0xff00, v16_set1(y));
}

#elif defined(__AVX2__)
typedef struct {
	__m256i a, b;
} ints;
enum { SCORE_R = 2, SCORE_Q = 2 };

LANES_INLINE v16 ints_float(ints a)
{
	return (v16){ _mm256_cvtepi32_ps(a.a), _mm256_cvtepi32_ps(a.b) };
}
LANES_INLINE __m256i words_product(const int16_t *code, const int16_t *q)
{
	return _mm256_madd_epi16(_mm256_loadu_si256((const void *)code), _mm256_loadu_si256((const void *)q));
}
LANES_INLINE ints ints_product(const int16_t *code, const int16_t *q)
{
	return (ints){ _mm256_add_epi32(words_product(code, q), words_product(code + 32, q + 32)),
		       _mm256_add_epi32(words_product(code + 16, q + 16), words_product(code + 48, q + 48)) };
}
LANES_INLINE ints ints_dot(ints a, const int16_t *code, const int16_t *q)
{
	ints b = ints_product(code, q);

	return (ints){ _mm256_add_epi32(a.a, b.a), _mm256_add_epi32(a.b, b.b) };
}
LANES_INLINE v16 v16_halves(float x, float y)
{
	return (v16){ _mm256_set1_ps(x), _mm256_set1_ps(y) };
}

#elif defined(LANES_NEON)
typedef struct {
	int32x4_t v[4];
} ints;
enum { SCORE_R = 2, SCORE_Q = 1 };

LANES_INLINE v16 ints_float(ints a)
{
	v16 f;
	LANES_QUADS f.v[i] = vcvtq_f32_s32(a.v[i]);
	return f;
}
/* Products of a pair of elements in each of four lanes. */
LANES_INLINE int32x4_t pairs_product(const int16_t *code, const int16_t *q)
{
	int16x8_t a = vld1q_s16(code), b = vld1q_s16(q);

	return vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b));
}
LANES_INLINE ints ints_product(const int16_t *code, const int16_t *q)
{
	ints r;
	LANES_QUADS r.v[i] = vaddq_s32(pairs_product(code + 8 * i, q + 8 * i),
	                               pairs_product(code + 32 + 8 * i, q + 32 + 8 * i));
	return r;
}
LANES_INLINE ints ints_dot(ints a, const int16_t *code, const int16_t *q)
{
	ints b = ints_product(code, q);

	LANES_QUADS a.v[i] = vaddq_s32(a.v[i], b.v[i]);
	return a;
}
LANES_INLINE v16 v16_halves(float x, float y)
{
	return (v16){ { vdupq_n_f32(x), vdupq_n_f32(x), vdupq_n_f32(y), vdupq_n_f32(y) } };
}

#else
typedef struct {
	int32_t v[16];
} ints;
enum { SCORE_R = 1, SCORE_Q = 1 };

LANES_INLINE v16 ints_float(ints a)
{
	v16 f;
	LANES_EACH f.v[i] = (float)a.v[i];
	return f;
}
LANES_INLINE ints ints_dot(ints a, const int16_t *code, const int16_t *q)
{
	for (int i = 0; i < KV_CHUNK; i++)
		a.v[i % 32 / 2] += code[i] * q[i];
	return a;
}
LANES_INLINE ints ints_product(const int16_t *code, const int16_t *q)
{
	return ints_dot((ints){ { 0 } }, code, q);
}
LANES_INLINE v16 v16_halves(float x, float y)
{
	v16 f;
	LANES_EACH f.v[i] = i < 8 ? x : y;
	return f;
}
#endif

/* Rows whose codes are laid out as those of a query, one after the other. */
struct opened {
	_Alignas(64) int16_t code[SCORE_R * KV_DIM_MAX];
	float scale[SCORE_R][KV_GROUPS_MAX], bias[SCORE_R][KV_GROUPS_MAX];
};

/* Scores of Q queries by R dequantised rows. */
LANES_INLINE void score_tile(float *out, size_t ld, const uint8_t *q, const struct opened *o, int dim, const int R,
                             const int Q, const int group)
{
	const size_t q_bytes = query_bytes(dim);
	const int chunks = kv_chunks(dim), span = group == 0 ? chunks : group > KV_CHUNK ? group / KV_CHUNK : 1;
	v16 f[4][4];

#pragma GCC unroll 4
	for (int r = 0; r < R; r++)
#pragma GCC unroll 4
		for (int j = 0; j < Q; j++)
			f[r][j] = group ? v16_mul(v16_load(o->bias[r]),
			                          v16_load(query_head(q + (size_t)j * q_bytes, dim)->sum)) :
			                  v16_zero();
	for (int c = 0; c < chunks; c += span) {
		ints sum[4][4];
		v16 s[4];

#pragma GCC unroll 4
		for (int r = 0; r < R; r++)
			s[r] = group == 32 ? v16_halves(o->scale[r][2 * c], o->scale[r][2 * c + 1]) :
			                     v16_set1(o->scale[r][group ? c * KV_CHUNK / group : 0]);
#pragma GCC unroll 4
		for (int j = 0; j < Q; j++) {
			const int16_t *from = (const void *)(q + (size_t)j * q_bytes);

#pragma GCC unroll 4
			for (int r = 0; r < R; r++)
				sum[r][j] = ints_product(o->code + (r * chunks + c) * KV_CHUNK, from + c * KV_CHUNK);
			if (group == 128)
#pragma GCC unroll 4
				for (int r = 0; r < R; r++)
					sum[r][j] = ints_dot(sum[r][j], o->code + (r * chunks + c + 1) * KV_CHUNK,
					                     from + (c + 1) * KV_CHUNK);
			if (group)
#pragma GCC unroll 4
				for (int r = 0; r < R; r++)
					f[r][j] = v16_fma(s[r], ints_float(sum[r][j]), f[r][j]);
		}
		/* A rotated row is one group, so all its sums fit at once. */
		for (int b = c + 1; !group && b < chunks; b++)
#pragma GCC unroll 4
			for (int j = 0; j < Q; j++)
#pragma GCC unroll 4
				for (int r = 0; r < R; r++)
					sum[r][j] = ints_dot(sum[r][j], o->code + (r * chunks + b) * KV_CHUNK,
					                     (const int16_t *)(const void *)(q + (size_t)j * q_bytes) +
					                             b * KV_CHUNK);
#pragma GCC unroll 4
		for (int r = 0; r < R; r++)
#pragma GCC unroll 4
			for (int j = 0; j < Q; j++)
				if (!group)
					f[r][j] = v16_fma(s[r], ints_float(sum[r][j]), v16_zero());
	}
#if defined(__AVX512F__)
	if (R == 4 && Q == 4) {
		float all[16]; /* of query j from 4 j on */

		v16_store(all, v16_sums_4x4(f));
#pragma GCC unroll 4
		for (int j = 0; j < 4; j++) {
			__m128 four = _mm_mul_ps(_mm_loadu_ps(all + 4 * (size_t)j),
			                         _mm_set1_ps(query_head(q + (size_t)j * q_bytes, dim)->scale));

			_mm_storeu_ps(out + (size_t)j * ld, four);
		}
		return;
	}
#endif
#pragma GCC unroll 4
	for (int r = 0; r < R; r++)
#pragma GCC unroll 4
		for (int j = 0; j < Q; j++)
			out[(size_t)j * ld + (size_t)r] = query_head(q + (size_t)j * q_bytes, dim)->scale *
			                                  v16_sum(f[r][j]);
}

/* R rows for all queries. */
LANES_INLINE void score_rows(float *out, size_t ld, const uint8_t *q, int nq, const uint8_t *rows, int dim, const int R,
                             const int bits, const int group)
{
	const size_t row_bytes = kv_coded_bytes(bits, group, dim), q_bytes = query_bytes(dim);
	const int chunks = kv_chunks(dim), groups = group ? dim / group : 1, step = KV_CHUNK / 8 * bits;
	struct opened o;
	int j = 0;

	for (int r = 0; r < R; r++, rows += row_bytes) {
		for (int c = 0; c < chunks; c++)
			kv_open_pairs(o.code + (r * chunks + c) * KV_CHUNK, rows + c * step, bits, group == 0);
		kv_scales(o.scale[r], o.bias[r], rows + chunks * step, groups, group == 0);
	}
	for (; j + SCORE_Q <= nq; j += SCORE_Q)
		score_tile(out + (size_t)j * ld, ld, q + (size_t)j * q_bytes, &o, dim, R, SCORE_Q, group);
	for (; j < nq; j++)
		score_tile(out + (size_t)j * ld, ld, q + (size_t)j * q_bytes, &o, dim, R, 1, group);
}

LANES_INLINE void score(float *out, size_t ld, const uint8_t *q, int nq, const uint8_t *rows, int n, int dim,
                        struct kv_ahead *next, const int bits, const int group)
{
	const size_t row_bytes = kv_coded_bytes(bits, group, dim);
	int i = 0;

	for (; i + SCORE_R <= n; i += SCORE_R, rows += SCORE_R * row_bytes) {
		kv_prefetch(next, (int)(SCORE_R * row_bytes + 63) / 64);
		score_rows(out + i, ld, q, nq, rows, dim, SCORE_R, bits, group);
	}
	for (; i < n; i++, rows += row_bytes)
		score_rows(out + i, ld, q, nq, rows, dim, 1, bits, group);
}

/* ---- values ---- */

/* V vectors of 16 elements of a chunk for Q queries; scales of n rows, 16 a row. */
LANES_INLINE void mix_tile(float *acc, size_t acc_ld, const float *p, size_t ld, const uint8_t *rows, size_t row_bytes,
                           const float *scale, const float *bias, int n, const int Q, const int V, const int bits,
                           const int group)
{
	v16 a[4][4];

#pragma GCC unroll 4
	for (int j = 0; j < Q; j++)
#pragma GCC unroll 4
		for (int v = 0; v < V; v++)
			a[j][v] = v16_load(acc + (size_t)j * acc_ld + 16 * v);
	for (int i = 0; i < n; i++, rows += row_bytes, scale += KV_GROUPS_MAX, bias += KV_GROUPS_MAX) {
		v16 b[4];

		kv_values(b, rows, scale, bias, bits, group);
#pragma GCC unroll 4
		for (int j = 0; j < Q; j++) {
			v16 pj = v16_set1(p[(size_t)j * ld + (size_t)i]);

#pragma GCC unroll 4
			for (int v = 0; v < V; v++)
				a[j][v] = v16_fma(pj, b[v], a[j][v]);
		}
	}
#pragma GCC unroll 4
	for (int j = 0; j < Q; j++)
#pragma GCC unroll 4
		for (int v = 0; v < V; v++)
			v16_store(acc + (size_t)j * acc_ld + 16 * v, a[j][v]);
}

/* One chunk of n rows for all queries; V: vectors of it that the head has. */
LANES_INLINE void mix_chunk(float *acc, size_t acc_ld, const float *p, size_t ld, int nq, const uint8_t *rows,
                            size_t row_bytes, const float *scale, const float *bias, int n, const int V, const int bits,
                            const int group)
{
#if defined(__AVX512F__)
	int j = 0;

	for (; j + 4 <= nq; j += 4, acc += 4 * acc_ld, p += 4 * ld)
		mix_tile(acc, acc_ld, p, ld, rows, row_bytes, scale, bias, n, 4, V, bits, group);
	for (; j < nq; j++, acc += acc_ld, p += ld)
		mix_tile(acc, acc_ld, p, ld, rows, row_bytes, scale, bias, n, 1, V, bits, group);
#else
	/* Fewer registers: the batch's values lie in the first cache while each query takes them. */
	float x[MIX_ROWS][KV_CHUNK];

	for (int i = 0; i < n; i++, rows += row_bytes, scale += KV_GROUPS_MAX, bias += KV_GROUPS_MAX) {
		v16 b[4];

		kv_values(b, rows, scale, bias, bits, group);
		for (int v = 0; v < V; v++)
			v16_store(x[i] + 16 * v, b[v]);
	}
	for (int j = 0; j < nq; j++, acc += acc_ld, p += ld) {
		v16 a[4];

#pragma GCC unroll 4
		for (int v = 0; v < V; v++)
			a[v] = v16_load(acc + 16 * v);
		for (int i = 0; i < n; i++) {
			v16 pj = v16_set1(p[i]);

#pragma GCC unroll 4
			for (int v = 0; v < V; v++)
				a[v] = v16_fma(pj, v16_load(x[i] + 16 * v), a[v]);
		}
#pragma GCC unroll 4
		for (int v = 0; v < V; v++)
			v16_store(acc + 16 * v, a[v]);
	}
#endif
}

LANES_INLINE void mix(float *acc, const float *p, size_t ld, int nq, const uint8_t *rows, int n, int dim,
                      struct kv_ahead *next, const int bits, const int group)
{
	const size_t row_bytes = kv_coded_bytes(bits, group, dim), acc_ld = (size_t)dim;
	const int chunks = kv_chunks(dim), groups = group ? dim / group : 1, step = KV_CHUNK / 8 * bits;

	for (int i = 0, m; i < n; i += m, p += m, rows += (size_t)m * row_bytes) {
		float scale[MIX_ROWS * KV_GROUPS_MAX], bias[MIX_ROWS * KV_GROUPS_MAX];

		m = n - i < MIX_ROWS ? n - i : MIX_ROWS;
		for (int r = 0; r < m; r++)
			kv_scales(scale + r * KV_GROUPS_MAX, bias + r * KV_GROUPS_MAX,
			          rows + (size_t)r * row_bytes + (size_t)(chunks * step), groups, group == 0);
		for (int c = 0; c < chunks; c++) {
			int g = group ? c * KV_CHUNK / group : 0;

			kv_prefetch(next, (int)((size_t)m * row_bytes / (size_t)chunks + 63) / 64);
			if (c * KV_CHUNK + KV_CHUNK > dim)
				mix_chunk(acc + c * KV_CHUNK, acc_ld, p, ld, nq, rows + c * step, row_bytes, scale + g,
				          bias + g, m, 2, bits, group);
			else
				mix_chunk(acc + c * KV_CHUNK, acc_ld, p, ld, nq, rows + c * step, row_bytes, scale + g,
				          bias + g, m, 4, bits, group);
		}
	}
}

/* Rows as floats, for many queries. */
LANES_INLINE void open_rows(float *to, const uint8_t *rows, int n, int dim, const int bits, const int group)
{
	const size_t row_bytes = kv_coded_bytes(bits, group, dim);
	const int chunks = kv_chunks(dim), groups = group ? dim / group : 1, step = KV_CHUNK / 8 * bits;

	for (int i = 0; i < n; i++, to += KV_PANEL, rows += row_bytes) {
		float scale[KV_GROUPS_MAX], bias[KV_GROUPS_MAX];

		kv_scales(scale, bias, rows + chunks * step, groups, group == 0);
		for (int c = 0; c < chunks; c++) {
			int g = group ? c * KV_CHUNK / group : 0, left = (dim - c * KV_CHUNK) / 16;
			v16 b[4];

			kv_values(b, rows + c * step, scale + g, bias + g, bits, group);
#pragma GCC unroll 4
			for (int v = 0; v < 4; v++)
				if (v < left)
					v16_store(to + c * KV_PANEL * KV_BLOCK + 16 * v, b[v]);
		}
	}
}

/* ---- writing ---- */

static void pack(uint8_t *row, const uint8_t *code, int chunks, const int bits)
{
	for (int c = 0; c < chunks; c++, code += KV_CHUNK, row += KV_CHUNK * bits / 8) {
		if (bits == 8) {
			memcpy(row, code, KV_CHUNK);
		} else if (bits == 4) {
			for (int i = 0; i < 32; i++)
				row[i] = (uint8_t)(code[i] | code[32 + i] << 4);
		} else {
			for (int i = 0; i < 16; i++)
				row[i] = (uint8_t)((code[i] & 3) | (code[16 + i] & 3) << 2 | (code[32 + i] & 3) << 4 |
				                   (code[48 + i] & 3) << 6);
			for (int b = 0; bits == 3 && b < 8; b++) {
				row[16 + b] = 0;
				for (int i = 0; i < 8; i++)
					row[16 + b] |= (uint8_t)(code[8 * b + i] >> 2 << i);
			}
		}
	}
}

/* How much of a step the ends of a group's range stand out: less than half, so no
 * element is farther from its code, and the steps are smaller (6 % of the squared
 * error at 4 bits). */
#define END 0.3f

/* Per group: bias is the least code's value and scale a step to the greatest's, both
 * rounded so that what lies between is covered; codes are chosen with the rounded ones. */
LANES_INLINE void encode_affine(uint8_t *row, const float *x, int dim, const int bits, const int group)
{
	const float most = (float)((1 << bits) - 1);
	uint8_t code[KV_DIM_MAX] = { 0 }, *scale = row + kv_chunks(dim) * KV_CHUNK * bits / 8;

	for (int g = 0; g < dim / group; g++) {
		const float *v = x + g * group;
		v16 least = v16_set1(FLT_MAX), top = v16_set1(-FLT_MAX);
		float lo, hi, s, b, inv;
		uint16_t hs, hb;

		for (int i = 0; i < group; i += 16) {
			least = v16_min(v16_load(v + i), least);
			top = v16_max(v16_load(v + i), top);
		}
		lo = -v16_top(v16_sub(v16_zero(), least));
		hi = v16_top(top);
		if (!(lo <= hi))
			lo = hi = 0; /* NaN only */
		lo = lo < -65504.0f ? -65504.0f : lo > 65504.0f ? 65504.0f : lo;
		hi = hi < -65504.0f ? -65504.0f : hi > 65504.0f ? 65504.0f : hi;
		s = (hi - lo) / (most + 2 * END);
		lo += END * s;
		hi -= END * s;
		hb = kv_f16_below(lo);
		b = f16_to_float(hb);
		hs = kv_f16_below((b - hi) / most) ^ 0x8000;
		s = f16_to_float(hs);
		inv = s > 0 ? 1.0f / s : 0.0f;
		memcpy(scale + 2 * g, &hs, 2);
		memcpy(scale + 2 * (dim / group + g), &hb, 2);
		for (int i = 0; i < group; i++) {
			float c = (v[i] - b) * inv;

			c = c > 0.0f ? c : 0.0f; /* a NaN too */
			c = c < most ? c : most;
			code[g * group + i] = (uint8_t)((c + 12582912.0f) - 12582912.0f);
		}
	}
	pack(row, code, kv_chunks(dim), bits);
}

/* Turned, set to the length that the book is made for, each element to the nearest
 * entry y.  Keys: a scale with x . decoded x = x . x, so that scores have no bias;
 * values: the scale with the least error. */
LANES_INLINE void encode_turned(uint8_t *row, const float *x, int dim, const int bits, enum kv_side side)
{
	const int8_t *book = kv_book(bits);
	const int entries = 1 << bits;
	uint8_t code[KV_DIM_MAX];
	float v[KV_DIM_MAX], y[KV_DIM_MAX], mid[16], norm, inv, scale = 0;
	v16 a = v16_zero(), xy = v16_zero(), yy = v16_zero();

	memcpy(v, x, (size_t)dim * sizeof *v);
	turn(v, dim);
	for (int i = 0; i < dim; i += 16)
		a = v16_fma(v16_load(v + i), v16_load(v + i), a);
	norm = v16_sum(a);
	inv = norm >= 1e-30f ? sqrtf((float)dim / norm) / kv_book_unit(bits, dim) : 0.0f;
	for (int k = 0; k + 1 < entries; k++)
		mid[k] = 0.5f * (float)(book[k] + book[k + 1]);
	for (int i = 0; i < dim; i++) {
		float t = v[i] * inv, c = 0, e = (float)book[0];

#pragma GCC unroll 16
		for (int k = 0; k + 1 < entries; k++) {
			c = t > mid[k] ? (float)(k + 1) : c;
			e = t > mid[k] ? (float)book[k + 1] : e;
		}
		code[i] = (uint8_t)c;
		y[i] = e;
	}
	for (int i = 0; i < dim; i += 16) {
		xy = v16_fma(v16_load(v + i), v16_load(y + i), xy);
		yy = v16_fma(v16_load(y + i), v16_load(y + i), yy);
	}
	if (norm >= 1e-30f)
		scale = side == KV_KEYS ? norm / v16_sum(xy) : v16_sum(xy) / v16_sum(yy);
	pack(row, code, kv_chunks(dim), bits);
	memcpy(row + kv_chunks(dim) * KV_CHUNK * bits / 8, &scale, sizeof scale);
}

/* ---- the table ---- */

#define KERNELS(name, bits, group)                                                                               \
	static void encode_##name(void *row, const float *x, int dim, enum kv_side side)                         \
	{                                                                                                        \
		if (group)                                                                                       \
			encode_affine(row, x, dim, bits, group);                                                 \
		else                                                                                             \
			encode_turned(row, x, dim, bits, side);                                                  \
	}                                                                                                        \
	static void query_##name(void *to, const float *q, int dim)                                              \
	{                                                                                                        \
		query_make(to, q, dim, group);                                                                   \
	}                                                                                                        \
	static void score_##name(float *out, size_t ld, const void *q, int nq, const void *rows, int n, int dim, \
	                         struct kv_ahead *next)                                                          \
	{                                                                                                        \
		score(out, ld, q, nq, rows, n, dim, next, bits, group);                                          \
	}                                                                                                        \
	static void mix_##name(float *acc, const float *p, size_t ld, int nq, const void *rows, int n, int dim,  \
	                       struct kv_ahead *next)                                                            \
	{                                                                                                        \
		mix(acc, p, ld, nq, rows, n, dim, next, bits, group);                                            \
	}                                                                                                        \
	static void open_##name(float *to, const void *rows, int n, int dim)                                     \
	{                                                                                                        \
		open_rows(to, rows, n, dim, bits, group);                                                        \
	}
KV_CODED(KERNELS)

#define ENTRY(name, bits, group)                 \
	{ .encode = encode_##name,               \
	  .turn = group ? NULL : turn,           \
	  .turn_back = group ? NULL : turn_back, \
	  .query_bytes = query_bytes,            \
	  .query = query_##name,                 \
	  .score = score_##name,                 \
	  .mix = mix_##name,                     \
	  .open = open_##name,                   \
	  .mix_opened = LANES(kv_opened_mix) },
const struct kv_kernels LANES(kv_coded)[] = { KV_CODED(ENTRY) };
