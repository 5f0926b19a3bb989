/* experts.c - the tensors of a mixture of experts, in the layouts that checkpoints use; see ffn.h. */
#include "model/ffn.h"

#include <stdio.h>

/* A mixture on its way: names with their defaults, and where its weights go. */
struct mixture {
	struct binder *b;
	const struct moe_form *m;
	char at[64]; /* "mlp." or whatever comes before the names */
	const char *router, *shared;
	const char *const *proj;
	int hidden, layer;
	struct weight *gate, *up, *down; /* [experts] each */
	struct moe *moe;
};

static const char *name_or(const char *name, const char *usual)
{
	return name ? name : usual;
}

static struct weight *stack_of(const struct mixture *x)
{
	return arena_zalloc(&x->b->m->arena, (size_t)x->m->experts * sizeof(struct weight));
}

/* [E, 2 I, H] under in: of each expert the gate rows, then the up rows. */
static void bind_halves(struct mixture *x, const char *in, const char *out)
{
	int inner = x->m->inner;

	if (x->m->turned) {
		bind_turned(x->b, x->gate, x->m->experts, 2 * inner, x->hidden, "layers.%d.%s%s", x->layer, x->at, in);
		bind_turned(x->b, x->down, x->m->experts, x->hidden, inner, "layers.%d.%s%s", x->layer, x->at, out);
	} else {
		bind_stack(x->b, x->gate, x->m->experts, 2 * inner, x->hidden, "layers.%d.%s%s", x->layer, x->at, in);
		bind_stack(x->b, x->down, x->m->experts, x->hidden, inner, "layers.%d.%s%s", x->layer, x->at, out);
	}
	for (int e = 0; e < x->m->experts && !x->b->code; e++) {
		struct weight both = x->gate[e];

		x->gate[e] = weight_rows(&both, 0, inner);
		x->up[e] = weight_rows(&both, inner, inner);
	}
}

/* Binds a stack whose gate and up rows alternate, as in gpt-oss. */
static void bind_pairs(struct mixture *x)
{
	const struct moe_form *m = x->m;

	bind_stack(x->b, x->gate, m->experts, 2 * m->inner, x->hidden, "layers.%d.%sexperts.gate_up_proj", x->layer,
	           x->at);
	bind_stack(x->b, x->down, m->experts, x->hidden, m->inner, "layers.%d.%sexperts.down_proj", x->layer, x->at);
	x->up = NULL;
	if (!m->bias)
		return;
	x->moe->gate_bias = bind_floats(x->b, (int64_t)m->experts * 2 * m->inner, 0,
	                                "layers.%d.%sexperts.gate_up_proj_bias", x->layer, x->at);
	x->moe->down_bias = bind_floats(x->b, (int64_t)m->experts * x->hidden, 0, "layers.%d.%sexperts.down_proj_bias",
	                                x->layer, x->at);
}

/* mlx: a stack for each of the three. */
static void bind_stacks(struct mixture *x, const char *in)
{
	const struct moe_form *m = x->m;
	const float **bias[3] = { &x->moe->gate_bias, &x->moe->up_bias, &x->moe->down_bias };
	struct weight *to[3] = { x->gate, x->up, x->down };

	for (int i = m->gateless; i < 3; i++) {
		int rows = i < 2 ? m->inner : x->hidden, cols = i < 2 ? x->hidden : m->inner;

		bind_stack(x->b, to[i], m->experts, rows, cols, "layers.%d.%s%s%s", x->layer, x->at, in, x->proj[i]);
		if (m->bias)
			*bias[i] = bind_floats(x->b, (int64_t)m->experts * rows, 0, "layers.%d.%s%s%s.bias", x->layer,
			                       x->at, in, x->proj[i]);
	}
}

