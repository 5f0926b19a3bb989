/* coded_prefetch.h - inside quant/: what kernels that read weights for few rows ask for ahead of its turn. */
#ifndef QUANT_CODED_AHEAD_H
#define QUANT_CODED_AHEAD_H

#include "quant/coded/packed_layout.h"
#include "quant/kernel_rows.h"

/* Asks for the scales, and biases, of n outputs from o on.  Inlined: gcc 12 drops calls of a function that
 * only asks for memory. */
__attribute__((always_inline)) static inline void coded_prefetch_scales(const struct weight *w, int o, int n)
{
	size_t row = weight_scale_bytes(w), at = (size_t)o * row;

	for (size_t i = 0; i < (size_t)n * row; i += 64) {
		__builtin_prefetch(w->scales + at + i, 0, 3);
		if (w->fmt->coding->bias)
			__builtin_prefetch(w->biases + at + i, 0, 3);
	}
}

/* What kernels that read OUT_ONCE outputs at a time ask for meanwhile: their share of the outputs
 * that follow, whoever computes these, in RUNS runs of memory side by side, a line of each in
 * turn.  A processor brings in a page in rising order by itself, a few lines ahead and only while
 * lines of it are asked for, so several pages at a time keep more lines under way than one does
 * (docs/notes/kernels.md).  Where the weight ends, its last outputs again. */
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

/* Kernels of one row read two runs of memory side by side, outputs from o on and from o + n on, and meanwhile ask
 * for scales and biases of both, a line at a time in turn. */
enum { ONE_RUNS = 2 };
struct coded_asked {
	const uint8_t *at[2 * ONE_RUNS];
	unsigned n;
};
/* Asks for the first lines at once, so that later ones come a line early. */
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
