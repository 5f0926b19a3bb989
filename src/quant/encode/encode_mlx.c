/* encode_mlx.c - rows of floats as mlx-lm writes them: affine groups, mxfp4. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "quant/encode/encode.h"
#include "quant/encode/fit.h"

enum { PIECE = FIT_MOST };

static float bf16_round(float x)
{
	return bf16_to_float(float_to_bf16(x));
}

bool encode_takes(const float *x, int cols)
{
	for (int i = 0; i < cols; i++)
		if (!(fabsf(x[i]) <= 65504.0f))
			return false;
	return true;
}

/* Code i of a stream of `bits` bits. */
static void put_code(uint8_t *to, int i, int bits, unsigned v)
{
	size_t bit = (size_t)i * (size_t)bits;
	unsigned shift = bit % 8;

	to[bit / 8] |= (uint8_t)(v << shift);
	if (shift + (unsigned)bits > 8)
		to[bit / 8 + 1] |= (uint8_t)(v >> (8 - shift));
}

static const float *weights_of(const float *importance, int at)
{
	static const float one[PIECE] = { [0 ... PIECE - 1] = 1.0f };

	return importance ? importance + at : one;
}

void affine_encode(uint8_t *code, uint16_t *scale, uint16_t *bias, const float *x, int cols, int bits, int group,
                   const float *importance)
{
	const struct steps s = { 0, (1 << bits) - 1, NULL, 0 };
	uint8_t q[PIECE];

	assert(group <= PIECE && cols % group == 0);
	memset(code, 0, (size_t)cols * (size_t)bits / 8);
	for (int k = 0; k < cols; k += group) {
		const float *w = weights_of(importance, k);
		struct fit f = fit_both(x + k, w, group, &s, 0, bf16_round);

		fit_codes(q, x + k, w, group, &s, f.a, f.c);
		for (int i = 0; i < group; i++)
			put_code(code, k + i, bits, q[i]);
		scale[k / group] = float_to_bf16(f.a);
		bias[k / group] = float_to_bf16(f.c);
	}
}

/* Twice the values of E2M1 but -0, rising; and their codes. */
static const signed char fp4_values[15] = { -12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12 };
static const uint8_t fp4_codes[15] = { 15, 14, 13, 12, 11, 10, 9, 0, 1, 2, 3, 4, 5, 6, 7 };

void mxfp4_encode(uint8_t *code, uint8_t *scale, const float *x, int cols, const float *importance)
{
	enum { GROUP = 32, BIAS = 127 };
	const struct steps s = { -12, 12, fp4_values, 15 };

	assert(cols % GROUP == 0);
	memset(code, 0, (size_t)cols / 2);
	for (int k = 0; k < cols; k += GROUP) {
		const float *w = weights_of(importance, k);
		uint8_t q[GROUP];
		float most = 0;
		double best = HUGE_VAL;
		int e, at = 0;

		for (int i = 0; i < GROUP; i++)
			most = fabsf(x[k + i]) > most ? fabsf(x[k + i]) : most;
		frexpf(most / 6, &e);
		/* The power of two that holds the largest, or one that is half of it or a quarter. */
		for (int t = e; t >= e - 2 && most > 0; t--) {
			double err;

			if (t < -126 || t > 126)
				continue;
			err = fit_codes(NULL, x + k, w, GROUP, &s, ldexpf(0.5f, t), 0);
			if (err < best) {
				best = err;
				at = t;
			}
		}
		fit_codes(q, x + k, w, GROUP, &s, ldexpf(0.5f, at), 0);
		for (int i = 0; i < GROUP; i++)
			put_code(code, k + i, 4, fp4_codes[q[i]]);
		scale[k / GROUP] = (uint8_t)(at + BIAS);
	}
}

/* Codes of a group stand by pairs in mxfp4, in a block of GGUF the first half of them under the second. */
void mxfp4_recode(uint8_t *out, const struct weight *w, int row)
{
	enum { GROUP = 32, HALF = GROUP / 2, BLOCK_BYTES = 1 + HALF };
	const uint8_t *code = w->data + (size_t)row * w->row_bytes;
	const uint8_t *scale = w->scales + (size_t)row * weight_scale_bytes(w);

	assert(w->group == GROUP && w->scale_type == DT_F8_E8M0);
	for (int g = 0; g < w->cols / GROUP; g++, code += HALF, out += BLOCK_BYTES) {
		out[0] = scale[g];
		for (int i = 0; i < HALF; i++) {
			int low = code[i / 2] >> 4 * (i & 1) & 15, high = code[HALF / 2 + i / 2] >> 4 * (i & 1) & 15;

			out[1 + i] = (uint8_t)(low | high << 4);
		}
	}
}
