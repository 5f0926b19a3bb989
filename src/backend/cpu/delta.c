/* delta.c - the gated delta net between its projections (Yang et al., Gated Delta
 * Networks, 2024): the plain recurrence, token by token, a head at a time.
 *
 *   d = beta (v - alpha S'k)     o = alpha S'q + (k.q) d     S <- alpha S + k d'
 *
 * S of a head is cut into tiles of 32 value columns, [dim_v / 32][dim_k][32] (and
 * one of 16 for what is left), of which one or two stay in the first cache while the
 * item's tokens stream past. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"

struct job {
	struct pass *p;
	struct cpu_backend *c;
	const struct delta *d;
	const struct state_shape *s;
	const struct state_view *view;
	float *qkv, *out;
	const float *z, *b, *a;
	float *alpha, *beta;            /* [row][heads_v] */
	int layer, heads;               /* heads: q, k and v heads together */
	size_t spare_at;                /* floats into a thread's scratch */
};

static float *tape_row(const struct state_view *v, int slot, int row, int layer)
{
	size_t at = ((size_t)slot * (size_t)v->tape_rows + (size_t)row) * (size_t)v->shape.layers + (size_t)layer;

	return v->tape + at * state_tape_floats(&v->shape);
}

static size_t tape_k(const struct state_shape *s) { return (size_t)s->conv_channels; }
static size_t tape_alpha(const struct state_shape *s) { return tape_k(s) + (size_t)s->heads_k * (size_t)s->dim_k; }
static size_t tape_delta(const struct state_shape *s) { return tape_alpha(s) + (size_t)s->heads_v; }

static float *tail_of(const struct state_view *v, int slot, int layer)
{
	return v->tail + ((size_t)slot * (size_t)v->shape.layers + (size_t)layer) * state_tail_floats(&v->shape);
}

