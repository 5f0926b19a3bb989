/* cache.c - the set: one verb over all the caches of a model.
 *
 * Names no kind of cache.  The contract of the interface is asserted here, once,
 * because these functions are the only callers of the tables. */
#include "cache/cache.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

#include "base/buf.h"

/* First bytes of a written set, read as little-endian numbers, and its layout's
 * version: {MAGIC, VERSION, caches, position}, then per cache its name, padded
 * with zeros to NAME_BYTES, and what the kind writes. */
enum { MAGIC = 0x50534657, VERSION = 1, NAME_BYTES = 16, HEAD_WORDS = 4 };

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "snapshots are written as memory has them");

void caches_add(struct caches *s, struct cache *c)
{
	const struct cache_ops *o = c->ops;

	assert(s->n < CACHES_MAX);
	assert(o->name && o->name[0] && strlen(o->name) < NAME_BYTES);
	assert(o->fini && o->close && o->reserve && o->settle && o->reach && o->rewind);
	assert(o->foresee && o->capture && o->snap_reach && o->restore && o->drop && o->write && o->read);
	assert(o->facts && o->describe);
	assert(!o->page_get == !o->page_set && !o->page_get == !o->page_first && !o->page_get == !o->page_wanted);
	assert(!o->page_get == !o->write_rest && !o->page_get == !o->read_rest);
	assert(!o->need == !o->live && !o->need == !c->pool);
	s->v[s->n++] = c;
}

void caches_fini(struct caches *s)
{
	while (s->n > 0) {
		struct cache *c = s->v[--s->n];

		s->v[s->n] = NULL;
		c->ops->fini(c);
	}
}

static void span_check(const struct span *sp)
{
	assert(sp->slot >= 0 && sp->pos >= 0 && sp->n > 0);
	assert(sp->n_draft >= 0 && sp->n_draft < sp->n);
}

/* A reservation is taken back by a rewind to the slot's own position, which
 * every kind can reach; so this needs no verb of its own. */
static void unreserve(struct caches *s, const struct span *sp, int n)
{
	while (n-- > 0) {
		struct cache *c = s->v[n];

		assert(c->ops->reach(c, sp->slot, sp->pos, sp->pos) == sp->pos);
		c->ops->rewind(c, sp->slot, sp->pos);
	}
}

int caches_reserve(struct caches *s, const struct span *sp)
{
	span_check(sp);
	for (int i = 0; i < s->n; i++) {
		int rc = s->v[i]->ops->reserve(s->v[i], sp);

		assert(!rc || rc == E_FULL);
		if (rc) {
			unreserve(s, sp, i);
			return rc;
		}
	}
	return 0;
}

void caches_unreserve(struct caches *s, const struct span *sp)
{
	span_check(sp);
	unreserve(s, sp, s->n);
}

void caches_forget(struct caches *s)
{
	for (int i = 0; i < s->n; i++)
		if (s->v[i]->ops->forget)
			s->v[i]->ops->forget(s->v[i]);
}

void caches_begin(struct caches *s, const struct span *sp, int n_span)
{
	assert(n_span > 0);
	caches_forget(s);
	for (int i = 0; i < s->n; i++)
		if (s->v[i]->ops->begin)
			s->v[i]->ops->begin(s->v[i], sp, n_span);
}

int caches_foresee(struct caches *s, const struct span *sp, int item, int pos)
{
	span_check(&sp[item]);
	assert(pos > sp[item].pos && pos < sp[item].pos + sp[item].n - sp[item].n_draft);
	/* A position that one cache has foreseen and another refused is forgotten with the rest. */
	for (int i = 0; i < s->n; i++) {
		int rc = s->v[i]->ops->foresee(s->v[i], sp, item, pos);

		assert(!rc || rc == E_FULL);
		if (rc)
			return rc;
	}
	return 0;
}

bool caches_prepare(struct caches *s)
{
	bool more = false;

	for (int i = 0; i < s->n && !more; i++)
		more = s->v[i]->ops->prepare && s->v[i]->ops->prepare(s->v[i]);
	return more;
}

bool caches_ready(const struct caches *s, int n)
{
	for (int i = 0; i < s->n; i++)
		if (s->v[i]->ops->ready && !s->v[i]->ops->ready(s->v[i], n))
			return false;
	return true;
}

double caches_copy_ns(const struct caches *s)
{
	double ns = 0;

	for (int i = 0; i < s->n; i++)
		ns += s->v[i]->ops->copy_ns ? s->v[i]->ops->copy_ns(s->v[i]) : 0;
	return ns;
}

