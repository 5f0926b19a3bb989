/* kv.c - the list of cache row formats: plain numbers (f32, bf16), and small codes (kv_codes.c, kv_coded.c). */
#include <assert.h>
#include <string.h>

#include "quant/kv/kv_coded.h"
#include "quant/kv/kv_tiles.h"
#include "quant/kv_layout.h"
#include "quant/lanes/lane_table.h"
#include "quant/level_kernels.h"

static size_t bytes_f32(int dim)
{
	return (size_t)dim * 4;
}
static size_t bytes_bf16(int dim)
{
	return (size_t)dim * 2;
}

static void decode_f32(float *x, const void *row, int dim)
{
	memcpy(x, row, (size_t)dim * 4);
}
static void decode_bf16(float *x, const void *row, int dim)
{
	dtype_to_float(x, row, DT_BF16, (size_t)dim);
}

static void kernels_f32(struct kv_kernels *k, enum cpu_level level)
{
	*k = level_kernels(level)->lanes->kv_f32;
}
static void kernels_bf16(struct kv_kernels *k, enum cpu_level level)
{
	*k = level_kernels(level)->lanes->kv_bf16;
}

static const struct kv_format kv_f32 = { "f32", bytes_f32, decode_f32, kernels_f32 };
static const struct kv_format kv_bf16 = { "bf16", bytes_bf16, decode_bf16, kernels_bf16 };

/* ---- rows of codes ---- */

enum {
#define NUMBER(name, bits, group) AT_##name,
	KV_CODED(NUMBER)
};
#define FORMAT(name, bits, group)                                              \
	static size_t bytes_##name(int dim)                                    \
	{                                                                      \
		return kv_coded_bytes(bits, group, dim);                       \
	}                                                                      \
	static void decode_##name(float *x, const void *row, int dim)          \
	{                                                                      \
		kv_coded_decode(x, row, dim, bits, group);                     \
	}                                                                      \
	static void kernels_##name(struct kv_kernels *k, enum cpu_level level) \
	{                                                                      \
		*k = level_kernels(level)->kv_coded[AT_##name];                \
	}                                                                      \
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

struct kv_layout kv_layout_of(const struct kv_format *f, int dim)
{
#define LAYOUT(name, bits, group) { &kv_##name, { bits, group, 0, { 0 }, { { 0 } } } },
	static const struct {
		const struct kv_format *of;
		struct kv_layout layout;
	} layouts[] = { { &kv_f32, { .bits = 32 } }, { &kv_bf16, { .bits = 16 } }, KV_CODED(LAYOUT) };
#undef LAYOUT
	struct kv_layout l = { 0 };

	for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
		if (layouts[i].of == f)
			l = layouts[i].layout;
	assert(l.bits);
	if (l.bits < 16 && !l.group) {
		l.unit = kv_book_unit(l.bits, dim);
		memcpy(l.book, kv_book(l.bits), sizeof l.book);
	}
	memcpy(l.negative, kv_signs, sizeof l.negative);
	return l;
}

size_t kv_pair_bytes(struct kv_pair pair, int dim)
{
	size_t k = pair.k->row_bytes(dim), v = pair.v->row_bytes(dim);

	return k && v ? k + v : 0;
}

const struct kv_tiles *kv_tiles(struct kv_pair fmt, int dim, enum cpu_level level)
{
	if (fmt.k == &kv_bf16 && fmt.v == &kv_bf16 && dim % 32 == 0 && dim <= KV_DIM_MAX)
		return level_kernels(level)->kv_tiles;
	return NULL;
}
