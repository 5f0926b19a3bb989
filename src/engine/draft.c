/* draft.c - the engine's side of speculation: which drafter may draft how
 * much, and what became of it. */
#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "engine/core.h"

/* Weight of other sequences' statistics, in drafts of this sequence. */
static const double BELIEF = 3;
/* Drafts of any sequence, before another drafter is preferred for being better. */
static const double TRIED_MIN = 8;
/* Per draft: some twenty of a sequence's own count, some hundred of all. */
static const double FADE_OWN = 0.95, FADE_ALL = 0.99;
/* Steps until a sequence is drafted for that was not worth it. */
enum { WAIT_FIRST = 64, WAIT_MOST = 512 };
/* Steps until a drafter that was not asked is asked before the others, while little is known of it. */
enum { DARE_FIRST = 8 };
/* Exploration budget: the share of all time that drafts not expected to pay may take, and its most at once, in ns. */
static const double PURSE = 0.01, PURSE_MOST = 1e9;
/* Factor by which an expected gain, which may not come, must exceed its cost. */
static const double SURE = 2;
/* Following a prompt only makes the guesses better: it may take this share of what they save. */
static const double FOLLOW_PART = 0.25;
/* Most tokens that a round leaves for the drafter to catch up with; they are part of a guess's time. */
enum { CAUGHT_EACH = 1 + DRAFT_MAX };
enum { NO_DRAFTER = -1 }; /* of drafts that were given, or of none */
/* Rows of which the price of catching up is learned. */
enum { PRICE_ROWS = 32 };
/* A call that takes HELD_UP times its expected time, and a step's time more, counts as held up by
 * something else; at most one call in PARDON_EACH does, since the expectation may be wrong. */
static const double HELD_UP = 4;
enum { PARDON_EACH = 256 };
static_assert((int)DRAFT_ACCOUNTS >= (int)DRAFTERS_MAX, "an account for each");

void drafting_init(struct drafting *g, int seqs_max, int n_drafter)
{
	size_t n = (size_t)seqs_max;

	memset(g, 0, sizeof(*g));
	g->accounts.n = n_drafter;
	for (int k = 0; k < DRAFTERS_MAX; k++)
		g->pardoned[k] = -PARDON_EACH;
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
		.slot = r->slot,
		.id = r->age + 1,
		.tok = r->tok,
		.n_tok = r->n_tok,
		.pos = r->pos,
		.n_prompt = r->n_prompt,
		.n_known = r->reuse.n_cached,
		.plan = &r->ask.plan,
		.salt = r->ask.salt,
		.now = engine_now(e),
		.secret = r->ask.no_cache,
		.sampler = &r->text.sampler,
		.mask = r->text.mask,
	};
}

/* The most that r could take: one token less than the answer may still have,
 * because the row of the last draft picks one more; and a position at which the
 * caches are to be looked at is not run past. */
static int draft_room(const struct engine *e, const struct request *r)
{
	int n = r->drafts.n_max, left = r->n_prompt + r->ask.out_max - r->n_tok - 1;

	if (n > e->opts.n_draft)
		n = e->opts.n_draft;
	if (r->n_tok - r->pos != 1)
		return 0;
	if (r->ask.resume_at > r->pos && left > r->ask.resume_at - r->pos - 1)
		left = r->ask.resume_at - r->pos - 1;
	if (e->place_block && left > e->place_block - 1 - r->pos % e->place_block)
		left = e->place_block - 1 - r->pos % e->place_block;
	return left < n ? left : n;
}

/* Drafts up to the first that cannot be part of the answer. */
static int sound(const struct request *r, const int32_t *draft, int n)
{
	for (int i = 0; i < n; i++) {
		if (draft[i] < 0 || draft[i] >= r->text.sampler.n_vocab)
			return i;
		for (int k = 0; k < r->ask.n_stop_token; k++)
			if (draft[i] == r->ask.stop_token[k])
				return i;
	}
	return n;
}

