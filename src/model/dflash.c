/* dflash.c - DFlash draft heads (arXiv 2602.06036), in z-lab's layout, and DSpark's (arXiv 2607.05147), in DeepSpec's: a block
 * of tokens is guessed in one pass.
 *
 *     c = rms(fc [outputs of some of the model's layers]): a row of context for each token
 *     a block: E[last token], E[mask] ...: layers like Qwen3's, whose rows see all context and each other
 *     logits = rms(x) lm_head': row i guesses the i-th token after the last
 *     DSpark: row i guesses the one after that, with W2 W1[token before it] added to its logits
 *
 * Keys and values of the context are made of c alone, by each layer's own matrices and without its first norm; embedding
 * and lm_head are the model's.  A token's context lies in the row of the token after it, and a block begins after the
 * last token's row: all is one place further than in published programs, which rotation does not notice.  Row 0 would be
 * that of no token, and no row sees it.  In layers with a window a row sees those less than it away, and of its block
 * none after it (both_ways); rows out of sight are kept, since a block is taken back.
 *
 * DFlash 2 convolves inside of a block, and a guess hangs on the token before it: dflash2.h. */
#include <string.h>

#include "cache/kinds.h"
#include "model/decoder.h"
#include "model/dflash2.h"
#include "model/head.h"
#include "model/work.h"

enum { BLOCK_MAX = 64 };

/* Around a layer's attention and its MLP. */
struct layer_convs {
	struct block_conv attn, ffn;
};

struct dflash {
	struct decoder d;
	struct weight fc;
	const float *norm_context;
	struct weight before, then; /* W1, looked up by token, and W2; no rows: there are none */
	float *near;                /* [vocab] */
	struct dflash2_form two;    /* taps 0: it is not DFlash 2, and what follows is not there */
	struct layer_convs *conv;   /* [layers] */
	struct selector selector;
};

static bool is_second(const struct store *st)
{
	return head_named(st, "DFlash2DraftModel");
}

static bool dflash_is(const struct store *st)
{
	return head_named(st, "DFlashDraftModel") || is_second(st) || head_named(st, "Qwen3DSparkModel");
}

/* One that guesses from the last token's row on, and leans on the token before each guess. */
static bool is_spark(const struct store *st)
{
	const char *type = json_str(json_get(json_get(st->config, "dflash_config"), "projector_type"), NULL);

	return head_named(st, "Qwen3DSparkModel") || (type && !strcmp(type, "dspark"));
}

/* ---- config ---- */

static void read_block(struct dflash *f, struct conf *c, const struct model *of)
{
	struct head_shape *h = &f->d.m.shape.head;
	struct conf own = *c;
	int layers;

	if (json_get(c->j, "dflash_config")) {
		own.j = json_get(c->j, "dflash_config");
		own.where = "dflash_config.";
	}
	h->block = conf_int(conf_get(c, "block_size") ? c : &own, "block_size", 2, BLOCK_MAX);
	h->guesses = h->block - !is_spark(f->d.m.st);
	layers = conf_int_or(c, "num_target_layers", of->shape.layers, 1, CONF_LAYERS_MAX);
	if (layers != of->shape.layers)
		conf_fail(c, E_UNSUPPORTED, "num_target_layers: a draft head for %d layers; the model has %d", layers,
		          of->shape.layers);
	h->mask = conf_int(&own, "mask_token_id", 0, of->shape.vocab - 1);
	head_taps(&own, &f->d.m, of, conf_get(&own, "target_layer_ids"), "target_layer_ids", 0);
	if (is_second(f->d.m.st) && is_spark(f->d.m.st))
		conf_fail(&own, E_UNSUPPORTED, "projector_type: \"dspark\" of a DFlash2DraftModel is not done");
	if (is_second(f->d.m.st))
		dflash2_read(&f->two, &own, &f->d.m.shape);
	if (!c->code)
		c->code = own.code;
}

