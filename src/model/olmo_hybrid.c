/* olmo_hybrid.c - Olmo-Hybrid: gated delta nets with norms before their blocks, and attention without positions with
 * norms behind its own.
 *
 *     h = E[token];  logits = rms(h) lm_head'
 *     a linear layer:  h += delta(rms(h));  h += ffn(rms(h))
 *     a full layer:    h += rms(attention(h));  h += rms(ffn(h))
 *
 *     x = q u | k u | v u;  delta = o_proj (rms by head (recurrence(conv x, a u, b u)) SiLU(g u))
 *                                                                            (backend/cpu/state/rule_delta.c)
 *
 * Keys are shorter than values, beta goes up to 2, and the norms of attention's queries and keys run over all heads of a
 * row.  The convolutions are three in published files, one in what newer programs write. */
#include "cache/kinds.h"
#include "model/decoder.h"
#include "model/families.h"
#include "model/mamba.h"
#include "model/stack.h"
#include "model/work.h"

struct plan {
	struct attention_form attn;
	struct ffn_form ffn;
	struct state_shape shape;
	bool *full; /* [layers] */
	bool tied, negative;
};

/* ---- the gated delta net ---- */

enum { TO_Q, TO_K, TO_V, TO_A, TO_B, TO_G, TO_COUNT };

struct delta_net {
	struct recur op;
	struct weight in[TO_COUNT], out;
};

static int x_cols(const struct delta_net *a)
{
	return a->in[TO_Q].rows + a->in[TO_K].rows + a->in[TO_V].rows;
}

static void delta_run(struct pass *p, const struct block *y, float *out, bool add, const float *h,
                      const struct stack_views *v)
{
	const struct backend_ops *ops = p->be->ops;
	const struct delta_net *a = y->own;
	size_t mark = p->work.used, n = (size_t)p->n_row, cols = (size_t)x_cols(a), at = 0;
	float *x = pass_floats(p, n * cols), *mixed = pass_floats(p, n * (size_t)a->out.cols), *to[TO_COUNT];
	struct linear job[TO_COUNT];
	struct linear o = { .w = &a->out, .out = out, .ld = (size_t)a->out.rows, .add = add };

	for (int i = 0; i < TO_COUNT; i++) {
		size_t rows = (size_t)a->in[i].rows;

		to[i] = i <= TO_V ? x + at : pass_floats(p, n * rows);
		job[i] = (struct linear){ .w = &a->in[i], .out = to[i], .ld = i <= TO_V ? cols : rows };
		at += rows;
	}
	ops->linear(p, job, TO_COUNT, h, p->n_row, a->in[0].cols);
	ops->recur(p, mixed, &a->op, &(struct recur_in){ .x = x, .z = to[TO_G], .a = to[TO_A], .b = to[TO_B] },
	           v->state, y->layer);
	ops->linear(p, &o, 1, mixed, p->n_row, a->out.cols);
	p->work.used = mark;
}

static size_t delta_room(const struct block *y, int n_row)
{
	const struct delta_net *a = y->own;

	return work_floats_of(n_row, x_cols(a)) + work_floats_of(n_row, a->out.cols) +
	       work_floats_of(n_row, a->in[TO_A].rows) + work_floats_of(n_row, a->in[TO_B].rows) +
	       work_floats_of(n_row, a->in[TO_G].rows);
}

static const struct block_ops delta_block = { delta_run, delta_room };

static const float *bind_conv(struct binder *b, const struct plan *p, int i)
{
	const struct state_shape *h = &p->shape;
	int keys = h->heads_k * h->dim_k, all = h->conv_channels;

	if (!bind_has(b, "layers.%d.linear_attn.conv1d.weight", i))
		return mamba_conv_qkv(b, (const int[]){ keys, keys, all - 2 * keys }, h->conv_width, "linear_attn", i);
	return mamba_conv(b, bind_floats(b, all * h->conv_width, 0, "layers.%d.linear_attn.conv1d.weight", i), all,
	                  h->conv_width, NULL);
}

static void add_delta(struct stack *s, struct binder *b, const struct plan *p, const float *norm, int i)
{
	struct delta_net *a = arena_zalloc(&b->m->arena, sizeof *a);
	const struct state_shape *h = &p->shape;
	struct block *y = stack_add(s, &delta_block, a, norm);
	int keys = h->heads_k * h->dim_k, values = h->heads_v * h->dim_v, hidden = s->m.shape.hidden;
	const int rows[TO_COUNT] = { keys, keys, values, h->heads_v, h->heads_v, values };

	for (int k = 0; k < TO_COUNT; k++)
		bind_weight(b, &a->in[k], rows[k], hidden, "layers.%d.linear_attn.%c_proj", i, "qkvabg"[k]);
	bind_weight(b, &a->out, hidden, values, "layers.%d.linear_attn.o_proj", i);
	a->op = (struct recur){ .conv = bind_conv(b, p, i),
		                .a_log_exp = bind_exp(
					b, bind_floats(b, h->heads_v, 0, "layers.%d.linear_attn.A_log", i), h->heads_v),
		                .dt_bias = bind_floats(b, h->heads_v, 0, "layers.%d.linear_attn.dt_bias", i),
		                .beta_scale = p->negative ? 2 : 1,
		                .norm = bind_floats(b, h->dim_v, 0, "layers.%d.linear_attn.o_norm.weight", i),
		                .eps = 1e-5f, /* whatever the config's */
		                .reader = &a->out };
	y->layer = s->m.shape.layers_rec++;
	s->m.shape.state = *h;
	s->m.shape.state.layers = s->m.shape.layers_rec;
}

