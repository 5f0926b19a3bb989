/* deepseek_v4.c - DeepSeek-V4: text, and its draft head.
 *
 *     x_s = E[token], s < C;  per layer: attention and mixture, each behind a norm and between gates of streams (mhc.h)
 *     logits = head norm(sum of p_s x_s)
 *
 * One row u of a position is key and value of all heads.  A row of attention sees the u of a window, and behind them rows that
 * stand for groups of positions (struct compress): none, all, or, where groups overlap, those that an indexer chooses:
 *
 *     q_h = rope(rms(q_b rms(q_a x)));  u = rope(rms(kv x));  o_h = rope^-1(softmax(q_h . rows, sink) rows)
 *     out = o_b [o_a of each group of heads o]
 *
 * Only the last dims are rotated.  The mixture's experts are chosen by roots of softplus and a bias, in the first layers by the
 * token.
 *
 * The draft head is a layer without a history, with streams, their last gates and a norm of its own; it is given the streams
 * behind the model's last layer:
 *
 *     x_s = e_proj norm(E[token]) + h_proj norm(given_s) */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/decoder.h"
#include "model/families.h"
#include "model/mhc.h"
#include "model/mtp.h"
#include "model/rotary.h"
#include "model/stack.h"
#include "model/streams.h"
#include "model/work.h"

enum { OVERLAPPING = 4 }; /* positions of groups that overlap, of which an indexer chooses */

/* Rows for groups of positions, and what they are made of. */
struct history {
	struct weight kv, gate;
	struct compress op;
	struct kv_place raw, rows;
};

struct window {
	struct attn op, back;
	struct weight q_a, q_b, kv, o_b, *o_a; /* o_a: [groups] */
	const float *norm_q;
	int groups, low; /* low: outputs of each of o_a */
	struct kv_place kv_at;
	struct history past; /* op.every 0: there is none */
	/* The indexer's. */
	struct history keys;
	struct weight index_q, index_w;
	struct attn index;
	int most; /* rows of the history that are seen, and positions of the window */
};

struct v4 {
	struct stack s;
	struct mhc *site, last;   /* [blocks] around each; before the last norm */
	struct streams_fuse fuse; /* of a draft head */
};

struct plan {
	struct mhc_form streams;
	struct moe_form moe;
	struct rope near, far; /* of layers without a history, and with one */
	int heads, dim, turned, q_lora, groups, low, window, hashed;
	int index_heads, index_dim, index_top;
	int every[CONF_LAYERS_MAX + 1];
	int first; /* of attention: the first position that other rows see */
	int kept;  /* rows that the cache has of a window; 0: all */
};

/* ---- config ---- */

static void read_moe(struct conf *c, struct plan *p)
{
	struct moe_form *m = &p->moe;
	struct activation act = ffn_read_act(c, ACT_NONE);
	double limit = conf_double_or(c, "swiglu_limit", 0);

	if (act.kind != ACT_SILU || !(limit >= 0))
		conf_fail(c, E_UNSUPPORTED, "hidden_act: only silu is done, with a swiglu_limit from 0 on");
	if (limit > 0)
		act = (struct activation){ .kind = ACT_CLIPPED, .limit = (float)limit };
	*m = (struct moe_form){ .experts = conf_int(c, "n_routed_experts", 1, 1 << 16),
		                .inner = conf_int(c, "moe_intermediate_size", 1, CONF_DIM_MAX),
		                .normalise = conf_bool_or(c, "norm_topk_prob", true),
		                .scale = (float)conf_double_or(c, "routed_scaling_factor", 1),
		                .norm_eps = 1e-20f,
		                .route = ROUTE_ROOT,
		                .act = act,
		                .at = "ffn",
		                .shared = "shared_experts",
		                .shared_plain = true,
		                .shared_alike = true,
		                .select_bias = "gate.bias",
		                .proj = { "w1", "w3", "w2" } };
	m->top_k = conf_int(c, "num_experts_per_tok", 1, m->experts);
	m->shared_inner = m->inner * conf_int_or(c, "n_shared_experts", 0, 0, 64);
	p->hashed = conf_int_or(c, "num_hash_layers", 0, 0, CONF_LAYERS_MAX);
	if (strcmp(conf_str_or(c, "scoring_func", "sqrtsoftplus"), "sqrtsoftplus"))
		conf_fail(c, E_UNSUPPORTED, "scoring_func: only sqrtsoftplus is done");
	if (strcmp(conf_str_or(c, "topk_method", "noaux_tc"), "noaux_tc"))
		conf_fail(c, E_UNSUPPORTED, "topk_method: only noaux_tc is done");
}

