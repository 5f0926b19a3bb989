/* coded_few_avx2.c - products over affine codes of 4 or 8 bits in groups of 64 with AVX2; the bits
 * of coded.c.  Compiled twice, as coded_many_avx2.c is.
 *
 * Few rows go as in coded_few_avx512.c, in half as many lanes: codes of 8 outputs are turned, so
 * that a vector has a quad of inputs of each, and multiplied where they are, in registers; lines of
 * the outputs that follow are asked for one by one between the products.  One row, where its part is
 * long enough: coded_row_avx2.c.  For many rows codes of 16 outputs are made once, and FEW_ROWS rows at
 * a time run over them.
 * Both kinds of codes as in coded_few_avx2.h. */
#include <assert.h>
#include <string.h>

#include "quant/coded/coded_few_avx2.h"
#include "quant/coded/coded_kernels.h"
#include "quant/coded/coded_prefetch.h"
#include "quant/kernel_rows.h"

/* NEAR bytes on lies what an output reads next: it is asked for into the first cache. */
enum { OUT = OUT_ONCE, LANES = 8, LINE = 64, GROUP = 64, NEAR = 256 };

/* Data that all blocks of outputs of a call share, each in the order in which it is read. */
struct few {
	const struct weight *w;
	const int8_t *q;     /* [groups][rows][INPUTS] */
	const float *beside; /* [groups][rows][scale, scaled sum] */
	const float *scale;  /* [groups][scale, bias][OUT] */
};

/* Loads 16 bytes of each of LANES outputs, transposed. */
INLINE void turned(__m256i t[4], const uint8_t *at, size_t row_bytes)
{
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++)
		t[i] = _mm256_loadu2_m128i((const void *)(at + (size_t)(i + 4) * row_bytes),
		                           (const void *)(at + (size_t)i * row_bytes));
	transpose4(t);
}

/* The float steps of a group. */
INLINE void steps(__m256 acc[], __m256i v[], const __m256i high[], const float *scale, const float *beside,
                  const bool apart, const int R)
{
	__m256 s = _mm256_load_ps(scale), b = _mm256_load_ps(scale + OUT);

#pragma GCC unroll 8
	for (int r = 0; r < R; r++, beside += 2) {
		__m256 f;

		if (apart)
			v[r] = _mm256_add_epi32(v[r], _mm256_srai_epi32(high[r], 4));
		f = _mm256_mul_ps(_mm256_cvtepi32_ps(v[r]), _mm256_broadcast_ss(beside));
		acc[r] = _mm256_fmadd_ps(s, f, acc[r]);
		acc[r] = _mm256_fmadd_ps(b, _mm256_broadcast_ss(beside + 1), acc[r]);
	}
}

/* LANES outputs from `row` on by R rows. */
INLINE void few_lanes(float *out, size_t ld, const struct few *d, const uint8_t *row, const float *scale,
                      struct coded_ahead *ahead, const int bits, const int R)
{
	const int bytes = GROUP * bits / 8, chunks = bytes / 16; /* of an output's group */
	const bool apart = VNNI && bits == 4 && R <= APART_ROWS;
	const size_t row_bytes = d->w->row_bytes;
	const float *beside = d->beside;
	const int8_t *q = d->q;
	const uint8_t *next = ahead->at;
	const size_t hop = ahead->hop;
	__m256 acc[FEW_ROWS];

#pragma GCC unroll 8
	for (int r = 0; r < R; r++)
		acc[r] = _mm256_setzero_ps();
	for (const uint8_t *line = row, *end = row + row_bytes; line < end; line += LINE) {
		/* Beyond the row's end the next LANES outputs. */
		const uint8_t *near = line + NEAR + (end - line <= NEAR ? (LANES - 1) * row_bytes : 0);

		for (int g = 0; g < LINE / bytes; g++, scale += 2 * OUT, beside += 2 * R, q += R * INPUTS(bits)) {
			__m256i v[FEW_ROWS], high[FEW_ROWS];

#pragma GCC unroll 4
			for (int c = 0; c < chunks; c++) {
				const int8_t *at[FEW_ROWS];
				__m256i t[4], codes[8];

				_mm_prefetch(near, _MM_HINT_T0);
				_mm_prefetch(near + row_bytes, _MM_HINT_T0);
				near += 2 * row_bytes;
				_mm_prefetch(next + (size_t)(2 * c % RUNS) * hop, _MM_HINT_T1);
				_mm_prefetch(next + (size_t)(2 * c % RUNS + 1) * hop, _MM_HINT_T1);
				if (c % 2)
					next += LINE;
				turned(t, line + g * bytes + c * 16, row_bytes);
				split(codes, t, apart, bits);
				rows_at(at, q + c * INPUTS(bits) / chunks, INPUTS(bits), R);
				multiply(v, high, codes, at, c == 0, apart, bits, R);
			}
			steps(acc, v, high, scale, beside, apart, R);
		}
	}
	ahead->at = next;
#pragma GCC unroll 8
	for (int r = 0; r < R; r++)
		_mm256_storeu_ps(out + (size_t)r * ld, acc[r]);
}

