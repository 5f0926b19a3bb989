/* coded_avx512.c - products over coded weights with vpdpbusd; the bits of coded.c.
 *
 * Integer sums of a group are exact, so how they are formed is free; the float
 * steps per group are lanes of 16 outputs in the order of format.h.
 *
 * Few rows of the commonest weights: coded_few_avx512.c.  Many rows: coded_many_avx512.c.  Of weights in blocks up to
 * FEW_ROWS rows: blocks_avx512.c; more: blocks_tiles_avx512.c.
 * Few rows of others (direct): codes of an output are unpacked in registers and multiplied
 * by 32 activations at a time; 16 outputs' sums are then folded into one vector. */
#include <assert.h>
#include <immintrin.h>
#include <string.h>

#include "quant/coded/coded_ahead.h"
#include "quant/coded/coded_avx512.h"
#include "quant/levels.h"
#include "quant/lanes/transpose512.h"

/* ---- scales of 16 outputs, transposed to [groups][16] ---- */

/* n <= 16 stored scales as floats. */
INLINE __m512 scales_load(const uint8_t *p, enum dtype t, int n)
{
	__mmask16 m = (__mmask16)((1u << n) - 1);
	__m512i b;

	switch (t) {
	case DT_F32: return _mm512_maskz_loadu_ps(m, p);
	case DT_F16: return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, p));
	case DT_F8_E4M3:
		b = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(m, p));
		b = _mm512_or_si512(_mm512_slli_epi32(_mm512_and_si512(b, _mm512_set1_epi32(0x7f)), 7),
		                    _mm512_slli_epi32(_mm512_and_si512(b, _mm512_set1_epi32(0x80)), 8));
		return _mm512_mul_ps(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(b)), _mm512_set1_ps(256.0f));
	case DT_F8_E8M0:
		b = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(m, p));
		{
			__m512i f = _mm512_slli_epi32(b, 23);

			f = _mm512_mask_mov_epi32(f, _mm512_cmpeq_epi32_mask(b, _mm512_setzero_si512()),
			                          _mm512_set1_epi32(0x00400000));
			f = _mm512_mask_mov_epi32(f, _mm512_cmpeq_epi32_mask(b, _mm512_set1_epi32(255)),
			                          _mm512_set1_epi32(0x7fc00000));
			return _mm512_castsi512_ps(f);
		}
	default:
		b = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, p));
		return _mm512_castsi512_ps(_mm512_slli_epi32(b, 16));
	}
}

/* Outputs o .. o + n - 1 to lanes 0 .. n - 1 of to[g * step], the rest 0. */
INLINE void scales_typed(float *to, size_t step, const uint8_t *p, enum dtype t, int size, float unit, int groups,
                         int o, int n)
{
	size_t row = (size_t)groups * (size_t)size;

	p += (size_t)o * row;
	for (int g = 0; g < groups; g += 16, p += 16 * size) {
		int m = groups - g < 16 ? groups - g : 16;
		__m512i v[16];

		for (int i = 0; i < 16; i++) {
			__m512 f = i < n ? scales_load(p + (size_t)i * row, t, m) : _mm512_setzero_ps();

			if (unit != 1.0f)
				f = _mm512_mul_ps(f, _mm512_set1_ps(unit));
			v[i] = _mm512_castps_si512(f);
		}
		transpose16(v);
		for (int i = 0; i < m; i++)
			_mm512_storeu_si512(to + (size_t)(g + i) * step, v[i]);
	}
}

static void scales_make(float *to, size_t step, const uint8_t *p, enum dtype t, float unit, int groups, int o, int n)
{
	switch (t) {
	case DT_F32: scales_typed(to, step, p, DT_F32, 4, unit, groups, o, n); break;
	case DT_F16: scales_typed(to, step, p, DT_F16, 2, unit, groups, o, n); break;
	case DT_BF16: scales_typed(to, step, p, DT_BF16, 2, unit, groups, o, n); break;
	case DT_F8_E4M3: scales_typed(to, step, p, DT_F8_E4M3, 1, unit, groups, o, n); break;
	default: scales_typed(to, step, p, DT_F8_E8M0, 1, unit, groups, o, n); break;
	}
}

