/* rows.h - one prompt through an engine, and the logits of its last positions; a
 * request with all its rows; what caches hold. */
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

/* A request with its answer, and the logits of each of its rows that was computed. */
enum { RUN_ANSWER_MAX = 16 };
struct run {
	struct ask a;
	struct request *r;
	float *row; /* [n_row][vocab]; the caller's to free */
	int n_row;  /* of prompt and answer */
	size_t vocab;
	int32_t got[RUN_ANSWER_MAX];
	int n_got, first; /* first: the first row that was computed; -1: none was */
	struct event end;
	bool done;
};

/* Makes u, zeroed or used before, ready for a prompt and a greedy answer of n_answer tokens; what else u->a says is left. */
void run_begin(struct run *u, const int32_t *prompt, int n, int n_answer, size_t vocab);
void run_submit(struct run *u, struct engine *e);
/* Reads what has come. */
void run_read(struct run *u);
/* Of one that has ended. */
void run_free(struct run *u);
/* Steps the engine to the end of all, reads and frees. */
void run_end(struct run *u, struct engine *e);
/* Aborts where the answer, or a row that u computed, is not what it is in want. */
void run_same(const struct run *u, const struct run *want, const char *what);

/* All that the caches hold of the slot, which stands at pos, as it would be written to
 * disk.  *out is the caller's to end. */
void caches_bytes(struct caches *caches, int slot, int pos, struct buf *out);

/* Keeps caches_bytes in at[pos], in place of what is there, or compares them with it and aborts where they differ. */
void caches_held(struct caches *caches, int slot, int pos, struct buf *at, bool keep);

#endif
