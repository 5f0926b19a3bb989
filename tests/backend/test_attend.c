/* test_attend.c - attention as it is served, for many shapes of heads, at every level over
 * bf16 rows and over rows of codes: the law of the row by memcmp (chunks, sequences together,
 * drafts taken back, threads, pages; so units of many queries and of few), nothing of what
 * lies beyond a row (pages full of NaN, later rows that are not numbers), and over bf16 rows
 * the stated order to the bit, that of format.h by products of bf16 and that of attend.c elsewhere. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/op_kernels.h"
#include "base/alloc.h"
#include "base/rng.h"
#include "far.h"
#include "quant/choices.h"
#include "quant/kv/kv_tiles.h"

enum { SEQS = 2, LONGEST = 700, PAGES = LONGEST * SEQS + SEQS };
static const int lengths[SEQS] = { LONGEST, 70 };

struct shape {
	int dim, heads, heads_kv;
	int window; /* 0: none */
	bool sinks;
	float cap;
	int first; /* no row from it on sees what is before it */
};
static const struct shape shapes[] = {
	{ 64, 6, 2 },
	{ 256, 8, 2 },
	{ 128, 8, 1 },
	{ 64, 16, 1 },
	{ 32, 2, 2 },
	{ 96, 20, 1 },
	{ 80, 6, 2 },
	{ 24, 6, 2 },
	{ 64, 40, 1 },
	{ 64, 8, 2, 128, true },
	{ 64, 6, 2, 24, false },
	{ 256, 4, 1, 300, false },
	{ 32, 4, 1, 1 },
	{ 64, 4, 2, 0, true },
	{ 64, 4, 2, 90, true, 5 },
	{ 64, 6, 2, .first = 1 },
	{ 32, 4, 1, 90, .first = 37 },
};

static const struct shape *shape;
static const char *format;
static float *sinks;                                /* [heads] */
static float *in_q[SEQS], *in_k[SEQS], *in_v[SEQS]; /* [length][heads or heads_kv][dim] */
static int stretch[2];                              /* rows of sequence 0 that see each other, both ends; 0: none */
static int failures;

static size_t q_row(void)
{
	return (size_t)shape->heads * (size_t)shape->dim;
}
static size_t kv_row(void)
{
	return (size_t)shape->heads_kv * (size_t)shape->dim;
}

static float *numbers(uint64_t seed, size_t n, float scale)
{
	float *f = xmalloc(n * sizeof *f);

	for (size_t i = 0; i < n; i++)
		f[i] = (float)(rng_uniform(seed, i, 5) * 2 - 1) * scale;
	return f;
}

/* ---- a world: a backend with the caches of all sequences, its pages full of NaN ---- */

struct world {
	struct backend *be;
	struct kv_layer layer;
	struct kv_view view;
	int32_t page[SEQS * PAGES], page_of[SEQS * PAGES];
	int gone[SEQS]; /* pages that no row sees any more */
	size_t bytes, work_bytes;
	uint8_t *work;
	float *out[SEQS]; /* [length][heads * dim] */
};

static void world_open(struct world *w, struct backend *be, int page_rows)
{
	const struct kv_rows rows = kv_rows_of(kv_format_find(format));
	int pages = 0;
	uint8_t *poison;

	memset(w, 0, sizeof *w);
	w->be = be;
	w->view = (struct kv_view){ .layer = &w->layer,
		                    .layers = 1,
		                    .page_rows = page_rows,
		                    .heads = shape->heads_kv,
		                    .dim = shape->dim,
		                    .page = w->page,
		                    .page_max = PAGES };
	w->view.page_bytes = kv_layers_lay(&w->layer, 1, &rows, shape->heads_kv, shape->dim, page_rows);
	for (int at = 0; at < LONGEST; at += page_rows)
		for (int i = SEQS - 1; i >= 0; i--) /* pages of sequences alternate, where both have some */
			w->page_of[i * PAGES + at / page_rows] = pages++;
	w->bytes = w->view.page_bytes * (size_t)pages;
	w->view.base = be->ops->alloc(be, w->bytes);
	poison = xmalloc(w->bytes);
	memset(poison, 0xff, w->bytes);
	be->ops->write(be, w->view.base, poison, w->bytes);
	free(poison);
	w->work_bytes = (size_t)LONGEST * SEQS * (2 * q_row() + 2 * kv_row()) * sizeof(float) + 4096;
	w->work = be->ops->alloc(be, w->work_bytes);
	for (int i = 0; i < SEQS; i++)
		w->out[i] = xcalloc((size_t)lengths[i] * q_row(), sizeof(float));
}

