/* delta.c - see delta.h. */
#include "model/delta.h"

#include <stdio.h>
#include <string.h>

#include "model/work.h"
#include "quant/basis.h"

struct delta_part {
	struct weight w;
	int to, at; /* buffer, first column in it */
};

void delta_read(struct delta_form *f, struct conf *c)
{
	struct state_shape *d = &f->shape;
	const char *gate = conf_str_or(c, "output_gate_type", "silu");

	d->heads_k = conf_int(c, "linear_num_key_heads", 1, CONF_HEADS_MAX);
	d->heads_v = conf_int(c, "linear_num_value_heads", 1, CONF_HEADS_MAX);
	d->dim_k = conf_int(c, "linear_key_head_dim", 1, CONF_HEAD_DIM_MAX);
	d->dim_v = conf_int(c, "linear_value_head_dim", 1, CONF_HEAD_DIM_MAX);
	d->conv_width = conf_int(c, "linear_conv_kernel_dim", 2, 8);
	/* Not Hugging Face's: files whose value heads lie so that head n belongs to key head n mod (key heads). */
	d->tiled = conf_bool_or(c, "linear_value_heads_tiled", false);
	d->conv_channels = 2 * d->heads_k * d->dim_k + d->heads_v * d->dim_v;
	if (!c->code && d->heads_v % d->heads_k)
		conf_fail(c, E_FORMAT, "linear_num_value_heads: %d is not a multiple of linear_num_key_heads %d",
		          d->heads_v, d->heads_k);
	f->sigmoid_gate = !strcmp(gate, "sigmoid");
	if (!f->sigmoid_gate && strcmp(gate, "silu") && strcmp(gate, "swish"))
		conf_fail(c, E_UNSUPPORTED, "output_gate_type: \"%.40s\" is not known; known: silu, swish, sigmoid",
		          gate);
}

static void add_part(struct delta *x, struct weight w, int to, int at)
{
	x->part[x->n_part++] = (struct delta_part){ w, to, at };
}

static void bind_inputs(struct binder *b, struct delta *x, const struct delta_form *f, int i)
{
	struct weight w[TO_COUNT];

	x->part = arena_zalloc(&b->m->arena, TO_COUNT * sizeof *x->part);
	bind_weight(b, &w[TO_QKV], x->width[TO_QKV], f->hidden, "layers.%d.linear_attn.in_proj_qkv", i);
	bind_weight(b, &w[TO_Z], x->width[TO_Z], f->hidden, "layers.%d.linear_attn.in_proj_z", i);
	bind_weight(b, &w[TO_B], x->width[TO_B], f->hidden, "layers.%d.linear_attn.in_proj_b", i);
	bind_weight(b, &w[TO_A], x->width[TO_A], f->hidden, "layers.%d.linear_attn.in_proj_a", i);
	for (int to = 0; to < TO_COUNT && !b->code; to++)
		add_part(x, w[to], to, 0);
}

/* Binds the two input matrices of Qwen3-Next.  The first has, per key head, its q, its k, then v and z of the
 * r value heads that share it; the second has b and a of those value heads. */
static void bind_grouped_inputs(struct binder *b, struct delta *x, const struct delta_form *f, int i)
{
	const struct state_shape *d = &f->shape;
	int r = d->heads_v / d->heads_k, dk = d->dim_k, dv = r * d->dim_v, rows = 2 * dk + 2 * dv;
	int k0 = d->heads_k * dk, v0 = 2 * k0;
	struct weight qkvz, ba;

	x->part = arena_zalloc(&b->m->arena, 6 * (size_t)d->heads_k * sizeof *x->part);
	bind_weight(b, &qkvz, d->heads_k * rows, f->hidden, "layers.%d.linear_attn.in_proj_qkvz", i);
	bind_weight(b, &ba, 2 * d->heads_v, f->hidden, "layers.%d.linear_attn.in_proj_ba", i);
	bind_rows_only(b, &ba); /* cut into parts of a few rows */
	for (int j = 0; j < d->heads_k && !b->code; j++) {
		add_part(x, weight_rows(&qkvz, j * rows, dk), TO_QKV, j * dk);
		add_part(x, weight_rows(&qkvz, j * rows + dk, dk), TO_QKV, k0 + j * dk);
		add_part(x, weight_rows(&qkvz, j * rows + 2 * dk, dv), TO_QKV, v0 + j * dv);
		add_part(x, weight_rows(&qkvz, j * rows + 2 * dk + dv, dv), TO_Z, j * dv);
		add_part(x, weight_rows(&ba, 2 * j * r, r), TO_B, j * r);
		add_part(x, weight_rows(&ba, 2 * j * r + r, r), TO_A, j * r);
	}
}

