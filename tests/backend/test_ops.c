/* test_ops.c - every operation of the CPU backend against a reference: tensors made
 * by another implementation (../shared/golden/_ops) where there are some, and
 * plain double-precision C written here from the equations. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/cpu/level_ops.h"
#include "base/alloc.h"
#include "base/rng.h"
#include "golden.h"

static int failures;

static void check(int ok, const char *what, enum cpu_level level, double worst, double bound)
{
	if (ok)
		return;
	printf("FAIL %s at %s: off by %g, allowed %g\n", what, cpu_level_name(level), worst, bound);
	failures++;
}

static double worst_of(const float *a, const float *b, size_t n)
{
	double w = 0;

	for (size_t i = 0; i < n; i++) {
		double d = fabs((double)a[i] - (double)b[i]);

		w = d > w || d != d ? d : w;
	}
	return w;
}

static void near(const char *what, enum cpu_level level, const float *a, const float *b, size_t n, double bound)
{
	double w = worst_of(a, b, n);

	check(w <= bound, what, level, w, bound);
}

static uint64_t counter;
static float rnd(void)
{
	return (float)(rng_uniform(1, counter++, 0) * 2 - 1);
}

static float *random_floats(size_t n, float scale)
{
	float *f = xmalloc((n ? n : 1) * sizeof *f);

	for (size_t i = 0; i < n; i++)
		f[i] = rnd() * scale;
	return f;
}

static double sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

/* ---- golden ---- */

static void golden_activations(const struct golden *g, enum cpu_level level)
{
	const struct op_table *op = level_ops(level)->op;
	int d[4];
	const float *x = golden_get(g, "act.x", d);
	int n = d[0];
	float *out = xmalloc((size_t)n * sizeof *out), *one = xmalloc((size_t)n * sizeof *one);

	for (int i = 0; i < n; i++)
		one[i] = 1;
	op->gate(out, x, one, n, &(struct activation){ ACT_SILU, 0, 0 });
	near("silu", level, out, golden_get(g, "act.silu", d), (size_t)n, 2e-6);
	op->gate(out, x, NULL, n, &(struct activation){ ACT_GELU_TANH, 0, 0 });
	near("gelu", level, out, golden_get(g, "act.gelu_approx", d), (size_t)n, 2e-6);
	op->gate(out, x, NULL, n, &(struct activation){ ACT_RELU2, 0, 0 });
	near("relu2", level, out, golden_get(g, "act.relu2", d), (size_t)n, 2e-6);
	op->sigmoid(out, x, n);
	near("sigmoid", level, out, golden_get(g, "act.sigmoid", d), (size_t)n, 2e-7);
	free(out);
	free(one);
}

/* The recurrence on the reference's own q, k, g; then its state. */
/* Where the backend keeps row i, column c of S. */
static size_t s_at(int dim_k, int dim_v, int i, int c)
{
	int left = dim_v - c / 32 * 32, width = left > 16 ? 32 : 16;

	return (size_t)(c / 32 * 32) * (size_t)dim_k + (size_t)(i * width + c % 32);
}

static void golden_delta(const struct golden *g, enum cpu_level level, const char *name, const char *init)
{
	char key[64];
	int dk[4], dv[4], hk, heads, n;
	const float *q, *k, *v, *gate, *b, *s0 = NULL, *want, *want_s;
	float *s, *out, *alpha, *beta, *kq, *spare;
	double bad = 0;

#define GET(d, ...) (snprintf(key, sizeof key, __VA_ARGS__), golden_get(g, key, d))
	v = GET(dv, "gdn.%s.v", name);
	n = dv[1];
	heads = dv[2];
	q = GET(dk, "gdn.%s.q_normed", name);
	hk = dk[2];
	dk[0] = dk[3];
	dv[0] = dv[3];
	int dim_k = dk[0], dim_v = dv[0], tiles = (dim_v + 15) / 16;
	k = GET(dk, "gdn.%s.k_normed", name);
	gate = GET(dk, "gdn.%s.g", name);
	b = GET(dk, "gdn.%s.b", name);
	if (!strcmp(init, "init"))
		s0 = GET(dk, "gdn.%s.state0", name);
	want = GET(dk, "gdn.%s.%s.y", name, init);
	want_s = GET(dk, "gdn.%s.%s.state", name, init);
	assert(q && k && v && gate && b && want && want_s);
	s = xcalloc((size_t)tiles * 16 * (size_t)dim_k, 4);
	out = xcalloc((size_t)n * (size_t)dim_v, 4);
	alpha = xcalloc((size_t)n * 3, 4);
	beta = alpha + n;
	kq = beta + n;
	spare = xcalloc((size_t)dim_k * RECUR_SPARE, 4);
	for (int h = 0; h < heads; h++) {
		int j = h / (heads / hk);
		struct recur_rows r = {
			.q = q + j * dim_k,
			.k = k + j * dim_k,
			.put = k + j * dim_k,
			.v = v + h * dim_v,
			.decay = alpha,
			.beta = beta,
			.out = out,
			.n = 1,
			.n_sure = 1,
			.dot = kq,
		};

		memset(s, 0, (size_t)tiles * 16 * (size_t)dim_k * 4);
		for (int c = 0; c < dim_v; c++)
			for (int i = 0; i < dim_k; i++)
				s[s_at(dim_k, dim_v, i, c)] = s0 ? s0[(h * dim_v + c) * dim_k + i] : 0;
		for (int t = 0; t < n; t++, r.q += hk * dim_k, r.k += hk * dim_k, r.put = r.k, r.v += heads * dim_v) {
			double dot = 0;

			/* The reference stores alpha = exp(g) as g. */
			alpha[0] = gate[t * heads + h];
			beta[0] = (float)sigmoid((double)b[t * heads + h]);
			for (int i = 0; i < dim_k; i++)
				dot += (double)r.k[i] * (double)r.q[i];
			kq[0] = (float)dot;
			r.out = out;
			level_ops(level)->recur->head[HEAD_DELTA](s, dim_k, dim_v, &r, spare);
			for (int c = 0; c < dim_v; c++)
				bad = fmax(bad, fabs((double)out[c] - (double)want[(t * heads + h) * dim_v + c]));
		}
		for (int c = 0; c < dim_v; c++)
			for (int i = 0; i < dim_k; i++)
				bad = fmax(bad, fabs((double)s[s_at(dim_k, dim_v, i, c)] -
				                     (double)want_s[(h * dim_v + c) * dim_k + i]));
	}
	snprintf(key, sizeof key, "gdn.%s.%s", name, init);
	check(bad <= 1e-5, key, level, bad, 1e-5);
	free(s);
	free(out);
	free(alpha);
	free(spare);
}

