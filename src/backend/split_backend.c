/* split_backend.c - see split_backend.h.
 *
 * Operations.  An operation that names a view runs where the view's layer lies; one that names a matrix, where the matrix
 * lies; any other, where the operation before it ran.  So forward() need not say which layer it is in.  A model
 * places its matrices with the number of their layer (struct placed); vectors are small and lie in both backends.
 *
 * With mixtures apart, FIRST has all layers, every other operation and every view; REST has what only moe reads.
 *
 * Memory.  alloc() gives addresses without memory (struct area).  Areas are of two kinds:
 *
 *   cut    keys and values, S, tails and tapes, which views lay out by layer: of each page or slot, the bytes of the first
 *          layers lie in the first backend, the others in the other.  Which layers those are is learned in the rehearsal
 *          that a model has when it is opened: each layer of a view goes where the operation before ran, that is, where the
 *          projections of its layer lie.  A view that no rehearsal has shown is cut behind its first `layers` layers.
 *   whole  all else: work memory, logits, snapshots.  It has memory in each backend that names it, and one of them holds the
 *          bytes.  An operation of the other brings them over first; of work memory, those that the pass has in use.  A pass
 *          so moves its activations once at each boundary.  Of a snapshot that a pass makes each side writes the part of
 *          its layers; when the pass ends, `rest` gets it all.
 *
 * Each backend has a pass of its own, with views of its layers alone. */
#include "backend/split_backend.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/pages.h"

enum { FIRST, REST, SIDES, STAY = -1 };
enum { CONVS = 8, BOUNCE = 1 << 20 };

struct area {
	uint8_t *p; /* addresses without memory */
	size_t bytes;
	uint8_t *mem[SIDES]; /* NULL: none yet */
	size_t taken[SIDES]; /* bytes of mem */
	int at;              /* whole: the side that holds the bytes; STAY: all are 0 */

	/* Cut: bytes of a page or slot, of those its first layers', and how many there are on each side.  period 0: whole. */
	size_t period, cut, part[SIDES];
	int first;                     /* layers on FIRST */
	struct kv_layer *layer[SIDES]; /* of keys and values */
	int8_t *learned; /* [layers] of the view by its first area: sides, STAY; NULL: no rehearsal has shown it */
};

/* A range that models placed. */
struct range {
	const uint8_t *p;
	size_t bytes;
	int side; /* STAY: both */
	int models;
};

struct split {
	struct backend be;
	struct backend_ops ops;
	struct backend *of[SIDES];
	int layers;
	bool mixtures; /* moe runs on REST, all else on FIRST */
	char level[200], arithmetic[80];
	struct area **area; /* [n_area] by address */
	struct range *range;
	int n_area, cap_area, n_range, cap_range;
	bool rehearsing; /* a side without rehearsals does nothing */
	bool learning;   /* in a rehearsal in which neither side does anything */
	bool learnt;     /* the next rehearsal is the sides' */
	bool full;       /* a side had no memory for an area */

	/* The pass that has begun, and as each side knows it. */
	const struct pass *pass;
	struct pass q[SIDES];
	struct kv_view kv[SIDES][KV_GROUPS];
	struct state_view state[SIDES][2]; /* the pass's state, its past */
	struct state_keep *keep[SIDES][2];
	int now;     /* the side of the last operation */
	size_t high; /* bytes of work memory that the pass has had in use */
	uint8_t *bounce;
};

static struct split *split_of(struct backend *be)
{
	return (struct split *)be;
}

/* Takes note of a side's failure.  Returns the code. */
static int look(struct split *s)
{
	for (int k = 0; k < SIDES && !s->be.failed.code; k++)
		if (s->of[k]->failed.code)
			s->be.failed = s->of[k]->failed;
	return s->be.failed.code;
}

/* ---- memory ---- */

