/* llama.c - the plain transformer: llama, qwen2, qwen3, qwen3_moe.
 *
 *     h = E[token]
 *     per layer:  h += attention(rms(h));  h += ffn(rms(h))
 *     logits = rms(h) lm_head'
 *
 * The four differ in biases (qwen2), norms of q and k (qwen3) and in the
 * feed-forward block (qwen3_moe). */
#include <math.h>
#include <string.h>

#include "cache/kinds.h"
#include "model/attention.h"
#include "model/conf.h"
#include "model/families.h"
#include "model/ffn.h"
#include "model/rotary.h"
#include "model/work.h"

struct layer {
	const float *norm_in, *norm_post;
	struct attention attn;
	struct ffn ffn;
};

struct llama {
	struct model m;
	float eps;
	struct weight embed, head;
	const float *norm;
	struct layer *layer;
};

/* What config.json says, beyond struct shape. */
struct plan {
	struct attention_form attn;
	int inner;
	bool mlp_bias, tied;
	struct moe_form moe; /* experts 0: dense */
	int sparse_step;
	bool *dense; /* [layers] by mlp_only_layers */
};

static bool is(const struct model *m, const char *arch)
{
	return !strcmp(m->arch, arch);
}

/* Windows would need another cache; a model that asks for one is refused. */
static void refuse_windows(struct conf *c, int layers, struct arena *a)
{
	bool *full = arena_zalloc(a, (size_t)layers * sizeof *full);

	if (conf_bool_or(c, "use_sliding_window", false))
		conf_fail(c, E_UNSUPPORTED, "use_sliding_window: true is not done by this version");
	conf_layer_types(c, "layer_types", layers, "full_attention", "full_attention", full);
}

static void read_moe(struct conf *c, struct plan *p, int layers, struct arena *a)
{
	const struct json *only = conf_get(c, "mlp_only_layers");

	p->moe.experts = conf_int(c, "num_experts", 0, 1 << 16);
	p->sparse_step = conf_int_or(c, "decoder_sparse_step", 1, 1, CONF_LAYERS_MAX);
	if (!p->moe.experts)
		return;
	p->moe.top_k = conf_int(c, "num_experts_per_tok", 1, p->moe.experts);
	p->moe.inner = conf_int(c, "moe_intermediate_size", 1, CONF_DIM_MAX);
	p->moe.normalise = conf_bool(c, "norm_topk_prob");
	p->dense = arena_zalloc(a, (size_t)layers * sizeof *p->dense);
	for (size_t i = 0; i < json_len(only); i++) {
		int64_t at;

		if (!json_to_int(json_at(only, i), &at) && at >= 0 && at < layers)
			p->dense[at] = true;
	}
}

static void read_config(struct llama *l, struct conf *c, struct plan *p)
{
	struct shape *s = &l->m.shape;
	struct attention_form *f = &p->attn;
	/* Llama 1 and 2 predate the key. */
	struct rotary_defaults d = { .theta = is(&l->m, "llama") ? 10000 : 0, .partial = 1 };
	const char *act = conf_str_or(c, "hidden_act", "silu");

	s->hidden = conf_int(c, "hidden_size", 1, CONF_DIM_MAX);
	s->layers = s->layers_attn = conf_int(c, "num_hidden_layers", 1, CONF_LAYERS_MAX);
	s->vocab = conf_int(c, "vocab_size", 1, CONF_VOCAB_MAX);
	s->ctx_max = conf_int(c, "max_position_embeddings", 1, CONF_CTX_MAX);
	f->op.heads = conf_int(c, "num_attention_heads", 1, CONF_HEADS_MAX);
	f->op.heads_kv = conf_int_or(c, "num_key_value_heads", f->op.heads, 1, CONF_HEADS_MAX);
	f->op.dim = conf_int_or(c, "head_dim", s->hidden / f->op.heads, 2, CONF_HEAD_DIM_MAX);
	l->eps = (float)conf_double(c, "rms_norm_eps");
	p->inner = conf_int_or(c, "intermediate_size", 0, 0, CONF_DIM_MAX);
	p->tied = conf_bool_or(c, "tie_word_embeddings", false);
	p->mlp_bias = is(&l->m, "llama") && conf_bool_or(c, "mlp_bias", false);
	if (strcmp(act, "silu") && strcmp(act, "swish"))
		conf_fail(c, E_UNSUPPORTED, "hidden_act: \"%.40s\" is not done; only silu", act);
	if (!c->code && f->op.heads % f->op.heads_kv)
		conf_fail(c, E_FORMAT, "num_attention_heads: %d is not a multiple of num_key_value_heads %d",
		          f->op.heads, f->op.heads_kv);
	if (c->code)
		return;
	f->hidden = s->hidden;
	f->bias_qkv = is(&l->m, "qwen2") || conf_bool_or(c, "attention_bias", false);
	f->bias_o = !is(&l->m, "qwen2") && f->bias_qkv;
	f->norms = is(&l->m, "qwen3") || is(&l->m, "qwen3_moe");
	f->op.scale = 1.0f / sqrtf((float)f->op.dim);
	f->op.eps = l->eps;
	refuse_windows(c, s->layers, &l->m.arena);
	rotary_read(&f->op.rope, c, &d, f->op.dim, &s->ctx_max, &l->m.arena);
	if (is(&l->m, "qwen3_moe"))
		read_moe(c, p, s->layers, &l->m.arena);
	if (!p->inner && !p->moe.experts)
		conf_int(c, "intermediate_size", 1, CONF_DIM_MAX);
	s->heads_kv = f->op.heads_kv;
	s->dim = f->op.dim;
}