static void read_ratios(struct conf *c, struct plan *p, int layers)
{
	const struct json *list = conf_list(c, "compress_ratios");
	int64_t v;

	if (!c->code && json_len(list) < (size_t)layers)
		conf_fail(c, E_FORMAT, "compress_ratios: has %zu entries, num_hidden_layers is %d", json_len(list),
		          layers);
	for (int i = 0; i < layers && !c->code; i++) {
		if (json_to_int(json_at(list, (size_t)i), &v) || v < 0 || v == 1 || v > 4096)
			conf_fail(c, E_FORMAT, "compress_ratios: entry %d is %.40s, not 0, nor 2 to 4096", i,
			          conf_entry(json_at(list, (size_t)i)));
		else
			p->every[i] = (int)v;
	}
}

static void read_ropes(struct v4 *v, struct conf *c, struct plan *p)
{
	struct rotary_defaults near = { .theta = 10000, .partial = 1, .whole = true, .unscaled = true };
	struct rotary_defaults far = { .partial = 1, .whole = true, .theta_key = "compress_rope_theta" };
	struct model *m = &v->s.m;

	rotary_read(&p->near, c, &near, p->turned, &m->shape.ctx_max, &m->vectors);
	rotary_read(&p->far, c, &far, p->turned, &m->shape.ctx_max, &m->vectors);
	p->near.adjacent = p->far.adjacent = true;
	p->near.mscale = p->far.mscale = 1;
	p->near.at = p->far.at = p->dim - p->turned;
}

static void read_config(struct v4 *v, struct conf *c, struct plan *p)
{
	struct stack *s = &v->s;

	stack_read(s, c);
	s->trunk.eps = (float)conf_double(c, "rms_norm_eps");
	p->streams = (struct mhc_form){ .hidden = s->m.shape.hidden, .eps = s->trunk.eps };
	mhc_read(&p->streams, c);
	p->heads = conf_int(c, "num_attention_heads", 1, CONF_HEADS_MAX);
	p->dim = conf_int(c, "head_dim", 2, CONF_HEAD_DIM_MAX);
	p->turned = conf_int(c, "qk_rope_head_dim", 2, p->dim);
	p->q_lora = conf_int(c, "q_lora_rank", 1, CONF_DIM_MAX);
	p->groups = conf_int(c, "o_groups", 1, p->heads);
	p->low = conf_int(c, "o_lora_rank", 1, CONF_DIM_MAX);
	p->window = p->kept = conf_int(c, "sliding_window", 1, CONF_CTX_MAX);
	p->index_heads = conf_int(c, "index_n_heads", 1, CONF_HEADS_MAX);
	p->index_dim = conf_int(c, "index_head_dim", p->turned, CONF_HEAD_DIM_MAX);
	p->index_top = conf_int(c, "index_topk", 1, CONF_CTX_MAX);
	read_moe(c, p);
	if (!c->code)
		read_ropes(v, c, p);
	if (!c->code)
		read_ratios(c, p, s->m.shape.layers);
	if (!c->code && p->heads % p->groups)
		conf_fail(c, E_FORMAT, "o_groups: %d does not divide num_attention_heads %d", p->groups, p->heads);
	if (conf_int_or(c, "num_key_value_heads", 1, 1, CONF_HEADS_MAX) != 1 ||
	    conf_bool_or(c, "attention_bias", false))
		conf_fail(c, E_UNSUPPORTED, "num_key_value_heads, attention_bias: only 1 and false are done");
	if (conf_bool_or(c, "tie_word_embeddings", false))
		conf_fail(c, E_UNSUPPORTED, "tie_word_embeddings: true is not a known model");
}

