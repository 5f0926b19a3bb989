/* test_fault.c - a fault in one request's work on the engine's thread ends that
 * request, within the step, and nobody else notices.
 *
 * Six requests run together: masked, with stop strings, penalties, filters, rows
 * looked at, drafted for by copying and by a model.  The same run is made again and
 * again, and each time the next allocation finds the heap empty, or the next call of
 * a mask or of a reader of rows fails an assertion, until no more are made.  Then the
 * same with the engine's own thread and readers beside it. */
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "cache/kinds.h"
#include "engine/core.h"
#include "lives.h"
#include "toy.h"

enum { N = 6, SLOTS = 4, CTX = 390 };

static struct tokenizer *tok;

/* ---- masks and readers that fail ---- */

/* Calls until one fails, of all threads; and then until the next does. */
static atomic_long calls_left;
static long calls_again;
static atomic_int broke;

static void call(void)
{
	if (atomic_fetch_sub(&calls_left, 1) == 1) {
		atomic_fetch_add(&broke, 1);
		atomic_store(&calls_left, calls_again);
		assert(!"this call fails");
	}
}

struct brittle {
	struct mask_source source;
	struct mask_source *real;
};

static struct mask_source *real_of(const struct mask_source *m)
{
	call();
	return ((const struct brittle *)m)->real;
}

static const uint32_t *brittle_mask(struct mask_source *m)
{
	m = real_of(m);
	return m->ops->mask(m);
}
static void brittle_accept(struct mask_source *m, int32_t token)
{
	m = real_of(m);
	m->ops->accept(m, token);
}
static void brittle_rollback(struct mask_source *m, int n)
{
	m = real_of(m);
	m->ops->rollback(m, n);
}
static bool brittle_whole(const struct mask_source *m)
{
	m = real_of(m);
	return m->ops->whole(m);
}

static void brittle_free(struct mask_source *m)
{
	struct mask_source *real = ((struct brittle *)m)->real;

	real->ops->free(real);
	free(m);
}

static struct mask_source *brittle_new(uint64_t seed)
{
	static const struct mask_source_ops ops = { brittle_mask, brittle_accept, brittle_rollback, brittle_whole,
		                                    brittle_free };
	struct brittle *b = xcalloc(1, sizeof(*b));

	b->source.ops = &ops;
	b->real = rules_new(seed, 1 << 16);
	return &b->source;
}

static void brittle_row(void *arg, int pos, const float *row, int vocab)
{
	call();
}

/* ---- the world ---- */

struct world {
	struct model *m, *small;
	struct engine *e;
	struct drafter *drafter[2];
};

static void world_open(struct world *w, bool by_hand)
{
	struct toy_opts to = { .slots = SLOTS, .ctx_max = CTX, .step_rows = 32, .page_rows = 8, .snaps = 100 };
	struct engine_opts eo = { .seqs_max = SLOTS,
		                  .step_rows = 32,
		                  .queue_max = 64,
		                  .prefix_bytes = 1 << 20,
		                  .park_bytes = 1 << 20,
		                  .n_draft = 4,
		                  .draft_fixed = true,
		                  .n_drafter = 2,
		                  .by_hand = by_hand };
	struct err err;

	w->m = toy_open(&to);
	to.pages = 60;
	w->small = toy_open(&to);
	w->drafter[0] = draft_ngram_open(SLOTS, 1000);
	CHECK(!draft_model_open(&w->drafter[1], w->small, SLOTS, 1 << 18, &err), "%s", err.msg);
	memcpy(eo.drafter, w->drafter, sizeof(w->drafter));
	CHECK(!engine_open(&w->e, w->m, tok, &eo, &err), "%s", err.msg);
}

/* All books balance, whatever broke. */
static void world_close(struct world *w, int want_errors)
{
	struct engine_stats s;
	struct paged_stats kv;

	engine_stats(w->e, &s);
	CHECK(!s.running && !s.waiting && !s.waiting_tokens && !s.parked.n, "%d running", s.running);
	CHECK(s.finished[FINISH_ERROR] == want_errors, "%d errors for %d", (int)s.finished[FINISH_ERROR], want_errors);
	if (w->e->opts.by_hand) {
		CHECK(w->e->sched.n_free == SLOTS, "%d slots are free", w->e->sched.n_free);
		caches_check(&w->m->caches);
		caches_check(&w->small->caches);
		prefix_check(&w->e->prefix);
	}
	engine_close(w->e);
	paged_stats(w->m->kv[0], &kv);
	CHECK(!kv.pages_used, "%d pages are in use", kv.pages_used);
	for (int i = 0; i < 2; i++)
		w->drafter[i]->ops->close(w->drafter[i]);
	paged_stats(w->small->kv[0], &kv);
	CHECK(!kv.pages_used, "%d pages are in use by the drafter", kv.pages_used);
	toy_close(w->m);
	toy_close(w->small);
}

