/* coded_few_avx512.c - one to FEW_ROWS rows over affine codes of 4 or 8 bits in groups
 * of 64; the bits of coded.c.
 *
 * A line of codes of each of 16 outputs is turned, so that a vector has a quad of
 * inputs of all 16; vpdpbusd multiplies it by a row's quad.  Outputs are lanes from
 * there on: nothing has to be added up across a vector, and what is done for each
 * line of codes is little, whatever the number of rows.
 *
 * That counts because memory has to be kept busy meanwhile.  Lines of the next `ahead`
 * outputs are asked for one by one between the products, in RUNS runs of memory side by
 * side: a processor brings in a page in rising order by itself, a few lines ahead and
 * only while lines of it are asked for, so several pages at a time keep more lines under
 * way than one does (docs/performance.md). */
#include <assert.h>
#include <immintrin.h>

#include "quant/levels.h"
#include "quant/transpose512.h"

#define INLINE static inline __attribute__((always_inline))

enum {
	OUT = 16, LINE = 64, RUNS = 4,
	NEAR = 128,             /* bytes: what a row reads next, into the first cache */
	AHEAD_BYTES = 32 << 10, /* at least, as far as AHEAD_MOST outputs have as many */
	AHEAD_MOST = 32,
};

/* A call: what all its blocks of outputs share. */
struct few {
	const struct weight *w;
	const int8_t *q[FEW_ROWS];              /* of 4 bits: of 128 inputs the even ones, then the odd ones */
	const float *scale_x[FEW_ROWS], *sum_x[FEW_ROWS];
	float *scale, *bias;                    /* [groups][OUT] */
	const uint8_t *ahead;                   /* of this block: where its share of the first run begins */
	size_t hop;                             /* from a run to the next */
};

bool coded_few_takes(const struct weight *w)
{
	const struct coding *c = w->fmt->coding;

	return w->group == 64 && c->bias && !c->lut && !c->zero && (c->bits == 4 || c->bits == 8) && w->row_bytes % LINE == 0;
}

/* The instruction takes the quad where it is. */
INLINE __m512i dot_quad(__m512i acc, __m512i codes, const int8_t *q)
{
	__asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(codes), "m"(*(const int32_t *)q));
	return acc;
}

/* The sums of a group over R rows: turned[j] has 4 inputs of each output, or 8 of 4 bits. */
INLINE void group_sums(__m512i sum[], const __m512i turned[], const int8_t *const q[], const uint8_t *ahead, size_t hop,
                       const int bits, const int R)
{
	const __m512i low = _mm512_set1_epi8(15);
	__m512i other[FEW_ROWS];

#pragma GCC unroll 8
	for (int r = 0; r < R; r++)
		sum[r] = other[r] = _mm512_setzero_si512();
#pragma GCC unroll 16
	for (int j = 0; j < 2 * bits; j++) {
		__m512i a = turned[j], b;

		_mm_prefetch(ahead + (size_t)(j % RUNS) * hop + LINE * (j / RUNS), _MM_HINT_T1);
		if (bits == 8) {
#pragma GCC unroll 8
			for (int r = 0; r < R; r++) {
				__m512i *to = j % 2 ? &other[r] : &sum[r];

				*to = dot_quad(*to, a, q[r] + 4 * j);
			}
			continue;
		}
		b = _mm512_and_si512(_mm512_srli_epi16(a, 4), low);
		a = _mm512_and_si512(a, low);
#pragma GCC unroll 8
		for (int r = 0; r < R; r++) {
			sum[r] = dot_quad(sum[r], a, q[r] + 4 * j);
			other[r] = dot_quad(other[r], b, q[r] + LINE + 4 * j);
		}
	}
#pragma GCC unroll 8
	for (int r = 0; r < R; r++)
		sum[r] = _mm512_add_epi32(sum[r], other[r]);
}

/* OUT outputs from o on by R rows. */
INLINE void few_block(float *out, size_t ld, const struct few *d, int o, const int bits, const int R)
{
	const int per = 8 / bits;               /* groups in a line */
	const size_t row_bytes = d->w->row_bytes, hop = d->hop;
	const uint8_t *row = d->w->data + (size_t)o * row_bytes, *ahead = d->ahead;
	const float *scale = d->scale, *bias = d->bias;
	const int8_t *q[FEW_ROWS];
	__m512 acc[FEW_ROWS];

#pragma GCC unroll 8
	for (int r = 0; r < R; r++) {
		q[r] = d->q[r];
		acc[r] = _mm512_setzero_ps();
	}
	for (size_t k = 0, g = 0; k < row_bytes; k += LINE, row += LINE) {
		__m512i t[OUT];

#pragma GCC unroll 16
		for (int i = 0; i < OUT; i++) {
			t[i] = _mm512_loadu_si512(row + (size_t)i * row_bytes);
			_mm_prefetch(row + (size_t)i * row_bytes + NEAR, _MM_HINT_T0);
		}
		transpose16(t);
#pragma GCC unroll 2
		for (int h = 0; h < per; h++, g++, scale += OUT, bias += OUT, ahead += OUT / RUNS / per * LINE) {
			__m512i sum[FEW_ROWS];

			group_sums(sum, t + OUT / per * h, q, ahead, hop, bits, R);
#pragma GCC unroll 8
			for (int r = 0; r < R; r++) {
				__m512 f = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[r]), _mm512_set1_ps(d->scale_x[r][g]));

				acc[r] = _mm512_fmadd_ps(_mm512_load_ps(scale), f, acc[r]);
				acc[r] = _mm512_fmadd_ps(_mm512_load_ps(bias), _mm512_set1_ps(d->sum_x[r][g]), acc[r]);
				q[r] += bits == 8 ? LINE : h ? 3 * LINE / 2 : LINE / 2;
			}
		}
	}