/* ---- tensors ---- */

static void keep(struct binder *b, struct kv_place *out, struct kv_group g)
{
	g.heads = 1;
	if (!b->code)
		b->code = model_kv_add(b->m, &g, out, b->err);
}

/* PATH.wkv and others: rows of dim numbers for groups of `every` positions. */
static void bind_history(struct binder *b, struct history *y, const struct plan *p, int every, int dim, bool index,
                         const char *path)
{
	bool overlap = every == OVERLAPPING;
	int w = overlap ? 2 * dim : dim, hidden = b->m->shape.hidden;

	bind_weight(b, &y->kv, w, hidden, "%s.wkv", path);
	bind_weight(b, &y->gate, w, hidden, "%s.wgate", path);
	y->op = (struct compress){ .every = every,
		                   .dim = dim,
		                   .overlap = overlap,
		                   .bias = bind_floats(b, (int64_t)every * w, 0, "%s.ape", path),
		                   .gain = bind_floats(b, dim, 0, "%s.norm.weight", path),
		                   .eps = p->streams.eps,
		                   .rope = p->far };
	y->op.rope.at = dim - p->turned;
	keep(b, &y->raw,
	     (struct kv_group){ .dim_k = w, .dim_v = w, .index = true, .window = overlap ? 2 * every : every });
	keep(b, &y->rows,
	     (struct kv_group){
		     .dim_k = dim, .dim_v = dim, .latent = true, .index = index, .beside = !index, .every = every });
}

static void bind_indexer(struct binder *b, struct window *a, const struct plan *p, int i)
{
	char path[64];

	snprintf(path, sizeof path, "layers.%d.attn.indexer.compressor", i);
	bind_history(b, &a->keys, p, a->past.op.every, p->index_dim, true, path);
	bind_weight(b, &a->index_q, p->index_heads * p->index_dim, p->q_lora, "layers.%d.attn.indexer.wq_b", i);
	bind_weight(b, &a->index_w, p->index_heads, b->m->shape.hidden, "layers.%d.attn.indexer.weights_proj", i);
	a->index = (struct attn){ .heads = p->index_heads,
		                  .heads_kv = 1,
		                  .dim = p->index_dim,
		                  .scale = 1,
		                  .window = p->window,
		                  .rope = p->far };
	a->index.rope.at = p->index_dim - p->turned;
}

/* The rotation by minus a position. */
static void turn_back(struct binder *b, struct attn *back, const struct attn *a)
{
	float *freq = bind_table(b, (size_t)a->rope.n_freq);

	*back = (struct attn){ .heads = a->heads, .heads_kv = 1, .dim = a->dim, .scale = 1, .rope = a->rope };
	for (int i = 0; i < a->rope.n_freq; i++)
		freq[i] = -a->rope.freq[i];
	back->rope.freq = freq;
}

static void bind_outputs(struct binder *b, struct window *a, const struct plan *p, int i)
{
	struct weight all;

	a->groups = p->groups;
	a->low = p->low;
	a->o_a = arena_zalloc(&b->m->arena, (size_t)p->groups * sizeof *a->o_a);
	bind_weight(b, &all, p->groups * p->low, p->heads / p->groups * p->dim, "layers.%d.attn.wo_a", i);
	bind_rows_only(b, &all); /* read in parts of a group */
	bind_apart(b, &all);
	bind_usual_basis(b, &all);
	for (int g = 0; g < p->groups && !b->code; g++)
		a->o_a[g] = weight_rows(&all, g * p->low, p->low);
	bind_weight(b, &a->o_b, b->m->shape.hidden, p->groups * p->low, "layers.%d.attn.wo_b", i);
}

static const struct block_ops window_block;

