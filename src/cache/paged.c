/* paged.c - keys and values of one group of layers, in pages that sequences and snapshots share.
 *
 * A page holds page_rows positions of all layers of the group.  Its accounts are
 * on the host: a reference count per page, a page table per slot, a list of page
 * numbers per snapshot.  A row once settled is never written again, so sharing
 * needs no more than a count; only the last, part-filled page of a sequence can
 * be written while something else holds it, and that one is copied first.
 *
 * Between steps a slot's table ends with the page that its position needs.  With a window it
 * begins with the first page that the next row can see: settle gives back those before it, so
 * a slot can go back only while the rows of that window are still there, and a snapshot
 * holds the pages of one window.  A position inside a step may need pages that settle gives
 * back; where it was foreseen a snapshot of it holds them from then on.
 *
 * Groups may draw on one pool of bytes.  Each then has address space for all of it, of which
 * only what is used becomes resident. */
#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "cache/kinds.h"

/* Written snapshots: a head of HEAD_WORDS numbers, FORMAT_BYTES of format name for
 * the keys and for the values of each layer, then the pages in order, each as in memory but with the rows that the
 * position needs and no others. */
enum { VERSION = 3, HEAD_WORDS = 9, FORMAT_BYTES = 16 };

/* Pages start on a cache line whatever a row's size. */
enum { PAGE_ALIGN = 64 };

struct table {
	int32_t *page; /* [page_max], those from first to n in use */
	int first, n;
	/* Between reserve and settle: rows promised, and the shared page that the
	 * last one replaces.  begin copies it, rewind puts it back.  -1: none. */
	int reserved;
	int32_t shared;
};

struct paged_snap {
	struct snap snap;
	struct paged_snap *prev, *next;
	int slot;       /* while it is foreseen: whose */
	int first, n;   /* holds the pages of a sequence from first to n */
	int shared;     /* read over another's: pages before this one are that one's */
	int32_t page[]; /* [n - first] */
};

struct paged {
	struct cache cache;
	struct paged_opts o;
	struct cache_pool own;                    /* where no other pool was given */
	struct kv_layer *layer;                   /* [layers] */
	size_t row_bytes, body_bytes, page_bytes; /* a position; page_rows of them; rounded up */
	int page_max;                             /* of one sequence */
	int pages, n_free;
	int fresh; /* pages at the bottom of free_page without memory */
	uint8_t *base;
	size_t pool_bytes;
	int32_t *ref;            /* [pages] tables and snapshots that hold the page */
	int32_t *free_page;      /* [pages] a stack: the page used last is the next to go out */
	struct table *table;     /* [slots] */
	int32_t *pages_of_slots; /* what the tables point into */
	int32_t *view_page;      /* [slots][page_max] */
	int32_t *view_first;     /* [slots] */
	struct kv_view view;
	struct paged_snap *snaps;
	int n_foreseen;  /* among them */
	uint8_t *bounce; /* one page, for write and read */
	uint8_t *seen;   /* [pages] for kept; zero between calls */
};

static struct paged *paged_of(const struct cache *c)
{
	return (struct paged *)c;
}

/* Rows of a page's first n positions. */
static int rows_of(const struct paged *p, int n)
{
	return p->o.group.every ? n / p->o.group.every : n;
}

static int pages_for(const struct paged *p, int pos)
{
	return pos / p->o.page_rows + (pos % p->o.page_rows != 0);
}

/* The first page with a row that the next one, at pos, can see. */
static int first_for(const struct paged *p, int pos)
{
	int window = p->o.group.window;

	return window && pos >= window ? (pos - window + 1) / p->o.page_rows : 0;
}

/* The nearest position at or before pos for which rows from page `first` on suffice, coming from `at`. */
static int nearest(const struct paged *p, int first, int at, int pos)
{
	if (pos >= at)
		return at;
	return first_for(p, pos) >= first ? pos : 0;
}

static uint8_t *page_at(const struct paged *p, int32_t page)
{
	return p->base + (size_t)page * p->page_bytes;
}

static bool has_room(const struct paged *p, int pages)
{
	const struct cache_pool *pool = p->cache.pool;

	return pages <= p->n_free && (size_t)pages * p->page_bytes <= pool->max - pool->used;
}

/* Gives back to the system the memory of the page that is free for longest, of any member of the pool.  false: there
 * is none. */
static bool page_discard(struct cache_pool *pool)
{
	for (int i = 0; i < pool->n_member; i++) {
		struct paged *p = paged_of(pool->member[i]);
		struct backend *be = p->cache.be;

		if (p->fresh == p->n_free || !be->ops->discard)
			continue;
		be->ops->discard(be, page_at(p, p->free_page[p->fresh++]), p->page_bytes);
		pool->resident -= p->page_bytes;
		return true;
	}
	return false;
}

