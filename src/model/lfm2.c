/* lfm2.c - LFM2, dense and with experts: short convolutions between gates, and attention.
 *
 *     h = E[token];  per layer:  h += op(rms(h));  h += ffn(rms(h));  logits = rms(h) E'
 *     op = attention, or  [B | C | x] = in_proj u,  out_proj (C conv(B x))
 *
 * A convolution's layer remembers the last width - 1 columns of B x and nothing else. The last norm is
 * called embedding_norm. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cache/kinds.h"
#include "model/decoder.h"
#include "model/families.h"
#include "model/mamba.h"
#include "model/stack.h"
#include "model/work.h"

struct plan {
	struct attention_form attn;
	struct ffn_form ffn;
	struct moe_form moe;
	int dense; /* first layers without experts */
	bool *full;
	int width;
	bool bias, tied;
};

/* ---- the convolution's block ---- */

enum { TO_B, TO_C, TO_X, TO_COUNT };

struct short_conv {
	struct weight in[TO_COUNT], out;
	const float *bias_in, *bias_out; /* or NULL */
	struct conv conv;
	int width;
	bool centred; /* of a model that sees whole texts: as many rows after a row as before it, zeros outside of the text */
};

/* out = the sum of w[j] times the row j - width / 2 away, in the order of j, for texts that the pass has whole.  u has a row
 * more than the pass, of zeros. */
static void centred_conv(struct pass *p, const struct short_conv *x, float *out, const float *u, float *away)
{
	const struct backend_ops *ops = p->be->ops;
	int cols = x->out.rows, *index = xcalloc((size_t)p->n_row, sizeof *index);

	for (int j = 0; j < x->width; j++) {
		float *to = j ? away : out;

		for (int i = 0; i < p->n_item; i++)
			for (int r = p->row[i], end = r + p->span[i].n, from = r; r < end; r++) {
				int at = r + j - x->width / 2;

				index[r] = at >= from && at < end ? at : p->n_row;
			}
		p->picked.row = index;
		p->picked.n = p->n_row;
		ops->gather(p, to, u, index, p->n_row, cols);
		ops->mul(p, to, x->conv.w + (size_t)j * (size_t)cols, 0, 1, p->n_row, cols);
		if (j)
			ops->add(p, out, away, p->n_row, cols, 1.0f);
	}
	if (x->conv.bias)
		ops->affine(p, out, p->n_row, cols, NULL, x->conv.bias, -INFINITY, INFINITY);
	p->picked.row = NULL;
	p->picked.n = 0;
	free(index);
}

static void conv_run(struct pass *p, const struct block *y, float *out, bool add, const float *h,
                     const struct stack_views *v)
{
	const struct backend_ops *ops = p->be->ops;
	const struct short_conv *x = y->own;
	size_t mark = p->work.used, hidden = (size_t)x->out.rows, n = (size_t)p->n_row;
	float *in[TO_COUNT], *mixed;
	struct linear job[TO_COUNT];
	struct linear o = { .w = &x->out, .out = out, .ld = hidden, .bias = x->bias_out, .add = add };

	for (int i = 0; i < TO_COUNT; i++) {
		in[i] = pass_floats(p, (n + (x->centred && i == TO_X)) * hidden);
		job[i] = (struct linear){ .w = &x->in[i],
			                  .out = in[i],
			                  .ld = hidden,
			                  .bias = x->bias_in ? x->bias_in + (size_t)i * hidden : NULL };
	}
	mixed = pass_floats(p, n * hidden);
	ops->linear(p, job, TO_COUNT, h, p->n_row, x->out.rows);
	ops->mul(p, in[TO_X], in[TO_B], hidden, 1, p->n_row, x->out.rows);
	if (x->centred) {
		ops->affine(p, in[TO_X] + n * hidden, 1, x->out.rows, NULL, NULL, 0, 0);
		centred_conv(p, x, mixed, in[TO_X], in[TO_B]);
	} else {
		ops->conv(p, mixed, &x->conv, 1, in[TO_X], 0, x->out.rows, v->state, y->layer);
	}
	ops->mul(p, mixed, in[TO_C], hidden, 1, p->n_row, x->out.rows);
	ops->linear(p, &o, 1, mixed, p->n_row, x->out.cols);
	p->work.used = mark;
}

