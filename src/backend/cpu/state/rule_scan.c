/* rule_scan.c - the selective scan of Mamba (Gu and Dao, 2023, arXiv 2312.00752): Jamba.
 *
 *   dt = softplus(a + dt_bias)                              per channel
 *   S[n][c] <- exp(dt[c] A[n][c]) S[n][c] + B[n] dt[c] x[c]     o[c] = sum over n of C[n] S[n][c] + D[c] x[c]
 *
 * Channels stand in for value heads: heads_v stretches of dim_v channels, one key head, dim_k states
 * each. x is SiLU(conv(x)), convolved before, since B, C and dt are projected from it; b is B | C; A
 * = -exp(A_log) is state_shape.rate, which applying the tape needs too; D is recur.skip. There is no
 * norm: gate [heads_v * dim_v] through SiLU alone.
 *
 * Tape: B; dt and dt x of the channels. Bytes per sequence and layer: 4 channels dim_k, and 4
 * (width - 1) channels of tail. Floor: an exponential for each element of S, some 20 operations of
 * 24; S itself is small. */
#include <string.h>

#include "backend/cpu/state/recur.h"

static void keys(const struct recur_part *p, int i0, int n)
{
	const struct state_shape *s = p->j->s;
	size_t cols = 2 * (size_t)s->dim_k;

	for (int i = 0; i < n; i++)
		memcpy(p->kq + (size_t)i * p->kq_ld, recur_row(p, p->j->in->b, i0 + i, (int)cols),
		       cols * sizeof(float));
}

static void head(const struct recur_part *p, int i0, int n, int h, struct recur_rows *t)
{
	const struct recur_job *j = p->j;
	const struct state_shape *s = j->s;
	int dim = s->dim_v;

	recur_x(p, p->v, (size_t)dim, i0, n, h * dim, dim);
	for (int i = 0; i < n; i++) {
		float *dt = p->decay + i * dim;

		memcpy(dt, recur_row(p, j->in->a, i0 + i, s->heads_v * dim) + h * dim, (size_t)dim * sizeof *dt);
		j->c->op->add(dt, j->r->dt_bias + h * dim, dim);
		j->c->recur->softplus(dt, dt, dim);
	}
	t->put = p->kq;
	t->q = p->kq + s->dim_k;
	t->skip = j->r->skip + h * dim;
}

static const float *taped_key(const struct recur_part *p, int i)
{
	return p->kq + (size_t)i * p->kq_ld;
}

const struct recur_rule rule_scan = {
	.name = "scan",
	.kernel = HEAD_SCAN,
	.key_rows = 2,
	.shared_keys = true,
	.no_keys = true,
	.keys = keys,
	.head = head,
	.taped_key = taped_key,
};
