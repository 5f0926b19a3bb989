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

/* A thread's memory: cosines and sines of a position, and a head of values, or two rows of a block. */
struct desk {
	float *cos, *sin, *v;
};

static size_t desk_floats(const struct attn *a)
{
	return 2 * (size_t)a->rope.n_freq + 2 * (size_t)a->dim;
}

/* Pairs of neighbours, by way of two vectors. */
static void rotate_adjacent(const struct op_table *op, const struct desk *k, float *x, int n)
{
	enum { ONCE = 64 };
	float t[2 * ONCE];

	for (int i = 0; i < n; i += ONCE) {
		int m = n - i < ONCE ? n - i : ONCE;

		for (int j = 0; j < m; j++) {
			t[j] = x[2 * (i + j)];
			t[m + j] = x[2 * (i + j) + 1];
		}
		op->rope(t, k->cos + i, k->sin + i, m, m);
		for (int j = 0; j < m; j++) {
			x[2 * (i + j)] = t[j];
			x[2 * (i + j) + 1] = t[m + j];
		}
	}
}

static void rotate(const struct append *d, const struct desk *k, float *x)
{
	const struct rope *r = &d->a->rope;

	if (r->adjacent)
		rotate_adjacent(d->c->op, k, x, r->n_freq);
	else
		d->c->op->rope(x, k->cos, k->sin, r->n_freq, r->apart ? r->apart : r->n_freq);
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

/* Keys of blocks that end among the rows, when all other rows are where they are kept. */
static void pool_rows(void *ctx, int begin, int end)
{
	const struct append *d = ctx;
	const struct attn *a = d->a;
	const struct kv_format *fmt = d->view->layer[d->layer].fmt[KV_KEYS];
	struct desk k = { .cos = cpu_my_scratch(d->c) };

	k.sin = k.cos + a->rope.n_freq;
	k.v = k.sin + a->rope.n_freq;
	for (int r = begin; r < end; r++) {
		int item = d->p->item[r], first = d->p->pos[r] - a->pooled + 1;
		float *row = d->k + (size_t)r * (size_t)a->dim, *other = k.v + a->dim;

		if (!ends_block(d, r))
			continue;
		for (int i = 0; i < a->pooled - 1; i++) {
			fmt->decode(i ? other : k.v, kv_at(d->view, item, d->layer, KV_KEYS, 0, first + i), a->dim);
			if (i)
				d->c->op->add(k.v, other, a->dim);
		}
		if (a->pooled > 1)
			d->c->op->add(k.v, row, a->dim);
		else
			memcpy(k.v, row, (size_t)a->dim * sizeof *row);
		d->c->op->scale(k.v, 1.0f / (float)a->pooled, a->dim);
		rope_angles_at(k.cos, k.sin, &a->rope, (const int32_t[3]){ first, first, first });
		key(d, &k, k.v);
		d->kv[KV_KEYS].encode(kv_at(d->view, item, d->layer, KV_KEYS, 0, d->p->pos[r]), k.v, a->dim, KV_KEYS);
	}
}

static void append_rows(void *ctx, int begin, int end)
{
	const struct append *d = ctx;
	struct desk k = { .cos = cpu_my_scratch(d->c) };

	k.sin = k.cos + d->a->rope.n_freq;
	k.v = k.sin + d->a->rope.n_freq;
	for (int r = begin; r < end; r++) {
		rope_angles(k.cos, k.sin, &d->a->rope, d->p, r);
		queries(d, &k, r);
		for (int h = 0; h < d->a->heads_kv && d->k && !d->a->pooled; h++)
			key_and_value(d, &k, r, h);
		if (d->a->pooled && !ends_block(d, r))
			d->kv[KV_KEYS].encode(kv_at(d->view, d->p->item[r], d->layer, KV_KEYS, 0, d->p->pos[r]),
			                      d->k + (size_t)r * (size_t)d->a->dim, d->a->dim, KV_KEYS);
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
	assert(reach <= a->dim && !k == !v && (view || !k));
	assert(!a->pooled || (a->v_is_key && a->heads_kv == 1 && k && !p->rope_pos && !d.kv[KV_KEYS].turn));
	cpu_scratch(c, desk_floats(a) * sizeof(float) + 64);
	cpu_range(c, append_rows, &d, p->n_row, 1);
	if (a->pooled)
		cpu_range(c, pool_rows, &d, p->n_row, 1);
}
