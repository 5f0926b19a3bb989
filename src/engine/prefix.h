/* prefix.h - prefixes that were computed and may be met again.
 *
 * An entry is a run of tokens and the snapshots taken at its end.  Entries share
 * pages with each other and with running sequences by reference.  Reuse is exact:
 * tokens are compared one by one, and a state computed before is the state that
 * would be computed now (the law of the row).  Running requests come before kept
 * prefixes: the scheduler evicts when memory is short.
 *
 * Engine's thread only.  The engine knows the calls below and nothing else, so
 * that another store can take this one's place. */
#ifndef ENGINE_PREFIX_H
#define ENGINE_PREFIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/cache.h"

struct prefix_entry;
struct prefix {
	struct prefix_entry *entry;
	int n, cap;
	size_t bytes, bytes_max;        /* snapshots (shared pages counted by each) and tokens */
	uint64_t clock;                 /* counts uses; the smallest `used` goes first */
};

void prefix_init(struct prefix *p, size_t bytes_max);
void prefix_fini(struct prefix *p);

/* The longest prefix of tok[0..n), at most n - 1 long, at which some entry can
 * stand; *snaps is valid until the next call here.  0: none. */
int prefix_lookup(struct prefix *p, const int32_t *tok, int n, const struct snaps **snaps);

/* Keeps tok[0..n), at whose end the slot stands.  Doing nothing is allowed: the
 * budget may be too small. */
void prefix_learn(struct prefix *p, struct caches *caches, int slot, const int32_t *tok, int n);

/* Drops the entry that was not used for longest.  false: none was left. */
bool prefix_evict(struct prefix *p);

#endif