/* A sequence of its own: pages in reverse order, so that a wrong page shows. */
struct seq {
	struct backend *be;
	struct kv_layer layer;
	struct kv_view view;
	int32_t page[64], slot;
	struct span span;
	int32_t *pos, *item, row;
	struct pass pass;
};

static void seq_open(struct seq *s, enum cpu_level level, const char *fmt, int page_rows, int heads, int dim, int ctx)
{
	const struct kv_rows rows = kv_rows_of(kv_format_find(fmt));
	int pages = (ctx + page_rows - 1) / page_rows;

	assert(pages <= 64);
	*s = (struct seq){ .be = backend_cpu_open(2, level) };
	s->view = (struct kv_view){ .page_bytes = kv_layers_lay(&s->layer, 1, &rows, heads, dim, page_rows),
		                    .layer = &s->layer,
		                    .page_rows = page_rows,
		                    .heads = heads,
		                    .dim = dim,
		                    .page = s->page,
		                    .page_max = 64 };
	for (int i = 0; i < pages; i++)
		s->page[i] = pages - 1 - i;
	s->view.base = s->be->ops->alloc(s->be, s->view.page_bytes * (size_t)pages);
	assert(s->view.base);
}

static void seq_rows(struct seq *s, int pos, int n)
{
	s->pos = xrealloc(s->pos, (size_t)n * sizeof *s->pos);
	s->item = xrealloc(s->item, (size_t)n * sizeof *s->item);
	for (int i = 0; i < n; i++) {
		s->pos[i] = pos + i;
		s->item[i] = 0;
	}
	s->span = (struct span){ 0, pos, n, 0 };
	s->pass = (struct pass){
		.be = s->be, .n_row = n, .n_item = 1, .pos = s->pos, .item = s->item, .span = &s->span, .row = &s->row
	};
}

static void seq_close(struct seq *s)
{
	int pages = s->page[0] + 1;

	s->be->ops->free(s->be, s->view.base, s->view.page_bytes * (size_t)pages);
	s->be->ops->close(s->be);
	free(s->pos);
	free(s->item);
}

/* [heads][n][dim] to [n][heads][dim] */
static float *swap(const float *x, int heads, int n, int dim)
{
	float *y = xmalloc((size_t)heads * (size_t)n * (size_t)dim * sizeof *y);

	for (int h = 0; h < heads; h++)
		for (int i = 0; i < n; i++)
			memcpy(y + ((size_t)i * (size_t)heads + (size_t)h) * (size_t)dim,
			       x + ((size_t)h * (size_t)n + (size_t)i) * (size_t)dim, (size_t)dim * sizeof *y);
	return y;
}

static void golden_attention(const struct golden *g, enum cpu_level level, bool sinks)
{
	int dq[4], dk[4];
	float *q = swap(golden_get(g, "sdpa.q", dq), 6, 7, 64), *k = swap(golden_get(g, "sdpa.k", dk), 2, 19, 64);
	float *v = swap(golden_get(g, "sdpa.v", dk), 2, 19, 64), *want, *out = xcalloc(19 * 6 * 64, 4);
	float *all_q = xcalloc(19 * 6 * 64, 4);
	struct attn a = { .heads = 6, .heads_kv = 2, .dim = 64, .scale = 0.125f };
	const char *name = sinks ? "sdpa.causal_sinks" : "sdpa.causal";
	struct seq s;

	memcpy(all_q + 12 * 6 * 64, q, 7 * 6 * 64 * 4);
	want = swap(golden_get(g, name, dq), 6, 7, 64);
	a.sinks = sinks ? golden_get(g, "sdpa.sinks", dk) : NULL;
	seq_open(&s, level, "f32", 5, 2, 64, 19);
	seq_rows(&s, 0, 19);
	s.be->ops->kv_append(&s.pass, &a, all_q, 6 * 64, 64, k, v, &s.view, 0);
	s.be->ops->attend(&s.pass, out, &a, all_q, NULL, 6 * 64, 64, &s.view, 0);
	near(name, level, out + 12 * 6 * 64, want, 7 * 6 * 64, 2e-6);
	seq_close(&s);
	free(q);
	free(k);
	free(v);
	free(want);
	free(out);
	free(all_q);
}

static void golden_rope(const struct golden *g, enum cpu_level level, const char *name, double base, double factor,
                        int rot, int offset, bool adjacent)
{
	char key[96];
	int d[4];
	const float *x, *want;
	float *q, *k, *v, *to, freq[64];
	struct attn a = {
		.heads = 2, .heads_kv = 2, .scale = 1, .rope = { freq, rot / 2, 1.0f, .adjacent = adjacent }
	};
	struct seq s;

	snprintf(key, sizeof key, "%s.x", name);
	x = golden_get(g, key, d);
	snprintf(key, sizeof key, "%s.out_off%d", name, offset);
	want = golden_get(g, key, d);
	assert(x && want && d[1] == 2);
	a.dim = d[3];
	for (int i = 0; i < rot / 2; i++)
		freq[i] = (float)(pow(base, -2.0 * i / rot) / factor);
	q = swap(x, 2, d[2], d[3]);
	k = swap(x, 2, d[2], d[3]);
	v = swap(x, 2, d[2], d[3]);
	to = swap(want, 2, d[2], d[3]);
	seq_open(&s, level, "f32", 64, 2, d[3], offset + d[2]);
	seq_rows(&s, offset, d[2]);
	s.be->ops->kv_append(&s.pass, &a, q, (size_t)(2 * d[3]), (size_t)d[3], k, v, &s.view, 0);
	/* float angles of a thousand radians differ by their own rounding */
	near(key, level, q, to, (size_t)(2 * d[2] * d[3]), offset > 100 ? 3e-4 : 5e-6);
	near(key, level, k, to, (size_t)(2 * d[2] * d[3]), offset > 100 ? 3e-4 : 5e-6);
	seq_close(&s);
	free(q);
	free(k);
	free(v);
	free(to);
}

