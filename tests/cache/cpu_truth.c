/* cpu_truth.c - the CPU backend's attention and recurrent layers, of every rule, on inputs made
 * from tokens.
 *
 * The truth is a sequence that was never interrupted: the same tokens in caches of
 * its own, without drafts, cut into steps elsewhere.  So a life here tests the law
 * of the row, bit for bit, as well as the caches. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "world.h"

int cpu_threads = 1;

/* Query heads per key head; frequencies of the rotation. */
enum { GROUP = 2, FREQS = 2, FILL_MAX = 256 };

/* Any of the list that takes heads of dim. */
static const struct kv_format *format_for(uint64_t bits, int dim)
{
	int n = 0;

	while (kv_formats[n])
		n++;
	for (uint64_t i = bits;; i++)
		if (kv_formats[i % (uint64_t)n]->row_bytes(dim))
			return kv_formats[i % (uint64_t)n];
}

/* The largest scan's rates, of any layer; slow, so that old rows are still felt. */
static void rates_make(struct state_shape *h)
{
	enum { MOST = 2 * 16 * 32 };
	static float rate[MOST];
	static const float *const layers[2] = { rate, rate };

	for (int i = 0; i < MOST; i++)
		rate[i] = -0.01f * (float)(1 + i % 37);
	h->rate = layers;
}

/* A group of keys and values: rows of any formats, or plain ones in heads of any size. */
static void group_make(struct paged_opts *o, struct kv_pair pairs[2], uint64_t bits)
{
	struct kv_group *g = &o->group;

	o->rows = kv_rows_of(kv_formats[bits & 1]);
	if (bits >> 16 & 1) {
		o->rows.layer = pairs;
		for (int i = 0; i < 4; i++)
			*(i % 2 ? &pairs[i / 2].v : &pairs[i / 2].k) = format_for(bits >> (17 + 8 * i) & 255, 64);
	}
	g->layers = 1 + (int)(bits >> 1 & 1);
	g->heads = 1 + (int)(bits >> 2 & 1);
	g->dim_k = g->dim_v = o->rows.layer ? 64 : (int[]){ 16, 8, 24, 20 }[bits >> 3 & 3];
}

/* Rows for groups of positions in the cache without a window, made of rows that the one with a window keeps. */
static void history_make(struct world *w, uint64_t bits)
{
	struct paged_opts *past = &w->paged[PAGED], *raw = &w->paged[WINDOW];
	bool overlap;
	int every = 2;

	while (every < 5 && past->page_rows % every)
		every++;
	overlap = bits & 1 && raw->group.window >= 2 * every;
	if (past->page_rows % every || raw->group.window < every || !(bits >> 5 & 3))
		return;
	past->rows.layer = raw->rows.layer = NULL;
	past->rows = raw->rows = kv_rows_of(kv_formats[bits >> 2 & 1]);
	past->group.heads = raw->group.heads = 1;
	past->group.dim_k = past->group.dim_v = (int[]){ 16, 8, 24, 20 }[bits >> 3 & 3];
	raw->group.dim_k = raw->group.dim_v = past->group.dim_k * (overlap ? 2 : 1);
	past->group.every = every;
	past->group.latent = true;
}

static void cpu_open(struct world *w, uint64_t bits)
{
	static struct kv_pair pairs[GROUPS][2]; /* by layer */
	enum cpu_level has[CPU_LEVELS];
	uint64_t n = 0;
	struct state_shape *h = &w->state.shape;

	for (enum cpu_level l = CPU_SCALAR; l < CPU_LEVELS; l = cpu_level_next(l))
		has[n++] = l;
	w->be = backend_cpu_open(cpu_threads, has[bits % n]);
	bits >>= 8;
	for (int g = 0; g < GROUPS; g++)
		group_make(&w->paged[g], pairs[g], g ? mix(bits, 5) : bits);
	history_make(w, mix(bits, 6));
	h->layers = 1 + (int)(bits >> 5 & 1);
	h->heads_k = 1 + (int)(bits >> 6 & 1);
	h->rule = (enum recur_rule_id)((bits >> 13 & 7) % RECUR_RULES);
	if (h->rule == RECUR_SCAN)
		h->heads_k = 1;
	h->heads_v = h->heads_k * (1 + (int)(bits >> 7 & 1));
	if (h->rule == RECUR_KDA || h->rule == RECUR_FIXED || h->rule == RECUR_RWKV7)
		h->heads_v = h->heads_k;
	h->dim_k = (int[]){ 8, 16, 12, 5 }[bits >> 8 & 3];
	h->dim_v = (int[]){ 16, 8, 32, 7 }[bits >> 10 & 3];
	if (h->rule == RECUR_RWKV7)
		h->dim_v = h->dim_k;
	h->conv_channels = (h->rule == RECUR_SCAN ? 0 : 2 * h->heads_k * h->dim_k) + h->heads_v * h->dim_v;
	h->conv_width = 2 + (int)(bits >> 12 & 1) * 2;
	if (h->rule == RECUR_SCAN)
		rates_make(h);
}

