/* fp8.c - E4M3 elements: mxfp8, in groups of 32 with a power-of-two scale, and fp8, in any groups of whole lanes with a
 * float for a scale.  The products are of floats at every arithmetic, since 8-bit floats are not integers. */
#include "quant/lanes/lane_table.h"
#include "quant/level_kernels.h"

static void decode(float *out, const struct weight *w, int o)
{
	const uint8_t *p = w->data + (size_t)o * w->row_bytes;
	size_t groups = (size_t)(w->cols / w->group);

	for (int g = 0; g < (int)groups; g++) {
		float scale;

		dtype_to_float(&scale, w->scales + ((size_t)o * groups + (size_t)g) * (size_t)dtype_size(w->scale_type),
		               w->scale_type, 1);
		for (int i = g * w->group; i < (g + 1) * w->group; i++)
			out[i] = scale * e4m3_mlx(p[i]);
	}
}

static void kernels(struct kernels *k, enum cpu_level level)
{
	weight_mul_fn *mul = level_kernels(level)->lanes->mul_mxfp8;

	*k = (struct kernels){ .mul = { mul, mul } };
}

const struct format format_mxfp8 = { "mxfp8", 8, decode, kernels, NULL };
const struct format format_fp8 = { "fp8", 8, decode, kernels, NULL };
