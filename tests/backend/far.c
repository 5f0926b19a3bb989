/* far.c - see far.h. */
#include "far.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/err.h"

enum { AREAS = 4096, TABLES = 64, COPIES = 1024, TWINS = 8192, LISTS = 4, RATES = 256, CONVS = 8, PAGE = 4096 };

static const size_t RANGE = (size_t)1 << 34; /* of addresses; memory is taken as it is touched */

/* Memory that a model has placed: the host's bytes, and the copy that operations read. */
struct copy {
	struct placed is;
	uint8_t *far;
	uint8_t *host; /* what the host's bytes were, which are spoilt meanwhile; NULL: they are of a file */
	int models;
};

/* A weight as operations of the inner backend know it.  Its address stays: struct linear.reader compares it. */
struct twin {
	struct weight of, to;
	const struct weight *at;
};

struct area {
	uint8_t *p;
	size_t bytes;
};

struct far {
	struct backend be;
	struct backend *inner;
	struct copy copy[COPIES];
	int n_copy;
	struct twin *twin[TWINS];
	int n_twin;
	struct weight *list[LISTS]; /* of experts, for one operation */
	int n_list;
	const float *rate[RATES]; /* of a view, for one operation */
	const struct pass *of;    /* the pass that has begun, whose tables are here; NULL: none */
	struct pass tables;
	struct kv_view kv[KV_GROUPS];
	struct state_view state, past;
	struct {
		void *p;
		size_t bytes;
	} table[TABLES]; /* of the pass */
	int n_table;
	bool beside;             /* another backend reads what is placed, too */
	int calls_left;          /* begins, ends and reads until the device fails; 0: it never does */
	uint8_t *range;          /* [RANGE] all memory, one range of the system's: one call protects it */
	size_t used;             /* bytes of the range up to the end of the last area */
	struct area area[AREAS]; /* rising */
	int n;
};

static void protect(struct far *f, int prot)
{
	int rc = f->used ? mprotect(f->range, f->used, prot) : 0;

	assert(!rc);
}

static struct far *near_be(struct backend *be)
{
	struct far *f = (struct far *)be;

	protect(f, PROT_READ | PROT_WRITE);
	return f;
}

/* The pass as the inner backend knows it. */
static struct pass near_pass(struct pass *p)
{
	struct pass q = *p;

	struct far *f = near_be(p->be);

	assert(f->of == p && "an operation of a pass that has not begun");
	q.be = f->inner;
	q.tok = f->tables.tok;
	q.pos = f->tables.pos;
	q.item = f->tables.item;
	q.span = f->tables.span;
	q.row = f->tables.row;
	q.logit_row = f->tables.logit_row;
	q.rope_pos = f->tables.rope_pos;
	q.see = f->tables.see;
	q.grid = f->tables.grid;
	q.picked.row = f->tables.picked.row;
	q.brought.v = f->tables.brought.v;
	memset(q.kv, 0, sizeof q.kv);
	q.state = q.past = NULL;
	return q;
}

/* Counts a call that may find the device lost.  true: it is. */
static bool fails(struct far *f)
{
	if (f->calls_left && !--f->calls_left)
		err_set(&f->be.failed, E_DEVICE, "the far device does not answer");
	return f->be.failed.code;
}

static void away(struct backend *be)
{
	protect((struct far *)be, PROT_NONE);
}

