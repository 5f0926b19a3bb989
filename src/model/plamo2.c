/* plamo2.c - PLaMo 2: Mamba-2 whose B, C and dt are projected from what is convolved, and attention, in turns.
 *
 *     h = E[token];  per layer:  h += norm(mixer(norm(h)));  h += norm(mlp(norm(h)));  logits = norm(h) E'
 *
 *     per head [z | x] = in_proj h;  x = SiLU(conv(x));  [B | C | dt] = bcdt_proj x, each through its norm
 *     out_proj (ssm(x, B, C, dt_proj dt) SiLU(z))                             (backend/cpu/state/rule_ssm.c)
 *
 * Gains of norms are stored without what they have in common: 1 before a block and at the end, 1/5 after a mixer and
 * 5^-1.5 after an MLP.  Queries and keys have a gain for each head.  attention_window_size is not looked at: no
 * implementation has windows. */
#include <math.h>

#include "model/decoder.h"
#include "model/families.h"
#include "model/mamba.h"
#include "model/work.h"

struct plan {
	struct attention_form attn;
	struct ffn_form ffn;
	struct state_shape shape;
	int rank, step; /* of dt; of the layers of one period */
	bool tied;
};

/* ---- the mixer ---- */

struct mixer {
	struct recur op;
	struct conv conv;
	struct weight in, b, c, low, dt, out;
	const float *norm_dt;
	const float *gain_bc; /* [2 states] of the norms of B and C */
	float eps;
	int heads, dim, states;
};

static void mixer_run(struct pass *p, const struct block *y, float *out, bool add, const float *h,
                      const struct stack_views *v)
{
	const struct backend_ops *ops = p->be->ops;
	const struct mixer *m = y->own;
	int inner = m->heads * m->dim, cols = inner + 2 * m->states;
	size_t mark = p->work.used, n = (size_t)p->n_row, wide = (size_t)inner, states = (size_t)m->states;
	float *both = pass_floats(p, n * 2 * wide), *z = pass_floats(p, n * wide), *x = pass_floats(p, n * wide);
	float *bc = pass_floats(p, n * 2 * states), *low = pass_floats(p, n * (size_t)m->low.rows);
	float *dt = pass_floats(p, n * (size_t)m->heads), *xbc = pass_floats(p, n * (size_t)cols);
	struct linear in = { .w = &m->in, .out = both, .ld = 2 * wide };
	struct linear select[] = { { .w = &m->b, .out = bc, .ld = 2 * states },
		                   { .w = &m->c, .out = bc + states, .ld = 2 * states },
		                   { .w = &m->low, .out = low, .ld = (size_t)m->low.rows } };
	struct linear step = { .w = &m->dt, .out = dt, .ld = (size_t)m->heads };
	struct linear o = { .w = &m->out, .out = out, .ld = (size_t)m->out.rows, .add = add };

	ops->linear(p, &in, 1, h, p->n_row, m->in.cols);
	ops->heads(p, z, m->dim, both, 2 * m->dim, p->n_row, m->heads, NULL);
	ops->heads(p, x, m->dim, both + m->dim, 2 * m->dim, p->n_row, m->heads, NULL);
	ops->conv(p, both, &m->conv, 1, x, 0, inner, v->state, y->layer);
	ops->linear(p, select, 3, both, p->n_row, inner);
	ops->norm(p, low, low, p->n_row, m->low.rows, m->norm_dt, m->eps);
	ops->norm(p, bc, bc, 2 * p->n_row, m->states, NULL, m->eps);
	ops->mul(p, bc, m->gain_bc, 0, 1, p->n_row, 2 * m->states);
	ops->linear(p, &step, 1, low, p->n_row, m->low.rows);
	ops->blend(p, xbc, (size_t)cols, both, NULL, NULL, p->n_row, inner);
	ops->blend(p, xbc + wide, (size_t)cols, bc, NULL, NULL, p->n_row, 2 * m->states);
	ops->recur(p, x, &m->op, &(struct recur_in){ .x = xbc, .z = z, .a = dt }, v->state, y->layer);
	ops->linear(p, &o, 1, x, p->n_row, inner);
	p->work.used = mark;
}

