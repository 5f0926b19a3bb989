/* inspection.c - see inspection.h. */
#include "cli/inspection.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/cli.h"
#include "embed/embedder.h"
#include "host/load.h"

static int by_stored(const void *a, const void *b)
{
	const struct matrix_kind *x = a, *y = b;

	return x->stored < y->stored ? 1 : x->stored > y->stored ? -1 : strcmp(x->name, y->name);
}

static void add_matrix(struct inspection *in, const struct tensor *t)
{
	int k = 0;

	while (k < in->n_kind && (strcmp(in->kind[k].name, t->fmt->name) || in->kind[k].group != t->group))
		k++;
	if (k == MATRIX_KINDS)
		return;
	if (k == in->n_kind)
		in->kind[in->n_kind++] = (struct matrix_kind){ t->fmt->name, t->group, 0, 0, 0 };
	in->kind[k].tensors++;
	in->kind[k].elements += t->elements;
	in->kind[k].stored += t->stored;
}

static void add_ignored(struct inspection *in, const struct tensor *t)
{
	int k = 0;

	while (k < in->n_ignored && strcmp(in->ignored[k].why, t->ignored))
		k++;
	if (k == IGNORED_KINDS)
		return;
	if (k == in->n_ignored)
		in->ignored[in->n_ignored++] = (struct ignored_kind){ t->ignored, t->name, 0, 0 };
	in->ignored[k].tensors++;
	in->ignored[k].bytes += t->bytes;
}

static void count_tensors(struct inspection *in)
{
	for (size_t i = 0; i < in->store->n; i++) {
		const struct tensor *t = in->store->v[i];

		in->elements += t->elements;
		in->file_bytes += t->bytes;
		if (t->used && t->fmt) {
			add_matrix(in, t);
		} else if (t->used && t->elements > 0) { /* not the scales of a matrix */
			in->vectors++;
			in->vector_bytes += t->bytes;
		}
	}
	qsort(in->kind, (size_t)in->n_kind, sizeof(*in->kind), by_stored);
}

static void count_ignored(struct inspection *in)
{
	for (size_t i = 0; i < in->store->n; i++) {
		const struct tensor *t = in->store->v[i];

		if (t->ignored && !t->used)
			add_ignored(in, t);
	}
}

static void plan_memory(struct memory_plan *p, const struct model *m, const struct host_opts *o,
                        const struct kv_pair *layer)
{
	const struct shape *s = &m->shape;
	struct kv_rows plain = model_kv_default(ARITH_FAST);
	int rows = step_rows_of(o, s);

	p->opts = (struct model_opts){ .kv = { .layer = layer }, .step_rows = rows };
	p->parallel = o->parallel;
	p->ctx = o->ctx_size ? o->ctx_size : s->ctx_max;
	p->row = model_kv_row_bytes(s, &p->opts.kv);
	p->plain_row = model_kv_row_bytes(s, &plain);
	p->state = model_snap_bytes(s);
	buf_init(&p->kinds);
	kv_layers_describe(&p->kinds, layer, s->layers_attn);
	p->pages = (double)p->parallel * (double)model_pool_bytes(s, &p->opts, -1, p->ctx);
	p->kept = o->kv_bytes && (double)o->kv_bytes < p->pages ? (double)o->kv_bytes : p->pages;
	p->states = (double)p->parallel * (double)p->state;
	if (s->whole) { /* a text is one step, of which nothing is kept */
		p->row = p->plain_row = p->state = 0;
		p->pages = p->kept = p->states = 0;
	}
	p->step = ((double)m->ops->work_floats(m, rows, rows) + (double)rows * s->vocab) * sizeof(float);
	p->tables = model_table_bytes(m);
	p->weights = (size_t)s->weight_bytes - (o->tables == TABLES_DISK ? p->tables : 0);
	p->together = (double)p->weights + p->kept + p->states + p->step;
}

/* A tower that is found marks its tensors as used. */
static void look_for_tower(struct inspection *in, struct store *st)
{
	struct tower *t;
	struct err why;

	if (tower_open(&t, st, &why))
		in->no_tower = why;
	if (!t)
		return;
	in->sees = true;
	in->tower = tower_info(t);
	tower_close(t);
}

