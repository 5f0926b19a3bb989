/* eagle3.c - EAGLE-3 draft heads (arXiv 2503.01840), in the layouts of SafeAILab and of speculators.
 *
 *     g = fc [outputs of three of the model's layers];  ahead: the head's own hidden
 *     h = rms(g);  x = g, or h (norm_before_residual)
 *     x += attention [rms(E[token]) | h];  x += mlp(rms(x));  logits = rms(x) lm_head'
 *
 * x is the head's hidden.  The logits are of some of the model's tokens: d2t has for each how far the model's number lies
 * beyond the head's.  Published heads have no row for the first token, which has no token before it: here its row is
 * there, and no other sees it. */
#include <math.h>
#include <string.h>

#include "cache/kinds.h"
#include "model/attention.h"
#include "model/ffn.h"
#include "model/head.h"
#include "model/rotary.h"
#include "model/trunk.h"
#include "model/work.h"

struct eagle3 {
	struct model m;
	struct weight embed, fc, head;
	float embed_scale, eps;
	bool before_residual;
	const float *norm_fc; /* of what the model gave; NULL: none */
	const float *norm_embed, *norm_given, *norm_post, *norm;
	struct attention attn;
	struct ffn ffn;
};

static bool eagle3_is(const struct store *st)
{
	const char *name = json_str(json_get(st->config, "speculators_model_type"), NULL);
	const struct json *list = json_get(st->config, "architectures");

	if (name)
		return !strcmp(name, "eagle3");
	for (size_t i = 0; i < json_len(list); i++) {
		name = json_str(json_at(list, i), NULL);
		if (name && strstr(name, "Eagle3"))
			return true;
	}
	return false;
}

/* ---- config ---- */

static void read_taps(struct eagle3 *e, struct conf *c, const struct model *of)
{
	static const char key[] = "eagle_aux_hidden_state_layer_ids";
	struct conf own = {
		.j = conf_get(c, "eagle_config"), .file = c->file, .where = "eagle_config.", .err = c->err
	};
	const struct json *list = conf_list(conf_get(c, key) ? c : &own, key);
	int n = of->shape.layers;

	if (own.code && !c->code)
		c->code = own.code;
	/* Number i is what layer i reads: the output of the one before. */
	if (json_len(list))
		head_taps(c, &e->m, of, list, key, 1);
	else
		head_taps_of(c, &e->m, of, (const int[]){ 1, n / 2 - 1, n - 4 }, 3, key);
}

static void read_config(struct eagle3 *e, const struct model *of, struct conf *top, struct conf *c)
{
	struct rotary_defaults r = { .theta = 10000, .partial = 1 };
	struct shape *s = &e->m.shape;
	struct attn *op = &e->attn.op;

	s->layers = 1;
	s->hidden = conf_int(c, "hidden_size", 1, CONF_DIM_MAX);
	s->ctx_max = conf_int(c, "max_position_embeddings", 1, CONF_CTX_MAX);
	s->vocab = conf_int_or(top, "draft_vocab_size", of->shape.vocab, 1, of->shape.vocab);
	op->heads = conf_int(c, "num_attention_heads", 1, CONF_HEADS_MAX);
	op->heads_kv = conf_int_or(c, "num_key_value_heads", op->heads, 1, CONF_HEADS_MAX);
	op->dim = conf_int_or(c, "head_dim", s->hidden / op->heads, 2, CONF_HEAD_DIM_MAX);
	op->eps = e->eps = (float)conf_double(c, "rms_norm_eps");
	if (conf_int_or(c, "num_hidden_layers", 1, 1, CONF_LAYERS_MAX) != 1)
		conf_fail(c, E_UNSUPPORTED, "num_hidden_layers: a draft head of several layers is not done");
	if (conf_bool_or(c, "attention_bias", false) || conf_bool_or(c, "mlp_bias", false))
		conf_fail(c, E_UNSUPPORTED, "attention_bias, mlp_bias: not done in a draft head");
	if (!c->code && op->heads % op->heads_kv)
		conf_fail(c, E_FORMAT, "num_attention_heads: %d is not a multiple of num_key_value_heads %d", op->heads,
		          op->heads_kv);
	e->ffn.act = ffn_read_act(c, ACT_NONE);
	e->before_residual = conf_bool_or(top, "norm_before_residual", false);
	if (c->code || top->code)
		return;
	op->scale = 1.0f / sqrtf((float)op->dim);
	op->first = 1;
	rotary_read(&op->rope, c, &r, op->dim, &s->ctx_max, &e->m.vectors);
	shape_kv_plain(s, 1, op->heads_kv, op->dim);
	read_taps(e, top, of);
}

/* ---- tensors ---- */