/* Groups [g0, g1) of the codes of OUT outputs from o on, to [OUT / LANES][g1 - g0][chunks][CODES]
 * vectors. */
INLINE void panel_fill(__m256i *to, const struct weight *w, int o, int g0, int g1, const int bits)
{
	const int n = CODES(bits);
	const size_t row_bytes = w->row_bytes, bytes = GROUP * (size_t)bits / 8;
	const uint8_t *row = w->data + (size_t)o * row_bytes;

	for (int h = 0; h < OUT; h += LANES, row += LANES * row_bytes)
		for (size_t k = (size_t)g0 * bytes; k < (size_t)g1 * bytes; k += 16, to += n) {
			const uint8_t *near = row + k + NEAR + k / 16 % 4 * 2 * row_bytes;
			__m256i t[4], codes[8];

			_mm_prefetch(near, _MM_HINT_T0);
			_mm_prefetch(near + row_bytes, _MM_HINT_T0);
			turned(t, row + k, row_bytes);
			split(codes, t, false, bits);
#pragma GCC unroll 8
			for (int i = 0; i < n; i++)
				_mm256_store_si256(to + i, codes[i]);
		}
}

/* The panel of `groups` groups of packed weights; their scales and biases to [group][scale, bias][OUT]. */
INLINE void panel_of_blocks(__m256i *to, float *scale, const uint8_t *at, int groups, const int bits)
{
	const int n = CODES(bits);

	for (int g = 0; g < groups; g++, at += LINE)
#pragma GCC unroll 4
		for (int c = 0; c < bits / 2; c++, at += 4 * LINE, to += n)
#pragma GCC unroll 2
			for (int h = 0; h < OUT / LANES; h++) {
				__m256i t[4], codes[8];

#pragma GCC unroll 4
				for (int i = 0; i < 4; i++)
					t[i] = _mm256_load_si256((const void *)(at + LINE * i + LINE / 2 * h));
				split(codes, t, false, bits);
#pragma GCC unroll 8
				for (int i = 0; i < n; i++)
					_mm256_store_si256(to + h * groups * bits / 2 * n + i, codes[i]);
			}
	at -= LINE;
	for (int g = groups - 1; g >= 0; g--, at -= LINE * (2 * bits + 1))
		for (int h = 0; h < OUT; h += LANES) {
			__m256i v = _mm256_load_si256((const void *)(at + 4 * h));

			_mm256_store_ps(scale + 2 * OUT * g + h, block_scales8(v));
			_mm256_store_ps(scale + 2 * OUT * g + OUT + h, block_biases8(v));
		}
}

/* Adds the panel's OUT outputs by FEW_ROWS rows to sums[row][OUT]. */
INLINE void many_block(float *sums, const struct few *d, const __m256i *panel, int g0, int g1,
                       struct coded_ahead *ahead, const int bits)
{
	const int chunks = GROUP * bits / 8 / 16, n = CODES(bits);
	const uint8_t *next = ahead->at;
	const size_t hop = ahead->hop;

	for (int h = 0; h < OUT; h += LANES) {
		const int8_t *q = d->q + (size_t)g0 * FEW_ROWS * INPUTS(bits);
		const float *beside = d->beside + (size_t)g0 * 2 * FEW_ROWS,
			    *scale = d->scale + (size_t)g0 * 2 * OUT + h;
		__m256 acc[FEW_ROWS];

#pragma GCC unroll 8
		for (int r = 0; r < FEW_ROWS; r++)
			acc[r] = _mm256_load_ps(sums + r * OUT + h);
		for (int g = g0; g < g1; g++, scale += 2 * OUT, beside += 2 * FEW_ROWS, q += FEW_ROWS * INPUTS(bits)) {
			__m256i v[FEW_ROWS], high[FEW_ROWS];

#pragma GCC unroll 4
			for (int c = 0; c < chunks; c++, panel += n) {
				const int8_t *at[FEW_ROWS];
				__m256i codes[8];

				_mm_prefetch(next + (size_t)(2 * c % RUNS) * hop, _MM_HINT_T1);
				_mm_prefetch(next + (size_t)(2 * c % RUNS + 1) * hop, _MM_HINT_T1);
				if (c % 2)
					next += LINE;
#pragma GCC unroll 8
				for (int i = 0; i < n; i++)
					codes[i] = _mm256_load_si256(panel + i);
				rows_at(at, q + c * INPUTS(bits) / chunks, INPUTS(bits), FEW_ROWS);
				multiply(v, high, codes, at, c == 0, false, bits, FEW_ROWS);
			}
			steps(acc, v, high, scale, beside, false, FEW_ROWS);
		}
#pragma GCC unroll 8
		for (int r = 0; r < FEW_ROWS; r++)
			_mm256_store_ps(sums + r * OUT + h, acc[r]);
	}
	ahead->at = next;
}

