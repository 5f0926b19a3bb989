/* cache.h - what a model remembers of a sequence between two steps.
 *
 * A cache is one kind of memory for all the layers that use that kind: one
 * paged cache for every attention layer, one state cache for every recurrent
 * layer.  Everything outside src/cache/ and src/model/ handles the whole set
 * through the functions below and never asks what kind a cache is.
 *
 * Between two steps every cache of a sequence stands at the same position,
 * which the engine keeps; the last sampled token is not in any cache yet.  The
 * calls of one step are, in this order,
 *
 *     reserve (each span) ... begin (all spans), foresee, forward, settle (each span)
 *
 * and a slot with a reserved span is not rewound, captured or restored; others
 * may be, and snapshots dropped, to make room.  All from the engine's thread.
 * docs/caches.md tells the whole. */
#ifndef CACHE_CACHE_H
#define CACHE_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/err.h"

struct cache;
struct snap;

/* Where a snapshot is written to and read from; all n bytes, or an error code. */
struct sink {
	int (*put)(struct sink *, const void *p, size_t n);
};
struct source {
	int (*get)(struct source *, void *p, size_t n);
};
/* get, with a message for a person: what a kind's read verb calls. */
int source_get(struct source *, void *p, size_t n, struct err *err);

struct cache_ops {
	const char *name;

	/* Required: no default is right for every kind. */
	void (*fini)(struct cache *);                                  /* its snapshots are dropped by then */
	void (*close)(struct cache *, int slot);                       /* back to position 0, everything given back */
	int (*reserve)(struct cache *, const struct span *);           /* 0 or E_FULL, and then nothing has changed */
	void (*settle)(struct cache *, const struct span *, int keep); /* keep in [n - n_draft, n] */
	/* The largest position at or before pos where this cache can stand, given
	 * that it stands at `at`; 0 is always possible. */
	int (*reach)(const struct cache *, int slot, int at, int pos);
	/* pos came from reach.  Also undoes a reservation, with the span's pos. */
	void (*rewind)(struct cache *, int slot, int pos);
	/* Between begin and forward: the slot of span item passes pos in this step, among
	 * its sure rows, and capture may ask for it there until the next begin, unless the
	 * slot goes back before it or is closed.  0 or E_FULL: it may not. */
	int (*foresee)(struct cache *, const struct span *, int item, int pos);
	/* What is needed to stand at pos again, immutable from now on: where the slot
	 * stands, or a position that was foreseen and not captured yet.  pos > 0.  NULL
	 * when the budget is used up, which at what was foreseen it is not. */
	struct snap *(*capture)(struct cache *, int slot, int pos);
	int (*snap_reach)(const struct snap *, int pos); /* largest position <= pos it can restore */
	int (*restore)(struct cache *, int slot, const struct snap *, int pos); /* slot is closed; 0 or E_FULL */
	void (*drop)(struct snap *);
	int (*write)(const struct snap *, struct sink *);
	int (*read)(struct cache *, struct source *, struct snap **, struct err *);

	/* Optional: NULL means there is truly nothing to do. */
	void (*begin)(struct cache *, const struct span *, int n_span);
	size_t (*shed)(struct cache *, size_t want); /* give memory back; bytes freed */
	/* For a kind whose snapshots share memory with each other or with slots: what
	 * snapshots hold and slots do not; what dropping this one would free now. */
	size_t (*kept)(const struct cache *);
	size_t (*alone)(const struct snap *);
	/* For a kind that keeps whole pages of positions, all or none: a snapshot in
	 * pieces.  The rest is what its whole pages do not hold. */
	size_t (*page_bytes)(const struct cache *);
	void (*page_get)(const struct snap *, int page, void *out);
	void (*page_set)(struct snap *, int page, const void *);
	int (*write_rest)(const struct snap *, struct sink *);
	/* The first n_page whole pages are base's, the other ones still to be set. */
	int (*read_rest)(struct cache *, struct source *, const struct snap *base, int n_page, struct snap **,
	                 struct err *);
	void (*check)(const struct cache *); /* asserts its own books */
};

struct cache {
	const struct cache_ops *ops;
	struct backend *be;
	size_t snap_bytes; /* of live snapshots, each counted whole; the set's account */
};

/* Embedded first in each kind's snapshot.  bytes: what dropping it would free
 * if nobody else shared it. */
struct snap {
	struct cache *cache;
	int pos;
	size_t bytes;
};

enum { CACHES_MAX = 4 };
struct caches {
	struct cache *v[CACHES_MAX];
	int n;
};

/* Adds a cache; asserts that its table has every required verb. */
void caches_add(struct caches *, struct cache *);
void caches_fini(struct caches *);

