/* affine.c - MLX affine groups: value = scale * code + bias, codes of 1 to 8
 * bits as one little-endian bit stream per row, any group that divides a row. */
#include "quant/coded/coded.h"

static void decode(float *out, const struct weight *w, int o)
{
	/* The codes wait in the last quarter of out: float i covers bytes up to
	 * 4 i + 3, and code j > i lies at 3 cols + j, beyond them. */
	uint8_t *code = (uint8_t *)out + 3 * (size_t)w->cols;
	int groups = w->cols / w->group;

	coding_row(code, w, o);
	for (int g = 0; g < groups; g++) {
		float scale, bias;

		coding_scale(&scale, &bias, w, o, g);
		for (int i = g * w->group; i < (g + 1) * w->group; i++)
			out[i] = scale * (float)code[i] + bias; /* two roundings, as MLX does */
	}
}

#define AFFINE(b)                                                                                                     \
	static const struct coding coding##b = { .bits = b, .most = (1 << b) - 1, .scale_unit = 1.0f, .bias = true }; \
	const struct format format_affine##b = { "affine" #b, b, decode, coded_kernels, &coding##b }

AFFINE(1);
AFFINE(2);
AFFINE(3);
AFFINE(4);
AFFINE(5);
AFFINE(6);
AFFINE(8);
