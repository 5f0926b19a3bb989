/* append.c - queries, keys and values made ready for attention: normed, rotated, and keys and values written to their
 * pages. */
#include <assert.h>
#include <string.h>

#include "backend/cpu/attend.h"
#include "backend/rope.h"

struct append {
	struct pass *p;
	struct cpu_backend *c;
	const struct attn *a;
	float *q, *k;
	const float *v;
	size_t q_row, q_head;
	const struct kv_view *view;
	int layer;
	struct kv_kernels kv[2];
};

/* A thread's memory: cosines and sines of a position, and a head of values, or two rows of a block, or a block's key, keys and
 * weights. */
struct desk {
	float *cos, *sin, *v;
};

static size_t desk_floats(const struct attn *a)
{
	return 2 * (size_t)a->rope.n_freq + 2 * (size_t)(1 + (a->pool_bias ? a->pooled : 0)) * (size_t)a->dim;
}

static struct desk desk_of(const struct append *d)
{
	struct desk k = { .cos = cpu_my_scratch(d->c) };

	k.sin = k.cos + d->a->rope.n_freq;
	k.v = k.sin + d->a->rope.n_freq;
	return k;
}

/* Pairs of neighbours, by way of two vectors. */
static void rotate_adjacent(const struct op_table *op, const float *cosines, const float *sines, float *x, int n)
{
	enum { ONCE = 64 };
	float t[2 * ONCE];

	for (int i = 0; i < n; i += ONCE) {
		int m = n - i < ONCE ? n - i : ONCE;

		for (int j = 0; j < m; j++) {
			t[j] = x[2 * (i + j)];
			t[m + j] = x[2 * (i + j) + 1];
		}
		op->rope(t, cosines + i, sines + i, m, m);
		for (int j = 0; j < m; j++) {
			x[2 * (i + j)] = t[j];
			x[2 * (i + j) + 1] = t[m + j];
		}
	}
}

void cpu_rotate(const struct op_table *op, const struct rope *r, const float *cosines, const float *sines, float *x)
{
	if (r->adjacent)
		rotate_adjacent(op, cosines, sines, x + r->at, r->n_freq);
	else
		op->rope(x + r->at, cosines, sines, r->n_freq, r->apart ? r->apart : r->n_freq);
}

static void rotate(const struct append *d, const struct desk *k, float *x)
{
	cpu_rotate(d->c->op, &d->a->rope, k->cos, k->sin, x);
}

static void queries(const struct append *d, const struct desk *k, int r)
{
	const struct attn *a = d->a;
	float bend = q_bend_at(a, d->p->pos[r]);

	for (int h = 0; h < a->heads; h++) {
		float *q = d->q + (size_t)r * d->q_row + (size_t)h * d->q_head;

		if (a->q_norm)
			d->c->op->norm(q, q, a->dim, a->q_norm, a->eps);
		rotate(d, k, q);
		if (bend != 1.0f)
			d->c->op->scale(q, bend, a->dim);
		if (d->kv[KV_KEYS].turn)
			d->kv[KV_KEYS].turn(q, a->dim);
	}
}

static void key(const struct append *d, const struct desk *desk, float *k)
{
	const struct attn *a = d->a;

	if (a->k_norm)
		d->c->op->norm(k + a->norm_from, k + a->norm_from, a->dim - a->norm_from, a->k_norm, a->eps);
	rotate(d, desk, k);
}

/* The value goes first, since it may be the key as it is before norm and rotation; or last, where it is the key as it
 * is then, and has perhaps no row of its own. */
static void key_and_value(const struct append *d, const struct desk *desk, int r, int h)
{
	const struct attn *a = d->a;
	int item = d->p->item[r], pos = d->p->pos[r];
	size_t at = ((size_t)r * (size_t)a->heads_kv + (size_t)h) * (size_t)a->dim;
	uint8_t *to_k = kv_at(d->view, item, d->layer, KV_KEYS, h, pos);
	uint8_t *to_v = kv_at(d->view, item, d->layer, KV_VALUES, h, pos);
	const float *v = d->v + at;
	float *k = d->k + at;

	if (a->v_is_key) {
		key(d, desk, k);
		if (to_v != to_k)
			d->kv[KV_VALUES].encode(to_v, k, a->dim, KV_VALUES);
		d->kv[KV_KEYS].encode(to_k, k, a->dim, KV_KEYS);
		return;
	}
	if (a->v_norm) {
		d->c->op->norm(desk->v, v, a->dim, NULL, a->eps);
		v = desk->v;
	}
	d->kv[KV_VALUES].encode(to_v, v, a->dim, KV_VALUES);
	key(d, desk, k);
	d->kv[KV_KEYS].encode(to_k, k, a->dim, KV_KEYS);
}

/* Is row r the last of a block? */
static bool ends_block(const struct append *d, int r)
{
	int pos = d->p->pos[r];

	return pos >= d->a->first && (pos - d->a->first) % d->a->pooled == d->a->pooled - 1;
}

/* x[dim] of a block's row i of a side, of which `last` is the last: as it is cached, but for that. */
static void block_row(const struct append *d, float *x, enum kv_side side, int r, int i, const float *last)
{
	const struct attn *a = d->a;
	int pos = d->p->pos[r] - a->pooled + 1 + i;

	if (i == a->pooled - 1)
		memcpy(x, last, (size_t)a->dim * sizeof *x);
	else
		d->view->layer[d->layer].fmt[side]->decode(x, kv_at(d->view, d->p->item[r], d->layer, side, 0, pos),
		                                           a->dim);
}

