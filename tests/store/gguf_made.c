/* gguf_made.c - see gguf_made.h. */
#include "gguf_made.h"

#include <string.h>

enum { ALIGNMENT = 32 };

static void put(struct buf *b, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		buf_putc(b, (int)(v >> 8 * i & 0xff));
}

static void put_string(struct buf *b, const char *s)
{
	put(b, strlen(s), 8);
	buf_puts(b, s);
}

void gguf_made_init(struct gguf_made *g)
{
	*g = (struct gguf_made){ 0 };
	buf_init(&g->pairs);
	buf_init(&g->infos);
	buf_init(&g->data);
}

void gguf_made_fini(struct gguf_made *g)
{
	buf_fini(&g->pairs);
	buf_fini(&g->infos);
	buf_fini(&g->data);
}

static void begin(struct gguf_made *g, const char *key, enum gguf_kind kind)
{
	put_string(&g->pairs, key);
	put(&g->pairs, kind, 4);
	g->n_pairs++;
}

static void begin_list(struct gguf_made *g, const char *key, enum gguf_kind kind, int n)
{
	begin(g, key, GGUF_ARRAY);
	put(&g->pairs, kind, 4);
	put(&g->pairs, (uint64_t)n, 8);
}

void gguf_made_u32(struct gguf_made *g, const char *key, uint32_t v)
{
	begin(g, key, GGUF_U32);
	put(&g->pairs, v, 4);
}

void gguf_made_f32(struct gguf_made *g, const char *key, float v)
{
	begin(g, key, GGUF_F32);
	buf_put(&g->pairs, &v, sizeof v);
}

void gguf_made_str(struct gguf_made *g, const char *key, const char *v)
{
	begin(g, key, GGUF_STRING);
	put_string(&g->pairs, v);
}

void gguf_made_strs(struct gguf_made *g, const char *key, const char *const *v, int n)
{
	begin_list(g, key, GGUF_STRING, n);
	for (int i = 0; i < n; i++)
		put_string(&g->pairs, v[i]);
}

void gguf_made_u32s(struct gguf_made *g, const char *key, const uint32_t *v, int n)
{
	begin_list(g, key, GGUF_U32, n);
	for (int i = 0; i < n; i++)
		put(&g->pairs, v[i], 4);
}

void gguf_made_i32s(struct gguf_made *g, const char *key, const int32_t *v, int n)
{
	begin_list(g, key, GGUF_I32, n);
	for (int i = 0; i < n; i++)
		put(&g->pairs, (uint32_t)v[i], 4);
}

static void align(struct buf *b, size_t at)
{
	while ((at + b->n) % ALIGNMENT)
		buf_putc(b, 0);
}

void gguf_made_tensor(struct gguf_made *g, const char *name, uint32_t type, const int64_t *ne, const void *p, size_t n)
{
	uint32_t dims = 0;

	while (ne[dims])
		dims++;
	put_string(&g->infos, name);
	put(&g->infos, dims, 4);
	for (uint32_t i = 0; i < dims; i++)
		put(&g->infos, (uint64_t)ne[i], 8);
	put(&g->infos, type, 4);
	align(&g->data, 0);
	put(&g->infos, g->data.n, 8);
	for (size_t i = 0; i < n; i++)
		buf_putc(&g->data, p ? ((const uint8_t *)p)[i] : 0);
	g->n_infos++;
}

void gguf_made_file(const struct gguf_made *g, struct buf *out)
{
	size_t at = out->n;

	buf_puts(out, "GGUF");
	put(out, 3, 4);
	put(out, (uint64_t)g->n_infos, 8);
	put(out, (uint64_t)g->n_pairs, 8);
	buf_put(out, g->pairs.p, g->pairs.n);
	buf_put(out, g->infos.p, g->infos.n);
	while ((out->n - at) % ALIGNMENT)
		buf_putc(out, 0);
	buf_put(out, g->data.p, g->data.n);
}
