/* packed_few_avx512.c - up to 8 rows over blocks of 16 outputs by 64 inputs (packed.c); the bits of coded.c.
 *
 * A line of a block has one word of each of 16 outputs: what it is multiplied with is the same for
 * all, so that sums stay in lanes and a group ends with its float steps, nothing turned.  As long as
 * registers last, up to four rows, two runs of memory are read side by side, the blocks of both halves of the
 * outputs, a line of each in turn, asked for a bit less than a page ahead: what memory gives most to here
 * (bench/notes/kernels.md, Tried).  More rows have arithmetic to do meanwhile, and read one, two pages ahead. */
#include <assert.h>
#include <immintrin.h>

#include "quant/coded/coded_avx512.h"
#include "quant/kernel_rows.h"

enum { OUT = BLOCK_OUT, LINE = BLOCK_LINE, AHEAD = 2816, AHEAD_ALONE = 8448, RUNS_MOST = 2, ROWS_TWICE = 4 };

struct rows {
	const int8_t *q; /* [rows][cols] */
	size_t cols;
	const float *beside; /* [groups][rows][scale, scaled sum] */
	int groups;
};

/* acc + u . the four at q, in all lanes. */
INLINE __m512i dot_four(__m512i acc, __m512i u, const int8_t *q)
{
	__asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(u), "m"(*(const int32_t *)(const void *)q));
	return acc;
}

/* The next block of each run, of R rows. */
INLINE void blocks_next(__m512 acc[RUNS_MOST][FEW_ROWS], const uint8_t *const at[RUNS_MOST],
                        const int8_t *const q[FEW_ROWS], const float *beside, const int bits, const int R, const int K)
{
	const int per = 32 / bits; /* inputs in a word */
	const __m512i low = _mm512_set1_epi8(15);
	__m512i sum[RUNS_MOST][FEW_ROWS], other[RUNS_MOST][FEW_ROWS];

#pragma GCC unroll 2
	for (int k = 0; k < K; k++)
#pragma GCC unroll 8
		for (int r = 0; r < R; r++)
			sum[k][r] = other[k][r] = _mm512_setzero_si512();
#pragma GCC unroll 16
	for (int j = 0; j < 2 * bits; j++)
#pragma GCC unroll 2
		for (int k = 0; k < K; k++) {
			const uint8_t *line = at[k] + LINE * j;
			__m512i v = _mm512_load_si512(line);

			__asm__ volatile("prefetcht0 %0"
			                 :
			                 : "m"(line[K == 1 ? AHEAD_ALONE : AHEAD])); /* volatile: in this order */
#pragma GCC unroll 8
			for (int r = 0; r < R; r++) {
				const int8_t *x = q[r] + j * per;

				if (bits == 4) { /* 16 times what is in the upper halves */
					sum[k][r] = dot_four(sum[k][r], _mm512_and_si512(v, low), x);
					other[k][r] = dot_four(other[k][r], _mm512_andnot_si512(low, v), x + 4);
				} else if (j % 2) {
					other[k][r] = dot_four(other[k][r], v, x);
				} else {
					sum[k][r] = dot_four(sum[k][r], v, x);
				}
			}
		}
#pragma GCC unroll 2
	for (int k = 0; k < K; k++) {
		const uint8_t *line = at[k] + 2 * bits * LINE;
		__m512i v = _mm512_load_si512(line);
		__m512 scale = block_scales(v), bias = block_biases(v);

		__asm__ volatile("prefetcht0 %0" : : "m"(line[K == 1 ? AHEAD_ALONE : AHEAD]));
#pragma GCC unroll 8
		for (int r = 0; r < R; r++) {
			__m512i s = _mm512_add_epi32(sum[k][r],
			                             bits == 4 ? _mm512_srai_epi32(other[k][r], 4) : other[k][r]);
			__m512 f = _mm512_mul_ps(_mm512_cvtepi32_ps(s), _mm512_set1_ps(beside[2 * r]));

			acc[k][r] = _mm512_fmadd_ps(scale, f, acc[k][r]);
			acc[k][r] = _mm512_fmadd_ps(bias, _mm512_set1_ps(beside[2 * r + 1]), acc[k][r]);
		}
	}
}

