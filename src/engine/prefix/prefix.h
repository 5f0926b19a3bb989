/* prefix.h - prefixes that were computed and may be met again.
 *
 * A tree over tokens for each salt.  A node is a run of tokens; where it ends a
 * snapshot may hang: references to the pages below, and the recurrent state
 * there.  Pages are shared by branches, snapshots and running sequences.  A node
 * without a snapshot is the way to one, or the memory that this was seen (a
 * ghost: tokens alone), which tells where prompts part and which places are
 * returned to.
 *
 * Reuse is exact: tokens are compared one by one, and a state computed before is
 * the state that would be computed now (the law of the row).  Running requests
 * come before kept prefixes.  One budget holds the states, the pages that only
 * the store holds, and the tokens; what goes first is what saves the least
 * expected replay for its bytes (place.h).
 *
 * Engine's thread only; other threads go through engine_prefix_* (engine.h).
 *
 * A tier below memory (disk) is told of what comes and goes, and asked before a
 * request starts with less than it might: see struct prefix_tier. */
#ifndef ENGINE_PREFIX_H
#define ENGINE_PREFIX_H

#include "cache/cache.h"
#include "engine/prefix/place.h"

struct prefix_node;
struct prefix_tree; /* of one salt */

/* The tier below memory, keyed by salt and tokens.  All on the engine's thread, and
 * none may wait for a device; snaps are valid during the call. */
struct prefix_tier {
	/* A state was hung at the end of tok[0..n).  hang's own are not told.  salt is NULL
	 * nowhere but in dropped(). */
	void (*kept)(struct prefix_tier *, const char *salt, const int32_t *tok, int n);
	/* Called when an entry is evicted from memory: the last use of its snapshots. */
	void (*left)(struct prefix_tier *, const char *salt, const int32_t *tok, int n, const struct snaps *);
	/* Drops all entries that begin with tok[0..n), whether memory has them or not;
	 * salt NULL: all entries. */
	void (*dropped)(struct prefix_tier *, const char *salt, const int32_t *tok, int n);
	/* The largest position <= n at which a state could be had from here; 0: none. */
	int (*find)(struct prefix_tier *, const char *salt, const int32_t *tok, int n);
	/* tok[0..n) wants to start and memory has a state at `have`; true: more is on its
	 * way, the request is asked again at a later step.  What has come is hung into
	 * the tree from in here, by prefix_hang.  engine_wake calls an engine that sleeps. */
	bool (*fetch)(struct prefix_tier *, const char *salt, const int32_t *tok, int n, int have);
};

struct prefix {
	struct caches *caches;
	struct prefix_tier *tier; /* NULL: none; to be set before the first call */
	struct prefix_tree *tree; /* the last used first */
	size_t bytes_max;
	size_t bytes;       /* as last counted */
	size_t own_bytes;   /* tokens and nodes */
	size_t ghost_bytes; /* of that, leaves without a state */
	int n_state, n_pinned, n_node;
	struct prefix_node **pin;       /* [n_pinned] of [pin_room] */
	const struct snaps **pin_snaps; /* [pin_room] for prefix_pinned */
	int pin_room;
	uint64_t clock; /* counts lookups that were used */
	uint64_t next_id;
	struct place_odds odds;
	uint64_t fresh; /* of the last 64 lookups, the latest in bit 0: it began afresh */
	int64_t captured, evicted;
	uint64_t changes; /* states that came or went, so far */
	/* Sizes of the state that was captured last: bytes that no other holds, and those that others may, for each token. */
	size_t place_bytes;
	double token_bytes;
};

struct prefix_hit {
	struct prefix_node *node;    /* the snapshot's; NULL: none */
	struct prefix_node *deepest; /* the last known place on the prompt's way; for prefix_use */
	const struct snaps *snaps;   /* node's */
	int at;                      /* where it can be restored; 0: nowhere */
	struct prefix_report report;
};

void prefix_init(struct prefix *p, struct caches *caches, size_t bytes_max);
void prefix_fini(struct prefix *p);

/* The longest prefix of tok[0..n), at most n - 1 long, at which a state is there.
 * Changes nothing; *out is valid until the next call that does. */
void prefix_find(const struct prefix *p, const char *salt, const int32_t *tok, int n, struct prefix_hit *out);
/* Counts the use of a hit that was restored (at position 0: a miss), and updates the statistics of reuse and the age of
 * its node. */
void prefix_use(struct prefix *p, const struct prefix_hit *hit, int64_t now);

struct prefix_key {
	const char *salt; /* NULL and "" are one */
	enum place kind;
	uint64_t by; /* the request that computed it */
	bool fine;   /* of the grid, and too near others for the tier below */
	int64_t now;
};
/* Keeps tok[0..n), at whose end the slot is. False: nothing was kept, the
 * budget or memory being too small; true also when it was there. */
