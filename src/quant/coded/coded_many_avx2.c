/* coded_many_avx2.c - products over coded weights with AVX2; the bits of coded.c.  Compiled
 * twice: with AVX-VNNI vpdpbusd sums four products at once, without it vpmaddubsw two.
 *
 * Without, pairs of products are summed in 16 bits: eight pairs of codes of up to 4 bits
 * (15 x 127 x 16 = 30480), four of 5 bits (31 x 127 x 8 = 31496) and of E2M1 (24), two
 * of 6 (63 x 127 x 4 = 32004).  Codes of 8 bits are taken as signed by subtracting 128,
 * multiplied as |w| by x with w's sign (128 x 127 x 2 = 32512 just fits), and 128
 * times the sum of x is added back.
 *
 * The commonest weights: coded_few_avx2.c. For the others, codes of 16 outputs are unpacked,
 * PANEL_INPUTS inputs at a time, into quads of inputs, [inputs / 4][16][4], and
 * tiles of 1 to TILE_ROWS rows run over them. */
#include <assert.h>
#include <immintrin.h>
#include <string.h>

#include "quant/coded/coded_avx2.h"
#include "quant/coded/coded_kernels.h"
#include "quant/coded/coded_prefetch.h"
#include "quant/coded/planes.h"

/* STREAM: any other width; UNPACKED: a byte each, of rows in blocks. */
enum how { NIBBLES, NIBBLES_LUT, BYTES, STREAM, UNPACKED, UNPACKED_LUT, HOWS };

#if defined(__AVXVNNI__)
enum { TILE_ROWS = 6, BYTES_LESS = 0 };
#else
enum { TILE_ROWS = 4, BYTES_LESS = 128 }; /* BYTES_LESS: what codes of 8 bits are taken less */
#endif

/* ---- codes, 32 at a time, in their order ---- */

struct codes {
	__m256i lut;
	/* Any width: the bytes of codes 0-7 and 8-15 of a lane, a factor that moves
	 * each to the top of its 16 bits, one whose product's upper half is the code. */
	__m256i low, high, lift, drop;
	int bits, less;
};

/* The number subtracted from codes that do not fit seven bits; 0 for others. */
static int codes_less(const struct coding *c)
{
	return c->most > 127 ? BYTES_LESS : 0;
}

static struct codes codes_make(const struct coding *c)
{
	struct codes s = { .bits = c->block ? 8 : c->bits };
	uint8_t low[16], high[16];
	uint16_t lift[8];

	s.lut = c->lut ? _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)c->lut)) : _mm256_setzero_si256();
	for (int k = 0; k < 8; k++) {
		low[2 * k] = (uint8_t)(k * s.bits / 8);
		low[2 * k + 1] = (uint8_t)(k * s.bits / 8 + 1);
		high[2 * k] = (uint8_t)(low[2 * k] + s.bits);
		high[2 * k + 1] = (uint8_t)(low[2 * k + 1] + s.bits);
		lift[k] = (uint16_t)(1 << (16 - s.bits - k * s.bits % 8));
	}
	s.low = _mm256_broadcastsi128_si256(_mm_loadu_si128((void *)low));
	s.high = _mm256_broadcastsi128_si256(_mm_loadu_si128((void *)high));
	s.lift = _mm256_broadcastsi128_si256(_mm_loadu_si128((void *)lift));
	s.drop = _mm256_set1_epi16((short)(1 << s.bits));
	s.less = codes_less(c);
	return s;
}

/* Codes k .. k + 31 of a row of cols (16 at the end of some), zeros behind; of
 * BYTES all of it less BYTES_LESS.  Those of 4 bits: panel_nibbles(). */
INLINE __m256i codes_at(const struct codes *s, const uint8_t *row, int k, int cols, const enum how how)
{
	const uint8_t *p = row + (size_t)k / 8 * (size_t)s->bits;
	size_t left = (size_t)(cols - k) * (size_t)s->bits / 8, lane = 2 * (size_t)s->bits;
	uint8_t last[48];
	__m256i v, a, b;

	if (left < lane + 16) { /* the loads would pass the row's end */
		memset(last, 0, sizeof last);
		memcpy(last, p, left < 2 * lane ? left : 2 * lane);
		p = last;
	}
	if (how == BYTES || how == UNPACKED || how == UNPACKED_LUT) {
		v = _mm256_loadu_si256((const void *)p);
		if (how == UNPACKED_LUT)
			v = _mm256_shuffle_epi8(s->lut, v);
		return s->less ? _mm256_xor_si256(v, _mm256_set1_epi8(-128)) : v;
	}
	v = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)p)),
	                            _mm_loadu_si128((const void *)(p + lane)), 1);
	a = _mm256_mullo_epi16(_mm256_shuffle_epi8(v, s->low), s->lift);
	b = _mm256_mullo_epi16(_mm256_shuffle_epi8(v, s->high), s->lift);
	return _mm256_packus_epi16(_mm256_mulhi_epu16(a, s->drop), _mm256_mulhi_epu16(b, s->drop));
}

