/* to_gguf.c - see to_gguf.h. */
#include "export/to_gguf.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "export/gguf_source.h"
#include "quant/encode/encode.h"

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

/* Whether the copy writes this key itself, or drops it. */
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
	const struct gguf_source *s;
	const struct gguf_type **type; /* [s->n], what each becomes */
	struct item *item;             /* [n], of a tensor in parts one for each */
	int n;
	struct arena arena; /* importances in another order */
	size_t data;        /* bytes of all tensors, each from a multiple of ALIGN on */
};

static size_t bytes_as(const struct gguf_info *t, const struct gguf_type *type)
{
	return (size_t)(t->count / type->block) * (size_t)type->block_bytes;
}

static void head_make(struct buf *b, const struct plan *p, const struct mix *mix)
{
	const struct gguf *g = &p->s->g;
	uint64_t kept = 2, at = 0;

	for (size_t i = 0; i < g->n_kv; i++)
		kept += !own_key(g->kv[i].key);
	buf_puts(b, "GGUF");
	put_u32(b, VERSION);
	put_u64(b, p->s->n);
	put_u64(b, kept);
	for (size_t i = 0; i < g->n_kv; i++)
		if (!own_key(g->kv[i].key))
			put_value(b, &g->kv[i]);
	put_number(b, "general.file_type", (uint32_t)mix->file_type);
	put_number(b, "general.quantization_version", QUANTIZATION_VERSION);
	for (size_t i = 0; i < p->s->n; i++) {
		const struct gguf_info *t = &p->s->t[i].t;

		put_string(b, t->name);
		put_u32(b, (uint32_t)t->n_dim);
		for (int d = 0; d < t->n_dim; d++)
			put_u64(b, (uint64_t)t->ne[d]);
		put_u32(b, (uint32_t)p->type[i]->id);
		put_u64(b, at);
		at = aligned(at + bytes_as(t, p->type[i]));
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

static void recode_gguf_row(const struct item *it, uint8_t *out, int row)
{
	mxfp4_recode(out, &it->w, row);
}

/* Finds how much each input of the item counts, of run `part` alone where the tensor is in runs, in the order of the new
 * file. */
static void weigh(struct plan *p, struct item *it, const struct source_tensor *from, int part, const struct imatrix *m)
{
	int64_t cols = it->w.cols, stack = from->t.ne[2];
	const struct importance *im = imatrix_find(m, from->t.name, it->w.cols);
	bool theirs = im || !from->known_as;

	if (!im && from->known_as)
		im = imatrix_find(m, from->known_as, it->w.cols);
	if (!im)
		return;
	if ((int64_t)im->stack * im->cols == cols * stack) {
		it->importance = im->v + (size_t)part * (size_t)cols;
		it->stack = from->n_part ? 1 : (int)stack;
	} else if ((int64_t)im->stack * im->cols == cols) {
		it->importance = im->v;
	}
	if (it->importance && from->col && !theirs) { /* a folder's own order; such a matrix is not a stack */
		float *ordered = arena_alloc(&p->arena, size_mul((size_t)cols, sizeof *ordered));

		for (int64_t c = 0; c < cols; c++)
			ordered[c] = it->importance[from->col[c]];
		it->importance = ordered;
	}
}

/* Run `part` of tensor i, as the matrix that it is in the source. */
static int run_of(struct weight *w, const struct plan *p, size_t i, int part, struct err *err)
{
	const struct source_tensor *from = &p->s->t[i];
	const struct gguf_info *t = &from->t;
	int64_t cols = t->n_dim ? t->ne[0] : 1, rows = cols ? t->count / cols : 0;

	if (from->n_part) {
		*w = from->part[part];
		return 0;
	}
	if (cols > INT_MAX || rows > INT_MAX)
		return err_set(err, E_LIMIT, "%s: tensor %s: %lld rows of %lld, at most %d are read", p->s->g.path,
		               t->name, (long long)rows, (long long)cols, INT_MAX);
	return weight_gguf(w, t->name, t->type, (int)rows, (int)cols, t->data, t->bytes, err);
}

/* Whether the run's bytes are those of the new file. */
static bool goes_over(const struct source_tensor *from, int part, const struct gguf_type *type)
{
	return type == from->t.type && (!from->n_part || from->part[part].fmt == type->fmt) && !from->row &&
	       !from->col && !from->col_bytes && from->times == 0 && !from->row_times;
}

/* One run of tensor i becomes its type: an item whose place is not known yet. */
static int item_make(struct plan *p, size_t i, int part, const struct export_ask *ask, struct err *err)
{
	const struct source_tensor *from = &p->s->t[i];
	const struct gguf_info *t = &from->t;
	const struct gguf_type *type = p->type[i];
	struct item *it = &p->item[p->n++];
	bool stays = from->stays && type == t->type;
	int rc;

	*it = (struct item){ .name = t->name, .bytes = t->data, .n = t->bytes };
	if (goes_over(from, part, type)) {
		if (from->n_part) {
			it->bytes = from->part[part].data;
			it->n = (size_t)from->part[part].rows * from->part[part].row_bytes;
		}
		return 0;
	}
	rc = run_of(&it->w, p, i, part, err);
	if (rc)
		return rc;
	if (!from->stays && it->w.fmt->coding && it->w.fmt->bits < LEAST_BITS)
		return err_set(
			err, E_UNSUPPORTED,
			"%s: tensor %s is %s: what has fewer than %d bits is not quantised again; take the model "
			"that it was made from",
			p->s->g.path, t->name, t->type->name, LEAST_BITS);
	it->bytes = NULL;
	it->n = 0;
	if (stays)
		it->recode = recode_gguf_row;
	else
		it->encode = encode_gguf_row;
	it->how = type;
	it->row_bytes[0] = (size_t)(it->w.cols / type->block) * (size_t)type->block_bytes;
	it->row = from->row;
	it->col = from->col;
	it->col_bytes = from->col_bytes;
	it->scales = from->scales ? from->scales + part : NULL;
	it->times = from->times;
	it->row_times = from->row_times;
	it->stack = 1;
	if (!stays)
		weigh(p, it, from, part, ask->importance);
	return 0;
}

static bool has_fewer_bits(const struct gguf_type *a, const struct gguf_type *b)
{
	return (int64_t)a->block_bytes * b->block < (int64_t)b->block_bytes * a->block;
}

static int tensor_plan(struct plan *p, size_t i, const struct mix *mix, const struct mix_model *m,
                       const struct export_ask *ask, struct err *err)
{
	const struct source_tensor *from = &p->s->t[i];
	const struct gguf_info *t = &from->t;
	const struct gguf_type *type = p->s->kept ? t->type :
	                                            mix_type(mix, m, t->name, t->n_dim, t->n_dim ? t->ne[0] : 1);
	int rc = 0, parts = from->n_part ? from->n_part : 1;

	if (from->stays && !(type && has_fewer_bits(type, t->type)))
		type = t->type;
	if (!type)
		type = p->s->made ? gguf_type_named("F32") : t->type;
	p->type[i] = type;
	for (int part = 0; part < parts && !rc; part++)
		rc = item_make(p, i, part, ask, err);
	return rc;
}

static bool has(const struct gguf_source *s, const char *name)
{
	for (size_t i = 0; i < s->n; i++)
		if (!strcmp(s->t[i].t.name, name))
			return true;
	return false;
}

static int plan_make(struct plan *p, const struct mix *mix, const struct export_ask *ask, struct err *err)
{
	const struct gguf *g = &p->s->g;
	struct mix_model m = { .blocks = (int)(number(g, "block_count") - number(g, "nextn_predict_layers")),
		               .tied = !has(p->s, "output.weight"),
		               .experts = (int)number(g, "expert_count") };
	size_t n = 0;
	int rc = 0;

	if (gguf_find(g, "split.count")) {
		int64_t parts = 0;

		if (!gguf_int(g, gguf_find(g, "split.count"), 0, &parts, err) && parts > 1)
			return err_set(err, E_UNSUPPORTED, "%s: one of %lld parts; whole files are quantised", g->path,
			               (long long)parts);
	}
	for (size_t i = 0; i < p->s->n; i++)
		n += p->s->t[i].n_part ? (size_t)p->s->t[i].n_part : 1;
	if (n > INT_MAX)
		return err_set(err, E_LIMIT, "%s: %zu matrices, at most %d are written", g->path, n, INT_MAX);
	p->item = xcalloc(n + 1, sizeof *p->item);
	for (size_t i = 0; i < p->s->n && !rc; i++)
		rc = tensor_plan(p, i, mix, &m, ask, err);
	return rc;
}

/* Runs of a tensor follow one another without a gap. */
static void places(struct plan *p, size_t head)
{
	struct item *it = p->item;
	size_t at = head;

	for (size_t i = 0; i < p->s->n; i++) {
		for (int part = 0; !part || part < p->s->t[i].n_part; part++, it++) {
			it->at[0] = at;
			at += it->n + (size_t)it->w.rows * it->row_bytes[0];
		}
		at = aligned(at);
	}
	p->data = at - head;
}

int export_gguf(const struct gguf_source *from, const struct mix *mix, const struct export_ask *ask, struct err *err)
{
	struct plan p = { .s = from, .type = xcalloc(from->n + 1, sizeof *p.type) };
	struct buf head;
	int rc;

	buf_init(&head);
	arena_init(&p.arena);
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
		                                     .n = p.n,
		                                     .pool = ask->pool,
		                                     .progress = ask->progress,
		                                     .arg = ask->arg },
		                err);
	}
	buf_fini(&head);
	arena_fini(&p.arena);
	free(p.type);
	free(p.item);
	return rc;
}
