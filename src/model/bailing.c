/* bailing.c - Ring and Ling: 2.x (bailing_moe_linear), 2.5 and 2.6, and 3.0 (both bailing_hybrid).
 *
 *     h = E[token];  per layer:  h += mixer(rms(h));  h += ffn(rms(h));  logits = rms(h) lm_head'
 *
 * Layers i with (i + 1) a multiple of layer_group_size, and those after the last whole group, are full: softmax
 * attention in 2.x, latent attention in 2.5 and later, in 3.0 with a gate on its values.  The others are Kimi Delta
 * Attention in 3.0 (kda.h), and before it linear attention of fixed decay:
 *
 *     [q | k | v] = query_key_value u;  q, k = rope(rms(q)), rope(rms(k)) by head
 *     dense (rms by groups(recurrence(q, k, v)) sigmoid(g_proj u))           (backend/cpu/state/rule_fixed.c)
 *
 * whose head h in layer i decays by exp(-slope_h f(i)), slopes as ALiBi's, f = 1 - (i - 1) / (L - 1) + 1e-5 as in
 * Hugging Face's code, above 1 in the first layer.  Mixtures choose within groups, of which a rejected one has no
 * score at all; in 3.0 flash the last layers' experts limit their activations. */
#include <math.h>
#include <string.h>

#include "cache/kinds.h"
#include "model/decoder.h"
#include "model/families.h"
#include "model/kda.h"
#include "model/mla.h"
#include "model/mtp.h"
#include "model/stack.h"
#include "model/work.h"

struct plan {
	struct attention_form attn; /* and the linear layers', whose heads are all their own */
	struct ffn_form ffn;
	struct moe_form moe;
	int group, dense, norms; /* layers of a group; first layers without experts; norms of a linear layer's output */
	bool tied;
	bool hybrid, delta; /* full layers are latent attention; the others Kimi Delta Attention */
	struct mla_form mla;
	struct kda_form kda;
	const struct json *limit, *shared_limit; /* of the experts' activations, by layer; NULL: none */
};

/* ---- linear attention ---- */

struct linear_attention {
	struct recur op;
	struct attn q, k; /* norm and rotation */
	struct weight qkv, g, out;
};

static void linear_run(struct pass *p, const struct block *y, float *out, bool add, const float *h,
                       const struct stack_views *v)
{
	const struct backend_ops *ops = p->be->ops;
	const struct linear_attention *a = y->own;
	size_t mark = p->work.used, n = (size_t)p->n_row, cols = (size_t)a->qkv.rows, inner = (size_t)a->g.rows;
	float *x = pass_floats(p, n * cols), *g = pass_floats(p, n * inner), *mixed = pass_floats(p, n * inner);
	struct linear in[] = { { .w = &a->qkv, .out = x, .ld = cols }, { .w = &a->g, .out = g, .ld = inner } };
	struct linear o = { .w = &a->out, .out = out, .ld = (size_t)a->out.rows, .add = add };

	ops->linear(p, in, 2, h, p->n_row, a->qkv.cols);
	ops->kv_append(p, &a->q, x, cols, (size_t)a->q.dim, NULL, NULL, NULL, 0);
	ops->kv_append(p, &a->k, x + inner, cols, (size_t)a->k.dim, NULL, NULL, NULL, 0);
	ops->recur(p, mixed, &a->op, &(struct recur_in){ .x = x, .z = g }, v->state, y->layer);
	ops->linear(p, &o, 1, mixed, p->n_row, a->g.rows);
	p->work.used = mark;
}

static size_t linear_room(const struct block *y, int n_row)
{
	const struct linear_attention *a = y->own;

	return work_floats_of(n_row, a->qkv.rows) + 2 * work_floats_of(n_row, a->g.rows);
}

static const struct block_ops linear_block = { linear_run, linear_room };

/* 2^(-8 (h + 1) / n) for n a power of two; else those of the power below, then every other one of its double. */
static double slope(int h, int heads)
{
	int below = 1;

	while (2 * below <= heads)
		below *= 2;
	if (h < below)
		return pow(2, -8.0 * (h + 1) / below);
	return pow(2, -8.0 * (2 * (h - below) + 1) / (2.0 * below));
}

static const float *decays(struct binder *b, int heads, int layer, int layers)
{
	double f = 1 - (layer - 1) / (layers > 1 ? layers - 1.0 : 1.0) + 1e-5;
	float *d;

	if (b->code)
		return NULL;
	d = bind_table(b, (size_t)heads);
	for (int h = 0; h < heads; h++)
		d[h] = (float)exp(-slope(h, heads) * f);
	return d;
}