static void add_attention(struct v4 *v, struct binder *b, const struct plan *p, int i)
{
	struct window *a = arena_zalloc(&b->m->arena, sizeof *a);
	int hidden = b->m->shape.hidden, every = p->every[i];
	char path[64];

	stack_add(&v->s, &window_block, a, bind_floats(b, hidden, 0, "layers.%d.attn_norm.weight", i));
	bind_weight(b, &a->q_a, p->q_lora, hidden, "layers.%d.attn.wq_a", i);
	a->norm_q = bind_floats(b, p->q_lora, 0, "layers.%d.attn.q_norm.weight", i);
	bind_weight(b, &a->q_b, p->heads * p->dim, p->q_lora, "layers.%d.attn.wq_b", i);
	bind_weight(b, &a->kv, p->dim, hidden, "layers.%d.attn.wkv", i);
	a->op = (struct attn){ .heads = p->heads,
		               .heads_kv = 1,
		               .dim = p->dim,
		               .scale = 1.0f / sqrtf((float)p->dim),
		               .eps = p->streams.eps,
		               .window = p->window,
		               .first = p->first,
		               .v_is_key = true,
		               .rope = every ? p->far : p->near,
		               .k_norm = bind_floats(b, p->dim, 0, "layers.%d.attn.kv_norm.weight", i),
		               .sinks = bind_floats(b, p->heads, 0, "layers.%d.attn.attn_sink", i) };
	turn_back(b, &a->back, &a->op);
	bind_outputs(b, a, p, i);
	keep(b, &a->kv_at, (struct kv_group){ .dim_k = p->dim, .dim_v = p->dim, .latent = true, .window = p->kept });
	if (!every)
		return;
	snprintf(path, sizeof path, "layers.%d.attn.compressor", i);
	bind_history(b, &a->past, p, every, p->dim, false, path);
	if (a->past.op.overlap)
		bind_indexer(b, a, p, i);
	a->most = (a->past.op.overlap ? p->index_top : b->m->shape.ctx_max / every + 1) + p->window;
	v->s.shared = a->most + 1 > v->s.shared ? a->most + 1 : v->s.shared;
}

/* The experts of each token, of layers that are hashed. */
static const int32_t *token_experts(struct binder *b, const struct plan *p, int i)
{
	int64_t n = (int64_t)b->m->shape.vocab * p->moe.top_k;
	int32_t *out;
	const int64_t *table = NULL;
	char name[64];

	snprintf(name, sizeof name, "%slayers.%d.ffn.gate.tid2eid", b->prefix ? b->prefix : "", i);
	if (!b->code)
		b->code = store_ints(b->st, &b->m->arena, name, n, &table, b->err);
	if (b->code)
		return NULL;
	out = arena_alloc(&b->m->arena, size_mul((size_t)n, sizeof *out));
	for (int64_t k = 0; k < n && !b->code; k++)
		if (table[k] < 0 || table[k] >= p->moe.experts)
			b->code = err_set(b->err, E_FORMAT, "%s: tensor %s: element %lld is %lld, of %d experts",
			                  b->st->dir, name, (long long)k, (long long)table[k], p->moe.experts);
		else
			out[k] = (int32_t)table[k];
	return out;
}

static void bind_layer(struct v4 *v, struct binder *b, const struct plan *p, int i)
{
	static const char *const at[] = { "attn", "ffn" };
	struct mhc *site = &v->site[v->s.n_block];
	struct moe_form m = p->moe;
	struct block *y;
	char path[64];

	add_attention(v, b, p, i);
	if (i < p->hashed)
		m.select_bias = NULL;
	y = stack_add_moe(&v->s, b, &m, bind_floats(b, b->m->shape.hidden, 0, "layers.%d.ffn_norm.weight", i), i);
	if (i < p->hashed)
		stack_ffn(y)->moe.by_token = token_experts(b, p, i);
	stack_end_layer(&v->s, i);
	for (int k = 0; k < 2; k++) {
		snprintf(path, sizeof path, "layers.%d.hc_%s", i, at[k]);
		mhc_bind(b, &site[k], &p->streams, path);
	}
}

/* Room for the blocks of n layers. */
static void room(struct v4 *v, int n)
{
	stack_room(&v->s, 2 * n);
	v->site = arena_zalloc(&v->s.m.arena, size_mul(2 * (size_t)n, sizeof *v->site));
}

