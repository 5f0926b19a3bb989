/* coded_arm.c - products over coded weights on 64-bit Arm; the bits of coded_scalar.c.  Compiled three times: for plain NEON,
 * with the dot product of bytes (sdot), and with products of 2 by 8 matrices of bytes (smmla).
 *
 * Sixteen outputs are multiplied at a time.  Their codes are signed bytes in quads of inputs, [inputs / 4][16 outputs][4],
 * so that sums stay in lanes.  Packed weights (packed.c) have that layout; of other rows PANEL_INPUTS inputs at a time are
 * unpacked into a panel.  Codes that do not fit seven bits are taken 128 less, and 128 times the sum of the activations is
 * added back: integer sums are exact, so the way does not show.
 *
 * NEON multiplies to 16 bits and adds pairs there: 2 x 128 x 127 just fits. */
#include <assert.h>
#include <string.h>

#include "quant/coded/coded_kernels.h"
#include "quant/coded/planes.h"
#include "quant/lanes/lanes.h"

#if defined(__ARM_FEATURE_MATMUL_INT8)
#define LEVEL(name) name##_i8mm
enum { TILE_ROWS = 8 };
#elif defined(__ARM_FEATURE_DOTPROD)
#define LEVEL(name) name##_dotprod
enum { TILE_ROWS = 4 };
#else
#define LEVEL(name) name##_neon
enum { TILE_ROWS = 4 };
#endif

enum { QUADS = 4, BYTES_LESS = 128 };

static int codes_less(const struct coding *c)
{
	return c->most > 127 ? BYTES_LESS : 0;
}

/* ---- codes ---- */

/* How codes become the signed bytes that are multiplied. */
struct codes {
	uint8x16_t lut, less;
	bool has_lut;
};

static struct codes codes_make(const struct coding *c)
{
	return (struct codes){ .lut = c->lut ? vld1q_u8(c->lut) : vdupq_n_u8(0),
		               .less = vdupq_n_u8((uint8_t)codes_less(c)),
		               .has_lut = c->lut != NULL };
}

LANES_INLINE uint8x16_t codes_signed(const struct codes *s, uint8x16_t v)
{
	if (s->has_lut)
		v = vqtbl1q_u8(s->lut, v);
	return veorq_u8(v, s->less);
}

/* n codes of 4 bits from p on, in order; n a multiple of 16. */
static void row_nibbles(uint8_t *to, const uint8_t *p, int n)
{
	for (int i = 0; i < n; i += 16) {
		uint8x8_t b = vld1_u8(p + i / 2);
		uint8x8_t low = vand_u8(b, vdup_n_u8(15)), high = vshr_n_u8(b, 4);

		vst1q_u8(to + i, vcombine_u8(vzip1_u8(low, high), vzip2_u8(low, high)));
	}
}

/* n codes of 1 to 7 bits; n a multiple of 8, so that each eight codes are whole bytes. */
static void row_stream(uint8_t *to, const uint8_t *p, int n, int bits)
{
	for (int i = 0; i < n; i += 8, p += bits) {
		uint64_t v = 0;

		memcpy(&v, p, (size_t)bits);
		for (int j = 0; j < 8; j++, v >>= bits)
			to[i + j] = (uint8_t)(v & ((1u << bits) - 1));
	}
}

/* Stored codes [k, k + n) of output o. */
static void row_codes(uint8_t *to, const struct weight *w, int o, int k, int n)
{
	const struct coding *c = w->fmt->coding;
	const uint8_t *p = w->data + (size_t)o * w->row_bytes + (size_t)k / 8 * (size_t)c->bits;

	if (c->block)
		file_block_codes(to, w, o, k, n);
	else if (c->bits == 8)
		memcpy(to, p, (size_t)n);
	else if (c->bits == 4)
		row_nibbles(to, p, n);
	else
		row_stream(to, p, n, c->bits);
}

