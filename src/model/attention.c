/* attention.c - see attention.h. */
#include "model/attention.h"

#include <math.h>

#include "model/conf.h"
#include "model/model.h"
#include "model/rotary.h"
#include "model/work.h"

void attention_read_gated(struct attention_form *f, struct conf *c, struct model *m, float eps)
{
	const struct rotary_defaults d = { .theta = 0, .partial = 0.25 };

	f->op.heads = conf_int(c, "num_attention_heads", 1, CONF_HEADS_MAX);
	f->op.heads_kv = conf_int(c, "num_key_value_heads", 1, CONF_HEADS_MAX);
	f->op.dim = conf_int(c, "head_dim", 2, CONF_HEAD_DIM_MAX);
	if (!conf_bool_or(c, "attn_output_gate", true))
		conf_fail(c, E_UNSUPPORTED, "attn_output_gate: false is not a known model");
	if (!c->code && f->op.heads % f->op.heads_kv)
		conf_fail(c, E_FORMAT, "num_attention_heads: %d is not a multiple of num_key_value_heads %d",
		          f->op.heads, f->op.heads_kv);
	if (c->code)
		return;
	f->hidden = m->shape.hidden;
	f->gated = f->norms = true;
	f->bias_qkv = f->bias_o = conf_bool_or(c, "attention_bias", false);
	f->op.scale = 1.0f / sqrtf((float)f->op.dim);
	f->op.eps = eps;
	rotary_read(&f->op.rope, c, &d, f->op.dim, &m->shape.ctx_max, &m->vectors);
}

static void bind_projections(struct binder *b, struct attention *a, const struct attention_form *f, const char *at,
                             int layer)
{
	int dim = f->op.dim, q = f->op.heads * dim * (f->gated ? 2 : 1), kv = f->op.heads_kv * dim;
	int values = f->op.heads_kv * a->dim_v;
	struct weight all;

	if (f->fused) {
		bind_weight(b, &all, q + kv + values, f->hidden, "layers.%d.%s.%s", layer, at,
		            f->qkv_proj ? f->qkv_proj : "qkv_proj");
		if (b->code)
			return;
		a->q = weight_rows(&all, 0, q);
		a->k = weight_rows(&all, q, kv);
		a->v = weight_rows(&all, q + kv, values);
		return;
	}
	bind_weight(b, &a->q, q, f->hidden, "layers.%d.%s.q_proj", layer, at);
	if (!f->no_kv)
		bind_weight(b, &a->k, kv, f->hidden, "layers.%d.%s.k_proj", layer, at);
	if (!f->no_kv && !f->v_is_k)
		bind_weight(b, &a->v, values, f->hidden, "layers.%d.%s.v_proj", layer, at);
}

static void bind_norms(struct binder *b, struct attention *a, const struct attention_form *f, const char *at, int layer)
{
	bool all = f->norms_whole || f->norms_by_head;
	int heads = all ? f->op.heads : 1, heads_kv = all ? f->op.heads_kv : 1;
	const float *q, *k = NULL;
	const char *end = f->norms_by_head ? "" : ".weight";

	q = bind_floats(b, heads * f->op.dim, f->norm_add, "layers.%d.%s.%s%s", layer, at,
	                f->q_norm ? f->q_norm : "q_norm", end);
	if (!f->no_kv)
		k = bind_floats(b, heads_kv * f->op.dim, f->norm_add, "layers.%d.%s.%s%s", layer, at,
		                f->k_norm ? f->k_norm : "k_norm", end);
	a->norms_by_head = f->norms_by_head;
	*(all ? &a->norm_q : &a->op.q_norm) = q;
	*(all ? &a->norm_k : &a->op.k_norm) = k;
}

/* Gains of a norm that has none. */
static const float *ones(struct binder *b, int n)
{
	float *v = bind_table(b, (size_t)n);

	for (int i = 0; i < n; i++)
		v[i] = 1.0f;
	return v;
}

