/* olmo.c - OLMo 2 and 3: norms after the blocks alone.
 *
 *     h = E[token]
 *     per layer:  h += rms(attention(h));  h += rms(ffn(h))
 *     logits = rms(h) lm_head'
 *
 * Norms of queries and keys run over all heads of a row.  In OLMo 3 most layers see a window, and rope_scaling is for
 * the others. */
#include <string.h>

#include "model/decoder.h"
#include "model/families.h"

struct plan {
	struct decoder_plan all;
	struct rope local;
};

static void read_config(struct decoder *d, struct conf *c, struct plan *p)
{
	struct rotary_defaults full = { .theta = 10000, .partial = 1, .kind = "full_attention" };
	struct rotary_defaults local = full;
	struct attention_form *a = &p->all.attn;
	struct shape *s = &d->m.shape;
	int ctx = 0;

	decoder_read(d, c, &(struct decoder_defaults){ .eps = 1e-5 }, &p->all);
	if (c->code)
		return;
	ctx = s->ctx_max;
	a->norms_whole = true;
	a->bias_qkv = a->bias_o = conf_bool_or(c, "attention_bias", false);
	if (!strcmp(d->m.arch, "olmo3"))
		decoder_windows(d, c, 4, &p->all);
	local.kind = "sliding_attention";
	local.unscaled = true;
	rotary_read(&a->op.rope, c, &full, a->op.dim, &s->ctx_max, &d->m.vectors);
	rotary_read(&p->local, c, &local, a->op.dim, &ctx, &d->m.vectors);
	if (!p->all.ffn.inner)
		conf_int(c, "intermediate_size", 1, CONF_DIM_MAX);
}

static void bind_layer(struct binder *b, struct decoder *d, const struct plan *p, int i)
{
	struct decoder_layer *y = &d->layer[i];
	struct attention_form f = decoder_attention(&p->all, i);
	int hidden = d->m.shape.hidden;

	if (p->all.local[i])
		f.op.rope = p->local;
	decoder_bind_attention(b, d, &f, i);
	ffn_bind_dense(b, &y->ffn, hidden, &p->all.ffn, i);
	y->join_attn = (struct join){ bind_floats(b, hidden, 0, "layers.%d.post_attention_layernorm.weight", i), d->eps,
		                      0 };
	y->join_ffn = (struct join){ bind_floats(b, hidden, 0, "layers.%d.post_feedforward_layernorm.weight", i),
		                     d->eps, 0 };
}

static int bind(struct model *m, struct store *st, struct err *err)
{
	struct decoder *d = (struct decoder *)m;
	struct binder b = { .st = st, .m = m, .err = err };
	struct conf c = decoder_conf(st, err);
	struct plan p = { 0 };

	read_config(d, &c, &p);
	if (c.code)
		return c.code;
	decoder_bind(&b, d, &p.all, 0);
	for (int i = 0; i < m->shape.layers && !b.code; i++)
		bind_layer(&b, d, &p, i);
	return b.code;
}

static const char *const arch[] = { "olmo2", "olmo3", NULL };

const struct model_ops olmo_ops = {
	.arch = arch,
	.size = sizeof(struct decoder),
	.bind = bind,
	.forward = decoder_forward,
	.work_floats = decoder_work_floats,
};
