/* test_sched.c - who is served when, what is taken and what refused, and what a
 * cancel leaves behind: the engine over the toy model, driven by hand under a
 * clock that each step moves by what it would cost. */
#include <string.h>

#include "base/alloc.h"
#include "lives.h"
#include "toy.h"

enum { MS = 1000000 };

/* The clock, and what a step costs. */
struct world {
	struct clock clock;
	int64_t now, base_ns, row_ns;
	struct model *m;
	struct engine *e;
	int64_t step_ns;                /* of the last step */
	int step_rows, step_items;
};

static int64_t world_now(struct clock *c)
{
	return ((struct world *)c)->now;
}

static void on_forward(void *arg, const struct pass *p)
{
	struct world *w = arg;

	w->step_ns = w->base_ns + p->n_row * w->row_ns;
	w->step_rows = p->n_row;
	w->step_items = p->n_item;
	w->now += w->step_ns;
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

	CHECK(!s.running && !s.waiting && !s.waiting_tokens && !s.stuck_ns, "%d running, %d waiting", s.running, s.waiting);
	engine_close(w->e);
	paged_stats(w->m->kv, &kv);
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
	CHECK(l->done && l->end.finish == FINISH_LENGTH, "done %d, finish %d: %s", l->done, l->end.finish, l->end.err.msg);
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
	engine_step(w.e);               /* 0 decodes, 1 is in its prompt, 2 and 3 wait */
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
	CHECK(s.finished[FINISH_CANCEL] == 3 && s.finished[FINISH_LENGTH] == 1001, "%d cancels", (int)s.finished[FINISH_CANCEL]);
	world_close(&w);
}

/* ---- deadlines ---- */

static void test_deadline(void)
{
	static struct life l[3];
	struct world w;
	struct err err;
	struct refusal why;

	world_open(&w, roomy, (struct engine_opts){ .seqs_max = 1 });
	life_init(&l[0], 20, 250, 1);
	l[0].ask.max_tokens = 300;
	l[0].ask.deadline_ns = w.now + 500 * MS;        /* ends in the answer */
	submit(&l[0], &w);
	life_init(&l[1], 20, 250, 2);
	l[1].ask.max_tokens = 3;
	l[1].ask.deadline_ns = w.now + 200 * MS;        /* ends in the queue */
	submit(&l[1], &w);
	life_init(&l[2], 20, 250, 3);
	l[2].ask.max_tokens = 3;
	l[2].ask.deadline_ns = w.now;                   /* is too late already */
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
	/* In time: as if there were none. */
	life_init(&l[0], 20, 250, 1);
	l[0].ask.max_tokens = 10;
	l[0].ask.deadline_ns = w.now + 500 * MS;
	submit(&l[0], &w);
	pump(&w);
	end(&l[0], &w);
	world_close(&w);
}

/* ---- is it moving? ---- */

static void test_stuck(void)
{
	static struct life l;
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
		engine_step(w.e);
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

int main(void)
{
	test_cancel_resumes();
	test_cancel_stages();
	test_deadline();
	test_stuck();
	return 0;
}
