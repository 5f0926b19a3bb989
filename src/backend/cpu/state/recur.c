/* recur.c - the frame of recurrent layers between their projections; see recur.h.
 *
 * A part is an item's rows through one key head and the value heads that share it (or
 * through one value head, where a key head has many), from the convolution to the output
 * gate, a block of tokens at a time: rows of a step lie a multiple of pages apart, so what
 * is read of them is read once, into rows side by side. S of a head is cut into tiles of 32
 * value columns, of which one or two stay in the first cache while the block's tokens stream
 * past.
 *
 * Tokens go through S one by one, whatever the step's cut, so a row's bits are the same
 * however it came. */
#include "backend/cpu/state/recur.h"

#include <assert.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/clock.h"

enum { BLOCK = 64 }; /* tokens, at least; a block with tentative ones has all that are left */

static const struct activation silu = { .kind = ACT_SILU };

static const struct recur_rule *const rules[RECUR_RULES] = {
	[RECUR_DELTA] = &rule_delta, [RECUR_FIXED] = &rule_fixed, [RECUR_SSM] = &rule_ssm,
	[RECUR_KDA] = &rule_kda,     [RECUR_SCAN] = &rule_scan,   [RECUR_RWKV7] = &rule_rwkv7,
};

static int slot_of(const struct recur_job *j, int item)
{
	return j->rows.p->span[item].slot;
}
static int owed(const struct recur_job *j, int item)
{
	return j->rows.view->owed[slot_of(j, item)];
}
static int taped(const struct recur_job *j, int item)
{
	return state_taped(j->rows.view, &j->rows.p->span[item]);
}

static float *state_of(const struct state_view *v, int slot, int layer)
{
	return v->s + ((size_t)slot * (size_t)v->shape.layers + (size_t)layer) * state_floats(&v->shape);
}

static size_t head_floats(const struct state_shape *s)
{
	return state_floats(s) / (size_t)s->heads_v;
}

/* ---- a part's memory ---- */

static size_t round16(int n)
{
	return ((size_t)n + 15) / 16 * 16;
}

static size_t decay_floats(const struct recur_job *j)
{
	return j->rule->kernel == HEAD_SCAN ? (size_t)j->s->dim_v : 1;
}

static size_t part_bytes(const struct recur_job *j)
{
	size_t dim_k = (size_t)j->s->dim_k, dim_v = (size_t)j->s->dim_v;
	size_t row = (size_t)j->rule->key_rows * dim_k + 2 * dim_v + 3 + decay_floats(j);

	return (round16(j->rows_most) * row + RECUR_SPARE * dim_k) * sizeof(float) +
	       ((size_t)j->rows_most + CONV_MAX) * sizeof(float *);
}

static struct recur_part part_of(const struct recur_job *j)
{
	size_t rows = round16(j->rows_most), dim_k = (size_t)j->s->dim_k, dim_v = (size_t)j->s->dim_v;
	struct recur_part k = { .j = j, .kq = cpu_my_scratch(j->c), .kq_ld = (size_t)j->rule->key_rows * dim_k };

	k.v = k.kq + rows * k.kq_ld;
	k.out = k.v + rows * dim_v;
	k.dot = k.out + rows * dim_v;
	k.decay = k.dot + rows;
	k.beta = k.decay + rows * decay_floats(j);
	k.dot2 = k.beta + rows;
	k.spare = k.dot2 + rows;
	k.row = (const float **)(k.spare + RECUR_SPARE * dim_k);
	return k;
}

/* ---- what rules share ---- */

void recur_x(const struct recur_part *k, float *out, size_t ld, int i, int m, int c, int n)
{
	const struct recur_job *j = k->j;
	int before = j->s->conv_width - 1;

	if (!j->r->conv) {
		for (int t = 0; t < m; t++)
			memcpy(out + (size_t)t * ld, recur_row(k, j->in->x, i + t, j->x_cols) + c,
			       (size_t)n * sizeof *out);
		return;
	}
	for (int t = 0; t < before + m; t++)
		k->row[t] = conv_input(&j->rows, k->item, i - before + t, c);
	j->c->recur->conv(out, ld, k->row, m, j->r->conv + c, (size_t)j->s->conv_channels,
	                  j->r->conv_bias ? j->r->conv_bias + c : NULL, before + 1, n, true);
}

/* ---- a value head ---- */

/* The value heads of key head hk are first, first + step ... */
static int first_head(const struct state_shape *s, int hk)
{
	return s->tiled ? hk : hk * (s->heads_v / s->heads_k);
}

