/* load_draft.c - see load_draft.h. */
#include "host/load_draft.h"
#include "engine/draft/draft.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "host/load.h"
#include "store/store.h"

/* Text of ended sequences that ngram looks into: some megabytes. */
enum { TEXT_MAX = 1 << 18 };

static int same_tokens(const struct draft_source *d, const struct model *m, const struct tokenizer *tok,
                       struct err *err)
{
	struct tokenizer *own = NULL;
	struct buf json;
	int rc = E_MISSING;

	buf_init(&json);
	if (tok)
		rc = store_document(d->store, "tokenizer.json", &json, err);
	if (rc == E_MISSING) {
		buf_fini(&json);
		if (d->model->shape.vocab == m->shape.vocab)
			return 0;
		return err_set(err, E_UNSUPPORTED,
		               "%s cannot draft: it has %d rows of tokens, the model %d, and there is no "
		               "tokenizer to compare",
		               d->store->name, d->model->shape.vocab, m->shape.vocab);
	}
	if (!rc && tokenizer_open(&own, json.p, json.n, err))
		rc = err_prefix(err, "%s", store_place(d->store, "tokenizer.json"));
	buf_fini(&json);
	if (!rc)
		rc = draft_vocabulary(tok, own, d->store->name, err);
	tokenizer_close(own);
	return rc;
}

/* By which name its drafter is counted. */
static const char *source_name(const struct draft_source *d)
{
	return d->head ? d->model->ops->arch[0] : "model";
}

/* Is there one already that is counted by the name of the newest? */
static const struct draft_source *source_twin(const struct drafts *d)
{
	for (int i = 0; i + 1 < d->n_of; i++)
		if (!strcmp(source_name(&d->of[i]), source_name(&d->of[d->n_of - 1])))
			return &d->of[i];
	return NULL;
}

static int bind_given(struct drafts *ds, const char *name, const struct host_opts *o, const struct model *m,
                      const struct tokenizer *tok, struct err *err)
{
	struct draft_source *d = &ds->of[ds->n_of];
	int rc = store_open(&d->store, name, err);

	if (rc)
		return err_prefix(err, "--draft-model");
	ds->n_of++;
	d->head = model_only_head(d->store);
	if (o->draft.kind != DRAFT_AUTO && d->head != (o->draft.kind == DRAFT_HEAD))
		return err_set(err, E_ARG, "--draft-model %s is a %s, and --draft-kind says %s", name,
		               d->head ? "draft head" : "whole model", o->draft.kind == DRAFT_HEAD ? "head" : "model");
	if (d->head)
		rc = model_bind_head(&d->model, m, d->store, err);
	else
		rc = model_bind(&d->model, d->store, err);
	if (!rc && !d->head)
		rc = same_tokens(d, m, tok, err);
	if (!rc && source_twin(ds))
		return err_set(err, E_ARG, "--draft-model %s and %s: two that draft as %s, and one of a kind can",
		               source_twin(ds)->store->name, d->store->name, source_name(d));
	return rc;
}

/* The model's own draft head, unless there is one of its kind. */
static int bind_own(struct drafts *ds, const struct model *m, struct store *st, struct err *err)
{
	struct draft_source *d = &ds->of[ds->n_of];
	int rc;

	d->uses = store_uses(st);
	rc = model_bind_head(&d->model, m, st, err);
	if (rc) {
		free(d->uses);
		d->uses = NULL;
		return rc;
	}
	d->head = true;
	ds->n_of++;
	if (source_twin(ds))
		drafts_drop_own(ds, st);
	return 0;
}

struct draft_source *drafts_own(struct drafts *d, const struct host_opts *o)
{
	struct draft_source *last = d->n_of ? &d->of[d->n_of - 1] : NULL;

	return last && !last->store && o->draft.kind == DRAFT_AUTO ? last : NULL;
}

void drafts_drop_own(struct drafts *d, struct store *st)
{
	struct draft_source *own = &d->of[--d->n_of];

	model_close(own->model);
	store_uses_end(st, own->uses, true);
	*own = (struct draft_source){ 0 };
}

/* Does the kind leave models and heads out? */
static bool without_models(const struct host_opts *o)
{
	return o->draft.kind == DRAFT_NONE || o->draft.kind == DRAFT_NGRAM || o->draft.kind == DRAFT_GRAMMAR;
}

int drafts_bind(struct drafts *d, const struct host_opts *o, const struct model *m, struct store *st,
                const struct tokenizer *tok, struct err *err)
{
	struct err why;
	int rc = 0;

	*d = (struct drafts){ 0 };
	if (o->draft.model.n && without_models(o))
		return err_set(err, E_ARG, "--draft-model is given, and --draft-kind says to draft without a model");
	if (o->draft.model.n > DRAFT_MODELS_MAX)
		return err_set(err, E_ARG, "--draft-model: %d models, at most %d can draft", o->draft.model.n,
		               DRAFT_MODELS_MAX);
	if (o->draft.kind == DRAFT_MODEL && !o->draft.model.n)
		return err_set(err, E_ARG, "--draft-kind model needs --draft-model");
	if (without_models(o) || !o->draft.n || o->draft.pretend > 0)
		return 0;
	for (int i = 0; i < o->draft.model.n && !rc; i++)
		rc = bind_given(d, o->draft.model.v[i], o, m, tok, err);
	if (rc || o->draft.kind == DRAFT_MODEL || (o->draft.kind == DRAFT_HEAD && d->n_of))
		return rc;
	rc = bind_own(d, m, st, &why);
	if (!rc || o->draft.kind != DRAFT_HEAD) {
		if (rc && rc != E_MISSING)
			log_warn("drafting without the model's draft head: %s", why.msg);
		return 0;
	}
	*err = why;
	return rc;
}

