/* sched.c - which requests run, and which rows make the next step.
 *
 * A step is filled in this order: each running answer's token, with its drafts;
 * then prompts, in the order that fair.c gives and as many rows as pace.c allows,
 * the first up to its end, then the next.  A request that waits joins when it
 * is its turn to have rows, if there is a slot and room for what it will need.
 * When memory runs short, the youngest running request is preempted. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "engine/core.h"

/* Longest time for which requests that need less memory may pass one that needs much:
 * long enough for small ones to use the free memory, short compared with the time that
 * a large prompt takes anyway. */
#define PASSED_MAX_NS 2000000000

void sched_init(struct sched *s, int seqs_max)
{
	memset(s, 0, sizeof(*s));
	s->run = xcalloc((size_t)seqs_max, sizeof(*s->run));
	s->free_slot = xcalloc((size_t)seqs_max, sizeof(*s->free_slot));
	s->pick = xcalloc((size_t)seqs_max, sizeof(*s->pick));
	/* Slot 0 on top, so that a lone request runs in the memory used last. */
	for (int i = seqs_max - 1; i >= 0; i--)
		s->free_slot[s->n_free++] = i;
}

void sched_fini(struct engine *e)
{
	struct sched *s = &e->sched;

	assert(!s->n_run && !s->fair.n_waiting);
	fair_fini(e);
	free(s->run);
	free(s->free_slot);
	free(s->pick);
}

static void slot_close(struct engine *e, struct request *r)
{
	caches_close(&e->m->caches, r->slot);
	draft_forget(e, r->slot);
	e->sched.free_slot[e->sched.n_free++] = r->slot;
	r->slot = -1;
	r->pos = 0;
	prefix_trim(&e->prefix); /* what it shared with kept prefixes is theirs alone now */
}

void sched_remove(struct engine *e, struct request *r)
{
	struct sched *s = &e->sched;

	if (r->slot < 0) {
		if (s->starving == r)
			s->starving = NULL;
		fair_unwait(&e->sched.fair, r);
		return;
	}
	slot_close(e, r);
	for (int i = 0; i < s->n_run; i++)
		if (s->run[i] == r) {
			memmove(&s->run[i], &s->run[i + 1], (size_t)(s->n_run - i - 1) * sizeof(*s->run));
			s->n_run--;
			return;
		}
	assert(!"a running request is in the list");
}

/* Bytes of the pools that r will hold soon: its tokens so far and as much of its answer as
 * is set aside for, and as much again whenever that is used up. */
static int64_t target(const struct engine *e, const struct request *r)
{
	int64_t part = e->opts.answer_reserve, n_out = r->n_tok - r->n_prompt;
	int64_t n = (n_out / part + 1) * part;

	return (int64_t)caches_need(&e->m->caches, r->n_prompt + (int)(n < r->ask.out_max ? n : r->ask.out_max));
}

/* Bytes of the pools that are missing for r to have what it will hold, after what running
 * requests and pins hold and will hold; other kept prefixes and parked sequences give theirs up. */
static int64_t lacks(struct engine *e, const struct request *r)
{
	const struct caches *caches = &e->m->caches;
	int64_t need = target(e, r), max = (int64_t)e->pool_bytes;
	const struct snaps *const *pinned;
	struct prefix_hit hit = { 0 };
	int n_pinned;

	if (!max || !e->sched.n_run)
		return 0;
	for (int i = 0; i < e->sched.n_run; i++) {
		const struct request *o = e->sched.run[i];
		int64_t more = target(e, o) - (int64_t)caches_need(caches, o->pos);

		need += more > 0 ? more : 0;
	}
	pinned = prefix_pinned(&e->prefix, &n_pinned);
	need += (int64_t)caches_live(caches, pinned, n_pinned, NULL, 0);
	/* It shares the pages of its prefix that are held anyway. */
	if (need > max && !r->ask.no_cache && !r->park.pos) {
		prefix_find(&e->prefix, r->ask.salt, r->tok, r->n_tok, &hit);
		if (hit.at)
			need -= (int64_t)caches_live(caches, pinned, n_pinned, hit.snaps, hit.at);
	}
	return need > max ? need - max : 0;
}

/* From the waiting into a slot. */
static void enter(struct engine *e, struct request *r)
{
	struct sched *s = &e->sched;
	int at;

	sched_remove(e, r);
	r->slot = s->free_slot[--s->n_free];
	r->drafts.n = 0;
	r->pos = park_restore(e, r);
	for (at = s->n_run; at > 0 && s->run[at - 1]->age > r->age; at--)
		s->run[at] = s->run[at - 1];
	s->run[at] = r;
	s->n_run++;
}