/* The next of the tokens that r's answer was expected to be, as long as it was.  Returns their number. */
static int expected(struct request *r, int32_t *out, int max)
{
	int said = r->n_tok - r->n_prompt, n = 0;

	for (; r->drafts.expect.at < said && r->drafts.expect.at < r->drafts.expect.n; r->drafts.expect.at++)
		if (r->tok[r->n_prompt + r->drafts.expect.at] != r->drafts.expect.tok[r->drafts.expect.at])
			r->drafts.expect.n = 0;
	for (; n < max && said + n < r->drafts.expect.n; n++)
		out[n] = r->drafts.expect.tok[said + n];
	return n;
}

/* Drafts that need no drafter: forced tokens, which are always accepted, or those that the answer is expected to be. */
static int given(struct request *r, int32_t *out, int max)
{
	int n = expected(r, out, max);

	return n ? n : lead_ahead(&r->text.lead, out, max);
}

static double belief(const struct draft_odds *own, const struct draft_odds *all)
{
	double others = (all->right + 1) / (all->tried + 2);

	return (own->right + BELIEF * others) / (own->tried + BELIEF);
}

/* Expected number of accepted drafts of drafter k for r. */
static double share_of(const struct engine *e, const struct request_drafts *d, int k)
{
	return belief(&d->tries[k].odds, &e->drafting.odds[k]);
}

/* Measured time of drafter k for one guess, or for one block where it guesses in blocks. */
static double token_ns(const struct engine *e, int k)
{
	return e->drafting.token[k].ns;
}

static void set_price(const struct engine *e, int k, struct draft_deal *d)
{
	bool block = e->opts.drafter[k]->block;

	d->token_ns = block ? 0 : token_ns(e, k);
	d->seq_ns = block ? token_ns(e, k) : 0;
}

/* The number of n guesses for one sequence that take time. */
static int paid_for(const struct engine *e, int k, int n)
{
	return e->opts.drafter[k]->block ? n > 0 : n;
}

/* The most guesses of drafter k at once. */
static int most_of(const struct engine *e, int k, int max)
{
	int block = e->opts.drafter[k]->block;

	return block && block < max ? block : max;
}

/* Guesses to try drafter k with, at most max: one, or all that have one price, where the account covers their rows. */
static int taste(const struct engine *e, int k, int max, const struct draft_deal *one)
{
	int block = most_of(e, k, max);

	return e->opts.drafter[k]->block && draft_longer(one, block) <= e->drafting.accounts.may[k] ? block : 1;
}

/* Retries drafts for a request that has none now and then, since things change; not for two in one
 * step.  A new request goes on waiting where the oldest one is. */
static bool try_again(struct engine *e, int k, struct draft_try *t, struct draft_bid *b, int max,
                      const struct draft_deal *one, bool tried)
{
	struct drafting *g = &e->drafting;
	bool can_try = b->first_ns + draft_longer(one, 1) <= g->accounts.may[k];

	if (!t->wait) {
		t->wait = g->wait[k] ? g->wait[k] : WAIT_FIRST;
		t->idle = g->idle[k];
	}
	if (b->n) {
		t->wait = WAIT_FIRST;
		t->idle = 0;
	} else if (++t->idle >= t->wait && !tried && b->first_ns <= g->purse && can_try) {
		g->purse -= b->first_ns;
		b->n = taste(e, k, max, one);
		t->idle = 0;
		t->wait = t->wait < WAIT_MOST ? 2 * t->wait : WAIT_MOST;
		return true;
	}
	return false;
}

/* Tokens of r that drafter k would compute first, beyond what each round leaves. */
static int behind(struct engine *e, struct request *r, int k)
{
	struct drafter *d = e->opts.drafter[k];
	struct draft_seq seq;
	int n;

	if (!d->ops->behind)
		return 0;
	seq = seq_of(e, r);
	n = d->ops->behind(d, &seq);
	return n > CAUGHT_EACH ? n : 0;
}

static bool has_price(const struct engine *e, int k)
{
	return e->drafting.row[k].n > 0;
}

/* Time that drafter k would take to catch up with r, as it was measured last, however long
 * ago; with the price of some rows, as dear as the model's own, when it never was. */
static double first_ns(struct engine *e, struct request *r, int k)
{
	int n = behind(e, r, k);

	if (has_price(e, k))
		return n * e->drafting.row[k].ns;
	return (n < PRICE_ROWS ? n : PRICE_ROWS) * e->pace.row_ns;
}

