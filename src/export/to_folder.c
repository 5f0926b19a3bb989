/* to_folder.c - see to_folder.h. */
#include "export/to_folder.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "export/gguf_source.h"
#include "quant/encode/encode.h"

enum { LEAST_BITS = 8, HEAD_ALIGN = 8 };

int folder_kind_parse(struct folder_kind *k, const char *text, struct err *err)
{
	static const int widths[] = { 2, 3, 4, 5, 6, 8 }, groups[] = { 32, 64, 128 };
	int n = 0;

	*k = (struct folder_kind){ "affine", 0, 64 };
	if (!strcmp(text, "mxfp4")) {
		*k = (struct folder_kind){ "mxfp4", 4, 32 };
		return 0;
	}
	if (sscanf(text, "affine%dg%d%n", &k->bits, &k->group, &n) == 2 ||
	    sscanf(text, "affine%d%n", &k->bits, &n) == 1)
		for (size_t i = 0; i < 18 && !text[n]; i++)
			if (k->bits == widths[i / 3] && k->group == groups[i % 3])
				return 0;
	return err_set(err, E_ARG,
	               "type '%s': affine2, 3, 4, 5, 6 or 8, also with g32, g64 or g128 behind it, or mxfp4", text);
}

/* ---- what becomes of a tensor ---- */

struct plan {
	struct store *st;
	const struct folder_kind *kind;
	const struct export_ask *ask;
	struct item *item;
	int n;
	struct arena arena; /* scales of FP8 matrices */
	struct buf head;    /* JSON, open */
	size_t at;          /* bytes of data so far */
};

static bool ends(const char *s, const char *with)
{
	size_t n = strlen(s), w = strlen(with);

	return n >= w && !strcmp(s + n - w, with);
}

/* Stays as it is: routers, where one bit sends a token to another expert, and gates of residual streams, which scale all
 * that a layer reads and writes. */
static bool stays(const char *name)
{
	static const char *const end[] = { ".gate.weight",       ".router.weight", "shared_expert_gate.weight",
		                           "router.proj.weight", ".hc_attn_fn",    ".hc_ffn_fn",
		                           "hc_head_fn" };
	bool yes = false;

	for (size_t i = 0; i < sizeof end / sizeof *end; i++)
		yes |= ends(name, end[i]);
	return yes;
}

/* Two codes of mxfp4 in a byte, as experts of DeepSeek V4 are published; their scales are a tensor of their own. */
static bool is_mxfp4(const struct tensor *t)
{
	return t->fmt && t->type == DT_I8 && !t->format && t->fmt->bits < LEAST_BITS;
}

static bool is_coded(const struct plan *p, const struct tensor *t)
{
	int64_t cols = t->n_dim ? t->dim[t->n_dim - 1] : 0;

	return t->fmt && !is_mxfp4(t) && t->n_dim >= 2 && !stays(t->name) && cols % p->kind->group == 0 &&
	       cols * p->kind->bits % 32 == 0;
}

static void header_entry(struct plan *p, const char *stem, const char *suffix, const char *type, const struct tensor *t,
                         int64_t last, size_t bytes)
{
	struct buf name;

	buf_init(&name);
	buf_printf(&name, "%s%s", stem, suffix);
	buf_puts(&p->head, p->head.n > 1 ? "," : "");
	json_put_str(&p->head, name.p, name.n);
	buf_printf(&p->head, ":{\"dtype\":\"%s\",\"shape\":[", type);
	for (int d = 0; d + 1 < t->n_dim; d++)
		buf_printf(&p->head, "%" PRId64 ",", t->dim[d]);
	if (t->n_dim)
		buf_printf(&p->head, "%" PRId64, last);
	buf_printf(&p->head, "],\"data_offsets\":[%zu,%zu]}", p->at, p->at + bytes);
	p->at += bytes;
	buf_fini(&name);
}

static void encode_affine(const struct item *it, uint8_t *const out[ITEM_STREAMS], const float *x)
{
	affine_encode(out[0], (uint16_t *)(void *)out[1], (uint16_t *)(void *)out[2], x, it->w.cols, it->bits,
	              it->group, it->importance);
}

static void encode_mxfp4(const struct item *it, uint8_t *const out[ITEM_STREAMS], const float *x)
{
	mxfp4_encode(out[0], out[1], x, it->w.cols, it->importance);
}

