/* planes_kernels.c - products over planes (planes.h) of one to FEW_PLANES rows; the bits of coded.c.  Compiled for
 * AVX2, AVX-VNNI and AVX-512.
 *
 * A line has four codes of each of 16 outputs: what it is multiplied with is the same for all, so sums stay in lanes
 * and a group ends with its float steps, nothing turned.  Memory is read once and in rising order: one such stream is
 * what a processor fetches ahead best (bench/notes/beside-others.md, "One stream").  Codes of n bits come out of their
 * lines by shifts and masks that up to ROWS_MOST rows share.  How codes and scales are stored, which is what differs
 * between formats, is a constant of a kernel (SHAPES).
 *
 * A group's integer sum begins with -zero times the sum of its activations, which takes no instruction.
 *
 * Without vpdpbusd pairs of products are added in 16 bits, as many as the largest code allows; codes that do not fit
 * seven bits, and those out of a table, are taken 128 less if need be and multiplied one by one as |w| by x with w's
 * sign. */
#include <assert.h>
#include <immintrin.h>
#include <string.h>

#include "base/part.h"
#include "quant/coded/coded_kernels.h"
#include "quant/coded/planes.h"
#include "quant/kernel_rows.h"

#define INLINE static inline __attribute__((always_inline))

#if defined(__AVX512VNNI__)
#define LEVEL(name) name##_avx512
typedef __m512i ints;
typedef __m512 floats;
enum { LANES = 16, ROWS_MOST = 8, VNNI = 1 };
#define I(name) _mm512_##name
#define BITS(name) _mm512_##name##_si512
#elif defined(__AVXVNNI__)
#define LEVEL(name) name##_avxvnni
#else
#define LEVEL(name) name##_avx2
#endif
#if !defined(__AVX512VNNI__)
typedef __m256i ints;
typedef __m256 floats;
#define I(name) _mm256_##name
#define BITS(name) _mm256_##name##_si256
#if defined(__AVXVNNI__)
enum { LANES = 8, ROWS_MOST = 4, VNNI = 1 };
#else
enum { LANES = 8, ROWS_MOST = 4, VNNI = 0 };
#endif
#endif
/* Lines are prefetched AHEAD bytes before they are used, one with each line, from ASK_FROM rows on, and by fewer rows where
 * planes_hints says so.  Where the same outputs are gone through in turns, all lines of the next outputs are, by the turns
 * together, each its share, into the second cache, since the first is full of what the turns read again. */
enum { HALVES = BLOCK_OUT / LANES, HALF = BLOCK_LINE / HALVES, ASK_FROM = 3, AHEAD = 2816 };
/* How many halves of the 16 outputs R rows take at once.  One or two rows take both: a second pass over lines of the
 * first cache would leave memory idle. */
#define AT_ONCE(R) ((R) < ASK_FROM ? HALVES : 1)

/* ---- scales ---- */