static void bind_tokens(struct binder *b, struct eagle3 *e)
{
	struct shape *s = &e->m.shape;
	const int64_t *ahead = NULL;
	int32_t *token;

	if (b->code || (s->vocab == s->head.vocab && !store_find(b->st, "d2t")))
		return;
	b->code = store_ints(b->st, &e->m.arena, "d2t", s->vocab, &ahead, b->err);
	if (b->code)
		return;
	token = arena_alloc(&e->m.arena, (size_t)s->vocab * sizeof *token);
	for (int i = 0; i < s->vocab; i++) {
		if (ahead[i] < -i || ahead[i] >= s->head.vocab - i) {
			b->code = err_set(b->err, E_FORMAT, "%s: d2t: entry %d is %lld; the model has %d tokens",
			                  b->st->dir, i, (long long)ahead[i], s->head.vocab);
			return;
		}
		token[i] = (int32_t)(i + ahead[i]);
	}
	s->head.token = token;
	store_ignore(b->st, "t2d", "what d2t says, the other way");
}

static void bind_embed(struct binder *b, struct eagle3 *e, const struct model *of)
{
	const struct trunk *t = of->trunk;

	e->embed_scale = 1;
	if (bind_has(b, "embed_tokens.weight")) {
		bind_weight(b, &e->embed, of->shape.vocab, e->m.shape.hidden, "embed_tokens");
		bind_rows_only(b, &e->embed);
		return;
	}
	e->embed = t->embed;
	e->embed_scale = t->embed_scale;
	if (!b->code && e->m.shape.hidden != of->shape.hidden)
		b->code = err_set(b->err, E_UNSUPPORTED,
		                  "%s: hidden_size: %d, the model has %d, and there is no embed_tokens",
		                  b->st->config_path, e->m.shape.hidden, of->shape.hidden);
}

/* The model's, in a file without one. */
static void bind_head(struct binder *b, struct eagle3 *e, const struct model *of)
{
	const struct shape *s = &e->m.shape;

	if (bind_has(b, "lm_head.weight") || s->vocab != of->shape.vocab || s->hidden != of->shape.hidden)
		bind_weight(b, &e->head, s->vocab, s->hidden, "lm_head");
	else
		e->head = of->trunk->head;
}

static void bind_layer(struct binder *b, struct eagle3 *e, const char *at, int inner)
{
	struct attention *a = &e->attn;
	int hidden = e->m.shape.hidden, q = a->op.heads * a->op.dim, kv = a->op.heads_kv * a->op.dim;

	e->norm_embed = bind_floats(b, hidden, 0, "%s.input_layernorm.weight", at);
	e->norm_given = bind_floats(b, hidden, 0, "%s.hidden_norm.weight", at);
	e->norm_post = bind_floats(b, hidden, 0, "%s.post_attention_layernorm.weight", at);
	bind_weight(b, &a->q, q, 2 * hidden, "%s.self_attn.q_proj", at);
	bind_weight(b, &a->k, kv, 2 * hidden, "%s.self_attn.k_proj", at);
	bind_weight(b, &a->v, kv, 2 * hidden, "%s.self_attn.v_proj", at);
	bind_weight(b, &a->o, hidden, q, "%s.self_attn.o_proj", at);
	e->ffn.hidden = hidden;
	bind_weight(b, &e->ffn.gate, inner, hidden, "%s.mlp.gate_proj", at);
	bind_weight(b, &e->ffn.up, inner, hidden, "%s.mlp.up_proj", at);
	bind_weight(b, &e->ffn.down, hidden, inner, "%s.mlp.down_proj", at);
}

static int bind_into(struct eagle3 *e, const struct model *of, struct store *st, struct err *err)
{
	static const char *const prefix[] = { "", "model.", NULL };
	struct binder b = { .st = st, .m = &e->m, .err = err };
	struct conf top = { .j = st->config, .file = st->config_path, .where = "", .err = err }, c = top;
	int hidden, inner;

	if (json_get(st->config, "transformer_layer_config")) {
		c.j = json_get(st->config, "transformer_layer_config");
		c.where = "transformer_layer_config.";
	}
	read_config(e, of, &top, &c);
	inner = conf_int(&c, "intermediate_size", 1, CONF_DIM_MAX);
	if (top.code || c.code)
		return top.code ? top.code : c.code;
	hidden = e->m.shape.hidden;
	b.prefix = store_prefix(st, prefix, "fc.weight");
	if (!b.prefix)
		return store_missing(st, "fc.weight", err);
	bind_weight(&b, &e->fc, hidden, e->m.shape.carry, "fc");
	if (conf_bool_or(&top, "norm_before_fc", false))
		e->norm_fc = bind_floats(&b, e->m.shape.carry, 0, "input_norm.weight");
	bind_layer(&b, e, bind_has(&b, "midlayer.input_layernorm.weight") ? "midlayer" : "layers.0", inner);
	e->norm = bind_floats(&b, hidden, 0, "norm.weight");
	bind_head(&b, e, of);
	bind_embed(&b, e, of);
	bind_tokens(&b, e);
	return b.code ? b.code : top.code;
}