/* n numbers in [-1, 1) that follow from h. */
static void fill(float *x, int n, uint64_t h)
{
	for (int i = 0; i < n; i++)
		x[i] = (float)(int32_t)(uint32_t)(mix(h, (uint64_t)i) >> 32) * 0x1p-31f;
}

static uint64_t hash(uint64_t h, const float *x, int n)
{
	for (int i = 0; i < n; i++) {
		uint32_t u;

		memcpy(&u, &x[i], sizeof u);
		h = mix(h, u);
	}
	return h;
}

/* The rows of a pass: their prefixes' hashes, and where their answers go. */
struct rows {
	struct pass p;
	uint64_t *prefix;
	uint64_t **out;
	float *f[6]; /* [n_row][FILL_MAX] each */
};

static void rows_init(struct rows *r, struct world *w, const struct item *it, int n)
{
	struct span *span = xcalloc((size_t)n, sizeof *span);
	int32_t *first = xcalloc((size_t)n, sizeof *first), *pos, *item;
	int n_row = 0;

	for (int i = 0; i < n; i++) {
		span[i] = it[i].span;
		first[i] = n_row;
		n_row += it[i].span.n;
	}
	pos = xcalloc((size_t)n_row, sizeof *pos);
	item = xcalloc((size_t)n_row, sizeof *item);
	r->prefix = xcalloc((size_t)n_row, sizeof *r->prefix);
	r->out = xcalloc((size_t)n_row, sizeof *r->out);
	for (int i = 0; i < n; i++) {
		uint64_t h = 0;

		for (int p = 0; p < it[i].span.pos + it[i].span.n; p++) {
			int k = p - it[i].span.pos;

			h = prefix_hash(h, it[i].tok[p]);
			if (k < 0)
				continue;
			pos[first[i] + k] = p;
			item[first[i] + k] = i;
			r->prefix[first[i] + k] = h;
			r->out[first[i] + k] = it[i].out[k];
		}
	}
	for (int i = 0; i < 6; i++)
		r->f[i] = xcalloc((size_t)n_row * FILL_MAX, sizeof(float));
	r->p = (struct pass){ .be = w->be,
		              .arith = ARITH_F32,
		              .n_row = n_row,
		              .n_item = n,
		              .pos = pos,
		              .item = item,
		              .span = span,
		              .row = first };
}

static void rows_fini(struct rows *r)
{
	free((void *)r->p.pos);
	free((void *)r->p.item);
	free((void *)r->p.span);
	free((void *)r->p.row);
	free(r->prefix);
	free(r->out);
	for (int i = 0; i < 6; i++)
		free(r->f[i]);
}

static void rows_fill(struct rows *r, int which, int cols, int salt)
{
	assert(cols <= FILL_MAX);
	for (int i = 0; i < r->p.n_row; i++)
		fill(r->f[which] + i * cols, cols, mix(r->prefix[i], (uint64_t)salt));
}

static void rows_hash(struct rows *r, int which, int cols, enum kind kind)
{
	for (int i = 0; i < r->p.n_row; i++)
		r->out[i][kind] = hash(r->out[i][kind], r->f[which] + i * cols, cols);
}