/* Tokens per nanosecond of the step, if drafter k drafted for r alone and could lose that much; *saves: what
 * that would save in the rest of the answer. */
static double rate_of(const struct engine *e, const struct request *r, int k, int max, const struct draft_deal *deal,
                      double may_ns, double *saves)
{
	struct draft_bid bid = { .share = share_of(e, &r->drafts, k), .max = most_of(e, k, max) };
	struct draft_deal one = *deal;
	double rate;

	set_price(e, k, &one);
	one.may_ns = may_ns;
	rate = draft_deal(&one, &bid, 1);
	*saves = draft_saves(&one, rate) *
	         draft_more(&e->drafting.lengths, r->n_tok - r->n_prompt, r->n_prompt + r->ask.out_max - r->n_tok);
	return rate;
}

/* The rest of drafter k's loss budget, in ns. */
static double may(const struct engine *e, int k)
{
	return e->opts.draft_fixed ? HUGE_VAL : e->drafting.accounts.may[k];
}

/* Does what k saves pay for its catching up?  Only what it saves on top of the others
 * counts that have nothing to catch up with and guess in some of the steps. */
static bool makes_good(struct engine *e, struct request *r, int k, int max, const struct draft_deal *deal)
{
	double first = first_ns(e, r, k), saves, theirs, beside = 0;

	if (!behind(e, r, k))
		return true;
	if (!has_price(e, k) || first > may(e, k))
		return false;
	rate_of(e, r, k, max, deal, HUGE_VAL, &saves);
	for (int i = 0; i < e->opts.n_drafter; i++) {
		if (i == k || first_ns(e, r, i) > 0)
			continue;
		rate_of(e, r, i, max, deal, HUGE_VAL, &theirs);
		theirs = belief(&r->drafts.tries[i].said, &e->drafting.said[i]) * (theirs < saves ? theirs : saves);
		beside = theirs > beside ? theirs : beside;
	}
	return saves - beside >= SURE * first;
}

/* Has drafter k anything to say of r? */
static bool speaks(const struct engine *e, const struct request *r, int k)
{
	return r->text.mask || !e->opts.drafter[k]->held;
}

/* Is it another drafter that should be asked, or none: one that is asked after k is
 * expected to be worth more for r alone, or k would not make good for catching up? */
static bool better_not(struct engine *e, struct request *r, int k, int max, const struct draft_deal *deal)
{
	double saves, own = rate_of(e, r, k, max, deal, may(e, k), &saves);

	if (r->drafts.dare >= 0)
		return r->drafts.dare != k;
	if (!makes_good(e, r, k, max, deal))
		return true;
	for (int i = k + 1; i < e->opts.n_drafter && e->drafting.odds[k].tried >= TRIED_MIN; i++)
		if (speaks(e, r, i) && rate_of(e, r, i, max, deal, may(e, i), &saves) > own &&
		    makes_good(e, r, i, max, deal))
			return true;
	return false;
}

/* How many tokens drafter k is asked for, of each running sequence; bid and ask
 * are parallel. */
static int invite(struct engine *e, int k, struct draft_deal *deal)
{
	struct drafting *g = &e->drafting;
	struct sched *s = &e->sched;
	int n = 0, n_ask = 0;
	bool tried = false;

	for (int i = 0; i < s->n_run; i++) {
		struct request *r = s->run[i];
		int max = most_of(e, k, draft_room(e, r));

		if (max < 1 || r->drafts.n || r->ending || !speaks(e, r, k))
			continue;
		g->bid[n] = (struct draft_bid){
			.share = share_of(e, &r->drafts, k), .first_ns = first_ns(e, r, k), .max = max, .n = max
		};
		if (!e->opts.draft_fixed && better_not(e, r, k, max, deal))
			g->bid[n].max = 0;
		g->ask[n++] = (struct draft_ask){ .seq = seq_of(e, r), .out = r->drafts.tok };
	}
	set_price(e, k, deal);
	deal->may_ns = may(e, k);
	if (!e->opts.draft_fixed)
		draft_deal(deal, g->bid, n);
	for (int i = 0; i < n; i++) {
		struct request *r = g->of[g->ask[i].seq.slot];

		if (g->bid[i].n && r->drafts.dare != k)
			g->dare[k] = WAIT_FIRST;
		if (!e->opts.draft_fixed && r->drafts.dare == k && !g->bid[i].n)
			g->bid[i].n = taste(e, k, draft_room(e, r), deal);
		else if (!e->opts.draft_fixed && r->drafts.dare < 0)
			tried |= try_again(e, k, &r->drafts.tries[k], &g->bid[i], draft_room(e, r), deal, tried);
		if (!i) {
			g->wait[k] = r->drafts.tries[k].wait;
			g->idle[k] = r->drafts.tries[k].idle;
		}
		if (g->bid[i].n) {
			g->bid[n_ask] = g->bid[i];
			g->ask[n_ask] = g->ask[i];
			g->ask[n_ask].max = g->bid[i].n;
			g->ask[n_ask].most = has_price(e, k) || e->opts.draft_fixed ? INT_MAX : PRICE_ROWS;
			g->asked[g->ask[i].seq.slot] = g->bid[i].n;
			n_ask++;
		}
	}
	return n_ask;
}

