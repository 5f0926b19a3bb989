/* glm5_next.c - GLM-5.3-Flash: text, and its draft head.
 *
 *     x_s = E[token], s < C;  per layer: mixer and feed-forward block, each behind a norm and between gates of streams (mhc.h)
 *     logits = lm_head norm(mean of x_s)
 *
 * The mixer is Kimi Delta Attention in most layers (kda.h) and latent attention without positions in the others (mla.h), over
 * the blocks that an indexer chooses (indexer.h).  The draft head is a layer of the latter kind with one residual stream. */
#include <stdio.h>
#include <string.h>

#include "model/decoder.h"
#include "model/families.h"
#include "model/kda.h"
#include "model/mhc.h"
#include "model/mla.h"
#include "model/mtp.h"
#include "model/streams.h"
#include "model/work.h"

struct glm5 {
	struct stack s;
	struct mhc *site; /* [blocks] what is around each; NULL: a draft head's blocks, with one residual stream */
};

struct plan {
	struct mla_form attn;
	struct indexer_form index;
	struct kda_form kda;
	struct ffn_form ffn;
	struct moe_form moe;
	struct mhc_form streams;
	bool linear[CONF_LAYERS_MAX + 1], plain[CONF_LAYERS_MAX + 1]; /* of KDA; without experts */
	bool tied;
};

/* ---- config ---- */

static void read_layers(struct conf *c, struct plan *p, int layers)
{
	const struct json *kinds = conf_list(c, "indexer_types");
	const char *latent = "deepseek_sparse_attention", *first;
	int dense = conf_int_or(c, "first_k_dense_replace", 0, 0, CONF_LAYERS_MAX);

	for (size_t i = 0; i < json_len(conf_get(c, "layer_types")); i++) {
		first = json_str(json_at(conf_get(c, "layer_types"), i), NULL);
		if (first && !strcmp(first, "full_attention")) /* of older files */
			latent = "full_attention";
	}
	if (!conf_layer_types(c, "layer_types", layers, "linear_attention", latent, p->linear))
		conf_fail(c, E_MISSING, "layer_types: missing");
	for (int i = 0; i < layers && !c->code; i++) {
		const char *kind = json_str(json_at(kinds, (size_t)i), NULL);

		p->plain[i] = i < dense;
		if (!p->linear[i] && kind && strcmp(kind, "full"))
			conf_fail(c, E_UNSUPPORTED, "indexer_types: layer %d is \"%.40s\"; only full is done", i, kind);
	}
	conf_layer_types(c, "mlp_layer_types", layers, "dense", "sparse", p->plain);
}

static void read_linear(struct conf *c, struct plan *p)
{
	struct conf sub = {
		.j = conf_get(c, "linear_attn_config"), .file = c->file, .where = "linear_attn_config.", .err = c->err
	};

	if (c->code)
		return;
	p->kda = (struct kda_form){ .heads = conf_int(&sub, "num_heads", 1, CONF_HEADS_MAX),
		                    .dim = conf_int(&sub, "head_dim", 1, CONF_HEAD_DIM_MAX),
		                    .width = conf_int_or(&sub, "short_conv_kernel_size", 4, 2, 8),
		                    .floor = (float)conf_double_or(&sub, "gate_lower_bound", 0),
		                    .at = "self_attn" };
	c->code = sub.code;
}

/* SiLU, of a gate that is bounded where the config says so. */
static struct activation read_act(struct conf *c)
{
	struct activation act = ffn_read_act(c, ACT_NONE);
	double limit = conf_double_or(c, "swiglu_limit", 0);

	if (act.kind != ACT_SILU)
		conf_fail(c, E_UNSUPPORTED, "hidden_act: only silu is done");
	if (!(limit >= 0))
		conf_fail(c, E_FORMAT, "swiglu_limit: %g is not a limit", limit);
	if (limit > 0)
		act = (struct activation){ .kind = ACT_CLIPPED, .limit = (float)limit };
	return act;
}

static void read_config(struct glm5 *g, struct conf *c, struct plan *p)
{
	struct stack *s = &g->s;

	stack_read(s, c);
	s->trunk.eps = (float)conf_double(c, "rms_norm_eps");
	p->tied = conf_bool_or(c, "tie_word_embeddings", false);
	p->ffn = (struct ffn_form){ .inner = conf_int(c, "intermediate_size", 1, CONF_DIM_MAX), .act = read_act(c) };
	mla_read(&p->attn, s, c, true);
	p->attn.norm_eps = s->trunk.eps;
	p->index = (struct indexer_form){ .hidden = s->m.shape.hidden, .q_lora = p->attn.q_lora };
	indexer_read_pools(&p->index, c);
	moe_read_noaux(&p->moe, c, p->ffn.act);
	p->streams = (struct mhc_form){ .hidden = s->m.shape.hidden, .eps = s->trunk.eps };
	mhc_read(&p->streams, c);
	read_linear(c, p);
	if (!c->code)
		read_layers(c, p, s->m.shape.layers);
	if (!conf_bool_or(c, "mhc", true))
		conf_fail(c, E_UNSUPPORTED, "mhc: false is not a known model");
	if (!c->code && p->attn.rope)
		conf_fail(c, E_UNSUPPORTED, "qk_rope_head_dim: %d; latent attention without positions alone is done",
		          p->attn.rope);
	if (!c->code && !p->attn.q_lora)
		conf_fail(c, E_UNSUPPORTED, "q_lora_rank: 0, and an indexer reads that rank");
	if (!c->code && p->moe.groups > 1)
		conf_fail(c, E_UNSUPPORTED, "n_group: %d; groups of experts are not known of this family",
		          p->moe.groups);
}

