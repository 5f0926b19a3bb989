/* test_sched.c - who is served when, what is taken and what refused, and what a
 * cancel leaves behind: the engine over the toy model, driven by hand under a
 * clock that each step moves by what it would cost. */
#include <string.h>

#include "base/alloc.h"
#include "cache/kinds.h"
#include "engine/pace.h"
#include "lives.h"
#include "model/model.h"
#include "toy.h"

enum { MS = 1000000 };

/* The clock, and what a step costs. */
struct world {
	struct clock clock;
	int64_t now, base_ns, row_ns, ahead_ns; /* ahead: per row and position */
	struct model *m;
	struct engine *e;
	int64_t step_ns; /* of the last step */
	int step_rows, step_items;
	int64_t rows;                /* of all steps */
	struct engine_stats *within; /* what is seen while a step goes on; NULL: nobody looks */
};

static int64_t world_now(struct clock *c)
{
	return ((struct world *)c)->now;
}

static void on_forward(void *arg, const struct pass *p)
{
	struct world *w = arg;

	w->step_ns = w->base_ns + p->n_row * w->row_ns;
	for (int i = 0; i < p->n_row; i++)
		w->step_ns += p->pos[i] * w->ahead_ns;
	w->step_rows = p->n_row;
	w->step_items = p->n_item;
	w->rows += p->n_row;
	w->now += w->step_ns;
	if (w->within)
		engine_stats(w->e, w->within);
}

static const struct toy_opts roomy = { .slots = 8, .ctx_max = 390, .step_rows = 64, .page_rows = 8, .snaps = 300 };

static void world_open(struct world *w, struct toy_opts to, struct engine_opts eo)
{
	struct err err;

	*w = (struct world){ .clock = { world_now }, .now = 1, .base_ns = 10 * MS, .row_ns = MS };
	to.on_forward = on_forward;
	to.on_forward_arg = w;
	w->m = toy_open(&to);
	eo.by_hand = true;
	eo.clock = &w->clock;
	eo.seqs_max = eo.seqs_max ? eo.seqs_max : to.slots;
	eo.step_rows = to.step_rows;
	eo.queue_max = eo.queue_max ? eo.queue_max : 64;
	CHECK(!engine_open(&w->e, w->m, NULL, &eo, &err), "%s", err.msg);
}

static struct engine_stats stats_of(struct world *w)
{
	struct engine_stats s;

	engine_stats(w->e, &s);
	return s;
}

static void world_close(struct world *w)
{
	struct engine_stats s = stats_of(w);
	struct paged_stats kv;

	CHECK(!s.running && !s.waiting && !s.waiting_tokens && !s.stuck_ns, "%d running, %d waiting", s.running,
	      s.waiting);
	engine_close(w->e);
	paged_stats(w->m->kv[0], &kv);
	CHECK(kv.pages_used == 0, "%d pages are still in use", kv.pages_used);
	toy_close(w->m);
}

static void submit(struct life *l, struct world *w)
{
	struct err err;

	CHECK(!life_submit(l, w->e, &err), "%s", err.msg);
}

static void pump(struct world *w)
{
	while (engine_step(w->e))
		caches_check(&w->m->caches);
}

static void check(struct life *l, struct world *w, bool partial)
{
	struct answer want;

	life_alone(l, w->m, life_room(w->m), NULL, toy_logits, &want);
	life_check(l, w->m, &want, toy_logits, partial);
}

static void end(struct life *l, struct world *w)
{
	life_read(l, false);
	CHECK(l->done && l->end.finish == FINISH_LENGTH, "done %d, finish %d: %s", l->done, l->end.finish,
	      l->end.err.msg);
	check(l, w, false);
	life_free(l);
}

/* ---- cancel ---- */

/* What was computed for a cancelled prompt is there when it comes again, from
 * whatever step on. */
