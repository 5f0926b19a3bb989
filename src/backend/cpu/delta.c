/* delta.c - the gated delta net between its projections (Yang et al., Gated Delta
 * Networks, 2024): the plain recurrence, token by token, a head at a time.
 *
 *   d = beta (v - alpha S'k)     o = alpha S'q + (k.q) d     S <- alpha S + k d'
 *
 * A key head with its value heads is one part, from the convolution to the gated
 * norm, a block of tokens at a time: rows of a step lie a multiple of pages apart, so
 * what is read of them is read once, into rows side by side.
 *
 * S of a head is cut into tiles of 32 value columns, [dim_v / 32][dim_k][32] (and
 * one of 16 for what is left), of which one or two stay in the first cache while the
 * block's tokens stream past. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"

enum { BLOCK = 64 }; /* tokens, at least; a block with tentative ones has all that are left */

struct job {
	struct pass *p;
	struct cpu_backend *c;
	const struct delta *d;
	const struct state_shape *s;
	const struct state_view *view;
	const float *qkv, *z, *b, *a;
	float *out;
	struct made *made;    /* in place of out; NULL: floats */
	int layer, rows_most; /* rows_most: of a block */
};

/* A thread's memory: a block's rows, side by side. */
struct desk {
	float *kq, *v, *out;       /* [rows][k, q: 2 dim_k], [rows][dim_v] of one value head */
	float *dot, *alpha, *beta; /* [rows] k . q, and the gates of one value head */
	float *spare;              /* of delta_head */
	const float **row;         /* [CONV_MAX + rows] of convolve */
};

static size_t tape_k(const struct state_shape *s)
{
	return (size_t)s->conv_channels;
}
static size_t tape_alpha(const struct state_shape *s)
{
	return tape_k(s) + (size_t)s->heads_k * (size_t)s->dim_k;
}
static size_t tape_delta(const struct state_shape *s)
{
	return tape_alpha(s) + (size_t)s->heads_v;
}

static int slot_of(const struct job *j, int item)
{
	return j->p->span[item].slot;
}

/* Where a row of the slot's tape lies in this layer. */
static float *tape_row(const struct job *j, int item, int row)
{
	return state_tape_row(j->view, slot_of(j, item), j->layer, row);
}

/* Rows at the tape's beginning that the item's S is owed. */
static int owed(const struct job *j, int item)
{
	return j->view->owed[slot_of(j, item)];
}

/* Row i of the item, counted from its first of this step, on the tape, where it goes. */
static float *taped_row(const struct job *j, int item, int i)
{
	const struct span *sp = &j->p->span[item];

	return tape_row(j, item, state_taped_at(j->view, sp) + i - state_taped(j->view, sp));
}

static float *tail_of(const struct state_view *v, int slot, int layer)
{
	return v->tail + ((size_t)slot * (size_t)v->shape.layers + (size_t)layer) * state_tail_floats(&v->shape);
}

static float *state_of(const struct state_view *v, int slot, int layer)
{
	return v->s + ((size_t)slot * (size_t)v->shape.layers + (size_t)layer) * state_floats(&v->shape);
}

static size_t desk_bytes(const struct state_shape *s, int rows)
{
	size_t floats = ((size_t)rows + 15) / 16 * 16 * (2 * (size_t)s->dim_k + 2 * (size_t)s->dim_v + 3) +
	                DELTA_SPARE * (size_t)s->dim_k;

	return floats * sizeof(float) + ((size_t)rows + CONV_MAX) * sizeof(float *);
}

static struct desk desk_of(const struct job *j)
{
	size_t rows = ((size_t)j->rows_most + 15) / 16 * 16;
	struct desk k = { .kq = cpu_my_scratch(j->c) };

	k.v = k.kq + rows * 2 * (size_t)j->s->dim_k;
	k.out = k.v + rows * (size_t)j->s->dim_v;
	k.dot = k.out + rows * (size_t)j->s->dim_v;
	k.alpha = k.dot + rows;
	k.beta = k.alpha + rows;
	k.spare = k.beta + rows;
	k.row = (const float **)(k.spare + DELTA_SPARE * (size_t)j->s->dim_k);
	return k;
}

/* The first copy of the item's state that is wanted after more than `row` of its rows;
 * NULL: none. */
static const struct state_keep *keep_after(const struct state_view *v, int item, int row)
{
	const struct state_keep *first = NULL;

	for (int i = 0; i < v->n_keep; i++) {
		const struct state_keep *k = &v->keep[i];

		if (k->item == item && k->row > row && (!first || k->row < first->row))
			first = k;
	}
	return first;
}