static void bind_trunk(struct binder *b, struct v4 *v, const struct plan *p)
{
	struct trunk *t = &v->s.trunk;

	bind_find_prefix(b, "embed");
	t->hidden = v->s.m.shape.hidden;
	t->vocab = v->s.m.shape.vocab;
	t->embed_scale = t->logit_scale = 1;
	v->s.m.trunk = t;
	bind_weight(b, &t->embed, t->vocab, t->hidden, "embed");
	bind_looked_up(b, &t->embed);
	bind_weight(b, &t->head, t->vocab, t->hidden, "head");
	t->norm = bind_floats(b, t->hidden, 0, "norm.weight");
	mhc_bind_last(b, &v->last, &p->streams, "hc_head");
}

/* Published files have draft heads apart, GGUF files behind the last layer. */
static void ignore_heads(struct binder *b, struct conf *c)
{
	if (store_has(b->st, "mtp.0.e_proj.weight")) {
		store_ignore(b->st, "mtp.0.", "draft head: read when it is asked to draft");
		store_ignore(b->st, "mtp.", "draft head: of several the first alone is read");
	} else {
		store_ignore(b->st, "mtp.", "draft head: of a kind that this version does not read");
	}
	mtp_ignore_behind(b, conf_int_or(c, "num_nextn_predict_layers", 0, 0, 64));
}

static int bind(struct model *m, struct store *st, struct err *err)
{
	struct v4 *v = (struct v4 *)m;
	struct binder b = { .st = st, .m = m, .err = err };
	struct conf c = decoder_conf(st, err);
	struct plan p = { 0 };

	read_config(v, &c, &p);
	if (c.code)
		return c.code;
	m->shape.streams = p.streams.streams;
	room(v, m->shape.layers);
	bind_trunk(&b, v, &p);
	for (int i = 0; i < m->shape.layers && !b.code; i++)
		bind_layer(v, &b, &p, i);
	if (!b.code)
		ignore_heads(&b, &c);
	return b.code ? b.code : c.code;
}

/* Around the head's layer, which is the file's `layer`, or lies apart. */
static void bind_around(struct binder *b, struct v4 *v, const struct plan *p, int layer, bool apart)
{
	struct streams_fuse *f = &v->fuse;
	int hidden = v->s.m.shape.hidden;
	char path[64];

	*f = (struct streams_fuse){
		.hidden = hidden, .streams = p->streams.streams, .eps = p->streams.eps, .each = true
	};
	if (apart) {
		bind_weight(b, &f->of_embed, hidden, hidden, "layers.%d.e_proj", layer);
		bind_weight(b, &f->of_given, hidden, hidden, "layers.%d.h_proj", layer);
	} else {
		bind_weight(b, &f->both, hidden, 2 * hidden, "layers.%d.eh_proj", layer);
		mtp_bind_own(b, &v->s.trunk, &mtp_behind, layer, layer);
	}
	f->norm_embed = bind_floats(b, hidden, 0, "layers.%d.enorm.weight", layer);
	f->norm_given = bind_floats(b, hidden, 0, "layers.%d.hnorm.weight", layer);
	v->s.trunk.norm = bind_floats(b, hidden, 0, "layers.%d.%s.weight", layer, apart ? "norm" : mtp_behind.norm);
	snprintf(path, sizeof path, "layers.%d.hc_head", layer);
	mhc_bind_last(b, &v->last, &p->streams, path);
}

static int bind_head(struct model *m, const struct model *of, struct store *st, struct err *err)
{
	static const struct mtp_form published = { .proj = "mtp.0.e_proj", .outside = true };
	struct v4 *v = (struct v4 *)m;
	struct binder b = { .st = st, .m = m, .err = err };
	struct conf c = decoder_conf(json_get(st->text, "hidden_size") ? st : of->st, err);
	struct plan p = { 0 };
	int *tap, layer = of->shape.layers;
	int64_t every = 0;
	bool apart = store_has(st, "mtp.0.e_proj.weight");

	read_config(v, &c, &p);
	if (!c.code && !json_to_int(json_at(conf_list(&c, "compress_ratios"), (size_t)layer), &every) && every)
		conf_fail(&c, E_UNSUPPORTED, "compress_ratios: the draft head's is %d; only 0 is done", (int)every);
	if (c.code)
		return c.code;
	m->shape.streams = p.streams.streams;
	p.first = 1; /* the row of the first token comes of nothing */
	p.hashed = p.every[layer] = 0;
	p.kept = 0; /* guesses are taken back, and rows outside of the window with them */
	mtp_begin(&b, &v->s.trunk, of, apart ? &published : &mtp_behind, 1);
	room(v, 1);
	b.layer = apart ? "mtp.0" : NULL;
	if (!b.code)
		bind_around(&b, v, &p, layer, apart);
	if (!b.code)
		bind_layer(v, &b, &p, layer);
	m->shape.head.tap = tap = arena_alloc(&m->arena, sizeof *tap);
	*tap = layer - 1;
	m->shape.head.n_tap = 1;
	return b.code;
}

