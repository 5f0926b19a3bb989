/* test_pace.c - how long steps are, beside answers and alone, and who is served when. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/memory.h"
#include "cache/kinds.h"
#include "engine/pace.h"
#include "sched_world.h"

/* ---- the pace ---- */

/* Beside a running answer each step takes at most the gap, or some six decode steps,
 * and uses most of it; alone, prompts take more. */
static void test_gap(void)
{
	static const struct {
		int base, row, ahead_us;
	} cost[] = {
		{ 20, 3, 0 }, { 50, 2, 0 }, { 5, 1, 0 }, { 20, 1, 3 }, { 20, 3, 2 }, { 1, 8, 0 }, { 2, 1, 0 },
	};
	static struct life a, b;

	for (size_t i = 0; i < sizeof(cost) / sizeof(cost[0]); i++) {
		struct world w;
		int most = 0, alone = 0;

		world_open(&w, world_roomy, (struct engine_opts){ 0 });
		w.base_ns = cost[i].base * MS;
		w.row_ns = cost[i].row * MS;
		w.ahead_ns = cost[i].ahead_us * 1000;
		life_init(&a, 3, 250, 1);
		a.ask.max_tokens = 1;
		world_submit(&a, &w);
		world_pump(&w);
		world_end(&a, &w);
		for (int round = 0; round < 3; round++) {
			life_init(&a, 3, 250, 2);
			a.ask.max_tokens = 6;
			world_submit(&a, &w);
			engine_step(w.e);
			life_init(&b, 380, 250, 3);
			b.ask.max_tokens = 2;
			world_submit(&b, &w);
			while (!b.done) {
				int before = a.got.n, n;

				engine_step(w.e);
				life_read(&a, false);
				life_read(&b, false);
				n = w.step_rows - 1;
				CHECK(a.got.n > before || a.done, "a step without the answer's token");
				if (a.got.n > before)
					CHECK(w.step_ns <= 100 * MS &&
					              (!round || w.step_ns <= 7 * MS * (cost[i].base + cost[i].row)),
					      "%d rows: %.0f ms", w.step_rows, (double)w.step_ns / MS);
				if (a.got.n > before && n > most)
					most = n;
				if (a.done && n > alone && !b.got.n)
					alone = n;
			}
			world_pump(&w);
			world_end(&a, &w);
			world_end(&b, &w);
		}
		CHECK(most * cost[i].row + cost[i].base > 60 || most * cost[i].row > 4 * cost[i].base || most >= 60 ||
		              cost[i].ahead_us,
		      "cost %zu: %d rows at most", i, most);
		CHECK(alone > most || most >= 60, "cost %zu: %d rows alone, %d beside an answer", i, alone, most);
		world_close(&w);
	}
}

/* ---- keeping states ---- */

static struct world *keeper; /* whose clock a copy of a state moves */
static const struct backend_ops *keeper_ops;
static int64_t keeper_ns;
static int keeper_n;

static void *slow_alloc(struct backend *be, size_t bytes)
{
	keeper->now += keeper_ns;
	keeper_n++;
	return keeper_ops->alloc(be, bytes);
}

/* To copy a state takes its time too: the step that ends where one is kept is so much
 * shorter, and where there is no room beside the rows the copy comes one step later. */
