/* spill_redis_names.h - what spill_redis.c (looks), spill_redis_line.c and spill_redis_write.c share.  For these. */
#ifndef ENGINE_SPILL_REDIS_NAMES_H
#define ENGINE_SPILL_REDIS_NAMES_H

#include "base/redis.h"
#include "engine/prefix/spill_core.h"

enum {
	SPILL_SHARED_NAME = 8 + SPILL_FOLDER + SPILL_NAME,
	SPILL_LEAST_RATE = 16000000, /* bytes a second that a value may take */
	LOOK_BYTES = 1 << 20,        /* more than all short replies of one send */
};

/* weft:FOLDER:NAME */
void spill_shared_name(const struct spill *s, const char *name, char out[SPILL_SHARED_NAME]);
/* KEY.at */
void spill_places_name(const struct digest *key, char out[SPILL_NAME]);
/* As SETBIT counts. */
static inline bool spill_place_is(const uint8_t *at, int bit)
{
	return at[bit / 8] & (0x80 >> (bit % 8));
}

/* With the lock: an operation failed, with the connection; one worked; connects unless it is left alone. */
void spill_line_failed(struct spill *s, struct spill_line *l, const struct err *err);
void spill_line_works(struct spill *s, struct spill_line *l);
bool spill_line_up(struct spill *s, struct spill_line *l);

void *spill_redis_writer(void *arg); /* the thread; arg: the struct spill */

#endif
