/* reuse.c - between a request and the prefix store: where it begins, whose work
 * it waits for, where its own is kept. */
#include <string.h>

#include "base/log.h"
#include "engine/core.h"

/* Tokens that waiting for another request must save. */
enum { SHARE_MIN = 32 };

static bool uses_store(const struct engine *e, const struct request_ask *a)
{
	return !a->no_cache && e->prefix.bytes_max;
}

static struct prefix_key key_of(const struct engine *e, const struct request *r, enum place kind)
{
	return (struct prefix_key){ .salt = r->ask.salt, .kind = kind, .by = r->age, .now = engine_now(e) };
}

static struct request *running(const struct sched *s, uint64_t age)
{
	for (int i = 0; i < s->n_run; i++)
		if (s->run[i]->age == age)
			return s->run[i];
	return NULL;
}

/* A state inside a pass, or what is known of one where a step ended. */
static double copy_ns(const struct engine *e)
{
	double ns = caches_copy_ns(&e->m->caches);

	return ns > 0 ? ns : e->pace.keep_ns;
}

/* The cost of a state in rows of a prompt, and the number of states in the budget. */
static struct place_pitch pitch_of(const struct engine *e, int n)
{
	struct place_cost c = { .anywhere = caches_go_back(&e->m->caches), .block = e->place_block };

	if (e->prefix.place_bytes) {
		c.states = (double)e->prefix.bytes_max / (double)e->prefix.place_bytes;
		c.token = e->prefix.token_bytes / (double)e->prefix.place_bytes;
	}
	c.share = e->opts.place_share;
	if (c.share > 0) {
		c.copy_ns = e->opts.copy_ns > 0 ? e->opts.copy_ns : copy_ns(e);
		c.row_ns = e->pace.row_ns;
	}
	return place_pitch(&c, n);
}

/* Where blocks are announced, states that are kept for others are at their ends (announce.h): the end at or before pos. */
static int block_floor(const struct engine *e, int pos)
{
	return e->place_block ? pos - pos % e->place_block : pos;
}

/* ---- the beginning ---- */

/* The longest known prefix at which r can go on: none that ends inside a stretch that is not cut. */
static void find_hit(const struct engine *e, const struct request *r, struct prefix_hit *hit)
{
	int floor;

	prefix_find(&e->prefix, r->ask.salt, r->tok, r->n_tok, hit);
	floor = brought_floor(&r->brought, hit->at);
	if (floor < hit->at)
		prefix_find(&e->prefix, r->ask.salt, r->tok, floor + 1, hit);
}

int reuse_start(struct engine *e, struct request *r)
{
	struct caches *caches = &e->m->caches;
	struct prefix_hit hit = { .report = { .first_diff = -1, .was = -1, .place = PLACES } };
	int known;

	r->reuse.ahead = AHEAD_NONE;
	if (!uses_store(e, &r->ask)) {
		hit.report.reason = r->ask.no_cache ? PREFIX_BYPASS : PREFIX_OFF;
		goto out;
	}
	find_hit(e, r, &hit);
	if (hit.at && caches_restore(caches, r->slot, hit.snaps, hit.at)) {
		caches_close(caches, r->slot); /* no room even for that: as if there were none */
		hit.at = 0;
		hit.node = NULL;
		hit.report.source = PREFIX_NONE;
		hit.report.reason = PREFIX_NO_MEMORY;
		hit.report.resumed = 0;
		hit.report.place = PLACES;
		hit.report.replayed = hit.report.junction;
	}
	if (hit.at && running(&e->sched, prefix_by(hit.node)))
		hit.report.source = PREFIX_RUNNING;
	if (!r->sched.started)
		prefix_use(&e->prefix, &hit, engine_now(e));
	if (hit.at) {
		e->stats.prefix.hits++;
		proof_draw(e, r, hit.at);
	}
out:
	known = block_floor(e, hit.report.junction);
	r->reuse.pitch = pitch_of(e, r->n_prompt);
	r->reuse.told_at = hit.at;
	r->reuse.n_near = r->reuse.stays_at = 0;
	/* The tokens that all prompts share, a template's first ones, are worth no state of their own. */
	r->reuse.junction = known > hit.at && known >= PLACE_APART ? known : 0;
	r->reuse.kept_at = hit.at;
	if (r->reuse.learned < hit.at)
		r->reuse.learned = hit.at;
	if (!r->sched.started) {
		r->reuse.report = hit.report;
		e->stats.prefix.reason[hit.report.reason] += !r->ask.proof;
	}
	return hit.at;
}

/* Tokens that r and tok[0..n) both begin with. */
static int common(const struct request *r, const int32_t *tok, int n)
{
	int i = 0;

	if (n > r->n_tok)
		n = r->n_tok;
	while (i < n && r->tok[i] == tok[i])
		i++;
	return i;
}