/* Row i of channel c0 and on, i counted from the item's first of this step; before it come
 * the owed ones, on the tape, and before those the tail. */
static const float *input(const struct job *j, int item, int i, int c0)
{
	size_t ld = (size_t)j->s->conv_channels;
	int n_owed = owed(j, item);

	if (i >= 0)
		return j->qkv + ((size_t)j->p->row[item] + (size_t)i) * ld + c0;
	if (n_owed + i >= 0)
		return tape_row(j, item, n_owed + i) + c0;
	return tail_of(j->view, slot_of(j, item), j->layer) + (size_t)(j->s->conv_width - 1 + n_owed + i) * ld + c0;
}

/* Channels [c0, c0 + n) of n_row rows from i on, convolved, out_ld apart. */
static void convolve(const struct job *j, const struct desk *d, float *out, size_t out_ld, int item, int i, int n_row,
                     int c0, int n)
{
	int before = j->s->conv_width - 1;

	for (int k = 0; k < before + n_row; k++)
		d->row[k] = input(j, item, i - before + k, c0);
	j->c->op->conv_silu(out, out_ld, d->row, n_row, j->d->conv + c0, (size_t)j->s->conv_channels, before + 1, n);
}

/* The channels of key head hk and of its value heads, out of a row of all. */
static void copy_channels(const struct state_shape *s, float *to, const float *from, int hk)
{
	size_t k = (size_t)hk * (size_t)s->dim_k, all = (size_t)s->heads_k * (size_t)s->dim_k;
	size_t values = (size_t)(s->heads_v / s->heads_k * s->dim_v);

	memcpy(to + k, from + k, (size_t)s->dim_k * sizeof *to);
	memcpy(to + all + k, from + all + k, (size_t)s->dim_k * sizeof *to);
	memcpy(to + 2 * all + (size_t)hk * values, from + 2 * all + (size_t)hk * values, values * sizeof *to);
}

/* The tail as it is after `row` > 0 of the item's rows; to may be the one before them, since
 * what is read lies above what is written. */
static void tail_after(const struct job *j, float *to, int item, int row, int hk)
{
	int keep = j->s->conv_width - 1;

	for (int i = 0; i < keep; i++)
		copy_channels(j->s, to + (size_t)i * (size_t)j->s->conv_channels, input(j, item, row - keep + i, 0),
		              hk);
}

/* alpha and beta of n rows of value head h. */
static void gates(const struct job *j, struct desk *k, int item, int i0, int n, int h)
{
	size_t ld = (size_t)j->s->heads_v, at = ((size_t)j->p->row[item] + (size_t)i0) * ld + (size_t)h;
	float *e = k->out; /* not in use yet */

	for (int i = 0; i < n; i++) {
		k->alpha[i] = j->a[at + (size_t)i * ld] + j->d->dt_bias[h];
		k->beta[i] = j->b[at + (size_t)i * ld];
	}
	j->c->op->exp(e, k->alpha, n);
	for (int i = 0; i < n; i++) /* beyond 20 softplus(t) = t in float */
		k->alpha[i] = -j->d->a_log_exp[h] * (k->alpha[i] > 20.0f ? k->alpha[i] : log1pf(e[i]));
	j->c->op->exp(k->alpha, k->alpha, n);
	j->c->op->sigmoid(k->beta, k->beta, n);
}

/* k and q of key head hk of n rows from i0 on. */
static void keys(const struct job *j, struct desk *d, int item, int i0, int n, int hk)
{
	const struct state_shape *s = j->s;
	int dim = s->dim_k;

	convolve(j, d, d->kq, 2 * (size_t)dim, item, i0, n, (s->heads_k + hk) * dim, dim);
	convolve(j, d, d->kq + dim, 2 * (size_t)dim, item, i0, n, hk * dim, dim);
	for (int i = 0; i < n; i++) {
		float *k = d->kq + (size_t)i * 2 * (size_t)dim, *q = k + dim;

		j->c->op->l2norm(k, dim, 1.0f);
		j->c->op->l2norm(q, dim, 1.0f / sqrtf((float)dim));
		d->dot[i] = j->c->vec.dot(k, q, dim);
	}
}

/* The first n rows of a layer's tape, as value head h's old ones. */
static void old_rows(const struct state_shape *s, struct delta_rows *t, const float *tape, int n, int h)
{
	int hk = h / (s->heads_v / s->heads_k);

	t->old_k = tape + tape_k(s) + (size_t)(hk * s->dim_k);
	t->old_alpha = tape + tape_alpha(s) + (size_t)h;
	t->old_delta = tape + tape_delta(s) + (size_t)(h * s->dim_v);
	t->n_old = n;
}