#define MANY(bits)                                                                                      \
	static void panel_##bits(__m256i *to, const struct weight *w, int o, int g0, int g1)            \
	{                                                                                               \
		panel_fill(to, w, o, g0, g1, bits);                                                     \
	}                                                                                               \
	static void panel_of_blocks_##bits(__m256i *to, float *scale, const uint8_t *at, int groups)    \
	{                                                                                               \
		panel_of_blocks(to, scale, at, groups, bits);                                           \
	}                                                                                               \
	static void many_##bits(float *sums, const struct few *d, const __m256i *panel, int g0, int g1, \
	                        struct coded_ahead *ahead)                                              \
	{                                                                                               \
		many_block(sums, d, panel, g0, g1, ahead, bits);                                        \
	}
MANY(4)
MANY(8)

/* OUT outputs from o on. */
typedef void few_fn(float *, size_t, const struct few *, int, struct coded_ahead);
#define FEW(bits, R)                                                                                              \
	static void few_##bits##_##R(float *out, size_t ld, const struct few *d, int o, struct coded_ahead ahead) \
	{                                                                                                         \
		for (int h = 0; h < OUT; h += LANES)                                                              \
			few_lanes(out + h, ld, d, d->w->data + (size_t)(o + h) * d->w->row_bytes, d->scale + h,   \
			          &ahead, bits, R);                                                               \
	}
ROWS_TO_8(FEW, 4)
ROWS_TO_8(FEW, 8)
static few_fn *const fews[2][FEW_ROWS] = { { NAMES_TO_8(few_4_) }, { NAMES_TO_8(few_8_) } };

/* Rows [r0, r0 + rows) as the kernels want them, from `to` on; returns where they end. */
static int8_t *few_rows(struct few *d, int8_t *to, const struct acts *x, int r0, int rows, int bits, bool blocks)
{
	size_t n = (size_t)rows, groups = (size_t)(x->cols / x->group), line = (size_t)INPUTS(bits);
	float *beside = (float *)(void *)to;

	to = (int8_t *)coded_beside(beside, x, r0, rows);
	d->beside = beside;
	d->q = to;
	for (size_t r = 0; r < n; r++)
		LEVEL(coded_inputs)
	(to + line * r, line * n, x->q + ((size_t)r0 + r) * (size_t)x->cols, x->cols, bits, blocks);
	return to + line * n * groups;
}

void LEVEL(coded_few)(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                      int r1, void *scratch)
{
	int bits = w->fmt->coding->bits, rows = r1 - r0, first = rows > FEW_ROWS ? (rows + 1) / 2 : rows;
	float *scale = scratch;
	struct few d[2] = { { .w = w, .scale = scale }, { .w = w, .scale = scale } };
	int8_t *to = (int8_t *)(scale + 2 * OUT * (size_t)(w->cols / w->group));

	assert(rows <= FEW_TWICE && coded_is_g64(w));
	to = few_rows(&d[0], to, x, r0, first, bits, false);
	if (first < rows)
		few_rows(&d[1], to, x, r0 + first, rows - first, bits, false);
	if (rows == 1) {
		int begin = o0;

		o0 = LEVEL(coded_row)(out, w, o0, o1, x->q + (size_t)r0 * (size_t)x->cols, d[0].beside, to);
		out += o0 - begin;
	}
	for (int o = o0; o + OUT <= o1; o += OUT, out += OUT) {
		LEVEL(coded_scales)(scale, scale + OUT, 2 * OUT, w, o, OUT);
		fews[bits == 8][first - 1](out, ld, &d[0], o, coded_look_ahead(w, o));
		/* The second half of the rows reads codes that are cached by now, and prefetches nothing. */
		if (first < rows)
			fews[bits == 8][rows - first - 1](out + (size_t)first * ld, ld, &d[1], o,
			                                  (struct coded_ahead){ scratch, 0 });
	}
}