/* ---- tensors ---- */

static void bind_layer(struct stack *s, struct binder *b, const struct plan *p, int i)
{
	int hidden = s->m.shape.hidden;
	const float *norm = bind_floats(b, hidden, 0, "layers.%d.input_layernorm.weight", i);
	struct mla_form attn = p->attn;

	attn.index = &p->index;
	if (p->linear[i])
		stack_add_kda(s, b, &p->kda, norm, i);
	else
		stack_add_mla(s, b, &attn, norm, i);
	norm = bind_floats(b, hidden, 0, "layers.%d.post_attention_layernorm.weight", i);
	if (p->plain[i])
		stack_add_ffn(s, b, &p->ffn, norm, i);
	else
		stack_add_moe(s, b, &p->moe, norm, i);
}

static int bind(struct model *m, struct store *st, struct err *err)
{
	static const char *const at[] = { "attn", "ffn" };
	struct glm5 *g = (struct glm5 *)m;
	struct binder b = { .st = st, .m = m, .err = err };
	struct conf c = decoder_conf(st, err);
	struct plan p = { 0 };
	int blocks;
	char path[64];

	read_config(g, &c, &p);
	if (c.code)
		return c.code;
	m->shape.streams = p.streams.streams;
	blocks = 2 * m->shape.layers;
	stack_init(&g->s, &b, blocks, NULL, p.tied);
	g->site = arena_zalloc(&m->arena, size_mul((size_t)blocks, sizeof *g->site));
	for (int i = 0; i < m->shape.layers && !b.code; i++) {
		bind_layer(&g->s, &b, &p, i);
		stack_end_layer(&g->s, i);
		for (int k = 0; k < 2; k++) {
			snprintf(path, sizeof path, "layers.%d.hc_%s", i, at[k]);
			mhc_bind(&b, &g->site[2 * i + k], &p.streams, path);
		}
	}
	if (!b.code)
		decoder_ignore(st);
	if (!b.code)
		mtp_ignore_behind(&b, conf_int_or(&c, "num_nextn_predict_layers", 0, 0, 64));
	return b.code ? b.code : c.code;
}

static int bind_head(struct model *m, const struct model *of, struct store *st, struct err *err)
{
	struct glm5 *g = (struct glm5 *)m;
	struct binder b = { .st = st, .m = m, .err = err };
	struct conf c = decoder_conf(st, err);
	struct plan p = { 0 };
	int layer;

	read_config(g, &c, &p);
	if (c.code)
		return c.code;
	p.attn.first = p.index.first = 1; /* the row of the first token comes of nothing */
	layer = mtp_bind(&b, &g->s.trunk, of, &mtp_behind, 1);
	p.plain[layer] = p.linear[layer] = false;
	stack_room(&g->s, 2);
	if (!b.code)
		bind_layer(&g->s, &b, &p, layer);
	return b.code;
}

/* ---- forward ---- */

static size_t work_floats(const struct model *m, int n_row, int n_logit)
{
	const struct glm5 *g = (const struct glm5 *)m;

	if (!g->site)
		return stack_work_floats(m, n_row, n_logit);
	return stack_work_floats(m, n_row, n_logit) + mhc_floats(g->site, n_row) +
	       work_floats_of(n_row, shape_residual(&m->shape)) + work_floats_of(n_row, g->site->fn.rows);
}

static void forward(struct model *m, struct pass *p)
{
	const struct glm5 *g = (const struct glm5 *)m;
	const struct stack *s = &g->s;
	struct stack_views v = { .state = p->state };
	int hidden = m->shape.hidden, streams = m->shape.streams;
	size_t n = (size_t)p->n_row;
	float *h, *x, *gates;

	if (!g->site) {
		stack_forward(m, p);
		return;
	}
	h = trunk_begin(p, &s->trunk);
	x = pass_floats(p, n * (size_t)shape_residual(&m->shape));
	gates = pass_floats(p, n * (size_t)g->site->fn.rows);
	v.shared = pass_floats(p, n * (size_t)s->shared);
	for (int i = 0; i < m->shape.n_kv; i++)
		v.kv[i] = p->kv[i];
	streams_fill(p, x, h, p->n_row, streams, hidden);
	for (int i = 0; i < s->n_block; i++) {
		const struct block *y = &s->block[i];

		mhc_begin(p, &g->site[i], h, gates, x);
		trunk_norm(p, &s->trunk, h, h, p->n_row, y->norm, NULL);
		y->ops->forward(p, y, h, false, h, &v);
		mhc_end(p, &g->site[i], x, h, gates);
		if (y->last_of >= 0)
			streams_tap(p, y->last_of, x, shape_residual(&m->shape));
	}
	p->be->ops->mean_streams(p, h, x, p->n_row, streams, hidden);
	trunk_end(p, &s->trunk, h);
}

static const char *const arch[] = { "glm5_next", "glm5_next_text", NULL };

const struct model_ops glm5_next_ops = {
	.arch = arch,
	.size = sizeof(struct glm5),
	.bind = bind,
	.forward = forward,
	.work_floats = work_floats,
	.bind_head = bind_head,
};
