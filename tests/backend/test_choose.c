/* test_choose.c - an indexer's choice, and attention to what it chose, at every level.
 *
 * The choice: against a sort in plain C, of scores that are exact in any order of sums, so that there are many ties, with
 * weights below 0 (whose zeros are negative) and keys that are no numbers; rows at once, by one and in chunks, on one thread
 * and on three, in pages of several sizes.  Of blocks too, whose keys are means that are exact, or
 * sums with equal weights, in rows of their last positions or in rows of their own.
 *
 * Attention: of all positions the bits of attend; of some the bits of attend over a sequence that has those alone. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/rng.h"

/* SEEN: rows of attention, more than a segment. */
enum { LONGEST = 600, SEEN = 320, WORK = 64 << 20 };
static int failures;

/* One sequence's rows in one layer of one key head. */
struct world {
	struct backend *be;
	struct kv_layer layer, raw_layer;
	struct kv_view view, raw; /* raw: what rows of view are made of, where they are of blocks */
	int32_t page[LONGEST];
	size_t bytes, raw_bytes;
	uint8_t *work;
	enum arith arith;
};

/* Lays a view out in new memory; latent: a row of keys alone, which are values too.  Returns its bytes. */
static size_t view_open(struct world *w, struct kv_view *view, struct kv_layer *layer, const char *format, int dim,
                        int page_rows, bool latent, int every)
{
	const struct kv_rows rows = kv_rows_of(kv_format_find(format));
	const struct kv_group g = {
		.layers = 1, .heads = 1, .dim_k = dim, .dim_v = dim, .latent = latent, .every = every
	};
	size_t bytes;

	*view = (struct kv_view){ .layer = layer,
		                  .layers = 1,
		                  .page_rows = page_rows,
		                  .heads = 1,
		                  .dim = dim,
		                  .dim_v = dim,
		                  .every = every,
		                  .page = w->page,
		                  .page_max = LONGEST };
	view->page_bytes = kv_group_lay(layer, &g, &rows, page_rows);
	bytes = view->page_bytes * (size_t)((LONGEST + page_rows - 1) / page_rows);
	view->base = w->be->ops->alloc(w->be, bytes);
	memset(view->base, 0xff, bytes);
	return bytes;
}

/* every: positions of a row, above 1 with raw ones besides. */
static void world_open_of(struct world *w, enum cpu_level level, int threads, const char *format, int dim,
                          int page_rows, bool latent, int every)
{
	int pages = (LONGEST + page_rows - 1) / page_rows;

	memset(w, 0, sizeof *w);
	w->be = backend_cpu_open(threads, level);
	w->bytes = view_open(w, &w->view, &w->layer, format, dim, page_rows, latent, every);
	if (every > 1)
		w->raw_bytes = view_open(w, &w->raw, &w->raw_layer, format, dim, page_rows, false, 1);
	for (int i = 0; i < pages; i++)
		w->page[i] = pages - 1 - i;
	w->work = w->be->ops->alloc(w->be, WORK);
}

static void world_open(struct world *w, enum cpu_level level, int threads, const char *format, int dim, int page_rows)
{
	world_open_of(w, level, threads, format, dim, page_rows, true, 1);
}

static void world_close(struct world *w)
{
	w->be->ops->free(w->be, w->view.base, w->bytes);
	if (w->raw_bytes)
		w->be->ops->free(w->be, w->raw.base, w->raw_bytes);
	w->be->ops->free(w->be, w->work, WORK);
	w->be->ops->close(w->be);
}

/* A pass over rows [pos, pos + n) of the sequence. */
static void pass_of(struct world *w, struct pass *p, int pos, int n)
{
	static int32_t at[LONGEST], item[LONGEST], zero;
	static struct span span;

	span = (struct span){ 0, pos, n, 0 };
	for (int i = 0; i < n; i++)
		at[i] = pos + i;
	*p = (struct pass){ .be = w->be,
		            .arith = w->arith,
		            .n_row = n,
		            .n_item = 1,
		            .pos = at,
		            .item = item,
		            .span = &span,
		            .row = &zero,
		            .kv[0] = &w->view,
		            .work = { w->work, WORK, 0, 0 } };
	assert(!pass_begin(p));
}

static const float no_bias[4 * 24];

