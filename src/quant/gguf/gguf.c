/* gguf.c - the list of tensor types; describing a matrix. */
#include <strings.h>

#include "quant/format_list.h"
#include "quant/gguf/gguf_types.h"

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

/* For an id that no type has. */
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
