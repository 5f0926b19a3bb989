/* ffn.c - see ffn.h. */
#include "model/ffn.h"

#include "model/work.h"

void ffn_bind_dense(struct binder *b, struct ffn *f, int hidden, int inner, bool bias, int layer)
{
	f->hidden = hidden;
	bind_weight(b, &f->gate, inner, hidden, "layers.%d.mlp.gate_proj", layer);
	bind_weight(b, &f->up, inner, hidden, "layers.%d.mlp.up_proj", layer);
	bind_weight(b, &f->down, hidden, inner, "layers.%d.mlp.down_proj", layer);
	if (bias) {
		f->bias_gate = bind_floats(b, inner, 0, "layers.%d.mlp.gate_proj.bias", layer);
		f->bias_up = bind_floats(b, inner, 0, "layers.%d.mlp.up_proj.bias", layer);
		f->bias_down = bind_floats(b, hidden, 0, "layers.%d.mlp.down_proj.bias", layer);
	}
}

/* [E, 2 I, H]: of each expert the gate rows, then the up rows. */
static void bind_fused(struct binder *b, struct weight *gate, struct weight *up, struct weight *down, int hidden,
                       const struct moe_form *m, int layer)
{
	bind_stack(b, gate, m->experts, 2 * m->inner, hidden, "layers.%d.mlp.experts.gate_up_proj", layer);
	bind_stack(b, down, m->experts, hidden, m->inner, "layers.%d.mlp.experts.down_proj", layer);
	for (int e = 0; e < m->experts && !b->code; e++) {
		struct weight both = gate[e];

		gate[e] = weight_rows(&both, 0, m->inner);
		up[e] = weight_rows(&both, m->inner, m->inner);
	}
}

/* The rows of all experts are made ready together: by one group size, and all or none as codes. */
static bool read_alike(const struct weight *a, const struct weight *b)
{
	return a->group == b->group && (a->fmt == b->fmt || (a->fmt->coding && b->fmt->coding));
}

static void check_experts(struct binder *b, const struct moe *m, int layer)
{
	for (int e = 0; e < m->experts && !b->code; e++) {
		const struct weight *w = !read_alike(&m->gate[e], &m->gate[0]) ? &m->gate[e] :
		                         !read_alike(&m->up[e], &m->gate[0])   ? &m->up[e] :
		                         !read_alike(&m->down[e], &m->down[0]) ? &m->down[e] :
		                                                                 NULL;
		const struct weight *first = w == &m->down[e] ? &m->down[0] : &m->gate[0];

		if (w)
			b->code = err_set(b->err, E_UNSUPPORTED,
			                  "%s: tensor %s: %s in groups of %d, other experts of layer %d are "
			                  "%s in groups of %d",
			                  b->st->dir, w->name, w->fmt->name, w->group, layer, first->fmt->name,
			                  first->group);
	}
}

static void bind_experts(struct binder *b, struct moe *moe, int hidden, const struct moe_form *m, int layer)
{
	size_t n = (size_t)m->experts;
	struct weight *gate, *up, *down;

	if (b->code)
		return;
	gate = arena_zalloc(b->arena, 3 * n * sizeof *gate);
	up = gate + n;
	down = up + n;
	if (bind_has(b, "layers.%d.mlp.experts.gate_up_proj", layer) ||
	    bind_has(b, "layers.%d.mlp.experts.gate_up_proj.weight", layer)) {
		bind_fused(b, gate, up, down, hidden, m, layer);
	} else if (bind_has(b, "layers.%d.mlp.switch_mlp.gate_proj.weight", layer)) {
		bind_stack(b, gate, m->experts, m->inner, hidden, "layers.%d.mlp.switch_mlp.gate_proj", layer);
		bind_stack(b, up, m->experts, m->inner, hidden, "layers.%d.mlp.switch_mlp.up_proj", layer);
		bind_stack(b, down, m->experts, hidden, m->inner, "layers.%d.mlp.switch_mlp.down_proj", layer);
	} else {
		for (int e = 0; e < m->experts; e++) {
			bind_weight(b, &gate[e], m->inner, hidden, "layers.%d.mlp.experts.%d.gate_proj", layer, e);
			bind_weight(b, &up[e], m->inner, hidden, "layers.%d.mlp.experts.%d.up_proj", layer, e);
			bind_weight(b, &down[e], hidden, m->inner, "layers.%d.mlp.experts.%d.down_proj", layer, e);
		}
	}
	moe->gate = gate;
	moe->up = up;
	moe->down = down;
	check_experts(b, moe, layer);
}

void ffn_bind_moe(struct binder *b, struct ffn *f, int hidden, const struct moe_form *m, int layer)
{
	f->hidden = hidden;
	f->moe = (struct moe){
		.experts = m->experts,
		.top_k = m->top_k,
		.inner = m->inner,
		.shared_inner = m->shared_inner,
		.normalise = m->normalise,
		.router = &f->router,
	};
	bind_weight(b, &f->router, m->experts, hidden, "layers.%d.mlp.gate", layer);
	bind_rows_only(b, &f->router); /* multiplied in floats */
	bind_experts(b, &f->moe, hidden, m, layer);
	if (!m->shared_inner)
		return;
	bind_weight(b, &f->gate, m->shared_inner, hidden, "layers.%d.mlp.shared_expert.gate_proj", layer);
	bind_weight(b, &f->up, m->shared_inner, hidden, "layers.%d.mlp.shared_expert.up_proj", layer);
	bind_weight(b, &f->down, hidden, m->shared_inner, "layers.%d.mlp.shared_expert.down_proj", layer);
	bind_weight(b, &f->shared_router, 1, hidden, "layers.%d.mlp.shared_expert_gate", layer);
	f->moe.shared_gate = &f->gate;
	f->moe.shared_up = &f->up;
	f->moe.shared_down = &f->down;
	f->moe.shared_router = &f->shared_router;
}

size_t ffn_floats(const struct ffn *f, int n_row)
{
	return f->moe.experts ? 0 : work_floats_of(n_row, f->gate.rows);
}

void ffn_forward(struct pass *p, const struct ffn *f, float *x, const float *h)
{
	const struct backend_ops *ops = p->be->ops;
	size_t mark = p->work_used, inner = (size_t)f->gate.rows;

	if (f->moe.experts) {
		ops->moe(p, x, &f->moe, h, p->n_row, f->hidden);
	} else {
		float *gated = pass_floats(p, (size_t)p->n_row * inner);
		struct linear up = { .w = &f->up, .bias = f->bias_up };
		struct linear gate = {
			.w = &f->gate, .out = gated, .ld = inner, .bias = f->bias_gate, .up = &up, .reader = &f->down
		};
		struct linear down = {
			.w = &f->down, .out = x, .ld = (size_t)f->hidden, .bias = f->bias_down, .add = true
		};

		ops->linear(p, &gate, 1, h, p->n_row, f->hidden);
		ops->linear(p, &down, 1, gated, p->n_row, f->gate.rows);
	}
	p->work_used = mark;
}