bool draft_own(struct draft_ask *a, void (*fn)(void *arg), void *arg)
{
	if (a->broken || !fault_guard(fn, arg)) {
		a->broken = a->broken ? a->broken : fault_code();
		a->max = a->n;
	}
	return !a->broken;
}

struct guess {
	struct draft_ask *a;
	float *logits;
};

static void guess(void *arg)
{
	struct draft_ask *a = ((struct guess *)arg)->a;
	float *logits = ((struct guess *)arg)->logits;
	struct sampler *s = a->seq.sampler;
	struct mask_source *m = a->seq.mask;
	int32_t token;

	s->mask = m ? m->ops->mask(m) : NULL;
	token = sampler_guess(s, logits, a->seq.n_tok + a->n);
	if (token < 0 || (m && m->ops->whole(m))) {
		a->max = a->n; /* nothing to go on from */
		return;
	}
	a->out[a->n++] = token;
	if (m) {
		m->ops->accept(m, token);
		a->masked++;
	}
}

void draft_guess(struct draft_ask *a, float *logits)
{
	draft_own(a, guess, &(struct guess){ a, logits });
}

/* Drafts up to the first that the mask forbids, or that makes the answer whole. */
static void legal(void *arg)
{
	struct draft_ask *a = arg;
	struct mask_source *m = a->seq.mask;
	int n = 0;

	if (a->masked)
		m->ops->rollback(m, a->masked);
	if (!m || a->masked)
		return;
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
	a->n = n;
}

/* Charges drafter k the ns that a call took, which was expected to take `expected`; 0: no expectation. */
static void charge(struct engine *e, int k, int64_t ns, double expected)
{
	struct drafting *g = &e->drafting;
	double most = HELD_UP * expected + g->accounts.step_ns, took = (double)ns;

	g->calls[k]++;
	if (expected > 0 && took > most && g->calls[k] - g->pardoned[k] >= PARDON_EACH) {
		g->pardoned[k] = g->calls[k];
		took = most;
	}
	draft_account_spend(&g->accounts, k, took);
}

/* Expected ns of the drafts that were asked of drafter k. */
static double dues(const struct engine *e, int k, int n_ask)
{
	double ns = 0;

	for (int i = 0; i < n_ask; i++)
		ns += paid_for(e, k, e->drafting.ask[i].n) * token_ns(e, k) +
		      e->drafting.ask[i].caught * e->drafting.row[k].ns;
	return ns;
}

/* Learns that drafter k caught up with `tokens` tokens in ns. */
static void caught_up(struct drafting *g, int k, int tokens, double ns)
{
	draft_time_learn(&g->row[k], g->cost.now, ns / tokens);
}

