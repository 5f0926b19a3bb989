/* coded_one_avx512.c - one row over affine codes of 4 bits in groups of 64; the bits of coded.c.
 *
 * Decoding one sequence is reading, and memory gives most when it is read as two runs side by side,
 * a line of each in turn, asked for a bit less than a page ahead (docs/performance.md, Tried).  So
 * the outputs of both halves of a part are read one after the other, in pairs, a line of each in
 * turn.  Whatever else there is to do comes in pieces between two outputs, and nothing is asked for
 * in bursts: the sums of 2 x 16 outputs go to scratch, and while the next are read, they and their
 * scales are turned, so that outputs are lanes, for the float steps. */
#include <immintrin.h>

#include "quant/levels.h"
#include "quant/transpose512.h"

#define INLINE static inline __attribute__((always_inline))

enum {
	OUT = OUT_ONCE, LINE = 64, GROUP = 64,
	RUN = 2,                /* runs of memory side by side */
	AHEAD = 3072,           /* bytes on, codes are asked for; 2,048 and 4,096 are a tenth slower */
	AHEAD_OUT = 2 * OUT,    /* outputs on, scales are */
	EIGHT = 8,              /* lines whose sums fill a vector: 16 groups */
	LEAST = 4 * OUT,        /* outputs of a run for which it pays */
};

struct one {
	const struct weight *w;
	const int8_t *q;                        /* of each line the even inputs, then the odd ones */
	const float *beside;                    /* [groups][scale, scaled sum] */
	size_t groups, padded;                  /* filled up to whole vectors */
	float *scale;                           /* [RUN][groups][scale, bias][OUT] */
	int32_t *sum[2];                        /* [RUN][OUT][padded] of those that are read, and of those before */
};

/* Outputs o .. o + OUT - 1 of a run, read before: what is done of them. */
struct late {
	int o;
	float *out, *scale;
	const int32_t *sum;
	size_t group;           /* those below are in acc */
	__m512 acc;
};

static size_t one_lay(struct one *d, uint8_t *p, int cols)
{
	size_t at = 0;

	d->groups = (size_t)(cols / GROUP);
	d->padded = (d->groups + 15) / 16 * 16;
#define TAKE(field, bytes) (d->field = (void *)(p + at), at += bytes)
	TAKE(scale, RUN * d->groups * 2 * OUT * sizeof *d->scale);
	TAKE(sum[0], RUN * OUT * d->padded * sizeof *d->sum[0]);
	TAKE(sum[1], RUN * OUT * d->padded * sizeof *d->sum[1]);
#undef TAKE
	return at;
}

size_t coded_one_scratch(int cols)
{
	struct one d;
	uint8_t none[1];

	return one_lay(&d, none, cols);
}

/* Sums of a line's codes, those of its first group in the lower half.  At most 8 products in a lane: 15,240, so that two fit 16 bits. */
INLINE __m512i line_sums(const uint8_t *at, const int8_t *q)
{
	const __m512i low = _mm512_set1_epi8(15);
	__m512i codes = _mm512_loadu_si512(at), sum = _mm512_setzero_si512();

	__asm__ volatile("prefetcht0 %0" : : "m"(at[AHEAD]));  /* volatile: in this order */
	sum = _mm512_dpbusd_epi32(sum, _mm512_and_si512(codes, low), _mm512_load_si512(q));
	return _mm512_dpbusd_epi32(sum, _mm512_and_si512(_mm512_srli_epi16(codes, 4), low), _mm512_load_si512(q + LINE));
}

/* Lanes added up in twos, a's and b's in turn by 64 bits. */
INLINE __m512i twos(__m512i a, __m512i b) { return _mm512_madd_epi16(_mm512_packs_epi32(a, b), _mm512_set1_epi16(1)); }

/* Four lines of each run: sum[k] = [half of the first groups][the other half][of the second groups][...], by line. */
INLINE void four_lines(__m512i sum[RUN], const uint8_t *const at[RUN], size_t from, const int8_t *q)
{
	__m512i v[4][RUN];

#pragma GCC unroll 4
	for (int i = 0; i < 4; i++)
#pragma GCC unroll 2
		for (int k = 0; k < RUN; k++)
			v[i][k] = line_sums(at[k] + from + LINE * i, q + 2 * LINE * i);
#pragma GCC unroll 2
	for (int k = 0; k < RUN; k++)
		sum[k] = twos(twos(v[0][k], v[1][k]), twos(v[2][k], v[3][k]));
}

/* Where in a vector of 16 groups the sum of group g stands: by four lines, then first and second
 * groups, then lines. */
