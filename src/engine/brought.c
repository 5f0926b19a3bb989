/* brought.c - see brought.h. */
#include "engine/brought.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "engine/core.h"
#include "model/media.h"

/* Longest part of a tower's work while no answer waits for the next step; and one while answers run whose steps were not
 * yet measured. */
enum { ALONE_NS = 50000000, UNKNOWN_NS = ALONE_NS / 10 };
/* Rows behind a prompt's pictures that count as coming with them. */
enum { QUESTION = 64 };

/* ---- what is asked ---- */

static int check_span(const struct engine *e, const struct ask *a, int i, struct err *err)
{
	const struct ask_span *s = &a->span[i];
	const struct media *m = s->media;
	const struct shape *shape = &e->m->shape;
	int before = i ? s[-1].at + s[-1].n : 0, spare = e->opts.seqs_max - 1;
	int logits = e->opts.logit_rows - e->opts.seqs_max * (1 + e->opts.n_draft) + 1;

	if (s->at < before || s->n < 1 || s->n > a->n_prompt - s->at)
		return err_set(err, E_ARG, "span %d of %d rows at %d of a prompt of %d, whose last ended at %d", i,
		               s->n, s->at, a->n_prompt, before);
	if (s->from < 0 || s->n > m->n - s->from)
		return err_set(err, E_ARG, "span %d is rows %d to %d of a media object of %d", i, s->from,
		               s->from + s->n - 1, m->n);
	if (m->hidden != shape->hidden || m->deep != shape->deep)
		return err_set(err, E_ARG,
		               "span %d brings vectors of %d numbers and %d more for layers; the model takes %d and %d",
		               i, m->hidden, m->deep, shape->hidden, shape->deep);
	if ((m->grid_h || m->whole) && s->n != m->n)
		return err_set(err, E_ARG, "span %d has %d of the %d rows of a media object that is not divided", i,
		               s->n, m->n);
	if (m->grid_h && m->grid_h * m->grid_w != m->n)
		return err_set(err, E_ARG, "span %d: a grid of %d by %d for %d rows", i, m->grid_h, m->grid_w, m->n);
	if (m->whole && s->n > e->opts.step_rows - spare)
		return err_set(err, E_LIMIT,
		               "span %d has %d rows that see each other; a step has %d, and %d for other sequences", i,
		               s->n, e->opts.step_rows, spare);
	if (m->whole && a->on_logits && s->n > logits)
		return err_set(err, E_LIMIT, "span %d has %d rows that see each other; a step has logits for %d", i,
		               s->n, logits);
	return 0;
}

int brought_check(const struct engine *e, const struct ask *a, struct err *err)
{
	int rc = 0;

	for (int i = 0; i < a->n_span && !rc; i++)
		rc = check_span(e, a, i, err);
	return rc;
}

static int larger(int a, int b)
{
	return a > b ? a : b;
}

bool brought_ids(struct engine *e, const struct ask_span *span, int n, int32_t *tok)
{
	bool all = true;

	for (int i = 0; i < n; i++) {
		int32_t id = span_id(&e->spans, span[i].media, span[i].from, span[i].n);

		all &= id != 0;
		for (int k = 0; k < span[i].n; k++)
			tok[span[i].at + k] = id ? id : -1;
	}
	return all;
}

bool brought_init(struct brought *b, struct engine *e, const struct ask_span *span, int n, int32_t *tok)
{
	int lag = 0; /* of rotary positions behind those in the caches */

	b->span = n ? xcalloc((size_t)n, sizeof *b->span) : NULL;
	b->n = n;
	for (int i = 0; i < n; i++) {
		struct media *m = span[i].media;
		int rope = span[i].at - lag, rows = m->grid_h ? larger(m->grid_h, m->grid_w) : span[i].n;

		b->span[i] = (struct brought_span){ .media = media_ref(m),
			                            .at = span[i].at,
			                            .n = span[i].n,
			                            .from = span[i].from,
			                            .rope = rope,
			                            .after = rope + rows };
		lag = span[i].at + span[i].n - b->span[i].after;
	}
	return brought_ids(e, span, n, tok);
}

void brought_fini(struct brought *b)
{
	for (int i = 0; i < b->n; i++)
		media_unref(b->span[i].media);
	free(b->span);
	*b = (struct brought){ 0 };
}

/* ---- row by row ---- */