/* The numbers that lanes begin with, as many as there are lanes. */
#if defined(__AVX512VNNI__)
INLINE floats halves_at(const uint8_t *p)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
}
INLINE ints bytes_at(const uint8_t *p)
{
	return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p));
}
INLINE ints signed_at(const uint8_t *p)
{
	return _mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p));
}
INLINE floats e8m0_halves(const uint8_t *p)
{
	ints e = bytes_at(p), v = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);

	return _mm512_castsi512_ps(_mm512_mask_sllv_epi32(v, _mm512_cmpgt_epi32_mask(_mm512_set1_epi32(2), e),
	                                                  _mm512_set1_epi32(0x200000), e));
}
INLINE floats ue4m3_halves(const uint8_t *p)
{
	__m256i b = _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)p)), seven = _mm256_set1_epi16(0x7f);
	__m256i none = _mm256_cmpeq_epi16(b, seven), h = _mm256_slli_epi16(_mm256_and_si256(b, seven), 7);

	return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_andnot_si256(none, h)), _mm512_set1_ps(128.0f));
}
INLINE floats minus(floats v)
{
	return _mm512_xor_ps(v, _mm512_set1_ps(-0.0f));
}
#else
INLINE floats halves_at(const uint8_t *p)
{
	return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
}
INLINE ints bytes_at(const uint8_t *p)
{
	return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p));
}
INLINE ints signed_at(const uint8_t *p)
{
	return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p));
}
INLINE floats e8m0_halves(const uint8_t *p)
{
	ints e = bytes_at(p), tiny = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), e);
	ints v = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);

	return _mm256_castsi256_ps(_mm256_blendv_epi8(v, tiny, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}
INLINE floats ue4m3_halves(const uint8_t *p)
{
	__m128i b = _mm_cvtepu8_epi16(_mm_loadl_epi64((const void *)p));
	__m128i none = _mm_cmpeq_epi16(b, _mm_set1_epi16(0x7f));
	__m128i h = _mm_slli_epi16(_mm_and_si128(b, _mm_set1_epi16(0x7f)), 7);

	return _mm256_mul_ps(_mm256_cvtph_ps(_mm_andnot_si128(none, h)), _mm256_set1_ps(128.0f));
}
INLINE floats minus(floats v)
{
	return _mm256_xor_ps(v, _mm256_set1_ps(-0.0f));
}
#endif

/* Factors that groups of a block of the file share, which is BLOCK_INPUTS long at least: d by the scale's unit, and
 * m. */
struct factors {
	floats d, m;
};
INLINE bool has_factors(const enum scale_kind kind)
{
	return kind == SCALE_BLOCK || kind == SCALE_TIMES || kind == SCALE_TIMES_MIN;
}

/* The factors of half h of the outputs in block n of the file. */
INLINE struct factors factors_at(const uint8_t *p, const struct plane_scales *at, size_t n, float unit,
                                 const enum scale_kind kind, int h)
{
	const uint8_t *d = p + at->d + (n * BLOCK_OUT + LANES * (size_t)h) * 2;
	struct factors f = { .d = I(setzero_ps)(), .m = I(setzero_ps)() };

	if (kind == SCALE_BLOCK)
		f.d = halves_at(d);
	if (kind == SCALE_TIMES)
		f.d = I(mul_ps)(halves_at(d), I(set1_ps)(unit)); /* by a power of two: the same bits */
	if (kind == SCALE_TIMES_MIN) {
		f.d = halves_at(d);
		f.m = halves_at(d + (at->m - at->d));
	}
	return f;
}

INLINE bool has_bias(const enum scale_kind kind)
{
	return kind == SCALE_HALVES || kind == SCALE_TIMES_MIN;
}

/* Scales of half h of the outputs, of group g, of block n of the file; *bias only where kind has biases.  f: the
 * block's, where kind has any. */
INLINE void scale_lanes(floats *scale, floats *bias, const uint8_t *p, const struct plane_scales *at, size_t n,
                        size_t g, const struct factors *f, const enum scale_kind kind, int h)
{
	const uint8_t *d = p + at->d + (n * BLOCK_OUT + LANES * (size_t)h) * 2, *m = d + (at->m - at->d);
	const uint8_t *s = p + at->s + g * BLOCK_OUT + LANES * (size_t)h, *min = s + (at->min - at->s);

	switch (kind) {
	case SCALE_HALF: *scale = halves_at(d); break;
	case SCALE_HALVES:
		*scale = halves_at(d);
		*bias = halves_at(m);
		break;
	case SCALE_BLOCK: *scale = f->d; break;
	case SCALE_TIMES: *scale = I(mul_ps)(f->d, I(cvtepi32_ps)(signed_at(s))); break;
	case SCALE_TIMES_MIN:
		*scale = I(mul_ps)(f->d, I(cvtepi32_ps)(bytes_at(s)));
		*bias = minus(I(mul_ps)(f->m, I(cvtepi32_ps)(bytes_at(min))));
		break;
	case SCALE_E8M0: *scale = e8m0_halves(s); break;
	case SCALE_UE4M3: *scale = ue4m3_halves(s); break;
	}
}

/* Brings scales, n bytes, into the first cache in the order of memory.  They are read with the codes that follow, and
 * as a second stream from memory they would keep the processor from fetching the first one ahead. */
INLINE void touch(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i += BLOCK_LINE)
		__asm__ volatile("" : : "r"(*(const volatile uint8_t *)(p + i)));
}

