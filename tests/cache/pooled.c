/* pooled.c - see pooled.h. */
#include "pooled.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "world.h"

enum { VERSION = 1, BLOCK_BYTES = POOLED_BLOCK * sizeof(uint64_t) };

struct pooled_snap {
	struct snap snap;
	int n;
	uint64_t *raw;     /* [pos % group], on the host */
	uint64_t *block[]; /* [n], the backend's */
};

struct pooled {
	struct cache cache;
	struct pooled_opts o;
	struct pooled_view view;
	uint64_t **block; /* [slots][block_max] */
	int *n;           /* [slots] blocks held */
	int held;         /* by slots and snapshots */
	uint64_t **idle;  /* [blocks_max] allocated, held by nobody */
	int n_idle;
	uint64_t *row; /* [raw_rows] on the host, for settle and read */
	int n_snap;
};

static struct pooled *pooled_of(const struct cache *c)
{
	return (struct pooled *)c;
}

int pooled_blocks(int group, int pos)
{
	return (pos / group + POOLED_BLOCK - 1) / POOLED_BLOCK;
}

uint64_t pooled_number(const uint64_t *row, int group)
{
	uint64_t h = 1;

	for (int i = 0; i < group; i++)
		h = mix(h, row[i]);
	return h;
}

/* n more blocks at `at`, or none. */
static bool blocks_take(struct pooled *p, uint64_t **at, int n)
{
	if (n > p->o.blocks_max - p->held)
		return false;
	while (p->n_idle < n) {
		uint64_t *b = p->cache.be->ops->alloc(p->cache.be, BLOCK_BYTES);

		if (!b)
			return false;
		p->idle[p->n_idle++] = b;
	}
	for (int i = 0; i < n; i++)
		at[i] = p->idle[--p->n_idle];
	p->held += n;
	return true;
}

static void blocks_give(struct pooled *p, uint64_t **at, int n)
{
	for (int i = 0; i < n; i++)
		p->idle[p->n_idle++] = at[i];
	p->held -= n;
}

static uint64_t **blocks_of(const struct pooled *p, int slot)
{
	return p->block + (size_t)slot * (size_t)p->view.block_max;
}

static uint64_t *raw_of(const struct pooled *p, int slot)
{
	return p->view.raw + (size_t)slot * (size_t)p->view.raw_rows;
}

static void cut(struct pooled *p, int slot, int n)
{
	assert(n <= p->n[slot]);
	blocks_give(p, blocks_of(p, slot) + n, p->n[slot] - n);
	p->n[slot] = n;
}

static int pooled_reserve(struct cache *c, const struct span *sp)
{
	struct pooled *p = pooled_of(c);
	int have = p->n[sp->slot], want = pooled_blocks(p->o.group, sp->pos + sp->n);

	assert(sp->n <= p->o.step_rows && have == pooled_blocks(p->o.group, sp->pos));
	if (!blocks_take(p, blocks_of(p, sp->slot) + have, want - have))
		return E_FULL;
	p->n[sp->slot] = want;
	return 0;
}

/* Rows that may be taken back are among the raw ones: a group's number is made
 * here, when it is certain. */
static void pooled_settle(struct cache *c, const struct span *sp, int keep)
{
	struct pooled *p = pooled_of(c);
	int g = p->o.group, first = sp->pos / g, n = (sp->pos + keep) / g - first;
	size_t rows = (size_t)(sp->pos % g + keep);
	uint64_t *raw = raw_of(p, sp->slot);

	c->be->ops->read(c->be, p->row, raw, rows * sizeof *raw);
	for (int i = 0; i < n; i++) {
		uint64_t number = pooled_number(p->row + i * g, g);
		int at = first + i;

		c->be->ops->write(c->be, blocks_of(p, sp->slot)[at / POOLED_BLOCK] + at % POOLED_BLOCK, &number,
		                  sizeof number);
	}
	if (n > 0)
		c->be->ops->write(c->be, raw, p->row + n * g, (rows - (size_t)(n * g)) * sizeof *raw);
	cut(p, sp->slot, pooled_blocks(g, sp->pos + keep));
}

static int nearest(int group, int at, int pos)
{
	if (pos >= at)
		return at;
	return pos >= at - at % group ? pos : pos - pos % group;
}

