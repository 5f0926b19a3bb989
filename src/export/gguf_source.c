/* gguf_source.c - see gguf_source.h. */
#include "export/gguf_source.h"

#include <stdlib.h>
#include <string.h>

static void decode_e4m3(float *out, const struct weight *w, int row)
{
	dtype_to_float(out, w->data + (size_t)row * w->row_bytes, DT_F8_E4M3, (size_t)w->cols);
}

static const struct format e4m3 = { .name = "e4m3", .bits = 8, .decode = decode_e4m3 };
const struct gguf_type source_e4m3 = { -1, "F8_E4M3", 1, 1, &e4m3 };

/* gpt-oss, and experts of DeepSeek V4, are published in MXFP4: there is no model that the codes were made from. */
static bool stays(const struct gguf *g, const struct gguf_info *t)
{
	const struct gguf_value *arch = gguf_find(g, "general.architecture");
	const uint8_t *at;
	struct gguf_string name;

	if (!arch || arch->kind != GGUF_STRING || arch->array || t->type != gguf_type_named("MXFP4"))
		return false;
	at = arch->p;
	name = gguf_next(&at);
	return (name.n == 7 && !memcmp(name.p, "gpt-oss", 7)) || (name.n == 9 && !memcmp(name.p, "deepseek4", 9));
}

int gguf_source_open(struct gguf_source *s, const char *path, struct err *err)
{
	int rc = gguf_open(&s->g, path, err);

	*s = (struct gguf_source){ .g = s->g };
	if (rc)
		return rc;
	s->n = s->g.n_info;
	s->t = xcalloc(s->n + 1, sizeof *s->t);
	for (size_t i = 0; i < s->n; i++) {
		s->t[i].t = s->g.info[i];
		s->t[i].stays = stays(&s->g, &s->g.info[i]);
	}
	return 0;
}

void gguf_source_close(struct gguf_source *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->t[i].part);
	free(s->t);
	gguf_close(&s->g);
	*s = (struct gguf_source){ 0 };
}

/* ---- pairs ---- */

static void pair(struct pairs *p, const char *key, struct gguf_value v, const void *bytes, size_t size)
{
	struct gguf *g = p->g;
	uint8_t *copy = arena_alloc(&g->arena, size + 1);

	if (g->n_kv == p->room) {
		size_t more = p->room ? 2 * p->room : 64;
		struct gguf_value *kv = arena_zalloc(&g->arena, size_mul(more, sizeof *kv));

		if (g->n_kv)
			memcpy(kv, g->kv, g->n_kv * sizeof *kv);
		g->kv = kv;
		p->room = more;
	}
	if (size)
		memcpy(copy, bytes, size);
	v.key = arena_printf(&g->arena, "%s%s", *key == '.' ? p->arch : "", key);
	v.p = copy;
	g->kv[g->n_kv++] = v;
}

void pair_u32(struct pairs *p, const char *key, uint32_t v)
{
	pair(p, key, (struct gguf_value){ .kind = GGUF_U32, .n = 1 }, &v, sizeof v);
}

void pair_f32(struct pairs *p, const char *key, double v)
{
	float f = (float)v;

	pair(p, key, (struct gguf_value){ .kind = GGUF_F32, .n = 1 }, &f, sizeof f);
}

void pair_bool(struct pairs *p, const char *key, bool v)
{
	uint8_t b = v;

	pair(p, key, (struct gguf_value){ .kind = GGUF_BOOL, .n = 1 }, &b, sizeof b);
}

void pair_text(struct pairs *p, const char *key, const char *s, size_t n)
{
	uint64_t length = n;
	uint8_t *bytes = xmalloc(sizeof length + n);

	memcpy(bytes, &length, sizeof length);
	memcpy(bytes + sizeof length, s, n);
	pair(p, key, (struct gguf_value){ .kind = GGUF_STRING, .n = 1 }, bytes, sizeof length + n);
	free(bytes);
}

void pair_list(struct pairs *p, const char *key, enum gguf_kind kind, uint64_t n, const void *bytes, size_t size)
{
	pair(p, key, (struct gguf_value){ .kind = kind, .array = true, .n = n }, bytes, size);
}

static int by_key(const void *a, const void *b)
{
	return strcmp(((const struct gguf_value *)a)->key, ((const struct gguf_value *)b)->key);
}

void pairs_sort(struct pairs *p)
{
	if (p->g && p->g->n_kv)
		qsort(p->g->kv, p->g->n_kv, sizeof *p->g->kv, by_key);
}