static void test_gap_keeping(void)
{
	static const struct {
		int base, row, keep;
	} cost[] = { { 20, 3, 30 }, { 30, 1, 50 }, { 20, 2, 3 }, { 40, 5, 40 } };
	static struct life a, b[2];

	for (size_t i = 0; i < sizeof(cost) / sizeof(cost[0]); i++) {
		struct backend_ops slow;
		struct world w;
		int steps = 0, kept = 0;

		world_open(&w, world_roomy, (struct engine_opts){ .prefix_bytes = 4 << 20, .place_share = 0.01 });
		w.base_ns = cost[i].base * MS;
		w.row_ns = cost[i].row * MS;
		keeper = &w;
		keeper_ns = cost[i].keep * MS;
		keeper_ops = w.m->state->be->ops;
		slow = *keeper_ops;
		slow.alloc = slow_alloc; /* while it runs nothing but copies of states asks for memory */
		w.m->state->be->ops = &slow;
		for (int round = 0; round < 6; round++) {
			life_init(&a, 20, 250, 2);
			a.ask.max_tokens = 300;
			world_submit(&a, &w);
			for (int k = 0; k < 8; k++)
				engine_step(w.e);
			for (int k = 0; k < 2; k++) {
				life_init(&b[k], 200 + 29 * round, 250,
				          10 + (uint64_t)round); /* one parts from the other */
				b[k].prompt[100 + 20 * k] = k;
				b[k].ask.max_tokens = 2;
				world_submit(&b[k], &w);
			}
			while (!b[0].done || !b[1].done) {
				int64_t began = w.now;
				int before = a.got.n, n = keeper_n;

				engine_step(w.e);
				life_read(&a, false);
				life_read(&b[0], false);
				life_read(&b[1], false);
				steps += n < keeper_n;
				kept += keeper_n - n;
				if (!round || a.got.n == before)
					continue; /* nothing is known yet */
				CHECK(w.now - began <= (100 + (n < keeper_n - 1) * cost[i].keep) * MS,
				      "cost %zu: %d rows, %d states: %.0f ms", i, w.step_rows, keeper_n - n,
				      (double)(w.now - began) / MS);
			}
			world_pump(&w);
			world_end(&a, &w);
			world_end(&b[0], &w);
			world_end(&b[1], &w);
		}
		CHECK(kept >= 6 && steps >= 6, "cost %zu: %d states in %d steps", i, kept, steps);
		w.m->state->be->ops = keeper_ops;
		world_close(&w);
	}
}

/* ---- memory of states ---- */

/* Memory that costs a piece's time where it is written for the first time, as a host may make a guest's. */
enum { FRESH_MAX = 400, FRESH_PIECE = 256 << 10, FRESH_NS = 10 * MS };
static struct {
	uint8_t *p;
	size_t bytes;
	bool there[4];
} fresh[FRESH_MAX];
static int fresh_n, fresh_refuse;         /* refuse: the backend has no more memory */
static int64_t fresh_copied, fresh_ready; /* time for copies that went to new memory, and for memory made ready */

static int64_t fresh_touch(const void *at, size_t n)
{
	const uint8_t *p = at;
	int64_t took = 0;

	for (int i = 0; i < fresh_n; i++)
		for (size_t k = 0;
		     p >= fresh[i].p && p < fresh[i].p + fresh[i].bytes && k * FRESH_PIECE < fresh[i].bytes; k++) {
			const uint8_t *piece = fresh[i].p + k * FRESH_PIECE;

			if (fresh[i].there[k] || piece + FRESH_PIECE <= p || piece >= p + n)
				continue;
			fresh[i].there[k] = true;
			took += FRESH_NS;
		}
	keeper->now += took;
	return took;
}

static void *fresh_alloc(struct backend *be, size_t bytes)
{
	void *p = fresh_refuse ? NULL : keeper_ops->alloc(be, bytes);

	CHECK(fresh_n < FRESH_MAX && bytes <= 4 * FRESH_PIECE, "%d pieces of memory, of %zu bytes", fresh_n, bytes);
	if (p) {
		memset(&fresh[fresh_n], 0, sizeof fresh[fresh_n]);
		fresh[fresh_n].p = p;
		fresh[fresh_n++].bytes = bytes;
	}
	return p;
}

static void fresh_free(struct backend *be, void *p, size_t bytes)
{
	for (int i = 0; i < fresh_n; i++)
		if (fresh[i].p == p)
			fresh[i] = fresh[--fresh_n];
	keeper_ops->free(be, p, bytes);
}

static void fresh_write(struct backend *be, void *far, const void *near, size_t n)
{
	fresh_ready += fresh_touch(far, n);
	keeper_ops->write(be, far, near, n);
}

static void fresh_copy(struct backend *be, void *dst, const void *src, size_t n)
{
	fresh_copied += fresh_touch(dst, n);
	keeper_ops->copy(be, dst, src, n);
}

/* A step, and what the pass copied on its way in it. */
static void fresh_step(struct world *w)
{
	const struct state_view *v = state_view(w->m->state);

	engine_step(w->e);
	for (int i = 0; i < v->n_keep; i++)
		fresh_copied += fresh_touch(v->keep[i].s, (size_t)w->m->shape.state.heads_v << 10);
	caches_check(&w->m->caches);
}

