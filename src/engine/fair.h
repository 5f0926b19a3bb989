/* fair.h - whose prompt is computed next.
 *
 * Clients with prompts to compute form a ring and are served in turn, a
 * quantum of prompt tokens each: deficit round robin.  New clients go first,
 * the shortest prompt before the others, so that it does not wait for a
 * round of long ones.  That is
 * bounded: beyond FAIR_FAVOUR tokens new clients get no more than all the others
 * do, and a client that has nothing more to compute stays in the ring until
 * its turn comes, so coming and going gains nothing.  The oldest of a client's own prompts is computed
 * first, but one of at most a quantum before a longer one, with the same bound.
 *
 * Among all these the highest priority goes first.  A request rises by one for
 * every FAIR_RISE_NS that it waits, up to the highest there is, so none starves.
 *
 * Engine's thread. */
#ifndef ENGINE_FAIR_H
#define ENGINE_FAIR_H

#include <stdbool.h>
#include <stdint.h>

struct engine;
struct request;
struct client;

/* A quantum holds most messages of a conversation; a longer prompt takes turns. */
enum { FAIR_QUANTUM = 512, FAIR_FAVOUR = 4 * FAIR_QUANTUM };
#define FAIR_RISE_NS 5000000000 /* 5 s: what a person waits before wondering */

struct fair {
	struct client *first, *last; /* the ring, from where it is served */
	int n_waiting;               /* requests in the clients' lists */
	int n_started;               /* requests in the lists that were running before */
	int n_ranked;                /* requests among them whose priority is not the default, 0 */
	int64_t favour; /* prompt tokens that newcomers had before their turn, less what others had since */
};

/* r waits, as its client's list has it: by priority, then age. */
void fair_wait(struct engine *e, struct request *r);
/* r waits no longer. */
void fair_unwait(struct fair *f, struct request *r);
/* The next request: a running one that has a prompt to compute, or (waiting) one that
 * waits; never one that this round skips, or whose client it shuts out.  NULL: none. */
struct request *fair_next(struct engine *e, bool waiting);
/* n tokens of r's prompt are being computed. */
void fair_charge(struct engine *e, struct request *r, int n);
/* The next one that waits, of all, in no order; NULL to begin.  r itself may be
 * taken out before the next call if next was called before that. */
struct request *fair_each(struct fair *f, struct request *r);
/* Lets go of clients that nothing is left of. */
void fair_fini(struct engine *e);

#endif