static size_t conv_room(const struct block *y, int n_row)
{
	const struct short_conv *x = y->own;

	return (TO_COUNT + 1) * work_floats_of(n_row, x->out.rows) +
	       (x->centred ? work_floats_of(1, x->out.rows) + 16 : 0);
}

static const struct block_ops conv_block = { conv_run, conv_room };

static void add_conv(struct stack *s, struct binder *b, const struct plan *p, const float *norm, int layer)
{
	struct short_conv *x = arena_zalloc(&b->m->arena, sizeof *x);
	int hidden = s->m.shape.hidden;
	struct weight in;

	bind_weight(b, &in, TO_COUNT * hidden, hidden, "layers.%d.conv.in_proj", layer);
	bind_weight(b, &x->out, hidden, hidden, "layers.%d.conv.out_proj", layer);
	x->conv.w = mamba_conv(b, bind_floats(b, hidden * p->width, 0, "layers.%d.conv.conv.weight", layer), hidden,
	                       p->width, NULL);
	if (p->bias) {
		x->bias_in = bind_floats(b, TO_COUNT * hidden, 0, "layers.%d.conv.in_proj.bias", layer);
		x->bias_out = bind_floats(b, hidden, 0, "layers.%d.conv.out_proj.bias", layer);
		x->conv.bias = bind_floats(b, hidden, 0, "layers.%d.conv.conv.bias", layer);
	}
	for (int i = 0; i < TO_COUNT && !b->code; i++)
		x->in[i] = weight_rows(&in, i * hidden, hidden);
	x->width = p->width;
	x->centred = s->m.shape.whole;
	if (x->centred) { /* which remembers nothing */
		stack_add(s, &conv_block, x, norm);
		return;
	}
	stack_add(s, &conv_block, x, norm)->layer = s->m.shape.layers_rec++;
	s->m.shape.state = (struct state_shape){ .layers = s->m.shape.layers_rec,
		                                 .conv_channels = hidden,
		                                 .conv_width = p->width };
}

/* ---- config ---- */

static void read_layers(struct conf *c, struct plan *p, int layers, struct arena *a)
{
	if (c->code)
		return;
	p->full = arena_zalloc(a, (size_t)layers * sizeof *p->full);
	if (conf_layer_types(c, "layer_types", layers, "full_attention", "conv", p->full))
		return;
	if (!conf_layers_named(c, "full_attn_idxs", 0, layers, p->full))
		conf_fail(c, E_MISSING, "layer_types: missing, and full_attn_idxs too");
}

/* Two thirds of the width, times a factor, up to a multiple. */
static int adjusted(struct conf *c, int inner)
{
	int of = conf_int_or(c, "block_multiple_of", 256, 1, CONF_DIM_MAX);
	double by = conf_double_or(c, "block_ffn_dim_multiplier", 1);

	if (!conf_bool_or(c, "block_auto_adjust_ff_dim", true))
		return inner;
	inner = (int)(by * (double)(2 * (int64_t)inner / 3));
	return (inner + of - 1) / of * of;
}