/* Beside an answer no state goes into memory that the system must find first, which takes longer than steps do: it is made ready
 * before, little by little, within the gap; and where there is none, nothing waits for it. */
static void test_gap_new_memory(void)
{
	static struct life a, b;

	for (int refuse = 0; refuse < 2; refuse++) {
		struct toy_opts to = world_roomy;
		struct backend_ops slow;
		struct engine_stats s;
		struct world w;

		to.state_kb = 700; /* three pieces */
		world_open(&w, to, (struct engine_opts){ .prefix_bytes = 64 << 20 });
		w.base_ns = 20 * MS;
		keeper = &w;
		keeper_ops = w.m->state->be->ops;
		slow = *keeper_ops;
		slow.alloc = fresh_alloc;
		slow.free = fresh_free;
		slow.write = fresh_write;
		slow.copy = fresh_copy;
		w.m->state->be->ops = &slow;
		fresh_n = 0;
		fresh_refuse = refuse;
		life_init(&a, 20, 250, 2);
		a.ask.max_tokens = 360;
		world_submit(&a, &w);
		for (int k = 0; k < 20; k++)
			fresh_step(&w);
		CHECK(refuse || caches_ready(&w.m->caches, 4), "no memory is ready after 20 steps");
		fresh_copied = 0;
		for (int round = 0; round < 6; round++) {
			life_init(&b, 280 + 10 * round, 250, 10 + (uint64_t)round);
			b.ask.max_tokens = 20;
			world_submit(&b, &w);
			while (!b.done) {
				int64_t began = w.now, ready = fresh_ready;

				fresh_step(&w);
				life_read(&a, false);
				life_read(&b, false);
				CHECK(a.done || w.now - began <= 100 * MS, "%d rows: %.0f ms", w.step_rows,
				      (double)(w.now - began) / MS);
				CHECK(fresh_ready - ready <= w.base_ns / 4 + FRESH_NS, "%.0f ms to make memory ready",
				      (double)(fresh_ready - ready) / MS);
			}
			CHECK(!fresh_copied, "round %d: copies into new memory took %.0f ms", round,
			      (double)fresh_copied / MS);
			world_end(&b, &w);
		}
		s = world_stats(&w);
		CHECK(refuse ? !s.prefix.entries : s.prefix.entries > 20, "%d states are kept", s.prefix.entries);
		world_pump(&w);
		world_end(&a, &w);
		w.m->state->be->ops = keeper_ops;
		world_close(&w);
	}
}

static void machine(const char *root, int available_kb)
{
	char at[256];
	FILE *f;

	snprintf(at, sizeof at, "%s/proc", root);
	mkdir(at, 0700);
	snprintf(at, sizeof at, "%s/proc/meminfo", root);
	f = fopen(at, "w");
	CHECK(f && fprintf(f, "MemTotal: 1000000 kB\nMemAvailable: %d kB\n", available_kb) > 0 && !fclose(f), "%s", at);
}

/* While memory is short, half of what kept prefixes hold is dropped in a second; memory that is ready or that dropped states
 * leave goes back to the system, and none is made ready. */
static void test_short_of_memory(void)
{
	char root[] = "/tmp/weft-pace-XXXXXX", cmd[64];
	struct toy_opts to = world_roomy;
	static struct life a;
	size_t before, after;
	struct world w;

	CHECK(mkdtemp(root), "mkdtemp");
	memory_root = root;
	machine(root, 500000);
	to.state_kb = 700;
	world_open(&w, to, (struct engine_opts){ .prefix_bytes = 64 << 20, .squeeze = true });
	life_init(&a, 300, 250, 2);
	a.ask.max_tokens = 80;
	world_submit(&a, &w);
	while (!a.got.n || !caches_ready(&w.m->caches, 4)) {
		CHECK(engine_step(w.e), "it ended before memory was ready");
		life_read(&a, false);
	}
	CHECK(world_stats(&w).prefix.entries > 2, "%d states", world_stats(&w).prefix.entries);
	before = world_stats(&w).prefix.bytes;
	machine(root, 100);
	w.now += 2000 * MS;
	for (int i = 0; i < 5; i++) {
		engine_step(w.e);
		after = world_stats(&w).prefix.bytes;
		CHECK(i || (after <= before / 2 && after >= before / 8), "%zu bytes are kept of %zu", after, before);
		CHECK(!caches_ready(&w.m->caches, 1), "step %d: memory is ready while it is short", i);
	}
	machine(root, 500000);
	w.now += 2000 * MS;
	engine_step(w.e);
	CHECK(caches_ready(&w.m->caches, 1), "none is ready although memory is there again");
	world_pump(&w);
	world_end(&a, &w);
	world_close(&w);
	memory_root = "";
	snprintf(cmd, sizeof cmd, "rm -rf %s", root);
	CHECK(!system(cmd), "%s", cmd);
}

