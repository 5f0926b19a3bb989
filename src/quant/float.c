/* float.c - weights stored as plain numbers: f32, f16, bf16. */
#include "quant/coded/packed_layout.h"
#include "quant/lanes/lane_table.h"
#include "quant/level_kernels.h"

static void decode_f32(float *out, const struct weight *w, int o)
{
	dtype_to_float(out, w->data + (size_t)o * w->row_bytes, DT_F32, (size_t)w->cols);
}

static void decode_f16(float *out, const struct weight *w, int o)
{
	dtype_to_float(out, w->data + (size_t)o * w->row_bytes, DT_F16, (size_t)w->cols);
}

static void decode_bf16(float *out, const struct weight *w, int o)
{
	const uint8_t *row = w->data + (size_t)o * w->row_bytes, *blocks = packed_of(w);

	if (blocks) { /* to the end of out, so that a number's result is never before the number */
		uint8_t *end = (uint8_t *)(out + w->cols) - w->row_bytes;

		packed_read_row(end, w, blocks, o);
		row = end;
	}
	dtype_to_float(out, row, DT_BF16, (size_t)w->cols);
}

static void kernels_f32(struct kernels *k, enum cpu_level level)
{
	*k = (struct kernels){ .mul = { level_kernels(level)->lanes->mul_f32, level_kernels(level)->lanes->mul_f32 } };
}

static void kernels_f16(struct kernels *k, enum cpu_level level)
{
	*k = (struct kernels){ .mul = { level_kernels(level)->lanes->mul_f16, level_kernels(level)->lanes->mul_f16 } };
}

static void kernels_bf16(struct kernels *k, enum cpu_level level)
{
	const struct level_kernels *at = level_kernels(level);

	*k = (struct kernels){ .mul = { at->lanes->mul_bf16, at->lanes->mul_bf16 } };
	if (at->bf16) {
		k->mul[ARITH_FAST] = at->bf16;
		k->acts = ACTS_BF16;
		k->packed = at->bf16_packed;
	}
}

const struct format format_f32 = { "f32", 32, decode_f32, kernels_f32, NULL };
const struct format format_f16 = { "f16", 16, decode_f16, kernels_f16, NULL };
const struct format format_bf16 = { "bf16", 16, decode_bf16, kernels_bf16, NULL, true };
