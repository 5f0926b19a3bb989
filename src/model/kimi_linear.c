/* kimi_linear.c - Kimi-Linear: Kimi Delta Attention, and latent attention without positions.
 *
 *     h = E[token];  per layer:  h += mixer(rms(h));  h += ffn(rms(h));  logits = rms(h) lm_head'
 *
 * Configs number layers from 1, newer derived ones from 0. mlx names the mixture and the convolutions otherwise. */
#include <string.h>

#include "model/decoder.h"
#include "model/families.h"
#include "model/kda.h"
#include "model/mla.h"

struct plan {
	struct mla_form attn;
	struct ffn_form ffn;
	struct moe_form moe;
	struct kda_form kda;
	bool *full; /* [layers] latent attention */
	int dense, every;
	bool tied;
};

/* ---- config ---- */

static bool lists_zero(const struct json *list)
{
	int64_t at;

	for (size_t i = 0; i < json_len(list); i++)
		if (!json_to_int(json_at(list, i), &at) && !at)
			return true;
	return false;
}

static void read_linear(struct stack *s, struct conf *c, struct plan *p)
{
	struct conf sub = {
		.j = conf_get(c, "linear_attn_config"), .file = c->file, .where = "linear_attn_config.", .err = c->err
	};
	static const char full[] = "full_attn_layers", delta[] = "kda_layers";
	int layers = s->m.shape.layers, base;
	bool *kda;

	if (c->code)
		return;
	p->kda = (struct kda_form){ .heads = conf_int(&sub, "num_heads", 1, CONF_HEADS_MAX),
		                    .dim = conf_int(&sub, "head_dim", 1, CONF_HEAD_DIM_MAX),
		                    .width = conf_int_or(&sub, "short_conv_kernel_size", 4, 2, 8),
		                    .floor = (float)conf_double_or(&sub, "gate_lower_bound", 0),
		                    .at = "self_attn" };
	p->full = arena_zalloc(&s->m.arena, (size_t)layers * sizeof *p->full);
	kda = arena_zalloc(&s->m.arena, (size_t)layers * sizeof *kda);
	base = lists_zero(conf_get(&sub, full)) || lists_zero(conf_get(&sub, delta)) ? 0 : 1;
	conf_layers_named(&sub, full, base, layers, p->full);
	conf_layers_named(&sub, delta, base, layers, kda);
	for (int i = 0; i < layers && !sub.code; i++)
		if (p->full[i] == kda[i])
			conf_fail(&sub, E_FORMAT, "layer %d is in both kda_layers and full_attn_layers, or in neither",
			          i + base);
	c->code = sub.code;
}

static void read_moe(struct conf *c, struct plan *p)
{
	struct moe_form *m = &p->moe;

	m->experts = conf_int(c, "num_experts", 1, 1 << 16);
	m->top_k = conf_int(c, "num_experts_per_token", 1, m->experts);
	m->inner = conf_int(c, "moe_intermediate_size", 1, CONF_DIM_MAX);
	m->shared_inner = m->inner * conf_int_or(c, "num_shared_experts", 0, 0, 64);
	m->normalise = conf_bool_or(c, "moe_renormalize", true);
	moe_read_groups(m, c, "num_expert_group");
	m->scale = (float)conf_double_or(c, "routed_scaling_factor", 1);
	m->norm_eps = 1e-20f;
	m->route = ROUTE_SIGMOID;
	m->act = p->ffn.act;
	m->shared_plain = true;
	m->shared = "shared_experts";
	p->dense = conf_int_or(c, "first_k_dense_replace", 0, 0, CONF_LAYERS_MAX);
	p->every = conf_int_or(c, "moe_layer_freq", 1, 1, CONF_LAYERS_MAX);
	if (strcmp(conf_str_or(c, "moe_router_activation_func", "sigmoid"), "sigmoid"))
		conf_fail(c, E_UNSUPPORTED, "moe_router_activation_func: only sigmoid is done");
}

static void read_config(struct stack *s, struct conf *c, struct plan *p)
{
	struct shape *h = &s->m.shape;

	h->hidden = conf_int(c, "hidden_size", 1, CONF_DIM_MAX);
	h->layers = conf_int(c, "num_hidden_layers", 1, CONF_LAYERS_MAX);
	h->vocab = conf_int(c, "vocab_size", 1, CONF_VOCAB_MAX);
	h->ctx_max = conf_int(c, conf_get(c, "model_max_length") ? "model_max_length" : "max_position_embeddings", 1,
	                      CONF_CTX_MAX);
	s->trunk.eps = (float)conf_double(c, "rms_norm_eps");
	p->tied = conf_bool_or(c, "tie_word_embeddings", false);
	p->ffn = (struct ffn_form){ .inner = conf_int(c, "intermediate_size", 1, CONF_DIM_MAX),
		                    .act = ffn_read_act(c, ACT_NONE) };
	mla_read(&p->attn, s, c, conf_bool_or(c, "mla_use_nope", false));
	p->attn.norm_eps = s->trunk.eps;
	read_linear(s, c, p);
	read_moe(c, p);
}

/* ---- tensors ---- */

static void add_moe(struct stack *s, struct binder *b, const struct plan *p, const float *norm, int i)
{
	struct moe_form m = p->moe;

	if (bind_has(b, "layers.%d.block_sparse_moe.gate.weight", i)) {
		m.at = "block_sparse_moe";
		m.select_bias = "gate.e_score_correction_bias";
		memcpy(m.proj, (const char *const[3]){ "w1", "w3", "w2" }, sizeof m.proj);
	} else {
		m.select_bias = "e_score_correction_bias";
	}
	stack_add_moe(s, b, &m, norm, i);
}

static void bind_layer(struct stack *s, struct binder *b, const struct plan *p, int i)
{
	int hidden = s->m.shape.hidden;
	const float *norm = bind_floats(b, hidden, 0, "layers.%d.input_layernorm.weight", i);

	if (p->full[i])
		stack_add_mla(s, b, &p->attn, norm, i);
	else
		stack_add_kda(s, b, &p->kda, norm, i);
	norm = bind_floats(b, hidden, 0, "layers.%d.post_attention_layernorm.weight", i);
	if (i >= p->dense && i % p->every == 0)
		add_moe(s, b, p, norm, i);
	else
		stack_add_ffn(s, b, &p->ffn, norm, i);
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
	stack_init(s, &b, 2 * m->shape.layers, NULL, p.tied);
	for (int i = 0; i < m->shape.layers && !b.code; i++) {
		bind_layer(s, &b, &p, i);
		stack_end_layer(s, i);
	}
	return b.code;
}

static const char *const arch[] = { "kimi_linear", NULL };

const struct model_ops kimi_linear_ops = {
	.arch = arch,
	.size = sizeof(struct stack),
	.bind = bind,
	.forward = stack_forward,
	.work_floats = stack_work_floats,
};
