/* coded_row_avx2.c - one row over affine codes of 4 or 8 bits in groups of 64 with AVX2; the bits of
 * coded.c.  Compiled twice, as coded_many_avx2.c is.
 *
 * As coded_row_avx512.c: the outputs of both halves of a part are read as two runs of memory, a line
 * of each in turn, and what else there is to do of the 2 x 16 outputs before comes in pieces between
 * two outputs: eight groups of 16 outputs, their scales with them.  Those of the outputs that are read
 * are asked for meanwhile, a line for as many codes as it stands for. */
#include <assert.h>

#include "quant/coded/coded_avx2.h"
#include "quant/coded/coded_kernels.h"
#include "quant/coded/coded_prefetch.h"

enum {
	OUT = OUT_ONCE,
	LINE = 64,
	GROUP = 64,
	RUN = ONE_RUNS,
	AHEAD = 3072,    /* bytes on, codes are asked for */
	EIGHT = 8,       /* groups of a piece */
	LEAST = 4 * OUT, /* outputs of a run for which it pays */
};

struct one {
	const struct weight *w;
	const float *beside; /* [groups][scale, scaled sum] */
	size_t groups;
	size_t lines;    /* of scales and biases of eight groups of each run */
	int8_t *q;       /* [groups][INPUTS] */
	float *scale;    /* [EIGHT][scale, bias][OUT] */
	int32_t *sum[2]; /* [RUN][OUT][groups] of the outputs that are being read, and of those before */
};

/* Outputs o .. o + OUT - 1 of a run, read before: what is done of them. */
struct late {
	int o;
	float *out;
	const int32_t *sum;
	size_t group; /* those below are in acc */
	__m256 acc[2];
};

static void one_lay(struct one *d, uint8_t *p, int cols, int bits)
{
	size_t at = 0;

	d->groups = (size_t)(cols / GROUP);
#define TAKE(field, bytes) (d->field = (void *)(p + at), at += bytes)
	TAKE(q, d->groups * INPUTS(bits));
	TAKE(scale, EIGHT * 2 * OUT * sizeof *d->scale);
	TAKE(sum[0], RUN * OUT * d->groups * sizeof *d->sum[0]);
	TAKE(sum[1], RUN * OUT * d->groups * sizeof *d->sum[1]);
#undef TAKE
	assert(at <= coded_row_scratch(cols));
}

/* 4 bits: each group's even inputs, then the odd ones. 8 bits: as they are, or as int16, each
 * 32's even ones, then the odd ones. */
static void one_inputs(int8_t *to, const int8_t *q, int cols, int bits)
{
	const __m256i halves = _mm256_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15, 0, 2, 4, 6, 8, 10,
	                                        12, 14, 1, 3, 5, 7, 9, 11, 13, 15);

	for (int i = 0; i < cols; i += GROUP, to += INPUTS(bits)) {
		__m256i v[2];

		for (int h = 0; h < 2; h++) {
			v[h] = _mm256_loadu_si256((const void *)(q + i + 32 * h));
			if (bits == 8 && VNNI)
				_mm256_store_si256((void *)(to + 32 * h), v[h]);
			v[h] = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(v[h], halves), 0xd8); /* even, odd */
			if (bits == 8 && !VNNI) {
				_mm256_store_si256((void *)(to + 64 * h),
				                   _mm256_cvtepi8_epi16(_mm256_castsi256_si128(v[h])));
				_mm256_store_si256((void *)(to + 64 * h + 32),
				                   _mm256_cvtepi8_epi16(_mm256_extracti128_si256(v[h], 1)));
			}
		}
		if (bits == 4) {
			_mm256_store_si256((void *)to, _mm256_permute2x128_si256(v[0], v[1], 0x20));
			_mm256_store_si256((void *)(to + 32), _mm256_permute2x128_si256(v[0], v[1], 0x31));
		}
	}
}

INLINE __m256i dot_vnni(__m256i acc, __m256i w, const int8_t *x)
{
	__asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc) : "x"(w), "m"(*(const __m256i *)(const void *)x));
	return acc;
}

INLINE __m256i input(const int8_t *q)
{
	return _mm256_load_si256((const void *)q);
}

