/* outbox.h - events on their way from the engine to a request's one reader.
 *
 * The engine puts and never waits; the reader takes, and may wait.  What waits
 * is bounded by the request itself: one START, one PROGRESS (a later one takes
 * the place of an earlier one), max_tokens TOKENs, one DONE.  They are read in
 * that order, which is also the order in which they come to be.  Memory grows
 * only while the reader falls behind: 16 bytes for a token, its text, and 8 for
 * each alternative that was asked for.  For src/engine/ alone. */
#ifndef ENGINE_OUTBOX_H
#define ENGINE_OUTBOX_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "engine/engine.h"

struct outbox {
	pthread_mutex_t lock;
	pthread_cond_t more;
	/* Under the lock. */
	void (*notify)(void *arg); /* NULL once the reader has left */
	void *notify_arg;
	bool left; /* the reader is gone: nothing is kept */
	bool start_waits, progress_waits, done_waits;
	struct event start, progress, done;
	size_t n; /* waiting tokens */
	/* The waiting tokens, from token_head on: for each a struct waiting (outbox.c) and its alternatives. */
	struct buf token;
	size_t token_head;
	struct buf text; /* of the waiting tokens and DONE, from text_head on */
	size_t text_head;
	/* The reader's own. */
	bool over;        /* DONE was taken */
	struct buf taken; /* text of the event it looks at */
};

void outbox_init(struct outbox *o, void (*notify)(void *), void *arg);
void outbox_fini(struct outbox *o);

/* Engine's thread.  Texts are copied.  notify is called when the box was empty,
 * with the box locked: so it never comes after outbox_leave.  Where a fault breaks it
 * off (fault.h) nothing was put. */
void outbox_put(struct outbox *o, const struct event *ev);
/* This much text of the next event can be put without allocating memory. */
void outbox_room(struct outbox *o, size_t n_text);

/* The reader.  1 and *ev, or 0: nothing waits (wait: DONE was taken before). */
int outbox_take(struct outbox *o, struct event *ev, bool wait);
/* The reader is gone: what waits and what comes is dropped. */
void outbox_leave(struct outbox *o);

#endif