/* The last span that begins at or before pos; NULL: none. */
static const struct brought_span *span_before(const struct brought *b, int pos)
{
	int lo = 0, hi = b->n;

	while (lo < hi) {
		int mid = (lo + hi) / 2;

		if (b->span[mid].at <= pos)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo ? &b->span[lo - 1] : NULL;
}

static const struct brought_span *span_of(const struct brought *b, int pos)
{
	const struct brought_span *s = span_before(b, pos);

	return s && pos < s->at + s->n ? s : NULL;
}

const float *brought_row(const struct brought *b, const struct engine *e, int pos)
{
	const struct brought_span *s = span_of(b, pos);

	if (!s)
		return NULL;
	return s->media->vectors +
	       (size_t)(s->from + pos - s->at) * (size_t)(1 + e->m->shape.deep) * (size_t)e->m->shape.hidden;
}

void brought_rope(const struct brought *b, int pos, int32_t out[3])
{
	const struct brought_span *s = span_before(b, pos);
	int i = s ? pos - s->at : 0, w = s ? s->media->grid_w : 0;

	if (!s)
		out[0] = out[1] = out[2] = pos;
	else if (i >= s->n)
		out[0] = out[1] = out[2] = s->after + i - s->n;
	else if (!w)
		out[0] = out[1] = out[2] = s->rope + i;
	else {
		out[0] = s->rope;
		out[1] = s->rope + i / w;
		out[2] = s->rope + i % w;
	}
}

/* The stretch that pos is in, at whatever place; NULL: it is in none. */
static const struct brought_span *stretch_of(const struct brought *b, int pos)
{
	const struct brought_span *s = span_of(b, pos);

	return s && s->media->whole ? s : NULL;
}

int brought_sees(const struct brought *b, int pos)
{
	const struct brought_span *s = stretch_of(b, pos);

	if (pos < b->whole)
		return b->whole - 1;
	return s ? s->at + s->n - 1 : pos;
}

int brought_floor(const struct brought *b, int pos)
{
	const struct brought_span *s = stretch_of(b, pos);

	if (pos < b->whole)
		return 0;
	return s ? s->at : pos;
}

int brought_ceil(const struct brought *b, int pos)
{
	const struct brought_span *s = stretch_of(b, pos);

	if (pos < b->whole)
		return pos ? b->whole : 0;
	return s && pos > s->at ? s->at + s->n : pos;
}

int brought_ready(const struct brought *b, int pos, int end)
{
	for (int i = 0; i < b->n && b->span[i].at < end; i++)
		if (b->span[i].at + b->span[i].n > pos && !b->span[i].media->vectors)
			return b->span[i].at > pos ? b->span[i].at : pos;
	return end;
}

bool brought_more(const struct brought *b, int pos)
{
	return b->n && b->span[b->n - 1].at + b->span[b->n - 1].n + QUESTION > pos;
}

/* ---- vectors that are not there yet ---- */

bool brought_waits(const struct request *r)
{
	return brought_ready(&r->brought, r->pos, r->pos + 1) == r->pos;
}

/* While answers run, as long as prompts might make their steps, less what the engine did since the last tokens; half of that
 * where other prompts want the step. */
static int64_t part_ns(const struct engine *e)
{
	double ns = pace_tower_ns(&e->pace), taken = (double)(e->between.ready_ns + e->between.keep_ns);
	bool answers = false, prompts = false;

	for (int i = 0; i < e->sched.n_run; i++) {
		const struct request *r = e->sched.run[i];

		if (brought_waits(r))
			continue;
		if (r->n_tok - r->pos == 1)
			answers = true;
		else
			prompts = true;
	}
	if (!answers)
		return ALONE_NS;
	if (ns <= 0)
		return UNKNOWN_NS;
	ns = prompts ? ns / 2 : ns;
	return ns > taken ? (int64_t)(ns - taken) : 1;
}

bool brought_work(struct engine *e)
{
	struct request *r = NULL;
	struct media *m = NULL;
	bool came = vectors_step(e);

	for (int i = 0; i < e->sched.n_run && !r; i++) {
		struct request *w = e->sched.run[i];

		if (!brought_waits(w))
			continue;
		m = span_of(&w->brought, w->pos)->media;
		if (m->broken || !vectors_fetch(e, m))
			r = w;
	}
	if (!r)
		return came;
	if (m->broken)
		err_set(&r->err, E_IO, "an image's vectors could not be computed");
	else if (m->ops->work(m, part_ns(e), &r->err))
		m->broken = true;
	else if (m->vectors)
		vectors_keep(e, m);
	if (m->broken) {
		verify_end(r, FINISH_ERROR);
		engine_finish(e, r);
	}
	return true;
}
