/* mamba.c - see mamba.h. */
#include "model/mamba.h"

#include <math.h>
#include <string.h>

#include "model/work.h"

/* Where the rows of in_proj go. */
enum { TO_Z, TO_X, TO_DT, TO_COUNT };

struct mamba {
	struct recur op;
	struct conv conv;
	struct weight in[TO_COUNT], out;
	const float *bias_in[TO_COUNT], *bias_out; /* or NULL */
	float scale_z, scale_dt;
};

void mamba_sizes(struct mamba_form *f, struct conf *c, int heads, int head_dim, int groups, int states, int conv_width)
{
	struct state_shape *s = &f->shape;

	s->rule = RECUR_SSM;
	s->heads_k = groups;
	s->heads_v = heads;
	s->dim_k = states;
	s->dim_v = head_dim;
	s->conv_width = conv_width;
	s->conv_channels = 2 * groups * states + heads * head_dim;
	if (head_dim < 1 || head_dim > CONF_HEAD_DIM_MAX)
		conf_fail(c, E_FORMAT, "%d heads of Mamba-2 have %d dims; 1 to %d are read", heads, head_dim,
		          CONF_HEAD_DIM_MAX);
	if (!c->code && heads % groups)
		conf_fail(c, E_FORMAT, "%d heads of Mamba-2 are not a multiple of its %d groups", heads, groups);
}

/* An infinity: Python's number, or what writers of plain JSON put there: null, a word, an object around the word. */
static bool is_infinite(const struct json *j)
{
	const char *word = json_str(json_kind(j) == JSON_OBJECT ? json_get(j, "__float__") : j, NULL);

	if (!word)
		word = json_number_text(j);
	return json_kind(j) == JSON_NULL || (word && (!strcmp(word, "inf") || !strcmp(word, "Infinity")));
}

void mamba_read_limits(struct mamba_form *f, struct conf *c)
{
	const struct json *limit = conf_get(c, "time_step_limit");
	double lo = 0, hi = HUGE_VAL;

	if (limit && (json_len(limit) != 2 || json_to_double(json_at(limit, 0), &lo) ||
	              (json_to_double(json_at(limit, 1), &hi) && !is_infinite(json_at(limit, 1)))))
		conf_fail(c, E_FORMAT, "time_step_limit: is not two numbers");
	f->dt_min = (float)lo;
	f->dt_max = (float)hi;
}

void mamba_read(struct mamba_form *f, struct conf *c, int hidden)
{
	int heads = conf_int_or(c, "mamba_n_heads", 128, 1, CONF_HEADS_MAX);
	int inner = conf_int_or(c, "mamba_expand", 2, 1, 64) * hidden, dim = inner / heads;
	const char *word = json_str(conf_get(c, "mamba_d_head"), NULL);

	if (!word || strcmp(word, "auto"))
		dim = conf_int_or(c, "mamba_d_head", dim, 1, CONF_HEAD_DIM_MAX);
	mamba_sizes(f, c, heads, dim, conf_int_or(c, "mamba_n_groups", 1, 1, CONF_HEADS_MAX),
	            conf_int(c, "mamba_d_state", 1, CONF_HEAD_DIM_MAX), conf_int_or(c, "mamba_d_conv", 4, 2, 8));
	mamba_read_limits(f, c);
	f->bias = conf_bool_or(c, "mamba_proj_bias", false);
	f->conv_bias = conf_bool_or(c, "mamba_conv_bias", true);
	f->norm = true;
	f->norm_cols = f->shape.heads_v * f->shape.dim_v;
	f->at = "mamba";
}

const float *mamba_conv(struct binder *b, const float *w, int channels, int width, const float *scale)
{
	float *t;

	if (b->code)
		return NULL;
	t = bind_table(b, (size_t)channels * (size_t)width);
	for (int c = 0; c < channels; c++)
		for (int i = 0; i < width; i++)
			t[i * channels + c] = w[c * width + i] * (scale ? scale[c] : 1.0f);
	return t;
}

const float *mamba_conv_qkv(struct binder *b, const int channels[3], int width, const char *at, int layer)
{
	int all = channels[0] + channels[1] + channels[2], first = 0;
	bool mlx = bind_has(b, "layers.%d.%s.q_conv.conv.weight", layer, at);
	float *t = bind_table(b, (size_t)all * (size_t)width);

	for (int i = 0; i < 3; first += channels[i++]) {
		const float *w = bind_floats(b, channels[i] * width, 0, "layers.%d.%s.%c%s.weight", layer, at, "qkv"[i],
		                             mlx ? "_conv.conv" : "_conv1d");

		for (int c = 0; c < channels[i] && !b->code; c++)
			for (int j = 0; j < width; j++)
				t[j * all + first + c] = w[c * width + j];
	}
	return t;
}

const float *mamba_gains(struct binder *b, const float *gain_b, const float *gain_c, int n)
{
	size_t bytes = (size_t)n * sizeof(float);
	float *both;

	if (b->code)
		return NULL;
	both = bind_table(b, 2 * (size_t)n);
	memcpy(both, gain_b, bytes);
	memcpy(both + n, gain_c, bytes);
	return both;
}

/* The factors of x, B and C by channel. */
static float *channel_scale(struct binder *b, const struct mamba_form *f)
{
	const struct state_shape *s = &f->shape;
	int inner = s->heads_v * s->dim_v, states = s->heads_k * s->dim_k;
	float *scale;

	if (!f->scale)
		return NULL;
	scale = bind_table(b, (size_t)s->conv_channels);
	for (int c = 0; c < s->conv_channels; c++)
		scale[c] = f->scale[c < inner ? 1 : c < inner + states ? 2 : 3];
	return scale;
}

