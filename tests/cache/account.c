/* account.c - the naive account of a life: which pages are distinct, who holds them, where a
 * set can stand, what there is room for. */
#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "life.h"

int pages_for(const struct life *l, int pos)
{
	return (pos + l->w.paged[0].page_rows - 1) / l->w.paged[0].page_rows;
}

int first_for(const struct life *l, int g, int pos)
{
	int rows = l->w.paged[g].page_rows, window = l->w.paged[g].group.window, i = 0;

	/* As long as the last row of page i is none of the last `window` that end with pos. */
	while (window && (i + 1) * rows - 1 <= pos - window)
		i++;
	return i;
}

size_t page_bytes(const struct life *l, int g)
{
	struct paged_stats st;

	if (!l->w.kind[g])
		return 0;
	paged_stats(l->w.kind[g], &st);
	return st.page_bytes;
}

static int times(const struct pages *p, int id)
{
	int n = 0;

	for (int i = p->first; i < p->n; i++)
		n += p->id[i] == id;
	return n;
}

int holders(const struct life *l, int g, int id)
{
	int n = 0;

	for (int s = 0; s < l->w.slots; s++) {
		const struct seq *q = &l->seq[s];

		n += times(&q->pages[g], id);
		/* A page that is about to be replaced is held until the step begins. */
		if (q->reserved)
			for (int i = q->before[g].first; i < q->before[g].n; i++)
				n += q->before[g].id[i] == id && q->pages[g].id[i] != id;
		for (int i = 0; i < q->n_seen; i++)
			n += times(&q->seen[i].pages[g], id);
	}
	for (int k = 0; k < KEPT_MAX; k++)
		n += l->kept[k].pos ? times(&l->kept[k].pages[g], id) : 0;
	return n;
}

bool shares_last(const struct life *l, int s, int g)
{
	const struct seq *q = &l->seq[s];

	return l->w.kind[g] && q->pos % l->w.paged[g].page_rows && holders(l, g, q->pages[g].id[q->pages[g].n - 1]) > 1;
}

