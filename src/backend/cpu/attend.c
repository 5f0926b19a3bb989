/* attend.c - attention over keys and values in their pages.
 *
 * Softmax runs online over blocks of ATTN_BLOCK keys at absolute positions, and
 * every ATTN_SEGMENT keys make a partial (max, sum, acc) that is merged in
 * rising order: always, so that spreading the segments of a long context over
 * threads changes no bit.  Pages only say where a position's row lies.  Segments
 * and blocks of which a window shows nothing are passed over: their weights
 * would be zeros, which change no sum.
 *
 * A unit of many queries goes over a block some queries at a time, while the block is in
 * the second cache: opened as floats once for all of them.  For few the kernels read the
 * rows as they lie.  The bits are the same. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "backend/cpu/attend.h"

enum {
	TOGETHER = 16,   /* queries that go over a block at a time: they stay in the first cache */
	OPEN_LEAST = 32, /* queries of a unit from which on a block of keys or values is dequantised to floats */
};

_Static_assert((int)ATTN_BLOCK == (int)KV_BLOCK, "what is opened is a block");

/* A thread's workspace: queries, a dequantised block, scores of the queries computed
 * together, accumulators of a segment, merged accumulators. */
struct desk {
	uint8_t *q;
	float *open[2], *s, *acc, *m, *l;
	struct partial all;
};

/* Rows whose queries go together. */
static int rows_together(const struct attend *d)
{
	return d->group < TOGETHER ? TOGETHER / d->group : 1;
}

static size_t desk_lay(const struct attend *d, struct desk *k, uint8_t *p)
{
	size_t nq = (size_t)(d->rows_most * d->group), dim = (size_t)d->a->dim, at = 0;

#define TAKE(field, bytes) (k->field = (void *)(p + at), at += ((bytes) + 63) / 64 * 64)
	TAKE(q, nq * d->q_bytes);
	TAKE(open[KV_KEYS], d->opens ? kv_opened_bytes(d->a->dim) : 0);
	TAKE(open[KV_VALUES], d->opens ? kv_opened_bytes(d->a->dim) : 0);
	TAKE(s, (size_t)(rows_together(d) * d->group) * ATTN_BLOCK * sizeof(float));
	TAKE(acc, nq * dim * sizeof(float));
	TAKE(m, nq * sizeof(float));
	TAKE(l, nq * sizeof(float));
	TAKE(all.acc, nq * dim * sizeof(float));
	TAKE(all.m, nq * sizeof(float));
	TAKE(all.l, nq * sizeof(float));
#undef TAKE
	return at;
}

static size_t desk_bytes(const struct attend *d)
{
	struct desk k;
	uint8_t none[1];

	return desk_lay(d, &k, none);
}

static struct desk desk_of(const struct attend *d)
{
	struct desk k;

	desk_lay(d, &k, cpu_my_scratch(d->c));
	return k;
}

static void load_queries(const struct attend *d, const struct unit *u, uint8_t *q)
{
	for (int r = 0; r < u->n_row; r++)
		for (int h = 0; h < d->group; h++, q += d->q_bytes)
			d->kv[KV_KEYS].query(q,
			                     d->q + (size_t)(u->row + r) * d->q_row +
			                             (size_t)(u->kv_head * d->group + h) * d->q_head,
			                     d->a->dim);
}

/* Keys or values [at, at + n), of which the first *run lie one after the other. */
static const uint8_t *rows_at(const struct attend *d, const struct unit *u, enum kv_side side, int at, int n, int *run)
{
	const int32_t *pos = d->chosen ? chosen_of(d, u->row) + 1 + at : NULL;
	bool row = pos && *pos < 0;
	const struct kv_view *v = row ? d->a->rows : d->view;
	int step = row ? -1 : 1, in_page = v->page_rows / (row ? v->every : 1);
	int most = in_page - (row ? ~*pos : pos ? *pos : at) % in_page;

	most = most < n ? most : n;
	*run = pos ? 1 : most;
	while (*run < most && pos[*run] == *pos + step * *run)
		++*run;
	return unit_row_at(d, u, side, at);
}

static bool opened(const struct attend *d, const struct unit *u)
{
	return d->opens && queries_of(d, u) >= OPEN_LEAST;
}

static void block_open(const struct attend *d, const struct unit *u, const struct desk *k, int at, int from, int n)
{
	for (enum kv_side side = d->kv[KV_KEYS].score_opened ? KV_KEYS : KV_VALUES; side <= KV_VALUES; side++)
		for (int i = from, run; i < n; i += run) {
			const uint8_t *rows = rows_at(d, u, side, at + i, n - i, &run);

			d->kv[side].open(k->open[side] + i * KV_PANEL, rows, run, d->a->dim);
		}
}