/* Sixteen inputs of 16 outputs, whose rows are `step` bytes apart, to quads. */
LANES_INLINE void quads_store(uint8_t *to, const uint8_t *code, size_t step, const struct codes *s)
{
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++, code += 4 * step) {
		uint32x4_t v[4], a, b, c, d;

#pragma GCC unroll 4
		for (int j = 0; j < 4; j++)
			v[j] = vreinterpretq_u32_u8(codes_signed(s, vld1q_u8(code + (size_t)j * step)));
		a = vzip1q_u32(v[0], v[2]);
		b = vzip1q_u32(v[1], v[3]);
		c = vzip2q_u32(v[0], v[2]);
		d = vzip2q_u32(v[1], v[3]);
		vst1q_u8(to + 16 * i, vreinterpretq_u8_u32(vzip1q_u32(a, b)));
		vst1q_u8(to + 64 + 16 * i, vreinterpretq_u8_u32(vzip2q_u32(a, b)));
		vst1q_u8(to + 128 + 16 * i, vreinterpretq_u8_u32(vzip1q_u32(c, d)));
		vst1q_u8(to + 192 + 16 * i, vreinterpretq_u8_u32(vzip2q_u32(c, d)));
	}
}

/* Rows as the file has them; what is beyond n_out outputs repeats the last. */
static void panel_rows(uint8_t *panel, const struct codes *s, const struct weight *w, int o, int n_out, int k0, int k1)
{
	uint8_t code[16][PANEL_INPUTS];

	for (int k = k0, n; k < k1; k += n) {
		n = k1 - k < PANEL_INPUTS ? k1 - k : PANEL_INPUTS;
		for (int i = 0; i < 16; i++)
			if (i < n_out)
				row_codes(code[i], w, o + i, k, n);
			else
				memcpy(code[i], code[n_out - 1], (size_t)n);
		for (int i = 0; i < n; i += 16, panel += 256)
			quads_store(panel, code[0] + i, PANEL_INPUTS, s);
	}
}

/* Bits [0, bits) of quad q out of its line. */
LANES_INLINE uint8x16_t quad_bits(const uint8_t *line, int q, int bits)
{
	uint8x16_t v = vshlq_u8(vld1q_u8(line), vdupq_n_s8((int8_t)(-bits * (q % (8 / bits)))));

	return vandq_u8(v, vdupq_n_u8((uint8_t)((1u << bits) - 1)));
}

/* Planes: lines of bits. */
static void panel_planes(uint8_t *panel, const struct codes *s, const struct weight *w, int o, int k0, int k1)
{
	const struct coding *c = w->fmt->coding;
	const int low = planes_low(c->bits), high = planes_high(c->bits);
	const uint8_t *at = packed_of(w) + (size_t)(o / BLOCK_OUT) * packed_step(w) + planes_scales(w).end +
	                    (size_t)(k0 / BLOCK_INPUTS) * planes_code_bytes(c);

	for (int k = k0; k < k1; k += BLOCK_INPUTS, at += planes_code_bytes(c))
		for (int q = 0; q < PLANE_QUADS; q++)
			for (int i = 0; i < 4; i++, panel += 16) {
				const uint8_t *line = at + 16 * i;
				uint8x16_t v = quad_bits(line + BLOCK_LINE * planes_low_line(q * low / 8, low, high), q,
				                         low);

				if (low == 1)
					v = vshlq_n_u8(v, 1);

				if (high) {
					int l = planes_high_line(q * high / 8, low, high);

					v = vorrq_u8(v, vshlq_u8(quad_bits(line + BLOCK_LINE * l, q, high),
					                         vdupq_n_s8((int8_t)low)));
				}
				vst1q_u8(panel, codes_signed(s, v));
			}
}

/* Blocks of codes in groups of 64. */
static void panel_packed(uint8_t *panel, const struct codes *s, const struct weight *w, int o, int k0, int k1)
{
	const uint8_t *blocks = packed_of(w);
	const bool nibbles = w->fmt->coding->bits == 4;

	for (int k = k0; k < k1; k += BLOCK_INPUTS) {
		const uint8_t *at = packed_at(w, blocks, o, k / BLOCK_INPUTS);

		for (int l = 0; l < w->fmt->coding->bits * 2; l++, at += BLOCK_LINE, panel += nibbles ? 128 : 64)
			for (int i = 0; i < 4; i++) {
				uint8x16_t v = vld1q_u8(at + 16 * i);

				if (nibbles)
					vst1q_u8(panel + 64 + 16 * i, codes_signed(s, vshrq_n_u8(v, 4)));
				vst1q_u8(panel + 16 * i, codes_signed(s, nibbles ? vandq_u8(v, vdupq_n_u8(15)) : v));
			}
	}
}

