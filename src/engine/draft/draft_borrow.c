/* draft_borrow.c - a drafter that is a small model without keys and values of its own: it reads the
 * model's (model.h, head_shape.borrows), as Gemma 4's assistant does.
 *
 * A borrowed head keeps one row for each sequence: the model's hidden row of the last token that the model has computed.
 * So there is nothing to catch up with, to take back, or to keep with a prefix: after a prefix was found the model computes
 * at least one token, whose row comes then. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/draft/draft.h"
#include "engine/draft/draft_pass.h"

struct last {
	uint64_t id; /* 0: nothing here */
	int pos;     /* tokens that the model had computed: the row is that of the token before */
	int row;     /* in the last step */
};

struct borrow {
	struct drafter d;
	struct drafter_ops ops; /* d's, named after the kind of head */
	struct model *m;
	struct draft_pass pass;
	struct last *last;     /* [seqs_max] */
	struct draft_ask **in; /* [seqs_max] asks of the step */
	struct span *lay;      /* [seqs_max] spans of no rows */
	int32_t *rope;         /* [seqs_max][3] */
	size_t row_bytes;      /* of the model's hidden row */
	/* The backend's. */
	char *kept;           /* [seqs_max] rows */
	char *given, *hidden; /* [seqs_max] rows, into and out of a step */
};

static int follow(struct drafter *d, const struct pass *p, const struct draft_run *run, int n_run)
{
	struct borrow *g = (struct borrow *)d;
	struct backend *be = g->m->be;

	for (int i = 0; i < n_run; i++) {
		const struct draft_seq *a = &run[i].seq;

		if (run[i].n < 1)
			continue;
		g->last[a->slot] = (struct last){ .id = a->id, .pos = a->pos };
		be->ops->copy(be, g->kept + (size_t)a->slot * g->row_bytes,
		              (const char *)p->hidden + (size_t)(run[i].row + run[i].n - 1) * g->row_bytes,
		              g->row_bytes);
	}
	return 0;
}

/* A row of token tok that goes on from the row `from`. */
static void add(struct borrow *g, struct draft_ask *a, int32_t tok, const char *from)
{
	struct draft_pass *p = &g->pass;
	struct backend *be = g->m->be;
	int i = p->pass.n_item, slot = a->seq.slot, pos = a->seq.pos;

	p->span[i] = (struct span){ .slot = slot, .pos = pos - 1, .n = 1 };
	g->lay[i] = (struct span){ .slot = slot, .pos = pos };
	p->first[i] = p->item[i] = p->logit_row[i] = i;
	p->tok[i] = tok;
	p->pos[i] = p->see[i] = pos - 1;
	for (int k = 0; k < 3; k++)
		g->rope[3 * i + k] = pos;
	be->ops->copy(be, g->given + (size_t)i * g->row_bytes, from, g->row_bytes);
	g->last[slot].row = i;
	g->in[i] = a;
	p->pass.n_item = p->pass.n_row = p->pass.n_logit = i + 1;
}

static void propose(struct drafter *d, struct draft_ask *ask, int n_ask)
{
	struct borrow *g = (struct borrow *)d;
	const struct model *of = g->m->shape.head.borrows;

	for (int i = 0; i < n_ask; i++) {
		const struct last *l = &g->last[ask[i].seq.slot];

		ask[i].n = ask[i].caught = 0;
		if (l->id != ask[i].seq.id || l->pos != ask[i].seq.pos || l->pos < 1 ||
		    ask[i].seq.n_tok > g->m->opts.ctx_max)
			ask[i].max = 0;
	}
	for (int depth = 0;; depth++) {
		draft_pass_clear(&g->pass);
		for (int i = 0; i < n_ask; i++) {
			struct draft_ask *a = &ask[i];
			const struct last *l = &g->last[a->seq.slot];

			if (a->n != depth || a->max <= depth)
				continue;
			if (depth)
				add(g, a, a->out[depth - 1], g->hidden + (size_t)l->row * g->row_bytes);
			else
				add(g, a, a->seq.tok[a->seq.n_tok - 1], g->kept + (size_t)a->seq.slot * g->row_bytes);
		}
		if (!g->pass.pass.n_item)
			return;
		caches_begin((struct caches *)&of->caches, g->lay, g->pass.pass.n_item);
		draft_pass_compute(&g->pass);
		for (int i = 0; i < g->pass.pass.n_item; i++)
			if (!g->pass.spoiled[i])
				draft_guess(g->in[i], draft_pass_logits(&g->pass, i));
	}
}

static void forget(struct drafter *d, int slot)
{
	((struct borrow *)d)->last[slot].id = 0;
}

static void borrow_close(struct drafter *d)
{
	struct borrow *g = (struct borrow *)d;
	struct backend *be = g->m->be;
	char *all[] = { g->kept, g->given, g->hidden };

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (all[i])
			be->ops->free(be, all[i], (size_t)g->pass.seqs_max * g->row_bytes);
	draft_pass_close(&g->pass);
	free(g->last);
	free(g->in);
	free(g->lay);
	free(g->rope);
	free(g);
}

static const struct drafter_ops borrow_ops = {
	.propose = propose,
	.close = borrow_close,
	.forget = forget,
	.follow = follow,
};

int draft_borrow_open(struct drafter **out, struct model *m, int seqs_max, struct err *err)
{
	struct borrow *g = xcalloc(1, sizeof *g);
	size_t n = (size_t)seqs_max;

	*out = NULL;
	g->m = m;
	g->ops = borrow_ops;
	g->ops.name = m->ops->arch[0];
	g->d.ops = &g->ops;
	g->row_bytes = (size_t)m->shape.carry * sizeof(float);
	if (draft_pass_open(&g->pass, m, seqs_max, seqs_max, err)) {
		borrow_close(&g->d);
		return err->code;
	}
	g->last = xcalloc(n, sizeof *g->last);
	g->in = xcalloc(n, sizeof(struct draft_ask *));
	g->lay = xcalloc(n, sizeof *g->lay);
	g->rope = xcalloc(3 * n, sizeof *g->rope);
	g->kept = m->be->ops->alloc(m->be, n * g->row_bytes);
	g->given = m->be->ops->alloc(m->be, n * g->row_bytes);
	g->hidden = m->be->ops->alloc(m->be, n * g->row_bytes);
	g->pass.pass.given = (const float *)g->given;
	g->pass.pass.hidden = (float *)g->hidden;
	g->pass.pass.rope_pos = g->rope;
	if (!g->kept || !g->given || !g->hidden) {
		borrow_close(&g->d);
		return err_set(err, E_FULL, "no memory for an assistant over %d sequences", seqs_max);
	}
	*out = &g->d;
	return 0;
}
