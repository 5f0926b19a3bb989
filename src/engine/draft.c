/* draft.c - the engine's side of speculation: who may draft how much, and what
 * became of it. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/core.h"

/* What other sequences have shown counts as so many drafts of this one's. */
static const double BELIEF = 3;
/* Per draft: some twenty of a sequence's own count, some hundred of all. */
static const double FADE_OWN = 0.95, FADE_ALL = 0.99;
/* Steps until a sequence is drafted for that was not worth it. */
enum { WAIT_FIRST = 64, WAIT_MOST = 512 };
enum { NOBODY = -1 };           /* drafts that need no drafter */

void drafting_init(struct drafting *g, int seqs_max)
{
	size_t n = (size_t)seqs_max;

	memset(g, 0, sizeof(*g));
	g->ask = xcalloc(n, sizeof(*g->ask));
	g->bid = xcalloc(n, sizeof(*g->bid));
	g->of = xcalloc(n, sizeof(struct request *));
	g->asked = xcalloc(n, sizeof(*g->asked));
	g->followed = xcalloc(n, sizeof(*g->followed));
}

void drafting_fini(struct drafting *g)
{
	free(g->ask);
	free(g->bid);
	free(g->of);
	free(g->asked);
	free(g->followed);
}

static struct draft_seq seq_of(const struct engine *e, struct request *r)
{
	return (struct draft_seq){
		.slot = r->slot, .id = r->age + 1, .tok = r->tok, .n_tok = r->n_tok, .pos = r->pos, .n_prompt = r->n_prompt,
		.n_known = r->n_cached, .plan = &r->plan, .salt = r->salt, .now = engine_now(e),
		.secret = r->no_cache, .sampler = &r->sampler, .mask = r->mask,
	};
}

/* The most that r could take: one token less than the answer may still have,
 * because the row of the last draft picks one more; and a position at which the
 * caches are to be looked at is not run past. */
static int room(const struct engine *e, const struct request *r)
{
	int n = r->n_draft_max, left = r->n_prompt + r->out_max - r->n_tok - 1;

	if (n > e->opts.n_draft)
		n = e->opts.n_draft;
	if (r->n_tok - r->pos != 1)
		return 0;
	if (r->resume_at > r->pos && left > r->resume_at - r->pos - 1)
		left = r->resume_at - r->pos - 1;
	return left < n ? left : n;
}

/* Drafts up to the first that cannot be part of the answer. */
static int sound(const struct request *r, const int32_t *draft, int n)
{
	for (int i = 0; i < n; i++) {
		if (draft[i] < 0 || draft[i] >= r->sampler.n_vocab)
			return i;
		for (int k = 0; k < r->n_stop_token; k++)
			if (draft[i] == r->stop_token[k])
				return i;
	}
	return n;
}

static double share_of(const struct engine *e, const struct request *r, int k)
{
	const struct draft_odds *own = &r->tries[k].odds, *all = &e->drafting.odds[k];
	double others = (all->right + 1) / (all->tried + 2);

	return (own->right + BELIEF * others) / (own->tried + BELIEF);
}

/* Who is not drafted for is tried now and then, since things change; not two in
 * one step. */
static bool try_again(struct draft_try *t, struct draft_bid *b, bool tried)
{
	if (!t->wait || b->n) {
		t->wait = WAIT_FIRST;
		t->idle = 0;
	} else if (++t->idle >= t->wait && !tried) {
		b->n = 1;
		t->idle = 0;
		t->wait = t->wait < WAIT_MOST ? 2 * t->wait : WAIT_MOST;
		return true;
	}
	return false;
}

/* Is a drafter that is asked after k expected to be worth more for r alone? */
static bool better_later(const struct engine *e, const struct request *r, int k, int max, const struct draft_deal *deal)
{
	double own = 0;

	for (int i = k; i < e->opts.n_drafter; i++) {
		struct draft_bid bid = { .share = share_of(e, r, i), .max = max };
		struct draft_deal one = *deal;
		double rate;

		one.token_ns = e->drafting.token[i].ns;
		rate = draft_deal(&one, &bid, 1);
		if (i == k)
			own = rate;
		else if (rate > own)
			return true;
	}
	return false;
}