INLINE void scales_run(float *scale, float *bias, size_t step, const struct weight *w, const uint8_t *p,
                       const enum scale_kind kind)
{
	const struct plane_scales at = planes_scales(w);
	size_t groups = (size_t)(w->cols / w->group), per = (size_t)(w->fmt->coding->block->length / w->group);
	float unit = w->fmt->coding->scale_unit;

	touch(p, at.end);
	for (size_t g = 0, n = 0, j = 0; g < groups; g++) {
		for (int h = 0; h < HALVES; h++) {
			const struct factors f = factors_at(p, &at, n, unit, kind, h);
			floats s, b;

			scale_lanes(&s, &b, p, &at, n, g, &f, kind, h);
			I(storeu_ps)(scale + g * step + LANES * h, s);
			if (has_bias(kind))
				I(storeu_ps)(bias + g * step + LANES * h, b);
		}
		if (++j == per) {
			n++;
			j = 0;
		}
	}
}

void LEVEL(planes_lanes)(float *scale, float *bias, size_t step, const struct weight *w, const uint8_t *planes, int o)
{
	const uint8_t *p = planes + (size_t)(o / BLOCK_OUT) * packed_step(w);

	assert(o % BLOCK_OUT == 0);
	switch (w->fmt->coding->block->kind) {
	case SCALE_HALF: scales_run(scale, bias, step, w, p, SCALE_HALF); break;
	case SCALE_HALVES: scales_run(scale, bias, step, w, p, SCALE_HALVES); break;
	case SCALE_BLOCK: scales_run(scale, bias, step, w, p, SCALE_BLOCK); break;
	case SCALE_TIMES: scales_run(scale, bias, step, w, p, SCALE_TIMES); break;
	case SCALE_TIMES_MIN: scales_run(scale, bias, step, w, p, SCALE_TIMES_MIN); break;
	case SCALE_E8M0: scales_run(scale, bias, step, w, p, SCALE_E8M0); break;
	case SCALE_UE4M3: scales_run(scale, bias, step, w, p, SCALE_UE4M3); break;
	}
}

/* ---- codes ---- */

INLINE ints line_at(const uint8_t *at, int line)
{
	return BITS(load)((const void *)(at + BLOCK_LINE * line));
}

/* Bits [0, bits) of quad q out of its line, moved up by `up`. */
INLINE ints quad_bits(ints line, int q, const int bits, const int up)
{
	const int shift = bits * (q % (8 / bits)) - up;

	line = shift > 0 ? I(srli_epi16)(line, (unsigned)shift) :
	       shift < 0 ? I(slli_epi16)(line, (unsigned)-shift) :
	                   line;
	return BITS(and)(line, I(set1_epi8)((char)(((1 << bits) - 1) << up)));
}

/* Quad q of the 64 inputs at `at`. */
INLINE ints quad_at(const uint8_t *at, int q, const int low, const int high, const bool has_lut, ints lut)
{
	ints v = line_at(at, planes_low_line(q * low / 8, low, high));

	if (low < 8)
		v = quad_bits(v, q, low, low == 1);
	if (high)
		v = BITS(or)(v, quad_bits(line_at(at, planes_high_line(q * high / 8, low, high)), q, high, low));
	return has_lut ? I(shuffle_epi8)(lut, v) : v;
}

INLINE ints lut_of(const struct coding *c, int less)
{
	uint8_t lut[16];

	for (int i = 0; i < 16; i++)
		lut[i] = c->lut ? c->lut[i] ^ (less ? 0x80 : 0) : 0;
#if defined(__AVX512VNNI__)
	return _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)lut));
#else
	return _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)lut));
#endif
}

/* ---- rows ---- */

/* Scales that a group of a row is multiplied with. */
struct beside {
	float scale, scaled_sum;
	int32_t start; /* -zero times the sum */
};

struct rows {
	const int8_t *q; /* of the first of them, [rows][cols] */
	size_t cols;
	const struct beside *beside; /* [groups][rows] */
	int groups, less;
	/* turns > 1: these are rows of turn number `turn` over the same 16 outputs, the next of which lie `step` bytes
	 * on. */
	int turn, turns;
	size_t step;
	size_t ahead; /* how far lines are prefetched; 0: they are not */
};