/* Keys of rows [pos, pos + n), from k on, with weights of 0 where they have any; queries are not looked at. */
static void keep(struct world *w, const struct attn *a, int pos, int n, const float *k)
{
	struct pass p;
	float *own, *v;
	size_t floats = (size_t)n * (size_t)a->dim;
	struct attn keys = *a;

	keys.heads = 0;
	pass_of(w, &p, pos, n);
	v = own = pass_floats(&p, floats);
	memcpy(own, k, floats * sizeof *own);
	if (a->pool_bias || w->raw_bytes)
		v = memset(pass_floats(&p, floats), 0, floats * sizeof *v);
	if (w->raw_bytes)
		w->be->ops->compress(&p, &(struct compress){ .every = w->view.every, .dim = a->dim, .bias = no_bias },
		                     own, v, &w->raw, 0, &w->view, 0);
	else
		w->be->ops->kv_append(&p, &keys, NULL, 0, 0, own, v, &w->view, 0);
	assert(!pass_end(&p));
}

static int draw(uint64_t seed, size_t i, int n)
{
	return (int)(rng_bits(seed, i, 0) % (uint64_t)n);
}

/* ---- the choice ---- */

struct index {
	struct attn a;
	int most;
	float *q, *k,
		*weight; /* [LONGEST][heads * dim], [LONGEST][dim], [LONGEST][heads]; of blocks whose keys are means weight is NULL: 1 */
	int32_t *want; /* [LONGEST][most + 1] */
	bool rows;     /* blocks have rows of their own */
};

struct scored {
	double score;
	int pos;
};

static int by_score(const void *x, const void *y)
{
	const struct scored *a = x, *b = y;

	return a->score > b->score ? -1 : a->score < b->score ? 1 : a->pos - b->pos;
}

static int by_position(const void *x, const void *y)
{
	return *(const int32_t *)x - *(const int32_t *)y;
}

/* The score of row r's key: of the mean of `each` positions from pos on. */
static double score_of(const struct index *x, int r, int pos, int each)
{
	double score = 0;

	for (int h = 0; h < x->a.heads; h++) {
		const float *q = x->q + ((size_t)r * (size_t)x->a.heads + (size_t)h) * (size_t)x->a.dim;
		double dot = 0;

		for (int i = 0; i < each; i++)
			for (int d = 0; d < x->a.dim; d++)
				dot += (double)q[d] * (double)x->k[(size_t)(pos + i) * (size_t)x->a.dim + (size_t)d] /
				       each;
		score += (x->weight ? (double)x->weight[r * x->a.heads + h] : 1) * (dot < 0 ? 0 : dot);
	}
	return isnan(score) ? -(double)INFINITY : score;
}

static void index_truth(struct index *x)
{
	static struct scored s[LONGEST];
	int each = x->a.pooled ? x->a.pooled : 1;

	for (int r = 0; r < LONGEST; r++) {
		int32_t *to = x->want + (size_t)r * (size_t)(x->most + 1);
		int first = r >= x->a.first ? x->a.first : 0, n = r + 1 - first, keys = n > x->most ? n / each : 0;

		for (int i = 0; i < keys; i++)
			s[i] = (struct scored){ score_of(x, r, first + i * each, each), first + i * each };
		qsort(s, (size_t)keys, sizeof *s, by_score);
		*to = 0;
		for (int i = 0; i < keys && i < x->most / each; i++)
			for (int k = 0; k < each; k++)
				to[++*to] = s[i].pos + k;
		for (int i = keys * each; i < n; i++)
			to[++*to] = first + i;
		qsort(to + 1, (size_t)*to, sizeof *to, by_position);
	}
}

/* weighted: keys of blocks are sums with weights, which are equal here, so that they are means that are exact. */
static void index_make(struct index *x, int heads, int dim, int most, int first, int pooled, bool weighted)
{
	size_t nq = (size_t)LONGEST * (size_t)(heads * dim), nk = (size_t)LONGEST * (size_t)dim;

	*x = (struct index){ .most = most };
	x->a = (struct attn){ .heads = heads, .heads_kv = 1, .dim = dim, .scale = 1, .first = first, .v_is_key = true };
	x->a.pooled = pooled;
	x->a.pool_bias = weighted ? no_bias : NULL;
	x->a.v_is_key = !weighted;
	x->q = xmalloc(nq * sizeof(float));
	x->k = xmalloc(nk * sizeof(float));
	x->weight = pooled && !weighted ? NULL : xmalloc((size_t)(LONGEST * heads) * sizeof(float));
	x->want = xcalloc((size_t)LONGEST * (size_t)(most + 1), sizeof(int32_t));
	for (size_t i = 0; i < nq; i++)
		x->q[i] = (float)(draw(1, i, 3) - 1);
	for (size_t i = 0; i < nk; i++)
		x->k[i] = i / (size_t)dim % 97 == 40 ? NAN : (float)(draw(2, i, 5) - 2);
	for (int i = 0; i < LONGEST * heads && x->weight; i++)
		x->weight[i] = (float)(draw(3, (size_t)i, 8) - 4) * 0.5f;
	index_truth(x);
}

static void index_free(struct index *x)
{
	free(x->q);
	free(x->k);
	free(x->weight);
	free(x->want);
}

