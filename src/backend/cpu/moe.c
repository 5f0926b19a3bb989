/* moe.c - mixture of experts: route, group the rows by expert, multiply, and sum
 * each row's experts in the order of their rank.
 *
 * An expert's product of a row does not depend on which other rows chose it, so
 * the grouping changes no bit. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"

/* Columns of a row that are summed at a time; and in c->acts, where the rows by expert are. */
enum { COMBINE_COLS = 512, BY_EXPERT = ACTS_MAX - 1 };

struct mix {
	struct cpu_backend *c;
	const struct moe *m;
	const float *in;
	float *x;
	int n, cols;
	float *logit;              /* [n][experts], then probabilities */
	float *weight;             /* [n][top_k] */
	int *expert, *place;       /* [n][top_k]: expert, and where in the order of experts */
	int *row;                  /* [n * top_k] in that order */
	int *first, *used, n_used; /* of the experts that have rows: where they begin, and which */
	struct acts *acts;         /* [n_used] */
	struct product *job;       /* [n_used + 1] */
	float *gated, *down;       /* [n * top_k][inner or cols] in the order of experts */
	float *shared_gated, *shared_down, *shared_logit;
};

/* The top_k largest of p in falling order; of equals the lower index comes first.  Fewer than
 * that when there are NaN: then what is left of weight is NaN. */
static void choose(const float *p, int experts, int k, int *expert, float *weight)
{
	for (int j = 0; j < k; j++) {
		expert[j] = j;
		weight[j] = -1.0f;
	}
	for (int i = 0; i < experts; i++) {
		int j = k;

		if (!(p[i] > weight[k - 1]))
			continue;
		for (; j > 0 && p[i] > weight[j - 1]; j--)
			if (j < k) {
				expert[j] = expert[j - 1];
				weight[j] = weight[j - 1];
			}
		expert[j] = i;
		weight[j] = p[i];
	}
	for (int j = 0; j < k; j++)
		weight[j] = weight[j] < 0.0f ? NAN : weight[j];
}

/* Softmax over all experts, then the top_k largest. */
static void route(void *ctx, int begin, int end)
{
	struct mix *d = ctx;
	int experts = d->m->experts, k = d->m->top_k, *expert = cpu_my_scratch(d->c);
	float *weight = (float *)(expert + k);

	for (int r = begin; r < end; r++) {
		float *p = d->logit + (size_t)r * (size_t)experts, *w = d->weight + (size_t)r * (size_t)k;
		float top = p[0], sum = 0.0f;

		for (int i = 1; i < experts; i++)
			top = p[i] > top ? p[i] : top;
		for (int i = 0; i < experts; i++)
			p[i] -= top;
		d->c->op->exp(p, p, experts);
		for (int i = 0; i < experts; i++)
			sum += p[i];
		/* Where no other thread writes beside it. */
		choose(p, experts, k, expert, weight);
		memcpy(d->expert + (size_t)r * (size_t)k, expert, (size_t)k * sizeof *expert);
		memcpy(w, weight, (size_t)k * sizeof *weight);
		for (int j = 0; j < k; j++)
			w[j] /= sum;
		if (d->m->normalise) {
			sum = 0.0f;
			for (int j = 0; j < k; j++)
				sum += w[j];
			for (int j = 0; j < k; j++)
				w[j] /= sum;
		}
	}
}

/* Counting sort of (row, rank) by expert. */
static void group_rows(struct mix *d)
{
	int k = d->m->top_k, picks = d->n * k, experts = d->m->experts, *at = d->first, begin = 0;

	memset(at, 0, (size_t)experts * sizeof *at);
	for (int i = 0; i < picks; i++)
		at[d->expert[i]]++;
	for (int e = 0; e < experts; e++) {
		int rows = at[e];

		at[e] = begin;
		begin += rows;
	}
	for (int i = 0; i < picks; i++) {
		d->place[i] = at[d->expert[i]]++;
		d->row[d->place[i]] = i / k;
	}
	/* at[e] is where expert e ends now. */
	begin = d->n_used = 0;
	for (int e = 0; e < experts; e++) {
		int end = at[e];

		if (end > begin) {
			d->used[d->n_used] = e;
			d->first[d->n_used++] = begin;
			begin = end;
		}
	}
	d->first[d->n_used] = picks;
}

/* One product for each expert that has rows, from its rows of d->acts; up NULL: none. */
static struct product *expert_jobs(struct mix *d, const struct weight *w, const struct weight *up, float *out)
{
	struct product *job = d->job;

	for (int i = 0; i < d->n_used; i++) {
		const struct weight *of = &w[d->used[i]];

		*job++ = (struct product){
			.w = of,
			.x = &d->acts[i],
			.r1 = d->acts[i].rows,
			.out = out + (size_t)d->first[i] * (size_t)of->rows,
			.ld = (size_t)of->rows,
			.up = up ? &up[d->used[i]] : NULL,
			.x_up = &d->acts[i],
		};
	}
	return job;
}