static int head_step(const struct state_shape *s)
{
	return s->tiled ? s->heads_k : 1;
}

static int key_head(const struct state_shape *s, int h)
{
	return s->tiled ? h % s->heads_k : h / (s->heads_v / s->heads_k);
}

/* The first n rows of a layer's tape, as value head h's old ones. */
static void old_rows(const struct state_shape *s, const struct state_tape *at, struct recur_rows *t, const float *tape,
                     int n, int h)
{
	int hk = key_head(s, h);

	t->old_k = tape + at->key + (size_t)(hk * s->dim_k);
	t->old_decay = tape + at->decay + (size_t)h * (size_t)at->decay_n;
	t->old_d = tape + at->update + (size_t)(h * s->dim_v);
	t->old_k2 = tape + at->key2 + (size_t)(h * s->dim_k);
	t->old_d2 = tape + at->update2 + (size_t)(h * s->dim_v);
	t->n_old = n;
}

static const float *rate_of(const struct state_view *v, int layer, int h)
{
	return v->shape.rate ? v->shape.rate[layer] + (size_t)h * (size_t)v->shape.dim_k * (size_t)v->shape.dim_v :
	                       NULL;
}

/* The floats of a tentative row that the kernel has not written; not before it ran: the old ones may lie there. */
static void tape_head(const struct recur_part *k, const struct recur_rows *t, int i, int row, int h)
{
	const struct recur_job *j = k->j;
	size_t n = (size_t)j->tape.decay_n, dim = (size_t)j->s->dim_k;
	float *to = conv_taped_row(&j->rows, k->item, row);

	memcpy(to + j->tape.decay + (size_t)h * n, t->decay + (size_t)i * t->decay_ld, n * sizeof *to);
	if (t->put2)
		memcpy(to + j->tape.key2 + (size_t)h * dim, t->put2 + (size_t)i * t->kq_ld, dim * sizeof *to);
}

/* Rows [i0, i0 + n) of value head h from the kernel to the layer's output. */
static void gate_rows(const struct recur_part *k, int i0, int n, int h)
{
	enum { AHEAD = 3, LINE = 16 }; /* rows; floats */
	const struct recur_job *j = k->j;
	const struct recur *r = j->r;
	int dim = j->s->dim_v;
	size_t row_floats = (size_t)j->s->heads_v * (size_t)dim;
	size_t at = ((size_t)j->rows.p->row[k->item] + (size_t)i0) * row_floats + (size_t)(h * dim);

	for (int i = 0; i < n; i++, at += row_floats) {
		float *row = k->out + (size_t)(i * dim), *to = j->made ? row : j->out + at;
		const float *z = j->in->z + at;

		for (int l = 0; l < dim && i + AHEAD < n; l += LINE)
			__builtin_prefetch(z + AHEAD * row_floats + l);
		if (r->norm)
			j->c->op->gated_norm(to, row, z, dim, r->norm, r->eps, r->sigmoid_gate);
		else
			j->c->op->gate(to, z, row, dim, &silu);
		if (j->made)
			cpu_made_put(j->c, j->made, j->rows.p->row[k->item] + i0 + i, h * dim, row, dim);
	}
}

/* Rows [i0, i0 + n) of value head h to the layer's output as they are. */
static void plain_rows(const struct recur_part *k, int i0, int n, int h)
{
	const struct recur_job *j = k->j;
	int dim = j->s->dim_v;
	size_t row_floats = (size_t)j->s->heads_v * (size_t)dim;
	float *to = j->out + ((size_t)j->rows.p->row[k->item] + (size_t)i0) * row_floats + (size_t)(h * dim);

	for (int i = 0; i < n; i++, to += row_floats)
		memcpy(to, k->out + (size_t)(i * dim), (size_t)dim * sizeof *to);
}

/* Norms over several heads follow when all heads are done; without a gate nothing does. */
static bool gated_by_head(const struct recur_job *j)
{
	return j->in->z && !j->r->norm_cols;
}