/* ---- scales of 16 outputs as [groups][16] floats ---- */

/* Rows as the file has them: those of a row are one run of numbers. */
static void scales_rows(float *to, const struct weight *w, const uint8_t *from, float unit, int o, int n)
{
	size_t groups = (size_t)(w->cols / w->group), row = groups * (size_t)dtype_size(w->scale_type);
	enum { SOME = 64 };
	float some[SOME];

	memset(to, 0, groups * 16 * sizeof *to);
	for (int i = 0; i < n; i++) {
		const uint8_t *p = from + (size_t)(o + i) * row;

		for (size_t g = 0, m; g < groups; g += m, p += m * (size_t)dtype_size(w->scale_type)) {
			m = groups - g < SOME ? groups - g : SOME;
			dtype_to_float(some, p, w->scale_type, m);
			for (size_t j = 0; j < m; j++)
				to[16 * (g + j) + (size_t)i] = some[j] * unit;
		}
	}
}

static void scales_packed(float *scale, float *bias, const struct weight *w, int o)
{
	const uint8_t *blocks = packed_of(w);

	for (int g = 0; g < w->cols / BLOCK_INPUTS; g++, scale += 16, bias += 16) {
		const uint8_t *line = packed_at(w, blocks, o, g + 1) - BLOCK_LINE;

		for (int i = 0; i < 4; i++) {
			uint32x4_t v = vreinterpretq_u32_u8(vld1q_u8(line + 16 * i));

			vst1q_f32(scale + 4 * i, vreinterpretq_f32_u32(vshlq_n_u32(v, 16)));
			vst1q_f32(bias + 4 * i, vreinterpretq_f32_u32(vandq_u32(v, vdupq_n_u32(0xffff0000))));
		}
	}
}

/* The numbers of 16 outputs of a group lie side by side. */
static void scales_planes(float *scale, float *bias, const struct weight *w, int o)
{
	const struct coding *c = w->fmt->coding;
	const struct plane_scales at = planes_scales(w);
	const uint8_t *p = packed_of(w) + (size_t)(o / BLOCK_OUT) * packed_step(w);
	enum scale_kind kind = c->block->kind;

	for (int g = 0; g < w->cols / w->group; g++, scale += 16, bias += 16) {
		size_t half = (size_t)(g * w->group / c->block->length) * BLOCK_OUT * 2, byte = (size_t)g * BLOCK_OUT;
		v16 s = v16_zero(), b = v16_zero();

		switch (kind) {
		case SCALE_BLOCK:
		case SCALE_HALF: s = v16_load_f16(p + at.d + half); break;
		case SCALE_HALVES:
			s = v16_load_f16(p + at.d + half);
			b = v16_load_f16(p + at.m + half);
			break;
		case SCALE_TIMES_MIN:
			s = v16_mul(v16_load_f16(p + at.d + half), v16_load_u8(p + at.s + byte));
			b = v16_mul(v16_load_f16(p + at.m + half), v16_load_u8(p + at.min + byte));
			LANES_QUADS b.v[i] = vnegq_f32(b.v[i]);
			break;
		default:
			for (int i = 0; i < 16; i++)
				planes_scale(scale + i, bias + i, w, packed_of(w), o + i, g);
			continue;
		}
		v16_store(scale, s);
		v16_store(bias, b);
	}
}

static void scales_make(float *scale, float *bias, const struct weight *w, int o, int n)
{
	const struct coding *c = w->fmt->coding;

	if (c->block && packed_of(w)) {
		scales_planes(scale, bias, w, o);
	} else if (packed_of(w)) {
		scales_packed(scale, bias, w, o);
	} else if (c->block) {
		file_block_lanes(scale, bias, 16, w, o, n);
	} else if (w->scale_type == DT_F8_E4M3) { /* as MLX reads it */
		for (int g = 0; g < w->cols / w->group; g++)
			for (int i = 0; i < 16; i++)
				coding_scale(scale + 16 * g + i, bias + 16 * g + i, w, o + (i < n ? i : n - 1), g);
	} else {
		scales_rows(scale, w, w->scales, c->scale_unit, o, n);
		if (c->bias)
			scales_rows(bias, w, w->biases, 1.0f, o, n);
	}
}