/* Scales and biases of bf16 side by side, so that they are turned at once. */
static void scales_paired(float *scale, float *bias, size_t step, const struct weight *w, int o, int n)
{
	static const uint16_t pairs[32] = { 0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
		                            8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47 };
	const __m512i pair = _mm512_loadu_si512(pairs), high = _mm512_set1_epi32((int)0xffff0000);
	int groups = w->cols / w->group;
	size_t row = 2 * (size_t)groups;
	const uint8_t *s = w->scales + (size_t)o * row, *b = w->biases + (size_t)o * row;

	for (int g = 0; g < groups; g += 16, s += 32, b += 32) {
		int m = groups - g < 16 ? groups - g : 16;
		__mmask16 k = (__mmask16)((1u << m) - 1);
		__m512i v[16];

		for (int i = 0; i < 16; i++) {
			size_t at = (size_t)i * row;

			v[i] = _mm512_setzero_si512();
			if (i < n)
				v[i] = _mm512_permutex2var_epi16(
					_mm512_castsi256_si512(_mm256_maskz_loadu_epi16(k, s + at)), pair,
					_mm512_castsi256_si512(_mm256_maskz_loadu_epi16(k, b + at)));
		}
		transpose16(v);
		for (int i = 0; i < m; i++) {
			_mm512_storeu_si512(scale + (size_t)(g + i) * step, _mm512_slli_epi32(v[i], 16));
			_mm512_storeu_si512(bias + (size_t)(g + i) * step, _mm512_and_si512(v[i], high));
		}
	}
}

/* Scales, and biases where there are any, of outputs o .. o + n - 1. */
static void scales_of(float *scale, float *bias, size_t step, const struct weight *w, int o, int n)
{
	const struct coding *c = w->fmt->coding;
	int groups = w->cols / w->group;
	const uint8_t *blocks = blocks_of(w);

	if (blocks && c->block) {
		if (n)
			planes_lanes_avx512(scale, bias, step, w, blocks, o);
		else
			file_block_lanes(scale, bias, step, w, o, 0);
		return;
	}
	if (blocks) {
		const uint8_t *at = block_at(w, blocks, o, 1) - BLOCK_LINE;

		assert(o % BLOCK_OUT == 0 && (n == BLOCK_OUT || n == 0));
		for (int g = 0; g < groups; g++, at += n ? block_bytes(w) : 0) {
			__m512i v = n ? _mm512_load_si512(at) : _mm512_setzero_si512();

			_mm512_storeu_ps(scale + (size_t)g * step, block_scales(v));
			_mm512_storeu_ps(bias + (size_t)g * step, block_biases(v));
		}
		return;
	}
	if (c->block) {
		file_block_lanes(scale, bias, step, w, o, n);
		return;
	}
	if (c->bias && w->scale_type == DT_BF16 && c->scale_unit == 1.0f) {
		scales_paired(scale, bias, step, w, o, n);
		return;
	}
	scales_make(scale, step, w->scales, w->scale_type, c->scale_unit, groups, o, n);
	if (c->bias)
		scales_make(bias, step, w->biases, w->scale_type, 1.0f, groups, o, n);
}

/* ---- few rows ---- */

/* A block is what one vector of each half holds: 128 nibbles, or 64 codes. */
#define BLOCK(how) ((how) == NIBBLES || (how) == NIBBLES_LUT ? 128 : 64)

/* q of one row as the blocks' codes come out, zeros behind: of nibbles the even
 * inputs of a block, then the odd ones. */
static void arrange(int8_t *to, const int8_t *q, int cols, enum how how)
{
	for (int i = 0; i < cols; i += BLOCK(how)) {
		__m512i v = _mm512_maskz_loadu_epi8(first_bytes(cols - i), q + i), w;

		if (BLOCK(how) == 64) {
			_mm512_storeu_si512(to + i, v);
			continue;
		}
		w = _mm512_maskz_loadu_epi8(first_bytes(cols - i > 64 ? cols - i - 64 : 0), q + i + 64);
		_mm256_storeu_si256((void *)(to + i), _mm512_cvtepi16_epi8(v));
		_mm256_storeu_si256((void *)(to + i + 32), _mm512_cvtepi16_epi8(w));
		_mm256_storeu_si256((void *)(to + i + 64), _mm512_cvtepi16_epi8(_mm512_srli_epi16(v, 8)));
		_mm256_storeu_si256((void *)(to + i + 96), _mm512_cvtepi16_epi8(_mm512_srli_epi16(w, 8)));
	}
}