/* A tensor for each expert. */
static void bind_each(struct mixture *x)
{
	struct weight *to[3] = { x->gate, x->up, x->down };

	for (int e = 0; e < x->m->experts; e++)
		for (int i = x->m->gateless; i < 3; i++) {
			bind_weight(x->b, &to[i][e], i < 2 ? x->m->inner : x->hidden, i < 2 ? x->hidden : x->m->inner,
			            "layers.%d.%sexperts.%d.%s", x->layer, x->at, e, x->proj[i]);
			bind_apart(x->b, &to[i][e]);
			bind_usual_basis(x->b, &to[i][e]);
		}
}

static bool has(const struct mixture *x, const char *path)
{
	return bind_has(x->b, "layers.%d.%s%s", x->layer, x->at, path) ||
	       bind_has(x->b, "layers.%d.%s%s.weight", x->layer, x->at, path);
}

static void bind_layout(struct mixture *x)
{
	static const char *const stacks[] = { "switch_mlp.", "experts.switch_glu.", "experts.", "" };
	static const char *const names[][3] = { { "gate_proj", "up_proj", "down_proj" }, { NULL, "fc1", "fc2" } };

	for (size_t i = 0; i < 3 * (sizeof stacks / sizeof *stacks); i++) {
		const char *const *proj = i % 3 ? names[i % 3 - 1] : x->proj;

		if (!bind_has(x->b, "layers.%d.%s%s%s.weight", x->layer, x->at, stacks[i / 3], proj[1]))
			continue;
		x->proj = proj;
		bind_stacks(x, stacks[i / 3]);
		return;
	}
	if (bind_has(x->b, "layers.%d.%sexperts.gate_up_proj_blocks", x->layer, x->at))
		bind_pairs(x);
	else if (has(x, "experts.gate_up_proj"))
		bind_halves(x, "experts.gate_up_proj", "experts.down_proj");
	else if (has(x, "input_linear"))
		bind_halves(x, "input_linear", "output_linear");
	else
		bind_each(x);
}

/* The rows of all experts are made ready together: by one group size, and all or none as codes. */
static bool read_alike(const struct weight *a, const struct weight *b)
{
	return a->group == b->group && (a->fmt == b->fmt || (a->fmt->coding && b->fmt->coding));
}

static void check_experts(const struct mixture *x, const struct weight *w, const struct weight *first)
{
	for (int e = 0; w && e < x->m->experts && !x->b->code; e++)
		if (!read_alike(&w[e], first))
			x->b->code = err_set(x->b->err, E_UNSUPPORTED,
			                     "%s: tensor %s: %s in groups of %d, other experts of layer %d are "
			                     "%s in groups of %d",
			                     x->b->st->dir, w[e].name, w[e].fmt->name, w[e].group, x->layer,
			                     first->fmt->name, first->group);
}

static void bind_experts(struct mixture *x)
{
	if (x->b->code)
		return;
	x->gate = x->m->gateless ? NULL : stack_of(x);
	x->up = stack_of(x);
	x->down = stack_of(x);
	bind_layout(x);
	if (x->b->code)
		return;
	check_experts(x, x->gate, x->gate);
	check_experts(x, x->up, x->gate ? x->gate : x->up);
	check_experts(x, x->down, x->down);
	x->moe->gate = x->gate;
	x->moe->up = x->up;
	x->moe->down = x->down;
}

/* A shared expert whose gate rows and up rows are one matrix. */
static void bind_shared_halves(struct mixture *x, struct ffn *f, const char *at)
{
	int inner = x->m->shared_inner;
	struct weight both;

	bind_weight(x->b, &both, 2 * inner, x->hidden, "layers.%d.%s.input_linear", x->layer, at);
	bind_weight(x->b, &f->down, x->hidden, inner, "layers.%d.%s.output_linear", x->layer, at);
	if (x->b->code)
		return;
	f->gate = weight_rows(&both, 0, inner);
	f->up = weight_rows(&both, inner, inner);
}

