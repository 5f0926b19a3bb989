/* sigmoid_moe.c - GLM-4.5 (glm4_moe) and MiniMax M2: mixtures whose router has a sigmoid for each expert, and a bias that
 * has a say in the choice alone.
 *
 *     h = E[token]
 *     per layer:  h += attention(rms(h));  h += ffn(rms(h))
 *     logits = rms(h) lm_head'
 *
 * Half of a head rotates.  GLM's first layers are dense, and it has a shared expert; MiniMax has norms of queries and
 * keys over all heads of a row. */
#include <string.h>

#include "model/decoder.h"
#include "model/families.h"
#include "model/mtp.h"

struct plan {
	struct decoder_plan all;
	int dense; /* the first layers */
};

static void read_glm(struct decoder *d, struct conf *c, struct plan *p)
{
	struct attention_form *a = &p->all.attn;
	struct moe_form *m = &p->all.moe;

	a->bias_qkv = conf_bool_or(c, "attention_bias", false);
	a->norms = conf_bool_or(c, "use_qk_norm", false);
	m->experts = conf_int(c, "n_routed_experts", 1, 1 << 16);
	m->inner = conf_int(c, "moe_intermediate_size", 1, CONF_DIM_MAX);
	m->shared_inner = conf_int_or(c, "n_shared_experts", 1, 0, 1 << 10) * m->inner;
	m->shared_plain = true;
	m->shared = "shared_experts";
	m->select_bias = "gate.e_score_correction_bias";
	m->normalise = conf_bool_or(c, "norm_topk_prob", true);
	m->norm_eps = 1e-20f;
	m->scale = (float)conf_double_or(c, "routed_scaling_factor", 1);
	p->dense = conf_int_or(c, "first_k_dense_replace", 1, 0, d->m.shape.layers);
	if (p->dense && !p->all.ffn.inner)
		conf_int(c, "intermediate_size", 1, CONF_DIM_MAX);
}

static void read_minimax(struct conf *c, struct plan *p)
{
	static const char *const proj[3] = { "w1", "w3", "w2" };
	const char *score = conf_str_or(c, "scoring_func", "sigmoid"),
		   *norm = conf_str_or(c, "qk_norm_type", "per_layer");
	struct moe_form *m = &p->all.moe;

	p->all.attn.norms_whole = conf_bool_or(c, "use_qk_norm", true);
	m->experts = conf_int(c, "num_local_experts", 1, 1 << 16);
	m->inner = conf_int(c, "intermediate_size", 1, CONF_DIM_MAX);
	m->at = "block_sparse_moe";
	m->normalise = true;
	if (conf_bool_or(c, "use_routing_bias", true))
		m->select_bias = "e_score_correction_bias";
	memcpy(m->proj, proj, sizeof proj);
	if (strcmp(score, "sigmoid"))
		conf_fail(c, E_UNSUPPORTED, "scoring_func: \"%.40s\" is not done; only sigmoid", score);
	if (strcmp(norm, "per_layer"))
		conf_fail(c, E_UNSUPPORTED, "qk_norm_type: \"%.40s\" is not done; only per_layer", norm);
	if (conf_int_or(c, "shared_intermediate_size", 0, 0, CONF_DIM_MAX))
		conf_fail(c, E_UNSUPPORTED, "shared_intermediate_size: a shared expert is not done");
}

static void read_config(struct decoder *d, struct conf *c, struct plan *p)
{
	bool glm = !strcmp(d->m.arch, "glm4_moe");
	struct attn *op = &p->all.attn.op;
	struct rotary_defaults r = { .theta = 0, .partial = 0.5 };

	decoder_read(d, c, &(struct decoder_defaults){ 0 }, &p->all);
	if (c->code)
		return;
	if (conf_get(c, "rotary_dim"))
		r.partial = (double)conf_int(c, "rotary_dim", 2, op->dim) / op->dim;
	rotary_read(&op->rope, c, &r, op->dim, &d->m.shape.ctx_max, &d->m.vectors);
	p->all.moe.route = ROUTE_SIGMOID;
	p->all.moe.act = p->all.ffn.act;
	if (glm)
		read_glm(d, c, p);
	else
		read_minimax(c, p);
	p->all.moe.top_k = conf_int(c, "num_experts_per_tok", 1, p->all.moe.experts);
	if (glm)
		moe_read_groups(&p->all.moe, c, "n_group");
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
		decoder_bind_layer(&b, d, &p.all, i, i < p.dense);
	if (!b.code)
		mtp_ignore_behind(&b, conf_int_or(&c, "num_nextn_predict_layers", 1, 0, 64));
	return b.code ? b.code : c.code;
}

static int bind_head(struct model *m, const struct model *of, struct store *st, struct err *err)
{
	struct decoder *d = (struct decoder *)m;
	struct binder b = { .st = st, .m = m, .err = err };
	struct conf c = decoder_conf(st, err);
	struct plan p = { 0 };
	int layer;

	read_config(d, &c, &p);
	if (c.code)
		return c.code;
	p.all.attn.op.first = 1;
	layer = mtp_bind(&b, &d->trunk, of, &mtp_behind, 1);
	decoder_room(d, &p.all, 1);
	decoder_bind_into(&b, d, &p.all, &d->layer[0], &p.all.attn, layer, false);
	return b.code;
}

static const char *const arch[] = { "glm4_moe", "minimax_m2", NULL };

const struct model_ops sigmoid_moe_ops = {
	.arch = arch,
	.size = sizeof(struct decoder),
	.bind = bind,
	.forward = decoder_forward,
	.work_floats = decoder_work_floats,
	.bind_head = bind_head,
};