static int golden_all(enum cpu_level level)
{
	struct golden *g = golden_open("_ops/ops.safetensors"), *r = golden_open("_ops/rope.safetensors");
	static const char *const cases[] = { "a", "b", "c" };
	static const int offsets[] = { 0, 5, 1000 };

	if (!g || !r) {
		golden_close(g);
		golden_close(r);
		return 0;
	}
	golden_activations(g, level);
	for (int i = 0; i < 3; i++) {
		golden_delta(g, level, cases[i], "zero");
		golden_delta(g, level, cases[i], "init");
		golden_rope(r, level, "default_64", 1e4, 1, 64, offsets[i], false);
		golden_rope(r, level, "partial_16of64_theta1e7", 1e7, 1, 16, offsets[i], false);
		golden_rope(r, level, "default_traditional_64", 1e4, 1, 64, offsets[i], true);
		golden_rope(r, level, "linear8_64", 1e6, 8, 64, offsets[i], false);
	}
	golden_attention(g, level, false);
	golden_attention(g, level, true);
	golden_close(g);
	golden_close(r);
	return 1;
}

/* ---- equations in double ---- */

static void ref_norm(double *x, int n, const float *gain, double eps)
{
	double ss = 0;

	for (int i = 0; i < n; i++)
		ss += x[i] * x[i];
	for (int i = 0; i < n; i++)
		x[i] = x[i] / sqrt(ss / n + eps) * (double)gain[i];
}

/* What the cache holds of n tokens, as it is to be read: rows decoded and turned back. */
static void seq_held(const struct seq *s, enum kv_side side, double *x, int n)
{
	const struct kv_format *f = s->layer.fmt[side];
	int dim = s->view.dim, page_rows = s->view.page_rows;
	float *row = xmalloc((size_t)dim * sizeof *row);
	struct kv_kernels kn;

	f->kernels(&kn, CPU_SCALAR);
	for (int t = 0; t < n; t++)
		for (int h = 0; h < s->view.heads; h++, x += dim) {
			f->decode(row,
			          s->view.base + (size_t)s->page[t / page_rows] * s->view.page_bytes +
			                  s->layer.at[side] +
			                  (size_t)(h * page_rows + t % page_rows) * s->layer.row_bytes[side],
			          dim);
			if (kn.turn_back)
				kn.turn_back(row, dim);
			for (int i = 0; i < dim; i++)
				x[i] = (double)row[i];
		}
	free(row);
}

/* Rows of codes are not what was written: there the truth is attention over what the
 * cache holds, in double, and a query rounded to int16 is the error. */
static void test_attention(enum cpu_level level, const char *fmt, int page_rows, int n, int heads, int heads_kv,
                           int dim)
{
	int nf = dim / 8, q_head = 2 * dim, q_row = heads * q_head; /* q and gate of a head adjacent */
	size_t kv = (size_t)heads_kv * (size_t)dim;
	float *q = random_floats((size_t)(n * q_row), 2), *k = random_floats((size_t)n * kv, 2);
	float *v = random_floats((size_t)n * kv, 1), *qn = random_floats((size_t)dim, 1),
	      *kn = random_floats((size_t)dim, 1);
	float *freq = random_floats((size_t)nf, 1), *out = xcalloc((size_t)(n * heads * dim), 4);
	double *qd = xmalloc((size_t)(n * q_row) * 8), *kd = xmalloc((size_t)n * kv * 8), *p = xmalloc((size_t)n * 8);
	struct attn a = { heads, heads_kv, dim, 1 / sqrtf((float)dim), qn, kn, 1e-6f, { freq, nf, 1.1f } };
	struct seq s;
	double *vd = xmalloc((size_t)n * kv * 8), worst = 0;
	bool coded = fmt[0] == 'u' || fmt[0] == 't';
	double bound = !strcmp(fmt, "f32") ? 2e-5 : coded ? 1e-4 : 4e-2;

	for (int i = 0; i < n * q_row; i++)
		qd[i] = (double)q[i];
	for (size_t i = 0; i < (size_t)n * kv; i++) {
		kd[i] = (double)k[i];
		vd[i] = (double)v[i];
	}
	for (int r = 0; r < n; r++)
		for (int h = 0; h < heads + heads_kv; h++) {
			double *x = h < heads ? qd + r * q_row + h * q_head : kd + (size_t)r * kv + (h - heads) * dim;

			ref_norm(x, dim, h < heads ? qn : kn, 1e-6);
			for (int i = 0; i < nf; i++) {
				double t = (double)((float)r * freq[i]), c = cos(t) * 1.1, sn = sin(t) * 1.1;
				double x0 = x[i], x1 = x[i + nf];

				x[i] = x0 * c - x1 * sn;
				x[i + nf] = x1 * c + x0 * sn;
			}
		}
	seq_open(&s, level, fmt, page_rows, heads_kv, dim, n);
	seq_rows(&s, 0, n);
	s.be->ops->kv_append(&s.pass, &a, q, (size_t)q_row, (size_t)q_head, k, v, &s.view, 0);
	if (coded) {
		seq_held(&s, KV_KEYS, kd, n);
		seq_held(&s, KV_VALUES, vd, n);
	}
	s.be->ops->attend(&s.pass, out, &a, q, q + dim, (size_t)q_row, (size_t)q_head, &s.view, 0);
	for (int r = 0; r<n; r += n> 100 ? 37 : 1)
		for (int h = 0; h < heads; h++) {
			int j = h / (heads / heads_kv);
			double top = -1e300, sum = 0;

			for (int t = 0; t <= r; t++) {
				p[t] = 0;
				for (int i = 0; i < dim; i++)
					p[t] += qd[r * q_row + h * q_head + i] *
					        kd[(size_t)t * kv + (size_t)(j * dim + i)];
				p[t] /= sqrt(dim);
				top = fmax(top, p[t]);
			}
			for (int t = 0; t <= r; t++)
				sum += p[t] = exp(p[t] - top);
			for (int i = 0; i < dim; i++) {
				double o = 0;

				for (int t = 0; t <= r; t++)
					o += p[t] / sum * vd[(size_t)t * kv + (size_t)(j * dim + i)];
				o *= sigmoid((double)q[r * q_row + h * q_head + dim + i]);
				worst = fmax(worst, fabs(o - (double)out[(r * heads + h) * dim + i]));
			}
		}
	check(worst <= bound, fmt, level, worst, bound);
	seq_close(&s);
	free(q);
	free(k);
	free(v);
	free(qn);
	free(kn);
	free(freq);
	free(out);
	free(qd);
	free(kd);
	free(vd);
	free(p);
}