/* A decode step longer than the gap: prompts get on nevertheless, and stretch it little. */
static void test_gap_slow(void)
{
	static struct life a, b;
	struct world w;

	world_open(&w, world_roomy, (struct engine_opts){ .decode_gap_ms = 50 });
	w.base_ns = 200 * MS;
	w.row_ns = 10 * MS;
	life_init(&a, 3, 250, 2);
	a.ask.max_tokens = 380;
	world_submit(&a, &w);
	for (int i = 0; i < 5; i++)
		engine_step(w.e);
	life_init(&b, 200, 250, 3);
	b.ask.max_tokens = 2;
	world_submit(&b, &w);
	while (!b.got.n) {
		engine_step(w.e);
		life_read(&b, false);
		CHECK(w.step_ns <= 300 * MS, "%.0f ms", (double)w.step_ns / MS);
	}
	life_read(&a, false);
	CHECK(a.got.n < 60, "%d steps for 200 rows", a.got.n);
	world_pump(&w);
	world_end(&a, &w);
	world_end(&b, &w);
	world_close(&w);
}

/* Long at the far end of a prompt nobody can tell what a row costs from what those before
 * it do, the less while the answers' own steps grow; at the beginning of the next the
 * gap is kept all the same. */
static void test_gap_deep(void)
{
	struct pace p;
	uint64_t s = 0;
	int pos = 0, rows;

	pace_init(&p, 100, 0, 0);
	for (int i = 0; i < 20; i++)
		pace_learn(&p, 8, 0, 0, 40. * MS);
	for (int i = 0; pos < 18000; i++) {
		rows = pace_rows(&p, true, pos);
		pace_learn(&p, 8, rows, pos + rows / 2.0,
		           (40 + i * 0.02 + rows * (1 + 40e-6 * (pos + rows / 2.0))) *
		                   (0.95 + 1e-4 * (double)dice(&s, 1000)) * MS);
		pos += rows;
	}
	rows = pace_rows(&p, true, 0);
	CHECK(40 + rows <= 110, "%d rows after steps at position %d", rows, pos);
}

/* While prompts wait hardly a step is without them: one of those that was held up by
 * something else makes the next ones no longer for it. */
static void test_gap_held_up(void)
{
	struct pace p;
	int before, after;

	pace_init(&p, 100, 0, 0);
	for (int i = 0; i < 20; i++)
		pace_learn(&p, 2, 0, 0, MS);
	for (int i = 0; i < 20; i++)
		pace_learn(&p, 2, 80, 500, 9. * MS);
	before = pace_rows(&p, true, 500);
	pace_learn(&p, 2, 0, 0, 20. * MS);
	after = pace_rows(&p, true, 500);
	CHECK(before >= 40 && after <= before * 5 / 4, "%d rows, then %d", before, after);
	/* But when they stay so long, they do count. */
	for (int i = 0; i < 40; i++)
		pace_learn(&p, 2, 0, 0, 20. * MS);
	CHECK(p.base_ns > 19 * MS, "%.1f ms", p.base_ns / MS);
}

