/* draft_pass.c - see draft_pass.h. */
#include "engine/draft/draft_pass.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

int draft_pass_open(struct draft_pass *p, struct model *m, int seqs_max, int rows_max, struct err *err)
{
	struct backend *be = m->be;
	size_t seqs = (size_t)seqs_max, rows = (size_t)rows_max, logits;

	assert(seqs_max > 0 && rows_max >= seqs_max);
	*p = (struct draft_pass){ .m = m, .seqs_max = seqs_max, .rows_max = rows_max };
	p->each = m->shape.head.block ? m->shape.head.guesses : 1;
	logits = size_mul(seqs, (size_t)p->each);
	p->span = xcalloc(seqs, sizeof(*p->span));
	p->first = xcalloc(seqs, sizeof(*p->first));
	p->logit_row = xcalloc(logits, sizeof(*p->logit_row));
	p->tok = xcalloc(rows, sizeof(*p->tok));
	p->pos = xcalloc(rows, sizeof(*p->pos));
	p->item = xcalloc(rows, sizeof(*p->item));
	p->see = xcalloc(rows, sizeof(*p->see));
	p->spoiled = xcalloc(seqs, sizeof(*p->spoiled));
	p->pass = (struct pass){
		.be = be,
		.arith = m->opts.arith,
		.tok = p->tok,
		.pos = p->pos,
		.item = p->item,
		.see = p->see,
		.span = p->span,
		.row = p->first,
		.logit_row = p->logit_row,
		.spoil.items = p->spoiled,
	};
	p->logits_bytes = size_mul(size_mul(logits, (size_t)m->shape.vocab), sizeof(float));
	if (!be->ops->near)
		p->copied = xcalloc(1, p->logits_bytes);
	p->pass.work.cap = size_mul(m->ops->work_floats(m, rows_max, (int)logits), sizeof(float));
	p->pass.logits = be->ops->alloc(be, p->logits_bytes);
	p->pass.work.p = p->pass.work.cap ? be->ops->alloc(be, p->pass.work.cap) : NULL;
	if (p->pass.logits && (p->pass.work.p || !p->pass.work.cap))
		return 0;
	draft_pass_close(p);
	return err_set(err, E_FULL, "no memory to draft in steps of %d rows", rows_max);
}

void draft_pass_close(struct draft_pass *p)
{
	struct backend *be = p->m ? p->m->be : NULL;

	if (be && p->pass.logits)
		be->ops->free(be, p->pass.logits, p->logits_bytes);
	if (be && p->pass.work.p)
		be->ops->free(be, p->pass.work.p, p->pass.work.cap);
	free(p->span);
	free(p->first);
	free(p->logit_row);
	free(p->tok);
	free(p->pos);
	free(p->item);
	free(p->see);
	free(p->spoiled);
	free(p->copied);
	*p = (struct draft_pass){ 0 };
}

void draft_pass_clear(struct draft_pass *p)
{
	p->pass.n_row = p->pass.n_item = p->pass.n_logit = 0;
	memset(p->spoiled, 0, (size_t)p->seqs_max * sizeof(*p->spoiled));
}

int draft_pass_add(struct draft_pass *p, int slot, int pos, const int32_t *tok, int n, bool logits)
{
	struct span span = { .slot = slot, .pos = pos, .n = n };
	int item = p->pass.n_item, row = p->pass.n_row;

	assert(item < p->seqs_max && n > 0 && row + n <= p->rows_max && (!logits || n >= p->each));
	if (caches_reserve(&p->m->caches, &span))
		return E_FULL;
	p->span[item] = span;
	p->first[item] = row;
	memcpy(p->tok + row, tok, (size_t)n * sizeof(*tok));
	for (int i = 0; i < n; i++) {
		p->pos[row + i] = pos + i;
		p->item[row + i] = item;
		p->see[row + i] = p->pass.ahead && p->m->shape.head.block ? pos + n - 1 : pos + i;
	}
	for (int i = n - p->each; logits && i < n; i++)
		p->logit_row[p->pass.n_logit++] = row + i;
	p->pass.n_row += n;
	p->pass.n_item++;
	return 0;
}

void draft_pass_compute(struct draft_pass *p)
{
	size_t n = (size_t)p->pass.n_logit * (size_t)p->m->shape.vocab;
	bool failed = model_run(p->m, &p->pass, NULL) != 0;

	p->logits = failed || !n ? NULL : backend_near(p->m->be, p->pass.logits, n, p->copied);
	if (p->logits || (!failed && !n))
		return;
	p->logits = p->copied;
	memset(p->spoiled, true, (size_t)p->pass.n_item * sizeof(*p->spoiled));
}

void draft_pass_run(struct draft_pass *p)
{
	struct caches *caches = &p->m->caches;

	if (!p->pass.n_item)
		return;
	caches_begin(caches, p->span, p->pass.n_item);
	draft_pass_compute(p);
	for (int i = 0; i < p->pass.n_item; i++)
		caches_settle(caches, &p->span[i], p->span[i].n);
}

float *draft_pass_logits(struct draft_pass *p, int i)
{
	size_t vocab = (size_t)p->m->shape.vocab;

	assert(i >= 0 && i < p->pass.n_logit);
	return p->logits + (size_t)i * vocab;
}