/* Value head h through n rows from i0 on. */
static void head_rows(const struct recur_part *k, int i0, int n, int h)
{
	const struct recur_job *j = k->j;
	const struct state_shape *s = j->s;
	int slot = slot_of(j, k->item), sure = taped(j, k->item) - i0;
	struct recur_rows t = {
		.kq_ld = k->kq_ld,
		.v = k->v,
		.decay = k->decay,
		.decay_ld = decay_floats(j),
		.beta = k->beta,
		.dot = k->dot,
		.dot2 = k->dot2,
		.rate = rate_of(j->rows.view, j->rows.layer, h),
		.out = k->out,
		.n = n,
		.n_sure = sure < 0 ? 0 :
		          sure < n ? sure :
		                     n,
		.tape_ld = j->tape.floats,
	};

	j->rule->head(k, i0, n, h, &t);
	if (i0 == 0 && owed(j, k->item))
		old_rows(s, &j->tape, &t, state_tape_row(j->rows.view, slot, j->rows.layer, 0), owed(j, k->item), h);
	if (t.n_sure < n) {
		float *to = conv_taped_row(&j->rows, k->item, i0 + t.n_sure);

		t.tape = to + j->tape.update + (size_t)(h * s->dim_v);
		t.tape2 = to + j->tape.update2 + (size_t)(h * s->dim_v);
	}
	j->c->recur->head[j->rule->kernel](state_of(j->rows.view, slot, j->rows.layer) + (size_t)h * head_floats(s),
	                                   s->dim_k, s->dim_v, &t, k->spare);
	for (int i = t.n_sure; i < n; i++)
		tape_head(k, &t, i, i0 + i, h);
	if (j->rule->finish)
		j->rule->finish(k, i0, n, h);
	if (gated_by_head(j))
		gate_rows(k, i0, n, h);
	else
		plain_rows(k, i0, n, h);
}

/* ---- a part ---- */

/* The columns of all value heads that key head hk's own are: in one range, or one per head. */
struct range {
	int c, n;
};
static int value_ranges(const struct state_shape *s)
{
	return s->tiled ? s->heads_v / s->heads_k : 1;
}

static struct range value_range(const struct state_shape *s, int hk, int i)
{
	int heads = s->heads_v / s->heads_k / value_ranges(s);

	return (struct range){ (first_head(s, hk) + i * head_step(s)) * s->dim_v, heads * s->dim_v };
}

/* The channels of x that key head hk and its value heads read, where they are their own: q, k, values. */
static int channel_ranges(const struct state_shape *s)
{
	return 2 + value_ranges(s);
}

static struct range channel_range(const struct state_shape *s, int hk, int i)
{
	struct range r;

	if (i < 2)
		return (struct range){ (i * s->heads_k + hk) * s->dim_k, s->dim_k };
	r = value_range(s, hk, i - 2);
	r.c += 2 * s->heads_k * s->dim_k;
	return r;
}

/* Copies n floats past the processor's caches: the copy is not read soon, and the pass's data stays cached. */
static void stream(float *to, const float *from, size_t n)
{
#ifdef __SSE2__
	if (((uintptr_t)to | (uintptr_t)from) % 16 == 0 && n % 4 == 0) {
		for (size_t i = 0; i < n; i += 4)
			_mm_stream_ps(to + i, _mm_load_ps(from + i));
		_mm_sfence();
		return;
	}
#endif
	memcpy(to, from, n * sizeof *to);
}

/* Copies what the sequence would hold had it stopped at `keep`, of n value heads from h on. */
static void keep_part(const struct recur_part *k, const struct state_keep *keep, int h, int n)
{
	const struct recur_job *j = k->j;
	size_t head = head_floats(j->s), layer = (size_t)j->rows.layer * state_floats(j->s);
	const float *s = state_of(j->rows.view, slot_of(j, k->item), j->rows.layer);

	for (int i = 0, at = h; i < n; i++, at += head_step(j->s))
		stream(keep->s + layer + (size_t)at * head, s + (size_t)at * head, head);
	for (int i = 0; i < channel_ranges(j->s) && j->r->conv; i++) {
		struct range r = channel_range(j->s, k->hk, i);

		conv_tail_after(&j->rows, keep->tail + (size_t)j->rows.layer * state_tail_floats(j->s), k->item,
		                keep->row, r.c, r.n);
	}
}

/* Keeps the state of the part's heads, and adds the nanoseconds it took, divided by the number of threads, to the view's. */
static void keep_timed(const struct recur_part *k, const struct state_keep *keep, int h)
{
	const struct recur_job *j = k->j;
	int64_t *ns = j->rows.view->keep_ns;
	int64_t began = ns ? clock_monotonic_ns() : 0;

	keep_part(k, keep, h, j->heads);
	if (ns)
		__atomic_fetch_add(ns, (clock_monotonic_ns() - began) / pool_threads(j->c->pool), __ATOMIC_RELAXED);
}

static void prefetch(const float *x, int n)
{
	for (int i = 0; i < n; i += 16)
		__builtin_prefetch(x + i);
}

