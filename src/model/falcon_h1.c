/* falcon_h1.c - Falcon-H1: Mamba-2 and attention in parallel in every layer.
 *
 *     h = m E[token]
 *     per layer:  n = rms(h);  h += s mamba(n) + a attention(n);  h += ffn(rms(h))
 *     logits = l rms(h) lm_head'
 *
 * Factors of the config (muP) go where they cost nothing: those of x, B and C into the convolution; keys' and
 * inputs' of attention into its scale; the gate's, which is inside SiLU, into the norm before
 * it, since what the other factor of the product gains by it the output loses.
 *
 * Files of mlx, which one knows by the axes of the convolution's weight, hold weights times these factors
 * already: all but those of keys and of values. */
#include <stdio.h>

#include "model/decoder.h"
#include "model/families.h"
#include "model/mamba.h"

struct plan {
	struct attention_form attn;
	struct mamba_form mamba;
	struct ffn_form ffn;
	float mup[5]; /* z, x, B, C, dt */
	float mamba_out, attn_in, attn_out, gate, down;
	bool tied;
};

static double factor(struct conf *c, const char *key)
{
	double f = conf_double_or(c, key, 1);

	if (f == 0)
		conf_fail(c, E_FORMAT, "%s: 0 leaves nothing", key);
	return f;
}

/* n numbers of a list; 1 each where there is none. */
static void factors(struct conf *c, const char *key, double *out, int n)
{
	const struct json *list = conf_get(c, key);

	for (int i = 0; i < n; i++) {
		out[i] = 1;
		if (list &&
		    (json_len(list) != (size_t)n || json_to_double(json_at(list, (size_t)i), &out[i]) || out[i] == 0))
			conf_fail(c, E_FORMAT, "%s: is not %d numbers other than 0", key, n);
	}
}

static void read_mamba(struct stack *s, struct conf *c, struct plan *p)
{
	struct mamba_form *f = &p->mamba;
	int heads = conf_int(c, "mamba_n_heads", 1, CONF_HEADS_MAX);
	int inner = conf_int_or(c, "mamba_d_ssm", conf_int_or(c, "mamba_expand", 2, 1, 64) * s->m.shape.hidden, 1,
	                        CONF_DIM_MAX);
	double in = factor(c, "ssm_in_multiplier"), mup[5];

	factors(c, "ssm_multipliers", mup, 5);
	for (int i = 0; i < 5; i++)
		p->mup[i] = (float)(in * mup[i]);
	mamba_sizes(f, c, heads, inner / heads, conf_int_or(c, "mamba_n_groups", 1, 1, CONF_HEADS_MAX),
	            conf_int(c, "mamba_d_state", 1, CONF_HEAD_DIM_MAX), conf_int_or(c, "mamba_d_conv", 4, 2, 8));
	if (!c->code && inner % heads)
		conf_fail(c, E_FORMAT, "mamba_d_ssm: %d is not a multiple of mamba_n_heads %d", inner, heads);
	mamba_read_limits(f, c);
	f->bias = conf_bool_or(c, "mamba_proj_bias", false);
	f->conv_bias = conf_bool_or(c, "mamba_conv_bias", true);
	f->norm = conf_bool_or(c, "mamba_rms_norm", false);
	f->norm_cols = inner / f->shape.heads_k;
	f->norm_first = conf_bool_or(c, "mamba_norm_before_gate", true);
	f->at = "mamba";
	f->scale = p->mup;
	p->mamba_out = (float)factor(c, "ssm_out_multiplier");
}

static void read_config(struct stack *s, struct conf *c, struct plan *p)
{
	struct shape *h = &s->m.shape;
	struct rotary_defaults r = { .theta = 1e11, .partial = 1 };
	double in = factor(c, "attention_in_multiplier"), mlp[2];

	stack_read(s, c);
	s->trunk.eps = (float)conf_double(c, "rms_norm_eps");
	p->tied = conf_bool_or(c, "tie_word_embeddings", false);
	p->ffn = (struct ffn_form){ .inner = conf_int(c, "intermediate_size", 1, CONF_DIM_MAX),
		                    .bias = conf_bool_or(c, "mlp_bias", false),
		                    .act = ffn_read_act(c, ACT_NONE),
		                    .at = "feed_forward" };
	stack_read_attention(s, c, &p->attn);
	rotary_read(&p->attn.op.rope, c, &r, p->attn.op.dim, &h->ctx_max, &s->m.vectors);
	p->attn.op.scale *= (float)(in * in * factor(c, "key_multiplier"));
	p->attn_in = (float)in;
	p->attn_out = (float)(in * factor(c, "attention_out_multiplier"));
	factors(c, "mlp_multipliers", mlp, 2);
	p->gate = (float)mlp[0];
	p->down = (float)(mlp[1] / mlp[0]);
	if (p->ffn.bias && p->gate != 1)
		conf_fail(c, E_UNSUPPORTED, "mlp_bias: with mlp_multipliers it is not done");
	read_mamba(s, c, p);
}

/* Whether the factors are multiplied into the weights, as in mlx's files. */
static bool factors_folded(const struct binder *b)
{
	char name[160];
	const struct tensor *t;

	snprintf(name, sizeof name, "%slayers.0.mamba.conv1d.weight", b->prefix);
	t = store_find(b->st, name);
	return t && t->n_dim == 3 && t->dim[2] == 1 && t->dim[1] != 1;
}

static void unfold(struct stack *s, struct plan *p)
{
	s->trunk.embed_scale = s->trunk.logit_scale = 1;
	p->mamba.scale = NULL;
	p->mamba_out = p->gate = p->down = 1;
	p->attn_out = p->attn_in;
	p->attn.op.scale /= p->attn_in * p->attn_in;
}

/* A gain times f. */
static const float *gain_times(struct binder *b, const float *gain, int n, float f)
{
	float *g;

	if (b->code)
		return NULL;
	g = bind_table(b, (size_t)n);
	for (int i = 0; i < n; i++)
		g[i] = gain[i] * f;
	return g;
}

static void bind_layer(struct stack *s, struct binder *b, const struct plan *p, int i)
{
	int hidden = s->m.shape.hidden;
	const float *norm = bind_floats(b, hidden, 0, "layers.%d.input_layernorm.weight", i);
	struct block *y;

	stack_add_mamba(s, b, &p->mamba, norm, i)->join.scale = p->mamba_out;
	y = stack_add_attention(s, b, &p->attn, norm, i);
	y->join.scale = p->attn_out;
	y->beside = s->besides = true;
	norm = gain_times(b, bind_floats(b, hidden, 0, "layers.%d.pre_ff_layernorm.weight", i), hidden, p->gate);
	stack_add_ffn(s, b, &p->ffn, norm, i)->join.scale = p->down;
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
	stack_init(s, &b, 3 * m->shape.layers, &(struct trunk_names){ "embed_tokens", "final_layernorm" }, p.tied);
	s->trunk.embed_scale = (float)factor(&c, "embedding_multiplier");
	s->trunk.logit_scale = (float)factor(&c, "lm_head_multiplier");
	if (!b.code && factors_folded(&b))
		unfold(s, &p);
	for (int i = 0; i < m->shape.layers && !b.code; i++) {
		bind_layer(s, &b, &p, i);
		stack_end_layer(s, i);
	}
	return b.code ? b.code : c.code;
}

static const char *const arch[] = { "falcon_h1", NULL };

const struct model_ops falcon_h1_ops = {
	.arch = arch,
	.size = sizeof(struct stack),
	.bind = bind,
	.forward = stack_forward,
	.work_floats = stack_work_floats,
};