/* out[dim] = the mean of the rows of the block that row r ends. */
static void mean_key(const struct append *d, float *out, int r)
{
	const struct attn *a = d->a;
	const float *last = d->k + (size_t)r * (size_t)a->dim;
	float *other = out + a->dim;

	block_row(d, out, KV_KEYS, r, 0, last);
	for (int i = 1; i < a->pooled; i++) {
		block_row(d, other, KV_KEYS, r, i, last);
		d->c->op->add(out, other, a->dim);
	}
	d->c->op->scale(out, 1.0f / (float)a->pooled, a->dim);
}

/* out[dim] = the sum of those rows, weighted by a softmax of each dim. */
static void weighted_key(const struct append *d, float *out, int r)
{
	const struct attn *a = d->a;
	size_t dim = (size_t)a->dim, all = (size_t)a->pooled * dim;
	float *k = out + 2 * dim, *w = k + all, *most = out + dim;

	for (int i = 0; i < a->pooled; i++) {
		block_row(d, k + (size_t)i * dim, KV_KEYS, r, i, d->k + (size_t)r * dim);
		block_row(d, w + (size_t)i * dim, KV_VALUES, r, i, d->v + (size_t)r * dim);
	}
	d->c->op->add(w, a->pool_bias, (int)all);
	memcpy(most, w, dim * sizeof *w);
	for (size_t i = dim; i < all; i++)
		most[i % dim] = w[i] > most[i % dim] ? w[i] : most[i % dim];
	for (size_t i = 0; i < all; i++)
		w[i] -= most[i % dim];
	d->c->op->exp(w, w, (int)all);
	d->c->op->mul(k, w, (int)all);
	for (size_t i = dim; i < all; i += dim) {
		d->c->op->add(k, k + i, a->dim);
		d->c->op->add(w, w + i, a->dim);
	}
	for (size_t i = 0; i < dim; i++)
		out[i] = k[i] / w[i];
}

/* Keys of blocks that end among the rows, when all other rows are where they are kept. */
static void pool_rows(void *ctx, int begin, int end)
{
	const struct append *d = ctx;
	const struct attn *a = d->a;
	struct desk k = desk_of(d);

	for (int r = begin; r < end; r++) {
		int pos = d->p->pos[r], first = pos - a->pooled + 1;

		if (!ends_block(d, r))
			continue;
		(a->pool_bias ? weighted_key : mean_key)(d, k.v, r);
		rope_angles_at(k.cos, k.sin, &a->rope, (const int32_t[3]){ first, first, first });
		key(d, &k, k.v);
		d->kv[KV_KEYS].encode(kv_at(d->view, d->p->item[r], d->layer, KV_KEYS, 0, pos), k.v, a->dim, KV_KEYS);
	}
}

/* What a row of a block keeps until the block ends. */
static void keep_row(const struct append *d, int r)
{
	int item = d->p->item[r], pos = d->p->pos[r], dim = d->a->dim;
	size_t at = (size_t)r * (size_t)dim;

	if (!ends_block(d, r))
		d->kv[KV_KEYS].encode(kv_at(d->view, item, d->layer, KV_KEYS, 0, pos), d->k + at, dim, KV_KEYS);
	if (d->a->pool_bias)
		d->kv[KV_VALUES].encode(kv_at(d->view, item, d->layer, KV_VALUES, 0, pos), d->v + at, dim, KV_VALUES);
}

static void append_rows(void *ctx, int begin, int end)
{
	const struct append *d = ctx;
	struct desk k = desk_of(d);

	for (int r = begin; r < end; r++) {
		rope_angles(k.cos, k.sin, &d->a->rope, d->p, r);
		queries(d, &k, r);
		for (int h = 0; h < d->a->heads_kv && d->k && !d->a->pooled; h++)
			key_and_value(d, &k, r, h);
		if (d->a->pooled)
			keep_row(d, r);
	}
}

void cpu_kv_append(struct pass *p, const struct attn *a, float *q, size_t q_row, size_t q_head, float *k,
                   const float *v, const struct kv_view *view, int layer)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	struct append d = {
		.p = p,
		.c = c,
		.a = a,
		.q = q,
		.k = k,
		.v = v,
		.q_row = q_row,
		.q_head = q_head,
		.view = view,
		.layer = layer,
	};
	int reach = a->rope.adjacent ? 2 * a->rope.n_freq :
	                               a->rope.n_freq + (a->rope.apart ? a->rope.apart : a->rope.n_freq);

	if (view)
		layer_kernels(d.kv, &view->layer[layer], c->choices.attention);
	assert(!view || (view->heads == a->heads_kv && view->dim == a->dim));
	assert(a->rope.at + reach <= a->dim && !k == !v && (view || !k));
	assert(!a->pooled || (a->v_is_key == !a->pool_bias && a->heads_kv == 1 && k && !p->rope_pos &&
	                      !d.kv[KV_KEYS].turn && !d.kv[KV_VALUES].turn));
	cpu_scratch(c, desk_floats(a) * sizeof(float) + 64);
	cpu_range(c, append_rows, &d, p->n_row, 1);
	if (a->pooled)
		cpu_range(c, pool_rows, &d, p->n_row, 1);
}