/* acc plus four products in every 32 bits; without vpdpbusd w is signed. */
INLINE __m256i dots(__m256i acc, __m256i w, __m256i x)
{
#if defined(__AVXVNNI__)
	/* gcc 12 spills tiles of the intrinsic. */
	__asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc) : "x"(w), "x"(x));
	return acc;
#else
	return widen(acc, _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)));
#endif
}

/* ---- scales of 16 outputs as [groups][16] floats ---- */

/* Eight stored scales as floats. */
INLINE __m256 scales8(const uint8_t *p, enum dtype t)
{
	__m256i b;

	switch (t) {
	case DT_F32: return _mm256_loadu_ps((const void *)p);
	case DT_F16: return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
	case DT_F8_E4M3: { /* as f16 with the exponent's bias 8 off */
		__m128i h = _mm_cvtepu8_epi16(_mm_loadl_epi64((const void *)p));

		h = _mm_or_si128(_mm_slli_epi16(_mm_and_si128(h, _mm_set1_epi16(0x7f)), 7),
		                 _mm_slli_epi16(_mm_and_si128(h, _mm_set1_epi16(0x80)), 8));
		return _mm256_mul_ps(_mm256_cvtph_ps(h), _mm256_set1_ps(256.0f));
	}
	case DT_F8_E8M0:
		b = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p));
		return _mm256_castsi256_ps(_mm256_blendv_epi8(
			_mm256_blendv_epi8(_mm256_slli_epi32(b, 23), _mm256_set1_epi32(0x00400000),
		                           _mm256_cmpeq_epi32(b, _mm256_setzero_si256())),
			_mm256_set1_epi32(0x7fc00000), _mm256_cmpeq_epi32(b, _mm256_set1_epi32(255))));
	default:
		b = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p));
		return _mm256_castsi256_ps(_mm256_slli_epi32(b, 16));
	}
}

/* Groups [g, end) of outputs o .. o + n - 1 to lanes 0 .. n - 1 of to[group * step]; the rest is 0. */
INLINE void scales_typed(float *to, size_t step, const struct weight *w, bool bias, const enum dtype t,
                         const size_t size, int o, int n, int g, int end)
{
	const uint8_t *p = bias ? w->biases : w->scales;
	size_t row = (size_t)(w->cols / w->group) * size;
	__m256 unit = _mm256_set1_ps(bias ? 1.0f : w->fmt->coding->scale_unit);

	p += (size_t)o * row;
	for (; n == 16 && g + 8 <= end; g += 8)
		for (int h = 0; h < 16; h += 8) {
			__m256i v[8];

			for (int i = 0; i < 8; i++)
				v[i] = _mm256_castps_si256(
					_mm256_mul_ps(unit, scales8(p + (size_t)(h + i) * row + (size_t)g * size, t)));
			transpose8(v);
			for (int i = 0; i < 8; i++)
				_mm256_storeu_si256((void *)(to + step * (size_t)(g + i) + h), v[i]);
		}
	for (; g < end; g++)
		for (int i = 0; i < 16; i++) {
			float s = 0.0f, b = 0.0f;

			if (i < n)
				coding_scale(&s, &b, w, o + i, g);
			to[step * (size_t)g + (size_t)i] = bias ? b : s;
		}
}

static void scales_make(float *to, size_t step, const struct weight *w, bool bias, int o, int n, int g, int end)
{
	switch (w->scale_type) {
	case DT_F32: scales_typed(to, step, w, bias, DT_F32, 4, o, n, g, end); break;
	case DT_F16: scales_typed(to, step, w, bias, DT_F16, 2, o, n, g, end); break;
	case DT_BF16: scales_typed(to, step, w, bias, DT_BF16, 2, o, n, g, end); break;
	case DT_F8_E4M3: scales_typed(to, step, w, bias, DT_F8_E4M3, 1, o, n, g, end); break;
	default: scales_typed(to, step, w, bias, DT_F8_E8M0, 1, o, n, g, end); break;
	}
}

