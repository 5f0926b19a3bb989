/* packed_many_avx512.c - nine rows and more over blocks of 16 outputs by 64 inputs (packed.c) with vpdpbusd; the
 * bits of coded.c.
 *
 * A tile of up to six rows by 32 outputs, two blocks side by side, runs over all inputs with its sums in registers and
 * reads codes as they lie: nothing is unpacked beforehand, so nine rows go nearly as fast, each, as 256.  Where
 * instructions that only move bits have ports of their own (packed_many_slow), what binds is those that multiply: of
 * 228 instructions of a group and six rows 192 are products and 36 float steps.
 *
 * Meanwhile a tile asks for its share of the next 32 outputs, a run of lines, since memory gives more to reads in
 * its order, for the next rows' activations, and for the lines that outputs are written to. */
#include <assert.h>
#include <immintrin.h>

#include "base/part.h"
#include "quant/coded/coded_avx512.h"
#include "quant/trial.h"

enum { OUT = BLOCK_OUT, LINE = BLOCK_LINE, TILE_ROWS = 6, SIDES = 2, ONCE_BYTES = 480 << 10 }; /* of activations */

struct tiling {
	const struct acts *x;
	const uint8_t *at; /* blocks of the first 16 outputs; of the next 16 `step` bytes on */
	size_t step;
	int groups;
	const uint8_t *next, *stop; /* what is asked for, of the next 32 outputs */
	int lines;                  /* of it, for each group */
	size_t on;                  /* bytes from a row of activations to the one to prefetch; 0: none */
};

/* An instruction on the memory of row r of up to six, rows `hop` bytes apart; `at` is row 0, `at3` row 3.  Written out,
 * since gcc 12 otherwise keeps an address for each row, in memory. */
#define ROW_OF(instruction, to, r, at, at3, hop)                                                                  \
	do {                                                                                                      \
		if ((r) % 3 == 0)                                                                                 \
			__asm__(instruction " (%1), %0" : "=v"(to) : "r"((r) < 3 ? (at) : (at3)));                \
		else if ((r) % 3 == 1)                                                                            \
			__asm__(instruction " (%1,%2), %0" : "=v"(to) : "r"((r) < 3 ? (at) : (at3)), "r"(hop));   \
		else                                                                                              \
			__asm__(instruction " (%1,%2,2), %0" : "=v"(to) : "r"((r) < 3 ? (at) : (at3)), "r"(hop)); \
	} while (0)