void attention_bind(struct binder *b, struct attention *a, const struct attention_form *f, int layer)
{
	int dim = f->op.dim, q = f->op.heads * dim, kv = f->op.heads_kv * dim;
	const char *at = f->at ? f->at : "self_attn";

	a->op = f->op;
	bind_scores_scale(b, f->op.scale);
	a->gated = f->gated;
	a->v_is_k = f->v_is_k;
	a->no_kv = f->no_kv;
	a->dim_v = f->dim_v ? f->dim_v : dim;
	a->values_scale = f->values_scale;
	a->gate_by_head = f->gate_by_head;
	bind_projections(b, a, f, at, layer);
	bind_weight(b, &a->o, f->hidden, f->op.heads * a->dim_v, "layers.%d.%s.%s", layer, at,
	            f->o_proj ? f->o_proj : "o_proj");
	if (f->gate_proj)
		bind_weight(b, &a->gate, f->gate_by_head ? f->op.heads : q, f->hidden, "layers.%d.%s.%s", layer, at,
		            f->gate_proj);
	if (f->norms_plain)
		a->op.q_norm = a->op.k_norm = ones(b, dim);
	if (f->norms_after || f->norms_plain) {
		a->turn = f->op.rope;
		a->op.rope.n_freq = 0;
	}
	if (f->norms || f->norms_whole || f->norms_by_head)
		bind_norms(b, a, f, at, layer);
	if (f->bias_qkv) {
		a->bias_q = bind_floats(b, f->gated ? 2 * q : q, 0, "layers.%d.%s.q_proj.bias", layer, at);
		a->bias_k = bind_floats(b, kv, 0, "layers.%d.%s.k_proj.bias", layer, at);
		a->bias_v = bind_floats(b, f->op.heads_kv * a->dim_v, 0, "layers.%d.%s.v_proj.bias", layer, at);
	}
	if (f->bias_o)
		a->bias_o = bind_floats(b, f->hidden, 0, "layers.%d.%s.o_proj.bias", layer, at);
	if (f->sinks)
		a->op.sinks = bind_floats(b, f->op.heads, 0, "layers.%d.%s.%s", layer, at,
		                          f->sinks_name ? f->sinks_name : "sinks");
}

int attention_keep(struct model *m, const struct attention_form *f, struct kv_place *out, struct err *err)
{
	const struct kv_group g = {
		.heads = f->op.heads_kv, .dim_k = f->op.dim, .dim_v = f->op.dim, .window = f->op.window
	};

	return model_kv_add(m, &g, out, err);
}

/* Are heads of values narrower than those of keys?  Then they are kept with zeros up to the size of a key. */
static bool widened(const struct attention *a)
{
	return a->dim_v && a->dim_v != a->op.dim; /* 0: a draft head that was bound by hand */
}

size_t attention_floats(const struct attention *a, int n_row)
{
	int heads = a->op.heads * a->op.dim, values = widened(a) ? a->op.heads_kv * a->op.dim : 0;

	return work_floats_of(n_row, a->q.rows) + work_floats_of(n_row, a->k.rows) +
	       work_floats_of(n_row, a->v_is_k ? 0 : a->v.rows) + work_floats_of(n_row, values) +
	       work_floats_of(n_row, a->gate.rows) + work_floats_of(n_row, heads) +
	       work_floats_of(n_row, widened(a) ? a->o.cols : 0);
}

/* Keys and values to k and v, which alias where the values are the keys; their products join q's. */
static int kv_jobs(struct pass *p, const struct attention *a, struct linear *job, float **k, float **v)
{
	size_t row = (size_t)a->k.rows, values = (size_t)a->v.rows, n = (size_t)p->n_row;

	*k = *v = NULL;
	if (a->no_kv)
		return 0;
	*k = *v = pass_floats(p, n * row);
	job[0] = (struct linear){ .w = &a->k, .out = *k, .ld = row, .bias = a->bias_k };
	if (a->v_is_k)
		return 1;
	*v = pass_floats(p, n * values);
	job[1] = (struct linear){ .w = &a->v, .out = *v, .ld = values, .bias = a->bias_v };
	return 2;
}

/* Returns v as the cache keeps it: scaled, and widened with zeros; NULL where v is. */
static float *values_kept(struct pass *p, const struct attention *a, float *v)
{
	const struct backend_ops *ops = p->be->ops;
	float *wide;

	if (v && a->values_scale != 0)
		ops->map(p, v, p->n_row, a->v.rows, a->values_scale, 0);
	if (!v || !widened(a))
		return v;
	wide = pass_floats(p, (size_t)p->n_row * (size_t)(a->op.heads_kv * a->op.dim));
	ops->heads(p, wide, a->op.dim, v, a->dim_v, p->n_row, a->op.heads_kv, NULL);
	return wide;
}

