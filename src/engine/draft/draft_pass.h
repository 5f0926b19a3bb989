/* draft_pass.h - steps of a drafter's own model: rows are gathered, run, and all
 * kept.  What must be taken back is a matter of the caches.  For src/engine/. */
#ifndef ENGINE_DRAFT_PASS_H
#define ENGINE_DRAFT_PASS_H

#include "model/model.h"

struct draft_pass {
	struct model *m;
	struct pass pass;       /* pass.hidden and pass.given may be set before run */
	int seqs_max, rows_max; /* spans and rows of one step */
	int each;               /* rows of a span that have logits: the last, or the guesses of a block */
	size_t logits_bytes;
	struct span *span;         /* [seqs_max] */
	int32_t *first;            /* [seqs_max] */
	int32_t *logit_row;        /* [seqs_max][each] */
	int32_t *tok, *pos, *item; /* [rows_max] */
	int32_t *see;              /* [rows_max] */
	/* [seqs_max] set by run for spans whose rows are invalid, since a row of a table could not be read: nothing may be
	 * guessed from them or kept of them.  All of them, where the device failed. */
	bool *spoiled;
	float *logits; /* [n_logit][vocab] of the last step */
	float *copied; /* them, of a backend whose memory is elsewhere; else NULL */
};

/* The model stays the caller's.  E_FULL: no memory. */
int draft_pass_open(struct draft_pass *p, struct model *m, int seqs_max, int rows_max, struct err *err);
void draft_pass_close(struct draft_pass *p); /* also of a zeroed one */

void draft_pass_clear(struct draft_pass *p);
/* n more rows of a slot; with pass.ahead those of a head that guesses blocks are one, and see each other.
 * logits: of the last `each`.  E_FULL: the caches have no
 * room, and nothing has changed. */
int draft_pass_add(struct draft_pass *p, int slot, int pos, const int32_t *tok, int n, bool logits);
void draft_pass_run(struct draft_pass *p);
/* Computes the rows like draft_pass_run, but leaves the caches to the caller, which begins their step before and settles it
 * afterwards.  All spans are spoiled if the device fails. */
void draft_pass_compute(struct draft_pass *p);
/* The i-th row that wanted logits, to be read once and changed at will; valid until the next call. */
float *draft_pass_logits(struct draft_pass *p, int i);

#endif