void LEVEL(coded_scales)(float *scale, float *bias, size_t step, const struct weight *w, int o, int n)
{
	int groups = w->cols / w->group;

	if (w->fmt->coding->block && packed_of(w)) {
		LEVEL(planes_lanes)(scale, bias, step, w, packed_of(w), o);
		return;
	}
	if (w->fmt->coding->block) {
		file_block_lanes(scale, bias, step, w, o, n);
		return;
	}
	scales_make(scale, step, w, false, o, n, 0, groups);
	if (w->fmt->coding->bias)
		scales_make(bias, step, w, true, o, n, 0, groups);
	coded_prefetch_scales(w, o + 16, 16);
}

void LEVEL(coded_scales_eight)(float *scale, float *bias, size_t step, const struct weight *w, int o, int g)
{
	scale -= (size_t)g * step;
	bias -= (size_t)g * step;
	scales_make(scale, step, w, false, o, 16, g, g + 8);
	scales_make(bias, step, w, true, o, 16, g, g + 8);
}

struct product {
	const struct weight *w;
	const struct acts *x;
	const int8_t *q;           /* of the rows of a block, in the order of codes */
	float *acc;                /* [rows of the block][16] */
	const float *scale, *bias; /* [groups][16]; bias NULL: none */
	int groups, zero, r0;      /* r0: the block's first row */
};

/* 16 outputs of row r of the block. */
INLINE void group_step(const struct product *d, int r, int g, __m256i low, __m256i high)
{
	size_t at = (size_t)(d->r0 + r) * (size_t)d->groups + (size_t)g;
	float *to = d->acc + 16 * r;
	__m256 xs = _mm256_set1_ps(d->x->scale[at]), a = _mm256_load_ps(to), b = _mm256_load_ps(to + 8);

	if (d->zero) {
		__m256i z = _mm256_set1_epi32(d->zero * d->x->sum[at]);

		low = _mm256_sub_epi32(low, z);
		high = _mm256_sub_epi32(high, z);
	}
	a = _mm256_fmadd_ps(_mm256_load_ps(d->scale + 16 * g), _mm256_mul_ps(_mm256_cvtepi32_ps(low), xs), a);
	b = _mm256_fmadd_ps(_mm256_load_ps(d->scale + 16 * g + 8), _mm256_mul_ps(_mm256_cvtepi32_ps(high), xs), b);
	if (d->bias) {
		xs = _mm256_set1_ps(d->x->scaled_sum[at]);
		a = _mm256_fmadd_ps(_mm256_load_ps(d->bias + 16 * g), xs, a);
		b = _mm256_fmadd_ps(_mm256_load_ps(d->bias + 16 * g + 8), xs, b);
	}
	_mm256_store_ps(to, a);
	_mm256_store_ps(to + 8, b);
}

/* ---- panels of codes ---- */

/* Codes of 4 bits k .. k + 31, or + 15 at the end of a row. */
INLINE __m128i nibbles_at(const uint8_t *row, int k, int cols)
{
	const void *p = row + k / 2;

	return cols - k < 32 ? _mm_loadl_epi64(p) : _mm_loadu_si128(p);
}

/* Eight codes of an output are split where they lie, into those of even and those of
 * odd inputs: NIBBLES' order of inputs, which arrange() gives to activations too. */
INLINE void panel_nibbles(uint8_t *panel, const struct codes *s, const uint8_t *const row[8], int k, int cols,
                          int n_quads, const enum how how)
{
	__m256i t[4];

#pragma GCC unroll 4
	for (int i = 0; i < 4; i++)
		t[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(nibbles_at(row[i], k, cols)),
		                               nibbles_at(row[i + 4], k, cols), 1);
	transpose4(t);
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		__m256i even = _mm256_and_si256(t[i], _mm256_set1_epi8(15));
		__m256i odd = _mm256_and_si256(_mm256_srli_epi16(t[i], 4), _mm256_set1_epi8(15));

		if (2 * i >= n_quads)
			break;
		if (how == NIBBLES_LUT) {
			even = _mm256_shuffle_epi8(s->lut, even);
			odd = _mm256_shuffle_epi8(s->lut, odd);
		}
		_mm256_store_si256((void *)(panel + 128 * i), even);
		_mm256_store_si256((void *)(panel + 128 * i + 64), odd);
	}
}

