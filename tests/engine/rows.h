/* rows.h - one prompt through an engine, and the logits of its last positions; what
 * caches hold. */
#ifndef TESTS_ENGINE_ROWS_H
#define TESTS_ENGINE_ROWS_H

#include "../check.h"
#include "base/buf.h"
#include "cache/cache.h"
#include "engine/engine.h"

struct rows {
	int from, most; /* rows of positions [from, from + most) are kept */
	size_t vocab;
	float *row; /* [most][vocab] */
	int n;      /* that came */
};

/* Runs tok[0..n) by hand, without an answer; rows NULL: no logits are asked for.
 * Aborts when it does not end as it should. */
struct prefix_report rows_ask(struct engine *e, const int32_t *tok, int n, struct rows *rows);

/* The same with an answer of up to n_answer tokens, greedy, which are appended to tok.  Returns
 * how many tokens there are then that the caches have seen: all but the answer's last. */
int rows_answer(struct engine *e, int32_t *tok, int n, int n_answer);

/* All that the caches hold of the slot, which stands at pos, as it would be written to
 * disk.  *out is the caller's to end. */
void caches_bytes(struct caches *caches, int slot, int pos, struct buf *out);

/* Keeps caches_bytes in at[pos], in place of what is there, or compares them with it and aborts where they differ. */
void caches_held(struct caches *caches, int slot, int pos, struct buf *at, bool keep);

#endif