static void world_close(struct world *w)
{
	w->be->ops->free(w->be, w->view.base, w->bytes);
	w->be->ops->free(w->be, w->work, w->work_bytes);
	w->be->ops->close(w->be);
	for (int i = 0; i < SEQS; i++)
		free(w->out[i]);
}

/* One step.  Rows of a span from keep[i] on are wrong: their keys and values are infinite,
 * as those of a draft that is taken back may be, and what comes of them is dropped. */
static void step(struct world *w, const struct span *span, const int *keep, int n_span)
{
	static int32_t pos[SEQS * LONGEST], item[SEQS * LONGEST], first[SEQS], see[SEQS * LONGEST];
	struct pass p = { .be = w->be,
		          .arith = ARITH_FAST,
		          .n_item = n_span,
		          .pos = pos,
		          .item = item,
		          .span = span,
		          .row = first,
		          .see = see,
		          .work = { w->work, w->work_bytes, 0, 0 } };
	struct attn a = { .heads = shape->heads,
		          .heads_kv = shape->heads_kv,
		          .dim = shape->dim,
		          .scale = 1 / sqrtf((float)shape->dim),
		          .window = shape->window,
		          .first = shape->first,
		          .both_ways = stretch[1] > 0,
		          .softcap = shape->cap,
		          .sinks = shape->sinks ? sinks : NULL };
	const struct backend_ops *op = w->be->ops;
	float *q, *k, *v, *out;

	for (int i = 0; i < n_span; i++) {
		first[i] = p.n_row;
		memcpy(w->page + i * PAGES, w->page_of + span[i].slot * PAGES, PAGES * sizeof *w->page);
		for (int j = 0; j < span[i].n; j++, p.n_row++) {
			pos[p.n_row] = span[i].pos + j;
			item[p.n_row] = i;
			see[p.n_row] = pos[p.n_row];
			if (!span[i].slot && pos[p.n_row] >= stretch[0] && pos[p.n_row] < stretch[1])
				see[p.n_row] = stretch[1];
		}
	}
	p.kv[0] = &w->view;
	assert(!pass_begin(&p));
	q = pass_floats(&p, (size_t)p.n_row * q_row());
	k = pass_floats(&p, (size_t)p.n_row * kv_row());
	v = pass_floats(&p, (size_t)p.n_row * kv_row());
	out = pass_floats(&p, (size_t)p.n_row * q_row());
	for (int i = 0, r = 0; i < n_span; i++)
		for (int j = 0; j < span[i].n; j++, r++) {
			size_t at = (size_t)pos[r] * kv_row();
			float *wrong = xmalloc(kv_row() * sizeof *wrong);

			for (size_t x = 0; x < kv_row(); x++)
				wrong[x] = x % 3 ? INFINITY : NAN;
			op->write(w->be, q + (size_t)r * q_row(), in_q[span[i].slot] + (size_t)pos[r] * q_row(),
			          q_row() * 4);
			op->write(w->be, k + (size_t)r * kv_row(), j < keep[i] ? in_k[span[i].slot] + at : wrong,
			          kv_row() * 4);
			op->write(w->be, v + (size_t)r * kv_row(), j < keep[i] ? in_v[span[i].slot] + at : wrong,
			          kv_row() * 4);
			free(wrong);
		}
	op->kv_append(&p, &a, q, q_row(), (size_t)shape->dim, k, v, &w->view, 0);
	op->attend(&p, out, &a, q, NULL, q_row(), (size_t)shape->dim, &w->view, 0);
	for (int i = 0, r = 0; i < n_span; i++)
		for (int j = 0; j < span[i].n; j++, r++)
			if (j < keep[i])
				assert(!op->read(w->be, w->out[span[i].slot] + (size_t)pos[r] * q_row(),
				                 out + (size_t)r * q_row(), q_row() * 4));
	assert(!pass_end(&p));
}