INLINE ints four_at(const int8_t *q)
{
	int32_t four;

	memcpy(&four, q, sizeof four);
	return I(set1_epi32)(four);
}

INLINE ints dots(ints acc, ints u, const int8_t *q)
{
#if defined(__AVX512VNNI__)
	__asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(u), "m"(*(const int32_t *)(const void *)q));
	return acc;
#elif defined(__AVXVNNI__)
	ints x = four_at(q);

	__asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc) : "x"(u), "x"(x));
	return acc;
#else
	(void)u;
	(void)q;
	return acc;
#endif
}

#if !defined(__AVX512VNNI__) && !defined(__AVXVNNI__)
/* acc plus pairs of products in 16 bits. */
INLINE ints widen(ints acc, ints p)
{
	return _mm256_add_epi32(acc, _mm256_madd_epi16(p, _mm256_set1_epi16(1)));
}

INLINE ints pairs_signed(ints w, ints x)
{
	return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}
#endif

/* Quads whose products fit into 16 bits together; 0: none, signed. */
INLINE int quads_wide(const int low, const int high, const bool has_lut)
{
	const int most = low == 1 ? 2 : (1 << (low + high)) - 1, fit = 32767 / (2 * 127 * most);

	return has_lut || fit < 2 ? 0 : fit < 4 ? 2 : fit < 8 ? 4 : 8;
}

/* Asks for the line of `ask` that is where quad q begins one in its 64 inputs, if it does, of `lines`.  Where `ask` is the
 * line that is read now, nothing more is read from memory. */
INLINE void ask_beside(const uint8_t *ask, int q, const int lines)
{
	const int line = q * lines / PLANE_QUADS;

	if ((q + 1) * lines / PLANE_QUADS > line)
		__asm__ volatile("prefetcht0 %0" : : "m"(ask[BLOCK_LINE * line])); /* volatile: in this order */
}

/* Prefetches this many lines from p on, into the second cache. */
INLINE void ask_all(const uint8_t *p, size_t lines)
{
	for (size_t i = 0; i < lines; i++)
		_mm_prefetch(p + BLOCK_LINE * i, _MM_HINT_T1);
}

/* Sums of a group of R rows by H halves, [H][R], from quad q0 of the block on; meanwhile lines from `ask` on are asked
 * for. */
INLINE void group_sums(ints sum[], const uint8_t *at, const uint8_t *ask, int q0, const int8_t *const q[],
                       const struct rows *x, ints lut, const int low, const int high, const bool has_lut,
                       const int group, const int R, const int H)
{
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
	(void)x;
#pragma GCC unroll 8
	for (int i = q0; i < q0 + group / 4; i++) {
		ask_beside(ask, i, (low + high) * 2);
#pragma GCC unroll 2
		for (int h = 0; h < H; h++) {
			ints v = quad_at(at + HALF * h, i, low, high, has_lut, lut);

#pragma GCC unroll 8
			for (int r = 0; r < R; r++)
				sum[h * R + r] = dots(sum[h * R + r], v, q[r] + 4 * i);
		}
	}
#else
	const int wide = quads_wide(low, high, has_lut);
	const ints less = _mm256_set1_epi8((char)(low == 8 && x->less ? 0x80 : 0));
	ints pairs[ROWS_MOST];

	for (int i = 0; i < R * H; i++)
		pairs[i] = _mm256_setzero_si256();
#pragma GCC unroll 8
	for (int i = q0; i < q0 + group / 4; i++) {
		ask_beside(ask, i, (low + high) * 2);
#pragma GCC unroll 2
		for (int h = 0; h < H; h++) {
			ints v = quad_at(at + HALF * h, i, low, high, has_lut, lut);

			if (low == 8)
				v = _mm256_xor_si256(v, less);
#pragma GCC unroll 8
			for (int r = 0; r < R; r++) {
				ints xs = four_at(q[r] + 4 * i), *s = &sum[h * R + r], *p = &pairs[h * R + r];

				if (!wide) {
					*s = widen(*s, pairs_signed(v, xs));
					continue;
				}
				*p = i % wide ? _mm256_add_epi16(*p, _mm256_maddubs_epi16(v, xs)) :
				                _mm256_maddubs_epi16(v, xs);
				if ((i + 1) % wide == 0 || i + 1 == q0 + group / 4)
					*s = widen(*s, *p);
			}
		}
	}
#endif
}

