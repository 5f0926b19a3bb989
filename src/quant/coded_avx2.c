/* coded_avx2.c - products over coded weights with AVX2; the bits of coded.c.  Compiled
 * twice: with AVX-VNNI vpdpbusd sums four products at once, without it vpmaddubsw two.
 *
 * Without, pairs of products are summed in 16 bits, which codes of up to 6 bits (63 x 127
 * x 2 = 16002) and of E2M1 (24) never fill.  Codes of 8 bits are taken as signed
 * by subtracting 128, multiplied as |w| by x with w's sign (128 x 127 x 2 = 32512
 * just fits), and 128 times the sum of x is added back.
 *
 * Few rows (direct): an output's codes are unpacked in registers, 32 at a time.
 * Many rows (panel): codes of 16 outputs are unpacked once into quads of inputs,
 * [cols / 4][16][4], and a tile of 4 rows runs over them. */
#include <assert.h>
#include <immintrin.h>
#include <string.h>

#include "quant/levels.h"

#define INLINE static inline __attribute__((always_inline))

enum how { NIBBLES, NIBBLES_LUT, BYTES, STREAM };

#if defined(__AVXVNNI__)
#define LEVEL(name) name##_avxvnni
enum { TILE_ROWS = 6, BYTES_LESS = 0 };
#else
#define LEVEL(name) name##_avx2
enum { TILE_ROWS = 4, BYTES_LESS = 128 };       /* BYTES_LESS: what codes of 8 bits are taken less */
#endif

/* ---- codes, 32 at a time, in their order ---- */

struct codes {
	__m256i lut;
	/* Any width: the bytes of codes 0-7 and 8-15 of a lane, a factor that moves
	 * each to the top of its 16 bits, one whose product's upper half is the code. */
	__m256i low, high, lift, drop;
	int bits;
};

static struct codes codes_make(const struct coding *c)
{
	struct codes s = { .bits = c->bits };
	uint8_t low[16], high[16];
	uint16_t lift[8];

	s.lut = c->lut ? _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)c->lut)) : _mm256_setzero_si256();
	for (int k = 0; k < 8; k++) {
		low[2 * k] = (uint8_t)(k * c->bits / 8);
		low[2 * k + 1] = (uint8_t)(k * c->bits / 8 + 1);
		high[2 * k] = (uint8_t)(low[2 * k] + c->bits);
		high[2 * k + 1] = (uint8_t)(low[2 * k + 1] + c->bits);
		lift[k] = (uint16_t)(1 << (16 - c->bits - k * c->bits % 8));
	}
	s.low = _mm256_broadcastsi128_si256(_mm_loadu_si128((void *)low));
	s.high = _mm256_broadcastsi128_si256(_mm_loadu_si128((void *)high));
	s.lift = _mm256_broadcastsi128_si256(_mm_loadu_si128((void *)lift));
	s.drop = _mm256_set1_epi16((short)(1 << c->bits));
	return s;
}

/* Codes k .. k + 31 of a row of cols (16 at the end of some), zeros behind; of
 * BYTES all of it less BYTES_LESS. */
