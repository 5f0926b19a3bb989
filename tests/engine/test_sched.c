/* test_sched.c - who gives way, what is taken and what refused, and what a cancel leaves behind. */
#include <string.h>

#include "base/alloc.h"
#include "engine/pace.h"
#include "sched_world.h"

/* ---- cancel ---- */

/* What was computed for a cancelled prompt is there when it comes again, from
 * whatever step on. */
static void test_cancel_resumes(void)
{
	static struct life l, again;
	struct world w;

	world_open(&w, world_roomy, (struct engine_opts){ .prefix_bytes = 1 << 20 });
	for (int steps = 1; steps < 12; steps++) {
		int done;

		life_init(&l, 300, 250, (uint64_t)steps);
		l.ask.max_tokens = 30;
		world_submit(&l, &w);
		for (int i = 0; i < steps; i++)
			engine_step(w.e);
		life_read(&l, false);
		done = l.progress + (l.got.n ? l.got.n - 1 : 0);
		CHECK(done > 0, "nothing was computed");
		request_cancel(l.r);
		engine_step(w.e);
		life_read(&l, false);
		CHECK(l.done && l.end.finish == FINISH_CANCEL, "not cancelled");
		CHECK(l.end.stage == (l.got.n ? STAGE_DECODE : STAGE_PREFILL), "stage %d", l.end.stage);
		CHECK(world_stats(&w).running == 0, "still running");
		life_init(&again, 300, 250, (uint64_t)steps);
		memcpy(again.prompt + 300, l.got.tok, (size_t)l.got.n * sizeof(*l.got.tok));
		again.ask.n_prompt = 300 + l.got.n;
		again.ask.max_tokens = 5;
		world_submit(&again, &w);
		world_pump(&w);
		life_read(&again, false);
		CHECK(again.cached == done, "%d of %d are there", again.cached, done);
		world_end(&again, &w);
		life_free(&l);
	}
	world_close(&w);
}

/* Each stage counts its own, nobody else is touched, and requests that end by
 * themselves count nowhere, cancelled afterwards or not. */
static void test_cancel_stages(void)
{
	static struct life l[4];
	struct engine_stats s;
	struct world w;

	world_open(&w, world_roomy, (struct engine_opts){ .seqs_max = 2 });
	for (int i = 0; i < 4; i++) {
		life_init(&l[i], i == 1 ? 300 : 20, 250, 9 + (uint64_t)i);
		l[i].ask.max_tokens = 40;
		world_submit(&l[i], &w);
	}
	engine_step(w.e); /* 0 decodes, 1 is in its prompt, 2 and 3 wait */
	request_cancel(l[2].r);
	engine_step(w.e);
	s = world_stats(&w);
	CHECK(s.cancelled[STAGE_QUEUED] == 1 && s.running == 2 && s.waiting == 1, "queued: %d running", s.running);
	request_cancel(l[1].r);
	engine_step(w.e);
	s = world_stats(&w);
	CHECK(s.cancelled[STAGE_PREFILL] == 1 && s.running == 2 && s.waiting == 0, "prefill: %d running", s.running);
	request_cancel(l[0].r);
	engine_step(w.e);
	s = world_stats(&w);
	CHECK(s.cancelled[STAGE_DECODE] == 1 && s.running == 1, "decode: %d running", s.running);
	world_pump(&w);
	for (int i = 0; i < 3; i++) {
		life_read(&l[i], false);
		CHECK(l[i].done && l[i].end.finish == FINISH_CANCEL, "request %d", i);
		world_check(&l[i], &w, true);
		life_free(&l[i]);
	}
	world_end(&l[3], &w);
	for (int i = 0; i < 1000; i++) {
		life_init(&l[0], 1 + i % 7, 250, (uint64_t)i);
		l[0].ask.max_tokens = 2;
		world_submit(&l[0], &w);
		while (!l[0].done) {
			engine_step(w.e);
			life_read(&l[0], false);
		}
		if (i % 2)
			request_cancel(l[0].r);
		life_free(&l[0]);
		engine_step(w.e);
	}
	s = world_stats(&w);
	CHECK(s.finished[FINISH_CANCEL] == 3 && s.finished[FINISH_LENGTH] == 1001, "%d cancels",
	      (int)s.finished[FINISH_CANCEL]);
	world_close(&w);
}