static void look_for_ear(struct inspection *in, struct store *st)
{
	struct ear *e;
	struct err why;

	if (ear_open(&e, st, &why))
		in->no_ear = why;
	if (!e)
		return;
	in->hears = true;
	in->ear = ear_info(e);
	ear_close(e);
}

/* A head that is found marks its tensors as used. */
static void look_for_head(struct inspection *in, struct store *st)
{
	struct err why;
	int code = model_bind_head(&in->head, in->model, st, &why);

	if (code && code != E_MISSING)
		in->no_head = why;
}

static void look_for_given(struct inspection *in, const struct host_opts *o)
{
	in->n_given = o->draft.model.n;
	in->given = xcalloc((size_t)in->n_given + 1, sizeof *in->given);
	for (int i = 0; i < in->n_given; i++) {
		struct given_head *g = &in->given[i];

		g->name = o->draft.model.v[i];
		if (store_open(&g->st, g->name, &g->refused))
			continue;
		if (!model_only_head(g->st))
			err_set(&g->refused, E_UNSUPPORTED, "%s: a whole model and no draft head: inspect it by itself",
			        g->name);
		else
			model_bind_head(&g->m, in->model, g->st, &g->refused);
	}
}

static void look_for_embedder(struct inspection *in, struct store *st)
{
	struct err why;

	if (embedder_open(&in->embedder, in->model, st, &why)) {
		in->no_embedder = why;
		return;
	}
	if (!in->embedder->writes)
		return;
	embedder_close(in->embedder);
	in->embedder = NULL;
}

const char *inspection_gives(const struct embedder *e)
{
	return e->kind == EMBEDS ? "vectors" : e->kind == RANKS ? "scores" : "labels";
}

void inspection_make(struct inspection *in, const struct model *m, struct store *st, const struct host_opts *o,
                     const struct kv_pair *layer)
{
	memset(in, 0, sizeof(*in));
	in->model = m;
	in->store = st;
	look_for_tower(in, st);
	look_for_ear(in, st);
	look_for_embedder(in, st);
	count_tensors(in);
	look_for_head(in, st); /* its matrices are not read by every step */
	count_ignored(in);
	look_for_given(in, o);
	plan_memory(&in->plan, m, o, layer);
}

void inspection_free(struct inspection *in)
{
	buf_fini(&in->plan.kinds);
	model_close(in->head);
	for (int i = 0; i < in->n_given; i++) {
		model_close(in->given[i].m);
		if (in->given[i].st)
			store_close(in->given[i].st);
	}
	free(in->given);
	embedder_close(in->embedder);
}

const char *inspection_class(const struct store *st)
{
	return json_str(json_at(json_get(st->config, "architectures"), 0), NULL);
}

/* ---- JSON ---- */

static void put_text(struct buf *out, const char *name, const char *value)
{
	buf_printf(out, "\"%s\":", name);
	if (value)
		json_put_cstr(out, value);
	else
		buf_puts(out, "null");
}

static void put_attention(struct buf *out, const struct shape *s)
{
	buf_puts(out, ",\n\"attention\":[");
	for (int g = 0; g < s->n_kv; g++) {
		const struct kv_group *v = &s->kv[g];

		buf_printf(out, "%s{\"layers\":%d,\"heads\":%d,\"dim_k\":%d,\"dim_v\":%d,\"index\":%s,\"window\":",
		           g ? "," : "", v->layers, v->heads, v->dim_k, v->dim_v, v->index ? "true" : "false");
		if (v->window)
			buf_printf(out, "%d}", v->window);
		else
			buf_puts(out, "null}");
	}
	buf_putc(out, ']');
}

