/* load_draft.c - see load_draft.h. */
#include "cli/load_draft.h"
#include "engine/draft/draft.h"

#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "cli/load.h"
#include "store/store.h"

/* Text of ended sequences that ngram looks into: some megabytes. */
enum { TEXT_MAX = 1 << 18 };

static int same_tokens(const struct drafts *d, const struct model *m, const struct tokenizer *tok, struct err *err)
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

static int bind_other(struct drafts *d, const struct options *o, const struct model *m, const struct tokenizer *tok,
                      struct err *err)
{
	int rc = store_open(&d->store, o->draft_model, err);

	if (rc)
		return err_prefix(err, "--draft-model");
	d->head = model_only_head(d->store);
	if (o->draft_kind != DRAFT_AUTO && d->head != (o->draft_kind == DRAFT_HEAD))
		return err_set(err, E_ARG, "--draft-model %s is a %s, and --draft-kind says %s", o->draft_model,
		               d->head ? "draft head" : "whole model", o->draft_kind == DRAFT_HEAD ? "head" : "model");
	if (d->head)
		return model_bind_head(&d->model, m, d->store, err);
	rc = model_bind(&d->model, d->store, err);
	return rc ? rc : same_tokens(d, m, tok, err);
}

int drafts_bind(struct drafts *d, const struct options *o, const struct model *m, struct store *st,
                const struct tokenizer *tok, struct err *err)
{
	struct err why;
	int rc;

	*d = (struct drafts){ 0 };
	if (o->draft_model && (o->draft_kind == DRAFT_NONE || o->draft_kind == DRAFT_NGRAM))
		return err_set(err, E_ARG, "--draft-model is given, and --draft-kind says to draft without a model");
	if (o->draft_kind == DRAFT_MODEL && !o->draft_model)
		return err_set(err, E_ARG, "--draft-kind model needs --draft-model");
	if (o->draft_kind == DRAFT_NONE || o->draft_kind == DRAFT_NGRAM || !o->n_draft || o->draft_pretend > 0)
		return 0;
	if (o->draft_model)
		return bind_other(d, o, m, tok, err);
	rc = model_bind_head(&d->model, m, st, &why);
	d->head = !rc;
	if (!rc || o->draft_kind != DRAFT_HEAD) {
		if (rc && rc != E_MISSING && rc != E_UNSUPPORTED)
			log_warn("drafting without the model's draft head: %s", why.msg);
		return 0;
	}
	*err = why;
	return rc;
}

int drafts_tokens(const struct options *o)
{
	return o->draft_kind == DRAFT_NONE ? 0 : o->n_draft;
}

size_t drafts_plan(struct drafts *d, const struct options *o, int ctx_max, size_t memory)
{
	size_t prefix = o->prefix_bytes < memory / 8 ? o->prefix_bytes : memory / 8, least;
	const struct shape *s = d->model ? &d->model->shape : NULL;
	struct model_opts mo;
	size_t most, states, given;

	if (!s || !drafts_tokens(o))
		return 0;
	if (ctx_max > s->ctx_max)
		ctx_max = s->ctx_max;
	mo = (struct model_opts){ .kv = model_kv_default(o->arith), .step_rows = step_rows_of(o, s) };
	least = model_pool_bytes(s, &mo, -1, 1);
	most = size_mul((size_t)o->parallel, model_pool_bytes(s, &mo, -1, ctx_max));
	d->kv_bytes = most < memory / 16 ? most : memory / 16;
	if (d->kv_bytes < least)
		d->kv_bytes = least;
	d->prefix_bytes = prefix / 8;
	states = size_mul((size_t)o->parallel + 1, model_snap_bytes(s));
	/* What the model gives in a step, and what waits of it. */
	given = d->head ? size_mul((size_t)mo.step_rows + (size_t)o->parallel * DRAFT_WAITING_MAX,
	                           (size_t)s->carry * sizeof(float)) :
	                  0;
	return d->kv_bytes + d->prefix_bytes + given + 2 * states + (size_t)s->weight_bytes;
}

static int open_model(struct drafts *d, const struct options *o, struct model *m, struct err *err)
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
		rc = draft_head_open(&d->drafter[d->n], d->model, o->parallel, d->prefix_bytes, err);
	else
		rc = draft_model_open(&d->drafter[d->n], d->model, o->parallel, d->prefix_bytes, err);
	d->n += !rc;
	return rc;
}

int drafts_open(struct drafts *d, const struct options *o, struct model *m, struct engine_opts *eo, struct err *err)
{
	int rc = 0;

	if (!drafts_tokens(o))
		return 0;
	if (o->draft_pretend > 0)
		d->drafter[d->n++] = draft_pretend_open();
	else if (o->draft_kind == DRAFT_AUTO || o->draft_kind == DRAFT_NGRAM)
		d->drafter[d->n++] = draft_ngram_open(o->parallel, TEXT_MAX);
	if (d->model)
		rc = open_model(d, o, m, err);
	memcpy(eo->drafter, d->drafter, sizeof(eo->drafter));
	eo->n_drafter = d->n;
	eo->n_draft = d->n ? o->n_draft : 0;
	eo->draft_pretend = o->draft_pretend;
	return rc;
}

void drafts_close(struct drafts *d)
{
	for (int i = 0; i < d->n; i++)
		d->drafter[i]->ops->close(d->drafter[i]);
	model_close(d->model);
	if (d->store)
		store_close(d->store);
	*d = (struct drafts){ 0 };
}
