/* sched.c - who waits, who runs, and which rows make the next step.
 *
 * Order is by age, everywhere: the oldest is served first, the youngest gives
 * way.  Sequences that only decode come before those with a prompt to compute,
 * since they need one row each. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "engine/core.h"

void sched_init(struct sched *s, int seqs_max)
{
	memset(s, 0, sizeof(*s));
	s->run = xcalloc((size_t)seqs_max, sizeof(*s->run));
	s->free_slot = xcalloc((size_t)seqs_max, sizeof(*s->free_slot));
	/* Slot 0 on top, so that a lone request runs in the memory used last. */
	for (int i = seqs_max - 1; i >= 0; i--)
		s->free_slot[s->n_free++] = i;
}

void sched_fini(struct sched *s)
{
	assert(!s->n_run && !s->waiting);
	free(s->run);
	free(s->free_slot);
}

void sched_wait(struct sched *s, struct request *r)
{
	struct request **at = &s->waiting;

	while (*at && (*at)->age < r->age)
		at = &(*at)->next;
	r->next = *at;
	*at = r;
}

static void slot_close(struct engine *e, struct request *r)
{
	caches_close(&e->m->caches, r->slot);
	draft_forget(e, r->slot);
	e->sched.free_slot[e->sched.n_free++] = r->slot;
	r->slot = -1;
	r->pos = 0;
	prefix_trim(&e->prefix);        /* what it shared with kept prefixes is theirs alone now */
}

void sched_remove(struct engine *e, struct request *r)
{
	struct sched *s = &e->sched;

	if (r->slot < 0) {
		for (struct request **at = &s->waiting; *at; at = &(*at)->next)
			if (*at == r) {
				*at = r->next;
				return;
			}
		assert(!"a waiting request is in the list");
	}
	slot_close(e, r);
	for (int i = 0; i < s->n_run; i++)
		if (s->run[i] == r) {
			memmove(&s->run[i], &s->run[i + 1], (size_t)(s->n_run - i - 1) * sizeof(*s->run));
			s->n_run--;
			s->hold = false;
			return;
		}
	assert(!"a running request is in the list");
}

int sched_pages(const struct engine *e, int n)
{
	return e->page_rows ? n / e->page_rows + (n % e->page_rows != 0) : 0;
}

/* Would r's tokens so far find room beside what the running ones hold or will
 * soon need?  An estimate: answers yet to come are not counted (preemption is
 * for that), pages restored from a kept prefix are counted as shared. */
static bool has_room(const struct engine *e, const struct request *r)
{
	int64_t need = sched_pages(e, r->n_tok + 1);

	if (!e->pages || !e->sched.n_run)
		return true;
	for (int i = 0; i < e->sched.n_run; i++) {
		const struct request *o = e->sched.run[i];

		need += sched_pages(e, o->n_tok + 1) - o->shared / e->page_rows;
	}
	return need <= e->pages;
}

/* Gives the request a slot and what is already known of its tokens. */
static void start(struct engine *e, struct request *r)
{
	struct sched *s = &e->sched;
	int hit, at;

	r->slot = s->free_slot[--s->n_free];
	hit = r->pos = r->shared = reuse_start(e, r);
	for (at = s->n_run; at > 0 && s->run[at - 1]->age > r->age; at--)
		s->run[at] = s->run[at - 1];
	s->run[at] = r;
	s->n_run++;
	if (r->started)
		return;
	engine_dequeue(e, r);
	r->started = true;
	r->n_cached = hit;
	r->t_start = engine_now(e);
	e->stats.prompt_tokens += r->n_prompt;
	e->stats.cached_tokens += hit;
	outbox_put(&r->out, &(struct event){ .kind = EV_START, .cached = hit, .done = hit, .total = r->n_prompt,
	                                     .prefix = r->report });
}

void sched_admit(struct engine *e)
{
	struct sched *s = &e->sched;
	struct request **at = &s->waiting;

	while (*at && s->n_free && !(s->hold && s->n_run)) {
		struct request *r = *at;

		if (reuse_waits(e, r)) {
			at = &r->next;
			continue;
		}
		if (!has_room(e, r))
			break;
		*at = r->next;
		r->next = NULL;
		start(e, r);
	}
}

static void preempt(struct engine *e, struct request *r)
{
	struct sched *s = &e->sched;

	log_debug("engine: page pool is full, a request of %d tokens goes back to waiting", r->n_tok);
	sched_remove(e, r);
	sched_wait(s, r);
	s->hold = true;         /* or it would take back what it gave */
	r->n_preempted++;
	e->stats.preempted++;
}

/* The next position after pos at which a chunk must end. */
static int next_cut(const struct engine *e, const struct request *r)
{
	int cut = reuse_cut(e, r);

	if (r->resume_at > r->pos && r->resume_at < cut)
		cut = r->resume_at;
	return cut;
}