static int by_value(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

static int put(int *id, int n, const struct pages *p)
{
	memcpy(id + n, p->id + p->first, (size_t)(p->n - p->first) * sizeof *id);
	return n + p->n - p->first;
}

int pages_used(const struct life *l, int g)
{
	static int id[((2 + SEEN_MAX) * SLOTS_MAX + KEPT_MAX) * CTX_MAX];
	int n = 0, distinct = 0;

	for (int s = 0; s < l->w.slots && l->w.kind[g]; s++) {
		const struct seq *q = &l->seq[s];

		n = put(id, n, &q->pages[g]);
		if (q->reserved)
			n = put(id, n, &q->before[g]);
		for (int i = 0; i < q->n_seen; i++)
			n = put(id, n, &q->seen[i].pages[g]);
	}
	for (int k = 0; k < KEPT_MAX && l->w.kind[g]; k++)
		if (l->kept[k].pos)
			n = put(id, n, &l->kept[k].pages[g]);
	qsort(id, (size_t)n, sizeof *id, by_value);
	for (int i = 0; i < n; i++)
		distinct += i == 0 || id[i] != id[i - 1];
	return distinct;
}

bool room_for_pages(const struct life *l, const int more[GROUPS])
{
	size_t used = 0, need = 0;

	for (int g = 0; g < GROUPS; g++) {
		struct paged_stats st;

		if (!l->w.kind[g])
			continue;
		paged_stats(l->w.kind[g], &st);
		if (more[g] > st.pages - pages_used(l, g))
			return false;
		used += (size_t)pages_used(l, g) * st.page_bytes;
		need += (size_t)more[g] * st.page_bytes;
	}
	return !l->w.paged[0].pool || used + need <= l->w.pool.max;
}

int kept_count(const struct life *l)
{
	int n = 0;

	for (int k = 0; k < KEPT_MAX; k++)
		n += l->kept[k].pos > 0;
	return n;
}

int seen_count(const struct life *l)
{
	int n = 0;

	for (int s = 0; s < l->w.slots; s++)
		for (int i = 0; i < l->seq[s].n_seen; i++)
			n += !l->seq[s].seen[i].lost;
	return n;
}

int blocks_used(const struct life *l)
{
	int n = 0, g = l->w.pooled.group;

	for (int s = 0; s < l->w.slots; s++)
		n += pooled_blocks(g, l->seq[s].pos + (l->seq[s].reserved ? l->seq[s].span.n : 0));
	for (int k = 0; k < KEPT_MAX; k++)
		if (l->kept[k].pos)
			n += pooled_blocks(g, l->kept[k].pos);
	return n;
}

bool room_to_keep(const struct life *l, int pos)
{
	if (l->w.kind[STATE] && (size_t)(kept_count(l) + seen_count(l) + 1) * state_slot_bytes(&l->w.state.shape) >
	                                l->w.state.snap_bytes_max)
		return false;
	if (l->w.kind[POOLED] && blocks_used(l) + pooled_blocks(l->w.pooled.group, pos) > l->w.pooled.blocks_max)
		return false;
	if (l->w.kind[CARRY] && (size_t)(kept_count(l) + 1) * l->w.carry.bytes > l->w.carry.snap_bytes_max)
		return false;
	return true;
}

static bool can_stand(const struct life *l, const struct pages p[GROUPS], int at, int pos, bool snap)
{
	int g = l->w.pooled.group;

	if (pos == at || pos == 0)
		return true;
	if (l->w.kind[STATE] || (l->w.kind[CARRY] && snap))
		return false;
	if (l->w.kind[WINDOW] && first_for(l, WINDOW, pos) < p[WINDOW].first)
		return false;
	return !l->w.kind[POOLED] || pos >= at - at % g || pos % g == 0;
}

int where(const struct life *l, const struct pages p[GROUPS], int at, int pos, bool snap)
{
	if (pos > at)
		pos = at;
	while (!can_stand(l, p, at, pos, snap))
		pos--;
	return pos;
}

size_t snap_bytes(const struct life *l, int pos)
{
	size_t n = 0;

	for (int g = 0; g < GROUPS; g++)
		n += (size_t)(pages_for(l, pos) - first_for(l, g, pos)) * page_bytes(l, g);
	if (l->w.kind[STATE])
		n += state_slot_bytes(&l->w.state.shape);
	if (l->w.kind[POOLED])
		n += (size_t)pooled_blocks(l->w.pooled.group, pos) * POOLED_BLOCK * sizeof(uint64_t);
	if (l->w.kind[CARRY])
		n += l->w.carry.bytes;
	return n;
}

uint64_t carried(const struct life *l, const int32_t *tok, int pos)
{
	uint64_t h = 17;

	for (int i = 0; i < pos; i++)
		h = prefix_hash(h, tok[i]);
	return h;
}

/* ---- against what the caches say ---- */

/* Pages that some snapshot holds and no slot; of one snapshot (k >= 0), those that
 * nobody else holds. */
static int pages_kept(const struct life *l, int g, int k)
{
	int n = 0;

	for (int i = 0; i < KEPT_MAX && l->w.kind[g]; i++) {
		const struct pages *p = &l->kept[i].pages[g];

		for (int j = p->first; l->kept[i].pos && j < p->n && (k < 0 || i == k); j++) {
			int before = 0, snaps = 0, all = holders(l, g, p->id[j]);

			for (int o = 0; o < KEPT_MAX; o++) {
				int has = l->kept[o].pos ? times(&l->kept[o].pages[g], p->id[j]) : 0;

				snaps += has;
				before += o < i ? has : 0;
			}
			n += k < 0 ? all == snaps && !before : all == 1;
		}
	}
	return n;
}

void check_kept(const struct life *l)
{
	size_t all = 0;

	for (int k = 0; k < KEPT_MAX; k++) {
		size_t own, pages = 0;

		if (!l->kept[k].pos)
			continue;
		own = l->kept[k].snaps.bytes;
		for (int g = 0; g < GROUPS; g++) {
			own -= (size_t)(l->kept[k].pages[g].n - l->kept[k].pages[g].first) * page_bytes(l, g);
			pages += (size_t)pages_kept(l, g, k) * page_bytes(l, g);
		}
		all += own;
		must(l, snaps_room(&l->kept[k].snaps) == pages, "dropping gives %zu bytes of pages, not %zu",
		     snaps_room(&l->kept[k].snaps), pages);
		must(l, snaps_alone(&l->kept[k].snaps) == own + pages, "dropping frees %zu bytes, not %zu",
		     snaps_alone(&l->kept[k].snaps), own + pages);
	}
	for (int g = 0; g < GROUPS; g++)
		all += (size_t)pages_kept(l, g, -1) * page_bytes(l, g);
	must(l, caches_kept(&l->w.set) == all, "%zu bytes kept, not %zu", caches_kept(&l->w.set), all);
}

/* Pages of slots against what they are said to need: never more, and without a window as many. */
static void check_needs(const struct life *l)
{
	for (int s = 0; s < l->w.slots; s++) {
		const struct seq *q = &l->seq[s];
		int pos = q->pos + (q->reserved ? q->span.n : 0);
		size_t need = caches_need(&l->w.set, pos), held = 0;

		for (int g = 0; g < GROUPS; g++)
			held += (size_t)(q->pages[g].n - q->pages[g].first) * page_bytes(l, g);
		must(l, need >= held && (l->w.kind[WINDOW] || need == held),
		     "position %d needs %zu bytes, %zu are there", pos, need, held);
	}
}

void check_numbers(const struct life *l)
{
	struct cache_pool pool = caches_pool(&l->w.set);
	int free = l->w.kind[STATE] ? (int)(l->w.state.snap_bytes_max / state_slot_bytes(&l->w.state.shape)) :
	                              KEPT_MAX + 1;
	int longest = caches_longest(&l->w.set, l->w.ctx_max);
	size_t max = 0, used = 0;

	if (l->w.kind[CARRY] && free > (int)(l->w.carry.snap_bytes_max / l->w.carry.bytes))
		free = (int)(l->w.carry.snap_bytes_max / l->w.carry.bytes);
	for (int g = 0; g < GROUPS; g++) {
		struct paged_stats st;

		if (!l->w.kind[g])
			continue;
		paged_stats(l->w.kind[g], &st);
		must(l, st.pages_used == pages_used(l, g), "%d pages of %s used, %d are held", st.pages_used,
		     kind_name[g], pages_used(l, g));
		max += (size_t)st.pages * st.page_bytes;
		used += (size_t)st.pages_used * st.page_bytes;
	}
	must(l, pool.max == (l->w.paged[0].pool ? l->w.pool.max : max), "pools of %zu bytes, not %zu", pool.max, max);
	must(l, pool.used == used, "%zu bytes of the pools, not %zu", pool.used, used);
	check_needs(l);
	must(l, longest == l->w.ctx_max || caches_need(&l->w.set, longest + 1) > pool.max, "%d positions fit, no more",
	     longest);
	must(l, caches_need(&l->w.set, longest) <= pool.max, "%d positions do not fit", longest);
	free -= l->w.kind[STATE] || l->w.kind[CARRY] ? kept_count(l) : 0;
	must(l, caches_snaps_free(&l->w.set, KEPT_MAX) == (free < KEPT_MAX ? free : KEPT_MAX),
	     "room for %d snapshots, not %d", caches_snaps_free(&l->w.set, KEPT_MAX), free);
	must(l, caches_drafts_max(&l->w.set) == (l->w.kind[STATE] ? l->w.state.tape_rows : INT_MAX), "%d drafts",
	     caches_drafts_max(&l->w.set));
	must(l, caches_go_back(&l->w.set) == (!l->w.kind[STATE] && !l->w.kind[POOLED] && !l->w.kind[WINDOW]),
	     "whether slots can go back");
}