/* At most G64_ROWS rows, half as many where they are int16; blocks: those of w from o0 on, or NULL for rows. */
static void many_of(float *out, size_t ld, const struct weight *w, const uint8_t *blocks, int o0, int o1,
                    const struct acts *x, int r0, int r1, void *scratch)
{
	int groups = w->cols / w->group, bits = w->fmt->coding->bits, rows = r1 - r0,
	    whole = rows / FEW_ROWS * FEW_ROWS;
	int step = G64_PANEL / (OUT * INPUTS(bits));
	__m256i *panel = scratch;
	float *sums = (float *)(void *)(panel + G64_PANEL / sizeof *panel), *scale = sums + OUT * G64_ROWS;
	int8_t *to = (int8_t *)(scale + 2 * OUT * (size_t)groups);
	struct few d[G64_ROWS / FEW_ROWS];
	struct block_rows left;

	assert(rows <= G64_ROWS);
	for (int r = 0; r < (blocks ? whole : rows); r += FEW_ROWS) {
		d[r / FEW_ROWS] = (struct few){ .w = w, .scale = scale };
		to = few_rows(&d[r / FEW_ROWS], to, x, r0 + r, rows - r < FEW_ROWS ? rows - r : FEW_ROWS, bits, blocks);
	}
	if (blocks)
		LEVEL(block_rows_of)(&left, to, x, r0 + whole, rows - whole, bits);
	for (int o = o0; o + OUT <= o1; o += OUT, out += OUT) {
		struct coded_ahead none = { scratch, 0 }, ahead = coded_look_ahead(w, o);

		if (!blocks)
			LEVEL(coded_scales)(scale, scale + OUT, 2 * OUT, w, o, OUT);
		memset(sums, 0, (size_t)whole * OUT * sizeof *sums);
		for (int g0 = 0, g1; g0 < groups; g0 = g1) {
			g1 = g0 + step < groups ? g0 + step : groups;
			if (blocks)
				(bits == 4 ? panel_of_blocks_4 :
				             panel_of_blocks_8)(panel, scale + 2 * OUT * g0,
				                                blocks + (size_t)g0 * packed_block_bytes(w), g1 - g0);
			else
				(bits == 4 ? panel_4 : panel_8)(panel, w, o, g0, g1);
			for (int r = 0; r < whole; r += FEW_ROWS)
				(bits == 4 ? many_4 : many_8)(sums + r * OUT, &d[r / FEW_ROWS], panel, g0, g1,
				                              r ? &none : &ahead);
		}
		for (int r = 0; r < whole; r++)
			memcpy(out + (size_t)r * ld, sums + r * OUT, OUT * sizeof *sums);
		if (whole < rows && blocks)
			LEVEL(packed_rows)(out + (size_t)whole * ld, ld, w, blocks, 1, &left);
		else if (whole < rows)
			fews[bits == 8][rows - whole - 1](out + (size_t)whole * ld, ld, &d[whole / FEW_ROWS], o, none);
		if (blocks)
			blocks += packed_step(w);
	}
}

/* Cuts many rows to what a panel is used for at a time.  What is left at the end may be few. */
INLINE void mul_many(weight_mul_fn *few, float *out, size_t ld, const struct weight *w, const uint8_t *blocks, int o0,
                     int o1, const struct acts *x, int r0, int r1, void *scratch)
{
	int most = INPUTS(w->fmt->coding->bits) > GROUP ? G64_ROWS / 2 : G64_ROWS;

	for (int n; r0 < r1; r0 += n, out += (size_t)n * ld) {
		n = r1 - r0 < most ? r1 - r0 : most;
		if (n <= FEW_TWICE)
			few(out, ld, w, o0, o1, x, r0, r0 + n, scratch);
		else
			many_of(out, ld, w, blocks, o0, o1, x, r0, r0 + n, scratch);
	}
}

void LEVEL(coded_g64_many)(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                           int r1, void *scratch)
{
	mul_many(LEVEL(coded_few), out, ld, w, NULL, o0, o1, x, r0, r1, scratch);
}

void LEVEL(packed_many)(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                        int r1, void *scratch)
{
	assert(o0 % OUT == 0 && o1 % OUT == 0);
	mul_many(LEVEL(packed_few), out, ld, w, packed_at(w, packed_of(w), o0, 0), o0, o1, x, r0, r1, scratch);
}
