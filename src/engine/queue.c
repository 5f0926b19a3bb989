/* queue.c - see queue.h. */
#include "engine/queue.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void queue_init(struct queue *q, int n_max, double seconds_max, int slots)
{
	memset(q, 0, sizeof(*q));
	q->n_max = n_max;
	q->seconds_max = seconds_max;
	q->slots = slots;
	q->rates.miss = 1;
}

void queue_fini(struct queue *q)
{
	assert(!q->clients && !q->n && !q->tokens);
}

static struct client **bucket_of(struct queue *q, uint64_t key)
{
	return &q->bucket[(key * 0x9e3779b97f4a7c15) >> 56]; /* 2^64 over the golden ratio: spreads near keys */
}

static struct client *find_waiting(const struct queue *q, uint64_t key)
{
	struct client *c = *bucket_of((struct queue *)q, key);

	while (c && c->key != key)
		c = c->chain;
	return c;
}

static double seconds_of(const struct queue *q, int64_t tokens)
{
	return q->rates.prefill > 0 ? (double)tokens * q->rates.miss / q->rates.prefill : 0;
}

/* Clients are served evenly: of each other one no more goes before a prompt than
 * that client has, nor than this one has itself, the prompt included. */
static double wait_s(const struct queue *q, const struct client *own, int n)
{
	int64_t mine = (own ? own->tokens : 0) + n, tokens = mine;
	int ahead = own ? own->n : 0, n_mine = ahead + 1;
	double prompts, slots = 0;

	for (const struct client *c = q->clients; c; c = c->next) {
		if (c == own)
			continue;
		tokens += c->tokens < mine ? c->tokens : mine;
		ahead += c->n < n_mine ? c->n : n_mine;
	}
	prompts = seconds_of(q, tokens) + (q->rates.prefill > 0 ? (double)q->rates.run_tokens / q->rates.prefill : 0);
	/* Each request ahead, and this one, needs a slot that a running request leaves. */
	if (ahead + 1 > q->slots - q->rates.n_run)
		slots = (double)(ahead + 1 - (q->slots - q->rates.n_run)) * (double)q->rates.hold_ns / 1e9 / q->slots;
	return prompts > slots ? prompts : slots;
}

int64_t queue_wait_ns(const struct queue *q, uint64_t key, int n)
{
	return (int64_t)(wait_s(q, find_waiting(q, key), n) * 1e9);
}

static int refuse(const struct queue *q, enum limit limit, double wait, double retry, struct refusal *why)
{
	enum { RETRY_MAX = 3600 }; /* seconds; an estimate beyond that says only "much later" */

	why->limit = limit;
	why->wait_s = wait;
	why->retry_s = retry < 1 ? 1 : retry > RETRY_MAX ? RETRY_MAX : (int)ceil(retry);
	return limit == LIMIT_DEADLINE ? E_LATE : E_FULL;
}

/* Seconds until the first k of all that wait were started, if each takes as long as the mean. */
static double drained_s(const struct queue *q, int k)
{
	double prompts = seconds_of(q, q->tokens) * k / (q->n ? q->n : 1);
	double slots = (double)k * (double)q->rates.hold_ns / 1e9 / q->slots;

	return prompts > slots ? prompts : slots;
}

/* Seconds that the other clients hold, of each no more than half of all. */
static double others_s(const struct queue *q, const struct client *own)
{
	double s = 0, most = q->seconds_max / 2;

	for (const struct client *c = q->clients; c; c = c->next)
		if (c != own)
			s += seconds_of(q, c->tokens) < most ? seconds_of(q, c->tokens) : most;
	return s;
}

static int judge(const struct queue *q, const struct client *own, int n, int64_t left_ns, struct refusal *why,
                 struct err *err)
{
	double wait = wait_s(q, own, n), all = seconds_of(q, q->tokens), held = own ? seconds_of(q, own->tokens) : 0;
	double others = others_s(q, own);
	int n_own = own ? own->n : 0;

	if (wait * 1e9 > (double)left_ns)
		return err_set(err, refuse(q, LIMIT_DEADLINE, wait, wait, why),
		               "the first token would come in %.3f s and the deadline is in %.3f s", wait,
		               (double)left_ns / 1e9);
	/* A lone prompt may be longer than the queue's seconds: no other request is ahead of it. */
	if (q->n >= q->n_max)
		return err_set(err, refuse(q, LIMIT_COUNT, wait, drained_s(q, 1 + q->n / 8), why),
		               "%d requests are waiting and the queue holds %d", q->n, q->n_max);
	if (own && own->key && n_own >= q->n_max - q->n)
		return err_set(err, refuse(q, LIMIT_SHARE, wait, drained_s(q, 1), why),
		               "%d requests of this client are waiting and its share of the queue is %d", n_own,
		               q->n_max - q->n);
	/* Requests may have been accepted before the rate was known; they count as above. */
	if (own && own->key && n_own && q->seconds_max > 0 && held > q->seconds_max - others - held)
		return err_set(err, refuse(q, LIMIT_SHARE, wait, drained_s(q, 1), why),
		               "%.1f s of this client's prompts are waiting and its share of the queue is %.1f s", held,
		               q->seconds_max - others - held > 0 ? q->seconds_max - others - held : 0);
	if (q->seconds_max > 0 && q->n && others + held + seconds_of(q, n) > q->seconds_max)
		return err_set(err, refuse(q, LIMIT_SECONDS, wait, drained_s(q, 1 + q->n / 8), why),
		               "%.1f s of prompts are waiting and the queue holds %.1f s", all + seconds_of(q, n),
		               q->seconds_max);
	return 0;
}

int queue_enter(struct queue *q, uint64_t key, int n, int64_t left_ns, struct client **out, struct refusal *why,
                struct err *err)
{
	struct client *c = find_waiting(q, key), **bucket = bucket_of(q, key);
	int rc = judge(q, c, n, left_ns, why, err);

	if (rc)
		return rc;
	if (!c) {
		c = try_malloc(sizeof(*c));
		if (!c)
			return err_set(err, E_FULL, "no memory to remember one more client");
		*c = (struct client){ .key = key };
		c->chain = *bucket;
		*bucket = c;
		c->next = q->clients;
		if (c->next)
			c->next->prev = c;
		q->clients = c;
	}
	c->refs++;
	c->n++;
	c->tokens += n;
	q->n++;
	q->tokens += n;
	*out = c;
	return 0;
}

void queue_leave(struct queue *q, struct client *c, int n)
{
	assert(c->n > 0 && c->tokens >= n);
	c->n--;
	c->tokens -= n;
	q->n--;
	q->tokens -= n;
}

void queue_hold(struct queue *q, struct client *c)
{
	c->refs++;
}

void queue_forget(struct queue *q, struct client *c)
{
	struct client **at = bucket_of(q, c->key);

	assert(c->refs > 0);
	if (--c->refs)
		return;
	assert(!c->n && !c->tokens);
	while (*at != c)
		at = &(*at)->chain;
	*at = c->chain;
	*(c->prev ? &c->prev->next : &q->clients) = c->next;
	if (c->next)
		c->next->prev = c->prev;
	free(c);
}