/* ---- the requests ---- */

static void ask(struct life *l, int i, int round)
{
	static const char *const stop[] = { "zzzz", "\xe2\x82\xac\xe2\x82\xac" };
	/* Two are made to say something, in the scratch that all share. */
	static const int32_t then[][6] = { { 100, 70, 40, 3, 240, 1 }, { 7, 120, 180, 99, 65, 130 } };
	static const struct lead lead[] = {
		{ .open = -1, .close = -1, .think_max = -1, .then = then[0], .n_then = 6 },
		{ .open = -1, .close = -1, .think_max = -1, .then = then[1], .n_then = 6 }
	};

	life_init(l, 12 + 11 * i, 250, (uint64_t)(i % 4 + 4 * round));
	l->ask.max_tokens = 40;
	l->ask.sampling.temperature = (float)(i % 2);
	l->ask.sampling.seed = (uint64_t)i;
	l->ask.sampling.top_p = i == 1 ? 0.9f : 1;
	l->ask.sampling.top_k = i == 3 ? 20 : 0;
	l->ask.sampling.repetition_penalty = i == 5 ? 1.2f : 1;
	l->ask.sampling.n_logprobs = i % 3 - 1;
	l->ask.stop = stop;
	l->ask.n_stop = i == 2 ? 2 : 0;
	l->ask.lead = i == 1 ? &lead[0] : i == 3 ? &lead[1] : NULL;
	l->masked = i % 2 ? 0 : 10 + (uint64_t)i;
}

static void submit(struct life *l, struct engine *e, int i)
{
	uint64_t masked = l->masked;
	struct err err;

	/* The life's own mask would be a sound one. */
	l->ask.mask = masked ? brittle_new(masked) : NULL;
	if (i == 4) {
		l->ask.on_logits = brittle_row;
		l->ask.on_logits_arg = l;
	}
	CHECK(!engine_submit(e, &l->ask, &l->r, &err), "%s", err.msg);
}

/* The answers when nothing breaks. */
static struct answer sound[N][2];
/* The code that a request which breaks must end with. */
static int reason = E_FAULT;

/* 1 when it was l that broke. */
static int check(struct life *l, const struct world *w, int i, int round)
{
	bool fault = l->end.finish == FINISH_ERROR;

	CHECK(l->done, "request %d has not ended", i);
	CHECK(!fault || l->end.err.code == reason, "%s: %s", err_name(l->end.err.code), l->end.err.msg);
	life_check(l, w->m, &sound[i][round], toy_logits, fault);
	return fault;
}

/* Those that are made to say something are not what life_alone can tell. */
static void note(const struct life *l, const struct world *w, int i, int round)
{
	if (l->ask.lead) {
		sound[i][round] = l->got;
		sound[i][round].finish = l->end.finish;
	} else {
		life_alone(l, w->m, CTX, tok, toy_logits, &sound[i][round]);
	}
}

/* ---- one after the other ---- */

/* One run, with the fault that arm(n) makes; n 0: none, to see the answers.  False: there
 * was no fault. */
static bool run(void (*arm)(long n), long n)
{
	static struct life l[N];
	struct world w;
	int faults = 0, steps = 0;

	world_open(&w, true);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < N; i++) {
			ask(&l[i], i, round);
			submit(&l[i], w.e, i);
		}
		if (!round)
			arm(n);
		while (engine_step(w.e))
			CHECK(++steps < 10000, "it does not end");
		/* What is read, and what comes after a fault, is as ever. */
		arm(0);
		for (int i = 0; i < N; i++) {
			life_read(&l[i], false);
			if (!n)
				note(&l[i], &w, i, round);
			faults += check(&l[i], &w, i, round);
			life_free(&l[i]);
		}
		CHECK(faults <= 1, "%d requests ended with a fault", faults);
	}
	world_close(&w, faults);
	return faults;
}

