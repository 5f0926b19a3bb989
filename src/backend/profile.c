/* profile.c - see profile.h. */
#include "backend/profile.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "quant/kv/kv_tiles.h"

static struct profile *of(const struct pass *p)
{
	return p->be->profile;
}

static struct op_cost *row_of(struct profile *f, const char *op, const char *what)
{
	struct op_cost *r = f->row;
	int i = 0;

	while (i < f->n && (strcmp(r[i].op, op) || strcmp(r[i].what, what)))
		i++;
	if (i == PROFILE_ROWS)
		return &r[PROFILE_ROWS - 1];
	if (i == f->n) {
		r[i] = (struct op_cost){ .op = op };
		snprintf(r[i].what, sizeof r[i].what, "%s", what);
		f->n++;
	}
	return &r[i];
}

static void profile_add(struct profile *f, const char *op, const char *what, int64_t since, const struct op_cost *cost)
{
	struct op_cost *r = row_of(f, op, what);

	r->ns += clock_monotonic_ns() - since;
	r->calls++;
	r->bytes += cost->bytes;
	r->int_ops += cost->int_ops;
	r->bf16_ops += cost->bf16_ops;
	r->float_ops += cost->float_ops;
}

/* ---- what a call asks for ---- */

static double weight_bytes(const struct weight *w)
{
	double scales = (double)weight_scale_bytes(w) * (w->biases ? 2 : 1);

	return (double)w->rows * ((double)w->row_bytes + scales);
}

/* n rows by w; of a share of it when only some of it is used. */
static void add_product(struct op_cost *c, const struct pass *p, const struct weight *w, double n, double share)
{
	double ops = 2.0 * n * w->rows * w->cols;
	struct kernels k;

	w->fmt->kernels(&k, p->be->profile->choices.level);
	c->bytes += share * weight_bytes(w);
	if (p->arith == ARITH_FAST && k.acts == ACTS_INT8)
		c->int_ops += ops;
	else if (p->arith == ARITH_FAST && k.acts == ACTS_BF16)
		c->bf16_ops += ops;
	else
		c->float_ops += ops;
}

/* Bytes of a position's keys and values in one layer. */
static double kv_bytes(const struct kv_view *v, int layer)
{
	const struct kv_layer *y = &v->layer[layer];

	return (double)v->heads * (double)(y->row_bytes[KV_KEYS] + y->row_bytes[KV_VALUES]);
}

/* "a.b.layers.7.mlp.up_proj.weight" -> "mlp.up_proj". */
static void short_name(char *out, size_t size, const char *name, int more)
{
	const char *at = strstr(name, "layers."), *dot;
	size_t n;

	if (at && (dot = strchr(at + 7, '.')))
		name = dot + 1;
	else if ((dot = strstr(name, "model.")))
		name = dot + 6;
	n = strlen(name);
	if (n > 7 && !strcmp(name + n - 7, ".weight"))
		n -= 7;
	if (more)
		snprintf(out, size, "%.*s +%d", (int)n, name, more);
	else
		snprintf(out, size, "%.*s", (int)n, name);
}

/* ---- the operations with timers ---- */

static void timed_embed(struct pass *p, float *out, const struct weight *table)
{
	struct op_cost c = { .bytes = weight_bytes(table) / table->rows * p->n_row };
	int64_t t = clock_monotonic_ns();

	of(p)->inner->embed(p, out, table);
	profile_add(of(p), "embed", "", t, &c);
}

static void timed_bring(struct pass *p, float *x, int cols, int level)
{
	struct op_cost c = { .bytes = (double)p->brought.n * cols * sizeof *x };
	int64_t t = clock_monotonic_ns();

	of(p)->inner->bring(p, x, cols, level);
	profile_add(of(p), "bring", "", t, &c);
}

static void timed_norm(struct pass *p, float *out, const float *in, int n, int cols, const float *gain, float eps)
{
	struct op_cost c = { .float_ops = 4.0 * n * cols };
	int64_t t = clock_monotonic_ns();

	of(p)->inner->norm(p, out, in, n, cols, gain, eps);
	profile_add(of(p), "norm", "", t, &c);
}