static void put_shape(struct buf *out, const struct shape *s)
{
	buf_printf(out, ",\n\"layers\":{\"all\":%d,\"attention\":%d,\"recurrent\":%d,\"experts\":%d}", s->layers,
	           s->layers_attn, s->layers_rec, s->layers_moe);
	buf_printf(out, ",\n\"experts\":{\"all\":%d,\"per_token\":%d}", s->layers_moe ? s->experts : 0,
	           s->layers_moe ? s->experts_used : 0);
	buf_printf(out, ",\n\"width\":%d,\"vocabulary\":%d,\"context\":%d", s->hidden, s->vocab, s->ctx_max);
	put_attention(out, s);
	buf_puts(out, ",\n\"recurrent\":");
	if (s->layers_rec)
		buf_printf(
			out,
			"{\"heads_k\":%d,\"dim_k\":%d,\"heads_v\":%d,\"dim_v\":%d,\"conv_channels\":%d,\"conv_width\":%d}",
			s->state.heads_k, s->state.dim_k, s->state.heads_v, s->state.dim_v, s->state.conv_channels,
			s->state.conv_width);
	else
		buf_puts(out, "null");
}

/* Begins the member of a part that a model may have.  False: it has none, and all is written, why it is refused included. */
static bool put_part(struct buf *out, const char *name, bool there, const struct err *refused)
{
	buf_printf(out, ",\n\"%s\":%s", name, there ? "" : "null");
	if (!there && refused->code) {
		buf_printf(out, ",\"%s_refused\":", name);
		json_put_cstr(out, refused->msg);
	}
	return there;
}

static void put_tower(struct buf *out, const struct inspection *in)
{
	const struct tower_info *t = &in->tower;

	if (!put_part(out, "images", in->sees, &in->no_tower))
		return;
	buf_putc(out, '{');
	put_text(out, "family", t->family);
	buf_printf(out,
	           ",\"blocks\":%d,\"width\":%d,\"heads\":%d,\"patch\":%d,\"merge\":%d,\"both_ways\":%s,"
	           "\"parameters\":%lld,\"bytes\":%lld}",
	           t->depth, t->hidden, t->heads, t->patch, t->merge, t->both_ways ? "true" : "false",
	           (long long)t->params, (long long)t->bytes);
}

static void put_ear(struct buf *out, const struct inspection *in)
{
	const struct ear_info *e = &in->ear;

	if (!put_part(out, "sounds", in->hears, &in->no_ear))
		return;
	buf_putc(out, '{');
	put_text(out, "family", e->family);
	buf_printf(out,
	           ",\"blocks\":%d,\"width\":%d,\"samples\":%d,\"seconds_max\":%d,\"parameters\":%lld,\"bytes\":%lld}",
	           e->depth, e->hidden, e->row_samples, e->seconds_max, (long long)e->params, (long long)e->bytes);
}

static void put_head(struct buf *out, const struct inspection *in)
{
	const struct shape *s = in->head ? &in->head->shape : NULL;

	if (put_part(out, "draft_head", s != NULL, &in->no_head))
		buf_printf(out, "{\"layers\":%d,\"mixtures\":%d,\"parameters\":%lld,\"bytes\":%lld}", s->layers,
		           s->layers_moe, (long long)s->params, (long long)s->weight_bytes);
}

static void put_given_head(struct buf *out, const struct given_head *g)
{
	const struct shape *s = g->m ? &g->m->shape : NULL;

	buf_putc(out, '{');
	put_text(out, "name", g->name);
	buf_putc(out, ',');
	if (!s) {
		put_text(out, "refused", g->refused.msg);
		buf_putc(out, '}');
		return;
	}
	put_text(out, "kind", g->m->ops->arch[0]);
	buf_printf(out, ",\"layers\":%d,\"outputs\":[", s->layers);
	for (int i = 0; i < s->head.n_tap; i++)
		buf_printf(out, "%s%d", i ? "," : "", s->head.tap[i]);
	buf_printf(out, "],\"block\":%d,\"parameters\":%lld,\"bytes\":%lld}", s->head.block ? s->head.guesses : 0,
	           (long long)s->params, (long long)s->weight_bytes);
}

static void put_given(struct buf *out, const struct inspection *in)
{
	if (!in->n_given)
		return;
	buf_puts(out, ",\n\"draft_heads\":[");
	for (int i = 0; i < in->n_given; i++) {
		buf_puts(out, i ? "," : "");
		put_given_head(out, &in->given[i]);
	}
	buf_putc(out, ']');
}