/* Attention of the queries over rows that an indexer chooses. */
static void attend_chosen(struct rows *r, const struct attn *a, const struct kv_view *view, enum kind kind, int layer)
{
	enum { MOST = 5 };
	const struct backend_ops *op = r->p.be->ops;
	int cols = a->heads * a->dim;
	int32_t *chosen = (int32_t *)r->f[5];

	rows_fill(r, 4, a->heads, 8 * layer + 7);
	op->choose(&r->p, chosen, MOST, a, r->f[0], (size_t)cols, (size_t)a->dim, r->f[4], view, layer);
	op->attend_chosen(&r->p, r->f[3], a, r->f[0], NULL, (size_t)cols, (size_t)a->dim, chosen, MOST, view, layer);
	rows_hash(r, 3, cols, kind);
}

/* An indexer's choice of blocks, whose keys are all that the layer keeps; with weights those too, in the place of values. */
static void choose_blocks(struct rows *r, const struct attn *of, const struct kv_view *view, enum kind kind, int layer)
{
	enum { BLOCK = 3, MOST = 2 * BLOCK + BLOCK - 1 };
	struct attn a = *of;
	size_t cols = (size_t)(a.heads * a.dim);
	int32_t *chosen = (int32_t *)r->f[5];
	float bias[BLOCK * FILL_MAX];
	bool weighted = a.dim <= 16;

	fill(bias, BLOCK * a.dim, 7);
	a.pooled = BLOCK;
	a.v_is_key = !weighted;
	a.pool_bias = weighted ? bias : NULL;
	a.k_norm = weighted ? NULL : a.k_norm;
	r->p.be->ops->kv_append(&r->p, &a, r->f[0], cols, (size_t)a.dim, r->f[1], r->f[weighted ? 2 : 1], view, layer);
	r->p.be->ops->choose(&r->p, chosen, MOST, &a, r->f[0], cols, (size_t)a.dim, NULL, view, layer);
	for (int i = 0; i < r->p.n_row; i++)
		for (int32_t *row = chosen + i * (MOST + 1), k = 0; k <= *row; k++) {
			float place = (float)row[k];

			r->out[i][kind] = hash(r->out[i][kind], &place, 1);
		}
}

/* The rows of a history that row i of the pass sees, as they lie there. */
static void hash_history(struct rows *r, const struct kv_view *v, int layer, int i)
{
	const struct kv_layer *y = &v->layer[layer];
	float x[FILL_MAX];

	for (int pos = v->every - 1; pos <= r->p.pos[i]; pos += v->every) {
		int32_t page = v->page[r->p.item[i] * v->page_max + pos / v->page_rows];
		size_t row = (size_t)(pos % v->page_rows / v->every) * y->row_bytes[KV_KEYS];

		y->fmt[KV_KEYS]->decode(x, v->base + (size_t)page * v->page_bytes + y->at[KV_KEYS] + row, v->dim);
		r->out[i][PAGED] = hash(r->out[i][PAGED], x, v->dim);
	}
}

/* A history, and which of its rows an indexer chooses. */
static void history(struct rows *r, const struct world *w, struct cache *const kind[KINDS], int layer)
{
	enum { TOP = 2, SEEN = 3 };
	static const float freq[FREQS] = { 1.0f, 0.03f };
	const struct kv_group *past = &w->paged[PAGED].group, *raw = &w->paged[WINDOW].group;
	const struct backend_ops *op = w->be->ops;
	int32_t *chosen = (int32_t *)r->f[5];
	float gain[FILL_MAX], bias[8 * FILL_MAX];
	const struct compress o = { .every = past->every,
		                    .dim = past->dim_k,
		                    .overlap = raw->dim_k > past->dim_k,
		                    .bias = bias,
		                    .gain = gain,
		                    .eps = 1e-6f,
		                    .rope = { .freq = freq, .n_freq = FREQS, .mscale = 1.0f, .at = 4 } };
	const struct attn a = { .heads = GROUP, .heads_kv = 1, .dim = past->dim_k, .scale = 1, .window = SEEN };
	size_t cols = (size_t)(GROUP * a.dim);

	fill(gain, a.dim, 5);
	fill(bias, o.every * raw->dim_k, 7);
	rows_fill(r, 0, (int)cols, 8 * layer + 200);
	rows_fill(r, 1, raw->dim_k, 8 * layer + 201);
	rows_fill(r, 2, raw->dim_k, 8 * layer + 202);
	op->compress(&r->p, &o, r->f[1], r->f[2], paged_view(kind[WINDOW]), layer, paged_view(kind[PAGED]), layer);
	op->choose(&r->p, chosen, TOP + SEEN, &a, r->f[0], cols, (size_t)a.dim, NULL, paged_view(kind[PAGED]), layer);
	for (int i = 0; i < r->p.n_row; i++)
		for (int32_t *row = chosen + i * (TOP + SEEN + 1), k = 0; k <= *row; k++) {
			float place = (float)row[k];

			r->out[i][PAGED] = hash(r->out[i][PAGED], &place, 1);
		}
	for (int i = 0; i < r->p.n_row; i++)
		hash_history(r, paged_view(kind[PAGED]), layer, i);
}