INLINE __m256i codes_at(const struct codes *s, const uint8_t *row, int k, int cols, const enum how how)
{
	const uint8_t *p = row + (size_t)k / 8 * (size_t)s->bits;
	uint8_t last[48];
	__m256i v;

	if (how == BYTES) {
		if (cols - k < 32) {
			memset(last, 0, 32);
			memcpy(last, p, (size_t)(cols - k));
			p = last;
		}
		v = _mm256_loadu_si256((const void *)p);
		return BYTES_LESS ? _mm256_xor_si256(v, _mm256_set1_epi8(-128)) : v;
	}
	if (how == STREAM) {
		size_t left = (size_t)(cols - k) * (size_t)s->bits / 8, lane = 2 * (size_t)s->bits;
		__m256i a, b;

		if (left < lane + 16) {         /* the loads would pass the row's end */
			memset(last, 0, sizeof last);
			memcpy(last, p, left < 2 * lane ? left : 2 * lane);
			p = last;
		}
		v = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)p)),
		                            _mm_loadu_si128((const void *)(p + lane)), 1);
		a = _mm256_mullo_epi16(_mm256_shuffle_epi8(v, s->low), s->lift);
		b = _mm256_mullo_epi16(_mm256_shuffle_epi8(v, s->high), s->lift);
		return _mm256_packus_epi16(_mm256_mulhi_epu16(a, s->drop), _mm256_mulhi_epu16(b, s->drop));
	}
	v = _mm256_cvtepu8_epi16(cols - k < 32 ? _mm_loadl_epi64((const void *)p) : _mm_loadu_si128((const void *)p));
	v = _mm256_and_si256(_mm256_or_si256(v, _mm256_slli_epi16(v, 4)), _mm256_set1_epi8(15));
	return how == NIBBLES_LUT ? _mm256_shuffle_epi8(s->lut, v) : v;
}

/* Pairs of products in 16 bits. */
INLINE __m256i pairs(__m256i w, __m256i x, const enum how how)
{
	if (how == BYTES)
		return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
	return _mm256_maddubs_epi16(w, x);
}

INLINE __m256i widen(__m256i acc, __m256i p)
{
	return _mm256_add_epi32(acc, _mm256_madd_epi16(p, _mm256_set1_epi16(1)));
}

/* acc plus four products in every 32 bits. */
INLINE __m256i dots(__m256i acc, __m256i w, __m256i x, const enum how how)
{
#if defined(__AVXVNNI__)
	/* gcc 12 spills tiles of the intrinsic. */
	__asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc) : "x"(w), "x"(x));
	return acc;
#else
	return widen(acc, pairs(w, x, how));
#endif
}

/* ---- scales of 16 outputs as [groups][16] floats ---- */

INLINE void transpose8(__m256i t[8])
{
	__m256i u[8];

#pragma GCC unroll 4
	for (int i = 0; i < 8; i += 2) {
		u[i] = _mm256_unpacklo_epi32(t[i], t[i + 1]);
		u[i + 1] = _mm256_unpackhi_epi32(t[i], t[i + 1]);
	}
#pragma GCC unroll 2
	for (int i = 0; i < 8; i += 4) {
		t[i] = _mm256_unpacklo_epi64(u[i], u[i + 2]);
		t[i + 1] = _mm256_unpackhi_epi64(u[i], u[i + 2]);
		t[i + 2] = _mm256_unpacklo_epi64(u[i + 1], u[i + 3]);
		t[i + 3] = _mm256_unpackhi_epi64(u[i + 1], u[i + 3]);
	}
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		u[i] = _mm256_permute2x128_si256(t[i], t[i + 4], 0x20);
		u[i + 4] = _mm256_permute2x128_si256(t[i], t[i + 4], 0x31);
	}
#pragma GCC unroll 8
	for (int i = 0; i < 8; i++)
		t[i] = u[i];
}