/* One of several prompts in the same steps is cancelled, after any number of them: the
 * next is without it, the others have their answers, and it goes on from there when it
 * comes again. */
static void test_cancel_together(void)
{
	static const int eight[] = { 8 };
	static struct life l[3], again;

	for (int steps = 1; steps <= 6; steps++)
		for (int gone = 0; gone < 3; gone++) {
			struct world w;

			world_open(&w, world_roomy, (struct engine_opts){ .prefix_bytes = 1 << 20 });
			for (int i = 0; i < 3; i++) {
				life_init(&l[i], 60, 250, 70 + (uint64_t)i);
				l[i].ask.split = eight;
				l[i].ask.n_split = 1;
				l[i].ask.client = 1 + (uint64_t)i;
				world_submit(&l[i], &w);
			}
			for (int i = 0; i < steps; i++) {
				engine_step(w.e);
				CHECK(w.step_items == 3 && w.step_rows == 24, "%d of %d rows", w.step_items,
				      w.step_rows);
			}
			request_cancel(l[gone].r);
			engine_step(w.e);
			life_read(&l[gone], false);
			CHECK(l[gone].done && l[gone].end.stage == STAGE_PREFILL && w.step_items == 2, "after %d steps",
			      steps);
			world_check(&l[gone], &w, true);
			life_init(&again, 60, 250, 70 + (uint64_t)gone);
			world_submit(&again, &w);
			world_pump(&w);
			for (int i = 0; i < 3; i++)
				if (i != gone)
					world_end(&l[i], &w);
			life_read(&again, false);
			CHECK(again.cached == 8 * steps, "%d cached after %d steps", again.cached, steps);
			world_end(&again, &w);
			life_free(&l[gone]);
			world_close(&w);
		}
}

/* ---- lengths ---- */

struct run {
	struct request *r;
	int32_t tok[32];
	int n;
	bool done;
};

static void run_read(struct run *x)
{
	struct event ev;

	while (request_next(x->r, &ev)) {
		if (ev.kind == EV_TOKEN)
			x->tok[x->n++] = ev.token;
		x->done |= ev.kind == EV_DONE;
	}
}

/* Rows of very different lengths join and leave in any order: each answer is the
 * one it has alone, or its beginning where it was cancelled. */
static void test_lengths(void)
{
	static const int len[] = { 1, 2, 3, 4, 5, 257, 4097 };
	enum { N = sizeof(len) / sizeof(len[0]), MORE = 3 * N };
	static int32_t prompt[N][4097];
	static struct run alone[N], x[MORE];
	uint64_t dices = 5;
	struct toy_opts to = world_roomy;
	struct world w;

	to.ctx_max = 4200;
	world_open(&w, to, (struct engine_opts){ 0 });
	for (int i = 0; i < MORE; i++) {
		struct ask ask = {
			.prompt = prompt[i % N], .n_prompt = len[i % N], .max_tokens = 20, .client = (uint64_t)(i % 4)
		};

		sampler_params_init(&ask.sampling);
		ask.sampling.temperature = i % N % 2;
		ask.sampling.seed = (uint64_t)(i % N);
		for (int k = 0; k < len[i % N]; k++)
			prompt[i % N][k] = (k * 7 + i % N * 31) % 250;
		if (i < N) {
			CHECK(!engine_submit(w.e, &ask, &alone[i].r, NULL), "submit");
			world_pump(&w);
			run_read(&alone[i]);
			CHECK(alone[i].done && alone[i].n == 20, "alone");
			request_free(alone[i].r);
		}
	}
	for (int i = 0; i < MORE; i++) {
		int k = (int)dice(&dices, N);
		struct ask ask = {
			.prompt = prompt[k], .n_prompt = len[k], .max_tokens = 20, .client = (uint64_t)(i % 4)
		};
		int steps = (int)dice(&dices, 12);

		sampler_params_init(&ask.sampling);
		ask.sampling.temperature = k % 2;
		ask.sampling.seed = (uint64_t)k;
		x[i].tok[31] = k;
		CHECK(!engine_submit(w.e, &ask, &x[i].r, NULL), "submit");
		while (steps--)
			engine_step(w.e);
		if (!dice(&dices, 3))
			request_cancel(x[dice(&dices, (uint64_t)i + 1)].r);
	}
	world_pump(&w);
	for (int i = 0; i < MORE; i++) {
		const struct run *a = &alone[x[i].tok[31]];

		run_read(&x[i]);
		CHECK(x[i].done && !memcmp(x[i].tok, a->tok, (size_t)x[i].n * sizeof(*a->tok)),
		      "request %d of %d tokens", i, len[x[i].tok[31]]);
		request_free(x[i].r);
	}
	CHECK(world_stats(&w).finished[FINISH_CANCEL] > 2 && world_stats(&w).finished[FINISH_LENGTH] > N + 8,
	      "too few of one kind");
	world_close(&w);
}

