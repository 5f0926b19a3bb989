/* gemma4_assistant.c - the assistant that drafts for Gemma 4: a few layers of Gemma 4 without keys and values.
 *
 *     x = pre [scale E[token] | h];  layers over the model's own keys and values, x = rms(x)
 *     logits = x E_own';  the next h = post x
 *
 * E and its scale are the model's.  h is the model's hidden row, after its last norm, of the token before the one that is
 * in no cache yet; then the assistant's own.  Every layer reads the keys and values of the model's last layer that has its
 * own and sees as much.  All guesses of a round have one position: queries turn by that of the token in no cache, and
 * see what the row before it sees.  A sliding layer reads the last `window` rows, one more than the model will look at
 * again; where that one's page is gone it reads one less.
 *
 * With ordered embeddings the tokens lie in clusters: those of the best few count, by the products of x with their
 * centroids, and all others lose. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "cache/kinds.h"
#include "model/families.h"
#include "model/gemma4.h"
#include "model/head.h"
#include "model/work.h"

struct assistant {
	struct gemma4 g;
	const struct gemma4 *of;
	struct weight pre, post, head;
	struct weight centroids; /* [clusters][hidden]; no rows: tokens are in no order */
	int best;                /* clusters that count */
	const int64_t *token;    /* [vocab] cluster by cluster */
	/* For one row in host memory. */
	float *score, *logit;
	bool *chosen;
};

static bool assistant_is(const struct store *st)
{
	const char *type = json_str(json_get(st->config, "model_type"), NULL);

	return type && !strcmp(type, "gemma4_assistant");
}

/* ---- tensors ---- */

static void bind_clusters(struct binder *b, struct assistant *a, struct conf *top)
{
	struct model *m = &a->g.d.m;
	int n = conf_int_or(top, "num_centroids", 2048, 1, m->shape.vocab);

	a->best = conf_int_or(top, "centroid_intermediate_top_k", 32, 1, n);
	if (!top->code && m->shape.vocab % n)
		conf_fail(top, E_FORMAT, "num_centroids: %d clusters of %d tokens", n, m->shape.vocab);
	if (top->code)
		return;
	bind_weight(b, &a->centroids, n, m->shape.hidden, "masked_embedding.centroids");
	if (b->code)
		return;
	b->code = store_ints(b->st, &m->arena, "masked_embedding.token_ordering", m->shape.vocab, &a->token, b->err);
	for (int i = 0; i < m->shape.vocab && !b->code; i++)
		if (a->token[i] < 0 || a->token[i] >= m->shape.vocab)
			b->code = err_set(b->err, E_FORMAT,
			                  "%s: masked_embedding.token_ordering: entry %d is %lld; there are %d tokens",
			                  b->st->dir, i, (long long)a->token[i], m->shape.vocab);
	a->score = arena_alloc(&m->arena, (size_t)n * sizeof *a->score);
	a->logit = arena_alloc(&m->arena, (size_t)m->shape.vocab * sizeof *a->logit);
	a->chosen = arena_alloc(&m->arena, (size_t)m->shape.vocab * sizeof *a->chosen);
}