/* Unpacks inputs [k0, k1) of 16 outputs to [(k1 - k0) / 4][16][4].  Prefetches into the
 * second-level cache the codes of the next 16 outputs, in rising order, and into the first
 * level, row by row, the codes that are unpacked soon. */
enum { NEAR = 128 };
INLINE void panel_fill(uint8_t *panel, const struct codes *s, const uint8_t *const row[16], int k0, int k1, int cols,
                       const enum how how)
{
	const uint8_t *ahead = row[0] + (size_t)(row[15] - row[0]) / 15 * 16;

	for (int k = k0; k < k1; k += 32, panel += 512) {
		int n_quads = k1 - k < 32 ? (k1 - k) / 4 : 8;

		for (int i = 0; i < s->bits && how < UNPACKED; i++) {
			_mm_prefetch(ahead + (size_t)k * 2 * (size_t)s->bits + 64 * i, _MM_HINT_T1);
			_mm_prefetch(row[(k / 32 * s->bits + i) % 16] + NEAR + (size_t)k / 8 * (size_t)s->bits,
			             _MM_HINT_T0);
		}
		for (int h = 0; h < 16; h += 8) {
			__m256i t[8];

			if (how == NIBBLES || how == NIBBLES_LUT) {
				panel_nibbles(panel + 4 * h, s, row + h, k, cols, n_quads, how);
				continue;
			}
			for (int i = 0; i < 8; i++)
				t[i] = codes_at(s, row[h + i], k, cols, how);
			transpose8(t);
			for (int i = 0; i < n_quads; i++)
				_mm256_store_si256((void *)(panel + 64 * i + 4 * h), t[i]);
		}
	}
}

/* n activations in the order that panel_nibbles() gives to codes: of each eight 0 2 4 6 1 3 5 7. */
static void arrange(int8_t *to, const int8_t *q, size_t n)
{
	const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);

	for (size_t i = 0; i < n; i += 16)
		_mm_store_si128((void *)(to + i), _mm_shuffle_epi8(_mm_loadu_si128((const void *)(q + i)), order));
}

/* ---- tiles ---- */

/* R rows by 16 outputs of a group, WIDE quads of inputs at a time.  Without vpdpbusd, their
 * pairs of products are first added in 16 bits, which WIDE must not fill. */
INLINE void tile_group(__m256i v[][2], const uint8_t *panel, const int8_t *q, size_t cols, int group, const int WIDE,
                       const int R)
{
#pragma GCC unroll 6
	for (int r = 0; r < R; r++)
		v[r][0] = v[r][1] = _mm256_setzero_si256();
	for (int k = 0; k < group; k += 4 * WIDE, panel += 64 * WIDE, q += 4 * WIDE) {
		__m256i sum[TILE_ROWS][2];

#pragma GCC unroll 8
		for (int i = 0; i < WIDE; i++) {
			__m256i low = _mm256_load_si256((const void *)(panel + 64 * i));
			__m256i high = _mm256_load_si256((const void *)(panel + 64 * i + 32));

#pragma GCC unroll 6
			for (int r = 0; r < R; r++) {
				int32_t four;
				__m256i x, low_sum, high_sum;

				memcpy(&four, q + (size_t)r * cols + 4 * i, 4);
				x = _mm256_set1_epi32(four);
				if (WIDE == 1) {
					v[r][0] = dots(v[r][0], low, x);
					v[r][1] = dots(v[r][1], high, x);
					continue;
				}
				low_sum = _mm256_maddubs_epi16(low, x);
				high_sum = _mm256_maddubs_epi16(high, x);
				sum[r][0] = i ? _mm256_add_epi16(sum[r][0], low_sum) : low_sum;
				sum[r][1] = i ? _mm256_add_epi16(sum[r][1], high_sum) : high_sum;
				/* In this order: gcc 12 makes trees of the sums and spills them. */
				__asm__("" : "+x"(sum[r][0]), "+x"(sum[r][1]));
			}
		}
#pragma GCC unroll 6
		for (int r = 0; r < R && WIDE > 1; r++) {
			v[r][0] = widen(v[r][0], sum[r][0]);
			v[r][1] = widen(v[r][1], sum[r][1]);
		}
	}
}

