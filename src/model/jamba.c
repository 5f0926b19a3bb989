/* jamba.c - Jamba: Mamba's selective scan, attention without positions, mixtures.
 *
 *     h = E[token];  per layer:  h += mixer(rms(h));  h += ffn(rms(h));  logits = rms(h) lm_head'
 *
 *     [x | z] = in_proj u;  x = SiLU(conv(x));  [dt | B | C] = x_proj x, each through its own rms
 *     out_proj (scan(x, dt_proj dt, B, C) SiLU(z))                            (backend/cpu/rule_scan.c)
 *
 * A mixture's weights are those of a softmax over all experts, not divided by the sum of the chosen. */
#include <math.h>
#include <string.h>

#include "cache/kinds.h"
#include "model/decoder.h"
#include "model/families.h"
#include "model/mamba.h"
#include "model/work.h"

struct plan {
	struct attention_form attn;
	struct ffn_form ffn;
	struct moe_form moe;
	struct state_shape shape;
	int inner, rank, states; /* channels; of dt; of each channel */
	int attn_period, attn_offset, moe_period, moe_offset;
	bool conv_bias, bias, tied;
};

/* ---- the scan's block ---- */

struct scan {
	struct recur op;
	struct conv conv;
	struct weight x, z, dt_low, b, c, dt, out;
	const float *norm_dt;
	float *gain_bc;                          /* [2 states] of the norms of B and C */
	const float *bias_x, *bias_z, *bias_out; /* or NULL */
	float eps;
	int states;
};

static void scan_run(struct pass *p, const struct block *y, float *out, bool add, const float *h,
                     const struct stack_views *v)
{
	const struct backend_ops *ops = p->be->ops;
	const struct scan *s = y->own;
	size_t mark = p->work_used, n = (size_t)p->n_row, inner = (size_t)s->x.rows, states = (size_t)s->states;
	float *x = pass_floats(p, n * inner), *z = pass_floats(p, n * inner), *convolved = pass_floats(p, n * inner);
	float *low = pass_floats(p, n * (size_t)s->dt_low.rows), *bc = pass_floats(p, n * 2 * states);
	struct linear in[] = { { .w = &s->x, .out = x, .ld = inner, .bias = s->bias_x },
		               { .w = &s->z, .out = z, .ld = inner, .bias = s->bias_z } };
	struct linear select[] = { { .w = &s->dt_low, .out = low, .ld = (size_t)s->dt_low.rows },
		                   { .w = &s->b, .out = bc, .ld = 2 * states },
		                   { .w = &s->c, .out = bc + states, .ld = 2 * states } };
	struct linear dt = { .w = &s->dt, .out = x, .ld = inner };
	struct linear o = { .w = &s->out, .out = out, .ld = (size_t)s->out.rows, .bias = s->bias_out, .add = add };

	ops->linear(p, in, 2, h, p->n_row, s->x.cols);
	ops->conv(p, convolved, &s->conv, 1, x, 0, s->x.rows, v->state, y->layer);
	ops->linear(p, select, 3, convolved, p->n_row, s->x.rows);
	ops->norm(p, low, low, p->n_row, s->dt_low.rows, s->norm_dt, s->eps);
	ops->norm(p, bc, bc, 2 * p->n_row, s->states, NULL, s->eps);
	ops->mul(p, bc, s->gain_bc, 0, 1, p->n_row, 2 * s->states);
	ops->linear(p, &dt, 1, low, p->n_row, s->dt_low.rows);
	ops->recur(p, x, &s->op, &(struct recur_in){ .x = convolved, .z = z, .a = x, .b = bc }, v->state, y->layer);
	ops->linear(p, &o, 1, x, p->n_row, s->x.rows);
	p->work_used = mark;
}

static size_t scan_room(const struct block *y, int n_row)
{
	const struct scan *s = y->own;

	return 4 * work_floats_of(n_row, s->x.rows) + work_floats_of(n_row, s->dt_low.rows) +
	       work_floats_of(n_row, 2 * s->states);
}

static const struct block_ops scan_block = { scan_run, scan_room };