/* R rows from row r0 by S times 16 outputs. */
INLINE void tile_run(const struct tiling *t, int r0, float *out, size_t ld, const int bits, const int R, const int S)
{
	const size_t block = (size_t)(2 * bits + 1) * LINE, cols = (size_t)t->x->cols, row = 4 * (size_t)t->groups;
	const int8_t *q = t->x->q + (size_t)r0 * cols, *q3 = q + 3 * cols;
	const char *scale = (const char *)t->x->scale + (size_t)r0 * row, *scale3 = scale + 3 * row;
	const char *scaled = (const char *)t->x->scaled_sum + (size_t)r0 * row, *scaled3 = scaled + 3 * row;
	const uint8_t *at[SIDES] = { t->at, t->at + t->step }, *next = t->next;
	const __m512i low = _mm512_set1_epi8(15);
	__m512 f[SIDES][TILE_ROWS];

#pragma GCC unroll 2
	for (int s = 0; s < S; s++)
#pragma GCC unroll 6
		for (int r = 0; r < R; r++)
			f[s][r] = _mm512_setzero_ps();
	for (int g = 0; g < t->groups; g++) {
		__m512i i[SIDES][TILE_ROWS];
		__m512 by[SIDES], xs;

#pragma GCC unroll 2
		for (int s = 0; s < S; s++)
#pragma GCC unroll 6
			for (int r = 0; r < R; r++)
				i[s][r] = _mm512_setzero_si512();
#pragma GCC unroll 16
		for (int j = 0; j < 2 * bits; j++) {
			__m512i v[SIDES];

#pragma GCC unroll 2
			for (int s = 0; s < S; s++)
				v[s] = _mm512_load_si512(at[s] + LINE * j);
#pragma GCC unroll 2
			for (int half = 0; half < 8 / bits; half++) {
				__m512i u[SIDES], x;

#pragma GCC unroll 2
				for (int s = 0; s < S; s++)
					u[s] = bits == 8 ?
					               v[s] :
					               _mm512_and_si512(half ? _mm512_srli_epi16(v[s], 4) : v[s], low);
#pragma GCC unroll 6
				for (int r = 0; r < R; r++) {
					ROW_OF("vpbroadcastd", x, r, q + 4 * (j * 8 / bits + half),
					       q3 + 4 * (j * 8 / bits + half), cols);
#pragma GCC unroll 2
					for (int s = 0; s < S; s++)
						i[s][r] = dot512(i[s][r], u[s], x);
				}
			}
		}
		if (t->on)
			for (int r = 0; r < R; r++)
				_mm_prefetch((r < 3 ? q : q3) + (size_t)(r % 3) * cols + t->on, _MM_HINT_T0);
		for (int j = 0; j < t->lines && next < t->stop; j++, next += LINE)
			_mm_prefetch(next, _MM_HINT_T1);
#pragma GCC unroll 2
		for (int s = 0; s < S; s++)
			by[s] = block_scales(_mm512_load_si512(at[s] + 2 * bits * LINE));
#pragma GCC unroll 6
		for (int r = 0; r < R; r++) {
			ROW_OF("vbroadcastss", xs, r, scale, scale3, row);
#pragma GCC unroll 2
			for (int s = 0; s < S; s++)
				f[s][r] = _mm512_fmadd_ps(by[s], _mm512_mul_ps(_mm512_cvtepi32_ps(i[s][r]), xs),
				                          f[s][r]);
		}
#pragma GCC unroll 2
		for (int s = 0; s < S; s++)
			by[s] = block_biases(_mm512_load_si512(at[s] + 2 * bits * LINE));
#pragma GCC unroll 6
		for (int r = 0; r < R; r++) {
			ROW_OF("vbroadcastss", xs, r, scaled, scaled3, row);
#pragma GCC unroll 2
			for (int s = 0; s < S; s++)
				f[s][r] = _mm512_fmadd_ps(by[s], xs, f[s][r]);
		}
		at[0] += block, at[1] += block;
		q += BLOCK_INPUTS, q3 += BLOCK_INPUTS;
		scale += 4, scale3 += 4, scaled += 4, scaled3 += 4;
	}
#pragma GCC unroll 6
	for (int r = 0; r < R; r++)
#pragma GCC unroll 2
		for (int s = 0; s < S; s++)
			_mm512_storeu_ps(out + (size_t)r * ld + OUT * s, f[s][r]);
}

typedef void tile_fn(const struct tiling *, int, float *, size_t);
#define TILE(bits, R, S)                                                                           \
	static void tile_##bits##_##R##_##S(const struct tiling *t, int r0, float *out, size_t ld) \
	{                                                                                          \
		tile_run(t, r0, out, ld, bits, R, S);                                              \
	}
#define TILES(bits, S)   \
	TILE(bits, 4, S) \
	TILE(bits, 5, S) \
	TILE(bits, 6, S)
TILES(4, 1)
TILES(4, 2)
TILES(8, 1)
TILES(8, 2)
/* More than eight rows, cut evenly, are tiles of four at least. */
#define PICK(bits, S)                                                                                 \
	{                                                                                             \
		NULL, NULL, NULL, NULL, tile_##bits##_4_##S, tile_##bits##_5_##S, tile_##bits##_6_##S \
	}
static tile_fn *const tiles[2][SIDES][TILE_ROWS + 1] = { { PICK(4, 1), PICK(4, 2) }, { PICK(8, 1), PICK(8, 2) } };

