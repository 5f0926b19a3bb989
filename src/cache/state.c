/* state.c - recurrent state: S and conv tail of every slot, and their snapshots.
 *
 * A state can go back to the beginning only. A snapshot is a copy, made at the
 * slot's position or, if foreseen, by the pass on its way through a step.
 *
 * Rows that may be taken back never reach S: the pass lays what their updates need, a
 * fiftieth of S a row, on the slot's tape.  Nor does every row that is true: writing S costs
 * as much as reading it, so a step of few rows leaves S as it is while its rows fit on the
 * tape behind those that S is owed, and passes go on from both.  A pass that writes S pays
 * the debt, and so does a capture.
 *
 * Snapshots lie in the backend's memory too: tens of megabytes cost less there
 * than in a heap that is touched for the first time, small page by small page. */
#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "cache/kinds.h"

/* Written snapshots: a head of HEAD_WORDS numbers and BACKEND_BYTES of the
 * backend's name (S lies in that backend's own order), then S, then the tails. */
enum { VERSION = 2, HEAD_WORDS = 12, BACKEND_BYTES = 16 };

/* A snapshot passes through the host in pieces of this size. */
enum { PIECE = 1 << 18 };

struct state_snap {
	struct snap snap;
	int slot;   /* while it is foreseen: whose */
	char *data; /* the backend's: S of all layers, tails of all layers */
};

/* Memory of dropped snapshots that is kept for the next copies, since its pages exist already.  The system zeroes new
 * memory page by page, which takes three times as long as the copy, and longer in a virtual machine. */
enum { SPARES_MAX = 32, SPARE_SHARE = 4 /* and at most this part of the budget */ };

struct spares {
	char *data[SPARES_MAX];
	int n, n_max;
	char *half; /* the one that is being made ready; NULL: none */
	size_t at;  /* bytes of half that are ready */
};

/* S or the tails of all slots, and of one more that is never written, so that it
 * stays zero.  No bytes: the model has none, base is NULL. */
struct part {
	char *base;
	size_t bytes; /* of one slot, all layers */
};
enum { PARTS = 2 };

struct state {
	struct cache cache;
	struct state_opts o;
	struct part part[PARTS]; /* S, tails */
	size_t slot_bytes;       /* of both */
	size_t tape_bytes;       /* of all slots */
	struct state_view view;
	int32_t *owed;     /* [slots] rows on its tape that S is owed */
	bool *still;       /* [slots] in the step begun */
	bool *spoiled;     /* [slots] is at 0 but does not hold zeros yet */
	size_t snap_bytes; /* of live snapshots, and of foreseen ones */
	int n_snap;
	/* The last step's: snapshots that the pass fills, until they are
	 * captured or forgotten, and after which rows (view.keep). */
	struct state_snap **seen; /* [n_seen] of [seen_room] */
	int n_seen, seen_room;
	struct state_keep *keep; /* [seen_room] */
	bool fresh;              /* one of them went into memory that was new */
	struct spares spares;
	int64_t keep_ns; /* what the pass spent on them */
	double copy_ns;  /* of one copy, recently; 0: not known */
};

static struct state *state_of(const struct cache *c)
{
	return (struct state *)c;
}

size_t state_slot_bytes(const struct state_shape *shape)
{
	return (size_t)shape->layers * (state_floats(shape) + state_tail_floats(shape)) * sizeof(float);
}

/* Rows of a tape with room for `tentative` tentative ones.  Without S no deferred rows are kept. */
static int rows_of_tape(const struct state_shape *shape, int tentative)
{
	return tentative + (shape->heads_v ? STATE_LATE : 0);
}

size_t state_tape_bytes(const struct state_shape *shape, int tape_rows)
{
	size_t rows = (size_t)rows_of_tape(shape, tape_rows);

	return size_mul(size_mul(rows, (size_t)shape->layers), state_tape_floats(shape) * sizeof(float));
}