/* Takes what came of it, and counts it to what the step will give and cost. */
static void receive(struct engine *e, int k, int n_ask, struct draft_deal *deal, int64_t ns)
{
	struct drafting *g = &e->drafting;
	int paid = 0, caught = 0;
	bool late = false;

	for (int i = 0; i < n_ask; i++) {
		struct request *r = g->of[g->ask[i].seq.slot];
		double gain = 1;

		caught += g->ask[i].caught;
		late |= g->ask[i].caught > CAUGHT_EACH;
		assert(g->ask[i].n >= 0 && g->ask[i].n <= g->asked[r->slot]);
		paid += paid_for(e, k, g->ask[i].n);
		draft_odds_learn(&r->drafts.tries[k].said, g->ask[i].n > 0, !g->ask[i].n, FADE_OWN);
		draft_odds_learn(&g->said[k], g->ask[i].n > 0, !g->ask[i].n, FADE_ALL);
		if (!g->ask[i].n && g->ask[i].caught < g->ask[i].most)
			r->drafts.tries[k].idle =
				r->drafts.tries[k].wait; /* nothing was learned of it: again in the next step */
		g->ask[i].n = sound(r, r->drafts.tok, g->ask[i].n);
		if (!draft_own(&g->ask[i], legal, &g->ask[i])) {
			request_break(r, g->ask[i].broken);
			continue;
		}
		r->drafts.n = g->ask[i].n;
		r->drafts.by = k;
		deal->rows += r->drafts.n;
		for (int j = 0; j < r->drafts.n; j++)
			deal->tokens += gain *= g->bid[i].share;
	}
	deal->ns += (double)ns;
	/* A guess that came with much to catch up was not a guess's price; the next one has less before it. */
	if (paid && (late || caught > paid + n_ask)) {
		for (int i = 0; i < n_ask; i++)
			g->of[g->ask[i].seq.slot]->drafts.tries[k].idle =
				g->of[g->ask[i].seq.slot]->drafts.tries[k].wait;
		g->asked_at[k] = g->cost.now - WAIT_MOST;
	}
	if (late)
		caught_up(g, k, caught, (double)ns - paid * token_ns(e, k));
	else if (paid)
		draft_time_learn(&g->token[k], g->cost.now, (double)ns / paid);
}

/* A drafter behind others that always guess would never be measured: now and then one of those is asked first, for one
 * sequence, at growing intervals. */
static void choose_dare(struct engine *e, struct draft_deal *deal)
{
	struct drafting *g = &e->drafting;
	struct sched *s = &e->sched;

	for (int k = 1; k < e->opts.n_drafter && !e->opts.draft_fixed; k++) {
		int after = g->odds[k].tried < TRIED_MIN ? DARE_FIRST : g->dare[k];

		if (g->cost.now - g->asked_at[k] < after || may(e, k) < 0)
			continue;
		set_price(e, k, deal);
		for (int i = 0; i < s->n_run; i++) {
			struct request *r = s->run[i];
			double cost;

			if (draft_room(e, r) < 1 || r->drafts.n || r->ending || !speaks(e, r, k))
				continue;
			cost = token_ns(e, k) + first_ns(e, r, k);
			if (cost > g->purse || cost + draft_longer(deal, 1) > may(e, k))
				continue;
			r->drafts.dare = k;
			g->purse -= cost;
			g->asked_at[k] = g->cost.now;
			g->dare[k] = after < WAIT_FIRST ? WAIT_FIRST : after < WAIT_MOST ? 2 * after : WAIT_MOST;
			return;
		}
	}
}

/* Is it known what the step takes without drafts?  If not, that is measured first. */
static bool measured(const struct engine *e, int rows, const struct draft_deal *deal, bool prompts)
{
	const struct draft_cost *c = &e->drafting.cost;

	if (e->opts.draft_fixed)
		return true;
	if (prompts)
		return deal->step_ns > 0 && deal->row_ns > 0;
	return rows > DRAFT_ROWS_MAX || draft_time_of(&c->step[rows], c->now) > 0;
}

