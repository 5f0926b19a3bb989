/* rule_rwkv7.c - the generalised delta rule of RWKV-7 (Peng et al., "Goose", 2025, arXiv
 * 2503.14456).
 *
 *   w = exp(-e^-1/2 sigmoid(a))     rate = sigmoid(b)                     [dim_k] per head
 *   kk = k k_k / max(|k k_k|, 1e-7)     k <- k (1 + (rate - 1) k_a)       per head
 *   S <- diag(w) S + (kk rate) (-S'kk)' + k v'     o = S'r                the delta reads S before the decay
 *   y = LayerNorm(o) gain + norm_bias + (sum of r k r_k) v                per head
 *
 * S [dim_k][dim_v] per head, heads_k = heads_v. x is r | k | v; nothing is convolved here, and the
 * gate is the caller's.
 *
 * Tape: kk rate, w and k [dim_k], -S'kk and v [dim_v] of the heads. Bytes per sequence and layer: 4
 * heads dim_k dim_v, and a row of inputs for each shift. Floor: S read once per token and layer, and
 * written every fifth token; five operations on each element. */
#include <math.h>
#include <string.h>

#include "backend/cpu/state/recur.h"

/* A token's vectors of dim_k on the desk. */
enum { READ, QUERY, PUT, PUT2, DECAY, KEY_ROWS };

static void unit(float *x, const struct recur_job *j, int dim)
{
	float norm = sqrtf(j->c->vec.dot(x, x, dim));

	j->c->op->scale(x, -1.0f / (norm > 1e-7f ? norm : 1e-7f), dim);
}

/* Row i of head h: beta takes the weight of v in the output. */
static void key_row(const struct recur_part *p, int i0, int i, int h)
{
	const struct recur_job *j = p->j;
	const struct recur *r = j->r;
	const struct recur_table *f = j->c->recur;
	int dim = j->s->dim_k, cols = j->s->heads_v * dim, at = h * dim;
	float *row = p->kq + (size_t)i * p->kq_ld, *kk = row + READ
	*dim, *q = row + QUERY * dim, *rate = row + PUT * dim;
	float *k = row + PUT2 * dim, *w = row + DECAY * dim;

	memcpy(rate, recur_row(p, j->in->b, i0 + i, cols) + at, (size_t)dim * sizeof *rate);
	j->c->op->sigmoid(rate, rate, dim);
	memcpy(w, recur_row(p, j->in->a, i0 + i, cols) + at, (size_t)dim * sizeof *w);
	j->c->op->sigmoid(w, w, dim);
	j->c->op->scale(w, -0.60653066f, dim);
	j->c->op->exp(w, w, dim);
	f->mul(kk, k, r->key_gain + at, dim);
	unit(kk, j, dim); /* -kk */
	for (int c = 0; c < dim; c++)
		k[c] *= 1.0f + (rate[c] - 1.0f) * r->key_rate[at + c];
	f->mul(rate, rate, kk, dim);
	j->c->op->scale(rate, -1.0f, dim); /* kk rate */
	p->dot[i] = j->c->vec.dot(rate, q, dim);
	p->dot2[i] = j->c->vec.dot(k, q, dim);
	f->mul(p->spare, q, k, dim); /* spare is not in use yet */
	p->beta[i] = j->c->vec.dot(p->spare, r->bonus + at, dim);
	f->mul(q, q, w, dim);
}

static void keys(const struct recur_part *p, int i0, int n)
{
	const struct state_shape *s = p->j->s;
	int dim = s->dim_k;

	recur_x(p, p->kq + QUERY * dim, p->kq_ld, i0, n, p->hk * dim, dim);
	recur_x(p, p->kq + PUT2 * dim, p->kq_ld, i0, n, (s->heads_k + p->hk) * dim, dim);
	for (int i = 0; i < n; i++)
		key_row(p, i0, i, p->hk);
}

static void head(const struct recur_part *p, int i0, int n, int h, struct recur_rows *t)
{
	const struct state_shape *s = p->j->s;
	int dim = s->dim_k;

	recur_x(p, p->v, (size_t)s->dim_v, i0, n, 2 * s->heads_k * dim + h * s->dim_v, s->dim_v);
	t->k = p->kq + READ
	*dim;
	t->q = p->kq + QUERY * dim;
	t->put = p->kq + PUT * dim;
	t->put2 = p->kq + PUT2 * dim;
	t->decay = p->kq + DECAY * dim;
	t->decay_ld = p->kq_ld;
}

/* LayerNorm of one head, then the current token's value. */
static void finish(const struct recur_part *p, int i0, int n, int h)
{
	const struct recur *r = p->j->r;
	int dim = p->j->s->dim_v;

	for (int i = 0; i < n; i++) {
		float *x = p->out + (size_t)(i * dim);

		p->j->c->op->layer_norm(x, x, dim, r->norm + h * dim, r->norm_bias + h * dim, r->eps);
		p->j->c->op->axpy(x, p->beta[i], p->v + (size_t)(i * dim), dim);
	}
}

static const float *taped_key(const struct recur_part *p, int i)
{
	return p->kq + (size_t)i * p->kq_ld + PUT * p->j->s->dim_k;
}

const struct recur_rule rule_rwkv7 = {
	.name = "rwkv7",
	.kernel = HEAD_TWO_RANK,
	.key_rows = KEY_ROWS,
	.keys = keys,
	.head = head,
	.taped_key = taped_key,
	.finish = finish,
};