static char *part_of(const struct state *st, int i, int slot)
{
	assert(slot >= 0 && slot <= st->o.slots);
	return st->part[i].base + (size_t)slot * st->part[i].bytes;
}

/* ---- a snapshot's memory ---- */

static char *data_get(struct state *st)
{
	struct spares *p = &st->spares;
	char *data = p->half;

	if (p->n)
		return p->data[--p->n];
	st->fresh = true;
	p->half = NULL;
	return data ? data : st->cache.be->ops->alloc(st->cache.be, st->slot_bytes);
}

static void data_give(struct state *st, char *data)
{
	struct spares *p = &st->spares;

	if (p->n + !!p->half < p->n_max)
		p->data[p->n++] = data;
	else
		st->cache.be->ops->free(st->cache.be, data, st->slot_bytes);
}

/* Snapshots that there is memory for, with those that there are. */
static size_t snaps_made(const struct state *st)
{
	return (size_t)(st->n_snap + st->spares.n + !!st->spares.half);
}

static bool may_make_one(const struct state *st)
{
	return st->spares.n < st->spares.n_max && (snaps_made(st) + 1) * st->slot_bytes <= st->o.snap_bytes_max;
}

/* Bytes are written, zeros, so that the system must have them there. */
static bool state_prepare(struct cache *c)
{
	struct state *st = state_of(c);
	struct spares *p = &st->spares;
	size_t left = st->slot_bytes - p->at, n = left < PIECE ? left : PIECE;
	char *zeros;

	if (!p->half) {
		if (!may_make_one(st))
			return false;
		p->half = c->be->ops->alloc(c->be, st->slot_bytes);
		p->at = 0;
		return p->half;
	}
	zeros = xcalloc(1, n);
	c->be->ops->write(c->be, p->half + p->at, zeros, n);
	free(zeros);
	p->at += n;
	if (p->at == st->slot_bytes) {
		p->data[p->n++] = p->half;
		p->half = NULL;
	}
	return true;
}

/* Small ones need no preparing: the system has memory for one at once. */
static bool state_ready(const struct cache *c, int n)
{
	const struct state *st = state_of(c);
	const struct spares *p = &st->spares;

	return p->n >= n || st->slot_bytes <= PIECE || (!p->half && !may_make_one(st));
}

static size_t state_shed(struct cache *c, size_t want)
{
	struct state *st = state_of(c);
	struct spares *p = &st->spares;
	size_t freed = 0;

	for (; p->half && freed < want; freed += st->slot_bytes) {
		c->be->ops->free(c->be, p->half, st->slot_bytes);
		p->half = NULL;
	}
	for (; p->n && freed < want; freed += st->slot_bytes)
		c->be->ops->free(c->be, p->data[--p->n], st->slot_bytes);
	return freed;
}

static struct state_snap *snap_new(struct state *st, int pos)
{
	struct state_snap *s;
	char *data;

	if (st->slot_bytes > st->o.snap_bytes_max - st->snap_bytes)
		return NULL;
	data = data_get(st);
	if (!data)
		return NULL;
	s = xmalloc(sizeof *s);
	s->snap = (struct snap){ .cache = &st->cache, .pos = pos, .bytes = st->slot_bytes };
	s->data = data;
	st->snap_bytes += st->slot_bytes;
	st->n_snap++;
	return s;
}

static void state_drop(struct snap *snap)
{
	struct state *st = state_of(snap->cache);

	st->snap_bytes -= snap->bytes;
	st->n_snap--;
	data_give(st, ((struct state_snap *)snap)->data);
	free(snap);
}

/* ---- the step ---- */

static int state_reserve(struct cache *c, const struct span *sp)
{
	assert(sp->slot < state_of(c)->o.slots && sp->n_draft <= state_of(c)->o.tape_rows);
	return 0;
}

