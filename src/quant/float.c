/* float.c - weights stored as plain numbers: f32, f16, bf16. */
#include "quant/bf16/bf16_kernels.h"
#include "quant/coded/packed_layout.h"
#include "quant/lanes/lane_table.h"

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

	if (blocks) { /* to the end of out, so that what becomes of a number never stands before it */
		uint8_t *end = (uint8_t *)(out + w->cols) - w->row_bytes;

		packed_read_row(end, w, blocks, o);
		row = end;
	}
	dtype_to_float(out, row, DT_BF16, (size_t)w->cols);
}

static void kernels_f32(struct kernels *k, enum cpu_level level)
{
	*k = (struct kernels){ .mul = { lane_table(level)->mul_f32, lane_table(level)->mul_f32 } };
}

static void kernels_f16(struct kernels *k, enum cpu_level level)
{
	*k = (struct kernels){ .mul = { lane_table(level)->mul_f16, lane_table(level)->mul_f16 } };
}

static void kernels_bf16(struct kernels *k, enum cpu_level level)
{
	*k = (struct kernels){ .mul = { lane_table(level)->mul_bf16, lane_table(level)->mul_bf16 } };
#if defined(__x86_64__)
	if (level >= CPU_AVX512BF16) {
		k->mul[ARITH_FAST] = level >= CPU_AMX ? bf16_mul_amx : bf16_dot_slow() ? bf16_mul_floats : bf16_mul_dot;
		k->acts = ACTS_BF16;
		k->packed = level < CPU_AMX;
	}
#endif
}

const struct format format_f32 = { "f32", 32, decode_f32, kernels_f32, NULL };
const struct format format_f16 = { "f16", 16, decode_f16, kernels_f16, NULL };
const struct format format_bf16 = { "bf16", 16, decode_bf16, kernels_bf16, NULL, true };