void caches_settle(struct caches *s, const struct span *sp, int keep)
{
	span_check(sp);
	assert(keep >= sp->n - sp->n_draft && keep <= sp->n);
	for (int i = 0; i < s->n; i++)
		s->v[i]->ops->settle(s->v[i], sp, keep);
}

int caches_rewind(struct caches *s, int slot, int at, int pos)
{
	assert(pos >= 0 && pos <= at);
	/* Each cache lowers the answer to what it can do until all agree.
	 * Position 0 is always possible, so this ends. */
	for (int i = 0; i < s->n;) {
		int p = s->v[i]->ops->reach(s->v[i], slot, at, pos);

		assert(p >= 0 && p <= pos);
		if (p < pos) {
			pos = p;
			i = 0;
		} else {
			i++;
		}
	}
	if (pos < at)
		for (int i = 0; i < s->n; i++)
			s->v[i]->ops->rewind(s->v[i], slot, pos);
	return pos;
}

void caches_close(struct caches *s, int slot)
{
	for (int i = 0; i < s->n; i++)
		s->v[i]->ops->close(s->v[i], slot);
}

size_t caches_shed(struct caches *s, size_t want)
{
	size_t freed = 0;

	for (int i = 0; i < s->n && freed < want; i++)
		if (s->v[i]->ops->shed)
			freed += s->v[i]->ops->shed(s->v[i], want - freed);
	return freed;
}

void caches_check(const struct caches *s)
{
	for (int i = 0; i < s->n; i++)
		if (s->v[i]->ops->check)
			s->v[i]->ops->check(s->v[i]);
}

int caches_capture(struct caches *s, int slot, int pos, struct snaps *out)
{
	assert(pos > 0);
	*out = (struct snaps){ .n = s->n, .pos = pos };
	for (int i = 0; i < s->n; i++) {
		struct snap *snap = s->v[i]->ops->capture(s->v[i], slot, pos);

		if (!snap) {
			snaps_drop(out);
			return E_FULL;
		}
		assert(snap->cache == s->v[i] && snap->pos == pos);
		out->v[i] = snap;
		out->bytes += snap->bytes;
		s->v[i]->snap_bytes += snap->bytes;
	}
	return 0;
}

int snaps_reach(const struct snaps *snaps, int pos)
{
	assert(pos >= 0 && snaps->n > 0 && snaps->v[0]);
	for (int i = 0; i < snaps->n;) {
		int p = snaps->v[i]->cache->ops->snap_reach(snaps->v[i], pos);

		assert(p >= 0 && p <= pos && p <= snaps->pos);
		if (p < pos) {
			pos = p;
			i = 0;
		} else {
			i++;
		}
	}
	return pos;
}

int caches_restore(struct caches *s, int slot, const struct snaps *snaps, int pos)
{
	assert(snaps->n == s->n && pos == snaps_reach(snaps, pos));
	if (!pos)
		return 0;
	for (int i = 0; i < s->n; i++) {
		int rc;

		assert(snaps->v[i]->cache == s->v[i]);
		rc = s->v[i]->ops->restore(s->v[i], slot, snaps->v[i], pos);
		assert(!rc || rc == E_FULL);
		if (rc) {
			while (i-- > 0)
				s->v[i]->ops->close(s->v[i], slot);
			return rc;
		}
	}
	return 0;
}

void snaps_drop(struct snaps *snaps)
{
	for (int i = 0; i < snaps->n; i++) {
		if (!snaps->v[i])
			continue;
		snaps->v[i]->cache->snap_bytes -= snaps->v[i]->bytes;
		snaps->v[i]->cache->ops->drop(snaps->v[i]);
	}
	*snaps = (struct snaps){ .n = 0 };
}

size_t caches_kept(const struct caches *s)
{
	size_t n = 0;

	for (int i = 0; i < s->n; i++)
		n += s->v[i]->ops->kept ? s->v[i]->ops->kept(s->v[i]) : s->v[i]->snap_bytes;
	return n;
}

size_t snaps_alone(const struct snaps *snaps)
{
	size_t n = snaps_room(snaps);

	for (int i = 0; i < snaps->n; i++)
		if (!snaps->v[i]->cache->ops->alone)
			n += snaps->v[i]->bytes;
	return n;
}

size_t snaps_room(const struct snaps *snaps)
{
	size_t n = 0;

	for (int i = 0; i < snaps->n; i++)
		if (snaps->v[i]->cache->ops->alone)
			n += snaps->v[i]->cache->ops->alone(snaps->v[i]);
	return n;
}

