/* prefix.c - see prefix.h.  A list searched from end to end: some hundred
 * entries, compared at memcmp's speed, cost far less than one step. */
#include "engine/prefix.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

struct prefix_entry {
	int32_t *tok;
	int n;
	size_t bytes;
	uint64_t used;
	struct snaps snaps;
};

void prefix_init(struct prefix *p, size_t bytes_max)
{
	memset(p, 0, sizeof(*p));
	p->bytes_max = bytes_max;
}

static void drop(struct prefix *p, int i)
{
	struct prefix_entry *e = &p->entry[i];

	snaps_drop(&e->snaps);
	p->bytes -= e->bytes;
	free(e->tok);
	*e = p->entry[--p->n];
}

void prefix_fini(struct prefix *p)
{
	while (p->n)
		drop(p, p->n - 1);
	free(p->entry);
}

bool prefix_evict(struct prefix *p)
{
	int oldest = 0;

	if (!p->n)
		return false;
	for (int i = 1; i < p->n; i++)
		if (p->entry[i].used < p->entry[oldest].used)
			oldest = i;
	drop(p, oldest);
	return true;
}

/* Length of the common beginning. */
static int common(const int32_t *a, const int32_t *b, int n)
{
	enum { STRIDE = 256 };  /* tokens per memcmp: long enough for its speed, short enough to finish by hand */
	int i = 0;

	while (n - i >= STRIDE && !memcmp(a + i, b + i, STRIDE * sizeof(*a)))
		i += STRIDE;
	while (i < n && a[i] == b[i])
		i++;
	return i;
}

int prefix_lookup(struct prefix *p, const int32_t *tok, int n, const struct snaps **snaps)
{
	struct prefix_entry *best = NULL;
	int best_at = 0;

	for (int i = 0; i < p->n; i++) {
		struct prefix_entry *e = &p->entry[i];
		int most = e->n < n - 1 ? e->n : n - 1, at;

		if (most < best_at)
			continue;
		at = snaps_reach(&e->snaps, common(e->tok, tok, most));
		if (at > best_at || (best && at == best_at && e->used > best->used)) {
			best = e;
			best_at = at;
		}
	}
	if (!best)
		return 0;
	best->used = ++p->clock;
	*snaps = &best->snaps;
	return best_at;
}

/* Entries that a new one, of tok[0..n), stands in for: it begins with their
 * tokens and its snapshots can be restored where they end. */
static void drop_covered(struct prefix *p, const struct snaps *snaps, const int32_t *tok, int n)
{
	for (int i = p->n - 1; i >= 0; i--) {
		struct prefix_entry *e = &p->entry[i];

		if (e->n <= n && snaps_reach(snaps, e->n) == e->n && common(e->tok, tok, e->n) == e->n)
			drop(p, i);
	}
}

void prefix_learn(struct prefix *p, struct caches *caches, int slot, const int32_t *tok, int n)
{
	struct snaps snaps;
	struct prefix_entry *e;
	size_t bytes;

	if (!p->bytes_max || n < 1)
		return;
	for (int i = 0; i < p->n; i++) {
		e = &p->entry[i];
		if (e->n >= n && snaps_reach(&e->snaps, n) == n && common(e->tok, tok, n) == n) {
			e->used = ++p->clock;
			return;
		}
	}
	while (caches_capture(caches, slot, n, &snaps))
		if (!prefix_evict(p))
			return;
	bytes = snaps.bytes + (size_t)n * sizeof(*tok);
	if (bytes > p->bytes_max) {
		snaps_drop(&snaps);
		return;
	}
	drop_covered(p, &snaps, tok, n);
	while (p->bytes + bytes > p->bytes_max)
		prefix_evict(p);
	if (p->n == p->cap) {
		p->cap = p->cap ? 2 * p->cap : 16;
		p->entry = xrealloc(p->entry, size_mul((size_t)p->cap, sizeof(*p->entry)));
	}
	e = &p->entry[p->n++];
	e->tok = xmalloc(size_mul((size_t)n, sizeof(*tok)));
	memcpy(e->tok, tok, (size_t)n * sizeof(*tok));
	e->n = n;
	e->bytes = bytes;
	e->used = ++p->clock;
	e->snaps = snaps;
	p->bytes += bytes;
}