/* What no row from pos on sees becomes no number, in whole pages: a cache may have given them away. */
static void forget(struct world *w, int slot, int pos)
{
	int pages = shape->window && pos >= shape->window ? (pos - shape->window + 1) / w->view.page_rows : 0;
	uint8_t *none;

	if (w->gone[slot] >= pages)
		return;
	none = xmalloc(w->view.page_bytes);
	memset(none, 0xff, w->view.page_bytes);
	for (int *i = &w->gone[slot]; *i < pages; ++*i)
		w->be->ops->write(w->be, w->view.base + w->view.page_bytes * (size_t)w->page_of[slot * PAGES + *i],
		                  none, w->view.page_bytes);
	free(none);
}

/* All sequences together, in steps of `longest` rows of each and some wrong ones behind
 * them; of the long sequence rows before `from` in one step. */
static void run(struct world *w, int longest, int wrong, int from)
{
	int at[SEQS] = { 0 };

	for (;;) {
		struct span span[SEQS];
		int keep[SEQS], n = 0;

		for (int i = 0; i < SEQS; i++) {
			int left = lengths[i] - at[i], len = longest;

			if (!left)
				continue;
			if (lengths[i] == LONGEST && at[i] < from)
				len = from - at[i];
			len = len < left ? len : left;
			span[n] = (struct span){ i, at[i], len + (wrong < left - len ? wrong : left - len), 0 };
			keep[n++] = len;
			at[i] += len;
		}
		if (!n)
			return;
		step(w, span, keep, n);
		for (int i = 0; i < SEQS; i++)
			forget(w, i, at[i]);
	}
}

static struct world truth, other;

static void compare(const char *what)
{
	for (int i = 0; i < SEQS; i++)
		for (int r = 0; r < lengths[i]; r++)
			if (memcmp(truth.out[i] + (size_t)r * q_row(), other.out[i] + (size_t)r * q_row(),
			           q_row() * 4)) {
				printf("FAIL %s: dim %d, %d heads of %d: sequence %d position %d differs\n", what,
				       shape->dim, shape->heads, shape->heads_kv, i, r);
				failures++;
				return;
			}
}

/* Attention at one level in a backend whose other operations are at another has the bits of its own level. */
static void attention_chosen(enum cpu_level level, enum cpu_level attention)
{
	struct choices c = { level, attention };
	char name[80];

	world_open(&truth, backend_cpu_open(1, attention), 64);
	run(&truth, LONGEST, 0, 0);
	world_open(&other, backend_cpu_open_chosen(2, &c), 16);
	run(&other, 37, 0, 0);
	snprintf(name, sizeof name, "chosen (%s, %s)", format, other.be->level);
	compare(name);
	world_close(&other);
	world_close(&truth);
}

static void try(const char *what, enum cpu_level level, int threads, int page_rows, int longest, int wrong, int from,
                bool far)
{
	struct backend *be = backend_cpu_open(threads, level);
	char name[160];

	snprintf(name, sizeof name, "%s (%s, %s, %d threads, pages of %d, steps of %d and %d wrong, from %d)", what,
	         format, cpu_level_name(level), threads, page_rows, longest, wrong, from);
	world_open(&other, far ? far_open(be) : be, page_rows);
	run(&other, longest, wrong, from);
	compare(name);
	world_close(&other);
}

/* ---- the order of format.h ---- */

static float no_denormal(float f)
{
	return fabsf(f) < 0x1p-126f ? copysignf(0, f) : f;
}
static float half(float f)
{
	return bf16_to_float(float_to_bf16(no_denormal(f)));
}

/* acc + a . b over one block of 32, as a tile sums it. */
static float block_sum(float acc, const float *a, const float *b)
{
	float part[2] = { 0, 0 };

	for (int i = 0; i < 32; i++)
		part[i % 2] = no_denormal(fmaf(a[i], b[i], part[i % 2]));
	return no_denormal(acc + no_denormal(part[0] + part[1]));
}

static float exp2_truth(float x)
{
	const float c[] = { 0x1.5bba18p-10f, 0x1.3cea8cp-7f, 0x1.c6b752p-5f, 0x1.ebf9bcp-3f, 0x1.62e42ap-1f, 1 };
	float k, r, p;
	uint32_t u;

	x = x < -127 ? -127 : x;
	k = rintf(x);
	r = x - k;
	p = c[0];
	for (int i = 1; i < 6; i++)
		p = fmaf(p, r, c[i]);
	memcpy(&u, &p, 4);
	u += (uint32_t)(int32_t)k << 23;
	memcpy(&p, &u, 4);
	return p;
}

