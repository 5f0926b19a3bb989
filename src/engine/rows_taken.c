/* rows_taken.c - see core.h: which rows of a step requests want, and their way from the backend into wanted_rows.h. */
#include <limits.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "engine/core.h"
#include "engine/wanted_rows.h"

int rows_check(const struct engine *e, const struct ask *a, struct err *err)
{
	const struct shape *s = &e->m->shape;

	if (a->rows && (a->rows_from < 0 || a->rows_from >= a->n_prompt))
		return err_set(err, E_ARG, "rows from %d on are wanted of a prompt of %d tokens", a->rows_from,
		               a->n_prompt);
	if (a->rows >= 2 * ROWS_ALL)
		return err_set(err, E_ARG, "rows of an unknown kind are wanted: %u", a->rows);
	if (a->second < 0 || a->second > a->n_prompt)
		return err_set(err, E_ARG, "the second text begins at %d of %d tokens", a->second, a->n_prompt);
	if (!s->whole)
		return 0;
	if (a->max_tokens || a->n_span || a->on_logits)
		return err_set(err, E_ARG,
		               "the model sees whole texts: it gives no answers, no logits, and takes no images");
	if (a->n_prompt > e->opts.step_rows)
		return err_set(err, E_LIMIT, "the text has %d tokens and the model takes %d at once", a->n_prompt,
		               e->opts.step_rows);
	return 0;
}

int rows_begin(struct engine *e, struct request *r, const struct ask *a, struct err *err)
{
	bool one = a->rows == ROWS_LAST && a->rows_from == a->n_prompt - 1;

	r->ask.second = a->second ? a->second : INT_MAX;
	r->brought.whole = e->m->shape.whole ? a->n_prompt : 0;
	r->ask.no_cache |= (a->rows && !one) || e->m->shape.whole;
	if (a->rows && !(r->rows = rows_open(a->rows, a->rows_from, a->n_prompt, e->m->shape.hidden)))
		return err_set(err, E_FULL, "no memory for the rows of %d tokens", a->n_prompt);
	return 0;
}

const float *request_rows(const struct request *r, size_t *n)
{
	*n = r->rows ? r->rows->n : 0;
	return r->rows ? r->rows->out : NULL;
}

/* Rows of the item that come next: how many, and *first the first of them in the step. */
static int rows_of(const struct batch *b, const struct batch_item *it, int *first)
{
	const struct span *s = &b->span[it - b->item];
	const struct rows *r = it->req->rows;
	int end = s->pos + s->n - s->n_draft;

	if (!r || r->next < s->pos)
		return 0;
	end = end < r->end ? end : r->end;
	if (r->next >= end)
		return 0;
	*first = it->row + r->next - s->pos;
	return end - r->next;
}

bool rows_wanted(const struct engine *e)
{
	int first;

	for (int i = 0; i < e->step.batch.n_item; i++)
		if (rows_of(&e->step.batch, &e->step.batch.item[i], &first))
			return true;
	return false;
}

int rows_take(struct engine *e, const struct batch_item *it, struct err *err)
{
	struct backend *be = e->m->be;
	struct rows *r = it->req->rows;
	int first, n = rows_of(&e->step.batch, it, &first);
	size_t cols = (size_t)e->m->shape.hidden, floats = (size_t)n * cols;
	float *from = n ? e->step.hidden + (size_t)first * cols : NULL, *copy = NULL, *near;

	if (!n)
		return 0;
	if (!be->ops->near)
		copy = xmalloc(floats * sizeof *copy);
	near = backend_near(be, from, floats, copy);
	if (!near)
		*err = be->failed;
	for (int i = 0, pos = r->next; i < n && near; i++)
		rows_put(r, pos + i, near + (size_t)i * cols);
	free(copy);
	return near ? 0 : err->code;
}
