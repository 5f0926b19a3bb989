/* indexer.c - see indexer.h. */
#include "model/indexer.h"

#include "model/bind.h"
#include "model/work.h"

struct indexer {
	struct attn op;
	struct weight q, k, weights; /* weights: no rows for QSA */
	struct weight pool;          /* compress_gate; no rows where there is none */
	struct compress blocks;      /* every 0: keys of blocks are rows of their last positions, or there are none */
	const float *gain, *bias;    /* of the keys' norm */
	int most;
	struct kv_place kv, raw; /* raw: what rows of blocks are made of */
};

void indexer_read(struct indexer_form *f, struct conf *c, const struct rope *turn, int rope, bool adjacent)
{
	f->heads = conf_int(c, "index_n_heads", 1, CONF_HEADS_MAX);
	f->dim = conf_int(c, "index_head_dim", rope, CONF_HEAD_DIM_MAX);
	f->most = conf_int(c, "index_topk", 1, CONF_CTX_MAX);
	f->turn = *turn;
	f->turn.mscale = 1;
	f->turn.adjacent = conf_bool_or(c, "indexer_rope_interleave", adjacent);
}

void indexer_read_pools(struct indexer_form *f, struct conf *c)
{
	f->heads = conf_int(c, "index_n_heads", 1, CONF_HEADS_MAX);
	f->dim = conf_int(c, "index_head_dim", 1, CONF_HEAD_DIM_MAX);
	f->most = conf_int(c, "index_topk", 1, CONF_CTX_MAX);
	f->block = conf_int(c, "index_kpool", 1, f->most);
	f->weighted = true;
	if (!c->code && f->most % f->block)
		conf_fail(c, E_FORMAT, "index_topk: %d is not a multiple of index_kpool %d", f->most, f->block);
	f->most += f->block - 1;
	if (!conf_bool_or(c, "index_kpool_compress", false))
		conf_fail(c, E_UNSUPPORTED, "index_kpool_compress: only true is done");
	if (!conf_bool_or(c, "index_kpool_always_select_tail", false))
		conf_fail(c, E_UNSUPPORTED, "index_kpool_always_select_tail: only true is done");
}

void indexer_read_blocks(struct indexer_form *f, struct conf *c, const struct rope *turn)
{
	int budget = conf_int(c, "indexer_budget", 1, CONF_CTX_MAX);

	f->heads = conf_int(c, "indexer_n_heads", 1, CONF_HEADS_MAX);
	f->dim = conf_int(c, "indexer_head_dim", 2, CONF_HEAD_DIM_MAX);
	f->block = conf_int(c, "indexer_compress_ratio", 1, budget);
	f->most = budget + f->block - 1;
	f->turn = *turn;
	if (conf_int_or(c, "indexer_kv_heads", 1, 1, CONF_HEADS_MAX) != 1)
		conf_fail(c, E_UNSUPPORTED, "indexer_kv_heads: only 1 is done");
	if (!c->code && budget % f->block)
		conf_fail(c, E_FORMAT, "indexer_budget: %d is not a multiple of indexer_compress_ratio %d", budget,
		          f->block);
	if (!c->code && 2 * turn->n_freq > f->dim)
		conf_fail(c, E_FORMAT, "indexer_head_dim: %d is less than the %d dims that are rotated", f->dim,
		          2 * turn->n_freq);
}

static void keep_keys(struct binder *b, struct kv_place *out, struct kv_group g)
{
	g.heads = 1;
	g.index = true;
	if (!b->code)
		b->code = model_kv_add(b->m, &g, out, b->err);
}

/* Keys of blocks are weighted sums, and only those are kept; where blocks do not begin with the sequence, rows for them cannot
 * be, and each position has one. */
static void bind_pools(struct binder *b, struct indexer *x, const struct indexer_form *f, const char *at, int layer)
{
	const float *bias = bind_floats(b, (int64_t)f->block * f->dim, 0,
	                                "layers.%d.%s.indexer.index_kpool_compress_ape", layer, at);

	bind_weight(b, &x->pool, f->dim, f->hidden, "layers.%d.%s.indexer.index_kpool_compress_gate", layer, at);
	bind_apart(b, &x->pool); /* a parameter, of which adapters know nothing */
	if (f->first) {
		x->op.v_is_key = false;
		x->op.pooled = f->block;
		x->op.pool_bias = bias;
		keep_keys(b, &x->kv, (struct kv_group){ .dim_k = f->dim, .dim_v = f->dim });
		return;
	}
	x->blocks = (struct compress){ .every = f->block, .dim = f->dim, .bias = bias };
	keep_keys(b, &x->raw, (struct kv_group){ .dim_k = f->dim, .dim_v = f->dim, .window = f->block });
	keep_keys(b, &x->kv, (struct kv_group){ .dim_k = f->dim, .dim_v = f->dim, .latent = true, .every = f->block });
}