static void add_linear(struct stack *s, struct binder *b, const struct plan *p, const float *norm, int i)
{
	struct linear_attention *a = arena_zalloc(&b->m->arena, sizeof *a);
	struct block *y = stack_add(s, &linear_block, a, norm);
	int heads = p->attn.op.heads, dim = p->attn.op.dim, hidden = s->m.shape.hidden, inner = heads * dim;

	bind_weight(b, &a->qkv, 3 * inner, hidden, "layers.%d.attention.query_key_value", i);
	bind_weight(b, &a->g, inner, hidden, "layers.%d.attention.g_proj", i);
	bind_weight(b, &a->out, hidden, inner, "layers.%d.attention.dense", i);
	a->q = a->k = p->attn.op;
	if (p->attn.norms) {
		a->q.q_norm = bind_floats(b, dim, 0, "layers.%d.attention.query_layernorm.weight", i);
		a->k.q_norm = bind_floats(b, dim, 0, "layers.%d.attention.key_layernorm.weight", i);
	}
	a->op = (struct recur){ .norm = bind_floats(b, inner, 0, "layers.%d.attention.g_norm.weight", i),
		                .eps = s->trunk.eps,
		                .norm_cols = inner / p->norms,
		                .sigmoid_gate = true,
		                .decay = decays(b, heads, i, s->m.shape.layers),
		                .reader = &a->out };
	y->layer = s->m.shape.layers_rec++;
	s->m.shape.state = (struct state_shape){ .layers = s->m.shape.layers_rec,
		                                 .rule = RECUR_FIXED,
		                                 .heads_k = heads,
		                                 .heads_v = heads,
		                                 .dim_k = dim,
		                                 .dim_v = dim };
}

/* ---- config ---- */

static void refuse(struct conf *c, const char *key, bool dflt, bool want)
{
	if (conf_bool_or(c, key, dflt) != want)
		conf_fail(c, E_UNSUPPORTED, "%s: %s is not done by this version", key, want ? "false" : "true");
}

static void read_moe(struct conf *c, struct plan *p)
{
	struct moe_form *m = &p->moe;

	m->experts = conf_int_or(c, "num_experts", 0, 0, 1 << 16);
	p->dense = m->experts ? conf_int_or(c, "first_k_dense_replace", 0, 0, CONF_LAYERS_MAX) : CONF_LAYERS_MAX;
	if (!m->experts)
		return;
	m->top_k = conf_int(c, "num_experts_per_tok", 1, m->experts);
	m->inner = conf_int(c, "moe_intermediate_size", 1, CONF_DIM_MAX);
	m->shared_inner = conf_int_or(c, "moe_shared_expert_intermediate_size", m->inner, 1, CONF_DIM_MAX) *
	                  conf_int_or(c, "num_shared_experts", 0, 0, 64);
	moe_read_groups(m, c, "n_group");
	m->groups_strict = true;
	m->normalise = conf_bool_or(c, "norm_topk_prob", true);
	m->norm_eps = 1e-20f;
	m->scale = (float)conf_double_or(c, "routed_scaling_factor", 1);
	m->route = ROUTE_SIGMOID;
	m->shared_plain = true;
	m->shared = "shared_experts";
	m->select_bias = conf_bool_or(c, "moe_router_enable_expert_bias", false) ? "gate.expert_bias" : NULL;
	if (strcmp(conf_str_or(c, "score_function", "sigmoid"), "sigmoid"))
		conf_fail(c, E_UNSUPPORTED, "score_function: only sigmoid is done");
}

/* One model_type names two recurrences. */
static bool is_delta(struct conf *c)
{
	const char *class = json_str(json_at(conf_get(c, "architectures"), 0), NULL);

	if (!class)
		return conf_get(c, "kda_lower_bound");
	return strstr(class, "MoeV3") || (!strstr(class, "MoeV2") && conf_get(c, "kda_lower_bound"));
}

static void read_hybrid(struct stack *s, struct conf *c, struct plan *p)
{
	const char *gate = conf_str_or(c, "gated_attention_proj_granularity_type", "");

	p->delta = is_delta(c);
	mla_read(&p->mla, s, c, false);
	p->mla.at = "attention";
	/* GGUF files have one name for the outputs of both kinds of layers. */
	p->mla.o_proj = conf_bool_or(c, "attention_outputs_alike", false) ? "o_proj" : "dense";
	if (!strcmp(gate, "head_wise"))
		p->mla.gates = p->mla.heads;
	else if (!strcmp(gate, "element_wise"))
		p->mla.gates = p->mla.heads * p->mla.values;
	else if (*gate)
		conf_fail(c, E_UNSUPPORTED,
		          "gated_attention_proj_granularity_type: \"%.40s\" is none of head_wise, element_wise", gate);
	p->kda = (struct kda_form){ .heads = p->attn.op.heads,
		                    .dim = p->attn.op.dim,
		                    .width = conf_int_or(c, "short_conv_kernel_size", 4, 2, 8),
		                    .at = "attention" };
	if (conf_bool_or(c, "kda_safe_gate", true))
		p->kda.floor = (float)conf_double_or(c, "kda_lower_bound", -5);
	p->limit = ffn_read_limits(c, "expert_swiglu_limit_list", s->m.shape.layers);
	p->shared_limit = ffn_read_limits(c, "share_expert_swiglu_limit_list", s->m.shape.layers);
}

