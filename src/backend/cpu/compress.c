/* compress.c - rows that stand for groups of positions (struct compress). */
#include <assert.h>
#include <string.h>

#include "backend/cpu/attend.h"
#include "backend/rope.h"

struct job {
	struct pass *p;
	struct cpu_backend *c;
	const struct compress *o;
	const float *given[2]; /* [n_row][w] by side */
	const struct kv_view *raw, *view;
	int raw_layer, layer, w;
	struct kv_kernels raw_kv[2], kv[2];
};

/* A thread's memory: keys and weights of candidates, a row of the raw view, cosines and sines. */
struct desk {
	float *of[2], *row, *cos, *sin;
};

static int candidates(const struct compress *o)
{
	return o->overlap ? 2 * o->every : o->every;
}

static size_t desk_floats(const struct job *d)
{
	return 2 * (size_t)candidates(d->o) * (size_t)d->o->dim + (size_t)d->w + 2 * (size_t)d->o->rope.n_freq;
}

static struct desk desk_of(const struct job *d)
{
	size_t n = (size_t)candidates(d->o) * (size_t)d->o->dim;
	float *at = cpu_my_scratch(d->c);

	return (struct desk){ .of = { at, at + n },
		              .row = at + 2 * n,
		              .cos = at + 2 * n + d->w,
		              .sin = at + 2 * n + d->w + d->o->rope.n_freq };
}

static void keep_rows(void *ctx, int begin, int end)
{
	const struct job *d = ctx;

	for (int r = begin; r < end; r++)
		for (enum kv_side side = KV_KEYS; side <= KV_VALUES; side++)
			d->raw_kv[side].encode(kv_at(d->raw, d->p->item[r], d->raw_layer, side, 0, d->p->pos[r]),
			                       d->given[side] + (size_t)r * (size_t)d->w, d->w, side);
}

/* Candidate i of the group that begins at `first`, as its rows are cached, but for row r, its last. */
static void candidate(const struct job *d, const struct desk *k, enum kv_side side, int r, int first, int i)
{
	const struct compress *o = d->o;
	int late = o->overlap ? o->every : 0, pos = first + i - late, from = o->overlap && i >= late ? o->dim : 0;
	const float *row = d->given[side] + (size_t)r * (size_t)d->w;
	float *to = k->of[side] + (size_t)i * (size_t)o->dim;

	if (pos != d->p->pos[r]) {
		d->raw->layer[d->raw_layer].fmt[side]->decode(
			k->row, kv_at(d->raw, d->p->item[r], d->raw_layer, side, 0, pos), d->w);
		row = k->row;
	}
	memcpy(to, row + from, (size_t)o->dim * sizeof *to);
	if (side == KV_VALUES)
		d->c->op->add(to, o->bias + (size_t)(pos - first + late) % (size_t)o->every * (size_t)d->w + from,
		              o->dim);
}

/* of[KV_KEYS] = the sum of candidates [i0, n), weighted by the softmax of their weights, dim by dim. */
static void weigh(const struct job *d, const struct desk *k, int i0, int n)
{
	size_t dim = (size_t)d->o->dim, all = (size_t)(n - i0) * dim;
	float *x = k->of[KV_KEYS] + (size_t)i0 * dim, *w = k->of[KV_VALUES] + (size_t)i0 * dim, *most = k->row;

	memcpy(most, w, dim * sizeof *w);
	for (size_t i = dim; i < all; i++)
		most[i % dim] = w[i] > most[i % dim] ? w[i] : most[i % dim];
	for (size_t i = 0; i < all; i++)
		w[i] -= most[i % dim];
	d->c->op->exp(w, w, (int)all);
	d->c->op->mul(x, w, (int)all);
	for (size_t i = dim; i < all; i += dim) {
		d->c->op->add(x, x + i, (int)dim);
		d->c->op->add(w, w + i, (int)dim);
	}
	for (size_t i = 0; i < dim; i++)
		k->of[KV_KEYS][i] = x[i] / w[i];
}

static void close_groups(void *ctx, int begin, int end)
{
	const struct job *d = ctx;
	const struct compress *o = d->o;
	struct desk k = desk_of(d);

	for (int r = begin; r < end; r++) {
		int pos = d->p->pos[r], first = pos - o->every + 1, n = candidates(o), i0 = first ? 0 : n - o->every;
		float *x = k.of[KV_KEYS];

		if (first % o->every)
			continue;
		for (int i = i0; i < n; i++) {
			candidate(d, &k, KV_KEYS, r, first, i);
			candidate(d, &k, KV_VALUES, r, first, i);
		}
		weigh(d, &k, i0, n);
		if (o->gain)
			d->c->op->norm(x, x, o->dim, o->gain, o->eps);
		rope_angles_at(k.cos, k.sin, &o->rope, (const int32_t[3]){ first, first, first });
		cpu_rotate(d->c->op, &o->rope, k.cos, k.sin, x);
		d->kv[KV_KEYS].encode(kv_at(d->view, d->p->item[r], d->layer, KV_KEYS, 0, pos), x, o->dim, KV_KEYS);
	}
}

void cpu_compress(struct pass *p, const struct compress *o, const float *k, const float *v, const struct kv_view *raw,
                  int raw_layer, const struct kv_view *view, int layer)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	struct job d = { .p = p,
		         .c = c,
		         .o = o,
		         .given = { k, v },
		         .raw = raw,
		         .view = view,
		         .raw_layer = raw_layer,
		         .layer = layer,
		         .w = o->overlap ? 2 * o->dim : o->dim };

	layer_kernels(d.raw_kv, &raw->layer[raw_layer], c->choices.attention);
	layer_kernels(d.kv, &view->layer[layer], c->choices.attention);
	assert(raw->dim == d.w && raw->dim_v == d.w && raw->heads == 1 && view->heads == 1 && view->dim == o->dim &&
	       view->every == o->every);
	assert(!d.raw_kv[KV_KEYS].turn && !d.raw_kv[KV_VALUES].turn);
	cpu_scratch(c, desk_floats(&d) * sizeof(float));
	cpu_range(c, keep_rows, &d, p->n_row, 1);
	cpu_range(c, close_groups, &d, p->n_row, 1);
}