static float exp_truth(float x)
{
	float e;

	op_table_scalar.exp(&e, &x, 1);
	return e;
}

/* The first position that row r sees. */
static int first_of(int r)
{
	int first = shape->window && r >= shape->window ? r - shape->window + 1 : 0;

	return r >= shape->first && first < shape->first ? shape->first : first;
}

static void sink_truth(float *out, float max, float *sum, float sink)
{
	float top = sink > max ? sink : max, c = exp_truth(max - top);

	*sum = fmaf(*sum, c, exp_truth(sink - top));
	for (int i = 0; i < shape->dim; i++)
		out[i] *= c;
}

/* Query head h of row r of a sequence over bf16 rows where there are no tiles. */
static void plain_truth(float *out, int seq, int r, int h)
{
	int dim = shape->dim, g = h / (shape->heads / shape->heads_kv), n = r + 1, first = first_of(r);
	float scale = 1 / sqrtf((float)dim), max = -INFINITY, sum = 0;
	const float *q = in_q[seq] + (size_t)r * q_row() + (size_t)(h * dim);
	float *row = xmalloc((size_t)dim * 4), *acc = xmalloc((size_t)dim * 4), *s = xmalloc((size_t)n * 4);
	struct vec_kernels vec;

	vec_kernels(&vec, CPU_SCALAR);
	for (int t = 0; t < n; t++) {
		for (int i = 0; i < dim; i++)
			row[i] = bf16_to_float(float_to_bf16(in_k[seq][(size_t)t * kv_row() + (size_t)(g * dim + i)]));
		s[t] = vec.dot(q, row, dim);
		if (shape->cap != 0)
			op_table_scalar.cap(&s[t], scale, shape->cap, 1);
		else
			s[t] *= scale;
	}
	memset(out, 0, (size_t)dim * 4);
	for (int begin = first / ATTN_SEGMENT * ATTN_SEGMENT; begin < n; begin += ATTN_SEGMENT) {
		int end = begin + ATTN_SEGMENT < n ? begin + ATTN_SEGMENT : n;
		float m = -INFINITY, l = 0, next, f, f2;

		memset(acc, 0, (size_t)dim * 4);
		for (int at = begin; at < end; at += ATTN_BLOCK) {
			int to = at + ATTN_BLOCK < end ? at + ATTN_BLOCK : end;
			float part[16] = { 0 }, top = m, corr;
			int from = at > first ? at : first;

			if (from >= to)
				continue;
			for (int t = from; t < to; t++)
				top = s[t] > top ? s[t] : top;
			corr = exp_truth(m - top);
			m = top;
			for (int t = from; t < to; t++) {
				s[t] = exp_truth(s[t] - m);
				part[(t - at) % 16] += s[t];
			}
			for (int k = 8; k; k /= 2)
				for (int i = 0; i < k; i++)
					part[i] += part[i + k];
			l = fmaf(l, corr, part[0]);
			for (int i = 0; i < dim; i++) {
				acc[i] *= corr;
				for (int t = from; t < to; t++)
					acc[i] = fmaf(s[t],
					              bf16_to_float(float_to_bf16(
							      in_v[seq][(size_t)t * kv_row() + (size_t)(g * dim + i)])),
					              acc[i]);
			}
		}
		next = m > max ? m : max;
		f = exp_truth(max - next);
		f2 = exp_truth(m - next);
		max = next;
		sum = fmaf(l, f2, sum * f);
		for (int i = 0; i < dim; i++)
			out[i] = fmaf(acc[i], f2, out[i] * f);
	}
	if (shape->sinks)
		sink_truth(out, max, &sum, sinks[h]);
	for (int i = 0; i < dim; i++)
		out[i] *= 1.0f / sum;
	free(row);
	free(acc);
	free(s);
}

/* The same by tiles; and in double, with what the cache holds: *worst is how far the two
 * are apart. */