struct direct {
	const struct weight *w;
	const struct acts *x;
	const int8_t *q[DIRECT_ROWS]; /* arranged */
	size_t at[DIRECT_ROWS];       /* of the row's scales */
	float *scale, *bias;          /* [groups][16] */
	__m512i *sums;
	int zero;
	__m512i lut;
	struct stream stream;
};

/* The codes at p, `have` of them real, to one vector or two. */
INLINE void block_codes(__m512i half[2], const uint8_t *p, int have, const enum how how, const struct direct *d)
{
	const __m512i low4 = _mm512_set1_epi8(15);
	__m512i v;

	if (how == STREAM) {
		__mmask64 m = have == 64 ? d->stream.whole : first_bytes(have * d->stream.bits / 8);

		/* 64-byte loads at 16 or 24 bytes' steps would nearly all span two lines. */
		v = d->stream.bits <= 3 ? _mm512_zextsi256_si512(_mm256_maskz_loadu_epi8((__mmask32)m, p)) :
		                          _mm512_maskz_loadu_epi8(m, p);
		half[0] = stream_codes(&d->stream, v);
		return;
	}
	v = have == BLOCK(how) ? _mm512_loadu_si512(p) :
	                         _mm512_maskz_loadu_epi8(first_bytes(how == BYTES ? have : have / 2), p);
	if (how == BYTES) {
		half[0] = v;
		return;
	}
	half[0] = _mm512_and_si512(v, low4);
	half[1] = _mm512_and_si512(_mm512_srli_epi16(v, 4), low4);
	if (how == NIBBLES_LUT) {
		half[0] = _mm512_shuffle_epi8(d->lut, half[0]);
		half[1] = _mm512_shuffle_epi8(d->lut, half[1]);
	}
}

/* Adds up each 128-bit lane of four vectors: lane L becomes the four sums of the
 * four lanes L.  With eighths, the sums of the lanes' lower halves, and in *odd
 * those of the upper ones. */
INLINE __m512i fold4(const __m512i v[4], bool eighths, __m512i *odd)
{
	__m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
	__m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);

	if (eighths) {
		*odd = _mm512_add_epi32(_mm512_unpacklo_epi64(b, d), _mm512_unpackhi_epi64(b, d));
		return _mm512_add_epi32(_mm512_unpacklo_epi64(a, c), _mm512_unpackhi_epi64(a, c));
	}
	a = _mm512_add_epi32(a, b);
	c = _mm512_add_epi32(c, d);
	return _mm512_add_epi32(_mm512_unpacklo_epi64(a, c), _mm512_unpackhi_epi64(a, c));
}

/* x[i] has outputs 4 i .. 4 i + 3 of lane L in its lane L.  Gives 16 outputs of
 * each of n groups, n = 1, 2 or 4, a group being 4 / n adjacent lanes. */
INLINE void lanes_to_outputs(__m512i group[4], const __m512i x[4], const int n)
{
	__m512i a = _mm512_shuffle_i32x4(x[0], x[1], 0x88), b = _mm512_shuffle_i32x4(x[0], x[1], 0xdd);
	__m512i c = _mm512_shuffle_i32x4(x[2], x[3], 0x88), d = _mm512_shuffle_i32x4(x[2], x[3], 0xdd);

	if (n == 4) {
		group[0] = _mm512_shuffle_i32x4(a, c, 0x88);
		group[2] = _mm512_shuffle_i32x4(a, c, 0xdd);
		group[1] = _mm512_shuffle_i32x4(b, d, 0x88);
		group[3] = _mm512_shuffle_i32x4(b, d, 0xdd);
		return;
	}
	a = _mm512_add_epi32(a, b);
	c = _mm512_add_epi32(c, d);
	b = _mm512_shuffle_i32x4(a, c, 0x88);
	d = _mm512_shuffle_i32x4(a, c, 0xdd);
	group[0] = n == 1 ? _mm512_add_epi32(b, d) : b;
	group[1] = d;
}

