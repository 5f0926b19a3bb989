/* packed_few_amx.c - 5 to 16 rows over blocks of 16 outputs by 64 inputs (packed.c) with tiles; the bits of coded.c.
 *
 * The words of a block are what the tile instructions want of their second operand, [16 quads of
 * inputs][16 outputs][4]: 8 bits as they are, 4 bits once each half of the words is a byte of its own.
 * The first operand is rows of activations as they lie.  So nothing is turned, and sums come out with outputs in
 * lanes, as the float steps have them.  The float steps of one group, and unpacking the next but one, are done during
 * the tiles of the group between.  Up to 8 rows two runs of memory are read, as packed_few_avx512.c does; the sums of more are as
 * many registers as there are. */
#include <assert.h>
#include <immintrin.h>

#include "quant/coded/coded_avx512.h"
#include "quant/lanes/tile_config.h"

enum { OUT = BLOCK_OUT, LINE = BLOCK_LINE, TILE = 16 * LINE, AHEAD = 2816, RUNS_MOST = 2 };

/* Registers 0, 1: sums of each run; 2: activations; 3, 4: codes of each run. */
static void configure(int rows)
{
	struct tile_config c = { .palette = 1 };

	for (int i = 0; i < 5; i++) {
		c.rows[i] = (uint8_t)(i < 3 ? rows : BLOCK_INPUTS / 4);
		c.row_bytes[i] = LINE;
	}
	tile_config_load(&c);
}

struct rows {
	const int8_t *q;     /* [n][cols] */
	const float *beside; /* [groups][n][scale, scaled sum] */
	size_t cols;
	int n, groups;
};

/* Sums that tiles store for a group of each run, read one group later. */
struct tile_sums {
	uint8_t code[2][RUNS_MOST][TILE];
	int32_t sum[2][RUNS_MOST][OUT * OUT];
};

/* Prefetches a block further on and, for 4 bits, unpacks this one to the bytes of a tile. */
INLINE void take_block(uint8_t *to, const uint8_t *at, const int bits)
{
	const __m512i low = _mm512_set1_epi8(15);

#pragma GCC unroll 17
	for (int j = 0; j < 2 * bits + 1; j++) {
		const uint8_t *line = at + LINE * j;

		__asm__ volatile("prefetcht0 %0" : : "m"(line[AHEAD]));
		if (bits == 4 && j < 2 * bits) {
			__m512i v = _mm512_load_si512(line);

			_mm512_store_si512(to + 2 * LINE * j, _mm512_and_si512(v, low));
			_mm512_store_si512(to + 2 * LINE * j + LINE, _mm512_and_si512(_mm512_srli_epi16(v, 4), low));
		}
	}
}

/* Float steps of R rows of a group whose scales are the line at `line`. */
INLINE void steps(__m512 acc[], const int32_t *sum, const uint8_t *line, const float *beside, const int R)
{
	__m512i v = _mm512_load_si512(line);
	__m512 scale = block_scales(v), bias = block_biases(v);

#pragma GCC unroll 16
	for (int r = 0; r < R; r++) {
		__m512 f = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sum + OUT * r)),
		                         _mm512_set1_ps(beside[2 * r]));

		acc[r] = _mm512_fmadd_ps(scale, f, acc[r]);
		acc[r] = _mm512_fmadd_ps(bias, _mm512_set1_ps(beside[2 * r + 1]), acc[r]);
	}
}

/* Rows of x, R or up to 3 fewer, by 16 outputs of each of K runs, `hop` bytes of blocks and `on` outputs apart.  The
 * output of surplus rows is not used. */