/* Scores of keys [at + from, at + n). */
static void scores(const struct attend *d, const struct unit *u, const struct desk *k, const uint8_t *q, int nq, int at,
                   int from, int n, struct kv_ahead *next)
{
	const struct kv_kernels *keys = &d->kv[KV_KEYS];

	if (opened(d, u) && keys->score_opened) {
		keys->score_opened(k->s + from, ATTN_BLOCK, q, nq, k->open[KV_KEYS] + from * KV_PANEL, n - from,
		                   d->a->dim);
		return;
	}
	for (int i = from, run; i < n; i += run) {
		const uint8_t *rows = rows_at(d, u, KV_KEYS, at + i, n - i, &run);

		keys->score(k->s + i, ATTN_BLOCK, q, nq, rows, run, d->a->dim, next);
	}
}

/* Values of the same. */
static void mixes(const struct attend *d, const struct unit *u, const struct desk *k, float *acc, const float *s,
                  int nq, int at, int from, int n, struct kv_ahead *next)
{
	const struct kv_kernels *values = &d->kv[KV_VALUES];

	if (opened(d, u)) {
		values->mix_opened(acc, s + from, ATTN_BLOCK, nq, k->open[KV_VALUES] + from * KV_PANEL, n - from,
		                   d->a->dim);
		return;
	}
	for (int i = from, run; i < n; i += run) {
		const uint8_t *rows = rows_at(d, u, KV_VALUES, at + i, n - i, &run);

		values->mix(acc, s + i, ATTN_BLOCK, nq, rows, run, d->a->dim, next);
	}
}

/* Keys or values [at, at + n) as what is read next: of them those that lie one after the other. */
static struct kv_ahead ahead_of(const struct attend *d, const struct unit *u, enum kv_side side, int at, int n)
{
	const uint8_t *rows;
	int run;

	if (n <= 0 || opened(d, u))
		return (struct kv_ahead){ 0 };
	rows = rows_at(d, u, side, at, n, &run);
	return kv_ahead_of(rows, (size_t)run * d->view->layer[d->layer].row_bytes[side]);
}

/* The part of the block at `at` that a row sees, as positions in the block: [from, see). */
struct sight {
	int from, see;
};

static struct sight sight_of(const struct attend *d, int row, int at, int n)
{
	struct sight t = { first_seen(d, row) - at, last_seen(d, row) + 1 - at };

	t.from = t.from > 0 ? t.from : 0;
	t.see = t.see < n ? t.see : n;
	return t;
}

/* Scales the scores of query j of the unit, and lessens them by the distances of the keys (struct attn, slopes). */
static void slope_scores(const struct attend *d, const struct unit *u, float *s, int j, int at, struct sight t)
{
	int pos = d->p->pos[u->row + j / d->group] - at;
	float slope = d->a->slopes[u->kv_head * d->group + j % d->group];

	for (int i = t.from; i < t.see; i++) {
		float away = (float)(i > pos ? i - pos : pos - i) * slope;

		s[i] = s[i] * d->a->scale - away;
	}
}

/* Scores to weights, of rows [r, r + n_row) of the unit, the first of which has query j0. */
static void softmax(const struct attend *d, const struct unit *u, struct desk *k, int r, int n_row, size_t j0, int at,
                    int n)
{
	int dim = d->a->dim, nq = n_row * d->group, row = u->row + r;
	float scale = d->a->softcap != 0 || d->a->slopes ? 1.0f : d->a->scale;

	for (int j = 0, m; j < nq; j += m) {
		int from[16], see[16];
		float corr[16];

		m = nq - j < 16 ? nq - j : 16;
		for (int i = 0; i < m; i++) {
			struct sight t = sight_of(d, row + (j + i) / d->group, at, n);

			from[i] = t.from;
			see[i] = t.see;
			if (d->a->softcap != 0)
				d->c->op->cap(k->s + (j + i) * ATTN_BLOCK + t.from, d->a->scale, d->a->softcap,
				              t.see - t.from);
			if (d->a->slopes)
				slope_scores(d, u, k->s + (j + i) * ATTN_BLOCK, (int)j0 + j + i, at, t);
		}
		d->c->op->softmax_block(k->s + j * ATTN_BLOCK, from, see, m, scale, k->m + j0 + j, k->l + j0 + j, corr);
		for (int i = 0; i < m; i++)
			if (corr[i] != 1.0f)
				d->c->op->scale(k->acc + (j0 + (size_t)(j + i)) * (size_t)dim, corr[i], dim);
	}
}

