/* world.h - what checkcache runs its lives in: a backend, a set of caches, and a
 * model so small that its truth can be computed again from the tokens alone.
 *
 * A model's "logits" are one 64-bit number per row and kind of cache: a hash of
 * all that a layer over that cache can see at that row. */
#ifndef CACHE_WORLD_H
#define CACHE_WORLD_H

#include "cache/kinds.h"
#include "pooled.h"

/* The first GROUPS are paged caches, without a window and with one. */
enum kind { PAGED, WINDOW, STATE, POOLED, CARRY, KINDS };
enum { GROUPS = 2 };
extern const char *const kind_name[KINDS];

struct world {
	struct backend *be;
	const struct truth *truth;
	struct caches set;
	struct cache *kind[KINDS];     /* NULL: not in this life */
	int slots, ctx_max, step_rows; /* step_rows: most rows of one span */
	struct paged_opts paged[GROUPS];
	struct cache_pool pool; /* of both, when they have one */
	struct state_opts state;
	struct pooled_opts pooled;
	struct carry_opts carry;
};

/* One span with its tokens, those before it included: tok[0 .. pos + n). */
struct item {
	struct span span;
	const int32_t *tok;
	uint64_t (*out)[KINDS]; /* [n] */
};

/* Who computes. */
struct truth {
	const char *name;
	/* Opens w->be and chooses by bits what goes with it: the row format and the
	 * shapes of paged and state. */
	void (*open)(struct world *w, uint64_t bits);
	/* One pass: writes the caches as a model would, and out through their views. */
	void (*forward)(struct world *, const struct item *, int n);
	/* What rows first .. n of a sequence must give, from its tokens alone. */
	void (*oracle)(struct world *, const int32_t *tok, int first, int n, uint64_t (*out)[KINDS]);
};
extern const struct truth toy_truth, cpu_truth;

/* The part of the toy that works on any backend whose memory can be followed. */
void toy_pool(const struct world *, const struct item *, int n);
void toy_pool_oracle(const struct world *, const int32_t *tok, int first, int n, uint64_t (*out)[KINDS]);

/* The toy backend: host memory; every operation but memory's and tape_apply is
 * missing.  Far: its memory is unreadable outside its own operations and
 * toy_gate(be, true) .. toy_gate(be, false). */
struct backend *toy_backend_open(bool far);
void toy_gate(struct backend *be, bool open);
size_t toy_backend_live(const struct backend *be); /* bytes allocated */
/* The nth alloc from now is refused; 0: none.  Returns how many still go before
 * the one that an earlier call named: 0 when it was refused, or none was named. */
int toy_backend_refuse(struct backend *be, int nth);
extern bool toy_far;    /* what toy_truth opens */
extern int cpu_threads; /* with which cpu_truth opens */

/* The toy recurrence: y into S (n words) and the tail (rows of c words). */
void toy_update(uint32_t *s, size_t n, uint32_t *tail, int rows, int c, uint64_t y);

/* Hash of tokens 0 .. i of a sequence, from that of 0 .. i - 1. */
uint64_t prefix_hash(uint64_t before, int32_t tok);

static inline uint64_t mix(uint64_t a, uint64_t b)
{
	uint64_t z = (a ^ b * 0x9E3779B97F4A7C15u) + 0xD1342543DE82EF95u;

	z = (z ^ z >> 32) * 0xDA942042E4DD58B5u;
	z = (z ^ z >> 29) * 0xBF58476D1CE4E5B9u;
	return z ^ z >> 32;
}

#endif
