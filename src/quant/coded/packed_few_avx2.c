/* packed_few_avx2.c - products over blocks of 16 outputs by 64 inputs (packed.c) with AVX2; the bits of coded.c.
 * Compiled twice, as coded_many_avx2.c is.
 *
 * Half a line of a block has one word of each of 8 outputs: what it is multiplied with is the same for
 * all, so that sums stay in lanes and a group ends with its float steps, nothing turned.  A few rows read
 * two runs of memory side by side, as packed_few_avx512.c does; from some rows on there is more to gain from sums in
 * registers, 8 outputs at a time, and the next 16 outputs are asked for meanwhile.  More than FEW_TWICE rows:
 * coded_few_avx2.c. */
#include <assert.h>

#include "quant/coded/coded_few_avx2.h"
#include "quant/coded/coded_kernels.h"
#include "quant/coded/coded_prefetch.h"
#include "quant/kernel_rows.h"

enum {
	OUT = BLOCK_OUT,
	LINE = BLOCK_LINE,
	LANES = 8,
	HALVES = OUT / LANES,
	HALF = LINE / HALVES,
	RUNS_MOST = 2,
	AHEAD = 2816,    /* bytes on, both runs are asked for */
	APART_WORDS = 2, /* rows; else upper codes of 4 bits are shifted, not their sums */
};
/* Rows up to which the kernel reads two runs of memory, and, where there is only one run, reads it by lines. */
#define TWO_RUNS(bits) (VNNI ? 5 : (bits) == 4 ? 3 : 4)
enum { ONE_RUN = 2 };

/* Sums within a group.  For 4 bits, high has the sums of the bytes' upper codes: with vpdpbusd 16 times too large, and for
 * few rows only; without it both are in 16 bits. */
struct sums {
	__m256i v, high;
};

/* A word of 8 outputs by R rows' inputs q[row][from] on; first: there is nothing to add it to. */
INLINE void word(struct sums s[], __m256i v, const int8_t *const q[], int from, const bool first, const int bits,
                 const int R)
{
	const __m256i low = bits == 4 ? _mm256_set1_epi8(15) : _mm256_set1_epi16(255), zero = _mm256_setzero_si256();
	__m256i a = bits == 8 && VNNI ? v : _mm256_and_si256(v, low);
	__m256i b = bits == 8                ? _mm256_srli_epi16(v, 8) :
	            VNNI && R <= APART_WORDS ? _mm256_andnot_si256(low, v) :
	                                       _mm256_and_si256(_mm256_srli_epi16(v, 4), low);

#pragma GCC unroll 8
	for (int r = 0; r < R; r++) {
		struct sums was = first ? (struct sums){ zero, zero } : s[r];

		if (VNNI) {
			s[r].v = dot_vnni(was.v, a, quad(q[r] + from));
			if (bits == 4 && R <= APART_WORDS)
				s[r].high = dot_vnni(was.high, b, quad(q[r] + from + 4));
			else if (bits == 4)
				s[r].v = dot_vnni(s[r].v, b, quad(q[r] + from + 4));
		} else if (bits == 4) {
			s[r].v = _mm256_add_epi16(was.v, _mm256_maddubs_epi16(a, quad(q[r] + from)));
			s[r].high = _mm256_add_epi16(was.high, _mm256_maddubs_epi16(b, quad(q[r] + from + 4)));
		} else {
			s[r].v = _mm256_add_epi32(was.v, _mm256_madd_epi16(a, quad(q[r] + from)));
			__asm__("" : "+x"(s[r].v)); /* in this order: gcc 12 makes trees and spills them */
			s[r].v = _mm256_add_epi32(s[r].v, _mm256_madd_epi16(b, quad(q[r] + from + 4)));
			__asm__("" : "+x"(s[r].v));
		}
	}
}

