/* carry.c - a row of bytes per sequence that its owner puts there between two steps.
 *
 * A draft head's next step needs the model's hidden row of the last token, which no
 * step of the head computes.  The owner writes the row (carry_row) before it has the
 * sequence captured; a snapshot is a copy, of use at its own position only.  A slot may
 * go anywhere: what its row means is the owner's affair. */
#include <assert.h>
#include <limits.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "cache/kinds.h"

/* A written snapshot is a head of HEAD_WORDS numbers and the row. */
enum { VERSION = 1, HEAD_WORDS = 3 };

struct carry_snap {
	struct snap snap;
	void *row; /* the backend's */
};

struct carry {
	struct cache cache;
	struct carry_opts o;
	char *rows;        /* [slots] the backend's */
	size_t snap_bytes; /* of live snapshots */
};

static struct carry *carry_of(const struct cache *c)
{
	return (struct carry *)c;
}

void *carry_row(const struct cache *c, int slot)
{
	const struct carry *y = carry_of(c);

	assert(slot >= 0 && slot < y->o.slots);
	return y->rows + (size_t)slot * y->o.bytes;
}

/* ---- the step: the rows are not of it ---- */

static int carry_reserve(struct cache *c, const struct span *sp)
{
	return 0;
}

static void carry_settle(struct cache *c, const struct span *sp, int keep) {}

static int carry_reach(const struct cache *c, int slot, int at, int pos)
{
	return pos < at ? pos : at;
}

static void carry_rewind(struct cache *c, int slot, int pos) {}

static void carry_close(struct cache *c, int slot) {}

/* The owner puts no row inside a step. */
static int carry_foresee(struct cache *c, const struct span *sp, int item, int pos)
{
	return E_FULL;
}

/* ---- snapshots ---- */

static struct carry_snap *snap_new(struct carry *y, int pos)
{
	struct carry_snap *s;
	void *row;

	if (y->o.bytes > y->o.snap_bytes_max - y->snap_bytes)
		return NULL;
	row = y->cache.be->ops->alloc(y->cache.be, y->o.bytes);
	if (!row)
		return NULL;
	s = xmalloc(sizeof *s);
	*s = (struct carry_snap){ { &y->cache, pos, y->o.bytes }, row };
	y->snap_bytes += y->o.bytes;
	return s;
}

static void carry_drop(struct snap *snap)
{
	struct carry *y = carry_of(snap->cache);

	y->snap_bytes -= snap->bytes;
	y->cache.be->ops->free(y->cache.be, ((struct carry_snap *)snap)->row, snap->bytes);
	free(snap);
}

static struct snap *carry_capture(struct cache *c, int slot, int pos)
{
	struct carry_snap *s = snap_new(carry_of(c), pos);

	if (!s)
		return NULL;
	c->be->ops->copy(c->be, s->row, carry_row(c, slot), s->snap.bytes);
	return &s->snap;
}

static int carry_snap_reach(const struct snap *snap, int pos)
{
	return pos < snap->pos ? 0 : snap->pos;
}

static int carry_restore(struct cache *c, int slot, const struct snap *snap, int pos)
{
	assert(pos == snap->pos);
	c->be->ops->copy(c->be, carry_row(c, slot), ((const struct carry_snap *)snap)->row, snap->bytes);
	return 0;
}

static int carry_write(const struct snap *snap, struct sink *to)
{
	const uint32_t head[HEAD_WORDS] = { VERSION, (uint32_t)snap->pos, (uint32_t)snap->bytes };
	struct backend *be = snap->cache->be;
	void *row = xmalloc(snap->bytes);
	int rc = to->put(to, head, sizeof head);

	if (!rc)
		rc = be->ops->read(be, row, ((const struct carry_snap *)snap)->row, snap->bytes);
	if (!rc)
		rc = to->put(to, row, snap->bytes);
	free(row);
	return rc;
}

static int head_check(const struct carry *y, const uint32_t *head, struct err *err)
{
	if (head[0] != VERSION)
		return err_set(err, E_UNSUPPORTED, "carry snapshot: version %u, this cache has %d", (unsigned)head[0],
		               VERSION);
	if (head[2] != (uint32_t)y->o.bytes)
		return err_set(err, E_FORMAT, "carry snapshot: a row of %u bytes, this cache has %zu",
		               (unsigned)head[2], y->o.bytes);
	if (head[1] == 0 || head[1] > INT_MAX)
		return err_set(err, E_FORMAT, "carry snapshot: position %u", (unsigned)head[1]);
	return 0;
}

static int carry_read(struct cache *c, struct source *from, struct snap **out, struct err *err)
{
	struct carry *y = carry_of(c);
	struct carry_snap *s;
	uint32_t head[HEAD_WORDS];
	void *row;
	int rc = source_get(from, head, sizeof head, err);

	if (!rc)
		rc = head_check(y, head, err);
	if (rc)
		return rc;
	s = snap_new(y, (int)head[1]);
	if (!s)
		return err_set(err, E_FULL, "carry snapshot: %zu bytes, %zu of %zu are used", y->o.bytes, y->snap_bytes,
		               y->o.snap_bytes_max);
	row = xmalloc(y->o.bytes);
	rc = source_get(from, row, y->o.bytes, err);
	if (!rc) {
		c->be->ops->write(c->be, s->row, row, y->o.bytes);
		*out = &s->snap;
	} else {
		carry_drop(&s->snap);
	}
	free(row);
	return rc;
}

/* ---- numbers, and the whole ---- */

static size_t carry_snaps_free(const struct cache *c)
{
	return (carry_of(c)->o.snap_bytes_max - carry_of(c)->snap_bytes) / carry_of(c)->o.bytes;
}

static void carry_facts(const struct cache *c, struct cache_facts *f)
{
	f->drafts_max = INT_MAX;
	f->goes_back = true;
	f->rest_max = HEAD_WORDS * sizeof(uint32_t) + carry_of(c)->o.bytes;
}

static void carry_describe(const struct cache *c, struct buf *out)
{
	buf_printf(out, "%zu bytes", carry_of(c)->o.bytes);
}

static void carry_fini(struct cache *c)
{
	struct carry *y = carry_of(c);

	assert(!y->snap_bytes);
	c->be->ops->free(c->be, y->rows, (size_t)y->o.slots * y->o.bytes);
	free(y);
}

static const struct cache_ops carry_ops = {
	.name = "carry",
	.fini = carry_fini,
	.close = carry_close,
	.reserve = carry_reserve,
	.settle = carry_settle,
	.reach = carry_reach,
	.rewind = carry_rewind,
	.foresee = carry_foresee,
	.capture = carry_capture,
	.snap_reach = carry_snap_reach,
	.restore = carry_restore,
	.drop = carry_drop,
	.write = carry_write,
	.read = carry_read,
	.facts = carry_facts,
	.describe = carry_describe,
	.snaps_free = carry_snaps_free,
};

struct cache *carry_open(struct backend *be, const struct carry_opts *o, struct err *err)
{
	const size_t bytes = size_mul((size_t)o->slots, o->bytes);
	struct carry *y;
	char *rows;

	assert(o->slots > 0 && o->bytes > 0 && o->bytes <= UINT32_MAX);
	rows = be->ops->alloc(be, bytes);
	if (!rows) {
		err_set(err, E_FULL, "carry cache: no %zu bytes for %d sequences", bytes, o->slots);
		return NULL;
	}
	y = xcalloc(1, sizeof *y);
	*y = (struct carry){ .cache = { .ops = &carry_ops, .be = be }, .o = *o, .rows = rows };
	return &y->cache;
}