INLINE int place(int g) { return g / 8 * 8 + g % 2 * 4 + g / 2 % 4; }

/* One output of each run. */
static void read_outputs(const struct one *d, const uint8_t *const at[RUN], int32_t *sum)
{
	const int8_t *q = d->q;

	for (size_t from = 0; from < d->w->row_bytes; from += EIGHT * LINE, q += 2 * EIGHT * LINE, sum += 16) {
		__m512i a[RUN], b[RUN];

		four_lines(a, at, from, q);
		if (from + EIGHT / 2 * LINE < d->w->row_bytes) {
			four_lines(b, at, from + EIGHT / 2 * LINE, q + EIGHT * LINE);
		} else {
#pragma GCC unroll 2
			for (int k = 0; k < RUN; k++)
				b[k] = a[k];
		}
#pragma GCC unroll 2
		for (int k = 0; k < RUN; k++)
			_mm512_store_si512(sum + (size_t)k * OUT * d->padded,
			                   _mm512_add_epi32(_mm512_shuffle_i32x4(a[k], b[k], 0x88), _mm512_shuffle_i32x4(a[k], b[k], 0xdd)));
	}
}

/* Float steps of the next 16 groups. */
static void late_steps(const struct one *d, struct late *l)
{
	const float *scale = l->scale + 2 * OUT * l->group, *beside = d->beside + 2 * l->group;
	__m512i v[16];

	if (l->group == 0) {
		coded_scales_only_avx512(l->scale, l->scale + OUT, 2 * OUT, d->w, l->o, OUT);
		l->acc = _mm512_setzero_ps();
	}
#pragma GCC unroll 16
	for (int i = 0; i < 16; i++)
		v[i] = _mm512_load_si512(l->sum + (size_t)i * d->padded + l->group);
	transpose16(v);
#pragma GCC unroll 16
	for (int g = 0; g < 16; g++, scale += 2 * OUT, beside += 2)
		if (g < 8 || l->group + 8 < d->groups) {
			__m512 f = _mm512_mul_ps(_mm512_cvtepi32_ps(v[place(g)]), _mm512_set1_ps(beside[0]));

			l->acc = _mm512_fmadd_ps(_mm512_load_ps(scale), f, l->acc);
			l->acc = _mm512_fmadd_ps(_mm512_load_ps(scale + OUT), _mm512_set1_ps(beside[1]), l->acc);
		}
	l->group += 16;
	if (l->group == d->padded)
		_mm512_storeu_ps(l->out, l->acc);
}

/* What is due of n pieces when `of` OUT outputs are read. */
INLINE void late_until(const struct one *d, struct late late[RUN], size_t *done, size_t n, int of)
{
	for (; *done * OUT < n * (size_t)of; ++*done)
		late_steps(d, &late[*done % RUN]);
}

/* Outputs [o, o + n) and [o + n, o + 2 n), n a multiple of OUT. */
static void two_runs(float *out, const struct one *d, int o, int n)
{
	size_t pieces = RUN * d->padded / 16;
	struct late late[RUN];

	for (int b = 0; b <= n; b += OUT) {
		size_t done = b ? 0 : pieces;   /* nothing was read before the first */
		int32_t *read = d->sum[b / OUT % 2], *before = d->sum[(b / OUT + 1) % 2];

		for (int k = 0; k < RUN && b; k++)
			late[k] = (struct late){ .o = o + k * n + b - OUT, .out = out + k * n + b - OUT,
			                         .scale = d->scale + (size_t)k * d->groups * 2 * OUT,
			                         .sum = before + (size_t)k * OUT * d->padded };
		for (int i = 0; i < OUT && b < n; i++) {
			const uint8_t *at[RUN];

			for (int k = 0; k < RUN; k++) {
				at[k] = d->w->data + (size_t)(o + k * n + b + i) * d->w->row_bytes;
				coded_ask_scales(d->w, o + k * n + b + i + AHEAD_OUT, 1);
			}
			read_outputs(d, at, read + (size_t)i * d->padded);
			late_until(d, late, &done, pieces, i + 1);
		}
		late_until(d, late, &done, pieces, OUT);
	}
}

int coded_one_avx512(float *out, const struct weight *w, int o0, int o1, const int8_t *q, const float *beside, void *scratch)
{
	int n = (o1 - o0) / RUN / OUT * OUT;
	struct one d = { .w = w, .q = q, .beside = beside };

	if (w->fmt->coding->bits != 4 || n < LEAST || w->row_bytes % (EIGHT / 2 * LINE))
		return o0;
	one_lay(&d, scratch, w->cols);
	two_runs(out, &d, o0, n);
	return o0 + RUN * n;
}
