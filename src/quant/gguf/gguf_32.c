/* gguf_32.c - GGUF types with blocks of 32 to 128 inputs and one scale, or scale and bias, in 16 bits or 8 beside them:
 * Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4, NVFP4, Q1_0, Q2_0.
 *
 * Of two codes in a byte the lower one belongs to the first half of the block, the upper one to the second. */
#include "quant/gguf/gguf_types.h"

/* ---- codes ---- */

enum { HALF = 16, BLOCK_32 = 32 };

static void nibbles(uint8_t *code, const uint8_t *b)
{
	for (int i = 0; i < HALF; i++) {
		code[i] = b[i] & 15;
		code[HALF + i] = b[i] >> 4;
	}
}

static void fifth_bits(uint8_t *code, const uint8_t *b)
{
	uint32_t high = u32_at(b);

	for (int i = 0; i < BLOCK_32; i++)
		code[i] |= (uint8_t)((high >> i & 1) << 4);
}

static void codes_q4_0(uint8_t *code, const uint8_t *b)
{
	nibbles(code, b + 2);
}
static void codes_q4_1(uint8_t *code, const uint8_t *b)
{
	nibbles(code, b + 4);
}
static void codes_mxfp4(uint8_t *code, const uint8_t *b)
{
	nibbles(code, b + 1);
}

static void codes_q5_0(uint8_t *code, const uint8_t *b)
{
	nibbles(code, b + 6);
	fifth_bits(code, b + 2);
}

static void codes_q5_1(uint8_t *code, const uint8_t *b)
{
	nibbles(code, b + 8);
	fifth_bits(code, b + 4);
}

static void codes_q8_0(uint8_t *code, const uint8_t *b)
{
	for (int i = 0; i < BLOCK_32; i++)
		code[i] = b[2 + i] ^ 0x80; /* int8 plus 128 */
}

/* Four groups of 16, each with the nibbles of its two halves in 8 bytes. */
static void codes_nvfp4(uint8_t *code, const uint8_t *b)
{
	for (int s = 0; s < 4; s++)
		for (int i = 0; i < 8; i++) {
			code[16 * s + i] = b[4 + 8 * s + i] & 15;
			code[16 * s + 8 + i] = b[4 + 8 * s + i] >> 4;
		}
}

static void codes_q1_0(uint8_t *code, const uint8_t *b)
{
	for (int i = 0; i < 128; i++)
		code[i] = (uint8_t)((b[2 + i / 8] >> i % 8 & 1) << 1);
}

static void codes_q2_0(uint8_t *code, const uint8_t *b)
{
	for (int i = 0; i < 64; i++)
		code[i] = b[2 + i / 4] >> 2 * (i % 4) & 3;
}

/* ---- scales ---- */

static void scales_half(float *scale, float *bias, const uint8_t *b)
{
	(void)bias;
	*scale = half_at(b);
}

static void scales_halves(float *scale, float *bias, const uint8_t *b)
{
	*scale = half_at(b);
	*bias = half_at(b + 2);
}

/* 2^(e - 128): half of the E8M0 value, for codes are doubled; every byte is a number. */
static void scales_mxfp4(float *scale, float *bias, const uint8_t *b)
{
	uint32_t bits = b[0] < 2 ? 0x200000u << b[0] : (uint32_t)(b[0] - 1) << 23;

	(void)bias;
	memcpy(scale, &bits, sizeof *scale);
}

/* Unsigned E4M3, halved likewise; the sign counts for nothing; 0x7f, but not 0xff, is 0. */
static float ue4m3_half(uint8_t v)
{
	int exp = v >> 3 & 15, man = v & 7;

	if (v == 0x7f)
		return 0.0f;
	return exp ? __builtin_ldexpf(1.0f + (float)man / 8.0f, exp - 8) : __builtin_ldexpf((float)man, -10);
}

static void scales_nvfp4(float *scale, float *bias, const uint8_t *b)
{
	(void)bias;
	for (int s = 0; s < 4; s++)
		scale[s] = ue4m3_half(b[s]);
}

static void scales_q1_0(float *scale, float *bias, const uint8_t *b)
{
	(void)bias;
	for (int g = 0; g < 4; g++)
		scale[g] = half_at(b);
}

static void scales_q2_0(float *scale, float *bias, const uint8_t *b)
{
	(void)bias;
	scale[0] = scale[1] = half_at(b);
}

/* ---- types ---- */

const uint8_t gguf_nl_code[16] = { 0, 23, 44, 62, 78, 92, 105, 117, 128, 140, 152, 165, 180, 196, 216, 240 };

GGUF_TYPE(2, q4_0, "Q4_0", 4, 32, 32, 18, codes_q4_0, scales_half, .bits = 4, .most = 15, .zero = 8);
GGUF_TYPE(3, q4_1, "Q4_1", 4, 32, 32, 20, codes_q4_1, scales_halves, .bits = 4, .most = 15, .bias = true);
GGUF_TYPE(6, q5_0, "Q5_0", 5, 32, 32, 22, codes_q5_0, scales_half, .bits = 5, .most = 31, .zero = 16);
GGUF_TYPE(7, q5_1, "Q5_1", 5, 32, 32, 24, codes_q5_1, scales_halves, .bits = 5, .most = 31, .bias = true);
GGUF_TYPE(8, q8_0, "Q8_0", 8, 32, 32, 34, codes_q8_0, scales_half, .bits = 8, .most = 255, .zero = 128);
GGUF_TYPE(20, iq4_nl, "IQ4_NL", 4, 32, 32, 18, codes_q4_0, scales_half, .bits = 4, .most = 240, .zero = 127,
          .lut = gguf_nl_code);
GGUF_TYPE(39, mxfp4_gguf, "MXFP4", 4, 32, 32, 17, codes_mxfp4, scales_mxfp4, .bits = 4, .most = 24, .zero = 12,
          .lut = e2m1_code);
GGUF_TYPE(40, nvfp4_gguf, "NVFP4", 4, 64, 16, 36, codes_nvfp4, scales_nvfp4, .bits = 4, .most = 24, .zero = 12,
          .lut = e2m1_code);
GGUF_TYPE(41, q1_0, "Q1_0", 1, 128, 32, 18, codes_q1_0, scales_q1_0, .bits = 2, .most = 2, .zero = 1);
GGUF_TYPE(42, q2_0, "Q2_0", 2, 64, 32, 18, codes_q2_0, scales_q2_0, .bits = 2, .most = 3, .zero = 1);