INLINE __m512 group_step(__m512 acc, const struct direct *d, int r, int g, __m512i isum, bool has_bias)
{
	size_t at = d->at[r] + (size_t)g;
	__m512 f;

	if (d->zero)
		isum = _mm512_sub_epi32(isum, _mm512_set1_epi32(d->zero * d->x->sum[at]));
	f = _mm512_mul_ps(_mm512_cvtepi32_ps(isum), _mm512_set1_ps(d->x->scale[at]));
	acc = _mm512_fmadd_ps(_mm512_loadu_ps(d->scale + 16 * (size_t)g), f, acc);
	if (has_bias)
		acc = _mm512_fmadd_ps(_mm512_loadu_ps(d->bias + 16 * (size_t)g), _mm512_set1_ps(d->x->scaled_sum[at]),
		                      acc);
	return acc;
}

/* Fetched into the second cache: the codes of the outputs 16 further on, one
 * stretch of memory in rising order; into the first, what this output reads next.
 * Measured on Zen 4, one row of 4 bits, against reading the same bytes in order:
 * 0.87 with both, 0.83 with the first alone, 0.5 with neither. */
enum { FAR_ROWS = 16, NEAR = 512 };

/* Sums of 4 outputs by R rows over the `blocks` blocks of a group, or of one
 * block when it holds several groups, folded, from input k on. */
INLINE void direct_sums(__m512i x[], __m512i odd[], const struct direct *d, const uint8_t *const row[4], int k,
                        const int blocks, const enum how how, const int R, bool eighths)
{
	int cols = d->w->cols;
	size_t bits = (size_t)d->w->fmt->coding->bits, bytes = (size_t)BLOCK(how) * bits / 8;
	const uint8_t *far = row[0] + FAR_ROWS * d->w->row_bytes + 4 * (size_t)k * bits / 8;
	__m512i v[DIRECT_ROWS][4];

#pragma GCC unroll 4
	for (int r = 0; r < R; r++)
#pragma GCC unroll 4
		for (int o = 0; o < 4; o++)
			v[r][o] = _mm512_setzero_si512();
	for (int i = 0; i < blocks; i++) {
		int at = k + i * BLOCK(how), have = cols - at < BLOCK(how) ? cols - at : BLOCK(how);

		for (size_t j = 0; how == STREAM && j < 4 * bytes; j += 64)
			_mm_prefetch(far + (size_t)i * 4 * bytes + j, _MM_HINT_T1);
#pragma GCC unroll 4
		for (int o = 0; o < 4; o++) {
			const uint8_t *p = row[o] + (size_t)at * bits / 8;
			__m512i half[2];

			if (how != STREAM) { /* whose blocks are less than a line */
				_mm_prefetch(far + (size_t)(4 * i + o) * bytes, _MM_HINT_T1);
				_mm_prefetch(p + NEAR, _MM_HINT_T0);
			}
			block_codes(half, p, have, how, d);
#pragma GCC unroll 4
			for (int r = 0; r < R; r++) {
				const int8_t *q = d->q[r] + at;

				v[r][o] = dot512(v[r][o], half[0], _mm512_loadu_si512(q));
				if (BLOCK(how) == 128)
					v[r][o] = dot512(v[r][o], half[1], _mm512_loadu_si512(q + 64));
			}
		}
	}
#pragma GCC unroll 4
	for (int r = 0; r < R; r++)
		x[r] = fold4(v[r], eighths, &odd[r]);
}

/* 16 outputs of R rows.  PER: groups in a block, 1, 2, 4 or 8; with 1 a group may
 * also be several blocks.
 *
 * First the integer sums of 4 outputs at a time, along their whole rows, then the
 * float steps of all 16 over the groups. */