static int bind(struct model *m, struct store *st, struct err *err)
{
	struct llama *l = (struct llama *)m;
	struct binder b = { .st = st, .arena = &m->arena, .err = err };
	struct conf c = { .j = st->config, .file = st->config_path, .where = "", .err = err };
	struct plan p = { 0 };

	read_config(l, &c, &p);
	if (c.code)
		return c.code;
	bind_find_prefix(&b);
	bind_embedding(&b, &l->embed, &l->head, m->shape.vocab, m->shape.hidden, p.tied);
	l->norm = bind_floats(&b, m->shape.hidden, 0, "norm.weight");
	l->layer = arena_zalloc(&m->arena, size_mul((size_t)m->shape.layers, sizeof *l->layer));
	for (int i = 0; i < m->shape.layers; i++) {
		struct layer *y = &l->layer[i];

		y->norm_in = bind_floats(&b, m->shape.hidden, 0, "layers.%d.input_layernorm.weight", i);
		y->norm_post = bind_floats(&b, m->shape.hidden, 0, "layers.%d.post_attention_layernorm.weight", i);
		attention_bind(&b, &y->attn, &p.attn, i);
		if (p.moe.experts && !p.dense[i] && (i + 1) % p.sparse_step == 0) {
			ffn_bind_moe(&b, &y->ffn, m->shape.hidden, &p.moe, i);
			m->shape.layers_moe++;
		} else {
			ffn_bind_dense(&b, &y->ffn, m->shape.hidden, p.inner, p.mlp_bias, i);
		}
	}
	m->shape.experts = p.moe.experts;
	m->shape.experts_used = p.moe.top_k;
	return b.code;
}

static size_t work_floats(const struct model *m, int n_row, int n_logit)
{
	const struct llama *l = (const struct llama *)m;
	size_t most = 2 * work_floats_of(n_logit, m->shape.hidden);

	for (int i = 0; i < m->shape.layers; i++) {
		most = work_max(most, attention_floats(&l->layer[i].attn, n_row));
		most = work_max(most, ffn_floats(&l->layer[i].ffn, n_row));
	}
	return 2 * work_floats_of(n_row, m->shape.hidden) + most;
}

static void forward(struct model *m, struct pass *p)
{
	const struct llama *l = (const struct llama *)m;
	const struct backend_ops *ops = p->be->ops;
	const struct kv_view *kv = paged_view(m->kv);
	int hidden = m->shape.hidden;
	float *x, *h, *last;
	struct linear head = { &l->head, p->logits, (size_t)m->shape.vocab, NULL, false };

	pass_reset(p);
	x = pass_floats(p, (size_t)p->n_row * (size_t)hidden);
	h = pass_floats(p, (size_t)p->n_row * (size_t)hidden);
	ops->embed(p, x, &l->embed);
	for (int i = 0; i < m->shape.layers; i++) {
		const struct layer *y = &l->layer[i];

		ops->norm(p, h, x, p->n_row, hidden, y->norm_in, l->eps);
		attention_forward(p, &y->attn, x, h, kv, i);
		ops->norm(p, h, x, p->n_row, hidden, y->norm_post, l->eps);
		ffn_forward(p, &y->ffn, x, h);
	}
	if (!p->n_logit)
		return;
	last = pass_floats(p, (size_t)p->n_logit * (size_t)hidden);
	h = pass_floats(p, (size_t)p->n_logit * (size_t)hidden);
	ops->gather(p, last, x, p->logit_row, p->n_logit, hidden);
	ops->norm(p, h, last, p->n_logit, hidden, l->norm, l->eps);
	ops->linear(p, &head, 1, h, p->n_logit, hidden);
}

static const char *const arch[] = { "llama", "qwen2", "qwen3", "qwen3_moe", NULL };

const struct model_ops llama_ops = {
	.arch = arch,
	.size = sizeof(struct llama),
	.bind = bind,
	.forward = forward,
	.work_floats = work_floats,
};