static void tiles_truth(float *out, int seq, int r, int h, double *worst)
{
	int dim = shape->dim, g = h / (shape->heads / shape->heads_kv), n = r + 1, first = first_of(r);
	float scale = 1 / sqrtf((float)dim), c = scale * 0x1.715476p+0f, max = -INFINITY, sum = 0;
	const float *q = in_q[seq] + (size_t)r * q_row() + (size_t)(h * dim);
	float *k = xcalloc((size_t)(n + KV_SEGMENT) * (size_t)dim, 4),
	      *v = xcalloc((size_t)(n + KV_SEGMENT) * (size_t)dim, 4);
	float *qh = xcalloc((size_t)dim + 32, 4), *acc = xmalloc((size_t)dim * 4),
	      *s = xmalloc((size_t)(n + KV_SEGMENT) * 4);
	double top = -INFINITY, all = 0, *d = xcalloc((size_t)dim, 8), *e = xmalloc((size_t)n * 8);

	for (int i = 0; i < dim; i++)
		qh[i] = half(q[i]);
	for (int t = 0; t < n; t++) {
		e[t] = 0;
		for (int i = 0; i < dim; i++) {
			k[t * dim + i] = half(in_k[seq][(size_t)t * kv_row() + (size_t)(g * dim + i)]);
			v[t * dim + i] = half(in_v[seq][(size_t)t * kv_row() + (size_t)(g * dim + i)]);
			e[t] += (double)q[i] * (double)k[t * dim + i] * (double)scale;
		}
		top = t < first ? top : fmax(top, e[t]);
		s[t] = 0;
		for (int i = 0; i < dim; i += 32)
			s[t] = block_sum(s[t], qh + i, k + t * dim + i);
	}
	memset(out, 0, (size_t)dim * 4);
	for (int begin = first / KV_SEGMENT * KV_SEGMENT; begin < n; begin += KV_SEGMENT) {
		int end = begin + KV_SEGMENT < n ? begin + KV_SEGMENT : n;
		float m = -INFINITY, part[2] = { 0, 0 }, l, next, f, f2;

		for (int t = begin; t < end; t++)
			m = t >= first && s[t] > m ? s[t] : m;
		for (int t = begin; t < begin + KV_SEGMENT; t++) {
			s[t] = t >= first && t < end ? half(exp2_truth((s[t] - m) * c)) : 0;
			part[t % 2] += s[t];
		}
		l = part[0] + part[1];
		memset(acc, 0, (size_t)dim * 4);
		for (int i = 0; i < dim; i++)
			for (int t = begin; t < end; t += 32) {
				float column[32];

				for (int j = 0; j < 32; j++)
					column[j] = v[(t + j) * dim + i];
				acc[i] = block_sum(acc[i], s + t, column);
			}
		next = m > max ? m : max;
		f = exp2_truth((max - next) * c);
		f2 = exp2_truth((m - next) * c);
		max = next;
		sum = fmaf(l, f2, sum * f);
		for (int i = 0; i < dim; i++)
			out[i] = fmaf(acc[i], f2, out[i] * f);
	}
	for (int i = 0; i < dim; i++)
		out[i] += 0.0f;
	if (shape->sinks) {
		sink_truth(out, max * scale, &sum, sinks[h]);
		all = exp((double)sinks[h] - top);
	}
	for (int t = 0; t < n; t++)
		all += e[t] = t < first ? 0 : exp(e[t] - top);
	for (int i = 0; i < dim; i++) {
		out[i] *= 1.0f / sum;
		for (int t = 0; t < n; t++)
			d[i] += e[t] / all * (double)v[t * dim + i];
		*worst = fmax(*worst, fabs(d[i] - (double)out[i]));
	}
	free(k);
	free(v);
	free(qh);
	free(acc);
	free(s);
	free(d);
	free(e);
}