INLINE void direct_block(float *out, size_t ld, const struct direct *d, const uint8_t *const row[16], int n_out,
                         int n_row, const enum how how, const int R, const int PER, const bool has_bias)
{
	int cols = d->w->cols, group = d->w->group, groups = cols / group;
	int run = PER == 1 ? group : BLOCK(how);
	/* [run][row][16 outputs], twice that with eighths. */
	const size_t step = (size_t)R * 4 * (PER == 8 ? 2 : 1);
	__m512i *sums = d->sums;
	__mmask16 m = (__mmask16)((1u << n_out) - 1);

	for (int four = 0; four < 4; four++) {
		__m512i *to = sums + four;

		for (int k = 0; k < cols; k += run, to += step) {
			__m512i x[DIRECT_ROWS], odd[DIRECT_ROWS];

			if (PER > 1 || run == BLOCK(how))
				direct_sums(x, odd, d, row + 4 * four, k, 1, how, R, PER == 8);
			else
				direct_sums(x, odd, d, row + 4 * four, k, run / BLOCK(how), how, R, false);
#pragma GCC unroll 4
			for (int r = 0; r < R; r++) {
				to[4 * r] = x[r];
				if (PER == 8)
					to[4 * (R + r)] = odd[r];
			}
		}
	}
#pragma GCC unroll 4
	for (int r = 0; r < R && r < n_row; r++) {
		const __m512i *from = sums + 4 * r;
		__m512 acc = _mm512_setzero_ps();

		for (int g = 0; g < groups; g += PER, from += step) {
			__m512i a[4], b[4];

			lanes_to_outputs(a, from, PER == 8 ? 4 : PER);
			if (PER == 8)
				lanes_to_outputs(b, from + 4 * R, 4);
			acc = group_step(acc, d, r, g, a[0], has_bias);
#pragma GCC unroll 8
			for (int i = 1; i < PER; i++)
				if (g + i < groups)
					acc = group_step(acc, d, r, g + i, PER == 8 ? (i & 1 ? b : a)[i / 2] : a[i],
					                 has_bias);
		}
		_mm512_mask_storeu_ps(out + (size_t)r * ld, m, acc);
	}
}

typedef void direct_fn(float *, size_t, const struct direct *, const uint8_t *const *, int, int);

#define DIRECT(how, R, per, has_bias)                                                           \
	static void direct_##how##_##R##_##per(float *out, size_t ld, const struct direct *d,   \
	                                       const uint8_t *const *row, int n_out, int n_row) \
	{                                                                                       \
		direct_block(out, ld, d, row, n_out, n_row, how, R, per, has_bias);             \
	}
#define DIRECT_ROWSET(how, per, b) DIRECT(how, 1, per, b) DIRECT(how, 2, per, b) DIRECT(how, 4, per, b)
DIRECT_ROWSET(NIBBLES, 1, true)
DIRECT_ROWSET(NIBBLES, 2, true)
DIRECT_ROWSET(NIBBLES, 4, true)
DIRECT_ROWSET(NIBBLES_LUT, 4, false)
DIRECT_ROWSET(NIBBLES_LUT, 8, false)
DIRECT_ROWSET(BYTES, 1, true)
DIRECT_ROWSET(BYTES, 2, true)
DIRECT_ROWSET(STREAM, 1, true)
DIRECT_ROWSET(STREAM, 2, true)
#define PICK(how, per)                                                                 \
	{                                                                              \
		direct_##how##_1_##per, direct_##how##_2_##per, direct_##how##_4_##per \
	}
static direct_fn *const directs[4][4][3] = {
	/* [how][group 128, 64, 32, 16][rows: 1, 2, 3 or 4] */
	[NIBBLES] = { PICK(NIBBLES, 1), PICK(NIBBLES, 2), PICK(NIBBLES, 4) },
	[NIBBLES_LUT] = { { NULL }, { NULL }, PICK(NIBBLES_LUT, 4), PICK(NIBBLES_LUT, 8) },
	[BYTES] = { PICK(BYTES, 1), PICK(BYTES, 1), PICK(BYTES, 2) },
	[STREAM] = { PICK(STREAM, 1), PICK(STREAM, 1), PICK(STREAM, 2) },
};