bool prefix_learn(struct prefix *p, const struct prefix_key *key, int slot, const int32_t *tok, int n);
/* Would prefix_learn keep tok[0..n)?  Makes room for it in addition to `pending` bytes that are being
 * captured, the last of them at `above` (0: none).  False: it would be the first to go. */
bool prefix_room(struct prefix *p, const struct prefix_key *key, const int32_t *tok, int n, int above, size_t pending);
/* Drops the state that is worth least, if that is no more than this one would be. */
bool prefix_outbid(struct prefix *p, const struct prefix_key *key, const int32_t *tok, int n, int above);
/* The place at the end of exactly tok[0..n) is of that kind from now on, unless a request has resumed there. */
void prefix_rekind(struct prefix *p, const char *salt, const int32_t *tok, int n, enum place kind);
/* Drops the state of the grid at the end of exactly tok[0..n), which is of no use any longer, with all
 * memory of it, unless a request has used it. */
void prefix_forget(struct prefix *p, const char *salt, const int32_t *tok, int n);
/* prefix_learn for snapshots that were captured before, at the end of tok[0..n); takes them over. */
bool prefix_give(struct prefix *p, const struct prefix_key *key, const int32_t *tok, int n, struct snaps *snaps);
/* Hangs a state that was read (caches_read) in at the end of tok[0..n); snaps are the
 * tree's from then on.  False: it does not fit, or there is one; they are dropped. */
bool prefix_hang(struct prefix *p, const struct prefix_key *key, const int32_t *tok, int n, struct snaps *snaps);
/* Could a state that is there be restored at the end of tok[0..n)? */
bool prefix_covers(const struct prefix *p, const char *salt, const int32_t *tok, int n);
/* The snapshots kept at the end of exactly tok[0..n); NULL: none. */
const struct snaps *prefix_snaps(const struct prefix *p, const char *salt, const int32_t *tok, int n);
/* Snapshots whose first positions, as many as any has and at most *n, are those of
 * tok; *n: how many.  NULL: none. */
const struct snaps *prefix_alike(const struct prefix *p, const char *salt, const int32_t *tok, int *n);
/* Remembers the tokens alone. */
void prefix_note(struct prefix *p, const struct prefix_key *key, const int32_t *tok, int n);

/* Frees at least one page that a running sequence wants.  pinned: also what is
 * pinned.  false: dropping anything would free none. */
bool prefix_evict(struct prefix *p, bool pinned);
/* Drops the state that is worth least.  false: there was none but pinned ones. */
bool prefix_shrink(struct prefix *p);
/* Drops any state, pinned ones last: also where none alone gives room to slots, since
 * two share a page, or a slot would have to copy the page that it shares with one. */
bool prefix_yield(struct prefix *p);
/* Drops what would be evicted next until `bytes` are left, or only what is pinned. */
void prefix_cut(struct prefix *p, size_t bytes);
/* Back into the budget; after a sequence has given up its pages. */
void prefix_trim(struct prefix *p);

/* The node at the beginning of its way: all that may share a page with it lies below. */
struct prefix_node *prefix_top(struct prefix_node *node);
/* Id of the request that computed the snapshot. */
uint64_t prefix_by(const struct prefix_node *node);

/* A node by its id, or (id 0) the deepest with a state at or before the end of
 * the path; NULL: none. */
struct prefix_node *prefix_at(const struct prefix *p, uint64_t id, const char *salt, const int32_t *tok, int n);
/* Drops the states of a node and of all below it; node NULL: of all under the
 * salt; that NULL too: all; then the tier's as well, of which memory may know nothing.
 * Returns how many were in memory. */
int prefix_drop(struct prefix *p, struct prefix_node *node, const char *salt);
/* Drops every entry that begins with tok[0..n), n > 0, on disk also where memory does not know it. */
int prefix_drop_path(struct prefix *p, const char *salt, const int32_t *tok, int n);
/* A node's tokens from the first on, to be freed, how many, and under which salt (its tree's). */
int32_t *prefix_path(const struct prefix_node *node, const char **salt, int *n);
/* A pinned state goes only when a running sequence cannot move without its pages.
 * E_FULL: pins would hold more than half of the budget; E_MISSING: no state. */
int prefix_pin(struct prefix *p, struct prefix_node *node, bool pin, struct err *err);
/* The snapshots of the pinned states, *n of them; the store's, until the next call. */
const struct snaps *const *prefix_pinned(const struct prefix *p, int *n);
/* Calls fn for every node, parents first. */
void prefix_walk(const struct prefix *p, int64_t now, void (*fn)(void *arg, const struct prefix_item *item), void *arg);
/* Asserts its own books. */
void prefix_check(const struct prefix *p);

#endif