static void combine(void *ctx, int begin, int end)
{
	struct mix *d = ctx;
	const struct op_table *op = d->c->op;
	int k = d->m->top_k, blocks = (d->cols + COMBINE_COLS - 1) / COMBINE_COLS;
	size_t cols = (size_t)d->cols;
	float t[COMBINE_COLS];

	for (int i = begin; i < end; i++) {
		int r = i / blocks, o = i % blocks * COMBINE_COLS;
		int n = d->cols - o < COMBINE_COLS ? d->cols - o : COMBINE_COLS;

		memset(t, 0, sizeof t);
		for (int j = r * k; j < (r + 1) * k; j++)
			op->axpy(t, d->weight[j], d->down + (size_t)d->place[j] * cols + (size_t)o, n);
		if (d->shared_down) {
			float g = 1.0f;

			if (d->shared_logit)
				op->sigmoid(&g, d->shared_logit + r, 1);
			op->axpy(t, g, d->shared_down + (size_t)r * cols + (size_t)o, n);
		}
		op->add(d->x + (size_t)r * cols + (size_t)o, t, n);
	}
}

static void mix_room(struct mix *d)
{
	const struct moe *m = d->m;
	size_t rows = (size_t)d->n, picks = rows * (size_t)m->top_k, cols = (size_t)d->cols;
	size_t experts = (size_t)m->experts, inner = (size_t)m->inner, shared = (size_t)m->shared_inner;
	size_t each = sizeof *d->acts + sizeof *d->job + 2 * sizeof(int);
	uint8_t *p = room_get(&d->c->work, 4 * (rows * (experts + shared + cols + 1) + picks * (4 + inner + cols)) +
	                                           (experts + 1) * each + 13 * 64);

	d->acts = room_take(&p, experts * sizeof *d->acts);
	d->job = room_take(&p, (experts + 1) * sizeof *d->job);
	d->first = room_take(&p, 4 * (experts + 1));
	d->used = room_take(&p, 4 * experts);
	d->logit = room_take(&p, 4 * rows * experts);
	d->weight = room_take(&p, 4 * picks);
	d->expert = room_take(&p, 4 * picks);
	d->place = room_take(&p, 4 * picks);
	d->row = room_take(&p, 4 * picks);
	d->gated = room_take(&p, 4 * picks * inner);
	d->down = room_take(&p, 4 * picks * cols);
	if (m->shared_inner) {
		d->shared_gated = room_take(&p, 4 * rows * shared);
		d->shared_down = room_take(&p, 4 * rows * cols);
		d->shared_logit = m->shared_router ? room_take(&p, 4 * rows) : NULL;
	}
}

/* Always in float: a near tie of experts must not depend on eight bits of an activation. */
static void route_all(struct mix *d)
{
	const struct moe *m = d->m;
	struct product job[2];
	struct acts a;
	int n = 0;

	cpu_acts(d->c, &a, d->in, d->n, d->cols, 0, 0);
	job[n++] = (struct product){ .w = m->router, .x = &a, .r1 = d->n, .out = d->logit, .ld = (size_t)m->experts };
	if (d->shared_logit)
		job[n++] = (struct product){
			.w = m->shared_router, .x = &a, .r1 = d->n, .out = d->shared_logit, .ld = 1
		};
	cpu_products(d->c, ARITH_F32, job, n);
	cpu_scratch(d->c, (size_t)m->top_k * (sizeof(int) + sizeof(float)));
	cpu_range(d->c, route, d, d->n, 1);
	group_rows(d);
}

void cpu_moe(struct pass *p, float *x, const struct moe *m, const float *in, int n, int cols)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	struct mix d = { .c = c, .m = m, .in = in, .x = x, .n = n, .cols = cols };
	struct acts acts[ACTS_MAX], gated = { .rows = n * m->top_k, .cols = m->inner, .ld = (size_t)m->inner };
	const struct acts *from;
	struct product *job;
	int n_acts = 0;

	if (n <= 0)
		return;
	assert(m->top_k >= 1 && m->top_k <= m->experts);
	mix_room(&d);
	route_all(&d);

	from = cpu_acts_for(c, acts, &n_acts, &m->gate[0], p->arith, in, n);
	cpu_acts_runs(c, d.acts, d.first, d.n_used, from, d.row, cpu_act_group(c, &m->gate[0], p->arith, ACTS_TILED),
	              BY_EXPERT);
	job = expert_jobs(&d, m->gate, m->up, d.gated);
	if (m->shared_inner)
		*job++ = (struct product){
			.w = m->shared_gate,
			.x = cpu_acts_for(c, acts, &n_acts, m->shared_gate, p->arith, in, n),
			.up = m->shared_up,
			.x_up = cpu_acts_for(c, acts, &n_acts, m->shared_up, p->arith, in, n),
			.r1 = n,
			.out = d.shared_gated,
			.ld = (size_t)m->shared_inner,
		};
	cpu_products(c, p->arith, d.job, (int)(job - d.job));

	gated.f = d.gated;
	cpu_acts_runs(c, d.acts, d.first, d.n_used, &gated, NULL, cpu_act_group(c, &m->down[0], p->arith, ACTS_TILED),
	              BY_EXPERT);
	job = expert_jobs(&d, m->down, NULL, d.down);
	n_acts = 0;
	if (m->shared_inner)
		*job++ = (struct product){
			.w = m->shared_down,
			.x = cpu_acts_for(c, acts, &n_acts, m->shared_down, p->arith, d.shared_gated, n),
			.r1 = n,
			.out = d.shared_down,
			.ld = (size_t)cols,
		};
	cpu_products(c, p->arith, d.job, (int)(job - d.job));
	cpu_range(c, combine, &d, n * ((cols + COMBINE_COLS - 1) / COMBINE_COLS), 2);
}