/* ---- tiles ---- */

struct product {
	const struct weight *w;
	const struct acts *x;
	float *acc;                /* [rows of the block][16] */
	const float *scale, *bias; /* [groups][16]; bias NULL: none */
	int groups, zero, r0;      /* r0: the block's first row */
};

/* 16 outputs of row r of the block. */
LANES_INLINE void group_step(const struct product *d, int r, int g, const int32x4_t sum[4])
{
	size_t at = (size_t)(d->r0 + r) * (size_t)d->groups + (size_t)g;
	float *to = d->acc + 16 * r;
	const float *scale = d->scale + 16 * g, *bias = d->bias + 16 * g;
	int32x4_t z = vdupq_n_s32(d->zero * d->x->sum[at]);

#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		float32x4_t a = vld1q_f32(to + 4 * i);
		float32x4_t s = vmulq_n_f32(vcvtq_f32_s32(vsubq_s32(sum[i], z)), d->x->scale[at]);

		a = vfmaq_f32(a, vld1q_f32(scale + 4 * i), s);
		if (d->bias)
			a = vfmaq_n_f32(a, vld1q_f32(bias + 4 * i), d->x->scaled_sum[at]);
		vst1q_f32(to + 4 * i, a);
	}
}

#if defined(__ARM_FEATURE_MATMUL_INT8)

/* Turns quads to octets in place: [inputs / 8][8 pairs of outputs][2][8], as smmla takes them. */
static void panel_finish(uint8_t *panel, int inputs)
{
	for (int k = 0; k < inputs; k += 8, panel += 128) {
		uint32x4_t v[8];

#pragma GCC unroll 8
		for (int i = 0; i < 8; i++)
			v[i] = vreinterpretq_u32_u8(vld1q_u8(panel + 16 * i));
#pragma GCC unroll 4
		for (int i = 0; i < 4; i++) {
			vst1q_u8(panel + 32 * i, vreinterpretq_u8_u32(vzip1q_u32(v[i], v[i + 4])));
			vst1q_u8(panel + 32 * i + 16, vreinterpretq_u8_u32(vzip2q_u32(v[i], v[i + 4])));
		}
	}
}

/* Eight outputs, half h of the sixteen, by R rows in pairs; the last row of an odd number is its own pair. */
LANES_INLINE void tile_half(int32x4_t sum[TILE_ROWS][4], const uint8_t *panel, const int8_t *q, size_t cols, int group,
                            const int h, const int R)
{
	int32x4_t v[4][4];

#pragma GCC unroll 4
	for (int p = 0; p < (R + 1) / 2; p++)
#pragma GCC unroll 4
		for (int i = 0; i < 4; i++)
			v[p][i] = vdupq_n_s32(0);
	for (int k = 0; k < group; k += 8, panel += 128) {
		int8x16_t w[4];

#pragma GCC unroll 4
		for (int i = 0; i < 4; i++)
			w[i] = vreinterpretq_s8_u8(vld1q_u8(panel + 64 * h + 16 * i));
#pragma GCC unroll 4
		for (int p = 0; p < (R + 1) / 2; p++) {
			const int8_t *a = q + (size_t)(2 * p) * cols + k, *b = 2 * p + 1 < R ? a + cols : a;
			int8x16_t x = vcombine_s8(vld1_s8(a), vld1_s8(b));

#pragma GCC unroll 4
			for (int i = 0; i < 4; i++)
				v[p][i] = vmmlaq_s32(v[p][i], x, w[i]);
		}
	}
	/* v[p][i]: outputs 2 i and 2 i + 1 of row 2 p, then those of the next row. */
#pragma GCC unroll 4
	for (int p = 0; p < (R + 1) / 2; p++)
#pragma GCC unroll 2
		for (int i = 0; i < 2; i++) {
			int64x2_t a = vreinterpretq_s64_s32(v[p][2 * i]), b = vreinterpretq_s64_s32(v[p][2 * i + 1]);

			sum[2 * p][2 * h + i] = vreinterpretq_s32_s64(vzip1q_s64(a, b));
			if (2 * p + 1 < R)
				sum[2 * p + 1][2 * h + i] = vreinterpretq_s32_s64(vzip2q_s64(a, b));
		}
}