/* A running request is computing what r begins with: better to wait for it than
 * to compute it too.  Asked anew at every step, so that nothing
 * hangs on a leader that is cancelled, preempted or done. */
bool reuse_waits(struct engine *e, struct request *r)
{
	struct prefix_hit hit;
	const struct request *lead = r->reuse.ahead == AHEAD_NONE ? NULL : running(&e->sched, r->reuse.ahead);

	if (!uses_store(e, &r->ask))
		return false;
	if (lead && lead->pos < r->reuse.ahead_at)
		return true;
	r->reuse.ahead = AHEAD_NONE;
	hit.at = -1;
	for (int i = 0; i < e->sched.n_run; i++) {
		const struct request *o = e->sched.run[i];
		int most;

		if (o->ask.no_cache || o->n_tok - o->pos == 1 || strcmp(o->ask.salt, r->ask.salt))
			continue; /* it decodes: nothing of a prompt is before it */
		if (o->ask.priority < r->ask.priority)
			continue; /* no request waits for the work of one that is served after it */
		most = common(o, r->tok, r->n_tok);
		most = brought_floor(&r->brought, block_floor(e, most < r->n_tok - 1 ? most : r->n_tok - 1));
		if (most <= o->pos || most < SHARE_MIN || (r->reuse.ahead != AHEAD_NONE && most <= r->reuse.ahead_at))
			continue;
		if (hit.at < 0)
			find_hit(e, r, &hit);
		if (most - hit.at < SHARE_MIN)
			continue;
		r->reuse.ahead = o->age;
		r->reuse.ahead_at = most;
	}
	if (r->reuse.ahead != AHEAD_NONE)
		return true;
	if (!e->prefix.tier)
		return false;
	find_hit(e, r, &hit);
	if (e->prefix.tier->fetch(e->prefix.tier, r->ask.salt, r->tok, r->n_tok, hit.at))
		return true;
	return draft_fetches(e, r);
}

/* ---- on the way ---- */

/* The first position after pos where r's state is to be kept, and what for, when the last
 * place before it was at `last`; n_tok: none. */
static int next_place(struct engine *e, const struct request *r, int pos, int last, enum place *kind)
{
	int next = place_next(&r->ask.plan, &r->reuse.pitch, pos, last, kind), floor;

	if (next >= r->n_prompt)
		next = r->n_tok;
	if (r->reuse.junction > pos && r->reuse.junction < next) {
		next = r->reuse.junction;
		*kind = PLACE_JUNCTION;
	}
	for (struct request *w = fair_each(&e->sched.fair, NULL); w; w = fair_each(&e->sched.fair, w))
		if (w->reuse.ahead == r->age && w->reuse.ahead_at > pos && w->reuse.ahead_at < next) {
			next = w->reuse.ahead_at;
			*kind = PLACE_JUNCTION;
		}
	if (next == r->n_tok)
		return next;
	/* A stretch that is not cut has a place before it, or after it. */
	floor = brought_floor(&r->brought, next);
	return floor > pos ? floor : brought_ceil(&r->brought, next);
}

int reuse_places(struct engine *e, const struct request *r, struct place_at *at, int n)
{
	int last = r->reuse.learned, pos = r->pos > last ? r->pos : last, i = 0;

	if (!uses_store(e, &r->ask))
		return 0;
	while (i < n && (pos = next_place(e, r, pos, last, &at[i].kind)) < r->n_tok)
		last = at[i++].pos = pos;
	return i;
}

int reuse_cut(struct engine *e, const struct request *r)
{
	struct place_at at[PASSED_MAX + 1];

	return reuse_places(e, r, at, PASSED_MAX + 1) > PASSED_MAX ? at[PASSED_MAX].pos : r->n_tok;
}

/* While answers run, a state of the grid goes into memory that is ready, and leaves some to states that are of more use: to
 * find new memory for one may take the system longer than several steps. */
static bool has_memory(const struct engine *e, enum place kind)
{
	return kind != PLACE_GRID || !sched_decodes(&e->sched) || caches_ready(&e->m->caches, READY_STATES);
}

/* Will the pass copy what is needed to resume at this place?  Where memory is short, only
 * if that is worth more than something that is kept. */
static bool foresee(struct engine *e, struct request *r, int item, const struct place_at *at)
{
	struct prefix *p = &e->prefix;
	struct prefix_key key = key_of(e, r, at->kind);
	int above = r->reuse.n_passed ? r->reuse.passed[r->reuse.n_passed - 1].pos : 0;

	if (!has_memory(e, at->kind) ||
	    !prefix_room(p, &key, r->tok, at->pos, above, (size_t)e->sched.n_pass * p->place_bytes))
		return false;
	if (caches_foresee(&e->m->caches, e->step.batch.span, item, at->pos) &&
	    (!prefix_outbid(p, &key, r->tok, at->pos, above) ||
	     caches_foresee(&e->m->caches, e->step.batch.span, item, at->pos)))
		return false;
	e->sched.n_pass++;
	return true;
}