/* Drops foreseen snapshots past pos of the slot (-1: of all) that were not captured. */
static void forget(struct state *st, int slot, int pos)
{
	int n = 0;

	for (int i = 0; i < st->n_seen; i++)
		if ((slot < 0 || st->seen[i]->slot == slot) && st->seen[i]->snap.pos > pos)
			state_drop(&st->seen[i]->snap);
		else
			st->seen[n++] = st->seen[i];
	st->n_seen = n;
}

/* Takes in what the last pass measured of its copies.  A longer time than is known counts for a tenth and a shorter one
 * for half, since a copy may have been held up by something else.  Copies into fresh memory do not count. */
static void learn_cost(struct state *st)
{
	double ns = (double)st->keep_ns / (st->view.n_keep ? st->view.n_keep : 1);

	if (ns > 0 && !st->fresh)
		st->copy_ns += (!st->copy_ns ? 1 : ns < st->copy_ns ? 0.5 : 0.1) * (ns - st->copy_ns);
	st->keep_ns = 0;
	st->fresh = false;
}

/* Does a step leave S as it is?  Room for tentative rows is not room to owe more: what is owed is computed again by
 * each step. */
static bool is_still(const struct state *st, const struct span *sp)
{
	return st->o.shape.heads_v && st->owed[sp->slot] + sp->n - sp->n_draft <= STATE_LATE;
}

/* A slot that holds another sequence's state is zeroed here, before the first step from position 0, and not when it is
 * given away: one that is restored instead is overwritten whole. */
static void state_begin(struct cache *c, const struct span *sp, int n_span)
{
	struct state *st = state_of(c);
	struct backend *be = c->be;

	assert(n_span <= st->o.slots);
	learn_cost(st);
	st->view.n_keep = 0;
	for (int i = 0; i < n_span; i++) {
		int slot = sp[i].slot;

		st->still[slot] = is_still(st, &sp[i]);
		if (sp[i].pos > 0 || !st->spoiled[slot])
			continue;
		for (int k = 0; k < PARTS; k++)
			if (st->part[k].bytes)
				be->ops->copy(be, part_of(st, k, slot), part_of(st, k, st->o.slots), st->part[k].bytes);
		st->spoiled[slot] = false;
	}
}

static void state_forget(struct cache *c)
{
	forget(state_of(c), -1, 0);
}

static int state_foresee(struct cache *c, const struct span *sp, int item, int pos)
{
	struct state *st = state_of(c);
	struct state_snap *s = snap_new(st, pos);
	struct state_keep *keep;

	if (!s)
		return E_FULL;
	if (st->n_seen == st->seen_room) {
		st->seen_room = st->seen_room ? 2 * st->seen_room : 4;
		st->seen = xrealloc(st->seen, size_mul((size_t)st->seen_room, sizeof(struct state_snap *)));
		st->keep = xrealloc(st->keep, size_mul((size_t)st->seen_room, sizeof *st->keep));
		st->view.keep = st->keep;
	}
	st->still[sp[item].slot] = false;
	s->slot = sp[item].slot;
	st->seen[st->n_seen++] = s;
	keep = &st->keep[st->view.n_keep++];
	keep->item = item;
	keep->row = pos - sp[item].pos;
	keep->s = st->part[0].bytes ? (float *)s->data : NULL;
	keep->tail = st->part[1].bytes ? (float *)(s->data + st->part[0].bytes) : NULL;
	return 0;
}

static void state_settle(struct cache *c, const struct span *sp, int keep)
{
	struct state *st = state_of(c);

	st->owed[sp->slot] = state_taped_at(&st->view, sp) + keep - state_taped(&st->view, sp);
}

/* Makes S and the tails what they should be at the slot's position. */
static void pay(struct state *st, int slot)
{
	if (st->owed[slot])
		st->cache.be->ops->tape_apply(st->cache.be, &st->view, slot, st->owed[slot]);
	st->owed[slot] = 0;
}

/* ---- between steps ---- */

static int state_reach(const struct cache *c, int slot, int at, int pos)
{
	return pos < at ? 0 : at;
}