/* Prefetches what a step of few rows reads of a key head besides S: it lies in many places, a line or
 * some in each, and has long left the caches. */
static void prefetch_head(const struct recur_job *j, int item, int hk)
{
	const struct state_shape *s = j->s;

	for (int i = 1 - s->conv_width; i < 1 && j->r->conv; i++)
		for (int c = 0; c < channel_ranges(s); c++) {
			struct range r = channel_range(s, hk, c);

			prefetch(conv_input(&j->rows, item, i, r.c), r.n);
		}
	for (int i = 0; i < owed(j, item); i++) {
		const float *tape = state_tape_row(j->rows.view, slot_of(j, item), j->rows.layer, i);

		prefetch(tape + j->tape.key + (size_t)(hk * s->dim_k), s->dim_k);
		for (int c = 0; c < value_ranges(s); c++)
			prefetch(tape + j->tape.update + value_range(s, hk, c).c, value_range(s, hk, c).n);
	}
}

/* Rows [i, i + n) of the item through the part's value heads, from h on, of key head k->hk. */
static void block_rows(const struct recur_part *k, int i, int n, int h)
{
	const struct recur_job *j = k->j;
	int from = taped(j, k->item) > i ? taped(j, k->item) : i;

	j->rule->keys(k, i, n);
	for (int v = 0; v < j->heads; v++)
		head_rows(k, i, n, h + v * head_step(j->s));
	/* Not before: the old ones may lie there.  Keys of several parts are taped when all are done. */
	for (int t = from; t < i + n && !j->rule->shared_keys; t++)
		memcpy(conv_taped_row(&j->rows, k->item, t) + j->tape.key + (size_t)(k->hk * j->s->dim_k),
		       j->rule->taped_key(k, t - i), (size_t)j->s->dim_k * sizeof(float));
}

/* Tails and taped inputs of the channels that the part convolved. */
static void conv_end(const struct recur_part *k)
{
	const struct recur_job *j = k->j;
	int slot = slot_of(j, k->item);

	for (int i = 0; i < channel_ranges(j->s); i++) {
		struct range r = channel_range(j->s, k->hk, i);

		if (!j->rows.view->still[slot])
			conv_tail_after(&j->rows, tail_of(j->rows.view, slot, j->rows.layer), k->item,
			                taped(j, k->item), r.c, r.n);
		conv_tape(&j->rows, k->item, r.c, r.n);
	}
}

/* Parts: item x heads. */
static void recur_part(void *ctx, int part)
{
	const struct recur_job *j = ctx;
	const struct state_shape *s = j->s;
	int parts = s->heads_v / j->heads, item = part / parts;
	int h = j->rule->shared_keys ? part % parts : first_head(s, part % parts);
	int rows = j->rows.p->span[item].n;
	struct recur_part k = part_of(j);

	k.item = item;
	k.hk = key_head(s, h);
	if (rows < BLOCK && k.hk + 1 < s->heads_k && !j->rule->shared_keys)
		prefetch_head(j, item, k.hk + 1);
	for (int i = 0, n; i < rows; i += n) {
		const struct state_keep *keep = keep_after(j->rows.view, item, i);

		n = taped(j, item) - i > BLOCK ? BLOCK : rows - i;
		if (keep && keep->row - i < n)
			n = keep->row - i;
		block_rows(&k, i, n, h);
		if (keep && keep->row == i + n)
			keep_timed(&k, keep, h);
	}
	if (j->r->conv)
		conv_end(&k);
}

/* ---- rows, after all heads ---- */

/* Norm and gate of one row of all value heads, in place. */
static void finish_row(const struct recur_job *j, int row)
{
	const struct recur *r = j->r;
	const struct op_table *op = j->c->op;
	int cols = j->s->heads_v * j->s->dim_v, step = r->norm_cols;
	float *x = j->out + (size_t)row * (size_t)cols;
	const float *z = j->in->z + (size_t)row * (size_t)cols;

	for (int c = 0; c < cols; c += step) {
		if (r->gate_first) {
			op->gate(x + c, z + c, x + c, step, &silu);
			op->norm(x + c, x + c, step, r->norm + c, r->eps);
		} else {
			op->gated_norm(x + c, x + c, z + c, step, r->norm + c, r->eps, r->sigmoid_gate);
		}
		if (j->made)
			cpu_made_put(j->c, j->made, row, c, x + c, step);
	}
}

static void finish_rows(void *ctx, int begin, int end)
{
	for (int row = begin; row < end; row++)
		finish_row(ctx, row);
}