static void mul_direct(direct_fn *fn, float *out, size_t ld, const struct weight *w, int o0, int o1,
                       const struct acts *x, int r0, int r1, enum how how, uint8_t *scratch)
{
	const struct coding *c = w->fmt->coding;
	int groups = w->cols / w->group, rows = r1 - r0;
	size_t padded = ((size_t)w->cols + 127) / 128 * 128;
	struct direct d = { .w = w, .x = x, .zero = c->zero };

	d.scale = (float *)scratch;
	d.bias = c->bias ? d.scale + 16 * (size_t)groups : NULL;
	scratch += 2 * 16 * (size_t)groups * sizeof(float);
	for (int r = 0; r < DIRECT_ROWS; r++) {
		int8_t *to = (int8_t *)scratch + (size_t)r * padded;
		size_t row = (size_t)(r0 + (r < rows ? r : 0));

		if (r < rows)
			arrange(to, x->q + row * (size_t)x->cols, x->cols, how);
		d.q[r] = r < rows ? to : (int8_t *)scratch;
		d.at[r] = row * (size_t)groups;
	}
	d.sums = (__m512i *)(scratch + DIRECT_ROWS * padded);
	if (c->lut)
		d.lut = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)c->lut));
	if (how == STREAM)
		d.stream = stream_make(c->bits);
	for (int o = o0; o < o1; o += 16) {
		const uint8_t *row[16];
		int n = o1 - o < 16 ? o1 - o : 16;

		for (int i = 0; i < 16; i++)
			row[i] = w->data + (size_t)(o + (i < n ? i : n - 1)) * w->row_bytes;
		scales_of(d.scale, d.bias, 16, w, o, n);
		coded_ask_scales(w, o + 16, 16);
		fn(out + (o - o0), ld, &d, row, n, rows);
	}
}

/* ---- for the kernels with tiles ---- */

/* 64 codes at p, `have` of them real; zeros, or what the lut makes of them, behind. */
INLINE __m512i codes_in_order(const uint8_t *p, int have, const enum how how, __m512i lut, const struct stream *s)
{
	__m512i v;

	if (how == BYTES)
		return _mm512_maskz_loadu_epi8(first_bytes(have), p);
	if (how == STREAM)
		return stream_codes(s, _mm512_maskz_loadu_epi8(first_bytes(have * s->bits / 8), p));
	v = _mm512_cvtepu8_epi16(have == 64 ? _mm256_loadu_si256((const void *)p) :
	                                      _mm256_maskz_loadu_epi8((__mmask32)first_bytes(have / 2), p));
	v = nibbles_in_order(v);
	return how == NIBBLES_LUT ? _mm512_shuffle_epi8(lut, v) : v;
}

INLINE void codes_of_16(uint8_t *to, const struct coded_span *c, const enum how how, __m512i lut,
                        const struct stream *s)
{
	size_t bits = (size_t)c->w->fmt->coding->bits, next = PANEL_OUT * c->w->row_bytes;
	int wide = c->inputs == 64;

	for (int i = 0; i < 16; i++) {
		const uint8_t *row = c->w->data + (size_t)(c->o + (i < c->n ? i : c->n - 1)) * c->w->row_bytes;
		uint8_t *at = to + i * c->inputs;

		for (int k = c->k0; k < c->k1; k += 64) {
			const uint8_t *p = row + (size_t)k / 8 * bits;
			__m512i v = codes_in_order(p, c->k1 - k < 64 ? c->k1 - k : 64, how, lut, s);

			if (c->ahead)
				_mm_prefetch(p + next, _MM_HINT_T1);
			if (wide) {
				_mm512_store_si512(at + 16 * (k - c->k0), v);
				continue;
			}
			_mm256_store_si256((void *)(at + 16 * (k - c->k0)), _mm512_castsi512_si256(v));
			if (c->k1 - k > 32)
				_mm256_store_si256((void *)(at + 16 * (k - c->k0 + 32)),
				                   _mm512_extracti64x4_epi64(v, 1));
		}
	}
}