/* ---- giving way ---- */

/* Answers that do not fit together: the youngest give way and go on later, and
 * nothing is computed twice where their memory can be moved out. */
static void test_preempted(void)
{
	static struct life l[6];

	for (int kind = 0; kind < 5; kind++) {
		static const size_t park[] = { 0, 3000, 1 << 20, 1 << 20, 1 << 20 };
		struct toy_opts to = world_roomy;
		struct engine_stats s;
		struct world w;
		int64_t rows = 0;

		to.pages = 200 / to.page_rows;
		to.snaps = kind == 3 ? 1 : 0; /* no snapshot of a second state at a time */
		world_open(&w, to, (struct engine_opts){ .answer_reserve = 8, .park_bytes = park[kind] });
		for (int i = 0; i < 6; i++) {
			life_init(&l[i], 10 + 2 * i, 250, 40 + (uint64_t)i);
			l[i].ask.no_cache = true;
			l[i].ask.max_tokens = 120;
			l[i].ask.sampling.temperature = i % 2;
			world_submit(&l[i], &w);
			rows += l[i].ask.n_prompt + 119;
		}
		try_malloc_max = kind == 4 ? 3000 : SIZE_MAX; /* the machine has less than the budget */
		world_pump(&w);
		try_malloc_max = SIZE_MAX;
		s = world_stats(&w);
		CHECK(s.preempted > 0 && s.preempted < 60, "%d preempted", (int)s.preempted);
		CHECK(!s.parked.n && !s.parked.bytes, "%d are parked for ever", s.parked.n);
		if (kind == 2 || kind == 3)
			CHECK(s.resumed == s.preempted && w.rows == rows, "%d of %d resumed, %d rows for %d",
			      (int)s.resumed, (int)s.preempted, (int)w.rows, (int)rows);
		else
			CHECK(s.resumed < s.preempted && w.rows > rows, "%d of %d resumed", (int)s.resumed,
			      (int)s.preempted);
		for (int i = 0; i < 6; i++)
			world_end(&l[i], &w);
		world_close(&w);
	}
}

/* With enough set aside for the answers nobody has to. */
static void test_reserved(void)
{
	static struct life l[6];
	struct toy_opts to = world_roomy;
	struct world w;

	to.pages = 200 / to.page_rows;
	world_open(&w, to, (struct engine_opts){ .answer_reserve = 1000 });
	for (int i = 0; i < 6; i++) {
		life_init(&l[i], 10 + 2 * i, 250, 40 + (uint64_t)i);
		l[i].ask.max_tokens = 60;
		world_submit(&l[i], &w);
	}
	engine_step(w.e);
	CHECK(world_stats(&w).running == 2, "%d running", world_stats(&w).running);
	world_pump(&w);
	CHECK(!world_stats(&w).preempted, "preempted");
	for (int i = 0; i < 6; i++)
		world_end(&l[i], &w);
	world_close(&w);
}

