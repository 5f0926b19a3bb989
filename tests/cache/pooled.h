/* pooled.h - a toy kind of cache: the example of docs/caches.md.
 *
 * A layer over it sees one number for every whole group of G positions before
 * its own group, and the rows of its own group one by one.  The rows of a group
 * are forgotten once it is whole: it can go back to any position of the group
 * that is being filled, and to every group's beginning. */
#ifndef CACHE_POOLED_H
#define CACHE_POOLED_H

#include "cache/cache.h"

enum { POOLED_BLOCK = 4 }; /* groups per block: the unit of its budget */

struct pooled_opts {
	int group; /* G */
	int slots, ctx_max, step_rows;
	int blocks_max; /* of sequences and snapshots together */
};

struct pooled_view {
	int group, block_max, raw_rows;
	uint64_t *const *block; /* [slot][block_max] -> [POOLED_BLOCK] group numbers */
	/* Rows from the beginning of the group that pos is in; a step appends. */
	uint64_t *raw; /* [slot][raw_rows] */
};

struct cache *pooled_open(struct backend *, const struct pooled_opts *, struct err *);
const struct pooled_view *pooled_view(const struct cache *);
/* The number of a whole group. */
uint64_t pooled_number(const uint64_t *row, int group);
int pooled_blocks(int group, int pos); /* that a sequence of pos positions holds */

#endif
