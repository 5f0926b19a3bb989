/* moe.c - mixture of experts: route, group the rows by expert, multiply, and sum
 * each row's experts in the order of their rank.
 *
 * An expert's product of a row does not depend on which other rows chose it, so
 * the grouping changes no bit. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"

struct mix {
	struct cpu_backend *c;
	const struct moe *m;
	const float *in;
	float *x;
	int n, cols;
	float *logit;                   /* [n][experts], then probabilities */
	float *weight;                  /* [n][top_k] */
	int *expert, *place;            /* [n][top_k]: expert, and its row in the grouped order */
	float *gathered, *gate, *up, *down;     /* [n * top_k][cols or inner], grouped by expert */
	float *shared_gate, *shared_up, *shared_down, *shared_router;
};

/* Softmax over all experts, then the top_k largest; of equals the lower index. */
static void route(void *ctx, int begin, int end)
{
	struct mix *d = ctx;
	int experts = d->m->experts, k = d->m->top_k;

	for (int r = begin; r < end; r++) {
		float *p = d->logit + (size_t)r * (size_t)experts, *w = d->weight + (size_t)r * (size_t)k;
		int *e = d->expert + (size_t)r * (size_t)k;
		float top = p[0], sum = 0.0f;

		for (int i = 1; i < experts; i++)
			top = p[i] > top ? p[i] : top;
		for (int i = 0; i < experts; i++)
			p[i] -= top;
		d->c->op->exp(p, p, experts);
		for (int i = 0; i < experts; i++)
			sum += p[i];
		for (int j = 0; j < k; j++) {
			int best = -1;

			/* >= 0 is false for what was taken (-1) and for NaN. */
			for (int i = 0; i < experts; i++)
				if (p[i] >= 0.0f && (best < 0 || p[i] > p[best]))
					best = i;
			e[j] = best < 0 ? j : best;
			w[j] = best < 0 ? NAN : p[best] / sum;
			if (best >= 0)
				p[best] = -1.0f;
		}
		if (d->m->normalise) {
			sum = 0.0f;
			for (int j = 0; j < k; j++)
				sum += w[j];
			for (int j = 0; j < k; j++)
				w[j] /= sum;
		}
	}
}

/* Counting sort of (row, rank) by expert: first[e] is where expert e begins. */
static void group_rows(struct mix *d, int *first)
{
	int k = d->m->top_k, experts = d->m->experts;

	memset(first, 0, (size_t)(experts + 1) * sizeof *first);
	for (int i = 0; i < d->n * k; i++)
		first[d->expert[i] + 1]++;
	for (int e = 0; e < experts; e++)
		first[e + 1] += first[e];
	for (int i = 0; i < d->n * k; i++)
		d->place[i] = first[d->expert[i]]++;
	for (int e = experts; e > 0; e--)
		first[e] = first[e - 1];
	first[0] = 0;
}

static void gather_rows(void *ctx, int begin, int end)
{
	struct mix *d = ctx;

	for (int i = begin; i < end; i++)
		memcpy(d->gathered + (size_t)d->place[i] * (size_t)d->cols,
		       d->in + (size_t)(i / d->m->top_k) * (size_t)d->cols, (size_t)d->cols * sizeof *d->in);
}

static void act_rows(void *ctx, int begin, int end)
{
	struct mix *d = ctx;
	size_t at = (size_t)begin * (size_t)d->m->inner;

	d->c->op->swiglu(d->gate + at, d->gate + at, d->up + at, (size_t)(end - begin) * (size_t)d->m->inner);
}

static void combine(void *ctx, int begin, int end)
{
	struct mix *d = ctx;
	int k = d->m->top_k;
	size_t cols = (size_t)d->cols;
	float *t = cpu_my_scratch(d->c);

	for (int r = begin; r < end; r++) {
		memset(t, 0, cols * sizeof *t);
		for (int j = 0; j < k; j++)
			d->c->op->axpy(t, d->weight[r * k + j], d->down + (size_t)d->place[r * k + j] * cols,
			               d->cols);
		if (d->shared_down) {
			float g = 1.0f;

			if (d->shared_router)
				d->c->op->sigmoid(&g, d->shared_router + r, 1);
			d->c->op->axpy(t, g, d->shared_down + (size_t)r * cols, d->cols);
		}
		d->c->op->add(d->x + (size_t)r * cols, t, d->cols);
	}
}

/* Products of the experts that have rows: one or two weights each. */
static void experts_mul(struct mix *d, enum arith arith, const int *first, const struct acts *x,
                        const struct weight *a, float *out_a, const struct weight *b, float *out_b,
                        struct product *job)
{
	int n = 0;

	for (int e = 0; e < d->m->experts; e++) {
		size_t rows = (size_t)a[e].rows;

		if (first[e] == first[e + 1])
			continue;
		job[n++] = (struct product){ &a[e], x, first[e], first[e + 1], out_a + (size_t)first[e] * rows, rows, NULL, false };
		if (b)
			job[n++] = (struct product){ &b[e], x, first[e], first[e + 1], out_b + (size_t)first[e] * rows, rows,
			                             NULL, false };
	}
	cpu_products(d->c, arith, job, n);
}