static size_t mixer_room(const struct block *y, int n_row)
{
	const struct mixer *m = y->own;
	int inner = m->heads * m->dim;

	return work_floats_of(n_row, 2 * inner) + 2 * work_floats_of(n_row, inner) +
	       work_floats_of(n_row, 2 * m->states) + work_floats_of(n_row, m->low.rows) +
	       work_floats_of(n_row, m->heads) + work_floats_of(n_row, inner + 2 * m->states);
}

static const struct block_ops mixer_block = { mixer_run, mixer_room };

static void bind_select(struct binder *b, struct mixer *m, const struct plan *p, int inner, int layer)
{
	const float *gain_b = bind_floats(b, m->states, 0, "layers.%d.mixer.B_norm_weight", layer);
	const float *gain_c = bind_floats(b, m->states, 0, "layers.%d.mixer.C_norm_weight", layer);
	struct weight select;

	bind_weight(b, &select, 2 * m->states + p->rank, inner, "layers.%d.mixer.bcdt_proj", layer);
	bind_rows_only(b, &select); /* cut into parts of a few rows */
	if (b->code)
		return;
	m->b = weight_rows(&select, 0, m->states);
	m->c = weight_rows(&select, m->states, m->states);
	m->low = weight_rows(&select, 2 * m->states, p->rank);
	m->gain_bc = mamba_gains(b, gain_b, gain_c, m->states);
}

static struct block *add_mixer(struct stack *s, struct binder *b, const struct plan *p, const float *norm, int layer)
{
	const struct state_shape *h = &p->shape;
	struct mixer *m = arena_zalloc(&b->m->arena, sizeof *m);
	struct block *y = stack_add(s, &mixer_block, m, norm);
	int hidden = s->m.shape.hidden, inner = h->heads_v * h->dim_v;

	m->heads = h->heads_v;
	m->dim = h->dim_v;
	m->states = h->dim_k;
	m->eps = s->trunk.eps;
	bind_weight(b, &m->in, 2 * inner, hidden, "layers.%d.mixer.in_proj", layer);
	bind_select(b, m, p, inner, layer);
	bind_weight(b, &m->dt, m->heads, p->rank, "layers.%d.mixer.dt_proj", layer);
	bind_weight(b, &m->out, hidden, inner, "layers.%d.mixer.out_proj", layer);
	m->norm_dt = bind_floats(b, p->rank, 0, "layers.%d.mixer.dt_norm_weight", layer);
	m->conv.silu = true;
	m->conv.w = mamba_conv(b, bind_floats(b, inner * h->conv_width, 0, "layers.%d.mixer.conv1d.weight", layer),
	                       inner, h->conv_width, NULL);
	m->op.a_log_exp = bind_exp(b, bind_floats(b, m->heads, 0, "layers.%d.mixer.A_log", layer), m->heads);
	m->op.dt_bias = bind_floats(b, m->heads, 0, "layers.%d.mixer.dt_bias", layer);
	m->op.skip = bind_floats(b, m->heads, 0, "layers.%d.mixer.D", layer);
	m->op.dt_max = HUGE_VALF;
	m->op.reader = &m->out;
	y->layer = s->m.shape.layers_rec++;
	s->m.shape.state = *h;
	s->m.shape.state.layers = s->m.shape.layers_rec;
	return y;
}

/* ---- config ---- */