static void bind_positions(struct binder *b, struct indexer *x, const struct indexer_form *f, const char *at, int layer)
{
	bind_weight(b, &x->q, f->heads * f->dim, f->q_lora, "layers.%d.%s.indexer.wq_b", layer, at);
	bind_weight(b, &x->k, f->dim, f->hidden, "layers.%d.%s.indexer.wk", layer, at);
	bind_weight(b, &x->weights, f->heads, f->hidden, "layers.%d.%s.indexer.weights_proj", layer, at);
	x->gain = bind_floats(b, f->dim, 0, "layers.%d.%s.indexer.k_norm.weight", layer, at);
	x->bias = bind_floats(b, f->dim, 0, "layers.%d.%s.indexer.k_norm.bias", layer, at);
}

static void bind_blocks(struct binder *b, struct indexer *x, const struct indexer_form *f, const char *at, int layer)
{
	int rows = f->heads * f->dim;
	struct weight both;

	x->op.pooled = f->block;
	x->op.eps = f->eps;
	if (bind_has(b, "layers.%d.%s.indexer.q_proj.weight", layer, at)) { /* as GGUF files have it */
		bind_weight(b, &x->q, rows, f->hidden, "layers.%d.%s.indexer.q_proj", layer, at);
		bind_weight(b, &x->k, f->dim, f->hidden, "layers.%d.%s.indexer.k_proj", layer, at);
	} else {
		bind_weight(b, &both, rows + f->dim, f->hidden, "layers.%d.%s.indexer.index_qk_proj", layer, at);
	}
	x->op.q_norm = bind_floats(b, f->dim, f->norm_add, "layers.%d.%s.indexer.q_layernorm.weight", layer, at);
	x->op.k_norm = bind_floats(b, f->dim, f->norm_add, "layers.%d.%s.indexer.k_layernorm.weight", layer, at);
	if (b->code || x->q.rows)
		return;
	if (rows % 16)
		bind_rows_only(b, &both); /* is cut where no packed block begins */
	x->q = weight_rows(&both, 0, rows);
	x->k = weight_rows(&both, rows, f->dim);
}

struct indexer *indexer_bind(struct binder *b, const struct indexer_form *f, const char *at, int layer)
{
	struct indexer *x = arena_zalloc(&b->m->arena, sizeof *x);

	x->op = (struct attn){ .heads = f->heads,
		               .heads_kv = 1,
		               .dim = f->dim,
		               .scale = 1,
		               .first = f->first,
		               .rope = f->turn,
		               .v_is_key = true };
	x->most = f->most;
	(f->block && !f->weighted ? bind_blocks : bind_positions)(b, x, f, at, layer);
	if (f->weighted)
		bind_pools(b, x, f, at, layer);
	else
		keep_keys(b, &x->kv, (struct kv_group){ .dim_k = f->dim, .dim_v = f->dim, .latent = true });
	return x;
}

void indexer_choose(struct pass *p, const struct indexer *x, int32_t *chosen, const float *h, const float *low)
{
	const struct backend_ops *ops = p->be->ops;
	size_t mark = p->work.used, n = (size_t)p->n_row, dim = (size_t)x->op.dim, all = (size_t)x->q.rows;
	float *q = pass_floats(p, n * all), *k = pass_floats(p, n * dim), *v = k;
	float *weight = x->weights.rows ? pass_floats(p, n * (size_t)x->op.heads) : NULL;
	const struct kv_view *view = p->kv[x->kv.group];
	const struct linear of_q = { .w = &x->q, .out = q, .ld = all };
	struct linear of_h[3] = {
		{ .w = &x->k, .out = k, .ld = dim },
		weight ? (struct linear){ .w = &x->weights, .out = weight, .ld = (size_t)x->op.heads } : of_q
	};

	if (x->pool.rows) {
		v = pass_floats(p, n * dim);
		of_h[2] = (struct linear){ .w = &x->pool, .out = v, .ld = dim };
	}
	ops->linear(p, of_h, x->pool.rows ? 3 : 2, h, p->n_row, x->k.cols);
	if (weight) {
		ops->linear(p, &of_q, 1, low, p->n_row, x->q.cols);
		ops->layer_norm(p, k, k, p->n_row, x->op.dim, x->gain, x->bias, 1e-6f);
	}
	if (x->blocks.every)
		ops->compress(p, &x->blocks, k, v, p->kv[x->raw.group], x->raw.index, view, x->kv.index);
	else
		ops->kv_append(p, &x->op, q, all, dim, k, v, view, x->kv.index);
	ops->choose(p, chosen, x->most, &x->op, q, all, dim, weight, view, x->kv.index);
	p->work.used = mark;
}

size_t indexer_floats(const struct indexer *x, int n_row)
{
	return work_floats_of(n_row, x->q.rows) + (x->pool.rows ? 2 : 1) * work_floats_of(n_row, x->op.dim) +
	       work_floats_of(n_row, x->op.heads);
}
