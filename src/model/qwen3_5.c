/* qwen3_5.c - Qwen3.5, 3.6 and 3.8, dense and MoE, and Qwen3-Next: text.
 *
 *     h = E[token]
 *     per layer:  h += mixer(rms0(h));  h += ffn(rms0(h))
 *     logits = rms0(h) lm_head'
 *
 * The mixer is a gated delta net in most layers (arXiv 2412.06464) and softmax
 * attention with an output gate in the others.  rms0 is zero-centred: its gain
 * is 1 + w.  Hugging Face files hold w, mlx's hold 1 + w; which of the two is
 * decided once per file set, by the axes of the convolution's weight. */
#include <math.h>
#include <string.h>

#include "cache/kinds.h"
#include "model/attention.h"
#include "model/conf.h"
#include "model/delta.h"
#include "model/families.h"
#include "model/ffn.h"
#include "model/mtp.h"
#include "model/rotary.h"
#include "model/trunk.h"
#include "model/work.h"

struct layer {
	const float *norm_in, *norm_post;
	bool full; /* softmax attention */
	int index; /* among the layers of its kind: the cache's layer */
	struct attention attn;
	struct delta mixer;
	struct ffn ffn;
};

struct qwen {
	struct model m;
	float eps;
	struct trunk trunk;
	float norm_add; /* of its files */
	struct layer *layer;
};

/* Values of config.json beyond struct shape. */
struct plan {
	struct attention_form attn;
	struct delta_form delta;
	bool *full;   /* [layers] */
	bool *sparse; /* [layers] mixture of experts */
	struct ffn_form ffn;
	struct moe_form moe;
	bool tied;
	float norm_add; /* 1 for files that hold zero-centred norms */
};

static bool is(const struct model *m, const char *arch)
{
	return !strcmp(m->arch, arch);
}

/* ---- config ---- */

static void read_layers(struct conf *c, struct plan *p, int layers, struct arena *a)
{
	p->full = arena_zalloc(a, (size_t)layers * sizeof *p->full);
	if (!conf_layer_types(c, "layer_types", layers, "full_attention", "linear_attention", p->full)) {
		int every = conf_int(c, "full_attention_interval", 1, CONF_LAYERS_MAX);

		for (int i = 0; i < layers; i++)
			p->full[i] = (i + 1) % every == 0;
	}
}

static void read_ffn(const struct model *m, struct conf *c, struct plan *p, int layers, struct arena *a)
{
	bool next = is(m, "qwen3_next"), *dense;
	int step = conf_int_or(c, "decoder_sparse_step", 1, 1, CONF_LAYERS_MAX);

	p->sparse = arena_zalloc(a, (size_t)layers * sizeof *p->sparse);
	p->ffn.inner = conf_int_or(c, "intermediate_size", 0, 0, CONF_DIM_MAX);
	/* A dense model lacks the keys of the mixture. */
	if (is(m, "qwen3_5") || is(m, "qwen3_5_text") || is(m, "prism_hadamard_qwen35"))
		p->moe.experts = conf_int_or(c, "num_experts", 0, 0, 1 << 16);
	else
		p->moe.experts = conf_int(c, "num_experts", next ? 0 : 1, 1 << 16);
	if (!p->moe.experts) {
		conf_int(c, "intermediate_size", 1, CONF_DIM_MAX);
		return;
	}
	p->moe.top_k = conf_int(c, "num_experts_per_tok", 1, p->moe.experts);
	p->moe.inner = conf_int(c, "moe_intermediate_size", 1, CONF_DIM_MAX);
	p->moe.shared_inner = conf_int(c, "shared_expert_intermediate_size", 0, CONF_DIM_MAX);
	/* Qwen3.5 has no such key and always divides. */
	p->moe.normalise = next ? conf_bool_or(c, "norm_topk_prob", true) : true;
	dense = arena_zalloc(a, (size_t)layers * sizeof *dense);
	if (next)
		conf_layers_named(c, "mlp_only_layers", 0, layers, dense);
	for (int i = 0; i < layers; i++)
		p->sparse[i] = !next || ((i + 1) % step == 0 && !dense[i]);
}