int drafts_tokens(const struct host_opts *o)
{
	return o->draft.kind == DRAFT_NONE ? 0 : o->draft.n;
}

static size_t source_plan(struct draft_source *d, const struct host_opts *o, int ctx_max, size_t memory)
{
	size_t prefix = o->prefix_bytes < memory / 8 ? o->prefix_bytes : memory / 8, least;
	const struct shape *s = &d->model->shape;
	struct model_opts mo;
	size_t most, states, given;

	if (ctx_max > s->ctx_max)
		ctx_max = s->ctx_max;
	mo = (struct model_opts){ .kv = model_kv_default(o->arith), .step_rows = step_rows_of(o, s) };
	least = model_pool_bytes(s, &mo, -1, 1);
	most = size_mul((size_t)o->parallel, model_pool_bytes(s, &mo, -1, ctx_max));
	d->kv_bytes = most < memory / 16 ? most : memory / 16;
	if (d->kv_bytes < least)
		d->kv_bytes = least;
	d->prefix_bytes = s->head.borrows ? 0 : prefix / 8;
	states = size_mul((size_t)o->parallel + 1, model_snap_bytes(s));
	/* Bytes of the model's outputs of a step, and of those that wait for the drafter. */
	given = d->head ? size_mul((size_t)mo.step_rows + (size_t)o->parallel * DRAFT_WAITING_MAX,
	                           (size_t)s->carry * sizeof(float)) :
	                  0;
	return d->kv_bytes + d->prefix_bytes + given + 2 * states + (size_t)s->weight_bytes;
}

size_t drafts_plan(struct drafts *d, const struct host_opts *o, int ctx_max, size_t memory)
{
	size_t all = 0;

	for (int i = 0; i < d->n_of && drafts_tokens(o); i++)
		all += source_plan(&d->of[i], o, ctx_max, memory);
	return all;
}

static int open_source(struct drafts *ds, struct draft_source *d, const struct host_opts *o, struct model *m,
                       struct err *err)
{
	const struct shape *s = &d->model->shape;
	struct model_opts mo = {
		.arith = m->opts.arith,
		.slots = o->parallel,
		.kv_bytes = d->kv_bytes,
		.ctx_max = m->opts.ctx_max < s->ctx_max ? m->opts.ctx_max : s->ctx_max,
		.step_rows = draft_head_rows(s, o->parallel),
		.snap_bytes = d->prefix_bytes + size_mul((size_t)o->parallel + 1, model_snap_bytes(s)),
	};
	int rc;

	if (mo.step_rows < m->opts.step_rows)
		mo.step_rows = m->opts.step_rows;
	rc = model_attach(d->model, m->be, &mo, err);
	if (rc)
		return err_prefix(err, "drafting");
	if (d->head)
		rc = draft_head_open(&d->drafter, d->model, o->parallel, d->prefix_bytes, err);
	else
		rc = draft_model_open(&d->drafter, d->model, o->parallel, d->prefix_bytes, err);
	if (!rc)
		ds->drafter[ds->n++] = d->drafter;
	return rc;
}

/* Drafters that guess only sometimes come before those that always do, since the first that guesses is asked. */
int drafts_open(struct drafts *d, const struct host_opts *o, struct model *m, const struct tokenizer *tok,
                struct engine_opts *eo, struct err *err)
{
	int rc = 0;

	static_assert(2 + DRAFT_SOURCES_MAX <= DRAFTERS_MAX, "a place for each");
	if (!drafts_tokens(o))
		return 0;
	if (o->draft.pretend > 0)
		d->drafter[d->n++] = draft_pretend_open();
	else if (tok && (o->draft.kind == DRAFT_AUTO || o->draft.kind == DRAFT_GRAMMAR))
		d->drafter[d->n++] = draft_grammar_open(tok, o->parallel);
	if (o->draft.pretend <= 0 && (o->draft.kind == DRAFT_AUTO || o->draft.kind == DRAFT_NGRAM))
		d->drafter[d->n++] = draft_ngram_open(o->parallel, TEXT_MAX);
	for (int i = 0; i < d->n_of && !rc; i++)
		rc = open_source(d, &d->of[i], o, m, err);
	memcpy(eo->drafter, d->drafter, sizeof(eo->drafter));
	eo->n_drafter = d->n;
	eo->n_draft = d->n ? o->draft.n : 0;
	eo->draft_pretend = o->draft.pretend;
	return rc;
}

void drafts_close(struct drafts *d)
{
	for (int i = 0; i < d->n; i++)
		d->drafter[i]->ops->close(d->drafter[i]);
	for (int i = 0; i < d->n_of; i++) {
		model_close(d->of[i].model);
		free(d->of[i].uses);
		if (d->of[i].store)
			store_close(d->of[i].store);
	}
	*d = (struct drafts){ 0 };
}