/* 16 outputs.  p: their scales, which codes follow; per: groups in a block of the file. */
struct outputs {
	const uint8_t *p;
	struct plane_scales at;
	size_t per;
	float unit;
};

/* The lanes of the halves of 16 outputs from h on that R rows take at once. */
INLINE void lanes_run(float *out, size_t ld, const struct outputs *w, const struct rows *x, ints lut, int h,
                      const int low, const int high, const bool has_lut, const int group, const enum scale_kind kind,
                      const int R)
{
	const int H = AT_ONCE(R);
	const struct beside *beside = x->beside;
	const uint8_t *at = w->p + w->at.end + HALF * h;
	const int8_t *q[ROWS_MOST];
	floats acc[ROWS_MOST];
	size_t block = 0, in_block = 0;
	int skip = x->turn;

#pragma GCC unroll 8
	for (int i = 0; i < R * H; i++)
		acc[i] = I(setzero_ps)();
#pragma GCC unroll 8
	for (int r = 0; r < R; r++)
		q[r] = x->q + (size_t)r * x->cols;
	for (int g = 0; g < x->groups; at += (low + high) * 2 * BLOCK_LINE) {
		const uint8_t *ask = at + x->ahead;
		struct factors factors[HALVES];

#pragma GCC unroll 2
		for (int i = 0; i < H; i++)
			factors[i] = factors_at(w->p, &w->at, block, w->unit, kind, h + i);
		if (R >= ASK_FROM && x->turns > 1 && skip-- == 0) {
			ask_all(at + x->step, (size_t)(low + high) * 2);
			skip = x->turns - 1;
		}
#pragma GCC unroll 4
		for (int k = 0; k < BLOCK_INPUTS / group; k++, g++, beside += R) {
			ints sum[ROWS_MOST];

#pragma GCC unroll 8
			for (int i = 0; i < R * H; i++)
				sum[i] = I(set1_epi32)(beside[i % R].start);
			group_sums(sum, at, ask, k * group / 4, q, x, lut, low, high, has_lut, group, R, H);
#pragma GCC unroll 2
			for (int i = 0; i < H; i++) {
				floats scale, bias;

				scale_lanes(&scale, &bias, w->p, &w->at, block, (size_t)g, &factors[i], kind, h + i);
#pragma GCC unroll 8
				for (int r = 0; r < R; r++) {
					floats f = I(mul_ps)(I(cvtepi32_ps)(sum[i * R + r]),
					                     I(set1_ps)(beside[r].scale)),
					       *to = &acc[i * R + r];

					*to = I(fmadd_ps)(scale, f, *to);
					if (has_bias(kind))
						*to = I(fmadd_ps)(bias, I(set1_ps)(beside[r].scaled_sum), *to);
				}
			}
			if (++in_block == w->per) {
				block++;
				in_block = 0;
			}
		}
#pragma GCC unroll 8
		for (int r = 0; r < R; r++)
			q[r] += BLOCK_INPUTS;
	}
#pragma GCC unroll 8
	for (int i = 0; i < R * H; i++)
		I(storeu_ps)(out + (size_t)(i % R) * ld + LANES * (i / R), acc[i]);
}