/* While pictures are on their way an answer's gap grows by one and a half of its steps as planned, a tower's part included. */
static void test_gap_pictures(void)
{
	for (int step = 2; step <= 100; step += 7)
		for (int part = 0; part <= 3; part++) {
			double tower = part * 0.5 * step, took;
			struct pace p;
			int rows = 0;

			pace_init(&p, 100, 0, 0);
			for (int i = 0; i < 20; i++)
				pace_learn(&p, 1, 0, 0, step * MS);
			if (part == 3) { /* as long as it may be */
				tower = pace_tower_ns(&p) / MS;
				CHECK(tower <= 1.5 * step, "a part of %.1f ms beside steps of %d", tower, step);
				CHECK(tower >= step || tower + step >= 0.8 * 85, "a part of %.1f ms beside steps of %d",
				      tower, step);
			}
			for (int i = 0; i < 40; i++) {
				pace_beside(&p, true, tower * MS);
				rows = pace_rows(&p, true, 500);
				took = step + rows * 0.1;
				CHECK(tower + took <= 2.5 * step || rows <= 8, "%d rows beside a step of %d ms", rows,
				      step);
				CHECK(tower + took <= 100 || took <= 1.26 * step, "%.1f ms for a gap of 100",
				      tower + took);
				pace_learn(&p, 1, rows, 500, took * MS);
			}
			CHECK(rows >= 2, "%d rows: prompts hardly get on", rows);
			pace_beside(&p, false, 0);
			CHECK(pace_rows(&p, true, 500) >= rows, "less without pictures than with them");
		}
}

/* Steps that take longer beside pictures, since a tower emptied the processors' caches or the machine is slow for a moment, make
 * neither parts nor steps longer: the gap is bound by the steps that were before.  What stays so does count. */
static void test_gap_slow_pictures(void)
{
	struct pace p;
	double part = 0, before;
	int rows;

	pace_init(&p, 100, 0, 0);
	for (int i = 0; i < 20; i++)
		pace_learn(&p, 1, 0, 0, 10 * MS);
	pace_beside(&p, true, 0);
	before = pace_tower_ns(&p) / MS;
	for (int i = 0; i < 60; i++) {
		double base = i < 30 ? 16 : 30;

		part = pace_tower_ns(&p) / MS;
		pace_beside(&p, true, i < 15 ? 0 : part * MS); /* at first they are decoded */
		CHECK(part <= before, "a part of %.1f ms beside slow steps, %.1f before", part, before);
		CHECK(i % 30 < 10 || part + base <= (base < 20 ? 25 : 1.25 * base),
		      "a part of %.1f ms beside a step of %.0f, once 10", part, base);
		pace_learn(&p, 1, 0, 0, base * MS);
	}
	for (int i = 0; i < 20; i++)
		pace_learn(&p, 1, 40, 500, 50. * MS);
	pace_beside(&p, true, 0);
	rows = pace_rows(&p, true, 500);
	CHECK(rows > 2 && rows * 0.5 <= 0.25 * 30, "%d rows of 0.5 ms beside a step of 30, once 10", rows);
	for (int i = 0; i < 2000; i++) {
		pace_beside(&p, true, pace_tower_ns(&p));
		pace_learn(&p, 1, 0, 0, 20. * MS);
	}
	part = pace_tower_ns(&p) / MS;
	CHECK(part >= 1.9 * before && part + 20 <= 50, "a part of %.1f ms, when steps take 20", part);
}

/* Chunks of an asked-for size beside answers that leave no room for it; prompts
 * beside answers that leave no room at all. */
static void test_full_steps(void)
{
	static const int split[] = { 8 };
	static struct life l[5];

	for (int rows = 1; rows <= 8; rows++)
		for (int i = 0; i < 2; i++) {
			struct toy_opts to = world_roomy;
			struct world w;

			to.step_rows = rows;
			world_open(&w, to, (struct engine_opts){ 0 });
			for (int k = 0; k < 4; k++) {
				life_init(&l[k], 1, 250, (uint64_t)k);
				l[k].ask.max_tokens = 380;
				world_submit(&l[k], &w);
			}
			for (int k = 0; k < 10; k++)
				engine_step(w.e);
			life_init(&l[4], 40, 250, 9);
			l[4].ask.split = split;
			l[4].ask.n_split = i;
			l[4].ask.max_tokens = 3;
			world_submit(&l[4], &w);
			while (!l[4].done) {
				engine_step(w.e);
				life_read(&l[4], false);
			}
			CHECK(world_stats(&w).running == 4, "it waited for the others to end");
			world_pump(&w);
			for (int k = 0; k < 5; k++)
				world_end(&l[k], &w);
			world_close(&w);
		}
}

