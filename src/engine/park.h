/* park.h - swap space for preempted sequences.
 *
 * In place it keeps its pages by reference and costs a copy of its recurrent
 * state: the way for one that gives up its slot alone.  Moved out, pages and
 * state are bytes on the heap, within engine_opts.park_bytes.  Where neither can
 * be had the tokens remain, and are computed again.  Bits are the same in each
 * case (the law of the row).
 *
 * Engine's thread. */
#ifndef ENGINE_PARK_H
#define ENGINE_PARK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/cache.h"

struct engine;
struct request;

struct park {
	int pos;            /* 0: nothing is kept */
	struct snaps snaps; /* in place; n 0: moved out */
	uint8_t *bytes;
	size_t n_bytes;
};

/* Keeps what r's slot holds, at r->pos; the slot stays as it is.  false: it could not be. */
bool park_keep(struct engine *e, struct request *r);
/* Moves out what is kept in place, or drops it: its pages are given back. */
void park_out(struct engine *e, struct request *r);
/* Moves out what the youngest of the preempted requests keeps in place.  false: none keeps anything in place. */
bool park_any_out(struct engine *e);
/* Hands over what was kept, moved in again if need be.  false: there was nothing, or
 * memory is short; nothing is kept then. */
bool park_take(struct engine *e, struct request *r, struct snaps *out);
/* Restores into r's slot, which is closed, and lets go of what was kept; the
 * position, or 0 when nothing was or memory is short. */
int park_restore(struct engine *e, struct request *r);
void park_drop(struct engine *e, struct request *r);

#endif
