/* squeeze.c - gives memory back while it is short, a piece a second, in the order that docs/memory.md states.
 *
 * Asked between two steps, where nothing is on its way; what runs keeps what it has. */
#include "base/log.h"
#include "base/memory.h"
#include "engine/core.h"

enum {
	EVERY_NS = 1000000000,
	SHORT = 32,  /* memory becomes short when less than 1 / SHORT of it is available */
	ENOUGH = 8,  /* it stays short until 1 / ENOUGH of it is available */
	PIECE = 8,   /* of the slots at the start, given back or taken again at a time */
	WAITED = 10, /* percent of the time that tasks wait for memory when it is short */
	MB = 1 << 20,
};

/* The backend gives the slots that it can: at least those of one row stay. */
static bool resize_slots(struct engine *e, size_t bytes)
{
	struct backend *be = e->m->be;
	size_t before = e->squeeze.slots;

	if (!e->squeeze.asked || bytes > e->squeeze.asked)
		return false;
	e->squeeze.slots = be->ops->stream_shrink(be, bytes);
	if (e->squeeze.slots == before)
		return false;
	log_warn("memory is %s: slots for experts take %zu MB, %zu before",
	         e->squeeze.slots < before ? "short" : "there again", e->squeeze.slots / MB, before / MB);
	return true;
}

static bool drop_prefixes(struct prefix *p)
{
	size_t before = p->bytes;

	prefix_cut(p, before / 2);
	if (p->bytes >= before)
		return false;
	log_warn("memory is short: kept prefixes take %zu MB, %zu before", p->bytes / MB, before / MB);
	return true;
}

void squeeze_init(struct engine *e)
{
	struct stream_stats s = { 0 };

	if (e->m->be->ops->stream_stats)
		e->m->be->ops->stream_stats(e->m->be, &s);
	e->squeeze.slot = s.slot_bytes;
	e->squeeze.asked = e->squeeze.slots = (size_t)s.slots * s.slot_bytes;
}

void squeeze_step(struct engine *e)
{
	struct squeeze *q = &e->squeeze;
	int64_t now = engine_now(e);
	size_t total, available, piece = q->asked / PIECE > q->slot ? q->asked / PIECE : q->slot;

	if (!e->opts.squeeze || now < q->next_ns)
		return;
	q->next_ns = now + EVERY_NS;
	total = memory_total();
	available = memory_available();
	q->is_short = available < total / SHORT || memory_pressure() * 100 > WAITED;
	if (q->is_short) {
		if (!resize_slots(e, q->slots > piece ? q->slots - piece : 0))
			drop_prefixes(&e->prefix);
		caches_shed(&e->m->caches, SIZE_MAX); /* what was ready for states, and what dropped ones left */
	} else if (q->slots < q->asked && available > total / ENOUGH) {
		resize_slots(e, q->slots + piece < q->asked ? q->slots + piece : q->asked);
	}
}
