/* trunk.c - see trunk.h. */
#include "model/trunk.h"

#include "model/work.h"

void trunk_bind(struct binder *b, struct trunk *t, int vocab, int hidden, bool tied, float eps, float norm_add)
{
	trunk_bind_as(b, t, &(struct trunk_names){ "embed_tokens", "norm" }, vocab, hidden, tied, eps, norm_add);
}

void trunk_bind_as(struct binder *b, struct trunk *t, const struct trunk_names *names, int vocab, int hidden, bool tied,
                   float eps, float norm_add)
{
	b->m->trunk = t;
	t->hidden = hidden;
	t->vocab = vocab;
	t->eps = eps;
	t->embed_scale = t->logit_scale = 1;
	if (!b->prefix)
		bind_find_prefix(b, names->embed);
	bind_embedding(b, &t->embed, &t->head, names->embed, vocab, hidden, tied);
	t->norm = bind_floats(b, hidden, norm_add, "%s.weight", names->norm);
}

void trunk_bind_head_bias(struct binder *b, struct trunk *t)
{
	const char *trunk = b->prefix, *p = b->code ? NULL : bind_head_prefix(b);

	b->prefix = p ? p : "";
	t->head_bias = bind_floats(b, t->vocab, 0, "lm_head.bias");
	b->prefix = trunk;
}

void trunk_norm(struct pass *p, const struct trunk *t, float *out, const float *in, int n, const float *gain,
                const float *bias)
{
	if (bias)
		p->be->ops->layer_norm(p, out, in, n, t->hidden, gain, bias, t->eps);
	else
		p->be->ops->norm(p, out, in, n, t->hidden, gain, t->eps);
}

/* x, the embeddings, to a draft head's input. */
static void fuse_given(struct pass *p, const struct trunk *t, float *x)
{
	const struct backend_ops *ops = p->be->ops;
	size_t mark = p->work.used, cols = (size_t)t->hidden, rows = (size_t)p->n_row * cols;
	float *h = pass_floats(p, rows), *both = pass_floats(p, 2 * rows);
	struct linear proj = { .w = &t->fuse->proj, .out = x, .ld = cols };

	ops->norm(p, h, x, p->n_row, t->hidden, t->fuse->norm_embed, t->eps);
	ops->blend(p, both, 2 * cols, h, NULL, NULL, p->n_row, t->hidden);
	ops->norm(p, h, p->given, p->n_row, t->hidden, t->fuse->norm_given, t->eps);
	ops->blend(p, both + cols, 2 * cols, h, NULL, NULL, p->n_row, t->hidden);
	ops->linear(p, &proj, 1, both, p->n_row, 2 * t->hidden);
	p->work.used = mark;
}

float *trunk_begin(struct pass *p, const struct trunk *t)
{
	float *x = pass_floats(p, (size_t)p->n_row * (size_t)t->hidden);

	p->be->ops->embed(p, x, &t->embed);
	if (t->embed_scale != 1)
		p->be->ops->map(p, x, p->n_row, t->hidden, t->embed_scale, 0);
	if (p->brought.n)
		p->be->ops->bring(p, x, t->hidden, 0);
	if (t->first)
		trunk_norm(p, t, x, x, p->n_row, t->first, t->first_bias);
	if (t->fuse)
		fuse_given(p, t, x);
	return x;
}

void trunk_tap(struct pass *p, const struct trunk *t, int i, const float *x)
{
	for (int k = 0; k < p->taps.n; k++)
		if (p->taps.v[k].layer == i)
			p->be->ops->blend(p, p->taps.v[k].out, p->taps.v[k].ld, x, NULL, NULL, p->n_row, t->hidden);
}

void trunk_hidden(struct pass *p, const struct trunk *t, const float *x)
{
	trunk_norm(p, t, p->hidden, x, p->n_row, t->norm, t->norm_bias);
}

void trunk_logits(struct pass *p, const struct trunk *t, const float *x)
{
	const struct backend_ops *ops = p->be->ops;
	struct linear head = { .w = &t->head, .out = p->logits, .ld = (size_t)t->vocab, .bias = t->head_bias };
	size_t mark = p->work.used, n = (size_t)p->n_logit * (size_t)t->hidden;
	float *last, *h;

	if (!p->n_logit)
		return;
	last = pass_floats(p, n);
	h = pass_floats(p, n);
	ops->gather(p, last, x, p->logit_row, p->n_logit, t->hidden);
	trunk_norm(p, t, h, last, p->n_logit, t->norm, t->norm_bias);
	ops->linear(p, &head, 1, h, p->n_logit, t->hidden);
	if (t->logit_scale != 1 || t->logit_cap != 0)
		ops->map(p, p->logits, p->n_logit, t->vocab, t->logit_scale, t->logit_cap);
	p->work.used = mark;
}

void trunk_end(struct pass *p, const struct trunk *t, const float *x)
{
	if (p->hidden)
		trunk_hidden(p, t, x);
	trunk_logits(p, t, x);
}

size_t trunk_begin_floats(const struct trunk *t, int n_row)
{
	return (t->fuse ? 4 : 1) * work_floats_of(n_row, t->hidden);
}

size_t trunk_end_floats(const struct trunk *t, int n_logit)
{
	return 2 * work_floats_of(n_logit, t->hidden);
}

void join_add(struct pass *p, const struct join *j, float *x, float *y, int cols)
{
	const struct backend_ops *ops = p->be->ops;

	if (y == x)
		return;
	if (j->norm)
		ops->norm(p, y, y, p->n_row, cols, j->norm, j->eps);
	ops->add(p, x, y, p->n_row, cols, j->scale != 0 ? j->scale : 1);
}