static void timed_linear(struct pass *p, const struct linear *job, int n_job, const float *in, int n, int cols)
{
	struct op_cost c = { 0 };
	char what[sizeof c.what];
	int64_t t;

	short_name(what, sizeof what, job[0].w->name ? job[0].w->name : "", n_job - 1);
	for (int i = 0; i < n_job; i++) {
		add_product(&c, p, job[i].w, n, 1);
		if (job[i].up) {
			add_product(&c, p, job[i].up->w, n, 1);
			c.float_ops += 2.0 * n * job[i].w->rows;
		}
	}
	t = clock_monotonic_ns();
	of(p)->inner->linear(p, job, n_job, in, n, cols);
	profile_add(of(p), "linear", what, t, &c);
}

static void timed_by_head(struct pass *p, float *out, const struct by_head *h, const float *in, int n)
{
	struct op_cost c = { 0 };
	char what[sizeof c.what];
	int64_t t;

	short_name(what, sizeof what, h->w[0].name ? h->w[0].name : "", 0);
	for (int i = 0; i < h->heads; i++)
		add_product(&c, p, &h->w[i], n, 1);
	t = clock_monotonic_ns();
	of(p)->inner->by_head(p, out, h, in, n);
	profile_add(of(p), "by_head", what, t, &c);
}

static void timed_kv_append(struct pass *p, const struct attn *a, float *q, size_t q_row, size_t q_head, float *k,
                            const float *v, const struct kv_view *view, int layer)
{
	struct op_cost c = { .bytes = k ? kv_bytes(view, layer) * p->n_row : 0 };
	int64_t t = clock_monotonic_ns();

	of(p)->inner->kv_append(p, a, q, q_row, q_head, k, v, view, layer);
	profile_add(of(p), "kv_append", "", t, &c);
}

/* Positions of which n rows from pos on see something. */
static int seen(const struct attn *a, int pos, int n)
{
	int first = a->window && pos >= a->window ? pos - a->window + 1 : 0;

	return pos + n - first;
}

static void timed_attend(struct pass *p, float *out, const struct attn *a, const float *q, const float *gate,
                         size_t q_row, size_t q_head, const struct kv_view *view, int layer)
{
	const struct kv_format *const *fmt = view->layer[layer].fmt;
	struct kv_pair pair = { fmt[KV_KEYS], fmt[KV_VALUES] };
	struct op_cost c = { 0 };
	double ops = 0;
	int64_t t;

	for (int i = 0; i < p->n_item; i++)
		c.bytes += kv_bytes(view, layer) * seen(a, p->span[i].pos, p->span[i].n);
	for (int r = 0; r < p->n_row; r++)
		ops += 4.0 * a->heads * a->dim * seen(a, p->pos[r], 1);
	if (p->arith == ARITH_FAST && kv_tiles(pair, a->dim, p->be->profile->choices.attention))
		c.bf16_ops = ops;
	else
		c.float_ops = ops;
	t = clock_monotonic_ns();
	of(p)->inner->attend(p, out, a, q, gate, q_row, q_head, view, layer);
	profile_add(of(p), "attend", "", t, &c);
}

static void timed_choose(struct pass *p, int32_t *chosen, int most, const struct attn *a, const float *q, size_t q_row,
                         size_t q_head, const float *weight, const struct kv_view *view, int layer)
{
	struct op_cost c = { 0 };
	int64_t t;

	for (int r = 0; r < p->n_row; r++) {
		int n = seen(a, p->pos[r], 1),
		    each = a->pooled ? a->pooled :
		           a->window ? 1 :
		                       view->every,
		    keys = n > most ? n / each : 0;

		c.bytes += (double)view->layer[layer].row_bytes[KV_KEYS] * keys;
		c.float_ops += 2.0 * a->heads * (a->dim + 1) * keys;
	}
	t = clock_monotonic_ns();
	of(p)->inner->choose(p, chosen, most, a, q, q_row, q_head, weight, view, layer);
	profile_add(of(p), "choose", "", t, &c);
}