/* layers.N.mlp.shared_expert.gate_proj and so on; its router, unless it has none, is shared_expert_gate. */
static void bind_shared(struct mixture *x, struct ffn *f)
{
	static const char *const usual[3] = { "gate_proj", "up_proj", "down_proj" };
	const struct moe_form *m = x->m;
	struct weight *to[3] = { &f->gate, &f->up, &f->down };
	char at[128];

	snprintf(at, sizeof at, "%s%s", m->shared_at ? "" : x->at, m->shared_at ? m->shared_at : x->shared);
	if (bind_has(x->b, "layers.%d.%s.input_linear.weight", x->layer, at)) {
		bind_shared_halves(x, f, at);
	} else {
		for (int i = m->gateless; i < 3; i++)
			bind_weight(x->b, to[i], i < 2 ? m->shared_inner : x->hidden,
			            i < 2 ? x->hidden : m->shared_inner, "layers.%d.%s.%s", x->layer, at,
			            m->shared_alike ? m->proj[i] : usual[i]);
	}
	for (int i = m->gateless; i < 3; i++)
		bind_apart(x->b, to[i]);
	x->moe->shared_gate = m->gateless ? NULL : &f->gate;
	x->moe->shared_up = &f->up;
	x->moe->shared_down = &f->down;
	if (m->shared_plain)
		return;
	bind_weight(x->b, &f->shared_router, 1, x->hidden, "layers.%d.%s%s_gate", x->layer, x->at, x->shared);
	bind_apart(x->b, &f->shared_router);
	bind_usual_basis(x->b, &f->shared_router);
	x->moe->shared_router = &f->shared_router;
}

static void bind_router(struct mixture *x, struct ffn *f)
{
	const struct moe_form *m = x->m;

	bind_weight(x->b, &f->router, m->experts, m->router_cols ? m->router_cols : x->hidden, "layers.%d.%s%s",
	            x->layer, x->at, x->router);
	bind_rows_only(x->b, &f->router); /* multiplied in floats */
	bind_apart(x->b, &f->router);
	bind_usual_basis(x->b, &f->router);
	if (m->router_bias)
		x->moe->router_bias = bind_floats(x->b, m->experts, 0, "layers.%d.%s%s.bias", x->layer, x->at,
		                                  x->router);
	if (m->select_bias)
		x->moe->select_bias = bind_floats(x->b, m->experts, 0, "layers.%d.%s%s", x->layer, x->at,
		                                  m->select_bias);
}

static void list_mixture(struct model *m, struct moe *moe)
{
	m->mixture = xrealloc(m->mixture, size_mul((size_t)m->n_mixture + 1, sizeof *m->mixture));
	m->mixture[m->n_mixture++] = moe;
}

void ffn_bind_moe(struct binder *b, struct ffn *f, int hidden, const struct moe_form *m, int layer)
{
	static const char *const usual[3] = { "gate_proj", "up_proj", "down_proj" };
	struct mixture x = {
		.b = b,
		.m = m,
		.hidden = hidden,
		.layer = layer,
		.moe = &f->moe,
		.router = name_or(m->router, "gate"),
		.shared = name_or(m->shared, "shared_expert"),
	};

	snprintf(x.at, sizeof x.at, "%s%s", name_or(m->at, "mlp"), m->at && !*m->at ? "" : ".");
	x.proj = m->proj[0] ? m->proj : usual;
	f->hidden = hidden;
	f->moe = (struct moe){
		.experts = m->experts,
		.top_k = m->top_k,
		.inner = m->inner,
		.shared_inner = m->shared_inner,
		.normalise = m->normalise,
		.weight_input = m->weight_input,
		.router = &f->router,
		.act = m->act,
		.shared_act = m->shared_act,
		.route = m->route,
		.groups = m->groups > 1 ? m->groups : 0,
		.groups_used = m->groups_used,
		.groups_strict = m->groups_strict,
		.scale = m->scale,
		.norm_eps = m->norm_eps,
		.jitter = m->jitter,
	};
	list_mixture(b->m, &f->moe);
	bind_router(&x, f);
	bind_experts(&x);
	if (m->shared_inner)
		bind_shared(&x, f);
}
