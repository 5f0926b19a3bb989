/* test_liveness.c - no request ever hangs: random worlds with little of everything
 * (slots, rows, pages, snapshots, room for what gave way), in which requests of all
 * priorities come, share beginnings, are drafted for, pinned, proved, cancelled,
 * late and preempted, driven by hand under a clock that each step moves.
 *
 *     test_liveness [COUNT [FIRST]]     worlds of so many seeds
 *
 * A world fails when some thousand steps go by in which no request came further
 * than it ever was, when those that are left do not end once nobody comes any more,
 * when one step looks at the clock for ever, or when an answer is not the one that
 * its request gets alone. */
#include <signal.h>
#include <string.h>

#include "base/alloc.h"
#include "cache/kinds.h"
#include "engine/core.h"
#include "guess.h"
#include "lives.h"
#include "toy.h"

enum {
	MS = 1000000,
	CTX = 160, /* whole pages of every size */
	MANY = 20, /* requests at once */
	/* Each may have to compute again what it had, a row at a time, before it gets further. */
	STILL_MAX = MANY * CTX,
	LOOKS_MAX = 100000, /* at the clock, in one step; a few per request are usual */
	END_MAX = 60000,    /* steps until the last has ended */
};

struct one {
	struct life l;
	bool used, cancelled, dated;
	int tok_max, pos_max; /* the furthest it ever came */
	int64_t idle, worst;  /* steps since then */
};

struct world {
	struct clock clock;
	int64_t now, looks;
	uint64_t seed, dice;
	int64_t step_ns, row_ns;
	struct model *m, *small;
	struct engine *e;
	struct guesser guesser;
	struct drafter *by_model, *ngram;
	struct one one[MANY];
	int prompt_max, answer_max;
	uint64_t clients;
	bool checks; /* answers are compared: costs most of the time */
};

static struct world w;
static int64_t worst_idle, worst_still, worst_end;
static struct engine_stats sum;

static uint64_t roll(uint64_t n)
{
	return dice(&w.dice, n);
}

static int64_t now_of(struct clock *c)
{
	struct world *v = (struct world *)((char *)c - offsetof(struct world, clock));

	CHECK(++v->looks < LOOKS_MAX, "seed %llu: a step does not end", (unsigned long long)v->seed);
	return v->now;
}

static void on_forward(void *arg, const struct pass *p)
{
	w.now += w.step_ns + p->n_row * w.row_ns;
}

/* ---- a tier below memory that has nothing, and takes its time to say so ---- */

static void tier_kept(struct prefix_tier *t, const char *salt, const int32_t *tok, int n) {}
static void tier_left(struct prefix_tier *t, const char *salt, const int32_t *tok, int n, const struct snaps *s) {}
static void tier_dropped(struct prefix_tier *t, const char *salt, const int32_t *tok, int n) {}
static int tier_find(struct prefix_tier *t, const char *salt, const int32_t *tok, int n)
{
	return 0;
}

static bool tier_fetch(struct prefix_tier *t, const char *salt, const int32_t *tok, int n, int have)
{
	return roll(8);
}

static struct prefix_tier slow_tier = { tier_kept, tier_left, tier_dropped, tier_find, tier_fetch };

/* ---- the world ---- */

