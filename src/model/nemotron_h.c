/* nemotron_h.c - Nemotron-H, Nemotron Nano 2 and Nemotron 3.
 *
 *     h = E[token];  per layer:  h += mixer(rms(h));  logits = rms(h) lm_head'
 *
 * The mixer is one of four by the layer's letter: Mamba-2 (M) with its norm by groups, attention without
 * positions (*), an MLP of relu squared without a gate (-), a mixture of those (E) with a shared expert.
 * In the larger ones the mixture works on a projection of its input (latent), which its router and
 * the shared expert do not. */
#include <string.h>

#include "model/decoder.h"
#include "model/families.h"
#include "model/mamba.h"
#include "model/mtp.h"
#include "model/work.h"

struct plan {
	struct attention_form attn;
	struct mamba_form mamba;
	struct ffn_form mlp;
	struct moe_form moe;
	int latent; /* width of the mixture's input; 0: the model's */
	char *kind; /* [n_kind] of its layers: M, *, - or E */
	int n_kind;
	bool tied;
	bool draft; /* of the draft head's layers */
};

/* ---- config ---- */

static char kind_of(const char *name)
{
	static const struct {
		const char *name;
		char kind;
	} names[] = {
		{ "mamba", 'M' }, { "attention", '*' }, { "full_attention", '*' }, { "mlp", '-' }, { "moe", 'E' }
	};

	for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
		if (!strcmp(name, names[i].name))
			return names[i].kind;
	return 0;
}

/* Letters as a pattern, or names in a list: of the model's layers, or of its draft head's. */
static void read_kinds(struct conf *c, struct plan *p, int layers, struct arena *a)
{
	const char *key = p->draft ? "mtp_hybrid_override_pattern" : "hybrid_override_pattern";
	const char *pattern = conf_str_or(c, key, NULL), *known = p->draft ? "*-E" : "M*-E";
	const struct json *list = conf_get(c, p->draft ? "mtp_layers_block_type" : "layers_block_type");
	size_t n;

	if (!list && !p->draft)
		list = conf_get(c, "layer_types");
	if (c->code)
		return;
	n = pattern ? strlen(pattern) : json_len(list);
	if (p->draft && !n)
		conf_fail(c, E_MISSING, "%s: missing: no draft head", key);
	else if (p->draft ? n > CONF_LAYERS_MAX : n != (size_t)layers)
		conf_fail(c, E_FORMAT, "%s or a list of its kinds: %zu layers, %d are read", key, n,
		          p->draft ? CONF_LAYERS_MAX : layers);
	if (c->code)
		return;
	p->n_kind = (int)n;
	p->kind = arena_zalloc(a, n);
	for (int i = 0; i < p->n_kind; i++) {
		p->kind[i] = pattern ? pattern[i] : kind_of(json_str(json_at(list, (size_t)i), NULL));
		if (!p->kind[i] || !strchr(known, p->kind[i]))
			conf_fail(c, E_UNSUPPORTED, "%s: layer %d is of a kind that is not done; done: %s", key, i,
			          known);
	}
	if (p->draft && !c->code && !memchr(p->kind, '*', n))
		conf_fail(c, E_UNSUPPORTED, "%s: a draft head without attention is not done", key);
}

static void read_moe(struct conf *c, struct plan *p)
{
	struct moe_form *m = &p->moe;

	m->experts = conf_int(c, "n_routed_experts", 1, 1 << 16);
	m->top_k = conf_int(c, "num_experts_per_tok", 1, m->experts);
	m->inner = conf_int(c, "moe_intermediate_size", 1, CONF_DIM_MAX);
	m->shared_inner = conf_int(c, "moe_shared_expert_intermediate_size", 0, CONF_DIM_MAX);
	m->normalise = conf_bool_or(c, "norm_topk_prob", true);
	moe_read_groups(m, c, "n_group");
	m->scale = (float)conf_double_or(c, "routed_scaling_factor", 1);
	m->norm_eps = 1e-20f;
	m->route = ROUTE_SIGMOID;
	m->act.kind = ACT_RELU2;
	m->gateless = m->shared_plain = true;
	m->at = "mixer";
	m->select_bias = "gate.e_score_correction_bias";
	m->shared = "shared_experts";
	p->latent = conf_int_or(c, "moe_latent_size", 0, 0, CONF_DIM_MAX);
}

static void read_mamba(struct conf *c, struct plan *p)
{
	struct mamba_form *f = &p->mamba;

	mamba_sizes(f, c, conf_int(c, "mamba_num_heads", 1, CONF_HEADS_MAX),
	            conf_int(c, "mamba_head_dim", 1, CONF_HEAD_DIM_MAX), conf_int(c, "n_groups", 1, CONF_HEADS_MAX),
	            conf_int(c, "ssm_state_size", 1, CONF_HEAD_DIM_MAX), conf_int(c, "conv_kernel", 2, 8));
	mamba_read_limits(f, c);
	f->bias = conf_bool_or(c, "mamba_proj_bias", false) || conf_bool_or(c, "use_bias", false);
	f->conv_bias = conf_bool_or(c, "use_conv_bias", true);
	f->norm = true;
	f->norm_cols = f->shape.heads_v / f->shape.heads_k * f->shape.dim_v;
	f->at = "mixer";
}

