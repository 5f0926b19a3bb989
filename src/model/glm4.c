/* glm4.c - GLM-4 and GLM-Z1, the dense ones of 2025: norms before and after each block.
 *
 *     h = E[token]
 *     per layer:  h += rms(attention(rms(h)));  h += rms(ffn(rms(h)))
 *     logits = rms(h) lm_head'
 *
 * Half of a head rotates, in adjacent pairs.  Queries, keys and values have biases; gate and factor are one matrix. */
#include "model/decoder.h"
#include "model/families.h"

static void read_config(struct decoder *d, struct conf *c, struct decoder_plan *p)
{
	struct rotary_defaults r = { .theta = 10000, .partial = 0.5 };
	struct attention_form *a = &p->attn;

	decoder_read(d, c, &(struct decoder_defaults){ 0 }, p);
	if (c->code)
		return;
	a->bias_qkv = conf_bool_or(c, "attention_bias", false);
	p->ffn.fused = true;
	rotary_read(&a->op.rope, c, &r, a->op.dim, &d->m.shape.ctx_max, &d->m.vectors);
	a->op.rope.adjacent = true;
	if (!p->ffn.inner)
		conf_int(c, "intermediate_size", 1, CONF_DIM_MAX);
}

static struct join after(struct binder *b, const struct decoder *d, const char *norm, int i)
{
	return (struct join){ bind_floats(b, d->m.shape.hidden, 0, "layers.%d.%s.weight", i, norm), d->eps, 0 };
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
	for (int i = 0; i < m->shape.layers && !b.code; i++) {
		decoder_bind_layer(&b, d, &p, i, true);
		d->layer[i].join_attn = after(&b, d, "post_self_attn_layernorm", i);
		d->layer[i].join_ffn = after(&b, d, "post_mlp_layernorm", i);
	}
	return b.code;
}

static const char *const arch[] = { "glm4", NULL };

const struct model_ops glm4_ops = {
	.arch = arch,
	.size = sizeof(struct decoder),
	.bind = bind,
	.forward = decoder_forward,
	.work_floats = decoder_work_floats,
};