INLINE void outputs_run(float *out, size_t ld, const uint8_t *blocks, size_t hop, size_t on, const struct rows *rows,
                        struct tile_sums *m, const int bits, const int R, const int K)
{
	const struct rows x = *rows; /* in registers: the tile instructions may write any memory */
	const size_t block = (size_t)(2 * bits + 1) * LINE;
	__m512 acc[RUNS_MOST][OUT];

#pragma GCC unroll 2
	for (int k = 0; k < K; k++) {
#pragma GCC unroll 16
		for (int r = 0; r < R; r++)
			acc[k][r] = _mm512_setzero_ps();
		take_block(m->code[0][k], blocks + (size_t)k * hop, bits);
	}
	for (int g = 0; g <= x.groups; g++) {
		const uint8_t *at = blocks + (size_t)g * block;
		int now = g & 1;

		if (g < x.groups) {
			_tile_loadd(2, x.q + (size_t)g * BLOCK_INPUTS, x.cols);
			_tile_zero(0);
			_tile_loadd(3, bits == 8 ? at : m->code[now][0], LINE);
			_tile_dpbsud(0, 2, 3);
			_tile_stored(0, m->sum[now][0], LINE);
			if (K == 2) {
				_tile_zero(1);
				_tile_loadd(4, bits == 8 ? at + hop : m->code[now][1], LINE);
				_tile_dpbsud(1, 2, 4);
				_tile_stored(1, m->sum[now][1], LINE);
			}
		}
#pragma GCC unroll 2
		for (int k = 0; k < K; k++) {
			if (g + 1 < x.groups)
				take_block(m->code[!now][k], at + block + (size_t)k * hop, bits);
			if (g)
				steps(acc[k], m->sum[!now][k], at + (size_t)k * hop - LINE,
				      x.beside + (size_t)(g - 1) * 2 * (size_t)x.n, R);
		}
	}
#pragma GCC unroll 2
	for (int k = 0; k < K; k++)
#pragma GCC unroll 16
		for (int r = 0; r < R; r++)
			if (r < x.n)
				_mm512_storeu_ps(out + (size_t)k * on + (size_t)r * ld, acc[k][r]);
}

/* n times 16 outputs. */
INLINE void outputs_all(float *out, size_t ld, const uint8_t *blocks, int n, const struct rows *x, struct tile_sums *m,
                        const int bits, const int R, const int K)
{
	size_t step = (size_t)x->groups * (size_t)(2 * bits + 1) * LINE;
	int half = K == 2 ? n / 2 : 0;

	for (int i = 0; i < half; i++)
		outputs_run(out + OUT * i, ld, blocks + (size_t)i * step, (size_t)half * step, (size_t)(OUT * half), x,
		            m, bits, R, K);
	for (int i = 2 * half; i < n; i++)
		outputs_run(out + OUT * i, ld, blocks + (size_t)i * step, 0, 0, x, m, bits, R, 1);
}

typedef void few_fn(float *, size_t, const uint8_t *, int, const struct rows *, struct tile_sums *);
#define FEW(bits, R, K)                                                                                         \
	static void few_##bits##_##R(float *out, size_t ld, const uint8_t *blocks, int n, const struct rows *x, \
	                             struct tile_sums *m)                                                       \
	{                                                                                                       \
		outputs_all(out, ld, blocks, n, x, m, bits, R, K);                                              \
	}
FEW(4, 6, 2)
FEW(4, 8, 2)
FEW(4, 12, 1)
FEW(4, 16, 1)
FEW(8, 6, 2)
FEW(8, 8, 2)
FEW(8, 12, 1)
FEW(8, 16, 1)

void packed_few_amx(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0, int r1,
                    void *scratch)
{
	int rows = r1 - r0, bits = w->fmt->coding->bits;
	struct tile_sums *m = scratch;
	struct rows d = { .q = x->q + (size_t)r0 * (size_t)x->cols,
		          .beside = (float *)(m + 1),
		          .cols = (size_t)x->cols,
		          .n = rows,
		          .groups = x->cols / x->group };
	few_fn *fn = rows <= 6  ? bits == 4 ? few_4_6 : few_8_6 :
	             rows <= 8  ? bits == 4 ? few_4_8 : few_8_8 :
	             rows <= 12 ? bits == 4 ? few_4_12 : few_8_12 :
	             bits == 4  ? few_4_16 :
	                          few_8_16;

	assert(rows <= FEW_TWICE);
	coded_beside((float *)(m + 1), x, r0, rows);
	configure(rows);
	fn(out, ld, packed_at(w, packed_of(w), o0, 0), (o1 - o0) / BLOCK_OUT, &d, m);
	_tile_release();
}