static int write_set(const struct snaps *snaps, bool rest, struct sink *to)
{
	uint32_t head[HEAD_WORDS] = { MAGIC, VERSION, (uint32_t)snaps->n, (uint32_t)snaps->pos };
	int rc = to->put(to, head, sizeof head);

	for (int i = 0; !rc && i < snaps->n; i++) {
		const struct cache_ops *o = snaps->v[i]->cache->ops;
		char name[NAME_BYTES] = { 0 };

		memcpy(name, o->name, strlen(o->name));
		rc = to->put(to, name, sizeof name);
		if (!rc)
			rc = rest && o->write_rest ? o->write_rest(snaps->v[i], to) : o->write(snaps->v[i], to);
	}
	return rc;
}

int snaps_write(const struct snaps *snaps, struct sink *to)
{
	return write_set(snaps, false, to);
}

int snaps_write_rest(const struct snaps *snaps, struct sink *to)
{
	return write_set(snaps, true, to);
}

int source_get(struct source *from, void *p, size_t n, struct err *err)
{
	int rc = from->get(from, p, n);

	if (rc)
		err_set(err, rc, "snapshot: cannot read the next %zu bytes", n);
	return rc;
}

/* rest: only that, after the first n_page pages of base. */
static int read_all(struct caches *s, struct source *from, bool rest, const struct snaps *base, int n_page,
                    struct snaps *out, struct err *err)
{
	uint32_t head[HEAD_WORDS];
	int rc = source_get(from, head, sizeof head, err);

	if (rc)
		return rc;
	if (head[0] != MAGIC)
		return err_set(err, E_FORMAT, "snapshot: begins with %08x, not %08x", (unsigned)head[0],
		               (unsigned)MAGIC);
	if (head[1] != VERSION)
		return err_set(err, E_UNSUPPORTED, "snapshot: version %u, this program reads %u", (unsigned)head[1],
		               (unsigned)VERSION);
	if (head[2] != (uint32_t)s->n)
		return err_set(err, E_FORMAT, "snapshot: %u caches, the model has %d", (unsigned)head[2], s->n);
	if (head[3] == 0 || head[3] > INT32_MAX)
		return err_set(err, E_FORMAT, "snapshot: position %u", (unsigned)head[3]);
	out->pos = (int)head[3];
	for (int i = 0; i < s->n; i++) {
		const struct cache_ops *o = s->v[i]->ops;
		char name[NAME_BYTES];

		rc = source_get(from, name, sizeof name, err);
		if (rc)
			return rc;
		if (name[NAME_BYTES - 1] || strcmp(name, o->name))
			return err_set(err, E_FORMAT, "snapshot: cache %d is not of kind %s", i, o->name);
		if (rest && o->read_rest)
			rc = o->read_rest(s->v[i], from, base ? base->v[i] : NULL, n_page, &out->v[i], err);
		else
			rc = o->read(s->v[i], from, &out->v[i], err);
		if (rc)
			return rc;
		out->bytes += out->v[i]->bytes;
		s->v[i]->snap_bytes += out->v[i]->bytes;
		if (out->v[i]->pos != out->pos)
			return err_set(err, E_FORMAT, "snapshot: %s is at %d, the set at %d", o->name, out->v[i]->pos,
			               out->pos);
	}
	return 0;
}

int caches_read(struct caches *s, struct source *from, struct snaps *out, struct err *err)
{
	int rc;

	*out = (struct snaps){ .n = s->n };
	rc = read_all(s, from, false, NULL, 0, out, err);
	if (rc)
		snaps_drop(out);
	return rc;
}

int caches_read_rest(struct caches *s, struct source *from, const struct snaps *base, int n_page, struct snaps *out,
                     struct err *err)
{
	int rc;

	assert(n_page >= 0 && (base || !n_page));
	*out = (struct snaps){ .n = s->n };
	rc = read_all(s, from, true, base, n_page, out, err);
	if (rc)
		snaps_drop(out);
	return rc;
}

/* ---- numbers ---- */

static struct cache_facts facts_of(const struct cache *c)
{
	struct cache_facts f = { 0 };

	c->ops->facts(c, &f);
	return f;
}

/* Is the pool of cache i not that of one before it? */
static bool own_pool(const struct caches *s, int i)
{
	for (int k = 0; k < i; k++)
		if (s->v[k]->pool == s->v[i]->pool)
			return false;
	return s->v[i]->pool;
}

/* Bytes that the pools may have together; never changes, unlike what is used of them. */
static size_t pools_max(const struct caches *s)
{
	size_t n = 0;

	for (int i = 0; i < s->n; i++)
		n += own_pool(s, i) ? s->v[i]->pool->max : 0;
	return n;
}

struct cache_pool caches_pool(const struct caches *s)
{
	struct cache_pool all = { .max = pools_max(s) };

