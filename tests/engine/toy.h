/* toy.h - a model for the engine's tests: fast, and with nothing to forgive.
 *
 * Its logits are random numbers keyed by a hash of all visible tokens.  One half
 * of the hash is folded into the recurrent state of the real state cache, the
 * other is read back from the rows of the real paged cache, so a wrong page, a
 * stale state or a position off by one gives other logits altogether. */
#ifndef TESTS_ENGINE_TOY_H
#define TESTS_ENGINE_TOY_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "engine/engine.h"

enum { TOY_VOCAB = 300, TOY_POISON = 299 }; /* a row of that token has no numbers for logits */

struct toy_opts {
	int slots, ctx_max, step_rows;
	int page_rows, pages; /* pages 0: enough for all */
	int snaps;            /* state snapshots that fit; 0: 64 */
	int state_kb;         /* of a state; 0: 1 */
	/* A second group of keys and values, whose rows see so many positions and each depend on all
	 * that those depend on; it shares the pages' budget.  0: none. */
	int window;
	bool attention_only;                                 /* no recurrent state: every prefix can be stood at */
	void (*on_forward)(void *arg, const struct pass *p); /* called by each step, or NULL */
	void *on_forward_arg;
	/* Computes nothing, knows no truth: whoever is called by on_forward writes the logits. */
	bool idle;
};

struct model *toy_open(const struct toy_opts *o);
void toy_close(struct model *m);

/* The truth: logits of the row at n - 1, of tok[0..n).  A row that brings its vector is the one number of it, below 0. */
void toy_logits(const struct model *m, const int32_t *tok, int n, float *out);

/* Byte-level tokenizer: ids 0..255 are the bytes, a few longer tokens, one special. */
struct tokenizer *toy_tokenizer(void);
enum { TOY_EURO_HEAD = 256, TOY_STOPPED = 257, TOY_HELLO = 258, TOY_END = 259 };

#endif