static void test_delta(enum cpu_level level, int n, int hk, int hv, int dk, int dv, int width, bool sig)
{
	struct state_shape sh = { 1, hk, hv, dk, dv, 2 * hk * dk + hv * dv, width };
	int ch = sh.conv_channels;
	float *qkv = random_floats((size_t)(n * ch), 1), *z = random_floats((size_t)(n * hv * dv), 3);
	float *b = random_floats((size_t)(n * hv), 3), *a = random_floats((size_t)(n * hv), 3);
	float *conv = random_floats((size_t)(ch * width), 1), *decay = random_floats((size_t)hv, 1);
	float *dt = random_floats((size_t)hv, 1), *gain = random_floats((size_t)dv, 1);
	float *tail = random_floats((size_t)((width - 1) * ch), 1), *out = xcalloc((size_t)(n * hv * dv), 4);
	double *x = xcalloc((size_t)(n * ch), 8), *S = xcalloc((size_t)(hv * dk * dv), 8), worst = 0;
	struct backend *be = backend_cpu_open(2, level);
	int32_t row = 0, owed = 0;
	bool still = false;
	struct span sp = { 0, 0, n, 0 };
	struct pass p = { .be = be, .n_row = n, .n_item = 1, .span = &sp, .row = &row };
	struct recur d = {
		.conv = conv, .a_log_exp = decay, .dt_bias = dt, .norm = gain, .eps = 1e-6f, .sigmoid_gate = sig
	};
	struct state_view view = { .shape = sh, .s = xcalloc(state_floats(&sh), 4), .owed = &owed, .still = &still };
	float *last = xmalloc((size_t)((width - 1) * ch) * 4 + 4);

	for (int h = 0; h < hv; h++)
		decay[h] = fabsf(decay[h]) + 0.01f;
	for (int t = 0; t < n; t++)
		for (int c = 0; c < ch; c++) {
			double s = 0;

			for (int j = 0; j < width; j++) {
				int at = t - (width - 1) + j;

				s += (double)conv[j * ch + c] *
				     (double)(at < 0 ? tail[(width - 1 + at) * ch + c] : qkv[at * ch + c]);
			}
			x[t * ch + c] = s * sigmoid(s);
		}
	for (int i = 0; i < width - 1; i++) {
		int at = n - (width - 1) + i;

		memcpy(last + i * ch, at < 0 ? tail + (width - 1 + at) * ch : qkv + at * ch, (size_t)ch * 4);
	}
	view.tail = tail;
	be->ops->recur(&p, out, &d, &(struct recur_in){ qkv, z, b, a }, &view, 0);
	check(!memcmp(last, tail, (size_t)((width - 1) * ch) * 4), "convolution tail", level, 0, 0);
	for (int t = 0; t < n; t++)
		for (int h = 0; h < hv; h++) {
			double *q = x + t * ch + h / (hv / hk) * dk, *k = q + hk * dk,
			       *v = x + t * ch + 2 * hk * dk + h * dv;
			double *s = S + h * dk * dv, qq = 0, kk = 0, o[256], ss = 0;
			double beta = sigmoid((double)b[t * hv + h]);
			double alpha = exp(-(double)decay[h] * log1p(exp((double)a[t * hv + h] + (double)dt[h])));

			for (int i = 0; i < dk; i++) {
				qq += q[i] * q[i];
				kk += k[i] * k[i];
			}
			qq = 1 / sqrt(qq + 1e-6) / sqrt(dk);
			kk = 1 / sqrt(kk + 1e-6);
			for (int c = 0; c < dv; c++) {
				double m = 0;

				for (int i = 0; i < dk; i++)
					m += (s[i * dv + c] *= alpha) * k[i] * kk;
				m = beta * (v[c] - m);
				o[c] = 0;
				for (int i = 0; i < dk; i++)
					o[c] += (s[i * dv + c] += k[i] * kk * m) * q[i] * qq;
				ss += o[c] * o[c];
			}
			for (int c = 0; c < dv; c++) {
				double g = (double)z[(t * hv + h) * dv + c],
				       y = o[c] / sqrt(ss / dv + 1e-6) * (double)gain[c];

				y *= sig ? sigmoid(g) : g * sigmoid(g);
				worst = fmax(worst, fabs(y - (double)out[(t * hv + h) * dv + c]));
			}
		}
	check(worst <= 2e-4, "delta", level, worst, 2e-4);
	be->ops->close(be);
	free(qkv);
	free(z);
	free(b);
	free(a);
	free(conv);
	free(decay);
	free(dt);
	free(gain);
	free(tail);
	free(out);
	free(x);
	free(S);
	free(view.s);
	free(last);
}