/* ---- forward ---- */

static size_t work_floats(const struct model *m, int n_row, int n_logit)
{
	const struct eagle3 *e = (const struct eagle3 *)m;
	size_t row = work_floats_of(n_row, m->shape.hidden);
	size_t most = work_max(attention_floats(&e->attn, n_row), ffn_floats(&e->ffn, n_row));

	most = work_max(most, e->norm_fc ? work_floats_of(n_row, m->shape.carry) : 0);
	most = work_max(most, 2 * work_floats_of(n_logit, m->shape.hidden));
	return 2 * row + work_floats_of(n_row, 2 * m->shape.hidden) + most;
}

/* The hidden input of a row: the head's own hidden row, or the model's outputs for the token before. */
static void fuse(const struct eagle3 *e, struct pass *p, float *x)
{
	const struct backend_ops *ops = p->be->ops;
	size_t mark = p->work.used;
	struct linear fc = { .w = &e->fc, .out = x, .ld = (size_t)e->m.shape.hidden };
	const float *in = p->given;
	int cols = e->m.shape.carry;

	if (p->ahead) {
		ops->blend(p, x, fc.ld, in, NULL, NULL, p->n_row, e->m.shape.hidden);
		return;
	}
	if (e->norm_fc) {
		float *normed = pass_floats(p, (size_t)p->n_row * (size_t)cols);

		ops->norm(p, normed, in, p->n_row, cols, e->norm_fc, e->eps);
		in = normed;
	}
	ops->linear(p, &fc, 1, in, p->n_row, cols);
	p->work.used = mark;
}

static void give_logits(const struct eagle3 *e, struct pass *p, const float *x)
{
	const struct backend_ops *ops = p->be->ops;
	int hidden = e->m.shape.hidden;
	size_t n = (size_t)p->n_logit * (size_t)hidden;
	struct linear head = { .w = &e->head, .out = p->logits, .ld = (size_t)e->m.shape.vocab };
	float *last = pass_floats(p, n), *h = pass_floats(p, n);

	ops->gather(p, last, x, p->logit_row, p->n_logit, hidden);
	ops->norm(p, h, last, p->n_logit, hidden, e->norm, e->eps);
	ops->linear(p, &head, 1, h, p->n_logit, hidden);
}

static void forward(struct model *m, struct pass *p)
{
	const struct eagle3 *e = (const struct eagle3 *)m;
	const struct backend_ops *ops = p->be->ops;
	int hidden = m->shape.hidden, n = p->n_row;
	size_t cols = (size_t)hidden, rows = (size_t)n * cols;
	float *x, *h, *both;

	x = pass_floats(p, rows);
	h = pass_floats(p, rows);
	both = pass_floats(p, 2 * rows);
	ops->embed(p, x, &e->embed);
	if (e->embed_scale != 1)
		ops->map(p, x, n, hidden, e->embed_scale, 0);
	ops->norm(p, h, x, n, hidden, e->norm_embed, e->eps);
	ops->blend(p, both, 2 * cols, h, NULL, NULL, n, hidden);
	fuse(e, p, x);
	ops->norm(p, h, x, n, hidden, e->norm_given, e->eps);
	ops->blend(p, both + cols, 2 * cols, h, NULL, NULL, n, hidden);
	if (e->before_residual)
		ops->blend(p, x, cols, h, NULL, NULL, n, hidden);
	attention_forward(p, &e->attn, x, true, both, p->kv[0], 0);
	ops->norm(p, h, x, n, hidden, e->norm_post, e->eps);
	ffn_forward(p, &e->ffn, x, true, h);
	if (p->hidden)
		ops->blend(p, p->hidden, cols, x, NULL, NULL, n, hidden);
	if (p->n_logit)
		give_logits(e, p, x);
}

static const char *const arch[] = { "eagle3", NULL };

static const struct model_ops ops = {
	.arch = arch,
	.size = sizeof(struct eagle3),
	.forward = forward,
	.work_floats = work_floats,
};

static int bind(struct model **out, const struct model *of, struct store *st, struct err *err)
{
	struct model *m = head_new(&ops, of, st);
	int code = bind_into((struct eagle3 *)m, of, st, err);

	if (code) {
		model_close(m);
		return code;
	}
	*out = m;
	return 0;
}

const struct head_kind eagle3_head = { eagle3_is, bind };
