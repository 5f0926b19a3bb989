/* draft.c - the engine's side of speculation: who may draft how much, and what
 * became of it. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/core.h"

static struct draft_seq seq_of(const struct engine *e, struct request *r)
{
	return (struct draft_seq){
		.slot = r->slot, .id = r->age + 1, .tok = r->tok, .n_tok = r->n_tok, .pos = r->pos, .n_prompt = r->n_prompt,
		.n_known = r->n_cached, .plan = &r->plan, .salt = r->salt, .now = engine_now(e),
		.secret = r->no_cache, .sampler = &r->sampler,
	};
}

/* The most that r could take: one token less than the answer may still have,
 * because the row of the last draft picks one more; and a position at which the
 * caches are to be looked at is not run past. */
static int room(const struct engine *e, const struct request *r)
{
	int n = r->n_draft_max, left = r->n_prompt + r->out_max - r->n_tok - 1;

	if (n > e->opts.n_draft)
		n = e->opts.n_draft;
	if (r->n_tok - r->pos != 1)
		return 0;
	if (r->resume_at > r->pos && left > r->resume_at - r->pos - 1)
		left = r->resume_at - r->pos - 1;
	return left < n ? left : n;
}

/* Drafts up to the first that cannot be part of the answer. */
static int sound(const struct engine *e, const struct request *r, const int32_t *draft, int n)
{
	for (int i = 0; i < n; i++) {
		if (draft[i] < 0 || draft[i] >= e->m->shape.vocab)
			return i;
		for (int k = 0; k < r->n_stop_token; k++)
			if (draft[i] == r->stop_token[k])
				return i;
	}
	return n;
}

void draft_propose(struct engine *e)
{
	struct sched *s = &e->sched;
	struct draft_ask *ask = e->ask;

	for (int i = 0; i < s->n_run; i++)
		s->run[i]->n_draft = 0;
	for (int k = 0; k < e->opts.n_drafter; k++) {
		struct drafter *d = e->opts.drafter[k];
		int n = 0;

		for (int i = 0; i < s->n_run; i++) {
			struct request *r = s->run[i];
			int max = room(e, r);

			if (max > 0 && !r->n_draft)
				ask[n++] = (struct draft_ask){ .seq = seq_of(e, r), .max = max, .out = r->draft };
		}
		if (!n)
			return;
		d->ops->propose(d, ask, n);
		for (int i = 0, at = 0; i < s->n_run && at < n; i++) {
			struct request *r = s->run[i];

			if (r->slot != ask[at].seq.slot)
				continue;
			assert(ask[at].n >= 0 && ask[at].n <= room(e, r));
			r->n_draft = sound(e, r, r->draft, ask[at++].n);
			r->draft_by = k;
		}
	}
}

void draft_follow(struct engine *e)
{
	struct batch *b = &e->batch;
	int n = 0;

	if (!e->pass.hidden)
		return;
	for (int i = 0; i < b->n_item; i++) {
		struct request *r = b->item[i].req;

		if (r->n_draft_max)
			e->followed[n++] = (struct draft_run){ .seq = seq_of(e, r), .row = b->item[i].row, .n = b->item[i].keep };
	}
	for (int k = 0; k < e->opts.n_drafter; k++)
		if (e->opts.drafter[k]->ops->follow)
			e->opts.drafter[k]->ops->follow(e->opts.drafter[k], &e->pass, e->followed, n);
}

void draft_judge(struct engine *e, struct request *r, int drafted, int accepted)
{
	struct engine_drafted *by = &e->stats.drafter[r->draft_by];

	if (!drafted)
		return;
	r->n_accepted += accepted;
	r->n_rejected += drafted - accepted;
	by->drafted += drafted;
	by->accepted += accepted;
	by->rounds++;
}

void draft_learn(struct engine *e, struct request *r)
{
	struct draft_seq seq = seq_of(e, r);

	for (int k = 0; k < e->opts.n_drafter; k++)
		if (e->opts.drafter[k]->ops->learn)
			e->opts.drafter[k]->ops->learn(e->opts.drafter[k], &seq);
}

void draft_forget(struct engine *e, int slot)
{
	for (int k = 0; k < e->opts.n_drafter; k++)
		if (e->opts.drafter[k]->ops->forget)
			e->opts.drafter[k]->ops->forget(e->opts.drafter[k], slot);
}