static size_t whole_pages(size_t bytes)
{
	return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* The first gap between areas that is large enough, or the end. */
static void *take(struct far *f, size_t bytes)
{
	uint8_t *p = f->range;
	int i = 0;

	assert(f->n < AREAS && bytes);
	for (; i < f->n && (size_t)(f->area[i].p - p) < whole_pages(bytes); i++)
		p = f->area[i].p + whole_pages(f->area[i].bytes);
	assert((size_t)(p - f->range) + whole_pages(bytes) <= RANGE);
	memmove(&f->area[i + 1], &f->area[i], (size_t)(f->n++ - i) * sizeof *f->area);
	f->area[i] = (struct area){ p, bytes };
	if ((size_t)(p - f->range) + whole_pages(bytes) > f->used)
		f->used = (size_t)(p - f->range) + whole_pages(bytes);
	return p;
}

static void *far_alloc(struct backend *be, size_t bytes)
{
	void *p = take((struct far *)be, bytes);

	away(be);
	return p;
}

static void far_free(struct backend *be, void *p, size_t bytes)
{
	struct far *f = (struct far *)be;
	int i = 0;

	if (!p)
		return;
	while (i < f->n && f->area[i].p != p)
		i++;
	assert(i < f->n && f->area[i].bytes == bytes);
	memmove(&f->area[i], &f->area[i + 1], (size_t)(--f->n - i) * sizeof *f->area);
	madvise(p, whole_pages(bytes), MADV_DONTNEED); /* an area begins as zeros */
}

static void far_write(struct backend *be, void *to, const void *from, size_t n)
{
	struct far *f = near_be(be);

	f->inner->ops->write(f->inner, to, from, n);
	away(be);
}

static int far_read(struct backend *be, void *to, const void *from, size_t n)
{
	struct far *f;
	int rc;

	if (fails((struct far *)be)) {
		memset(to, 0xa5, n);
		return E_DEVICE;
	}
	f = near_be(be);
	rc = f->inner->ops->read(f->inner, to, from, n);
	away(be);
	return rc;
}

static void far_copy(struct backend *be, void *to, const void *from, size_t n)
{
	struct far *f = near_be(be);

	assert(to == from || (const char *)to + n <= (const char *)from || (const char *)from + n <= (const char *)to);
	f->inner->ops->copy(f->inner, to, from, n);
	away(be);
}

/* ---- what is placed ---- */

static struct copy *copy_of(struct far *f, const void *p)
{
	for (int i = 0; i < f->n_copy; i++)
		if ((const uint8_t *)p >= f->copy[i].is.p && (const uint8_t *)p < f->copy[i].is.p + f->copy[i].is.bytes)
			return &f->copy[i];
	return NULL;
}

/* The copy of what is at host address p.  Once a model has placed anything, everything must be. */
static const void *over(struct far *f, const void *p)
{
	struct copy *c = p && f->n_copy ? copy_of(f, p) : NULL;

	if (!p || !f->n_copy)
		return p;
	assert(c && "an operation was given memory that was not placed");
	return c->far + ((const uint8_t *)p - c->is.p);
}

/* A mapped file cannot be written; its pages become unreadable.  A vector becomes no number. */
static void spoil(struct copy *c)
{
	if (c->is.file) {
		mprotect((void *)(uintptr_t)c->is.file->p, c->is.file->n, PROT_NONE);
		return;
	}
	c->host = xmalloc(c->is.bytes);
	memcpy(c->host, c->is.p, c->is.bytes);
	memset((void *)(uintptr_t)c->is.p, 0xff, c->is.bytes);
}

static void mend(struct copy *c)
{
	if (c->is.file)
		mprotect((void *)(uintptr_t)c->is.file->p, c->is.file->n, PROT_READ);
	else
		memcpy((void *)(uintptr_t)c->is.p, c->host, c->is.bytes);
	free(c->host);
}

static int far_place(struct backend *be, const struct placed *v, int n, struct err *err)
{
	struct far *f = (struct far *)be;
	int before = f->n_copy;

	for (int i = 0; i < n; i++) {
		struct copy *c = copy_of(f, v[i].p);

		if (c) {
			c->models++;
			continue;
		}
		assert(f->n_copy < COPIES);
		c = &f->copy[f->n_copy++];
		*c = (struct copy){ .is = v[i], .models = 1 };
		c->far = be->ops->alloc(be, v[i].bytes);
		be->ops->write(be, c->far, v[i].p, v[i].bytes);
	}
	for (int i = before; i < f->n_copy && !f->beside; i++)
		spoil(&f->copy[i]);
	return 0;
}

static void far_unplace(struct backend *be, const struct placed *v, int n)
{
	struct far *f = (struct far *)be;

	for (int i = 0; i < n; i++) {
		struct copy *c = copy_of(f, v[i].p);

		assert(c && c->models > 0);
		if (--c->models)
			continue;
		if (!f->beside)
			mend(c);
		be->ops->free(be, c->far, c->is.bytes);
		*c = f->copy[--f->n_copy];
	}
}

/* The same of what may be a placed vector or the backend's own memory. */
static const void *over_if_placed(struct far *f, const void *p)
{
	return copy_of(f, p) ? over(f, p) : p;
}

static const struct weight *weight_over(struct far *f, const struct weight *w)
{
	struct twin *t = NULL;

	if (!w || !f->n_copy)
		return w;
	for (int i = 0; i < f->n_twin && !t; i++)
		if (f->twin[i]->at == w)
			t = f->twin[i];
	if (!t) {
		assert(f->n_twin < TWINS);
		t = f->twin[f->n_twin++] = xcalloc(1, sizeof *t);
		t->at = w;
	} else if (!memcmp(&t->of, w, sizeof *w)) {
		return &t->to;
	}
	t->of = t->to = *w;
	t->to.data = over(f, w->data);
	t->to.scales = over(f, w->scales);
	t->to.biases = over(f, w->biases);
	t->to.packed = NULL;
	return &t->to;
}

/* n weights one after the other; valid until the operation ends. */
static const struct weight *list_over(struct far *f, const struct weight *w, int n)
{
	struct weight *v;

	if (!w || !f->n_copy)
		return w;
	assert(f->n_list < LISTS);
	v = f->list[f->n_list++] = xcalloc((size_t)n, sizeof *v);
	for (int i = 0; i < n; i++)
		v[i] = *weight_over(f, &w[i]);
	return v;
}

static void lists_end(struct far *f)
{
	while (f->n_list)
		free(f->list[--f->n_list]);
}

/* ---- the tables of a step ---- */

static void *table_room(struct far *f, size_t bytes)
{
	void *p = take(f, bytes);

	assert(f->n_table < TABLES);
	protect(f, PROT_READ | PROT_WRITE);
	f->table[f->n_table].p = p;
	f->table[f->n_table++].bytes = bytes;
	return p;
}

/* A copy of host[n], which ends with the pass. */
static const void *table_over(struct far *f, const void *host, size_t n, size_t each)
{
	void *p;

	if (!host || !n)
		return NULL;
	p = table_room(f, n * each);
	memcpy(p, host, n * each);
	return p;
}

/* Rows that bring their vectors, side by side. */
static const float *const *brought_over(struct far *f, const struct pass *p)
{
	size_t cols = (size_t)p->brought.cols;
	const float **row;
	float *all;

	if (!p->brought.n)
		return NULL;
	row = xcalloc((size_t)p->brought.n, sizeof *row);
	all = table_room(f, (size_t)p->brought.n * cols * sizeof *all);
	for (int i = 0; i < p->brought.n; i++) {
		row[i] = all + (size_t)i * cols;
		memcpy(all + (size_t)i * cols, p->brought.v[i], cols * sizeof *all);
	}
	return row;
}

static void kv_tables_over(struct far *f, const struct pass *p)
{
	size_t items = (size_t)p->n_item;

	for (int g = 0; g < KV_GROUPS; g++) {
		struct kv_view *to = &f->kv[g];

		if (!p->kv[g])
			continue;
		*to = *p->kv[g];
		to->layer = table_over(f, to->layer, (size_t)to->layers, sizeof *to->layer);
		to->page = table_over(f, to->page, items * (size_t)to->page_max, sizeof *to->page);
		to->first = table_over(f, to->first, items, sizeof *to->first);
	}
}

/* The view with the table of rates that its shape names; the list itself is the host's. */
static struct state_view rates_over(struct far *f, const struct state_view *view)
{
	struct state_view to = *view;
	int n = view->shape.layers;

	if (!view->shape.rate || !f->n_copy)
		return to;
	assert(n <= RATES);
	for (int i = 0; i < n; i++)
		f->rate[i] = over(f, view->shape.rate[i]);
	to.shape.rate = f->rate;
	return to;
}

/* p[n] is memory of one allocation; without floats p is NULL. */
static void check_room(const struct far *f, const float *p, size_t n)
{
	const uint8_t *from = (const uint8_t *)p, *to = (const uint8_t *)(p + n);
	bool inside = false;

	for (int i = 0; i < f->n && !inside; i++)
		inside = from >= f->area[i].p && to <= f->area[i].p + f->area[i].bytes;
	assert(n ? inside : !p);
}

static void state_tables_over(struct far *f, struct state_view *to, const struct state_view *view)
{
	if (!view)
		return;
	for (int i = 0; i < view->n_keep; i++) {
		check_room(f, view->keep[i].s, (size_t)view->shape.layers * state_floats(&view->shape));
		check_room(f, view->keep[i].tail, (size_t)view->shape.layers * state_tail_floats(&view->shape));
	}
	*to = rates_over(f, view);
	to->owed = table_over(f, to->owed, (size_t)to->slots, sizeof *to->owed);
	to->still = table_over(f, to->still, (size_t)to->slots, sizeof *to->still);
	to->keep = table_over(f, to->keep, (size_t)to->n_keep, sizeof *to->keep);
	to->keep_ns = NULL; /* host memory, which no device adds to */
}

static void tables_end(struct far *f)
{
	while (f->n_table) {
		f->n_table--;
		f->be.ops->free(&f->be, f->table[f->n_table].p, f->table[f->n_table].bytes);
	}
	if (f->of)
		free((void *)(uintptr_t)f->tables.brought.v);
	f->of = NULL;
}

/* A pass that a fault of its request broke off does not end. */
static int far_begin(struct pass *p)
{
	struct far *f = (struct far *)p->be;
	size_t rows = (size_t)p->n_row, items = (size_t)p->n_item;

	if (fails(f))
		return E_DEVICE;
	tables_end(f);
	f->tables = *p;
	f->tables.tok = table_over(f, p->tok, rows, sizeof *p->tok);
	f->tables.pos = table_over(f, p->pos, rows, sizeof *p->pos);
	f->tables.item = table_over(f, p->item, rows, sizeof *p->item);
	f->tables.span = table_over(f, p->span, items, sizeof *p->span);
	f->tables.row = table_over(f, p->row, items, sizeof *p->row);
	f->tables.logit_row = table_over(f, p->logit_row, (size_t)p->n_logit, sizeof *p->logit_row);
	f->tables.rope_pos = table_over(f, p->rope_pos, rows, 3 * sizeof *p->rope_pos);
	f->tables.see = table_over(f, p->see, rows, sizeof *p->see);
	f->tables.grid = table_over(f, p->grid, rows, sizeof *p->grid);
	f->tables.picked.row = table_over(f, p->picked.row, (size_t)p->picked.n, sizeof *p->picked.row);
	f->tables.brought.v = brought_over(f, p);
	kv_tables_over(f, p);
	state_tables_over(f, &f->state, p->state);
	state_tables_over(f, &f->past, p->past);
	away(&f->be);
	f->of = p;
	return 0;
}

static int far_end(struct pass *p)
{
	struct far *f = (struct far *)p->be;
	bool failed = fails(f);

	assert(failed || f->of == p);
	tables_end(f);
	return failed ? E_DEVICE : 0;
}

/* What the operation is given must be a view that the pass had when it began. */
static const struct kv_view *kv_over(struct pass *p, const struct kv_view *view)
{
	struct far *f = (struct far *)p->be;

	for (int g = 0; g < KV_GROUPS; g++)
		if (view && p->kv[g] == view && f->of == p && f->tables.kv[g] == view)
			return &f->kv[g];
	assert(!view && "a view that is not the pass's");
	return NULL;
}

/* ---- operations ---- */

#define FAR(op, ...)                              \
	do {                                      \
		struct pass q_;                   \
                                                  \
		if (p->be->failed.code)           \
			break;                    \
		q_ = near_pass(p);                \
		q_.be->ops->op(&q_, __VA_ARGS__); \
		lists_end((struct far *)p->be);   \
		away(p->be);                      \
	} while (0)

static void far_embed(struct pass *p, float *out, const struct weight *w)
{
	FAR(embed, out, weight_over((struct far *)p->be, w));
}

static void far_bring(struct pass *p, float *x, int cols, int level)
{
	FAR(bring, x, cols, level);
}

static void far_norm(struct pass *p, float *out, const float *in, int n, int cols, const float *gain, float eps)
{
	FAR(norm, out, in, n, cols, over((struct far *)p->be, gain), eps);
}

static void far_layer_norm(struct pass *p, float *out, const float *in, int n, int cols, const float *gain,
                           const float *bias, float eps)
{
	struct far *f = (struct far *)p->be;

	FAR(layer_norm, out, in, n, cols, over(f, gain), over(f, bias), eps);
}

static void far_linear(struct pass *p, const struct linear *job, int n_job, const float *in, int n, int cols)
{
	struct far *f = (struct far *)p->be;
	struct linear over_there[LINEAR_JOBS], up[LINEAR_JOBS];

	for (int i = 0; i < n_job; i++) {
		over_there[i] = job[i];
		over_there[i].w = weight_over(f, job[i].w);
		over_there[i].bias = over(f, job[i].bias);
		over_there[i].reader = weight_over(f, job[i].reader);
		if (!job[i].up)
			continue;
		up[i] = *job[i].up;
		up[i].w = weight_over(f, up[i].w);
		up[i].bias = over(f, up[i].bias);
		over_there[i].up = &up[i];
	}
	FAR(linear, over_there, n_job, in, n, cols);
}

static struct attn attn_over(struct far *f, const struct attn *a)
{
	struct attn to = *a;

	to.q_norm = over(f, a->q_norm);
	to.k_norm = over(f, a->k_norm);
	to.sinks = over(f, a->sinks);
	to.pool_bias = over(f, a->pool_bias);
	to.rope.freq = over(f, a->rope.freq);
	to.rope.axis = over(f, a->rope.axis);
	return to;
}

static void far_kv_append(struct pass *p, const struct attn *a, float *q, size_t q_row, size_t q_head, float *k,
                          const float *v, const struct kv_view *view, int layer)
{
	struct attn to = attn_over((struct far *)p->be, a);

	FAR(kv_append, &to, q, q_row, q_head, k, v, kv_over(p, view), layer);
}

static void far_attend(struct pass *p, float *out, const struct attn *a, const float *q, const float *gate,
                       size_t q_row, size_t q_head, const struct kv_view *view, int layer)
{
	struct attn to = attn_over((struct far *)p->be, a);

	FAR(attend, out, &to, q, gate, q_row, q_head, kv_over(p, view), layer);
}

static void far_choose(struct pass *p, int32_t *chosen, int most, const struct attn *a, const float *q, size_t q_row,
                       size_t q_head, const float *weight, const struct kv_view *view, int layer)
{
	struct attn to = attn_over((struct far *)p->be, a);

	FAR(choose, chosen, most, &to, q, q_row, q_head, weight, kv_over(p, view), layer);
}

static void far_compress(struct pass *p, const struct compress *o, const float *k, const float *v,
                         const struct kv_view *raw, int raw_layer, const struct kv_view *view, int layer)
{
	struct far *f = (struct far *)p->be;
	struct compress to = *o;

	to.bias = over(f, o->bias);
	to.gain = over(f, o->gain);
	to.rope.freq = over(f, o->rope.freq);
	FAR(compress, &to, k, v, kv_over(p, raw), raw_layer, kv_over(p, view), layer);
}

static void far_attend_chosen(struct pass *p, float *out, const struct attn *a, const float *q, const float *gate,
                              size_t q_row, size_t q_head, const int32_t *chosen, int most, const struct kv_view *view,
                              int layer)
{
	struct attn to = attn_over((struct far *)p->be, a);

	to.rows = kv_over(p, a->rows);
	FAR(attend_chosen, out, &to, q, gate, q_row, q_head, chosen, most, kv_over(p, view), layer);
}

static const struct state_view *state_of(struct pass *p, const struct state_view *view)
{
	struct far *f = (struct far *)p->be;

	if (view && view == p->past && f->of == p && view == f->tables.past)
		return &f->past;
	assert(view == p->state && f->of == p && view == f->tables.state && "a view that is not the pass's");
	return view ? &f->state : NULL;
}

static void far_conv(struct pass *p, float *out, const struct conv *c, int n_conv, const float *in, int at, int n,
                     const struct state_view *view, int layer)
{
	struct far *f = (struct far *)p->be;
	struct conv to[CONVS];

	assert(n_conv <= CONVS);
	for (int i = 0; i < n_conv; i++) {
		to[i] = c[i];
		to[i].w = over(f, c[i].w);
		to[i].bias = over(f, c[i].bias);
	}
	FAR(conv, out, to, n_conv, in, at, n, state_of(p, view), layer);
}

static void far_by_head(struct pass *p, float *out, const struct by_head *h, const float *in, int n)
{
	struct by_head to = *h;

	to.w = list_over((struct far *)p->be, h->w, h->heads);
	FAR(by_head, out, &to, in, n);
}

static void far_recur(struct pass *p, float *out, const struct recur *r, const struct recur_in *in,
                      const struct state_view *view, int layer)
{
	struct far *f = (struct far *)p->be;
	struct recur to = *r;
	const struct state_view *there = f->be.failed.code ? NULL : state_of(p, view);
	const float **vector[] = { &to.conv, &to.conv_bias, &to.a_log_exp, &to.dt_bias, &to.decay,    &to.skip,
		                   &to.norm, &to.key_gain,  &to.key_rate,  &to.bonus,   &to.norm_bias };

	for (size_t i = 0; i < sizeof vector / sizeof *vector; i++)
		*vector[i] = over(f, *vector[i]);
	to.reader = weight_over(f, r->reader);
	FAR(recur, out, &to, in, there, layer);
}

static void far_tape_apply(struct backend *be, const struct state_view *view, int slot, int keep)
{
	struct state_view there = rates_over((struct far *)be, view);
	struct far *f;

	/* Not of a pass: it names the tape by its arguments. */
	there.owed = NULL;
	there.still = NULL;
	there.keep = NULL;
	f = near_be(be);
	f->inner->ops->tape_apply(f->inner, &there, slot, keep);
	away(be);
}

static void far_moe(struct pass *p, float *out, bool add, const struct moe *m, const float *in, const float *by, int n,
                    int cols)
{
	struct far *f = (struct far *)p->be;
	struct moe to = *m;
	const float **vector[] = { &to.router_bias, &to.select_bias, &to.expert_scale,
		                   &to.gate_bias,   &to.up_bias,     &to.down_bias };
	const struct weight **weight[] = { &to.router, &to.shared_gate, &to.shared_up, &to.shared_down,
		                           &to.shared_router };

	for (size_t i = 0; i < sizeof vector / sizeof *vector; i++)
		*vector[i] = over(f, *vector[i]);
	for (size_t i = 0; i < sizeof weight / sizeof *weight; i++)
		*weight[i] = weight_over(f, *weight[i]);
	to.gate = list_over(f, m->gate, m->experts);
	to.up = list_over(f, m->up, m->experts);
	to.down = list_over(f, m->down, m->experts);
	FAR(moe, out, add, &to, in, by, n, cols);
}

static void far_heads(struct pass *p, float *out, int out_dim, const float *in, int in_dim, int n, int heads,
                      const struct grid_rope *rope)
{
	FAR(heads, out, out_dim, in, in_dim, n, heads, rope);
}

static void far_gate(struct pass *p, float *x, const float *y, int n, int cols, const struct activation *act)
{
	FAR(gate, x, y, n, cols, act);
}

static void far_affine(struct pass *p, float *x, int n, int cols, const float *gain, const float *shift, float low,
                       float high)
{
	struct far *f = (struct far *)p->be;

	FAR(affine, x, n, cols, over(f, gain), over(f, shift), low, high);
}

static void far_add(struct pass *p, float *x, const float *y, int n, int cols, float scale)
{
	FAR(add, x, over_if_placed((struct far *)p->be, y), n, cols, scale);
}

static void far_map(struct pass *p, float *x, int n, int cols, float scale, float cap)
{
	FAR(map, x, n, cols, scale, cap);
}

static void far_mul(struct pass *p, float *x, const float *y, size_t y_ld, int each, int n, int cols)
{
	FAR(mul, x, over_if_placed((struct far *)p->be, y), y_ld, each, n, cols);
}

static void far_blend(struct pass *p, float *out, size_t out_ld, const float *a, const float *b, const float *t, int n,
                      int cols)
{
	FAR(blend, out, out_ld, a, b, t, n, cols);
}

static void far_mix_streams(struct pass *p, float *out, const float *x, const float *by, int n, int streams, int cols)
{
	FAR(mix_streams, out, x, by, n, streams, cols);
}

static void far_add_streams(struct pass *p, float *x, bool add, const float *y, const float *by, float scale, int n,
                            int streams, int cols)
{
	FAR(add_streams, x, add, y, by, scale, n, streams, cols);
}

static void far_match_streams(struct pass *p, float *out, const float *a, const float *b, float scale, int n,
                              int streams, int cols)
{
	FAR(match_streams, out, a, b, scale, n, streams, cols);
}

static void far_conv_block(struct pass *p, float *out, const float *in, const float *base, const float *by,
                           size_t by_ld, int taps, int each, int cols)
{
	FAR(conv_block, out, in, over((struct far *)p->be, base), by, by_ld, taps, each, cols);
}

static void far_gate_streams(struct pass *p, float *out, float *z, const struct stream_gates *g, const float *x, int n,
                             int cols)
{
	struct stream_gates to = *g;

	to.base = over((struct far *)p->be, g->base);
	to.scale = over((struct far *)p->be, g->scale);
	FAR(gate_streams, out, z, &to, x, n, cols);
}

static void far_join_streams(struct pass *p, float *x, const float *gates, const float *y, int n, int streams, int cols)
{
	FAR(join_streams, x, gates, y, n, streams, cols);
}

static void far_mean_streams(struct pass *p, float *out, const float *x, int n, int streams, int cols)
{
	FAR(mean_streams, out, x, n, streams, cols);
}

static void far_embed_ngrams(struct pass *p, float *out, const struct ngrams *g, const struct state_view *view,
                             int layer, int at)
{
	struct ngrams to = *g;

	to.part = list_over((struct far *)p->be, g->part, g->n_part);
	FAR(embed_ngrams, out, &to, state_of(p, view), layer, at);
}

static void far_gather(struct pass *p, float *out, const float *in, const int32_t *index, int n, int cols)
{
	struct far *f = (struct far *)p->be;

	if (index >= p->logit_row && index + n <= p->logit_row + p->n_logit) {
		index = f->tables.logit_row + (index - p->logit_row);
	} else {
		assert(index >= p->picked.row && index + n <= p->picked.row + p->picked.n &&
		       "rows that the pass does not name");
		index = f->tables.picked.row + (index - p->picked.row);
	}
	FAR(gather, out, in, index, n, cols);
}

static void far_close(struct backend *be)
{
	struct far *f = (struct far *)be;

	tables_end(f);
	near_be(be);
	for (int i = 0; i < f->n_twin; i++)
		free(f->twin[i]);
	munmap(f->range, RANGE);
	f->inner->ops->close(f->inner);
	free(f);
}

static const struct backend_ops far_ops = {
	.name = "far",
	.alloc = far_alloc,
	.free = far_free,
	.write = far_write,
	.read = far_read,
	.copy = far_copy,
	.place = far_place,
	.unplace = far_unplace,
	.begin = far_begin,
	.end = far_end,
	.embed = far_embed,
	.bring = far_bring,
	.norm = far_norm,
	.layer_norm = far_layer_norm,
	.linear = far_linear,
	.kv_append = far_kv_append,
	.attend = far_attend,
	.compress = far_compress,
	.choose = far_choose,
	.attend_chosen = far_attend_chosen,
	.by_head = far_by_head,
	.conv = far_conv,
	.recur = far_recur,
	.tape_apply = far_tape_apply,
	.moe = far_moe,
	.heads = far_heads,
	.gate = far_gate,
	.affine = far_affine,
	.add = far_add,
	.map = far_map,
	.mul = far_mul,
	.blend = far_blend,
	.mix_streams = far_mix_streams,
	.add_streams = far_add_streams,
	.match_streams = far_match_streams,
	.conv_block = far_conv_block,
	.gate_streams = far_gate_streams,
	.join_streams = far_join_streams,
	.mean_streams = far_mean_streams,
	.embed_ngrams = far_embed_ngrams,
	.gather = far_gather,
	.close = far_close,
};

struct backend *far_open(struct backend *inner)
{
	struct far *f = xcalloc(1, sizeof *f);

	f->be = (struct backend){ .ops = &far_ops,
		                  .arithmetic = inner->arithmetic,
		                  .order = inner->order,
		                  .level = inner->level,
		                  .threads = inner->threads };
	f->inner = inner;
	f->range = mmap(NULL, RANGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert(f->range != MAP_FAILED);
	return &f->be;
}

struct backend *far_open_beside(struct backend *inner)
{
	struct backend *be = far_open(inner);

	((struct far *)be)->beside = true;
	return be;
}

void far_fail(struct backend *be, int calls)
{
	assert(be->ops == &far_ops && calls > 0);
	((struct far *)be)->calls_left = calls;
}