/* A group's sums. */
INLINE __m256i summed(const struct sums *s, const int bits, const int R)
{
	if (bits == 8 || (VNNI && R > APART_WORDS))
		return s->v;
	if (VNNI)
		return _mm256_add_epi32(s->v, _mm256_srai_epi32(s->high, 4));
	return widen(_mm256_madd_epi16(s->v, _mm256_set1_epi16(1)), s->high);
}

/* The float steps of a group of 8 outputs, whose scales and biases those in v are. */
INLINE void steps(__m256 acc[], __m256i v, const __m256i sum[], const float *beside, const int R)
{
	__m256 scale = block_scales8(v), bias = block_biases8(v);

#pragma GCC unroll 8
	for (int r = 0; r < R; r++) {
		__m256 f = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[r]), _mm256_broadcast_ss(beside + 2 * r));

		acc[r] = _mm256_fmadd_ps(scale, f, acc[r]);
		acc[r] = _mm256_fmadd_ps(bias, _mm256_broadcast_ss(beside + 2 * r + 1), acc[r]);
	}
}

INLINE __m256i half_of(const uint8_t *line, int h)
{
	return _mm256_load_si256((const void *)(line + HALF * h));
}

/* The next block of each of K runs by R rows, few. */
INLINE void block_lines(__m256 acc[RUNS_MOST][HALVES][FEW_ROWS], const uint8_t *const at[RUNS_MOST],
                        const int8_t *const q[], const float *beside, const int bits, const int R, const int K)
{
	const int words = 2 * bits, per = INPUTS(bits) / words;
	struct sums s[RUNS_MOST][HALVES][FEW_ROWS];

#pragma GCC unroll 16
	for (int j = 0; j < words; j++)
#pragma GCC unroll 2
		for (int k = 0; k < K; k++) {
			const uint8_t *line = at[k] + LINE * j;

			__asm__ volatile("prefetcht0 %0" : : "m"(line[AHEAD])); /* volatile: in this order */
#pragma GCC unroll 2
			for (int h = 0; h < HALVES; h++)
				word(s[k][h], half_of(line, h), q, per * j, j == 0, bits, R);
		}
#pragma GCC unroll 2
	for (int k = 0; k < K; k++) {
		const uint8_t *line = at[k] + LINE * words;

		__asm__ volatile("prefetcht0 %0" : : "m"(line[AHEAD]));
#pragma GCC unroll 2
		for (int h = 0; h < HALVES; h++) {
			__m256i sum[FEW_ROWS];

#pragma GCC unroll 8
			for (int r = 0; r < R; r++)
				sum[r] = summed(&s[k][h][r], bits, R);
			steps(acc[k][h], half_of(line, h), sum, beside, R);
		}
	}
}

/* 16 outputs of each of K runs, `hop` bytes of blocks and `on` outputs apart, by R rows, few. */
INLINE void outputs_lines(float *out, size_t ld, const uint8_t *blocks, size_t hop, size_t on, int groups,
                          const struct block_rows *d, const int bits, const int R, const int K)
{
	const float *beside = d->beside;
	const int8_t *q[FEW_ROWS];
	const uint8_t *at[RUNS_MOST] = { blocks, blocks + hop };
	__m256 acc[RUNS_MOST][HALVES][FEW_ROWS];

#pragma GCC unroll 2
	for (int k = 0; k < K; k++)
#pragma GCC unroll 8
		for (int r = 0; r < R; r++)
			acc[k][0][r] = acc[k][1][r] = _mm256_setzero_ps();
	rows_at(q, d->q, d->row, R);
	for (int g = 0; g < groups; g++, beside += 2 * R) {
		block_lines(acc, at, q, beside, bits, R, K);
#pragma GCC unroll 8
		for (int r = 0; r < R; r++)
			q[r] += INPUTS(bits);
		at[0] += (2 * bits + 1) * LINE;
		at[1] += (2 * bits + 1) * LINE;
	}
#pragma GCC unroll 2
	for (int k = 0; k < K; k++)
#pragma GCC unroll 8
		for (int r = 0; r < R; r++)
#pragma GCC unroll 2
			for (int h = 0; h < HALVES; h++)
				_mm256_storeu_ps(out + (size_t)k * on + (size_t)r * ld + LANES * h, acc[k][h][r]);
}