/* Pages that are shared are counted once: all eight fit beside one common beginning. */
static void test_shared_room(void)
{
	static struct life l[8];
	struct toy_opts to = world_roomy;
	struct world w;
	int most = 0;

	to.pages = 320 / to.page_rows;
	to.attention_only = true;
	world_open(&w, to, (struct engine_opts){ .prefix_bytes = 1 << 20 });
	for (int i = 0; i < 8; i++) {
		life_init(&l[i], 200, 250, 7);
		l[i].prompt[199] = i;
		l[i].ask.max_tokens = 6;
		world_submit(&l[i], &w);
	}
	while (engine_step(w.e))
		most = world_stats(&w).running > most ? world_stats(&w).running : most;
	CHECK(most == 8, "%d at once", most);
	for (int i = 0; i < 8; i++)
		world_end(&l[i], &w);
	world_close(&w);
}

/* All slots taken by one client: the youngest of its answers stops for another's
 * sake, in place, and goes on with the same tokens, nothing computed twice. */
static void test_yield(void)
{
	static struct life hogs[8], one;
	struct engine_stats s;
	struct world w;
	int64_t solo, began, rows = 0;

	world_open(&w, world_roomy, (struct engine_opts){ .park_bytes = 1 << 20 });
	life_init(&one, 64, 250, 1);
	one.ask.max_tokens = 5;
	one.ask.client = 1;
	one.ask.no_cache = true;
	world_submit(&one, &w);
	began = w.now;
	while (!one.got.n) {
		engine_step(w.e);
		life_read(&one, false);
	}
	solo = w.now - began;
	world_pump(&w);
	world_end(&one, &w);
	for (int i = 0; i < 8; i++) {
		life_init(&hogs[i], 10, 250, 90 + (uint64_t)i);
		hogs[i].ask.client = 2;
		hogs[i].ask.max_tokens = 100 + i;
		hogs[i].ask.no_cache = true;
		rows += 109 + i;
		world_submit(&hogs[i], &w);
	}
	for (int i = 0; i < 20; i++)
		engine_step(w.e);
	rows += 68;
	w.rows = 0;
	for (int i = 0; i < 8; i++) {
		life_read(&hogs[i], false);
		CHECK(hogs[i].got.n, "not all eight run");
		rows -= 9 + hogs[i].got.n;
	}
	life_init(&one, 64, 250, 1);
	one.ask.max_tokens = 5;
	one.ask.client = 1;
	one.ask.no_cache = true;
	began = w.now;
	world_submit(&one, &w);
	while (!one.got.n) {
		engine_step(w.e);
		life_read(&one, false);
	}
	CHECK(w.now - began <= 2 * solo, "%.0f ms, alone %.0f", (double)(w.now - began) / MS, (double)solo / MS);
	s = world_stats(&w);
	CHECK(s.yielded == 1 && s.preempted == 1 && s.parked.n == 1 && !s.parked.bytes && s.waiting == 1,
	      "%d yielded, %d parked", (int)s.yielded, s.parked.n);
	world_pump(&w);
	CHECK(w.rows == rows, "%d rows, not %d", (int)w.rows, (int)rows);
	world_end(&one, &w);
	for (int i = 0; i < 8; i++) {
		life_read(&hogs[i], false);
		CHECK(hogs[i].end.n_preempted == (i == 7), "%d gave way %d times", i, hogs[i].end.n_preempted);
		world_end(&hogs[i], &w);
	}
	world_close(&w);
}

/* The more urgent one gets a slot at once, also among requests of one client; one
 * that is cancelled while it waits to go on leaves its prefix. */
