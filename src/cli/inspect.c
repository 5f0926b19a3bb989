/* inspect.c - `weft inspect`: what a model is, and what it will need.
 *
 * Reads headers and the small tensors only; a checkpoint of any size answers at once. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "cli/load.h"
#include "vision/tower.h"

/* Matrices written alike. */
struct kind {
	const char *name;
	int group;
	int tensors;
	int64_t elements;
	size_t stored;
};

static const char *bytes_text(char *buf, size_t cap, double n)
{
	static const char *const unit[] = { "bytes", "KB", "MB", "GB", "TB" };
	int u = 0;

	while (n >= 1000 && u < 4) {
		n /= 1000;
		u++;
	}
	snprintf(buf, cap, u ? "%.2f %s" : "%.0f %s", n, unit[u]);
	return buf;
}

static const char *count_text(char *buf, size_t cap, int64_t n)
{
	if (n >= 1000000000)
		snprintf(buf, cap, "%.2f billion (%" PRId64 ")", (double)n / 1e9, n);
	else
		snprintf(buf, cap, "%.2f million (%" PRId64 ")", (double)n / 1e6, n);
	return buf;
}

static int by_stored(const void *a, const void *b)
{
	const struct kind *x = a, *y = b;

	return x->stored < y->stored ? 1 : x->stored > y->stored ? -1 : strcmp(x->name, y->name);
}

static void print_formats(const struct store *st)
{
	enum { KINDS = 64 };
	struct kind kind[KINDS];
	size_t vectors = 0, vector_bytes = 0;
	int n = 0;
	char b[32];

	for (size_t i = 0; i < st->n; i++) {
		const struct tensor *t = st->v[i];
		int k = 0;

		if (!t->used)
			continue;
		if (!t->fmt) {
			vectors += t->elements > 0; /* not the scales of a matrix */
			vector_bytes += t->elements > 0 ? t->bytes : 0;
			continue;
		}
		while (k < n && (strcmp(kind[k].name, t->fmt->name) || kind[k].group != t->group))
			k++;
		if (k == KINDS)
			continue;
		if (k == n)
			kind[n++] = (struct kind){ t->fmt->name, t->group, 0, 0, 0 };
		kind[k].tensors++;
		kind[k].elements += t->elements;
		kind[k].stored += t->stored;
	}
	qsort(kind, (size_t)n, sizeof(*kind), by_stored);
	for (int k = 0; k < n; k++) {
		char name[64], group[24] = "";

		if (kind[k].group)
			snprintf(group, sizeof(group), ", groups of %d", kind[k].group);
		snprintf(name, sizeof(name), "%s%s", kind[k].name, group);
		printf("%-14s %-28s %6d matrices  %12s  %5.2f bits per weight\n", k ? "" : "formats", name,
		       kind[k].tensors, bytes_text(b, sizeof(b), (double)kind[k].stored),
		       kind[k].elements ? (double)kind[k].stored * 8 / (double)kind[k].elements : 0);
	}
	printf("%-14s %-28s %6zu            %12s\n", "", "vectors", vectors,
	       bytes_text(b, sizeof(b), (double)vector_bytes));
}

static void print_params(const struct model *m, const struct store *st)
{
	int64_t all = 0;
	size_t file = 0;
	char a[64], b[64];

	for (size_t i = 0; i < st->n; i++) {
		all += st->v[i]->elements;
		file += st->v[i]->bytes;
	}
	printf("parameters     %s used; %s in the files\n", count_text(a, sizeof(a), m->shape.params),
	       count_text(b, sizeof(b), all));
	printf("weights        %s used; ", bytes_text(a, sizeof(a), (double)m->shape.weight_bytes));
	printf("%s in %d file%s\n", bytes_text(b, sizeof(b), (double)file), st->n_file, st->n_file == 1 ? "" : "s");
}

/* Attention layers by size and reach. */
static void print_groups(const struct shape *s)
{
	for (int g = 0; g < s->n_kv; g++) {
		const struct kv_group *v = &s->kv[g];

		printf("%-14s %d key/value heads of %d", g ? "" : "attention", v->heads, v->dim_k);
		if (v->dim_v != v->dim_k)
			printf(" and %d", v->dim_v);
		if (s->n_kv > 1 || v->window)
			printf(", %d layers", v->layers);
		if (v->window)
			printf(", a window of %d", v->window);
		printf("\n");
	}
}

