/* granite_h.c - Granite 4, hybrid and dense.
 *
 *     h = m E[token];  per layer:  h += r mixer(rms(h));  h += r ffn(rms(h));  logits = rms(h) lm_head' / s
 *
 * The mixer is Mamba-2, with its norm over the whole width after the gate, or attention whose scale the config
 * names, mostly without positions. ffn is a mixture (softmax over the chosen) plus an MLP for all rows, or that MLP alone. */
#include <math.h>
#include <string.h>

#include "model/decoder.h"
#include "model/families.h"
#include "model/mamba.h"

struct plan {
	struct attention_form attn;
	struct mamba_form mamba;
	struct moe_form moe;
	bool *full; /* [layers] attention */
	int shared; /* width of the MLP for all rows */
	float residual;
	bool tied;
};

static void read_moe(struct conf *c, struct plan *p)
{
	struct moe_form *m = &p->moe;

	m->experts = conf_int_or(c, "num_local_experts", 0, 0, 1 << 16);
	p->shared = conf_int(c, "shared_intermediate_size", m->experts ? 0 : 1, CONF_DIM_MAX);
	if (!m->experts)
		return;
	m->top_k = conf_int(c, "num_experts_per_tok", 1, m->experts);
	m->inner = conf_int(c, "intermediate_size", 1, CONF_DIM_MAX);
	m->act.kind = ACT_SILU;
	m->route = ROUTE_TOP;
	m->at = "block_sparse_moe";
	m->router = "router.layer";
}

static void read_config(struct stack *s, struct conf *c, struct plan *p)
{
	struct shape *h = &s->m.shape;
	const char *act = conf_str_or(c, "hidden_act", "silu");
	const char *position = conf_str_or(c, "position_embedding_type", "nope");

	stack_read(s, c);
	s->trunk.eps = (float)conf_double(c, "rms_norm_eps");
	p->tied = conf_bool_or(c, "tie_word_embeddings", true);
	p->residual = (float)conf_double_or(c, "residual_multiplier", 1);
	if (strcmp(act, "silu"))
		conf_fail(c, E_UNSUPPORTED, "hidden_act: \"%.40s\" is not done; only silu", act);
	if (strcmp(position, "nope") && strcmp(position, "rope"))
		conf_fail(c, E_UNSUPPORTED, "position_embedding_type: \"%.40s\" is not known; known: nope, rope",
		          position);
	stack_read_attention(s, c, &p->attn);
	p->attn.op.scale = (float)conf_above_zero_or(c, "attention_multiplier", (double)p->attn.op.scale);
	if (!strcmp(position, "rope"))
		rotary_read(&p->attn.op.rope, c, &(struct rotary_defaults){ .theta = 10000, .partial = 1 },
		            p->attn.op.dim, &h->ctx_max, &s->m.vectors);
	read_moe(c, p);
	if (c->code)
		return;
	p->full = arena_zalloc(&s->m.arena, (size_t)h->layers * sizeof *p->full);
	if (!conf_layer_types(c, "layer_types", h->layers, "attention", "mamba", p->full))
		conf_fail(c, E_MISSING, "layer_types: missing, and it has no safe default");
	for (int i = 0; i < h->layers; i++)
		if (!p->full[i] && !p->mamba.shape.heads_v && !c->code)
			mamba_read(&p->mamba, c, h->hidden);
}

/* The MLP for all rows: gate and up in one tensor, or, as mlx has the dense models, each its own. */
static void bind_shared(struct binder *b, struct ffn *f, int hidden, int inner, int i)
{
	struct ffn_form split = { .inner = inner, .act = { .kind = ACT_SILU } };
	struct weight both;

	if (!bind_has(b, "layers.%d.shared_mlp.input_linear.weight", i)) {
		ffn_bind_dense(b, f, hidden, &split, i);
		return;
	}
	bind_weight(b, &both, 2 * inner, hidden, "layers.%d.shared_mlp.input_linear", i);
	bind_weight(b, &f->down, hidden, inner, "layers.%d.shared_mlp.output_linear", i);
	if (b->code)
		return;
	f->hidden = hidden;
	f->act.kind = ACT_SILU;
	f->gate = weight_rows(&both, 0, inner);
	f->up = weight_rows(&both, inner, inner);
}

static struct block *add_ffn(struct stack *s, struct binder *b, const struct plan *p, const float *norm, int i)
{
	int hidden = s->m.shape.hidden;
	struct block *y;
	struct ffn *f;

	if (!p->moe.experts) {
		f = arena_zalloc(&b->m->arena, sizeof *f);
		bind_shared(b, f, hidden, p->shared, i);
		return stack_add_ready(s, f, norm);
	}
	y = stack_add_moe(s, b, &p->moe, norm, i);
	f = stack_ffn(y);
	if (!p->shared)
		return y;
	bind_shared(b, f, hidden, p->shared, i);
	bind_apart(b, &f->gate); /* of both, where they are one matrix */
	bind_apart(b, &f->up);
	bind_apart(b, &f->down);
	f->moe.shared_inner = p->shared;
	f->moe.shared_gate = &f->gate;
	f->moe.shared_up = &f->up;
	f->moe.shared_down = &f->down;
	return y;
}

static void bind_layer(struct stack *s, struct binder *b, const struct plan *p, int i)
{
	const float *norm = bind_floats(b, s->m.shape.hidden, 0, "layers.%d.input_layernorm.weight", i);
	struct block *y = p->full[i] ? stack_add_attention(s, b, &p->attn, norm, i) :
	                               stack_add_mamba(s, b, &p->mamba, norm, i);

	y->join.scale = p->residual;
	norm = bind_floats(b, s->m.shape.hidden, 0, "layers.%d.post_attention_layernorm.weight", i);
	add_ffn(s, b, p, norm, i)->join.scale = p->residual;
}

static int bind(struct model *m, struct store *st, struct err *err)
{
	struct stack *s = (struct stack *)m;
	struct binder b = { .st = st, .m = m, .err = err };
	struct conf c = decoder_conf(st, err);
	struct plan p = { 0 };

	read_config(s, &c, &p);
	if (c.code)
		return c.code;
	stack_init(s, &b, 2 * m->shape.layers, NULL, p.tied);
	s->trunk.embed_scale = (float)conf_double_or(&c, "embedding_multiplier", 1);
	s->trunk.logit_scale = 1.0f / (float)conf_above_zero_or(&c, "logits_scaling", 1);
	for (int i = 0; i < m->shape.layers && !b.code; i++) {
		bind_layer(s, &b, &p, i);
		stack_end_layer(s, i);
	}
	return b.code ? b.code : c.code;
}

static const char *const arch[] = { "granitemoehybrid", NULL };

const struct model_ops granite_h_ops = {
	.arch = arch,
	.size = sizeof(struct stack),
	.bind = bind,
	.forward = stack_forward,
	.work_floats = stack_work_floats,
};
