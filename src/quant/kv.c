/* kv.c - cache rows of plain numbers: f32, bf16. */
#include <string.h>

#include "quant/levels.h"

static size_t bytes_f32(int dim) { return (size_t)dim * 4; }
static size_t bytes_bf16(int dim) { return (size_t)dim * 2; }

static void encode_f32(void *row, const float *x, int dim) { memcpy(row, x, (size_t)dim * 4); }
static void decode_f32(float *x, const void *row, int dim) { memcpy(x, row, (size_t)dim * 4); }

static void encode_bf16(void *row, const float *x, int dim)
{
	uint8_t *p = row;

	for (int i = 0; i < dim; i++) {
		uint16_t h = float_to_bf16(x[i]);

		memcpy(p + 2 * i, &h, 2);
	}
}

static void decode_bf16(float *x, const void *row, int dim) { dtype_to_float(x, row, DT_BF16, (size_t)dim); }

static void kernels_f32(struct kv_kernels *k, enum cpu_level level) { *k = lane_table(level)->kv_f32; }
static void kernels_bf16(struct kv_kernels *k, enum cpu_level level) { *k = lane_table(level)->kv_bf16; }

static const struct kv_format kv_f32 = { "f32", bytes_f32, encode_f32, decode_f32, kernels_f32 };
static const struct kv_format kv_bf16 = { "bf16", bytes_bf16, encode_bf16, decode_bf16, kernels_bf16 };

const struct kv_format *const kv_formats[] = { &kv_f32, &kv_bf16, NULL };

const struct kv_format *kv_format_find(const char *name)
{
	for (int i = 0; kv_formats[i]; i++)
		if (!strcmp(kv_formats[i]->name, name))
			return kv_formats[i];
	return NULL;
}