static void read_config(struct qwen *q, struct conf *c, struct plan *p)
{
	struct shape *s = &q->m.shape;
	struct attention_form *f = &p->attn;
	int full = 0;

	s->hidden = conf_int(c, "hidden_size", 1, CONF_DIM_MAX);
	s->layers = conf_int(c, "num_hidden_layers", 1, CONF_LAYERS_MAX);
	s->vocab = conf_int(c, "vocab_size", 1, CONF_VOCAB_MAX);
	s->ctx_max = conf_int(c, "max_position_embeddings", 1, CONF_CTX_MAX);
	q->eps = (float)conf_double(c, "rms_norm_eps");
	p->ffn.act = p->moe.act = ffn_read_act(c, ACT_NONE);
	attention_read_gated(f, c, &q->m, q->eps);
	if (c->code)
		return;
	read_layers(c, p, s->layers, &q->m.arena);
	p->delta.hidden = s->hidden;
	p->delta.eps = q->eps;
	delta_read(&p->delta, c);
	read_ffn(&q->m, c, p, s->layers, &q->m.arena);
	for (int i = 0; i < s->layers; i++) {
		full += p->full[i];
		s->layers_moe += p->sparse[i];
	}
	s->experts = p->moe.experts;
	s->experts_used = p->moe.top_k;
	s->layers_rec = s->layers - full;
	shape_kv_plain(s, full, f->op.heads_kv, f->op.dim);
	s->state = p->delta.shape;
	s->state.layers = s->layers_rec;
}

/* ---- tensors ---- */

static void bind_layer(struct binder *b, struct qwen *q, const struct plan *p, int i, int index)
{
	struct layer *y = &q->layer[i];
	int hidden = q->m.shape.hidden;

	y->full = p->full[i];
	y->index = index;
	y->norm_in = bind_floats(b, hidden, p->norm_add, "layers.%d.input_layernorm.weight", i);
	y->norm_post = bind_floats(b, hidden, p->norm_add, "layers.%d.post_attention_layernorm.weight", i);
	if (y->full)
		attention_bind(b, &y->attn, &p->attn, i);
	else
		delta_bind(b, &y->mixer, &p->delta, i);
	if (p->sparse[i])
		ffn_bind_moe(b, &y->ffn, hidden, &p->moe, i);
	else
		ffn_bind_dense(b, &y->ffn, hidden, &p->ffn, i);
}

static void ignore_the_rest(struct store *st)
{
	static const char *const vision[] = {
		"model.visual.", "visual.", "vision_tower.", "model.vision_tower.", "model.language_model.visual.",
	};

	for (size_t i = 0; i < sizeof vision / sizeof *vision; i++)
		store_ignore(st, vision[i], "vision tower: read when there are images");
	mtp_ignore_apart(st);
}

static int bind(struct model *m, struct store *st, struct err *err)
{
	struct qwen *q = (struct qwen *)m;
	struct binder b = { .st = st, .m = m, .err = err };
	struct conf c = { .j = st->text,
		          .file = st->config_path,
		          .where = st->text == st->config ? "" : "text_config.",
		          .err = err };
	struct plan p = { 0 };
	int index[2] = { 0 };
	bool tied = false;

	read_config(q, &c, &p);
	p.tied = conf_bool_or(&c, "tie_word_embeddings", false);
	if (!json_to_bool(json_get(st->config, "tie_word_embeddings"), &tied))
		p.tied |= tied; /* of the whole model, next to text_config */
	if (c.code)
		return c.code;
	bind_find_prefix(&b, "embed_tokens");
	p.norm_add = delta_norms_add(&b, p.full, m->shape.layers);
	p.attn.norm_add = q->norm_add = p.norm_add;
	trunk_bind(&b, &q->trunk, m->shape.vocab, m->shape.hidden, p.tied, q->eps, p.norm_add);
	q->layer = arena_zalloc(&m->arena, size_mul((size_t)m->shape.layers, sizeof *q->layer));
	for (int i = 0; i < m->shape.layers && !b.code; i++)
		bind_layer(&b, q, &p, i, index[p.full[i]]++);
	if (!b.code)
		ignore_the_rest(st);
	return b.code;
}

