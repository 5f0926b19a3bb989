/* grammar_store.h - compiled grammars, for requests that send the same tools or form again.
 *
 * Agents send the same tools with every turn, and some clients the same schema with every
 * request.  A grammar is found by a digest of all that it was made from; those used longest
 * ago go when there are more, or more bytes of them, than is allowed.
 *
 * Any thread. */
#ifndef SERVER_GRAMMAR_STORE_H
#define SERVER_GRAMMAR_STORE_H

#include <pthread.h>
#include <stdint.h>

#include "base/digest.h"
#include "text/grammar/grammar.h"

enum {
	GRAMMARS_KEPT = 256,
	GRAMMAR_BYTES_KEPT = 64 << 20, /* of tables; one that is larger alone is not kept */
};

struct grammar_store {
	pthread_mutex_t lock;
	struct kept_grammar {
		struct digest key;
		struct grammar *grammar;
		uint64_t used; /* larger: later */
	} kept[GRAMMARS_KEPT]; /* [stats.n] */
	uint64_t clock;
	struct grammar_store_stats {
		int n;
		size_t bytes;
		int64_t hits, misses;
	} stats;
};

void grammar_store_init(struct grammar_store *s);
void grammar_store_fini(struct grammar_store *s);

/* A reference of the caller's; NULL: none is kept. */
struct grammar *grammar_store_find(struct grammar_store *s, const struct digest *key);
void grammar_store_stats(struct grammar_store *s, struct grammar_store_stats *out);
void grammar_store_keep(struct grammar_store *s, const struct digest *key, struct grammar *g);

#endif