static int32_t page_take(struct paged *p)
{
	struct cache_pool *pool = p->cache.pool;
	int32_t page;

	assert(has_room(p, 1));
	page = p->free_page[--p->n_free];
	if (p->fresh > p->n_free) {
		p->fresh--;
		pool->resident += p->page_bytes;
		while (pool->resident > pool->max && page_discard(pool))
			;
	}
	assert(p->ref[page] == 0);
	p->ref[page] = 1;
	p->cache.pool->used += p->page_bytes;
	return page;
}

static void page_drop(struct paged *p, int32_t page)
{
	assert(p->ref[page] > 0);
	if (--p->ref[page])
		return;
	p->free_page[p->n_free++] = page;
	p->cache.pool->used -= p->page_bytes;
}

static struct table *table_of(const struct paged *p, int slot)
{
	assert(slot >= 0 && slot < p->o.slots);
	return &p->table[slot];
}

/* Gives back the pages from n on, and, when none is left, begins anew. */
static void table_cut(struct paged *p, struct table *t, int n)
{
	assert(n <= t->n);
	while (t->n > n && t->n > t->first)
		page_drop(p, t->page[--t->n]);
	if (!n)
		t->first = t->n = 0;
}

/* Gives back the pages before n. */
static void table_age(struct paged *p, struct table *t, int n)
{
	while (t->first < n)
		page_drop(p, t->page[t->first++]);
}

/* ---- a snapshot's memory ---- */

static struct paged_snap *snap_new(struct paged *p, int pos)
{
	int first = first_for(p, pos), n = pages_for(p, pos);
	struct paged_snap *s = xmalloc(sizeof *s + (size_t)(n - first) * sizeof *s->page);

	s->snap = (struct snap){ .cache = &p->cache, .pos = pos, .bytes = (size_t)(n - first) * p->page_bytes };
	s->slot = -1;
	s->first = s->shared = first;
	s->n = n;
	s->prev = NULL;
	s->next = p->snaps;
	if (s->next)
		s->next->prev = s;
	p->snaps = s;
	return s;
}

static void paged_drop(struct snap *snap)
{
	struct paged_snap *s = (struct paged_snap *)snap;
	struct paged *p = paged_of(snap->cache);

	*(s->prev ? &s->prev->next : &p->snaps) = s->next;
	if (s->next)
		s->next->prev = s->prev;
	for (int i = s->n; i-- > s->first;)
		page_drop(p, s->page[i - s->first]);
	free(s);
}

/* For a slot that has the rows before pos. */
static struct paged_snap *snap_of_slot(struct paged *p, const struct table *t, int pos)
{
	struct paged_snap *s = snap_new(p, pos);

	assert(t->first <= s->first && t->n >= s->n);
	for (int i = s->first; i < s->n; i++) {
		s->page[i - s->first] = t->page[i];
		p->ref[t->page[i]]++;
	}
	return s;
}

/* Drops foreseen snapshots past pos of the slot (-1: of all) that were not captured. */
static void forget(struct paged *p, int slot, int pos)
{
	for (struct paged_snap *s = p->n_foreseen ? p->snaps : NULL, *next; s; s = next) {
		next = s->next;
		if (s->slot < 0 || (slot >= 0 && s->slot != slot) || s->snap.pos <= pos)
			continue;
		paged_drop(&s->snap);
		p->n_foreseen--;
	}
}

/* ---- the step ---- */

static int paged_reserve(struct cache *c, const struct span *sp)
{
	struct paged *p = paged_of(c);
	struct table *t = table_of(p, sp->slot);
	int want, copy;

	assert(sp->n <= p->o.ctx_max - sp->pos && (!p->o.group.window || sp->n <= p->o.step_rows));
	assert(!t->reserved && t->n == pages_for(p, sp->pos));
	want = pages_for(p, sp->pos + sp->n);
	copy = sp->pos % p->o.page_rows && p->ref[t->page[t->n - 1]] > 1;
	if (!has_room(p, want - t->n + copy))
		return E_FULL;
	if (copy) {
		t->shared = t->page[t->n - 1];
		t->page[t->n - 1] = page_take(p);
	}
	while (t->n < want)
		t->page[t->n++] = page_take(p);
	t->reserved = sp->n;
	return 0;
}

