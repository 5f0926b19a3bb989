/* mamba2.c - Mamba-2 alone.
 *
 *     h = E[token];  per layer:  h += mamba(rms(h));  logits = rms(h) lm_head'
 *
 * The norm after the gate goes by the groups of B and C, as in the code that the published models were trained with.
 * Hugging Face's modules take it over the whole width, which differs where there is more than one group; a config that
 * says norm_groups: 1 gets that.  norm_before_gate is not looked at: no implementation does. */
#include "model/decoder.h"
#include "model/families.h"
#include "model/mamba.h"

/* Configs name no longest sequence: the state has none. */
enum { CTX = 1 << 20 };

static bool read_config(struct stack *s, struct conf *c, struct mamba_form *f)
{
	struct shape *h = &s->m.shape;
	int groups;

	h->hidden = conf_int(c, "hidden_size", 1, CONF_DIM_MAX);
	h->layers = conf_int(c, "num_hidden_layers", 1, CONF_LAYERS_MAX);
	h->vocab = conf_int(c, "vocab_size", 1, CONF_VOCAB_MAX);
	h->ctx_max = conf_int_or(c, "max_position_embeddings", CTX, 1, CONF_CTX_MAX);
	s->trunk.eps = (float)conf_double_or(c, "layer_norm_epsilon", 1e-5);
	mamba_sizes(f, c, conf_int(c, "num_heads", 1, CONF_HEADS_MAX), conf_int(c, "head_dim", 1, CONF_HEAD_DIM_MAX),
	            conf_int_or(c, "n_groups", 1, 1, CONF_HEADS_MAX), conf_int(c, "state_size", 1, CONF_HEAD_DIM_MAX),
	            conf_int_or(c, "conv_kernel", 4, 2, 8));
	mamba_read_limits(f, c);
	f->bias = conf_bool_or(c, "use_bias", false);
	f->conv_bias = conf_bool_or(c, "use_conv_bias", true);
	f->norm = conf_bool_or(c, "rms_norm", true);
	groups = conf_int_or(c, "norm_groups", f->shape.heads_k, 1, CONF_HEADS_MAX);
	f->norm_cols = f->shape.heads_v * f->shape.dim_v / groups;
	if (!c->code && f->shape.heads_v % groups)
		conf_fail(c, E_FORMAT, "norm_groups: %d does not divide num_heads %d", groups, f->shape.heads_v);
	f->at = "mixer";
	return conf_bool_or(c, "tie_word_embeddings", false);
}

static int bind(struct model *m, struct store *st, struct err *err)
{
	struct stack *s = (struct stack *)m;
	struct binder b = { .st = st, .m = m, .err = err };
	struct conf c = decoder_conf(st, err);
	struct mamba_form f = { 0 };
	bool tied = read_config(s, &c, &f);

	if (c.code)
		return c.code;
	stack_init(s, &b, m->shape.layers, &(struct trunk_names){ "embeddings", "norm_f" }, tied);
	for (int i = 0; i < m->shape.layers && !b.code; i++) {
		stack_add_mamba(s, &b, &f, bind_floats(&b, m->shape.hidden, 0, "layers.%d.norm.weight", i), i);
		stack_end_layer(s, i);
	}
	return b.code;
}

static const char *const arch[] = { "mamba2", NULL };

const struct model_ops mamba2_ops = {
	.arch = arch,
	.size = sizeof(struct stack),
	.bind = bind,
	.forward = stack_forward,
	.work_floats = stack_work_floats,
};
