/* gguf.c - the list of tensor types; rows of blocks as floats; describing a matrix. */
#include <assert.h>
#include <strings.h>

#include "quant/gguf/gguf_list.h"
#include "quant/gguf/gguf_types.h"

extern const struct format format_f32, format_f16;

static const struct gguf_type plain[] = {
	{ 0, "F32", 1, 4, &format_f32 }, { 1, "F16", 1, 2, &format_f16 }, { 30, "BF16", 1, 2, &format_bf16 },
	{ 24, "I8", 1, 1, NULL },        { 25, "I16", 1, 2, NULL },       { 26, "I32", 1, 4, NULL },
	{ 27, "I64", 1, 8, NULL },       { 28, "F64", 1, 8, NULL },
};
enum { PLAIN = sizeof plain / sizeof *plain };

#define DECLARE(type) extern const struct gguf_type gguf_##type;
GGUF_TYPES(DECLARE)
#define ENTRY(type) &gguf_##type,
static const struct gguf_type *const blocked[] = { GGUF_TYPES(ENTRY) };
enum { BLOCKED = sizeof blocked / sizeof *blocked };

static const struct gguf_type *type_at(int i)
{
	return i < PLAIN ? &plain[i] : blocked[i - PLAIN];
}

/* Of an id that no type has. */
static const char *refusal(int64_t id)
{
	enum { PRIVATE_FROM = 97 }; /* ik_llama.cpp's own */

	if (id == 9 || id == 15)
		return "a format of activations, which no file has";
	if (id == 4 || id == 5 || (id >= 31 && id <= 33) || (id >= 36 && id <= 38))
		return "removed from GGUF; quantise the model again";
	return id >= PRIVATE_FROM ? "a type of ik_llama.cpp alone" : "not a type of GGUF";
}

const struct gguf_type *gguf_type(int64_t id, const char **why)
{
	for (int i = 0; i < PLAIN + BLOCKED; i++)
		if (type_at(i)->id == id)
			return type_at(i);
	*why = refusal(id);
	return NULL;
}

const struct gguf_type *gguf_type_named(const char *name)
{
	for (int i = 0; i < PLAIN + BLOCKED; i++)
		if (!strcasecmp(type_at(i)->name, name))
			return type_at(i);
	return NULL;
}

/* One group, of codes as they are multiplied. */
static void group_values(float *out, const uint8_t *code, const struct weight *w, float scale, float bias)
{
	const struct coding *c = w->fmt->coding;

	for (int i = 0; i < w->group; i++) {
		out[i] = scale * (float)(code[i] - c->zero);
		if (c->bias)
			out[i] += bias;
	}
}

/* Where there are blocks (coded/blocks.h), which a product reads and nothing else. */
static void decode_planes(float *out, const struct weight *w, int o)
{
	/* The codes wait in the last quarter of out: float i covers bytes up to 4 i + 3, and code j > i lies at 3 cols + j. */
	uint8_t *code = (uint8_t *)out + 3 * (size_t)w->cols;

	coding_row(code, w, o);
	for (int g = 0; g < w->cols / w->group; g++, out += w->group, code += w->group) {
		float scale, bias;
		uint8_t group[FILE_BLOCK_MOST];

		coding_scale(&scale, &bias, w, o, g);
		memcpy(group, code, (size_t)w->group);
		group_values(out, group, w, scale, bias);
	}
}

void gguf_decode(float *out, const struct weight *w, int o)
{
	const struct coding *c = w->fmt->coding;
	const struct file_block *b = c->block;
	float scale[FILE_BLOCK_GROUPS], bias[FILE_BLOCK_GROUPS];
	uint8_t code[FILE_BLOCK_MOST];

	if (blocks_of(w)) {
		decode_planes(out, w, o);
		return;
	}
	for (int k = 0; k < w->cols; k += b->length, out += b->length) {
		file_block_codes(code, w, o, k, b->length);
		file_block_scales(scale, bias, w, o, k / w->group, b->length / w->group);
		for (int i = 0; i < b->length && c->lut; i++)
			code[i] = c->lut[code[i]];
		for (int i = 0; i < b->length; i += w->group)
			group_values(out + i, code + i, w, scale[i / w->group], bias[i / w->group]);
	}
}

int weight_gguf(struct weight *w, const char *name, const struct gguf_type *type, int rows, int cols, const void *data,
                size_t bytes, struct err *err)
{
	size_t row_bytes, want;

	if (!type->fmt)
		return err_set(err, E_UNSUPPORTED, "%s: weights of type %s", name, type->name);
	if (rows < 1 || cols < 1 || cols % type->block)
		return err_set(err, E_FORMAT, "%s: shape %d x %d; rows of %s are multiples of %d", name, rows, cols,
		               type->name, type->block);
	row_bytes = (size_t)(cols / type->block) * (size_t)type->block_bytes;
	if (__builtin_mul_overflow((size_t)rows, row_bytes, &want) || bytes != want)
		return err_set(err, E_FORMAT, "%s: %zu bytes, %d rows of %zu are wanted", name, bytes, rows, row_bytes);
	*w = (struct weight){
		.fmt = type->fmt, .name = name, .rows = rows, .cols = cols, .data = data, .row_bytes = row_bytes
	};
	if (type->fmt->coding)
		w->group = type->fmt->coding->block->group;
	return 0;
}
