/* fair.c - see fair.h. */
#include "engine/fair.h"

#include <assert.h>

#include "engine/core.h"

/* ---- the ring ---- */

/* Length of the prompt that c begins with, up to FAIR_FAVOUR: longer ones make no difference to the order. */
static int first_of(const struct client *c)
{
	return c->waiting && c->waiting->n_prompt < FAIR_FAVOUR ? c->waiting->n_prompt : FAIR_FAVOUR;
}

/* Puts c into the ring: new clients come first, those with shorter prompts before the others. */
static void ring_put(struct fair *f, struct client *c)
{
	struct client *after = c->fresh ? NULL : f->last;

	for (struct client *k = f->first; c->fresh && k && k->fresh && first_of(k) <= first_of(c); k = k->turn_next)
		after = k;
	c->turn_prev = after;
	c->turn_next = after ? after->turn_next : f->first;
	*(c->turn_prev ? &c->turn_prev->turn_next : &f->first) = c;
	*(c->turn_next ? &c->turn_next->turn_prev : &f->last) = c;
}

static void ring_take(struct fair *f, struct client *c)
{
	*(c->turn_prev ? &c->turn_prev->turn_next : &f->first) = c->turn_next;
	*(c->turn_next ? &c->turn_next->turn_prev : &f->last) = c->turn_prev;
}

static void join(struct engine *e, struct client *c)
{
	struct fair *f = &e->sched.fair;

	if (c->in_ring)
		return;
	c->in_ring = true;
	c->deficit = FAIR_QUANTUM;
	c->fresh = f->favour < FAIR_FAVOUR;
	if (c->fresh && first_of(c) > FAIR_QUANTUM && first_of(c) < FAIR_FAVOUR)
		c->deficit = first_of(c);
	ring_put(f, c);
	engine_client_hold(e, c);
}

static void leave(struct engine *e, struct client *c)
{
	ring_take(&e->sched.fair, c);
	c->in_ring = false;
	engine_client_forget(e, c);
}

/* c's turn is over, or passes: what it owes it has paid back by one quantum. */
static void to_the_end(struct fair *f, struct client *c)
{
	c->deficit += FAIR_QUANTUM;
	if (c->deficit > FAIR_QUANTUM)
		c->deficit = FAIR_QUANTUM;
	c->fresh = false;
	ring_take(f, c);
	ring_put(f, c);
}

void fair_fini(struct engine *e)
{
	while (e->sched.fair.first)
		leave(e, e->sched.fair.first);
}

/* ---- clients that wait ---- */

void fair_wait(struct engine *e, struct request *r)
{
	struct fair *f = &e->sched.fair;
	struct request **at = &r->client->waiting;

	while (*at && ((*at)->ask.priority > r->ask.priority ||
	               ((*at)->ask.priority == r->ask.priority && (*at)->age < r->age)))
		at = &(*at)->next;
	r->next = *at;
	*at = r;
	f->n_waiting++;
	f->n_started += r->sched.started;
	f->n_ranked += r->ask.priority != 0;
	join(e, r->client);
}

void fair_unwait(struct fair *f, struct request *r)
{
	struct request **at = &r->client->waiting;

	while (*at != r) {
		assert(*at);
		at = &(*at)->next;
	}
	*at = r->next;
	r->next = NULL;
	f->n_waiting--;
	f->n_started -= r->sched.started;
	f->n_ranked -= r->ask.priority != 0;
}

struct request *fair_each(struct fair *f, struct request *r)
{
	struct client *c = r ? r->client->turn_next : f->first;

	if (r && r->next)
		return r->next;
	while (c && !c->waiting)
		c = c->turn_next;
	return c ? c->waiting : NULL;
}

/* ---- the next client ---- */

static int64_t rank(const struct request *r, int64_t now, int64_t top)
{
	int64_t at = r->ask.priority + (now - r->t_submit) / FAIR_RISE_NS;

	return at < top ? at : top;
}

static bool computes(const struct sched *s, const struct request *r)
{
	return r->sched.skip != s->round && r->n_tok - r->pos > 1;
}

static bool is_short(const struct request *r)
{
	return r->n_tok - r->pos <= FAIR_QUANTUM;
}

/* The best request met so far and the best short one; of equal rank the first. */
struct candidates {
	struct request *best, *quick;
	int64_t at, quick_at; /* their ranks */
};

