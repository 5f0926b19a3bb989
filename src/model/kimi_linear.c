/* kimi_linear.c - Kimi-Linear: Kimi Delta Attention, and latent attention without positions.
 *
 *     h = E[token];  per layer:  h += mixer(rms(h));  h += ffn(rms(h));  logits = rms(h) lm_head'
 *
 *     x = q u | k u | v u;  out = o_proj (rms by head (kda(conv x, f_b f_a u, b u)) sigmoid(g_b g_a u))
 *                                                                            (backend/cpu/rule_kda.c)
 *
 * Configs number layers from 1, newer derived ones from 0. mlx names the mixture and the convolutions otherwise. */
#include <math.h>
#include <string.h>

#include "cache/kinds.h"
#include "model/decoder.h"
#include "model/families.h"
#include "model/mamba.h"
#include "model/mla.h"
#include "model/work.h"

struct plan {
	struct mla_form attn;
	struct ffn_form ffn;
	struct moe_form moe;
	struct state_shape shape;
	bool *full; /* [layers] latent attention */
	int dense, every, width;
	float floor;
	bool tied;
};

/* ---- Kimi Delta Attention ---- */

enum { TO_Q, TO_K, TO_V, TO_B, TO_F, TO_G, TO_COUNT };

struct kda {
	struct recur op;
	struct weight in[TO_COUNT]; /* TO_F and TO_G: to the low rank */
	struct weight f, g, out;    /* from it */
};

static void kda_run(struct pass *p, const struct block *y, float *out, bool add, const float *h,
                    const struct stack_views *v)
{
	const struct backend_ops *ops = p->be->ops;
	const struct kda *a = y->own;
	size_t mark = p->work_used, n = (size_t)p->n_row, inner = (size_t)a->in[TO_Q].rows;
	float *x = pass_floats(p, 3 * n * inner), *f = pass_floats(p, n * inner), *z = pass_floats(p, n * inner);
	float *b = pass_floats(p, n * (size_t)a->in[TO_B].rows), *mixed = pass_floats(p, n * inner);
	float *low[2] = { pass_floats(p, n * (size_t)a->in[TO_F].rows), pass_floats(p, n * (size_t)a->in[TO_G].rows) };
	float *to[TO_COUNT] = { x, x + inner, x + 2 * inner, b, low[0], low[1] };
	struct linear job[TO_COUNT];
	struct linear up_f = { .w = &a->f, .out = f, .ld = inner }, up_g = { .w = &a->g, .out = z, .ld = inner };
	struct linear o = { .w = &a->out, .out = out, .ld = (size_t)a->out.rows, .add = add };

	for (int i = 0; i < TO_COUNT; i++)
		job[i] = (struct linear){ .w = &a->in[i],
			                  .out = to[i],
			                  .ld = i <= TO_V ? 3 * inner : (size_t)a->in[i].rows };
	ops->linear(p, job, TO_COUNT, h, p->n_row, a->in[0].cols);
	ops->linear(p, &up_f, 1, low[0], p->n_row, a->f.cols);
	ops->linear(p, &up_g, 1, low[1], p->n_row, a->g.cols);
	ops->recur(p, mixed, &a->op, &(struct recur_in){ .x = x, .z = z, .a = f, .b = b }, v->state, y->layer);
	ops->linear(p, &o, 1, mixed, p->n_row, a->out.cols);
	p->work_used = mark;
}

static size_t kda_room(const struct block *y, int n_row)
{
	const struct kda *a = y->own;
	int inner = a->in[TO_Q].rows;

	return work_floats_of(n_row, 3 * inner) + 3 * work_floats_of(n_row, inner) +
	       work_floats_of(n_row, a->in[TO_B].rows) + work_floats_of(n_row, a->in[TO_F].rows) +
	       work_floats_of(n_row, a->in[TO_G].rows);
}

static const struct block_ops kda_block = { kda_run, kda_room };

/* Three convolutions of inner channels each as one. */
static const float *bind_convs(struct binder *b, int inner, int width, int layer)
{
	float *all = bind_table(b, 3 * (size_t)inner * (size_t)width);
	bool mlx = bind_has(b, "layers.%d.self_attn.q_conv.conv.weight", layer);

	for (int i = 0; i < 3; i++) {
		const float *w = bind_floats(b, inner * width, 0, "layers.%d.self_attn.%c%s.weight", layer, "qkv"[i],
		                             mlx ? "_conv.conv" : "_conv1d");

		for (int c = 0; c < inner && !b->code; c++)
			for (int j = 0; j < width; j++)
				all[j * 3 * inner + i * inner + c] = w[c * width + j];
	}
	return all;
}

