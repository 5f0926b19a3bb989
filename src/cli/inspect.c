/* inspect.c - `weft inspect`: what a model is, and what it will need.
 *
 * Reads headers and the small tensors only; a checkpoint of any size answers at once. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/inspection.h"
#include "embed/embedder.h"
#include "host/load.h"
#include "host/load_device.h"

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

static void print_formats(const struct inspection *in)
{
	char b[32];

	for (int k = 0; k < in->n_kind; k++) {
		const struct matrix_kind *kind = &in->kind[k];
		char name[64], group[24] = "";

		if (kind->group)
			snprintf(group, sizeof(group), ", groups of %d", kind->group);
		snprintf(name, sizeof(name), "%s%s", kind->name, group);
		printf("%-14s %-28s %6d matrices  %12s  %5.2f bits per weight\n", k ? "" : "formats", name,
		       kind->tensors, bytes_text(b, sizeof(b), (double)kind->stored),
		       kind->elements ? (double)kind->stored * 8 / (double)kind->elements : 0);
	}
	printf("%-14s %-28s %6zu            %12s\n", "", "vectors", in->vectors,
	       bytes_text(b, sizeof(b), (double)in->vector_bytes));
}

static void print_params(const struct inspection *in)
{
	const struct store *st = in->store;
	const struct shape *s = &in->model->shape;
	char a[64], b[64];

	printf("parameters     %s used; %s in the files\n", count_text(a, sizeof(a), s->params),
	       count_text(b, sizeof(b), in->elements));
	printf("weights        %s used; ", bytes_text(a, sizeof(a), (double)s->weight_bytes));
	printf("%s in %d file%s\n", bytes_text(b, sizeof(b), (double)in->file_bytes), st->n_file,
	       st->n_file == 1 ? "" : "s");
}

/* Attention layers by size and reach. */
static void print_groups(const struct shape *s)
{
	for (int g = 0; g < s->n_kv; g++) {
		const struct kv_group *v = &s->kv[g];

		if (v->every > 1) {
			printf("%-14s %s of %d for each %d positions, %d layers\n", v->index ? "indexers" : "histories",
			       v->index ? "keys" : "rows", v->dim_k, v->every, v->layers);
			continue;
		}
		if (v->index) {
			printf("%-14s %s of %d, %d layers\n", v->window ? "" : "indexers",
			       v->window ? "what rows are made of: 2 vectors" : "keys", v->dim_k, v->layers);
			continue;
		}
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
	const char *class = inspection_class(st);

	printf("model          %s\n", st->name);
	printf("folder         %s\n", st->dir);
	printf("architecture   %s%s%s%s\n", m->arch, class ? " (" : "", class ? class : "", class ? ")" : "");
	printf("layers         %d: %d attention, %d recurrent", s->layers, s->layers_attn, s->layers_rec);
	if (s->layers_moe)
		printf("; %d with a mixture of experts (%d of %d per token)", s->layers_moe, s->experts_used,
		       s->experts);
	printf("\nwidth          %d", s->hidden);
	if (s->streams)
		printf(", in %d residual streams", s->streams);
	printf("; vocabulary %d rows; context %d\n", s->vocab, s->ctx_max);
	print_groups(s);
	if (s->layers_rec)
		printf("recurrent      %d key heads of %d, %d value heads of %d; convolution over %d channels, width %d\n",
		       s->state.heads_k, s->state.dim_k, s->state.heads_v, s->state.dim_v, s->state.conv_channels,
		       s->state.conv_width);
	if (s->past.layers)
		printf("n-grams        %d layers; a history of %d channels, %d tokens long\n", s->past.layers,
		       s->past.conv_channels, s->past.conv_width - 1);
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

static void print_plan(const struct inspection *in)
{
	const struct shape *s = &in->model->shape;
	const struct memory_plan *p = &in->plan;
	char b[32];

	if (s->whole)
		printf("keys, values   none are kept: a text is computed in one step\n");
	else
		printf("keys, values   %zu bytes per token (%s)\n", p->row, s->layers_attn ? p->kinds.p : "none");
	if (p->row && p->row < p->plain_row)
		printf("               %.2f times smaller than 16 bits\n", (double)p->plain_row / (double)p->row);
	if (!s->whole)
		printf("state          %zu bytes per sequence\n", p->state);
	printf("\nmemory for %d sequence%s of %d tokens\n", p->parallel, p->parallel == 1 ? "" : "s", p->ctx);
	printf("  weights      %12s  mapped from the files\n", bytes_text(b, sizeof(b), (double)p->weights));
	if (p->tables)
		printf("      tables   %12s  %s\n", bytes_text(b, sizeof(b), (double)p->tables),
		       p->weights < (size_t)s->weight_bytes ?
		               "in addition: rows are read from disk" :
		               "of these: rows are looked up, and may be read from disk (--tables)");
	printf("  keys, values %12s%s\n", bytes_text(b, sizeof(b), p->kept),
	       p->kept < p->pages ? "  (--kv-bytes)" : "");
	if (!s->whole)
		print_kv_plan(s, &p->opts, p->ctx, p->parallel);
	printf("  states       %12s\n", bytes_text(b, sizeof(b), p->states));
	printf("  a step       %12s  of %d tokens, logits of each included\n", bytes_text(b, sizeof(b), p->step),
	       p->opts.step_rows);
	/* The sums of --memory also count the program, and keys and values of the present tokens alone. */
	printf("  together     %12s  with every sequence full; --memory: what a server takes at first and at most\n",
	       bytes_text(b, sizeof(b), p->together));
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

static void print_ignored(const struct inspection *in)
{
	char b[32];

	for (int k = 0; k < in->n_ignored; k++) {
		const struct ignored_kind *r = &in->ignored[k];

		printf("%-14s %zu tensors, %s, from %s: %s\n", k ? "" : "ignored", r->tensors,
		       bytes_text(b, sizeof(b), (double)r->bytes), r->first, r->why);
	}
}

/* The tower, where the model has one. */
static void print_tower(const struct inspection *in)
{
	const struct tower_info *i = &in->tower;
	char a[64], b[32];

	if (in->no_tower.code)
		printf("images         refused, the tower cannot be bound: %s\n", in->no_tower.msg);
	if (!in->sees)
		return;
	printf("images         %s: %d blocks of %d, %d heads; patches of %d, %d x %d to a row of the prompt%s\n",
	       i->family, i->depth, i->hidden, i->heads, i->patch, i->merge, i->merge,
	       i->both_ways ? ", rows see each other" : "");
	printf("%-14s %s parameters, %s\n", "", count_text(a, sizeof(a), i->params),
	       bytes_text(b, sizeof(b), (double)i->bytes));
}

/* The tower for sounds, where the model has one. */
static void print_ear(const struct inspection *in)
{
	const struct ear_info *e = &in->ear;
	char a[64], b[32];

	if (in->no_ear.code)
		printf("sounds         refused, their tower cannot be bound: %s\n", in->no_ear.msg);
	if (!in->hears)
		return;
	printf("sounds         %s: %d blocks of %d; %d ms to a row of the prompt", e->family, e->depth, e->hidden,
	       e->row_samples * 1000 / SOUND_RATE);
	if (e->seconds_max)
		printf(", at most %d seconds", e->seconds_max);
	printf("\n%-14s %s parameters, %s\n", "", count_text(a, sizeof(a), e->params),
	       bytes_text(b, sizeof(b), (double)e->bytes));
}

/* The model's own draft head, where it has one. */
static void print_head(const struct inspection *in)
{
	const struct shape *s = in->head ? &in->head->shape : NULL;
	char a[64], b[32];

	if (in->no_head.code)
		printf("draft head     refused, it cannot be bound: %s\n", in->no_head.msg);
	if (s)
		printf("draft head     %d layer%s%s; %s parameters, %s\n", s->layers, s->layers == 1 ? "" : "s",
		       s->layers_moe ? ", a mixture of experts" : "", count_text(a, sizeof(a), s->params),
		       bytes_text(b, sizeof(b), (double)s->weight_bytes));
}

/* Prints the heads that --draft-model names: kind, layers of the model that are read, guesses of a pass. */
static void print_given(const struct inspection *in)
{
	char a[64], b[32];

	for (int i = 0; i < in->n_given; i++) {
		const struct given_head *g = &in->given[i];
		const struct shape *s = g->m ? &g->m->shape : NULL;

		if (!s) {
			printf("draft head     refused: %s\n", g->refused.msg);
			continue;
		}
		printf("draft head     %s, from %s: %d layer%s", g->m->ops->arch[0], g->name, s->layers,
		       s->layers == 1 ? "" : "s");
		for (int k = 0; k < s->head.n_tap; k++)
			printf("%s%d", k ? ", " : " over the outputs of layers ", s->head.tap[k]);
		if (s->head.block)
			printf("; %d guesses in one pass", s->head.guesses);
		printf("\n%-14s %s parameters, %s\n", "", count_text(a, sizeof(a), s->params),
		       bytes_text(b, sizeof(b), (double)s->weight_bytes));
	}
}

/* Prints whether the model is made for vectors, scores or labels, and how many it gives. */
static void print_embedder(const struct inspection *in)
{
	const struct embedder *e = in->embedder;
	char scratch[32];

	if (in->no_embedder.code)
		printf("vectors        refused: %s\n", in->no_embedder.msg);
	if (!e)
		return;
	printf("gives          %s of ", inspection_gives(e));
	if (e->kind == RANKS)
		printf("texts and pairs");
	else
		printf("%d %s", e->out, e->kind == EMBEDS ? "numbers" : "kinds");
	printf("%s; texts of at most %d tokens, %d prompts\n", e->all_rows ? ", for each token" : "",
	       e->max_tokens ? e->max_tokens : in->model->shape.ctx_max, e->n_prompt);
	for (int i = 0; e->kind == LABELS && i < e->out && i < 8; i++)
		printf("%-14s %s\n", "", embedder_label(e, i, scratch));
}

static void print_devices(void)
{
	struct buf text;

	buf_init(&text);
	device_describe(&text, "               ");
	printf("devices        %s", text.p);
	buf_fini(&text);
}

static void print_text(const struct inspection *in, bool tensors)
{
	print_shape(in->model, in->store);
	print_params(in);
	print_formats(in);
	print_tower(in);
	print_ear(in);
	print_head(in);
	print_given(in);
	print_embedder(in);
	print_ignored(in);
	print_plan(in);
	print_devices();
	if (tensors)
		print_tensors(in->store);
}

static int inspect_model(const struct host_opts *o, const struct inspect_options *show)
{
	struct kv_pair *kv = NULL;
	struct model *m = NULL;
	struct store *st = NULL;
	struct inspection in;
	struct buf out;
	struct err err;
	int rc;

	buf_init(&out);
	rc = session_store(&st, o, &err);
	/* Messages that loading would log are part of the output here. */
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
		inspection_make(&in, m, st, o, kv);
		if (show->json)
			inspection_put_json(&in, show->tensors, &out);
		else
			print_text(&in, show->tensors);
		fwrite(out.p, 1, out.n, stdout);
		inspection_free(&in);
	}
	free(kv);
	model_close(m);
	store_close(st);
	buf_fini(&out);
	return rc ? cli_fail("inspect", &err) : 0;
}

/* Prints the bytes that loading the model would take, as they are planned before any weight is read. */
static int inspect_memory(const struct host_opts *o)
{
	struct session s;
	struct err err;
	struct buf out;
	int rc = session_open(&s, o, LOAD_ENGINE | LOAD_TEMPLATE | LOAD_PLAN | LOAD_DEVICE, &err);

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
	if (o->inspect.memory)
		return inspect_memory(&o->load);
	return inspect_model(&o->load, &o->inspect);
}
