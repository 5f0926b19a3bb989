/* coded_few_avx512.c - one to FEW_TWICE rows over affine codes of 4 or 8 bits in groups
 * of 64; the bits of coded.c.
 *
 * A line of codes of each of 16 outputs is turned, so that a vector has a quad of
 * inputs of all 16; vpdpbusd multiplies it by a row's quad.  Outputs are lanes from
 * there on: nothing has to be added up across a vector, and what is done for each
 * line of codes is little, whatever the number of rows.
 *
 * That counts because memory has to be kept busy meanwhile: lines of the outputs that
 * follow are asked for one by one between the products.  More than FEW_ROWS rows are two
 * times up to as many, one after the other for each 16 outputs.  One row goes another way,
 * where its part is long enough: coded_row_avx512.c. */
#include <assert.h>
#include <immintrin.h>

#include "quant/coded/coded_kernels.h"
#include "quant/coded/coded_prefetch.h"
#include "quant/kernel_rows.h"
#include "quant/lanes/transpose512.h"

#define INLINE static inline __attribute__((always_inline))

/* NEAR bytes on lies what an output reads next; it is asked for into the first cache. */
enum { OUT = OUT_ONCE, LINE = 64, NEAR = 256, SCALES_AHEAD = 2 * OUT };

/* Data that all blocks of outputs of a call share, each in the order in which it is read, so that few
 * registers point to it. */
struct few {
	const struct weight *w;
	const int8_t *q;          /* [lines][rows][inputs of a line]; of 4 bits first the even ones */
	const float *beside;      /* [groups][rows][scale, scaled sum] */
	float *scale;             /* [groups][scale, bias][OUT] */
	struct coded_ahead ahead; /* of this block of outputs */
	size_t scale_row;         /* bytes of an output's scales */
};

/* The instruction takes the quad where it is. */
INLINE __m512i dot_quad(__m512i acc, __m512i codes, const int8_t *q)
{
	__asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(codes), "m"(*(const int32_t *)q));
	return acc;
}

/* Where what is asked for lies: the next lines of the runs ahead, and of the outputs in turn. */
struct hints {
	struct coded_ahead ahead;
	const uint8_t *near;
	size_t row_bytes;
};

/* The sums of a group over R rows: turned[j] (transposed codes) has 4 inputs of each output, or 8 of 4 bits. */
INLINE void group_sums(__m512i sum[], const __m512i turned[], const int8_t *q, const struct hints *h, const int bits,
                       const int R)
{
	const __m512i low = _mm512_set1_epi8(15);
	__m512i other[FEW_ROWS];

#pragma GCC unroll 8
	for (int r = 0; r < R; r++)
		sum[r] = other[r] = _mm512_setzero_si512();
#pragma GCC unroll 16
	for (int j = 0; j < 2 * bits; j++) {
		__m512i a = turned[j], b;

		_mm_prefetch(h->ahead.at + (size_t)(j % RUNS) * h->ahead.hop + LINE * (j / RUNS), _MM_HINT_T1);
		_mm_prefetch(h->near + (size_t)j * h->row_bytes, _MM_HINT_T0);
		if (bits == 8) {
#pragma GCC unroll 8
			for (int r = 0; r < R; r++) {
				__m512i *to = j % 2 ? &other[r] : &sum[r];

				*to = dot_quad(*to, a, q + LINE * r + 4 * j);
			}
			continue;
		}
		b = _mm512_andnot_si512(low, a); /* 16 times the code */
		a = _mm512_and_si512(a, low);
#pragma GCC unroll 8
		for (int r = 0; r < R; r++) {
			sum[r] = dot_quad(sum[r], a, q + 2 * LINE * r + 4 * j);
			other[r] = dot_quad(other[r], b, q + 2 * LINE * r + LINE + 4 * j);
		}
	}
#pragma GCC unroll 8
	for (int r = 0; r < R; r++)
		sum[r] = _mm512_add_epi32(sum[r], bits == 4 ? _mm512_srai_epi32(other[r], 4) : other[r]);
}

/* OUT outputs from o on by R rows.  Meanwhile scales and biases of outputs that come later are asked for, a
 * line of the ones or the others for each group. */