static void world_open(uint64_t seed)
{
	struct toy_opts to = { .ctx_max = CTX, .on_forward = on_forward }, draft;
	struct engine_opts eo = { .by_hand = true, .clock = &w.clock, .decode_gap_ms = 100 };
	struct err err;
	int whole;

	memset(&w, 0, sizeof(w));
	w.seed = seed;
	w.dice = seed * 1000003;
	w.clock.now_ns = now_of;
	w.now = 1;
	w.step_ns = (int64_t)roll(50) * MS;
	w.row_ns = (int64_t)roll(3) * MS;
	w.checks = !roll(8);
	w.prompt_max = roll(2) ? 100 : 20;
	w.answer_max = !roll(3) ? 8 : w.prompt_max < 100 ? 130 : 50;
	w.clients = 1 + roll(5);

	to.slots = 1 + (int)roll(8);
	to.page_rows = 1 << roll(6);
	to.step_rows = roll(3) ? 1 + (int)roll(12) : 128;
	to.snaps = 1 + (int)roll(12);
	to.attention_only = !roll(4);
	to.window = seed % 3 ? 0 : 1 + (int)(seed * 7 % 60);
	/* From just enough for one to enough for three. */
	whole = CTX / to.page_rows + 1;
	to.pages = whole + (int)roll(2 * (uint64_t)whole);
	if (!roll(3))
		to.pages = 1 + (int)roll((uint64_t)whole); /* submit cuts answers to it */
	w.m = toy_open(&to);

	eo.seqs_max = roll(3) ? to.slots : 1 + (int)roll((uint64_t)to.slots);
	eo.step_rows = to.step_rows;
	eo.queue_max = 2 + (int)roll(MANY);
	eo.queue_seconds = roll(3) ? 0 : (double)(1 + roll(30));
	eo.answer_reserve = roll(4) ? 1 + (int)roll(roll(2) ? 4 : 40) : 0;
	eo.prefix_bytes = roll(4) ? 2000u << roll(8) : 0;
	eo.park_bytes = roll(3) ? 256u << roll(10) : 0;
	eo.verify_share = roll(2) ? 0.5 : 0;
	eo.verify_seed = seed;
	eo.n_draft = roll(2) ? 1 + (int)roll(DRAFT_MAX) : 0;
	eo.draft_fixed = roll(2);
	guesser_init(&w.guesser, GUESS_DICE);
	w.guesser.dice = seed;
	w.guesser.truth = toy_logits;
	w.guesser.m = w.m;
	if (eo.n_draft && roll(2)) {
		/* A model of its own, short of memory as well. */
		draft = (struct toy_opts){ .slots = to.slots,
			                   .ctx_max = CTX,
			                   .step_rows = 8 + (int)roll(40),
			                   .page_rows = to.page_rows,
			                   .pages = 1 + (int)roll(3 * (uint64_t)whole),
			                   .snaps = 1 + (int)roll(8),
			                   .attention_only = roll(2) };
		w.small = toy_open(&draft);
		CHECK(!draft_model_open(&w.by_model, w.small, to.slots, 1000u << roll(6), &err), "%s", err.msg);
	}
	if (w.by_model)
		eo.drafter[eo.n_drafter++] = w.by_model;
	if (eo.n_draft && roll(2))
		eo.drafter[eo.n_drafter++] = w.ngram = draft_ngram_open(to.slots, 500);
	else if (eo.n_draft)
		eo.drafter[eo.n_drafter++] = &w.guesser.d;
	CHECK(!engine_open(&w.e, w.m, NULL, &eo, &err), "%s", err.msg);
	if (!roll(4))
		w.e->prefix.tier = &slow_tier;
}

static void world_close(void)
{
	struct engine_stats s;
	struct paged_stats kv;
	int own = 0;

	/* What the engine still wants to prove. */
	for (w.looks = 0; engine_step(w.e); w.looks = 0)
		CHECK(++own < STILL_MAX, "seed %llu: the engine is never done", (unsigned long long)w.seed);
	engine_stats(w.e, &s);
	sum.steps += s.steps;
	sum.preempted += s.preempted;
	sum.yielded += s.yielded;
	sum.resumed += s.resumed;
	sum.prefix.verified += s.prefix.verified;
	sum.late += s.late;
	sum.prefix.evicted += s.prefix.evicted;
	sum.prefix.hits += s.prefix.hits;
	for (int i = 0; i < 4; i++)
		sum.finished[i] += s.finished[i];
	for (int i = 0; i < DRAFTERS_MAX; i++)
		sum.drafter[0].drafted += s.drafter[i].drafted;
	CHECK(!s.running && !s.waiting && !s.waiting_tokens && !s.parked.n && !s.parked.bytes,
	      "seed %llu: something is left", (unsigned long long)w.seed);
	engine_close(w.e);
	if (w.ngram)
		w.ngram->ops->close(w.ngram);
	if (w.by_model) {
		w.by_model->ops->close(w.by_model);
		toy_close(w.small);
	}
	paged_stats(w.m->kv[0], &kv);
	CHECK(!kv.pages_used, "seed %llu: %d pages are still in use", (unsigned long long)w.seed, kv.pages_used);
	toy_close(w.m);
}