/* ---- forward ---- */

static void history_run(struct pass *p, const struct history *y, const float *h)
{
	const struct backend_ops *ops = p->be->ops;
	size_t mark = p->work.used, n = (size_t)p->n_row, w = (size_t)y->kv.rows;
	float *k = pass_floats(p, n * w), *v = pass_floats(p, n * w);
	const struct linear job[] = { { .w = &y->kv, .out = k, .ld = w }, { .w = &y->gate, .out = v, .ld = w } };

	ops->linear(p, job, 2, h, p->n_row, y->kv.cols);
	ops->compress(p, &y->op, k, v, p->kv[y->raw.group], y->raw.index, p->kv[y->rows.group], y->rows.index);
	p->work.used = mark;
}

/* What rows see of the history, and their window. */
static void choose(struct pass *p, const struct window *a, int32_t *chosen, const float *h, const float *low)
{
	const struct backend_ops *ops = p->be->ops;
	size_t mark = p->work.used, n = (size_t)p->n_row, all = (size_t)a->index_q.rows, heads = (size_t)a->index.heads;
	const struct kv_place *at = all ? &a->keys.rows : &a->past.rows;
	float *q, *weight;

	history_run(p, &a->past, h);
	if (!all) {
		ops->choose(p, chosen, a->most, &a->op, NULL, 0, 0, NULL, p->kv[at->group], at->index);
		return;
	}
	history_run(p, &a->keys, h);
	q = pass_floats(p, n * all);
	weight = pass_floats(p, n * heads);
	ops->linear(p, &(struct linear){ .w = &a->index_q, .out = q, .ld = all }, 1, low, p->n_row, a->index_q.cols);
	ops->linear(p, &(struct linear){ .w = &a->index_w, .out = weight, .ld = heads }, 1, h, p->n_row,
	            a->index_w.cols);
	ops->kv_append(p, &a->index, q, all, (size_t)a->index.dim, NULL, NULL, NULL, 0);
	ops->choose(p, chosen, a->most, &a->index, q, all, (size_t)a->index.dim, weight, p->kv[at->group], at->index);
	p->work.used = mark;
}

static void window_run(struct pass *p, const struct block *y, float *out, bool add, const float *h,
                       const struct stack_views *v)
{
	const struct backend_ops *ops = p->be->ops;
	const struct window *a = y->own;
	const struct kv_view *view = p->kv[a->kv_at.group];
	size_t mark = p->work.used, n = (size_t)p->n_row, dim = (size_t)a->op.dim, all = (size_t)a->q_b.rows;
	size_t low_n = (size_t)a->q_a.rows, mid = (size_t)a->o_b.cols;
	float *low = pass_floats(p, n * low_n), *q = pass_floats(p, n * all), *u = pass_floats(p, n * dim);
	float *mixed = pass_floats(p, n * all), *parts = pass_floats(p, n * mid);
	const struct linear in[] = { { .w = &a->q_a, .out = low, .ld = low_n }, { .w = &a->kv, .out = u, .ld = dim } };
	const struct by_head to = {
		.w = a->o_a, .heads = a->groups, .in_head = all / (size_t)a->groups, .out_head = (size_t)a->low
	};
	struct attn op = a->op;

	ops->linear(p, in, 2, h, p->n_row, a->q_a.cols);
	ops->norm(p, low, low, p->n_row, a->q_a.rows, a->norm_q, op.eps);
	ops->linear(p, &(struct linear){ .w = &a->q_b, .out = q, .ld = all }, 1, low, p->n_row, a->q_b.cols);
	ops->norm(p, q, q, p->n_row * op.heads, op.dim, NULL, op.eps);
	ops->kv_append(p, &op, q, all, dim, u, u, view, a->kv_at.index);
	if (a->past.op.every) {
		choose(p, a, (int32_t *)v->shared, h, low);
		op.rows = p->kv[a->past.rows.group];
		op.rows_layer = a->past.rows.index;
		ops->attend_chosen(p, mixed, &op, q, NULL, all, dim, (int32_t *)v->shared, a->most, view,
		                   a->kv_at.index);
	} else {
		ops->attend(p, mixed, &op, q, NULL, all, dim, view, a->kv_at.index);
	}
	ops->kv_append(p, &a->back, mixed, all, dim, NULL, NULL, NULL, 0);
	ops->by_head(p, parts, &to, mixed, p->n_row);
	ops->linear(p, &(struct linear){ .w = &a->o_b, .out = out, .ld = (size_t)a->o_b.rows, .add = add }, 1, parts,
	            p->n_row, a->o_b.cols);
	p->work.used = mark;
}

