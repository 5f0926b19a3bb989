/* gguf_k.c - GGUF types with blocks of 256 inputs whose groups have small integers as scales, times one or two numbers of
 * the block: Q2_K to Q6_K, IQ4_XS; and TQ1_0, TQ2_0, PTQ1_0, which have one scale for all. */
#include "quant/gguf/gguf_types.h"

enum { LENGTH = 256 };

/* Two bits of each of 256 codes in 64 bytes: of 128 inputs, 32 bytes with four quarters of 32. */
static void two_bits(uint8_t *code, const uint8_t *b)
{
	for (int f = 0; f < 2; f++, b += 32)
		for (int g = 0; g < 4; g++)
			for (int i = 0; i < 32; i++)
				*code++ = b[i] >> 2 * g & 3;
}

/* ---- Q2_K ---- */

static void codes_q2_k(uint8_t *code, const uint8_t *b)
{
	two_bits(code, b + 16);
}

static void scales_q2_k(struct scale_parts *p, const uint8_t *b)
{
	p->d = u16_at(b + 80);
	p->m = u16_at(b + 82);
	for (int g = 0; g < 16; g++) {
		p->s[g] = b[g] & 15;
		p->min[g] = b[g] >> 4;
	}
}

/* ---- Q3_K ---- */

static void codes_q3_k(uint8_t *code, const uint8_t *b)
{
	two_bits(code, b + 32);
	for (int g = 0; g < 8; g++)
		for (int i = 0; i < 32; i++)
			code[32 * g + i] |= (uint8_t)((b[i] >> g & 1) << 2);
}

static void scales_q3_k(struct scale_parts *p, const uint8_t *b)
{
	p->d = u16_at(b + 108);
	for (int g = 0; g < 16; g++) {
		int low = b[96 + g % 8] >> (g < 8 ? 0 : 4) & 15, high = b[104 + g % 4] >> 2 * (g / 4) & 3;

		p->s[g] = (uint8_t)((low | high << 4) - 32);
	}
}

/* ---- Q4_K, Q5_K ---- */

/* 64 inputs in 32 bytes, the lower halves first. */
static void nibbles_64(uint8_t *code, const uint8_t *b)
{
	for (int h = 0; h < 2; h++)
		for (int i = 0; i < 32; i++)
			*code++ = b[i] >> 4 * h & 15;
}

static void codes_q4_k(uint8_t *code, const uint8_t *b)
{
	for (int k = 0; k < LENGTH; k += 64)
		nibbles_64(code + k, b + 16 + k / 2);
}

static void codes_q5_k(uint8_t *code, const uint8_t *b)
{
	for (int k = 0; k < LENGTH; k += 64)
		nibbles_64(code + k, b + 48 + k / 2);
	for (int g = 0; g < 8; g++)
		for (int i = 0; i < 32; i++)
			code[32 * g + i] |= (uint8_t)((b[16 + i] >> g & 1) << 4);
}

/* Eight scales and eight minima of 6 bits in 12 bytes. */
static void scales_q4_k(struct scale_parts *p, const uint8_t *b)
{
	const uint8_t *c = b + 4;

	p->d = u16_at(b);
	p->m = u16_at(b + 2);
	for (int g = 0; g < 8; g++) {
		p->s[g] = (uint8_t)(g < 4 ? c[g] & 63 : (c[g + 4] & 15) | c[g - 4] >> 6 << 4);
		p->min[g] = (uint8_t)(g < 4 ? c[g + 4] & 63 : c[g + 4] >> 4 | c[g] >> 6 << 4);
	}
}

/* ---- Q6_K ---- */

static void codes_q6_k(uint8_t *code, const uint8_t *b)
{
	for (int f = 0; f < 2; f++)
		for (int g = 0; g < 4; g++)
			for (int i = 0; i < 32; i++) {
				int low = b[64 * f + 32 * (g & 1) + i] >> (g < 2 ? 0 : 4) & 15;
				int high = b[128 + 32 * f + i] >> 2 * g & 3;

				*code++ = (uint8_t)(low | high << 4);
			}
}

static void scales_q6_k(struct scale_parts *p, const uint8_t *b)
{
	p->d = u16_at(b + 208);
	memcpy(p->s, b + 192, 16);
}

/* ---- IQ4_XS ---- */

static void codes_iq4_xs(uint8_t *code, const uint8_t *b)
{
	for (int k = 0; k < LENGTH; k += 32, b += 16)
		for (int i = 0; i < 16; i++) {
			code[k + i] = b[8 + i] & 15;
			code[k + 16 + i] = b[8 + i] >> 4;
		}
}