static void test_moe(enum cpu_level level, int n, int experts, int k, int inner, int shared, bool normalise, bool ties)
{
	enum { COLS = 48 };
	float *router = random_floats((size_t)(experts * COLS), 1), *in = random_floats((size_t)(n * COLS), 1);
	float *gate = random_floats((size_t)(experts * inner * COLS), 1),
	      *up = random_floats((size_t)(experts * inner * COLS), 1);
	float *down = random_floats((size_t)(experts * inner * COLS), 1), *x = random_floats((size_t)(n * COLS), 1);
	float *sg = random_floats((size_t)(shared * COLS), 1), *su = random_floats((size_t)(shared * COLS), 1);
	float *sd = random_floats((size_t)(shared * COLS), 1), *sr = random_floats(COLS, 1);
	struct weight w[8], *we = xcalloc((size_t)experts * 3, sizeof *we);
	struct moe m = { experts,
		         k,
		         inner,
		         shared,
		         normalise,
		         &w[0],
		         we,
		         we + experts,
		         we + 2 * experts,
		         &w[1],
		         &w[2],
		         &w[3],
		         &w[4],
		         .act = { .kind = ACT_SILU } };
	struct backend *be = backend_cpu_open(2, level);
	struct pass p = { .be = be };
	double *want = xcalloc((size_t)(n * COLS), 8), worst = 0;
	struct err err;

	if (ties) /* all experts look alike to the router: the lowest win */
		for (int e = 1; e < experts; e++)
			memcpy(router + e * COLS, router, COLS * 4);
	weight_plain(&w[0], "router", DT_F32, experts, COLS, router, (size_t)(experts * COLS) * 4, &err);
	for (int e = 0; e < experts; e++) {
		size_t at = (size_t)(e * inner * COLS), bytes = (size_t)(inner * COLS) * 4;

		weight_plain(&we[e], "gate", DT_F32, inner, COLS, gate + at, bytes, &err);
		weight_plain(&we[experts + e], "up", DT_F32, inner, COLS, up + at, bytes, &err);
		weight_plain(&we[2 * experts + e], "down", DT_F32, COLS, inner, down + at, bytes, &err);
	}
	if (shared) {
		size_t bytes = (size_t)(shared * COLS) * 4;

		weight_plain(&w[1], "shared gate", DT_F32, shared, COLS, sg, bytes, &err);
		weight_plain(&w[2], "shared up", DT_F32, shared, COLS, su, bytes, &err);
		weight_plain(&w[3], "shared down", DT_F32, COLS, shared, sd, bytes, &err);
		weight_plain(&w[4], "shared router", DT_F32, 1, COLS, sr, COLS * 4, &err);
	}
	for (int r = 0; r < n; r++) {
		double l[64], sum = 0, chosen = 0;
		int pick[64];
		const float *xi = in + r * COLS;

		for (int e = 0; e < experts; e++) {
			l[e] = 0;
			for (int i = 0; i < COLS; i++)
				l[e] += (double)router[e * COLS + i] * (double)xi[i];
			sum += l[e] = exp(l[e]);
		}
		for (int j = 0; j < k; j++) {
			pick[j] = -1;
			for (int e = 0; e < experts; e++)
				if (l[e] >= 0 && (pick[j] < 0 || l[e] > l[pick[j]]))
					pick[j] = e;
			chosen += l[pick[j]];
			l[pick[j]] = -l[pick[j]];
		}
		for (int j = 0; j <= k; j++) {
			int e = j < k ? pick[j] : 0, width = j < k ? inner : shared;
			const float *G = j < k ? gate + e * inner * COLS : sg, *U = j < k ? up + e * inner * COLS : su;
			const float *D = j < k ? down + e * inner * COLS : sd;
			double f = j < k ? -l[e] / (normalise ? chosen : sum) : 0;

			if (j == k) {
				for (int i = 0; i < COLS; i++)
					f += (double)sr[i] * (double)xi[i];
				f = sigmoid(f);
			}
			for (int o = 0; o < width; o++) {
				double g = 0, u = 0;

				for (int i = 0; i < COLS; i++) {
					g += (double)G[o * COLS + i] * (double)xi[i];
					u += (double)U[o * COLS + i] * (double)xi[i];
				}
				g = g * sigmoid(g) * u;
				for (int i = 0; i < COLS; i++)
					want[r * COLS + i] += f * g * (double)D[i * width + o];
			}
		}
	}
	for (int i = 0; i < n * COLS; i++)
		want[i] += (double)x[i];
	be->ops->moe(&p, x, true, &m, in, NULL, n, COLS);
	for (int i = 0; i < n * COLS; i++)
		worst = fmax(worst, fabs(want[i] - (double)x[i]));
	check(worst <= 1e-3, "moe", level, worst, 1e-3);
	be->ops->close(be);
	free(router);
	free(in);
	free(gate);
	free(up);
	free(down);
	free(x);
	free(sg);
	free(su);
	free(sd);
	free(sr);
	free(we);
	free(want);
}

/* One column of S through a token of the gated delta rule, in the order of format.h. */
static float delta_column(float *s, const float *k, const float *q, int dim, float alpha, float beta, float dot,
                          float v)
{
	float m[4] = { 0 }, u[4] = { 0 }, d;

	for (int i = 0; i < dim; i++) {
		int p = i / ((dim + 3) / 4);

		m[p] = fmaf(s[i], k[i], m[p]);
		u[p] = fmaf(s[i], q[i], u[p]);
	}
	d = beta * (v - alpha * ((m[0] + m[1]) + (m[2] + m[3])));
	for (int i = 0; i < dim; i++)
		s[i] = fmaf(k[i], d, alpha * s[i]);
	return fmaf(dot, d, alpha * ((u[0] + u[1]) + (u[2] + u[3])));
}

/* One column of S through a token of the selective scan; a: the decays. */
static float scan_column(float *s, const float *a, const float *put, const float *q, int dim, float d, float x)
{
	float u[4] = { 0 };

	for (int i = 0; i < dim; i++) {
		s[i] = fmaf(put[i], d, a[i] * s[i]);
		u[i / ((dim + 3) / 4)] = fmaf(s[i], q[i], u[i / ((dim + 3) / 4)]);
	}
	return fmaf(0.5f, x, (u[0] + u[1]) + (u[2] + u[3]));
}

/* The sums over the rows of S have the order of format.h to the bit: of dim_v columns, through 3 tokens. */
static void test_quarters(enum cpu_level level, enum recur_head rule, int dim_k, int dim_v)
{
	enum { N = 3 };
	size_t size = (size_t)dim_k * ((size_t)(dim_v + 31) / 32 * 32);
	float *k = random_floats((size_t)(N * dim_k), 0.5f), *q = random_floats((size_t)(N * dim_k), 0.5f);
	float *v = random_floats((size_t)(N * dim_v), 1), *s = random_floats(size, 1), *was = xmalloc(size * 4);
	float *rate = random_floats((size_t)dim_k * (size_t)dim_v, -1), *skip = random_floats((size_t)dim_v, 1);
	float *gate = random_floats((size_t)(N * dim_v), 0.25f), *out = random_floats((size_t)(N * dim_v), 1);
	float *spare = xcalloc((size_t)dim_k * RECUR_SPARE, 4), *a = xmalloc((size_t)dim_k * 4);
	bool scan = rule == HEAD_SCAN, same = true;
	struct recur_rows r = {
		.k = k,
		.q = q,
		.put = k,
		.kq_ld = (size_t)dim_k,
		.v = v,
		.out = out,
		.n = N,
		.n_sure = N,
		.decay = gate,
		.decay_ld = scan ? (size_t)dim_v : 1,
		.beta = v + 1,
		.dot = q + 1,
		.rate = rate,
		.skip = skip,
	};

	for (int c = 0; c < dim_v; c++)
		skip[c] = 0.5f;
	memcpy(was, s, size * 4);
	level_ops(level)->recur->head[rule](s, dim_k, dim_v, &r, spare);
	for (int c = 0; c < dim_v; c++) {
		float *col = xmalloc((size_t)dim_k * 4);

		for (int i = 0; i < dim_k; i++)
			col[i] = was[s_at(dim_k, dim_v, i, c)];
		for (int t = 0; t < N; t++) {
			const float *kt = k + t * dim_k, *qt = q + t * dim_k;
			float x = v[t * dim_v + c], dt = scan ? gate[t * dim_v + c] : gate[t], want;

			for (int i = 0; i < dim_k && scan; i++) {
				a[i] = dt * rate[i * dim_v + c];
				level_ops(level)->op->exp(a + i, a + i, 1);
			}
			want = scan ? scan_column(col, a, kt, qt, dim_k, dt * x, x) :
			              delta_column(col, kt, qt, dim_k, dt, r.beta[t], r.dot[t], x);
			same &= !memcmp(&want, out + t * dim_v + c, 4);
		}
		for (int i = 0; i < dim_k; i++)
			same &= !memcmp(col + i, s + s_at(dim_k, dim_v, i, c), 4);
		free(col);
	}
	check(same, scan ? "scan by quarters" : "delta by quarters", level, 0, 0);
	free(k), free(q), free(v), free(s), free(was), free(rate), free(skip), free(gate), free(out), free(spare),
		free(a);
}

