/* rule_kda.c - Kimi Delta Attention (Kimi Linear, 2025, arXiv 2510.26692), the gated delta rule
 * with a decay per key channel: Kimi-Linear, Ling 3.0.
 *
 *   x = SiLU(conv(q | k | v))     k = l2(k)     q = l2(q) dim_k^-1/2     l2(u) = u / sqrt(sum u^2 + 1e-6)
 *   alpha = exp(-exp(A_log) softplus(a + dt_bias))                   [dim_k] per head, or with a gate_floor
 *   alpha = exp(gate_floor sigmoid(exp(A_log) (a + dt_bias)))
 *   beta = sigmoid(b)                                                per head
 *   S <- diag(alpha) S     d = beta (v - S'k)     S <- S + k d'     o = S'q
 *
 * S [dim_k][dim_v] per head, heads_k = heads_v. The kernel reads S before the decay, so k and q
 * come to it with alpha in them.
 *
 * Tape: k, alpha [dim_k] and d of the heads. Bytes per sequence and layer: 4 heads dim_k dim_v,
 * and 4 (width - 1) channels of tail. Floor: as the gated delta net's. */
#include <math.h>
#include <string.h>

#include "backend/cpu/state/recur.h"

/* A token's vectors of dim_k on the desk. */
enum { READ, QUERY, PUT, DECAY, KEY_ROWS };

static void keys(const struct recur_part *p, int i0, int n)
{
	const struct recur_job *j = p->j;
	const struct state_shape *s = j->s;
	int dim = s->dim_k;

	recur_x(p, p->kq + PUT * dim, p->kq_ld, i0, n, (s->heads_k + p->hk) * dim, dim);
	recur_x(p, p->kq + QUERY * dim, p->kq_ld, i0, n, p->hk * dim, dim);
	for (int i = 0; i < n; i++) {
		float *row = p->kq + (size_t)i * p->kq_ld, *k = row + PUT * dim, *q = row + QUERY * dim;

		j->c->op->l2norm(k, dim, 1.0f);
		j->c->op->l2norm(q, dim, 1.0f / sqrtf((float)dim));
		p->dot[i] = j->c->vec.dot(k, q, dim);
	}
}

/* alpha of one row of head h. */
static void decay_of(const struct recur_part *p, float *alpha, const float *a, int h)
{
	const struct recur *r = p->j->r;
	const struct cpu_backend *c = p->j->c;
	int dim = p->j->s->dim_k;
	float rate = r->a_log_exp[h];

	memcpy(alpha, a, (size_t)dim * sizeof *alpha);
	c->op->add(alpha, r->dt_bias + h * dim, dim);
	if (r->gate_floor != 0) {
		c->op->scale(alpha, rate, dim);
		c->op->sigmoid(alpha, alpha, dim);
		c->op->scale(alpha, r->gate_floor, dim);
	} else {
		c->recur->softplus(alpha, alpha, dim);
		c->op->scale(alpha, -rate, dim);
	}
	c->op->exp(alpha, alpha, dim);
}

static void head(const struct recur_part *p, int i0, int n, int h, struct recur_rows *t)
{
	const struct recur_job *j = p->j;
	const struct state_shape *s = j->s;
	int dim = s->dim_k;

	recur_x(p, p->v, (size_t)s->dim_v, i0, n, 2 * s->heads_k * dim + h * s->dim_v, s->dim_v);
	for (int i = 0; i < n; i++) {
		float *row = p->kq + (size_t)i * p->kq_ld, *alpha = row + DECAY * dim;

		decay_of(p, alpha, recur_row(p, j->in->a, i0 + i, s->heads_v * dim) + h * dim, h);
		j->c->recur->mul(row + READ * dim, row + PUT * dim, alpha, dim);
		j->c->recur->mul(row + QUERY * dim, row + QUERY * dim, alpha, dim);
		p->beta[i] = recur_row(p, j->in->b, i0 + i, s->heads_v)[h];
	}
	j->c->op->sigmoid(p->beta, p->beta, n);
	t->k = p->kq + READ
	*dim;
	t->q = p->kq + QUERY * dim;
	t->put = p->kq + PUT * dim;
	t->decay = p->kq + DECAY * dim;
	t->decay_ld = p->kq_ld;
}

static const float *taped_key(const struct recur_part *p, int i)
{
	return p->kq + (size_t)i * p->kq_ld + PUT * p->j->s->dim_k;
}

const struct recur_rule rule_kda = {
	.name = "kda",
	.kernel = HEAD_DELTA_BY_KEY,
	.key_rows = KEY_ROWS,
	.keys = keys,
	.head = head,
	.taped_key = taped_key,
};