static void read_config(struct dflash *f, struct conf *c, const struct model *of, struct decoder_plan *p)
{
	struct shape *s = &f->d.m.shape;
	struct rotary_defaults r = { .partial = 1 };

	decoder_read(&f->d, c, &(struct decoder_defaults){ .vocab = of->shape.vocab }, p);
	if (c->code)
		return;
	if (s->hidden != of->shape.hidden)
		conf_fail(c, E_UNSUPPORTED, "hidden_size: a draft head for %d dimensions; the model has %d", s->hidden,
		          of->shape.hidden);
	s->vocab = of->shape.vocab;
	p->attn.bias_qkv = p->attn.bias_o = conf_bool_or(c, "attention_bias", false);
	p->attn.norms = true;
	p->attn.op.first = 1;
	if (conf_get(c, "layer_types"))
		decoder_windows(&f->d, c, 0, p);
	rotary_read(&p->attn.op.rope, c, &r, p->attn.op.dim, &s->ctx_max, &f->d.m.vectors);
	p->attn.op.rope.adjacent = !conf_bool_or(c, "rope_is_neox_style", true);
	read_block(f, c, of);
}

/* Whether the rows of a block see those after them.  Where the config does not say, layers with a window are causal: a
 * published head of such layers guesses 5.62 tokens a round so, and 5.27 both ways. */
static bool both_ways(const struct conf *c, bool local)
{
	const struct json *said = conf_get(c, "is_causal");
	bool causal = local;

	if (!said)
		said = json_get(json_get(c->j, "dflash_config"), "causal");
	json_to_bool(said, &causal);
	return !causal;
}

/* ---- tensors ---- */

/* Binds the tensors that DSpark has beyond DFlash's.  Its confidence head is left out: the engine measures how often guesses come true. */
static void bind_spark(struct binder *b, struct dflash *f, struct conf *c)
{
	struct conf own = *c;
	struct model *m = &f->d.m;
	int rank;

	if (json_get(c->j, "dflash_config"))
		own.j = json_get(c->j, "dflash_config");
	rank = conf_int_or(conf_get(c, "markov_rank") ? c : &own, "markov_rank", 0, 0, CONF_DIM_MAX);
	if (rank &&
	    strcmp(conf_str_or(conf_get(c, "markov_head_type") ? c : &own, "markov_head_type", "vanilla"), "vanilla"))
		conf_fail(c, E_UNSUPPORTED, "markov_head_type: only \"vanilla\" is done");
	store_ignore(b->st, "confidence_head.", "what comes true is measured");
	if (!rank || c->code)
		return;
	bind_weight(b, &f->before, m->shape.vocab, rank, "markov_head.markov_w1");
	bind_rows_only(b, &f->before);
	bind_weight(b, &f->then, m->shape.vocab, rank, "markov_head.markov_w2");
	f->near = arena_alloc(&m->arena, (size_t)m->shape.vocab * sizeof *f->near);
}

static void bind_second(struct binder *b, struct dflash *f)
{
	struct model *m = &f->d.m;
	struct trunk *t = &f->d.trunk;

	t->embed_scale *= f->two.embed_scale;
	t->logit_scale = f->two.logit_scale;
	t->logit_cap = f->two.logit_cap;
	f->conv = arena_zalloc(&m->arena, size_mul((size_t)m->shape.layers, sizeof *f->conv));
	for (int i = 0; i < m->shape.layers; i++) {
		block_conv_bind(b, &f->conv[i].attn, &f->two, m->shape.hidden, i, "attention_conv");
		block_conv_bind(b, &f->conv[i].ffn, &f->two, m->shape.hidden, i, "mlp_conv");
	}
	selector_bind(b, &f->selector, &f->two, m->shape.vocab, m->shape.hidden);
}

/* What a layer's rows of a block see of each other.  A window counts to both sides. */
static void see_block(struct attn *op, const struct dflash *f, bool both)
{
	bool narrow = op->window && op->window < f->d.m.shape.head.block;

	op->both_ways = both && op->window != 1;
	op->ahead = op->both_ways && narrow ? op->window - 1 : 0;
}

