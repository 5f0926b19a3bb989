/* divergence.c - see divergence.h. */
#include "bench/divergence.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "bench/sorted.h"

/* log p(i) = x[i] - norm. */
static double norm_of(const float *x, int n, int *top)
{
	double sum = 0;

	*top = 0;
	for (int i = 1; i < n; i++)
		if (x[i] > x[*top])
			*top = i;
	for (int i = 0; i < n; i++)
		sum += exp((double)x[i] - (double)x[*top]);
	return (double)x[*top] + log(sum);
}

void row_compare(struct row_gap *out, const float *p, const float *q, int vocab, int32_t next)
{
	int top_p, top_q;
	double norm_p = norm_of(p, vocab, &top_p), norm_q;

	*out = (struct row_gap){ .same_top = true, .scored = next >= 0 };
	if (next >= 0)
		out->loss_p = out->loss_q = norm_p - (double)p[next];
	if (!q)
		return;
	norm_q = norm_of(q, vocab, &top_q);
	out->same_top = top_p == top_q;
	if (next >= 0)
		out->loss_q = norm_q - (double)q[next];
	for (int i = 0; i < vocab; i++) {
		double log_p = (double)p[i] - norm_p;

		out->kl += exp(log_p) * (log_p - ((double)q[i] - norm_q));
	}
	/* Rounding may leave a hair below zero where the two are equal. */
	if (out->kl < 0)
		out->kl = 0;
}

void gaps_add(struct gaps *g, const struct row_gap *row)
{
	if (g->n == g->cap) {
		g->cap = g->cap ? 2 * g->cap : 1024;
		g->kl = xrealloc(g->kl, size_mul(g->cap, sizeof(*g->kl)));
	}
	g->kl[g->n++] = row->kl;
	g->same_top += row->same_top;
	g->scored += row->scored;
	g->loss_p += row->loss_p;
	g->loss_q += row->loss_q;
}

void gaps_fini(struct gaps *g)
{
	free(g->kl);
	*g = (struct gaps){ 0 };
}

/* v is sorted. */
static double share_below(const double *v, size_t n, double share)
{
	size_t rank = (size_t)ceil(share * (double)n);

	return v[rank ? rank - 1 : 0];
}

void gaps_summary(struct gap_summary *out, struct gaps *g)
{
	double sum = 0, squares = 0, n = (double)g->n;

	assert(g->n);
	sort_doubles(g->kl, g->n);
	for (size_t i = 0; i < g->n; i++)
		sum += g->kl[i];
	for (size_t i = 0; i < g->n; i++)
		squares += (g->kl[i] - sum / n) * (g->kl[i] - sum / n);
	*out = (struct gap_summary){
		.kl_mean = sum / n,
		.kl_error = g->n > 1 ? sqrt(squares / (n - 1) / n) : 0,
		.kl_median = share_below(g->kl, g->n, 0.5),
		.kl_999 = share_below(g->kl, g->n, 0.999),
		.kl_max = g->kl[g->n - 1],
		.same_top = (double)g->same_top / n,
		.ppl_p = g->scored ? exp(g->loss_p / (double)g->scored) : 1,
		.ppl_q = g->scored ? exp(g->loss_q / (double)g->scored) : 1,
	};
}
