/* low_rank.h - what adapters (LoRA, https://arxiv.org/abs/2106.09685) add to the products of weights.
 *
 *     y = W x + bias + scale (alpha / rank) B (A x)
 *
 * A row's item says which adapters it has, and how much of each (struct pass, adapter).  Per row and output the sum is
 * made after the bias and before the activation, adapter by adapter in the order of the mix:
 *
 *     h[r] = A[r] . x                      in the order of A's format (quant/format.h)
 *     d = fma(h[r], B[o][r], d)            over rising r, from 0
 *     y[o] = fma(scale alpha / rank, d, y[o])
 *
 * so the law of the row holds with adapters, and a row without one has the bits that it has where there are none. */
#ifndef BACKEND_LOW_RANK_H
#define BACKEND_LOW_RANK_H

#include <stdbool.h>

#include "base/digest.h"
#include "quant/format.h"

struct pass;

enum {
	LOW_RANK_MAX = 1024, /* largest rank */
	LOW_RANK_PANEL = 16, /* outputs of B side by side */
	ADAPTERS_MIX = 8,    /* most adapters of one sequence */
};

/* The addition to one weight of the model. */
struct low_rank {
	const uint8_t *of; /* the weight's data; a weight made of some of its rows (weight_rows) counts as part of it */
	size_t of_row_bytes;
	int of_rows, rank;
	struct weight a; /* [rank][inputs] */
	/* [(of_rows + 15) / 16][rank][16] floats, or bf16 where half; zeros beyond the last row. */
	const void *b;
	bool half;
	float factor; /* alpha / rank, or alpha / sqrt(rank) */
};

struct adapter {
	const char *name;
	struct digest digest; /* of all its numbers and what they are for */
	struct low_rank *v;   /* [n] by rising of */
	int n;
	size_t bytes; /* of memory */
};

/* The adapters of one sequence: the parts are added in this order, each times its scale. */
struct adapter_mix {
	int n; /* 0: nothing */
	struct {
		const struct adapter *of; /* borrowed: outlives every pass */
		float scale;
	} part[ADAPTERS_MIX];
};

/* The adapter's addition to w, or to the weight that w is rows of; NULL: there is none.  *row0: where w begins in it. */
const struct low_rank *low_rank_find(const struct adapter *a, const struct weight *w, int *row0);
/* Does an adapter of the pass add to w's products? */
bool low_rank_any(const struct pass *p, const struct weight *w);
/* The first of a linear's n rows that belongs to item i or a later one; these are all rows of the pass, or those with
 * logits. */
int low_rank_first_row(const struct pass *p, int i, int n);
bool adapter_mix_same(const struct adapter_mix *a, const struct adapter_mix *b);

#endif