#pragma GCC unroll 8
	for (int r = 0; r < R; r++)
		_mm512_storeu_ps(out + (size_t)r * ld, acc[r]);
}

typedef void few_fn(float *, size_t, const struct few *, int);
#define FEW(bits, R) \
	static void few_##bits##_##R(float *out, size_t ld, const struct few *d, int o) \
	{ \
		few_block(out, ld, d, o, bits, R); \
	}
FEW(4, 1) FEW(4, 2) FEW(4, 3) FEW(4, 4) FEW(4, 5) FEW(4, 6) FEW(4, 7) FEW(4, 8)
FEW(8, 1) FEW(8, 2) FEW(8, 3) FEW(8, 4) FEW(8, 5) FEW(8, 6) FEW(8, 7) FEW(8, 8)
static few_fn *const fews[2][FEW_ROWS] = {
	{ few_4_1, few_4_2, few_4_3, few_4_4, few_4_5, few_4_6, few_4_7, few_4_8 },
	{ few_8_1, few_8_2, few_8_3, few_8_4, few_8_5, few_8_6, few_8_7, few_8_8 },
};

/* Of each 128 inputs the even ones, then the odd ones. */
static void part_evens(int8_t *to, const int8_t *q, int cols)
{
	for (int i = 0; i < cols; i += 128) {
		__m512i v = _mm512_loadu_si512(q + i), w = _mm512_loadu_si512(q + i + 64);

		_mm256_storeu_si256((void *)(to + i), _mm512_cvtepi16_epi8(v));
		_mm256_storeu_si256((void *)(to + i + 32), _mm512_cvtepi16_epi8(w));
		_mm256_storeu_si256((void *)(to + i + 64), _mm512_cvtepi16_epi8(_mm512_srli_epi16(v, 8)));
		_mm256_storeu_si256((void *)(to + i + 96), _mm512_cvtepi16_epi8(_mm512_srli_epi16(w, 8)));
	}
}

/* What outputs o .. o + OUT - 1 ask for: their share of the `ahead` outputs that follow those
 * they belong to, whoever computes these.  Where the weight ends, its last ones again. */
static void look_ahead(struct few *d, int o, int ahead)
{
	int next = (o / ahead + 1) * ahead;

	if (next > d->w->rows - ahead)
		next = d->w->rows > ahead ? d->w->rows - ahead : 0;
	d->hop = (size_t)(ahead / RUNS) * d->w->row_bytes;
	d->ahead = d->w->data + (size_t)next * d->w->row_bytes +
	           (size_t)(o % ahead / RUNS) * d->w->row_bytes;
}

int coded_few_avx512(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0, int r1,
                     void *scratch)
{
	size_t groups = (size_t)(w->cols / w->group);
	int bits = w->fmt->coding->bits, rows = r1 - r0;
	int ahead = OUT * w->row_bytes < AHEAD_BYTES ? AHEAD_MOST : OUT;
	struct few d = { .w = w, .scale = scratch };
	int8_t *q = (int8_t *)(d.scale + 2 * OUT * groups);

	assert(rows <= FEW_ROWS && coded_few_takes(w));
	d.bias = d.scale + OUT * groups;
	for (int r = 0; r < rows; r++, q += w->cols) {
		size_t row = (size_t)(r0 + r);

		d.q[r] = x->q + row * (size_t)x->cols;
		d.scale_x[r] = x->scale + row * groups;
		d.sum_x[r] = x->scaled_sum + row * groups;
		if (bits == 4) {
			part_evens(q, d.q[r], w->cols);
			d.q[r] = q;
		}
	}
	for (int o = o0; o + OUT <= o1; o += OUT) {
		coded_scales_avx512(d.scale, d.bias, OUT, w, o, OUT);
		look_ahead(&d, o, ahead);
		fews[bits == 8][rows - 1](out + (o - o0), ld, &d, o);
	}
	return o0 + (o1 - o0) / OUT * OUT;
}