static void read_ffn(struct stack *s, struct conf *c, struct plan *p)
{
	struct moe_form *m = &p->moe;

	p->ffn = (struct ffn_form){ .act = { .kind = ACT_SILU }, .at = "feed_forward", .proj = { "w1", "w3", "w2" } };
	p->ffn.inner = conf_int(c, conf_get(c, "block_ff_dim") ? "block_ff_dim" : "intermediate_size", 1, CONF_DIM_MAX);
	m->experts = conf_int_or(c, "num_experts", 0, 0, 1 << 16);
	if (!m->experts) {
		p->ffn.inner = adjusted(c, p->ffn.inner);
		p->dense = s->m.shape.layers;
		return;
	}
	p->dense = conf_int(c, "num_dense_layers", 0, CONF_LAYERS_MAX);
	m->top_k = conf_int(c, "num_experts_per_tok", 1, m->experts);
	m->inner = conf_int(c, "moe_intermediate_size", 1, CONF_DIM_MAX);
	m->normalise = conf_bool_or(c, "norm_topk_prob", true);
	m->norm_eps = 1e-6f;
	m->scale = (float)conf_double_or(c, "routed_scaling_factor", 1);
	m->route = ROUTE_SIGMOID;
	m->act.kind = ACT_SILU;
	m->at = "feed_forward";
	m->select_bias = conf_bool_or(c, "use_expert_bias", true) ? "expert_bias" : NULL;
	memcpy(m->proj, p->ffn.proj, sizeof m->proj);
}

/* "Lfm2BidirectionalModel", "Lfm2BidirForMaskedLM" and other classes with attention both ways. */
static bool sees_both_ways(const struct conf *c)
{
	const char *arch = json_str(json_at(conf_get(c, "architectures"), 0), NULL);

	return arch && !strncmp(arch, "Lfm2Bidir", 9);
}

static void read_config(struct stack *s, struct conf *c, struct plan *p)
{
	struct rotary_defaults r = { .theta = 1e6, .partial = 1 };

	stack_read(s, c);
	s->trunk.eps = (float)conf_double_or(c, "norm_eps", 1e-5);
	p->tied = conf_bool_or(c, "tie_word_embeddings", true);
	p->width = conf_int(c, "conv_L_cache", 2, 8);
	p->bias = conf_bool_or(c, "conv_bias", false);
	stack_read_attention(s, c, &p->attn);
	p->attn.norms = true;
	p->attn.q_norm = "q_layernorm";
	p->attn.k_norm = "k_layernorm";
	p->attn.o_proj = "out_proj";
	s->m.shape.whole = sees_both_ways(c);
	p->attn.op.both_ways = s->m.shape.whole;
	rotary_read(&p->attn.op.rope, c, &r, p->attn.op.dim, &s->m.shape.ctx_max, &s->m.vectors);
	read_layers(c, p, s->m.shape.layers, &s->m.arena);
	read_ffn(s, c, p);
}

static void bind_layer(struct stack *s, struct binder *b, const struct plan *p, int i)
{
	const float *norm = bind_floats(b, s->m.shape.hidden, 0, "layers.%d.operator_norm.weight", i);
	struct ffn_form ffn = p->ffn;

	if (p->full[i])
		stack_add_attention(s, b, &p->attn, norm, i);
	else
		add_conv(s, b, p, norm, i);
	norm = bind_floats(b, s->m.shape.hidden, 0, "layers.%d.ffn_norm.weight", i);
	if (i < p->dense && bind_has(b, "layers.%d.feed_forward.gate_proj.weight", i))
		memset(ffn.proj, 0, sizeof ffn.proj); /* as mlx renames them with experts */
	if (i < p->dense)
		stack_add_ffn(s, b, &ffn, norm, i);
	else
		stack_add_moe(s, b, &p->moe, norm, i);
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
	stack_init(s, &b, 2 * m->shape.layers, &(struct trunk_names){ "embed_tokens", "embedding_norm" }, p.tied);
	for (int i = 0; i < m->shape.layers && !b.code; i++) {
		bind_layer(s, &b, &p, i);
		stack_end_layer(s, i);
	}
	if (!b.code && st->text != st->config)
		decoder_ignore(st);
	return b.code;
}

static const char *const arch[] = { "lfm2", "lfm2_moe", "lfm2_vl", "lfm2-vl", NULL };

const struct model_ops lfm2_ops = {
	.arch = arch,
	.size = sizeof(struct stack),
	.bind = bind,
	.forward = stack_forward,
	.work_floats = stack_work_floats,
};