void reuse_foresee(struct engine *e, int item)
{
	struct request *r = e->step.batch.item[item].req;
	const struct span *span = &e->step.batch.span[item];
	int sure = span->n - span->n_draft, n;
	struct place_at at[PASSED_MAX];

	r->reuse.n_passed = 0;
	n = sure > 1 ? reuse_places(e, r, at, PASSED_MAX) : 0;
	for (int i = 0; i < n && at[i].pos < span->pos + sure; i++) {
		if (foresee(e, r, item, &at[i]))
			r->reuse.passed[r->reuse.n_passed++] = at[i];
		r->reuse.learned = at[i].pos;
	}
}

/* Is it of the grid and so near the last place that the disk was told of that it is not
 * worth writing?  Answers are written at their end. */
static bool is_fine(struct request *r, int pos, enum place kind)
{
	if (kind == PLACE_GRID && (pos >= r->n_prompt || place_coarse(r->reuse.told_at, r->n_prompt) > pos))
		return true;
	r->reuse.told_at = pos;
	return false;
}

void reuse_passed(struct engine *e, struct request *r)
{
	for (int i = 0; i < r->reuse.n_passed; i++) {
		struct prefix_key key = key_of(e, r, r->reuse.passed[i].kind);

		key.fine = is_fine(r, r->reuse.passed[i].pos, r->reuse.passed[i].kind);
		if (prefix_learn(&e->prefix, &key, r->slot, r->tok, r->reuse.passed[i].pos))
			r->reuse.kept_at = r->reuse.passed[i].pos;
	}
	r->reuse.n_passed = 0;
}

/* Keeps the state of r's slot; the pace knows what that took, but for copies into new memory, which the next step's plan
 * alone counts.  Returns whether it is kept. */
static bool keep(struct engine *e, struct request *r, const struct prefix_key *key)
{
	int64_t began = engine_now(e), captured = e->prefix.captured;
	bool ready = caches_ready(&e->m->caches, 1), kept = prefix_learn(&e->prefix, key, r->slot, r->tok, r->pos);

	if (e->prefix.captured > captured) {
		began = engine_now(e) - began;
		if (ready)
			pace_kept(&e->pace, (double)began);
		e->between.keep_ns += began;
	}
	return kept;
}

/* ---- in the answer ---- */

/* The last PLACE_TAIL tokens of an answer have places near each other, wherever it ends:
 * they are kept on the way, and given up where it has gone on. */

static int near_in_answer(const struct engine *e, const struct place_pitch *p)
{
	double copies = e->pace.keep_ns * e->sched.n_run, share = e->opts.place_share, step_ns = e->pace.base_ns;
	int near = p->near;

	while (share > 0 && step_ns > 0 && near < PLACE_COARSE && copies > share * near * step_ns)
		near *= 2;
	return near;
}

/* The next step may go on by its drafts: a place is due before it would be passed. */
static bool due_in_answer(const struct engine *e, const struct request *r)
{
	int near, step;

	if (!r->reuse.pitch.answers || r->pos < r->n_prompt || r->n_tok - r->pos != 1)
		return false;
	near = near_in_answer(e, &r->reuse.pitch);
	step = 1 + (e->opts.n_draft < near / 2 ? e->opts.n_draft : near / 2);
	return r->pos - r->reuse.learned + step > near;
}

/* Takes the latest of the places that may be given up as one that stays. */
static int stay(struct request_reuse *u)
{
	return u->n_near ? u->near_at[--u->n_near] : u->learned;
}

/* A place that stays is never further than a step from the one before it.  The others go when the
 * answer has left them behind. */
static void thin_answer(struct engine *e, struct request *r)
{
	int n = 0;

	if (!r->reuse.stays_at)
		r->reuse.stays_at = r->reuse.learned;
	if (r->pos - r->reuse.stays_at > r->reuse.pitch.step)
		r->reuse.stays_at = stay(&r->reuse);
	if (r->reuse.n_near == NEAR_MAX) {
		memmove(r->reuse.near_at, r->reuse.near_at + 1, (NEAR_MAX - 1) * sizeof(*r->reuse.near_at));
		r->reuse.n_near--;
	}
	r->reuse.near_at[r->reuse.n_near++] = r->pos;
	for (int i = 0; i < r->reuse.n_near; i++)
		if (r->reuse.near_at[i] > r->pos - PLACE_TAIL - PLACE_NEAR)
			r->reuse.near_at[n++] = r->reuse.near_at[i];
		else
			prefix_forget(&e->prefix, r->ask.salt, r->tok, r->reuse.near_at[i]);
	r->reuse.n_near = n;
}