/* 16 outputs of each of K runs, `hop` bytes of blocks and `on` outputs apart. */
INLINE void outputs_run(float *out, size_t ld, const uint8_t *blocks, size_t hop, size_t on, const struct rows *x,
                        const int bits, const int R, const int K)
{
	const uint8_t *at[RUNS_MOST] = { blocks, blocks + hop };
	__m512 acc[RUNS_MOST][FEW_ROWS];
	const int8_t *q[FEW_ROWS];
	const float *beside = x->beside;

#pragma GCC unroll 2
	for (int k = 0; k < K; k++)
#pragma GCC unroll 8
		for (int r = 0; r < R; r++)
			acc[k][r] = _mm512_setzero_ps();
#pragma GCC unroll 8
	for (int r = 0; r < R; r++)
		q[r] = x->q + (size_t)r * x->cols;
	for (int g = 0; g < x->groups; g++, beside += 2 * R) {
		blocks_next(acc, at, q, beside, bits, R, K);
#pragma GCC unroll 8
		for (int r = 0; r < R; r++)
			q[r] += BLOCK_INPUTS;
		at[0] += (2 * bits + 1) * LINE;
		at[1] += (2 * bits + 1) * LINE;
	}
#pragma GCC unroll 2
	for (int k = 0; k < K; k++)
#pragma GCC unroll 8
		for (int r = 0; r < R; r++)
			_mm512_storeu_ps(out + (size_t)k * on + (size_t)r * ld, acc[k][r]);
}

/* n times 16 outputs. */
INLINE void outputs_few(float *out, size_t ld, const uint8_t *blocks, int n, const struct rows *x, const int bits,
                        const int R)
{
	size_t step = (size_t)x->groups * (size_t)(2 * bits + 1) * LINE;
	int half = R <= ROWS_TWICE ? n / 2 : 0, i = 0;

	for (; i < half; i++)
		outputs_run(out + OUT * i, ld, blocks + (size_t)i * step, (size_t)half * step, (size_t)(OUT * half), x,
		            bits, R, R <= ROWS_TWICE ? 2 : 1);
	for (i = 2 * half; i < n; i++)
		outputs_run(out + OUT * i, ld, blocks + (size_t)i * step, 0, 0, x, bits, R, 1);
}

typedef void few_fn(float *, size_t, const uint8_t *, int, const struct rows *);
#define FEW(bits, R)                                                                                            \
	static void few_##bits##_##R(float *out, size_t ld, const uint8_t *blocks, int n, const struct rows *x) \
	{                                                                                                       \
		outputs_few(out, ld, blocks, n, x, bits, R);                                                    \
	}
ROWS_TO_8(FEW, 4)
ROWS_TO_8(FEW, 8)
static few_fn *const fews[2][FEW_ROWS] = { { NAMES_TO_8(few_4_) }, { NAMES_TO_8(few_8_) } };

void packed_few_avx512(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                       int r1, void *scratch)
{
	struct rows d = { .q = x->q + (size_t)r0 * (size_t)x->cols,
		          .cols = (size_t)x->cols,
		          .beside = scratch,
		          .groups = x->cols / x->group };
	const uint8_t *blocks = packed_at(w, packed_of(w), o0, 0);

	assert(r1 - r0 <= FEW_ROWS && o0 % BLOCK_OUT == 0 && o1 % BLOCK_OUT == 0);
	coded_beside(scratch, x, r0, r1 - r0);
	fews[w->fmt->coding->bits == 8][r1 - r0 - 1](out, ld, blocks, (o1 - o0) / BLOCK_OUT, &d);
}