/* Lanes of a and of b added up in twos, a's first in each half; sums of 16 bits. */
INLINE __m256i twos(__m256i a, __m256i b)
{
	return _mm256_madd_epi16(_mm256_packs_epi32(a, b), _mm256_set1_epi16(1));
}

/* Sums of 32 bytes of codes of 4 bits, a group: 8 products in a lane, 15,240, so that two fit 16 bits. */
INLINE __m256i sums_4(__m256i v, const int8_t *q)
{
	const __m256i low = _mm256_set1_epi8(15);
	__m256i even = _mm256_and_si256(v, low), odd = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);

	if (VNNI)
		return dot_vnni(dot_vnni(_mm256_setzero_si256(), even, q), odd, q + 32);
	return _mm256_madd_epi16(
		_mm256_add_epi16(_mm256_maddubs_epi16(even, input(q)), _mm256_maddubs_epi16(odd, input(q + 32))),
		_mm256_set1_epi16(1));
}

/* 8 bits: half a group. */
INLINE __m256i sums_8(__m256i acc, __m256i v, const int8_t *q, const bool first)
{
	__m256i even = _mm256_and_si256(v, _mm256_set1_epi16(255)), odd = _mm256_srli_epi16(v, 8);

	if (VNNI)
		return dot_vnni(acc, v, q);
	even = _mm256_add_epi32(_mm256_madd_epi16(even, input(q)), _mm256_madd_epi16(odd, input(q + 32)));
	return first ? even : _mm256_add_epi32(acc, even);
}

/* A line's sums: in each half of 4 bits two lanes of its first group, two of its second, of 8 bits four of its one. */
INLINE __m256i line_sums(const uint8_t *at, const int8_t *q, const int bits)
{
	__m256i v = _mm256_loadu_si256((const void *)at), w = _mm256_loadu_si256((const void *)(at + 32));

	__asm__ volatile("prefetcht0 %0" : : "m"(at[AHEAD])); /* volatile: in this order */
	if (bits == 4)
		return twos(sums_4(v, q), sums_4(w, q + GROUP));
	return sums_8(sums_8(_mm256_setzero_si256(), v, q, true), w, q + INPUTS(8) / 2, false);
}

/* Four groups of each run: a half of their sums in each half. */
INLINE void four_groups(__m256i sum[RUN], const uint8_t *const at[RUN], size_t from, const int8_t *q, const int bits)
{
	__m256i v[4][RUN];

#pragma GCC unroll 4
	for (int i = 0; i < bits / 2; i++)
#pragma GCC unroll 2
		for (int k = 0; k < RUN; k++)
			v[i][k] = line_sums(at[k] + from + LINE * i, q + (bits == 4 ? 2 * GROUP : INPUTS(8)) * i, bits);
#pragma GCC unroll 2
	for (int k = 0; k < RUN; k++)
		sum[k] = bits == 4 ? twos(v[0][k], v[1][k]) :
		                     _mm256_hadd_epi32(_mm256_hadd_epi32(v[0][k], v[1][k]),
		                                       _mm256_hadd_epi32(v[2][k], v[3][k]));
}

/* One output of each run. */
INLINE void read_outputs(const struct one *d, const uint8_t *const at[RUN], int32_t *sum, struct coded_asked *asked,
                         const int bits)
{
	const size_t bytes = EIGHT * GROUP * (size_t)bits / 8;
	const int8_t *q = d->q;

	for (size_t from = 0; from < d->w->row_bytes; from += bytes, q += EIGHT * INPUTS(bits), sum += EIGHT) {
		__m256i a[RUN], b[RUN];

		for (size_t i = 0; i < d->lines; i++)
			coded_prefetch_next(asked);
		four_groups(a, at, from, q, bits);
		four_groups(b, at, from + bytes / 2, q + EIGHT / 2 * INPUTS(bits), bits);
#pragma GCC unroll 2
		for (int k = 0; k < RUN; k++)
			_mm256_store_si256((void *)(sum + (size_t)k * OUT * d->groups),
			                   _mm256_add_epi32(_mm256_permute2x128_si256(a[k], b[k], 0x20),
			                                    _mm256_permute2x128_si256(a[k], b[k], 0x31)));
	}
}
#define READ(bits)                                                                               \
	static void read_##bits(const struct one *d, const uint8_t *const at[RUN], int32_t *sum, \
	                        struct coded_asked *asked)                                       \
	{                                                                                        \
		read_outputs(d, at, sum, asked, bits);                                           \
	}
