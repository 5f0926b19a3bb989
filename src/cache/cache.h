/* cache.h - what a model remembers of a sequence between two steps.
 *
 * A cache is one kind of memory for all the layers that agree in its geometry: one
 * paged cache for each group of attention layers, one state cache for every recurrent
 * layer.  Everything outside src/cache/ and src/model/ handles the whole set
 * through the functions below and never asks what kind a cache is.
 *
 * Between two steps every cache of a sequence is at the same position,
 * which the engine keeps; the last sampled token is not in any cache yet.  The
 * calls of one step are, in this order,
 *
 *     reserve (each span) ... begin (all spans), foresee, model_run, settle (each span), capture, forget
 *
 * and a slot with a reserved span is not rewound, captured or restored; others
 * may be, and snapshots dropped, to make room.  All from the engine's thread.
 * docs/caches.md tells the whole. */
#ifndef CACHE_CACHE_H
#define CACHE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/err.h"

struct buf;
struct cache;
struct snap;
struct snaps;

/* Where a snapshot is written to and read from; all n bytes, or an error code. */
struct sink {
	int (*put)(struct sink *, const void *p, size_t n);
};
struct source {
	int (*get)(struct source *, void *p, size_t n);
};
/* get, with a message for a person: what a kind's read verb calls. */
int source_get(struct source *, void *p, size_t n, struct err *err);

enum { CACHES_MAX = 14 };

/* A budget in bytes for what grows with sequences and with what is kept of them.  Caches that share
 * one are its members: what one has used and the system still holds is given back when another
 * needs it. */
struct cache_pool {
	size_t max, used;
	size_t resident; /* used now or before, and not given back to the system; at most max, where the backend can */
	struct cache *member[CACHES_MAX];
	int n_member;
};

/* Properties of a cache that never change. */
struct cache_facts {
	int drafts_max;    /* most tentative rows of one span; INT_MAX: as many as it has */
	bool goes_back;    /* a slot can go back to every position that it was at */
	size_t unit_bytes; /* its pool is taken from in pieces of this size; 0: it has no pool */
	int page_rows;     /* positions of a whole page; 0: it keeps none */
	size_t page_bytes; /* contents of a whole page */
	size_t rest_max;   /* most bytes of a snapshot's contents besides whole pages */
};

struct cache_ops {
	const char *name;

	/* Required: no default is right for every kind. */
	void (*fini)(struct cache *);                                  /* called after its snapshots were dropped */
	void (*close)(struct cache *, int slot);                       /* back to position 0, everything given back */
	int (*reserve)(struct cache *, const struct span *);           /* 0 or E_FULL, and then nothing has changed */
	void (*settle)(struct cache *, const struct span *, int keep); /* keep in [n - n_draft, n] */
	/* The largest position at or before pos that this cache can go to from
	 * `at`; 0 is always possible. */
	int (*reach)(const struct cache *, int slot, int at, int pos);
	/* pos came from reach.  Also undoes a reservation, with the span's pos. */
	void (*rewind)(struct cache *, int slot, int pos);
	/* Between begin and forward: the slot of span item passes pos in this step, among
	 * its sure rows, and capture may ask for it there until forget, unless the
	 * slot goes back before it or is closed.  0 or E_FULL: it may not. */
	int (*foresee)(struct cache *, const struct span *, int item, int pos);
	/* A snapshot that restores a slot to pos > 0; immutable.  pos: the slot's
	 * position, or one that was foreseen and not captured yet.  NULL when the
	 * budget is used up; at a foreseen position it never is. */
	struct snap *(*capture)(struct cache *, int slot, int pos);
	int (*snap_reach)(const struct snap *, int pos); /* largest position <= pos it can restore */
	int (*restore)(struct cache *, int slot, const struct snap *, int pos); /* slot is closed; 0 or E_FULL */
	void (*drop)(struct snap *);
	int (*write)(const struct snap *, struct sink *);
	int (*read)(struct cache *, struct source *, struct snap **, struct err *);
	void (*facts)(const struct cache *, struct cache_facts *);
	/* Appends a text that names everything the meaning of its snapshots' bytes depends on. */
	void (*describe)(const struct cache *, struct buf *);

	/* Optional: NULL means there is truly nothing to do. */
	void (*forget)(struct cache *); /* gives back the memory of positions foreseen and not captured */
	void (*begin)(struct cache *, const struct span *, int n_span);
	size_t (*shed)(struct cache *, size_t want); /* give memory back; bytes freed */
	/* For a kind whose snapshots share memory with each other or with slots.  kept: bytes that
	 * snapshots hold and no slot does.  alone: bytes that dropping this snapshot would free now. */
	size_t (*kept)(const struct cache *);
	size_t (*alone)(const struct snap *);
	/* For a kind whose slots and snapshots draw on a pool (cache->pool), all or none.
	 * need: most bytes that a sequence at pos holds.  live: bytes that slots
	 * and the snapshots held[0..n)->v[at] have; with a snapshot, those of them that it needs
	 * to be at pos. */
	size_t (*need)(const struct cache *, int pos);
	size_t (*live)(const struct cache *, const struct snaps *const *held, int n, int at, const struct snap *,
	               int pos);
	/* For a kind whose snapshots are copies.  prepare: makes a little memory ready for the next
	 * snapshots, within their budget; false: enough is ready, or there is none.  ready: the next n
	 * snapshots go into memory that is ready, or those of them that prepare can help.  copy_ns: time that
	 * one copy during a pass takes, in ns summed over all threads; 0: not known yet. */
	bool (*prepare)(struct cache *);
	bool (*ready)(const struct cache *, int n);
	double (*copy_ns)(const struct cache *);
	/* For a kind whose snapshots have a budget of their own: how many more it has room for. */
	size_t (*snaps_free)(const struct cache *);
	/* For a kind that keeps whole pages of positions (facts.page_rows), all or none: a snapshot in
	 * pieces.  The rest is what its whole pages do not hold. */
	int (*page_first)(const struct cache *, int pos); /* a snapshot at pos has the whole pages from this one on */
	int (*page_wanted)(const struct snap *);          /* of one from read_rest: the first page still to be set */
	int (*page_get)(const struct snap *, int page, void *out); /* 0 or E_DEVICE */
	void (*page_set)(struct snap *, int page, const void *);
	int (*write_rest)(const struct snap *, struct sink *);
	/* Whole pages before n_page are base's, if it has them; the others are still to be set. */
	int (*read_rest)(struct cache *, struct source *, const struct snap *base, int n_page, struct snap **,
	                 struct err *);
	void (*check)(const struct cache *); /* asserts its own books */
};

