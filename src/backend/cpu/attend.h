/* attend.h - inside backend/cpu/: one call of attend, as its two ways share it: attend.c
 * by the kernels of kv, attend_tiles.c by tiles of bf16. */
#ifndef BACKEND_CPU_ATTEND_H
#define BACKEND_CPU_ATTEND_H

#include "backend/cpu/cpu_backend.h"
#include "quant/kv/kv_tiles.h"

/* Query heads of one key head, of some adjacent rows of an item. */
struct unit {
	int row, n_row, kv_head;
};

struct attend {
	struct pass *p;
	struct cpu_backend *c;
	const struct attn *a;
	const struct kv_tiles *tiles; /* NULL: the kernels of kv */
	struct kv_kernels kv[2];
	bool opens; /* heads are of a size for rows as floats */
	const float *q, *gate;
	float *out;
	size_t q_row, q_head, q_bytes; /* q_bytes: of a query as score reads it */
	const struct kv_view *view;
	int layer, group, rows_most; /* rows_most: of any unit */
	const struct unit *unit;
	int n_seg;      /* > 0: parts are unit x segment, partials kept */
	float *partial; /* [unit][segment], of partial_floats each */
};

static inline size_t partial_floats(const struct attend *d)
{
	/* Room for maxima and sums to begin at a line each. */
	return (size_t)(d->rows_most * d->group) * (size_t)(d->a->dim + 2) + 2 * KV_TILES_LINE;
}

/* The first position that a row of the pass sees. */
static inline int first_seen(const struct attend *d, int row)
{
	int pos = d->p->pos[row], first = d->a->window ? pos - d->a->window + 1 : 0;

	if (d->a->chunk && first < pos - pos % d->a->chunk)
		first = pos - pos % d->a->chunk;
	if (first < d->a->first && pos >= d->a->first)
		first = d->a->first;
	return first > 0 ? first : 0;
}

/* The last one. */
static inline int last_seen(const struct attend *d, int row)
{
	int pos = d->p->pos[row], last = d->a->both_ways && d->p->see ? d->p->see[row] : pos;

	return d->a->ahead && last - pos > d->a->ahead ? pos + d->a->ahead : last;
}

/* Segments of which the unit's rows see something: [segment_first, segments_end). */
static inline int segment_first(const struct attend *d, const struct unit *u)
{
	return first_seen(d, u->row) / ATTN_SEGMENT;
}
static inline int segments_end(const struct attend *d, const struct unit *u)
{
	return last_seen(d, u->row + u->n_row - 1) / ATTN_SEGMENT + 1;
}

/* The seg-th segment of a unit, counted from its first. */
static inline float *partial_at(const struct attend *d, int unit, int seg)
{
	return d->partial + ((size_t)unit * (size_t)d->n_seg + (size_t)seg) * partial_floats(d);
}

static inline uint8_t *kv_at(const struct kv_view *v, int item, int layer, enum kv_side side, int head, int pos)
{
	const struct kv_layer *y = &v->layer[layer];
	int32_t page = v->page[(size_t)item * (size_t)v->page_max + (size_t)(pos / v->page_rows)];
	size_t row = (size_t)head * (size_t)v->page_rows + (size_t)(pos % v->page_rows);

	return v->base + (size_t)page * v->page_bytes + y->at[side] + row * y->row_bytes[side];
}

static inline void layer_kernels(struct kv_kernels kv[2], const struct kv_layer *y, enum cpu_level level)
{
	for (enum kv_side side = KV_KEYS; side <= KV_VALUES; side++)
		y->fmt[side]->kernels(&kv[side], level);
}

static inline int queries_of(const struct attend *d, const struct unit *u)
{
	return u->n_row * d->group;
}

/* Partial results of queries over one segment or several: weights times values, maxima, sums of weights. */
struct partial {
	float *acc, *m, *l;
};
/* Partial results of all queries of a unit, over its segments so far. */
void merged_init(const struct attend *d, const struct unit *u, const struct partial *all);
/* Writes what the unit's rows give. */
void merged_finish(const struct attend *d, const struct unit *u, const struct partial *all);

/* By tiles: the scratch of a thread; a unit; a unit's segment; what its segments add up to. */
size_t attend_tiles_scratch(const struct attend *d);
pool_fn attend_tiles_unit, attend_tiles_part, attend_tiles_merge;

#endif