static void read_config(struct stack *s, struct conf *c, struct plan *p)
{
	struct rotary_defaults r = { .theta = 0, .partial = 0.5 };

	stack_read(s, c);
	s->trunk.eps = (float)conf_double(c, "rms_norm_eps");
	p->tied = conf_bool_or(c, "tie_word_embeddings", false);
	stack_read_attention(s, c, &p->attn);
	p->attn.at = "attention";
	p->attn.qkv_proj = "query_key_value";
	p->attn.o_proj = "dense";
	p->attn.q_norm = "query_layernorm";
	p->attn.k_norm = "key_layernorm";
	p->attn.fused = true;
	p->attn.norms = conf_bool_or(c, "use_qk_norm", true);
	rotary_read(&p->attn.op.rope, c, &r, p->attn.op.dim, &s->m.shape.ctx_max, &s->m.vectors);
	refuse(c, "use_bias", false, false);
	refuse(c, "use_qkv_bias", false, false);
	refuse(c, "norm_head", false, false);
	p->group = conf_int(c, "layer_group_size", 1, CONF_LAYERS_MAX);
	p->norms = conf_int_or(c, "group_norm_size", 1, 1, CONF_HEADS_MAX);
	p->ffn = (struct ffn_form){ .inner = conf_int(c, "intermediate_size", 1, CONF_DIM_MAX),
		                    .act = ffn_read_act(c, ACT_NONE) };
	p->hybrid = !strcmp(s->m.arch, "bailing_hybrid");
	if (p->hybrid)
		read_hybrid(s, c, p);
	if (!p->delta) /* 3.0 says true, and has no such layers */
		refuse(c, "linear_silu", false, false);
	if (!c->code && p->attn.op.heads * p->attn.op.dim % p->norms)
		conf_fail(c, E_FORMAT, "group_norm_size: %d does not divide %d heads of %d", p->norms, p->attn.op.heads,
		          p->attn.op.dim);
	read_moe(c, p);
}

static void bind_layer(struct stack *s, struct binder *b, struct plan *p, int i)
{
	int hidden = s->m.shape.hidden, layers = s->m.shape.layers;
	const float *norm = bind_floats(b, hidden, 0, "layers.%d.input_layernorm.weight", i);

	if ((i + 1) % p->group == 0 || i >= layers / p->group * p->group) {
		if (p->hybrid)
			stack_add_mla(s, b, &p->mla, norm, i);
		else
			stack_add_attention(s, b, &p->attn, norm, i);
	} else if (p->delta) {
		stack_add_kda(s, b, &p->kda, norm, i);
	} else {
		add_linear(s, b, p, norm, i);
	}
	norm = bind_floats(b, hidden, 0, "layers.%d.post_attention_layernorm.weight", i);
	if (i < p->dense) {
		stack_add_ffn(s, b, &p->ffn, norm, i);
		return;
	}
	p->moe.router = bind_has(b, "layers.%d.mlp.gate.gate_proj.weight", i) ? "gate.gate_proj" :
	                                                                        "gate"; /* mlx; others */
	p->moe.act = ffn_limited((struct activation){ .kind = ACT_SILU }, p->limit, i);
	p->moe.shared_act = ffn_limited((struct activation){ .kind = ACT_SILU }, p->shared_limit, i);
	stack_add_moe(s, b, &p->moe, norm, i);
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
	stack_init(s, &b, 2 * m->shape.layers, &(struct trunk_names){ "word_embeddings", "norm" }, p.tied);
	for (int i = 0; i < m->shape.layers && !b.code; i++) {
		bind_layer(s, &b, &p, i);
		stack_end_layer(s, i);
	}
	if (!b.code)
		mtp_ignore_behind(&b, conf_int_or(&c, "num_nextn_predict_layers", 0, 0, 64));
	return b.code ? b.code : c.code;
}

static int bind_head(struct model *m, const struct model *of, struct store *st, struct err *err)
{
	struct mtp_form form = mtp_behind;
	struct stack *s = (struct stack *)m;
	struct binder b = { .st = st, .m = m, .err = err };
	struct conf c = decoder_conf(st, err);
	struct plan p = { 0 };
	int layer;

	read_config(s, &c, &p);
	if (c.code)
		return c.code;
	form.norm = "final_layernorm";
	form.embed = "word_embeddings";
	p.group = 1; /* all its layers are full ones */
	p.mla.first = p.attn.op.first = 1;
	layer = mtp_bind(&b, &s->trunk, of, &form, 1);
	stack_room(s, 2);
	bind_layer(s, &b, &p, layer);
	return b.code;
}

static const char *const arch[] = { "bailing_moe_linear", "bailing_hybrid", NULL };

const struct model_ops bailing_ops = {
	.arch = arch,
	.size = sizeof(struct stack),
	.bind = bind,
	.forward = stack_forward,
	.work_floats = stack_work_floats,
	.bind_head = bind_head,
};
