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
	/* [n_row][most + 1] how many positions each row sees, then these; a unit has one row then, and what is called a
	 * position below is a place in this list.  NULL: attn says what rows see. */
	const int32_t *chosen;
	int most;
};

static inline size_t partial_floats(const struct attend *d)
{
	/* Room for maxima and sums to begin at a line each. */
	return (size_t)(d->rows_most * d->group) * (size_t)(d->a->dim + 2) + 2 * KV_TILES_LINE;
}

/* The first position that a row of the pass sees by attn. */
static inline int attn_first(const struct pass *p, const struct attn *a, int row)
{
	int pos = p->pos[row], first = a->window ? pos - a->window + 1 : 0;

	if (a->chunk && first < pos - pos % a->chunk)
		first = pos - pos % a->chunk;
	if (first < a->first && pos >= a->first)
		first = a->first;
	return first > 0 ? first : 0;
}

/* The last one. */
static inline int attn_last(const struct pass *p, const struct attn *a, int row)
{
	int pos = p->pos[row], last = a->both_ways && p->see ? p->see[row] : pos;

	return a->ahead && last - pos > a->ahead ? pos + a->ahead : last;
}

static inline const int32_t *chosen_of(const struct attend *d, int row)
{
	return d->chosen + (size_t)row * (size_t)(d->most + 1);
}

/* The first position that a row sees: the window's, or 0 where positions were chosen. */
static inline int first_seen(const struct attend *d, int row)
{
	return d->chosen ? 0 : attn_first(d->p, d->a, row);
}

static inline int last_seen(const struct attend *d, int row)
{
	return d->chosen ? chosen_of(d, row)[0] - 1 : attn_last(d->p, d->a, row);
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

/* Rotates x by the angles' cosines and sines (append.c). */
void cpu_rotate(const struct op_table *op, const struct rope *r, const float *cosines, const float *sines, float *x);

static inline uint8_t *kv_at(const struct kv_view *v, int item, int layer, enum kv_side side, int head, int pos)
{
	const struct kv_layer *y = &v->layer[layer];
	int32_t page = v->page[(size_t)item * (size_t)v->page_max + (size_t)(pos / v->page_rows)];
	size_t row = (size_t)head * (size_t)v->page_rows + (size_t)(pos % v->page_rows);

	if (v->every > 1)
		row /= (size_t)v->every;
	return v->base + (size_t)page * v->page_bytes + y->at[side] + row * y->row_bytes[side];
}

/* A unit's row of keys or values. */
static inline uint8_t *unit_row_at(const struct attend *d, const struct unit *u, enum kv_side side, int at)
{
	int pos = d->chosen ? chosen_of(d, u->row)[1 + at] : at;

	if (pos < 0)
		return kv_at(d->a->rows, d->p->item[u->row], d->a->rows_layer, side, u->kv_head,
		             ~pos * d->a->rows->every);
	return kv_at(d->view, d->p->item[u->row], d->layer, side, u->kv_head, pos);
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
