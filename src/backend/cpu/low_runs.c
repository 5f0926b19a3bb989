/* low_runs.c - what adapters add to the products of a linear: the runs of rows that have one, A x of each before the
 * products, and B of that behind each part of them.  The sums stand in backend/low_rank.h. */
#include <assert.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"

/* Rows of A x that a thread makes at a time; runs begin at multiples of it, so that they are whole tiles. */
enum { LOW_ROWS = 2 * ACTS_TILE };

struct low_part {
	const struct low_run *run;
	const struct acts *x;
	int r0, r1;
};

struct low_job {
	struct cpu_backend *c;
	enum arith arith;
	const struct low_part *part;
};

static void low_part(void *ctx, int index)
{
	const struct low_job *d = ctx;
	const struct low_part *t = &d->part[index];
	const struct low_rank *l = t->run->of;
	float *h = (float *)t->run->h + (size_t)(t->r0 - t->run->r0) * (size_t)l->rank;

	cpu_multiply(d->c, d->arith, h, (size_t)l->rank, &l->a, 0, l->rank, t->x, t->r0, t->r1);
}

/* Calls of one linear put what they find here. */
struct low_list {
	struct low_run *run; /* [most] */
	int n, most;
	size_t floats; /* of h */
};

static void add_run(struct low_list *y, const struct low_run *r)
{
	if (y->n < y->most) {
		y->run[y->n] = *r;
		y->floats += ((size_t)(r->r1 - r->r0) * (size_t)r->of->rank + 15) / 16 * 16;
	}
	y->n++;
}

/* Lists the runs of rows that adapters add to in one job; neighbouring items with the same adapters are one run.
 * bounds[n_item + 1]: the items' rows. */
static void job_runs(struct low_list *y, const struct pass *p, const struct weight *w, int job, const int *bounds)
{
	for (int i = 0, j; i < p->n_item; i = j) {
		const struct adapter_mix *mix = p->adapter[i];

		for (j = i + 1; j < p->n_item && mix && p->adapter[j] && adapter_mix_same(mix, p->adapter[j]);)
			j++;
		for (int k = 0; mix && k < mix->n && bounds[i] < bounds[j]; k++) {
			struct low_run r = { .job = job, .r0 = bounds[i], .r1 = bounds[j] };

			r.of = low_rank_find(mix->part[k].of, w, &r.row0);
			if (!r.of)
				continue;
			assert(r.of->a.cols == w->cols && r.row0 + w->rows <= r.of->of_rows);
			r.scale = mix->part[k].scale * r.of->factor;
			add_run(y, &r);
		}
	}
}

static void find_runs(struct low_list *y, const struct pass *p, const struct linear *job, int n_job, const int *bounds)
{
	y->n = 0;
	for (int k = 0; k < n_job; k++) {
		job_runs(y, p, job[k].w, 2 * k, bounds);
		if (job[k].up)
			job_runs(y, p, job[k].up->w, 2 * k + 1, bounds);
	}
}

/* Gives every run its h; runs of one matrix A and the same rows share one.  Returns how many parts there are to compute. */
static int share_out(struct cpu_backend *c, struct low_list *y, struct low_part *part, struct acts *acts, int *n_acts,
                     enum arith arith, const float *in, int n)
{
	float *h = room_get(&c->low_h, y->floats * sizeof *h);
	size_t scratch = 0;
	int n_part = 0;

	for (int i = 0; i < y->n; i++) {
		struct low_run *r = &y->run[i];
		const struct acts *x;
		int k = 0;

		while (k < i && (y->run[k].of != r->of || y->run[k].r0 != r->r0))
			k++;
		if (k < i) {
			r->h = y->run[k].h;
			continue;
		}
		r->h = h;
		h += ((size_t)(r->r1 - r->r0) * (size_t)r->of->rank + 15) / 16 * 16;
		x = cpu_acts_for(c, acts, n_acts, &r->of->a, arith, in, n);
		if (weight_scratch_bytes(&r->of->a) > scratch)
			scratch = weight_scratch_bytes(&r->of->a);
		for (int row = r->r0, end; row < r->r1; row = end) {
			end = (row / LOW_ROWS + 1) * LOW_ROWS;
			end = end < r->r1 ? end : r->r1;
			part[n_part++] = (struct low_part){ r, x, row, end };
		}
	}
	cpu_scratch(c, scratch);
	return n_part;
}

int cpu_low_runs(struct pass *p, const struct low_run **run, const struct linear *job, int n_job, struct acts *acts,
                 int *n_acts, const float *in, int n)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	struct low_job d = { .c = c, .arith = p->arith };
	struct low_list y = { .most = 0 };
	struct low_part *part;
	size_t parts = 0;
	uint8_t *at;
	int *bounds;

	bounds = room_get(&c->low, ((size_t)p->n_item + 1) * sizeof *bounds);
	for (int i = 0; i <= p->n_item; i++)
		bounds[i] = low_rank_first_row(p, i, n);
	find_runs(&y, p, job, n_job, bounds); /* how many there are */
	if (!y.n)
		return 0;
	y.most = y.n;
	parts = (size_t)y.n * ((size_t)n / LOW_ROWS + 2);
	at = room_get(&c->low, ((size_t)p->n_item + 1) * sizeof *bounds + (size_t)y.n * sizeof *y.run +
	                               parts * sizeof *part + 3 * 64);
	bounds = room_take(&at, ((size_t)p->n_item + 1) * sizeof *bounds);
	y.run = room_take(&at, (size_t)y.n * sizeof *y.run);
	part = room_take(&at, parts * sizeof *part);
	for (int i = 0; i <= p->n_item; i++)
		bounds[i] = low_rank_first_row(p, i, n);
	find_runs(&y, p, job, n_job, bounds);
	d.part = part;
	pool_run(c->pool, low_part, &d, share_out(c, &y, part, acts, n_acts, p->arith, in, n));
	*run = y.run;
	return y.n;
}

void cpu_low_add(const struct cpu_backend *c, float *y, size_t ld, int o0, int n, const struct low_run *run, int n_run,
                 int job)
{
	for (const struct low_run *r = run; r < run + n_run; r++)
		for (int k = r->r0; k < r->r1 && r->job == job; k++)
			c->op->low_rank(y + (size_t)k * ld, n, r->h + (size_t)(k - r->r0) * (size_t)r->of->rank,
			                r->of->b, r->of->half, r->of->rank, r->row0 + o0, r->scale);
}