/* Sets the share of tile i of `of` in prefetching n bytes, the next outputs' blocks. */
static void ask_share(struct tiling *t, const uint8_t *at, size_t n, int i, int of)
{
	size_t lines = n / LINE;

	t->next = at + lines * (size_t)i / (size_t)of * LINE;
	t->stop = at + lines * (size_t)(i + 1) / (size_t)of * LINE;
	t->lines = (int)(lines / (size_t)t->groups + (size_t)of - 1) / of;
}

void packed_many_avx512(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                        int r1, void *scratch)
{
	const uint8_t *blocks = packed_at(w, packed_of(w), o0, 0);
	int n = (o1 - o0) / OUT;
	int bits = w->fmt->coding->bits, of = (r1 - r0 + TILE_ROWS - 1) / TILE_ROWS,
	    once = ONCE_BYTES / w->cols / TILE_ROWS;
	size_t step = packed_step(w);
	const uint8_t *end = packed_of(w) + step * (size_t)(w->rows / OUT);
	struct tiling t = { .x = x, .step = step, .groups = w->cols / w->group };

	assert(r1 - r0 > FEW_ROWS && x->cols == w->cols && w->group == BLOCK_INPUTS);
	for (int i0 = 0, i1; i0 < of; i0 = i1) { /* as many tiles' rows as the second cache holds */
		i1 = once < 1 ? i0 + 1 : i0 + once < of ? i0 + once : of;
		for (int o = 0, sides; o < n; o += sides) {
			const uint8_t *after;
			size_t ask;

			sides = n - o < SIDES ? n - o : SIDES;
			t.at = blocks + (size_t)o * step;
			after = t.at + (size_t)sides * step;
			ask = (size_t)(end - after) < (size_t)sides * step ? (size_t)(end - after) :
			                                                     (size_t)sides * step;
			for (int i = i0; i < i1; i++) {
				int r = r0 + part_begin(r1 - r0, i, of), next = r0 + part_begin(r1 - r0, i + 1, of);
				float *to = out + (size_t)(r - r0) * ld + OUT * o;

				ask_share(&t, after, ask, i - i0, i1 - i0);
				t.on = i + 1 < i1 ? (size_t)(next - r) * (size_t)w->cols : 0;
				for (int j = 0; j < next - r; j++)
					for (int h = 0; h < sides; h++)
						__builtin_prefetch(to + (size_t)j * ld + OUT * h, 1);
				tiles[bits == 8][sides - 1][next - r](&t, r, to, ld);
			}
		}
	}
}

/* ---- where this is faster than panels of unpacked codes ---- */

/* Time of products, with half as many shuffles or none, in ticks of a counter that may step by dozens;
 * so it times some thousand products.  In assembly, so that the compiler moves nothing out of the loop. */
INLINE double products(const bool beside)
{
	enum { PRODUCTS = 12, ROUNDS = 1024 };
	__m512i a[PRODUCTS], b, u = _mm512_set1_epi8(3);
	uint64_t start;

#pragma GCC unroll 12
	for (int i = 0; i < PRODUCTS; i++)
		a[i] = _mm512_setzero_si512();
	start = __rdtsc();
	for (int k = 0; k < ROUNDS; k++)
#pragma GCC unroll 12
		for (int i = 0; i < PRODUCTS; i++) {
			__asm__ volatile("vpdpbusd %1, %1, %0" : "+v"(a[i]) : "v"(u));
			if (beside && i % 2)
				__asm__ volatile("vpandd %1, %1, %0" : "=v"(b) : "v"(u));
		}
	return (double)(__rdtsc() - start);
}
static double products_alone(void)
{
	return products(false);
}
static double products_beside(void)
{
	return products(true);
}

bool packed_many_slow(void)
{
	static atomic_int known;

	return trial_slower(&known, products_beside, products_alone, 1.2);
}