static void print_shape(const struct model *m, const struct store *st)
{
	const struct shape *s = &m->shape;
	const char *class = json_str(json_at(json_get(st->config, "architectures"), 0), NULL);

	printf("model          %s\n", st->name);
	printf("folder         %s\n", st->dir);
	printf("architecture   %s%s%s%s\n", m->arch, class ? " (" : "", class ? class : "", class ? ")" : "");
	printf("layers         %d: %d attention, %d recurrent", s->layers, s->layers_attn, s->layers_rec);
	if (s->layers_moe)
		printf("; %d with a mixture of experts (%d of %d per token)", s->layers_moe, s->experts_used,
		       s->experts);
	printf("\nwidth          %d; vocabulary %d rows; context %d\n", s->hidden, s->vocab, s->ctx_max);
	print_groups(s);
	if (s->layers_rec)
		printf("recurrent      %d key heads of %d, %d value heads of %d; convolution over %d channels, width %d\n",
		       s->state.heads_k, s->state.dim_k, s->state.heads_v, s->state.dim_v, s->state.conv_channels,
		       s->state.conv_width);
}

/* Keys and values at most, by group where there are several or one with a window. */
static void print_kv_plan(const struct shape *s, const struct model_opts *mo, int ctx, int parallel)
{
	char b[32];

	for (int g = 0; g < s->n_kv && (s->n_kv > 1 || s->kv[0].window); g++) {
		printf("    %3d layers %12s  ", s->kv[g].layers,
		       bytes_text(b, sizeof(b), (double)parallel * (double)model_pool_bytes(s, mo, g, ctx)));
		if (s->kv[g].window && s->kv[g].window < ctx)
			printf("a window of %d tokens and a step of %d\n", s->kv[g].window, mo->step_rows);
		else
			printf("all tokens\n");
	}
}

static void print_plan(const struct model *m, const struct options *o, const struct kv_pair *layer)
{
	const struct shape *s = &m->shape;
	struct kv_rows kv = { .layer = layer }, plain = model_kv_default(ARITH_FAST);
	size_t row = model_kv_row_bytes(s, &kv), state = model_snap_bytes(s);
	int ctx = o->ctx_size ? o->ctx_size : s->ctx_max, rows = step_rows_of(o, s);
	struct model_opts mo = { .kv = kv, .step_rows = rows };
	double pages = (double)o->parallel * (double)model_pool_bytes(s, &mo, -1, ctx);
	double states = (double)o->parallel * (double)state;
	double work = ((double)m->ops->work_floats(m, rows, rows) + (double)rows * s->vocab) * sizeof(float);
	double kept = o->kv_bytes && (double)o->kv_bytes < pages ? (double)o->kv_bytes : pages;
	struct buf text;
	char b[32];

	buf_init(&text);
	kv_layers_describe(&text, layer, s->layers_attn);
	printf("keys, values   %zu bytes per token (%s)\n", row, s->layers_attn ? text.p : "none");
	if (row && row < model_kv_row_bytes(s, &plain))
		printf("               %.2f times smaller than 16 bits\n",
		       (double)model_kv_row_bytes(s, &plain) / (double)row);
	buf_fini(&text);
	printf("state          %zu bytes per sequence\n", state);
	printf("\nmemory for %d sequence%s of %d tokens\n", o->parallel, o->parallel == 1 ? "" : "s", ctx);
	printf("  weights      %12s  mapped from the files\n", bytes_text(b, sizeof(b), (double)s->weight_bytes));
	printf("  keys, values %12s%s\n", bytes_text(b, sizeof(b), kept), kept < pages ? "  (--kv-bytes)" : "");
	print_kv_plan(s, &mo, ctx, o->parallel);
	printf("  states       %12s\n", bytes_text(b, sizeof(b), states));
	printf("  a step       %12s  of %d tokens, logits of each included\n", bytes_text(b, sizeof(b), work), rows);
	printf("  together     %12s\n", bytes_text(b, sizeof(b), (double)s->weight_bytes + kept + states + work));
}