static void view_item(struct paged *p, int item, const struct table *t)
{
	int32_t *page = p->view_page + (size_t)item * (size_t)p->page_max;

	for (int i = 0; i < t->first; i++)
		page[i] = -1;
	memcpy(page + t->first, t->page + t->first, (size_t)(t->n - t->first) * sizeof *page);
	p->view_first[item] = t->first;
}

static void paged_begin(struct cache *c, const struct span *sp, int n_span)
{
	struct paged *p = paged_of(c);

	assert(n_span <= p->o.slots);
	for (int i = 0; i < n_span; i++) {
		struct table *t = table_of(p, sp[i].slot);

		assert(t->reserved == sp[i].n);
		if (t->shared >= 0) {
			int32_t page = t->page[sp[i].pos / p->o.page_rows];

			c->be->ops->copy(c->be, page_at(p, page), page_at(p, t->shared), p->body_bytes);
			page_drop(p, t->shared);
			t->shared = -1;
		}
		view_item(p, i, t);
	}
}

static void paged_settle(struct cache *c, const struct span *sp, int keep)
{
	struct paged *p = paged_of(c);
	struct table *t = table_of(p, sp->slot);

	assert(t->reserved == sp->n && t->shared < 0);
	t->reserved = 0;
	table_cut(p, t, pages_for(p, sp->pos + keep));
	table_age(p, t, first_for(p, sp->pos + keep));
}

/* ---- between steps ---- */

static int paged_reach(const struct cache *c, int slot, int at, int pos)
{
	const struct paged *p = paged_of(c);

	return nearest(p, table_of(p, slot)->first, at, pos);
}

static void paged_rewind(struct cache *c, int slot, int pos)
{
	struct paged *p = paged_of(c);
	struct table *t = table_of(p, slot);

	if (t->shared >= 0) {
		int32_t *last = &t->page[pos / p->o.page_rows];

		page_drop(p, *last);
		*last = t->shared;
		t->shared = -1;
	}
	t->reserved = 0;
	forget(p, slot, pos);
	table_cut(p, t, pages_for(p, pos));
}

static void paged_close(struct cache *c, int slot)
{
	struct paged *p = paged_of(c);
	struct table *t = table_of(p, slot);

	if (t->shared >= 0)
		page_drop(p, t->shared);
	t->shared = -1;
	t->reserved = 0;
	forget(p, slot, 0);
	table_cut(p, t, 0);
}

/* ---- snapshots ---- */

/* Rows once written stay, so without a window every position before the slot's can be
 * captured.  With one, settle gives pages back: the snapshot is made now, of pages that this step
 * will fill. */
static int paged_foresee(struct cache *c, const struct span *sp, int item, int pos)
{
	struct paged *p = paged_of(c);

	if (!p->o.group.window)
		return 0;
	snap_of_slot(p, table_of(p, sp[item].slot), pos)->slot = sp[item].slot;
	p->n_foreseen++;
	return 0;
}

static void paged_forget(struct cache *c)
{
	forget(paged_of(c), -1, 0);
}

static struct snap *paged_capture(struct cache *c, int slot, int pos)
{
	struct paged *p = paged_of(c);
	struct table *t = table_of(p, slot);

	for (struct paged_snap *s = p->n_foreseen ? p->snaps : NULL; s; s = s->next)
		if (s->slot == slot && s->snap.pos == pos) {
			s->slot = -1;
			p->n_foreseen--;
			return &s->snap;
		}
	assert(!t->reserved);
	return &snap_of_slot(p, t, pos)->snap;
}

static int paged_snap_reach(const struct snap *snap, int pos)
{
	return nearest(paged_of(snap->cache), ((const struct paged_snap *)snap)->first, snap->pos, pos);
}

static int paged_restore(struct cache *c, int slot, const struct snap *snap, int pos)
{
	const struct paged_snap *s = (const struct paged_snap *)snap;
	struct paged *p = paged_of(c);
	struct table *t = table_of(p, slot);

	assert(t->n == 0 && !t->reserved && pos <= snap->pos && first_for(p, pos) >= s->first);
	t->first = first_for(p, pos);
	t->n = pages_for(p, pos);
	for (int i = t->first; i < t->n; i++) {
		t->page[i] = s->page[i - s->first];
		p->ref[t->page[i]]++;
	}
	return 0;
}

/* Live pages are found by walking all tables: once or twice in a step, that costs
 * less than keeping a second count for every page. */

/* Sets the marks of the pages of a table or a snapshot; how many were not as such. */
static int mark(const struct paged *p, const int32_t *page, int n, bool set)
{
	int changed = 0;

	for (int i = 0; i < n; i++) {
		changed += p->seen[page[i]] != set;
		p->seen[page[i]] = set;
	}
	return changed;
}