static void test_urgent(void)
{
	static struct life l[2], urgent, again;
	struct world w;

	world_open(&w, world_roomy, (struct engine_opts){ .seqs_max = 2, .prefix_bytes = 1 << 20 });
	for (int i = 0; i < 2; i++) {
		life_init(&l[i], 100, 250, (uint64_t)i);
		l[i].ask.max_tokens = 200;
		world_submit(&l[i], &w);
	}
	for (int i = 0; i < 30; i++)
		engine_step(w.e);
	life_init(&urgent, 10, 250, 5);
	urgent.ask.max_tokens = 50;
	urgent.ask.priority = 1;
	world_submit(&urgent, &w);
	for (int i = 0; i < 3; i++) /* a small chunk before the pace is known, its prompt's end, its last token */
		engine_step(w.e);
	life_read(&urgent, false);
	life_read(&l[1], false);
	CHECK(urgent.got.n && world_stats(&w).yielded == 1, "the urgent one waits");
	request_cancel(l[1].r);
	engine_step(w.e);
	CHECK(world_stats(&w).cancelled[STAGE_PREEMPTED] == 1, "cancelled where?");
	world_pump(&w);
	world_end(&urgent, &w);
	world_end(&l[0], &w);
	life_read(&l[1], false);
	world_check(&l[1], &w, true);
	life_init(&again, 100, 250, 1);
	memcpy(again.prompt + 100, l[1].got.tok, (size_t)l[1].got.n * sizeof(*l[1].got.tok));
	again.ask.n_prompt += l[1].got.n;
	again.ask.max_tokens = 3;
	world_submit(&again, &w);
	world_pump(&w);
	life_read(&again, false);
	/* No slot was free: what it had set aside when it gave way became the prefix. */
	CHECK(again.cached == again.ask.n_prompt - 1, "%d of %d are there", again.cached, again.ask.n_prompt);
	world_end(&again, &w);
	life_free(&l[1]);
	world_close(&w);
}

/* ---- deadlines ---- */

static void test_deadline(void)
{
	static struct life l[3];
	struct world w;
	struct err err;
	struct refusal why;

	world_open(&w, world_roomy, (struct engine_opts){ .seqs_max = 1, .prefix_bytes = 1 << 20 });
	life_init(&l[0], 20, 250, 1);
	l[0].ask.max_tokens = 300;
	l[0].ask.deadline_ns = w.now + 500 * MS; /* ends in the answer */
	world_submit(&l[0], &w);
	life_init(&l[1], 20, 250, 2);
	l[1].ask.max_tokens = 3;
	l[1].ask.deadline_ns = w.now + 200 * MS; /* ends in the queue */
	world_submit(&l[1], &w);
	life_init(&l[2], 20, 250, 3);
	l[2].ask.max_tokens = 3;
	l[2].ask.deadline_ns = w.now; /* is too late already */
	l[2].ask.refusal = &why;
	w.now++;
	CHECK(life_submit(&l[2], w.e, &err) == E_LATE && why.limit == LIMIT_DEADLINE, "%s", err.msg);
	CHECK(why.retry_s >= 1, "retry");
	world_pump(&w);
	for (int i = 0; i < 2; i++) {
		life_read(&l[i], false);
		CHECK(l[i].done && l[i].end.finish == FINISH_ERROR && l[i].end.err.code == E_LATE, "request %d", i);
		CHECK(l[i].started == !i && l[i].end.stage == (i ? STAGE_QUEUED : STAGE_DECODE), "request %d", i);
	}
	CHECK(l[0].got.n > 10, "%d tokens", l[0].got.n);
	CHECK(w.now < 600 * MS, "%.0f ms", (double)w.now / MS);
	for (int i = 0; i < 2; i++)
		life_free(&l[i]);
	CHECK(world_stats(&w).late == 2 && world_stats(&w).refused[LIMIT_DEADLINE] == 1, "counts");
	/* In time: as if there were none; and what was computed too late is there. */
	life_init(&l[0], 20, 250, 1);
	l[0].ask.max_tokens = 10;
	l[0].ask.deadline_ns = w.now + 500 * MS;
	world_submit(&l[0], &w);
	world_pump(&w);
	life_read(&l[0], false);
	CHECK(l[0].cached == 19, "%d of 19 are there", l[0].cached);
	world_end(&l[0], &w);
	world_close(&w);
}

