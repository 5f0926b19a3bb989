/* bind.c - see bind.h. */
#include "model/bind.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 320 };

static void path_of(const struct binder *b, char *path, const char *fmt, va_list ap)
{
	char behind[PATH_BYTES];
	int n = snprintf(path, PATH_BYTES, "%s", b->prefix), of_layer = 0;

	vsnprintf(behind, sizeof behind, fmt, ap);
	if (b->layer)
		sscanf(behind, "layers.%*d%n", &of_layer);
	snprintf(path + n, (size_t)(PATH_BYTES - n), "%s%s", of_layer ? b->layer : "", behind + of_layer);
}

bool bind_has(const struct binder *b, const char *fmt, ...)
{
	char path[PATH_BYTES];
	va_list ap;

	if (b->code)
		return false;
	va_start(ap, fmt);
	path_of(b, path, fmt, ap);
	va_end(ap);
	return store_has(b->st, path);
}

void bind_weight(struct binder *b, struct weight *out, int rows, int cols, const char *fmt, ...)
{
	char path[PATH_BYTES];
	va_list ap;

	if (b->code)
		return;
	va_start(ap, fmt);
	path_of(b, path, fmt, ap);
	va_end(ap);
	b->code = store_weight(b->st, path, rows, cols, out, b->err);
}

void bind_flat(struct binder *b, struct weight *out, int rows, int cols, const char *fmt, ...)
{
	char path[PATH_BYTES];
	va_list ap;

	if (b->code)
		return;
	va_start(ap, fmt);
	path_of(b, path, fmt, ap);
	va_end(ap);
	b->code = store_flat(b->st, path, rows, cols, out, b->err);
}

void bind_stack(struct binder *b, struct weight *out, int n, int rows, int cols, const char *fmt, ...)
{
	char path[PATH_BYTES];
	va_list ap;

	if (b->code)
		return;
	va_start(ap, fmt);
	path_of(b, path, fmt, ap);
	va_end(ap);
	b->code = store_stack(b->st, path, n, rows, cols, out, b->err);
}

void bind_turned(struct binder *b, struct weight *out, int n, int rows, int cols, const char *fmt, ...)
{
	char path[PATH_BYTES];
	va_list ap;

	if (b->code)
		return;
	va_start(ap, fmt);
	path_of(b, path, fmt, ap);
	va_end(ap);
	b->code = store_turned(b->st, path, n, rows, cols, out, b->err);
}

void bind_rows_only(struct binder *b, struct weight *w)
{
	if (!b->code)
		store_rows_only(b->st, w);
}

void bind_apart(struct binder *b, const struct weight *w)
{
	if (!b->code)
		store_apart(b->st, w);
}

void bind_usual_basis(struct binder *b, const struct weight *w)
{
	if (!b->code && w->basis)
		b->code = err_set(b->err, E_UNSUPPORTED,
		                  "%s: tensor %s: is in a rotated basis, in which routers, experts and matrices of "
		                  "separate heads are not read",
		                  b->st->dir, w->name);
}

void bind_looked_up(struct binder *b, struct weight *w)
{
	struct model *m = b->m;

	if (b->code)
		return;
	bind_rows_only(b, w);
	bind_apart(b, w);
	m->table = xrealloc(m->table, size_mul((size_t)m->n_table + 1, sizeof *m->table));
	m->table[m->n_table++] = w;
}

float *bind_table(struct binder *b, size_t n)
{
	return arena_alloc(&b->m->vectors, size_mul(n, sizeof(float)));
}

const float *bind_exp(struct binder *b, const float *a, int n)
{
	float *e;

	if (b->code)
		return NULL;
	e = bind_table(b, (size_t)n);
	for (int i = 0; i < n; i++)
		e[i] = expf(a[i]);
	return e;
}

static const float *floats_in(struct binder *b, struct arena *a, int64_t n, float add, const char *fmt, va_list ap)
{
	char path[PATH_BYTES];
	const float *out = NULL;

	if (b->code)
		return NULL;
	path_of(b, path, fmt, ap);
	b->code = store_floats(b->st, a, path, n, add, &out, b->err);
	return out;
}

const float *bind_floats(struct binder *b, int64_t n, float add, const char *fmt, ...)
{
	const float *out;
	va_list ap;

	va_start(ap, fmt);
	out = floats_in(b, &b->m->vectors, n, add, fmt, ap);
	va_end(ap);
	return out;
}

const float *bind_host(struct binder *b, int64_t n, const char *fmt, ...)
{
	const float *out;
	va_list ap;

	va_start(ap, fmt);
	out = floats_in(b, &b->m->arena, n, 0, fmt, ap);
	va_end(ap);
	return out;
}

/* Hugging Face with and without a vision tower, mlx-lm and mlx-vlm. */
static const char *const prefixes[] = {
	"model.language_model.", "language_model.model.", "model.", "language_model.", "backbone.", "lfm2.", "", NULL
};
/* lm_head is outside the trunk. */
static const char *const head_prefixes[] = { "", "language_model.", "model.", "model.language_model.", NULL };

void bind_find_prefix(struct binder *b, const char *embed)
{
	char name[64], whole[80];

	if (b->code)
		return;
	snprintf(name, sizeof name, "%s.weight", embed);
	snprintf(whole, sizeof whole, "model.%s", name);
	b->prefix = store_prefix(b->st, prefixes, name);
	if (!b->prefix)
		b->code = store_missing(b->st, whole, b->err);
}

const char *bind_head_prefix(const struct binder *b)
{
	return store_prefix(b->st, head_prefixes, "lm_head.weight");
}

/* Is it a class of transformers that has no output matrix: "BertModel", "Qwen3ForSequenceClassification"? */
static bool without_head(const struct store *st)
{
	static const char *const ends[] = { "Model", "ForSequenceClassification", "ForTokenClassification",
		                            "ForRanking", "ForMaskedLM" };
	const char *arch = json_str(json_at(json_get(st->config, "architectures"), 0), NULL);

	for (size_t i = 0; arch && i < sizeof ends / sizeof *ends; i++)
		if (strlen(arch) > strlen(ends[i]) && !strcmp(arch + strlen(arch) - strlen(ends[i]), ends[i]))
			return true;
	return false;
}

void bind_embedding(struct binder *b, struct weight *embed, struct weight *head, const char *name, int vocab,
                    int hidden, bool tied)
{
	const char *trunk = b->prefix, *p;

	bind_weight(b, embed, vocab, hidden, "%s", name);
	if (b->code)
		return;
	bind_apart(b, embed);
	p = bind_head_prefix(b);
	if (p) {
		b->prefix = p;
		bind_weight(b, head, vocab, hidden, "lm_head");
		b->prefix = trunk;
		bind_looked_up(b, embed);
	} else if (tied || without_head(b->st)) {
		*head = *embed;
	} else {
		b->code = store_missing(b->st, "lm_head.weight", b->err);
		err_prefix(b->err, "%s does not say tie_word_embeddings", b->st->config_path);
	}
}

void bind_scores_scale(struct binder *b, float scale)
{
	if (!b->code && !(scale > 0 && scale <= FLT_MAX))
		b->code = err_set(b->err, E_FORMAT,
		                  "%s: its factors scale the scores of attention by %g, which is not above 0",
		                  b->st->config_path, (double)scale);
}
