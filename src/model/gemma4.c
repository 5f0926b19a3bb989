/* gemma4.c - Gemma 4: text.
 *
 *     h = bf16(sqrt(hidden)) E[token]
 *     per layer:  h += rms(attention(rms(h)))
 *                 h += rms(a), a = mlp(rms(h)), with experts a = rms(mlp(rms(h))) + rms(mixture(rms(h)))
 *                 h += rms(P (gelu(G h) * e_i)), where there are embeddings per layer
 *                 h *= scalar_i
 *     logits = cap(rms(h) E')
 *
 * Values have a norm without a gain.  Layers that see everything have wider heads, rotate a quarter of them, and in the
 * larger models take their values from the keys' projection.  The last layers of the small ones have no keys and values
 * of their own: they read those of the last layer before them that sees as much.  The embeddings per layer of a token
 * are e = (rms(M h / sqrt(hidden)) + sqrt(dim) E'[token]) / sqrt(2), a row for each layer.  Routers read the residual
 * stream through a norm of their own. */
#include <math.h>
#include <string.h>

#include "cache/kinds.h"
#include "model/families.h"
#include "model/gemma4.h"
#include "model/work.h"

/* ---- config ---- */

static void read_moe(struct conf *c, struct gemma4_plan *p)
{
	struct moe_form *m = &p->all.moe;

	if (!conf_bool_or(c, "enable_moe_block", false))
		return;
	m->experts = conf_int(c, "num_experts", 1, 1 << 16);
	m->top_k = conf_int(c, "top_k_experts", 1, m->experts);
	m->inner = conf_int(c, "moe_intermediate_size", 1, CONF_DIM_MAX);
	m->normalise = true;
	m->act = p->all.ffn.act;
	m->at = "";
	m->router = "router.proj";
}

/* The form of layers that see everything, from that of the others. */
static void read_full(struct decoder *d, struct conf *c, struct gemma4_plan *p)
{
	struct rotary_defaults r = { .theta = 1e6, .partial = 0.25, .kind = "full_attention" };
	struct attn *op = &p->full.op;

	p->full = p->all.attn;
	op->dim = conf_int_or(c, "global_head_dim", 512, 2, CONF_HEAD_DIM_MAX);
	p->full.v_is_k = conf_bool_or(c, "attention_k_eq_v", false);
	if (p->full.v_is_k)
		op->heads_kv = conf_int_or(c, "num_global_key_value_heads", op->heads_kv, 1, CONF_HEADS_MAX);
	if (!c->code && op->heads % op->heads_kv)
		conf_fail(c, E_FORMAT, "num_attention_heads: %d is not a multiple of num_global_key_value_heads %d",
		          op->heads, op->heads_kv);
	rotary_read(&op->rope, c, &r, op->dim, &d->m.shape.ctx_max, &d->m.vectors);
}

void gemma4_read(struct gemma4 *g, struct conf *c, struct gemma4_plan *p)
{
	struct decoder *d = &g->d;
	struct rotary_defaults local = { .theta = 1e4, .partial = 1, .kind = "sliding_attention" };
	struct attention_form *a = &p->all.attn;
	struct shape *s = &d->m.shape;

	decoder_read(d, c, &(struct decoder_defaults){ .ctx = 131072, .dim = 256, .eps = 1e-6, .tied = true }, &p->all);
	if (c->code)
		return;
	a->norms = true;
	a->bias_qkv = a->bias_o = conf_bool_or(c, "attention_bias", false);
	a->op.scale = 1;
	a->op.v_norm = true;
	rotary_read(&a->op.rope, c, &local, a->op.dim, &s->ctx_max, &d->m.vectors);
	read_full(d, c, p);
	a->op.both_ways = !strcmp(conf_str_or(c, "use_bidirectional_attention", ""), "vision"); /* not full layers */
	decoder_windows(d, c, 6, &p->all);
	if (!conf_get(c, "layer_types"))
		p->all.local[s->layers - 1] = false;
	read_moe(c, p);
	p->shared = conf_int_or(c, "num_kv_shared_layers", p->of ? s->layers : 0, p->of ? s->layers : 0,
	                        p->of ? s->layers : s->layers - 1);
	p->wide = conf_bool_or(c, "use_double_wide_mlp", false);
	g->dim = conf_int_or(c, "hidden_size_per_layer_input", 0, 0, CONF_HEAD_DIM_MAX);
	if (g->dim && conf_int_or(c, "vocab_size_per_layer_input", s->vocab, 1, CONF_VOCAB_MAX) < s->vocab)
		conf_fail(c, E_UNSUPPORTED, "vocab_size_per_layer_input: less than vocab_size %d", s->vocab);
	if (!p->all.ffn.inner)
		conf_int(c, "intermediate_size", 1, CONF_DIM_MAX);
}

