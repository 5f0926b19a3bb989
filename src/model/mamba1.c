/* mamba1.c - Mamba alone, and Falcon-Mamba, which norms dt, B and C.
 *
 *     h = E[token];  per layer:  h += scan(rms(h));  logits = rms(h) lm_head' */
#include <string.h>

#include "model/decoder.h"
#include "model/families.h"
#include "model/scan.h"

/* Configs name no longest sequence: the state has none. */
enum { CTX = 1 << 20 };

static bool read_config(struct stack *s, struct conf *c, struct scan_form *f)
{
	struct shape *h = &s->m.shape;
	bool falcon = !strcmp(s->m.arch, "falcon_mamba");
	int inner;

	h->hidden = conf_int(c, "hidden_size", 1, CONF_DIM_MAX);
	h->layers = conf_int(c, "num_hidden_layers", 1, CONF_LAYERS_MAX);
	h->vocab = conf_int(c, "vocab_size", 1, CONF_VOCAB_MAX);
	h->ctx_max = conf_int_or(c, "max_position_embeddings", CTX, 1, CONF_CTX_MAX);
	s->trunk.eps = (float)conf_double_or(c, "layer_norm_epsilon", 1e-5);
	inner = conf_int_or(c, "intermediate_size", (int64_t)conf_int_or(c, "expand", 2, 1, 64) * h->hidden, 1,
	                    CONF_DIM_MAX);
	scan_sizes(f, s, c, inner, "time_step_rank", conf_int_or(c, "state_size", 16, 1, CONF_HEAD_DIM_MAX),
	           conf_int_or(c, "conv_kernel", 4, 2, 8));
	f->bias = conf_bool_or(c, "use_bias", false);
	f->conv_bias = conf_bool_or(c, "use_conv_bias", true);
	f->norms = falcon ? SCAN_NORMED : SCAN_PLAIN;
	f->eps = (float)conf_double_or(c, "mixer_rms_eps", 1e-6);
	f->at = "mixer";
	return conf_bool_or(c, "tie_word_embeddings", true);
}

static int bind(struct model *m, struct store *st, struct err *err)
{
	struct stack *s = (struct stack *)m;
	struct binder b = { .st = st, .m = m, .err = err };
	struct conf c = decoder_conf(st, err);
	struct scan_form f = { 0 };
	bool tied = read_config(s, &c, &f);

	if (c.code)
		return c.code;
	stack_init(s, &b, m->shape.layers, &(struct trunk_names){ "embeddings", "norm_f" }, tied);
	for (int i = 0; i < m->shape.layers && !b.code; i++) {
		stack_add_scan(s, &b, &f, bind_floats(&b, m->shape.hidden, 0, "layers.%d.norm.weight", i), i);
		stack_end_layer(s, i);
	}
	return b.code;
}

static const char *const arch[] = { "mamba", "falcon_mamba", NULL };

const struct model_ops mamba1_ops = {
	.arch = arch,
	.size = sizeof(struct stack),
	.bind = bind,
	.forward = stack_forward,
	.work_floats = stack_work_floats,
};