static size_t window_room(const struct block *y, int n_row)
{
	const struct window *a = y->own;

	return work_floats_of(n_row, a->q_a.rows) + 2 * work_floats_of(n_row, a->q_b.rows) +
	       work_floats_of(n_row, a->op.dim) + work_floats_of(n_row, a->o_b.cols) +
	       2 * work_floats_of(n_row, a->past.kv.rows > a->keys.kv.rows ? a->past.kv.rows : a->keys.kv.rows) +
	       work_floats_of(n_row, a->index_q.rows) + work_floats_of(n_row, a->index_w.rows);
}

static const struct block_ops window_block = { window_run, window_room };

static size_t work_floats(const struct model *m, int n_row, int n_logit)
{
	const struct v4 *v = (const struct v4 *)m;

	return stack_work_floats(m, n_row, n_logit) + mhc_floats(v->site, n_row) +
	       work_floats_of(n_row, shape_residual(&m->shape)) + work_floats_of(n_row, v->site->fn.rows) +
	       streams_fuse_floats(&v->fuse, n_row);
}

static void forward(struct model *m, struct pass *p)
{
	const struct v4 *v = (const struct v4 *)m;
	const struct stack *s = &v->s;
	struct stack_views views = { .state = NULL };
	size_t n = (size_t)p->n_row, wide = (size_t)shape_residual(&m->shape);
	float *h = trunk_begin(p, &s->trunk), *x = pass_floats(p, n * wide);
	float *gates = pass_floats(p, n * (size_t)v->site->fn.rows);

	if (s->shared)
		views.shared = pass_floats(p, n * (size_t)s->shared);
	if (v->fuse.norm_given)
		streams_fuse(p, &v->fuse, x, h);
	else
		streams_fill(p, x, h, p->n_row, m->shape.streams, m->shape.hidden);
	for (int i = 0; i < s->n_block; i++) {
		const struct block *y = &s->block[i];

		mhc_begin(p, &v->site[i], h, gates, x);
		trunk_norm(p, &s->trunk, h, h, p->n_row, y->norm, NULL);
		y->ops->forward(p, y, h, false, h, &views);
		mhc_end(p, &v->site[i], x, h, gates);
		if (y->last_of >= 0)
			streams_tap(p, y->last_of, x, (int)wide);
	}
	mhc_begin(p, &v->last, h, gates, x);
	if (p->hidden && v->fuse.norm_given)
		p->be->ops->blend(p, p->hidden, wide, x, NULL, NULL, p->n_row, (int)wide);
	else if (p->hidden)
		trunk_hidden(p, &s->trunk, h);
	trunk_logits(p, &s->trunk, h);
}

static const char *const arch[] = { "deepseek_v4", NULL };

const struct model_ops deepseek_v4_ops = {
	.arch = arch,
	.size = sizeof(struct v4),
	.bind = bind,
	.forward = forward,
	.work_floats = work_floats,
	.bind_head = bind_head,
};