/* ---- tensors ---- */

static struct attention_form form_of(const struct decoder *d, const struct gemma4_plan *p, int i)
{
	struct attention_form f = p->all.local[i] ? decoder_attention(&p->all, i) : p->full;

	f.no_kv = i >= d->m.shape.layers - p->shared;
	return f;
}

/* The last layer of the model, or of the one whose keys and values are borrowed, that has its own and sees as much as
 * layer i; NULL: there is none. */
static const struct decoder_layer *source_of(const struct decoder *d, const struct gemma4_plan *p, int i)
{
	const struct decoder *of = p->of ? &p->of->d : d;
	int at = of->m.shape.layers - 1;

	for (; at >= 0; at--) {
		const struct attention *a = &of->layer[at].attn;

		if ((p->of || at < d->m.shape.layers - p->shared) && !a->no_kv && !a->op.window == !p->all.local[i])
			return &of->layer[at];
	}
	return NULL;
}

/* The place of the keys and values that layer i reads and does not write. */
static void bind_source(struct binder *b, struct decoder *d, const struct gemma4_plan *p, int i)
{
	const struct decoder_layer *from = source_of(d, p, i);
	const struct attn *own = &d->layer[i].attn.op;

	if (b->code)
		return;
	if (!from)
		b->code = err_set(b->err, E_FORMAT,
		                  "%s: num_kv_shared_layers: %d leaves layer %d no layer to share with",
		                  b->st->config_path, p->shared, i);
	else if (p->of && (from->attn.op.window != own->window || own->window == 1))
		b->code = err_set(b->err, E_UNSUPPORTED,
		                  "%s: layer %d reads a window of %d, and the model has one of %d", b->st->config_path,
		                  i, own->window, from->attn.op.window);
	else if (p->of && (from->attn.op.dim != own->dim || from->attn.op.heads_kv != own->heads_kv))
		b->code = err_set(b->err, E_UNSUPPORTED,
		                  "%s: layer %d reads keys of %d heads of %d, and the model has %d heads of %d",
		                  b->st->config_path, i, own->heads_kv, own->dim, from->attn.op.heads_kv,
		                  from->attn.op.dim);
	else
		d->layer[i].kv = from->kv;
}

static void bind_attention(struct binder *b, struct decoder *d, const struct gemma4_plan *p, int i)
{
	struct attention_form f = form_of(d, p, i);

	decoder_bind_attention(b, d, &f, i);
	if (f.no_kv)
		bind_source(b, d, p, i);
}

static void bind_mixture(struct binder *b, struct decoder *d, const struct gemma4_plan *p, struct gemma4_more *x, int i)
{
	int hidden = d->m.shape.hidden;
	const float *gain = bind_floats(b, hidden, 0, "layers.%d.router.scale", i);
	float *scaled;

	ffn_bind_moe(b, &x->mixture, hidden, &p->all.moe, i);
	x->mixture.moe.expert_scale = bind_floats(b, p->all.moe.experts, 0, "layers.%d.router.per_expert_scale", i);
	x->norm_mlp = bind_floats(b, hidden, 0, "layers.%d.post_feedforward_layernorm_1.weight", i);
	x->norm_in = bind_floats(b, hidden, 0, "layers.%d.pre_feedforward_layernorm_2.weight", i);
	x->norm_out = bind_floats(b, hidden, 0, "layers.%d.post_feedforward_layernorm_2.weight", i);
	if (b->code)
		return;
	x->norm_router = scaled = bind_table(b, (size_t)hidden);
	for (int k = 0; k < hidden; k++)
		scaled[k] = gain[k] / sqrtf((float)hidden);
	d->m.shape.layers_moe++;
}