/* exp over its range, in units of relative error. */
static void test_exp(enum cpu_level level)
{
	double worst = 0;
	float edge[6] = { -INFINITY, -200, -87.0001f, 0, 89, INFINITY }, out[6];

	for (int i = 0; i < 40000; i++) {
		float x = -87.0f + (float)i * (88.7f + 87.0f) / 40000, y;

		level_ops(level)->op->exp(&y, &x, 1);
		worst = fmax(worst, fabs((double)y / exp((double)x) - 1));
	}
	check(worst < 1.5e-7, "exp", level, worst, 1.5e-7);
	level_ops(level)->op->exp(out, edge, 6);
	check(out[0] == 0 && out[1] == 0 && out[2] == 0 && out[3] == 1 && isinf(out[4]) && isinf(out[5]),
	      "exp at its ends", level, 0, 0);
}

static const float LIMIT = 0.7f, BETA = 0.4f; /* the limit is one that the numbers reach */

static double activated(enum act kind, double g)
{
	switch (kind) {
	case ACT_SILU: return g * sigmoid(g);
	case ACT_GELU_TANH: return 0.5 * g * (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)));
	case ACT_GELU_ERF: return 0.5 * g * (1 + erf(g / sqrt(2)));
	case ACT_GELU_QUICK: return g * sigmoid(1.702 * g);
	case ACT_RELU2: return g > 0 ? g * g : 0;
	case ACT_SIGMOID: return sigmoid(g);
	case ACT_TANH: return tanh(g);
	case ACT_CLAMPED: return fmin(g, LIMIT) * sigmoid(1.702 * fmin(g, LIMIT));
	case ACT_LIMITED: return fmin(g * sigmoid(g), LIMIT);
	case ACT_CLIPPED: return fmin(g, LIMIT) * sigmoid(fmin(g, LIMIT));
	case ACT_XIELU: return (double)BETA * g + (g > 0 ? 1.702 * g * g : (double)LIMIT * (expm1(g) - g));
	case ACT_NONE: break;
	}
	return g;
}

/* Activations with a factor and without, products gated by them, and the operations between blocks. */
static void test_gates(enum cpu_level level)
{
	enum { N = 1000, ROWS = 3, COLS = 5, LD = 9 };
	float *g = random_floats(N, 12), *u = random_floats(N, 12), out[N], x[ROWS * COLS], y[ROWS * LD];
	struct backend *be = backend_cpu_open(2, level);
	struct pass p = { .be = be, .n_row = ROWS };

	for (enum act kind = ACT_NONE; kind <= ACT_XIELU; kind++) {
		struct activation act = { kind, 1.702f, LIMIT, BETA };
		double worst[2] = { 0, 0 };

		for (int gated = 0; gated < 2; gated++) {
			if (act_needs_factor(kind) && !gated)
				continue;
			level_ops(level)->op->gate(out, g, gated ? u : NULL, N, &act);
			for (int i = 0; i < N; i++) {
				double limited = fmin(fmax((double)u[i], -LIMIT), LIMIT);
				double by = !gated                                     ? 1 :
				            kind == ACT_CLAMPED                        ? 1 + limited :
				            kind == ACT_LIMITED || kind == ACT_CLIPPED ? limited :
				                                                         (double)u[i];
				double want = activated(kind, (double)g[i]) * by;

				worst[gated] = fmax(worst[gated], fabs((double)out[i] - want) / (1 + fabs(want)));
			}
		}
		check(worst[0] < 2e-6 && worst[1] < 2e-6, "activation", level, fmax(worst[0], worst[1]), 2e-6);
		g[3] = NAN;
		level_ops(level)->op->gate(out, g, u, N, &act);
		check(isnan(out[3]), "activation keeps what is no number", level, (double)out[3], 0);
		g[3] = 0.5f;
	}
	for (int i = 0; i < ROWS * COLS; i++)
		x[i] = g[i];
	for (int i = 0; i < ROWS * LD; i++)
		y[i] = u[i];
	be->ops->add(&p, x, u, ROWS, COLS, 0.22f);
	be->ops->map(&p, x, ROWS, COLS, 0.5f, 30);
	be->ops->mul(&p, x, y, LD, 1, ROWS, COLS);
	be->ops->map(&p, x, ROWS, COLS, 3, 0);
	be->ops->mul(&p, x, u, 1, COLS, ROWS, COLS); /* a number a row */
	for (int i = 0; i < ROWS * COLS; i++) {
		double want = 30 * tanh(0.5 * ((double)g[i] + 0.22 * (double)u[i]) / 30);

		want *= 3 * (double)y[i / COLS * LD + i % COLS] * (double)u[i / COLS];
		check(fabs((double)x[i] - want) < 1e-3, "add, map, mul", level, fabs((double)x[i] - want), 1e-3);
	}
	be->ops->close(be);
	free(g);
	free(u);
}

