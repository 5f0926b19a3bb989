/* to_gguf.c - see to_gguf.h. */
#include "export/to_gguf.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "quant/encode/encode.h"
#include "store/gguf_file.h"

enum { ALIGN = 32, VERSION = 3, QUANTIZATION_VERSION = 2, LEAST_BITS = 8 };

/* ---- the head ---- */

static void put(struct buf *b, const void *p, size_t n)
{
	buf_put(b, p, n);
}

static void put_u32(struct buf *b, uint32_t v)
{
	put(b, &v, sizeof v);
}

static void put_u64(struct buf *b, uint64_t v)
{
	put(b, &v, sizeof v);
}

static void put_string(struct buf *b, const char *s)
{
	put_u64(b, strlen(s));
	buf_puts(b, s);
}

/* The bytes of a value's elements, as the file has them. */
static size_t value_bytes(const struct gguf_value *v)
{
	static const uint8_t size[GGUF_KINDS] = {
		[GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
		[GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8
	};
	const uint8_t *at = v->p;

	if (v->kind != GGUF_STRING)
		return (size_t)v->n * size[v->kind];
	for (uint64_t i = 0; i < v->n; i++)
		gguf_next(&at);
	return (size_t)(at - v->p);
}

static void put_value(struct buf *b, const struct gguf_value *v)
{
	put_string(b, v->key);
	put_u32(b, v->array ? GGUF_ARRAY : v->kind);
	if (v->array) {
		put_u32(b, v->kind);
		put_u64(b, v->n);
	}
	put(b, v->p, value_bytes(v));
}

static void put_number(struct buf *b, const char *key, uint32_t v)
{
	put_string(b, key);
	put_u32(b, GGUF_U32);
	put_u32(b, v);
}

/* What the copy says itself, or no longer is. */
static bool own_key(const char *key)
{
	return !strcmp(key, "general.alignment") || !strcmp(key, "general.file_type") ||
	       !strcmp(key, "general.quantization_version") || !strncmp(key, "split.", 6);
}

/* Room for the rest of a line of ALIGN bytes. */
static size_t aligned(size_t n)
{
	return (n + ALIGN - 1) / ALIGN * ALIGN;
}

struct plan {
	const struct gguf *g;
	const struct gguf_type **type; /* [n_info], what each becomes */
	struct item *item;
	size_t data; /* bytes of all tensors, each from a multiple of ALIGN on */
};

static void head_make(struct buf *b, const struct plan *p, const struct mix *mix)
{
	uint64_t kept = 2, at = 0;

	for (size_t i = 0; i < p->g->n_kv; i++)
		kept += !own_key(p->g->kv[i].key);
	buf_puts(b, "GGUF");
	put_u32(b, VERSION);
	put_u64(b, p->g->n_info);
	put_u64(b, kept);
	for (size_t i = 0; i < p->g->n_kv; i++)
		if (!own_key(p->g->kv[i].key))
			put_value(b, &p->g->kv[i]);
	put_number(b, "general.file_type", (uint32_t)mix->file_type);
	put_number(b, "general.quantization_version", QUANTIZATION_VERSION);
	for (size_t i = 0; i < p->g->n_info; i++) {
		const struct gguf_info *t = &p->g->info[i];

		put_string(b, t->name);
		put_u32(b, (uint32_t)t->n_dim);
		for (int d = 0; d < t->n_dim; d++)
			put_u64(b, (uint64_t)t->ne[d]);
		put_u32(b, (uint32_t)p->type[i]->id);
		put_u64(b, at);
		at = aligned(at + (size_t)(t->count / p->type[i]->block) * (size_t)p->type[i]->block_bytes);
	}
	while (b->n % ALIGN)
		buf_putc(b, 0);
}

/* ---- the plan ---- */

static int64_t number(const struct gguf *g, const char *key)
{
	const struct gguf_value *arch = gguf_find(g, "general.architecture");
	const struct gguf_value *v;
	struct gguf_string name = { "", 0 };
	struct buf whole;
	struct err err;
	int64_t n = 0;

	if (arch && arch->kind == GGUF_STRING && !arch->array) {
		const uint8_t *at = arch->p;

		name = gguf_next(&at);
	}
	buf_init(&whole);
	buf_printf(&whole, "%.*s.%s", (int)(name.n < 64 ? name.n : 64), name.p, key);
	v = gguf_find(g, whole.p);
	if (!v || gguf_int(g, v, 0, &n, &err))
		n = 0;
	buf_fini(&whole);
	return n < 0 || n > INT_MAX ? 0 : n;
}

static void encode_gguf_row(const struct item *it, uint8_t *const out[ITEM_STREAMS], const float *x)
{
	gguf_encode(out[0], it->how, x, it->w.cols, it->importance);
}

/* Tensor i becomes its type: an item whose place is not known yet. */
static int item_make(struct plan *p, size_t i, const struct export_ask *ask, struct err *err)
{
	const struct gguf_info *t = &p->g->info[i];
	const struct gguf_type *type = p->type[i];
	struct item *it = &p->item[i];
	const struct importance *im;
	int64_t cols = t->n_dim ? t->ne[0] : 1, rows = cols ? t->count / cols : 0;
	int stack = (int)t->ne[2], rc;

	*it = (struct item){ .name = t->name, .bytes = t->data, .n = t->bytes };
	if (type == t->type)
		return 0;
	if (!t->type->fmt || (t->type->fmt->coding && t->type->fmt->bits < LEAST_BITS))
		return err_set(
			err, E_UNSUPPORTED,
			"%s: tensor %s is %s: what has fewer than %d bits is not quantised again; take the model "
			"that it was made from",
			p->g->path, t->name, t->type->name, LEAST_BITS);
	if (cols > INT_MAX || rows > INT_MAX)
		return err_set(err, E_LIMIT, "%s: tensor %s: %lld rows of %lld, at most %d are read", p->g->path,
		               t->name, (long long)rows, (long long)cols, INT_MAX);
	rc = weight_gguf(&it->w, t->name, t->type, (int)rows, (int)cols, t->data, t->bytes, err);
	if (rc)
		return rc;
	it->bytes = NULL;
	it->n = 0;
	it->encode = encode_gguf_row;
	it->how = type;
	it->row_bytes[0] = (size_t)(cols / type->block) * (size_t)type->block_bytes;
	it->stack = 1;
	im = imatrix_find(ask->importance, t->name, (int)cols);
	if (im && (int64_t)im->stack * im->cols == cols * stack) {
		it->importance = im->v;
		it->stack = stack;
	} else if (im && (int64_t)im->stack * im->cols == cols) {
		it->importance = im->v;
	}
	return 0;
}

static int plan_make(struct plan *p, const struct mix *mix, const struct export_ask *ask, struct err *err)
{
	struct mix_model m = { .blocks = (int)(number(p->g, "block_count") - number(p->g, "nextn_predict_layers")),
		               .tied = !gguf_info(p->g, "output.weight"),
		               .experts = (int)number(p->g, "expert_count") };

	if (gguf_find(p->g, "split.count")) {
		int64_t parts = 0;

		if (!gguf_int(p->g, gguf_find(p->g, "split.count"), 0, &parts, err) && parts > 1)
			return err_set(err, E_UNSUPPORTED, "%s: one of %lld parts; whole files are quantised",
			               p->g->path, (long long)parts);
	}
	for (size_t i = 0; i < p->g->n_info; i++) {
		const struct gguf_info *t = &p->g->info[i];
		int rc;

		p->type[i] = mix_type(mix, &m, t->name, t->n_dim, t->n_dim ? t->ne[0] : 1);
		if (!p->type[i])
			p->type[i] = t->type;
		rc = item_make(p, i, ask, err);
		if (rc)
			return rc;
	}
	return 0;
}

static void places(struct plan *p, size_t head)
{
	size_t at = head;

	for (size_t i = 0; i < p->g->n_info; i++) {
		struct item *it = &p->item[i];

		it->at[0] = at;
		at = aligned(at + it->n + (it->encode ? (size_t)it->w.rows * it->row_bytes[0] : 0));
	}
	p->data = at - head;
}

int export_gguf(const char *from, const struct mix *mix, const struct export_ask *ask, struct err *err)
{
	struct gguf g;
	struct plan p = { .g = &g };
	struct buf head;
	int rc = gguf_open(&g, from, err);

	if (rc)
		return rc;
	buf_init(&head);
	p.type = xcalloc(g.n_info + 1, sizeof *p.type);
	p.item = xcalloc(g.n_info + 1, sizeof *p.item);
	rc = plan_make(&p, mix, ask, err);
	if (!rc) {
		head_make(&head, &p, mix);
		places(&p, head.n);
		rc = write_rows(&(struct write_job){ .path = ask->to,
		                                     .words = ask->words,
		                                     .head = head.p,
		                                     .head_bytes = head.n,
		                                     .bytes = head.n + p.data,
		                                     .item = p.item,
		                                     .n = (int)g.n_info,
		                                     .pool = ask->pool,
		                                     .progress = ask->progress,
		                                     .arg = ask->arg },
		                err);
	}
	buf_fini(&head);
	free(p.type);
	free(p.item);
	gguf_close(&g);
	return rc;
}