static void put_embedder(struct buf *out, const struct inspection *in)
{
	const struct embedder *e = in->embedder;

	if (!put_part(out, "embedder", e != NULL, &in->no_embedder))
		return;
	buf_printf(out, "{\"gives\":\"%s\",\"numbers\":%d,\"tokens_max\":%d,\"prompts\":%d}", inspection_gives(e),
	           e->out, e->max_tokens ? e->max_tokens : in->model->shape.ctx_max, e->n_prompt);
}

static void put_formats(struct buf *out, const struct inspection *in)
{
	buf_puts(out, ",\n\"formats\":[");
	for (int k = 0; k < in->n_kind; k++) {
		const struct matrix_kind *f = &in->kind[k];

		buf_puts(out, k ? ",{" : "{");
		put_text(out, "name", f->name);
		buf_printf(out, ",\"group\":%d,\"matrices\":%d,\"elements\":%lld,\"bytes\":%zu}", f->group, f->tensors,
		           (long long)f->elements, f->stored);
	}
	buf_printf(out, "],\n\"vectors\":{\"tensors\":%zu,\"bytes\":%zu},\n\"ignored\":[", in->vectors,
	           in->vector_bytes);
	for (int k = 0; k < in->n_ignored; k++) {
		const struct ignored_kind *r = &in->ignored[k];

		buf_puts(out, k ? ",{" : "{");
		put_text(out, "reason", r->why);
		buf_putc(out, ',');
		put_text(out, "first", r->first);
		buf_printf(out, ",\"tensors\":%zu,\"bytes\":%zu}", r->tensors, r->bytes);
	}
	buf_putc(out, ']');
}

static void put_memory(struct buf *out, const struct inspection *in)
{
	const struct memory_plan *p = &in->plan;

	buf_printf(
		out,
		",\n\"memory\":{\"sequences\":%d,\"context\":%d,\"step_tokens\":%d,\"kv_bytes_per_token\":%zu,"
		"\"state_bytes_per_sequence\":%zu,\"weights\":%zu,\"keys_values\":%.0f,\"states\":%.0f,\"step\":%.0f,"
		"\"tables\":%zu,\"together\":%.0f}",
		p->parallel, p->ctx, p->opts.step_rows, p->row, p->state, p->weights, p->kept, p->states, p->step,
		p->tables, p->together);
}

static void put_tensors(struct buf *out, const struct store *st)
{
	buf_puts(out, ",\n\"tensors\":[");
	for (size_t i = 0; i < st->n; i++) {
		const struct tensor *t = st->v[i];

		buf_puts(out, i ? ",\n{" : "\n{");
		put_text(out, "name", t->name);
		buf_putc(out, ',');
		put_text(out, "type", tensor_type_name(t));
		buf_puts(out, ",\"shape\":[");
		for (int d = 0; d < t->n_dim; d++)
			buf_printf(out, "%s%lld", d ? "," : "", (long long)t->dim[d]);
		buf_printf(out, "],\"bytes\":%zu,", t->bytes);
		put_text(out, "ignored", t->used ? NULL : t->ignored);
		buf_putc(out, '}');
	}
	buf_putc(out, ']');
}

void inspection_put_json(const struct inspection *in, bool tensors, struct buf *out)
{
	const struct store *st = in->store;

	buf_puts(out, "{\"object\":\"inspection\",\"version\":1,\n");
	put_text(out, "name", st->name);
	buf_putc(out, ',');
	put_text(out, "path", st->dir);
	buf_puts(out, ",\n");
	put_text(out, "architecture", in->model->arch);
	buf_putc(out, ',');
	put_text(out, "class", inspection_class(st));
	put_shape(out, &in->model->shape);
	put_tower(out, in);
	put_ear(out, in);
	put_head(out, in);
	put_given(out, in);
	put_embedder(out, in);
	buf_printf(out, ",\n\"parameters\":{\"used\":%lld,\"in_files\":%lld}", (long long)in->model->shape.params,
	           (long long)in->elements);
	buf_printf(out, ",\n\"files\":{\"count\":%d,\"bytes\":%zu}", st->n_file, in->file_bytes);
	put_formats(out, in);
	put_memory(out, in);
	if (tensors)
		put_tensors(out, st);
	buf_puts(out, "}\n");
}