static int bind_into(struct dflash *f, const struct model *of, struct store *st, struct err *err)
{
	static const char *const prefix[] = { "", "model.", NULL };
	static const char *const copies[] = { "embed_tokens.weight", "model.embed_tokens.weight", "lm_head.weight" };
	struct decoder *d = &f->d;
	struct binder b = { .st = st, .m = &d->m, .err = err };
	struct conf c = { .j = st->config, .file = st->config_path, .where = "", .err = err };
	struct decoder_plan p = { 0 };
	bool *local;

	read_config(f, &c, of, &p);
	if (c.code)
		return c.code;
	b.prefix = store_prefix(st, prefix, "fc.weight");
	if (!b.prefix)
		return store_missing(st, "fc.weight", err);
	d->trunk = *of->trunk;
	d->trunk.norm = bind_floats(&b, d->m.shape.hidden, 0, "norm.weight");
	d->trunk.norm_bias = NULL;
	d->trunk.eps = d->eps;
	bind_weight(&b, &f->fc, d->m.shape.hidden, d->m.shape.carry, "fc");
	if (is_spark(st))
		bind_spark(&b, f, &c);
	f->norm_context = bind_floats(&b, d->m.shape.hidden, 0, "hidden_norm.weight");
	d->layer = arena_zalloc(&d->m.arena, size_mul((size_t)d->m.shape.layers, sizeof *d->layer));
	/* Rows outside of the window stay in the cache. */
	local = p.local;
	p.local = arena_zalloc(&d->m.arena, (size_t)d->m.shape.layers * sizeof *p.local);
	for (int i = 0; i < d->m.shape.layers && !b.code; i++) {
		decoder_bind_layer(&b, d, &p, i, true);
		d->layer[i].attn.op.window = local[i] ? p.window : 0;
		see_block(&d->layer[i].attn.op, f, both_ways(&c, local[i]));
	}
	if (is_second(st))
		bind_second(&b, f);
	for (size_t i = 0; i < sizeof copies / sizeof *copies; i++)
		store_ignore(st, copies[i], "a copy of the model's");
	return b.code ? b.code : c.code;
}

/* ---- forward ---- */

static size_t work_floats(const struct model *m, int n_row, int n_logit)
{
	const struct dflash *f = (const struct dflash *)m;
	size_t most = 0;

	for (int i = 0; i < m->shape.layers; i++)
		most = work_max(most, 2 * work_floats_of(n_row, f->d.layer[i].attn.k.rows));
	most = work_max(decoder_work_floats(m, n_row, n_logit), work_floats_of(n_row, m->shape.hidden) + most);
	if (f->two.taps)
		return work_max(selector_floats(&f->selector),
		                most + work_floats_of(n_row, m->shape.hidden) +
		                        work_floats_of(n_row, block_conv_row(&f->conv->attn)));
	return f->then.rows ? work_max(most, work_floats_of(1, f->then.cols) + work_floats_of(1, f->then.rows)) : most;
}

static void lean_second(struct model *m, const struct pass *over, int row, int32_t token, float *logits)
{
	selector_lean(&((struct dflash *)m)->selector, over, over->hidden + (size_t)row * (size_t)m->shape.hidden,
	              token, logits);
}

static void lean(struct model *m, const struct pass *over, int row, int32_t token, float *logits)
{
	struct dflash *f = (struct dflash *)m;
	const struct backend_ops *ops = over->be->ops;
	const int32_t none = 0;
	const struct span span = { .n = 1 };
	struct pass p = *over;
	float *e, *by;
	struct linear job;
	int rc = 0;

	if (!f->then.rows || token < 0 || token >= m->shape.vocab)
		return;
	p.tok = &token;
	p.pos = p.item = p.row = &none;
	p.see = p.rope_pos = NULL;
	p.span = &span;
	memset(p.kv, 0, sizeof p.kv);
	p.state = NULL;
	p.n_row = p.n_item = 1;
	p.n_logit = 0;
	if (!pass_begin(&p)) {
		e = pass_floats(&p, (size_t)f->before.cols);
		by = pass_floats(&p, (size_t)f->then.rows);
		job = (struct linear){ .w = &f->then, .out = by, .ld = (size_t)f->then.rows };
		ops->embed(&p, e, &f->before);
		ops->linear(&p, &job, 1, e, 1, f->then.cols);
		rc = ops->read(p.be, f->near, by, (size_t)f->then.rows * sizeof *by);
	}
	if (pass_end(&p) || rc)
		return; /* a failed device: the step after fails too */
	for (int i = 0; i < m->shape.vocab; i++)
		logits[i] += f->near[i];
}

