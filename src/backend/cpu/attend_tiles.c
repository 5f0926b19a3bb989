/* attend_tiles.c - attention over bf16 keys and values by products of bf16.  For a unit of
 * many queries a segment is laid out once, and all of them go over it while it is in the
 * second cache; few may go over it as it lies.
 *
 * A segment has one softmax; segments are merged in rising order. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "backend/cpu/attend.h"

_Static_assert((int)ATTN_SEGMENT == (int)KV_SEGMENT, "a segment is one softmax");

/* The part of a unit's next segment that each of n calls of the kernel prefetches. */
struct ahead {
	const uint8_t *run[2 * KV_SEGMENT / KV_RUN];
	int n, each;
};

/* A thread's memory. */
struct desk {
	uint8_t *q, *laid, *work; /* of all queries; of a segment; the kernel's */
	uint8_t *copy[2];         /* a segment's keys and values, where runs of them do not lie in pages */
	float *acc, *m, *l;       /* of KV_QUERIES queries and a segment */
	struct partial all;       /* merged, of all queries */
	struct ahead ahead;
	bool few;   /* nothing is laid */
	bool fresh; /* this segment was not prefetched */
};

static size_t lines(size_t bytes)
{
	return (bytes + 63) / 64 * 64;
}
static bool runs_lie(const struct attend *d)
{
	return d->view->page_rows % KV_RUN == 0 && !d->chosen;
}

static size_t desk_lay(const struct attend *d, struct desk *k, uint8_t *p)
{
	size_t nq = (size_t)(d->rows_most * d->group), dim = (size_t)d->a->dim, at = 0;
	size_t copy = runs_lie(d) ? 0 : KV_SEGMENT * dim * 2, few = KV_QUERIES * sizeof(float),
	       many = lines(nq * sizeof(float));

#define TAKE(field, bytes) (k->field = (void *)(p + at), at += lines(bytes))
	TAKE(q, (nq + KV_QUERIES - 1) / KV_QUERIES * d->tiles->query_bytes(d->a->dim));
	TAKE(laid, d->tiles->laid_bytes(d->a->dim));
	TAKE(work, d->tiles->work_bytes);
	TAKE(copy[KV_KEYS], copy);
	TAKE(copy[KV_VALUES], copy);
	TAKE(acc, KV_QUERIES * dim * sizeof(float));
	TAKE(m, few);
	TAKE(l, few);
	TAKE(all.acc, nq * dim * sizeof(float));
	TAKE(all.m, many);
	TAKE(all.l, many);
#undef TAKE
	return at;
}

size_t attend_tiles_scratch(const struct attend *d)
{
	struct desk k;
	uint8_t none[1];

	return desk_lay(d, &k, none);
}

static void load_queries(const struct attend *d, const struct unit *u, uint8_t *to, bool few)
{
	int nq = queries_of(d, u);

	for (int j = 0; j < nq; j += KV_QUERIES, to += d->tiles->query_bytes(d->a->dim)) {
		const float *q[KV_QUERIES];
		int n = nq - j < KV_QUERIES ? nq - j : KV_QUERIES;

		for (int i = 0; i < n; i++)
			q[i] = d->q + (size_t)(u->row + (j + i) / d->group) * d->q_row +
			       (size_t)(u->kv_head * d->group + (j + i) % d->group) * d->q_head;
		d->tiles->queries(to, q, n, d->a->dim, few);
	}
}

static struct desk desk_of(const struct attend *d, const struct unit *u)
{
	struct desk k;

	desk_lay(d, &k, cpu_my_scratch(d->c));
	k.few = queries_of(d, u) <= d->tiles->few;
	load_queries(d, u, k.q, k.few);
	return k;
}

/* How many positions of a segment query j of the unit sees; below 1: none. */
static int sees(const struct attend *d, const struct unit *u, int j, int seg)
{
	int n = last_seen(d, u->row + j / d->group) + 1 - seg * ATTN_SEGMENT;

	return n < ATTN_SEGMENT ? n : ATTN_SEGMENT;
}

/* The first position of a segment that query j of the unit sees; from ATTN_SEGMENT on: none. */
static int sees_from(const struct attend *d, const struct unit *u, int j, int seg)
{
	int first = first_seen(d, u->row + j / d->group) - seg * ATTN_SEGMENT;

	return first > 0 ? first : 0;
}