INLINE void few_block(float *out, size_t ld, const struct few *d, int o, const int bits, const int R)
{
	const int per = 8 / bits; /* groups in a line */
	const size_t row_bytes = d->w->row_bytes;
	const uint8_t *row = d->w->data + (size_t)o * row_bytes;
	struct hints hints = { .ahead = d->ahead, .row_bytes = row_bytes };
	const float *scale = d->scale, *beside = d->beside;
	const int8_t *q = d->q;
	const uint8_t *ask = d->w->scales + (size_t)(o + SCALES_AHEAD) * d->scale_row,
		      *next = d->w->biases + (ask - d->w->scales);
	__m512 acc[FEW_ROWS];

#pragma GCC unroll 8
	for (int r = 0; r < R; r++)
		acc[r] = _mm512_setzero_ps();
	for (const uint8_t *end = row + row_bytes; row < end; row += LINE, q += LINE * per * R) {
		__m512i t[OUT];

#pragma GCC unroll 16
		for (int i = 0; i < OUT; i++)
			t[i] = _mm512_loadu_si512(row + (size_t)i * row_bytes);
		transpose16(t);
#pragma GCC unroll 2
		for (int h = 0; h < per; h++, scale += 2 * OUT, beside += 2 * R) {
			__m512 s = _mm512_load_ps(scale), b = _mm512_load_ps(scale + OUT);
			__m512i sum[FEW_ROWS];
			const uint8_t *asked = ask;

			_mm_prefetch(asked, _MM_HINT_T0);
			ask = next;
			next = asked + LINE;
			hints.near = row + NEAR + (size_t)(OUT / per * h) * row_bytes;
			group_sums(sum, t + OUT / per * h, q + LINE / per * h, &hints, bits, R);
			hints.ahead.at += OUT / RUNS / per * LINE;
#pragma GCC unroll 8
			for (int r = 0; r < R; r++) {
				__m512 f = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[r]), _mm512_set1_ps(beside[2 * r]));

				acc[r] = _mm512_fmadd_ps(s, f, acc[r]);
				acc[r] = _mm512_fmadd_ps(b, _mm512_set1_ps(beside[2 * r + 1]), acc[r]);
			}
		}
	}
#pragma GCC unroll 8
	for (int r = 0; r < R; r++)
		_mm512_storeu_ps(out + (size_t)r * ld, acc[r]);
}

typedef void few_fn(float *, size_t, const struct few *, int);
#define FEW(bits, R)                                                                    \
	static void few_##bits##_##R(float *out, size_t ld, const struct few *d, int o) \
	{                                                                               \
		few_block(out, ld, d, o, bits, R);                                      \
	}
ROWS_TO_8(FEW, 4)
ROWS_TO_8(FEW, 8)
static few_fn *const fews[2][FEW_ROWS] = { { NAMES_TO_8(few_4_) }, { NAMES_TO_8(few_8_) } };

/* One row's activations to where lines are `step` bytes apart: as they are, or of each 128 the
 * even ones, then the odd ones. */
static void few_inputs(int8_t *to, size_t step, const int8_t *q, int cols, int bits)
{
	if (bits == 8) {
		for (int i = 0; i < cols; i += LINE, to += step)
			_mm512_storeu_si512(to, _mm512_loadu_si512(q + i));
		return;
	}
	for (int i = 0; i < cols; i += 2 * LINE, to += step) {
		__m512i v = _mm512_loadu_si512(q + i), w = _mm512_loadu_si512(q + i + LINE);

		_mm256_storeu_si256((void *)to, _mm512_cvtepi16_epi8(v));
		_mm256_storeu_si256((void *)(to + 32), _mm512_cvtepi16_epi8(w));
		_mm256_storeu_si256((void *)(to + 64), _mm512_cvtepi16_epi8(_mm512_srli_epi16(v, 8)));
		_mm256_storeu_si256((void *)(to + 96), _mm512_cvtepi16_epi8(_mm512_srli_epi16(w, 8)));
	}
}

/* rows <= FEW_ROWS rows from r0 on, laid out from `to` on; returns what is behind them. */
static uint8_t *few_rows(struct few *d, uint8_t *to, const struct acts *x, int r0, int rows)
{
	int bits = d->w->fmt->coding->bits;
	size_t line = LINE * 8 / (size_t)bits; /* inputs */
	float *beside = (float *)to;
	int8_t *q = (int8_t *)coded_beside(beside, x, r0, rows);

	for (int r = 0; r < rows; r++)
		few_inputs(q + line * (size_t)r, line * (size_t)rows, x->q + (size_t)(r0 + r) * (size_t)x->cols,
		           x->cols, bits);
	d->q = q;
	d->beside = beside;
	return (uint8_t *)q + (size_t)rows * (size_t)x->cols;
}

void coded_few_avx512(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                      int r1, void *scratch)
{
	size_t groups = (size_t)(w->cols / w->group);
	int bits = w->fmt->coding->bits, rows = r1 - r0, first = rows > FEW_ROWS ? (rows + 1) / 2 : rows, o = o0;
	float *scale = scratch;
	uint8_t *to = (uint8_t *)(scale + 2 * OUT * groups);
	size_t scale_row = groups * (size_t)dtype_size(w->scale_type);
	struct few d[2] = { { .w = w, .scale = scale, .scale_row = scale_row },
		            { .w = w, .scale = scale, .scale_row = scale_row } };

	assert(rows <= FEW_TWICE && coded_is_g64(w));
	to = few_rows(&d[0], to, x, r0, first);
	if (rows > first)
		to = few_rows(&d[1], to, x, r0 + first, rows - first);
	if (rows == 1)
		o = coded_row_avx512(out, w, o0, o1, d[0].q, d[0].beside, to);
	for (; o + OUT <= o1; o += OUT) {
		float *at = out + (o - o0);

		coded_scales_only_avx512(scale, scale + OUT, 2 * OUT, w, o, OUT);
		d[0].ahead = d[1].ahead = coded_look_ahead(w, o);
		fews[bits == 8][first - 1](at, ld, &d[0], o);
		if (rows > first)
			fews[bits == 8][rows - first - 1](at + (size_t)first * ld, ld, &d[1], o);
	}
}
