/* fp4.c - four-bit floats E2M1 in groups: mxfp4 (32, scale a power of two) and
 * nvfp4 (16, scale E4M3).  OCP Microscaling Formats 1.0, section 5.3.
 *
 * Twice an E2M1 value is an integer in -12 .. 12, so under ARITH_FAST a row is
 * unsigned codes 2 v + 12 with half the stored scale, exactly. */
#include "quant/coded/coded.h"

static const float e2m1[16] = { 0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6 };

static void decode(float *out, const struct weight *w, int o)
{
	const uint8_t *p = w->data + (size_t)o * w->row_bytes;

	for (int g = 0; g < w->cols / w->group; g++) {
		float scale, bias;

		coding_scale(&scale, &bias, w, o, g);
		scale *= 2.0f; /* coding_scale gives the half that suits doubled codes */
		for (int i = g * w->group; i < (g + 1) * w->group; i++)
			out[i] = scale * e2m1[p[i / 2] >> 4 * (i & 1) & 15];
	}
}

static const struct coding coding = { .bits = 4, .most = 24, .zero = 12, .lut = e2m1_code, .scale_unit = 0.5f };
const struct format format_mxfp4 = { "mxfp4", 4, decode, coded_kernels, &coding };
const struct format format_nvfp4 = { "nvfp4", 4, decode, coded_kernels, &coding };