void draft_propose(struct engine *e)
{
	struct drafting *g = &e->drafting;
	struct sched *s = &e->sched;
	struct draft_deal deal = { .cost = &g->cost, .rows_max = e->opts.step_rows };
	bool prompts = false;

	g->round = (struct draft_round){ 0 };
	for (int i = 0; i < s->n_run; i++) {
		struct request *r = s->run[i];

		int max = draft_room(e, r);

		r->drafts.by = NO_DRAFTER;
		r->drafts.dare = NO_DRAFTER;
		r->drafts.n = max > 0 ? sound(r, r->drafts.tok, given(r, r->drafts.tok, max)) : 0;
		g->of[r->slot] = r;
		if (r->n_tok - r->pos == 1)
			deal.rows += 1 + r->drafts.n, deal.tokens += 1 + r->drafts.n;
		else
			prompts = true;
	}
	if (prompts) {
		deal.step_ns = g->mixed_ns;
		deal.row_ns = e->pace.row_ns;
	}
	if (!deal.rows || !measured(e, deal.rows, &deal, prompts))
		return;
	choose_dare(e, &deal);
	for (int k = 0; k < e->opts.n_drafter; k++) {
		struct drafter *d = e->opts.drafter[k];
		int64_t began, asked;
		double expected = token_ns(e, k);
		int n;

		if (may(e, k) < 0)
			continue;
		began = engine_now(e);
		n = invite(e, k, &deal);
		if (n) {
			g->asked_at[k] = g->cost.now;
			asked = engine_now(e);
			d->ops->propose(d, g->ask, n);
			expected += dues(e, k, n);
			receive(e, k, n, &deal, engine_now(e) - asked);
		}
		charge(e, k, engine_now(e) - began, expected);
	}
	for (int i = s->n_run - 1; i >= 0; i--)
		if (s->run[i]->ending)
			engine_finish(e, s->run[i]);
}

/* The step's time without drafts is estimated as its measured time, scaled by the ratio of the
 * learned times for the rows without and with drafts: other load on the machine lengthens both. */
static void settle_accounts(struct engine *e, double ns)
{
	const struct batch *b = &e->step.batch;
	struct draft_round *r = &e->drafting.round;
	const struct draft_cost *c = &e->drafting.cost;
	int drafted = 0, rows = b->n_row - b->n_prompt;
	double one, all;

	for (int k = 0; k < e->opts.n_drafter; k++)
		drafted += r->drafted[k];
	rows -= drafted;
	one = rows ? draft_cost_of(c, rows) : 0;
	r->tokens = rows;
	if (one > 0 && !b->n_prompt) {
		/* More rows take no more than their share of more steps. */
		all = draft_cost_of(c, b->n_row);
		all = all < one * b->n_row / rows ? all : one * b->n_row / rows;
		ns = ns < HELD_UP * all ? ns : HELD_UP * all;
		r->plain_ns = ns * (one < all ? one / all : 1);
		r->step_ns = r->plain_ns;
	} else {
		r->plain_ns = ns - drafted * e->pace.row_ns;
		r->step_ns = one;
	}
	r->ns = ns;
	if (r->plain_ns < 0)
		r->plain_ns = 0;
	draft_account_round(&e->drafting.accounts, r);
}

void draft_timed(struct engine *e, int64_t ns)
{
	struct drafting *g = &e->drafting;

	if (!e->opts.n_drafter)
		return;
	g->purse += PURSE * (double)ns;
	if (g->purse > PURSE_MOST)
		g->purse = PURSE_MOST;
	if (!e->step.batch.n_prompt)
		draft_cost_learn(&g->cost, e->step.batch.n_row, (double)ns);
	else
		g->mixed_ns += (g->mixed_ns > 0 ? 0.2 : 1) * ((double)ns - g->mixed_ns);
	settle_accounts(e, (double)ns);
}

/* Does it pay for drafter k to compute n tokens of r that it may not need? */
static bool pays(const struct engine *e, const struct request *r, int k, int n)
{
	struct draft_deal deal = { .cost = &e->drafting.cost, .rows = 1, .tokens = 1, .rows_max = e->opts.step_rows };
	int left = r->n_prompt + r->ask.out_max - r->n_tok - 1, max = r->drafts.n_max;
	double saves;

	max = max < e->opts.n_draft ? max : e->opts.n_draft;
	max = max < left ? max : left;
	if (max < 1 || !has_price(e, k) || n * e->drafting.row[k].ns > may(e, k))
		return false;
	rate_of(e, r, k, max, &deal, HUGE_VAL, &saves);
	return n * e->drafting.row[k].ns <= FOLLOW_PART * saves;
}

/* Should drafter k compute what it is shown of r? All of a prompt, or nothing. */
static bool follows(const struct engine *e, struct request *r, int k, int n)
{
	struct draft_try *t = &r->drafts.tries[k];

	if (e->opts.draft_fixed)
		return true;
	if (r->pos > r->n_prompt)
		return pays(e, r, k, DRAFT_WAITING_MAX);
	if (!t->follow)
		t->follow = pays(e, r, k, r->n_prompt - (r->pos - n)) ? 1 : -1;
	return t->follow > 0;
}