static void stated_order(bool tiles)
{
	float *want = xmalloc((size_t)shape->dim * 4);
	double worst = 0;

	for (int seq = 0; seq < SEQS; seq++)
		for (int r = 0; r < lengths[seq]; r += r < 70 ? 7 : 89)
			for (int h = r % 2; h < shape->heads; h += 3) {
				const float *got = truth.out[seq] + (size_t)r * q_row() + (size_t)(h * shape->dim);

				if (tiles)
					tiles_truth(want, seq, r, h, &worst);
				else
					plain_truth(want, seq, r, h);
				for (int i = 0; i < shape->dim; i++)
					if (memcmp(&want[i], &got[i], 4) != 0) {
						printf("FAIL stated order: dim %d: sequence %d position %d head %d: %a for %a\n",
						       shape->dim, seq, r, h, (double)got[i], (double)want[i]);
						failures++;
						free(want);
						return;
					}
			}
	/* Values are below 2, weights and queries have 8 bits, scores are some units. */
	if (worst > 0.02) {
		printf("FAIL the order itself is off by %g\n", worst);
		failures++;
	}
	free(want);
}

/* Sums that fall to zero from below: in the second segment the second block of values takes
 * the first's away and leaves less than the smallest normal number, and the first segment
 * is negative and counts nothing beside it.  What follows in a step of many rows, zero times
 * the values beyond a row, must not turn the sign of that zero. */
static void signs_of_zero(enum cpu_level top)
{
	float far = 8;

	for (size_t r = 0; r < LONGEST; r++) {
		for (size_t i = 0; i < q_row(); i++)
			in_q[0][r * q_row() + i] = far;
		for (size_t i = 0; i < kv_row(); i++) {
			in_k[0][r * kv_row() + i] = r < KV_SEGMENT ? -far : far;
			in_v[0][r * kv_row() + i] = !r                   ? -1 :
			                            r == KV_SEGMENT      ? 0x1.8p-126f :
			                            r == KV_SEGMENT + 32 ? -0x1p-125f :
			                                                   0;
		}
	}
	world_open(&truth, backend_cpu_open(1, top), 64);
	run(&truth, LONGEST, 0, 0);
	try("signs of zero", top, 1, 64, 1, 0, KV_SEGMENT + 60, false);
	world_close(&truth);
}

/* A value that is no number, in the window of some rows and behind that of the others, whoever shares their unit. */
static void behind_a_window(enum cpu_level top)
{
	for (size_t i = 0; i < kv_row(); i++)
		in_v[0][300 * kv_row() + i] = i % 2 ? INFINITY : -INFINITY;
	world_open(&truth, backend_cpu_open(1, top), 64);
	run(&truth, 1, 0, 0);
	try("behind a window", top, 1, 64, LONGEST, 0, 0, false);
	try("behind a window", top, 2, 16, 37, 2, 0, false);
	world_close(&truth);
}

/* Rows of a stretch see each other: each gives what its query would give at the stretch's last position, where a row sees
 * as much; and the rows around it what they gave. */
static void see_both_ways(enum cpu_level level, int page_rows, int longest, int threads)
{
	enum { FIRST = 250, LAST = 270 };
	static const int rows[] = { FIRST - 1, FIRST, FIRST + 6, LAST - 1, LAST, LAST + 1, LONGEST - 1 };
	size_t bytes = q_row() * sizeof(float);
	float *last = in_q[0] + LAST * q_row(), *own = xmalloc(bytes);

	memcpy(own, last, bytes);
	stretch[0] = FIRST;
	stretch[1] = LAST;
	world_open(&other, backend_cpu_open(threads, level), page_rows);
	run(&other, longest, 0, LAST + 1);
	stretch[0] = stretch[1] = 0;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		bool inside = rows[i] >= FIRST && rows[i] <= LAST;

		if (inside)
			memcpy(last, in_q[0] + (size_t)rows[i] * q_row(), bytes);
		world_open(&truth, backend_cpu_open(1, level), 64);
		run(&truth, LONGEST, 0, 0);
		memcpy(last, own, bytes);
		if (memcmp(truth.out[0] + (size_t)(inside ? LAST : rows[i]) * q_row(),
		           other.out[0] + (size_t)rows[i] * q_row(), bytes)) {
			printf("FAIL both ways (%s, %s, %d threads, pages of %d): dim %d: row %d differs\n", format,
			       cpu_level_name(level), threads, page_rows, shape->dim, rows[i]);
			failures++;
		}
		world_close(&truth);
	}
	world_close(&other);
	free(own);
}

