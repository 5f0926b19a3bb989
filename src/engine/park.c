/* park.c - see park.h. */
#include "engine/park.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/core.h"

/* ---- a snapshot as bytes on the heap ---- */

struct heap_sink {
	struct sink sink;
	uint8_t *p; /* NULL: only counts */
	size_t n;
};

static int heap_put(struct sink *s, const void *p, size_t n)
{
	struct heap_sink *h = (struct heap_sink *)s;

	if (h->p)
		memcpy(h->p + h->n, p, n);
	h->n += n;
	return 0;
}

struct heap_source {
	struct source source;
	const uint8_t *p;
	size_t left;
};

static int heap_get(struct source *s, void *p, size_t n)
{
	struct heap_source *h = (struct heap_source *)s;

	if (n > h->left)
		return E_IO;
	memcpy(p, h->p, n);
	h->p += n;
	h->left -= n;
	return 0;
}

/* ---- keeping ---- */

bool park_keep(struct engine *e, struct request *r)
{
	struct park *k = &r->park;

	assert(!k->pos && r->slot >= 0);
	if (!r->pos)
		return false;
	while (caches_capture(&e->m->caches, r->slot, r->pos, &k->snaps))
		if (!prefix_shrink(&e->prefix) && !park_any_out(e)) {
			k->snaps = (struct snaps){ 0 };
			return false;
		}
	k->pos = r->pos;
	e->stats.parked.n++;
	return true;
}

void park_out(struct engine *e, struct request *r)
{
	struct park *k = &r->park;
	struct heap_sink to = { .sink = { heap_put } };
	int rc;

	assert(k->pos && k->snaps.n);
	rc = snaps_write(&k->snaps, &to.sink);
	if (!rc && to.n <= e->opts.park_bytes - e->stats.parked.bytes)
		to.p = try_malloc(to.n);
	if (!to.p) {
		park_drop(e, r);
		return;
	}
	to.n = 0;
	rc = snaps_write(&k->snaps, &to.sink);
	snaps_drop(&k->snaps);
	k->snaps = (struct snaps){ 0 };
	k->bytes = to.p;
	k->n_bytes = to.n;
	e->stats.parked.bytes += to.n;
	if (rc) /* the device failed meanwhile */
		park_drop(e, r);
}

bool park_any_out(struct engine *e)
{
	struct request *last = NULL;

	for (struct request *r = fair_each(&e->sched.fair, NULL); r; r = fair_each(&e->sched.fair, r))
		if (r->park.pos && r->park.snaps.n && (!last || r->age > last->age))
			last = r;
	if (last)
		park_out(e, last);
	return last;
}

void park_drop(struct engine *e, struct request *r)
{
	struct park *k = &r->park;

	if (!k->pos)
		return;
	if (k->snaps.n)
		snaps_drop(&k->snaps);
	free(k->bytes);
	e->stats.parked.bytes -= k->n_bytes;
	e->stats.parked.n--;
	*k = (struct park){ 0 };
}

/* ---- and back ---- */

static bool read_back(struct engine *e, struct park *k)
{
	struct heap_source from;
	int rc;

	do {
		from = (struct heap_source){ { heap_get }, k->bytes, k->n_bytes };
		rc = caches_read(&e->m->caches, &from.source, &k->snaps, NULL);
		if (!rc)
			return true;
	} while (rc == E_FULL && (prefix_evict(&e->prefix, false) || prefix_shrink(&e->prefix) || park_any_out(e)));
	k->snaps = (struct snaps){ 0 };
	return false;
}

bool park_take(struct engine *e, struct request *r, struct snaps *out)
{
	struct park *k = &r->park;
	bool have = k->pos && (k->snaps.n || read_back(e, k));

	if (have) {
		*out = k->snaps;
		k->snaps = (struct snaps){ 0 };
	}
	park_drop(e, r);
	return have;
}

int park_restore(struct engine *e, struct request *r)
{
	struct snaps snaps;
	int pos = 0;

	if (!park_take(e, r, &snaps))
		return 0;
	if (!caches_restore(&e->m->caches, r->slot, &snaps, snaps.pos))
		pos = snaps.pos;
	snaps_drop(&snaps);
	return pos;
}