static float *state_of(const struct state_view *v, int slot, int layer)
{
	return v->s + ((size_t)slot * (size_t)v->shape.layers + (size_t)layer) * state_floats(&v->shape);
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

/* n channels of the tail as it is after `row` of the item's rows: to[i * to_ld], out of
 * those rows' inputs x and of the tail before them. */
static void tail_after(float *to, size_t to_ld, const float *x, const float *tail, const struct state_shape *s, int row, int n)
{
	size_t ld = (size_t)s->conv_channels;
	int keep = s->conv_width - 1;

	for (int i = 0; i < keep; i++) {
		int at = row - keep + i;        /* token of the step; below 0 it is in the old tail */

		memcpy(to + (size_t)i * to_ld, at < 0 ? tail + (size_t)(keep + at) * ld : x + (size_t)at * ld,
		       (size_t)n * sizeof(float));
	}
}

/* Convolution of channels [c0, c0 + n) over the item's rows, in place; moves the
 * tail over the sure rows and puts the tentative inputs on the tape. */
static void convolve(const struct job *j, int item, int c0, int n)
{
	const struct state_shape *s = j->s;
	const struct span *sp = &j->p->span[item];
	int slot = j->view->slot[item], keep = s->conv_width - 1, sure = sp->n - sp->n_draft;
	size_t ld = (size_t)s->conv_channels, bytes = (size_t)n * sizeof(float);
	float *x = j->qkv + (size_t)j->p->row[item] * ld + c0, *tail = tail_of(j->view, slot, j->layer) + c0;
	float *next = cpu_my_scratch(j->c);     /* the new tail, while the old one is read */

	tail_after(next, (size_t)n, x, tail, s, sure, n);
	for (const struct state_keep *k = keep_after(j->view, item, 0); k; k = keep_after(j->view, item, k->row))
		tail_after(k->tail + (size_t)j->layer * state_tail_floats(&j->view->shape) + c0, ld, x, tail, s, k->row, n);
	for (int i = 0; i < sp->n_draft; i++)
		memcpy(tape_row(j->view, slot, i, j->layer) + c0, x + (size_t)(sure + i) * ld, bytes);
	j->c->op->conv_silu(x, ld, sp->n, n, j->d->conv + (size_t)c0 * (size_t)s->conv_width, s->conv_width, tail,
	                    ld);
	for (int i = 0; i < keep; i++)
		memcpy(tail + (size_t)i * ld, next + (size_t)i * (size_t)n, bytes);
}

static void gates(const struct job *j, int item, int head)
{
	size_t ld = (size_t)j->s->heads_v;

	for (int i = 0; i < j->p->span[item].n; i++) {
		size_t at = (size_t)(j->p->row[item] + i) * ld + (size_t)head;
		float t = j->a[at] + j->d->dt_bias[head], e;

		j->c->op->exp(&e, &t, 1);
		t = -j->d->a_log_exp[head] * (t > 20.0f ? t : log1pf(e)); /* beyond 20 softplus(t) = t in float */
		j->c->op->exp(&j->alpha[at], &t, 1);
		j->c->op->sigmoid(&j->beta[at], &j->b[at], 1);
	}
}

/* Parts: item x (query heads, key heads, value heads). */
static void prepare(void *ctx, int begin, int end)
{
	const struct job *j = ctx;
	const struct state_shape *s = j->s;

	for (int part = begin; part < end; part++) {
		int item = part / j->heads, h = part % j->heads;
		const struct span *sp = &j->p->span[item];
		bool is_k = h >= s->heads_k;
		int c0 = h * s->dim_k;

		if (h >= 2 * s->heads_k) {
			h -= 2 * s->heads_k;
			convolve(j, item, 2 * s->heads_k * s->dim_k + h * s->dim_v, s->dim_v);
			gates(j, item, h);
			for (int i = 0; i < sp->n_draft; i++)
				tape_row(j->view, j->view->slot[item], i, j->layer)[tape_alpha(s) + (size_t)h] =
					j->alpha[(size_t)(j->p->row[item] + sp->n - sp->n_draft + i) *
					         (size_t)s->heads_v + (size_t)h];
			continue;
		}
		convolve(j, item, c0, s->dim_k);
		for (int i = 0; i < sp->n; i++) {
			float *x = j->qkv + (size_t)(j->p->row[item] + i) * (size_t)s->conv_channels + c0;

			j->c->op->l2norm(x, s->dim_k, is_k ? 1.0f : 1.0f / sqrtf((float)s->dim_k));
			if (is_k && i >= sp->n - sp->n_draft)
				memcpy(tape_row(j->view, j->view->slot[item], i - (sp->n - sp->n_draft), j->layer) +
				       tape_k(s) + (size_t)(h - s->heads_k) * (size_t)s->dim_k,
				       x, (size_t)s->dim_k * sizeof *x);
		}
	}
}

/* The recurrence of one head over the item's rows, with a copy of S wherever one is wanted. */
static void recur_rows(const struct job *j, int item, int h, const struct delta_rows *rows, float *spare)
{
	const struct state_shape *s = j->s;
	size_t head = state_floats(s) / (size_t)s->heads_v, at = (size_t)h * head;
	float *state = state_of(j->view, j->view->slot[item], j->layer) + at;
	const struct state_keep *k;
	struct delta_rows t = *rows;
	int done = 0;

	for (; (k = keep_after(j->view, item, done)); done = k->row) {
		t.n = t.n_sure = k->row - done;
		j->c->op->delta_head(state, s->dim_k, s->dim_v, &t, spare);
		memcpy(k->s + (size_t)j->layer * state_floats(s) + at, state, head * sizeof *state);
		t.k += (size_t)t.n * t.kq_ld;
		t.q += (size_t)t.n * t.kq_ld;
		t.v += (size_t)t.n * t.v_ld;
		t.alpha += (size_t)t.n * t.gate_ld;
		t.beta += (size_t)t.n * t.gate_ld;
		t.out += (size_t)t.n * t.out_ld;
		t.kq += t.n;
	}
	t.n = rows->n - done;
	t.n_sure = rows->n_sure - done;
	if (t.n)
		j->c->op->delta_head(state, s->dim_k, s->dim_v, &t, spare);
}

/* Parts: item x value head. */
static void recur(void *ctx, int part)
{
	const struct job *j = ctx;
	const struct state_shape *s = j->s;
	int item = part / s->heads_v, h = part % s->heads_v, hk = h / (s->heads_v / s->heads_k);
	const struct span *sp = &j->p->span[item];
	size_t row = (size_t)j->p->row[item], out_ld = (size_t)s->heads_v * (size_t)s->dim_v;
	float *base = j->qkv + row * (size_t)s->conv_channels;
	float *kq = cpu_my_scratch(j->c), *spare = kq + j->spare_at, *rows = spare + DELTA_SPARE * s->dim_k;
	size_t dim = (size_t)s->dim_k;
	struct delta_rows t = {
		.k = rows, .q = rows + dim, .kq_ld = 2 * dim,
		.v = base + 2 * s->heads_k * s->dim_k + h * s->dim_v,
		.alpha = j->alpha + row * (size_t)s->heads_v + h, .beta = j->beta + row * (size_t)s->heads_v + h,
		.out = j->out + row * out_ld + (size_t)h * (size_t)s->dim_v, .v_ld = (size_t)s->conv_channels,
		.gate_ld = (size_t)s->heads_v, .out_ld = out_ld, .n = sp->n, .n_sure = sp->n - sp->n_draft, .kq = kq,
		.tape_ld = (size_t)j->view->shape.layers * state_tape_floats(s),
	};

	if (sp->n_draft)
		t.tape = tape_row(j->view, j->view->slot[item], 0, j->layer) + tape_delta(s) +
		         (size_t)h * (size_t)s->dim_v;
	/* Side by side, since they are read once for every DELTA_SPARE columns: where they
	 * are, rows lie a multiple of pages apart and push each other out of the caches. */
	for (int i = 0; i < sp->n; i++, rows += 2 * dim) {
		const float *from = base + (size_t)i * (size_t)s->conv_channels;

		memcpy(rows, from + (size_t)(s->heads_k + hk) * dim, dim * sizeof *rows);
		memcpy(rows + dim, from + (size_t)hk * dim, dim * sizeof *rows);
		kq[i] = j->c->vec.dot(rows, rows + dim, s->dim_k);
	}
	recur_rows(j, item, h, &t, spare);
	for (int i = 0; i < sp->n; i++) {
		enum { AHEAD = 3, LINE = 16 };  /* rows; floats */

		for (int k = 0; k < s->dim_v && i + AHEAD < sp->n; k += LINE)
			__builtin_prefetch(j->z + (row + (size_t)(i + AHEAD)) * out_ld + (size_t)h * (size_t)s->dim_v + k);
		j->c->op->gated_norm(t.out + (size_t)i * out_ld,
		                     j->z + (row + (size_t)i) * out_ld + (size_t)h * (size_t)s->dim_v, s->dim_v,
		                     j->d->norm, j->d->eps, j->d->sigmoid_gate);
	}
}

void cpu_delta(struct pass *p, float *out, const struct delta *d, float *qkv, const float *z, const float *b,
               const float *a, const struct state_view *view, int layer)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	const struct state_shape *s = &view->shape;
	struct job j = { p, c, d, s, view, qkv, out, z, b, a, .layer = layer, .heads = 2 * s->heads_k + s->heads_v };
	int longest = 0, dim = s->dim_k > s->dim_v ? s->dim_k : s->dim_v;
	size_t gate = (size_t)p->n_row * (size_t)s->heads_v, scratch;

	assert(s->heads_v % s->heads_k == 0 && s->conv_width >= 1 && s->conv_width <= CONV_MAX);
	assert(s->conv_channels == 2 * s->heads_k * s->dim_k + s->heads_v * s->dim_v);
	for (int i = 0; i < p->n_item; i++) {
		assert(p->span[i].n_draft < p->span[i].n && p->span[i].n_draft <= view->tape_rows);
		longest = p->span[i].n > longest ? p->span[i].n : longest;
	}
	for (int i = 0; i < view->n_keep; i++)
		assert(view->keep[i].row > 0 && view->keep[i].row <= p->span[view->keep[i].item].n - p->span[view->keep[i].item].n_draft);
	j.alpha = room_get(&c->work, 2 * gate * sizeof(float));
	j.beta = j.alpha + gate;
	j.spare_at = ((size_t)longest + 15) / 16 * 16;
	scratch = j.spare_at + (size_t)s->dim_k * (DELTA_SPARE + 2 * (size_t)longest);
	if (scratch < (size_t)CONV_MAX * (size_t)dim)
		scratch = (size_t)CONV_MAX * (size_t)dim;
	cpu_scratch(c, scratch * sizeof(float));
	cpu_range(c, prepare, &j, p->n_item * j.heads, 1);
	pool_run(c->pool, recur, &j, p->n_item * s->heads_v);
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
	int layer = part / s->heads_v, h = part % s->heads_v, hk = h / (s->heads_v / s->heads_k);
	float *state = state_of(d->view, d->slot, layer) + (size_t)h * (state_floats(s) / (size_t)s->heads_v);

	for (int i = 0; i < d->keep; i++) {
		const float *t = tape_row(d->view, d->slot, i, layer);

		d->c->op->delta_apply(state, s->dim_k, s->dim_v, t + tape_k(s) + (size_t)hk * (size_t)s->dim_k,
		                      t[tape_alpha(s) + (size_t)h], t + tape_delta(s) + (size_t)h * (size_t)s->dim_v);
	}
	if (h == 0) {
		size_t n = (size_t)s->conv_channels;
		float *tail = tail_of(d->view, d->slot, layer);
		int rows = s->conv_width - 1, old = rows > d->keep ? rows - d->keep : 0;

		memmove(tail, tail + (size_t)(rows - old) * n, (size_t)old * n * sizeof *tail);
		for (int i = old; i < rows; i++)
			memcpy(tail + (size_t)i * n, tape_row(d->view, d->slot, d->keep - rows + i, layer),
			       n * sizeof *tail);
	}
}

void cpu_tape_apply(struct backend *be, const struct state_view *view, int slot, int keep)
{
	struct cpu_backend *c = (struct cpu_backend *)be;
	struct apply d = { c, view, slot, keep };

	assert(keep >= 0 && keep <= view->tape_rows);
	if (keep)
		pool_run(c->pool, apply_part, &d, view->shape.layers * view->shape.heads_v);
}