static void choose(const struct index *x, enum cpu_level level, int threads, const char *format, int page_rows,
                   int chunk)
{
	size_t row = (size_t)(x->most + 1), nq = (size_t)(x->a.heads * x->a.dim);
	struct attn a = x->a;
	struct world w;

	if (x->rows) { /* whose view says what a block is */
		a.pooled = 0;
		a.pool_bias = NULL;
		page_rows = (page_rows + x->a.pooled - 1) / x->a.pooled * x->a.pooled;
	}
	world_open_of(&w, level, threads, format, a.dim, page_rows, !a.pool_bias, x->rows ? x->a.pooled : 1);
	for (int pos = 0, n; pos < LONGEST; pos += n) {
		struct pass p;
		int32_t *got;

		n = LONGEST - pos < chunk ? LONGEST - pos : chunk;
		keep(&w, &a, pos, n, x->k + (size_t)pos * (size_t)x->a.dim);
		pass_of(&w, &p, pos, n);
		got = (int32_t *)pass_floats(&p, (size_t)n * row);
		w.be->ops->choose(&p, got, x->most, &a, x->q + (size_t)pos * nq, nq, (size_t)x->a.dim,
		                  x->weight ? x->weight + (size_t)pos * (size_t)x->a.heads : NULL, &w.view, 0);
		assert(!pass_end(&p));
		for (int i = 0; i < n; i++) {
			const int32_t *want = x->want + (size_t)(pos + i) * row, *is = got + (size_t)i * row;

			if (*is == *want && !memcmp(is, want, (size_t)(1 + *want) * sizeof *want))
				continue;
			printf("FAIL choice of %d by %d%s, %d heads, %s, %s, %d threads, pages of %d, chunks of %d: row %d\n",
			       x->most, x->a.pooled, x->rows ? " in rows of their own" : "", x->a.heads, format,
			       cpu_level_name(level), threads, page_rows, chunk, pos + i);
			failures++;
			world_close(&w);
			return;
		}
	}
	world_close(&w);
}

static void choices(enum cpu_level top)
{
	static const struct {
		int heads, dim, most, first, pooled;
		bool weighted, rows;
	} shape[] = {
		{ 3, 16, 12, 0, 0, false },        { 40, 16, 130, 0, 0, false },    { 5, 24, 1, 1, 0, false },
		{ 33, 16, 560, 37, 0, false },     { 2, 16, LONGEST, 0, 0, false }, { 3, 16, 19, 0, 4, false },
		{ 40, 16, 131, 1, 4, false },      { 5, 24, 2, 1, 1, false },       { 2, 16, 9, 1, 2, false },
		{ 3, 16, 19, 0, 4, true },         { 40, 24, 131, 1, 4, true },     { 3, 16, 19, 0, 4, true, true },
		{ 40, 24, 131, 0, 4, true, true }, { 2, 16, 9, 0, 2, true, true },
	};

	for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
		struct index x;

		index_make(&x, shape[i].heads, shape[i].dim, shape[i].most, shape[i].first, shape[i].pooled,
		           shape[i].weighted);
		x.rows = shape[i].rows;
		for (enum cpu_level l = CPU_SCALAR; l < CPU_LEVELS; l = cpu_level_next(l))
			choose(&x, l, 1, "bf16", 64, LONGEST);
		choose(&x, top, 3, "f32", 5, 37);
		choose(&x, top, 3, "bf16", 64, LONGEST);
		choose(&x, top, 2, "bf16", 64, 1);
		index_free(&x);
	}
}

/* ---- attention to what was chosen ---- */

struct seen {
	struct attn a;
	float *q, *k; /* [SEEN][heads * dim], [SEEN][dim] */
};

static void seen_make(struct seen *s, int heads, int dim)
{
	size_t nq = (size_t)SEEN * (size_t)(heads * dim), nk = (size_t)SEEN * (size_t)dim;

	s->a = (struct attn){
		.heads = heads, .heads_kv = 1, .dim = dim, .scale = 1 / sqrtf((float)dim), .v_is_key = true
	};
	s->q = xmalloc(nq * sizeof(float));
	s->k = xmalloc(nk * sizeof(float));
	for (size_t i = 0; i < nq; i++)
		s->q[i] = (float)(rng_uniform(7, i, 0) * 2 - 1);
	for (size_t i = 0; i < nk; i++)
		s->k[i] = (float)(rng_uniform(8, i, 0) * 2 - 1);
}