static void inputs_make(void)
{
	sinks = numbers(400, (size_t)shape->heads, 3);
	for (int s = 0; s < SEQS; s++) {
		in_q[s] = numbers(100 + (uint64_t)s, (size_t)lengths[s] * q_row(), 4);
		in_k[s] = numbers(200 + (uint64_t)s, (size_t)lengths[s] * kv_row(), 2);
		in_v[s] = numbers(300 + (uint64_t)s, (size_t)lengths[s] * kv_row(), 2);
	}
}

static void inputs_free(void)
{
	free(sinks);
	for (int s = 0; s < SEQS; s++) {
		free(in_q[s]);
		free(in_k[s]);
		free(in_v[s]);
	}
}

/* Units of all sizes: by rows none is large enough for keys and values to be opened for it,
 * the truth's nearly all are, and chunks are of both kinds. */
static void many_and_few(const char *fmt, enum cpu_level level, bool quick)
{
	format = fmt;
	world_open(&truth, backend_cpu_open(1, level), 64);
	run(&truth, LONGEST, 0, 0);
	if (!strcmp(fmt, "bf16"))
		stated_order(false);
	try("rows", level, 1, 64, 1, 0, LONGEST - (quick ? 4 : 100), false);
	try("chunks", level, 2, 5, 13, 3, quick ? 600 : 0, true);
	if (!quick) {
		try("chunks", level, 1, 64, 70, 5, 0, false);
		try("threads", level, 7, 16, LONGEST, 0, 0, false);
	}
	world_close(&truth);
}

int main(int argc, char **argv)
{
	bool quick = getenv("WEFT_TEST_QUICK") != NULL;
	enum cpu_level top = cpu_detect(), plain = top;
	struct kv_pair both = { kv_format_find("bf16"), kv_format_find("bf16") };

	while (kv_tiles(both, 64, plain)) /* the best level that has the order of plain floats */
		plain = cpu_level_parent(plain);
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		static const char *const coded[] = { "u8g64", "u4g32", "tq4", "tq3", "f32" };

		shape = &shapes[i];
		inputs_make();
		format = "bf16";
		world_open(&truth, backend_cpu_open(1, top), 64);
		run(&truth, LONGEST, 0, 0);
		stated_order(kv_tiles(both, shape->dim, top) != NULL && shape->cap == 0);
		try("rows", top, 1, 64, 1, 0, LONGEST - (quick ? 10 : 300), false);
		try("drafts", top, 3, 5, 7, 4, quick ? 480 : 0, true);
		if (!quick) {
			try("chunks", top, 2, 48, 64, 0, 0, false);
			try("chunks", top, 1, 64, 37, 0, 0, false);
			try("drafts", top, 1, 64, 70, 5, 0, false);
			try("threads", top, 2, 64, LONGEST, 0, 0, false);
			try("threads", top, 7, 16, LONGEST, 0, 0, false);
			try("pages of one", top, 2, 1, 100, 3, 0, false);
		}
		if (top == CPU_AMX) /* the bits of tiles by dot products */
			try("rows and chunks", CPU_AVX512BF16, 2, 64, 70, 3, quick ? 480 : 0, true);
		world_close(&truth);
		for (enum cpu_level l = cpu_level_next(CPU_SCALAR); l < CPU_LEVELS; l = cpu_level_next(l))
			if (l != CPU_AVXVNNI && !kv_tiles(both, 64, l) && (!quick || !i)) /* AVX-VNNI: as AVX2 */
				many_and_few("bf16", l, quick);
		for (size_t f = 0; f < sizeof coded / sizeof *coded; f++)
			if ((!quick || !i) && !(shape->window && f % 2) &&
			    kv_format_find(coded[f])->row_bytes(shape->dim))
				many_and_few(coded[f], top, quick);
		if (i < (quick ? 1 : 2)) {
			see_both_ways(top, 64, LONGEST, 2);
			if (!quick)
				see_both_ways(plain, 16, 37, 1);
			format = "bf16";
			see_both_ways(top, 16, 37, 3);
			see_both_ways(plain, 64, LONGEST, 1);
		}
		if (!i && plain != top) {
			format = "bf16";
			attention_chosen(top, plain);
			attention_chosen(plain, top);
		}
		if (shape->heads == 40) {
			format = "bf16";
			signs_of_zero(top);
		}
		if (shape->window) {
			format = "bf16";
			behind_a_window(top);
		}
		inputs_free();
	}
	return failures != 0;
}