/* A = -exp(A_log) [inner][states] in files; [heads_v][states][dim_v] here. */
static const float *rates(struct binder *b, const struct plan *p, int layer)
{
	const float *a = bind_floats(b, (int64_t)p->inner * p->states, 0, "layers.%d.mamba.A_log", layer);
	int dim = p->shape.dim_v;
	float *r;

	if (b->code)
		return NULL;
	r = bind_table(b, (size_t)p->inner * (size_t)p->states);
	for (int c = 0; c < p->inner; c++)
		for (int n = 0; n < p->states; n++)
			r[(c / dim * p->states + n) * dim + c % dim] = -expf(a[c * p->states + n]);
	return r;
}

static void bind_weights(struct binder *b, struct scan *s, const struct plan *p, int hidden, int layer)
{
	const float *bias = NULL;
	struct weight in, select;

	bind_weight(b, &in, 2 * p->inner, hidden, "layers.%d.mamba.in_proj", layer);
	bind_weight(b, &select, p->rank + 2 * p->states, p->inner, "layers.%d.mamba.x_proj", layer);
	bind_weight(b, &s->dt, p->inner, p->rank, "layers.%d.mamba.dt_proj", layer);
	bind_weight(b, &s->out, hidden, p->inner, "layers.%d.mamba.out_proj", layer);
	bind_rows_only(b, &select); /* cut into parts of a few rows */
	if (p->bias) {
		bias = bind_floats(b, 2 * p->inner, 0, "layers.%d.mamba.in_proj.bias", layer);
		s->bias_out = bind_floats(b, hidden, 0, "layers.%d.mamba.out_proj.bias", layer);
	}
	if (b->code)
		return;
	s->bias_x = bias;
	s->bias_z = bias ? bias + p->inner : NULL;
	s->x = weight_rows(&in, 0, p->inner);
	s->z = weight_rows(&in, p->inner, p->inner);
	s->dt_low = weight_rows(&select, 0, p->rank);
	s->b = weight_rows(&select, p->rank, p->states);
	s->c = weight_rows(&select, p->rank + p->states, p->states);
}

static void bind_gains(struct binder *b, struct scan *s, const struct plan *p, int layer)
{
	const float *gain_b = bind_floats(b, p->states, 0, "layers.%d.mamba.b_layernorm.weight", layer);
	const float *gain_c = bind_floats(b, p->states, 0, "layers.%d.mamba.c_layernorm.weight", layer);

	s->norm_dt = bind_floats(b, p->rank, 0, "layers.%d.mamba.dt_layernorm.weight", layer);
	if (b->code)
		return;
	s->gain_bc = bind_table(b, 2 * (size_t)p->states);
	memcpy(s->gain_bc, gain_b, (size_t)p->states * sizeof *gain_b);
	memcpy(s->gain_bc + p->states, gain_c, (size_t)p->states * sizeof *gain_c);
}

static void add_scan(struct stack *st, struct binder *b, struct plan *p, const float **rate, const float *norm,
                     int layer)
{
	struct scan *s = arena_zalloc(&b->m->arena, sizeof *s);
	const struct state_shape *h = &p->shape;
	struct block *y = stack_add(st, &scan_block, s, norm);

	y->layer = st->m.shape.layers_rec++;
	s->eps = st->trunk.eps;
	s->states = p->states;
	bind_weights(b, s, p, st->m.shape.hidden, layer);
	bind_gains(b, s, p, layer);
	s->conv.silu = true;
	s->conv.w = mamba_conv(b, bind_floats(b, p->inner * h->conv_width, 0, "layers.%d.mamba.conv1d.weight", layer),
	                       p->inner, h->conv_width, NULL);
	if (p->conv_bias)
		s->conv.bias = bind_floats(b, p->inner, 0, "layers.%d.mamba.conv1d.bias", layer);
	s->op.dt_bias = bind_floats(b, p->inner, 0, "layers.%d.mamba.dt_proj.bias", layer);
	s->op.skip = bind_floats(b, p->inner, 0, "layers.%d.mamba.D", layer);
	s->op.reader = &s->out;
	rate[y->layer] = rates(b, p, layer);
	st->m.shape.state = *h;
	st->m.shape.state.layers = st->m.shape.layers_rec;
	st->m.shape.state.rate = rate;
}

/* ---- config ---- */