static void attend(struct rows *r, const struct world *w, const struct cache *c, enum kind kind, int layer)
{
	static const float freq[FREQS] = { 1.0f, 0.03f };
	const struct kv_group *o = &w->paged[kind].group;
	const struct backend_ops *op = w->be->ops;
	float gain[FILL_MAX];
	const struct attn a = { .heads = o->heads * GROUP,
		                .heads_kv = o->heads,
		                .dim = o->dim_k,
		                .scale = 0.4f,
		                .q_norm = gain,
		                .k_norm = gain,
		                .eps = 1e-6f,
		                .window = o->window,
		                .rope = { .freq = freq, .n_freq = FREQS, .mscale = 1.0f } };
	int salt = 8 * layer + 64 * (int)kind, cols = a.heads * a.dim, kv_cols = a.heads_kv * a.dim;

	fill(gain, a.dim, 5);
	rows_fill(r, 0, cols, salt);
	rows_fill(r, 1, kv_cols, salt + 1);
	rows_fill(r, 2, kv_cols, salt + 2);
	if (a.heads_kv == 1 && layer == 1 && !o->window && !w->paged[kind].rows.layer) {
		choose_blocks(r, &a, paged_view(c), kind, layer);
		return;
	}
	op->kv_append(&r->p, &a, r->f[0], (size_t)cols, (size_t)a.dim, r->f[1], r->f[2], paged_view(c), layer);
	op->attend(&r->p, r->f[3], &a, r->f[0], NULL, (size_t)cols, (size_t)a.dim, paged_view(c), layer);
	rows_hash(r, 3, cols, kind);
	if (a.heads_kv == 1)
		attend_chosen(r, &a, paged_view(c), kind, layer);
}

/* x as the rule wants it: convolved before, or not. */
static bool convolved_before(const struct state_shape *h)
{
	return h->rule == RECUR_SSM || h->rule == RECUR_SCAN || h->rule == RECUR_RWKV7;
}

static void recur(struct rows *r, const struct world *w, const struct cache *c, int layer)
{
	const struct state_shape *h = &w->state.shape;
	const struct backend_ops *op = w->be->ops;
	float conv[FILL_MAX * 4], rate[FILL_MAX], decay[FILL_MAX], bias[FILL_MAX], gain[FILL_MAX];
	struct recur d = { .conv = conv,
		           .conv_bias = bias,
		           .a_log_exp = rate,
		           .decay = decay,
		           .dt_bias = bias,
		           .skip = gain,
		           .dt_max = 1e9f,
		           .norm = gain,
		           .eps = 1e-6f,
		           .key_gain = gain,
		           .key_rate = rate,
		           .bonus = bias,
		           .norm_bias = bias };
	const struct conv before = { conv, bias, true };
	int cols = h->heads_v * h->dim_v, gates = h->heads_v * state_tape(h).decay_n;
	struct recur_in in = { r->f[0], r->f[1], r->f[2], r->f[3] };

	fill(conv, h->conv_channels * h->conv_width, 11);
	fill(rate, FILL_MAX, 12);
	for (int i = 0; i < FILL_MAX; i++) {
		rate[i] = fabsf(rate[i]) * 0.1f; /* slow, so that old rows are still felt */
		decay[i] = 1.0f - rate[i];
	}
	fill(bias, FILL_MAX, 13);
	fill(gain, FILL_MAX, 14);
	rows_fill(r, 0, h->conv_channels, 8 * layer + 3);
	rows_fill(r, 1, cols, 8 * layer + 4);
	rows_fill(r, 2,
	          h->rule == RECUR_SCAN ? 2 * h->dim_k :
	          h->rule == RECUR_KDA  ? h->heads_v :
	                                  gates,
	          8 * layer + 5);
	rows_fill(r, 3, gates, 8 * layer + 6);
	if (convolved_before(h)) {
		op->conv(&r->p, r->f[5], &before, 1, r->f[0], 0, h->conv_channels, state_view(c), layer);
		d.conv = NULL;
		in.x = r->f[5];
	}
	if (h->rule == RECUR_RWKV7)
		in.z = NULL; /* norms by itself */
	else if (h->rule == RECUR_SCAN)
		d.norm = NULL;
	else if (h->rule == RECUR_SSM)
		d.norm_cols = cols, d.gate_first = true;
	op->recur(&r->p, r->f[4], &d, &in, state_view(c), layer);
	rows_hash(r, 4, cols, STATE);
}

