/* paged.c - keys and values in pages that sequences and snapshots share.
 *
 * A page holds page_rows positions of all attention layers.  Its books are on
 * the host: a reference count per page, a page table per slot, a list of page
 * numbers per snapshot.  A row once settled is never written again, so sharing
 * needs no more than a count; only the last, part-filled page of a sequence can
 * be written while somebody else holds it, and that one is copied first.
 *
 * Between steps a slot's table has exactly the pages that its position needs. */
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
enum { VERSION = 2, HEAD_WORDS = 7, FORMAT_BYTES = 16 };

/* Pages start on a cache line whatever a row's size. */
enum { PAGE_ALIGN = 64 };

struct table {
	int32_t *page; /* [page_max], n in use */
	int n;
	/* Between reserve and settle: rows promised, and the shared page that the
	 * last one replaces.  begin copies it, rewind puts it back.  -1: none. */
	int reserved;
	int32_t shared;
};

struct paged_snap {
	struct snap snap;
	struct paged_snap *prev, *next;
	int n;
	int32_t page[];
};

struct paged {
	struct cache cache;
	struct paged_opts o;
	struct cache_pool pool;
	struct kv_layer *layer;                   /* [layers] */
	size_t row_bytes, body_bytes, page_bytes; /* a position; page_rows of them; rounded up */
	int page_max;                             /* of one sequence */
	int pages, n_free;
	uint8_t *base;
	size_t pool_bytes;
	int32_t *ref;            /* [pages] tables and snapshots that hold the page */
	int32_t *free_page;      /* [pages] a stack: the page used last is the next to go out */
	struct table *table;     /* [slots] */
	int32_t *pages_of_slots; /* what the tables point into */
	int32_t *view_page;      /* [slots][page_max] */
	struct kv_view view;
	struct paged_snap *snaps;
	uint8_t *bounce; /* one page, for write and read */
	uint8_t *seen;   /* [pages] for kept; zero between calls */
};

static struct paged *paged_of(const struct cache *c)
{
	return (struct paged *)c;
}

static int pages_for(const struct paged *p, int pos)
{
	return pos / p->o.page_rows + (pos % p->o.page_rows != 0);
}

static uint8_t *page_at(const struct paged *p, int32_t page)
{
	return p->base + (size_t)page * p->page_bytes;
}

static int32_t page_take(struct paged *p)
{
	int32_t page;

	assert(p->n_free > 0);
	page = p->free_page[--p->n_free];
	assert(p->ref[page] == 0);
	p->ref[page] = 1;
	p->pool.used += p->page_bytes;
	return page;
}

static void page_drop(struct paged *p, int32_t page)
{
	assert(p->ref[page] > 0);
	if (--p->ref[page])
		return;
	p->free_page[p->n_free++] = page;
	p->pool.used -= p->page_bytes;
}

static struct table *table_of(const struct paged *p, int slot)
{
	assert(slot >= 0 && slot < p->o.slots);
	return &p->table[slot];
}

static void table_cut(struct paged *p, struct table *t, int n)
{
	assert(n <= t->n);
	while (t->n > n)
		page_drop(p, t->page[--t->n]);
}

/* ---- the step ---- */

static int paged_reserve(struct cache *c, const struct span *sp)
{
	struct paged *p = paged_of(c);
	struct table *t = table_of(p, sp->slot);
	int want, copy;

	assert(sp->n <= p->o.ctx_max - sp->pos);
	assert(!t->reserved && t->n == pages_for(p, sp->pos));
	want = pages_for(p, sp->pos + sp->n);
	copy = sp->pos % p->o.page_rows && p->ref[t->page[t->n - 1]] > 1;
	if (want - t->n + copy > p->n_free)
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
		memcpy(p->view_page + (size_t)i * (size_t)p->page_max, t->page, (size_t)t->n * sizeof *t->page);
	}
}

static void paged_settle(struct cache *c, const struct span *sp, int keep)
{
	struct paged *p = paged_of(c);
	struct table *t = table_of(p, sp->slot);

	assert(t->reserved == sp->n && t->shared < 0);
	t->reserved = 0;
	table_cut(p, t, pages_for(p, sp->pos + keep));
}

/* ---- between steps ---- */

static int paged_reach(const struct cache *c, int slot, int at, int pos)
{
	return pos < at ? pos : at;
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
	table_cut(p, t, 0);
}

/* ---- snapshots ---- */

static struct paged_snap *snap_new(struct paged *p, int pos)
{
	int n = pages_for(p, pos);
	struct paged_snap *s = xmalloc(sizeof *s + (size_t)n * sizeof *s->page);

	s->snap = (struct snap){ .cache = &p->cache, .pos = pos, .bytes = (size_t)n * p->page_bytes };
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
	for (int i = s->n; i-- > 0;)
		page_drop(p, s->page[i]);
	free(s);
}