LANES_INLINE void tile_group(int32x4_t sum[TILE_ROWS][4], const uint8_t *panel, const int8_t *q, size_t cols, int group,
                             const int R)
{
	tile_half(sum, panel, q, cols, group, 0, R);
	tile_half(sum, panel, q, cols, group, 1, R);
}

#else

static void panel_finish(uint8_t *panel, int inputs) {}

/* v plus four products in each lane, of w and quad `at` of x. */
LANES_INLINE int32x4_t dots(int32x4_t v, int8x16_t w, int8x16_t x, const int at)
{
#if defined(__ARM_FEATURE_DOTPROD)
	return at == 0 ? vdotq_laneq_s32(v, w, x, 0) :
	       at == 1 ? vdotq_laneq_s32(v, w, x, 1) :
	       at == 2 ? vdotq_laneq_s32(v, w, x, 2) :
	                 vdotq_laneq_s32(v, w, x, 3);
#else
	int32x4_t four = vreinterpretq_s32_s8(x);
	int8x16_t quad = vreinterpretq_s8_s32(vdupq_n_s32(at == 0 ? vgetq_lane_s32(four, 0) :
	                                                  at == 1 ? vgetq_lane_s32(four, 1) :
	                                                  at == 2 ? vgetq_lane_s32(four, 2) :
	                                                            vgetq_lane_s32(four, 3)));

	return vpadalq_s16(v, vpaddq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(quad)), vmull_high_s8(w, quad)));
#endif
}

/* R rows by 16 outputs of a group. */
LANES_INLINE void tile_group(int32x4_t sum[TILE_ROWS][4], const uint8_t *panel, const int8_t *q, size_t cols, int group,
                             const int R)
{
#pragma GCC unroll 4
	for (int r = 0; r < R; r++)
#pragma GCC unroll 4
		for (int i = 0; i < 4; i++)
			sum[r][i] = vdupq_n_s32(0);
	for (int k = 0; k < group; k += 16, panel += 256) {
		int8x16_t x[TILE_ROWS];

#pragma GCC unroll 4
		for (int r = 0; r < R; r++)
			x[r] = vld1q_s8(q + (size_t)r * cols + k);
#pragma GCC unroll 4
		for (int at = 0; at < QUADS; at++)
#pragma GCC unroll 4
			for (int i = 0; i < 4; i++) {
				int8x16_t w = vreinterpretq_s8_u8(vld1q_u8(panel + 64 * at + 16 * i));

#pragma GCC unroll 4
				for (int r = 0; r < R; r++)
					sum[r][i] = dots(sum[r][i], w, x[r], at);
			}
	}
}

#endif

/* R rows from row r of the block by the panel, which begins at group g0 and ends at g1. */
LANES_INLINE void tile_run(const struct product *d, const uint8_t *panel, int r, int g0, int g1, const int R)
{
	size_t cols = (size_t)d->w->cols, group = (size_t)d->w->group;
	const int8_t *q = d->x->q + (size_t)(d->r0 + r) * cols + (size_t)g0 * group;

	for (int g = g0; g < g1; g++, panel += 16 * group, q += group) {
		int32x4_t sum[TILE_ROWS][4];

		tile_group(sum, panel, q, cols, (int)group, R);
#pragma GCC unroll 8
		for (int i = 0; i < R; i++)
			group_step(d, r + i, g, sum[i]);
	}
}

typedef void tile_fn(const struct product *, const uint8_t *, int, int, int);
#define TILE(name, R)                                                                                \
	static void name##_##R(const struct product *d, const uint8_t *panel, int r, int g0, int g1) \
	{                                                                                            \
		tile_run(d, panel, r, g0, g1, R);                                                    \
	}