static void consider(struct candidates *c, struct request *r, int64_t at)
{
	if (!c->best || at > c->at) {
		c->best = r;
		c->at = at;
	}
	if (is_short(r) && (!c->quick || at > c->quick_at)) {
		c->quick = r;
		c->quick_at = at;
	}
}

/* The best of a client's, and its rank: of the highest rank the first, those that run
 * before those that wait; but a short one before a long one, within bounds. */
static struct request *best_of(struct engine *e, const struct client *c, bool waiting, int64_t now, int64_t top,
                               int64_t *its)
{
	struct sched *s = &e->sched;
	struct candidates met = { 0 };

	for (int i = 0; i < s->n_run; i++)
		if (s->run[i]->client == c && computes(s, s->run[i]))
			consider(&met, s->run[i], rank(s->run[i], now, top));
	/* The list is by priority: its head is best unless others have waited longer. */
	for (struct request *r = c->waiting; r && waiting && c->shut != s->round; r = r->next) {
		if (r->sched.skip == s->round)
			continue;
		consider(&met, r, rank(r, now, top));
		if (!s->fair.n_ranked && met.quick)
			break;
	}
	if (!met.best)
		return NULL;
	*its = met.at;
	return met.quick && !is_short(met.best) && met.quick_at == met.at && c->favour < FAIR_FAVOUR ? met.quick :
	                                                                                               met.best;
}

/* r's client has a long prompt that r went before. */
static bool passes(const struct sched *s, const struct request *r)
{
	if (!is_short(r))
		return false;
	for (int i = 0; i < s->n_run; i++)
		if (s->run[i]->client == r->client && !is_short(s->run[i]))
			return true;
	for (const struct request *w = r->client->waiting; w; w = w->next)
		if (!is_short(w) && w->age < r->age)
			return true;
	return false;
}

/* The highest priority anyone asks for. */
static int64_t top_of(struct engine *e, bool waiting)
{
	struct sched *s = &e->sched;
	int64_t top = INT64_MIN;

	for (int i = 0; i < s->n_run; i++)
		if (s->run[i]->ask.priority > top && computes(s, s->run[i]))
			top = s->run[i]->ask.priority;
	for (struct client *c = s->fair.first; c && waiting; c = c->turn_next)
		if (c->waiting && c->shut != s->round && c->waiting->ask.priority > top)
			top = c->waiting->ask.priority;
	return top;
}

static bool has_prompt(const struct sched *s, const struct client *c)
{
	for (int i = 0; i < s->n_run; i++)
		if (s->run[i]->client == c && s->run[i]->n_tok - s->run[i]->pos > 1)
			return true;
	return c->waiting;
}

struct request *fair_next(struct engine *e, bool waiting)
{
	struct fair *f = &e->sched.fair;
	int64_t now = engine_now(e), top = top_of(e, waiting), best = INT64_MIN, its = 0;
	struct client *next;
	struct request *r;

	for (struct client *c = f->first; c; c = next) {
		next = c->turn_next;
		if (best_of(e, c, waiting, now, top, &its)) {
			best = its > best ? its : best;
			if (best == top)
				break;
		}
	}
	if (best == INT64_MIN) {
		/* When no client is to be served, all clients without work have had their turn. */
		for (struct client *c = f->first; c; c = next) {
			next = c->turn_next;
			if (!has_prompt(&e->sched, c))
				leave(e, c);
		}
		return NULL;
	}
	/* Among those at that rank, the first with something left of its quantum. A
	 * client that owes more than a quantum misses its turn. */
	for (struct client *c = f->first;; c = next) {
		next = c->turn_next;
		r = best_of(e, c, waiting, now, top, &its);
		if (r && its == best) {
			if (c->deficit > 0)
				return r;
			to_the_end(f, c);
		} else if (!r && !has_prompt(&e->sched, c)) {
			if (c->fresh)
				to_the_end(f, c);
			else
				leave(e, c);
		}
		if (!next)
			next = f->first;
	}
}

void fair_charge(struct engine *e, struct request *r, int n)
{
	struct fair *f = &e->sched.fair;
	struct client *c = r->client;

	if (passes(&e->sched, r))
		c->favour += n;
	else
		c->favour -= c->favour < n ? c->favour : n;
	if (!c->in_ring)
		return; /* it has nothing more to compute */
	if (c->fresh)
		f->favour += f->first != f->last ? n : 0;
	else if (f->favour > 0)
		f->favour -= f->favour < n ? f->favour : n;
	c->deficit -= n;
	if (c->deficit <= 0)
		to_the_end(f, c);
}