static int pooled_reach(const struct cache *c, int slot, int at, int pos)
{
	return nearest(pooled_of(c)->o.group, at, pos);
}

static void pooled_rewind(struct cache *c, int slot, int pos)
{
	struct pooled *p = pooled_of(c);

	cut(p, slot, pooled_blocks(p->o.group, pos));
}

static void pooled_close(struct cache *c, int slot)
{
	cut(pooled_of(c), slot, 0);
}

static struct pooled_snap *snap_new(struct pooled *p, int pos)
{
	int n = pooled_blocks(p->o.group, pos);
	struct pooled_snap *s = xmalloc(sizeof *s + (size_t)n * sizeof *s->block);

	if (!blocks_take(p, s->block, n)) {
		free(s);
		return NULL;
	}
	s->n = n;
	s->snap = (struct snap){ .cache = &p->cache, .pos = pos, .bytes = (size_t)n * BLOCK_BYTES };
	s->raw = xcalloc((size_t)p->o.group, sizeof *s->raw);
	p->n_snap++;
	return s;
}

static void pooled_drop(struct snap *snap)
{
	struct pooled_snap *s = (struct pooled_snap *)snap;
	struct pooled *p = pooled_of(snap->cache);

	blocks_give(p, s->block, s->n);
	p->n_snap--;
	free(s->raw);
	free(s);
}

/* A slot has the raw rows of its last group alone. */
static int pooled_foresee(struct cache *c, const struct span *sp, int item, int pos)
{
	return E_FULL;
}

static struct snap *pooled_capture(struct cache *c, int slot, int pos)
{
	struct pooled *p = pooled_of(c);
	struct pooled_snap *s = snap_new(p, pos);

	if (!s)
		return NULL;
	for (int i = 0; i < s->n; i++)
		c->be->ops->copy(c->be, s->block[i], blocks_of(p, slot)[i], BLOCK_BYTES);
	c->be->ops->read(c->be, s->raw, raw_of(p, slot), (size_t)(pos % p->o.group) * sizeof *s->raw);
	return &s->snap;
}

static int pooled_snap_reach(const struct snap *snap, int pos)
{
	return nearest(pooled_of(snap->cache)->o.group, snap->pos, pos);
}

static int pooled_restore(struct cache *c, int slot, const struct snap *snap, int pos)
{
	const struct pooled_snap *s = (const struct pooled_snap *)snap;
	struct pooled *p = pooled_of(c);
	int n = pooled_blocks(p->o.group, pos);

	assert(p->n[slot] == 0);
	if (!blocks_take(p, blocks_of(p, slot), n))
		return E_FULL;
	p->n[slot] = n;
	for (int i = 0; i < n; i++)
		c->be->ops->copy(c->be, blocks_of(p, slot)[i], s->block[i], BLOCK_BYTES);
	c->be->ops->write(c->be, raw_of(p, slot), s->raw, (size_t)(pos % p->o.group) * sizeof *s->raw);
	return 0;
}

static int pooled_write(const struct snap *snap, struct sink *to)
{
	const struct pooled_snap *s = (const struct pooled_snap *)snap;
	struct backend *be = snap->cache->be;
	int g = pooled_of(snap->cache)->o.group;
	uint32_t head[3] = { VERSION, (uint32_t)snap->pos, (uint32_t)g };
	int rc = to->put(to, head, sizeof head);

	for (int i = 0; !rc && i < snap->pos / g; i++) {
		uint64_t number;

		be->ops->read(be, &number, s->block[i / POOLED_BLOCK] + i % POOLED_BLOCK, sizeof number);
		rc = to->put(to, &number, sizeof number);
	}
	return rc ? rc : to->put(to, s->raw, (size_t)(snap->pos % g) * sizeof *s->raw);
}

