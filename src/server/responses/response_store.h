/* response_store.h - answers of /v1/responses that later requests may go on from, and conversations.
 *
 * Memory is bounded: when a new one does not fit, those go that were used longest
 * ago.  A client sees only what came with its own key.  Any thread. */
#ifndef SERVER_RESPONSE_STORE_H
#define SERVER_RESPONSE_STORE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct kept_response;

enum { RESPONSE_BUCKETS = 4096 }; /* a quarter of what 64 MiB of short answers are */

struct response_store {
	size_t bytes, bytes_max;
	pthread_mutex_t lock;
	/* Under the lock. */
	struct kept_response *bucket[RESPONSE_BUCKETS];
	struct kept_response *newest, *oldest;
};

void response_store_init(struct response_store *s, size_t bytes_max);
void response_store_fini(struct response_store *s);

/* Parts of a kept response: the object as it is returned again; messages, the conversation that it ends, of one that did not
 * complete none; items, its input; tools, the items with tools of the whole conversation; the events of one in the background.
 * Messages, items and tools are elements of an array, without brackets.
 * Parts of a conversation: the object, and all its items. */
enum kept_part { KEPT_OBJECT, KEPT_MESSAGES, KEPT_ITEMS, KEPT_TOOLS, KEPT_EVENTS, N_KEPT };

/* Keeps copies, in place of what had that id.  Larger than the whole store: not kept. */
void response_store_put(struct response_store *s, const char *id, int key, const struct buf *const part[N_KEPT]);
/* Appends a part of what is kept of id.  False: there is no such thing for
 * this key. */
bool response_store_get(struct response_store *s, const char *id, int key, enum kept_part part, struct buf *out);
/* Appends elements to a part that is an array without brackets.  False: there is no such thing, or it became larger than the whole
 * store and is gone. */
bool response_store_append(struct response_store *s, const char *id, int key, enum kept_part part,
                           const struct buf *more);
/* Puts a part in place of one with the bytes of old.  False: it has others, or is not there. */
bool response_store_replace(struct response_store *s, const char *id, int key, enum kept_part part,
                            const struct buf *old, const struct buf *by);
bool response_store_drop(struct response_store *s, const char *id, int key);

#endif
