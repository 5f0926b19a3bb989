/* jamba.c - Jamba: Mamba's selective scan, attention without positions, mixtures.
 *
 *     h = E[token];  per layer:  h += mixer(rms(h));  h += ffn(rms(h));  logits = rms(h) lm_head'
 *
 * A mixture's weights are those of a softmax over all experts, not divided by the sum of the chosen. */
#include "model/decoder.h"
#include "model/families.h"
#include "model/scan.h"

struct plan {
	struct attention_form attn;
	struct ffn_form ffn;
	struct moe_form moe;
	struct scan_form scan;
	int attn_period, attn_offset, moe_period, moe_offset;
	bool tied;
};

/* ---- config ---- */

static void read_scan(struct stack *s, struct conf *c, struct plan *p)
{
	struct scan_form *f = &p->scan;

	scan_sizes(f, s, c, conf_int_or(c, "mamba_expand", 2, 1, 64) * s->m.shape.hidden, "mamba_dt_rank",
	           conf_int_or(c, "mamba_d_state", 16, 1, CONF_HEAD_DIM_MAX), conf_int_or(c, "mamba_d_conv", 4, 2, 8));
	f->bias = conf_bool_or(c, "mamba_proj_bias", false);
	f->conv_bias = conf_bool_or(c, "mamba_conv_bias", true);
	f->norms = SCAN_GAINED;
	f->eps = s->trunk.eps;
	f->at = "mamba";
}

static void read_moe(struct conf *c, struct plan *p)
{
	struct moe_form *m = &p->moe;

	m->experts = conf_int_or(c, "num_experts", 16, 0, 1 << 16);
	p->moe_period = conf_int_or(c, "expert_layer_period", 2, 1, CONF_LAYERS_MAX);
	p->moe_offset = conf_int_or(c, "expert_layer_offset", 1, 0, CONF_LAYERS_MAX);
	if (m->experts <= 1) {
		m->experts = 0;
		return;
	}
	m->top_k = conf_int_or(c, "num_experts_per_tok", 2, 1, m->experts);
	m->inner = p->ffn.inner;
	m->act.kind = ACT_SILU;
	m->at = "feed_forward";
	m->router = "router";
}

static void read_config(struct stack *s, struct conf *c, struct plan *p)
{
	stack_read(s, c);
	s->trunk.eps = (float)conf_double_or(c, "rms_norm_eps", 1e-6);
	p->tied = conf_bool_or(c, "tie_word_embeddings", false);
	stack_read_attention(s, c, &p->attn);
	p->attn_period = conf_int_or(c, "attn_layer_period", 8, 1, CONF_LAYERS_MAX);
	p->attn_offset = conf_int_or(c, "attn_layer_offset", 4, 0, CONF_LAYERS_MAX);
	p->ffn = (struct ffn_form){ .inner = conf_int(c, "intermediate_size", 1, CONF_DIM_MAX),
		                    .act = ffn_read_act(c, ACT_NONE),
		                    .at = "feed_forward" };
	read_moe(c, p);
	if (!c->code)
		read_scan(s, c, p);
}

static void bind_layer(struct stack *s, struct binder *b, struct plan *p, int i)
{
	int hidden = s->m.shape.hidden;
	const float *norm = bind_floats(b, hidden, 0, "layers.%d.input_layernorm.weight", i);

	if (i % p->attn_period == p->attn_offset)
		stack_add_attention(s, b, &p->attn, norm, i);
	else
		stack_add_scan(s, b, &p->scan, norm, i);
	norm = bind_floats(b, hidden, 0, "layers.%d.pre_ff_layernorm.weight", i);
	if (p->moe.experts && i % p->moe_period == p->moe_offset)
		stack_add_moe(s, b, &p->moe, norm, i);
	else
		stack_add_ffn(s, b, &p->ffn, norm, i);
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
	stack_init(s, &b, 2 * m->shape.layers, &(struct trunk_names){ "embed_tokens", "final_layernorm" }, p.tied);
	for (int i = 0; i < m->shape.layers && !b.code; i++) {
		bind_layer(s, &b, &p, i);
		stack_end_layer(s, i);
	}
	return b.code;
}

static const char *const arch[] = { "jamba", NULL };

const struct model_ops jamba_ops = {
	.arch = arch,
	.size = sizeof(struct stack),
	.bind = bind,
	.forward = stack_forward,
	.work_floats = stack_work_floats,
};