/* R rows from row r of the block by the panel, which begins at group g0 and ends at g1. */
INLINE void tile_run(const struct product *d, const uint8_t *panel, int r, int g0, int g1, const int WIDE, const int R)
{
	size_t cols = (size_t)d->w->cols, group = (size_t)d->w->group;
	const int8_t *q = d->q + (size_t)r * cols + (size_t)g0 * group;

	for (int g = g0; g < g1; g++, panel += 16 * group, q += group) {
		__m256i v[TILE_ROWS][2];

		tile_group(v, panel, q, cols, (int)group, WIDE, R);
#pragma GCC unroll 6
		for (int i = 0; i < R; i++)
			group_step(d, r + i, g, v[i][0], v[i][1]);
	}
}

typedef void panel_fn(uint8_t *, const struct codes *, const uint8_t *const *, int, int, int);
typedef void tile_fn(const struct product *, const uint8_t *, int, int, int);

#define PANEL(how)                                                                                                \
	static void panel_##how(uint8_t *panel, const struct codes *s, const uint8_t *const *row, int k0, int k1, \
	                        int cols)                                                                         \
	{                                                                                                         \
		panel_fill(panel, s, row, k0, k1, cols, how);                                                     \
	}
PANEL(NIBBLES)
PANEL(NIBBLES_LUT)
PANEL(BYTES)
PANEL(STREAM)
PANEL(UNPACKED)
PANEL(UNPACKED_LUT)
static panel_fn *const panels[HOWS] = {
	[NIBBLES] = panel_NIBBLES, [NIBBLES_LUT] = panel_NIBBLES_LUT, [BYTES] = panel_BYTES,
	[STREAM] = panel_STREAM,   [UNPACKED] = panel_UNPACKED,       [UNPACKED_LUT] = panel_UNPACKED_LUT,
};

#define TILE(wide, R)                                                                                       \
	static void tile_##wide##_##R(const struct product *d, const uint8_t *panel, int r, int g0, int g1) \
	{                                                                                                   \
		tile_run(d, panel, r, g0, g1, wide, R);                                                     \
	}
#define TILES(wide)   \
	TILE(wide, 1) \
	TILE(wide, 2) \
	TILE(wide, 3) \
	TILE(wide, 4)
#define PICK(wide) tile_##wide##_1, tile_##wide##_2, tile_##wide##_3, tile_##wide##_4
TILES(1)
#if defined(__AVXVNNI__)
TILE(1, 5)
TILE(1, 6)
static tile_fn *const tiles[][TILE_ROWS] = { [1] = { PICK(1), tile_1_5, tile_1_6 } };
#else
TILES(2)
TILES(4)
TILES(8)
static tile_fn *const tiles[][TILE_ROWS] = {
	[1] = { PICK(1) }, [2] = { PICK(2) }, [4] = { PICK(4) }, [8] = { PICK(8) }
};
#endif

/* Quads whose products are summed in 16 bits. */
static int tile_wide(const struct coding *c, int group)
{
	enum { MOST_16 = 32767, PAIR = 2 * 127 };
	int fit = MOST_16 / (PAIR * c->most);

	if (TILE_ROWS == 6 || fit < 2)
		return 1;
	return fit < 4 ? 2 : fit < 8 || group % 32 ? 4 : 8;
}

double LEVEL(coded_peak)(int64_t n)
{
	enum { CHAINS = 8, WIDE = TILE_ROWS == 6 ? 1 : 8 };
	__m256i a[CHAINS], u = _mm256_set1_epi8(3), s = _mm256_set1_epi8(-5);
	volatile int keep;

	for (int i = 0; i < CHAINS; i++)
		a[i] = _mm256_setzero_si256();
	for (int64_t k = 0; k < n; k++)
#pragma GCC unroll 8
		for (int i = 0; i < CHAINS; i++) {
			__m256i sum = _mm256_setzero_si256();

			__asm__("" : "+x"(s)); /* another value, for all the compiler knows */
			if (WIDE == 1) {
				a[i] = dots(a[i], u, s);
				continue;
			}
#pragma GCC unroll 8
			for (int j = 0; j < WIDE; j++) {
				__m256i p = _mm256_maddubs_epi16(u, s);

				__asm__("" : "+x"(s));
				sum = j ? _mm256_add_epi16(sum, p) : p;
			}
			a[i] = widen(a[i], sum);
		}
	for (int i = 1; i < CHAINS; i++)
		a[0] = _mm256_add_epi32(a[0], a[i]);
	keep = _mm256_extract_epi32(a[0], 0);
	(void)keep;
	return 2.0 * 32 * CHAINS * WIDE * (double)n;
}