/* Keys that several parts read are laid on the tape when all of them are done with the old ones. */
static void tape_shared_keys(const struct recur_job *j, int item)
{
	int from = taped(j, item), rows = j->rows.p->span[item].n;
	struct recur_part k = part_of(j);

	k.item = item;
	for (k.hk = 0; k.hk < j->s->heads_k && from < rows; k.hk++) {
		j->rule->keys(&k, from, rows - from);
		for (int t = from; t < rows; t++)
			memcpy(conv_taped_row(&j->rows, item, t) + j->tape.key + (size_t)(k.hk * j->s->dim_k),
			       j->rule->taped_key(&k, t - from), (size_t)j->s->dim_k * sizeof(float));
	}
}

static void tape_item(void *ctx, int item)
{
	tape_shared_keys(ctx, item);
}

/* ---- the operation ---- */

/* Rows of the longest block, and the contract of the view. */
static int rows_most(const struct pass *p, const struct state_view *view)
{
	int most = 0;

	for (int i = 0; i < p->n_item; i++) {
		int late = p->span[i].n - state_taped(view, &p->span[i]);
		int n = p->span[i].n < BLOCK + late ? p->span[i].n : BLOCK + late;

		assert(p->span[i].n_draft < p->span[i].n &&
		       state_taped_at(view, &p->span[i]) + late <= view->tape_rows);
		most = n > most ? n : most;
	}
	for (int i = 0; i < view->n_keep; i++)
		assert(view->keep[i].row > 0 && view->keep[i].row <= state_taped(view, &p->span[view->keep[i].item]));
	return most;
}

void cpu_recur(struct pass *p, float *out, const struct recur *r, const struct recur_in *in,
               const struct state_view *view, int layer)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	const struct state_shape *s = &view->shape;
	const struct recur_rule *rule = rules[s->rule];
	int cols = (rule->no_keys ? 0 : 2 * s->heads_k * s->dim_k) + s->heads_v * s->dim_v;
	struct recur_job j = {
		.rows = { p, view, in->x, layer, 0, s->conv_channels },
		.c = c,
		.r = r,
		.rule = rule,
		.s = s,
		.in = in,
		.out = out,
		.tape = state_tape(s),
		.x_cols = cols,
		.heads = rule->shared_keys ? 1 : s->heads_v / s->heads_k,
	};

	assert(rule && s->heads_v % s->heads_k == 0 && s->conv_width <= CONV_MAX && (in->z || !r->norm_cols));
	assert(!r->conv || (!rule->shared_keys && s->conv_width >= 1 && s->conv_channels == cols));
	j.rows_most = rows_most(p, view);
	if (in->z)
		j.made = cpu_made_open(p, r->reader, out, p->n_row, r->norm_cols ? r->norm_cols : s->dim_v);
	cpu_scratch(c, part_bytes(&j));
	pool_run(c->pool, recur_part, &j, p->n_item * (s->heads_v / j.heads));
	if (rule->shared_keys)
		pool_run(c->pool, tape_item, &j, p->n_item);
	if (r->norm_cols)
		cpu_range(c, finish_rows, &j, p->n_row, 1);
}

/* ---- between passes ---- */

struct apply {
	struct cpu_backend *c;
	const struct state_view *view;
	int slot, keep, parts; /* parts: of a layer */
};

/* Parts: layer x value head; the first head of a layer moves its tail. */
static void apply_part(void *ctx, int part)
{
	const struct apply *d = ctx;
	const struct state_shape *s = &d->view->shape;
	int layer = part / d->parts, h = part % d->parts;
	struct state_tape at = state_tape(s);
	struct recur_rows t = { .tape_ld = at.floats, .rate = rate_of(d->view, layer, h) };

	if (s->heads_v) {
		old_rows(s, &at, &t, state_tape_row(d->view, d->slot, layer, 0), d->keep, h);
		d->c->recur->head[rules[s->rule]->kernel](
			state_of(d->view, d->slot, layer) + (size_t)h * head_floats(s), s->dim_k, s->dim_v, &t, NULL);
	}
	if (h == 0)
		conv_apply(d->view, d->slot, layer, d->keep);
}

void cpu_tape_apply(struct backend *be, const struct state_view *view, int slot, int keep)
{
	struct cpu_backend *c = (struct cpu_backend *)be;
	struct apply d = { c, view, slot, keep, view->shape.heads_v > 0 ? view->shape.heads_v : 1 };

	assert(keep > 0 && keep <= view->tape_rows);
	pool_run(c->pool, apply_part, &d, view->shape.layers * d.parts);
}