READ(4)
READ(8)

/* Float steps of the next eight groups. */
static void late_steps(const struct one *d, struct late *l)
{
	const float *beside = d->beside + 2 * l->group;

	LEVEL(coded_scales_eight)(d->scale, d->scale + OUT, 2 * OUT, d->w, l->o, (int)l->group);
	for (int h = 0; h < OUT / 8; h++) {
		const float *scale = d->scale + 8 * h;
		__m256 acc = l->group ? l->acc[h] : _mm256_setzero_ps();
		__m256i v[8];

#pragma GCC unroll 8
		for (int i = 0; i < 8; i++)
			v[i] = _mm256_load_si256((const void *)(l->sum + (size_t)(8 * h + i) * d->groups + l->group));
		transpose8(v);
#pragma GCC unroll 8
		for (int g = 0; g < EIGHT; g++, scale += 2 * OUT) {
			__m256 f = _mm256_mul_ps(_mm256_cvtepi32_ps(v[g]), _mm256_broadcast_ss(beside + 2 * g));

			acc = _mm256_fmadd_ps(_mm256_load_ps(scale), f, acc);
			acc = _mm256_fmadd_ps(_mm256_load_ps(scale + OUT), _mm256_broadcast_ss(beside + 2 * g + 1),
			                      acc);
		}
		l->acc[h] = acc;
		if (l->group + EIGHT == d->groups)
			_mm256_storeu_ps(l->out + 8 * h, acc);
	}
	l->group += EIGHT;
}

/* Does the part of n pieces of late work that is due when `of` of OUT outputs have been read. */
static void late_until(const struct one *d, struct late late[RUN], size_t *done, size_t n, int of)
{
	for (; *done * OUT < n * (size_t)of; ++*done)
		late_steps(d, &late[*done % RUN]);
}

/* Outputs [o, o + n) and [o + n, o + 2 n), n a multiple of OUT. */
static void two_runs(float *out, const struct one *d, int o, int n)
{
	size_t pieces = RUN * d->groups / EIGHT;
	struct late late[RUN];
	struct coded_asked asked = coded_prefetcher_from(d->w, o, n);

	for (int b = 0; b <= n; b += OUT) {
		size_t done = b ? 0 : pieces; /* nothing was read before the first */
		int32_t *read = d->sum[b / OUT % 2], *before = d->sum[(b / OUT + 1) % 2];

		for (int k = 0; k < RUN && b; k++)
			late[k] = (struct late){ .o = o + k * n + b - OUT,
				                 .out = out + k * n + b - OUT,
				                 .sum = before + (size_t)k * OUT * d->groups };
		for (int i = 0; i < OUT && b < n; i++) {
			const uint8_t *at[RUN];

			for (int k = 0; k < RUN; k++)
				at[k] = d->w->data + (size_t)(o + k * n + b + i) * d->w->row_bytes;
			(d->w->fmt->coding->bits == 4 ? read_4 : read_8)(d, at, read + (size_t)i * d->groups, &asked);
			late_until(d, late, &done, pieces, i + 1);
		}
		late_until(d, late, &done, pieces, OUT);
	}
}

int LEVEL(coded_row)(float *out, const struct weight *w, int o0, int o1, const int8_t *q, const float *beside,
                     void *scratch)
{
	int n = (o1 - o0) / RUN / OUT * OUT, bits = w->fmt->coding->bits;
	struct one d = { .w = w, .beside = beside };

	if (n < LEAST || w->cols % (EIGHT * GROUP))
		return o0;
	one_lay(&d, scratch, w->cols, bits);
	d.lines = 2 * RUN * EIGHT * (size_t)dtype_size(w->scale_type) / LINE;
	one_inputs(d.q, q, w->cols, bits);
	two_runs(out, &d, o0, n);
	return o0 + RUN * n;
}