static int mark_live(const struct paged *p, const struct snaps *const *held, int n, int at, bool set)
{
	int changed = 0;

	for (int i = 0; i < p->o.slots; i++) {
		const struct table *t = &p->table[i];

		changed += mark(p, &t->shared, t->shared >= 0, set);
		changed += mark(p, t->page + t->first, t->n - t->first, set);
	}
	/* Pages of foreseen snapshots still belong to their slot. */
	for (const struct paged_snap *s = p->n_foreseen ? p->snaps : NULL; s; s = s->next)
		changed += s->slot < 0 ? 0 : mark(p, s->page, s->n - s->first, set);
	for (int i = 0; i < n; i++) {
		const struct paged_snap *s = (const struct paged_snap *)held[i]->v[at];

		changed += mark(p, s->page, s->n - s->first, set);
	}
	return changed;
}

static size_t paged_live(const struct cache *c, const struct snaps *const *held, int n, int at, const struct snap *snap,
                         int pos)
{
	const struct paged_snap *s = (const struct paged_snap *)snap;
	const struct paged *p = paged_of(c);
	int live = mark_live(p, held, n, at, true);

	if (s) {
		live = 0;
		for (int i = first_for(p, pos); i < pages_for(p, pos); i++)
			live += p->seen[s->page[i - s->first]];
	}
	mark_live(p, held, n, at, false);
	return (size_t)live * p->page_bytes;
}

int paged_need_pages(int window, int step_rows, int page_rows, int pos)
{
	int n = (pos + page_rows - 1) / page_rows, most = n;

	if (window)
		most = (window + step_rows - 2 + page_rows - 1) / page_rows + 1;
	return most < n ? most : n;
}

static size_t paged_need(const struct cache *c, int pos)
{
	const struct paged *p = paged_of(c);

	return (size_t)paged_need_pages(p->o.group.window, p->o.step_rows, p->o.page_rows, pos) * p->page_bytes;
}

static size_t paged_kept(const struct cache *c)
{
	const struct paged *p = paged_of(c);

	return (size_t)(p->pages - p->n_free) * p->page_bytes - paged_live(c, NULL, 0, 0, NULL, 0);
}

/* Without a window, a holder of a page also holds all before it, so the pages held by this
 * snapshot alone are its last. */
static size_t paged_alone(const struct snap *snap)
{
	const struct paged_snap *s = (const struct paged_snap *)snap;
	const struct paged *p = paged_of(snap->cache);
	int n = 0;

	for (int i = s->n; i-- > s->first;) {
		if (p->ref[s->page[i - s->first]] == 1)
			n++;
		else if (!p->o.group.window)
			break;
	}
	return (size_t)n * p->page_bytes;
}

/* The head of a snapshot of this cache.  A reader needs every word equal
 * but the position. */
static void head_fill(const struct paged *p, int pos, uint32_t head[HEAD_WORDS])
{
	const struct kv_group *g = &p->o.group;
	const uint32_t words[HEAD_WORDS] = { VERSION,
		                             (uint32_t)pos,
		                             (uint32_t)g->layers,
		                             (uint32_t)g->heads,
		                             (uint32_t)g->dim_k,
		                             (uint32_t)g->dim_v,
		                             (uint32_t)g->window,
		                             (uint32_t)p->o.page_rows,
		                             (uint32_t)p->row_bytes };

	memcpy(head, words, sizeof words);
}

static void format_fill(const struct paged *p, int i, char format[FORMAT_BYTES])
{
	const char *name = p->layer[i / 2].fmt[i % 2]->name;

	memset(format, 0, FORMAT_BYTES);
	memcpy(format, name, strlen(name));
}

static int page_rows_at(const struct paged *p, int pos, int i)
{
	int rows = pos - i * p->o.page_rows;

	return rows < p->o.page_rows ? rows : p->o.page_rows;
}

/* Run i of consecutive bytes in a page with `rows` positions; NULL: it has no more.  A part-filled page
 * is copied through a buffer, its rows one after the other, layer by layer; the rows above them may
 * be another sequence's. */
static uint8_t *run_at(const struct paged *p, int i, int rows, size_t *bytes)
{
	const struct kv_group *g = &p->o.group;
	int sides = g->latent ? 1 : 2, h = i % g->heads, side = i / g->heads % sides, layer = i / g->heads / sides;
	const struct kv_layer *y = &p->layer[layer];

	if (layer == g->layers)
		return NULL;
	*bytes = (size_t)rows_of(p, rows) * y->row_bytes[side];
	return p->bounce + y->at[side] + (size_t)h * (size_t)rows_of(p, p->o.page_rows) * y->row_bytes[side];
}

