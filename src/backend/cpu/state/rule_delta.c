/* rule_delta.c - the gated delta net (Yang et al., Gated Delta Networks, 2024, arXiv
 * 2412.06464): Qwen3-Next, Qwen3.5 and later, Olmo-Hybrid.
 *
 *   x = SiLU(conv(q | k | v))           per key head q, k; per value head v
 *   k = l2(k)    q = l2(q) dim_k^-1/2    l2(u) = u / sqrt(sum u^2 + 1e-6)
 *   alpha = exp(-exp(A_log) softplus(a + dt_bias))     beta = beta_scale sigmoid(b)
 *   d = beta (v - alpha S'k)     o = alpha S'q + (k.q) d     S <- alpha S + k d'
 *
 * S [dim_k][dim_v] per value head; alpha and beta are one number per value head. With
 * beta_scale 2 the transition alpha (I - beta k k') has eigenvalues down to -1.
 *
 * Tape: k of the key heads, alpha and d of the value heads. Bytes per sequence and layer: 4
 * heads_v dim_k dim_v, and 4 (width - 1) channels of tail. Floor: S read once per token and
 * layer, and written every fifth token; S'k, S'q, decay and update are four operations on
 * each element. */
#include <math.h>

#include "backend/cpu/state/recur.h"

static void keys(const struct recur_part *p, int i0, int n)
{
	const struct recur_job *j = p->j;
	const struct state_shape *s = j->s;
	int dim = s->dim_k;

	recur_x(p, p->kq, p->kq_ld, i0, n, (s->heads_k + p->hk) * dim, dim);
	recur_x(p, p->kq + dim, p->kq_ld, i0, n, p->hk * dim, dim);
	for (int i = 0; i < n; i++) {
		float *k = p->kq + (size_t)i * p->kq_ld, *q = k + dim;

		j->c->op->l2norm(k, dim, 1.0f);
		j->c->op->l2norm(q, dim, 1.0f / sqrtf((float)dim));
		p->dot[i] = j->c->vec.dot(k, q, dim);
	}
}

/* alpha and beta of n rows of value head h. */
static void gates(const struct recur_part *p, int i0, int n, int h)
{
	const struct recur_job *j = p->j;
	int heads = j->s->heads_v;

	for (int i = 0; i < n; i++) {
		p->decay[i] = recur_row(p, j->in->a, i0 + i, heads)[h] + j->r->dt_bias[h];
		p->beta[i] = recur_row(p, j->in->b, i0 + i, heads)[h];
	}
	j->c->recur->softplus(p->decay, p->decay, n);
	for (int i = 0; i < n; i++)
		p->decay[i] = -j->r->a_log_exp[h] * p->decay[i];
	j->c->op->exp(p->decay, p->decay, n);
	j->c->op->sigmoid(p->beta, p->beta, n);
	for (int i = 0; i < n && j->r->beta_scale != 0; i++)
		p->beta[i] *= j->r->beta_scale;
}

static void head(const struct recur_part *p, int i0, int n, int h, struct recur_rows *t)
{
	const struct state_shape *s = p->j->s;

	recur_x(p, p->v, (size_t)s->dim_v, i0, n, 2 * s->heads_k * s->dim_k + h * s->dim_v, s->dim_v);
	gates(p, i0, n, h);
	t->k = t->put = p->kq;
	t->q = p->kq + s->dim_k;
}

static const float *taped_key(const struct recur_part *p, int i)
{
	return p->kq + (size_t)i * p->kq_ld;
}

const struct recur_rule rule_delta = {
	.name = "gated delta",
	.kernel = HEAD_DELTA,
	.key_rows = 2,
	.keys = keys,
	.head = head,
	.taped_key = taped_key,
};