/* The same where rows are blocks. */
static void codes_of_blocked(uint8_t *to, const struct coded_span *c, const bool has_lut, __m512i lut)
{
	uint8_t code[FILE_BLOCK_MOST] __attribute__((aligned(64)));

	for (int i = 0; i < 16; i++)
		for (int k = c->k0; k < c->k1; k += FILE_BLOCK_MOST) {
			int n = c->k1 - k < FILE_BLOCK_MOST ? c->k1 - k : FILE_BLOCK_MOST;
			uint8_t *at = to + i * c->inputs + 16 * (k - c->k0);

			file_block_codes(code, c->w, c->o + (i < c->n ? i : c->n - 1), k, n);
			for (int j = 0; j < n && has_lut; j += 64)
				_mm512_store_si512(code + j, _mm512_shuffle_epi8(lut, _mm512_load_si512(code + j)));
			for (int j = 0; j < n; j += c->inputs)
				memcpy(at + 16 * j, code + j, (size_t)c->inputs);
		}
}

/* The same of planes: 16 quads of 16 outputs, turned. */
static void codes_of_planes(uint8_t *to, const struct coded_span *c)
{
	__m512i v[16];

	for (int k = c->k0; k < c->k1; k += BLOCK_INPUTS, to += 16 * BLOCK_INPUTS) {
		planes_panel_avx512((uint8_t *)v, BLOCK_LINE, c->w, blocks_of(c->w), c->o, k, k + BLOCK_INPUTS);
		transpose16(v);
		for (int i = 0; i < 16; i++) {
			if (c->inputs == BLOCK_INPUTS) {
				_mm512_store_si512(to + BLOCK_INPUTS * i, v[i]);
				continue;
			}
			_mm256_store_si256((void *)(to + 32 * i), _mm512_castsi512_si256(v[i]));
			_mm256_store_si256((void *)(to + 32 * (16 + i)), _mm512_extracti64x4_epi64(v[i], 1));
		}
	}
}

void coded_codes_avx512(uint8_t *to, const struct coded_span *span)
{
	const struct coding *c = span->w->fmt->coding;
	__m512i lut = c->lut ? _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)c->lut)) : _mm512_setzero_si512();
	struct stream s;

	if (c->block && blocks_of(span->w)) {
		codes_of_planes(to, span);
		return;
	}
	if (blocks_of(span->w)) {
		const struct weight *w = span->w;
		const uint8_t *at = block_at(w, blocks_of(w), span->o, span->k0 / BLOCK_INPUTS);
		size_t next = span->ahead ? PANEL_OUT / BLOCK_OUT * blocks_of_rows(w) : 0;
		int n = (span->k1 - span->k0) / BLOCK_INPUTS;

		assert(span->o % BLOCK_OUT == 0 && span->n == BLOCK_OUT && span->inputs == BLOCK_INPUTS);
		if (c->bits == 4)
			codes_of_blocks(to, at, n, next, 4);
		else
			codes_of_blocks(to, at, n, next, 8);
		return;
	}
	switch (how_of(c)) {
	case NIBBLES: codes_of_16(to, span, NIBBLES, lut, NULL); break;
	case NIBBLES_LUT: codes_of_16(to, span, NIBBLES_LUT, lut, NULL); break;
	case BYTES: codes_of_16(to, span, BYTES, lut, NULL); break;
	case UNPACKED: codes_of_blocked(to, span, false, lut); break;
	case UNPACKED_LUT: codes_of_blocked(to, span, true, lut); break;
	default: s = stream_make(c->bits); codes_of_16(to, span, STREAM, lut, &s);
	}
}

void coded_scales_only_avx512(float *scale, float *bias, size_t step, const struct weight *w, int o, int n)
{
	scales_of(scale, bias, step, w, o, n);
}

void coded_scales_avx512(float *scale, float *bias, size_t step, const struct weight *w, int o, int n)
{
	scales_of(scale, bias, step, w, o, n);
	if (!blocks_of(w))
		coded_ask_scales(w, o + 32, 16);
}

