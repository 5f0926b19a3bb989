/* indexer.c - see indexer.h. */
#include "model/indexer.h"

#include "model/work.h"

struct indexer {
	struct attn op;
	struct weight q, k, weights;
	const float *gain, *bias; /* of the keys' norm */
	int most;
	struct kv_place kv;
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

struct indexer *indexer_bind(struct stack *s, struct binder *b, const struct indexer_form *f, const char *at, int layer)
{
	const struct kv_group row = { .heads = 1, .dim_k = f->dim, .dim_v = f->dim, .latent = true, .index = true };
	struct indexer *x = arena_zalloc(&b->m->arena, sizeof *x);

	x->op = (struct attn){ .heads = f->heads,
		               .heads_kv = 1,
		               .dim = f->dim,
		               .scale = 1,
		               .first = f->first,
		               .rope = f->turn,
		               .v_is_key = true };
	x->most = f->most;
	bind_weight(b, &x->q, f->heads * f->dim, f->q_lora, "layers.%d.%s.indexer.wq_b", layer, at);
	bind_weight(b, &x->k, f->dim, f->hidden, "layers.%d.%s.indexer.wk", layer, at);
	bind_weight(b, &x->weights, f->heads, f->hidden, "layers.%d.%s.indexer.weights_proj", layer, at);
	x->gain = bind_floats(b, f->dim, 0, "layers.%d.%s.indexer.k_norm.weight", layer, at);
	x->bias = bind_floats(b, f->dim, 0, "layers.%d.%s.indexer.k_norm.bias", layer, at);
	if (!b->code)
		b->code = model_kv_add(&s->m, &row, &x->kv, b->err);
	return x;
}

void indexer_choose(struct pass *p, const struct indexer *x, int32_t *chosen, const float *h, const float *low,
                    const struct stack_views *v)
{
	const struct backend_ops *ops = p->be->ops;
	size_t mark = p->work_used, n = (size_t)p->n_row, dim = (size_t)x->op.dim, all = (size_t)x->q.rows;
	float *q = pass_floats(p, n * all), *k = pass_floats(p, n * dim);
	float *weight = pass_floats(p, n * (size_t)x->op.heads);
	const struct linear of_h[] = { { .w = &x->k, .out = k, .ld = dim },
		                       { .w = &x->weights, .out = weight, .ld = (size_t)x->op.heads } };

	ops->linear(p, of_h, 2, h, p->n_row, x->k.cols);
	ops->linear(p, &(struct linear){ .w = &x->q, .out = q, .ld = all }, 1, low, p->n_row, x->q.cols);
	ops->layer_norm(p, k, k, p->n_row, x->op.dim, x->gain, x->bias, 1e-6f);
	ops->kv_append(p, &x->op, q, all, dim, k, k, v->kv[x->kv.group], x->kv.index);
	ops->choose(p, chosen, x->most, &x->op, q, all, dim, weight, v->kv[x->kv.group], x->kv.index);
	p->work_used = mark;
}

size_t indexer_floats(const struct indexer *x, int n_row)
{
	return work_floats_of(n_row, x->q.rows) + work_floats_of(n_row, x->op.dim) + work_floats_of(n_row, x->op.heads);
}