/* Rows once written stay: whatever lies before where a slot stands can be captured. */
static int paged_foresee(struct cache *c, const struct span *sp, int item, int pos)
{
	return 0;
}

static struct snap *paged_capture(struct cache *c, int slot, int pos)
{
	struct paged *p = paged_of(c);
	struct table *t = table_of(p, slot);
	struct paged_snap *s;

	assert(!t->reserved && t->n >= pages_for(p, pos));
	s = snap_new(p, pos);
	for (int i = 0; i < s->n; i++) {
		s->page[i] = t->page[i];
		p->ref[s->page[i]]++;
	}
	return &s->snap;
}

static int paged_snap_reach(const struct snap *snap, int pos)
{
	return pos < snap->pos ? pos : snap->pos;
}

static int paged_restore(struct cache *c, int slot, const struct snap *snap, int pos)
{
	const struct paged_snap *s = (const struct paged_snap *)snap;
	struct paged *p = paged_of(c);
	struct table *t = table_of(p, slot);

	assert(t->n == 0 && !t->reserved && pos <= snap->pos);
	t->n = pages_for(p, pos);
	for (int i = 0; i < t->n; i++) {
		t->page[i] = s->page[i];
		p->ref[t->page[i]]++;
	}
	return 0;
}

/* What is alive is found by looking at all tables: asked once or twice in a step, that costs
 * less than a second count of every page would. */

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
		changed += mark(p, t->page, t->n, set);
	}
	for (int i = 0; i < n; i++) {
		const struct paged_snap *s = (const struct paged_snap *)held[i]->v[at];

		changed += mark(p, s->page, s->n, set);
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
		for (int i = 0; i < pages_for(p, pos); i++)
			live += p->seen[s->page[i]];
	}
	mark_live(p, held, n, at, false);
	return (size_t)live * p->page_bytes;
}

static size_t paged_need(const struct cache *c, int pos)
{
	return (size_t)pages_for(paged_of(c), pos) * paged_of(c)->page_bytes;
}

static size_t paged_kept(const struct cache *c)
{
	return paged_of(c)->pool.used - paged_live(c, NULL, 0, 0, NULL, 0);
}

/* Who shares a page shares all before it, so the pages held by this snapshot
 * alone are its last. */
static size_t paged_alone(const struct snap *snap)
{
	const struct paged_snap *s = (const struct paged_snap *)snap;
	const struct paged *p = paged_of(snap->cache);
	int n = 0;

	while (n < s->n && p->ref[s->page[s->n - 1 - n]] == 1)
		n++;
	return (size_t)n * p->page_bytes;
}

/* What a snapshot of this cache begins with.  A reader needs every word equal
 * but the position. */