static void add_kda(struct stack *s, struct binder *b, const struct plan *p, const float *norm, int i)
{
	static const char *const names[] = { "q_proj", "k_proj", "v_proj", "b_proj", "f_a_proj", "g_a_proj" };
	struct kda *a = arena_zalloc(&b->m->arena, sizeof *a);
	struct block *y = stack_add(s, &kda_block, a, norm);
	int heads = p->shape.heads_v, dim = p->shape.dim_v, inner = heads * dim, hidden = s->m.shape.hidden;

	for (int k = 0; k < TO_COUNT; k++)
		bind_weight(b, &a->in[k],
		            k <= TO_V ? inner :
		            k == TO_B ? heads :
		                        dim,
		            hidden, "layers.%d.self_attn.%s", i, names[k]);
	bind_weight(b, &a->f, inner, dim, "layers.%d.self_attn.f_b_proj", i);
	bind_weight(b, &a->g, inner, dim, "layers.%d.self_attn.g_b_proj", i);
	bind_weight(b, &a->out, hidden, inner, "layers.%d.self_attn.o_proj", i);
	a->op = (struct recur){ .conv = bind_convs(b, inner, p->width, i),
		                .a_log_exp = mamba_exp(b, bind_floats(b, heads, 0, "layers.%d.self_attn.A_log", i),
		                                       heads),
		                .dt_bias = bind_floats(b, inner, 0, "layers.%d.self_attn.dt_bias", i),
		                .gate_floor = p->floor,
		                .norm = bind_floats(b, dim, 0, "layers.%d.self_attn.o_norm.weight", i),
		                .eps = s->trunk.eps,
		                .sigmoid_gate = true,
		                .reader = &a->out };
	y->layer = s->m.shape.layers_rec++;
	s->m.shape.state = p->shape;
	s->m.shape.state.layers = s->m.shape.layers_rec;
}

/* ---- config ---- */

static bool lists(const struct json *list, int64_t want)
{
	int64_t at;

	for (size_t i = 0; i < json_len(list); i++)
		if (!json_to_int(json_at(list, i), &at) && at == want)
			return true;
	return false;
}

static void read_linear(struct stack *s, struct conf *c, struct plan *p)
{
	struct conf sub = {
		.j = conf_get(c, "linear_attn_config"), .file = c->file, .where = "linear_attn_config.", .err = c->err
	};
	const struct json *full = json_get(sub.j, "full_attn_layers"), *kda = json_get(sub.j, "kda_layers");
	int layers = s->m.shape.layers, heads, dim, base;

	if (c->code)
		return;
	heads = conf_int(&sub, "num_heads", 1, CONF_HEADS_MAX);
	dim = conf_int(&sub, "head_dim", 1, CONF_HEAD_DIM_MAX);
	p->width = conf_int_or(&sub, "short_conv_kernel_size", 4, 2, 8);
	p->floor = (float)conf_double_or(&sub, "gate_lower_bound", 0);
	p->shape = (struct state_shape){ .rule = RECUR_KDA,
		                         .heads_k = heads,
		                         .heads_v = heads,
		                         .dim_k = dim,
		                         .dim_v = dim,
		                         .conv_channels = 3 * heads * dim,
		                         .conv_width = p->width };
	p->full = arena_zalloc(&s->m.arena, (size_t)layers * sizeof *p->full);
	base = lists(full, 0) || lists(kda, 0) ? 0 : 1;
	for (int i = 0; i < layers && !sub.code; i++) {
		p->full[i] = lists(full, i + base);
		if (p->full[i] == lists(kda, i + base))
			conf_fail(&sub, E_FORMAT, "layer %d is in both kda_layers and full_attn_layers, or in neither",
			          i + base);
	}
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
	m->groups = conf_int_or(c, "num_expert_group", 1, 1, m->experts);
	m->groups_used = conf_int_or(c, "topk_group", 1, 1, m->groups);
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
		                    .act = ffn_read_act(c) };
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
		add_kda(s, b, p, norm, i);
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
	stack_init(s, 2 * m->shape.layers);
	trunk_bind(&b, &s->trunk, m->shape.vocab, m->shape.hidden, p.tied, s->trunk.eps, 0);
	for (int i = 0; i < m->shape.layers && !b.code; i++)
		bind_layer(s, &b, &p, i);
	m->shape.experts = p.moe.experts;
	m->shape.experts_used = p.moe.top_k;
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