/* Gives the request a slot and what is already known of its tokens. */
static void start(struct engine *e, struct request *r)
{
	int hit;

	enter(e, r);
	e->stats.resumed += r->pos > 0;
	if (!r->pos)
		r->pos = reuse_start(e, r);
	hit = r->pos;
	/* Waiting requests may now wait for r's prompt, so its chunks end where theirs part from it. */
	for (struct request *w = fair_each(&e->sched.fair, NULL); w; w = fair_each(&e->sched.fair, w))
		reuse_waits(e, w);
	if (r->sched.started)
		return;
	engine_dequeue(e, r);
	r->sched.started = true;
	r->reuse.n_cached = hit;
	r->t_start = engine_now(e);
	if (r->ask.proof)
		return;
	e->miss += (1 - (double)hit / r->n_prompt - e->miss) / 16; /* of some sixteen prompts */
	e->stats.prompt_tokens += r->n_prompt;
	e->stats.cached_tokens += hit;
	outbox_put(&r->out, &(struct event){ .kind = EV_START,
	                                     .cached = hit,
	                                     .done = hit,
	                                     .total = r->n_prompt,
	                                     .prefix = r->reuse.report });
}

/* Preempts r: its memory stays in place if only slots are short, else it is
 * swapped out. */
static void preempt(struct engine *e, struct request *r, bool out)
{
	if (park_keep(e, r) && out)
		park_out(e, r);
	log_debug("engine: a request of %d tokens is preempted, %s", r->n_tok,
	          !r->park.pos    ? "to be computed again" :
	          r->park.snaps.n ? "in place" :
	                            "moved out");
	sched_remove(e, r);
	fair_wait(e, r);
	r->sched.n_preempted++;
	e->stats.preempted++;
}

/* Whether a is preempted before b: the less urgent first; then, unless for want of memory alone, one
 * whose answer has not begun to be sent; then the younger. */
static bool gives_way_before(const struct request *a, const struct request *b, bool unseen)
{
	if (a->ask.priority != b->ask.priority)
		return a->ask.priority < b->ask.priority;
	if (unseen && !a->t_first != !b->t_first)
		return !a->t_first;
	return a->age > b->age;
}

static int count_running(const struct sched *s, const struct client *c)
{
	int n = 0;

	for (int i = 0; i < s->n_run; i++)
		n += s->run[i]->client == c;
	return n;
}

/* A running request to preempt for r, which cannot join otherwise: one
 * that is less urgent, or, when r's client has nothing running, one of the client
 * that has most, if that is more than one.  NULL: none. */
static struct request *victim_for(struct sched *s, const struct request *r)
{
	bool has_none = !count_running(s, r->client);
	struct request *best = NULL;
	int most = 2;

	for (int i = 0; i < s->n_run && has_none; i++)
		if (count_running(s, s->run[i]->client) > most)
			most = count_running(s, s->run[i]->client);
	for (int i = 0; i < s->n_run; i++) {
		struct request *o = s->run[i];

		if (o->sched.skip == s->round || o->ask.priority > r->ask.priority)
			continue; /* it has rows of this step already, or is more urgent */
		if (o->ask.priority == r->ask.priority && (!has_none || count_running(s, o->client) < most))
			continue;
		if (!best || gives_way_before(o, best, true))
			best = o;
	}
	return best;
}

/* Preempts requests so that r can join.  false: none may be preempted for it, or that would not suffice. */
static bool make_room(struct engine *e, struct request *r)
{
	struct sched *s = &e->sched;
	int64_t lack = lacks(e, r);
	struct request *v = !s->n_free || lack ? victim_for(s, r) : NULL;

	if (!v)
		return s->n_free && !lack;
	/* One is preempted for one; a sequence whose memory cannot be kept loses much. */
	if (lack > (int64_t)caches_need(&e->m->caches, v->pos) || (lack && !e->opts.park_bytes))
		return false;
	preempt(e, v, lack > 0);
	e->stats.yielded++;
	return s->n_free && !lacks(e, r);
}