/* [channels][width] in files; here a row for each input. */
const float *delta_conv(struct binder *b, const float *w, int channels, int width)
{
	float *t;

	if (b->code)
		return NULL;
	t = bind_table(b, (size_t)channels * (size_t)width);
	for (int c = 0; c < channels; c++)
		for (int i = 0; i < width; i++)
			t[i * channels + c] = w[c * width + i];
	return t;
}

/* In a rotated basis the columns of out_proj are in the order of training even where heads lie tiled: the basis then
 * also moves the heads. */
static void grouped_basis(struct binder *b, struct weight *out, const struct state_shape *d)
{
	struct basis *of;

	if (b->code || !out->basis || !d->tiled)
		return;
	of = arena_alloc(&b->m->arena, sizeof *of);
	*of = *out->basis;
	of->head = d->dim_v;
	of->heads_k = d->heads_k;
	out->basis = of;
}

void delta_bind(struct binder *b, struct delta *x, const struct delta_form *f, int i)
{
	const struct state_shape *d = &f->shape;

	x->width[TO_QKV] = d->conv_channels;
	x->width[TO_Z] = d->heads_v * d->dim_v;
	x->width[TO_B] = x->width[TO_A] = d->heads_v;
	if (bind_has(b, "layers.%d.linear_attn.in_proj_qkvz.weight", i))
		bind_grouped_inputs(b, x, f, i);
	else
		bind_inputs(b, x, f, i);
	bind_weight(b, &x->out, f->hidden, x->width[TO_Z], "layers.%d.linear_attn.out_proj", i);
	grouped_basis(b, &x->out, d);
	x->op.reader = &x->out;
	x->op.conv = delta_conv(
		b, bind_floats(b, d->conv_channels * d->conv_width, 0, "layers.%d.linear_attn.conv1d.weight", i),
		d->conv_channels, d->conv_width);
	x->op.a_log_exp = bind_exp(b, bind_floats(b, d->heads_v, 0, "layers.%d.linear_attn.A_log", i), d->heads_v);
	x->op.dt_bias = bind_floats(b, d->heads_v, 0, "layers.%d.linear_attn.dt_bias", i);
	x->op.norm = bind_floats(b, d->dim_v, 0, "layers.%d.linear_attn.norm.weight", i);
	x->op.eps = f->eps;
	x->op.sigmoid_gate = f->sigmoid_gate;
}

float delta_norms_add(const struct binder *b, const bool *full, int layers)
{
	for (int i = 0; i < layers && !b->code; i++) {
		char name[160];
		const struct tensor *t;

		if (full[i])
			continue;
		snprintf(name, sizeof name, "%slayers.%d.linear_attn.conv1d.weight", b->prefix, i);
		t = store_find(b->st, name);
		return t && t->n_dim == 3 && t->dim[2] != 1 ? 1.0f : 0.0f;
	}
	return b->prefix && !strncmp(b->prefix, "language_model.", 15) ? 0.0f : 1.0f;
}

size_t delta_floats(const struct delta *x, int n_row)
{
	size_t n = work_floats_of(n_row, x->width[TO_Z]); /* the output */

	for (int to = 0; to < TO_COUNT; to++)
		n += work_floats_of(n_row, x->width[to]);
	return n;
}

void delta_forward(struct pass *p, const struct delta *d, float *to, bool add, const float *h,
                   const struct state_view *view, int layer)
{
	const struct backend_ops *ops = p->be->ops;
	size_t mark = p->work.used, n = (size_t)p->n_row;
	struct linear job[LINEAR_JOBS], o = { .w = &d->out, .out = to, .ld = (size_t)d->out.rows, .add = add };
	float *in[TO_COUNT], *out;
	int n_job = 0;

	for (int i = 0; i < TO_COUNT; i++)
		in[i] = pass_floats(p, n * (size_t)d->width[i]);
	out = pass_floats(p, n * (size_t)d->width[TO_Z]);
	for (int i = 0; i < d->n_part; i++) {
		const struct delta_part *t = &d->part[i];

		job[n_job++] = (struct linear){ &t->w, in[t->to] + t->at, (size_t)d->width[t->to], NULL, false };
		if (n_job == LINEAR_JOBS || i + 1 == d->n_part) {
			ops->linear(p, job, n_job, h, p->n_row, d->out.rows);
			n_job = 0;
		}
	}
	ops->recur(p, out, &d->op, &(struct recur_in){ in[TO_QKV], in[TO_Z], in[TO_B], in[TO_A] }, view, layer);
	ops->linear(p, &o, 1, out, p->n_row, d->width[TO_Z]);
	p->work.used = mark;
}