/* Value head h through n rows from i0 on. */
static void values(const struct job *j, struct desk *k, int item, int i0, int n, int h)
{
	const struct state_shape *s = j->s;
	int slot = slot_of(j, item), dim = s->dim_v, sure = state_taped(j->view, &j->p->span[item]) - i0;
	size_t row_floats = (size_t)s->heads_v * (size_t)dim;
	size_t at = ((size_t)j->p->row[item] + (size_t)i0) * row_floats + (size_t)(h * dim);
	struct delta_rows t = {
		.k = k->kq,
		.q = k->kq + s->dim_k,
		.kq_ld = 2 * (size_t)s->dim_k,
		.v = k->v,
		.alpha = k->alpha,
		.beta = k->beta,
		.kq = k->dot,
		.out = k->out,
		.n = n,
		.n_sure = sure < n ? sure : n,
		.tape_ld = state_tape_floats(s),
	};

	convolve(j, k, k->v, (size_t)dim, item, i0, n, 2 * s->heads_k * s->dim_k + h * dim, dim);
	gates(j, k, item, i0, n, h);
	if (i0 == 0 && owed(j, item))
		old_rows(s, &t, tape_row(j, item, 0), owed(j, item), h);
	if (t.n_sure < n)
		t.tape = taped_row(j, item, i0 + t.n_sure) + tape_delta(s) + (size_t)(h * dim);
	j->c->op->delta_head(state_of(j->view, slot, j->layer) + (size_t)h * (state_floats(s) / (size_t)s->heads_v),
	                     s->dim_k, dim, &t, k->spare);
	for (int i = t.n_sure; i < n; i++) /* not before: the old ones may lie there */
		taped_row(j, item, i0 + i)[tape_alpha(s) + (size_t)h] = k->alpha[i];
	for (int i = 0; i < n; i++, at += row_floats) {
		enum { AHEAD = 3, LINE = 16 }; /* rows; floats */
		float *row = k->out + (size_t)(i * dim), *to;

		for (int l = 0; l < dim && i + AHEAD < n; l += LINE)
			__builtin_prefetch(j->z + at + AHEAD * row_floats + l);
		to = j->made ? row : j->out + at;
		j->c->op->gated_norm(to, row, j->z + at, dim, j->d->norm, j->d->eps, j->d->sigmoid_gate);
		if (j->made)
			cpu_made_put(j->c, j->made, j->p->row[item] + i0 + i, h * dim, row, dim);
	}
}

/* Copies what the sequence would hold had it stopped at k. */
static void keep_part(const struct job *j, const struct state_keep *k, int hk)
{
	const struct state_shape *s = j->s;
	size_t group = state_floats(s) / (size_t)s->heads_k;

	memcpy(k->s + (size_t)j->layer * state_floats(s) + (size_t)hk * group,
	       state_of(j->view, slot_of(j, k->item), j->layer) + (size_t)hk * group, group * sizeof *k->s);
	tail_after(j, k->tail + (size_t)j->layer * state_tail_floats(s), k->item, k->row, hk);
}

static void ask(const float *x, int n)
{
	for (int i = 0; i < n; i += 16)
		__builtin_prefetch(x + i);
}

/* Asks for what a step of few rows reads of a key head beside S: it lies in many places, a line or
 * some in each, and has long left the caches. */
static void ask_head(const struct job *j, int item, int hk)
{
	const struct state_shape *s = j->s;
	int group = s->heads_v / s->heads_k, values = 2 * s->heads_k * s->dim_k + hk * group * s->dim_v;

	for (int i = 1 - s->conv_width; i < 1; i++) {
		ask(input(j, item, i, hk * s->dim_k), s->dim_k);
		ask(input(j, item, i, (s->heads_k + hk) * s->dim_k), s->dim_k);
		ask(input(j, item, i, values), group * s->dim_v);
	}
	for (int i = 0; i < owed(j, item); i++) {
		const float *tape = tape_row(j, item, i);

		ask(tape + tape_k(s) + (size_t)(hk * s->dim_k), s->dim_k);
		ask(tape + tape_delta(s) + (size_t)(hk * group * s->dim_v), group * s->dim_v);
	}
}

