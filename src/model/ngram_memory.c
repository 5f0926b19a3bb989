/* ngram_memory.c - see ngram_memory.h. */
#include "model/ngram_memory.h"

#include <math.h>
#include <stdio.h>

#include "model/delta.h"
#include "model/model.h"
#include "model/work.h"

enum { TOKENS_MAX = 1 << 24 }; /* that floats tell apart */

struct ngram_memory {
	struct ngrams op;
	int streams, hidden, layer;
	float eps, scale;
	struct weight key, value;
	const float *norm_key, *norm_query, *norm_conv;
	struct conv conv;
};

/* A list of n numbers under the key; NULL: there is none, or it is not one, which is noted. */
static const int64_t *read_list(struct conf *c, const char *key, int n, struct arena *a)
{
	const struct json *list = conf_list(c, key);
	int64_t *v;

	if (!list)
		return NULL;
	v = arena_alloc(a, (size_t)n * sizeof *v);
	if (json_len(list) != (size_t)n)
		conf_fail(c, E_FORMAT, "%s: has %zu entries, n-grams want %d", key, json_len(list), n);
	for (int i = 0; i < n && !c->code; i++)
		if (json_to_int(json_at(list, (size_t)i), &v[i]))
			conf_fail(c, E_FORMAT, "%s: entry %d is %.40s, not a number", key, i,
			          conf_entry(json_at(list, (size_t)i)));
	return v;
}

/* Members that begin with ngram_ and are not ngram_size are not Hugging Face's: GGUF files have them as keys. */
void ngram_read(struct ngram_form *f, struct conf *c, struct arena *a)
{
	const struct json *own = conf_get(c, "ngram_end_token_id"), *end = own ? own : conf_get(c, "eos_token_id");
	int each = conf_int(c, "heads_per_ngram", 1, 1 << 10), dim = conf_int(c, "ple_embed_dim", 1, CONF_DIM_MAX);
	int64_t id = -1;

	f->most = conf_int(c, "ngram_size", 2, NGRAM_MOST);
	f->kernel = conf_int(c, "ple_conv_kernel_size", 2, 8);
	f->heads = (f->most - 1) * each;
	if (c->code)
		return;
	if (dim % f->heads)
		conf_fail(c, E_FORMAT, "ple_embed_dim: %d is not a multiple of the %d heads of n-grams", dim, f->heads);
	f->width = dim / f->heads;
	if (json_kind(end) == JSON_ARRAY)
		end = json_at(end, 0);
	if (json_to_int(end, &id) || id < 0 || id >= TOKENS_MAX)
		conf_fail(c, E_MISSING, "eos_token_id: no token id, at which n-grams end");
	f->end = (int32_t)id;
	f->mult = read_list(c, "ngram_multipliers", f->most, a);
	f->size = read_list(c, "ngram_vocab_sizes", f->heads, a);
	f->offset = read_list(c, "ngram_offsets", f->heads, a);
}

static const int64_t *bind_list(struct binder *b, int n, const char *what, int layer)
{
	const int64_t *v = NULL;
	char name[200];

	snprintf(name, sizeof name, "%slayers.%d.ple.ple_embedding.%s", b->prefix, layer, what);
	if (!b->code)
		b->code = store_ints(b->st, &b->m->arena, name, n, &v, b->err);
	return v;
}

/* Products of tokens and factors must fit, and rows lie in the table. */
static void check_hash(struct binder *b, const struct ngrams *g, int layer)
{
	int64_t rows = (int64_t)g->n_part * g->part->rows, vocab = b->m->shape.vocab;

	for (int i = 0; i < g->most && !b->code; i++)
		if (g->mult[i] < 0 || g->mult[i] > INT64_MAX / vocab)
			b->code = err_set(b->err, E_FORMAT,
			                  "%s: layer %d: layer_multipliers: %lld is too large for %d tokens",
			                  b->st->dir, layer, (long long)g->mult[i], b->m->shape.vocab);
	for (int h = 0; h < g->heads && !b->code; h++)
		if (g->size[h] < 1 || g->offset[h] < 0 || g->size[h] > rows || g->offset[h] > rows - g->size[h])
			b->code = err_set(b->err, E_FORMAT,
			                  "%s: layer %d: head %d of n-grams has rows %lld to %lld; the table has %lld",
			                  b->st->dir, layer, h, (long long)g->offset[h],
			                  (long long)g->offset[h] + (long long)g->size[h], (long long)rows);
}

/* The path of a part of the table: a GGUF file has it whole, and one for all layers. */
static void part_path(char *out, size_t cap, int layer, int part, bool whole)
{
	if (whole)
		snprintf(out, cap, "ngram_embedding");
	else
		snprintf(out, cap, "layers.%d.ple.ple_embedding.ngram_embedding.shard_%d", layer, part);
}