#if defined(__ARM_FEATURE_MATMUL_INT8)
ROWS_TO_8(TILE, tile)
static tile_fn *const tiles[TILE_ROWS] = { NAMES_TO_8(tile_) };
#else
ROWS_TO_4(TILE, tile)
static tile_fn *const tiles[TILE_ROWS] = { NAMES_TO_4(tile_) };
#endif

/* Rows [d->r0, d->r0 + n) by outputs o .. o + n_out - 1. */
static void block(float *out, size_t ld, struct product *d, const struct codes *codes, int o, int n_out, int n,
                  uint8_t *panel)
{
	const struct weight *w = d->w;
	int step = PANEL_INPUTS > w->group ? PANEL_INPUTS / w->group : 1;

	memset(d->acc, 0, (size_t)n * 16 * sizeof *d->acc);
	for (int g0 = 0, g1; g0 < d->groups; g0 = g1) {
		int k0 = g0 * w->group, k1;

		g1 = g0 + step < d->groups ? g0 + step : d->groups;
		k1 = g1 * w->group;
		if (!packed_of(w))
			panel_rows(panel, codes, w, o, n_out, k0, k1);
		else if (w->fmt->coding->block)
			panel_planes(panel, codes, w, o, k0, k1);
		else
			panel_packed(panel, codes, w, o, k0, k1);
		panel_finish(panel, k1 - k0);
		for (int r = 0; r < n; r += TILE_ROWS)
			tiles[n - r < TILE_ROWS ? n - r - 1 : TILE_ROWS - 1](d, panel, r, g0, g1);
	}
	for (int r = 0; r < n; r++)
		memcpy(out + (size_t)r * ld, d->acc + 16 * r, (size_t)n_out * sizeof *out);
}

void LEVEL(coded_many)(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                       int r1, void *scratch)
{
	const struct coding *c = w->fmt->coding;
	int groups = w->cols / w->group;
	struct codes codes = codes_make(c);
	float *scale = scratch, *bias = scale + 16 * (size_t)groups, *acc = bias + 16 * (size_t)groups;
	uint8_t *panel = (uint8_t *)(acc + 16 * BLOCK_ROWS);
	struct product d = {
		.w = w,
		.x = x,
		.acc = acc,
		.scale = scale,
		.bias = c->bias ? bias : NULL,
		.groups = groups,
		.zero = c->zero - codes_less(c),
	};

	assert(w->group % 16 == 0);
	for (int n; r0 < r1; r0 += n, out += (size_t)n * ld) {
		n = r1 - r0 < BLOCK_ROWS ? r1 - r0 : BLOCK_ROWS;
		d.r0 = r0;
		for (int o = o0; o < o1; o += 16) {
			int n_out = o1 - o < 16 ? o1 - o : 16;

			scales_make(scale, bias, w, o, n_out);
			block(out + (o - o0), ld, &d, &codes, o, n_out, n, panel);
		}
	}
}

double LEVEL(coded_peak)(int64_t n)
{
	enum { SUMS = 16 };
	int32x4_t sum[SUMS];
	int8x16_t w = vdupq_n_s8(3), x = vdupq_n_s8(-5);
	volatile int32_t keep = 0;

#pragma GCC unroll 16
	for (int i = 0; i < SUMS; i++)
		sum[i] = vdupq_n_s32(i);
	for (int64_t k = 0; k < n; k++) {
#pragma GCC unroll 16
		for (int i = 0; i < SUMS; i++) {
#if defined(__ARM_FEATURE_MATMUL_INT8)
			sum[i] = vmmlaq_s32(sum[i], w, x);
#else
			sum[i] = dots(sum[i], w, x, 0);
#endif
			__asm__("" : "+w"(sum[i]));
		}
	}
#pragma GCC unroll 16
	for (int i = 0; i < SUMS; i++)
		keep += vaddvq_s32(sum[i]);
	(void)keep;
#if defined(__ARM_FEATURE_MATMUL_INT8)
	return 2.0 * SUMS * 32 * (double)n;
#else
	return 2.0 * SUMS * 16 * (double)n;
#endif
}