/* Queries [j0, *end) of the unit see something of the segment; returns j0. */
static int queries_seeing(const struct attend *d, const struct unit *u, int seg, int *end)
{
	int j = 0;

	*end = queries_of(d, u);
	while (j < *end && sees(d, u, j, seg) < 1)
		j++;
	while (*end > j && sees_from(d, u, *end - 1, seg) >= ATTN_SEGMENT)
		--*end;
	return j;
}

/* Where positions [first, n) of a segment lie, in runs. */
static void segment_lay(const struct attend *d, const struct unit *u, struct desk *k, struct kv_segment *s, int seg,
                        int first, int n)
{
	int begin = seg * ATTN_SEGMENT, least = first / KV_RUN;

	s->first = first;
	s->n = n;
	for (enum kv_side side = KV_KEYS; side <= KV_VALUES; side++) {
		const uint8_t **run = side == KV_KEYS ? s->key : s->value;
		size_t bytes = d->view->layer[d->layer].row_bytes[side];

		for (int i = first; i < n && !runs_lie(d); i++)
			memcpy(k->copy[side] + (size_t)i * bytes, unit_row_at(d, u, side, begin + i), bytes);
		for (int i = least; i * KV_RUN < n; i++)
			run[i] = runs_lie(d) ? unit_row_at(d, u, side, begin + i * KV_RUN) :
			                       k->copy[side] + (size_t)(i * KV_RUN) * bytes;
		for (int i = 0; i < least; i++)
			run[i] = run[least];
	}
}

/* Prefetches the segment after this one: the more queries a unit has, the less its reading of keys and values
 * must wait; few ask for values themselves. */
static void ahead_lay(const struct attend *d, const struct unit *u, struct desk *k, int seg)
{
	struct ahead *h = &k->ahead;
	int calls = k->few ? 1 : (queries_of(d, u) + KV_QUERIES - 1) / KV_QUERIES - k->fresh, n;

	h->n = 0;
	if (++seg >= segments_end(d, u) || calls < 1 || !runs_lie(d))
		return;
	n = sees(d, u, queries_of(d, u) - 1, seg);
	for (enum kv_side side = KV_KEYS; side <= (k->few ? KV_KEYS : KV_VALUES); side++)
		for (int i = sees_from(d, u, 0, seg) / KV_RUN * KV_RUN; i < n; i += KV_RUN)
			h->run[h->n++] = unit_row_at(d, u, side, seg * ATTN_SEGMENT + i);
	h->each = (h->n + calls - 1) / calls;
}

static struct partial partial_of(const struct attend *d, int unit, int seg)
{
	size_t nq = (size_t)(d->rows_most * d->group);
	float *p = partial_at(d, unit, seg);

	return (struct partial){ p, p + nq * (size_t)d->a->dim, p + nq * (size_t)(d->a->dim + 1) + KV_TILES_LINE };
}

/* Queries [j0, j1) of the unit, which see something of the segment, over its first `most` positions at most; to NULL: merged at
 * once. */
static void attend_queries(const struct attend *d, const struct unit *u, struct desk *k, const struct kv_segment *s,
                           int seg, int j0, int j1, int most, const struct partial *to)
{
	int dim = d->a->dim, n;

	for (int at = j0 / KV_QUERIES * KV_QUERIES; at < j1; at += n) {
		int32_t from[KV_QUERIES], see[KV_QUERIES];
		struct kv_attend a = { .acc = k->acc,
			               .max = k->m,
			               .sum = k->l,
			               .from = from,
			               .see = see,
			               .seg = s,
			               .work = k->work,
			               .laid = k->few ? NULL : k->laid,
			               .room = k->laid };
		int first = at > j0 ? at : j0;

		n = j1 - at < KV_QUERIES ? j1 - at : KV_QUERIES;
		for (int i = 0; i < KV_QUERIES; i++) {
			int j = at + (i < n ? i : n - 1);

			from[i] = sees_from(d, u, j, seg);
			see[i] = sees(d, u, j, seg);
			see[i] = see[i] < most ? see[i] : most;
		}
		a.queries = k->q + (size_t)(at / KV_QUERIES) * d->tiles->query_bytes(dim);
		a.n = n;
		a.fresh = k->fresh && at <= j0;
		if ((k->few || !a.fresh) && k->ahead.n) {
			a.n_ask = k->ahead.each < k->ahead.n ? k->ahead.each : k->ahead.n;
			a.ask = k->ahead.run + (k->ahead.n -= a.n_ask);
		}
		d->tiles->attend(&a, dim, d->a->scale);
		n = at + n - first;
		if (to) {
			memcpy(to->acc + (size_t)first * (size_t)dim, k->acc + (size_t)(first - at) * (size_t)dim,
			       (size_t)n * (size_t)dim * sizeof(float));
			memcpy(to->m + first, k->m + (first - at), (size_t)n * sizeof(float));
			memcpy(to->l + first, k->l + (first - at), (size_t)n * sizeof(float));
		} else {
			d->tiles->merge(k->all.acc + (size_t)first * (size_t)dim, k->all.m + first, k->all.l + first,
			                k->acc + (size_t)(first - at) * (size_t)dim, k->m + (first - at),
			                k->l + (first - at), n, dim, d->a->scale);
		}
		n += first - at;
	}
}