static void bind_table_parts(struct binder *b, struct ngrams *g, int width, int layer)
{
	bool whole = bind_has(b, "ngram_embedding.weight");
	const struct tensor *first;
	struct weight *part;
	char path[120], name[200];
	int n = whole;

	for (bool more = !whole; more; n += more) {
		part_path(path, sizeof path, layer, n, whole);
		more = bind_has(b, "%s.weight", path);
	}
	part_path(path, sizeof path, layer, 0, whole);
	snprintf(name, sizeof name, "%s%s.weight", b->prefix, path);
	first = store_find(b->st, name);
	if (b->code || !first) {
		b->code = b->code ? b->code : store_missing(b->st, name, b->err);
		return;
	}
	if (first->n_dim != 2 || first->dim[0] < 1 || first->dim[0] > INT32_MAX / n) {
		b->code = err_set(b->err, E_FORMAT, "%s: tensor %s: is not a part of a table", b->st->dir, name);
		return;
	}
	g->n_part = n;
	g->part = part = arena_zalloc(&b->m->arena, (size_t)n * sizeof *part);
	for (int i = 0; i < n && !b->code; i++) {
		part_path(path, sizeof path, layer, i, whole);
		bind_weight(b, &part[i], (int)first->dim[0], width, "%s", path);
		bind_looked_up(b, &part[i]);
	}
}

static void bind_hash(struct binder *b, struct ngrams *g, const struct ngram_form *f, int layer)
{
	g->most = f->most;
	g->heads = f->heads;
	g->end = f->end;
	g->mult = f->mult ? f->mult : bind_list(b, f->most, "layer_multipliers", layer);
	g->size = f->size ? f->size : bind_list(b, f->heads, "ngram_heads_vocab_sizes", layer);
	g->offset = f->offset ? f->offset : bind_list(b, f->heads, "ngram_heads_offsets", layer);
	bind_table_parts(b, g, f->width, layer);
	if (!b->code)
		check_hash(b, g, layer);
}

struct ngram_memory *ngram_bind(struct binder *b, const struct ngram_form *f, int layer)
{
	struct ngram_memory *g = arena_zalloc(&b->m->arena, sizeof *g);
	struct state_shape *past = &b->m->shape.past;
	const struct streams_form *s = f->streams;
	int all = s->streams * s->hidden, dim = f->heads * f->width;

	g->streams = s->streams;
	g->hidden = s->hidden;
	g->eps = s->eps;
	g->scale = 1.0f / sqrtf((float)s->hidden);
	if (!b->code && b->m->shape.vocab > TOKENS_MAX)
		b->code = err_set(b->err, E_UNSUPPORTED, "%s: vocab_size: n-grams of more than %d tokens are not done",
		                  b->st->config_path, TOKENS_MAX);
	bind_hash(b, &g->op, f, layer);
	bind_weight(b, &g->key, all, dim, "layers.%d.ple.key_proj", layer);
	bind_weight(b, &g->value, s->hidden, dim, "layers.%d.ple.value_proj", layer);
	g->norm_key = bind_floats(b, all, s->norm_add, "layers.%d.ple.norm_key.weight", layer);
	g->norm_query = bind_floats(b, all, s->norm_add, "layers.%d.ple.norm_query.weight", layer);
	g->norm_conv = bind_floats(b, all, s->norm_add, "layers.%d.ple.norm_conv.weight", layer);
	g->conv.w = delta_conv(b, bind_floats(b, (int64_t)all * f->kernel, 0, "layers.%d.ple.conv1d.weight", layer),
	                       all, f->kernel);
	g->conv.silu = true;
	g->conv.apart = f->most;
	g->layer = past->layers;
	*past = (struct state_shape){ .layers = g->layer + 1,
		                      .conv_channels = all + 1,
		                      .conv_width = (f->kernel - 1) * f->most + 1 };
	return g;
}

size_t ngram_floats(const struct ngram_memory *g, int n_row)
{
	return 3 * work_floats_of(n_row, g->streams * g->hidden) + work_floats_of(n_row, g->key.cols) +
	       work_floats_of(n_row, g->hidden) + work_floats_of(n_row, g->streams);
}

void ngram_add(struct pass *p, const struct ngram_memory *g, float *x)
{
	const struct backend_ops *ops = p->be->ops;
	int n = p->n_row, all = g->streams * g->hidden;
	size_t mark = p->work.used, rows = (size_t)n, cols = (size_t)all;
	float *key = pass_floats(p, rows * cols), *query = pass_floats(p, rows * cols),
	      *y = pass_floats(p, rows * cols);
	float *e = pass_floats(p, rows * (size_t)g->key.cols), *value = pass_floats(p, rows * (size_t)g->hidden);
	float *by = pass_floats(p, rows * (size_t)g->streams), *u = key;
	const struct linear of_e[] = { { .w = &g->key, .out = key, .ld = cols },
		                       { .w = &g->value, .out = value, .ld = (size_t)g->hidden } };

	ops->embed_ngrams(p, e, &g->op, p->past, g->layer, all);
	ops->linear(p, of_e, 2, e, n, g->key.cols);
	streams_norm(p, key, key, n, g->streams, g->hidden, g->norm_key, g->eps);
	streams_norm(p, query, x, n, g->streams, g->hidden, g->norm_query, g->eps);
	ops->match_streams(p, by, key, query, g->scale, n, g->streams, g->hidden);
	ops->add_streams(p, u, false, value, by, 1, n, g->streams, g->hidden);
	ops->add(p, x, u, n, all, 1);
	streams_norm(p, u, u, n, g->streams, g->hidden, g->norm_conv, g->eps);
	ops->conv(p, y, &g->conv, 1, u, 0, all, p->past, g->layer);
	ops->add(p, x, y, n, all, 1);
	p->work.used = mark;
}
