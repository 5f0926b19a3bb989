/* rule_ssm.c - Mamba-2 (Dao and Gu, Transformers are SSMs, 2024, arXiv 2405.21060): Mamba2,
 * Nemotron-H, Granite 4 H, Falcon-H1.
 *
 *   dt = clamp(softplus(a + dt_bias), dt_min, dt_max)     per head
 *   S <- exp(-exp(A_log) dt) S + B (dt x)'     o = S'C + D x
 *
 * B and C [dim_k] are shared by the heads of a group: key and query of heads_k groups, S
 * [dim_k][dim_v] per head. x of the operation is SiLU(conv(x | B | C)), convolved before, since a
 * group's channels are read by several parts; D is recur.skip.
 *
 * Tape: B of the groups; decay and dt x of the heads. Bytes per sequence and layer: 4 heads dim_k
 * dim_v, and 4 (width - 1) channels of tail. Floor: S read once per token and layer, and written
 * every fifth token; S'C, decay and update are three operations on each element. */
#include "backend/cpu/state/recur.h"

static void keys(const struct recur_part *p, int i0, int n)
{
	const struct recur_job *j = p->j;
	const struct state_shape *s = j->s;
	int dim = s->dim_k, inner = s->heads_v * s->dim_v;

	recur_x(p, p->kq, p->kq_ld, i0, n, inner + p->hk * dim, dim);
	recur_x(p, p->kq + dim, p->kq_ld, i0, n, inner + (s->heads_k + p->hk) * dim, dim);
	for (int i = 0; i < n; i++) {
		const float *k = p->kq + (size_t)i * p->kq_ld;

		p->dot[i] = j->c->vec.dot(k, k + dim, dim);
	}
}

static float clamp(float x, float lo, float hi)
{
	return x < lo ? lo : x > hi ? hi : x;
}

static void head(const struct recur_part *p, int i0, int n, int h, struct recur_rows *t)
{
	const struct recur_job *j = p->j;
	const struct recur *r = j->r;
	const struct state_shape *s = j->s;

	recur_x(p, p->v, (size_t)s->dim_v, i0, n, h * s->dim_v, s->dim_v);
	for (int i = 0; i < n; i++)
		p->beta[i] = recur_row(p, j->in->a, i0 + i, s->heads_v)[h] + r->dt_bias[h];
	j->c->recur->softplus(p->beta, p->beta, n);
	for (int i = 0; i < n; i++) {
		p->beta[i] = clamp(p->beta[i], r->dt_min, r->dt_max);
		p->decay[i] = -r->a_log_exp[h] * p->beta[i];
	}
	j->c->op->exp(p->decay, p->decay, n);
	t->k = t->put = p->kq;
	t->q = p->kq + s->dim_k;
}

static void finish(const struct recur_part *p, int i0, int n, int h)
{
	const struct recur_job *j = p->j;
	int dim = j->s->dim_v;

	j->c->op->axpy(p->out, j->r->skip[h], p->v, n * dim);
}

static const float *taped_key(const struct recur_part *p, int i)
{
	return p->kq + (size_t)i * p->kq_ld;
}

const struct recur_rule rule_ssm = {
	.name = "ssm",
	.kernel = HEAD_INSERT,
	.key_rows = 2,
	.shared_keys = true,
	.keys = keys,
	.head = head,
	.taped_key = taped_key,
	.finish = finish,
};