/* How many tokens drafter k is asked for, of each running sequence; bid and ask
 * lie beside each other. */
static int invite(struct engine *e, int k, struct draft_deal *deal)
{
	struct drafting *g = &e->drafting;
	struct sched *s = &e->sched;
	int n = 0, n_ask = 0;
	bool tried = false;

	for (int i = 0; i < s->n_run; i++) {
		struct request *r = s->run[i];
		int max = room(e, r);

		if (max < 1 || r->n_draft)
			continue;
		g->bid[n] = (struct draft_bid){ .share = share_of(e, r, k), .max = max, .n = max };
		if (!e->opts.draft_fixed && better_later(e, r, k, max, deal))
			g->bid[n].max = 0;
		g->ask[n++] = (struct draft_ask){ .seq = seq_of(e, r), .out = r->draft };
	}
	deal->token_ns = g->token[k].ns;
	if (!e->opts.draft_fixed)
		draft_deal(deal, g->bid, n);
	for (int i = 0; i < n; i++) {
		struct request *r = g->of[g->ask[i].seq.slot];

		if (!e->opts.draft_fixed)
			tried |= try_again(&r->tries[k], &g->bid[i], tried);
		if (g->bid[i].n) {
			g->bid[n_ask] = g->bid[i];
			g->ask[n_ask] = g->ask[i];
			g->ask[n_ask].max = g->bid[i].n;
			g->asked[g->ask[i].seq.slot] = g->bid[i].n;
			n_ask++;
		}
	}
	return n_ask;
}

void draft_guess(struct draft_ask *a, float *logits)
{
	struct sampler *s = a->seq.sampler;
	struct mask_source *m = a->seq.mask;
	int32_t token;

	s->mask = m ? m->ops->mask(m) : NULL;
	token = sampler_guess(s, logits, a->seq.n_tok + a->n);
	if (token < 0 || (m && m->ops->whole(m))) {
		a->max = a->n;          /* nothing to go on from */
		return;
	}
	a->out[a->n++] = token;
	if (m) {
		m->ops->accept(m, token);
		a->masked++;
	}
}

/* Drafts up to the first that the mask forbids, or that makes the answer whole. */
static int legal(struct mask_source *m, const struct draft_ask *a)
{
	int n = 0;

	if (a->masked)
		m->ops->rollback(m, a->masked);
	if (!m || a->masked)
		return a->n;
	for (; n < a->n; n++) {
		const uint32_t *mask = m->ops->mask(m);
		uint32_t token = (uint32_t)a->out[n];

		if (mask && !(mask[token / 32] >> token % 32 & 1))
			break;
		m->ops->accept(m, a->out[n]);
		if (m->ops->whole(m)) {
			m->ops->rollback(m, 1);
			break;
		}
	}
	if (n)
		m->ops->rollback(m, n);
	return n;
}

/* Takes what came of it, and counts it to what the step will give and cost. */
static void receive(struct engine *e, int k, int n_ask, struct draft_deal *deal, int64_t ns)
{
	struct drafting *g = &e->drafting;
	int tokens = 0;

	for (int i = 0; i < n_ask; i++) {
		struct request *r = g->of[g->ask[i].seq.slot];
		double gain = 1;

		assert(g->ask[i].n >= 0 && g->ask[i].n <= g->asked[r->slot]);
		tokens += g->ask[i].n;
		if (!g->ask[i].n)
			r->tries[k].idle = r->tries[k].wait;    /* nothing was learned of it: again in the next step */
		g->ask[i].n = sound(r, r->draft, g->ask[i].n);
		r->n_draft = legal(r->mask, &g->ask[i]);
		r->draft_by = k;
		deal->rows += r->n_draft;
		for (int j = 0; j < r->n_draft; j++)
			deal->tokens += gain *= g->bid[i].share;
	}
	deal->ns += (double)ns;
	if (tokens)
		draft_time_learn(&g->token[k], g->cost.now, (double)ns / tokens);
}

