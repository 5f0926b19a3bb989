/* kv_panels.c - sums over cache rows that were opened as floats, for many queries,
 * compiled once per level.
 *
 * The layout is that of format.h: rows of a panel lie one after the other, so that a tile
 * of queries and rows finds all of it in the first cache, whatever the size of a head.
 * The orders are those of plain rows: scores by 16 partials and the fixed tree, values by
 * fused multiply-adds over rising rows. */
#include <assert.h>

#include "quant/lanes/lane_table.h"
#include "quant/lanes/lanes.h"

/* A register and how many make sixteen lanes; tiles of as many sums as there are
 * registers: queries by rows of scores, queries by registers of values. */
#if defined(__AVX512F__)
typedef __m512 reg;
enum { PARTS = 1, SCORE_Q = 4, SCORE_O = 4, MIX_Q = 4, MIX_V = 4 };

LANES_INLINE reg reg_zero(void)
{
	return _mm512_setzero_ps();
}
LANES_INLINE reg reg_load(const float *p)
{
	return _mm512_loadu_ps(p);
}
LANES_INLINE void reg_store(float *p, reg a)
{
	_mm512_storeu_ps(p, a);
}
LANES_INLINE reg reg_set1(float f)
{
	return _mm512_set1_ps(f);
}
LANES_INLINE reg reg_fma(reg a, reg b, reg c)
{
	return _mm512_fmadd_ps(a, b, c);
}
LANES_INLINE float regs_sum(const reg a[PARTS])
{
	return v16_sum(a[0]);
}

#elif defined(__AVX2__)
typedef __m256 reg;
enum { PARTS = 2, SCORE_Q = 2, SCORE_O = 3, MIX_Q = 3, MIX_V = 4 };

LANES_INLINE reg reg_zero(void)
{
	return _mm256_setzero_ps();
}
LANES_INLINE reg reg_load(const float *p)
{
	return _mm256_loadu_ps(p);
}
LANES_INLINE void reg_store(float *p, reg a)
{
	_mm256_storeu_ps(p, a);
}
LANES_INLINE reg reg_set1(float f)
{
	return _mm256_set1_ps(f);
}
LANES_INLINE reg reg_fma(reg a, reg b, reg c)
{
	return _mm256_fmadd_ps(a, b, c);
}
LANES_INLINE float regs_sum(const reg a[PARTS])
{
	return v16_sum((v16){ a[0], a[1] });
}

#elif defined(LANES_NEON)
typedef float32x4_t reg;
enum { PARTS = 4, SCORE_Q = 2, SCORE_O = 3, MIX_Q = 4, MIX_V = 4 };

LANES_INLINE reg reg_zero(void)
{
	return vdupq_n_f32(0.0f);
}
LANES_INLINE reg reg_load(const float *p)
{
	return vld1q_f32(p);
}
LANES_INLINE void reg_store(float *p, reg a)
{
	vst1q_f32(p, a);
}
LANES_INLINE reg reg_set1(float f)
{
	return vdupq_n_f32(f);
}
LANES_INLINE reg reg_fma(reg a, reg b, reg c)
{
	return vfmaq_f32(c, a, b);
}
LANES_INLINE float regs_sum(const reg a[PARTS])
{
	return v16_sum((v16){ { a[0], a[1], a[2], a[3] } });
}

#else
typedef v16 reg;
enum { PARTS = 1, SCORE_Q = 1, SCORE_O = 1, MIX_Q = 1, MIX_V = 1 };

LANES_INLINE reg reg_zero(void)
{
	return v16_zero();
}
LANES_INLINE reg reg_load(const float *p)
{
	return v16_load(p);
}
LANES_INLINE void reg_store(float *p, reg a)
{
	v16_store(p, a);
}
LANES_INLINE reg reg_set1(float f)
{
	return v16_set1(f);
}
LANES_INLINE reg reg_fma(reg a, reg b, reg c)
{
	return v16_fma(a, b, c);
}
LANES_INLINE float regs_sum(const reg a[PARTS])
{
	return v16_sum(a[0]);
}
#endif

enum { LANES_OF = 16 / PARTS };

/* Left to itself gcc 12 reads a number that several sums take from memory for each of them, and
 * loads are what binds then. */
#if defined(__AVX2__)
#define IN_REGISTER(r) __asm__("" : "+v"(r))
#else
#define IN_REGISTER(r) ((void)(r))
#endif