static int bind_into(struct assistant *a, const struct model *of, struct store *st, struct err *err)
{
	struct decoder *d = &a->g.d;
	struct binder b = { .st = st, .m = &d->m, .err = err, .prefix = "" };
	struct conf top = { .j = st->config, .file = st->config_path, .where = "", .err = err },
		    c = decoder_conf(st, err);
	struct gemma4_plan p = { .of = a->of };
	struct shape *s = &d->m.shape;
	int wide = of->shape.hidden, layers;

	gemma4_read(&a->g, &c, &p);
	if (c.code)
		return c.code;
	if (s->vocab != of->shape.vocab)
		return err_set(err, E_UNSUPPORTED, "%s: vocab_size: %d, the model has %d", st->config_path, s->vocab,
		               of->shape.vocab);
	if (conf_int(&top, "backbone_hidden_size", 1, CONF_DIM_MAX) != wide && !top.code)
		conf_fail(&top, E_UNSUPPORTED, "backbone_hidden_size: is not the model's hidden_size %d", wide);
	if (a->g.dim || p.all.moe.experts)
		conf_fail(&top, E_UNSUPPORTED, "embeddings per layer or experts in an assistant are not done");
	if (top.code)
		return top.code;
	layers = s->layers;
	s->carry = wide;
	s->head.borrows = of;
	bind_weight(&b, &a->pre, s->hidden, 2 * wide, "pre_projection");
	bind_weight(&b, &a->post, wide, s->hidden, "post_projection");
	if (conf_bool_or(&top, "use_ordered_embeddings", false))
		bind_clusters(&b, a, &top);
	b.prefix = "model.";
	bind_weight(&b, &a->head, s->vocab, s->hidden, "embed_tokens");
	d->trunk = (struct trunk){ .hidden = s->hidden, .vocab = s->vocab, .eps = d->eps };
	d->trunk.norm = bind_floats(&b, s->hidden, 0, "norm.weight");
	d->layer = arena_zalloc(&d->m.arena, size_mul((size_t)layers, sizeof *d->layer));
	a->g.more = arena_zalloc(&d->m.arena, size_mul((size_t)layers, sizeof *a->g.more));
	for (int i = 0; i < layers && !b.code; i++)
		gemma4_bind_layer(&b, &a->g, &p, i);
	return b.code ? b.code : top.code ? top.code : c.code;
}

/* ---- forward ---- */

static size_t work_floats(const struct model *m, int n_row, int n_logit)
{
	const struct assistant *a = (const struct assistant *)m;
	size_t most = work_floats_of(n_row, m->shape.carry) + work_floats_of(n_row, 2 * m->shape.carry);

	most = work_max(most, work_floats_of(n_logit, m->shape.hidden) + work_floats_of(n_logit, a->centroids.rows));
	for (int i = 0; i < m->shape.layers; i++) {
		most = work_max(most, attention_floats(&a->g.d.layer[i].attn, n_row));
		most = work_max(most, ffn_floats(&a->g.d.layer[i].ffn, n_row));
	}
	return 2 * work_floats_of(n_row, m->shape.hidden) + most;
}

static void join_given(const struct assistant *a, struct pass *p, float *x)
{
	const struct backend_ops *ops = p->be->ops;
	const struct trunk *t = &a->of->d.trunk;
	size_t mark = p->work.used, wide = (size_t)t->hidden, n = (size_t)p->n_row;
	float *e = pass_floats(p, n * wide), *both = pass_floats(p, 2 * n * wide);
	struct linear pre = { .w = &a->pre, .out = x, .ld = (size_t)a->g.d.trunk.hidden };

	ops->embed(p, e, &t->embed);
	ops->map(p, e, p->n_row, t->hidden, t->embed_scale, 0);
	ops->blend(p, both, 2 * wide, e, NULL, NULL, p->n_row, t->hidden);
	ops->blend(p, both + wide, 2 * wide, p->given, NULL, NULL, p->n_row, t->hidden);
	ops->linear(p, &pre, 1, both, p->n_row, 2 * t->hidden);
	p->work.used = mark;
}

/* Is the oldest row of a window of this size there still, for all items? */
static bool whole_window(const struct pass *p, const struct kv_view *kv, int window)
{
	for (int i = 0; i < p->n_item && kv->first && window; i++)
		if (kv->first[i] * kv->page_rows > p->span[i].pos - window + 1 && kv->first[i])
			return false;
	return true;
}

static void attend(const struct assistant *a, struct pass *p, int i, float *x, float *h)
{
	const struct decoder_layer *y = &a->g.d.layer[i];
	const struct kv_view *kv = p->kv[y->kv.group];
	struct attention attn = y->attn;
	int hidden = a->g.d.trunk.hidden;

	if (!whole_window(p, kv, attn.op.window))
		attn.op.window--;
	p->be->ops->norm(p, h, x, p->n_row, hidden, y->norm_attn, a->g.d.eps);
	attention_forward(p, &attn, h, false, h, kv, y->kv.index);
	join_add(p, &y->join_attn, x, h, hidden);
}