/* Rows [r, r + n_row) of the unit over keys [at, at + n), of which the last of them sees the last and each sees some;
 * `next` keys follow. */
static void attend_block(const struct attend *d, const struct unit *u, struct desk *k, int r, int n_row, int at, int n,
                         int next)
{
	int dim = d->a->dim, group = d->group, row = u->row + r, from = sight_of(d, row, at, n).from;
	size_t j0 = (size_t)(r * group);
	float *acc = k->acc + j0 * (size_t)dim;
	struct kv_ahead ahead = ahead_of(d, u, KV_VALUES, at + from, n - from);

	scores(d, u, k, k->q + j0 * d->q_bytes, n_row * group, at, from, n, &ahead);
	kv_prefetch_rest(&ahead);
	softmax(d, u, k, r, n_row, j0, at, n);
	ahead = ahead_of(d, u, KV_KEYS, at + ATTN_BLOCK, next < ATTN_BLOCK ? next : ATTN_BLOCK);
	/* Rows that see less than the others go alone: a key that a row does not see must not even add
	 * zero times itself. */
	for (int i = 0, m; i < n_row; i += m) {
		struct sight t = sight_of(d, row + i, at, n);

		for (m = 1; i + m < n_row && !t.from && t.see == n && !sight_of(d, row + i + m, at, n).from; m++)
			;
		mixes(d, u, k, acc + (size_t)(i * group) * (size_t)dim, k->s + (size_t)(i * group) * ATTN_BLOCK,
		      m * group, at, t.from, t.see, &ahead);
	}
}

/* The rows of the unit that see something of [at, at + n), from *r on; returns how many. */
static int rows_seeing(const struct attend *d, const struct unit *u, int at, int n, int *r)
{
	int end = u->n_row;

	for (*r = 0; *r < end && last_seen(d, u->row + *r) < at;)
		++*r;
	while (end > *r && first_seen(d, u->row + end - 1) >= at + n)
		end--;
	return end - *r;
}

/* One segment for all queries of the unit: k->acc, k->m, k->l. */
static void attend_segment(const struct attend *d, const struct unit *u, struct desk *k, int seg)
{
	int nq = queries_of(d, u), all = last_seen(d, u->row + u->n_row - 1) + 1, first = first_seen(d, u->row);
	int begin = seg * ATTN_SEGMENT, end = all < begin + ATTN_SEGMENT ? all : begin + ATTN_SEGMENT;

	memset(k->acc, 0, (size_t)nq * (size_t)d->a->dim * sizeof *k->acc);
	for (int j = 0; j < nq; j++) {
		k->m[j] = -INFINITY;
		k->l[j] = 0.0f;
	}
	begin = first > begin ? first / ATTN_BLOCK * ATTN_BLOCK : begin;
	for (int at = begin, n; at < end; at += n) {
		int r, rows;

		n = end - at < ATTN_BLOCK ? end - at : ATTN_BLOCK;
		rows = rows_seeing(d, u, at, n, &r);
		if (opened(d, u) && rows)
			block_open(d, u, k, at, sight_of(d, u->row + r, at, n).from, n);
		for (int m; rows > 0; r += m, rows -= m) {
			m = rows < rows_together(d) ? rows : rows_together(d);
			attend_block(d, u, k, r, m, at, sight_of(d, u->row + r + m - 1, at, n).see, all - at - n);
		}
	}
}

void merged_init(const struct attend *d, const struct unit *u, const struct partial *all)
{
	int nq = queries_of(d, u);

	memset(all->acc, 0, (size_t)nq * (size_t)d->a->dim * sizeof *all->acc);
	for (int j = 0; j < nq; j++) {
		all->m[j] = -INFINITY;
		all->l[j] = 0.0f;
	}
}

void merged_finish(const struct attend *d, const struct unit *u, const struct partial *all)
{
	size_t dim = (size_t)d->a->dim;

	for (int j = 0; j < queries_of(d, u); j++) {
		int row = u->row + j / d->group, head = u->kv_head * d->group + j % d->group;
		size_t at = (size_t)row * d->q_row + (size_t)head * d->q_head;
		float *acc = all->acc + (size_t)j * dim;

		/* By tiles the sign of a zero may hang on values that the row does not see, times zero. */
		for (size_t i = 0; d->tiles && i < dim; i++)
			acc[i] += 0.0f;
		if (d->a->sinks) /* the maxima of tiles are of scores before their scale */
			d->c->op->sink(acc, d->tiles ? all->m[j] * d->a->scale : all->m[j], &all->l[j],
			               d->a->sinks[head], d->a->dim);
		if (d->kv[KV_VALUES].turn_back)
			d->kv[KV_VALUES].turn_back(acc, d->a->dim);
		d->c->op->attn_out(d->out + ((size_t)row * (size_t)d->a->heads + (size_t)head) * dim, acc, all->l[j],
		                   d->gate ? d->gate + at : NULL, d->a->dim);
	}
}

