/* response_keep.h - what is kept of responses, and responses in the background.
 *
 * A response in the background is the work of an exchange without a connection (exchange_detach).  Its events, if it was asked
 * for as a stream, are kept from the first on; any number of followers read them, the client that asked among them.  Their bytes
 * together are at most those of the response store; the events of one that has no room are dropped, not the response.  Once it
 * is over it is in the store like any other.
 *
 * IO thread. */
#ifndef SERVER_RESPONSE_KEEP_H
#define SERVER_RESPONSE_KEEP_H

#include <stdbool.h>
#include <stddef.h>

struct background;
struct buf;
struct exchange;
struct generation;
struct problem;

/* Those of a server. */
struct backgrounds {
	struct background *first; /* those that run */
	int n;
	size_t bytes; /* of the events of those that run, and of those that are still followed */
};

enum { BACKGROUND_MAX = 64 }; /* that run or wait at once, of all clients */

/* Steps of struct endpoint, for responses. */
void background_ready(struct exchange *x);
void background_drop(struct exchange *x);
void background_events(struct generation *g, const char *p, size_t n);
void background_failed(struct generation *g, const struct problem *p);

/* The response of that id and key that runs in the background, or NULL. */
struct background *background_find(const struct backgrounds *all, const char *id, int key);
/* Appends it as it is now. */
void background_put(const struct background *b, struct buf *out);
/* Whether its events are kept. */
bool background_streams(const struct background *b);

/* x tells the events of b after the first n, and goes on until there are no more: steps of its endpoint. */
void background_follow(struct exchange *x, struct background *b, size_t n);
void follower_wake(struct exchange *x);
void follower_drop(struct exchange *x);

/* Where the events after the first *n begin in p[0..len); *n becomes how many of those are missing. */
size_t events_after(const char *p, size_t len, size_t *n);

#endif