/* Logits are made for as many rows as answers need; who asks for all gets them a few at a time. */
static void test_logit_rows(void)
{
	static struct life l[3];
	struct world w;
	struct engine_opts eo = { .seqs_max = 8, .step_rows = 64 };

	world_open(&w, world_roomy, eo);
	CHECK(engine_step_bytes(w.m, &eo) == (8 * TOY_VOCAB + 64 * (size_t)w.m->shape.hidden) * sizeof(float),
	      "%zu bytes", engine_step_bytes(w.m, &eo));
	for (int i = 0; i < 3; i++) {
		life_init(&l[i], 100, 250, (uint64_t)i);
		l[i].want_rows = i != 1;
		l[i].ask.max_tokens = 20;
		world_submit(&l[i], &w);
	}
	world_pump(&w);
	for (int i = 0; i < 3; i++)
		world_end(&l[i], &w);
	world_close(&w);
}

/* ---- fairness ---- */

enum { HOGS = 100 };
static struct life hog[HOGS];

static int64_t first_token(struct world *w, struct life *l)
{
	int64_t began = w->now;

	world_submit(l, w);
	while (!l->got.n) {
		engine_step(w->e);
		life_read(l, false);
		CHECK(!l->done || l->got.n, "ended without a token: %s", l->end.err.msg);
	}
	return w->now - began;
}

static void release(struct world *w, int n)
{
	for (int i = 0; i < n; i++)
		request_cancel(hog[i].r);
	world_pump(w);
	for (int i = 0; i < n; i++) {
		life_read(&hog[i], false);
		world_check(&hog[i], w, true);
		life_free(&hog[i]);
	}
}

/* A client with a hundred long prompts, one with a short one: the short one's
 * first token takes at most twice as long as alone, whenever it comes. */
static void test_short_beside_hog(void)
{
	static struct life one;
	int stride = getenv("WEFT_TEST_QUICK") ? 5 : 1;

	for (int answer = 1; answer <= 30; answer += 29)
		for (int when = 0; when < 40; when += stride) {
			struct world w;
			int64_t solo, beside;

			world_open(&w, world_roomy, (struct engine_opts){ .queue_max = 256 });
			life_init(&one, 64, 250, 1);
			one.ask.max_tokens = 1;
			one.ask.client = 1;
			solo = first_token(&w, &one);
			world_pump(&w);
			world_end(&one, &w);
			for (int i = 0; i < HOGS; i++) {
				life_init(&hog[i], 300, 250, 50 + (uint64_t)i);
				hog[i].ask.max_tokens = answer;
				hog[i].ask.client = 2;
				world_submit(&hog[i], &w);
			}
			for (int i = 0; i < when; i++)
				engine_step(w.e);
			life_init(&one, 64, 250, 1);
			one.ask.max_tokens = 1;
			one.ask.client = 1;
			one.ask.no_cache = true;
			beside = first_token(&w, &one);
			CHECK(beside <= 2 * solo, "answers of %d, after %d steps: %.0f ms beside, %.0f alone", answer,
			      when, (double)beside / MS, (double)solo / MS);
			world_pump(&w);
			world_end(&one, &w);
			release(&w, HOGS);
			world_close(&w);
		}
}

/* A long prompt beside a flood of short ones, each from somebody new. */
static void test_long_beside_flood(void)
{
	static struct life one;
	struct world w;
	int64_t solo;
	int n = 0;

	world_open(&w, world_roomy, (struct engine_opts){ 0 });
	life_init(&one, 380, 250, 1);
	one.ask.max_tokens = 1;
	one.ask.client = 1;
	solo = first_token(&w, &one);
	world_pump(&w);
	world_end(&one, &w);
	life_init(&one, 380, 250, 1);
	one.ask.max_tokens = 1;
	one.ask.client = 1;
	world_submit(&one, &w);
	solo += w.now;
	while (!one.got.n) {
		if (n < HOGS) {
			life_init(&hog[n], 100, 250, (uint64_t)n);
			hog[n].ask.client = 100 + (uint64_t)n;
			hog[n].ask.max_tokens = 1;
			world_submit(&hog[n++], &w);
		}
		engine_step(w.e);
		life_read(&one, false);
	}
	CHECK(n < 60, "the long one waited for %d others", n);
	world_pump(&w);
	world_end(&one, &w);
	for (int i = 0; i < n; i++)
		world_end(&hog[i], &w);
	world_close(&w);
}