/* A row that sees nothing of the segment takes nothing from it. */
static bool row_in_segment(const struct attend *d, const struct unit *u, int j, int seg)
{
	int row = u->row + j / d->group;

	return last_seen(d, row) >= seg * ATTN_SEGMENT && first_seen(d, row) < (seg + 1) * ATTN_SEGMENT;
}

static void attend_unit(void *ctx, int part)
{
	struct attend *d = ctx;
	const struct unit *u = &d->unit[part];
	int dim = d->a->dim;
	struct desk k = desk_of(d);

	load_queries(d, u, k.q);
	merged_init(d, u, &k.all);
	for (int seg = segment_first(d, u); seg < segments_end(d, u); seg++) {
		attend_segment(d, u, &k, seg);
		for (int j = 0; j < queries_of(d, u); j++)
			if (row_in_segment(d, u, j, seg))
				d->c->op->merge(k.all.acc + (size_t)j * (size_t)dim, &k.all.m[j], &k.all.l[j],
				                k.acc + (size_t)j * (size_t)dim, k.m[j], k.l[j], dim);
	}
	merged_finish(d, u, &k.all);
}

static void attend_part(void *ctx, int part)
{
	struct attend *d = ctx;
	int unit = part / d->n_seg, dim = d->a->dim, seg;
	const struct unit *u = &d->unit[unit];
	struct desk k = desk_of(d);
	float *to = partial_at(d, unit, part % d->n_seg);

	seg = segment_first(d, u) + part % d->n_seg;
	if (seg >= segments_end(d, u))
		return;
	load_queries(d, u, k.q);
	attend_segment(d, u, &k, seg);
	for (int j = 0; j < queries_of(d, u); j++, to += dim + 2) {
		memcpy(to, k.acc + (size_t)j * (size_t)dim, (size_t)dim * sizeof *to);
		to[dim] = k.m[j];
		to[dim + 1] = k.l[j];
	}
}

static void attend_merge(void *ctx, int unit)
{
	struct attend *d = ctx;
	const struct unit *u = &d->unit[unit];
	int dim = d->a->dim;
	struct desk k = desk_of(d);

	merged_init(d, u, &k.all);
	for (int seg = segment_first(d, u); seg < segments_end(d, u); seg++) {
		const float *from = partial_at(d, unit, seg - segment_first(d, u));

		for (int j = 0; j < queries_of(d, u); j++, from += dim + 2)
			if (row_in_segment(d, u, j, seg))
				d->c->op->merge(k.all.acc + (size_t)j * (size_t)dim, &k.all.m[j], &k.all.l[j], from,
				                from[dim], from[dim + 1], dim);
	}
	merged_finish(d, u, &k.all);
}

/* Rows of a unit: of `most` queries, but fewer, down to `least`, while there would be less
 * than `enough` units for the threads. */
static int unit_rows(const struct attend *d, int most, int least, int enough)
{
	int rows = most / d->group, share = d->p->n_row * d->a->heads_kv / enough,
	    grain = least < d->group ? 1 : least / d->group;

	if (d->c->be.threads > 1 && share < rows)
		rows = share;
	rows -= rows % grain;
	return rows > grain ? rows : grain;
}

/* Cuts the rows into units of at most `rows` rows, the same for each head, a head after the other; returns how many. */
static int units_cut(struct attend *d, struct unit *unit, int rows)
{
	const struct pass *p = d->p;
	int n_unit = 0, of_head;

	d->n_seg = 1;
	d->rows_most = 0;
	for (int r = 0, n; r < p->n_row; r += n) {
		struct unit *u = &unit[n_unit++];
		int seg;

		for (n = 1; r + n < p->n_row && n < rows && p->item[r + n] == p->item[r]; n++)
			;
		*u = (struct unit){ r, n, 0 };
		seg = segments_end(d, u) - segment_first(d, u);
		d->n_seg = seg > d->n_seg ? seg : d->n_seg;
		d->rows_most = n > d->rows_most ? n : d->rows_most;
	}
	of_head = n_unit;
	for (int h = 1; h < d->a->heads_kv; h++)
		for (int i = 0; i < of_head; i++, n_unit++)
			unit[n_unit] = (struct unit){ unit[i].row, unit[i].n_row, h };
	return n_unit;
}