static void encode_bf16(const struct item *it, uint8_t *const out[ITEM_STREAMS], const float *x)
{
	gguf_encode(out[0], gguf_type_named("BF16"), x, it->w.cols, NULL);
}

static bool is_fp8(const struct tensor *t)
{
	return !t->format && t->type == DT_F8_E4M3;
}

/* An FP8 matrix that the model has not bound, whose scales are another tensor as the file has it. */
static int source_fp8(struct plan *p, struct item *it, const struct tensor *t, int rows, int cols, struct err *err)
{
	struct item_scales *s = arena_zalloc(&p->arena, sizeof *s);
	struct store_grid g;
	int rc = store_grid(p->st, t, &g, err);

	if (rc)
		return rc;
	if (!g.s)
		return err_set(err, E_MISSING, "%s: tensor %s: is in FP8 and has no scales", t->file, t->name);
	*s = (struct item_scales){
		.at = g.s->data, .type = g.s->type, .wide = g.wide, .high = g.high, .broad = g.broad
	};
	it->scales = s;
	return weight_gguf(&it->w, t->name, &source_e4m3, rows, cols, t->data, t->bytes, err);
}

/* t as a matrix of floats to be read. */
static int source_make(struct plan *p, struct item *it, const struct tensor *t, struct err *err)
{
	int64_t cols = t->n_dim ? t->dim[t->n_dim - 1] : 1, rows = cols ? t->count / cols : 0;

	if (cols > INT_MAX || rows > INT_MAX)
		return err_set(err, E_LIMIT, "%s: tensor %s: %" PRId64 " rows of %" PRId64 ", at most %d are read",
		               t->file, t->name, rows, cols, INT_MAX);
	if (t->made && is_fp8(t)) { /* with the scales that were laid out for it */
		it->w = *t->made;
		return 0;
	}
	if (is_fp8(t))
		return source_fp8(p, it, t, (int)rows, (int)cols, err);
	if (t->format)
		return weight_gguf(&it->w, t->name, gguf_type_named(t->format), (int)rows, (int)cols, t->data, t->bytes,
		                   err);
	return weight_plain(&it->w, t->name, t->type, (int)rows, (int)cols, t->data, t->bytes, err);
}

/* Codes, scales and biases. */
static int add_coded(struct plan *p, struct item *it, const struct tensor *t, struct err *err)
{
	const struct folder_kind *k = p->kind;
	bool affine = !strcmp(k->mode, "affine");
	int stem = (int)strlen(t->name) - (ends(t->name, ".weight") ? (int)strlen(".weight") : 0);
	int64_t cols = t->dim[t->n_dim - 1];
	const struct importance *im = imatrix_find(p->ask->importance, t->name, (int)cols);
	char name[512];
	size_t rows;
	int rc;

	if (t->fmt->coding && t->fmt->bits < LEAST_BITS)
		return err_set(err, E_UNSUPPORTED,
		               "%s: tensor %s is %s: what has fewer than %d bits is not quantised again", t->file,
		               t->name, t->fmt->name, LEAST_BITS);
	rc = source_make(p, it, t, err);
	if (rc)
		return rc;
	rows = (size_t)it->w.rows;
	snprintf(name, sizeof name, "%.*s", stem, t->name);
	if (!im && t->origin)
		im = imatrix_find(p->ask->importance, t->origin, (int)cols);
	it->encode = affine ? encode_affine : encode_mxfp4;
	it->bits = k->bits;
	it->group = k->group;
	it->stack = 1;
	if (im && im->stack * im->cols == (int)cols)
		it->importance = im->v;
	it->row_bytes[0] = (size_t)cols * (size_t)k->bits / 8;
	it->row_bytes[1] = (size_t)(cols / k->group) * (affine ? 2 : 1);
	it->row_bytes[2] = affine ? it->row_bytes[1] : 0;
	it->at[0] = p->at;
	header_entry(p, name, t->name + stem, "U32", t, cols * k->bits / 32, rows * it->row_bytes[0]);
	it->at[1] = p->at;
	header_entry(p, name, ".scales", affine ? "BF16" : "U8", t, cols / k->group, rows * it->row_bytes[1]);
	it->at[2] = p->at;
	if (affine)
		header_entry(p, name, ".biases", "BF16", t, cols / k->group, rows * it->row_bytes[2]);
	return 0;
}

