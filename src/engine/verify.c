/* verify.c - from logits to tokens, from tokens to text, and the end of an answer. */
#include <string.h>

#include "base/rng.h"
#include "engine/core.h"

enum { PRETEND = 0x70726574 }; /* seed of which drafts are taken for right, when asked to pretend */

void verify_end(struct request *r, enum finish why)
{
	r->ending = true;
	r->finish = why;
}

static bool is_stop_token(const struct request_ask *a, int32_t token)
{
	for (int i = 0; i < a->n_stop_token; i++)
		if (a->stop_token[i] == token)
			return true;
	return false;
}

/* The answer's tokens whose text lies wholly before byte `end` of it. */
static int tokens_until(const struct request *r, uint32_t end)
{
	int n = 0, n_out = r->n_tok - r->n_prompt;

	while (n < n_out && r->text.end[n] <= end)
		n++;
	return n;
}

/* The text that the newest token makes certain, in r->text.shown.  stops: stop strings end the answer here; they do in what
 * the model says for its answer, not in thoughts nor in tokens that it was given. */
static void show_text(struct request *r, int32_t token, bool stops)
{
	struct request_text *t = &r->text;

	buf_reset(&t->piece);
	buf_reset(&t->shown);
	if (!t->is_made)
		return;
	detok_put(&t->detok, token, &t->piece);
	t->n += (uint32_t)t->piece.n;
	if (t->n_stop)
		t->end[r->n_tok - 1 - r->n_prompt] = t->n + (uint32_t)t->detok.n_held;
	if (!stops) {
		buf_put(&t->shown, t->piece.p, t->piece.n);
	} else if (stops_put(&t->stops, t->piece.p, t->piece.n, &t->shown)) {
		verify_end(r, FINISH_STOP);
		r->stop_text = t->stop[t->stops.hit];
		r->end_pos = r->n_prompt + tokens_until(r, t->n_out + (uint32_t)t->shown.n);
	}
	t->n_out += (uint32_t)t->shown.n;
}

void verify_flush(struct request *r, struct event *ev)
{
	struct request_text *t = &r->text;

	buf_reset(&t->shown);
	if (t->is_made && !r->stop_text && (r->finish == FINISH_STOP || r->finish == FINISH_LENGTH)) {
		buf_reset(&t->piece);
		detok_flush(&t->detok, &t->piece);
		if (stops_put(&t->stops, t->piece.p, t->piece.n, &t->shown))
			r->stop_text = t->stop[t->stops.hit];
		else
			stops_flush(&t->stops, &t->shown);
	}
	ev->text = t->shown.p;
	ev->n_text = t->shown.n;
}

static void take_token(struct engine *e, struct request *r, const struct pick *pick)
{
	struct request_text *t = &r->text;
	struct event ev = { .kind = EV_TOKEN, .token = pick->token, .pick = *pick };
	bool given = lead_next(&t->lead) >= 0, free_text = !given && !lead_thinks(&t->lead);

	if (!r->t_first)
		r->t_first = engine_now(e);
	if (!given && is_stop_token(&r->ask, pick->token)) {
		verify_end(r, FINISH_STOP);
		return;
	}
	if (r->n_tok >= r->n_prompt + r->ask.out_max) {
		/* A fault of ours, but in this request's books alone: the others go on. */
		err_set(&r->err, E_LIMIT, "token %d of an answer of at most %d", r->n_tok - r->n_prompt,
		        r->ask.out_max);
		verify_end(r, FINISH_ERROR);
		return;
	}
	r->tok[r->n_tok++] = pick->token;
	sampler_accept(&t->sampler, pick->token);
	lead_take(&t->lead, pick->token);
	if (t->mask)
		t->mask->ops->accept(t->mask, pick->token);
	show_text(r, pick->token, free_text);
	if (!r->ending && t->mask && t->mask->ops->whole(t->mask))
		verify_end(r, FINISH_STOP);
	if (!r->ending && r->n_tok == r->n_prompt + r->ask.out_max)
		verify_end(r, FINISH_LENGTH);
	ev.text = t->shown.p;
	ev.n_text = t->shown.n;
	outbox_put(&r->out, &ev);
	e->stats.output_tokens++;
}

