/* huge_pages.c - see huge_pages.h. */
#include "backend/backend.h"
#include "host/huge_pages.h"

#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/pages.h"
#include "base/system.h"

enum { MB = 1 << 20, LEAST = 64 << 20 }; /* bytes of weights that are worth it */

static size_t weight_bytes(const struct store *st)
{
	size_t n = 0;

	for (int i = 0; st && i < st->n_file; i++)
		n += st->file[i].map.n;
	return n;
}

/* A first answer after the start took twice as long with pieces on their way.  A server that
 * is never idle has its pages too, one a second. */
static void let_answers_go_first(struct huge_pages *h)
{
	enum { LOOK_MS = 10, MOST_MS = 1000 };
	const struct timespec pause = { .tv_nsec = LOOK_MS * 1000000 };
	struct engine_stats s;

	for (int ms = 0; ms < MOST_MS && !atomic_load(&h->stop); ms += LOOK_MS) {
		engine_stats(h->of.engine, &s);
		if (!s.running && !s.waiting)
			return;
		nanosleep(&pause, NULL);
	}
}

static bool more(void *arg, size_t done)
{
	struct huge_pages *h = arg;

	if (h->threaded)
		let_answers_go_first(h);
	return memory_available() >= h->spare && !atomic_load(&h->stop);
}

static void *move(void *arg)
{
	struct huge_pages *h = arg;
	int64_t begin = clock_monotonic_ns();
	size_t all = 0;

	if (h->threaded)
		system_background();
	if (h->of.be->ops->pack)
		all = h->of.be->ops->pack(
			h->of.be,
			&(struct pack_opts){ .arith = h->of.arith, .huge_rows = h->huge, .more = more, .arg = h });
	log_debug("%zu MB of weights and slots got memory of their own in %.1f s", all / MB,
	          (double)(clock_monotonic_ns() - begin) / 1e9);
	return NULL;
}

static void start(struct huge_pages *h)
{
	h->threaded = true; /* before the thread looks */
	if (pthread_create(&h->thread, NULL, move, h))
		h->threaded = false;
}

void huge_pages_begin(struct huge_pages *h, const struct huge_pages_of *of, bool now)
{
	size_t bytes = 0;
	bool fits;

	*h = (struct huge_pages){ .of = *of, .spare = memory_total() / 16 };
	for (int i = 0; i < HUGE_STORES_MAX; i++)
		bytes += weight_bytes(of->store[i]);
	if (bytes < LEAST)
		return;
	h->huge = pages_huge_offered();
	fits = of->planned <= SIZE_MAX - h->spare && memory_available() >= of->planned + h->spare;
	if (!fits)
		return;
	if (now)
		move(h);
	else
		start(h);
}

void huge_pages_end(struct huge_pages *h)
{
	atomic_store(&h->stop, true);
	if (h->threaded)
		pthread_join(h->thread, NULL);
	h->threaded = false;
}