/* Keys and values of the context in every layer. */
static void context_forward(const struct dflash *f, struct pass *p)
{
	const struct backend_ops *ops = p->be->ops;
	const struct model *m = &f->d.m;
	int hidden = m->shape.hidden, n = p->n_row;
	struct linear fc = { .w = &f->fc, .ld = (size_t)hidden };
	size_t mark;

	fc.out = pass_floats(p, (size_t)n * (size_t)hidden);
	ops->linear(p, &fc, 1, p->given, n, m->shape.carry);
	ops->norm(p, fc.out, fc.out, n, hidden, f->norm_context, f->d.eps);
	mark = p->work.used;
	for (int i = 0; i < m->shape.layers; i++) {
		const struct decoder_layer *y = &f->d.layer[i];
		size_t row = (size_t)y->attn.k.rows;
		float *k = pass_floats(p, (size_t)n * row), *v = pass_floats(p, (size_t)n * row);
		struct linear job[] = {
			{ .w = &y->attn.k, .out = k, .ld = row, .bias = y->attn.bias_k },
			{ .w = &y->attn.v, .out = v, .ld = row, .bias = y->attn.bias_v },
		};
		struct attn op = y->attn.op;

		op.heads = 0;
		ops->linear(p, job, 2, fc.out, n, hidden);
		ops->kv_append(p, &op, NULL, 0, 0, k, v, p->kv[y->kv.group], y->kv.index);
		p->work.used = mark;
	}
}

/* The layers of a block with their convolutions. */
static void convolved_forward(const struct dflash *f, struct pass *p)
{
	const struct backend_ops *ops = p->be->ops;
	const struct decoder *d = &f->d;
	int hidden = d->trunk.hidden, n = p->n_row;
	size_t floats = (size_t)n * (size_t)hidden;
	float *x = trunk_begin(p, &d->trunk), *h = pass_floats(p, floats), *y = pass_floats(p, floats);
	float *k = pass_floats(p, (size_t)n * (size_t)block_conv_row(&f->conv->attn));

	for (int i = 0; i < d->m.shape.layers; i++) {
		const struct decoder_layer *l = &d->layer[i];
		const struct layer_convs *c = &f->conv[i];

		ops->norm(p, h, x, n, hidden, l->norm_attn, d->eps);
		block_conv_kernel(p, &c->attn, k, h);
		block_conv(p, &c->attn, 0, y, h, k);
		attention_forward(p, &l->attn, y, false, y, p->kv[l->kv.group], l->kv.index);
		block_conv(p, &c->attn, 1, h, y, k);
		ops->add(p, x, h, n, hidden, 1);
		ops->norm(p, h, x, n, hidden, l->norm_ffn, d->eps);
		block_conv_kernel(p, &c->ffn, k, h);
		block_conv(p, &c->ffn, 0, y, h, k);
		ffn_forward(p, &l->ffn, y, false, y);
		block_conv(p, &c->ffn, 1, h, y, k);
		ops->add(p, x, h, n, hidden, 1);
	}
	trunk_end(p, &d->trunk, x);
}

static void forward(struct model *m, struct pass *p)
{
	const struct dflash *f = (const struct dflash *)m;

	if (!p->ahead)
		context_forward(f, p);
	else if (f->two.taps)
		convolved_forward(f, p);
	else
		decoder_forward(m, p);
}

static const char *const arch[] = { "dflash", NULL }, *const arch_spark[] = { "dspark", NULL };
static const char *const arch_second[] = { "dflash2", NULL };

static const struct model_ops ops = {
	.arch = arch,
	.size = sizeof(struct dflash),
	.forward = forward,
	.work_floats = work_floats,
};

static const struct model_ops ops_spark = {
	.arch = arch_spark,
	.size = sizeof(struct dflash),
	.forward = forward,
	.work_floats = work_floats,
	.lean = lean,
};

static const struct model_ops ops_second = {
	.arch = arch_second,
	.size = sizeof(struct dflash),
	.forward = forward,
	.work_floats = work_floats,
	.lean = lean_second,
};

static int bind(struct model **out, const struct model *of, struct store *st, struct err *err)
{
	struct model *m = head_new(is_second(st) ? &ops_second : is_spark(st) ? &ops_spark : &ops, of, st);
	int code = bind_into((struct dflash *)m, of, st, err);

	if (code) {
		model_close(m);
		return code;
	}
	*out = m;
	return 0;
}

const struct head_kind dflash_head = { dflash_is, bind };