static void bind_in(struct binder *b, struct mamba *x, const struct mamba_form *f, int hidden, int layer)
{
	const struct state_shape *s = &f->shape;
	int rows[TO_COUNT] = { s->heads_v * s->dim_v, s->conv_channels, s->heads_v }, at = 0;
	int all = rows[0] + rows[1] + rows[2];
	const float *bias = NULL;
	struct weight in;

	bind_weight(b, &in, all, hidden, "layers.%d.%s.in_proj", layer, f->at);
	if (f->bias)
		bias = bind_floats(b, all, 0, "layers.%d.%s.in_proj.bias", layer, f->at);
	for (int i = 0; i < TO_COUNT && !b->code; at += rows[i++]) {
		x->in[i] = weight_rows(&in, at, rows[i]);
		x->bias_in[i] = bias ? bias + at : NULL;
	}
}

static void bind_op(struct binder *b, struct mamba *x, const struct mamba_form *f, int layer)
{
	const struct state_shape *s = &f->shape;
	int inner = s->heads_v * s->dim_v;

	x->conv.silu = true;
	x->conv.w = mamba_conv(
		b, bind_floats(b, s->conv_channels * s->conv_width, 0, "layers.%d.%s.conv1d.weight", layer, f->at),
		s->conv_channels, s->conv_width, channel_scale(b, f));
	if (f->conv_bias)
		x->conv.bias = bind_floats(b, s->conv_channels, 0, "layers.%d.%s.conv1d.bias", layer, f->at);
	x->op.a_log_exp = bind_exp(b, bind_floats(b, s->heads_v, 0, "layers.%d.%s.A_log", layer, f->at), s->heads_v);
	x->op.dt_bias = bind_floats(b, s->heads_v, 0, "layers.%d.%s.dt_bias", layer, f->at);
	x->op.skip = bind_floats(b, s->heads_v, 0, "layers.%d.%s.D", layer, f->at);
	x->op.dt_min = f->dt_min;
	x->op.dt_max = f->dt_max;
	x->op.reader = &x->out;
	if (!f->norm)
		return;
	x->op.norm = bind_floats(b, inner, 0, "layers.%d.%s.norm.weight", layer, f->at);
	x->op.norm_cols = f->norm_cols;
	x->op.gate_first = !f->norm_first;
}

static void mamba_run(struct pass *p, const struct block *y, float *out, bool add, const float *h,
                      const struct stack_views *v)
{
	const struct backend_ops *ops = p->be->ops;
	const struct mamba *x = y->own;
	size_t mark = p->work.used, n = (size_t)p->n_row;
	float *in[TO_COUNT], *convolved, *mixed;
	struct linear job[TO_COUNT],
		o = { .w = &x->out, .out = out, .ld = (size_t)x->out.rows, .bias = x->bias_out, .add = add };

	for (int i = 0; i < TO_COUNT; i++) {
		size_t cols = (size_t)x->in[i].rows;

		in[i] = pass_floats(p, n * cols);
		job[i] = (struct linear){ .w = &x->in[i], .out = in[i], .ld = cols, .bias = x->bias_in[i] };
	}
	convolved = pass_floats(p, n * (size_t)x->in[TO_X].rows);
	mixed = pass_floats(p, n * (size_t)x->in[TO_Z].rows);
	ops->linear(p, job, TO_COUNT, h, p->n_row, x->in[0].cols);
	if (x->scale_z != 1)
		ops->map(p, in[TO_Z], p->n_row, x->in[TO_Z].rows, x->scale_z, 0);
	if (x->scale_dt != 1)
		ops->map(p, in[TO_DT], p->n_row, x->in[TO_DT].rows, x->scale_dt, 0);
	ops->conv(p, convolved, &x->conv, 1, in[TO_X], 0, x->in[TO_X].rows, v->state, y->layer);
	ops->recur(p, mixed, &x->op, &(struct recur_in){ .x = convolved, .z = in[TO_Z], .a = in[TO_DT] }, v->state,
	           y->layer);
	ops->linear(p, &o, 1, mixed, p->n_row, x->out.cols);
	p->work.used = mark;
}

static size_t mamba_room(const struct block *y, int n_row)
{
	const struct mamba *x = y->own;
	size_t n = work_floats_of(n_row, x->in[TO_X].rows) + work_floats_of(n_row, x->in[TO_Z].rows);

	for (int i = 0; i < TO_COUNT; i++)
		n += work_floats_of(n_row, x->in[i].rows);
	return n;
}

static const struct block_ops mamba_block = { mamba_run, mamba_room };

struct block *stack_add_mamba(struct stack *s, struct binder *b, const struct mamba_form *f, const float *norm,
                              int layer)
{
	struct mamba *x = arena_zalloc(&b->m->arena, sizeof *x);
	struct block *y = stack_add(s, &mamba_block, x, norm);
	int hidden = s->m.shape.hidden;

	bind_in(b, x, f, hidden, layer);
	bind_op(b, x, f, layer);
	bind_weight(b, &x->out, hidden, f->shape.heads_v * f->shape.dim_v, "layers.%d.%s.out_proj", layer, f->at);
	if (f->bias)
		x->bias_out = bind_floats(b, hidden, 0, "layers.%d.%s.out_proj.bias", layer, f->at);
	x->op.eps = s->trunk.eps;
	x->scale_z = f->scale ? f->scale[0] : 1;
	x->scale_dt = f->scale ? f->scale[4] : 1;
	y->layer = s->m.shape.layers_rec++;
	s->m.shape.state = f->shape;
	s->m.shape.state.layers = s->m.shape.layers_rec;
	return y;
}
