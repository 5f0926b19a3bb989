/* rule_fixed.c - linear attention whose decay is a constant of each head (Qin et al.,
 * Lightning Attention-2, 2024, arXiv 2401.04658): Ring and Ling 2.x.
 *
 *   q = q dim_k^-1/2     o = S'q     S <- lambda S + k v'     (o of the S after its update)
 *
 * S [dim_k][dim_v] per head; heads_k = heads_v; lambda is recur.decay. q, k and v come as they
 * are, normed and rotated by the model if it wants that, or convolved with SiLU if the layer has a
 * convolution.
 *
 * Tape: k and v, and lambda with them, which spares applying a tape the layer's constants.
 * Bytes per sequence and layer: 4 heads dim_k dim_v. Floor: S read once per token and layer,
 * and written every fifth token; S'q, decay and update are three operations on each element. */
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

		j->c->op->scale(q, 1.0f / sqrtf((float)dim), dim);
		p->dot[i] = j->c->vec.dot(k, q, dim);
	}
}

static void head(const struct recur_part *p, int i0, int n, int h, struct recur_rows *t)
{
	const struct state_shape *s = p->j->s;

	recur_x(p, p->v, (size_t)s->dim_v, i0, n, 2 * s->heads_k * s->dim_k + h * s->dim_v, s->dim_v);
	for (int i = 0; i < n; i++) {
		p->decay[i] = p->j->r->decay[h];
		p->beta[i] = 1.0f;
	}
	t->k = t->put = p->kq;
	t->q = p->kq + s->dim_k;
}

static const float *taped_key(const struct recur_part *p, int i)
{
	return p->kq + (size_t)i * p->kq_ld;
}

const struct recur_rule rule_fixed = {
	.name = "fixed decay",
	.kernel = HEAD_INSERT,
	.key_rows = 2,
	.keys = keys,
	.head = head,
	.taped_key = taped_key,
};