static int rows_put(const struct paged *p, int rows, struct sink *to)
{
	const uint8_t *at;
	size_t n;
	int rc = 0;

	for (int i = 0; !rc && (at = run_at(p, i, rows, &n)); i++)
		rc = to->put(to, at, n);
	return rc;
}

static int rows_get(const struct paged *p, int rows, struct source *from, struct err *err)
{
	uint8_t *at;
	size_t n;
	int rc = 0;

	memset(p->bounce, 0, p->body_bytes);
	for (int i = 0; !rc && (at = run_at(p, i, rows, &n)); i++)
		rc = source_get(from, at, n, err);
	return rc;
}

/* From page `from` on. */
static int write_from(const struct snap *snap, int from, struct sink *to)
{
	const struct paged_snap *s = (const struct paged_snap *)snap;
	const struct paged *p = paged_of(snap->cache);
	struct backend *be = p->cache.be;
	uint32_t head[HEAD_WORDS];
	char format[FORMAT_BYTES];
	int rc;

	head_fill(p, snap->pos, head);
	rc = to->put(to, head, sizeof head);
	for (int i = 0; !rc && i < 2 * p->o.group.layers; i++) {
		format_fill(p, i, format);
		rc = to->put(to, format, sizeof format);
	}
	for (int i = from > s->first ? from : s->first; !rc && i < s->n; i++) {
		int rows = page_rows_at(p, snap->pos, i);

		rc = be->ops->read(be, p->bounce, page_at(p, s->page[i - s->first]), p->body_bytes);
		if (rc)
			break;
		if (rows == p->o.page_rows)
			rc = to->put(to, p->bounce, p->body_bytes);
		else
			rc = rows_put(p, rows, to);
	}
	return rc;
}

static int paged_write(const struct snap *snap, struct sink *to)
{
	return write_from(snap, 0, to);
}

static int paged_write_rest(const struct snap *snap, struct sink *to)
{
	return write_from(snap, snap->pos / paged_of(snap->cache)->o.page_rows, to);
}

static int32_t whole_page(const struct snap *snap, int i)
{
	const struct paged_snap *s = (const struct paged_snap *)snap;

	assert(i >= s->first && i < snap->pos / paged_of(snap->cache)->o.page_rows);
	return s->page[i - s->first];
}

static int paged_page_first(const struct cache *c, int pos)
{
	return first_for(paged_of(c), pos);
}

static int paged_page_wanted(const struct snap *snap)
{
	return ((const struct paged_snap *)snap)->shared;
}

static int paged_page_get(const struct snap *snap, int i, void *out)
{
	struct paged *p = paged_of(snap->cache);

	return p->cache.be->ops->read(p->cache.be, out, page_at(p, whole_page(snap, i)), p->body_bytes);
}

static void paged_page_set(struct snap *snap, int i, const void *from)
{
	struct paged *p = paged_of(snap->cache);
	int32_t page = whole_page(snap, i);

	assert(p->ref[page] == 1 && i >= ((struct paged_snap *)snap)->shared);
	p->cache.be->ops->write(p->cache.be, page_at(p, page), from, p->body_bytes);
}

static int head_check(const struct paged *p, const uint32_t *head, struct err *err)
{
	static const char *const name[HEAD_WORDS] = { "version",           NULL,         "layers", "heads",
		                                      "key size",          "value size", "window", "rows per page",
		                                      "bytes per position" };
	uint32_t want[HEAD_WORDS];

	head_fill(p, 0, want);
	for (int i = 0; i < HEAD_WORDS; i++)
		if (name[i] && head[i] != want[i])
			return err_set(err, i ? E_FORMAT : E_UNSUPPORTED, "kv snapshot: %s %u, this cache has %u",
			               name[i], (unsigned)head[i], (unsigned)want[i]);
	if (head[1] == 0 || head[1] > (uint32_t)p->o.ctx_max)
		return err_set(err, E_FORMAT, "kv snapshot: position %u, the context is %d", (unsigned)head[1],
		               p->o.ctx_max);
	return 0;
}

static int formats_check(const struct paged *p, struct source *from, struct err *err)
{
	for (int i = 0; i < 2 * p->o.group.layers; i++) {
		char format[FORMAT_BYTES], want[FORMAT_BYTES];
		int rc = source_get(from, format, sizeof format, err);

		if (rc)
			return rc;
		format_fill(p, i, want);
		if (memcmp(format, want, FORMAT_BYTES))
			return err_set(err, E_FORMAT,
			               "kv snapshot: attention layer %d: the row format of its %s is not %s", i / 2,
			               i % 2 ? "values" : "keys", want);
	}
	return 0;
}