static void timed_compress(struct pass *p, const struct compress *o, const float *k, const float *v,
                           const struct kv_view *raw, int raw_layer, const struct kv_view *view, int layer)
{
	struct op_cost c = { .float_ops = 4.0 * p->n_row * o->dim * (o->overlap ? 2 : 1) };
	int64_t t = clock_monotonic_ns();

	of(p)->inner->compress(p, o, k, v, raw, raw_layer, view, layer);
	profile_add(of(p), "compress", "", t, &c);
}

static void timed_attend_chosen(struct pass *p, float *out, const struct attn *a, const float *q, const float *gate,
                                size_t q_row, size_t q_head, const int32_t *chosen, int most,
                                const struct kv_view *view, int layer)
{
	struct op_cost c = { 0 };
	int64_t t;

	for (int r = 0; r < p->n_row; r++) {
		int n = seen(a, p->pos[r], 1);

		n = n < most ? n : most;
		c.bytes += kv_bytes(view, layer) * n;
		c.float_ops += 4.0 * a->heads * a->dim * n;
	}
	t = clock_monotonic_ns();
	of(p)->inner->attend_chosen(p, out, a, q, gate, q_row, q_head, chosen, most, view, layer);
	profile_add(of(p), "attend_chosen", "", t, &c);
}

/* Bytes of tails and S, and of tape rows, that a step moves in one layer. */
static double state_bytes(const struct pass *p, const struct state_view *view, double state, double tape_row)
{
	double n = 0;

	for (int i = 0; i < p->n_item; i++) {
		int taped = p->span[i].n - state_taped(view, &p->span[i]);

		n += (view->still[p->span[i].slot] ? 4.0 : 8.0) * state;
		n += 4.0 * (view->owed[p->span[i].slot] + taped) * tape_row;
	}
	return n;
}

static void timed_conv(struct pass *p, float *out, const struct conv *conv, int n_conv, const float *in, int at, int n,
                       const struct state_view *view, int layer)
{
	const struct state_shape *s = &view->shape;
	struct op_cost c = {
		.float_ops = 2.0 * p->n_row * n_conv * n * s->conv_width,
		.bytes = state_bytes(p, view, (s->conv_width - 1.0) * n, n),
	};
	int64_t t = clock_monotonic_ns();

	of(p)->inner->conv(p, out, conv, n_conv, in, at, n, view, layer);
	profile_add(of(p), "conv", "", t, &c);
}

static void timed_recur(struct pass *p, float *out, const struct recur *r, const struct recur_in *in,
                        const struct state_view *view, int layer)
{
	const struct state_shape *s = &view->shape;
	size_t tail = r->conv ? state_tail_floats(s) : 0, tape = state_tape_floats(s);
	struct op_cost c = {
		/* S'k, S'q, the decay and the update, each of an element of S what a multiplication and an addition
		 * take: of the decay a multiplication alone is needed, which takes as long. */
		.float_ops = 8.0 * p->n_row * (double)state_floats(s),
		.bytes = state_bytes(p, view, (double)(state_floats(s) + tail),
		                     (double)(r->conv ? tape : tape - (size_t)s->conv_channels)),
	};
	int64_t t = clock_monotonic_ns();

	of(p)->inner->recur(p, out, r, in, view, layer);
	profile_add(of(p), "recur", "", t, &c);
}

static void timed_moe(struct pass *p, float *out, bool add_to, const struct moe *m, const float *in, const float *by,
                      int n, int cols)
{
	const struct weight *all[] = { m->gate, m->up, m->down };
	const struct weight *shared[] = { m->shared_gate, m->shared_up, m->shared_down };
	struct op_cost c = { 0 };
	double picks = (double)n * m->top_k;
	int64_t t = clock_monotonic_ns();

	of(p)->inner->moe(p, out, add_to, m, in, by, n, cols);
	add_product(&c, p, m->router, n, 1);
	for (int i = 0; i < 3; i++) {
		/* Counts every expert as the first one. */
		if (all[i])
			add_product(&c, p, all[i], picks, p->experts_used);
		if (m->shared_inner && shared[i])
			add_product(&c, p, shared[i], n, 1);
	}
	profile_add(of(p), "moe", "", t, &c);
}