/* The next token, whose place is pos: the one that the answer is made to say, or
 * the sampler's.  row is its scratch. */
static int pick_token(struct step *s, struct request *r, float *row, int pos, struct pick *pick)
{
	struct request_text *t = &r->text;
	int32_t given = lead_next(&t->lead);
	const uint32_t *mask = t->sampler.mask;
	int rc;

	if (given < 0)
		return sampler_pick(&t->sampler, row, pos, pick, &r->err);
	s->only[given / 32] = 1u << given % 32;
	t->sampler.mask = s->only;
	rc = sampler_pick(&t->sampler, row, pos, pick, &r->err);
	t->sampler.mask = mask;
	s->only[given / 32] = 0;
	return rc;
}

struct look {
	struct engine *e;
	struct batch_item *it;
	int i;      /* a row of the item's, of those with logits */
	float *row; /* [vocab] the row's logits, which the look may change */
};

/* Shows one row's logits to on_logits, and picks the next token if they are of the answer's last
 * token. */
static void look(void *arg)
{
	const struct look *l = arg;
	struct engine *e = l->e;
	struct request *r = l->it->req;
	int row = e->step.batch.logit_row[l->it->logit + l->i], pos = e->step.batch.pos[row];
	struct pick pick;

	if (r->ask.on_logits && pos >= r->reported) {
		r->ask.on_logits(r->ask.on_logits_arg, pos, l->row, e->m->shape.vocab);
		r->reported = pos + 1;
	}
	if (pos != r->n_tok - 1 || !r->ask.out_max)
		return;
	if (r->text.mask)
		r->text.sampler.mask = r->text.mask->ops->mask(r->text.mask);
	/* The new token's place is pos + 1. */
	if (pick_token(&e->step, r, l->row, pos + 1, &pick)) {
		verify_end(r, FINISH_ERROR);
		return;
	}
	if (l->i + 1 < l->it->n_logit && rng_uniform(PRETEND, r->age, (uint64_t)pos) < e->opts.draft_pretend)
		pick.token = e->step.batch.tok[row + 1];
	take_token(e, r, &pick);
}

int verify(struct engine *e, struct batch_item *it)
{
	struct request *r = it->req;
	const struct span *span = &e->step.batch.span[it - e->step.batch.item];
	size_t vocab = (size_t)e->m->shape.vocab;
	int keep = span->n - span->n_draft;

	if (r->n_tok == r->n_prompt && span->pos + keep > r->progress) {
		r->progress = span->pos + keep;
		outbox_put(&r->out, &(struct event){ .kind = EV_PROGRESS,
		                                     .cached = r->reuse.n_cached,
		                                     .done = r->progress,
		                                     .total = r->n_prompt });
	}
	for (int i = 0; i < it->n_logit; i++) {
		int row = e->step.batch.logit_row[it->logit + i], pos = e->step.batch.pos[row], n_tok = r->n_tok;
		float *logits;

		if (r->ending || pos >= r->n_tok ||
		    (e->step.batch.tok[row] >= 0 && e->step.batch.tok[row] != r->tok[pos]))
			break; /* a draft that is not part of the answer, and what follows it */
		if (pos - span->pos >= keep)
			keep = pos - span->pos + 1;
		logits = e->step.logits + (size_t)(it->logit + i) * vocab;
		if (request_guard(r, look, &(struct look){ e, it, i, logits }))
			continue;
		/* Undoes the look at the row; all requests share the scratch. */
		r->n_tok = n_tok;
		memset(e->step.only, 0, (vocab / 32 + 1) * sizeof(*e->step.only));
	}
	return keep;
}