/* A snapshot at pos of whose pages those before n_page are base's, if it has them, and the others new.  NULL: no
 * room. */
static struct paged_snap *snap_over(struct paged *p, int pos, const struct snap *base, int n_page)
{
	int first = first_for(p, pos), n = pages_for(p, pos), shared = first;
	struct paged_snap *s;

	if (base && n_page > first && ((const struct paged_snap *)base)->first <= first)
		shared = n_page;
	if (!has_room(p, n - shared))
		return NULL;
	s = snap_new(p, pos);
	s->shared = shared;
	for (int i = first; i < n; i++) {
		s->page[i - first] = i < shared ? whole_page(base, i) : page_take(p);
		p->ref[s->page[i - first]] += i < shared;
	}
	return s;
}

/* Pages before n_page are base's, where it has them; whole: the others are read, otherwise only the
 * part-filled one. */
static int read_from(struct cache *c, struct source *from, const struct snap *base, int n_page, bool whole,
                     struct snap **out, struct err *err)
{
	struct paged *p = paged_of(c);
	struct paged_snap *s;
	uint32_t head[HEAD_WORDS];
	int pos, rc;

	rc = source_get(from, head, sizeof head, err);
	if (!rc)
		rc = head_check(p, head, err);
	if (!rc)
		rc = formats_check(p, from, err);
	if (rc)
		return rc;
	pos = (int)head[1];
	if (n_page > pos / p->o.page_rows)
		return err_set(err, E_FORMAT, "kv snapshot: position %d, %d whole pages are known", pos, n_page);
	s = snap_over(p, pos, base, n_page);
	if (!s)
		return err_set(err, E_FULL, "kv snapshot: %d pages, of which %d may be known; %d are free",
		               pages_for(p, pos) - first_for(p, pos), n_page, p->n_free);
	for (int i = whole ? s->first : pos / p->o.page_rows; !rc && i < s->n; i++) {
		int rows = page_rows_at(p, pos, i);

		if (rows == p->o.page_rows)
			rc = source_get(from, p->bounce, p->body_bytes, err);
		else
			rc = rows_get(p, rows, from, err);
		if (!rc)
			c->be->ops->write(c->be, page_at(p, s->page[i - s->first]), p->bounce, p->body_bytes);
	}
	if (rc) {
		paged_drop(&s->snap);
		return rc;
	}
	*out = &s->snap;
	return 0;
}

static int paged_read(struct cache *c, struct source *from, struct snap **out, struct err *err)
{
	return read_from(c, from, NULL, 0, true, out, err);
}

static int paged_read_rest(struct cache *c, struct source *from, const struct snap *base, int n_page, struct snap **out,
                           struct err *err)
{
	return read_from(c, from, base, n_page, false, out, err);
}

/* ---- the books, and the whole ---- */

static void paged_facts(const struct cache *c, struct cache_facts *f)
{
	const struct paged *p = paged_of(c);

	f->drafts_max = INT_MAX;
	f->goes_back = !p->o.group.window;
	f->unit_bytes = p->page_bytes;
	f->page_rows = p->o.page_rows;
	f->page_bytes = p->body_bytes;
	f->rest_max = HEAD_WORDS * sizeof(uint32_t) + 2 * (size_t)p->o.group.layers * FORMAT_BYTES + p->body_bytes;
}

static void paged_describe(const struct cache *c, struct buf *out)
{
	const struct paged *p = paged_of(c);
	const struct kv_group *g = &p->o.group;

	buf_printf(out, "%d heads of %d and %d%s, %d rows a page", g->heads, g->dim_k, g->dim_v,
	           g->latent ? " within" : "", p->o.page_rows);
	if (g->window)
		buf_printf(out, ", a window of %d", g->window);
	if (g->every > 1)
		buf_printf(out, ", one for %d positions", g->every);
	for (int i = 0; i < g->layers; i++)
		buf_printf(out, "%s%s/%s", i ? " " : ", ", p->layer[i].fmt[KV_KEYS]->name,
		           p->layer[i].fmt[KV_VALUES]->name);
}