static void scales_iq4_xs(struct scale_parts *p, const uint8_t *b)
{
	int high = u16_at(b + 2);

	p->d = u16_at(b);
	for (int g = 0; g < 8; g++)
		p->s[g] = (uint8_t)(((b[4 + g / 2] >> 4 * (g & 1) & 15) | (high >> 2 * g & 3) << 4) - 32);
}

/* ---- TQ1_0, TQ2_0, PTQ1_0 ---- */

/* Digit n of a byte that is a fraction in base 3, times 256 and rounded up. */
static uint8_t digit(uint8_t v, int n)
{
	static const uint8_t power[5] = { 1, 3, 9, 27, 81 };

	return (uint8_t)((uint8_t)(v * power[n]) * 3 >> 8);
}

static void codes_tq1_0(uint8_t *code, const uint8_t *b)
{
	for (int n = 0; n < 5; n++)
		for (int i = 0; i < 32; i++)
			*code++ = digit(b[i], n);
	for (int n = 0; n < 5; n++)
		for (int i = 0; i < 16; i++)
			*code++ = digit(b[32 + i], n);
	for (int n = 0; n < 4; n++)
		for (int i = 0; i < 4; i++)
			*code++ = digit(b[48 + i], n);
}

static void codes_tq2_0(uint8_t *code, const uint8_t *b)
{
	two_bits(code, b);
}

static void codes_ptq1_0(uint8_t *code, const uint8_t *b)
{
	for (int i = 0; i < 80; i++)
		*code++ = digit(b[i % 16], i / 16);
	for (int i = 0; i < 40; i++)
		*code++ = digit(b[16 + i % 8], i / 8);
	for (int i = 0; i < 8; i++)
		*code++ = digit(b[24 + i % 2], i / 2);
}

static void scales_ptq1_0(struct scale_parts *p, const uint8_t *b)
{
	p->d = u16_at(b + 26);
}

static void scales_tq1_0(struct scale_parts *p, const uint8_t *b)
{
	p->d = u16_at(b + 52);
}

static void scales_tq2_0(struct scale_parts *p, const uint8_t *b)
{
	p->d = u16_at(b + 64);
}

GGUF_TYPE(10, q2_k, "Q2_K", 2, 256, 16, 84, SCALE_TIMES_MIN, codes_q2_k, scales_q2_k, .bits = 2, .most = 3,
          .bias = true, .scale_unit = 1.0f);
GGUF_TYPE(11, q3_k, "Q3_K", 3, 256, 16, 110, SCALE_TIMES, codes_q3_k, scales_q3_k, .bits = 3, .most = 7, .zero = 4,
          .scale_unit = 1.0f);
GGUF_TYPE(12, q4_k, "Q4_K", 4, 256, 32, 144, SCALE_TIMES_MIN, codes_q4_k, scales_q4_k, .bits = 4, .most = 15,
          .bias = true, .scale_unit = 1.0f, .nibbles_at = 16, .nibbles_run = 32);
GGUF_TYPE(13, q5_k, "Q5_K", 5, 256, 32, 176, SCALE_TIMES_MIN, codes_q5_k, scales_q4_k, .bits = 5, .most = 31,
          .bias = true, .scale_unit = 1.0f);
GGUF_TYPE(14, q6_k, "Q6_K", 6, 256, 16, 210, SCALE_TIMES, codes_q6_k, scales_q6_k, .bits = 6, .most = 63, .zero = 32,
          .scale_unit = 1.0f);
GGUF_TYPE(23, iq4_xs, "IQ4_XS", 4, 256, 32, 136, SCALE_TIMES, codes_iq4_xs, scales_iq4_xs, .bits = 4, .most = 240,
          .zero = 127, .lut = gguf_nl_code, .scale_unit = 1.0f, .nibbles_at = 8, .nibbles_run = 16);
GGUF_TYPE(34, tq1_0, "TQ1_0", 2, 256, 32, 54, SCALE_BLOCK, codes_tq1_0, scales_tq1_0, .bits = 2, .most = 3, .zero = 1,
          .scale_unit = 1.0f);
GGUF_TYPE(143, ptq1_0, "PTQ1_0", 2, 128, 32, 28, SCALE_BLOCK, codes_ptq1_0, scales_ptq1_0, .bits = 2, .most = 3,
          .zero = 1, .scale_unit = 1.0f);
GGUF_TYPE(35, tq2_0, "TQ2_0", 2, 256, 32, 66, SCALE_BLOCK, codes_tq2_0, scales_tq2_0, .bits = 2, .most = 3, .zero = 1,
          .scale_unit = 1.0f);