static void read_config(struct stack *s, struct conf *c, struct plan *p)
{
	struct shape *h = &s->m.shape;
	const char *act = conf_str_or(c, "mlp_hidden_act", "relu2");

	stack_read(s, c);
	s->trunk.eps = (float)conf_double_or(c, "layer_norm_epsilon", conf_double_or(c, "norm_eps", 1e-5));
	p->tied = conf_bool_or(c, "tie_word_embeddings", false);
	if (strcmp(act, "relu2"))
		conf_fail(c, E_UNSUPPORTED, "mlp_hidden_act: \"%.40s\" is not done; only relu2", act);
	p->mlp = (struct ffn_form){ .inner = conf_int_or(c, "intermediate_size", 0, 0, CONF_DIM_MAX),
		                    .bias = conf_bool_or(c, "mlp_bias", false),
		                    .act = { .kind = ACT_RELU2 },
		                    .gateless = true,
		                    .at = "mixer" };
	read_kinds(c, p, h->layers, &s->m.arena);
	if (c->code)
		return;
	if (memchr(p->kind, '*', (size_t)p->n_kind))
		stack_read_attention(s, c, &p->attn);
	p->attn.at = "mixer";
	if (memchr(p->kind, 'M', (size_t)p->n_kind))
		read_mamba(c, p);
	if (memchr(p->kind, 'E', (size_t)p->n_kind))
		read_moe(c, p);
}

/* ---- the latent mixture ---- */

struct latent {
	struct ffn experts, shared; /* of the latent; of the model's width */
	struct weight down, up;
};

static void latent_run(struct pass *p, const struct block *y, float *out, bool add, const float *h,
                       const struct stack_views *v)
{
	const struct backend_ops *ops = p->be->ops;
	const struct latent *x = y->own;
	size_t mark = p->work.used, cols = (size_t)x->down.rows;
	float *in = pass_floats(p, (size_t)p->n_row * cols), *mixed = pass_floats(p, (size_t)p->n_row * cols);
	struct linear down = { .w = &x->down, .out = in, .ld = cols };
	struct linear up = { .w = &x->up, .out = out, .ld = (size_t)x->up.rows, .add = add };

	ops->linear(p, &down, 1, h, p->n_row, x->down.cols);
	ops->moe(p, mixed, false, &x->experts.moe, in, h, p->n_row, x->down.rows);
	ops->linear(p, &up, 1, mixed, p->n_row, x->up.cols);
	if (x->shared.up.rows)
		ffn_forward(p, &x->shared, out, true, h);
	p->work.used = mark;
}

static size_t latent_room(const struct block *y, int n_row)
{
	const struct latent *x = y->own;

	return 2 * work_floats_of(n_row, x->down.rows) + (x->shared.up.rows ? ffn_floats(&x->shared, n_row) : 0);
}

static const struct block_ops latent_block = { latent_run, latent_room };

static void add_latent(struct stack *s, struct binder *b, const struct plan *p, const float *norm, int layer)
{
	struct latent *x = arena_zalloc(&b->m->arena, sizeof *x);
	struct moe_form routed = p->moe;
	struct ffn_form shared = p->mlp;

	routed.shared_inner = 0;
	routed.router_cols = s->m.shape.hidden;
	ffn_bind_moe(b, &x->experts, p->latent, &routed, layer);
	shared.inner = p->moe.shared_inner;
	shared.at = "mixer.shared_experts";
	if (shared.inner)
		ffn_bind_dense(b, &x->shared, s->m.shape.hidden, &shared, layer);
	bind_weight(b, &x->down, p->latent, s->m.shape.hidden, "layers.%d.mixer.fc1_latent_proj", layer);
	bind_weight(b, &x->up, s->m.shape.hidden, p->latent, "layers.%d.mixer.fc2_latent_proj", layer);
	stack_count_moe(s, &p->moe);
	stack_add(s, &latent_block, x, norm);
}

/* ---- tensors ---- */

static void bind_layer(struct stack *s, struct binder *b, const struct plan *p, int i)
{
	const float *norm = bind_floats(b, s->m.shape.hidden, 0, "layers.%d.norm.weight", i);

	switch (p->kind[i]) {
	case 'M': stack_add_mamba(s, b, &p->mamba, norm, i); break;
	case '*': stack_add_attention(s, b, &p->attn, norm, i); break;
	case '-': stack_add_ffn(s, b, &p->mlp, norm, i); break;
	default:
		if (p->latent)
			add_latent(s, b, p, norm, i);
		else
			stack_add_moe(s, b, &p->moe, norm, i);
	}
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
	stack_init(s, &b, m->shape.layers, &(struct trunk_names){ "embeddings", "norm_f" }, p.tied);
	for (int i = 0; i < m->shape.layers && !b.code; i++) {
		bind_layer(s, &b, &p, i);
		stack_end_layer(s, i);
	}
	if (!b.code)
		mtp_ignore_apart(st);
	return b.code;
}

/* Its layers have kinds of their own, and share all sizes with the model's. */
static int bind_head(struct model *m, const struct model *of, struct store *st, struct err *err)
{
	static const struct mtp_form form = { .proj = "eh_proj",
		                              .norm_embed = "enorm",
		                              .norm_given = "hnorm",
		                              .norm = "final_layernorm",
		                              .embed = "embeddings",
		                              .head = "lm_head",
		                              .apart = true };
	struct stack *s = (struct stack *)m;
	struct binder b = { .st = st, .m = m, .err = err };
	struct conf c = decoder_conf(st, err);
	struct plan p = { .draft = true };

	read_config(s, &c, &p);
	if (c.code)
		return c.code;
	p.attn.op.first = 1;
	stack_room(s, p.n_kind);
	mtp_bind(&b, &s->trunk, of, &form, p.n_kind);
	for (int i = 0; i < p.n_kind && !b.code; i++)
		bind_layer(s, &b, &p, i);
	return b.code;
}

static const char *const arch[] = { "nemotron_h", NULL };

const struct model_ops nemotron_h_ops = {
	.arch = arch,
	.size = sizeof(struct stack),
	.bind = bind,
	.forward = stack_forward,
	.work_floats = stack_work_floats,
	.bind_head = bind_head,
};