void gemma4_bind_layer(struct binder *b, struct gemma4 *g, const struct gemma4_plan *p, int i)
{
	struct decoder *d = &g->d;
	struct decoder_layer *y = &d->layer[i];
	struct gemma4_more *x = &g->more[i];
	struct ffn_form ffn = p->all.ffn;
	int hidden = d->m.shape.hidden;
	const float *scalar;

	bind_attention(b, d, p, i);
	if (p->wide && i >= d->m.shape.layers - p->shared)
		ffn.inner *= 2;
	ffn_bind_dense(b, &y->ffn, hidden, &ffn, i);
	y->norm_attn = bind_floats(b, hidden, 0, "layers.%d.input_layernorm.weight", i);
	y->join_attn = (struct join){ bind_floats(b, hidden, 0, "layers.%d.post_attention_layernorm.weight", i), d->eps,
		                      0 };
	y->norm_ffn = bind_floats(b, hidden, 0, "layers.%d.pre_feedforward_layernorm.weight", i);
	y->join_ffn = (struct join){ bind_floats(b, hidden, 0, "layers.%d.post_feedforward_layernorm.weight", i),
		                     d->eps, 0 };
	if (p->all.moe.experts)
		bind_mixture(b, d, p, x, i);
	if (g->dim) {
		bind_weight(b, &x->gate, g->dim, hidden, "layers.%d.per_layer_input_gate", i);
		bind_weight(b, &x->out, hidden, g->dim, "layers.%d.per_layer_projection", i);
		x->join = (struct join){ bind_floats(b, hidden, 0, "layers.%d.post_per_layer_input_norm.weight", i),
			                 d->eps, 0 };
	}
	scalar = bind_floats(b, 1, 0, "layers.%d.layer_scalar", i);
	x->scalar = scalar ? *scalar : 1;
}

static int bind(struct model *m, struct store *st, struct err *err)
{
	struct gemma4 *g = (struct gemma4 *)m;
	struct binder b = { .st = st, .m = m, .err = err };
	struct conf c = decoder_conf(st, err);
	struct gemma4_plan p = { 0 };
	int layers;

	gemma4_read(g, &c, &p);
	if (c.code)
		return c.code;
	layers = m->shape.layers;
	decoder_bind(&b, &g->d, &p.all, 0);
	g->d.trunk.embed_scale = bf16_to_float(float_to_bf16(sqrtf((float)m->shape.hidden)));
	g->d.trunk.logit_cap = (float)conf_double_or(&c, "final_logit_softcapping", 0);
	g->more = arena_zalloc(&m->arena, size_mul((size_t)layers, sizeof *g->more));
	if (g->dim) {
		bind_weight(&b, &g->table, m->shape.vocab, layers * g->dim, "embed_tokens_per_layer");
		bind_looked_up(&b, &g->table);
		bind_weight(&b, &g->proj, layers * g->dim, m->shape.hidden, "per_layer_model_projection");
		g->norm = bind_floats(&b, g->dim, 0, "per_layer_projection_norm.weight");
	}
	for (int i = 0; i < layers && !b.code; i++)
		gemma4_bind_layer(&b, g, &p, i);
	if (!b.code) {
		store_ignore(st, "*.self_attn.k_proj.weight", "of layers that share another's keys");
		store_ignore(st, "*.self_attn.v_proj.weight", "of layers that share another's values");
		store_ignore(st, "*.self_attn.k_norm.weight", "of layers that share another's keys");
		decoder_ignore(st);
	}
	return b.code ? b.code : c.code;
}

/* ---- forward ---- */

/* Embeddings per layer, [n_row][layers][dim], from the embeddings x. */
static float *embed_layers(const struct gemma4 *g, struct pass *p, const float *x)
{
	const struct backend_ops *ops = p->be->ops;
	int cols = g->proj.rows, hidden = g->d.trunk.hidden, rows = p->n_row;
	float *e = pass_floats(p, (size_t)rows * (size_t)cols), *own;
	size_t mark = p->work.used;
	struct linear job = { .w = &g->proj, .out = e, .ld = (size_t)cols };

	own = pass_floats(p, (size_t)rows * (size_t)cols);
	ops->embed(p, own, &g->table);
	ops->linear(p, &job, 1, x, rows, hidden);
	ops->map(p, e, rows, cols, 1.0f / sqrtf((float)hidden), 0);
	ops->norm(p, e, e, rows * (cols / g->dim), g->dim, g->norm, g->d.eps);
	ops->add(p, e, own, rows, cols, sqrtf((float)g->dim));
	ops->map(p, e, rows, cols, sqrtf(0.5f), 0);
	p->work.used = mark;
	return e;
}

