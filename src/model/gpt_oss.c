/* gpt_oss.c - gpt-oss: attention with sinks, every other layer in a window, and a mixture of clamped SwiGLUs.
 *
 *     h = E[token]
 *     per layer:  h += attention(rms(h));  h += mixture(rms(h))
 *     logits = rms(h) lm_head'
 *
 * The router takes the largest logits and a softmax over these; experts have biases.  Hugging Face keeps an expert's
 * gate and up rows in turn (mxfp4 blocks), mlx apart. */
#include <string.h>

#include "model/decoder.h"
#include "model/families.h"

static void read_config(struct decoder *d, struct conf *c, struct decoder_plan *p)
{
	struct rotary_defaults r = { .theta = 150000, .partial = 1 };
	struct attention_form *a = &p->attn;
	struct moe_form *m = &p->moe;

	decoder_read(d, c, &(struct decoder_defaults){ .eps = 1e-5, .dim = 64 }, p);
	if (c->code)
		return;
	a->bias_qkv = a->bias_o = conf_bool_or(c, "attention_bias", true);
	a->sinks = true;
	/* Without layer_types the first layer is local, the second not, and so on. */
	decoder_windows(d, c, 2, p);
	rotary_read(&a->op.rope, c, &r, a->op.dim, &d->m.shape.ctx_max, &d->m.vectors);
	m->experts = conf_int(c, "num_local_experts", 1, 1 << 16);
	m->top_k = conf_int(c, "num_experts_per_tok", 1, m->experts);
	m->inner = conf_int(c, "intermediate_size", 1, CONF_DIM_MAX);
	m->route = ROUTE_TOP;
	m->router = "router";
	m->router_bias = m->bias = true;
	m->act = (struct activation){ ACT_CLAMPED, (float)conf_double_or(c, "swiglu_alpha", 1.702),
		                      (float)conf_double_or(c, "swiglu_limit", 7) };
	if (!(m->act.limit > 0))
		conf_fail(c, E_FORMAT, "swiglu_limit: %g is not positive", (double)m->act.limit);
}

static int bind(struct model *m, struct store *st, struct err *err)
{
	struct decoder *d = (struct decoder *)m;
	struct binder b = { .st = st, .m = m, .err = err };
	struct conf c = decoder_conf(st, err);
	struct decoder_plan p = { 0 };

	read_config(d, &c, &p);
	if (c.code)
		return c.code;
	decoder_bind(&b, d, &p, 0);
	for (int i = 0; i < m->shape.layers && !b.code; i++)
		decoder_bind_layer(&b, d, &p, i, false);
	return b.code;
}

static const char *const arch[] = { "gpt_oss", NULL };

const struct model_ops gpt_oss_ops = {
	.arch = arch,
	.size = sizeof(struct decoder),
	.bind = bind,
	.forward = decoder_forward,
	.work_floats = decoder_work_floats,
};