static void arm_calls(long n)
{
	atomic_store(&calls_left, n);
}

static int sweep(void (*arm)(long n), long step)
{
	int faults = 0;

	for (long n = 1; run(arm, n); n += step)
		faults++;
	return faults;
}

/* What one who reads the store does with an item is his own affair. */
static void show_item(void *arg, const struct prefix_item *item)
{
	assert(++*(int *)arg < 2);
}

static void test_walk(void)
{
	struct world w;
	struct life l;
	int n = 0;

	world_open(&w, true);
	for (int i = 0; i < 2; i++) {
		ask(&l, i, 0);
		submit(&l, w.e, i);
		while (engine_step(w.e))
			;
		life_read(&l, false);
		life_free(&l);
	}
	CHECK(engine_prefix_walk(w.e, show_item, &n) == E_FAULT && n == 2, "%d items", n);
	prefix_check(&w.e->prefix);
	world_close(&w, 0);
}

/* What a submit that broke had allocated is lost, on purpose. */
extern void __lsan_disable(void) __attribute__((weak));
extern void __lsan_enable(void) __attribute__((weak));

struct submission {
	struct life *l;
	struct engine *e;
};

static void submit_it(void *arg)
{
	struct submission *s = arg;

	submit(s->l, s->e, 1);
}

/* A submit that finds no memory holds up nobody. */
static void test_submit(void)
{
	static struct life l, other;
	struct world w;
	int broken = 0;

	world_open(&w, true);
	for (long n = 1;; n++) {
		bool whole;

		ask(&l, 1, 0);
		fault_alloc_guarded_at(n);
		if (__lsan_disable)
			__lsan_disable();
		whole = fault_guard(submit_it, &(struct submission){ &l, w.e });
		if (__lsan_enable)
			__lsan_enable();
		fault_alloc_guarded_at(0);
		ask(&other, 3, 0);
		submit(&other, w.e, 3);
		while (engine_step(w.e))
			;
		life_read(&other, false);
		CHECK(!check(&other, &w, 3, 0), "another ended");
		life_free(&other);
		if (whole)
			break;
		broken++;
	}
	life_read(&l, false);
	CHECK(!check(&l, &w, 1, 0) && broken > 5, "%d places", broken);
	life_free(&l);
	world_close(&w, 0);
}

/* ---- with threads ---- */

struct reader {
	pthread_t thread;
	struct world *w;
	int i, faults;
};

static void *read_on(void *arg)
{
	struct reader *r = arg;
	struct life *l = xmalloc(sizeof(*l));

	for (int k = 0; k < 12; k++) {
		ask(l, r->i, 0);
		submit(l, r->w->e, r->i);
		life_read(l, true);
		r->faults += check(l, r->w, r->i, 0);
		life_free(l);
	}
	free(l);
	return NULL;
}

static void test_threads(void)
{
	struct reader r[N];
	struct world w;
	int faults = 0;

	world_open(&w, false);
	/* A masked request makes some hundreds of calls. */
	calls_again = 977;
	atomic_store(&broke, 0);
	arm_calls(60);
	for (int i = 0; i < N; i++) {
		r[i] = (struct reader){ .w = &w, .i = i };
		CHECK(!pthread_create(&r[i].thread, NULL, read_on, &r[i]), "thread");
	}
	for (int i = 0; i < N; i++) {
		pthread_join(r[i].thread, NULL);
		faults += r[i].faults;
	}
	CHECK(faults == atomic_load(&broke) && faults > 1, "%d of %d faults ended a request", faults, (int)broke);
	world_close(&w, faults);
}

int main(void)
{
	bool quick = getenv("WEFT_TEST_QUICK");
	int calls, heaps;

	tok = toy_tokenizer();
	test_walk();
	run(arm_calls, 0);
	calls = sweep(arm_calls, quick ? 37 : 5);
	reason = E_MEMORY;
	heaps = sweep(fault_alloc_guarded_at, quick ? 3 : 1);
	reason = E_FAULT;
	CHECK(calls > 10 && heaps > 10, "%d calls and %d allocations failed", calls, heaps);
	test_submit();
	test_threads();
	printf("%d calls and %d allocations failed, one at a time\n", calls, heaps);
	tokenizer_close(tok);
	return 0;
}