static void paged_check(const struct cache *c)
{
	const struct paged *p = paged_of(c);
	int32_t *ref = xcalloc((size_t)p->pages, sizeof *ref);
	int foreseen = 0;

	for (int i = 0; i < p->o.slots; i++) {
		const struct table *t = &p->table[i];

		assert(t->first <= t->n);
		for (int k = t->first; k < t->n; k++)
			ref[t->page[k]]++;
		if (t->shared >= 0)
			ref[t->shared]++;
	}
	for (const struct paged_snap *s = p->snaps; s; s = s->next) {
		assert(s->snap.cache == c && s->n == pages_for(p, s->snap.pos) &&
		       s->first == first_for(p, s->snap.pos));
		for (int k = 0; k < s->n - s->first; k++)
			ref[s->page[k]]++;
		foreseen += s->slot >= 0;
	}
	assert(foreseen == p->n_foreseen && p->fresh <= p->n_free);
	assert(p->cache.pool->resident <= p->cache.pool->max || !c->be->ops->discard);
	assert(!memcmp(ref, p->ref, (size_t)p->pages * sizeof *ref));
	for (int i = 0; i < p->n_free; i++) {
		assert(ref[p->free_page[i]] == 0);
		ref[p->free_page[i]] = 1; /* twice on the stack would fail the line above */
	}
	assert(p->cache.pool->used >= (size_t)(p->pages - p->n_free) * p->page_bytes);
	assert(p->cache.pool != &p->own || p->own.used == (size_t)(p->pages - p->n_free) * p->page_bytes);
	for (int i = 0; i < p->pages; i++)
		assert(ref[i] > 0); /* neither held nor free: lost */
	free(ref);
}

static void pool_leave(struct paged *p)
{
	struct cache_pool *pool = p->cache.pool;
	int i = 0;

	while (pool->member[i] != &p->cache)
		i++;
	pool->member[i] = pool->member[--pool->n_member];
	pool->resident -= (size_t)(p->n_free - p->fresh) * p->page_bytes;
}

static void paged_fini(struct cache *c)
{
	struct paged *p = paged_of(c);

	forget(p, -1, 0);
	assert(!p->snaps);
	for (int i = 0; i < p->o.slots; i++)
		paged_close(c, i);
	pool_leave(p);
	c->be->ops->free(c->be, p->base, p->pool_bytes);
	free(p->ref);
	free(p->free_page);
	free(p->table);
	free(p->pages_of_slots);
	free(p->view_page);
	free(p->view_first);
	free(p->bounce);
	free(p->seen);
	free(p->layer);
	free(p);
}

static const struct cache_ops paged_ops = {
	.name = "paged",
	.fini = paged_fini,
	.close = paged_close,
	.reserve = paged_reserve,
	.settle = paged_settle,
	.reach = paged_reach,
	.rewind = paged_rewind,
	.foresee = paged_foresee,
	.capture = paged_capture,
	.snap_reach = paged_snap_reach,
	.restore = paged_restore,
	.drop = paged_drop,
	.write = paged_write,
	.read = paged_read,
	.facts = paged_facts,
	.describe = paged_describe,
	.need = paged_need,
	.live = paged_live,
	.page_first = paged_page_first,
	.page_wanted = paged_page_wanted,
	.page_get = paged_page_get,
	.page_set = paged_page_set,
	.write_rest = paged_write_rest,
	.read_rest = paged_read_rest,
	.begin = paged_begin,
	.forget = paged_forget,
	.kept = paged_kept,
	.alone = paged_alone,
	.check = paged_check,
};

/* Bytes of a page from a shape that a file may have chosen. */
static int page_size(struct paged *p, struct err *err)
{
	const struct paged_opts *o = &p->o;
	const struct kv_group *g = &o->group;
	size_t n = 0;
	bool over = false;

	for (int i = 0; i < (o->rows.layer ? g->layers : 1); i++) {
		struct kv_pair pair = kv_rows_at(&o->rows, i);
		size_t bytes = kv_group_head_bytes(g, pair);

		if (!bytes)
			return err_set(err, E_UNSUPPORTED, "kv cache: rows of %s and %s are not for heads of %d",
			               pair.k->name, pair.v->name, g->dim_k);
		over |= __builtin_add_overflow(n, bytes, &n);
	}
	if (!o->rows.layer)
		over |= __builtin_mul_overflow((size_t)g->layers, n, &n);
	if (over || __builtin_mul_overflow((size_t)g->heads, n, &p->row_bytes) ||
	    __builtin_mul_overflow((size_t)rows_of(p, o->page_rows), p->row_bytes, &p->body_bytes) ||
	    p->row_bytes > UINT32_MAX || p->body_bytes > SIZE_MAX - PAGE_ALIGN)
		return err_set(err, E_LIMIT, "kv cache: %d layers of %d heads of %d do not fit memory", g->layers,
		               g->heads, g->dim_k);
	p->page_bytes = (p->body_bytes + PAGE_ALIGN - 1) / PAGE_ALIGN * PAGE_ALIGN;
	return 0;
}