/* In the queue, long before the deadline: what cannot be computed until then waits no longer. */
static void test_deadline_hopeless(void)
{
	static struct life l[2];
	struct world w;

	world_open(&w, world_roomy, (struct engine_opts){ .seqs_max = 1 });
	for (int i = 0; i < 2; i++) {
		life_init(&l[i], 300, 250, 1 + (uint64_t)i);
		l[i].ask.max_tokens = 60;
		l[i].ask.deadline_ns = i ? w.now + 1100 * MS : 0;
		world_submit(&l[i], &w);
	}
	while (!l[1].done) {
		engine_step(w.e);
		life_read(&l[1], false);
	}
	CHECK(l[1].end.err.code == E_LATE && !l[1].started, "%s", l[1].end.err.msg);
	CHECK(w.now > 600 * MS && w.now < 900 * MS, "after %.0f ms; its prompt takes over 300", (double)w.now / MS);
	world_pump(&w);
	world_end(&l[0], &w);
	life_free(&l[1]);
	world_close(&w);
}

/* ---- faults ---- */

/* No memory for one request is that request's matter. */
static void test_no_memory(void)
{
	static struct life l[2];
	struct world w;
	struct err err;

	world_open(&w, world_roomy, (struct engine_opts){ 0 });
	for (int i = 0; i < 2; i++) {
		life_init(&l[i], 50, 250, (uint64_t)i);
		l[i].ask.max_tokens = i ? 300 : 20;
	}
	world_submit(&l[0], &w);
	engine_step(w.e);
	try_malloc_max = 1000;
	CHECK(life_submit(&l[1], w.e, &err) == E_FULL && strstr(err.msg, "300"), "%s", err.msg);
	CHECK(!l[1].r, "a request that was not taken");
	try_malloc_max = SIZE_MAX;
	world_pump(&w);
	world_end(&l[0], &w);
	world_close(&w);
}

/* ---- is it moving? ---- */

static void test_stuck(void)
{
	static struct life l;
	struct engine_stats s;
	struct world w;

	world_open(&w, world_roomy, (struct engine_opts){ 0 });
	for (int i = 0; i < 2; i++) {
		w.now += 1000 * MS;
		CHECK(world_stats(&w).stuck_ns == 0, "an idle engine is not stuck");
		life_init(&l, 20, 250, 1);
		l.ask.max_tokens = 10;
		world_submit(&l, &w);
		w.now += 7 * MS;
		CHECK(world_stats(&w).stuck_ns == 7 * MS, "%d ns", (int)world_stats(&w).stuck_ns);
		/* Whoever looks during the first step sees it running, and for how long. */
		w.within = &s;
		engine_step(w.e);
		w.within = NULL;
		CHECK(s.running == 1 && s.waiting == 0, "%d running, %d waiting", s.running, s.waiting);
		CHECK(s.stuck_ns == 7 * MS + w.step_ns, "%d ns", (int)s.stuck_ns);
		CHECK(world_stats(&w).stuck_ns == 0, "%d ns", (int)world_stats(&w).stuck_ns);
		w.now += 3 * MS;
		CHECK(world_stats(&w).stuck_ns == 3 * MS, "%d ns", (int)world_stats(&w).stuck_ns);
		world_pump(&w);
		world_end(&l, &w);
	}
	/* Draining: who is in goes on, nobody joins. */
	life_init(&l, 20, 250, 1);
	l.ask.max_tokens = 10;
	world_submit(&l, &w);
	engine_drain(w.e);
	CHECK(engine_submit(w.e, &l.ask, &(struct request *){ 0 }, NULL) == E_GONE, "taken while draining");
	world_pump(&w);
	world_end(&l, &w);
	world_close(&w);
}

int main(void)
{
	test_cancel_resumes();
	test_cancel_stages();
	test_cancel_together();
	test_lengths();
	test_preempted();
	test_reserved();
	test_shared_room();
	test_yield();
	test_urgent();
	test_deadline();
	test_deadline_hopeless();
	test_no_memory();
	test_stuck();
	return 0;
}
