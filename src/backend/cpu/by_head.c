/* by_head.c - a product of its own for each head of a row: see struct by_head.
 *
 * Rows are regrouped by head, as a mixture regroups them by expert, and multiplied with one barrier. */
#include <assert.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"

enum { BY_HEAD = ACTS_MAX - 1 }; /* where in c->acts the regrouped rows are */

struct rest {
	const struct by_head *h;
	const float *in;
	float *out;
};

static void copy_rest(void *ctx, int begin, int end)
{
	const struct rest *d = ctx;
	size_t heads = (size_t)d->h->heads, cols = (size_t)d->h->w[0].cols;

	for (size_t i = (size_t)begin * heads; i < (size_t)end * heads; i++)
		memcpy(d->out + i * d->h->out_head, d->in + i * d->h->in_head + cols,
		       (size_t)d->h->rest * sizeof *d->out);
}

void cpu_by_head(struct pass *p, float *out, const struct by_head *h, const float *in, int n)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	size_t heads = (size_t)h->heads, rows = heads * (size_t)n;
	struct acts from = { .rows = (int)rows, .cols = h->w[0].cols, .f = in, .ld = h->in_head }, *run;
	struct product *job;
	int *first, *row;
	uint8_t *at;

	if (n <= 0)
		return;
	assert(h->in_head >= (size_t)(h->w[0].cols + h->rest) && h->out_head >= (size_t)(h->w[0].rows + h->rest));
	at = room_get(&c->work, heads * (sizeof *run + sizeof *job) + (heads + 1 + rows) * sizeof *row + 4 * 64);
	run = room_take(&at, heads * sizeof *run);
	job = room_take(&at, heads * sizeof *job);
	first = room_take(&at, (heads + 1) * sizeof *first);
	row = room_take(&at, rows * sizeof *row);
	for (int i = 0; i < h->heads; i++) {
		first[i] = i * n;
		for (int r = 0; r < n; r++)
			row[i * n + r] = r * h->heads + i;
		job[i] = (struct product){ .w = &h->w[i],
			                   .x = &run[i],
			                   .r1 = n,
			                   .out = out + (size_t)i * h->out_head + h->rest,
			                   .ld = heads * h->out_head };
	}
	first[heads] = (int)rows;
	cpu_acts_runs(c, run, first, h->heads, &from, row, cpu_act_group(c, &h->w[0], p->arith, ACTS_TILED), BY_HEAD);
	cpu_products(c, p->arith, job, h->heads);
	if (h->rest)
		cpu_range(c, copy_rest, &(struct rest){ h, in, out }, n, 1);
}
