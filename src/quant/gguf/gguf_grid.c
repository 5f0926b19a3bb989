/* gguf_grid.c - GGUF types whose codes are points of a table (grids.c) and signs: IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS,
 * IQ3_S, IQ1_S, IQ1_M.  Their elements take 6 to 16 values, which are the codes here. */
#include "quant/gguf/gguf_types.h"
#include "quant/gguf/grids.h"

/* Eight elements, or four, share a point; 32 of the former make a block. */
enum { POINTS = 32, GROUPS_32 = 8, GROUPS_16 = 16 };

/* Seven signs; the eighth makes their number even. */
static unsigned even_signs(unsigned n)
{
	return n | (unsigned)__builtin_parity(n) << 7;
}

/* n elements of a point of `bits` bits each, and above these their signs. */
static void put_point(uint8_t *code, unsigned point, unsigned signs, int n, int bits)
{
	for (int j = 0; j < n; j++)
		code[j] = (uint8_t)((point >> bits * j & ((1u << bits) - 1)) | (signs >> j & 1) << bits);
}

/* Scales are n and a half, times a power of two that the coding has. */
static uint8_t odd(unsigned n)
{
	return (uint8_t)(2 * n + 1);
}

/* ---- IQ2 ---- */

/* 8, 25, 43 (and nothing), then negative, plus 43. */
static const uint8_t iq2_code[16] = { 51, 68, 86, 43, 35, 18, 0, 43 };
enum { IQ2_BITS = 2 };

static void codes_iq2_xxs(uint8_t *code, const uint8_t *b)
{
	for (int l = 0; l < POINTS; l++) {
		const uint8_t *at = b + 2 + 8 * (l / 4);
		unsigned signs = u32_at(at + 4) >> 7 * (l % 4) & 127;

		put_point(code + 8 * l, grid_iq2xxs[at[l % 4]], even_signs(signs), 8, IQ2_BITS);
	}
}

static void scales_iq2_xxs(struct scale_parts *p, const uint8_t *b)
{
	p->d = u16_at(b);
	for (int g = 0; g < GROUPS_32; g++)
		p->s[g] = odd(u32_at(b + 6 + 8 * g) >> 28);
}

static void codes_iq2_xs(uint8_t *code, const uint8_t *b)
{
	for (int l = 0; l < POINTS; l++) {
		unsigned q = u16_at(b + 2 + 2 * l);

		put_point(code + 8 * l, grid_iq2xs[q & 511], even_signs(q >> 9), 8, IQ2_BITS);
	}
}

static void codes_iq2_s(uint8_t *code, const uint8_t *b)
{
	for (int l = 0; l < POINTS; l++) {
		unsigned high = b[66 + l / 4] >> 2 * (l % 4) & 3;

		put_point(code + 8 * l, grid_iq2s[b[2 + l] | high << 8], b[34 + l], 8, IQ2_BITS);
	}
}

/* Scales of 16 inputs, two in each of 8 bytes. */
static void scales_iq2(struct scale_parts *p, const uint8_t *b, const uint8_t *sc)
{
	p->d = u16_at(b);
	for (int g = 0; g < GROUPS_16; g++)
		p->s[g] = odd(sc[g / 2] >> 4 * (g & 1) & 15);
}

static void scales_iq2_xs(struct scale_parts *p, const uint8_t *b)
{
	scales_iq2(p, b, b + 66);
}

static void scales_iq2_s(struct scale_parts *p, const uint8_t *b)
{
	scales_iq2(p, b, b + 74);
}

/* ---- IQ3 ---- */

/* 4, 12, 20, 28, 36, 44, 52, 62, then negative, plus 62; and 1, 3 ... 15, then negative, plus 15. */
static const uint8_t iq3_xxs_code[16] = { 66, 74, 82, 90, 98, 106, 114, 124, 58, 50, 42, 34, 26, 18, 10, 0 };
static const uint8_t iq3_s_code[16] = { 16, 18, 20, 22, 24, 26, 28, 30, 14, 12, 10, 8, 6, 4, 2, 0 };
enum { IQ3_BITS = 3 };

static void codes_iq3_xxs(uint8_t *code, const uint8_t *b)
{
	for (int m = 0; m < 2 * POINTS; m++) {
		unsigned signs = even_signs(u32_at(b + 66 + 4 * (m / 8)) >> 7 * (m / 2 % 4) & 127);

		put_point(code + 4 * m, grid_iq3xxs[b[2 + m]], signs >> 4 * (m & 1), 4, IQ3_BITS);
	}
}

static void scales_iq3_xxs(struct scale_parts *p, const uint8_t *b)
{
	p->d = u16_at(b);
	for (int g = 0; g < GROUPS_32; g++)
		p->s[g] = odd(u32_at(b + 66 + 4 * g) >> 28);
}

