/* bamba.c - Bamba: Mamba-2, and attention that rotates half of a head.
 *
 *     h = E[token];  per layer:  h += mixer(rms(h));  h += ffn(rms(h));  logits = rms(h) lm_head'
 *
 * The norm of Mamba-2 goes over the whole width, after the gate. */
#include "model/decoder.h"
#include "model/families.h"
#include "model/mamba.h"

struct plan {
	struct attention_form attn;
	struct mamba_form mamba;
	struct ffn_form ffn;
	bool *full; /* [layers] attention */
	bool tied;
};

static void read_config(struct stack *s, struct conf *c, struct plan *p)
{
	struct shape *h = &s->m.shape;

	stack_read(s, c);
	s->trunk.eps = (float)conf_double_or(c, "rms_norm_eps", 1e-5);
	p->tied = conf_bool_or(c, "tie_word_embeddings", false);
	stack_read_attention(s, c, &p->attn);
	if (c->code)
		return;
	rotary_read(&p->attn.op.rope, c, &(struct rotary_defaults){ .theta = 10000, .partial = 0.5 }, p->attn.op.dim,
	            &h->ctx_max, &s->m.vectors);
	p->ffn = (struct ffn_form){ .inner = conf_int(c, "intermediate_size", 1, CONF_DIM_MAX),
		                    .act = ffn_read_act(c, ACT_NONE),
		                    .bias = conf_bool_or(c, "mlp_bias", false),
		                    .at = "feed_forward" };
	mamba_read(&p->mamba, c, h->hidden);
	p->full = arena_zalloc(&s->m.arena, (size_t)h->layers * sizeof *p->full);
	conf_layers_named(c, "attn_layer_indices", 0, h->layers, p->full);
}

static void bind_layer(struct stack *s, struct binder *b, const struct plan *p, int i)
{
	const float *norm = bind_floats(b, s->m.shape.hidden, 0, "layers.%d.input_layernorm.weight", i);

	if (p->full[i])
		stack_add_attention(s, b, &p->attn, norm, i);
	else
		stack_add_mamba(s, b, &p->mamba, norm, i);
	norm = bind_floats(b, s->m.shape.hidden, 0, "layers.%d.pre_ff_layernorm.weight", i);
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

static const char *const arch[] = { "bamba", NULL };

const struct model_ops bamba_ops = {
	.arch = arch,
	.size = sizeof(struct stack),
	.bind = bind,
	.forward = stack_forward,
	.work_floats = stack_work_floats,
};
