/* sched_world.c - see sched_world.h. */
#include "sched_world.h"

#include "cache/kinds.h"

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

const struct toy_opts world_roomy = { .slots = 8, .ctx_max = 390, .step_rows = 64, .page_rows = 8, .snaps = 300 };

void world_open(struct world *w, struct toy_opts to, struct engine_opts eo)
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

struct engine_stats world_stats(struct world *w)
{
	struct engine_stats s;

	engine_stats(w->e, &s);
	return s;
}

void world_close(struct world *w)
{
	struct engine_stats s = world_stats(w);
	struct paged_stats kv;

	CHECK(!s.running && !s.waiting && !s.waiting_tokens && !s.stuck_ns, "%d running, %d waiting", s.running,
	      s.waiting);
	engine_close(w->e);
	paged_stats(w->m->kv[0], &kv);
	CHECK(kv.pages_used == 0, "%d pages are still in use", kv.pages_used);
	toy_close(w->m);
}

void world_submit(struct life *l, struct world *w)
{
	struct err err;

	CHECK(!life_submit(l, w->e, &err), "%s", err.msg);
}

void world_pump(struct world *w)
{
	while (engine_step(w->e))
		caches_check(&w->m->caches);
}

void world_check(struct life *l, struct world *w, bool partial)
{
	struct answer want;

	life_alone(l, w->m, life_room(w->m), NULL, toy_logits, &want);
	life_check(l, w->m, &want, toy_logits, partial);
}

void world_end(struct life *l, struct world *w)
{
	life_read(l, false);
	CHECK(l->done && l->end.finish == FINISH_LENGTH, "done %d, finish %d: %s", l->done, l->end.finish,
	      l->end.err.msg);
	world_check(l, w, false);
	life_free(l);
}
