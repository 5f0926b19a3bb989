/* stack.c - see stack.h. */
#include "model/stack.h"

#include <assert.h>

#include "cache/kinds.h"
#include "model/work.h"

void stack_init(struct stack *s, int blocks)
{
	s->block = arena_zalloc(&s->m.arena, size_mul((size_t)blocks, sizeof *s->block));
}

struct block *stack_add(struct stack *s, const struct block_ops *ops, void *own, const float *norm)
{
	struct block *b = &s->block[s->n_block++];

	b->ops = ops;
	b->own = own;
	b->norm = norm;
	return b;
}

/* ---- the blocks that all families have ---- */

static void attention_run(struct pass *p, const struct block *b, float *out, bool add, const float *h,
                          const struct stack_views *v)
{
	attention_forward(p, b->own, out, add, h, v->kv, b->layer);
}

static size_t attention_room(const struct block *b, int n_row)
{
	return attention_floats(b->own, n_row);
}

static const struct block_ops attention_block = { attention_run, attention_room };

struct block *stack_add_attention(struct stack *s, struct binder *b, const struct attention_form *f, const float *norm,
                                  int layer)
{
	struct attention *a = arena_zalloc(b->arena, sizeof *a);
	struct block *y = stack_add(s, &attention_block, a, norm);

	attention_bind(b, a, f, layer);
	y->layer = s->m.shape.layers_attn++;
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
	struct ffn *y = arena_zalloc(b->arena, sizeof *y);

	ffn_bind_dense(b, y, s->m.shape.hidden, f, layer);
	return stack_add(s, &ffn_block, y, norm);
}

struct block *stack_add_moe(struct stack *s, struct binder *b, const struct moe_form *f, const float *norm, int layer)
{
	struct ffn *y = arena_zalloc(b->arena, sizeof *y);

	ffn_bind_moe(b, y, s->m.shape.hidden, f, layer);
	s->m.shape.layers_moe++;
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
	return trunk_begin_floats(&s->trunk, n_row) + (s->besides ? 2 : 1) * row + most;
}

void stack_forward(struct model *m, struct pass *p)
{
	const struct stack *s = (const struct stack *)m;
	const struct stack_views v = { m->kv ? paged_view(m->kv) : NULL, m->state ? state_view(m->state) : NULL };
	int hidden = m->shape.hidden;
	size_t floats = (size_t)p->n_row * (size_t)hidden;
	float *x = trunk_begin(p, &s->trunk), *h = pass_floats(p, floats), *y = s->besides ? pass_floats(p, floats) : h;

	for (int i = 0; i < s->n_block; i++) {
		const struct block *b = &s->block[i];
		float *to = join_to(&b->join, x, y);

		if (b->norm && !b->beside)
			p->be->ops->norm(p, h, x, p->n_row, hidden, b->norm, s->trunk.eps);
		b->ops->forward(p, b, to, to == x, b->norm ? h : x, &v);
		join_add(p, &b->join, x, to, hidden);
	}
	trunk_end(p, &s->trunk, x);
}