/* Reserves memory for the next n positions of r, of which the last n_draft hold
 * its drafts, and makes them an item.  Drafts push nothing else out of memory. */
static bool add(struct engine *e, struct request *r, int n, int n_draft)
{
	struct batch *b = &e->batch;
	struct span span = { .slot = r->slot, .pos = r->pos, .n = n, .n_draft = n_draft };
	struct batch_item *it = &b->item[b->n_item];
	int from = r->pos + n;  /* first position that wants logits */

	while (caches_reserve(&e->m->caches, &span)) {
		if (span.n_draft) {
			n = span.n -= span.n_draft;
			span.n_draft = 0;
		} else if (!prefix_evict(&e->prefix, false)) {
			return false;
		}
	}
	if (r->on_logits)
		from = r->reported > r->pos ? r->reported : r->pos;
	else if (r->pos + n >= r->n_tok && r->out_max)
		from = r->n_tok - 1;
	*it = (struct batch_item){ .req = r, .row = b->n_row, .logit = b->n_logit };
	b->span[b->n_item] = span;
	b->first[b->n_item] = b->n_row;
	for (int i = 0; i < n; i++) {
		b->tok[b->n_row] = r->pos + i < r->n_tok ? r->tok[r->pos + i] : r->draft[r->pos + i - r->n_tok];
		b->pos[b->n_row] = r->pos + i;
		b->item_of[b->n_row] = b->n_item;
		if (r->pos + i >= from)
			b->logit_row[b->n_logit++] = b->n_row;
		b->n_row++;
	}
	it->n_logit = b->n_logit - it->logit;
	b->n_item++;
	return true;
}

static bool decodes(const struct request *r)
{
	return r->n_tok - r->pos == 1;
}

static void fill(struct engine *e)
{
	struct sched *s = &e->sched;
	struct batch *b = &e->batch;
	int n_decode = 0, first = 0, left = e->opts.step_rows;

	b->n_item = b->n_row = b->n_logit = 0;
	for (int i = 0; i < s->n_run; i++)
		n_decode += decodes(s->run[i]);
	if (n_decode > left)
		first = (int)(s->turn++ % (unsigned)s->n_run);
	for (int i = 0; i < s->n_run && left > 0; i++) {
		struct request *r = s->run[(first + i) % s->n_run];

		if (decodes(r)) {
			/* Its token, and drafts as far as rows remain when all have theirs. */
			int spare = left > n_decode ? left - n_decode : 0, n_row = b->n_row;
			int n_draft = r->n_draft < spare ? r->n_draft : spare;

			add(e, r, 1 + n_draft, n_draft);
			left -= b->n_row - n_row;
			n_decode--;
		}
	}
	for (int i = 0; i < s->n_run && left > 0; i++) {
		struct request *r = s->run[i];
		int n = next_cut(e, r) - r->pos, ask;

		if (decodes(r))
			continue;
		if (r->n_split) {
			/* Asked-for sizes are kept to, unless larger than any step. */
			ask = r->split[r->split_at % r->n_split];
			n = ask < n ? ask : n;
			if (n > left && left < e->opts.step_rows)
				continue;
		}
		n = n < left ? n : left;
		if (add(e, r, n, 0)) {
			left -= n;
			r->split_at++;
		}
	}
}

bool sched_fill(struct engine *e)
{
	struct sched *s = &e->sched;

	for (;;) {
		fill(e);
		if (e->batch.n_item || !s->n_run)
			return s->n_run > 0;
		if (s->n_run == 1 && prefix_evict(&e->prefix, true))
			continue;
		if (s->n_run == 1) {
			/* All memory is its own and does not suffice: submit saw to it that this cannot
			 * be, unless the backend gives less than it promised. */
			struct request *r = s->run[0];

			err_set(&r->err, E_FULL, "no memory for position %d of a sequence alone in the pool (%d pages of %d)",
			        r->pos, e->pages, e->page_rows);
			verify_end(r, FINISH_ERROR);
			engine_finish(e, r);
			return false;
		}
		preempt(e, s->run[s->n_run - 1]);
	}
}

int sched_resume(struct engine *e, struct request *r, struct err *err)
{
	struct caches *caches = &e->m->caches;
	struct sched *s = &e->sched;
	int pos = r->pos, old = r->slot;
	struct snaps snaps;

	while (caches_capture(caches, old, pos, &snaps))
		if (!prefix_shrink(&e->prefix))
			return err_set(err, E_FULL, "resume at %d: no memory for a snapshot", pos);
	if (s->n_free) {
		r->slot = s->free_slot[--s->n_free];
		s->free_slot[s->n_free++] = old;
	}
	caches_close(caches, old);
	draft_forget(e, old);
	if (caches_restore(caches, r->slot, &snaps, pos)) {
		snaps_drop(&snaps);
		return err_set(err, E_FULL, "resume at %d: no memory to restore", pos);
	}
	snaps_drop(&snaps);
	return 0;
}