/* Lets r join, if it can. */
static bool join(struct engine *e, struct request *r)
{
	struct sched *s = &e->sched;
	int64_t now;

	if (reuse_waits(e, r)) {
		r->sched.skip = s->round;
		return false;
	}
	if ((s->n_free && !lacks(e, r)) || make_room(e, r)) {
		start(e, r);
		return true;
	}
	r->client->shut = s->round;
	if (!s->n_free)
		return false;
	/* Requests that need less memory may pass, but not for ever. */
	now = engine_now(e);
	if (!r->sched.passed_ns)
		r->sched.passed_ns = now;
	else if (!s->starving && now - r->sched.passed_ns > PASSED_MAX_NS)
		s->starving = r;
	return false;
}

/* The next position after pos at which a chunk must end. */
static int next_cut(struct engine *e, const struct request *r)
{
	int cut = reuse_cut(e, r);

	if (r->ask.resume_at > r->pos && r->ask.resume_at < cut)
		cut = r->ask.resume_at;
	return cut;
}

/* Sets the step's next row to r's token at pos: id, position and the vector that it may bring. */
static void row_put(struct engine *e, const struct request *r, int pos)
{
	struct batch *b = &e->step.batch;
	const float *brought = brought_row(&r->brought, e, pos);

	b->tok[b->n_row] = pos < r->n_tok ? r->tok[pos] : r->drafts.tok[pos - r->n_tok];
	b->pos[b->n_row] = pos;
	if (brought) {
		b->tok[b->n_row] = ~b->n_brought;
		b->brought[b->n_brought++] = brought;
	}
	brought_rope(&r->brought, pos, b->rope + 3 * b->n_row);
	b->see[b->n_row] = brought_sees(&r->brought, pos);
	b->turns |= b->rope[3 * b->n_row] != pos || b->rope[3 * b->n_row + 1] != pos ||
	            b->rope[3 * b->n_row + 2] != pos;
	b->whole |= b->see[b->n_row] != pos;
}

/* Reserves memory for the next n positions of r, of which the last n_draft hold
 * its drafts, and makes them an item.  Drafts push nothing else out of memory. */
