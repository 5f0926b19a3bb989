/* queue.h - the requests that were submitted and not started: how much waits,
 * for which client, whether more is taken, how long it would wait.
 *
 * Bounds are by count and by estimated seconds of computing prompts.  A client
 * may hold as much of either as is still free: alone, half; with others, less
 * each. A client with nothing queued is always admitted, until very many are.
 * No more than half of the seconds counts for one client, so a full queue of one
 * client, filled before the rate was known, does not block others.
 *
 * Everything here is under the engine's lock, unless marked otherwise. */
#ifndef ENGINE_QUEUE_H
#define ENGINE_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"

/* A client, while one of its requests is alive. */
struct client {
	uint64_t key;
	int refs;                   /* requests */
	int n;                      /* requests that are not started */
	int64_t tokens;             /* tokens of their prompts */
	struct client *chain;       /* with the same hash */
	struct client *prev, *next; /* all there are */

	/* The engine's thread's: see fair.h. */
	struct request *waiting; /* not running: by falling priority, then age */
	struct client *turn_prev, *turn_next;
	int64_t deficit; /* prompt tokens it may have computed before its turn is over */
	int64_t favour;  /* tokens of short prompts computed before its long ones, less those since */
	bool in_ring, fresh;
	uint64_t shut; /* the round in which none of its may join */
};

/* Rates the estimates rest on, as last measured. */
struct queue_rates {
	double prefill;     /* prompt tokens per second, kept ones not counted; 0: not yet known */
	double miss;        /* share of prompt tokens that had to be computed */
	int64_t hold_ns;    /* a request keeps its slot so long */
	int64_t run_tokens; /* of prompts being computed, still to do */
	int n_run;
};

enum { QUEUE_HASH = 256 }; /* buckets: of the order of a full queue */
struct queue {
	int n_max, slots;
	double seconds_max; /* 0: no such bound */
	int n;
	int64_t tokens;
	struct queue_rates rates;
	struct client *bucket[QUEUE_HASH];
	struct client *clients;
};

void queue_init(struct queue *q, int n_max, double seconds_max, int slots);
void queue_fini(struct queue *q); /* asserts that it is empty */

/* Nanoseconds until a prompt of n tokens of that client would have been computed. */
int64_t queue_wait_ns(const struct queue *q, uint64_t key, int n);
/* Takes in a prompt of n tokens; *out is its client.  E_FULL or E_LATE: *why is
 * filled.  left_ns: until its deadline; INT64_MAX: none. */
int queue_enter(struct queue *q, uint64_t key, int n, int64_t left_ns, struct client **out, struct refusal *why,
                struct err *err);
/* The prompt was started, or ended before. */
void queue_leave(struct queue *q, struct client *c, int n);
/* One more, or one less, that c must stay for. */
void queue_hold(struct queue *q, struct client *c);
void queue_forget(struct queue *q, struct client *c);

#endif