/* Inputs [k, k + n) of n_out outputs whose rows are blocks; what is beyond the last output repeats it. */
static void block_panel(uint8_t *panel, const struct codes *codes, enum how how, const struct weight *w, int o,
                        int n_out, int k, int n)
{
	uint8_t code[16][PANEL_INPUTS];
	const uint8_t *row[16];

	if (packed_of(w)) {
		LEVEL(planes_panel)(panel, BLOCK_LINE, w, packed_of(w), o, k, k + n);
		return;
	}
	for (int i = 0; i < 16; i++) {
		row[i] = code[i < n_out ? i : n_out - 1];
		if (i < n_out)
			file_block_codes(code[i], w, o + i, k, n);
	}
	panels[how](panel, codes, row, 0, n, n);
}

/* Rows [d->r0, d->r0 + n) by outputs o .. o + n_out - 1. */
static void block(float *out, size_t ld, struct product *d, const struct codes *codes, enum how how, int o, int n_out,
                  int n, uint8_t *panel)
{
	const struct weight *w = d->w;
	int wide = tile_wide(w->fmt->coding, w->group), step = PANEL_INPUTS > w->group ? PANEL_INPUTS / w->group : 1;
	const uint8_t *row[16];

	for (int i = 0; i < 16; i++) /* what is beyond the last output repeats it */
		row[i] = w->data + (size_t)(o + (i < n_out ? i : n_out - 1)) * w->row_bytes;
	memset(d->acc, 0, (size_t)n * 16 * sizeof *d->acc);
	for (int g0 = 0, g1; g0 < d->groups; g0 = g1) {
		g1 = g0 + step < d->groups ? g0 + step : d->groups;
		if (w->fmt->coding->block)
			block_panel(panel, codes, how, w, o, n_out, g0 * w->group, (g1 - g0) * w->group);
		else
			panels[how](panel, codes, row, g0 * w->group, g1 * w->group, w->cols);
		for (int r = 0; r < n; r += TILE_ROWS)
			tiles[wide][n - r < TILE_ROWS ? n - r - 1 : TILE_ROWS - 1](d, panel, r, g0, g1);
	}
	for (int r = 0; r < n; r++)
		memcpy(out + (size_t)r * ld, d->acc + 16 * r, (size_t)n_out * sizeof *out);
}

static enum how how_of(const struct coding *c)
{
	if (c->block)
		return c->lut ? UNPACKED_LUT : UNPACKED;
	return c->bits == 4 ? (c->lut ? NIBBLES_LUT : NIBBLES) : c->bits == 8 ? BYTES : STREAM;
}

void LEVEL(coded_many)(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                       int r1, void *scratch)
{
	const struct coding *c = w->fmt->coding;
	enum how how = how_of(c);
	int groups = w->cols / w->group;
	struct codes codes = codes_make(c);
	float *scale = scratch, *bias = scale + 16 * (size_t)groups, *acc = bias + 16 * (size_t)groups;
	uint8_t *panel = (uint8_t *)(acc + 16 * BLOCK_ROWS);
	int8_t *q = (int8_t *)panel + 16 * (size_t)(w->group > PANEL_INPUTS ? w->group : PANEL_INPUTS);
	struct product d = {
		.w = w,
		.x = x,
		.acc = acc,
		.scale = scale,
		.bias = c->bias ? bias : NULL,
		.groups = groups,
		.zero = c->zero - codes_less(c),
	};

	for (int n; r0 < r1; r0 += n, out += (size_t)n * ld) {
		n = r1 - r0 < BLOCK_ROWS ? r1 - r0 : BLOCK_ROWS;
		d.r0 = r0;
		d.q = x->q + (size_t)r0 * (size_t)w->cols;
		if (how == NIBBLES || how == NIBBLES_LUT) {
			arrange(q, d.q, (size_t)n * (size_t)w->cols);
			d.q = q;
		}
		for (int o = o0; o < o1; o += 16) {
			int n_out = o1 - o < 16 ? o1 - o : 16;

			LEVEL(coded_scales)(scale, bias, 16, w, o, n_out);
			block(out + (o - o0), ld, &d, &codes, how, o, n_out, n, panel);
		}
	}
}