static int add_tensor(struct plan *p, struct tensor *t, struct err *err)
{
	struct item *it = &p->item[p->n++];
	int64_t last = t->n_dim ? t->dim[t->n_dim - 1] : 1;
	int rc = store_data(p->st, t, err);

	*it = (struct item){ .name = t->name, .at[0] = p->at };
	if (rc || is_coded(p, t))
		return rc ? rc : add_coded(p, it, t, err);
	if (t->format || is_fp8(t)) { /* no type that readers of such folders know */
		rc = source_make(p, it, t, err);
		it->encode = encode_bf16;
		it->row_bytes[0] = (size_t)last * 2;
		header_entry(p, t->name, "", "BF16", t, last, (size_t)t->count * 2);
		return rc;
	}
	it->bytes = t->data;
	it->n = t->bytes;
	header_entry(p, t->name, "", tensor_type_name(t), t, last, t->bytes);
	return 0;
}

static int by_address(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t) * (const struct tensor *const *)a, y = (uintptr_t) * (const struct tensor *const *)b;

	return (x > y) - (x < y);
}

/* The scales of all FP8 matrices, which become part of these: n of them, in the order of their addresses. */
static int find_scales(const struct plan *p, const struct tensor **scales, size_t *n, struct err *err)
{
	int rc = 0;

	for (size_t i = 0; i < p->st->n && !rc; i++) {
		struct store_grid g = { .s = NULL };

		if (is_fp8(p->st->v[i]) && p->st->v[i]->n_dim == 2)
			rc = store_grid(p->st, p->st->v[i], &g, err);
		if (g.s)
			scales[(*n)++] = g.s;
	}
	qsort(scales, *n, sizeof *scales, by_address);
	return rc;
}

static int plan_make(struct plan *p, struct err *err)
{
	const struct tensor **scales = xcalloc(p->st->n + 1, sizeof *scales);
	size_t n_scales = 0;
	int rc = find_scales(p, scales, &n_scales, err);
	uint64_t n;

	buf_putc(&p->head, '{');
	for (size_t i = 0; i < p->st->n && !rc; i++)
		if (!bsearch(&p->st->v[i], scales, n_scales, sizeof *scales, by_address))
			rc = add_tensor(p, p->st->v[i], err);
	free(scales);
	buf_putc(&p->head, '}');
	while (p->head.n % HEAD_ALIGN)
		buf_putc(&p->head, ' ');
	n = p->head.n;
	buf_reserve(&p->head, sizeof n);
	memmove(p->head.p + sizeof n, p->head.p, p->head.n);
	memcpy(p->head.p, &n, sizeof n);
	p->head.n += sizeof n;
	for (int i = 0; i < p->n; i++)
		for (int k = 0; k < ITEM_STREAMS; k++)
			p->item[i].at[k] += p->head.n;
	return rc;
}

/* ---- documents ---- */

static int write_text(const char *dir, const char *name, const struct buf *text, struct err *err)
{
	struct buf path;
	FILE *f;
	int rc = 0;

	buf_init(&path);
	buf_printf(&path, "%s/%s", dir, name);
	f = fopen(path.p, "w");
	if (!f || fwrite(text->p, 1, text->n, f) != text->n)
		rc = err_set(err, E_IO, "%s: cannot be written: %s", path.p, strerror(errno));
	if (f && fclose(f) && !rc)
		rc = err_set(err, E_IO, "%s: cannot be written: %s", path.p, strerror(errno));
	buf_fini(&path);
	return rc;
}

/* config.json with what was done added, under both names that readers look for. */
static int write_config(const struct plan *p, const char *dir, struct err *err)
{
	struct buf text;
	struct json_cursor c;
	const char *key;
	const struct json *value;
	int rc;

	buf_init(&text);
	buf_putc(&text, '{');
	for (c = json_first(p->st->config); json_next(&c, &key, &value);) {
		if (!strcmp(key, "quantization") || !strcmp(key, "quantization_config")) /* of FP8 */
			continue;
		json_put_cstr(&text, key);
		buf_puts(&text, ": ");
		json_put(&text, value);
		buf_puts(&text, ",\n");
	}
	for (int i = 0; i < 2; i++)
		buf_printf(&text, "%s\"%s\": {\"group_size\": %d, \"bits\": %d, \"mode\": \"%s\"}", i ? ",\n" : "",
		           i ? "quantization_config" : "quantization", p->kind->group, p->kind->bits, p->kind->mode);
	buf_puts(&text, "}\n");
	rc = write_text(dir, "config.json", &text, err);
	buf_fini(&text);
	return rc;
}