static int pooled_read(struct cache *c, struct source *from, struct snap **out, struct err *err)
{
	struct pooled *p = pooled_of(c);
	struct pooled_snap *s;
	uint32_t head[3];
	int pos, rc = source_get(from, head, sizeof head, err);

	if (rc)
		return rc;
	if (head[0] != VERSION || head[2] != (uint32_t)p->o.group || head[1] == 0 || head[1] > (uint32_t)p->o.ctx_max)
		return err_set(err, E_FORMAT, "pooled snapshot: version %u, position %u, group %u", (unsigned)head[0],
		               (unsigned)head[1], (unsigned)head[2]);
	pos = (int)head[1];
	s = snap_new(p, pos);
	if (!s)
		return err_set(err, E_FULL, "pooled snapshot: %d of %d blocks are held", p->held, p->o.blocks_max);
	for (int i = 0; !rc && i < pos / p->o.group; i++) {
		uint64_t number;

		rc = source_get(from, &number, sizeof number, err);
		if (!rc)
			c->be->ops->write(c->be, s->block[i / POOLED_BLOCK] + i % POOLED_BLOCK, &number, sizeof number);
	}
	if (!rc)
		rc = source_get(from, s->raw, (size_t)(pos % p->o.group) * sizeof *s->raw, err);
	if (rc)
		pooled_drop(&s->snap);
	else
		*out = &s->snap;
	return rc;
}

static size_t pooled_shed(struct cache *c, size_t want)
{
	struct pooled *p = pooled_of(c);
	size_t freed = 0;

	for (; p->n_idle && freed < want; freed += BLOCK_BYTES)
		c->be->ops->free(c->be, p->idle[--p->n_idle], BLOCK_BYTES);
	return freed;
}

static void pooled_facts(const struct cache *c, struct cache_facts *f)
{
	f->drafts_max = INT_MAX;
}

static void pooled_describe(const struct cache *c, struct buf *out)
{
	buf_printf(out, "groups of %d", pooled_of(c)->o.group);
}

static void pooled_check(const struct cache *c)
{
	const struct pooled *p = pooled_of(c);
	int held = 0;

	for (int i = 0; i < p->o.slots; i++)
		held += p->n[i];
	assert(held <= p->held && p->held + p->n_idle <= p->o.blocks_max);
	assert(p->n_snap || held == p->held);
}

static void pooled_fini(struct cache *c)
{
	struct pooled *p = pooled_of(c);

	assert(!p->n_snap);
	for (int i = 0; i < p->o.slots; i++)
		cut(p, i, 0);
	assert(!p->held);
	pooled_shed(c, SIZE_MAX);
	c->be->ops->free(c->be, p->view.raw, (size_t)p->o.slots * (size_t)p->view.raw_rows * sizeof *p->view.raw);
	free(p->block);
	free(p->n);
	free(p->idle);
	free(p->row);
	free(p);
}

static const struct cache_ops pooled_ops = {
	.name = "pooled",
	.fini = pooled_fini,
	.close = pooled_close,
	.reserve = pooled_reserve,
	.settle = pooled_settle,
	.reach = pooled_reach,
	.rewind = pooled_rewind,
	.foresee = pooled_foresee,
	.capture = pooled_capture,
	.snap_reach = pooled_snap_reach,
	.restore = pooled_restore,
	.drop = pooled_drop,
	.write = pooled_write,
	.read = pooled_read,
	.facts = pooled_facts,
	.describe = pooled_describe,
	.shed = pooled_shed,
	.check = pooled_check,
};

struct cache *pooled_open(struct backend *be, const struct pooled_opts *o, struct err *err)
{
	struct pooled *p = xcalloc(1, sizeof *p);
	size_t slots = (size_t)o->slots, bytes;

	p->cache = (struct cache){ .ops = &pooled_ops, .be = be };
	p->o = *o;
	p->view.group = o->group;
	p->view.raw_rows = o->group - 1 + o->step_rows;
	p->view.block_max = pooled_blocks(o->group, o->ctx_max);
	bytes = slots * (size_t)p->view.raw_rows * sizeof *p->view.raw;
	p->view.raw = be->ops->alloc(be, bytes);
	if (!p->view.raw) {
		err_set(err, E_FULL, "pooled cache: no %zu bytes", bytes);
		free(p);
		return NULL;
	}
	/* One more, so that a context of no whole group is no empty allocation. */
	p->block = xcalloc(slots * (size_t)p->view.block_max + 1, sizeof *p->block);
	p->view.block = p->block;
	p->n = xcalloc(slots, sizeof *p->n);
	p->idle = xcalloc((size_t)o->blocks_max + 1, sizeof *p->idle);
	p->row = xcalloc((size_t)p->view.raw_rows, sizeof *p->row);
	return &p->cache;
}

const struct pooled_view *pooled_view(const struct cache *c)
{
	assert(c->ops == &pooled_ops);
	return &pooled_of(c)->view;
}