/* Eight stored scales as floats. */
INLINE __m256 scales8(const uint8_t *p, enum dtype t)
{
	__m256i b;

	switch (t) {
	case DT_F32: return _mm256_loadu_ps((const void *)p);
	case DT_F16: return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
	case DT_F8_E4M3: {      /* as f16 with the exponent's bias 8 off */
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

/* Outputs o .. o + n - 1 to lanes 0 .. n - 1 of to[g * 16]; the rest is 0. */
INLINE void scales_typed(float *to, const struct weight *w, bool bias, const enum dtype t, const size_t size,
                         int o, int n)
{
	const uint8_t *p = bias ? w->biases : w->scales;
	int groups = w->cols / w->group, g = 0;
	size_t row = (size_t)groups * size;
	__m256 unit = _mm256_set1_ps(bias ? 1.0f : w->fmt->coding->scale_unit);

	p += (size_t)o * row;
	for (; n == 16 && g + 8 <= groups; g += 8)
		for (int h = 0; h < 16; h += 8) {
			__m256i v[8];

			for (int i = 0; i < 8; i++)
				v[i] = _mm256_castps_si256(
					_mm256_mul_ps(unit, scales8(p + (size_t)(h + i) * row + (size_t)g * size, t)));
			transpose8(v);
			for (int i = 0; i < 8; i++)
				_mm256_storeu_si256((void *)(to + 16 * (g + i) + h), v[i]);
		}
	for (; g < groups; g++)
		for (int i = 0; i < 16; i++) {
			float s = 0.0f, b = 0.0f;

			if (i < n)
				coding_scale(&s, &b, w, o + i, g);
			to[16 * g + i] = bias ? b : s;
		}
}

static void scales_make(float *to, const struct weight *w, bool bias, int o, int n)
{
	switch (w->scale_type) {
	case DT_F32: scales_typed(to, w, bias, DT_F32, 4, o, n); break;
	case DT_F16: scales_typed(to, w, bias, DT_F16, 2, o, n); break;
	case DT_BF16: scales_typed(to, w, bias, DT_BF16, 2, o, n); break;
	case DT_F8_E4M3: scales_typed(to, w, bias, DT_F8_E4M3, 1, o, n); break;
	default: scales_typed(to, w, bias, DT_F8_E8M0, 1, o, n); break;
	}
}

struct product {
	const struct weight *w;
	const struct acts *x;
	struct codes codes;
	const float *scale, *bias;      /* [groups][16]; bias NULL: none */
	int groups, zero;
};

/* acc is 16 outputs of row r. */
INLINE void group_step(__m256 acc[2], const struct product *d, int r, int g, __m256i low, __m256i high)
{
	size_t at = (size_t)r * (size_t)d->groups + (size_t)g;
	__m256 xs = _mm256_set1_ps(d->x->scale[at]);

	if (d->zero) {
		__m256i z = _mm256_set1_epi32(d->zero * d->x->sum[at]);

		low = _mm256_sub_epi32(low, z);
		high = _mm256_sub_epi32(high, z);
	}
	acc[0] = _mm256_fmadd_ps(_mm256_loadu_ps(d->scale + 16 * g), _mm256_mul_ps(_mm256_cvtepi32_ps(low), xs),
	                         acc[0]);
	acc[1] = _mm256_fmadd_ps(_mm256_loadu_ps(d->scale + 16 * g + 8),
	                         _mm256_mul_ps(_mm256_cvtepi32_ps(high), xs), acc[1]);
	if (!d->bias)
		return;
	xs = _mm256_set1_ps(d->x->scaled_sum[at]);
	acc[0] = _mm256_fmadd_ps(_mm256_loadu_ps(d->bias + 16 * g), xs, acc[0]);
	acc[1] = _mm256_fmadd_ps(_mm256_loadu_ps(d->bias + 16 * g + 8), xs, acc[1]);
}

static void store16(float *out, const __m256 acc[2], int n)
{
	float t[16];

	_mm256_storeu_ps(t, acc[0]);
	_mm256_storeu_ps(t + 8, acc[1]);
	memcpy(out, t, (size_t)n * sizeof *out);
}

/* ---- few rows ---- */

/* Up to 32 activations, zeros behind. */
INLINE __m256i acts_at(const int8_t *q, int k, int cols)
{
	if (cols - k >= 32)
		return _mm256_loadu_si256((const void *)(q + k));
	return _mm256_inserti128_si256(_mm256_setzero_si256(), _mm_loadu_si128((const void *)(q + k)), 0);
}

/* 16 outputs of R rows.  PER: groups in 32 inputs, 1 or 2; with 1 a group may be
 * several times 32.  Integer sums of 4 outputs at a time, then the float steps. */
INLINE void direct_block(float *out, size_t ld, const struct product *d, const uint8_t *const row[16], int n_out,
                         int r0, __m256i *sums, const enum how how, const int R, const int PER)
{
	int cols = d->w->cols, run = PER == 1 ? d->w->group : 32;

	for (int four = 0; four < 4; four++) {
		__m256i *to = sums + four;

		for (int k = 0; k < cols; k += run, to += 4 * R) {
			__m256i v[2][4];

#pragma GCC unroll 2
			for (int r = 0; r < R; r++)
#pragma GCC unroll 4
				for (int o = 0; o < 4; o++)
					v[r][o] = _mm256_setzero_si256();
			for (int i = k; i < k + run && i < cols; i += 32) {
				__m256i x[2];

#pragma GCC unroll 2
				for (int r = 0; r < R; r++)
					x[r] = acts_at(d->x->q + (size_t)(r0 + r) * (size_t)cols, i, cols);
#pragma GCC unroll 4
				for (int o = 0; o < 4; o++) {
					__m256i w = codes_at(&d->codes, row[4 * four + o], i, cols, how);

					/* the same stretch of the outputs 16 further on */
					_mm_prefetch(row[4 * four + o] + 16 * d->w->row_bytes +
					                 (size_t)i / 8 * (size_t)d->codes.bits,
					             _MM_HINT_T1);
#pragma GCC unroll 2
					for (int r = 0; r < R; r++)
						v[r][o] = dots(v[r][o], w, x[r], how);
				}
			}
#pragma GCC unroll 2
			for (int r = 0; r < R; r++)
				to[4 * r] = _mm256_hadd_epi32(_mm256_hadd_epi32(v[r][0], v[r][1]),
				                              _mm256_hadd_epi32(v[r][2], v[r][3]));
		}
	}
	for (int r = 0; r < R; r++) {
		const __m256i *s = sums + 4 * r;
		__m256 acc[2] = { _mm256_setzero_ps(), _mm256_setzero_ps() };

		for (int g = 0; g < d->groups; g += PER, s += 4 * R) {
			__m256i a = _mm256_permute2x128_si256(s[0], s[1], 0x20);
			__m256i b = _mm256_permute2x128_si256(s[0], s[1], 0x31);
			__m256i e = _mm256_permute2x128_si256(s[2], s[3], 0x20);
			__m256i f = _mm256_permute2x128_si256(s[2], s[3], 0x31);

			if (PER == 1) {
				group_step(acc, d, r0 + r, g, _mm256_add_epi32(a, b), _mm256_add_epi32(e, f));
				continue;
			}
			group_step(acc, d, r0 + r, g, a, e);
			if (g + 1 < d->groups)
				group_step(acc, d, r0 + r, g + 1, b, f);
		}
		store16(out + (size_t)r * ld, acc, n_out);
	}
}

typedef void direct_fn(float *, size_t, const struct product *, const uint8_t *const *, int, int, __m256i *);

#define DIRECT(how, R, per) \
	static void direct_##how##_##R##_##per(float *out, size_t ld, const struct product *d, \
	                                       const uint8_t *const *row, int n_out, int r0, __m256i *sums) \
	{ \
		direct_block(out, ld, d, row, n_out, r0, sums, how, R, per); \
	}
#define DIRECTS(how) DIRECT(how, 1, 1) DIRECT(how, 2, 1) DIRECT(how, 1, 2) DIRECT(how, 2, 2)
DIRECTS(NIBBLES)
DIRECTS(NIBBLES_LUT)
DIRECTS(BYTES)
DIRECTS(STREAM)
#define PICK(how) { { direct_##how##_1_1, direct_##how##_2_1 }, { direct_##how##_1_2, direct_##how##_2_2 } }
static direct_fn *const directs[4][2][2] = {    /* [how][groups in 32 inputs][rows] */
	[NIBBLES] = PICK(NIBBLES), [NIBBLES_LUT] = PICK(NIBBLES_LUT), [BYTES] = PICK(BYTES), [STREAM] = PICK(STREAM),
};

/* ---- many rows ---- */

enum { TILE_MOST = 6 };

INLINE void panel_fill(uint8_t *panel, const struct codes *s, const uint8_t *const row[16], int cols,
                       const enum how how)
{
	for (int k = 0; k < cols; k += 32) {
		int quads = cols - k < 32 ? (cols - k) / 4 : 8;

		for (int h = 0; h < 16; h += 8) {
			__m256i t[8];

			for (int i = 0; i < 8; i++)
				t[i] = codes_at(s, row[h + i], k, cols, how);
			transpose8(t);
			for (int i = 0; i < quads; i++)
				_mm256_storeu_si256((void *)(panel + (size_t)(k / 4 + i) * 64 + 4 * h), t[i]);
		}
	}
}

/* WIDE quads of a row's inputs by 16 outputs.  Without vpdpbusd, their pairs of
 * products are first added in 16 bits, which WIDE must not fill. */
INLINE void quads(__m256i v[2], const uint8_t *panel, const int8_t *q, const enum how how, const int WIDE)
{
	__m256i a = _mm256_setzero_si256(), b = a;

#pragma GCC unroll 4
	for (int i = 0; i < WIDE; i++) {
		__m256i x, low = _mm256_loadu_si256((const void *)(panel + 64 * i));
		__m256i high = _mm256_loadu_si256((const void *)(panel + 64 * i + 32));
		int32_t four;

		memcpy(&four, q + 4 * i, 4);
		x = _mm256_set1_epi32(four);
		if (WIDE == 1) {
			v[0] = dots(v[0], low, x, how);
			v[1] = dots(v[1], high, x, how);
			return;
		}
		a = _mm256_add_epi16(a, pairs(low, x, how));
		b = _mm256_add_epi16(b, pairs(high, x, how));
	}
	v[0] = widen(v[0], a);
	v[1] = widen(v[1], b);
}

/* R rows from row r0 by 16 outputs. */
INLINE void tile_run(float *out, size_t ld, const struct product *d, const uint8_t *panel, int n_out, int r0,
                     const enum how how, const int WIDE, const int R)
{
	size_t cols = (size_t)d->w->cols;
	const int8_t *q = d->x->q + (size_t)r0 * cols;
	__m256 acc[TILE_MOST][2];

	for (int r = 0; r < R; r++)
		acc[r][0] = acc[r][1] = _mm256_setzero_ps();
	for (int g = 0; g < d->groups; g++) {
		__m256i v[TILE_MOST][2];

#pragma GCC unroll 6
		for (int r = 0; r < R; r++)
			v[r][0] = v[r][1] = _mm256_setzero_si256();
		for (int k = 0; k < d->w->group; k += 4 * WIDE, panel += 64 * WIDE, q += 4 * WIDE)
#pragma GCC unroll 6
			for (int r = 0; r < R; r++)
				quads(v[r], panel, q + (size_t)r * cols, how, WIDE);
		for (int r = 0; r < R; r++)
			group_step(acc[r], d, r0 + r, g, v[r][0], v[r][1]);
	}
	for (int r = 0; r < R; r++)
		store16(out + (size_t)r * ld, acc[r], n_out);
}

typedef void tile_fn(float *, size_t, const struct product *, const uint8_t *, int, int);

#define TILE(how, wide, R) \
	static void tile_##how##_##R(float *out, size_t ld, const struct product *d, const uint8_t *panel, \
	                             int n_out, int r0) \
	{ \
		tile_run(out, ld, d, panel, n_out, r0, how, wide, R); \
	}
#define TILES(how, wide) TILE(how, wide, 1) TILE(how, wide, 2) TILE(how, wide, 3) TILE(how, wide, 4) \
	TILE(how, wide, 5) TILE(how, wide, 6) \
	static void panel_##how(uint8_t *panel, const struct codes *s, const uint8_t *const *row, int cols) \
	{ \
		panel_fill(panel, s, row, cols, how); \
	}
#if defined(__AVXVNNI__)
TILES(NIBBLES, 1)
TILES(NIBBLES_LUT, 1)
TILES(STREAM, 1)
#else
TILES(NIBBLES, 4)
TILES(NIBBLES_LUT, 4)
TILES(STREAM, 2)
#endif
TILES(BYTES, 1)
#define PICK_TILE(how) { tile_##how##_1, tile_##how##_2, tile_##how##_3, tile_##how##_4, tile_##how##_5, tile_##how##_6 }
static tile_fn *const tiles[4][TILE_MOST] = {
	[NIBBLES] = PICK_TILE(NIBBLES), [NIBBLES_LUT] = PICK_TILE(NIBBLES_LUT), [BYTES] = PICK_TILE(BYTES),
	[STREAM] = PICK_TILE(STREAM),
};
static void (*const panels[4])(uint8_t *, const struct codes *, const uint8_t *const *, int) = {
	[NIBBLES] = panel_NIBBLES, [NIBBLES_LUT] = panel_NIBBLES_LUT, [BYTES] = panel_BYTES, [STREAM] = panel_STREAM,
};

double LEVEL(coded_peak)(int64_t n)
{
	enum { CHAINS = 8 };
	__m256i a[CHAINS], u = _mm256_set1_epi8(3), s = _mm256_set1_epi8(-5);
	volatile int keep;

	for (int i = 0; i < CHAINS; i++)
		a[i] = _mm256_setzero_si256();
	for (int64_t k = 0; k < n; k++)
#pragma GCC unroll 8
		for (int i = 0; i < CHAINS; i++) {
			__asm__("" : "+x"(s));          /* another value, for all the compiler knows */
			a[i] = dots(a[i], u, s, NIBBLES);
		}
	for (int i = 1; i < CHAINS; i++)
		a[0] = _mm256_add_epi32(a[0], a[i]);
	keep = _mm256_extract_epi32(a[0], 0);
	(void)keep;
	return 2.0 * 32 * CHAINS * (double)n;
}

void LEVEL(coded_mul)(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                    int r1, void *scratch)
{
	const struct coding *c = w->fmt->coding;
	enum how how = c->bits == 4 ? (c->lut ? NIBBLES_LUT : NIBBLES) : c->bits == 8 ? BYTES : STREAM;
	int groups = w->cols / w->group, n = r1 - r0;
	float *scale = scratch, *bias = scale + 16 * (size_t)groups;
	uint8_t *room = (uint8_t *)(bias + 16 * (size_t)groups);
	struct product d = {
		w, x, codes_make(c), scale, c->bias ? bias : NULL, groups, c->zero - (how == BYTES ? BYTES_LESS : 0)
	};
	bool direct = n <= DIRECT_ROWS && (w->group % 32 == 0 || w->group == 16);

	assert(x->cols == w->cols && x->group == w->group);
	if (w->group % 16) {
		coded_mul_scalar(out, ld, w, o0, o1, x, r0, r1, scratch);
		return;
	}
	for (int o = o0; o < o1; o += 16) {
		const uint8_t *row[16];
		int n_out = o1 - o < 16 ? o1 - o : 16;

		for (int i = 0; i < 16; i++)    /* what is beyond the last output repeats it */
			row[i] = w->data + (size_t)(o + (i < n_out ? i : n_out - 1)) * w->row_bytes;
		scales_make(scale, w, false, o, n_out);
		if (c->bias)
			scales_make(bias, w, true, o, n_out);
		if (!direct)
			panels[how](room, &d.codes, row, w->cols);
		for (int r = 0, step; r < n; r += step) {
			step = n - r < (direct ? 2 : TILE_ROWS) ? n - r : direct ? 2 : TILE_ROWS;
			if (direct)
				directs[how][w->group == 16][step - 1](out + (size_t)r * ld + (o - o0), ld, &d,
				                                       row, n_out, r0 + r, (__m256i *)room);
			else
				tiles[how][step - 1](out + (size_t)r * ld + (o - o0), ld, &d, room, n_out, r0 + r);
		}
	}
}