void draft_propose(struct engine *e)
{
	struct drafting *g = &e->drafting;
	struct sched *s = &e->sched;
	struct draft_deal deal = { .cost = &g->cost, .rows_max = e->opts.step_rows };
	bool prompts = false;

	for (int i = 0; i < s->n_run; i++) {
		struct request *r = s->run[i];

		int max = room(e, r);

		/* What the answer is made to say is as good as said. */
		r->draft_by = NOBODY;
		r->n_draft = max > 0 ? sound(r, r->draft, lead_ahead(&r->lead, r->draft, max)) : 0;
		g->of[r->slot] = r;
		if (r->n_tok - r->pos == 1)
			deal.rows += 1 + r->n_draft, deal.tokens += 1 + r->n_draft;
		else
			prompts = true;
	}
	if (prompts) {
		deal.step_ns = g->mixed_ns;
		deal.row_ns = e->pace.row_ns;
	}
	if (!deal.rows || (prompts && !e->opts.draft_fixed && (deal.step_ns <= 0 || deal.row_ns <= 0)))
		return;
	for (int k = 0; k < e->opts.n_drafter; k++) {
		struct drafter *d = e->opts.drafter[k];
		int n = invite(e, k, &deal);
		int64_t began;

		if (!n)
			continue;
		began = engine_now(e);
		d->ops->propose(d, g->ask, n);
		receive(e, k, n, &deal, engine_now(e) - began);
	}
}

void draft_timed(struct engine *e, int64_t ns)
{
	struct drafting *g = &e->drafting;

	if (!e->opts.n_drafter)
		return;
	if (!e->batch.n_prompt)
		draft_cost_learn(&g->cost, e->batch.n_row, (double)ns);
	else
		g->mixed_ns += (g->mixed_ns > 0 ? 0.2 : 1) * ((double)ns - g->mixed_ns);
}

void draft_follow(struct engine *e)
{
	struct batch *b = &e->batch;
	int n = 0;

	if (!e->pass.hidden)
		return;
	for (int i = 0; i < b->n_item; i++) {
		struct request *r = b->item[i].req;

		if (r->n_draft_max)
			e->drafting.followed[n++] = (struct draft_run){ .seq = seq_of(e, r), .row = b->item[i].row, .n = b->item[i].keep };
	}
	for (int k = 0; k < e->opts.n_drafter; k++)
		if (e->opts.drafter[k]->ops->follow)
			e->opts.drafter[k]->ops->follow(e->opts.drafter[k], &e->pass, e->drafting.followed, n);
}

void draft_judge(struct engine *e, struct request *r, int drafted, int accepted)
{
	struct engine_drafted *by;
	/* Where the answer ended, nobody knows whether the next draft was right. */
	int wrong = accepted < drafted && !r->ending;

	if (!drafted || r->draft_by == NOBODY)
		return;
	by = &e->stats.drafter[r->draft_by];
	r->n_accepted += accepted;
	r->n_rejected += drafted - accepted;
	by->drafted += drafted;
	by->accepted += accepted;
	by->rounds++;
	draft_odds_learn(&r->tries[r->draft_by].odds, accepted, wrong, FADE_OWN);
	draft_odds_learn(&e->drafting.odds[r->draft_by], accepted, wrong, FADE_ALL);
}

void draft_learn(struct engine *e, struct request *r)
{
	struct draft_seq seq = seq_of(e, r);

	for (int k = 0; k < e->opts.n_drafter; k++)
		if (e->opts.drafter[k]->ops->learn)
			e->opts.drafter[k]->ops->learn(e->opts.drafter[k], &seq);
}

void draft_forget(struct engine *e, int slot)
{
	for (int k = 0; k < e->opts.n_drafter; k++)
		if (e->opts.drafter[k]->ops->forget)
			e->opts.drafter[k]->ops->forget(e->opts.drafter[k], slot);
}