static void shared_expert(struct mix *d, enum arith arith, struct acts *acts)
{
	const struct moe *m = d->m;
	struct product job[2];
	struct weight const *const w[2] = { m->shared_gate, m->shared_up };
	float *const out[2] = { d->shared_gate, d->shared_up };

	for (int i = 0; i < 2; i++) {
		cpu_acts(d->c, &acts[i], d->in, d->n, d->cols, cpu_act_group(d->c, w[i], arith, d->n), i);
		job[i] = (struct product){ w[i], &acts[i], 0, d->n, out[i], (size_t)m->shared_inner, NULL, false };
	}
	cpu_products(d->c, arith, job, 2);
	d->c->op->swiglu(d->shared_gate, d->shared_gate, d->shared_up, (size_t)d->n * (size_t)m->shared_inner);
	cpu_acts(d->c, &acts[0], d->shared_gate, d->n, m->shared_inner,
	         cpu_act_group(d->c, m->shared_down, arith, d->n), 0);
	job[0] = (struct product){ m->shared_down, &acts[0], 0, d->n, d->shared_down, (size_t)d->cols, NULL, false };
	cpu_products(d->c, arith, job, 1);
}

static void *take(uint8_t **p, size_t count)
{
	void *at = *p;

	*p += (count * 4 + 63) / 64 * 64;
	return at;
}

void cpu_moe(struct pass *p, float *x, const struct moe *m, const float *in, int n, int cols)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	struct mix d = { .c = c, .m = m, .in = in, .x = x, .n = n, .cols = cols };
	size_t rows = (size_t)n, picks = rows * (size_t)m->top_k;
	size_t inner = (size_t)m->inner, shared = (size_t)m->shared_inner;
	size_t want = rows * (size_t)m->experts + 3 * picks + picks * (2 * (size_t)cols + 2 * inner) +
	              rows * (2 * shared + (size_t)cols + 1) + (size_t)m->experts + 1 + 16 * 14;
	size_t jobs = 2 * (size_t)m->experts * sizeof(struct product);
	uint8_t *at = room_get(&c->work, want * 4 + jobs);
	struct product *job, one;
	struct acts acts[2];
	int *first;

	if (n <= 0)
		return;
	assert(m->top_k >= 1 && m->top_k <= m->experts);
	d.logit = take(&at, rows * (size_t)m->experts);
	d.weight = take(&at, picks);
	d.expert = take(&at, picks);
	d.place = take(&at, picks);
	d.gathered = take(&at, picks * (size_t)cols);
	d.down = take(&at, picks * (size_t)cols);
	d.gate = take(&at, picks * inner);
	d.up = take(&at, picks * inner);
	first = take(&at, (size_t)m->experts + 1);
	if (m->shared_inner) {
		d.shared_gate = take(&at, rows * shared);
		d.shared_up = take(&at, rows * shared);
		d.shared_down = take(&at, rows * (size_t)cols);
		d.shared_router = m->shared_router ? take(&at, rows) : NULL;
	}
	job = (struct product *)at;

	/* The router decides between experts: always in float, a near tie must not
	 * depend on eight bits of an activation. */
	cpu_acts(c, &acts[0], in, n, cols, 0, 0);
	one = (struct product){ m->router, &acts[0], 0, n, d.logit, (size_t)m->experts, NULL, false };
	cpu_products(c, ARITH_F32, &one, 1);
	if (d.shared_router) {
		one = (struct product){ m->shared_router, &acts[0], 0, n, d.shared_router, 1, NULL, false };
		cpu_products(c, ARITH_F32, &one, 1);
	}
	cpu_range(c, route, &d, n, 16);
	group_rows(&d, first);
	cpu_range(c, gather_rows, &d, (int)picks, cols >= 8192 ? 1 : 8192 / cols);

	for (int e = 0; e < m->experts; e++)
		assert(m->gate[e].group == m->gate[0].group && m->up[e].group == m->gate[0].group &&
		       m->down[e].group == m->down[0].group);
	cpu_acts(c, &acts[0], d.gathered, (int)picks, cols, cpu_act_group(c, &m->gate[0], p->arith, (int)picks), 0);
	experts_mul(&d, p->arith, first, &acts[0], m->gate, d.gate, m->up, d.up, job);
	cpu_range(c, act_rows, &d, (int)picks, 8192 / m->inner + 1);
	cpu_acts(c, &acts[0], d.gate, (int)picks, m->inner, cpu_act_group(c, &m->down[0], p->arith, (int)picks), 0);
	experts_mul(&d, p->arith, first, &acts[0], m->down, d.down, NULL, NULL, job);
	if (m->shared_inner)
		shared_expert(&d, p->arith, acts);
	cpu_scratch(c, (size_t)cols * sizeof(float) + 64);
	cpu_range(c, combine, &d, n, 8192 / cols + 1);
}