/* One line per tensor: what became of it. */
static void print_tensors(const struct store *st)
{
	char shape[160];

	printf("\n");
	for (size_t i = 0; i < st->n; i++) {
		const struct tensor *t = st->v[i];

		printf("%-8s %-24s %s%s%s\n", tensor_type_name(t), shape_text(shape, sizeof(shape), t->dim, t->n_dim),
		       t->name, t->used ? "" : "  ignored: ", t->used ? "" : t->ignored);
	}
}

/* By reason, in the order they come. */
static void print_ignored(const struct store *st)
{
	enum { REASONS = 16 };
	struct {
		const char *why, *first;
		size_t n, bytes;
	} r[REASONS];
	int n = 0;
	char b[32];

	for (size_t i = 0; i < st->n; i++) {
		const struct tensor *t = st->v[i];
		int k = 0;

		if (!t->ignored || t->used)
			continue;
		while (k < n && strcmp(r[k].why, t->ignored))
			k++;
		if (k == REASONS)
			continue;
		if (k == n) {
			r[n].why = t->ignored;
			r[n].first = t->name;
			r[n].n = r[n].bytes = 0;
			n++;
		}
		r[k].n++;
		r[k].bytes += t->bytes;
	}
	for (int k = 0; k < n; k++)
		printf("%-14s %zu tensors, %s, from %s: %s\n", k ? "" : "ignored", r[k].n,
		       bytes_text(b, sizeof(b), (double)r[k].bytes), r[k].first, r[k].why);
}

/* The tower, whose tensors are then no longer among the ignored ones. */
static int print_tower(struct store *st, struct err *err)
{
	struct tower *t;
	struct tower_info i;
	char a[64], b[32];
	int rc = tower_open(&t, st, err);

	if (rc || !t)
		return rc;
	i = tower_info(t);
	printf("images         %s: %d blocks of %d, %d heads; patches of %d, %d x %d to a row of the prompt%s\n",
	       i.family, i.depth, i.hidden, i.heads, i.patch, i.merge, i.merge,
	       i.both_ways ? ", rows see each other" : "");
	printf("%-14s %s parameters, %s\n", "", count_text(a, sizeof(a), i.params),
	       bytes_text(b, sizeof(b), (double)i.bytes));
	tower_close(t);
	return 0;
}

static int inspect_model(const struct options *o)
{
	struct kv_pair *kv = NULL;
	struct model *m = NULL;
	struct store *st = NULL;
	struct buf name;
	struct err err;
	int rc;

	buf_init(&name);
	rc = model_name(o, &name, &err);
	if (!rc)
		rc = store_open(&st, name.p, &err);
	/* What loading would log is part of what is printed here. */
	if (log_get_level() == LOG_INFO || log_get_level() == LOG_WARN)
		log_set_level(LOG_ERROR);
	if (!rc)
		rc = model_bind(&m, st, &err);
	if (!rc && o->ctx_size > m->shape.ctx_max)
		rc = err_set(&err, E_LIMIT, "--ctx-size: %d positions were asked for, the model has %d", o->ctx_size,
		             m->shape.ctx_max);
	if (!rc)
		rc = kv_of_options(&kv, o, &m->shape, &err);
	if (!rc) {
		print_shape(m, st);
		print_params(m, st);
		print_formats(st);
		rc = print_tower(st, &err);
	}
	if (!rc) {
		print_ignored(st);
		print_plan(m, o, kv);
		if (o->tensors)
			print_tensors(st);
	}
	free(kv);
	model_close(m);
	store_close(st);
	buf_fini(&name);
	return rc ? cli_fail("inspect", &err) : 0;
}

/* Prints the bytes that loading the model would take, as they are planned before any weight is read. */
static int inspect_memory(const struct options *o)
{
	struct session s;
	struct err err;
	struct buf out;
	int rc = session_open(&s, o, LOAD_ENGINE | LOAD_TEMPLATE | LOAD_PLAN, &err);

	if (rc)
		return cli_fail("inspect", &err);
	buf_init(&out);
	plan_print(&s.plan, &out);
	printf("memory for %d sequence%s of %d tokens\n%.*s", o->parallel, o->parallel == 1 ? "" : "s", s.plan.ctx_fits,
	       (int)out.n, out.p);
	buf_fini(&out);
	session_close(&s);
	return 0;
}

int cmd_inspect(const struct options *o)
{
	if (o->plan)
		return inspect_memory(o);
	return inspect_model(o);
}