/* out[n][heads * dim] of rows from pos on, over all positions, or over chosen ones. */
static void attend(struct world *w, const struct seen *s, float *out, const float *q, int pos, int n,
                   const int32_t *chosen, int most)
{
	size_t nq = (size_t)(s->a.heads * s->a.dim), dim = (size_t)s->a.dim;
	struct pass p;
	float *own;

	pass_of(w, &p, pos, n);
	own = pass_floats(&p, (size_t)n * nq);
	memcpy(own, q, (size_t)n * nq * sizeof *own);
	w->be->ops->kv_append(&p, &s->a, own, nq, dim, NULL, NULL, &w->view, 0);
	if (chosen)
		w->be->ops->attend_chosen(&p, out, &s->a, own, NULL, nq, dim, chosen, most, &w->view, 0);
	else
		w->be->ops->attend(&p, out, &s->a, own, NULL, nq, dim, &w->view, 0);
	assert(!pass_end(&p));
}

static void same(const float *a, const float *b, size_t n, const char *what, const struct world *w, int heads, int row)
{
	if (!memcmp(a, b, n * sizeof *a))
		return;
	printf("FAIL %s: %d heads, %s, arithmetic %d, %s, %d threads, row %d\n", what, heads,
	       w->layer.fmt[KV_KEYS]->name, w->arith, w->be->level, w->be->threads, row);
	failures++;
}

static void all_chosen(const struct seen *s, struct world *w)
{
	size_t nq = (size_t)(s->a.heads * s->a.dim), row = SEEN + 1;
	float *want = xmalloc(SEEN * nq * sizeof *want), *got = xmalloc(SEEN * nq * sizeof *got);
	int32_t *list = xmalloc(SEEN * row * sizeof *list);

	for (int r = 0; r < SEEN; r++) {
		list[(size_t)r * row] = r + 1;
		for (int i = 0; i <= r; i++)
			list[(size_t)r * row + 1 + (size_t)i] = i;
	}
	attend(w, s, want, s->q, 0, SEEN, NULL, 0);
	attend(w, s, got, s->q, 0, SEEN, list, SEEN);
	same(want, got, SEEN * nq, "all chosen", w, s->a.heads, 0);
	attend(w, s, got, s->q + (SEEN - 1) * nq, SEEN - 1, 1, list + (SEEN - 1) * row, SEEN);
	same(want + (SEEN - 1) * nq, got, nq, "all chosen, a row", w, s->a.heads, SEEN - 1);
	free(want);
	free(got);
	free(list);
}

/* Of each third position or so, by one row of a query. */
static void some_chosen(const struct seen *s, struct world *w, struct world *few)
{
	size_t nq = (size_t)(s->a.heads * s->a.dim), dim = (size_t)s->a.dim;
	float *want = xmalloc(nq * sizeof *want), *got = xmalloc(nq * sizeof *got);
	int32_t list[1 + SEEN];

	for (int r = 5; r < SEEN; r += 103) {
		const float *q = s->q + (size_t)r * nq;

		list[0] = 0;
		for (int i = 0; i <= r; i++)
			if (draw(9, (size_t)(r * SEEN + i), 3) == 0 || i == 3) {
				keep(few, &s->a, list[0], 1, s->k + (size_t)i * dim);
				list[++list[0]] = i;
			}
		attend(few, s, want, q, list[0] - 1, 1, NULL, 0);
		attend(w, s, got, q, r, 1, list, SEEN);
		same(want, got, nq, "some chosen", w, s->a.heads, r);
		attend(w, s, got, q, r, 1, NULL, 0);
		if (!memcmp(want, got, nq * sizeof *got)) {
			printf("FAIL some chosen and all are the same, row %d\n", r);
			failures++;
		}
	}
	free(want);
	free(got);
}

static void attention(enum cpu_level level, bool all)
{
	static const char *const format[] = { "bf16", "f32", "u8g32" };
	static const int heads[] = { 40, 3 };

	for (int i = 0; i < (all ? 2 : 1); i++) {
		struct seen s;

		seen_make(&s, heads[i], 64);
		for (int f = 0; f < (all ? 3 : 1); f++)
			for (enum arith arith = ARITH_F32; arith <= ARITH_FAST; arith++) {
				int threads = i || f ? 1 : 3;
				struct world w, few;

				world_open(&w, level, threads, format[f], s.a.dim, f ? 7 : 64);
				world_open(&few, level, 1, format[f], s.a.dim, 64);
				w.arith = few.arith = arith;
				keep(&w, &s.a, 0, SEEN, s.k);
				all_chosen(&s, &w);
				some_chosen(&s, &w, &few);
				world_close(&w);
				world_close(&few);
			}
		free(s.q);
		free(s.k);
	}
}

int main(void)
{
	enum cpu_level top = cpu_detect();

	choices(top);
	for (enum cpu_level l = CPU_SCALAR; l < CPU_LEVELS; l = cpu_level_next(l))
		attention(l, l == top);
	return failures != 0;
}
