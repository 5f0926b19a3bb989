/* spans.h - ids for the rows of a prompt that bring their own vectors.
 *
 * Kept prefixes are found by comparing ids.  All rows of a span get one id, below 0, that no other span ever has: two
 * runs of rows with equal ids bring equal vectors, since an id is looked up by the whole digest of media object, part
 * and kind of rows.  Ids are this process's own; what must outlive it (disk) asks for the digest.
 *
 * The table is bounded.  A span that was forgotten gets a new id, so what was kept under the old one is not found
 * again; it is never taken for another.
 *
 * Any thread. */
#ifndef ENGINE_SPANS_H
#define ENGINE_SPANS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/digest.h"
#include "model/media.h"

struct span_ids {
	pthread_mutex_t lock;
	struct span_entry *entry; /* [n] by falling id */
	int32_t *head;            /* [1 << bits] first entry of a hash; -1: none */
	int n, cap, most, bits;
	int32_t last; /* the last id that was given */
	uint64_t clock;
};

/* most: spans that are remembered. */
void span_ids_init(struct span_ids *s, int most);
void span_ids_fini(struct span_ids *s);

/* The id of rows [from, from + n) of m.  0: all ids are used up, which takes 2^31 spans; such rows can be computed and
 * not be kept. */
int32_t span_id(struct span_ids *s, const struct media *m, int from, int n);
/* The digest that the id stands for; false: it was forgotten. */
bool span_digest(struct span_ids *s, int32_t id, struct digest *out);

#endif