static void state_rewind(struct cache *c, int slot, int pos)
{
	forget(state_of(c), slot, pos);
	if (pos > 0)
		return;
	state_of(c)->spoiled[slot] = true;
	state_of(c)->owed[slot] = 0;
}

static void state_close(struct cache *c, int slot)
{
	state_rewind(c, slot, 0);
}

/* ---- snapshots ---- */

static struct snap *state_capture(struct cache *c, int slot, int pos)
{
	struct state *st = state_of(c);
	struct state_snap *s;
	char *at;

	for (int i = 0; i < st->n_seen; i++) {
		s = st->seen[i];
		if (s->slot == slot && s->snap.pos == pos) {
			memmove(&st->seen[i], &st->seen[i + 1],
			        (size_t)(--st->n_seen - i) * sizeof(struct state_snap *));
			return &s->snap;
		}
	}
	assert(!st->spoiled[slot]);
	s = snap_new(st, pos);
	if (!s)
		return NULL;
	at = s->data;
	pay(st, slot);
	for (int k = 0; k < PARTS; at += st->part[k++].bytes)
		if (st->part[k].bytes)
			c->be->ops->copy(c->be, at, part_of(st, k, slot), st->part[k].bytes);
	return &s->snap;
}

static int state_snap_reach(const struct snap *snap, int pos)
{
	return pos < snap->pos ? 0 : snap->pos;
}

static int state_restore(struct cache *c, int slot, const struct snap *snap, int pos)
{
	const struct state_snap *s = (const struct state_snap *)snap;
	struct state *st = state_of(c);
	const char *at = s->data;

	assert(pos == snap->pos && !st->owed[slot]);
	for (int k = 0; k < PARTS; at += st->part[k++].bytes)
		if (st->part[k].bytes)
			c->be->ops->copy(c->be, part_of(st, k, slot), at, st->part[k].bytes);
	st->spoiled[slot] = false;
	return 0;
}

/* The head of a snapshot of this cache.  A reader needs every word equal
 * but the position. */
static void head_fill(const struct state *st, int pos, uint32_t head[HEAD_WORDS], char backend[BACKEND_BYTES])
{
	const struct state_shape *h = &st->o.shape;
	const uint32_t words[HEAD_WORDS] = { VERSION,
		                             (uint32_t)pos,
		                             (uint32_t)h->layers,
		                             (uint32_t)h->heads_k,
		                             (uint32_t)h->heads_v,
		                             (uint32_t)h->dim_k,
		                             (uint32_t)h->dim_v,
		                             (uint32_t)h->conv_channels,
		                             (uint32_t)h->conv_width,
		                             (uint32_t)state_floats(h),
		                             (uint32_t)state_tail_floats(h),
		                             (uint32_t)h->rule };

	memcpy(head, words, sizeof words);
	memset(backend, 0, BACKEND_BYTES);
	memcpy(backend, st->cache.be->order, strlen(st->cache.be->order));
}

static int state_write(const struct snap *snap, struct sink *to)
{
	const struct state_snap *s = (const struct state_snap *)snap;
	struct backend *be = snap->cache->be;
	uint32_t head[HEAD_WORDS];
	char backend[BACKEND_BYTES], *piece;
	int rc;

	head_fill(state_of(snap->cache), snap->pos, head, backend);
	rc = to->put(to, head, sizeof head);
	if (!rc)
		rc = to->put(to, backend, sizeof backend);
	piece = xmalloc(PIECE);
	for (size_t at = 0, n; !rc && at < snap->bytes; at += n) {
		n = snap->bytes - at < PIECE ? snap->bytes - at : PIECE;
		rc = be->ops->read(be, piece, s->data + at, n);
		if (!rc)
			rc = to->put(to, piece, n);
	}
	free(piece);
	return rc;
}

