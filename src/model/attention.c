/* attention.c - see attention.h. */
#include "model/attention.h"

#include "model/model.h"
#include "model/work.h"

void attention_bind(struct binder *b, struct attention *a, const struct attention_form *f, int layer)
{
	int dim = f->op.dim, q = f->op.heads * dim, kv = f->op.heads_kv * dim;

	a->op = f->op;
	a->gated = f->gated;
	bind_weight(b, &a->q, f->gated ? 2 * q : q, f->hidden, "layers.%d.self_attn.q_proj", layer);
	bind_weight(b, &a->k, kv, f->hidden, "layers.%d.self_attn.k_proj", layer);
	bind_weight(b, &a->v, kv, f->hidden, "layers.%d.self_attn.v_proj", layer);
	bind_weight(b, &a->o, f->hidden, q, "layers.%d.self_attn.o_proj", layer);
	if (f->norms) {
		a->op.q_norm = bind_floats(b, dim, f->norm_add, "layers.%d.self_attn.q_norm.weight", layer);
		a->op.k_norm = bind_floats(b, dim, f->norm_add, "layers.%d.self_attn.k_norm.weight", layer);
	}
	if (f->bias_qkv) {
		a->bias_q = bind_floats(b, f->gated ? 2 * q : q, 0, "layers.%d.self_attn.q_proj.bias", layer);
		a->bias_k = bind_floats(b, kv, 0, "layers.%d.self_attn.k_proj.bias", layer);
		a->bias_v = bind_floats(b, kv, 0, "layers.%d.self_attn.v_proj.bias", layer);
	}
	if (f->bias_o)
		a->bias_o = bind_floats(b, f->hidden, 0, "layers.%d.self_attn.o_proj.bias", layer);
}

size_t attention_floats(const struct attention *a, int n_row)
{
	return work_floats_of(n_row, a->q.rows) + 2 * work_floats_of(n_row, a->k.rows) +
	       work_floats_of(n_row, a->o.cols);
}

void attention_forward(struct pass *p, const struct attention *a, float *x, const float *h, const struct kv_view *kv,
                       int layer)
{
	const struct backend_ops *ops = p->be->ops;
	size_t mark = p->work_used, q_row = (size_t)a->q.rows, q_head = q_row / (size_t)a->op.heads;
	size_t kv_row = (size_t)a->k.rows, n = (size_t)p->n_row;
	float *q = pass_floats(p, n * q_row), *k = pass_floats(p, n * kv_row), *v = pass_floats(p, n * kv_row);
	float *out = pass_floats(p, n * (size_t)a->o.cols);
	struct linear in[] = {
		{ &a->q, q, q_row, a->bias_q, false },
		{ &a->k, k, kv_row, a->bias_k, false },
		{ &a->v, v, kv_row, a->bias_v, false },
	};
	struct linear o = { &a->o, x, (size_t)a->o.rows, a->bias_o, true };

	ops->linear(p, in, 3, h, p->n_row, a->q.cols);
	ops->kv_append(p, &a->op, q, q_row, q_head, k, v, kv, layer);
	ops->attend(p, out, &a->op, q, a->gated ? q + a->op.dim : NULL, q_row, q_head, kv, layer);
	ops->linear(p, &o, 1, out, p->n_row, a->o.cols);
	p->work_used = mark;
}