/* How codes lie, whether they go through a table, groups, and how scales are stored: each has kernels of its own. */
#define SHAPES(X)                           \
	X(8, 0, false, 32, SCALE_HALF)      \
	X(4, 0, false, 32, SCALE_HALF)      \
	X(4, 0, false, 32, SCALE_HALVES)    \
	X(4, 0, false, 32, SCALE_TIMES_MIN) \
	X(4, 0, true, 32, SCALE_HALF)       \
	X(4, 0, true, 32, SCALE_TIMES)      \
	X(4, 0, true, 32, SCALE_E8M0)       \
	X(4, 0, true, 16, SCALE_UE4M3)      \
	X(4, 1, false, 32, SCALE_HALF)      \
	X(4, 1, false, 32, SCALE_HALVES)    \
	X(4, 1, false, 32, SCALE_TIMES_MIN) \
	X(4, 2, false, 16, SCALE_TIMES)     \
	X(2, 1, false, 16, SCALE_TIMES)     \
	X(2, 1, true, 16, SCALE_TIMES)      \
	X(2, 1, true, 32, SCALE_TIMES)      \
	X(2, 0, false, 16, SCALE_TIMES_MIN) \
	X(2, 0, false, 32, SCALE_BLOCK)     \
	X(1, 0, false, 32, SCALE_BLOCK)

typedef void few_fn(float *, size_t, const struct outputs *, const struct rows *, ints, int);
#define FEW(low, high, lut, group, kind, R)                                                              \
	static void few_##low##_##high##_##lut##_##group##_##kind##_##R(                                 \
		float *out, size_t ld, const struct outputs *w, const struct rows *x, ints table, int h) \
	{                                                                                                \
		lanes_run(out, ld, w, x, table, h, low, high, lut, group, kind, R);                      \
	}
#if defined(__AVX512VNNI__)
#define ROWS_TO_MOST ROWS_TO_8
#define NAMES_TO_MOST NAMES_TO_8
#else
#define ROWS_TO_MOST ROWS_TO_4
#define NAMES_TO_MOST NAMES_TO_4
#endif
#define PREFIX(low, high, lut, group, kind) few_##low##_##high##_##lut##_##group##_##kind##_
#define FEWS(low, high, lut, group, kind) ROWS_TO_MOST(FEW, low, high, lut, group, kind)
#define ENTRY(low, high, lut, group, kind) \
	{ low, high, lut, group, kind, { NAMES_TO_MOST(PREFIX(low, high, lut, group, kind)) } },
SHAPES(FEWS)
static const struct shape {
	int low, high;
	bool lut;
	int group;
	enum scale_kind kind;
	few_fn *few[ROWS_MOST]; /* by rows */
} shapes[] = { SHAPES(ENTRY) };

static const struct shape *shape_of(const struct weight *w)
{
	const struct coding *c = w->fmt->coding;

	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
		if (shapes[i].low == planes_low(c->bits) && shapes[i].high == planes_high(c->bits) &&
		    shapes[i].lut == (c->lut != NULL) && shapes[i].group == w->group &&
		    shapes[i].kind == c->block->kind)
			return &shapes[i];
	assert(!"a coding that no kernel of planes is for");
	return NULL;
}

/* ---- products ---- */

/* Rows r0 .. r0 + n - 1 for all of groups. */
static void beside_fill(struct beside *to, const struct acts *x, int r0, int n, int zero)
{
	size_t groups = (size_t)(x->cols / x->group), at = (size_t)r0 * groups;

	for (size_t g = 0; g < groups; g++)
		for (size_t r = 0; r < (size_t)n; r++) {
			size_t from = at + r * groups + g;

			*to++ = (struct beside){ x->scale[from], x->scaled_sum[from], -zero * x->sum[from] };
		}
}

/* The number subtracted from codes of 8 bits; 0 for fewer bits. */
static int less_of(const struct coding *c)
{
	return !VNNI && c->most > 127 ? 128 : 0;
}

