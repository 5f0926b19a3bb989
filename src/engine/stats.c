/* stats.c - the figures that an engine shows of itself (engine.h, struct engine_stats). */
#include <string.h>

#include "engine/core.h"

/* Prompt tokens that running requests have still to compute. */
static int64_t run_tokens(const struct sched *s)
{
	int64_t n = 0;

	for (int i = 0; i < s->n_run; i++)
		n += s->run[i]->n_tok - s->run[i]->pos;
	return n;
}

void engine_show_stats(struct engine *e)
{
	struct engine_stats *s = &e->stats;
	size_t unit = caches_unit_bytes(&e->m->caches);

	s->running = e->sched.n_run;
	s->waiting = e->sched.fair.n_started;
	s->prefill_rate = pace_rate(&e->pace, s->running > 0);
	s->decode_step_ns = (int64_t)e->pace.base_ns;
	if (unit)
		s->kv.pages_used = (int)((caches_pool(&e->m->caches).used + unit - 1) / unit);
	s->prefix.bytes = e->prefix.bytes;
	s->prefix.entries = e->prefix.n_state;
	s->prefix.evicted = e->prefix.evicted;
	disk_own_stats(e, &s->disk);
	if (e->m->be->ops->stream_stats)
		e->m->be->ops->stream_stats(e->m->be, &s->experts);
	if (e->m->be->ops->row_stats)
		e->m->be->ops->row_stats(e->m->be, &s->tables);
	pthread_mutex_lock(&e->inbox.lock);
	e->inbox.shown = *s;
	e->inbox.queue.rates = (struct queue_rates){
		.prefill = s->prefill_rate,
		.miss = e->miss,
		.hold_ns = (int64_t)e->hold_ns,
		.run_tokens = run_tokens(&e->sched),
		.n_run = s->running,
	};
	pthread_mutex_unlock(&e->inbox.lock);
}

void engine_stats(struct engine *e, struct engine_stats *out)
{
	int64_t now = engine_now(e), since;

	pthread_mutex_lock(&e->inbox.lock);
	*out = e->inbox.shown;
	out->requests = (int64_t)(e->inbox.submitted - e->inbox.submitted_own);
	memcpy(out->refused, e->inbox.refused, sizeof(out->refused));
	out->waiting += e->inbox.queue.n;
	out->waiting_tokens = e->inbox.queue.tokens;
	since = e->inbox.work_ns > out->last_step_ns ? e->inbox.work_ns : out->last_step_ns;
	out->stuck_ns = inbox_has_work(&e->inbox) && now > since ? now - since : 0;
	pthread_mutex_unlock(&e->inbox.lock);
	disk_stats(e, &out->disk);
}