/* ---- requests ---- */

static void come(struct one *o)
{
	static const int mark[] = { 5, 20, 21, 60 };
	static const int split[] = { 3, 1, 17, 5 };
	static const char *const salt[] = { NULL, NULL, NULL, "other" };
	int n = 1 + (int)roll((uint64_t)w.prompt_max);
	struct err err;

	memset(o, 0, sizeof(*o));
	life_init(&o->l, n, 250, roll(3));
	if (roll(2))
		o->l.prompt[roll((uint64_t)n)] ^= 1;
	o->l.loose = true;
	o->l.want_rows = !roll(16);
	o->l.ask.max_tokens = roll(12) ? 1 + (int)roll((uint64_t)w.answer_max) : 0;
	o->l.ask.no_cache = !roll(6);
	o->l.ask.cache_salt = salt[roll(4)];
	o->l.ask.client = roll(w.clients);
	o->l.ask.priority = roll(3) ? 0 : (int)roll(5) - 2;
	o->l.ask.mark = mark;
	o->l.ask.n_mark = (int)roll(5);
	o->l.ask.n_draft = roll(4) ? 0 : -1;
	if (!roll(6)) {
		o->l.ask.split = split;
		o->l.ask.n_split = 1 + (int)roll(4);
	}
	if (!roll(8))
		o->l.ask.resume_at = 1 + (int)roll(CTX);
	if (!roll(4))
		o->l.masked = 1 + roll(1000);
	if (!roll(10)) {
		o->dated = true;
		o->l.ask.deadline_ns = w.now + (int64_t)(1 + roll(20000)) * MS;
	}
	if (life_submit(&o->l, w.e, &err)) {
		CHECK(err.code == E_FULL || err.code == E_LATE || err.code == E_LIMIT, "%s", err.msg);
		return;
	}
	o->used = true;
}

static void go(struct one *o)
{
	bool ours = o->cancelled || o->dated;
	struct answer want;

	/* A snapshot in passing may be refused, and a mask may allow nothing: those errors are true. */
	ours |= o->l.ask.resume_at && o->l.end.finish == FINISH_ERROR && o->l.end.err.code == E_FULL;
	CHECK(ours || o->l.end.finish == FINISH_LENGTH || o->l.end.finish == FINISH_STOP ||
	              (o->l.masked && o->l.end.err.code == E_ARG),
	      "seed %llu: ended with %d: %s", (unsigned long long)w.seed, o->l.end.finish, o->l.end.err.msg);
	if (w.checks) {
		life_alone(&o->l, w.m, life_room(w.m), NULL, toy_logits, &want);
		life_check(&o->l, w.m, &want, toy_logits, ours);
	}
	worst_idle = o->worst > worst_idle ? o->worst : worst_idle;
	life_free(&o->l);
	o->used = false;
}

/* Whether o came further than it ever was. */
static bool moved(struct one *o)
{
	const struct request *r = o->l.r;
	bool did = o->l.done || r->n_tok > o->tok_max || r->pos > o->pos_max;

	o->tok_max = r->n_tok > o->tok_max ? r->n_tok : o->tok_max;
	o->pos_max = r->pos > o->pos_max ? r->pos : o->pos_max;
	o->idle = did ? 0 : o->idle + 1;
	o->worst = o->idle > o->worst ? o->idle : o->worst;
	return did;
}

/* ---- what people do to the store ---- */

static void pin_some(void *arg, const struct prefix_item *item)
{
	uint64_t *id = arg;

	if (item->has_state && !roll(3))
		*id = item->id;
}

static void meddle(void)
{
	uint64_t id = 0;

	prefix_walk(&w.e->prefix, w.now, pin_some, &id);
	if (!id)
		return;
	if (roll(4))
		prefix_pin(&w.e->prefix, prefix_at(&w.e->prefix, id, NULL, NULL, 0), roll(3), NULL);
	else
		prefix_drop(&w.e->prefix, prefix_at(&w.e->prefix, id, NULL, NULL, 0), NULL);
}

