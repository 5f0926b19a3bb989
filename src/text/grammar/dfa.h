/* dfa.h - languages of bytes, as automata: made, combined, and stepped.
 *
 * For the grammar files of this folder.  Automata live in a pool and are freed
 * with it.  Requests for them may be hostile, so a pool counts what it makes:
 * a function that would go past its limits returns NULL, and every function that
 * is given NULL returns NULL; pool->why then says which limit it was. */
#ifndef TEXT_DFA_H
#define TEXT_DFA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"

enum {
	DFA_STATES_MAX = 40000,  /* of one automaton */
	DFA_CELLS_MAX = 8000000, /* states times classes of a pool: 32 MB */
	DFA_WORK_MAX = 20000000, /* steps of construction; about a second */
	NFA_EDGES_MAX = 400000,
	DFA_BYTES_MAX = 256 << 20, /* of a pool's memory */
};

struct dfa_pool {
	struct arena a;
	size_t n_cell, work;
	const char *why; /* NULL: nothing was refused */
};

/* Charges the pool, and the request that it is made for (base/allowance.h).  False: p->why says why not. */
bool dfa_spend(struct dfa_pool *p, size_t work);

void dfa_pool_init(struct dfa_pool *p);
void dfa_pool_fini(struct dfa_pool *p);

/* States are [0, n), 0 the first; from every state some accepting one can be
 * reached.  n is 0 for the empty language. */
struct dfa {
	int n, n_cls;
	uint8_t cls[256]; /* bytes that no state tells apart */
	int32_t *next;    /* [n * n_cls]; -1: no way */
	int32_t *label;   /* [n]; -1: not accepting */
	bool *last;       /* [n]: no way out */
};

static inline int dfa_step(const struct dfa *d, int s, uint8_t b)
{
	return d->next[s * d->n_cls + d->cls[b]];
}

/* Label of p[0..n), or -1 when it is not in the language. */
int dfa_match(const struct dfa *d, const char *p, size_t n);

/* Has it finitely many words, each of fewer bytes than it has states?  False too where the pool's limits end the search. */
bool dfa_finite(struct dfa_pool *p, const struct dfa *d);

/* ---- from edges ---- */

enum nfa_kind { NFA_BYTES, NFA_EMPTY, NFA_BEGIN, NFA_END };

struct nfa_edge {
	int32_t to, more; /* more: next edge of the same state, -1 ends */
	uint8_t kind, lo, hi;
};

/* State 0 is the first.  BEGIN edges are taken only right after the first byte of
 * the input, END edges only right before a quotation mark: they are the ^ and $ of
 * a pattern inside a JSON string. */
struct nfa {
	struct nfa_edge *edge;
	int32_t *head, *label; /* by state; label -1: not accepting */
	int n_edge, cap_edge, n, cap;
};

void nfa_init(struct nfa *f);
void nfa_fini(struct nfa *f); /* again does nothing */
int nfa_state(struct nfa *f);
/* `state` accepts, with this label.  Use this, not f->label[nfa_text(f, ...)]: C may read f->label before the call
 * moves it. */
void nfa_accept(struct nfa *f, int state, int32_t label);
void nfa_bytes(struct nfa *f, int from, int lo, int hi, int to);
void nfa_empty(struct nfa *f, int from, int to, enum nfa_kind kind);
/* Adds a path that reads p[0..n), beginning at `from`; returns its end. */
int nfa_text(struct nfa *f, int from, const char *p, size_t n);
/* One character of [lo, hi], as UTF-8, surrogates left out. */
void nfa_utf8(struct nfa *f, int from, uint32_t lo, uint32_t hi, int to);
/* Adds edges for characters lo to hi as JSON strings hold them in one spelling: the short escapes,
 * \u00xx for other control characters, everything else as it is. */
void nfa_chars(struct nfa *f, int from, uint32_t lo, uint32_t hi, int to);

/* The lowest of several labels counts. */
struct dfa *dfa_from_nfa(struct dfa_pool *p, const struct nfa *f);

/* ---- from a step function ---- */

struct dfa_lazy {
	const void *ctx;
	uint64_t first;
	bool (*step)(const void *ctx, uint64_t s, char byte, uint64_t *to);
	bool (*accept)(const void *ctx, uint64_t s);
	const char *bytes; /* those that step may take */
	/* Two bytes of one kind lead from every state to the same state.  NULL: each byte is a kind of its own. */
	uint64_t (*kind)(const void *ctx, char byte);
};

struct dfa *dfa_from_lazy(struct dfa_pool *p, const struct dfa_lazy *l);

/* ---- from others ---- */

struct dfa *dfa_and(struct dfa_pool *p, const struct dfa *a, const struct dfa *b);   /* labels of a */
struct dfa *dfa_or(struct dfa_pool *p, const struct dfa *a, const struct dfa *b);    /* a's label, else b's */
struct dfa *dfa_minus(struct dfa_pool *p, const struct dfa *a, const struct dfa *b); /* labels of a */
/* a, with `bit` set in the labels of what b accepts. */
struct dfa *dfa_mark(struct dfa_pool *p, const struct dfa *a, const struct dfa *b, int bit);
/* An automaton that accepts what `keys` accepts, with its label (DFA_DROPPED: not), and otherwise what `names` accepts,
 * with map[its label] (-1: not). */
struct dfa *dfa_keys(struct dfa_pool *p, const struct dfa *keys, const struct dfa *names, const int32_t *map);
enum { DFA_DROPPED = INT32_MAX };
/* a with label map[label] for each; -1 drops it. */
struct dfa *dfa_relabel(struct dfa_pool *p, const struct dfa *a, const int32_t *map);

#endif