void LEVEL(planes_few)(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                       int r1, void *scratch)
{
	const struct coding *c = w->fmt->coding;
	const struct shape *shape = shape_of(w);
	size_t groups = (size_t)(w->cols / w->group), step = packed_step(w);
	int less = less_of(c), rows = r1 - r0, of = (rows + ROWS_MOST - 1) / ROWS_MOST;
	struct outputs outputs = { .p = packed_of(w) + (size_t)(o0 / BLOCK_OUT) * step,
		                   .at = planes_scales(w),
		                   .per = (size_t)(c->block->length / w->group),
		                   .unit = c->scale_unit };
	struct beside *beside = scratch;
	ints lut = lut_of(c, less);
	int turns = rows / of >= ASK_FROM ? of : 1;
	const bool hints = planes_hints(c);
	int heads = (int)(outputs.at.end / BLOCK_LINE);

	assert(rows <= FEW_PLANES && o0 % BLOCK_OUT == 0 && o1 % BLOCK_OUT == 0 && x->group == w->group);
	assert(!has_factors(c->block->kind) || c->block->length % BLOCK_INPUTS == 0);
	for (int i = 0; i < of; i++) {
		int r = part_begin(rows, i, of);

		beside_fill(beside + groups * (size_t)r, x, r0 + r, part_begin(rows, i + 1, of) - r, c->zero - less);
	}
	for (int o = o0; o < o1; o += BLOCK_OUT, outputs.p += step) {
		touch(outputs.p, outputs.at.end);
		for (int i = 0; i < of; i++) {
			int r = part_begin(rows, i, of), n = part_begin(rows, i + 1, of) - r;
			struct rows part = { .q = x->q + (size_t)(r0 + r) * (size_t)x->cols,
				             .cols = (size_t)x->cols,
				             .beside = beside + groups * (size_t)r,
				             .groups = (int)groups,
				             .less = less,
				             .turn = i,
				             .turns = turns,
				             .step = step,
				             .ahead = turns == 1 && (n >= ASK_FROM || hints) ? AHEAD : 0 };

			if (turns > 1)
				ask_all(outputs.p + step + (size_t)part_begin(heads, i, of) * BLOCK_LINE,
				        (size_t)(part_begin(heads, i + 1, of) - part_begin(heads, i, of)));
			for (int h = 0; h < HALVES; h += AT_ONCE(n))
				shape->few[n - 1](out + (size_t)r * ld + (o - o0) + LANES * h, ld, &outputs, &part, lut,
				                  h);
		}
	}
}

/* ---- for kernels that multiply panels of unpacked codes ---- */

INLINE void panel_run(uint8_t *to, size_t step, const uint8_t *at, int n, ints lut, ints less, const int low,
                      const int high, const bool has_lut)
{
	for (int k = 0; k < n; k += BLOCK_INPUTS, at += (low + high) * 2 * BLOCK_LINE)
#pragma GCC unroll 16
		for (int q = 0; q < PLANE_QUADS; q++, to += step)
#pragma GCC unroll 2
			for (int h = 0; h < HALVES; h++)
				BITS(storeu)
	((void *)(to + HALF * h), BITS(xor)(quad_at(at + HALF * h, q, low, high, has_lut, lut), less));
}

void LEVEL(planes_panel)(uint8_t *to, size_t step, const struct weight *w, const uint8_t *planes, int o, int k0, int k1)
{
	const struct coding *c = w->fmt->coding;
	const uint8_t *at = planes + (size_t)(o / BLOCK_OUT) * packed_step(w) + planes_scales(w).end +
	                    (size_t)(k0 / BLOCK_INPUTS) * planes_code_bytes(c);
	ints lut = lut_of(c, 0), less = I(set1_epi8)((char)(less_of(c) ? 0x80 : 0));
	int n = k1 - k0;

	assert(o % BLOCK_OUT == 0 && k0 % BLOCK_INPUTS == 0 && n % BLOCK_INPUTS == 0);
	switch (c->bits * 2 + (c->lut != NULL)) {
	case 2 * 8: panel_run(to, step, at, n, lut, less, 8, 0, false); break;
	case 2 * 6: panel_run(to, step, at, n, lut, less, 4, 2, false); break;
	case 2 * 5: panel_run(to, step, at, n, lut, less, 4, 1, false); break;
	case 2 * 4: panel_run(to, step, at, n, lut, less, 4, 0, false); break;
	case 2 * 4 + 1: panel_run(to, step, at, n, lut, less, 4, 0, true); break;
	case 2 * 3: panel_run(to, step, at, n, lut, less, 2, 1, false); break;
	case 2 * 3 + 1: panel_run(to, step, at, n, lut, less, 2, 1, true); break;
	case 2 * 1: panel_run(to, step, at, n, lut, less, 1, 0, false); break;
	case 2 * 2: panel_run(to, step, at, n, lut, less, 2, 0, false); break;
	default: assert(!"a coding that has no planes");
	}
}