/* The tokens of the best clusters; of equal scores the first. */
static void choose(struct assistant *a)
{
	int n = a->centroids.rows, each = a->g.d.m.shape.vocab / n;

	memset(a->chosen, 0, (size_t)a->g.d.m.shape.vocab * sizeof *a->chosen);
	for (int k = 0; k < a->best; k++) {
		int at = 0;

		for (int i = 1; i < n; i++)
			at = a->score[i] > a->score[at] ? i : at;
		for (int i = 0; i < each; i++)
			a->chosen[a->token[(size_t)at * (size_t)each + (size_t)i]] = true;
		a->score[at] = -INFINITY;
	}
}

/* Tokens of other clusters lose: their logits are less than the least of those that count. */
static void hold_to_clusters(struct assistant *a, struct pass *p, const float *x)
{
	const struct backend_ops *ops = p->be->ops;
	int n = a->centroids.rows, vocab = a->g.d.m.shape.vocab;
	float *score = pass_floats(p, (size_t)p->n_logit * (size_t)n);
	struct linear by = { .w = &a->centroids, .out = score, .ld = (size_t)n };

	ops->linear(p, &by, 1, x, p->n_logit, a->g.d.trunk.hidden);
	for (int i = 0; i < p->n_logit; i++) {
		float *far = p->logits + (size_t)i * (size_t)vocab, least = INFINITY;

		if (ops->read(p->be, a->score, score + (size_t)i * (size_t)n, (size_t)n * sizeof *score) ||
		    ops->read(p->be, a->logit, far, (size_t)vocab * sizeof *far))
			return; /* the pass has failed, as its end says */
		choose(a);
		for (int k = 0; k < vocab; k++)
			least = a->chosen[k] && a->logit[k] < least ? a->logit[k] : least;
		for (int k = 0; k < vocab; k++)
			a->logit[k] = a->chosen[k] ? a->logit[k] : least - 1;
		ops->write(p->be, far, a->logit, (size_t)vocab * sizeof *far);
	}
}

static void give(struct assistant *a, struct pass *p, const float *x)
{
	const struct backend_ops *ops = p->be->ops;
	int hidden = a->g.d.trunk.hidden;
	struct linear post = { .w = &a->post, .out = p->hidden, .ld = (size_t)a->post.rows };
	struct linear head = { .w = &a->head, .out = p->logits, .ld = (size_t)a->head.rows };
	float *last;

	if (p->hidden)
		ops->linear(p, &post, 1, x, p->n_row, hidden);
	if (!p->n_logit)
		return;
	last = pass_floats(p, (size_t)p->n_logit * (size_t)hidden);
	ops->gather(p, last, x, p->logit_row, p->n_logit, hidden);
	ops->linear(p, &head, 1, last, p->n_logit, hidden);
	if (a->centroids.rows)
		hold_to_clusters(a, p, last);
}

static void forward(struct model *m, struct pass *p)
{
	struct assistant *a = (struct assistant *)m;
	size_t rows = (size_t)p->n_row * (size_t)m->shape.hidden;
	float *x, *h;

	x = pass_floats(p, rows);
	h = pass_floats(p, rows);
	join_given(a, p, x);
	for (int i = 0; i < m->shape.layers; i++) {
		attend(a, p, i, x, h);
		gemma4_feed(&a->g, p, i, x, h, NULL);
	}
	p->be->ops->norm(p, h, x, p->n_row, m->shape.hidden, a->g.d.trunk.norm, a->g.d.eps);
	give(a, p, h);
}

static const char *const arch[] = { "assistant", NULL };

static const struct model_ops ops = {
	.arch = arch,
	.size = sizeof(struct assistant),
	.forward = forward,
	.work_floats = work_floats,
};

static int bind(struct model **out, const struct model *of, struct store *st, struct err *err)
{
	struct model *m;
	int code;

	if (of->ops != &gemma4_ops)
		return err_set(err, E_UNSUPPORTED, "%s: an assistant of Gemma 4, and the model is %s", st->config_path,
		               of->arch);
	m = head_new(&ops, of, st);
	((struct assistant *)m)->of = (const struct gemma4 *)of;
	code = bind_into((struct assistant *)m, of, st, err);
	if (code) {
		model_close(m);
		return code;
	}
	*out = m;
	return 0;
}

const struct head_kind assistant_head = { assistant_is, bind };
