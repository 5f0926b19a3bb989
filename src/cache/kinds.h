/* kinds.h - the kinds of cache: what opens them, and the views that a model reads them
 * through.
 *
 * For src/cache/ and src/model/ alone (script/check-layers): everyone else handles
 * the set, cache.h. */
#ifndef CACHE_KINDS_H
#define CACHE_KINDS_H

#include "cache/cache.h"

/* Paged keys and values of a group of layers (paged.c): reference-counted pages shared by
 * sequences and snapshots, copied before a shared one is written, and given back once
 * every row of them is out of the group's window.  Memory is touched as it is used. */
struct paged_opts {
	struct kv_group group;
	struct kv_rows rows;     /* rows.layer is copied */
	int page_rows;           /* positions per page; 64 unless a test asks otherwise */
	int slots, ctx_max;      /* sequences; longest sequence in positions */
	int step_rows;           /* most rows of one span; for groups with a window */
	struct cache_pool *pool; /* the budget, which several caches may share; NULL: bytes_max of its own */
	size_t bytes_max;
};
/* NULL with E_UNSUPPORTED (a format that is not for heads of this size), E_LIMIT (no
 * page fits the budget, or memory) or E_FULL (refused). */
struct cache *paged_open(struct backend *, const struct paged_opts *, struct err *);
/* Most pages of page_rows that a sequence at pos needs: with a window (0: none) those of the window
 * and of a step, wherever pages begin. */
int paged_need_pages(int window, int step_rows, int page_rows, int pos);
/* For the model: this step's view (valid from begin to settle). */
const struct kv_view *paged_view(const struct cache *);
/* Counts of a paged cache, for tests. */
struct paged_stats {
	int pages, pages_used, page_rows;
	size_t page_bytes, row_bytes;
};
void paged_stats(const struct cache *, struct paged_stats *);

/* Recurrent state (state.c): S and conv tail per slot, a tape for rows that are tentative
 * or that S need not know of yet, snapshots by copy within snap_bytes_max. */
struct state_opts {
	struct state_shape shape;
	int slots;
	int tape_rows; /* most tentative rows of one span */
	size_t snap_bytes_max;
};
/* Most settled rows that S is owed, besides accepted drafts: decoding writes S every STATE_LATE + 1 tokens.  Each costs
 * what a row of S's arithmetic does, every time S is read. */
enum { STATE_LATE = 4 };
/* NULL with E_FULL when the backend refuses. */
struct cache *state_open(struct backend *, const struct state_opts *, struct err *);
const struct state_view *state_view(const struct cache *);
size_t state_slot_bytes(const struct state_shape *);                /* S and tails of one sequence, all layers */
size_t state_tape_bytes(const struct state_shape *, int tape_rows); /* the tape of one sequence, all layers */

/* A row of bytes per sequence (carry.c) that its owner puts there, whatever the position, and
 * that snapshots copy within snap_bytes_max. */
struct carry_opts {
	size_t bytes; /* of a row */
	int slots;
	size_t snap_bytes_max;
};
/* NULL with E_FULL when the backend refuses. */
struct cache *carry_open(struct backend *, const struct carry_opts *, struct err *);
/* The slot's row, backend memory. */
void *carry_row(const struct cache *, int slot);

#endif