/* All or nothing: a refusal leaves every cache as it was. */
int caches_reserve(struct caches *, const struct span *);
void caches_unreserve(struct caches *, const struct span *); /* a reserved span that will not run */
void caches_begin(struct caches *, const struct span *, int n_span);
/* After begin, before forward: sp[item] will pass pos (0 < pos - sp.pos < n - n_draft), and what
 * is needed to stand there is wanted.  0: caches_capture at pos after
 * settle does not fail, until the next begin, unless the slot goes back before it or is closed.
 * E_FULL: it must not be called. */
int caches_foresee(struct caches *, const struct span *sp, int item, int pos);
void caches_settle(struct caches *, const struct span *, int keep);
/* Go back to pos, or to the nearest position before it where every cache can
 * stand: a recurrent state may have only 0 to offer.  Returns that position. */
int caches_rewind(struct caches *, int slot, int at, int pos);
void caches_close(struct caches *, int slot);
size_t caches_shed(struct caches *, size_t want);
void caches_check(const struct caches *);

/* One snap per cache, all at one position.  NULL-filled on refusal. */
struct snaps {
	struct snap *v[CACHES_MAX];
	int n, pos;
	size_t bytes;
};
int caches_capture(struct caches *, int slot, int pos, struct snaps *out); /* 0 or E_FULL */
int snaps_reach(const struct snaps *, int pos);
/* pos came from snaps_reach.  E_FULL: the slot is closed. */
int caches_restore(struct caches *, int slot, const struct snaps *, int pos);
void snaps_drop(struct snaps *);
/* Bytes that snapshots hold and no slot does; of them, what dropping this set
 * would free now. */
size_t caches_kept(const struct caches *);
size_t snaps_alone(const struct snaps *);
/* Of that, memory which a slot can then reserve (a state's budget is its own). */
size_t snaps_room(const struct snaps *);
/* As bytes.  read trusts no number in them and takes from the same budgets as
 * capture; whoever stores them answers for their contents (checksum, model). */
int snaps_write(const struct snaps *, struct sink *);
int caches_read(struct caches *, struct source *, struct snaps *out, struct err *);

/* The same in pieces, so that what snapshots share is written once: whole pages,
 * each of page_bytes (all caches' in a row; 0: the set keeps no pages), and the
 * rest.  Reading begins with the rest: the first n_page whole pages are shared with
 * base (NULL: n_page is 0), and the others must be set before anything is restored. */
size_t caches_page_bytes(const struct caches *);
void snaps_page_get(const struct snaps *, int page, void *out);
void snaps_page_set(struct snaps *, int page, const void *);
int snaps_write_rest(const struct snaps *, struct sink *);
int caches_read_rest(struct caches *, struct source *, const struct snaps *base, int n_page, struct snaps *out,
                     struct err *);

/* ---- the kinds ---- */

/* Paged keys and values (paged.c): reference-counted pages shared by sequences
 * and snapshots, copied before a shared one is written.  bytes_max bounds the
 * pool; memory is touched as it is used. */
struct paged_opts {
	int layers, heads, dim; /* attention layers; key/value heads; head size */
	struct kv_rows rows;    /* rows.layer is copied */
	int page_rows;          /* positions per page; 64 unless a test asks otherwise */
	int slots, ctx_max;     /* sequences; longest sequence in positions */
	size_t bytes_max;
};
/* NULL with E_UNSUPPORTED (a format that is not for heads of this size), E_LIMIT (no
 * page fits the budget, or memory) or E_FULL (refused). */
struct cache *paged_open(struct backend *, const struct paged_opts *, struct err *);
/* For the model: this step's view (valid from begin to settle). */
const struct kv_view *paged_view(const struct cache *);
/* For admission and metrics. */
struct paged_stats {
	int pages, pages_used, page_rows;
	size_t page_bytes, row_bytes;
};
void paged_stats(const struct cache *, struct paged_stats *);
/* Pages that slots and the n snapshots of held[] have; with a snapshot, those among
 * them of its first pos positions. */
int paged_live(const struct cache *, const struct snap *const *held, int n, const struct snap *, int pos);

/* Recurrent state (state.c): S and conv tail per slot, a tape for rows that are tentative
 * or that S need not know of yet, snapshots by copy within snap_bytes_max. */
struct state_opts {
	struct state_shape shape;
	int slots;
	int tape_rows; /* most tentative rows of one span */
	size_t snap_bytes_max;
};
/* NULL with E_FULL when the backend refuses. */
struct cache *state_open(struct backend *, const struct state_opts *, struct err *);
const struct state_view *state_view(const struct cache *);
size_t state_slot_bytes(const struct state_shape *);                /* S and tails of one sequence, all layers */
size_t state_tape_bytes(const struct state_shape *, int tape_rows); /* the tape of one sequence, all layers */

#endif
