/* coded_row_avx512.c - one row over affine codes of 4 or 8 bits in groups of 64; the bits of coded.c.
 *
 * Decoding one sequence is reading, and memory gives most when it is read as two runs side by side,
 * a line of each in turn, asked for a bit less than a page ahead (bench/notes/kernels.md, Tried).  So
 * the outputs of both halves of a part are read one after the other, in pairs, a line of each in
 * turn.  Whatever else there is to do comes in pieces between two outputs, and nothing is asked for
 * in bursts: the sums of 2 x 16 outputs go to scratch, and while the next are read, they and their
 * scales are turned, so that outputs are lanes, for the float steps, which ask for codes further ahead
 * lest memory pause.  Scales and biases of the outputs that are read are asked for meanwhile, a line
 * for as many codes as it stands for. */
#include <assert.h>
#include <immintrin.h>

#include "quant/coded/coded_kernels.h"
#include "quant/coded/coded_prefetch.h"
#include "quant/lanes/transpose512.h"

#define INLINE static inline __attribute__((always_inline))

enum {
	OUT = OUT_ONCE,
	LINE = 64,
	GROUP = 64,
	RUN = ONE_RUNS,
	AHEAD = 2816, /* bytes on, codes are asked for; 1,024 less or more is a tenth slower */
	HALF = 8,
	WHOLE = 16,      /* groups: as many sums as a vector holds, and half as many */
	LEAST = 4 * OUT, /* outputs of a run for which it pays */
};

struct one {
	const struct weight *w;
	const int8_t *q;       /* of each line as the codes are: of 4 bits the even inputs, then the odd ones */
	const float *beside;   /* [groups][scale, scaled sum] */
	size_t groups, padded; /* filled up to whole vectors */
	__m512i *pair;         /* [scales, biases][WHOLE / 2][OUT], of two groups a lane */
	int32_t *sum[2];       /* [RUN][OUT][padded] of the outputs that are being read, and of those before */
};

/* Outputs o .. o + OUT - 1 of a run, read before: what is done of them. */
struct late {
	int o;
	float *out;
	const int32_t *sum;
	size_t group; /* those below are in acc */
	__m512 acc;
};

static void one_lay(struct one *d, uint8_t *p, int cols)
{
	size_t at = 0;

	d->groups = (size_t)(cols / GROUP);
	d->padded = (d->groups + WHOLE - 1) / WHOLE * WHOLE;
#define TAKE(field, bytes) (d->field = (void *)(p + at), at += bytes)
	TAKE(pair, WHOLE * sizeof *d->pair);
	TAKE(sum[0], RUN * OUT * d->padded * sizeof *d->sum[0]);
	TAKE(sum[1], RUN * OUT * d->padded * sizeof *d->sum[1]);
#undef TAKE
	assert(at <= coded_row_scratch(cols));
}

/* Sums of a line's codes; of 4 bits those of its first group are in the lower half, and at most 8 products in a
 * lane: 15,240, so that two fit 16 bits. */
INLINE __m512i line_sums(const uint8_t *at, const int8_t *q, const int bits)
{
	const __m512i low = _mm512_set1_epi8(15);
	__m512i codes = _mm512_loadu_si512(at), sum = _mm512_setzero_si512();

	__asm__ volatile("prefetcht0 %0" : : "m"(at[AHEAD])); /* volatile: in this order */
	if (bits == 8)
		return _mm512_dpbusd_epi32(sum, codes, _mm512_load_si512(q));
	sum = _mm512_dpbusd_epi32(sum, _mm512_and_si512(codes, low), _mm512_load_si512(q));
	return _mm512_dpbusd_epi32(sum, _mm512_and_si512(_mm512_srli_epi16(codes, 4), low),
	                           _mm512_load_si512(q + LINE));
}

/* Lanes added up in twos: of sums that fit 16 bits, a's and b's in turn by 64 bits; of others by 32 bits. */
INLINE __m512i twos_small(__m512i a, __m512i b)
{
	return _mm512_madd_epi16(_mm512_packs_epi32(a, b), _mm512_set1_epi16(1));
}
INLINE __m512i twos(__m512i a, __m512i b)
{
	return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}
/* Adds pairs of the results of twos(), by 64 bits; its result has a's two sums, then b's, by 128 bits. */
INLINE __m512i fours(__m512i a, __m512i b)
{
	return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}