/* LayerNorm, and what lies between two rows, at a length that is no multiple of lanes. */
static void test_shift(enum cpu_level level)
{
	enum { ROWS = 3, COLS = 37, LD = 50 };
	struct backend *be = backend_cpu_open(2, level);
	struct pass p = { .be = be, .n_row = ROWS };
	float *x = random_floats(ROWS * COLS, 2), *y = random_floats(ROWS * COLS, 3),
	      *t = random_floats(ROWS * COLS, 4);
	float *gain = random_floats(COLS, 1), *bias = random_floats(COLS, 5), out[ROWS * LD];
	double worst = 0;

	for (int i = 0; i < ROWS * COLS; i++)
		x[i] += 7; /* a mean that is far from zero */
	be->ops->layer_norm(&p, out, x, ROWS, COLS, gain, bias, 1e-5f);
	for (int r = 0; r < ROWS; r++) {
		double mean = 0, square = 0;

		for (int i = 0; i < COLS; i++)
			mean += (double)x[r * COLS + i] / COLS;
		for (int i = 0; i < COLS; i++)
			square += pow((double)x[r * COLS + i] - mean, 2) / COLS;
		for (int i = 0; i < COLS; i++)
			worst = fmax(worst,
			             fabs(((double)x[r * COLS + i] - mean) / sqrt(square + 1e-5) * (double)gain[i] +
			                  (double)bias[i] - (double)out[r * COLS + i]));
	}
	check(worst < 4e-6, "layer norm", level, worst, 4e-6);
	be->ops->blend(&p, out, LD, x, y, t, ROWS, COLS);
	worst = 0;
	for (int i = 0; i < ROWS * COLS; i++)
		worst = fmax(worst, fabs((double)x[i] + ((double)y[i] - (double)x[i]) * sigmoid((double)t[i]) -
		                         (double)out[i / COLS * LD + i % COLS]));
	check(worst < 2e-6, "blend", level, worst, 2e-6);
	be->ops->blend(&p, out, LD, y, NULL, NULL, ROWS, COLS);
	check(!memcmp(out + LD, y + COLS, COLS * sizeof *y), "blend with nothing", level, 0, 0);
	be->ops->close(be);
	free(x);
	free(y);
	free(t);
	free(gain);
	free(bias);
}

static void test_small(enum cpu_level level)
{
	struct backend *be = backend_cpu_open(2, level);
	float *x = random_floats(3 * 37, 2), *gain = random_floats(37, 1), *out = xcalloc(5 * 37, 4),
	      *u = random_floats(3 * 37, 2);
	int32_t tok[5] = { 2, 0, 1, 2, 2 };
	struct pass p = { .be = be, .tok = tok, .n_row = 5 };
	double want[37], worst = 0;
	float *one = xcalloc(37 * 37, 4), *two = xcalloc(37 * 37, 4);
	struct weight w, w2;
	struct linear up = { .w = &w2, .bias = u },
		      gate = { .w = &w, .out = out, .ld = 37, .bias = gain, .up = &up, .act = { .kind = ACT_SILU } };
	struct err err;

	be->ops->norm(&p, out, x, 3, 37, gain, 1e-5f);
	for (int r = 0; r < 3; r++) {
		for (int i = 0; i < 37; i++)
			want[i] = (double)x[r * 37 + i];
		ref_norm(want, 37, gain, 1e-5);
		for (int i = 0; i < 37; i++)
			worst = fmax(worst, fabs(want[i] - (double)out[r * 37 + i]));
	}
	check(worst < 1e-6, "norm", level, worst, 1e-6);
	/* silu(x I + bias) * (x 2 I + bias) */
	for (int i = 0; i < 37; i++) {
		one[i * 37 + i] = 1;
		two[i * 37 + i] = 2;
	}
	weight_plain(&w, "one", DT_F32, 37, 37, one, 37 * 37 * 4, &err);
	weight_plain(&w2, "two", DT_F32, 37, 37, two, 37 * 37 * 4, &err);
	be->ops->linear(&p, &gate, 1, x, 3, 37);
	for (int i = 0; i < 3 * 37; i++) {
		double g = (double)x[i] + (double)gain[i % 37], v = 2 * (double)x[i] + (double)u[i % 37];

		worst = fmax(worst, fabs(g * sigmoid(g) * v - (double)out[i]));
	}
	check(worst < 3e-6, "gated product", level, worst, 3e-6);
	weight_plain(&w, "table", DT_F32, 3, 37, x, 3 * 37 * 4, &err);
	be->ops->embed(&p, out, &w);
	for (int i = 0; i < 5; i++)
		check(!memcmp(out + i * 37, x + tok[i] * 37, 37 * 4), "embed", level, 0, 0);
	memset(out, 0, 5 * 37 * 4);
	be->ops->gather(&p, out, x, tok, 5, 37);
	for (int i = 0; i < 5; i++)
		check(!memcmp(out + i * 37, x + tok[i] * 37, 37 * 4), "gather", level, 0, 0);
	be->ops->close(be);
	free(x);
	free(gain);
	free(out);
	free(u);
	free(one);
	free(two);
}

/* Items of several lengths, more and fewer taps than their rows, groups that are no multiple of lanes. */
static void test_conv_block(enum cpu_level level, int taps, int each, int cols)
{
	enum { ROWS = 9, ITEMS = 3, SPARE = 3 };
	static const int32_t item[ROWS] = { 0, 0, 0, 0, 0, 1, 2, 2, 2 }, first[ITEMS] = { 0, 5, 6 };
	struct backend *be = backend_cpu_open(2, level);
	struct pass p = { .be = be, .n_row = ROWS, .n_item = ITEMS, .item = item, .row = first };
	int groups = (cols + each - 1) / each, ld = taps * groups + SPARE;
	float *in = random_floats((size_t)(ROWS * cols), 1), *base = random_floats((size_t)(taps * cols), 1);
	float *by = random_floats((size_t)(ROWS * ld), 1), *out = random_floats((size_t)(ROWS * cols), 1);
	double worst = 0;

	be->ops->conv_block(&p, out, in, base, by, (size_t)ld, taps, each, cols);
	for (int r = 0; r < ROWS; r++)
		for (int c = 0; c < cols; c++) {
			double want = 0;

			for (int j = 0; j < taps && r - j >= first[item[r]]; j++)
				want += ((double)base[j * cols + c] + (double)by[r * ld + j * groups + c / each]) *
				        (double)in[(r - j) * cols + c];
			worst = fmax(worst, fabs(want - (double)out[r * cols + c]));
		}
	check(worst < 1e-5, "convolution inside of items", level, worst, 1e-5);
	be->ops->close(be);
	free(in);
	free(base);
	free(by);
	free(out);
}

/* ---- residual streams mixed by gates ---- */

enum { STREAMS = 3, GATES = STREAMS * (2 + STREAMS) };