static void dump(void)
{
	for (int i = 0; i < MANY; i++) {
		const struct request *r = w.one[i].l.r;

		if (!w.one[i].used)
			continue;
		fprintf(stderr,
		        "request %llu of client %d, priority %d: %d+%d tokens, %d computed, slot %d, parked at %d, idle %lld, "
		        "waits for %lld, gave way %d times\n",
		        (unsigned long long)r->age, (int)w.one[i].l.ask.client, r->ask.priority, r->n_prompt,
		        r->n_tok - r->n_prompt, r->pos, r->slot, r->park.pos, (long long)w.one[i].idle,
		        (long long)r->reuse.ahead, r->sched.n_preempted);
	}
	fprintf(stderr, "a pool of %zu bytes, %d run, %d slots free, starving %p\n", w.e->pool_bytes, w.e->sched.n_run,
	        w.e->sched.n_free, (void *)w.e->sched.starving);
}

static void say_seed(int signal_number)
{
	fprintf(stderr, "in the world of seed %llu\n", (unsigned long long)w.seed);
}

/* The books; and a step holds no memory for positions that it passed and that nobody kept. */
static void check_books(void)
{
	size_t used = caches_pool(&w.m->caches).used;

	caches_check(&w.m->caches);
	prefix_check(&w.e->prefix);
	caches_forget(&w.m->caches);
	CHECK(caches_pool(&w.m->caches).used == used, "seed %llu: %zu bytes of pages were left foreseen",
	      (unsigned long long)w.seed, used - caches_pool(&w.m->caches).used);
}

static void one_world(uint64_t seed)
{
	int64_t still = 0, left = 0;
	int steps = 300, live = 0, rate;

	world_open(seed);
	rate = 2 + (int)roll(40);
	while (steps > 0 || live) {
		bool did = false;

		if (steps-- > 0 && !roll((uint64_t)rate))
			for (int i = 0; i < MANY; i++)
				if (!w.one[i].used && !roll(4))
					come(&w.one[i]);
		for (int i = 0; i < MANY; i++)
			if (w.one[i].used && steps > 0 && !roll(300)) {
				request_cancel(w.one[i].l.r);
				w.one[i].cancelled = true;
			}
		if (!roll(40))
			meddle();
		if (!roll(100))
			w.now += (int64_t)roll(20) * 1000 * MS;
		w.looks = 0;
		if (!engine_step(w.e))
			w.now += MS;
		if (!roll(16))
			check_books();
		live = 0;
		for (int i = 0; i < MANY; i++) {
			struct one *o = &w.one[i];

			if (!o->used)
				continue;
			life_read(&o->l, false);
			did |= moved(o);
			if (o->l.done)
				go(o);
			live += o->used;
		}
		still = did || !live ? 0 : still + 1;
		worst_still = still > worst_still ? still : worst_still;
		if (still > STILL_MAX)
			dump();
		CHECK(still <= STILL_MAX, "seed %llu: nothing moves", (unsigned long long)seed);
		left = steps > 0 ? 0 : left + 1;
		if (left > END_MAX)
			dump();
		CHECK(left <= END_MAX, "seed %llu: %d requests do not end", (unsigned long long)seed, live);
		worst_end = left > worst_end ? left : worst_end;
	}
	world_close();
}

int main(int argc, char **argv)
{
	uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : getenv("WEFT_TEST_QUICK") ? 150 : 1000;
	uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;

	signal(SIGABRT, say_seed);
	for (uint64_t i = 0; i < n; i++)
		one_world(first + i);
	printf("%llu worlds; of all, at most %lld steps without progress, %lld of one request, %lld until the last had ended\n",
	       (unsigned long long)n, (long long)worst_still, (long long)worst_idle, (long long)worst_end);
	printf("%lld steps, %lld whole, %lld cancelled, %lld late, gave way %lld times (%lld for others), came back whole %lld times, "
	       "%lld hits, %lld evicted, %lld proved, %lld tokens drafted\n",
	       (long long)sum.steps, (long long)(sum.finished[FINISH_STOP] + sum.finished[FINISH_LENGTH]),
	       (long long)sum.finished[FINISH_CANCEL], (long long)sum.late, (long long)sum.preempted,
	       (long long)sum.yielded, (long long)sum.resumed, (long long)sum.prefix.hits,
	       (long long)sum.prefix.evicted, (long long)sum.prefix.verified, (long long)sum.drafter[0].drafted);
	return 0;
}