/* The document under its own name, where the model has it. */
static int write_document(const struct plan *p, const char *dir, const char *name, struct err *err)
{
	struct buf text;
	int rc;

	buf_init(&text);
	rc = store_document(p->st, name, &text, err);
	rc = rc == E_MISSING ? 0 : rc ? rc : write_text(dir, name, &text, err);
	buf_fini(&text);
	return rc;
}

/* Chat templates with names, besides the default one. */
static int write_templates(const struct plan *p, const char *dir, struct err *err)
{
	static const char folder[] = "additional_chat_templates";
	const char *const *name;
	struct buf path;
	int rc = store_list(p->st, folder, &name, err);

	buf_init(&path);
	buf_printf(&path, "%s/%s", dir, folder);
	if (!rc && *name && mkdir(path.p, 0777) && errno != EEXIST)
		rc = err_set(err, E_IO, "%s: cannot be made: %s", path.p, strerror(errno));
	for (; !rc && *name; name++)
		rc = write_document(p, dir, *name, err);
	buf_fini(&path);
	return rc;
}

static int write_documents(const struct plan *p, const char *dir, struct err *err)
{
	static const char *const names[] = {
		"tokenizer.json",     "tokenizer_config.json",    "generation_config.json", "chat_template.jinja",
		"chat_template.json", "special_tokens_map.json",  "added_tokens.json",      "vocab.json",
		"merges.txt",         "preprocessor_config.json", "processor_config.json"
	};
	int rc = write_config(p, dir, err);

	for (size_t i = 0; i < sizeof names / sizeof *names && !rc; i++)
		rc = write_document(p, dir, names[i], err);
	return rc ? rc : write_templates(p, dir, err);
}

/* ---- all of it ---- */

static int write_model(struct plan *p, const char *dir, struct err *err)
{
	struct buf path;
	int rc;

	buf_init(&path);
	buf_printf(&path, "%s/model.safetensors", dir);
	rc = write_rows(&(struct write_job){ .path = path.p,
	                                     .words = p->ask->words,
	                                     .head = p->head.p,
	                                     .head_bytes = p->head.n,
	                                     .bytes = p->head.n + p->at,
	                                     .item = p->item,
	                                     .n = p->n,
	                                     .pool = p->ask->pool,
	                                     .progress = p->ask->progress,
	                                     .arg = p->ask->arg },
	                err);
	buf_fini(&path);
	return rc;
}

int export_folder(struct store *st, const struct folder_kind *kind, const struct export_ask *ask, struct err *err)
{
	struct plan p = { .st = st, .kind = kind, .ask = ask, .item = xcalloc(st->n + 1, sizeof *p.item) };
	struct buf dir;
	int rc = 0;

	arena_init(&p.arena);
	buf_init(&dir);
	buf_init(&p.head);
	buf_printf(&dir, "%s.partial", ask->to);
	if (st->coded)
		rc = err_set(err, E_UNSUPPORTED, "%s: is quantised already; take the model that it was made from",
		             st->dir);
	if (!rc && st->basis)
		rc = err_set(err, E_UNSUPPORTED,
		             "%s: has weights in a rotated basis, which no folder is written with; take "
		             "the model that it was made from",
		             st->dir);
	if (!rc)
		rc = plan_make(&p, err);
	if (!rc && mkdir(dir.p, 0777) && errno != EEXIST)
		rc = err_set(err, E_IO, "%s: cannot be made: %s", dir.p, strerror(errno));
	if (!rc)
		rc = write_model(&p, dir.p, err);
	if (!rc)
		rc = write_documents(&p, dir.p, err);
	if (!rc && rename(dir.p, ask->to))
		rc = err_set(err, E_IO, "%s: cannot be renamed to %s: %s", dir.p, ask->to, strerror(errno));
	buf_fini(&p.head);
	buf_fini(&dir);
	arena_fini(&p.arena);
	free(p.item);
	return rc;
}
