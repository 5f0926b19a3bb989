/* gguf_32.c - GGUF types with blocks of 32 to 128 inputs and one scale, or scale and bias, in 16 bits or 8 next to
 * them: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4, NVFP4, Q1_0, Q2_0, PQ2_0.
 *
 * The lower code of a byte belongs to the first half of the block, the upper one to the second. */
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

static void codes_two(uint8_t *code, const uint8_t *b, int n)
{
	for (int i = 0; i < n; i++)
		code[i] = b[2 + i / 4] >> 2 * (i % 4) & 3;
}

static void codes_q2_0(uint8_t *code, const uint8_t *b)
{
	codes_two(code, b, 64);
}

static void codes_pq2_0(uint8_t *code, const uint8_t *b)
{
	codes_two(code, b, 128);
}

/* ---- scales ---- */

static void scales_half(struct scale_parts *p, const uint8_t *b)
{
	p->d = u16_at(b);
}

static void scales_halves(struct scale_parts *p, const uint8_t *b)
{
	p->d = u16_at(b);
	p->m = u16_at(b + 2);
}

static void scales_mxfp4(struct scale_parts *p, const uint8_t *b)
{
	p->s[0] = b[0];
}

static void scales_nvfp4(struct scale_parts *p, const uint8_t *b)
{
	memcpy(p->s, b, 4);
}

/* ---- types ---- */

const uint8_t gguf_nl_code[16] = { 0, 23, 44, 62, 78, 92, 105, 117, 128, 140, 152, 165, 180, 196, 216, 240 };

GGUF_TYPE(2, q4_0, "Q4_0", 4, 32, 32, 18, SCALE_HALF, codes_q4_0, scales_half, .bits = 4, .most = 15, .zero = 8,
          .scale_unit = 1.0f, .nibbles_at = 2, .nibbles_run = 16);
GGUF_TYPE(3, q4_1, "Q4_1", 4, 32, 32, 20, SCALE_HALVES, codes_q4_1, scales_halves, .bits = 4, .most = 15, .bias = true,
          .scale_unit = 1.0f, .nibbles_at = 4, .nibbles_run = 16);
GGUF_TYPE(6, q5_0, "Q5_0", 5, 32, 32, 22, SCALE_HALF, codes_q5_0, scales_half, .bits = 5, .most = 31, .zero = 16,
          .scale_unit = 1.0f);
GGUF_TYPE(7, q5_1, "Q5_1", 5, 32, 32, 24, SCALE_HALVES, codes_q5_1, scales_halves, .bits = 5, .most = 31, .bias = true,
          .scale_unit = 1.0f);
GGUF_TYPE(8, q8_0, "Q8_0", 8, 32, 32, 34, SCALE_HALF, codes_q8_0, scales_half, .bits = 8, .most = 255, .zero = 128,
          .scale_unit = 1.0f);
GGUF_TYPE(20, iq4_nl, "IQ4_NL", 4, 32, 32, 18, SCALE_HALF, codes_q4_0, scales_half, .bits = 4, .most = 240, .zero = 127,
          .lut = gguf_nl_code, .scale_unit = 1.0f, .nibbles_at = 2, .nibbles_run = 16);
GGUF_TYPE(39, mxfp4_gguf, "MXFP4", 4, 32, 32, 17, SCALE_E8M0, codes_mxfp4, scales_mxfp4, .bits = 4, .most = 24,
          .zero = 12, .lut = e2m1_code, .scale_unit = 1.0f, .nibbles_at = 1, .nibbles_run = 16);
GGUF_TYPE(40, nvfp4_gguf, "NVFP4", 4, 64, 16, 36, SCALE_UE4M3, codes_nvfp4, scales_nvfp4, .bits = 4, .most = 24,
          .zero = 12, .lut = e2m1_code, .scale_unit = 1.0f);
GGUF_TYPE(41, q1_0, "Q1_0", 1, 128, 32, 18, SCALE_BLOCK, codes_q1_0, scales_half, .bits = 1, .most = 2, .zero = 1,
          .scale_unit = 1.0f);
GGUF_TYPE(142, pq2_0, "PQ2_0", 2, 128, 32, 34, SCALE_BLOCK, codes_pq2_0, scales_half, .bits = 2, .most = 3, .zero = 1,
          .scale_unit = 1.0f);
GGUF_TYPE(42, q2_0, "Q2_0", 2, 64, 32, 18, SCALE_BLOCK, codes_q2_0, scales_half, .bits = 2, .most = 3, .zero = 1,
          .scale_unit = 1.0f);