static void codes_iq3_s(uint8_t *code, const uint8_t *b)
{
	for (int m = 0; m < 2 * POINTS; m++) {
		unsigned high = b[66 + m / 8] >> m % 8 & 1, signs = (unsigned)b[74 + m / 2] >> 4 * (m & 1);

		put_point(code + 4 * m, grid_iq3s[b[2 + m] | high << 8], signs, 4, IQ3_BITS);
	}
}

static void scales_iq3_s(struct scale_parts *p, const uint8_t *b)
{
	p->d = u16_at(b);
	for (int g = 0; g < GROUPS_32; g++)
		p->s[g] = odd(b[106 + g / 2] >> 4 * (g & 1) & 15);
}

/* ---- IQ1 ---- */

/* -1, 0, 1 and an eighth more (and nothing), then an eighth less: 8 times that, plus 9. */
static const uint8_t iq1_code[16] = { 2, 10, 18, 9, 0, 8, 16, 9 };
enum { IQ1_BITS = 2 };

static void put_shifted(uint8_t *code, unsigned point, bool less)
{
	put_point(code, point, less ? 0xff : 0, 8, IQ1_BITS);
}

static void codes_iq1_s(uint8_t *code, const uint8_t *b)
{
	for (int l = 0; l < POINTS; l++) {
		unsigned h = u16_at(b + 34 + 2 * (l / 4));

		put_shifted(code + 8 * l, grid_iq1s[b[2 + l] | (h >> 3 * (l % 4) & 7) << 8], h & 0x8000);
	}
}

static void scales_iq1_s(struct scale_parts *p, const uint8_t *b)
{
	p->d = u16_at(b);
	for (int g = 0; g < GROUPS_32; g++)
		p->s[g] = odd(u16_at(b + 34 + 2 * g) >> 12 & 7);
}

static void codes_iq1_m(uint8_t *code, const uint8_t *b)
{
	for (int l = 0; l < POINTS; l++) {
		unsigned n = b[32 + l / 2] >> 4 * (l & 1) & 15;

		put_shifted(code + 8 * l, grid_iq1s[b[l] | (n & 7) << 8], n & 8);
	}
}

/* The block's scale is what the upper four bits of four words make. */
static void scales_iq1_m(struct scale_parts *p, const uint8_t *b)
{
	unsigned d = 0;

	for (int i = 0; i < 4; i++)
		d |= (unsigned)(u16_at(b + 48 + 2 * i) >> 12) << 4 * i;
	p->d = (uint16_t)d;
	for (int g = 0; g < GROUPS_16; g++)
		p->s[g] = odd(u16_at(b + 48 + 2 * (g / 4)) >> 3 * (g % 4) & 7);
}

GGUF_TYPE(16, iq2_xxs, "IQ2_XXS", 2, 256, 32, 66, SCALE_TIMES, codes_iq2_xxs, scales_iq2_xxs, .bits = 3, .most = 86,
          .zero = 43, .lut = iq2_code, .scale_unit = 0.125f);
GGUF_TYPE(17, iq2_xs, "IQ2_XS", 2, 256, 16, 74, SCALE_TIMES, codes_iq2_xs, scales_iq2_xs, .bits = 3, .most = 86,
          .zero = 43, .lut = iq2_code, .scale_unit = 0.125f);
GGUF_TYPE(22, iq2_s, "IQ2_S", 2, 256, 16, 82, SCALE_TIMES, codes_iq2_s, scales_iq2_s, .bits = 3, .most = 86, .zero = 43,
          .lut = iq2_code, .scale_unit = 0.125f);
GGUF_TYPE(18, iq3_xxs, "IQ3_XXS", 3, 256, 32, 98, SCALE_TIMES, codes_iq3_xxs, scales_iq3_xxs, .bits = 4, .most = 124,
          .zero = 62, .lut = iq3_xxs_code, .scale_unit = 0.25f);
GGUF_TYPE(21, iq3_s, "IQ3_S", 3, 256, 32, 110, SCALE_TIMES, codes_iq3_s, scales_iq3_s, .bits = 4, .most = 30,
          .zero = 15, .lut = iq3_s_code, .scale_unit = 1.0f);
GGUF_TYPE(19, iq1_s, "IQ1_S", 1, 256, 32, 50, SCALE_TIMES, codes_iq1_s, scales_iq1_s, .bits = 3, .most = 18, .zero = 9,
          .lut = iq1_code, .scale_unit = 0.125f);
GGUF_TYPE(29, iq1_m, "IQ1_M", 1, 256, 16, 56, SCALE_TIMES, codes_iq1_m, scales_iq1_m, .bits = 3, .most = 18, .zero = 9,
          .lut = iq1_code, .scale_unit = 0.125f);