/* The same within one client: its short prompts do not wait for its long one, nor
 * that for ever for them. */
static void test_own_short(void)
{
	static struct life one;
	static int32_t long_prompt[4000];
	struct toy_opts to = world_roomy;
	struct ask ask = { .prompt = long_prompt, .n_prompt = 3000, .max_tokens = 1, .client = 1 };
	struct request *r;
	struct world w;
	struct event ev;
	int64_t solo, sum = 0, worst = 0;
	int n = 0;
	bool over = false;

	to.ctx_max = 4000;
	world_open(&w, to, (struct engine_opts){ 0 });
	sampler_params_init(&ask.sampling);
	life_init(&one, 100, 250, 1);
	one.ask.max_tokens = 1;
	one.ask.client = 1;
	solo = first_token(&w, &one);
	world_pump(&w);
	world_end(&one, &w);
	CHECK(!engine_submit(w.e, &ask, &r, NULL), "long");
	for (int i = 0; i < 9; i++)
		engine_step(w.e);
	for (; !over; n++) {
		int64_t took;

		CHECK(n < 100, "the long one waits for ever");
		life_init(&one, 100, 250, (uint64_t)n);
		one.ask.max_tokens = 1;
		one.ask.client = 1;
		took = first_token(&w, &one);
		worst = took > worst ? took : worst;
		sum += n < 15 ? took : 0;
		while (request_next(r, &ev))
			over |= ev.kind == EV_DONE;
		CHECK(n || took <= 2 * solo, "%.0f ms beside its own long one, alone %.0f", (double)took / MS,
		      (double)solo / MS);
		life_free(&one);
	}
	CHECK(sum <= 2 * 15 * solo, "%.0f ms in the mean, alone %.0f", (double)sum / 15 / MS, (double)solo / MS);
	CHECK(n > 20 && n < 60, "%d before the long one", n);
	request_free(r);
	world_pump(&w);
	world_close(&w);
}

static void test_priority(void)
{
	static struct life l[3];
	struct world w;

	world_open(&w, world_roomy, (struct engine_opts){ .seqs_max = 1 });
	/* All of one client, in the order of their submission but for priority. */
	for (int i = 0; i < 3; i++) {
		life_init(&l[i], 20, 250, (uint64_t)i);
		l[i].ask.max_tokens = 5;
		l[i].ask.priority = i == 2 ? 1 : 0;
		world_submit(&l[i], &w);
	}
	while (!l[2].done) {
		engine_step(w.e);
		for (int i = 0; i < 3; i++)
			life_read(&l[i], false);
	}
	CHECK(!l[0].started && !l[1].started, "served before the more urgent one");
	world_pump(&w);
	for (int i = 0; i < 3; i++)
		world_end(&l[i], &w);
	/* One that is not urgent beside urgent ones that come for ever: it rises, and is
	 * served in turn then. */
	life_init(&l[0], 20, 250, 0);
	l[0].ask.max_tokens = 5;
	l[0].ask.priority = -3;
	l[0].ask.client = 1;
	world_submit(&l[0], &w);
	for (int n = 0; !l[0].done; n++) {
		CHECK(n < 400, "starved");
		life_init(&l[1], 20, 250, 9);
		l[1].ask.max_tokens = 5;
		l[1].ask.client = 2;
		world_submit(&l[1], &w);
		while (!l[1].done) {
			engine_step(w.e);
			life_read(&l[0], false);
			life_read(&l[1], false);
		}
		life_free(&l[1]);
		CHECK(n > 50 || !l[0].started, "served before its time");
	}
	world_pump(&w);
	world_end(&l[0], &w);
	world_close(&w);
}

int main(void)
{
	test_gap();
	test_gap_keeping();
	test_gap_new_memory();
	test_short_of_memory();
	test_gap_slow();
	test_gap_deep();
	test_gap_held_up();
	test_gap_pictures();
	test_gap_slow_pictures();
	test_full_steps();
	test_logit_rows();
	test_short_beside_hog();
	test_long_beside_flood();
	test_own_short();
	test_priority();
	return 0;
}
