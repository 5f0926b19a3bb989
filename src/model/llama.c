/* llama.c - plain transformers: llama, qwen2, qwen3, qwen3_moe.
 *
 *     h = E[token]
 *     per layer:  h += attention(rms(h));  h += ffn(rms(h))
 *     logits = rms(h) lm_head'
 *
 * They differ in biases (qwen2), norms of q and k (qwen3) and in the feed-forward block (qwen3_moe). */
#include <string.h>

#include "model/decoder.h"
#include "model/families.h"

struct plan {
	struct decoder_plan all;
	int sparse_step;
	bool *dense; /* [layers] by mlp_only_layers */
};

static bool is(const struct decoder *d, const char *arch)
{
	return !strcmp(d->m.arch, arch);
}

static void read_moe(struct decoder *d, struct conf *c, struct plan *p)
{
	const struct json *only = conf_get(c, "mlp_only_layers");
	struct moe_form *m = &p->all.moe;
	int layers = d->m.shape.layers;

	m->experts = conf_int(c, "num_experts", 0, 1 << 16);
	p->sparse_step = conf_int_or(c, "decoder_sparse_step", 1, 1, CONF_LAYERS_MAX);
	if (!m->experts || c->code)
		return;
	m->act = p->all.ffn.act;
	m->top_k = conf_int(c, "num_experts_per_tok", 1, m->experts);
	m->inner = conf_int(c, "moe_intermediate_size", 1, CONF_DIM_MAX);
	m->normalise = conf_bool(c, "norm_topk_prob");
	p->dense = arena_zalloc(&d->m.arena, (size_t)layers * sizeof *p->dense);
	for (size_t i = 0; i < json_len(only); i++) {
		int64_t at;

		if (!json_to_int(json_at(only, i), &at) && at >= 0 && at < layers)
			p->dense[at] = true;
	}
}

static void read_config(struct decoder *d, struct conf *c, struct plan *p)
{
	/* Llama 1 and 2 predate the key rope_theta. */
	struct rotary_defaults r = { .theta = is(d, "llama") ? 10000 : 0, .partial = 1 };
	struct attention_form *a = &p->all.attn;
	struct shape *s = &d->m.shape;

	decoder_read(d, c, &(struct decoder_defaults){ 0 }, &p->all);
	if (c->code)
		return;
	p->all.ffn.bias = is(d, "llama") && conf_bool_or(c, "mlp_bias", false);
	a->bias_qkv = is(d, "qwen2") || conf_bool_or(c, "attention_bias", false);
	a->bias_o = !is(d, "qwen2") && a->bias_qkv;
	a->norms = is(d, "qwen3") || is(d, "qwen3_moe");
	if (conf_bool_or(c, "use_sliding_window", false))
		conf_fail(c, E_UNSUPPORTED, "use_sliding_window: true is not done by this version");
	decoder_windows(d, c, 0, &p->all);
	rotary_read(&a->op.rope, c, &r, a->op.dim, &s->ctx_max, &d->m.vectors);
	if (is(d, "qwen3_moe"))
		read_moe(d, c, p);
	if (!p->all.ffn.inner && !p->all.moe.experts)
		conf_int(c, "intermediate_size", 1, CONF_DIM_MAX);
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
		decoder_bind_layer(&b, d, &p.all, i, p.dense && (p.dense[i] || (i + 1) % p.sparse_step != 0));
	return b.code;
}

static const char *const arch[] = { "llama", "qwen2", "qwen3", "qwen3_moe", NULL };

const struct model_ops llama_ops = {
	.arch = arch,
	.size = sizeof(struct decoder),
	.bind = bind,
	.forward = decoder_forward,
	.work_floats = decoder_work_floats,
};