	for (int i = 0; i < s->n; i++)
		all.used += own_pool(s, i) ? s->v[i]->pool->used : 0;
	return all;
}

size_t caches_unit_bytes(const struct caches *s)
{
	size_t n = 0;

	for (int i = 0; i < s->n; i++)
		n += s->v[i]->pool ? facts_of(s->v[i]).unit_bytes : 0;
	return n;
}

size_t caches_need(const struct caches *s, int pos)
{
	size_t n = 0;

	for (int i = 0; i < s->n; i++)
		n += s->v[i]->ops->need ? s->v[i]->ops->need(s->v[i], pos) : 0;
	return n;
}

int caches_longest(const struct caches *s, int ctx_max)
{
	size_t max = pools_max(s);
	int least = 0, most = ctx_max;

	while (least < most) {
		int pos = most - (most - least) / 2;

		if (caches_need(s, pos) <= max)
			least = pos;
		else
			most = pos - 1;
	}
	return least;
}

size_t caches_live(const struct caches *s, const struct snaps *const *held, int n, const struct snaps *snaps, int pos)
{
	size_t live = 0;

	for (int i = 0; i < s->n; i++)
		if (s->v[i]->ops->live)
			live += s->v[i]->ops->live(s->v[i], held, n, i, snaps ? snaps->v[i] : NULL, pos);
	return live;
}

int caches_snaps_free(const struct caches *s, int most)
{
	for (int i = 0; i < s->n; i++) {
		size_t n = s->v[i]->ops->snaps_free ? s->v[i]->ops->snaps_free(s->v[i]) : SIZE_MAX;

		if (n < (size_t)most)
			most = (int)n;
	}
	return most;
}

int caches_drafts_max(const struct caches *s)
{
	int most = INT_MAX;

	for (int i = 0; i < s->n; i++) {
		struct cache_facts f = facts_of(s->v[i]);

		most = f.drafts_max < most ? f.drafts_max : most;
	}
	return most;
}

bool caches_go_back(const struct caches *s)
{
	bool all = true;

	for (int i = 0; i < s->n; i++)
		all &= facts_of(s->v[i]).goes_back;
	return all;
}

size_t caches_rest_max(const struct caches *s)
{
	size_t n = HEAD_WORDS * sizeof(uint32_t) + (size_t)s->n * NAME_BYTES;

	for (int i = 0; i < s->n; i++)
		n += facts_of(s->v[i]).rest_max;
	return n;
}

void caches_describe(const struct caches *s, struct buf *out)
{
	for (int i = 0; i < s->n; i++) {
		buf_printf(out, "%s%s: ", i ? "; " : "", s->v[i]->ops->name);
		s->v[i]->ops->describe(s->v[i], out);
	}
}

/* ---- pieces ---- */

int caches_page_rows(const struct caches *s)
{
	int rows = 0;

	for (int i = 0; i < s->n; i++) {
		struct cache_facts f = facts_of(s->v[i]);

		assert(!f.page_rows || !rows || f.page_rows == rows);
		rows = f.page_rows ? f.page_rows : rows;
	}
	return rows;
}

int caches_parts(const struct caches *s)
{
	int n = 0;

	for (int i = 0; i < s->n; i++)
		n += s->v[i]->ops->page_get != NULL;
	return n;
}

/* The cache that is a part. */
static int cache_of(const struct caches *s, int part)
{
	int i = 0;

	for (; i < s->n; i++)
		if (s->v[i]->ops->page_get && part-- == 0)
			break;
	assert(i < s->n);
	return i;
}

static struct snap *snap_of(const struct snaps *snaps, int part)
{
	int i = 0;

	for (; i < snaps->n; i++)
		if (snaps->v[i]->cache->ops->page_get && part-- == 0)
			break;
	assert(i < snaps->n);
	return snaps->v[i];
}

size_t caches_page_bytes(const struct caches *s, int part)
{
	return facts_of(s->v[cache_of(s, part)]).page_bytes;
}

int caches_page_first(const struct caches *s, int part, int pos)
{
	const struct cache *c = s->v[cache_of(s, part)];

	return c->ops->page_first(c, pos);
}

int snaps_page_wanted(const struct snaps *snaps, int part)
{
	const struct snap *snap = snap_of(snaps, part);

	return snap->cache->ops->page_wanted(snap);
}

int snaps_page_get(const struct snaps *snaps, int part, int page, void *out)
{
	const struct snap *snap = snap_of(snaps, part);

	return snap->cache->ops->page_get(snap, page, out);
}

void snaps_page_set(struct snaps *snaps, int part, int page, const void *p)
{
	struct snap *snap = snap_of(snaps, part);

	snap->cache->ops->page_set(snap, page, p);
}