static bool add_rows(struct engine *e, struct request *r, int n, int n_draft)
{
	struct batch *b = &e->step.batch;
	struct span span = { .slot = r->slot, .pos = r->pos, .n = n, .n_draft = n_draft };
	struct batch_item *it = &b->item[b->n_item];
	int from = r->pos + n; /* first position that wants logits */

	while (caches_reserve(&e->m->caches, &span)) {
		if (span.n_draft) {
			n = span.n -= span.n_draft;
			span.n_draft = 0;
		} else if (!prefix_evict(&e->prefix, false) && !disk_yield(e) && !park_any_out(e)) {
			e->sched.refused = true;
			return false;
		}
	}
	if (r->ask.on_logits)
		from = r->reported > r->pos ? r->reported : r->pos;
	else if (r->pos + n >= r->n_tok && r->ask.out_max)
		from = r->n_tok - 1;
	assert(b->n_logit + r->pos + n - from <= e->opts.logit_rows);
	*it = (struct batch_item){ .req = r, .row = b->n_row, .logit = b->n_logit };
	b->span[b->n_item] = span;
	b->first[b->n_item] = b->n_row;
	b->second[b->n_item] = r->ask.second;
	for (int i = 0; i < n; i++) {
		row_put(e, r, r->pos + i);
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

/* At most n rows of r's prompt, those whose vectors are there, and without cutting a stretch: one that they begin with is taken
 * whole where `left` rows hold it. */
static int uncut(const struct request *r, int n, int left)
{
	const struct brought *b = &r->brought;
	int end;

	n = brought_ready(b, r->pos, r->pos + n) - r->pos;
	end = brought_floor(b, r->pos + n);
	if (n && end == r->pos)
		end = brought_ceil(b, r->pos + n);
	return end - r->pos <= left ? end - r->pos : 0;
}

/* Rows of r's prompt for a step that has `left` of `room` free, of which the pace
 * allows `most`.  0: none this time. */
static int chunk(struct engine *e, const struct request *r, int room, int left, int most)
{
	int n = next_cut(e, r) - r->pos, ask;

	if (!r->ask.n_split) {
		n = n < most ? n : most;
		return n < left ? n : left;
	}
	/* Sizes that were asked for are used, unless they exceed what a step has
	 * besides the rows that decode; the pace is not asked. */
	ask = r->ask.split[r->sched.split_at % r->ask.n_split];
	ask = ask < room ? ask : room;
	n = ask < n ? ask : n;
	return n <= left ? n : 0;
}

/* Is r, with a short prompt, of a new client, and do its next n rows end at a place
 * where chunks must end?  Then the step is not made longer by others' prompts and drafts:
 * alone r had its first token sooner.  Where newcomers are many, others would lose by it. */
static bool ends_soon(struct engine *e, const struct request *r, int n)
{
	return r->pos + n == next_cut(e, r) && !r->t_first && r->n_prompt <= FAIR_QUANTUM && r->client->fresh &&
	       e->sched.fair.favour < FAIR_QUANTUM;
}

/* Did r's prompt so come to its last token, which decodes, and so is in every step? */
static bool ends(const struct request *r)
{
	return r->sched.hurry && !r->t_first && decodes(r);
}

static bool one_ends(const struct sched *s)
{
	for (int i = 0; i < s->n_run; i++)
		if (ends(s->run[i]))
			return true;
	return false;
}

/* How many of the n places are not past pos. */
static int places_in(const struct place_at *at, int n, int pos)
{
	while (n && at[n - 1].pos > pos)
		n--;
	return n;
}

/* Number of prompt rows, starting at pos, that fit into `share` of a step together with the state
 * copies on their way (at most n); the whole step holds `most` rows.  A copy that does not fit ends
 * the chunk one row before it. */
static int beside_copies(const struct place_at *at, int n, int pos, int most, double keeping, double share)
{
	for (; n; n--) {
		int fit = (int)((share - n * keeping) * most), to = at[n - 1].pos - pos;

		if (fit >= to || to == 1)
			return fit > to ? fit : to;
		if ((double)(to - 1) / most + (n - 1) * keeping <= share)
			return to - 1;
	}
	return 1;
}

/* Answers that come to max_tokens with this step: their states are kept, too. */
static int count_ending(const struct sched *s)
{
	int n = 0;

	for (int i = 0; i < s->n_run; i++)
		n += decodes(s->run[i]) && s->run[i]->n_tok + 1 >= s->run[i]->n_prompt + s->run[i]->ask.out_max;
	return n;
}

/* Chooses prompts for `room` rows, lets those join that are chosen. */
static void choose(struct engine *e, int room, bool decoding)
{
	struct sched *s = &e->sched;
	double keeping = pace_keeping(&e->pace, decoding, 1);
	double share = 1 - pace_keeping(&e->pace, decoding, count_ending(s)); /* of the step's time for prompts */
	int spared = 0, left = room, logits = e->opts.logit_rows - s->n_run * (1 + e->opts.n_draft) - s->n_free, n,
	    most, fit;
	struct request *r;
	struct place_at at[PASSED_MAX + 1];
	int n_at, kept;

	s->n_pick = 0;
	s->quick = one_ends(s);
	if (s->starving && s->n_free && room && !s->gave_way)
		join(e, s->starving);
	while (left > 0 && share > 1e-6) {
		r = fair_next(e, !s->starving && !s->gave_way);
		if (!r)
			break;
		if (r->slot < 0 && !join(e, r))
			continue;
		e->pace.pictures |= brought_more(&r->brought, r->pos);
		most = pace_rows(&e->pace, decoding, r->pos);
		n = (int)ceil(share * most);
		n = chunk(e, r, room, left, n);
		/* Each request needs the logits of one row; further rows share the logits that the others leave. */
		fit = r->ask.on_logits && 1 + logits < left ? 1 + (logits > 0 ? logits : 0) : left;
		n = uncut(r, n < fit ? n : fit, fit);
		r->sched.skip = s->round;
		if (!n)
			continue;
		n_at = reuse_places(e, r, at, PASSED_MAX + 1);
		kept = places_in(at, n_at, r->pos + n);
		if (kept && keeping > 0 && !r->ask.n_split && (double)n / most + kept * keeping > share) {
			n = uncut(r, beside_copies(at, kept, r->pos, most, keeping, share), fit);
			kept = places_in(at, kept, r->pos + n);
		}
		if (s->quick && !ends_soon(e, r, n)) {
			spared = spared ? spared : n;
			continue;
		}
		r->sched.hurry = ends_soon(e, r, n);
		s->quick |= r->sched.hurry;
		logits -= r->ask.on_logits ? n - 1 : 0;
		share -= (double)n / most + kept * keeping;
		left -= n;
		s->pick[s->n_pick++] = (struct chosen){ r, n };
	}
	/* Charge the rows withheld from others to the newcomers' favour, so that fairness evens out later. */
	s->fair.favour += spared;
}

static bool pictures_come(const struct sched *s)
{
	for (int i = 0; i < s->n_run; i++)
		if (brought_more(&s->run[i]->brought, s->run[i]->pos))
			return true;
	return false;
}

static int count_decoding(const struct sched *s)
{
	int n = 0;

	for (int i = 0; i < s->n_run; i++)
		n += decodes(s->run[i]);
	return n;
}

bool sched_decodes(const struct sched *s)
{
	return count_decoding(s) > 0;
}

/* The next token of the running answers, and drafts in the rows that remain
 * when all have theirs. */
static void fill_decoding(struct engine *e, int left)
{
	struct sched *s = &e->sched;
	struct batch *b = &e->step.batch;
	int n_decode = 0, first = 0;

	for (int i = 0; i < s->n_run; i++)
		n_decode += decodes(s->run[i]) && s->run[i]->sched.skip != s->round;
	if (n_decode > left)
		first = (int)(s->turn++ % (unsigned)s->n_run);
	for (int i = 0; i < s->n_run && left > 0; i++) {
		struct request *r = s->run[(first + i) % s->n_run];
		int spare = left > n_decode && (!s->quick || ends(r)) ? left - n_decode : 0, n_row = b->n_row;
		int n_draft = r->drafts.n < spare ? r->drafts.n : spare;

		if (!decodes(r) || r->sched.skip == s->round || brought_waits(r))
			continue;
		add_rows(e, r, 1 + n_draft, n_draft);
		left -= b->n_row - n_row;
		n_decode--;
	}
}

static void fill(struct engine *e)
{
	struct sched *s = &e->sched;
	struct batch *b = &e->step.batch;
	int n_decode = count_decoding(s), room = e->opts.step_rows - n_decode, n_prompt = 0;

	s->round++;
	s->refused = false;
	/* Where the answers fill all rows, prompts still get on: by one row, or every other step. */
	if (room < 1)
		room = e->opts.step_rows > 1 || s->round % 2;
	pace_beside(&e->pace, pictures_come(s),
	            (double)(e->between.tower_ns + e->between.ready_ns + e->between.keep_ns));
	choose(e, room, n_decode > 0);
	for (int i = 0; i < s->n_pick; i++)
		n_prompt += s->pick[i].n;
	b->n_item = b->n_row = b->n_logit = b->n_brought = 0;
	b->turns = b->whole = false;
	fill_decoding(e, e->opts.step_rows - n_prompt);
	b->n_prompt = 0;
	b->prompt_pos = 0;
	for (int i = 0; i < s->n_pick; i++) {
		struct request *r = s->pick[i].req;
		int n = s->pick[i].n;

		if (!add_rows(e, r, n, 0))
			continue;
		r->sched.split_at++;
		fair_charge(e, r, n);
		b->n_prompt += n;
		b->prompt_pos += (r->pos + n / 2.0) * n;
	}
	if (b->n_prompt)
		b->prompt_pos /= b->n_prompt;
}

/* For vectors of their next rows. */
static bool all_wait(const struct sched *s)
{
	for (int i = 0; i < s->n_run; i++)
		if (!brought_waits(s->run[i]))
			return false;
	return true;
}

bool sched_fill(struct engine *e)
{
	struct sched *s = &e->sched;

	s->gave_way = false;
	for (;;) {
		struct request *last = NULL;

		fill(e);
		if (e->step.batch.n_item || !s->n_run)
			return s->n_run > 0;
		if (!s->refused && all_wait(s))
			return false;
		if (!s->refused)
			continue; /* those that were to decode were preempted; the others have their turn now */
		if (s->n_run == 1 && prefix_yield(&e->prefix))
			continue;
		if (s->n_run == 1) {
			/* All memory is its own and does not suffice: submit saw to it that this cannot
			 * be, unless the backend gives less than it promised. */
			struct request *r = s->run[0];

			err_set(&r->err, E_FULL,
			        "no memory for position %d of a sequence alone in the pool (%zu bytes)", r->pos,
			        e->pool_bytes);
			verify_end(r, FINISH_ERROR);
			engine_finish(e, r);
			return false;
		}
		for (int i = 0; i < s->n_run; i++)
			if (!last || gives_way_before(s->run[i], last, false))
				last = s->run[i];
		preempt(e, last, true);
		s->gave_way = true;
	}
}

int sched_resume(struct engine *e, struct request *r, struct err *err)
{
	struct caches *caches = &e->m->caches;
	struct sched *s = &e->sched;
	int pos = r->pos, old = r->slot;
	struct snaps snaps;

	while (caches_capture(caches, old, pos, &snaps))
		if (!prefix_shrink(&e->prefix) && !disk_yield(e) && !park_any_out(e))
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