/* ---- scores ---- */

/* Reduces a whole tile of sums, each by the fixed tree, several at a time. */
LANES_INLINE void tile_sums(float *out, size_t ld, reg f[4][4][PARTS])
{
#if defined(__AVX512F__)
	v16 g[4][4];
	float all[16];

#pragma GCC unroll 4
	for (int j = 0; j < 4; j++)
#pragma GCC unroll 4
		for (int o = 0; o < 4; o++)
			g[o][j] = f[j][o][0];
	v16_store(all, v16_sums_4x4(g));
	for (int j = 0; j < 4; j++)
		memcpy(out + (size_t)j * ld, all + 4 * j, 4 * sizeof *all);
#elif defined(__AVX2__)
	__m256 s[2][3], t[4];
	float all[8];

#pragma GCC unroll 2
	for (int j = 0; j < 2; j++)
#pragma GCC unroll 3
		for (int o = 0; o < 3; o++)
			s[j][o] = _mm256_add_ps(f[j][o][0], f[j][o][1]);
			/* First the lower halves of both queries, then the upper ones. */
#pragma GCC unroll 3
	for (int o = 0; o < 3; o++)
		t[o] = _mm256_add_ps(_mm256_permute2f128_ps(s[0][o], s[1][o], 0x20),
		                     _mm256_permute2f128_ps(s[0][o], s[1][o], 0x31));
	t[3] = t[2];
	t[0] = _mm256_add_ps(_mm256_shuffle_ps(t[0], t[1], 0x44), _mm256_shuffle_ps(t[0], t[1], 0xee));
	t[2] = _mm256_add_ps(_mm256_shuffle_ps(t[2], t[3], 0x44), _mm256_shuffle_ps(t[2], t[3], 0xee));
	_mm256_storeu_ps(all, _mm256_add_ps(_mm256_shuffle_ps(t[0], t[2], 0x88), _mm256_shuffle_ps(t[0], t[2], 0xdd)));
	memcpy(out, all, 3 * sizeof *all);
	memcpy(out + ld, all + 4, 3 * sizeof *all);
#else
#pragma GCC unroll 4
	for (int j = 0; j < SCORE_Q; j++)
#pragma GCC unroll 4
		for (int o = 0; o < SCORE_O; o++)
			out[(size_t)j * ld + (size_t)o] = regs_sum(f[j][o]);
#endif
}

/* Q queries by O rows. */
LANES_INLINE void score_tile(float *out, size_t ld, const float *q, size_t q_ld, const float *rows, int dim,
                             const int Q, const int O, const bool ahead)
{
	reg acc[4][4][PARTS];

#pragma GCC unroll 4
	for (int j = 0; j < Q; j++)
#pragma GCC unroll 4
		for (int o = 0; o < O; o++)
#pragma GCC unroll 4
			for (int h = 0; h < PARTS; h++)
				acc[j][o][h] = reg_zero();
	for (int d = 0; d < dim; d += KV_PANEL, q += KV_PANEL, rows += KV_BLOCK * KV_PANEL)
		for (int k = 0, m = dim - d < KV_PANEL ? dim - d : KV_PANEL; k < m; k += 16)
#pragma GCC unroll 4
			for (int h = 0; h < PARTS; h++) {
				reg b[4];

#pragma GCC unroll 4
				for (int o = 0; o < O; o++) {
					b[o] = reg_load(rows + o * KV_PANEL + k + h * LANES_OF);
					IN_REGISTER(b[o]);
					if (ahead && h == 0)
						__builtin_prefetch(rows + (O + o) * KV_PANEL + k, 0, 3);
				}
#pragma GCC unroll 4
				for (int j = 0; j < Q; j++) {
					reg a = reg_load(q + (size_t)j * q_ld + k + h * LANES_OF);

#pragma GCC unroll 4
					for (int o = 0; o < O; o++)
						acc[j][o][h] = reg_fma(a, b[o], acc[j][o][h]);
				}
			}
	if (Q == SCORE_Q && O == SCORE_O) {
		tile_sums(out, ld, acc);
		return;
	}
#pragma GCC unroll 4
	for (int j = 0; j < Q; j++)
#pragma GCC unroll 4
		for (int o = 0; o < O; o++)
			out[(size_t)j * ld + (size_t)o] = regs_sum(acc[j][o]);
}