/* As many pages as the budget has bytes for. */
static int pool_open(struct paged *p, struct err *err)
{
	size_t max = p->o.pool ? p->o.pool->max : p->o.bytes_max, pages = max / p->page_bytes;
	struct backend *be = p->cache.be;

	if (pages > INT_MAX)
		pages = INT_MAX;
	p->pages = (int)pages;
	p->pool_bytes = pages * p->page_bytes;
	p->own.max = p->pool_bytes;
	p->cache.pool = p->o.pool ? p->o.pool : &p->own;
	if (!pages)
		return err_set(err, E_LIMIT, "kv cache: a budget of %zu bytes, one page of %d positions has %zu", max,
		               p->o.page_rows, p->page_bytes);
	p->base = be->ops->alloc(be, p->pool_bytes);
	if (!p->base)
		return err_set(err, E_FULL, "kv cache: no %zu bytes for %d pages", p->pool_bytes, p->pages);
	p->ref = xcalloc(pages, sizeof *p->ref);
	p->seen = xcalloc(pages, sizeof *p->seen);
	p->free_page = xmalloc(size_mul(pages, sizeof *p->free_page));
	for (int i = p->pages; i-- > 0;)
		p->free_page[p->n_free++] = i; /* low pages go out first */
	p->fresh = p->n_free;
	assert(p->cache.pool->n_member < CACHES_MAX);
	p->cache.pool->member[p->cache.pool->n_member++] = &p->cache;
	return 0;
}

static void tables_open(struct paged *p)
{
	size_t slots = (size_t)p->o.slots, all;

	p->page_max = pages_for(p, p->o.ctx_max);
	all = size_mul(slots, (size_t)p->page_max);
	p->table = xcalloc(slots, sizeof *p->table);
	p->pages_of_slots = xmalloc(size_mul(all, sizeof *p->pages_of_slots));
	p->view_page = xmalloc(size_mul(all, sizeof *p->view_page));
	p->view_first = xcalloc(slots, sizeof *p->view_first);
	for (size_t i = 0; i < slots; i++)
		p->table[i] = (struct table){ .page = p->pages_of_slots + i * (size_t)p->page_max, .shared = -1 };
}

struct cache *paged_open(struct backend *be, const struct paged_opts *o, struct err *err)
{
	const struct kv_group *g = &o->group;
	struct paged *p;

	assert(g->layers > 0 && g->heads > 0 && g->dim_k > 0 && g->dim_v > 0 && g->window >= 0);
	assert(o->page_rows > 0 && o->slots > 0 && o->ctx_max > 0 && (!g->window || o->step_rows > 0));
	assert(g->every >= 0 && (!g->every || o->page_rows % g->every == 0));
	p = xcalloc(1, sizeof *p);
	p->cache = (struct cache){ .ops = &paged_ops, .be = be };
	p->o = *o;
	if (page_size(p, err) || pool_open(p, err)) {
		free(p);
		return NULL;
	}
	p->layer = xcalloc((size_t)g->layers, sizeof *p->layer);
	kv_group_lay(p->layer, g, &o->rows, o->page_rows);
	p->o.rows.layer = NULL;
	for (int i = 0; i < 2 * g->layers; i++)
		assert(strlen(p->layer[i / 2].fmt[i % 2]->name) < FORMAT_BYTES);
	tables_open(p);
	p->bounce = xmalloc(p->body_bytes);
	p->view = (struct kv_view){ .base = p->base,
		                    .page_bytes = p->page_bytes,
		                    .layer = p->layer,
		                    .layers = g->layers,
		                    .page_rows = o->page_rows,
		                    .heads = g->heads,
		                    .dim = g->dim_k,
		                    .dim_v = g->dim_v,
		                    .window = g->window,
		                    .every = g->every ? g->every : 1,
		                    .page = p->view_page,
		                    .first = p->view_first,
		                    .page_max = p->page_max };
	return &p->cache;
}

const struct kv_view *paged_view(const struct cache *c)
{
	assert(c->ops == &paged_ops);
	return &paged_of(c)->view;
}

void paged_stats(const struct cache *c, struct paged_stats *out)
{
	const struct paged *p = paged_of(c);

	assert(c->ops == &paged_ops);
	*out = (struct paged_stats){ .pages = p->pages,
		                     .pages_used = p->pages - p->n_free,
		                     .page_rows = p->o.page_rows,
		                     .page_bytes = p->page_bytes,
		                     .row_bytes = p->row_bytes };
}