static void head_fill(const struct paged *p, int pos, uint32_t head[HEAD_WORDS])
{
	const uint32_t words[HEAD_WORDS] = { VERSION,
		                             (uint32_t)pos,
		                             (uint32_t)p->o.layers,
		                             (uint32_t)p->o.heads,
		                             (uint32_t)p->o.dim,
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

/* A part-filled page lies in the bounce buffer; rows of it pass one after the
 * other, layer by layer.  Those above may be another sequence's. */
static int rows_put(const struct paged *p, int rows, struct sink *to)
{
	int rc = 0;

	for (int i = 0; !rc && i < 2 * p->o.layers; i++) {
		const struct kv_layer *y = &p->layer[i / 2];
		size_t row = y->row_bytes[i % 2];

		for (int h = 0; !rc && h < p->o.heads; h++)
			rc = to->put(to, p->bounce + y->at[i % 2] + (size_t)h * (size_t)p->o.page_rows * row,
			             (size_t)rows * row);
	}
	return rc;
}

static int rows_get(const struct paged *p, int rows, struct source *from, struct err *err)
{
	int rc = 0;

	memset(p->bounce, 0, p->body_bytes);
	for (int i = 0; !rc && i < 2 * p->o.layers; i++) {
		const struct kv_layer *y = &p->layer[i / 2];
		size_t row = y->row_bytes[i % 2];

		for (int h = 0; !rc && h < p->o.heads; h++)
			rc = source_get(from, p->bounce + y->at[i % 2] + (size_t)h * (size_t)p->o.page_rows * row,
			                (size_t)rows * row, err);
	}
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
	for (int i = 0; !rc && i < 2 * p->o.layers; i++) {
		format_fill(p, i, format);
		rc = to->put(to, format, sizeof format);
	}
	for (int i = from; !rc && i < s->n; i++) {
		int rows = page_rows_at(p, snap->pos, i);

		be->ops->read(be, p->bounce, page_at(p, s->page[i]), p->body_bytes);
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
	assert(i >= 0 && i < snap->pos / paged_of(snap->cache)->o.page_rows);
	return ((const struct paged_snap *)snap)->page[i];
}

static void paged_page_get(const struct snap *snap, int i, void *out)
{
	struct paged *p = paged_of(snap->cache);

	p->cache.be->ops->read(p->cache.be, out, page_at(p, whole_page(snap, i)), p->body_bytes);
}

static void paged_page_set(struct snap *snap, int i, const void *from)
{
	struct paged *p = paged_of(snap->cache);
	int32_t page = whole_page(snap, i);

	assert(p->ref[page] == 1);
	p->cache.be->ops->write(p->cache.be, page_at(p, page), from, p->body_bytes);
}

static int head_check(const struct paged *p, const uint32_t *head, struct err *err)
{
	static const char *const name[HEAD_WORDS] = {
		"version", NULL, "layers", "heads", "head size", "rows per page", "bytes per position"
	};
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
	for (int i = 0; i < 2 * p->o.layers; i++) {
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

/* The first n_page pages are base's; whole: the others are read, otherwise only the
 * part-filled one. */
static int read_from(struct cache *c, struct source *from, const struct snap *base, int n_page, bool whole,
                     struct snap **out, struct err *err)
{
	struct paged *p = paged_of(c);
	struct paged_snap *s;
	uint32_t head[HEAD_WORDS];
	int n, rc;

	rc = source_get(from, head, sizeof head, err);
	if (!rc)
		rc = head_check(p, head, err);
	if (!rc)
		rc = formats_check(p, from, err);
	if (rc)
		return rc;
	n = pages_for(p, (int)head[1]);
	if (n_page > (int)head[1] / p->o.page_rows)
		return err_set(err, E_FORMAT, "kv snapshot: position %u, %d whole pages are known", (unsigned)head[1],
		               n_page);
	if (n - n_page > p->n_free)
		return err_set(err, E_FULL, "kv snapshot: %d pages, %d are free", n - n_page, p->n_free);
	s = snap_new(p, (int)head[1]);
	for (int i = 0; i < n; i++) {
		s->page[i] = i < n_page ? whole_page(base, i) : page_take(p);
		p->ref[s->page[i]] += i < n_page;
	}
	for (int i = whole ? 0 : (int)head[1] / p->o.page_rows; !rc && i < n; i++) {
		int rows = page_rows_at(p, s->snap.pos, i);

		if (rows == p->o.page_rows)
			rc = source_get(from, p->bounce, p->body_bytes, err);
		else
			rc = rows_get(p, rows, from, err);
		if (!rc)
			c->be->ops->write(c->be, page_at(p, s->page[i]), p->bounce, p->body_bytes);
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
	f->goes_back = true;
	f->unit_bytes = p->page_bytes;
	f->page_rows = p->o.page_rows;
	f->page_bytes = p->body_bytes;
	f->rest_max = HEAD_WORDS * sizeof(uint32_t) + 2 * (size_t)p->o.layers * FORMAT_BYTES + p->body_bytes;
}

static void paged_describe(const struct cache *c, struct buf *out)
{
	const struct paged *p = paged_of(c);

	buf_printf(out, "%d heads of %d, %d rows a page", p->o.heads, p->o.dim, p->o.page_rows);
	for (int i = 0; i < p->o.layers; i++)
		buf_printf(out, "%s%s/%s", i ? " " : ", ", p->layer[i].fmt[KV_KEYS]->name,
		           p->layer[i].fmt[KV_VALUES]->name);
}

static void paged_check(const struct cache *c)
{
	const struct paged *p = paged_of(c);
	int32_t *ref = xcalloc((size_t)p->pages, sizeof *ref);

	for (int i = 0; i < p->o.slots; i++) {
		const struct table *t = &p->table[i];

		for (int k = 0; k < t->n; k++)
			ref[t->page[k]]++;
		if (t->shared >= 0)
			ref[t->shared]++;
	}
	for (const struct paged_snap *s = p->snaps; s; s = s->next) {
		assert(s->snap.cache == c && s->n == pages_for(p, s->snap.pos));
		for (int k = 0; k < s->n; k++)
			ref[s->page[k]]++;
	}
	assert(!memcmp(ref, p->ref, (size_t)p->pages * sizeof *ref));
	for (int i = 0; i < p->n_free; i++) {
		assert(ref[p->free_page[i]] == 0);
		ref[p->free_page[i]] = 1; /* twice on the stack would fail the line above */
	}
	assert(p->pool.used == (size_t)(p->pages - p->n_free) * p->page_bytes);
	for (int i = 0; i < p->pages; i++)
		assert(ref[i] > 0); /* neither held nor free: lost */
	free(ref);
}

static void paged_fini(struct cache *c)
{
	struct paged *p = paged_of(c);

	assert(!p->snaps);
	c->be->ops->free(c->be, p->base, p->pool_bytes);
	free(p->ref);
	free(p->free_page);
	free(p->table);
	free(p->pages_of_slots);
	free(p->view_page);
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
	.page_get = paged_page_get,
	.page_set = paged_page_set,
	.write_rest = paged_write_rest,
	.read_rest = paged_read_rest,
	.begin = paged_begin,
	.kept = paged_kept,
	.alone = paged_alone,
	.check = paged_check,
};

/* Bytes of a page from a shape that a file may have chosen. */
static int page_size(struct paged *p, struct err *err)
{
	const struct paged_opts *o = &p->o;
	size_t n = 0;
	bool over = false;

	for (int i = 0; i < (o->rows.layer ? o->layers : 1); i++) {
		struct kv_pair pair = kv_rows_at(&o->rows, i);
		size_t bytes = kv_pair_bytes(pair, o->dim);

		if (!bytes)
			return err_set(err, E_UNSUPPORTED, "kv cache: rows of %s and %s are not for heads of %d",
			               pair.k->name, pair.v->name, o->dim);
		over |= __builtin_add_overflow(n, bytes, &n);
	}
	if (!o->rows.layer)
		over |= __builtin_mul_overflow((size_t)o->layers, n, &n);
	if (over || __builtin_mul_overflow((size_t)o->heads, n, &p->row_bytes) ||
	    __builtin_mul_overflow((size_t)o->page_rows, p->row_bytes, &p->body_bytes) || p->row_bytes > UINT32_MAX ||
	    p->body_bytes > SIZE_MAX - PAGE_ALIGN)
		return err_set(err, E_LIMIT, "kv cache: %d layers of %d heads of %d do not fit memory", o->layers,
		               o->heads, o->dim);
	p->page_bytes = (p->body_bytes + PAGE_ALIGN - 1) / PAGE_ALIGN * PAGE_ALIGN;
	return 0;
}

struct cache *paged_open(struct backend *be, const struct paged_opts *o, struct err *err)
{
	struct paged *p;
	size_t pages;

	assert(o->layers > 0 && o->heads > 0 && o->dim > 0 && o->page_rows > 0 && o->slots > 0 && o->ctx_max > 0);
	p = xcalloc(1, sizeof *p);
	p->cache = (struct cache){ .ops = &paged_ops, .be = be, .pool = &p->pool };
	p->o = *o;
	if (page_size(p, err))
		goto fail;
	pages = o->bytes_max / p->page_bytes;
	if (pages > INT_MAX)
		pages = INT_MAX;
	p->pages = (int)pages;
	p->pool_bytes = pages * p->page_bytes;
	p->pool.max = p->pool_bytes;
	if (!pages) {
		err_set(err, E_LIMIT, "kv cache: a budget of %zu bytes, one page of %d positions has %zu", o->bytes_max,
		        o->page_rows, p->page_bytes);
		goto fail;
	}
	p->base = be->ops->alloc(be, p->pool_bytes);
	if (!p->base) {
		err_set(err, E_FULL, "kv cache: no %zu bytes for %d pages", p->pool_bytes, p->pages);
		goto fail;
	}
	p->layer = xcalloc((size_t)o->layers, sizeof *p->layer);
	kv_layers_lay(p->layer, o->layers, &o->rows, o->heads, o->dim, o->page_rows);
	p->o.rows.layer = NULL;
	for (int i = 0; i < 2 * o->layers; i++)
		assert(strlen(p->layer[i / 2].fmt[i % 2]->name) < FORMAT_BYTES);
	p->page_max = pages_for(p, o->ctx_max);
	p->ref = xcalloc(pages, sizeof *p->ref);
	p->free_page = xmalloc(size_mul(pages, sizeof *p->free_page));
	for (int i = p->pages; i-- > 0;)
		p->free_page[p->n_free++] = i; /* low pages go out first */
	p->table = xcalloc((size_t)o->slots, sizeof *p->table);
	p->pages_of_slots = xmalloc(size_mul((size_t)o->slots, (size_t)p->page_max * sizeof *p->pages_of_slots));
	p->view_page = xmalloc(size_mul((size_t)o->slots, (size_t)p->page_max * sizeof *p->view_page));
	for (int i = 0; i < o->slots; i++)
		p->table[i] = (struct table){ .page = p->pages_of_slots + (size_t)i * (size_t)p->page_max,
			                      .shared = -1 };
	p->bounce = xmalloc(p->body_bytes);
	p->seen = xcalloc(pages, sizeof *p->seen);
	p->view = (struct kv_view){ .base = p->base,
		                    .page_bytes = p->page_bytes,
		                    .layer = p->layer,
		                    .page_rows = o->page_rows,
		                    .heads = o->heads,
		                    .dim = o->dim,
		                    .page = p->view_page,
		                    .page_max = p->page_max };
	return &p->cache;
fail:
	free(p);
	return NULL;
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
