/* kv.c - the list of cache row formats, and what their rows stand for: plain
 * numbers (f32, bf16) here, rows of small codes by kv_coded.c. */
#include <assert.h>
#include <string.h>

#include "quant/levels.h"

enum { CHUNK = 64, DIM_MAX = 512 };     /* as in kv_coded.c */

static size_t bytes_f32(int dim) { return (size_t)dim * 4; }
static size_t bytes_bf16(int dim) { return (size_t)dim * 2; }

static void decode_f32(float *x, const void *row, int dim) { memcpy(x, row, (size_t)dim * 4); }
static void decode_bf16(float *x, const void *row, int dim) { dtype_to_float(x, row, DT_BF16, (size_t)dim); }

static void kernels_f32(struct kv_kernels *k, enum cpu_level level) { *k = lane_table(level)->kv_f32; }
static void kernels_bf16(struct kv_kernels *k, enum cpu_level level) { *k = lane_table(level)->kv_bf16; }

static const struct kv_format kv_f32 = { "f32", bytes_f32, decode_f32, kernels_f32 };
static const struct kv_format kv_bf16 = { "bf16", bytes_bf16, decode_bf16, kernels_bf16 };

/* ---- rows of codes ---- */

static const struct kv_kernels *coded(enum cpu_level level)
{
#if defined(__x86_64__)
	if (level >= CPU_AVX512)
		return kv_coded_avx512;
	if (level >= CPU_AVX2)
		return kv_coded_avx2;
#endif
	return kv_coded_scalar;
}

size_t kv_coded_bytes(int bits, int group, int dim)
{
	size_t codes = (size_t)(dim + CHUNK - 1) / CHUNK * (size_t)(CHUNK / 8 * bits);

	if (dim < group || dim > DIM_MAX || dim % group)
		return 0;
	return codes + (size_t)(dim / group) * 4;
}

int kv_code_at(const uint8_t *chunk, int bits, int i)
{
	switch (bits) {
	case 8: return chunk[i];
	case 4: return chunk[i % 32] >> i / 32 * 4 & 15;
	case 2: return chunk[i % 16] >> i / 16 * 2 & 3;
	case 3: return (chunk[i % 16] >> i / 16 * 2 & 3) | (chunk[16 + i / 8] >> i % 8 & 1) << 2;
	}
	assert(!"a number of bits that no format has");
	return 0;
}

const int8_t *kv_book(int bits)
{
	return NULL;
}

void kv_coded_decode(float *x, const void *row, int dim, int bits, int group)
{
	const uint8_t *p = row, *scale = p + (dim + CHUNK - 1) / CHUNK * CHUNK / 8 * bits;

	for (int i = 0; i < dim; i++) {
		int code = kv_code_at(p + i / CHUNK * CHUNK / 8 * bits, bits, i % CHUNK);
		float s, b;

		dtype_to_float(&s, scale + 2 * (i / group), DT_F16, 1);
		dtype_to_float(&b, scale + 2 * (dim / group + i / group), DT_F16, 1);
		x[i] = __builtin_fmaf(s, (float)code, b);
	}
}

enum {
#define NUMBER(name, bits, group) AT_##name,
	KV_CODED(NUMBER)
};
#define FORMAT(name, bits, group) \
	static size_t bytes_##name(int dim) { return kv_coded_bytes(bits, group, dim); } \
	static void decode_##name(float *x, const void *row, int dim) { kv_coded_decode(x, row, dim, bits, group); } \
	static void kernels_##name(struct kv_kernels *k, enum cpu_level level) { *k = coded(level)[AT_##name]; } \
	static const struct kv_format kv_##name = { #name, bytes_##name, decode_##name, kernels_##name };
KV_CODED(FORMAT)

/* ---- the list ---- */

#define ADDRESS(name, bits, group) &kv_##name,
const struct kv_format *const kv_formats[] = { &kv_f32, &kv_bf16, KV_CODED(ADDRESS) NULL };

const struct kv_format *kv_format_find(const char *name)
{
	for (int i = 0; kv_formats[i]; i++)
		if (!strcmp(kv_formats[i]->name, name))
			return kv_formats[i];
	return NULL;
}

size_t kv_pair_bytes(struct kv_pair pair, int dim)
{
	size_t k = pair.k->row_bytes(dim), v = pair.v->row_bytes(dim);

	return k && v ? k + v : 0;
}