/* Relative cost of a unit: it reads every position that its first or last row sees. */
static int64_t unit_cost(const struct attend *d, const struct unit *u)
{
	return (int64_t)u->n_row * (last_seen(d, u->row + u->n_row - 1) + 1 - first_seen(d, u->row));
}

/* A run of units of equal cost for each thread; begin as pool_run_cut has it. */
static void share_units(const struct attend *d, int *begin, int n_unit)
{
	int threads = pool_threads(d->c->pool), t = 0;
	int64_t all = 0, before = 0;

	for (int i = 0; i < n_unit; i++)
		all += unit_cost(d, &d->unit[i]);
	for (int i = 0; i < n_unit; i++) {
		int64_t cost = unit_cost(d, &d->unit[i]);

		for (; t < threads && (2 * before + cost) * threads >= 2 * all * t; t++)
			begin[t] = i;
		before += cost;
	}
	while (t <= threads)
		begin[t++] = n_unit;
}

/* d without the members that follow from the others. */
static void attend_all(struct attend *d)
{
	/* Queries of a unit: as many as leave room for a block, or by tiles a segment, in the second cache. */
	enum { MOST = 128, TILED_MOST = 512 };
	struct cpu_backend *c = d->c = (struct cpu_backend *)d->p->be;
	const struct attn *a = d->a;
	const struct kv_layer *layer = &d->view->layer[d->layer];
	int n_unit, enough, *begin;
	struct unit *unit;

	assert(a->heads % a->heads_kv == 0);
	d->group = a->heads / a->heads_kv;
	d->opens = a->dim % 16 == 0;
	layer_kernels(d->kv, layer, c->choices.attention);
	d->q_bytes = d->kv[KV_KEYS].query_bytes(a->dim);
	if (d->p->arith == ARITH_FAST && a->softcap == 0 && !a->slopes) /* which tiles have no word for */
		d->tiles = kv_tiles((struct kv_pair){ layer->fmt[KV_KEYS], layer->fmt[KV_VALUES] }, a->dim,
		                    c->choices.attention);
	enough = (d->tiles ? 2 : 4) * c->be.threads;
	n_unit = d->p->n_row * a->heads_kv; /* at most */
	d->unit = unit = room_get(&c->parts,
	                          (size_t)n_unit * sizeof *unit + ((size_t)c->be.threads + 1) * sizeof *begin);
	begin = (int *)(unit + n_unit);
	n_unit = units_cut(
		d, unit,
		d->chosen ? 1 : unit_rows(d, d->tiles ? TILED_MOST : MOST, d->tiles ? KV_QUERIES : TOGETHER, enough));
	cpu_scratch(c, d->tiles ? attend_tiles_scratch(d) : desk_bytes(d));
	if (d->n_seg == 1 || c->be.threads == 1 || n_unit >= enough) {
		share_units(d, begin, n_unit);
		pool_run_cut(c->pool, d->tiles ? attend_tiles_unit : attend_unit, d, begin);
		return;
	}
	d->partial = room_get(&c->work, (size_t)n_unit * (size_t)d->n_seg * partial_floats(d) * sizeof(float));
	pool_run(c->pool, d->tiles ? attend_tiles_part : attend_part, d, n_unit * d->n_seg);
	pool_run(c->pool, d->tiles ? attend_tiles_merge : attend_merge, d, n_unit);
}

void cpu_attend(struct pass *p, float *out, const struct attn *a, const float *q, const float *gate, size_t q_row,
                size_t q_head, const struct kv_view *view, int layer)
{
	struct attend d = { .p = p,
		            .a = a,
		            .q = q,
		            .gate = gate,
		            .out = out,
		            .q_row = q_row,
		            .q_head = q_head,
		            .view = view,
		            .layer = layer };

	attend_all(&d);
}

void cpu_attend_chosen(struct pass *p, float *out, const struct attn *a, const float *q, const float *gate,
                       size_t q_row, size_t q_head, const int32_t *chosen, int most, const struct kv_view *view,
                       int layer)
{
	struct attend d = { .p = p,
		            .a = a,
		            .q = q,
		            .gate = gate,
		            .out = out,
		            .q_row = q_row,
		            .q_head = q_head,
		            .view = view,
		            .layer = layer,
		            .chosen = chosen,
		            .most = most };

	assert(!a->slopes);
	attend_all(&d);
}