static void timed_add(struct pass *p, float *x, const float *y, int n, int cols, float scale)
{
	struct op_cost c = { .float_ops = 2.0 * n * cols };
	int64_t t = clock_monotonic_ns();

	of(p)->inner->add(p, x, y, n, cols, scale);
	profile_add(of(p), "add", "", t, &c);
}

static void timed_map(struct pass *p, float *x, int n, int cols, float scale, float cap)
{
	struct op_cost c = { .float_ops = (cap != 0 ? 20.0 : 1.0) * n * cols };
	int64_t t = clock_monotonic_ns();

	of(p)->inner->map(p, x, n, cols, scale, cap);
	profile_add(of(p), "map", "", t, &c);
}

static void timed_mul(struct pass *p, float *x, const float *y, size_t y_ld, int each, int n, int cols)
{
	struct op_cost c = { .float_ops = 1.0 * n * cols };
	int64_t t = clock_monotonic_ns();

	of(p)->inner->mul(p, x, y, y_ld, each, n, cols);
	profile_add(of(p), "mul", "", t, &c);
}

static void timed_mix_streams(struct pass *p, float *out, const float *x, const float *by, int n, int streams, int cols)
{
	struct op_cost c = { .float_ops = 2.0 * n * streams * cols };
	int64_t t = clock_monotonic_ns();

	of(p)->inner->mix_streams(p, out, x, by, n, streams, cols);
	profile_add(of(p), "mix_streams", "", t, &c);
}

static void timed_add_streams(struct pass *p, float *x, bool add, const float *y, const float *by, float scale, int n,
                              int streams, int cols)
{
	struct op_cost c = { .float_ops = 2.0 * n * streams * cols };
	int64_t t = clock_monotonic_ns();

	of(p)->inner->add_streams(p, x, add, y, by, scale, n, streams, cols);
	profile_add(of(p), "add_streams", "", t, &c);
}

static void timed_match_streams(struct pass *p, float *out, const float *a, const float *b, float scale, int n,
                                int streams, int cols)
{
	struct op_cost c = { .float_ops = 2.0 * n * streams * cols };
	int64_t t = clock_monotonic_ns();

	of(p)->inner->match_streams(p, out, a, b, scale, n, streams, cols);
	profile_add(of(p), "match_streams", "", t, &c);
}

static void timed_conv_block(struct pass *p, float *out, const float *in, const float *base, const float *by,
                             size_t by_ld, int taps, int each, int cols)
{
	struct op_cost c = { .float_ops = 2.0 * p->n_row * taps * cols };
	int64_t t = clock_monotonic_ns();

	of(p)->inner->conv_block(p, out, in, base, by, by_ld, taps, each, cols);
	profile_add(of(p), "conv_block", "", t, &c);
}

static void timed_gate_streams(struct pass *p, float *out, float *z, const struct stream_gates *g, const float *x,
                               int n, int cols)
{
	struct op_cost c = { .float_ops = 2.0 * n * g->streams * cols };
	int64_t t = clock_monotonic_ns();

	of(p)->inner->gate_streams(p, out, z, g, x, n, cols);
	profile_add(of(p), "gate_streams", "", t, &c);
}

static void timed_join_streams(struct pass *p, float *x, const float *gates, const float *y, int n, int streams,
                               int cols)
{
	struct op_cost c = { .float_ops = 2.0 * n * streams * (streams + 1) * cols };
	int64_t t = clock_monotonic_ns();

	of(p)->inner->join_streams(p, x, gates, y, n, streams, cols);
	profile_add(of(p), "join_streams", "", t, &c);
}