/* The gates of one row of products, in place, as the contract has them. */
static void gates_truth(double *z, const struct stream_gates *g)
{
	double(*m)[STREAMS] = (double(*)[STREAMS])(z + 2 * STREAMS);

	for (int i = 0; i < GATES; i++)
		z[i] = z[i] * (double)g->scale[i / STREAMS < 2 ? i / STREAMS : 2] + (double)g->base[i];
	for (int s = 0; s < STREAMS; s++) {
		double sum = 0;

		z[s] = sigmoid(z[s]) + (double)g->eps;
		z[STREAMS + s] = 2 * sigmoid(z[STREAMS + s]);
		for (int b = 0; b < STREAMS; b++)
			sum += exp(m[s][b]);
		for (int b = 0; b < STREAMS; b++)
			m[s][b] = exp(m[s][b]) / sum + (double)g->eps;
	}
	for (int i = 0; i < 2 * g->rounds - 1; i++)
		for (int a = 0; a < STREAMS; a++) {
			double sum = (double)g->eps;

			for (int b = 0; b < STREAMS; b++)
				sum += i % 2 ? m[a][b] : m[b][a];
			for (int b = 0; b < STREAMS; b++)
				*(i % 2 ? &m[a][b] : &m[b][a]) /= sum;
		}
}

/* Gates, what they read and write, and the mean; on two threads the bits of one. */
static void test_streams(enum cpu_level level)
{
	enum { ROWS = 70, COLS = 45, WIDE = STREAMS * COLS };
	float *base = random_floats(GATES, 1), *scale = random_floats(3, 1), *z = random_floats(ROWS * GATES, 2);
	float *x = random_floats(ROWS * WIDE, 1), *y = random_floats(ROWS * COLS, 1), *z_at[2], *x_at[2], *read[2],
	      *mean[2];
	const struct stream_gates g = { STREAMS, 3, base, scale, 0.01f };
	double worst = 0;

	for (int k = 0; k < 2; k++) {
		struct backend *be = backend_cpu_open(1 + k, level);
		struct pass p = { .be = be, .n_row = ROWS };

		z_at[k] = memcpy(xmalloc(ROWS * GATES * sizeof *z), z, ROWS * GATES * sizeof *z);
		x_at[k] = memcpy(xmalloc(ROWS * WIDE * sizeof *x), x, ROWS * WIDE * sizeof *x);
		read[k] = xmalloc(ROWS * COLS * sizeof *y);
		mean[k] = xmalloc(ROWS * COLS * sizeof *y);
		be->ops->gate_streams(&p, read[k], z_at[k], &g, x, ROWS, COLS);
		be->ops->join_streams(&p, x_at[k], z_at[k], y, ROWS, STREAMS, COLS);
		be->ops->mean_streams(&p, mean[k], x, ROWS, STREAMS, COLS);
		be->ops->close(be);
	}
	for (int r = 0; r < ROWS; r++) {
		double gate[GATES];

		for (int i = 0; i < GATES; i++)
			gate[i] = (double)z[r * GATES + i];
		gates_truth(gate, &g);
		for (int c = 0; c < COLS; c++) {
			const float *at = x + r * WIDE + c;
			double h = 0, sum = 0;

			for (int a = 0; a < STREAMS; a++) {
				double to = gate[STREAMS + a] * (double)y[r * COLS + c];

				h += gate[a] * (double)at[a * COLS];
				sum += (double)at[a * COLS];
				for (int b = 0; b < STREAMS; b++)
					to += gate[2 * STREAMS + b * STREAMS + a] * (double)at[b * COLS];
				worst = fmax(worst, fabs(to - (double)x_at[0][r * WIDE + a * COLS + c]));
			}
			worst = fmax(worst, fabs(h - (double)read[0][r * COLS + c]));
			worst = fmax(worst, fabs(sum / STREAMS - (double)mean[0][r * COLS + c]));
		}
	}
	check(worst < 3e-6, "streams mixed by gates", level, worst, 3e-6);
	check(!memcmp(x_at[0], x_at[1], ROWS * WIDE * sizeof *x) &&
	              !memcmp(read[0], read[1], ROWS * COLS * sizeof *y) &&
	              !memcmp(mean[0], mean[1], ROWS * COLS * sizeof *y),
	      "streams on two threads", level, 0, 0);
	for (int k = 0; k < 2; k++) {
		free(z_at[k]);
		free(x_at[k]);
		free(read[k]);
		free(mean[k]);
	}
	free(base);
	free(scale);
	free(z);
	free(x);
	free(y);
}

int main(void)
{
	int golden = 1;

	for (enum cpu_level l = CPU_SCALAR; l < CPU_LEVELS; l = cpu_level_next(l)) {
		golden &= golden_all(l);
		test_exp(l);
		test_quarters(l, HEAD_DELTA, 128, 40);
		test_quarters(l, HEAD_DELTA, 10, 70);
		test_quarters(l, HEAD_DELTA, 5, 16);
		test_quarters(l, HEAD_SCAN, 16, 33);
		test_quarters(l, HEAD_SCAN, 11, 16);
		test_gates(l);
		test_streams(l);
		test_small(l);
		test_shift(l);
		test_conv_block(l, 2, 16, 64);
		test_conv_block(l, 3, 5, 37);
		test_conv_block(l, 7, 21, 21);
		test_attention(l, "f32", 16, 40, 6, 2, 64);
		test_attention(l, "bf16", 7, 33, 4, 4, 32);
		test_attention(l, "f32", 100, 1100, 4, 1, 40);
		for (int f = 0; kv_formats[f]; f++)
			if (kv_formats[f]->name[0] == 'u' || kv_formats[f]->name[0] == 't')
				test_attention(l, kv_formats[f]->name, 7 + f, 40, 6, 2, 128);
		test_delta(l, 9, 2, 6, 32, 32, 4, false);
		test_delta(l, 2, 1, 3, 24, 40, 4, true);
		test_delta(l, 5, 2, 2, 128, 128, 3, false);
		test_delta(l, 3, 1, 1, 16, 8, 1, false);
		test_delta(l, 4, 1, 2, 16, 104, 4, true);
		test_delta(l, 4, 1, 1, 16, 56, 4, false);
		test_moe(l, 7, 8, 3, 32, 40, true, false);
		test_moe(l, 1, 5, 2, 17, 16, false, false);
		test_moe(l, 4, 6, 6, 16, 16, true, true);
	}
	if (failures)
		printf("%d failures\n", failures);
	return failures ? 1 : golden ? 0 : 77;
}
