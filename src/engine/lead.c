/* lead.c - see lead.h. */
#include "engine/lead.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static int32_t *copy(const int32_t *id, int n)
{
	int32_t *out = xmalloc(size_mul((size_t)n + 1, sizeof *out));

	if (n)
		memcpy(out, id, (size_t)n * sizeof *out);
	return out;
}

static int check(const int32_t *id, int n, int vocab, struct err *err)
{
	for (int i = 0; i < n; i++)
		if (id[i] < 0 || id[i] >= vocab)
			return err_set(err, E_ARG, "token %d, which the answer is to be given, and the ids end at %d",
			               id[i], vocab - 1);
	return 0;
}

/* No thought, or none any more. */
static void after_thought(struct lead_run *r)
{
	r->at = r->l.n_then && !r->then_said ? LEAD_THEN : LEAD_FREE;
	r->then_said = true;
	r->i = 0;
}

static void think(struct lead_run *r)
{
	r->at = r->l.think_max >= 0 && r->n_thought >= r->l.think_max ? LEAD_END : LEAD_THOUGHT;
	r->i = 0;
}

int lead_init(struct lead_run *r, const struct lead *l, int vocab, struct err *err)
{
	int rc;

	memset(r, 0, sizeof *r);
	r->at = LEAD_FREE;
	if (!l)
		return 0;
	if (l->think_max >= 0 && !l->n_end)
		return err_set(err, E_ARG, "thought is bound to %d tokens and nothing ends it", l->think_max);
	if ((rc = check(l->opens, l->n_opens, vocab, err)) || (rc = check(l->end, l->n_end, vocab, err)) ||
	    (rc = check(l->then, l->n_then, vocab, err)))
		return rc;
	r->l = *l;
	r->l.end = copy(l->end, l->n_end);
	r->l.then = copy(l->then, l->n_then);
	r->l.opens = copy(l->opens, l->n_opens);
	if (l->thinking)
		think(r);
	else if (l->n_then || l->open < 0)
		after_thought(r);
	else
		r->at = LEAD_BEGIN;
	return 0;
}

void lead_fini(struct lead_run *r)
{
	free((int32_t *)r->l.end);
	free((int32_t *)r->l.then);
	free((int32_t *)r->l.opens);
	r->l.end = r->l.then = r->l.opens = NULL;
}

int32_t lead_next(const struct lead_run *r)
{
	if (r->at == LEAD_END)
		return r->l.end[r->i];
	return r->at == LEAD_THEN ? r->l.then[r->i] : -1;
}

int lead_ahead(const struct lead_run *r, int32_t *out, int max)
{
	int n = 0, i = r->i;

	if (r->at == LEAD_END)
		for (; i < r->l.n_end && n < max; i++)
			out[n++] = r->l.end[i];
	if (r->at == LEAD_END)
		i = 0;
	if (r->at == LEAD_END || r->at == LEAD_THEN)
		for (; i < r->l.n_then && n < max; i++)
			out[n++] = r->l.then[i];
	return n;
}

bool lead_thinks(const struct lead_run *r)
{
	return r->at == LEAD_THOUGHT || r->at == LEAD_END;
}

/* The token goes on with what opens a thought. */
static bool opening(struct lead_run *r, int32_t token)
{
	if (r->l.open < 0 || token != (r->i ? r->l.opens[r->i - 1] : r->l.open))
		return false;
	if (r->i++ == r->l.n_opens)
		think(r);
	return true;
}

void lead_take(struct lead_run *r, int32_t token)
{
	switch (r->at) {
	case LEAD_BEGIN:
		if (!opening(r, token))
			after_thought(r);
		break;
	case LEAD_THOUGHT:
		r->n_thought++;
		if (token == r->l.close)
			after_thought(r);
		else
			think(r);
		break;
	case LEAD_END:
		if (++r->i == r->l.n_end)
			after_thought(r);
		break;
	case LEAD_THEN:
		if (++r->i == r->l.n_then) {
			r->at = LEAD_FREE;
			r->i = 0;
		}
		break;
	case LEAD_FREE:
		if (r->l.reopens && !opening(r, token)) {
			r->i = 0;
			opening(r, token);
		}
		break;
	}
}