static int head_check(const struct state *st, const uint32_t *head, const char *backend, struct err *err)
{
	static const char *const name[HEAD_WORDS] = {
		"version",           NULL,          "layers",           "key heads",
		"value heads",       "key size",    "value size",       "channels",
		"convolution width", "floats of S", "floats of a tail", "rule"
	};
	uint32_t want[HEAD_WORDS];
	char want_backend[BACKEND_BYTES];

	head_fill(st, 0, want, want_backend);
	for (int i = 0; i < HEAD_WORDS; i++)
		if (name[i] && head[i] != want[i])
			return err_set(err, i ? E_FORMAT : E_UNSUPPORTED, "state snapshot: %s %u, this cache has %u",
			               name[i], (unsigned)head[i], (unsigned)want[i]);
	if (memcmp(backend, want_backend, BACKEND_BYTES))
		return err_set(err, E_FORMAT, "state snapshot: not in the order of backend %s",
		               st->cache.be->ops->name);
	if (head[1] == 0 || head[1] > INT_MAX)
		return err_set(err, E_FORMAT, "state snapshot: position %u", (unsigned)head[1]);
	return 0;
}

static int state_read(struct cache *c, struct source *from, struct snap **out, struct err *err)
{
	struct state *st = state_of(c);
	struct state_snap *s;
	uint32_t head[HEAD_WORDS];
	char backend[BACKEND_BYTES], *piece;
	int rc;

	rc = source_get(from, head, sizeof head, err);
	if (!rc)
		rc = source_get(from, backend, sizeof backend, err);
	if (!rc)
		rc = head_check(st, head, backend, err);
	if (rc)
		return rc;
	s = snap_new(st, (int)head[1]);
	if (!s)
		return err_set(err, E_FULL, "state snapshot: %zu bytes, %zu of %zu are used", st->slot_bytes,
		               st->snap_bytes, st->o.snap_bytes_max);
	piece = xmalloc(PIECE);
	for (size_t at = 0, n; !rc && at < st->slot_bytes; at += n) {
		n = st->slot_bytes - at < PIECE ? st->slot_bytes - at : PIECE;
		rc = source_get(from, piece, n, err);
		if (!rc)
			c->be->ops->write(c->be, s->data + at, piece, n);
	}
	free(piece);
	if (rc) {
		state_drop(&s->snap);
		return rc;
	}
	*out = &s->snap;
	return 0;
}

/* ---- numbers ---- */

static size_t state_snaps_free(const struct cache *c)
{
	return (state_of(c)->o.snap_bytes_max - c->snap_bytes) / state_of(c)->slot_bytes;
}

static double state_copy_ns(const struct cache *c)
{
	return state_of(c)->copy_ns;
}

static void state_facts(const struct cache *c, struct cache_facts *f)
{
	const struct state *st = state_of(c);

	f->drafts_max = st->o.tape_rows;
	f->rest_max = HEAD_WORDS * sizeof(uint32_t) + BACKEND_BYTES + st->slot_bytes;
}

static void state_describe(const struct cache *c, struct buf *out)
{
	const struct state_shape *h = &state_of(c)->o.shape;

	buf_printf(out, "%d layers of %d x %d in %d (%d) heads, %d channels of %d", h->layers, h->dim_k, h->dim_v,
	           h->heads_v, h->heads_k, h->conv_channels, h->conv_width);
}

/* ---- the books, and the whole ---- */

static void state_check(const struct cache *c)
{
	const struct state *st = state_of(c);

	assert(st->snap_bytes <= st->o.snap_bytes_max);
	assert(st->snap_bytes == (size_t)st->n_snap * st->slot_bytes);
	assert(st->spares.n + !!st->spares.half <= st->spares.n_max);
	assert(snaps_made(st) * st->slot_bytes <= st->o.snap_bytes_max);
}

