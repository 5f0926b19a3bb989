/* stack.c - see stack.h. */
#include "model/stack.h"

#include <assert.h>
#include <math.h>

#include "cache/kinds.h"
#include "model/work.h"

void stack_read(struct stack *s, struct conf *c)
{
	struct shape *h = &s->m.shape;

	h->hidden = conf_int(c, "hidden_size", 1, CONF_DIM_MAX);
	h->layers = conf_int(c, "num_hidden_layers", 1, CONF_LAYERS_MAX);
	h->vocab = conf_int(c, "vocab_size", 1, CONF_VOCAB_MAX);
	h->ctx_max = conf_int(c, "max_position_embeddings", 1, CONF_CTX_MAX);
}

void stack_read_attention(struct stack *s, struct conf *c, struct attention_form *f)
{
	struct attn *op = &f->op;

	op->heads = conf_int(c, "num_attention_heads", 1, CONF_HEADS_MAX);
	op->heads_kv = conf_int_or(c, "num_key_value_heads", op->heads, 1, CONF_HEADS_MAX);
	op->dim = conf_int_or(c, "head_dim", s->m.shape.hidden / op->heads, 2, CONF_HEAD_DIM_MAX);
	if (!c->code && op->heads % op->heads_kv)
		conf_fail(c, E_FORMAT, "num_attention_heads: %d is not a multiple of num_key_value_heads %d", op->heads,
		          op->heads_kv);
	op->scale = 1.0f / sqrtf((float)op->dim);
	op->eps = s->trunk.eps;
	f->hidden = s->m.shape.hidden;
	f->bias_qkv = f->bias_o = conf_bool_or(c, "attention_bias", false);
}

void stack_room(struct stack *s, int blocks)
{
	s->block = arena_zalloc(&s->m.arena, size_mul((size_t)blocks, sizeof *s->block));
}

void stack_init(struct stack *s, struct binder *b, int blocks, const struct trunk_names *names, bool tied)
{
	static const struct trunk_names usual = { "embed_tokens", "norm" };

	stack_room(s, blocks);
	trunk_bind_as(b, &s->trunk, names ? names : &usual, s->m.shape.vocab, s->m.shape.hidden, tied, s->trunk.eps, 0);
}

struct block *stack_add(struct stack *s, const struct block_ops *ops, void *own, const float *norm)
{
	struct block *b = &s->block[s->n_block++];

	b->ops = ops;
	b->own = own;
	b->norm = norm;
	b->last_of = -1;
	return b;
}

void stack_end_layer(struct stack *s, int i)
{
	s->block[s->n_block - 1].last_of = i;
}

/* ---- the blocks that all families have ---- */

static void attention_run(struct pass *p, const struct block *b, float *out, bool add, const float *h,
                          const struct stack_views *v)
{
	attention_forward(p, b->own, out, add, h, v->kv[b->kv.group], b->kv.index);
}

static size_t attention_room(const struct block *b, int n_row)
{
	return attention_floats(b->own, n_row);
}

static const struct block_ops attention_block = { attention_run, attention_room };

struct block *stack_add_attention(struct stack *s, struct binder *b, const struct attention_form *f, const float *norm,
                                  int layer)
{
	struct attention *a = arena_zalloc(&b->m->arena, sizeof *a);
	struct block *y = stack_add(s, &attention_block, a, norm);

	attention_bind(b, a, f, layer);
	if (!b->code)
		b->code = attention_keep(&s->m, f, &y->kv, b->err);
	return y;
}

static void ffn_run(struct pass *p, const struct block *b, float *out, bool add, const float *h,
                    const struct stack_views *v)
{
	ffn_forward(p, b->own, out, add, h);
}

static size_t ffn_room(const struct block *b, int n_row)
{
	return ffn_floats(b->own, n_row);
}

static const struct block_ops ffn_block = { ffn_run, ffn_room };

struct block *stack_add_ffn(struct stack *s, struct binder *b, const struct ffn_form *f, const float *norm, int layer)
{
	struct ffn *y = arena_zalloc(&b->m->arena, sizeof *y);

	ffn_bind_dense(b, y, s->m.shape.hidden, f, layer);
	return stack_add(s, &ffn_block, y, norm);
}

struct block *stack_add_ready(struct stack *s, struct ffn *f, const float *norm)
{
	return stack_add(s, &ffn_block, f, norm);
}

void stack_count_moe(struct stack *s, const struct moe_form *f)
{
	s->m.shape.layers_moe++;
	s->m.shape.experts = f->experts;
	s->m.shape.experts_used = f->top_k;
}

struct block *stack_add_moe(struct stack *s, struct binder *b, const struct moe_form *f, const float *norm, int layer)
{
	struct ffn *y = arena_zalloc(&b->m->arena, sizeof *y);

	ffn_bind_moe(b, y, s->m.shape.hidden, f, layer);
	stack_count_moe(s, f);
	return stack_add(s, &ffn_block, y, norm);
}

struct ffn *stack_ffn(struct block *b)
{
	assert(b->ops == &ffn_block);
	return b->own;
}

/* ---- forward ---- */

size_t stack_work_floats(const struct model *m, int n_row, int n_logit)
{
	const struct stack *s = (const struct stack *)m;
	size_t most = trunk_end_floats(&s->trunk, n_logit), row = work_floats_of(n_row, m->shape.hidden);

	for (int i = 0; i < s->n_block; i++)
		most = work_max(most, s->block[i].ops->floats(&s->block[i], n_row));
	return trunk_begin_floats(&s->trunk, n_row) + (s->besides ? 2 : 1) * row + work_floats_of(n_row, s->shared) +
	       most;
}

void stack_forward(struct model *m, struct pass *p)
{
	const struct stack *s = (const struct stack *)m;
	struct stack_views v = { .state = p->state };
	int hidden = m->shape.hidden;
	size_t floats = (size_t)p->n_row * (size_t)hidden;
	float *x = trunk_begin(p, &s->trunk), *h = pass_floats(p, floats), *y = s->besides ? pass_floats(p, floats) : h;

	if (s->shared)
		v.shared = pass_floats(p, (size_t)p->n_row * (size_t)s->shared);
	for (int g = 0; g < m->shape.n_kv; g++)
		v.kv[g] = p->kv[g];
	for (int i = 0; i < s->n_block; i++) {
		const struct block *b = &s->block[i];
		float *to = join_to(&b->join, x, y);

		if (b->norm && !b->beside)
			trunk_norm(p, &s->trunk, h, x, p->n_row, b->norm, b->bias);
		b->ops->forward(p, b, to, to == x, b->norm ? h : x, &v);
		join_add(p, &b->join, x, to, hidden);
		if (b->last_of >= 0)
			trunk_tap(p, &s->trunk, b->last_of, x);
	}
	trunk_end(p, &s->trunk, x);
}