INLINE __m512i eights(__m512i a, __m512i b)
{
	return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

/* Four lines of each run. With 4 bits sum[k] = [half of the first groups][the other half][of the second
 * groups][...], by line; with 8 bits [a quarter of each][...]. */
INLINE void four_lines(__m512i sum[RUN], const uint8_t *const at[RUN], size_t from, const int8_t *q, const int bits)
{
	__m512i v[4][RUN];

#pragma GCC unroll 4
	for (int i = 0; i < 4; i++)
#pragma GCC unroll 2
		for (int k = 0; k < RUN; k++)
			v[i][k] = line_sums(at[k] + from + LINE * i, q + 8 / bits * LINE * i, bits);
#pragma GCC unroll 2
	for (int k = 0; k < RUN; k++)
		sum[k] = bits == 4 ? twos_small(twos_small(v[0][k], v[1][k]), twos_small(v[2][k], v[3][k])) :
		                     fours(twos(v[0][k], v[1][k]), twos(v[2][k], v[3][k]));
}

/* HALF groups of each run, as four lines of 4 bits; the first and second groups of 8 bits are the lower and upper
 * ones. */
INLINE void half_sums(__m512i sum[RUN], const uint8_t *const at[RUN], size_t from, const int8_t *q, const int bits)
{
	__m512i upper[RUN];

	four_lines(sum, at, from, q, bits);
	if (bits == 4)
		return;
	four_lines(upper, at, from + 4 * LINE, q + 4 * LINE, bits);
#pragma GCC unroll 2
	for (int k = 0; k < RUN; k++)
		sum[k] = eights(sum[k], upper[k]);
}

/* The place of group g's sum in a vector of 16 groups. 4 bits: by four lines, then first and second
 * groups, then lines. */
INLINE int place(int g, const int bits)
{
	return bits == 4 ? g / 8 * 8 + g % 2 * 4 + g / 2 % 4 : g;
}

/* One output of each run. */
INLINE void read_outputs(const struct one *d, const uint8_t *const at[RUN], int32_t *sum, struct coded_asked *asked,
                         const int bits)
{
	const size_t half = (size_t)(HALF * GROUP * bits / 8);
	const int8_t *q = d->q;

	for (size_t from = 0; from < d->w->row_bytes; from += 2 * half, q += WHOLE * GROUP, sum += WHOLE) {
		__m512i a[RUN], b[RUN];

		coded_prefetch_next(asked);
		half_sums(a, at, from, q, bits);
		if (from + half < d->w->row_bytes) {
			coded_prefetch_next(asked);
			half_sums(b, at, from + half, q + HALF * GROUP, bits);
		} else {
#pragma GCC unroll 2
			for (int k = 0; k < RUN; k++)
				b[k] = a[k];
		}
#pragma GCC unroll 2
		for (int k = 0; k < RUN; k++)
			_mm512_store_si512(sum + (size_t)k * OUT * d->padded, eights(a[k], b[k]));
	}
}

/* Scales and biases of the next n groups to d->pair. */
INLINE void late_pairs(const struct one *d, const struct late *l, const int n)
{
	size_t row = 2 * d->groups, at = (size_t)l->o * row + 2 * l->group;
	const uint8_t *s = d->w->scales + at, *b = d->w->biases + at;
	__m512i v[OUT];

#pragma GCC unroll 16
	for (int i = 0; i < OUT; i++, s += row, b += row)
		if (n == WHOLE)
			v[i] = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const void *)s)),
			                          _mm256_loadu_si256((const void *)b), 1);
		else
			v[i] = _mm512_inserti32x4(_mm512_castsi128_si512(_mm_loadu_si128((const void *)s)),
			                          _mm_loadu_si128((const void *)b), 2);
	transpose16(v);
#pragma GCC unroll 16
	for (int i = 0; i < WHOLE; i++)
		if (i % HALF < n / 2)
			_mm512_store_si512(d->pair + i, v[i]);
}

/* The one of group g, out of its pair. */
INLINE __m512 of_pair(const __m512i *pair, int g, const enum dtype t)
{
	__m512i v = _mm512_load_si512(pair + g / 2);

	if (t == DT_F16)
		return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(g % 2 ? _mm512_srli_epi32(v, 16) : v));
	return _mm512_castsi512_ps(g % 2 ? _mm512_and_si512(v, _mm512_set1_epi32((int)0xffff0000)) :
	                                   _mm512_slli_epi32(v, 16));
}

/* Float steps of the next n groups, and as many lines asked for. */
INLINE void late_some(const struct one *d, struct late *l, const uint8_t *const ahead[RUN], const int n, const int bits,
                      const enum dtype t)
{
	const float *beside = d->beside + 2 * l->group;
	__m512i v[16];
	__m512 acc = l->acc;

	late_pairs(d, l, n);
#pragma GCC unroll 16
	for (int i = 0; i < 16; i++)
		v[i] = _mm512_load_si512(l->sum + (size_t)i * d->padded + l->group);
	transpose16(v);
#pragma GCC unroll 16
	for (int g = 0; g < n; g++, beside += 2) {
		__m512 f;

		_mm_prefetch(ahead[g % RUN] + LINE * (g / RUN), _MM_HINT_T0);
		f = _mm512_mul_ps(_mm512_cvtepi32_ps(v[place(g, bits)]), _mm512_set1_ps(beside[0]));
		acc = _mm512_fmadd_ps(of_pair(d->pair, g, t), f, acc);
		acc = _mm512_fmadd_ps(of_pair(d->pair + HALF, g, t), _mm512_set1_ps(beside[1]), acc);
	}
	l->acc = acc;
}