static void timed_mean_streams(struct pass *p, float *out, const float *x, int n, int streams, int cols)
{
	struct op_cost c = { .float_ops = 2.0 * n * streams * cols };
	int64_t t = clock_monotonic_ns();

	of(p)->inner->mean_streams(p, out, x, n, streams, cols);
	profile_add(of(p), "mean_streams", "", t, &c);
}

static void timed_embed_ngrams(struct pass *p, float *out, const struct ngrams *g, const struct state_view *view,
                               int layer, int at)
{
	struct op_cost c = { .bytes = weight_bytes(g->part) / g->part->rows * g->heads * p->n_row };
	int64_t t = clock_monotonic_ns();

	of(p)->inner->embed_ngrams(p, out, g, view, layer, at);
	profile_add(of(p), "embed_ngrams", "", t, &c);
}

static void timed_layer_norm(struct pass *p, float *out, const float *in, int n, int cols, const float *gain,
                             const float *bias, float eps)
{
	struct op_cost c = { .float_ops = 7.0 * n * cols };
	int64_t t = clock_monotonic_ns();

	of(p)->inner->layer_norm(p, out, in, n, cols, gain, bias, eps);
	profile_add(of(p), "layer_norm", "", t, &c);
}

static void timed_blend(struct pass *p, float *out, size_t out_ld, const float *a, const float *b, const float *by,
                        int n, int cols)
{
	struct op_cost c = { .float_ops = (by ? 20.0 : 0.0) * n * cols };
	int64_t t = clock_monotonic_ns();

	of(p)->inner->blend(p, out, out_ld, a, b, by, n, cols);
	profile_add(of(p), "blend", "", t, &c);
}

static void timed_gather(struct pass *p, float *out, const float *in, const int32_t *index, int n, int cols)
{
	struct op_cost c = { 0 };
	int64_t t = clock_monotonic_ns();

	of(p)->inner->gather(p, out, in, index, n, cols);
	profile_add(of(p), "gather", "", t, &c);
}

/* ---- on and off ---- */

void profile_start(struct profile *f, struct backend *be, const struct choices *choices)
{
	assert(!be->profile);
	memset(f, 0, sizeof *f);
	f->inner = be->ops;
	f->choices = *choices;
	f->ops = *be->ops;
	f->ops.embed = timed_embed;
	f->ops.bring = timed_bring;
	f->ops.norm = timed_norm;
	f->ops.layer_norm = timed_layer_norm;
	f->ops.blend = timed_blend;
	f->ops.linear = timed_linear;
	f->ops.by_head = timed_by_head;
	f->ops.kv_append = timed_kv_append;
	f->ops.attend = timed_attend;
	f->ops.choose = timed_choose;
	f->ops.attend_chosen = timed_attend_chosen;
	f->ops.compress = timed_compress;
	f->ops.conv = timed_conv;
	f->ops.recur = timed_recur;
	f->ops.moe = timed_moe;
	f->ops.add = timed_add;
	f->ops.map = timed_map;
	f->ops.mul = timed_mul;
	f->ops.mix_streams = timed_mix_streams;
	f->ops.add_streams = timed_add_streams;
	f->ops.match_streams = timed_match_streams;
	f->ops.conv_block = timed_conv_block;
	f->ops.gate_streams = timed_gate_streams;
	f->ops.join_streams = timed_join_streams;
	f->ops.mean_streams = timed_mean_streams;
	f->ops.embed_ngrams = timed_embed_ngrams;
	f->ops.gather = timed_gather;
	be->profile = f;
	be->ops = &f->ops;
}

void profile_stop(struct profile *f, struct backend *be)
{
	assert(be->profile == f);
	be->ops = f->inner;
	be->profile = NULL;
}

struct op_cost profile_total(const struct profile *f)
{
	struct op_cost sum = { .op = "all" };

	for (int i = 0; i < f->n; i++) {
		sum.calls += f->row[i].calls;
		sum.ns += f->row[i].ns;
		sum.bytes += f->row[i].bytes;
		sum.int_ops += f->row[i].int_ops;
		sum.bf16_ops += f->row[i].bf16_ops;
		sum.float_ops += f->row[i].float_ops;
	}
	return sum;
}