static void read_config(struct stack *s, struct conf *c, struct plan *p)
{
	struct shape *h = &s->m.shape;
	struct attn *op = &p->attn.op;
	struct state_shape *m = &p->shape;

	stack_read(s, c);
	s->trunk.eps = (float)conf_double_or(c, "rms_norm_eps", 1e-6);
	p->tied = conf_bool_or(c, "tie_word_embeddings", true);
	stack_read_attention(s, c, &p->attn);
	if (c->code)
		return;
	op->dim = conf_int_or(c, "hidden_size_per_head", 128, 2, CONF_HEAD_DIM_MAX);
	op->scale = 1.0f / sqrtf((float)op->dim);
	op->eps = 1e-6f;
	rotary_read(&op->rope, c, &(struct rotary_defaults){ .theta = 10000, .partial = 1 }, op->dim, &h->ctx_max,
	            &s->m.vectors);
	p->attn.at = "mixer";
	p->attn.fused = true;
	p->attn.norms_by_head = true;
	p->attn.q_norm = "q_weight";
	p->attn.k_norm = "k_weight";
	p->ffn = (struct ffn_form){ .inner = conf_int(c, "intermediate_size", 1, CONF_DIM_MAX),
		                    .act = { .kind = ACT_SILU },
		                    .fused = true };
	*m = (struct state_shape){ .rule = RECUR_SSM,
		                   .heads_k = 1,
		                   .heads_v = conf_int_or(c, "mamba_num_heads", 64, 1, CONF_HEADS_MAX),
		                   .dim_k = conf_int_or(c, "mamba_d_state", 64, 1, CONF_HEAD_DIM_MAX),
		                   .dim_v = op->dim,
		                   .conv_width = conf_int_or(c, "mamba_d_conv", 4, 2, 8) };
	m->conv_channels = m->heads_v * m->dim_v;
	p->rank = h->hidden / 16 > 64 ? h->hidden / 16 : 64;
	p->step = conf_int_or(c, "mamba_step", 2, 1, CONF_LAYERS_MAX);
	if (!conf_bool_or(c, "mamba_enabled", true))
		p->step = 1;
}

/* Attention stands in the middle of a period, or, in a model of less than half a one, in its last layer. */
static bool attends(const struct plan *p, int layers, int i)
{
	return layers <= p->step / 2 ? i == layers - 1 : i % p->step == p->step / 2;
}

static void join_after(struct binder *b, struct stack *s, struct block *y, float add, const char *name, int i)
{
	y->join.norm = bind_floats(b, s->m.shape.hidden, add, "layers.%d.%s.weight", i, name);
	y->join.eps = s->trunk.eps;
}

static void bind_layer(struct stack *s, struct binder *b, const struct plan *p, int i)
{
	int hidden = s->m.shape.hidden;
	const float *norm = bind_floats(b, hidden, 1, "layers.%d.pre_mixer_norm.weight", i);
	struct block *y = attends(p, s->m.shape.layers, i) ? stack_add_attention(s, b, &p->attn, norm, i) :
	                                                     add_mixer(s, b, p, norm, i);

	join_after(b, s, y, 0.2f, "post_mixer_norm", i);
	norm = bind_floats(b, hidden, 1, "layers.%d.pre_mlp_norm.weight", i);
	y = stack_add_ffn(s, b, &p->ffn, norm, i);
	join_after(b, s, y, 0.08944272f, "post_mlp_norm", i);
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
	stack_room(s, 2 * m->shape.layers);
	trunk_bind_as(&b, &s->trunk, &(struct trunk_names){ "embed_tokens", "norm" }, m->shape.vocab, m->shape.hidden,
	              p.tied, s->trunk.eps, 1);
	b.prefix = "model.layers.";
	for (int i = 0; i < m->shape.layers && !b.code; i++) {
		bind_layer(s, &b, &p, i);
		stack_end_layer(s, i);
	}
	return b.code;
}

static const char *const arch[] = { "plamo2", NULL };

const struct model_ops plamo2_ops = {
	.arch = arch,
	.size = sizeof(struct stack),
	.bind = bind,
	.forward = stack_forward,
	.work_floats = stack_work_floats,
};