static void read_scan(struct stack *s, struct conf *c, struct plan *p)
{
	struct state_shape *h = &p->shape;
	const struct json *rank = conf_get(c, "mamba_dt_rank");
	const char *word = json_str(rank, NULL);
	bool named = rank && !(word && !strcmp(word, "auto"));

	p->inner = conf_int_or(c, "mamba_expand", 2, 1, 64) * s->m.shape.hidden;
	p->rank = named ? conf_int(c, "mamba_dt_rank", 1, CONF_DIM_MAX) : (s->m.shape.hidden + 15) / 16;
	p->states = conf_int_or(c, "mamba_d_state", 16, 1, CONF_HEAD_DIM_MAX);
	p->bias = conf_bool_or(c, "mamba_proj_bias", false);
	p->conv_bias = conf_bool_or(c, "mamba_conv_bias", true);
	*h = (struct state_shape){ .rule = RECUR_SCAN,
		                   .heads_k = 1,
		                   .dim_k = p->states,
		                   .conv_channels = p->inner,
		                   .conv_width = conf_int_or(c, "mamba_d_conv", 4, 2, 8) };
	/* Channels in stretches of up to 128, which are what threads share. */
	for (h->dim_v = p->inner < 128 ? p->inner : 128; p->inner % h->dim_v; h->dim_v--)
		;
	h->heads_v = p->inner / h->dim_v;
}

static void read_moe(struct conf *c, struct plan *p)
{
	struct moe_form *m = &p->moe;

	m->experts = conf_int_or(c, "num_experts", 16, 0, 1 << 16);
	p->moe_period = conf_int_or(c, "expert_layer_period", 2, 1, CONF_LAYERS_MAX);
	p->moe_offset = conf_int_or(c, "expert_layer_offset", 1, 0, CONF_LAYERS_MAX);
	if (m->experts <= 1) {
		m->experts = 0;
		return;
	}
	m->top_k = conf_int_or(c, "num_experts_per_tok", 2, 1, m->experts);
	m->inner = p->ffn.inner;
	m->act.kind = ACT_SILU;
	m->at = "feed_forward";
	m->router = "router";
}

static void read_config(struct stack *s, struct conf *c, struct plan *p)
{
	stack_read(s, c);
	s->trunk.eps = (float)conf_double_or(c, "rms_norm_eps", 1e-6);
	p->tied = conf_bool_or(c, "tie_word_embeddings", false);
	stack_read_attention(s, c, &p->attn);
	p->attn_period = conf_int_or(c, "attn_layer_period", 8, 1, CONF_LAYERS_MAX);
	p->attn_offset = conf_int_or(c, "attn_layer_offset", 4, 0, CONF_LAYERS_MAX);
	p->ffn = (struct ffn_form){ .inner = conf_int(c, "intermediate_size", 1, CONF_DIM_MAX),
		                    .act = ffn_read_act(c, ACT_NONE),
		                    .at = "feed_forward" };
	read_moe(c, p);
	if (!c->code)
		read_scan(s, c, p);
}

static void bind_layer(struct stack *s, struct binder *b, struct plan *p, const float **rate, int i)
{
	int hidden = s->m.shape.hidden;
	const float *norm = bind_floats(b, hidden, 0, "layers.%d.input_layernorm.weight", i);

	if (i % p->attn_period == p->attn_offset)
		stack_add_attention(s, b, &p->attn, norm, i);
	else
		add_scan(s, b, p, rate, norm, i);
	norm = bind_floats(b, hidden, 0, "layers.%d.pre_ff_layernorm.weight", i);
	if (p->moe.experts && i % p->moe_period == p->moe_offset)
		stack_add_moe(s, b, &p->moe, norm, i);
	else
		stack_add_ffn(s, b, &p->ffn, norm, i);
}

static int bind(struct model *m, struct store *st, struct err *err)
{
	struct stack *s = (struct stack *)m;
	struct binder b = { .st = st, .m = m, .err = err };
	struct conf c = decoder_conf(st, err);
	struct plan p = { 0 };
	const float **rate;

	read_config(s, &c, &p);
	if (c.code)
		return c.code;
	stack_init(s, &b, 2 * m->shape.layers, &(struct trunk_names){ "embed_tokens", "final_layernorm" }, p.tied);
	rate = arena_zalloc(&m->arena, (size_t)m->shape.layers * sizeof *rate);
	for (int i = 0; i < m->shape.layers && !b.code; i++) {
		bind_layer(s, &b, &p, rate, i);
		stack_end_layer(s, i);
	}
	return b.code;
}

static const char *const arch[] = { "jamba", NULL };

const struct model_ops jamba_ops = {
	.arch = arch,
	.size = sizeof(struct stack),
	.bind = bind,
	.forward = stack_forward,
	.work_floats = stack_work_floats,
};
