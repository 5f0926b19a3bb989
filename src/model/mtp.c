/* mtp.c - see mtp.h. */
#include "model/mtp.h"

#include <stdio.h>

enum { NAME_BYTES = 120 };

const struct mtp_form mtp_behind = { .proj = "eh_proj",
	                             .norm_embed = "enorm",
	                             .norm_given = "hnorm",
	                             .norm = "shared_head.norm",
	                             .embed = "embed_tokens",
	                             .head = "shared_head.head" };

/* A folder with nothing but a head may lack the prefix. */
static const char *const prefix[] = { "mtp.", "model.mtp.", "language_model.mtp.", "", NULL };

/* The name of a tensor of layer i. */
static const char *name_in(const struct mtp_form *f, char out[NAME_BYTES], int i, const char *name)
{
	if (f->outside)
		snprintf(out, NAME_BYTES, "%s", name);
	else
		snprintf(out, NAME_BYTES, "layers.%d.%s", i, name);
	return out;
}

static void find_prefix(struct binder *b, const struct mtp_form *f, int first)
{
	char name[NAME_BYTES], probe[NAME_BYTES + 8];

	name_in(f, name, first, f->proj);
	if (!f->apart) {
		bind_find_prefix(b, name);
		return;
	}
	snprintf(probe, sizeof probe, "%s.weight", name);
	b->prefix = store_prefix(b->st, prefix, probe);
	if (!b->prefix)
		b->code = err_set(b->err, E_MISSING, "%s: no draft head: mtp.%s is not there", b->st->dir, probe);
}

static void set_shape(struct binder *b, const struct model *of, int layers)
{
	struct shape *s = &b->m->shape;

	if (!b->code && (s->hidden != of->shape.hidden || s->vocab != of->shape.vocab))
		b->code = err_set(b->err, E_UNSUPPORTED,
		                  "%s: a draft head for %d dimensions and %d tokens; the model has %d and %d",
		                  b->st->config_path, s->hidden, s->vocab, of->shape.hidden, of->shape.vocab);
	s->layers = layers;
	s->layers_rec = s->layers_moe = 0;
	s->state = (struct state_shape){ 0 };
	s->past = (struct state_shape){ 0 };
	s->carry = shape_residual(s);
	s->head.vocab = s->vocab;
}

static const float *bind_norm(struct binder *b, const struct mtp_form *f, int i, const char *name)
{
	char at[NAME_BYTES];

	return bind_floats(b, b->m->shape.hidden, f->norm_add, "%s.weight", name_in(f, at, i, name));
}

/* A matrix over the vocabulary that a head may have of its own. */
static bool bind_table_of(struct binder *b, const struct mtp_form *f, struct weight *w, int i, const char *name)
{
	char at[NAME_BYTES];

	name_in(f, at, i, name);
	if (!bind_has(b, "%s.weight", at))
		return false;
	bind_weight(b, w, b->m->shape.vocab, b->m->shape.hidden, "%s", at);
	return true;
}

void mtp_bind_own(struct binder *b, struct trunk *t, const struct mtp_form *f, int first, int last)
{
	if (bind_table_of(b, f, &t->embed, first, f->embed)) {
		bind_apart(b, &t->embed);
		bind_rows_only(b, &t->embed);
	}
	bind_table_of(b, f, &t->head, last, f->head);
}

void mtp_begin(struct binder *b, struct trunk *t, const struct model *of, const struct mtp_form *f, int layers)
{
	find_prefix(b, f, f->apart ? 0 : of->shape.layers);
	if (b->code)
		return;
	set_shape(b, of, layers);
	*t = *of->trunk;
}

int mtp_bind(struct binder *b, struct trunk *t, const struct model *of, const struct mtp_form *f, int layers)
{
	struct fuse *fuse = arena_zalloc(&b->m->arena, sizeof *fuse);
	int first = f->apart ? 0 : of->shape.layers, last = first + layers - 1, hidden = of->shape.hidden;
	char at[NAME_BYTES];

	mtp_begin(b, t, of, f, layers);
	if (b->code)
		return first;
	t->fuse = fuse;
	bind_weight(b, &fuse->proj, hidden, 2 * hidden, "%s", name_in(f, at, first, f->proj));
	fuse->norm_embed = bind_norm(b, f, first, f->norm_embed);
	fuse->norm_given = bind_norm(b, f, first, f->norm_given);
	t->norm = bind_norm(b, f, last, f->norm);
	mtp_bind_own(b, t, f, first, last);
	return first;
}

void mtp_ignore_behind(struct binder *b, int n)
{
	int layers = b->m->shape.layers;
	char name[NAME_BYTES];

	for (int i = layers; i < layers + n && !b->code; i++) {
		snprintf(name, sizeof name, "%slayers.%d.", b->prefix, i);
		store_ignore(b->st, name,
		             i == layers ? "draft head: read when it is asked to draft" :
		                           "draft head: of several the first alone is read");
	}
}

void mtp_ignore_apart(struct store *st)
{
	for (int i = 0; *prefix[i]; i++)
		store_ignore(st, prefix[i], "draft head: read when it is asked to draft");
}

int mtp_open(struct model **out, const struct model *of, struct store *st, struct err *err)
{
	static const char *const arch[] = { "mtp", NULL };
	struct model *m = xcalloc(1, of->ops->size);
	struct model_ops *ops;
	int code;

	arena_init(&m->arena);
	arena_init(&m->vectors);
	ops = arena_zalloc(&m->arena, sizeof *ops);
	*ops = (struct model_ops){
		.arch = arch, .size = of->ops->size, .forward = of->ops->forward, .work_floats = of->ops->work_floats
	};
	m->ops = ops;
	m->arch = of->arch; /* as the config is read */
	m->st = st;
	code = of->ops->bind_head(m, of, st, err);
	if (code == E_MISSING && m->shape.carry && err) /* a head is there, and something of it is not */
		code = err->code = E_FORMAT;
	if (code) {
		model_close(m);
		return code;
	}
	*out = m;
	return 0;
}