/* Index of the first area behind p. */
static int areas_before(const struct split *s, const void *p)
{
	int low = 0, high = s->n_area;

	while (low < high) {
		int mid = (low + high) / 2;

		if (s->area[mid]->p <= (const uint8_t *)p)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* NULL: p is not of alloc(). */
static struct area *area_of(const struct split *s, const void *p)
{
	int i = p ? areas_before(s, p) - 1 : -1;

	return i >= 0 && (const uint8_t *)p < s->area[i]->p + s->area[i]->bytes ? s->area[i] : NULL;
}

static void *split_alloc(struct backend *be, size_t bytes)
{
	struct split *s = split_of(be);
	struct area *a;
	int i;

	if (be->failed.code)
		return NULL;
	a = xcalloc(1, sizeof *a);
	a->bytes = bytes ? bytes : 1;
	a->at = STAY;
	a->p = pages_any(a->bytes, false);
	if (!a->p) {
		free(a);
		return NULL;
	}
	if (s->n_area == s->cap_area) {
		s->cap_area = s->cap_area ? 2 * s->cap_area : 64;
		s->area = xrealloc(s->area, size_mul((size_t)s->cap_area, sizeof *s->area));
	}
	i = areas_before(s, a->p);
	memmove(&s->area[i + 1], &s->area[i], (size_t)(s->n_area++ - i) * sizeof *s->area);
	s->area[i] = a;
	return a->p;
}

static void give_back(struct split *s, struct area *a, int k)
{
	if (a->mem[k])
		s->of[k]->ops->free(s->of[k], a->mem[k], a->taken[k]);
	a->mem[k] = NULL;
}

static void split_free(struct backend *be, void *p, size_t bytes)
{
	struct split *s = split_of(be);
	struct area *a = area_of(s, p);
	int i;

	if (!p)
		return;
	assert(a && a->p == p && a->bytes == (bytes ? bytes : 1));
	for (int k = 0; k < SIDES; k++) {
		give_back(s, a, k);
		free(a->layer[k]);
	}
	i = areas_before(s, p) - 1;
	memmove(&s->area[i], &s->area[i + 1], (size_t)(--s->n_area - i) * sizeof *s->area);
	pages_free(a->p, a->bytes);
	free(a->learned);
	free(a);
}

/* The area's memory on a side; NULL: refused, and the device counts as lost. */
static uint8_t *memory(struct split *s, struct area *a, int k, size_t bytes)
{
	if (a->mem[k])
		return a->mem[k];
	a->mem[k] = s->of[k]->ops->alloc(s->of[k], bytes);
	a->taken[k] = bytes;
	s->full |= !a->mem[k];
	if (!a->mem[k] && !look(s))
		err_set(&s->be.failed, E_DEVICE, "backend %s has no %zu bytes for a part of what is computed",
		        s->of[k]->ops->name, bytes);
	return a->mem[k];
}

/* Copies between the sides. */
static void carry(struct split *s, int from, const uint8_t *src, int to, uint8_t *dst, size_t n)
{
	struct backend *a = s->of[from], *b = s->of[to];

	if (from == to) {
		b->ops->copy(b, dst, src, n);
		return;
	}
	for (size_t at = 0; at < n && !look(s); at += BOUNCE) {
		size_t part = n - at < BOUNCE ? n - at : BOUNCE;

		if (a->ops->near) {
			b->ops->write(b, dst + at, src + at, part);
		} else if (b->ops->near) {
			a->ops->read(a, dst + at, src + at, part);
		} else if (!a->ops->read(a, s->bounce, src + at, part)) {
			b->ops->write(b, dst + at, s->bounce, part);
		}
	}
}

/* Brings the first n bytes of a whole area to a side, which holds it from then on. */
static uint8_t *bring(struct split *s, struct area *a, int k, size_t n)
{
	uint8_t *to = memory(s, a, k, a->bytes);

	assert(!a->period && "an operation was given memory of a cache that is not a view's");
	if (to && a->at == !k)
		carry(s, !k, a->mem[!k], k, to, n);
	a->at = k;
	return to;
}

/* Returns the address on the side that computes now of memory of alloc(), whose bytes are brought there first.  Pointers to
 * what models placed are returned as they are: they name it on both sides. */
static void *at(struct split *s, const void *p)
{
	struct area *a = area_of(s, p);
	uint8_t *to;

	if (!a)
		return (void *)(uintptr_t)p;
	to = bring(s, a, s->now, (uint8_t *)s->pass->work.p == a->p ? s->high : a->bytes);
	return to ? to + ((const uint8_t *)p - a->p) : NULL;
}

/* The longest part of p[n] that lies in one piece. */
struct piece {
	int side;
	uint8_t *p; /* NULL: the device is lost */
	size_t n;
};
static struct piece piece_at(struct split *s, const void *p, size_t n)
{
	struct area *a = area_of(s, p);
	size_t at, in, most;
	int k;

	assert(a && (const uint8_t *)p + n <= a->p + a->bytes);
	at = (size_t)((const uint8_t *)p - a->p);
	if (!a->period) {
		uint8_t *mem;

		a->at = a->at == STAY ? REST : a->at;
		mem = memory(s, a, a->at, a->bytes);
		return (struct piece){ a->at, mem ? mem + at : NULL, n };
	}
	in = at % a->period;
	k = in >= a->cut ? REST : FIRST;
	most = (k == FIRST ? a->cut : a->period) - in;
	at = at / a->period * a->part[k] + in - (k == FIRST ? 0 : a->cut);
	return (struct piece){ k, a->mem[k] + at, n < most ? n : most };
}

static void split_write(struct backend *be, void *to, const void *from, size_t n)
{
	struct split *s = split_of(be);

	for (size_t at = 0; at < n && !look(s);) {
		struct piece d = piece_at(s, (uint8_t *)to + at, n - at);

		if (d.p)
			s->of[d.side]->ops->write(s->of[d.side], d.p, (const uint8_t *)from + at, d.n);
		at += d.n;
	}
}

static int split_read(struct backend *be, void *to, const void *from, size_t n)
{
	struct split *s = split_of(be);

	for (size_t at = 0; at < n && !look(s);) {
		struct piece d = piece_at(s, (const uint8_t *)from + at, n - at);

		if (d.p)
			s->of[d.side]->ops->read(s->of[d.side], (uint8_t *)to + at, d.p, d.n);
		at += d.n;
	}
	return look(s);
}

static void split_copy(struct backend *be, void *to, const void *from, size_t n)
{
	struct split *s = split_of(be);

	for (size_t at = 0; at < n && to != from && !look(s);) {
		struct piece a = piece_at(s, (const uint8_t *)from + at, n - at),
			     b = piece_at(s, (uint8_t *)to + at, a.n);

		if (a.p && b.p)
			carry(s, a.side, a.p, b.side, b.p, b.n);
		at += b.n;
	}
}

static void split_discard(struct backend *be, void *p, size_t n)
{
	struct split *s = split_of(be);

	for (size_t at = 0; at < n && !look(s);) {
		struct piece d = piece_at(s, (uint8_t *)p + at, n - at);
		struct backend *of = s->of[d.side];

		if (d.p && of->ops->discard)
			of->ops->discard(of, d.p, d.n);
		at += d.n;
	}
}

/* ---- what is placed ---- */

static int range_before(const struct split *s, const void *p)
{
	int low = 0, high = s->n_range;

	while (low < high) {
		int mid = (low + high) / 2;

		if (s->range[mid].p <= (const uint8_t *)p)
			low = mid + 1;
		else
			high = mid;
	}
	return low - 1;
}

static int side_of_placed(const struct split *s, const struct placed *v)
{
	if (!v->layer)
		return STAY;
	return (s->mixtures ? !v->mixture : v->layer <= s->layers) ? FIRST : REST;
}

/* The side that has the matrix; STAY: both, or it was not placed. */
static int matrix(const struct pass *p, const struct weight *w)
{
	const struct split *s = split_of(p->be);
	int i = range_before(s, w->data);

	return i >= 0 && w->data < s->range[i].p + s->range[i].bytes ? s->range[i].side : STAY;
}

/* The list of a side. */
static int part_of(const struct split *s, struct placed *to, const struct placed *v, int n, int k)
{
	int m = 0;

	for (int i = 0; i < n; i++)
		if (side_of_placed(s, &v[i]) != !k)
			to[m++] = v[i];
	return m;
}

static void note(struct split *s, const struct placed *v)
{
	int i = range_before(s, v->p);

	if (i >= 0 && s->range[i].p == v->p) {
		s->range[i].models++;
		return;
	}
	if (s->n_range == s->cap_range) {
		s->cap_range = s->cap_range ? 2 * s->cap_range : 256;
		s->range = xrealloc(s->range, size_mul((size_t)s->cap_range, sizeof *s->range));
	}
	i++;
	memmove(&s->range[i + 1], &s->range[i], (size_t)(s->n_range++ - i) * sizeof *s->range);
	s->range[i] = (struct range){ v->p, v->bytes, side_of_placed(s, v), 1 };
}

static void forget(struct split *s, const struct placed *v)
{
	int i = range_before(s, v->p);

	assert(i >= 0 && s->range[i].p == v->p);
	if (!--s->range[i].models)
		memmove(&s->range[i], &s->range[i + 1], (size_t)(--s->n_range - i) * sizeof *s->range);
}

static void unplace(struct split *s, const struct placed *v, int n, int k)
{
	struct placed *own = xcalloc((size_t)n + 1, sizeof *own);

	if (s->of[k]->ops->unplace)
		s->of[k]->ops->unplace(s->of[k], own, part_of(s, own, v, n, k));
	free(own);
}

static int split_place(struct backend *be, const struct placed *v, int n, struct err *err)
{
	struct split *s = split_of(be);
	struct placed *own = xcalloc((size_t)n + 1, sizeof *own);
	int rc = 0;

	for (int k = 0; k < SIDES && !rc; k++) {
		if (s->of[k]->ops->place)
			rc = s->of[k]->ops->place(s->of[k], own, part_of(s, own, v, n, k), err);
		if (rc && k == REST)
			unplace(s, v, n, FIRST);
	}
	for (int i = 0; i < n && !rc; i++)
		note(s, &v[i]);
	free(own);
	return rc;
}

static void split_unplace(struct backend *be, const struct placed *v, int n)
{
	struct split *s = split_of(be);

	for (int k = 0; k < SIDES; k++)
		unplace(s, v, n, k);
	for (int i = 0; i < n; i++)
		forget(s, &v[i]);
}

static size_t split_pack(struct backend *be, const struct pack_opts *o)
{
	struct split *s = split_of(be);
	size_t n = 0;

	for (int k = 0; k < SIDES; k++)
		if (s->of[k]->ops->pack)
			n += s->of[k]->ops->pack(s->of[k], o);
	return n;
}

/* ---- views ---- */

/* How many layers of a view are on FIRST. */
static int first_layers(const struct split *s, const struct area *a, int layers)
{
	int n = 0;

	if (!a->learned)
		return s->layers < layers ? s->layers : layers;
	while (n < layers && a->learned[n] == FIRST)
		n++;
	return n;
}

static void cut(struct split *s, struct area *a, int first, size_t period, size_t at, size_t part0, size_t part1)
{
	size_t times = (a->bytes + period - 1) / period;

	assert(a->at == STAY && "a cache was written before its first pass");
	a->first = first;
	a->period = period;
	a->cut = at;
	a->part[FIRST] = part0;
	a->part[REST] = part1;
	for (int k = 0; k < SIDES; k++)
		if (a->part[k])
			memory(s, a, k, size_mul(times, a->part[k]));
}

static void learn_in(struct area *a, int layers)
{
	if (a->learned || a->period)
		return;
	a->learned = xmalloc((size_t)layers);
	memset(a->learned, STAY, (size_t)layers);
}

static size_t lines(size_t n)
{
	return (n + 63) / 64 * 64;
}

static void cut_kv(struct split *s, const struct kv_view *v)
{
	struct area *a = area_of(s, v->base);
	size_t at;
	int first;

	if (a->period)
		return;
	first = first_layers(s, a, v->layers);
	at = first < v->layers ? v->layer[first].at[KV_KEYS] : v->page_bytes;
	cut(s, a, first, v->page_bytes, at, lines(at), lines(v->page_bytes - at));
	for (int k = 0; k < SIDES; k++) {
		int from = k == FIRST ? 0 : first, n = k == FIRST ? first : v->layers - first;

		a->layer[k] = xcalloc((size_t)n + 1, sizeof *a->layer[k]);
		for (int i = 0; i < n; i++) {
			a->layer[k][i] = v->layer[from + i];
			for (enum kv_side side = KV_KEYS; side <= KV_VALUES; side++)
				a->layer[k][i].at[side] -= k == FIRST ? 0 : at;
		}
	}
}

/* The area by which a view of states is known. */
static struct area *state_area(const struct split *s, const struct state_view *v)
{
	return area_of(s, v->s ? v->s : v->tail);
}

static void cut_state(struct split *s, const struct state_view *v)
{
	const float *of[] = { v->s, v->tail, v->tape };
	const size_t each[] = { state_floats(&v->shape), state_tail_floats(&v->shape),
		                (size_t)v->tape_rows * state_tape_floats(&v->shape) };
	int n = v->shape.layers, first;

	if (state_area(s, v)->period)
		return;
	first = first_layers(s, state_area(s, v), n);
	for (int i = 0; i < 3; i++) {
		size_t bytes = each[i] * sizeof(float), at = (size_t)first * bytes;

		if (of[i] && bytes)
			cut(s, area_of(s, of[i]), first, (size_t)n * bytes, at, at, (size_t)n * bytes - at);
	}
}

static float *state_memory(const struct split *s, float *p, int k)
{
	return p ? (float *)area_of(s, p)->mem[k] : NULL;
}

/* The view as a side knows it. */
static void state_there(const struct split *s, struct state_view *to, const struct state_view *v, int k)
{
	int first = state_area(s, v)->first;

	*to = *v;
	to->shape.layers = k == FIRST ? first : v->shape.layers - first;
	if (v->shape.rate && k == REST)
		to->shape.rate += first;
	to->s = state_memory(s, v->s, k);
	to->tail = state_memory(s, v->tail, k);
	to->tape = state_memory(s, v->tape, k);
}

/* Returns the address in a snapshot, on side k, of the numbers of the first layer that lies there; a layer has `each`. */
static float *kept_there(struct split *s, float *p, int k, int first, size_t each)
{
	struct area *a = area_of(s, p);
	uint8_t *mem = a ? memory(s, a, k, a->bytes) : NULL;

	return mem ? (float *)(mem + ((uint8_t *)p - a->p)) + (k == FIRST ? 0 : (size_t)first * each) : NULL;
}

static const struct state_view *state_pass(struct split *s, const struct state_view *v, int k, int which)
{
	struct state_view *to = &s->state[k][which];
	struct state_keep *keep;
	int first;

	if (!v)
		return NULL;
	first = state_area(s, v)->first;
	state_there(s, to, v, k);
	keep = s->keep[k][which] = xrealloc(s->keep[k][which], size_mul((size_t)v->n_keep + 1, sizeof *keep));
	for (int i = 0; i < v->n_keep && to->shape.layers; i++) {
		keep[i] = v->keep[i];
		keep[i].s = kept_there(s, keep[i].s, k, first, state_floats(&v->shape));
		keep[i].tail = kept_there(s, keep[i].tail, k, first, state_tail_floats(&v->shape));
	}
	to->keep = keep;
	return to->shape.layers ? to : NULL;
}

static const struct kv_view *kv_pass(struct split *s, const struct kv_view *v, int k, int group)
{
	struct kv_view *to = &s->kv[k][group];
	const struct area *a = v ? area_of(s, v->base) : NULL;

	if (!v)
		return NULL;
	*to = *v;
	to->base = a->mem[k];
	to->page_bytes = a->part[k];
	to->layer = a->layer[k];
	to->layers = k == FIRST ? a->first : v->layers - a->first;
	return to->layers ? to : NULL;
}

/* ---- passes ---- */

static void split_rehearse(struct backend *be)
{
	struct split *s = split_of(be);

	for (int k = 0; k < SIDES && s->learnt; k++)
		if (s->of[k]->ops->rehearse)
			s->of[k]->ops->rehearse(s->of[k]);
	s->rehearsing = true;
	s->learning = !s->learnt;
}

/* A model rehearses twice where a side rehearses, which needs to know where all layers lie. */
static int split_rehearsed(struct backend *be, struct err *err)
{
	struct split *s = split_of(be);
	int rc = 0;

	s->rehearsing = s->learning = false;
	if (!s->learnt) {
		s->learnt = s->of[FIRST]->ops->rehearsed || s->of[REST]->ops->rehearsed;
		return s->learnt ? REHEARSE_AGAIN : 0;
	}
	s->learnt = false;
	for (int k = 0; k < SIDES; k++) {
		struct err own;
		int code = s->of[k]->ops->rehearsed ? s->of[k]->ops->rehearsed(s->of[k], &own) : 0;

		if (code && !rc) {
			rc = code;
			*err = own;
		}
	}
	if (!rc && look(s)) {
		*err = s->be.failed;
		rc = err->code = s->full ? E_FULL : err->code;
	}
	return rc;
}

static void learn(struct split *s, const struct pass *p)
{
	const struct state_view *state[] = { p->state, p->past };

	for (int g = 0; g < KV_GROUPS; g++)
		if (p->kv[g])
			learn_in(area_of(s, p->kv[g]->base), p->kv[g]->layers);
	for (int i = 0; i < 2; i++)
		if (state[i])
			learn_in(state_area(s, state[i]), state[i]->shape.layers);
}

static int split_begin(struct pass *p)
{
	struct split *s = split_of(p->be);
	struct area *work = area_of(s, p->work.p);
	int rc = 0;

	s->pass = p;
	s->now = s->mixtures ? FIRST : REST;
	s->high = 0;
	if (work)
		work->at = STAY;
	if (s->learning) {
		learn(s, p);
		return 0;
	}
	for (int g = 0; g < KV_GROUPS; g++)
		if (p->kv[g])
			cut_kv(s, p->kv[g]);
	if (p->state)
		cut_state(s, p->state);
	if (p->past)
		cut_state(s, p->past);
	for (int k = 0; k < SIDES && !look(s); k++) {
		struct pass *q = &s->q[k];

		*q = *p;
		q->be = s->of[k];
		for (int g = 0; g < KV_GROUPS; g++)
			q->kv[g] = kv_pass(s, p->kv[g], k, g);
		q->state = state_pass(s, p->state, k, 0);
		q->past = state_pass(s, p->past, k, 1);
		rc = !look(s) && q->be->ops->begin ? q->be->ops->begin(q) : 0;
	}
	return rc ? look(s) : s->be.failed.code;
}

/* The first layers' part of what the pass kept joins the rest of it. */
static void join_kept(struct split *s, float *p, size_t floats)
{
	struct area *a = area_of(s, p);
	size_t at = a ? (size_t)((uint8_t *)p - a->p) : 0;
	uint8_t *to = a ? memory(s, a, REST, a->bytes) : NULL;

	if (!to || !a->mem[FIRST])
		return;
	carry(s, FIRST, a->mem[FIRST] + at, REST, to + at, floats * sizeof(float));
	a->at = REST;
}

static void join_snapshots(struct split *s, const struct state_view *v)
{
	for (int i = 0; v && i < v->n_keep; i++) {
		size_t first = (size_t)state_area(s, v)->first;

		join_kept(s, v->keep[i].s, first * state_floats(&v->shape));
		join_kept(s, v->keep[i].tail, first * state_tail_floats(&v->shape));
	}
	for (int i = 0; v && i < v->n_keep; i++) {
		struct area *a[] = { area_of(s, v->keep[i].s), area_of(s, v->keep[i].tail) };

		for (int n = 0; n < 2; n++)
			if (a[n])
				give_back(s, a[n], FIRST);
	}
}

static int split_end(struct pass *p)
{
	struct split *s = split_of(p->be);

	if (s->learning)
		return 0;
	for (int k = 0; k < SIDES; k++)
		if (s->of[k]->ops->end && s->q[k].be)
			s->of[k]->ops->end(&s->q[k]);
	if (!look(s)) {
		join_snapshots(s, p->state);
		join_snapshots(s, p->past);
	}
	return look(s);
}

/* Begins an operation on a side, STAY: that of the one before, FIRST with mixtures apart.  NULL: there is nothing to compute. */
static struct split *go(struct pass *p, int side)
{
	struct split *s = split_of(p->be);

	if (look(s))
		return NULL;
	assert(s->pass == p && "an operation of a pass that has not begun");
	if (side == STAY && s->mixtures)
		side = FIRST;
	s->now = side == STAY ? s->now : side;
	s->high = p->work.used > s->high ? p->work.used : s->high;
	return s->learning || (s->rehearsing && !s->of[s->now]->ops->rehearse) ? NULL : s;
}

/* The side of a layer of a view, in a rehearsal, in which it is learned. */
static int side_of(const struct split *s, struct area *a, int layer)
{
	if (!s->learning || a->period)
		return layer < a->first ? FIRST : REST;
	if (a->learned[layer] == STAY)
		a->learned[layer] = (int8_t)s->now;
	return a->learned[layer];
}

static int kv_side(const struct pass *p, const struct kv_view *view, int layer)
{
	const struct split *s = split_of(p->be);

	return view ? side_of(s, area_of(s, view->base), layer) : STAY;
}

static int state_side(const struct pass *p, const struct state_view *view, int layer)
{
	const struct split *s = split_of(p->be);

	return view ? side_of(s, state_area(s, view), layer) : STAY;
}

/* The pass's view and a layer of it as the operation's side knows them. */
static const struct kv_view *kv_there(const struct split *s, const struct kv_view *view, int *layer)
{
	for (int g = 0; g < KV_GROUPS && view; g++)
		if (s->pass->kv[g] == view) {
			*layer -= s->now == FIRST ? 0 : area_of(s, view->base)->first;
			return &s->kv[s->now][g];
		}
	assert(!view && "a view that is not the pass's");
	return NULL;
}

static const struct state_view *state_view_there(struct split *s, const struct state_view *view, int *layer)
{
	int which = view == s->pass->past;

	if (!view)
		return NULL;
	assert(which || view == s->pass->state);
	*layer -= s->now == FIRST ? 0 : state_area(s, view)->first;
	return &s->state[s->now][which];
}

/* ---- operations ---- */

/* Replaces an argument of an operation with its address on the side that computes. */
#define HERE(x) ((x) = at(s, (x)))
#define CALL(op, ...)                                                       \
	do {                                                                \
		if (!look(s)) {                                             \
			s->of[s->now]->ops->op(&s->q[s->now], __VA_ARGS__); \
			look(s);                                            \
		}                                                           \
	} while (0)

static void split_embed(struct pass *p, float *out, const struct weight *w)
{
	struct split *s = go(p, matrix(p, w));

	if (!s)
		return;
	HERE(out);
	CALL(embed, out, w);
}

static void split_bring(struct pass *p, float *x, int cols, int level)
{
	struct split *s = go(p, STAY);

	if (!s)
		return;
	HERE(x);
	CALL(bring, x, cols, level);
}

static void split_norm(struct pass *p, float *out, const float *in, int n, int cols, const float *gain, float eps)
{
	struct split *s = go(p, STAY);

	if (!s)
		return;
	HERE(out);
	HERE(in);
	HERE(gain);
	CALL(norm, out, in, n, cols, gain, eps);
}

static void split_layer_norm(struct pass *p, float *out, const float *in, int n, int cols, const float *gain,
                             const float *bias, float eps)
{
	struct split *s = go(p, STAY);

	if (!s)
		return;
	HERE(out);
	HERE(in);
	CALL(layer_norm, out, in, n, cols, gain, bias, eps);
}

/* The one product that reads what stays in a form of the side's own must be on this side too. */
static const struct weight *reader_there(const struct split *s, const struct weight *w)
{
	int side = w ? matrix(s->pass, w) : STAY;

	return side == STAY || side == s->now ? w : NULL;
}

static void split_linear(struct pass *p, const struct linear *job, int n_job, const float *in, int n, int cols)
{
	struct split *s = go(p, matrix(p, job[0].w));
	struct linear to[LINEAR_JOBS];

	if (!s)
		return;
	HERE(in);
	for (int i = 0; i < n_job; i++) {
		assert(matrix(p, job[i].w) == matrix(p, job[0].w) && "products of one input on two sides");
		to[i] = job[i];
		HERE(to[i].out);
		to[i].reader = reader_there(s, job[i].reader);
	}
	CALL(linear, to, n_job, in, n, cols);
}

static void split_by_head(struct pass *p, float *out, const struct by_head *h, const float *in, int n)
{
	struct split *s = go(p, matrix(p, h->w));

	if (!s)
		return;
	HERE(out);
	HERE(in);
	CALL(by_head, out, h, in, n);
}

static void split_kv_append(struct pass *p, const struct attn *a, float *q, size_t q_row, size_t q_head, float *k,
                            const float *v, const struct kv_view *view, int layer)
{
	struct split *s = go(p, kv_side(p, view, layer));

	if (!s)
		return;
	HERE(q);
	HERE(k);
	HERE(v);
	view = kv_there(s, view, &layer);
	CALL(kv_append, a, q, q_row, q_head, k, v, view, layer);
}

static void split_attend(struct pass *p, float *out, const struct attn *a, const float *q, const float *gate,
                         size_t q_row, size_t q_head, const struct kv_view *view, int layer)
{
	struct split *s = go(p, kv_side(p, view, layer));

	if (!s)
		return;
	HERE(out);
	HERE(q);
	HERE(gate);
	view = kv_there(s, view, &layer);
	CALL(attend, out, a, q, gate, q_row, q_head, view, layer);
}

static void split_choose(struct pass *p, int32_t *chosen, int most, const struct attn *a, const float *q, size_t q_row,
                         size_t q_head, const float *weight, const struct kv_view *view, int layer)
{
	struct split *s = go(p, kv_side(p, view, layer));

	if (!s)
		return;
	HERE(chosen);
	HERE(q);
	HERE(weight);
	view = kv_there(s, view, &layer);
	CALL(choose, chosen, most, a, q, q_row, q_head, weight, view, layer);
}

static void split_attend_chosen(struct pass *p, float *out, const struct attn *a, const float *q, const float *gate,
                                size_t q_row, size_t q_head, const int32_t *chosen, int most,
                                const struct kv_view *view, int layer)
{
	struct split *s = go(p, kv_side(p, view, layer));
	struct attn to = *a;

	assert(!a->rows || kv_side(p, a->rows, a->rows_layer) == kv_side(p, view, layer));
	if (!s)
		return;
	HERE(out);
	HERE(q);
	HERE(gate);
	HERE(chosen);
	view = kv_there(s, view, &layer);
	to.rows = kv_there(s, a->rows, &to.rows_layer);
	CALL(attend_chosen, out, &to, q, gate, q_row, q_head, chosen, most, view, layer);
}

static void split_compress(struct pass *p, const struct compress *c, const float *k, const float *v,
                           const struct kv_view *raw, int raw_layer, const struct kv_view *view, int layer)
{
	struct split *s = go(p, kv_side(p, raw, raw_layer));

	assert(kv_side(p, raw, raw_layer) == kv_side(p, view, layer));
	if (!s)
		return;
	HERE(k);
	HERE(v);
	raw = kv_there(s, raw, &raw_layer);
	view = kv_there(s, view, &layer);
	CALL(compress, c, k, v, raw, raw_layer, view, layer);
}

static void split_conv(struct pass *p, float *out, const struct conv *c, int n_conv, const float *in, int from, int n,
                       const struct state_view *view, int layer)
{
	struct split *s = go(p, state_side(p, view, layer));

	if (!s)
		return;
	HERE(out);
	HERE(in);
	view = state_view_there(s, view, &layer);
	CALL(conv, out, c, n_conv, in, from, n, view, layer);
}

static void split_recur(struct pass *p, float *out, const struct recur *r, const struct recur_in *in,
                        const struct state_view *view, int layer)
{
	struct split *s = go(p, state_side(p, view, layer));
	struct recur_in from = *in;
	struct recur to = *r;

	if (!s)
		return;
	HERE(out);
	HERE(from.x);
	HERE(from.z);
	HERE(from.b);
	HERE(from.a);
	to.reader = reader_there(s, r->reader);
	view = state_view_there(s, view, &layer);
	CALL(recur, out, &to, &from, view, layer);
}

static void split_tape_apply(struct backend *be, const struct state_view *view, int slot, int keep)
{
	struct split *s = split_of(be);

	cut_state(s, view);
	for (int k = 0; k < SIDES && !look(s); k++) {
		struct state_view to;

		state_there(s, &to, view, k);
		if (to.shape.layers)
			s->of[k]->ops->tape_apply(s->of[k], &to, slot, keep);
	}
}

/* The addresses of some numbers on both sides; FIRST goes on holding them. */
struct both {
	uint8_t *p[SIDES]; /* NULL: the device is lost */
};

/* Finds p on both sides, and copies that many floats to REST. */
static struct both on_both(struct split *s, const float *p, size_t floats)
{
	struct area *a = area_of(s, p);
	struct both b = { { NULL } };
	uint8_t *rest;

	s->now = FIRST;
	b.p[FIRST] = at(s, p);
	rest = p ? memory(s, a, REST, a->bytes) : NULL;
	if (!b.p[FIRST] || !rest)
		return b;
	b.p[REST] = rest + ((const uint8_t *)p - a->p);
	carry(s, FIRST, b.p[FIRST], REST, b.p[REST], floats * sizeof(float));
	return b;
}

/* The rows that a mixture reads and writes go over, and no other work memory. */
static void moe_apart(struct split *s, float *out, bool add, const struct moe *m, const float *in, const float *by,
                      int n, int cols)
{
	size_t rows = (size_t)n, floats = rows * (size_t)cols;
	struct both to = on_both(s, out, add ? floats : 0), from = on_both(s, in, floats),
		    read = on_both(s, by, by ? rows * (size_t)m->router->cols : 0);

	s->now = REST;
	CALL(moe, (float *)to.p[REST], add, m, (float *)from.p[REST], (float *)read.p[REST], n, cols);
	if (!look(s))
		carry(s, REST, to.p[REST], FIRST, to.p[FIRST], floats * sizeof(float));
	s->now = FIRST;
}

/* REST reads the experts that are on disk. */
static int split_stream(struct backend *be, struct moe *const *mix, int n, const struct stream_opts *o, struct err *err)
{
	struct backend *rest = split_of(be)->of[REST];

	return rest->ops->stream(rest, mix, n, o, err);
}

static size_t split_stream_shrink(struct backend *be, size_t bytes)
{
	struct backend *rest = split_of(be)->of[REST];

	return rest->ops->stream_shrink(rest, bytes);
}

static void split_stream_stats(const struct backend *be, struct stream_stats *to)
{
	const struct backend *rest = ((const struct split *)be)->of[REST];

	rest->ops->stream_stats(rest, to);
}

static void split_moe(struct pass *p, float *out, bool add, const struct moe *m, const float *in, const float *by,
                      int n, int cols)
{
	struct split *s = go(p, split_of(p->be)->mixtures ? REST : matrix(p, m->down));

	if (!s)
		return;
	if (s->mixtures) {
		moe_apart(s, out, add, m, in, by, n, cols);
		if (!p->spoil.why.code)
			p->spoil.why = s->q[REST].spoil.why;
		return;
	}
	HERE(out);
	HERE(in);
	HERE(by);
	CALL(moe, out, add, m, in, by, n, cols);
}

static void split_heads(struct pass *p, float *out, int out_dim, const float *in, int in_dim, int n, int heads,
                        const struct grid_rope *rope)
{
	struct split *s = go(p, STAY);
	struct grid_rope to;

	if (!s)
		return;
	HERE(out);
	HERE(in);
	if (rope) {
		to = *rope;
		for (int i = 0; i < 2; i++) {
			HERE(to.cos[i]);
			HERE(to.sin[i]);
		}
	}
	CALL(heads, out, out_dim, in, in_dim, n, heads, rope ? &to : NULL);
}

static void split_gate(struct pass *p, float *x, const float *y, int n, int cols, const struct activation *act)
{
	struct split *s = go(p, STAY);

	if (!s)
		return;
	HERE(x);
	HERE(y);
	CALL(gate, x, y, n, cols, act);
}

static void split_affine(struct pass *p, float *x, int n, int cols, const float *gain, const float *shift, float low,
                         float high)
{
	struct split *s = go(p, STAY);

	if (!s)
		return;
	HERE(x);
	CALL(affine, x, n, cols, gain, shift, low, high);
}

static void split_add(struct pass *p, float *x, const float *y, int n, int cols, float scale)
{
	struct split *s = go(p, STAY);

	if (!s)
		return;
	HERE(x);
	HERE(y);
	CALL(add, x, y, n, cols, scale);
}

static void split_map(struct pass *p, float *x, int n, int cols, float scale, float cap)
{
	struct split *s = go(p, STAY);

	if (!s)
		return;
	HERE(x);
	CALL(map, x, n, cols, scale, cap);
}

static void split_mul(struct pass *p, float *x, const float *y, size_t y_ld, int each, int n, int cols)
{
	struct split *s = go(p, STAY);

	if (!s)
		return;
	HERE(x);
	HERE(y);
	CALL(mul, x, y, y_ld, each, n, cols);
}

static void split_blend(struct pass *p, float *out, size_t out_ld, const float *a, const float *b, const float *t,
                        int n, int cols)
{
	struct split *s = go(p, STAY);

	if (!s)
		return;
	HERE(out);
	HERE(a);
	HERE(b);
	HERE(t);
	CALL(blend, out, out_ld, a, b, t, n, cols);
}

static void split_mix_streams(struct pass *p, float *out, const float *x, const float *by, int n, int streams, int cols)
{
	struct split *s = go(p, STAY);

	if (!s)
		return;
	HERE(out);
	HERE(x);
	HERE(by);
	CALL(mix_streams, out, x, by, n, streams, cols);
}

static void split_add_streams(struct pass *p, float *x, bool add, const float *y, const float *by, float scale, int n,
                              int streams, int cols)
{
	struct split *s = go(p, STAY);

	if (!s)
		return;
	HERE(x);
	HERE(y);
	HERE(by);
	CALL(add_streams, x, add, y, by, scale, n, streams, cols);
}

static void split_match_streams(struct pass *p, float *out, const float *a, const float *b, float scale, int n,
                                int streams, int cols)
{
	struct split *s = go(p, STAY);

	if (!s)
		return;
	HERE(out);
	HERE(a);
	HERE(b);
	CALL(match_streams, out, a, b, scale, n, streams, cols);
}

static void split_conv_block(struct pass *p, float *out, const float *in, const float *base, const float *by,
                             size_t by_ld, int taps, int each, int cols)
{
	struct split *s = go(p, STAY);

	if (!s)
		return;
	HERE(out);
	HERE(in);
	HERE(by);
	CALL(conv_block, out, in, base, by, by_ld, taps, each, cols);
}

static void split_gate_streams(struct pass *p, float *out, float *z, const struct stream_gates *g, const float *x,
                               int n, int cols)
{
	struct split *s = go(p, STAY);

	if (!s)
		return;
	HERE(out);
	HERE(z);
	HERE(x);
	CALL(gate_streams, out, z, g, x, n, cols);
}

static void split_join_streams(struct pass *p, float *x, const float *gates, const float *y, int n, int streams,
                               int cols)
{
	struct split *s = go(p, STAY);

	if (!s)
		return;
	HERE(x);
	HERE(gates);
	HERE(y);
	CALL(join_streams, x, gates, y, n, streams, cols);
}

static void split_mean_streams(struct pass *p, float *out, const float *x, int n, int streams, int cols)
{
	struct split *s = go(p, STAY);

	if (!s)
		return;
	HERE(out);
	HERE(x);
	CALL(mean_streams, out, x, n, streams, cols);
}

static void split_embed_ngrams(struct pass *p, float *out, const struct ngrams *g, const struct state_view *view,
                               int layer, int channel)
{
	struct split *s = go(p, matrix(p, g->part));

	assert(state_side(p, view, layer) == split_of(p->be)->now && "a table and its history on two sides");
	if (!s)
		return;
	HERE(out);
	view = state_view_there(s, view, &layer);
	CALL(embed_ngrams, out, g, view, layer, channel);
}

static void split_gather(struct pass *p, float *out, const float *in, const int32_t *index, int n, int cols)
{
	struct split *s = go(p, STAY);

	if (!s)
		return;
	HERE(out);
	HERE(in);
	CALL(gather, out, in, index, n, cols);
}

static void split_close(struct backend *be)
{
	struct split *s = split_of(be);

	while (s->n_area)
		split_free(be, s->area[0]->p, s->area[0]->bytes);
	for (int k = 0; k < SIDES; k++) {
		s->of[k]->ops->close(s->of[k]);
		free(s->keep[k][0]);
		free(s->keep[k][1]);
	}
	free(s->area);
	free(s->range);
	free(s->bounce);
	free(s);
}

static const struct backend_ops split_ops = {
	.name = "split",
	.alloc = split_alloc,
	.free = split_free,
	.discard = split_discard,
	.write = split_write,
	.read = split_read,
	.copy = split_copy,
	.place = split_place,
	.unplace = split_unplace,
	.pack = split_pack,
	.rehearse = split_rehearse,
	.rehearsed = split_rehearsed,
	.begin = split_begin,
	.end = split_end,
	.embed = split_embed,
	.bring = split_bring,
	.norm = split_norm,
	.layer_norm = split_layer_norm,
	.linear = split_linear,
	.by_head = split_by_head,
	.kv_append = split_kv_append,
	.attend = split_attend,
	.choose = split_choose,
	.attend_chosen = split_attend_chosen,
	.conv = split_conv,
	.compress = split_compress,
	.recur = split_recur,
	.tape_apply = split_tape_apply,
	.moe = split_moe,
	.heads = split_heads,
	.gate = split_gate,
	.affine = split_affine,
	.add = split_add,
	.map = split_map,
	.mul = split_mul,
	.blend = split_blend,
	.mix_streams = split_mix_streams,
	.add_streams = split_add_streams,
	.match_streams = split_match_streams,
	.conv_block = split_conv_block,
	.gate_streams = split_gate_streams,
	.join_streams = split_join_streams,
	.mean_streams = split_mean_streams,
	.embed_ngrams = split_embed_ngrams,
	.gather = split_gather,
	.close = split_close,
};

static struct split *open_both(struct backend *first, struct backend *rest)
{
	struct split *s = xcalloc(1, sizeof *s);

	assert(!strcmp(first->order, rest->order));
	s->of[FIRST] = first;
	s->of[REST] = rest;
	s->bounce = xmalloc(BOUNCE);
	s->ops = split_ops;
	s->ops.adapts = first->ops->adapts &&
	                rest->ops->adapts; /* both have an adapter's matrices, which are of no layer */
	s->be = (struct backend){
		.ops = &s->ops,
		.arithmetic = strcmp(first->arithmetic, rest->arithmetic) != 0 ? s->arithmetic : first->arithmetic,
		.order = rest->order,
		.level = s->level,
		.threads = rest->threads,
	};
	return s;
}

struct backend *split_open(struct backend *first, struct backend *rest, int layers)
{
	struct split *s = open_both(first, rest);

	s->layers = layers;
	snprintf(s->level, sizeof s->level, "%.90s for %d layers, then %.60s", first->level, layers, rest->level);
	snprintf(s->arithmetic, sizeof s->arithmetic, "%s %d %s", first->arithmetic, layers, rest->arithmetic);
	return &s->be;
}

struct backend *split_open_mixtures(struct backend *first, struct backend *rest)
{
	struct split *s = open_both(first, rest);

	assert(rest->ops->near);
	s->mixtures = true;
	if (rest->ops->stream) {
		s->ops.stream = split_stream;
		s->ops.stream_shrink = split_stream_shrink;
		s->ops.stream_stats = split_stream_stats;
	}
	s->layers = INT_MAX;
	snprintf(s->level, sizeof s->level, "%.90s, experts on %.60s", first->level, rest->level);
	snprintf(s->arithmetic, sizeof s->arithmetic, "%s experts %s", first->arithmetic, rest->arithmetic);
	return &s->be;
}