/* 8 outputs, half h of 16, by R rows.  Each half prefetches half of the next 16 outputs' blocks, in RUNS runs of memory side by
 * side (coded_look_ahead() says why): a line with each line read, and one per group, with the scales, for the ends of runs. */
INLINE void outputs_half(float *out, size_t ld, const uint8_t *at, int h, int groups, const struct block_rows *d,
                         const int bits, const int R)
{
	const int chunks = bits / 2;
	const bool apart = VNNI && bits == 4 && R <= APART_ROWS;
	const size_t hop = (size_t)(groups * (2 * bits + 1) / RUNS) * LINE,
		     half = (size_t)(groups * bits / RUNS) * LINE;
	const uint8_t *next = at + (size_t)(groups * (2 * bits + 1)) * LINE, *ends = next + 2 * half;
	const float *beside = d->beside;
	const int8_t *q[FEW_ROWS];
	__m256 acc[FEW_ROWS];

	at += HALF * h;
	next += half * (size_t)h;
#pragma GCC unroll 8
	for (int r = 0; r < R; r++)
		acc[r] = _mm256_setzero_ps();
	rows_at(q, d->q, d->row, R);
	for (int g = 0; g < groups; g++, at += LINE, beside += 2 * R) {
		__m256i v[FEW_ROWS], high[FEW_ROWS];

#pragma GCC unroll 4
		for (int c = 0; c < chunks; c++, at += 4 * LINE) {
			__m256i t[4], codes[8];

			_mm_prefetch(next + (size_t)(2 * c % RUNS) * hop, _MM_HINT_T1);
			_mm_prefetch(next + (size_t)(2 * c % RUNS + 1) * hop, _MM_HINT_T1);
			if (c % 2)
				next += LINE;
#pragma GCC unroll 4
			for (int i = 0; i < 4; i++)
				t[i] = _mm256_load_si256((const void *)(at + LINE * i));
			split(codes, t, apart, bits);
			multiply(v, high, codes, q, c == 0, apart, bits, R);
#pragma GCC unroll 8
			for (int r = 0; r < R; r++)
				q[r] += INPUTS(bits) / chunks;
		}
		if (h == 0)
			_mm_prefetch(ends + (size_t)(g % RUNS) * hop + (size_t)(g / RUNS) * LINE, _MM_HINT_T1);
#pragma GCC unroll 8
		for (int r = 0; r < R && apart; r++)
			v[r] = _mm256_add_epi32(v[r], _mm256_srai_epi32(high[r], 4));
		steps(acc, _mm256_load_si256((const void *)at), v, beside, R);
	}
#pragma GCC unroll 8
	for (int r = 0; r < R; r++)
		_mm256_storeu_ps(out + (size_t)r * ld + LANES * h, acc[r]);
}

/* n times 16 outputs. */
INLINE void outputs_few(float *out, size_t ld, const uint8_t *blocks, int n, int groups, const struct block_rows *d,
                        const int bits, const int R)
{
	size_t step = (size_t)groups * (size_t)(2 * bits + 1) * LINE;
	int half = R <= TWO_RUNS(bits) ? n / 2 : 0;

	for (int i = 0; i < half; i++)
		outputs_lines(out + OUT * i, ld, blocks + (size_t)i * step, (size_t)half * step, (size_t)(OUT * half),
		              groups, d, bits, R <= TWO_RUNS(bits) ? R : 1, 2);
	for (int i = 2 * half; i < n; i++)
		if (R <= ONE_RUN)
			outputs_lines(out + OUT * i, ld, blocks + (size_t)i * step, 0, 0, groups, d, bits,
			              R <= ONE_RUN ? R : 1, 1);
		else
			for (int h = 0; h < HALVES; h++)
				outputs_half(out + OUT * i, ld, blocks + (size_t)i * step, h, groups, d, bits, R);
}