/* Parts: item x key head. */
static void delta_part(void *ctx, int part)
{
	const struct job *j = ctx;
	const struct state_shape *s = j->s;
	int item = part / s->heads_k, hk = part % s->heads_k, group = s->heads_v / s->heads_k;
	int rows = j->p->span[item].n, taped = state_taped(j->view, &j->p->span[item]);
	struct desk d = desk_of(j);

	if (rows < BLOCK && hk + 1 < s->heads_k)
		ask_head(j, item, hk + 1);
	for (int i = 0, n; i < rows; i += n) {
		const struct state_keep *k = keep_after(j->view, item, i);

		n = taped - i > BLOCK ? BLOCK : rows - i;
		if (k && k->row - i < n)
			n = k->row - i;
		keys(j, &d, item, i, n, hk);
		for (int h = hk * group; h < (hk + 1) * group; h++)
			values(j, &d, item, i, n, h);
		for (int t = taped > i ? taped : i; t < i + n; t++) /* not before: the old ones may lie there */
			memcpy(taped_row(j, item, t) + tape_k(s) + (size_t)(hk * s->dim_k),
			       d.kq + (size_t)(t - i) * 2 * (size_t)s->dim_k, (size_t)s->dim_k * sizeof(float));
		if (k && k->row == i + n)
			keep_part(j, k, hk);
	}
	if (!j->view->still[slot_of(j, item)])
		tail_after(j, tail_of(j->view, slot_of(j, item), j->layer), item, taped, hk);
	for (int i = taped; i < rows; i++)
		copy_channels(s, taped_row(j, item, i), input(j, item, i, 0), hk);
}

void cpu_delta(struct pass *p, float *out, const struct delta *d, const float *qkv, const float *z, const float *b,
               const float *a, const struct state_view *view, int layer)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	const struct state_shape *s = &view->shape;
	struct job j = { p, c, d, s, view, qkv, z, b, a, out, .layer = layer };

	assert(s->heads_v % s->heads_k == 0 && s->conv_width >= 1 && s->conv_width <= CONV_MAX);
	assert(s->conv_channels == 2 * s->heads_k * s->dim_k + s->heads_v * s->dim_v);
	for (int i = 0; i < p->n_item; i++) {
		int taped = p->span[i].n - state_taped(view, &p->span[i]);
		int n = p->span[i].n < BLOCK + taped ? p->span[i].n : BLOCK + taped;

		assert(p->span[i].n_draft < p->span[i].n &&
		       state_taped_at(view, &p->span[i]) + taped <= view->tape_rows);
		j.rows_most = n > j.rows_most ? n : j.rows_most;
	}
	for (int i = 0; i < view->n_keep; i++)
		assert(view->keep[i].row > 0 && view->keep[i].row <= state_taped(view, &p->span[view->keep[i].item]));
	j.made = cpu_made_open(c, d->reader, p->arith, out, p->n_row, s->dim_v);
	cpu_scratch(c, desk_bytes(s, j.rows_most));
	pool_run(c->pool, delta_part, &j, p->n_item * s->heads_k);
}

struct apply {
	struct cpu_backend *c;
	const struct state_view *view;
	int slot, keep;
};

/* Parts: layer x value head; the first head of a layer moves its tail. */
static void apply_part(void *ctx, int part)
{
	const struct apply *d = ctx;
	const struct state_shape *s = &d->view->shape;
	int layer = part / s->heads_v, h = part % s->heads_v;
	float *state = state_of(d->view, d->slot, layer) + (size_t)h * (state_floats(s) / (size_t)s->heads_v);
	struct delta_rows t = { .tape_ld = state_tape_floats(s) };

	old_rows(s, &t, state_tape_row(d->view, d->slot, layer, 0), d->keep, h);
	d->c->op->delta_head(state, s->dim_k, s->dim_v, &t, NULL);
	if (h == 0) {
		size_t n = (size_t)s->conv_channels;
		float *tail = tail_of(d->view, d->slot, layer);
		int rows = s->conv_width - 1, old = rows > d->keep ? rows - d->keep : 0;

		memmove(tail, tail + (size_t)(rows - old) * n, (size_t)old * n * sizeof *tail);
		for (int i = old; i < rows; i++)
			memcpy(tail + (size_t)i * n, state_tape_row(d->view, d->slot, layer, d->keep - rows + i),
			       n * sizeof *tail);
	}
}

void cpu_tape_apply(struct backend *be, const struct state_view *view, int slot, int keep)
{
	struct cpu_backend *c = (struct cpu_backend *)be;
	struct apply d = { c, view, slot, keep };

	assert(keep > 0 && keep <= view->tape_rows);
	pool_run(c->pool, apply_part, &d, view->shape.layers * view->shape.heads_v);
}
