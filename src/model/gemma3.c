/* gemma3.c - Gemma 2, and Gemma 3: text, also of its multimodal folders.
 *
 *     h = bf16(sqrt(hidden)) E[token]
 *     per layer:  h += rms0(attention(rms0(h)));  h += rms0(ffn(rms0(h)))
 *     logits = rms0(h) E'
 *
 * rms0 is zero-centred: its gain is 1 + w.  Most layers see a window, with a rotary table of their own.
 * Gemma 2 caps the scores of attention and the logits, has no norms of queries and keys, and a window in every other
 * layer, the first included. */
#include <math.h>
#include <string.h>

#include "model/decoder.h"
#include "model/families.h"

/* Hugging Face's defaults for keys that a config omits. */
static const struct decoder_defaults defaults = {
	.vocab = 262208,
	.ctx = 131072,
	.heads = 8,
	.heads_kv = 4,
	.dim = 256,
	.eps = 1e-6,
	.tied = true,
};

static const struct decoder_defaults defaults_2 = {
	.vocab = 256000,
	.ctx = 8192,
	.heads = 8,
	.heads_kv = 4,
	.dim = 256,
	.eps = 1e-6,
	.tied = true,
};

struct plan {
	bool two; /* Gemma 2 */
	struct decoder_plan all;
	struct rope local;
};

static void read_config(struct decoder *d, struct conf *c, struct plan *p)
{
	struct rotary_defaults full = { .theta = p->two ? 1e4 : 1e6, .partial = 1, .kind = "full_attention" };
	struct rotary_defaults local = { .theta = 1e4,
		                         .partial = 1,
		                         .kind = "sliding_attention",
		                         .theta_key = "rope_local_base_freq",
		                         .unscaled = true };
	struct attention_form *a = &p->all.attn;
	struct shape *s = &d->m.shape;
	int every;

	if (p->two)
		local = full;
	decoder_read(d, c, p->two ? &defaults_2 : &defaults, &p->all);
	if (c->code)
		return;
	if (!conf_get(c, "hidden_activation") && !conf_get(c, "hidden_act"))
		p->all.ffn.act.kind = ACT_GELU_TANH;
	a->norms = a->op.both_ways = !p->two;
	a->norm_add = 1;
	a->bias_qkv = a->bias_o = conf_bool_or(c, "attention_bias", false);
	a->op.scale = (float)(1 / sqrt(conf_above_zero_or(c, "query_pre_attn_scalar", 256)));
	a->op.softcap = (float)conf_double_or(c, "attn_logit_softcapping", p->two ? 50 : 0);
	every = conf_int_or(c, "sliding_window_pattern",
	                    conf_int_or(c, "_sliding_window_pattern", p->two ? 2 : 6, 1, CONF_LAYERS_MAX), 1,
	                    CONF_LAYERS_MAX);
	decoder_windows(d, c, every, &p->all);
	rotary_read(&a->op.rope, c, &full, a->op.dim, &s->ctx_max, &d->m.vectors);
	rotary_read(&p->local, c, &local, a->op.dim, &s->ctx_max, &d->m.vectors);
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
	y->norm_attn = bind_floats(b, hidden, 1, "layers.%d.input_layernorm.weight", i);
	y->join_attn = (struct join){ bind_floats(b, hidden, 1, "layers.%d.post_attention_layernorm.weight", i), d->eps,
		                      0 };
	y->norm_ffn = bind_floats(b, hidden, 1, "layers.%d.pre_feedforward_layernorm.weight", i);
	y->join_ffn = (struct join){ bind_floats(b, hidden, 1, "layers.%d.post_feedforward_layernorm.weight", i),
		                     d->eps, 0 };
}

static int bind(struct model *m, struct store *st, struct err *err)
{
	struct decoder *d = (struct decoder *)m;
	struct binder b = { .st = st, .m = m, .err = err };
	struct conf c = decoder_conf(st, err);
	struct plan p = { .two = !strcmp(m->arch, "gemma2") };

	read_config(d, &c, &p);
	if (c.code)
		return c.code;
	decoder_bind(&b, d, &p.all, 1);
	d->trunk.embed_scale = bf16_to_float(float_to_bf16(sqrtf((float)m->shape.hidden)));
	d->trunk.logit_cap = (float)conf_double_or(&c, "final_logit_softcapping", p.two ? 30 : 0);
	for (int i = 0; i < m->shape.layers && !b.code; i++)
		bind_layer(&b, d, &p, i);
	if (!b.code)
		decoder_ignore(st);
	return b.code ? b.code : c.code;
}

static const char *const arch[] = { "gemma2", "gemma3_text", "gemma3", NULL };

const struct model_ops gemma3_ops = {
	.arch = arch,
	.size = sizeof(struct decoder),
	.bind = bind,
	.forward = decoder_forward,
	.work_floats = decoder_work_floats,
};