typedef void few_fn(float *, size_t, const uint8_t *, int, int, const struct block_rows *);
#define FEW(bits, R)                                                                                  \
	static void few_##bits##_##R(float *out, size_t ld, const uint8_t *blocks, int n, int groups, \
	                             const struct block_rows *d)                                      \
	{                                                                                             \
		outputs_few(out, ld, blocks, n, groups, d, bits, R);                                  \
	}
ROWS_TO_8(FEW, 4)
ROWS_TO_8(FEW, 8)
static few_fn *const fews[2][FEW_ROWS] = { { NAMES_TO_8(few_4_) }, { NAMES_TO_8(few_8_) } };

void LEVEL(packed_rows)(float *out, size_t ld, const struct weight *w, const uint8_t *blocks, int n,
                        const struct block_rows *d)
{
	fews[w->fmt->coding->bits == 8][d->n - 1](out, ld, blocks, n, w->cols / BLOCK_INPUTS, d);
}

void LEVEL(coded_inputs)(int8_t *to, size_t step, const int8_t *q, int cols, int bits, bool blocks)
{
	const __m128i halves = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
	const __m128i pairs = _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);

	for (int g = 0; g < cols; g += BLOCK_INPUTS, to += step)
		for (int i = 0; i < BLOCK_INPUTS; i += 16) {
			__m128i v = _mm_loadu_si128((const void *)(q + g + i));

			if (bits == 4 && !blocks)
				_mm_storeu_si128((void *)(to + i), _mm_shuffle_epi8(v, halves));
			else if (bits == 4 || VNNI)
				_mm_storeu_si128((void *)(to + i), v);
			else
				_mm256_storeu_si256((void *)(to + 2 * i),
				                    _mm256_cvtepi8_epi16(_mm_shuffle_epi8(v, pairs)));
		}
}

int8_t *LEVEL(block_rows_of)(struct block_rows *d, int8_t *to, const struct acts *x, int r0, int n, int bits)
{
	size_t groups = (size_t)(x->cols / x->group), line = (size_t)INPUTS(bits);
	float *beside = (float *)(void *)to;

	*d = (struct block_rows){
		.q = x->q + (size_t)r0 * (size_t)x->cols, .row = groups * line, .beside = beside, .n = n
	};
	to = (int8_t *)coded_beside(beside, x, r0, n);
	if (line == BLOCK_INPUTS)
		return to;
	for (int r = 0; r < n; r++)
		LEVEL(coded_inputs)
	(to + (size_t)r * d->row, line, d->q + (size_t)r * (size_t)x->cols, x->cols, bits, true);
	d->q = to;
	return to + (size_t)n * d->row;
}

void LEVEL(packed_few)(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                       int r1, void *scratch)
{
	const uint8_t *blocks = packed_at(w, packed_of(w), o0, 0);
	int n = (o1 - o0) / OUT, bits = w->fmt->coding->bits, rows = r1 - r0;
	int first = rows > FEW_ROWS ? (rows + 1) / 2 : rows;
	struct block_rows d[2];
	int8_t *to = LEVEL(block_rows_of)(&d[0], scratch, x, r0, first, bits);

	assert(rows <= FEW_TWICE && o0 % OUT == 0 && o1 % OUT == 0);
	if (rows == first) {
		LEVEL(packed_rows)(out, ld, w, blocks, n, &d[0]);
		return;
	}
	LEVEL(block_rows_of)(&d[1], to, x, r0 + first, rows - first, bits);
	/* The second half of the rows reads the blocks out of a cache. */
	for (int i = 0; i < n; i++, out += OUT, blocks += packed_step(w)) {
		LEVEL(packed_rows)(out, ld, w, blocks, 1, &d[0]);
		LEVEL(packed_rows)(out + (size_t)first * ld, ld, w, blocks, 1, &d[1]);
	}
}