/* Values that the unit's rows all see, [begin, end), may be anything: the others are numbers, of which zero times adds
 * nothing. */
static bool others_finite(const struct attend *d, const struct unit *u, const struct kv_segment *s, int seg, int j0,
                          int j1)
{
	int begin = sees_from(d, u, j1 - 1, seg), end = sees(d, u, j0, seg);

	if (begin >= end)
		return d->tiles->finite(s, s->first, s->n, d->a->dim);
	return d->tiles->finite(s, s->first, begin, d->a->dim) && d->tiles->finite(s, end, s->n, d->a->dim);
}

/* A key that a row does not see must not even add zero times itself: where the values that some row does not see are not
 * all numbers, each row gets a layout of its own, with zeros for them. */
static void attend_segment(const struct attend *d, const struct unit *u, struct desk *k, int seg,
                           const struct partial *to)
{
	int j1, j0 = queries_seeing(d, u, seg, &j1);
	struct kv_segment s;

	if (j0 == j1)
		return;
	segment_lay(d, u, k, &s, seg, sees_from(d, u, j0, seg), sees(d, u, j1 - 1, seg));
	if (others_finite(d, u, &s, seg, j0, j1)) {
		if (!k->few)
			d->tiles->lay(k->laid, &s, s.n, d->a->dim);
		attend_queries(d, u, k, &s, seg, j0, j1, s.n, to);
		return;
	}
	for (int j = j0; j < j1; j += d->group) {
		int see = sees(d, u, j, seg);

		s.first = sees_from(d, u, j, seg);
		if (!k->few)
			d->tiles->lay(k->laid, &s, see, d->a->dim);
		attend_queries(d, u, k, &s, seg, j, j + d->group, see, to);
	}
}

void attend_tiles_unit(void *ctx, int part)
{
	const struct attend *d = ctx;
	const struct unit *u = &d->unit[part];
	struct desk k = desk_of(d, u);

	k.fresh = true;
	merged_init(d, u, &k.all);
	for (int seg = segment_first(d, u), n = segments_end(d, u); seg < n; seg++) {
		bool asked;

		ahead_lay(d, u, &k, seg);
		asked = k.ahead.n > 0;
		attend_segment(d, u, &k, seg, NULL);
		k.fresh = !asked;
	}
	merged_finish(d, u, &k.all);
}

void attend_tiles_part(void *ctx, int part)
{
	const struct attend *d = ctx;
	int unit = part / d->n_seg, nth = part % d->n_seg;
	const struct unit *u = &d->unit[unit];
	int seg = segment_first(d, u) + nth;
	struct partial to;
	struct desk k;

	if (seg >= segments_end(d, u))
		return;
	to = partial_of(d, unit, nth);
	k = desk_of(d, u);
	/* Few: the segment before is most often of this thread, which asked for this one's keys. */
	k.fresh = !k.few || nth == 0;
	k.ahead.n = 0;
	if (k.few)
		ahead_lay(d, u, &k, seg);
	attend_segment(d, u, &k, seg, &to);
}

void attend_tiles_merge(void *ctx, int unit)
{
	const struct attend *d = ctx;
	const struct unit *u = &d->unit[unit];
	struct desk k;

	desk_lay(d, &k, cpu_my_scratch(d->c));
	merged_init(d, u, &k.all);
	for (int seg = segment_first(d, u); seg < segments_end(d, u); seg++) {
		struct partial p = partial_of(d, unit, seg - segment_first(d, u));
		int end, j = queries_seeing(d, u, seg, &end);

		d->tiles->merge(k.all.acc + (size_t)j * (size_t)d->a->dim, k.all.m + j, k.all.l + j,
		                p.acc + (size_t)j * (size_t)d->a->dim, p.m + j, p.l + j, end - j, d->a->dim,
		                d->a->scale);
	}
	merged_finish(d, u, &k.all);
}
