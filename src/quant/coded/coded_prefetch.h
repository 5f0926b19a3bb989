/* coded_prefetch.h - inside quant/: prefetching of weights by the kernels of few rows. */
#ifndef QUANT_CODED_AHEAD_H
#define QUANT_CODED_AHEAD_H

#include "quant/coded/packed_layout.h"
#include "quant/kernel_rows.h"

/* Prefetches the scales, and biases, of n outputs from o on.  Inlined: gcc 12 drops calls of a function that
 * only prefetches. */
__attribute__((always_inline)) static inline void coded_prefetch_scales(const struct weight *w, int o, int n)
{
	size_t row = weight_scale_bytes(w), at = (size_t)o * row;

	for (size_t i = 0; i < (size_t)n * row; i += 64) {
		__builtin_prefetch(w->scales + at + i, 0, 3);
		if (w->fmt->coding->bias)
			__builtin_prefetch(w->biases + at + i, 0, 3);
	}
}

/* Prefetch position of a kernel that reads OUT_ONCE outputs at a time: its share of the outputs that
 * follow, whichever thread computes those, in RUNS runs of memory side by side, one line of each run in
 * turn.  The hardware prefetcher reads a page in rising order, a few lines ahead and only while the
 * page is being read, so reading several pages at once keeps more lines in flight than one does
 * (bench/notes/kernels.md).  At the end of the weight the last outputs are prefetched again. */
struct coded_ahead {
	const uint8_t *at; /* the share's first line of the first run */
	size_t hop;        /* from a run to the next */
};
enum { RUNS = 4, AHEAD_BYTES = 32 << 10, AHEAD_MOST = 32 };
static inline struct coded_ahead coded_look_ahead(const struct weight *w, int o)
{
	int n = OUT_ONCE * w->row_bytes < AHEAD_BYTES ? AHEAD_MOST : OUT_ONCE, next = (o / n + 1) * n;
	const uint8_t *blocks = packed_of(w);

	if (next > w->rows - n)
		next = w->rows > n ? w->rows - n : 0;
	if (blocks) {
		size_t run = (size_t)(n / BLOCK_OUT) * packed_step(w) / RUNS;

		return (struct coded_ahead){ packed_at(w, blocks, next, 0) + run * (size_t)(o % n) / (size_t)n, run };
	}
	return (struct coded_ahead){ w->data + ((size_t)next + (size_t)(o % n / RUNS)) * w->row_bytes,
		                     (size_t)(n / RUNS) * w->row_bytes };
}

/* Prefetch position for scales and biases in kernels of one row.  Those kernels read two runs of memory side by side,
 * outputs from o on and from o + n on, and prefetch scales and biases of both, one line at a time in turn. */
enum { ONE_RUNS = 2 };
struct coded_asked {
	const uint8_t *at[2 * ONE_RUNS];
	unsigned n;
};
/* Prefetches the first lines at once, so that every later prefetch is one line ahead. */
__attribute__((always_inline)) static inline struct coded_asked coded_prefetcher_from(const struct weight *w, int o,
                                                                                      int n)
{
	struct coded_asked a = { .n = 0 };

	for (int k = 0; k < ONE_RUNS; k++) {
		size_t from = (size_t)(o + k * n) * (size_t)(w->cols / w->group) * (size_t)dtype_size(w->scale_type);

		a.at[2 * k] = w->scales + from;
		a.at[2 * k + 1] = w->biases + from;
	}
	for (int i = 0; i < 2 * ONE_RUNS; i++)
		__builtin_prefetch(a.at[i]);
	return a;
}
__attribute__((always_inline)) static inline void coded_prefetch_next(struct coded_asked *a)
{
	__builtin_prefetch(a->at[a->n++ % (2 * ONE_RUNS)] += 64);
}

#endif