static void test_cancel_resumes(void)
{
	static struct life l, again;
	struct world w;

	world_open(&w, roomy, (struct engine_opts){ .prefix_bytes = 1 << 20 });
	for (int steps = 1; steps < 12; steps++) {
		int done;

		life_init(&l, 300, 250, (uint64_t)steps);
		l.ask.max_tokens = 30;
		submit(&l, &w);
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
		CHECK(stats_of(&w).running == 0, "still running");
		life_init(&again, 300, 250, (uint64_t)steps);
		memcpy(again.prompt + 300, l.got.tok, (size_t)l.got.n * sizeof(*l.got.tok));
		again.ask.n_prompt = 300 + l.got.n;
		again.ask.max_tokens = 5;
		submit(&again, &w);
		pump(&w);
		life_read(&again, false);
		CHECK(again.cached == done, "%d of %d are there", again.cached, done);
		end(&again, &w);
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

	world_open(&w, roomy, (struct engine_opts){ .seqs_max = 2 });
	for (int i = 0; i < 4; i++) {
		life_init(&l[i], i == 1 ? 300 : 20, 250, 9 + (uint64_t)i);
		l[i].ask.max_tokens = 40;
		submit(&l[i], &w);
	}
	engine_step(w.e); /* 0 decodes, 1 is in its prompt, 2 and 3 wait */
	request_cancel(l[2].r);
	engine_step(w.e);
	s = stats_of(&w);
	CHECK(s.cancelled[STAGE_QUEUED] == 1 && s.running == 2 && s.waiting == 1, "queued: %d running", s.running);
	request_cancel(l[1].r);
	engine_step(w.e);
	s = stats_of(&w);
	CHECK(s.cancelled[STAGE_PREFILL] == 1 && s.running == 2 && s.waiting == 0, "prefill: %d running", s.running);
	request_cancel(l[0].r);
	engine_step(w.e);
	s = stats_of(&w);
	CHECK(s.cancelled[STAGE_DECODE] == 1 && s.running == 1, "decode: %d running", s.running);
	pump(&w);
	for (int i = 0; i < 3; i++) {
		life_read(&l[i], false);
		CHECK(l[i].done && l[i].end.finish == FINISH_CANCEL, "request %d", i);
		check(&l[i], &w, true);
		life_free(&l[i]);
	}
	end(&l[3], &w);
	for (int i = 0; i < 1000; i++) {
		life_init(&l[0], 1 + i % 7, 250, (uint64_t)i);
		l[0].ask.max_tokens = 2;
		submit(&l[0], &w);
		while (!l[0].done) {
			engine_step(w.e);
			life_read(&l[0], false);
		}
		if (i % 2)
			request_cancel(l[0].r);
		life_free(&l[0]);
		engine_step(w.e);
	}
	s = stats_of(&w);
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

			world_open(&w, roomy, (struct engine_opts){ .prefix_bytes = 1 << 20 });
			for (int i = 0; i < 3; i++) {
				life_init(&l[i], 60, 250, 70 + (uint64_t)i);
				l[i].ask.split = eight;
				l[i].ask.n_split = 1;
				l[i].ask.client = 1 + (uint64_t)i;
				submit(&l[i], &w);
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
			check(&l[gone], &w, true);
			life_init(&again, 60, 250, 70 + (uint64_t)gone);
			submit(&again, &w);
			pump(&w);
			for (int i = 0; i < 3; i++)
				if (i != gone)
					end(&l[i], &w);
			life_read(&again, false);
			CHECK(again.cached == 8 * steps, "%d cached after %d steps", again.cached, steps);
			end(&again, &w);
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
	struct toy_opts to = roomy;
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
			pump(&w);
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
	pump(&w);
	for (int i = 0; i < MORE; i++) {
		const struct run *a = &alone[x[i].tok[31]];

		run_read(&x[i]);
		CHECK(x[i].done && !memcmp(x[i].tok, a->tok, (size_t)x[i].n * sizeof(*a->tok)),
		      "request %d of %d tokens", i, len[x[i].tok[31]]);
		request_free(x[i].r);
	}
	CHECK(stats_of(&w).finished[FINISH_CANCEL] > 2 && stats_of(&w).finished[FINISH_LENGTH] > N + 8,
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
		struct toy_opts to = roomy;
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
			submit(&l[i], &w);
			rows += l[i].ask.n_prompt + 119;
		}
		try_malloc_max = kind == 4 ? 3000 : SIZE_MAX; /* the machine has less than the budget */
		pump(&w);
		try_malloc_max = SIZE_MAX;
		s = stats_of(&w);
		CHECK(s.preempted > 0 && s.preempted < 60, "%d preempted", (int)s.preempted);
		CHECK(!s.parked && !s.parked_bytes, "%d are parked for ever", s.parked);
		if (kind == 2 || kind == 3)
			CHECK(s.resumed == s.preempted && w.rows == rows, "%d of %d resumed, %d rows for %d",
			      (int)s.resumed, (int)s.preempted, (int)w.rows, (int)rows);
		else
			CHECK(s.resumed < s.preempted && w.rows > rows, "%d of %d resumed", (int)s.resumed,
			      (int)s.preempted);
		for (int i = 0; i < 6; i++)
			end(&l[i], &w);
		world_close(&w);
	}
}

/* With enough set aside for the answers nobody has to. */
static void test_reserved(void)
{
	static struct life l[6];
	struct toy_opts to = roomy;
	struct world w;

	to.pages = 200 / to.page_rows;
	world_open(&w, to, (struct engine_opts){ .answer_reserve = 1000 });
	for (int i = 0; i < 6; i++) {
		life_init(&l[i], 10 + 2 * i, 250, 40 + (uint64_t)i);
		l[i].ask.max_tokens = 60;
		submit(&l[i], &w);
	}
	engine_step(w.e);
	CHECK(stats_of(&w).running == 2, "%d running", stats_of(&w).running);
	pump(&w);
	CHECK(!stats_of(&w).preempted, "preempted");
	for (int i = 0; i < 6; i++)
		end(&l[i], &w);
	world_close(&w);
}

/* Pages that are shared are counted once: all eight fit beside one common beginning. */
static void test_shared_room(void)
{
	static struct life l[8];
	struct toy_opts to = roomy;
	struct world w;
	int most = 0;

	to.pages = 320 / to.page_rows;
	to.attention_only = true;
	world_open(&w, to, (struct engine_opts){ .prefix_bytes = 1 << 20 });
	for (int i = 0; i < 8; i++) {
		life_init(&l[i], 200, 250, 7);
		l[i].prompt[199] = i;
		l[i].ask.max_tokens = 6;
		submit(&l[i], &w);
	}
	while (engine_step(w.e))
		most = stats_of(&w).running > most ? stats_of(&w).running : most;
	CHECK(most == 8, "%d at once", most);
	for (int i = 0; i < 8; i++)
		end(&l[i], &w);
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

	world_open(&w, roomy, (struct engine_opts){ .park_bytes = 1 << 20 });
	life_init(&one, 64, 250, 1);
	one.ask.max_tokens = 5;
	one.ask.client = 1;
	one.ask.no_cache = true;
	submit(&one, &w);
	began = w.now;
	while (!one.got.n) {
		engine_step(w.e);
		life_read(&one, false);
	}
	solo = w.now - began;
	pump(&w);
	end(&one, &w);
	for (int i = 0; i < 8; i++) {
		life_init(&hogs[i], 10, 250, 90 + (uint64_t)i);
		hogs[i].ask.client = 2;
		hogs[i].ask.max_tokens = 100 + i;
		hogs[i].ask.no_cache = true;
		rows += 109 + i;
		submit(&hogs[i], &w);
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
	submit(&one, &w);
	while (!one.got.n) {
		engine_step(w.e);
		life_read(&one, false);
	}
	CHECK(w.now - began <= 2 * solo, "%.0f ms, alone %.0f", (double)(w.now - began) / MS, (double)solo / MS);
	s = stats_of(&w);
	CHECK(s.yielded == 1 && s.preempted == 1 && s.parked == 1 && !s.parked_bytes && s.waiting == 1,
	      "%d yielded, %d parked", (int)s.yielded, s.parked);
	pump(&w);
	CHECK(w.rows == rows, "%d rows, not %d", (int)w.rows, (int)rows);
	end(&one, &w);
	for (int i = 0; i < 8; i++) {
		life_read(&hogs[i], false);
		CHECK(hogs[i].end.n_preempted == (i == 7), "%d gave way %d times", i, hogs[i].end.n_preempted);
		end(&hogs[i], &w);
	}
	world_close(&w);
}

/* The more urgent one gets a slot at once, also among requests of one client; one
 * that is cancelled while it waits to go on leaves its prefix. */
static void test_urgent(void)
{
	static struct life l[2], urgent, again;
	struct world w;

	world_open(&w, roomy, (struct engine_opts){ .seqs_max = 2, .prefix_bytes = 1 << 20 });
	for (int i = 0; i < 2; i++) {
		life_init(&l[i], 100, 250, (uint64_t)i);
		l[i].ask.max_tokens = 200;
		submit(&l[i], &w);
	}
	for (int i = 0; i < 30; i++)
		engine_step(w.e);
	life_init(&urgent, 10, 250, 5);
	urgent.ask.max_tokens = 50;
	urgent.ask.priority = 1;
	submit(&urgent, &w);
	for (int i = 0; i < 3; i++) /* a small chunk before the pace is known, its prompt's end, its last token */
		engine_step(w.e);
	life_read(&urgent, false);
	life_read(&l[1], false);
	CHECK(urgent.got.n && stats_of(&w).yielded == 1, "the urgent one waits");
	request_cancel(l[1].r);
	engine_step(w.e);
	CHECK(stats_of(&w).cancelled[STAGE_PREEMPTED] == 1, "cancelled where?");
	pump(&w);
	end(&urgent, &w);
	end(&l[0], &w);
	life_read(&l[1], false);
	check(&l[1], &w, true);
	life_init(&again, 100, 250, 1);
	memcpy(again.prompt + 100, l[1].got.tok, (size_t)l[1].got.n * sizeof(*l[1].got.tok));
	again.ask.n_prompt += l[1].got.n;
	again.ask.max_tokens = 3;
	submit(&again, &w);
	pump(&w);
	life_read(&again, false);
	/* No slot was free: what it had set aside when it gave way became the prefix. */
	CHECK(again.cached == again.ask.n_prompt - 1, "%d of %d are there", again.cached, again.ask.n_prompt);
	end(&again, &w);
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

	world_open(&w, roomy, (struct engine_opts){ .seqs_max = 1, .prefix_bytes = 1 << 20 });
	life_init(&l[0], 20, 250, 1);
	l[0].ask.max_tokens = 300;
	l[0].ask.deadline_ns = w.now + 500 * MS; /* ends in the answer */
	submit(&l[0], &w);
	life_init(&l[1], 20, 250, 2);
	l[1].ask.max_tokens = 3;
	l[1].ask.deadline_ns = w.now + 200 * MS; /* ends in the queue */
	submit(&l[1], &w);
	life_init(&l[2], 20, 250, 3);
	l[2].ask.max_tokens = 3;
	l[2].ask.deadline_ns = w.now; /* is too late already */
	l[2].ask.refusal = &why;
	w.now++;
	CHECK(life_submit(&l[2], w.e, &err) == E_LATE && why.limit == LIMIT_DEADLINE, "%s", err.msg);
	CHECK(why.retry_s >= 1, "retry");
	pump(&w);
	for (int i = 0; i < 2; i++) {
		life_read(&l[i], false);
		CHECK(l[i].done && l[i].end.finish == FINISH_ERROR && l[i].end.err.code == E_LATE, "request %d", i);
		CHECK(l[i].started == !i && l[i].end.stage == (i ? STAGE_QUEUED : STAGE_DECODE), "request %d", i);
	}
	CHECK(l[0].got.n > 10, "%d tokens", l[0].got.n);
	CHECK(w.now < 600 * MS, "%.0f ms", (double)w.now / MS);
	for (int i = 0; i < 2; i++)
		life_free(&l[i]);
	CHECK(stats_of(&w).late == 2 && stats_of(&w).refused[LIMIT_DEADLINE] == 1, "counts");
	/* In time: as if there were none; and what was computed too late is there. */
	life_init(&l[0], 20, 250, 1);
	l[0].ask.max_tokens = 10;
	l[0].ask.deadline_ns = w.now + 500 * MS;
	submit(&l[0], &w);
	pump(&w);
	life_read(&l[0], false);
	CHECK(l[0].cached == 19, "%d of 19 are there", l[0].cached);
	end(&l[0], &w);
	world_close(&w);
}

/* In the queue, long before the deadline: what cannot be computed until then waits no longer. */
static void test_deadline_hopeless(void)
{
	static struct life l[2];
	struct world w;

	world_open(&w, roomy, (struct engine_opts){ .seqs_max = 1 });
	for (int i = 0; i < 2; i++) {
		life_init(&l[i], 300, 250, 1 + (uint64_t)i);
		l[i].ask.max_tokens = 60;
		l[i].ask.deadline_ns = i ? w.now + 1100 * MS : 0;
		submit(&l[i], &w);
	}
	while (!l[1].done) {
		engine_step(w.e);
		life_read(&l[1], false);
	}
	CHECK(l[1].end.err.code == E_LATE && !l[1].started, "%s", l[1].end.err.msg);
	CHECK(w.now > 600 * MS && w.now < 900 * MS, "after %.0f ms; its prompt takes over 300", (double)w.now / MS);
	pump(&w);
	end(&l[0], &w);
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

	world_open(&w, roomy, (struct engine_opts){ 0 });
	for (int i = 0; i < 2; i++) {
		life_init(&l[i], 50, 250, (uint64_t)i);
		l[i].ask.max_tokens = i ? 300 : 20;
	}
	submit(&l[0], &w);
	engine_step(w.e);
	try_malloc_max = 1000;
	CHECK(life_submit(&l[1], w.e, &err) == E_FULL && strstr(err.msg, "300"), "%s", err.msg);
	CHECK(!l[1].r, "a request that was not taken");
	try_malloc_max = SIZE_MAX;
	pump(&w);
	end(&l[0], &w);
	world_close(&w);
}

/* ---- is it moving? ---- */

static void test_stuck(void)
{
	static struct life l;
	struct engine_stats s;
	struct world w;

	world_open(&w, roomy, (struct engine_opts){ 0 });
	for (int i = 0; i < 2; i++) {
		w.now += 1000 * MS;
		CHECK(stats_of(&w).stuck_ns == 0, "an idle engine is not stuck");
		life_init(&l, 20, 250, 1);
		l.ask.max_tokens = 10;
		submit(&l, &w);
		w.now += 7 * MS;
		CHECK(stats_of(&w).stuck_ns == 7 * MS, "%d ns", (int)stats_of(&w).stuck_ns);
		/* Whoever looks during the first step sees it running, and for how long. */
		w.within = &s;
		engine_step(w.e);
		w.within = NULL;
		CHECK(s.running == 1 && s.waiting == 0, "%d running, %d waiting", s.running, s.waiting);
		CHECK(s.stuck_ns == 7 * MS + w.step_ns, "%d ns", (int)s.stuck_ns);
		CHECK(stats_of(&w).stuck_ns == 0, "%d ns", (int)stats_of(&w).stuck_ns);
		w.now += 3 * MS;
		CHECK(stats_of(&w).stuck_ns == 3 * MS, "%d ns", (int)stats_of(&w).stuck_ns);
		pump(&w);
		end(&l, &w);
	}
	/* Draining: who is in goes on, nobody joins. */
	life_init(&l, 20, 250, 1);
	l.ask.max_tokens = 10;
	submit(&l, &w);
	engine_drain(w.e);
	CHECK(engine_submit(w.e, &l.ask, &(struct request *){ 0 }, NULL) == E_GONE, "taken while draining");
	pump(&w);
	end(&l, &w);
	world_close(&w);
}

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

		world_open(&w, roomy, (struct engine_opts){ 0 });
		w.base_ns = cost[i].base * MS;
		w.row_ns = cost[i].row * MS;
		w.ahead_ns = cost[i].ahead_us * 1000;
		life_init(&a, 3, 250, 1);
		a.ask.max_tokens = 1;
		submit(&a, &w);
		pump(&w);
		end(&a, &w);
		for (int round = 0; round < 3; round++) {
			life_init(&a, 3, 250, 2);
			a.ask.max_tokens = 6;
			submit(&a, &w);
			engine_step(w.e);
			life_init(&b, 380, 250, 3);
			b.ask.max_tokens = 2;
			submit(&b, &w);
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
			pump(&w);
			end(&a, &w);
			end(&b, &w);
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

		world_open(&w, roomy, (struct engine_opts){ .prefix_bytes = 4 << 20, .place_share = 0.01 });
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
			submit(&a, &w);
			for (int k = 0; k < 8; k++)
				engine_step(w.e);
			for (int k = 0; k < 2; k++) {
				life_init(&b[k], 200 + 29 * round, 250,
				          10 + (uint64_t)round); /* one parts from the other */
				b[k].prompt[100 + 20 * k] = k;
				b[k].ask.max_tokens = 2;
				submit(&b[k], &w);
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
			pump(&w);
			end(&a, &w);
			end(&b[0], &w);
			end(&b[1], &w);
		}
		CHECK(kept >= 6 && steps >= 6, "cost %zu: %d states in %d steps", i, kept, steps);
		w.m->state->be->ops = keeper_ops;
		world_close(&w);
	}
}

/* A decode step longer than the gap: prompts get on nevertheless, and stretch it little. */
static void test_gap_slow(void)
{
	static struct life a, b;
	struct world w;

	world_open(&w, roomy, (struct engine_opts){ .decode_gap_ms = 50 });
	w.base_ns = 200 * MS;
	w.row_ns = 10 * MS;
	life_init(&a, 3, 250, 2);
	a.ask.max_tokens = 380;
	submit(&a, &w);
	for (int i = 0; i < 5; i++)
		engine_step(w.e);
	life_init(&b, 200, 250, 3);
	b.ask.max_tokens = 2;
	submit(&b, &w);
	while (!b.got.n) {
		engine_step(w.e);
		life_read(&b, false);
		CHECK(w.step_ns <= 300 * MS, "%.0f ms", (double)w.step_ns / MS);
	}
	life_read(&a, false);
	CHECK(a.got.n < 60, "%d steps for 200 rows", a.got.n);
	pump(&w);
	end(&a, &w);
	end(&b, &w);
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

/* Chunks of an asked-for size beside answers that leave no room for it; prompts
 * beside answers that leave no room at all. */
static void test_full_steps(void)
{
	static const int split[] = { 8 };
	static struct life l[5];

	for (int rows = 1; rows <= 8; rows++)
		for (int i = 0; i < 2; i++) {
			struct toy_opts to = roomy;
			struct world w;

			to.step_rows = rows;
			world_open(&w, to, (struct engine_opts){ 0 });
			for (int k = 0; k < 4; k++) {
				life_init(&l[k], 1, 250, (uint64_t)k);
				l[k].ask.max_tokens = 380;
				submit(&l[k], &w);
			}
			for (int k = 0; k < 10; k++)
				engine_step(w.e);
			life_init(&l[4], 40, 250, 9);
			l[4].ask.split = split;
			l[4].ask.n_split = i;
			l[4].ask.max_tokens = 3;
			submit(&l[4], &w);
			while (!l[4].done) {
				engine_step(w.e);
				life_read(&l[4], false);
			}
			CHECK(stats_of(&w).running == 4, "it waited for the others to end");
			pump(&w);
			for (int k = 0; k < 5; k++)
				end(&l[k], &w);
			world_close(&w);
		}
}

/* Logits are made for as many rows as answers need; who asks for all gets them a few at a time. */
static void test_logit_rows(void)
{
	static struct life l[3];
	struct world w;
	struct engine_opts eo = { .seqs_max = 8, .step_rows = 64 };

	world_open(&w, roomy, eo);
	CHECK(engine_step_bytes(w.m, &eo) == 8 * TOY_VOCAB * sizeof(float), "%zu bytes", engine_step_bytes(w.m, &eo));
	for (int i = 0; i < 3; i++) {
		life_init(&l[i], 100, 250, (uint64_t)i);
		l[i].want_rows = i != 1;
		l[i].ask.max_tokens = 20;
		submit(&l[i], &w);
	}
	pump(&w);
	for (int i = 0; i < 3; i++)
		end(&l[i], &w);
	world_close(&w);
}

/* ---- fairness ---- */

enum { HOGS = 100 };
static struct life hog[HOGS];

static int64_t first_token(struct world *w, struct life *l)
{
	int64_t began = w->now;

	submit(l, w);
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
	pump(w);
	for (int i = 0; i < n; i++) {
		life_read(&hog[i], false);
		check(&hog[i], w, true);
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

			world_open(&w, roomy, (struct engine_opts){ .queue_max = 256 });
			life_init(&one, 64, 250, 1);
			one.ask.max_tokens = 1;
			one.ask.client = 1;
			solo = first_token(&w, &one);
			pump(&w);
			end(&one, &w);
			for (int i = 0; i < HOGS; i++) {
				life_init(&hog[i], 300, 250, 50 + (uint64_t)i);
				hog[i].ask.max_tokens = answer;
				hog[i].ask.client = 2;
				submit(&hog[i], &w);
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
			pump(&w);
			end(&one, &w);
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

	world_open(&w, roomy, (struct engine_opts){ 0 });
	life_init(&one, 380, 250, 1);
	one.ask.max_tokens = 1;
	one.ask.client = 1;
	solo = first_token(&w, &one);
	pump(&w);
	end(&one, &w);
	life_init(&one, 380, 250, 1);
	one.ask.max_tokens = 1;
	one.ask.client = 1;
	submit(&one, &w);
	solo += w.now;
	while (!one.got.n) {
		if (n < HOGS) {
			life_init(&hog[n], 100, 250, (uint64_t)n);
			hog[n].ask.client = 100 + (uint64_t)n;
			hog[n].ask.max_tokens = 1;
			submit(&hog[n++], &w);
		}
		engine_step(w.e);
		life_read(&one, false);
	}
	CHECK(n < 60, "the long one waited for %d others", n);
	pump(&w);
	end(&one, &w);
	for (int i = 0; i < n; i++)
		end(&hog[i], &w);
	world_close(&w);
}

/* The same within one client: its short prompts do not wait for its long one, nor
 * that for ever for them. */
static void test_own_short(void)
{
	static struct life one;
	static int32_t long_prompt[4000];
	struct toy_opts to = roomy;
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
	pump(&w);
	end(&one, &w);
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
	pump(&w);
	world_close(&w);
}

static void test_priority(void)
{
	static struct life l[3];
	struct world w;

	world_open(&w, roomy, (struct engine_opts){ .seqs_max = 1 });
	/* All of one client, in the order of their submission but for priority. */
	for (int i = 0; i < 3; i++) {
		life_init(&l[i], 20, 250, (uint64_t)i);
		l[i].ask.max_tokens = 5;
		l[i].ask.priority = i == 2 ? 1 : 0;
		submit(&l[i], &w);
	}
	while (!l[2].done) {
		engine_step(w.e);
		for (int i = 0; i < 3; i++)
			life_read(&l[i], false);
	}
	CHECK(!l[0].started && !l[1].started, "served before the more urgent one");
	pump(&w);
	for (int i = 0; i < 3; i++)
		end(&l[i], &w);
	/* One that is not urgent beside urgent ones that come for ever: it rises, and is
	 * served in turn then. */
	life_init(&l[0], 20, 250, 0);
	l[0].ask.max_tokens = 5;
	l[0].ask.priority = -3;
	l[0].ask.client = 1;
	submit(&l[0], &w);
	for (int n = 0; !l[0].done; n++) {
		CHECK(n < 400, "starved");
		life_init(&l[1], 20, 250, 9);
		l[1].ask.max_tokens = 5;
		l[1].ask.client = 2;
		submit(&l[1], &w);
		while (!l[1].done) {
			engine_step(w.e);
			life_read(&l[0], false);
			life_read(&l[1], false);
		}
		life_free(&l[1]);
		CHECK(n > 50 || !l[0].started, "served before its time");
	}
	pump(&w);
	end(&l[0], &w);
	world_close(&w);
}

int main(void)
{
	test_gap();
	test_gap_keeping();
	test_gap_slow();
	test_gap_deep();
	test_gap_held_up();
	test_full_steps();
	test_logit_rows();
	test_short_beside_hog();
	test_long_beside_flood();
	test_own_short();
	test_priority();
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
