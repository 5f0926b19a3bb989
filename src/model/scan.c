/* scan.c - see scan.h. */
#include "model/scan.h"

#include <math.h>
#include <string.h>

#include "model/mamba.h"
#include "model/work.h"

struct scan {
	struct recur op;
	struct conv conv;
	struct weight x, z, dt_low, b, c, dt, out;
	bool normed;                             /* dt, B and C */
	const float *norm_dt;                    /* gain; NULL: none */
	const float *gain_bc;                    /* [2 states] of the norms of B and C; NULL: none */
	const float *bias_x, *bias_z, *bias_out; /* or NULL */
	float eps;
	int states;
};

void scan_sizes(struct scan_form *f, struct stack *s, struct conf *c, int inner, const char *rank_key, int states,
                int conv_width)
{
	struct state_shape *h = &f->shape;
	const struct json *rank = conf_get(c, rank_key);
	const char *word = json_str(rank, NULL);
	bool named = rank && !(word && !strcmp(word, "auto"));

	f->inner = inner;
	f->rank = named ? conf_int(c, rank_key, 1, CONF_DIM_MAX) : (s->m.shape.hidden + 15) / 16;
	f->states = states;
	*h = (struct state_shape){
		.rule = RECUR_SCAN, .heads_k = 1, .dim_k = states, .conv_channels = inner, .conv_width = conv_width
	};
	/* Channels in stretches of up to 128, which are what threads share. */
	for (h->dim_v = inner < 128 ? inner : 128; inner % h->dim_v; h->dim_v--)
		;
	h->heads_v = inner / h->dim_v;
	f->rate = arena_zalloc(&s->m.arena, (size_t)s->m.shape.layers * sizeof *f->rate);
}

static void scan_run(struct pass *p, const struct block *y, float *out, bool add, const float *h,
                     const struct stack_views *v)
{
	const struct backend_ops *ops = p->be->ops;
	const struct scan *s = y->own;
	size_t mark = p->work.used, n = (size_t)p->n_row, inner = (size_t)s->x.rows, states = (size_t)s->states;
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
	if (s->normed) {
		ops->norm(p, low, low, p->n_row, s->dt_low.rows, s->norm_dt, s->eps);
		ops->norm(p, bc, bc, 2 * p->n_row, s->states, NULL, s->eps);
	}
	if (s->gain_bc)
		ops->mul(p, bc, s->gain_bc, 0, 1, p->n_row, 2 * s->states);
	ops->linear(p, &dt, 1, low, p->n_row, s->dt_low.rows);
	ops->recur(p, x, &s->op, &(struct recur_in){ .x = convolved, .z = z, .a = x, .b = bc }, v->state, y->layer);
	ops->linear(p, &o, 1, x, p->n_row, s->x.rows);
	p->work.used = mark;
}

static size_t scan_room(const struct block *y, int n_row)
{
	const struct scan *s = y->own;

	return 4 * work_floats_of(n_row, s->x.rows) + work_floats_of(n_row, s->dt_low.rows) +
	       work_floats_of(n_row, 2 * s->states);
}

static const struct block_ops scan_block = { scan_run, scan_room };

/* A = -exp(A_log) [inner][states] in files; [heads_v][states][dim_v] here. */
static const float *rates(struct binder *b, const struct scan_form *f, int layer)
{
	const float *a = bind_floats(b, (int64_t)f->inner * f->states, 0, "layers.%d.%s.A_log", layer, f->at);
	size_t dim = (size_t)f->shape.dim_v, inner = (size_t)f->inner, states = (size_t)f->states;
	float *r;

	if (b->code)
		return NULL;
	r = bind_table(b, inner * states);
	for (size_t c = 0; c < inner; c++) /* products of both go beyond an int */
		for (size_t n = 0; n < states; n++)
			r[(c / dim * states + n) * dim + c % dim] = -expf(a[c * states + n]);
	return r;
}

static void bind_weights(struct binder *b, struct scan *s, const struct scan_form *f, int hidden, int layer)
{
	const float *bias = NULL;
	struct weight in, select;

	bind_weight(b, &in, 2 * f->inner, hidden, "layers.%d.%s.in_proj", layer, f->at);
	bind_weight(b, &select, f->rank + 2 * f->states, f->inner, "layers.%d.%s.x_proj", layer, f->at);
	bind_weight(b, &s->dt, f->inner, f->rank, "layers.%d.%s.dt_proj", layer, f->at);
	bind_weight(b, &s->out, hidden, f->inner, "layers.%d.%s.out_proj", layer, f->at);
	bind_rows_only(b, &select); /* cut into parts of a few rows */
	if (f->bias) {
		bias = bind_floats(b, 2 * f->inner, 0, "layers.%d.%s.in_proj.bias", layer, f->at);
		s->bias_out = bind_floats(b, hidden, 0, "layers.%d.%s.out_proj.bias", layer, f->at);
	}
	if (b->code)
		return;
	s->bias_x = bias;
	s->bias_z = bias ? bias + f->inner : NULL;
	s->x = weight_rows(&in, 0, f->inner);
	s->z = weight_rows(&in, f->inner, f->inner);
	s->dt_low = weight_rows(&select, 0, f->rank);
	s->b = weight_rows(&select, f->rank, f->states);
	s->c = weight_rows(&select, f->rank + f->states, f->states);
}

static void bind_gains(struct binder *b, struct scan *s, const struct scan_form *f, int layer)
{
	const float *gain_b = bind_floats(b, f->states, 0, "layers.%d.%s.b_layernorm.weight", layer, f->at);
	const float *gain_c = bind_floats(b, f->states, 0, "layers.%d.%s.c_layernorm.weight", layer, f->at);

	s->norm_dt = bind_floats(b, f->rank, 0, "layers.%d.%s.dt_layernorm.weight", layer, f->at);
	s->gain_bc = mamba_gains(b, gain_b, gain_c, f->states);
}

struct block *stack_add_scan(struct stack *st, struct binder *b, const struct scan_form *f, const float *norm,
                             int layer)
{
	struct scan *s = arena_zalloc(&b->m->arena, sizeof *s);
	const struct state_shape *h = &f->shape;
	struct block *y = stack_add(st, &scan_block, s, norm);

	y->layer = st->m.shape.layers_rec++;
	s->eps = f->eps;
	s->states = f->states;
	s->normed = f->norms != SCAN_PLAIN;
	bind_weights(b, s, f, st->m.shape.hidden, layer);
	if (f->norms == SCAN_GAINED)
		bind_gains(b, s, f, layer);
	s->conv.silu = true;
	s->conv.w = mamba_conv(b,
	                       bind_floats(b, f->inner * h->conv_width, 0, "layers.%d.%s.conv1d.weight", layer, f->at),
	                       f->inner, h->conv_width, NULL);
	if (f->conv_bias)
		s->conv.bias = bind_floats(b, f->inner, 0, "layers.%d.%s.conv1d.bias", layer, f->at);
	s->op.dt_bias = bind_floats(b, f->inner, 0, "layers.%d.%s.dt_proj.bias", layer, f->at);
	s->op.skip = bind_floats(b, f->inner, 0, "layers.%d.%s.D", layer, f->at);
	s->op.reader = &s->out;
	f->rate[y->layer] = rates(b, f, layer);
	st->m.shape.state = *h;
	st->m.shape.state.layers = st->m.shape.layers_rec;
	st->m.shape.state.rate = f->rate;
	return y;
}