static void state_fini(struct cache *c)
{
	struct state *st = state_of(c);

	forget(st, -1, 0);
	assert(st->n_snap == 0);
	if (st->spares.half)
		c->be->ops->free(c->be, st->spares.half, st->slot_bytes);
	for (int i = 0; i < st->spares.n; i++)
		c->be->ops->free(c->be, st->spares.data[i], st->slot_bytes);
	for (int k = 0; k < PARTS; k++)
		if (st->part[k].base)
			c->be->ops->free(c->be, st->part[k].base, ((size_t)st->o.slots + 1) * st->part[k].bytes);
	if (st->view.tape)
		c->be->ops->free(c->be, st->view.tape, st->tape_bytes);
	free(st->owed);
	free(st->still);
	free(st->spoiled);
	free(st->seen);
	free(st->keep);
	free(st);
}

static const struct cache_ops state_ops = {
	.name = "state",
	.fini = state_fini,
	.close = state_close,
	.reserve = state_reserve,
	.settle = state_settle,
	.reach = state_reach,
	.rewind = state_rewind,
	.foresee = state_foresee,
	.capture = state_capture,
	.snap_reach = state_snap_reach,
	.restore = state_restore,
	.drop = state_drop,
	.write = state_write,
	.read = state_read,
	.facts = state_facts,
	.describe = state_describe,
	.snaps_free = state_snaps_free,
	.begin = state_begin,
	.forget = state_forget,
	.shed = state_shed,
	.prepare = state_prepare,
	.ready = state_ready,
	.copy_ns = state_copy_ns,
	.check = state_check,
};

static int spares_max(const struct state *st)
{
	size_t n = st->o.snap_bytes_max / SPARE_SHARE / st->slot_bytes;

	return n < SPARES_MAX ? (int)n : SPARES_MAX;
}

struct cache *state_open(struct backend *be, const struct state_opts *o, struct err *err)
{
	const size_t slots = (size_t)o->slots, layers = (size_t)o->shape.layers;
	struct state *st;
	size_t want[3];
	void *got[3] = { 0 };
	bool refused = false;

	assert(o->slots > 0 && o->tape_rows >= 0 && o->shape.layers > 0);
	assert(strlen(be->order) < BACKEND_BYTES);
	st = xcalloc(1, sizeof *st);
	st->cache = (struct cache){ .ops = &state_ops, .be = be };
	st->o = *o;
	st->part[0].bytes = size_mul(layers, size_mul(state_floats(&o->shape), sizeof(float)));
	st->part[1].bytes = size_mul(layers, size_mul(state_tail_floats(&o->shape), sizeof(float)));
	st->slot_bytes = st->part[0].bytes + st->part[1].bytes;
	st->tape_bytes = size_mul(slots, state_tape_bytes(&o->shape, o->tape_rows));
	want[0] = size_mul(slots + 1, st->part[0].bytes);
	want[1] = size_mul(slots + 1, st->part[1].bytes);
	want[2] = st->tape_bytes;
	for (int i = 0; i < 3 && !refused; i++) {
		got[i] = want[i] ? be->ops->alloc(be, want[i]) : NULL;
		refused = want[i] && !got[i];
		if (refused)
			err_set(err, E_FULL, "state cache: no %zu bytes for %d sequences", want[i], o->slots);
	}
	st->part[0].base = got[0];
	st->part[1].base = got[1];
	st->owed = xcalloc(slots, sizeof *st->owed);
	st->still = xcalloc(slots, sizeof *st->still);
	st->spoiled = xcalloc(slots, sizeof *st->spoiled);
	st->view = (struct state_view){ .shape = o->shape,
		                        .s = got[0],
		                        .tail = got[1],
		                        .tape = got[2],
		                        .tape_rows = rows_of_tape(&o->shape, o->tape_rows),
		                        .slots = o->slots,
		                        .owed = st->owed,
		                        .still = st->still,
		                        .keep_ns = &st->keep_ns };
	st->spares.n_max = spares_max(st);
	if (refused) {
		state_fini(&st->cache);
		return NULL;
	}
	return &st->cache;
}

const struct state_view *state_view(const struct cache *c)
{
	assert(c->ops == &state_ops);
	return &state_of(c)->view;
}