struct cache {
	const struct cache_ops *ops;
	struct backend *be;
	struct cache_pool *pool; /* that it takes from; NULL: none */
	size_t snap_bytes;       /* of live snapshots, each counted whole; the set's account */
};

/* Embedded first in each kind's snapshot.  bytes: what dropping it would free
 * if it shared memory with no other snapshot and no slot. */
struct snap {
	struct cache *cache;
	int pos;
	size_t bytes;
};

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
/* Announces, between begin and forward, a snapshot at pos, which sp[item] passes in this step
 * (0 < pos - sp.pos < n - n_draft).  0: caches_capture at pos after settle will not fail, until forget
 * or the next begin, unless the slot goes back before pos or is closed.
 * E_FULL: caches_capture must not be called for it. */
int caches_foresee(struct caches *, const struct span *sp, int item, int pos);
/* Withdraws every position that was foreseen and not captured, or refused: its memory is free for the next reserve. */
void caches_forget(struct caches *);
/* Makes a little memory ready for future snapshots.  Less than a millisecond's work, unless the system
 * has to find the memory.  False: enough is ready, or there is none. */
bool caches_prepare(struct caches *);
/* Do the next n snapshots go into memory that is ready, or those of them that preparing can help? */
bool caches_ready(const struct caches *, int n);
/* Nanoseconds by which copying one foreseen set of snapshots lengthened recent passes; 0: not measured yet. */
double caches_copy_ns(const struct caches *);
void caches_settle(struct caches *, const struct span *, int keep);
/* Go back to pos, or to the nearest position before it that every cache can
 * go to: a recurrent state may have only 0 to offer.  Returns that position. */
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
/* caches_kept: bytes that snapshots hold and no slot does.  snaps_alone: bytes that dropping this
 * set would free now. */
size_t caches_kept(const struct caches *);
size_t snaps_alone(const struct snaps *);
/* Bytes of the pools that a slot could reserve after this set was dropped (snapshots of states have a budget of their
 * own). */
size_t snaps_room(const struct snaps *);
/* Snapshots to bytes and back.  read trusts no number in the bytes and takes from the same budgets as
 * capture; the caller makes sure that the contents are undamaged and of this model. */
int snaps_write(const struct snaps *, struct sink *);
int caches_read(struct caches *, struct source *, struct snaps *out, struct err *);

/* ---- numbers, for budgets and plans ---- */

/* The pools of all caches together. */
struct cache_pool caches_pool(const struct caches *);
size_t caches_unit_bytes(const struct caches *); /* one unit of each cache that has a pool; 0: none has */
/* Most bytes of the pools that a sequence at pos holds. */
size_t caches_need(const struct caches *, int pos);
/* The longest sequence, up to ctx_max, for which the pools have room when it is alone.  Any thread: what it reads
 * never changes. */
int caches_longest(const struct caches *, int ctx_max);
/* Bytes of the pools that slots and the n sets of held[] have; with a set (snaps), those of
 * them that it needs to be at pos. */
size_t caches_live(const struct caches *, const struct snaps *const *held, int n, const struct snaps *, int pos);
/* How many more sets of snapshots the budgets besides the pools have room for; at most `most`. */
int caches_snaps_free(const struct caches *, int most);
int caches_drafts_max(const struct caches *); /* most tentative rows of one span */
/* Can a slot go back to every position that it was at? Else it needs a snapshot to go back. */
bool caches_go_back(const struct caches *);
size_t caches_rest_max(const struct caches *); /* no snaps_write_rest has more bytes */
/* Appends what the bytes of snapshots depend on besides the model: kinds, shapes, row formats. */
void caches_describe(const struct caches *, struct buf *);

/* ---- snapshots in pieces ---- */

/* Snapshots to bytes and back in pieces, so that pages which snapshots share are written once: whole
 * pages and the rest.  Each cache that keeps pages is one part; a snapshot at pos has the whole pages
 * of a part from caches_page_first(pos) to pos / page_rows.  Reading begins with the rest: the whole
 * pages of a part before n_page are shared with base (NULL: n_page is 0) if base has them;
 * those from snaps_page_wanted on must be set before anything is restored. */
int caches_page_rows(const struct caches *); /* positions of a page, one number for all parts; 0: no pages */
int caches_parts(const struct caches *);
size_t caches_page_bytes(const struct caches *, int part);
int caches_page_first(const struct caches *, int part, int pos);
int snaps_page_wanted(const struct snaps *, int part);
int snaps_page_get(const struct snaps *, int part, int page, void *out); /* 0 or E_DEVICE */
void snaps_page_set(struct snaps *, int part, int page, const void *);
int snaps_write_rest(const struct snaps *, struct sink *);
int caches_read_rest(struct caches *, struct source *, const struct snaps *base, int n_page, struct snaps *out,
                     struct err *);

#endif
