/* draft.h - guesses at what a sequence will say next.
 *
 * A drafter proposes tokens; the engine computes them in one step together with
 * the last token and picks at each row exactly as it would have without them.  A
 * draft that is not what was picked is taken back.  So a drafter can make an
 * answer faster or slower and nothing else, and may be as wrong as it likes.
 *
 * Drafters belong to the engine and are called on its thread alone.  What a
 * drafter remembers of a sequence is its own affair: it is told the whole
 * sequence each time, under a slot to keep things by and an id to know the
 * sequence again.  A slot that comes with another id holds another sequence.
 * docs/speculation.md tells the whole. */
#ifndef ENGINE_DRAFT_H
#define ENGINE_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/digest.h"
#include "base/err.h"
#include "engine/engine.h"
#include "engine/prefix/place.h"
#include "engine/sampler.h"
#include "model/model.h"
#include "text/tokens/mask_source.h"
#include "text/tokens/tokenizer.h"

/* One sequence, as a drafter sees it. */
struct draft_seq {
	int slot;                      /* below the engine's seqs_max */
	uint64_t id;                   /* never 0, never used twice */
	const int32_t *tok;            /* prompt and output; tokens of one id never change, only more are appended */
	int n_tok;                     /* >= 1 */
	int pos;                       /* tokens that the model has computed: n_tok - 1 when it drafts */
	int n_prompt;                  /* tokens of the prompt, the first of tok */
	int n_known;                   /* tokens at the beginning that were restored from a kept prefix */
	const struct place_plan *plan; /* where along the prompt states are kept */
	bool follow;                   /* it pays to compute all of it; else its end alone may be wanted */
	bool secret;                   /* nothing may pass from or to other sequences */
	const char *salt;              /* nor between two of different salts; never NULL */
	int64_t now;                   /* clock */
	struct sampler *sampler;       /* how the model's next token will be picked */
	struct mask_source *mask;      /* and from which; NULL: all.  See draft_guess */
};

struct draft_ask {
	struct draft_seq seq;
	int max;      /* 1 to DRAFT_MAX; the drafter may lower it for itself */
	int most;     /* tokens of the sequence that it may compute first; then it says nothing yet */
	int32_t *out; /* [max] */
	int n;        /* filled: 0 to max */
	int caught;   /* filled: tokens of the sequence that were computed first */
	int masked;   /* guesses that seq.mask has accepted; the engine takes them back */
	int broken; /* by a fault in what is its request's alone, which ends for it: E_FAULT, E_MEMORY; 0: it is sound */
};

/* For drafters that have logits: the next of a->out, picked as the model's will be,
 * with the same noise and among the tokens that may come; or, when nothing can be
 * picked, no more (a->max is lowered).  logits are spoiled. */
void draft_guess(struct draft_ask *a, float *logits);
/* Calls fn(arg), which touches nothing but a and what is kept for its sequence alone.
 * False: a fault broke it off; a takes no more drafts, and what is kept must be
 * forgotten unlooked at. */
bool draft_own(struct draft_ask *a, void (*fn)(void *arg), void *arg);

/* Rows of a step that stay: those of the sequence's positions seq.pos - n to seq.pos. */
struct draft_run {
	struct draft_seq seq;
	int row, n; /* first row in the pass */
};

struct prefix;
struct drafter;
struct drafter_ops {
	const char *name; /* in options and metrics */
	/* Required.  n_ask >= 1, each of another slot. */
	void (*propose)(struct drafter *, struct draft_ask *ask, int n_ask);
	void (*close)(struct drafter *);
	/* Optional: the sequence has ended; nothing further of this id will come. */
	void (*learn)(struct drafter *, const struct draft_seq *seq);
	/* Optional: memory of the slot is better given back. */
	void (*forget)(struct drafter *, int slot);
	/* Optional: the model has just computed the rows of p, whose outputs are in p->hidden or in the drafter's
	 * taps; the rows of the runs were accepted.  Returns how many tokens the drafter computed. */
	int (*follow)(struct drafter *, const struct pass *p, const struct draft_run *run, int n_run);
	/* Optional: tokens of the sequence that the drafter would compute before its first guess.
	 * The number changes no guess. */
	int (*behind)(struct drafter *, const struct draft_seq *seq);
	/* Optional: the prefixes that it keeps, over the caches of *m, for the engine to keep
	 * on disk as well. */
	struct prefix *(*kept)(struct drafter *, struct model **m);
};

struct drafter {
	const struct drafter_ops *ops;
	/* A digest of everything that what it keeps is a function of, besides the tokens; all
	 * 0: nothing is kept on disk. */
	struct digest identity;
	/* For follow: instead of the hidden rows outputs of these layers, [row of the pass][n_tap][hidden] at taps, which the
	 * engine provides; n_tap 0: hidden rows. */
	const int *tap;
	int n_tap;
	float *taps;
	bool held; /* it says nothing of sequences without a mask */
	/* Guesses of a block, which takes as long for one guess as for all; 0: each guess takes its own time. */
	int block;
};

/* The n-gram drafter: looks the last tokens up in the sequence itself and in the text of
 * earlier ones (the newest text_max tokens), and guesses what followed there. */
struct drafter *draft_ngram_open(int seqs_max, int text_max);

/* A drafter of the text that the form of an answer (its mask) leaves no choice of, in the tokens that t writes it in.  t must
 * outlive it. */
struct drafter *draft_grammar_open(const struct tokenizer *t, int seqs_max);

/* Anything at all, for engine_opts.draft_pretend. */
struct drafter *draft_pretend_open(void);

/* A second model, which stays the caller's, with room for seqs_max sequences.
 * prefix_bytes: what it may keep of prefixes, within m's snapshots. */
int draft_model_open(struct drafter **out, struct model *m, int seqs_max, size_t prefix_bytes, struct err *err);
/* A draft head (model_bind_head), attached for steps of at least draft_head_rows rows; it stays the caller's.  This
 * many rows of a sequence may wait: a step of them is as cheap per row as any. */
enum { DRAFT_WAITING_MAX = 64 };
int draft_head_rows(const struct shape *head, int seqs_max);
int draft_head_open(struct drafter **out, struct model *head, int seqs_max, size_t prefix_bytes, struct err *err);
/* The drafter that draft_head_open opens over a head without keys and values of its own (head_shape.borrows). */
int draft_borrow_open(struct drafter **out, struct model *head, int seqs_max, struct err *err);
/* Are the tokens of `of`, of a draft model called name, those of t?  E_UNSUPPORTED
 * with the first that differs. */
int draft_vocabulary(const struct tokenizer *t, const struct tokenizer *of, const char *name, struct err *err);

#endif