/* Returns what o reads: the heads that attention gives, without the zeros of widened values, times gates of heads. */
static float *mixed_read(struct pass *p, const struct attention *a, float *mixed, float *gate)
{
	const struct backend_ops *ops = p->be->ops;
	float *narrow = mixed;

	if (widened(a)) {
		narrow = pass_floats(p, (size_t)p->n_row * (size_t)a->o.cols);
		ops->heads(p, narrow, a->dim_v, mixed, a->op.dim, p->n_row, a->op.heads, NULL);
	}
	if (a->gate_by_head)
		ops->mul(p, narrow, gate, (size_t)a->op.heads, a->dim_v, p->n_row, a->o.cols);
	return narrow;
}

/* Norms of whole rows, or of each head with a gain of its own; gain NULL: none. */
static void norm_rows(struct pass *p, const struct attention *a, float *x, int cols, const float *gain)
{
	if (gain && a->norms_by_head) {
		p->be->ops->norm(p, x, x, p->n_row * (cols / a->op.dim), a->op.dim, NULL, a->op.eps);
		p->be->ops->mul(p, x, gain, 0, 1, p->n_row, cols);
	} else if (gain) {
		p->be->ops->norm(p, x, x, p->n_row, cols, gain, a->op.eps);
	}
}

/* Rotates queries and keys, whose norms come after it. */
static void turn_before(struct pass *p, const struct attention *a, float *q, float *k)
{
	struct attn turn = { .heads = a->op.heads, .dim = a->op.dim, .rope = a->turn };

	p->be->ops->kv_append(p, &turn, q, (size_t)a->q.rows, (size_t)turn.dim, NULL, NULL, NULL, 0);
	turn.heads = a->op.heads_kv;
	p->be->ops->kv_append(p, &turn, k, (size_t)a->k.rows, (size_t)turn.dim, NULL, NULL, NULL, 0);
}

void attention_forward(struct pass *p, const struct attention *a, float *out, bool add, const float *h,
                       const struct kv_view *kv, int layer)
{
	attention_over(p, a, out, add, h, NULL, 0, kv, layer);
}

void attention_over(struct pass *p, const struct attention *a, float *out, bool add, const float *h,
                    const int32_t *chosen, int most, const struct kv_view *kv, int layer)
{
	const struct backend_ops *ops = p->be->ops;
	size_t mark = p->work.used, q_row = (size_t)a->q.rows, q_head = q_row / (size_t)a->op.heads;
	float *q = pass_floats(p, (size_t)p->n_row * q_row), *gate = a->gated ? q + a->op.dim : NULL, *k, *v, *mixed;
	struct linear in[4] = { { .w = &a->q, .out = q, .ld = q_row, .bias = a->bias_q } };
	struct linear o = { .w = &a->o, .out = out, .ld = (size_t)a->o.rows, .bias = a->bias_o, .add = add };
	int n_in = 1 + kv_jobs(p, a, in + 1, &k, &v);
	const float *by;

	if (a->gate.rows) { /* lies like the queries, or has a number a head, which is a factor already */
		gate = pass_floats(p, (size_t)p->n_row * (size_t)a->gate.rows);
		in[n_in++] = (struct linear){ .w = &a->gate,
			                      .out = gate,
			                      .ld = (size_t)a->gate.rows,
			                      .act.kind = a->gate_by_head ? ACT_SIGMOID : ACT_NONE };
	}
	mixed = pass_floats(p, (size_t)p->n_row * (size_t)(a->op.heads * a->op.dim));
	ops->linear(p, in, n_in, h, p->n_row, a->q.cols);
	v = values_kept(p, a, v);
	norm_rows(p, a, q, a->q.rows, a->norm_q);
	norm_rows(p, a, k, a->k.rows, a->norm_k);
	if (a->turn.n_freq)
		turn_before(p, a, q, k);
	ops->kv_append(p, &a->op, q, q_row, q_head, k, v, kv, layer);
	by = a->gate_by_head ? NULL : gate;
	if (chosen)
		ops->attend_chosen(p, mixed, &a->op, q, by, q_row, q_head, chosen, most, kv, layer);
	else
		ops->attend(p, mixed, &a->op, q, by, q_row, q_head, kv, layer);
	ops->linear(p, &o, 1, mixed_read(p, a, mixed, gate), p->n_row, a->o.cols);
	p->work.used = mark;
}