void draft_follow(struct engine *e)
{
	struct drafting *g = &e->drafting;
	struct batch *b = &e->step.batch;

	for (int k = 0; k < e->opts.n_drafter; k++) {
		struct drafter *d = e->opts.drafter[k];
		int64_t began, took;
		int n = 0, rows;

		/* A drafter whose loss budget is used up does not follow. */
		if (!d->ops->follow || may(e, k) < 0)
			continue;
		began = engine_now(e);
		for (int i = 0; i < b->n_item; i++) {
			struct request *r = b->item[i].req;
			struct draft_run run = { .row = b->item[i].row, .n = b->item[i].keep };

			if (!r->drafts.n_max)
				continue;
			run.seq = seq_of(e, r);
			run.seq.follow = follows(e, r, k, run.n);
			g->followed[n++] = run;
		}
		rows = d->ops->follow(d, &e->step.pass, g->followed, n);
		took = engine_now(e) - began;
		if (rows > CAUGHT_EACH)
			caught_up(g, k, rows, (double)took);
		charge(e, k, took, rows * g->row[k].ns + token_ns(e, k));
	}
}

void draft_judge(struct engine *e, struct request *r, int drafted, int accepted)
{
	struct engine_drafted *by;
	/* Where the answer ended it is unknown whether the next draft was right. */
	int wrong = accepted < drafted && !r->ending;

	if (!drafted || r->drafts.by == NO_DRAFTER)
		return;
	by = &e->stats.drafter[r->drafts.by];
	r->drafts.n_accepted += accepted;
	r->drafts.n_rejected += drafted - accepted;
	by->drafted += drafted;
	by->accepted += accepted;
	by->rounds++;
	e->drafting.round.drafted[r->drafts.by] += drafted;
	e->drafting.round.right[r->drafts.by] += accepted;
	draft_odds_learn(&r->drafts.tries[r->drafts.by].odds, accepted, wrong, FADE_OWN);
	draft_odds_learn(&e->drafting.odds[r->drafts.by], accepted, wrong, FADE_ALL);
}

void draft_learn(struct engine *e, struct request *r)
{
	struct draft_seq seq = seq_of(e, r);

	if (r->n_tok > r->n_prompt)
		draft_length_learn(&e->drafting.lengths, r->n_tok - r->n_prompt);
	for (int k = 0; k < e->opts.n_drafter; k++) {
		int64_t began = engine_now(e);

		if (!e->opts.drafter[k]->ops->learn || may(e, k) < 0)
			continue;
		e->opts.drafter[k]->ops->learn(e->opts.drafter[k], &seq);
		charge(e, k, engine_now(e) - began, token_ns(e, k));
	}
	draft_account_end(&e->drafting.accounts);
}

void draft_forget(struct engine *e, int slot)
{
	for (int k = 0; k < e->opts.n_drafter; k++)
		if (e->opts.drafter[k]->ops->forget)
			e->opts.drafter[k]->ops->forget(e->opts.drafter[k], slot);
}

bool draft_fetches(struct engine *e, struct request *r)
{
	for (int k = 0; k < e->opts.n_drafter && r->drafts.n_max; k++) {
		struct drafter *d = e->opts.drafter[k];
		struct model *m;
		struct prefix *p = d->ops->kept ? d->ops->kept(d, &m) : NULL;
		struct prefix_hit hit;

		if (!p || !p->tier)
			continue;
		prefix_find(p, r->ask.salt, r->tok, r->n_tok, &hit);
		if (p->tier->fetch(p->tier, r->ask.salt, r->tok, r->n_tok, hit.at))
			return true;
	}
	return false;
}

void draft_drop(struct engine *e, const char *salt, const int32_t *tok, int n)
{
	for (int k = 0; k < e->opts.n_drafter; k++) {
		struct drafter *d = e->opts.drafter[k];
		struct model *m;
		struct prefix *p = d->ops->kept ? d->ops->kept(d, &m) : NULL;

		if (p && n)
			prefix_drop_path(p, salt, tok, n);
		else if (p)
			prefix_drop(p, NULL, salt);
	}
}