/* The next vector of sums. */
INLINE void late_steps(const struct one *d, struct late *l, const uint8_t *const ahead[RUN], const int bits,
                       const enum dtype t)
{
	if (l->group == 0)
		l->acc = _mm512_setzero_ps();
	if (l->group + HALF < d->groups)
		late_some(d, l, ahead, WHOLE, bits, t);
	else
		late_some(d, l, ahead, HALF, bits, t);
	l->group += WHOLE;
	if (l->group == d->padded)
		_mm512_storeu_ps(l->out, l->acc);
}

typedef void late_fn(const struct one *, struct late *, const uint8_t *const ahead[RUN]);
static void late_4_bf16(const struct one *d, struct late *l, const uint8_t *const ahead[RUN])
{
	late_steps(d, l, ahead, 4, DT_BF16);
}
static void late_4_f16(const struct one *d, struct late *l, const uint8_t *const ahead[RUN])
{
	late_steps(d, l, ahead, 4, DT_F16);
}
static void late_8_bf16(const struct one *d, struct late *l, const uint8_t *const ahead[RUN])
{
	late_steps(d, l, ahead, 8, DT_BF16);
}
static void late_8_f16(const struct one *d, struct late *l, const uint8_t *const ahead[RUN])
{
	late_steps(d, l, ahead, 8, DT_F16);
}

/* Does the part of n pieces of late work that is due when `of` of OUT outputs have been read. */
INLINE void late_until(const struct one *d, struct late late[RUN], const uint8_t *ahead[RUN], late_fn *fn, size_t *done,
                       size_t n, int of)
{
	for (; *done * OUT < n * (size_t)of; ++*done) {
		fn(d, &late[*done % RUN], ahead);
		for (int k = 0; k < RUN; k++)
			ahead[k] += WHOLE / RUN * LINE;
	}
}

/* Outputs [o, o + n) and [o + n, o + 2 n), n a multiple of OUT. */
INLINE void two_runs(float *out, const struct one *d, int o, int n, late_fn *fn, const int bits)
{
	size_t pieces = RUN * d->padded / WHOLE;
	struct coded_asked asked = coded_prefetcher_from(d->w, o, n);
	struct late late[RUN];
	const uint8_t *data = d->w->data, *ahead[RUN];
	size_t row = d->w->row_bytes;

	for (int b = 0; b <= n; b += OUT) {
		size_t done = b ? 0 : pieces; /* nothing was read before the first */
		int32_t *read = d->sum[b / OUT % 2], *before = d->sum[(b / OUT + 1) % 2];

		for (int k = 0; k < RUN && b; k++)
			late[k] = (struct late){ .o = o + k * n + b - OUT,
				                 .out = out + k * n + b - OUT,
				                 .sum = before + (size_t)k * OUT * d->padded };
		for (int i = 0; i < OUT && b < n; i++) {
			const uint8_t *at[RUN];

			for (int k = 0; k < RUN; k++) {
				at[k] = data + (size_t)(o + k * n + b + i) * row;
				ahead[k] = at[k] + row + AHEAD;
			}
			read_outputs(d, at, read + (size_t)i * d->padded, &asked, bits);
			late_until(d, late, ahead, fn, &done, pieces, i + 1);
		}
		/* Nothing else is left to read: the next part, half of which was prefetched where the second run
		 * ended. */
		ahead[0] = data + (size_t)(o + 3 * n) * row;
		late_until(d, late, ahead, fn, &done, pieces, OUT);
	}
}

static void two_runs_4(float *out, const struct one *d, int o, int n)
{
	two_runs(out, d, o, n, d->w->scale_type == DT_BF16 ? late_4_bf16 : late_4_f16, 4);
}

static void two_runs_8(float *out, const struct one *d, int o, int n)
{
	two_runs(out, d, o, n, d->w->scale_type == DT_BF16 ? late_8_bf16 : late_8_f16, 8);
}

int coded_row_avx512(float *out, const struct weight *w, int o0, int o1, const int8_t *q, const float *beside,
                     void *scratch)
{
	int n = (o1 - o0) / RUN / OUT * OUT;
	struct one d = { .w = w, .q = q, .beside = beside };

	if (n < LEAST || w->cols % (HALF * GROUP) || (w->scale_type != DT_BF16 && w->scale_type != DT_F16))
		return o0;
	one_lay(&d, scratch, w->cols);
	(w->fmt->coding->bits == 4 ? two_runs_4 : two_runs_8)(out, &d, o0, n);
	return o0 + RUN * n;
}