/* h = rms(h) + rms(mixture(x)) where h is the mlp's output. */
static void mixture(const struct gemma4 *g, struct pass *p, const struct gemma4_more *y, const float *x, float *h)
{
	const struct backend_ops *ops = p->be->ops;
	int hidden = g->d.trunk.hidden, n = p->n_row;
	size_t mark = p->work.used;
	float *in = pass_floats(p, (size_t)n * (size_t)hidden), *by = pass_floats(p, (size_t)n * (size_t)hidden);

	ops->norm(p, h, h, n, hidden, y->norm_mlp, g->d.eps);
	ops->norm(p, in, x, n, hidden, y->norm_in, g->d.eps);
	ops->norm(p, by, x, n, hidden, y->norm_router, g->d.eps);
	ops->moe(p, in, false, &y->mixture.moe, in, by, n, hidden);
	ops->norm(p, in, in, n, hidden, y->norm_out, g->d.eps);
	ops->add(p, h, in, n, hidden, 1);
	p->work.used = mark;
}

/* x += rms(P (gelu(G x) * e)); e: of the layer, rows that are those of all layers apart; h is spoiled. */
static void add_embedding(const struct gemma4 *g, struct pass *p, const struct gemma4_more *y, float *x, const float *e,
                          float *h)
{
	const struct backend_ops *ops = p->be->ops;
	int hidden = g->d.trunk.hidden, n = p->n_row;
	size_t mark = p->work.used, dim = (size_t)g->dim;
	float *gated = pass_floats(p, (size_t)n * dim);
	struct linear gate = { .w = &y->gate, .out = gated, .ld = dim, .act = { .kind = ACT_GELU_TANH } };
	struct linear out = { .w = &y->out, .out = h, .ld = (size_t)hidden };

	ops->linear(p, &gate, 1, x, n, hidden);
	ops->mul(p, gated, e, (size_t)g->proj.rows, 1, n, g->dim);
	ops->linear(p, &out, 1, gated, n, g->dim);
	join_add(p, &y->join, x, h, hidden);
	p->work.used = mark;
}

void gemma4_feed(const struct gemma4 *g, struct pass *p, int i, float *x, float *h, const float *e)
{
	const struct backend_ops *ops = p->be->ops;
	const struct decoder_layer *y = &g->d.layer[i];
	const struct gemma4_more *z = &g->more[i];
	int hidden = g->d.trunk.hidden, n = p->n_row;

	ops->norm(p, h, x, n, hidden, y->norm_ffn, g->d.eps);
	ffn_forward(p, &y->ffn, h, false, h);
	if (z->mixture.moe.experts)
		mixture(g, p, z, x, h);
	join_add(p, &y->join_ffn, x, h, hidden);
	if (e)
		add_embedding(g, p, z, x, e + i * g->dim, h);
	if (z->scalar != 1)
		ops->map(p, x, n, hidden, z->scalar, 0);
}

static void forward(struct model *m, struct pass *p)
{
	const struct gemma4 *g = (const struct gemma4 *)m;
	float *x = trunk_begin(p, &g->d.trunk), *e = NULL;
	float *h = pass_floats(p, (size_t)p->n_row * (size_t)m->shape.hidden);

	if (g->dim)
		e = embed_layers(g, p, x);
	for (int i = 0; i < m->shape.layers; i++) {
		decoder_attend(&g->d, p, i, x, h);
		gemma4_feed(g, p, i, x, h, e);
		trunk_tap(p, &g->d.trunk, i, x);
	}
	trunk_end(p, &g->d.trunk, x);
}

static size_t work_floats(const struct model *m, int n_row, int n_logit)
{
	const struct gemma4 *g = (const struct gemma4 *)m;
	size_t most = decoder_work_floats(m, n_row, n_logit), more = 2 * work_floats_of(n_row, m->shape.hidden);

	return most + more + (g->dim ? 2 * work_floats_of(n_row, g->proj.rows) + work_floats_of(n_row, g->dim) : 0);
}

static const char *const arch[] = { "gemma4_text", "gemma4", "gemma4_unified_text", "gemma4_unified", NULL };

const struct model_ops gemma4_ops = {
	.arch = arch,
	.size = sizeof(struct gemma4),
	.bind = bind,
	.forward = forward,
	.work_floats = work_floats,
};