void LANES(kv_opened_score)(float *out, size_t ld, const void *queries, int nq, const void *opened, int n, int dim)
{
	const float *q = queries, *rows = opened;
	const size_t q_ld = (size_t)dim; /* no gap behind a query, as dim is a multiple of 16 */

	assert(n <= KV_BLOCK && dim % 16 == 0);
	for (int i = 0, step; i < n; i += step, out += step, rows += step * KV_PANEL) {
		int j = 0;

		step = n - i < SCORE_O ? 1 : SCORE_O;
		if (step == SCORE_O) {
			for (; j + SCORE_Q <= nq; j += SCORE_Q)
				score_tile(out + (size_t)j * ld, ld, q + (size_t)j * q_ld, q_ld, rows, dim, SCORE_Q,
				           SCORE_O, j == 0);
			for (; j < nq; j++)
				score_tile(out + (size_t)j * ld, ld, q + (size_t)j * q_ld, q_ld, rows, dim, 1, SCORE_O,
				           false);
		} else {
			for (; j + SCORE_Q <= nq; j += SCORE_Q)
				score_tile(out + (size_t)j * ld, ld, q + (size_t)j * q_ld, q_ld, rows, dim, SCORE_Q, 1,
				           false);
			for (; j < nq; j++)
				score_tile(out + (size_t)j * ld, ld, q + (size_t)j * q_ld, q_ld, rows, dim, 1, 1,
				           false);
		}
	}
}

/* ---- values ---- */

/* V registers of a panel for Q queries. */
LANES_INLINE void mix_tile(float *acc, size_t acc_ld, const float *p, size_t ld, const float *rows, int n, const int Q,
                           const int V)
{
	reg a[4][4];

#pragma GCC unroll 4
	for (int j = 0; j < Q; j++)
#pragma GCC unroll 4
		for (int v = 0; v < V; v++)
			a[j][v] = reg_load(acc + (size_t)j * acc_ld + v * LANES_OF);
	for (int i = 0; i < n; i++, rows += KV_PANEL) {
		reg w[4];

#pragma GCC unroll 4
		for (int j = 0; j < Q; j++)
			w[j] = reg_set1(p[(size_t)j * ld + (size_t)i]);
#pragma GCC unroll 4
		for (int v = 0; v < V; v++) {
			reg b = reg_load(rows + v * LANES_OF);

			IN_REGISTER(b);
#pragma GCC unroll 4
			for (int j = 0; j < Q; j++)
				a[j][v] = reg_fma(w[j], b, a[j][v]);
		}
	}
#pragma GCC unroll 4
	for (int j = 0; j < Q; j++)
#pragma GCC unroll 4
		for (int v = 0; v < V; v++)
			reg_store(acc + (size_t)j * acc_ld + v * LANES_OF, a[j][v]);
}

/* V registers of n rows for all queries; Q of them at a time, and no single one if it can be helped. */
LANES_INLINE void mix_column(float *acc, size_t acc_ld, const float *p, size_t ld, int nq, const float *rows, int n,
                             const int V)
{
	for (int step; nq; nq -= step, acc += (size_t)step * acc_ld, p += (size_t)step * ld) {
		step = nq >= MIX_Q && (nq != MIX_Q + 1 || MIX_Q > 3) ? MIX_Q : MIX_Q > 2 && nq >= 2 ? 2 : 1;
		if (step == MIX_Q)
			mix_tile(acc, acc_ld, p, ld, rows, n, MIX_Q, V);
		else if (step == 2)
			mix_tile(acc, acc_ld, p, ld, rows, n, 2, V);
		else
			mix_tile(acc, acc_ld, p, ld, rows, n, 1, V);
	}
}

void LANES(kv_opened_mix)(float *acc, const float *p, size_t ld, int nq, const void *opened, int n, int dim)
{
	const float *rows = opened;
	const int wide = MIX_V * LANES_OF;

	assert(n <= KV_BLOCK && dim % 16 == 0);
	for (int d = 0, step; d < dim; d += step) {
		const float *at = rows + (size_t)(d / KV_PANEL * KV_BLOCK * KV_PANEL + d % KV_PANEL);

		step = dim - d < wide ? 16 : wide;
		if (step == wide)
			mix_column(acc + d, (size_t)dim, p, ld, nq, at, n, MIX_V);
		else
			mix_column(acc + d, (size_t)dim, p, ld, nq, at, n, PARTS);
	}
}
