/* divergence.h - how far two distributions over the same tokens are apart, row by
 * row, and what is said of all rows together. */
#ifndef BENCH_DIVERGENCE_H
#define BENCH_DIVERGENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One position.  p and q are softmaxes of logits, computed in double; natural
 * logarithms throughout. */
struct row_gap {
	double kl;             /* of q from p: sum of p * (log p - log q); >= 0 */
	bool same_top;         /* the same likeliest token; among equals the lowest id */
	bool scored;           /* a token follows */
	double loss_p, loss_q; /* -log of it; 0 when none does */
};

/* next: the token that follows, -1: none.  q NULL: as p. */
void row_compare(struct row_gap *out, const float *p, const float *q, int vocab, int32_t next);

/* The sums over rows; zeroed is empty. */
struct gaps {
	double *kl; /* [n], owned */
	size_t n, cap;
	size_t same_top;
	size_t scored; /* rows with a token after them */
	double loss_p, loss_q;
};

void gaps_add(struct gaps *g, const struct row_gap *row);
void gaps_fini(struct gaps *g);

/* Summary to print.  A percentile is a value that occurs: the smallest with at least
 * that share of rows at or below it. */
struct gap_summary {
	double kl_mean, kl_error; /* the mean, and its standard error as if rows were independent */
	double kl_median, kl_999, kl_max;
	double same_top;     /* share */
	double ppl_p, ppl_q; /* perplexities; 1 when no row was scored */
};
/* Sorts g->kl.  g has at least one row. */
void gaps_summary(struct gap_summary *out, struct gaps *g);

#endif