/* ---- config ---- */

static void read_delta(struct conf *c, struct plan *p, int hidden)
{
	struct state_shape *h = &p->shape;

	h->rule = RECUR_DELTA;
	h->heads_k = conf_int_or(c, "linear_num_key_heads", p->attn.op.heads, 1, CONF_HEADS_MAX);
	h->heads_v = conf_int_or(c, "linear_num_value_heads", p->attn.op.heads, 1, CONF_HEADS_MAX);
	h->dim_k = conf_int_or(c, "linear_key_head_dim", (int64_t)(0.75 * hidden / h->heads_k), 1, CONF_HEAD_DIM_MAX);
	h->dim_v = conf_int_or(c, "linear_value_head_dim", 2 * h->dim_k, 1, CONF_HEAD_DIM_MAX);
	h->conv_width = conf_int_or(c, "linear_conv_kernel_dim", 4, 2, 8);
	h->conv_channels = 2 * h->heads_k * h->dim_k + h->heads_v * h->dim_v;
	p->negative = conf_bool_or(c, "linear_allow_neg_eigval", true);
	if (!c->code && h->heads_v % h->heads_k)
		conf_fail(c, E_FORMAT, "linear_num_value_heads: %d is not a multiple of linear_num_key_heads %d",
		          h->heads_v, h->heads_k);
}

/* Published files have no positions: rope_theta is null. */
static bool has_positions(const struct conf *c)
{
	const struct json *r = conf_get(c, "rope_parameters");

	if (json_kind(r) == JSON_OBJECT)
		return json_kind(json_get(r, "rope_theta")) != JSON_NULL;
	return r || conf_get(c, "rope_theta"); /* rotary_read refuses what is not an object */
}

static void read_config(struct stack *s, struct conf *c, struct plan *p)
{
	const struct rotary_defaults r = { .theta = 0, .partial = 1 };
	int layers;

	stack_read(s, c);
	s->trunk.eps = (float)conf_double_or(c, "rms_norm_eps", 1e-6);
	p->tied = conf_bool_or(c, "tie_word_embeddings", false);
	p->ffn = (struct ffn_form){ .inner = conf_int(c, "intermediate_size", 1, CONF_DIM_MAX),
		                    .act = ffn_read_act(c, ACT_NONE) };
	stack_read_attention(s, c, &p->attn);
	p->attn.norms_whole = true;
	if (has_positions(c))
		rotary_read(&p->attn.op.rope, c, &r, p->attn.op.dim, &s->m.shape.ctx_max, &s->m.vectors);
	if (c->code)
		return;
	read_delta(c, p, s->m.shape.hidden);
	layers = s->m.shape.layers;
	p->full = arena_zalloc(&s->m.arena, (size_t)layers * sizeof *p->full);
	if (!conf_layer_types(c, "layer_types", layers, "full_attention", "linear_attention", p->full))
		for (int i = 0; i < layers; i++)
			p->full[i] = i % 4 == 3;
}

/* ---- tensors ---- */

static void bind_full(struct stack *s, struct binder *b, const struct plan *p, int i)
{
	int hidden = s->m.shape.hidden;
	struct block *y = stack_add_attention(s, b, &p->attn, NULL, i);

	y->join = (struct join){ bind_floats(b, hidden, 0, "layers.%d.post_attention_layernorm.weight", i),
		                 s->trunk.eps, 0 };
	y = stack_add_ffn(s, b, &p->ffn, NULL, i);
	y->join = (struct join){ bind_floats(b, hidden, 0, "layers.%d.post_feedforward_layernorm.weight", i),
		                 s->trunk.eps, 0 };
}

static void bind_linear(struct stack *s, struct binder *b, const struct plan *p, int i)
{
	int hidden = s->m.shape.hidden;

	add_delta(s, b, p, bind_floats(b, hidden, 0, "layers.%d.input_layernorm.weight", i), i);
	stack_add_ffn(s, b, &p->ffn, bind_floats(b, hidden, 0, "layers.%d.post_attention_layernorm.weight", i), i);
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
		(p.full[i] ? bind_full : bind_linear)(s, &b, &p, i);
		stack_end_layer(s, i);
	}
	return b.code;
}

static const char *const arch[] = { "olmo_hybrid", NULL };

const struct model_ops olmo_hybrid_ops = {
	.arch = arch,
	.size = sizeof(struct stack),
	.bind = bind,
	.forward = stack_forward,
	.work_floats = stack_work_floats,
};