/* ---- forward ---- */

static size_t work_floats(const struct model *m, int n_row, int n_logit)
{
	const struct qwen *q = (const struct qwen *)m;
	size_t most = trunk_end_floats(&q->trunk, n_logit);

	for (int i = 0; i < m->shape.layers; i++) {
		const struct layer *y = &q->layer[i];

		most = work_max(most, y->full ? attention_floats(&y->attn, n_row) : delta_floats(&y->mixer, n_row));
		most = work_max(most, ffn_floats(&y->ffn, n_row));
	}
	return trunk_begin_floats(&q->trunk, n_row) + work_floats_of(n_row, m->shape.hidden) + most;
}

static void forward(struct model *m, struct pass *p)
{
	const struct qwen *q = (const struct qwen *)m;
	const struct backend_ops *ops = p->be->ops;
	int hidden = m->shape.hidden;
	float *x = trunk_begin(p, &q->trunk), *h;

	h = pass_floats(p, (size_t)p->n_row * (size_t)hidden);
	for (int i = 0; i < m->shape.layers; i++) {
		const struct layer *y = &q->layer[i];

		ops->norm(p, h, x, p->n_row, hidden, y->norm_in, q->eps);
		if (y->full)
			attention_forward(p, &y->attn, x, true, h, p->kv[0], y->index);
		else
			delta_forward(p, &y->mixer, x, true, h, p->state, y->index);
		ops->norm(p, h, x, p->n_row, hidden, y->norm_post, q->eps);
		ffn_forward(p, &y->ffn, x, true, h);
		trunk_tap(p, &q->trunk, i, x);
	}
	trunk_end(p, &q->trunk, x);
}

/* ---- the draft head: one full layer ---- */

static int bind_head(struct model *m, const struct model *of, struct store *st, struct err *err)
{
	struct mtp_form form = { .proj = "fc",
		                 .norm_embed = "pre_fc_norm_embedding",
		                 .norm_given = "pre_fc_norm_hidden",
		                 .norm = "norm",
		                 .embed = "embed_tokens",
		                 .head = "lm_head",
		                 .apart = true,
		                 .outside = true,
		                 .norm_add = ((const struct qwen *)of)->norm_add };
	struct qwen *q = (struct qwen *)m;
	struct binder b = { .st = st, .m = m, .err = err };
	struct conf c = { .j = st->text,
		          .file = st->config_path,
		          .where = st->text == st->config ? "" : "text_config.",
		          .err = err };
	struct plan p = { 0 };

	read_config(q, &c, &p);
	if (conf_int_or(&c, "mtp_num_hidden_layers", 1, 0, CONF_LAYERS_MAX) > 1)
		conf_fail(&c, E_UNSUPPORTED, "mtp_num_hidden_layers: a draft head of several layers is not done");
	if (c.code)
		return c.code;
	p.norm_add = p.attn.norm_add = form.norm_add;
	p.attn.op.first = 1;
	p.full[0] = true;
	mtp_bind(&b, &q->trunk, of, &form, 1);
	m->shape.layers_moe = p.sparse[0];
	shape_kv_plain(&m->shape, 1, p.attn.op.heads_kv, p.attn.op.dim);
	q->layer = arena_zalloc(&m->arena, sizeof *q->layer);
	bind_layer(&b, q, &p, 0, 0);
	return b.code;
}

static const char *const arch[] = { "qwen3_5",    "qwen3_5_text",          "qwen3_5_moe", "qwen3_5_moe_text",
	                            "qwen3_next", "prism_hadamard_qwen35", NULL };

const struct model_ops qwen3_5_ops = {
	.arch = arch,
	.size = sizeof(struct qwen),
	.bind = bind,
	.forward = forward,
	.work_floats = work_floats,
	.bind_head = bind_head,
};