static void run(struct world *w, struct cache *const kind[KINDS], const struct item *it, int n)
{
	struct rows r;

	rows_init(&r, w, it, n);
	for (int i = 0; i < r.p.n_row; i++)
		r.out[i][PAGED] = r.out[i][WINDOW] = r.out[i][STATE] = 0;
	for (int layer = 0; w->paged[PAGED].group.every && kind[PAGED] && kind[WINDOW] &&
	                    layer < w->paged[PAGED].group.layers && layer < w->paged[WINDOW].group.layers;
	     layer++)
		history(&r, w, kind, layer);
	for (int g = 0; g < GROUPS && !w->paged[PAGED].group.every; g++)
		for (int layer = 0; kind[g] && layer < w->paged[g].group.layers; layer++)
			attend(&r, w, kind[g], (enum kind)g, layer);
	for (int layer = 0; kind[STATE] && layer < w->state.shape.layers; layer++)
		recur(&r, w, kind[STATE], layer);
	rows_fini(&r);
}

static void cpu_forward(struct world *w, const struct item *it, int n)
{
	run(w, w->kind, it, n);
	if (w->kind[POOLED])
		toy_pool(w, it, n);
}

static void cpu_oracle(struct world *w, const int32_t *tok, int first, int n, uint64_t (*out)[KINDS])
{
	struct state_opts state = w->state;
	struct cache *kind[KINDS] = { NULL };
	struct caches set = { .n = 0 };
	uint64_t(*all)[KINDS] = xcalloc((size_t)n, sizeof *all);

	state.slots = 1;
	for (int g = 0; g < GROUPS; g++) {
		struct paged_opts o = w->paged[g];

		/* Of which nothing is ever given back. */
		o.group.window = 0;
		o.slots = 1;
		o.page_rows = 60; /* whole groups of every size */
		o.pool = NULL;
		o.bytes_max = (size_t)1 << 21;
		if (w->kind[g])
			caches_add(&set, kind[g] = paged_open(w->be, &o, NULL));
	}
	if (w->kind[STATE])
		caches_add(&set, kind[STATE] = state_open(w->be, &state, NULL));
	for (int at = 0, rows; at < n; at += rows) {
		struct item it = { .span = { .slot = 0, .pos = at }, .tok = tok, .out = all + at };

		rows = 1 + (int)(mix((uint64_t)at, (uint64_t)n) % 40);
		rows = rows < n - at ? rows : n - at;
		it.span.n = rows;
		if (caches_reserve(&set, &it.span))
			abort();
		caches_begin(&set, &it.span, 1);
		run(w, kind, &it, 1);
		caches_settle(&set, &it.span, rows);
	}
	memcpy(out, all + first, (size_t)(n - first) * sizeof *all);
	caches_fini(&set);
	free(all);
	if (w->kind[POOLED])
		toy_pool_oracle(w, tok, first, n, out);
}

const struct truth cpu_truth = {
	.name = "cpu",
	.open = cpu_open,
	.forward = cpu_forward,
	.oracle = cpu_oracle,
};