/* ---- its position ---- */

static void keep_here(struct engine *e, struct request *r, enum place kind)
{
	struct prefix_key key = key_of(e, r, kind);

	if (kind == PLACE_GRID && (!has_memory(e, kind) || !prefix_room(&e->prefix, &key, r->tok, r->pos, 0, 0)))
		return;
	key.fine = kind == PLACE_END || is_fine(r, r->pos, kind); /* the answer's own end is written, not its blocks' */
	if (keep(e, r, &key))
		r->reuse.kept_at = r->pos;
}

/* In an answer, where blocks are announced: the last end of a block stands for the answer's own end, which the next prompt
 * leaves behind.  Those before it are of the grid, or go where memory is short. */
static void keep_block(struct engine *e, struct request *r)
{
	if (r->pos % e->place_block || r->pos < r->n_prompt || r->n_tok - r->pos != 1)
		return;
	keep_here(e, r, PLACE_END);
	if (r->reuse.stays_at) {
		prefix_rekind(&e->prefix, r->ask.salt, r->tok, r->reuse.stays_at, PLACE_GRID);
		if (!r->reuse.pitch.answers)
			prefix_forget(&e->prefix, r->ask.salt, r->tok, r->reuse.stays_at);
	}
	r->reuse.learned = r->reuse.stays_at = r->pos;
}

void reuse_moved(struct engine *e, struct request *r)
{
	enum place kind = PLACE_GRID;
	int at = r->reuse.learned;
	bool passed = false, answer = false;

	if (!uses_store(e, &r->ask) || r->pos <= r->reuse.learned)
		return;
	/* Rows of drafts may carry it past a place: the first position after serves as well. */
	while (at < r->pos && (at = next_place(e, r, at, at, &kind)) <= r->pos && at < r->n_tok)
		passed = true;
	if (!passed && e->place_block) {
		keep_block(e, r);
		return;
	}
	if (!passed && due_in_answer(e, r)) {
		kind = PLACE_GRID;
		passed = answer = true;
	}
	if (!passed)
		return;
	keep_here(e, r, kind);
	if (answer)
		thin_answer(e, r);
	r->reuse.learned = r->pos;
}

/* ---- the end ---- */

/* The whole answer and what led to it may come back as the beginning of the next
 * prompt; what was computed for a client that left may be asked for again.  After a stop
 * string the caches may hold more than the text that was given out; then they go
 * back to its end, if they can. */
void reuse_end(struct engine *e, struct request *r)
{
	bool left = r->finish == FINISH_CANCEL || (r->finish == FINISH_ERROR && r->err.code == E_LATE);
	struct prefix_key key = key_of(e, r, left ? PLACE_LEFT : PLACE_END);
	struct snaps snaps;

	if (!uses_store(e, &r->ask) || (r->finish == FINISH_ERROR && !left))
		return;
	if (r->slot < 0) {
		if (r->park.pos > r->reuse.kept_at && park_take(e, r, &snaps))
			prefix_give(&e->prefix, &key, r->tok, snaps.pos, &snaps);
		return;
	}
	if (r->end_pos && r->end_pos < r->pos)
		r->pos = caches_rewind(&e->m->caches, r->slot, r->pos, r->end_pos);
	if (r->pos > r->reuse.kept_at)
		keep(e, r, &key);
}

void reuse_explain(const struct engine *e, const char *salt, const int32_t *tok, int n, struct prefix_report *out)
{
	struct prefix_hit hit;

	prefix_find(&e->prefix, salt, tok, n, &hit);
	*out = hit.report;
	if (hit.at && running(&e->sched, prefix_by(hit.node)))
		out->source = PREFIX_RUNNING;
	if (e->prefix.tier) {
		int far = e->prefix.tier->find(e->prefix.tier, salt ? salt : "", tok, n - 1);

		if (far > out->resumed) {
			out->source = PREFIX_DISK;
			out->reason = PREFIX_HIT;
			out->resumed = far;
			out->place = PLACES;
			out->junction = far > out->junction ? far : out->junction;
			out->replayed = out->junction - far;
			out->node = 0;
		}
	}
	/* The running request that it would wait for. */
	for (int i = 0; i < e->sched.n_run && e->prefix.bytes_max; i++) {
		const struct request *o = e->sched.run[i];
		int most;

		if (o->ask.no_cache || strcmp(o->ask.salt, salt ? salt : ""))
			continue;
		most = common(o, tok, n);
		most = most < n - 1 ? most : n - 1;
		if (most <= o->pos || most < SHARE_MIN || most - out->resumed < SHARE_MIN)
			continue;
		out->source = PREFIX_RUNNING;
		out->reason = PREFIX_HIT;
		out->resumed = out->junction = most;
		out->replayed = 0;
		out->place = PLACE_JUNCTION;
		out->node = 0;
	}
}
