/* test_ready.c - memory of snapshots that is made ready ahead of time, by count of the backend's bytes: it is what the next
 * snapshots use, within their budget, can be given back, and may be refused. */
#include <stdlib.h>
#include <string.h>

#include "cache/kinds.h"
#include "../check.h"
#include "world.h"

/* A state of 704 KB, three pieces of what caches_prepare makes ready at a time, and a budget of 12. */
enum { HEADS = 11, BUDGET = 12, MANY = 1000 };

struct rig {
	struct backend *be;
	struct caches set;
	size_t slot;                   /* bytes of a snapshot */
	size_t before;                 /* of the backend without any */
	struct snaps kept[BUDGET + 1]; /* and one that is refused */
	int n;
};

static void open_rig(struct rig *r, int budget, int heads, bool far)
{
	struct state_opts o = { .shape = { .layers = 1,
		                           .heads_k = 1,
		                           .heads_v = heads,
		                           .dim_k = 128,
		                           .dim_v = 128,
		                           .conv_channels = 16,
		                           .conv_width = 4 },
		                .slots = 1 };
	struct err err;
	struct cache *c;

	*r = (struct rig){ .be = toy_backend_open(far), .slot = state_slot_bytes(&o.shape) };
	o.snap_bytes_max = (size_t)budget * r->slot + r->slot / 2;
	c = state_open(r->be, &o, &err);
	CHECK(c != NULL, "%s", err.msg);
	caches_add(&r->set, c);
	r->before = toy_backend_live(r->be);
}

static void close_rig(struct rig *r)
{
	while (r->n)
		snaps_drop(&r->kept[--r->n]);
	caches_check(&r->set);
	caches_fini(&r->set);
	CHECK(!toy_backend_live(r->be), "%zu bytes are left", toy_backend_live(r->be));
	r->be->ops->close(r->be);
}

/* Snapshots' memory that the backend has given, in whole ones. */
static int held(const struct rig *r)
{
	size_t n = toy_backend_live(r->be) - r->before;

	CHECK(n % r->slot == 0, "%zu bytes", n);
	return (int)(n / r->slot);
}

/* A sequence of one row, kept where it stands; whether there was room. */
static bool keep(struct rig *r)
{
	struct span sp = { .slot = 0, .n = 1 };
	bool kept;

	caches_close(&r->set, 0);
	CHECK(!caches_reserve(&r->set, &sp), "no room for a row");
	caches_begin(&r->set, &sp, 1);
	caches_settle(&r->set, &sp, 1);
	kept = !caches_capture(&r->set, 0, 1, &r->kept[r->n]);
	r->n += kept;
	caches_check(&r->set);
	return kept;
}

static int prepare(struct rig *r, int pieces)
{
	int n = 0;

	while (n < pieces && caches_prepare(&r->set))
		n++;
	caches_check(&r->set);
	return n;
}

/* The next snapshots take what is ready, and no more is made ready than a quarter of the budget. */
static void uses(bool far)
{
	struct rig r;

	open_rig(&r, BUDGET, HEADS, far);
	CHECK(!caches_ready(&r.set, 1), "it is ready before anything was done");
	CHECK(prepare(&r, 4) == 4 && caches_ready(&r.set, 1) && !caches_ready(&r.set, 2), "one of three pieces");
	CHECK(held(&r) == 1, "%d", held(&r));
	CHECK(keep(&r) && held(&r) == 1 && !caches_ready(&r.set, 1), "a snapshot took other memory");
	prepare(&r, MANY);
	CHECK(caches_ready(&r.set, MANY) && held(&r) == 1 + BUDGET / 4, "%d", held(&r));
	for (int i = BUDGET / 4; i; i--)
		CHECK(keep(&r) && held(&r) == 1 + BUDGET / 4 && caches_ready(&r.set, i - 1) && !caches_ready(&r.set, i),
		      "%d left, %d held", i - 1, held(&r));
	CHECK(keep(&r) && held(&r) == 2 + BUDGET / 4, "%d", held(&r));
	snaps_drop(&r.kept[--r.n]);
	CHECK(caches_ready(&r.set, 1) && held(&r) == 2 + BUDGET / 4, "a dropped snapshot's memory is not ready");
	close_rig(&r);
}

/* Memory that is ready counts with snapshots that are kept; where the budget allows no more, caches_ready waits for none. */
static void within_budget(void)
{
	struct rig r;

	open_rig(&r, BUDGET, HEADS, false);
	do {
		prepare(&r, MANY);
		CHECK(caches_ready(&r.set, MANY) && held(&r) <= BUDGET, "%d of %d held", held(&r), BUDGET);
	} while (keep(&r));
	CHECK(r.n == BUDGET && held(&r) == BUDGET, "%d kept, %d held", r.n, held(&r));
	close_rig(&r);
	open_rig(&r, 3, HEADS, false); /* too small for any to be made ready */
	CHECK(caches_ready(&r.set, 1) && !prepare(&r, MANY), "memory is made ready in a budget of three");
	CHECK(keep(&r), "none is kept");
	close_rig(&r);
	open_rig(&r, BUDGET, 1, false); /* less than a piece */
	CHECK(caches_ready(&r.set, MANY), "small states need preparing");
	close_rig(&r);
}

static void gives_back(void)
{
	struct rig r;

	open_rig(&r, BUDGET, HEADS, false);
	prepare(&r, 4 + 2); /* one and a half */
	CHECK(held(&r) == 2 && caches_shed(&r.set, 1) == r.slot && held(&r) == 1, "%d held", held(&r));
	CHECK(caches_ready(&r.set, 1), "the whole one went first");
	prepare(&r, MANY);
	CHECK(caches_shed(&r.set, SIZE_MAX) == BUDGET / 4 * r.slot && !held(&r), "%d held", held(&r));
	CHECK(!caches_shed(&r.set, SIZE_MAX) && !caches_ready(&r.set, 1), "there is still some");
	CHECK(keep(&r) && held(&r) == 1 && !caches_shed(&r.set, SIZE_MAX), "a snapshot's memory was given back");
	prepare(&r, MANY);
	CHECK(caches_ready(&r.set, BUDGET / 4), "none is ready again");
	close_rig(&r);
}

static void is_refused(void)
{
	struct rig r;

	open_rig(&r, BUDGET, HEADS, false);
	toy_backend_refuse(r.be, 1);
	CHECK(!prepare(&r, 1) && !held(&r) && !caches_ready(&r.set, 1), "%d held after a refusal", held(&r));
	CHECK(prepare(&r, 4) == 4 && keep(&r), "nothing after a refusal");
	toy_backend_refuse(r.be, 1);
	CHECK(!keep(&r) && r.n == 1, "kept without memory");
	CHECK(keep(&r) && r.n == 2, "not kept with memory");
	close_rig(&r);
}

int main(void)
{
	uses(false);
	uses(true);
	within_budget();
	gives_back();
	is_refused();
	return 0;
}