double coded_peak_avx512(int64_t n)
{
	enum { CHAINS = 12 };
	__m512i a[CHAINS], u = _mm512_set1_epi8(3), s = _mm512_set1_epi8(-5);
	volatile int keep;

	for (int i = 0; i < CHAINS; i++)
		a[i] = _mm512_setzero_si512();
	for (int64_t k = 0; k < n; k++)
#pragma GCC unroll 12
		for (int i = 0; i < CHAINS; i++)
			a[i] = dot512(a[i], u, s);
	for (int i = 1; i < CHAINS; i++)
		a[0] = _mm512_add_epi32(a[0], a[i]);
	keep = _mm512_reduce_add_epi32(a[0]);
	(void)keep;
	return 2.0 * 64 * CHAINS * (double)n;
}

/* Whole blocks. */
INLINE void mul_blocks(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                       int r1, void *scratch, const bool panels)
{
	const uint8_t *blocks = block_at(w, blocks_of(w), o0, 0);
	int n = (o1 - o0) / BLOCK_OUT, rows = r1 - r0;

	if (rows <= FEW_ROWS)
		blocks_few_avx512(out, ld, w, blocks, n, x, r0, r1, scratch);
	else if (panels && rows >= PANELS_FROM)
		coded_many_avx512(out, ld, w, o0, o1, x, r0, r1, scratch);
	else
		blocks_tiles_avx512(out, ld, w, blocks, n, x, r0, r1);
}

static void mul_blocks_tiles(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x,
                             int r0, int r1, void *scratch)
{
	mul_blocks(out, ld, w, o0, o1, x, r0, r1, scratch, false);
}

static void mul_blocks_panels(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x,
                              int r0, int r1, void *scratch)
{
	mul_blocks(out, ld, w, o0, o1, x, r0, r1, scratch, true);
}

/* Whole 16 outputs of planes. */
static void mul_planes(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                       int r1, void *scratch)
{
	(r1 - r0 <= FEW_TWICE ? planes_few_avx512 : coded_many_avx512)(out, ld, w, o0, o1, x, r0, r1, scratch);
}

static void mul_rows(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                     int r1, void *scratch)
{
	const struct coding *c = w->fmt->coding;
	enum how how = how_of(c);
	/* 16 or 32 codes a group, or whole blocks of 64 or 128. */
	int size = w->group == 16 ? 3 : w->group == 32 ? 2 : w->group % 128 == 0 ? 0 : w->group % 64 == 0 ? 1 : -1;
	direct_fn *const *direct = size < 0 || c->block ? NULL : directs[how][size];

	if (size == 1 && w->group != 64 && c->bits == 4)
		direct = NULL; /* 192 and the like: no whole blocks of nibbles */
	if (r1 - r0 <= FEW_TWICE && coded_is_g64(w)) {
		int begin = o0;

		o0 = coded_few_avx512(out, ld, w, o0, o1, x, r0, r1, scratch);
		out += o0 - begin;
		if (o0 == o1)
			return;
	}
	if (w->group % 16)
		coded_mul_scalar(out, ld, w, o0, o1, x, r0, r1, scratch);
	else if (r1 - r0 <= DIRECT_ROWS && direct && direct[0])
		mul_direct(direct[r1 - r0 <= 2 ? r1 - r0 - 1 : 2], out, ld, w, o0, o1, x, r0, r1, how, scratch);
	else
		coded_many_avx512(out, ld, w, o0, o1, x, r0, r1, scratch);
}

static void mul(float *out, size_t ld, const struct weight *weight, int o0, int o1, const struct acts *x, int r0,
                int r1, void *scratch, weight_mul_fn *blocks)
{
	struct weight rows;
	const struct weight *w = blocks_settled(&rows, weight);

	assert(x->cols == w->cols && x->group == w->group);
	if (blocks_of(w))
		coded_whole_blocks(w->fmt->coding->block ? mul_planes : blocks, out, ld, w, o0, o1, x, r0, r1, scratch);
	else
		mul_rows(out, ld, w, o0, o1, x, r0, r1, scratch);
}

void coded_mul_avx512(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                      int r1, void *scratch)
{
	mul(out, ld, w, o0, o1, x, r0, r1, scratch, mul_blocks_tiles);
}

void coded_mul_avx512_panels(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x,
                             int r0, int r1, void *scratch)
{
	mul(out, ld, w, o0, o1, x, r0, r1, scratch, mul_blocks_panels);
}
