/* wanted_rows.c - see wanted_rows.h. */
#include "engine/wanted_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* Kinds that give one row each. */
static int count_pooled(unsigned kinds)
{
	int n = 0;

	for (unsigned k = kinds & (ROWS_ALL - 1); k; k &= k - 1)
		n++;
	return n;
}

struct rows *rows_open(unsigned kinds, int from, int end, int cols)
{
	size_t all = kinds & ROWS_ALL ? (size_t)(end - from) : 0, row = (size_t)cols;
	struct rows *r = xcalloc(1, sizeof *r);

	*r = (struct rows){ .kinds = kinds, .from = from, .end = end, .next = from, .cols = cols };
	r->n = size_mul((size_t)count_pooled(kinds) + all, row);
	r->out = try_malloc(size_mul(r->n, sizeof *r->out));
	if (!r->out) {
		free(r);
		return NULL;
	}
	if (kinds & (ROWS_MEAN | ROWS_SQRT_MEAN))
		r->sum = xcalloc(row, sizeof *r->sum);
	if (kinds & ROWS_WEIGHTED)
		r->by_place = xcalloc(row, sizeof *r->by_place);
	return r;
}

void rows_close(struct rows *r)
{
	if (!r)
		return;
	free(r->sum);
	free(r->by_place);
	free(r->out);
	free(r);
}

/* The place in out for the row of that kind; rows lie in the order of enum rows_kind. */
static float *place_of(const struct rows *r, unsigned kind)
{
	return r->out + (size_t)count_pooled(r->kinds & (kind - 1)) * (size_t)r->cols;
}

static void make_means(struct rows *r)
{
	double n = r->end - r->from, places = ((double)r->from + 1 + r->end) * n / 2;

	for (int c = 0; c < r->cols; c++) {
		if (r->kinds & ROWS_MEAN)
			place_of(r, ROWS_MEAN)[c] = (float)(r->sum[c] / n);
		if (r->kinds & ROWS_SQRT_MEAN)
			place_of(r, ROWS_SQRT_MEAN)[c] = (float)(r->sum[c] / sqrt(n));
		if (r->kinds & ROWS_WEIGHTED)
			place_of(r, ROWS_WEIGHTED)[c] = (float)(r->by_place[c] / places);
	}
}

void rows_put(struct rows *r, int pos, const float *row)
{
	size_t bytes = (size_t)r->cols * sizeof *row;
	int i = pos - r->from;

	if (pos != r->next || pos >= r->end)
		return;
	r->next++;
	if (r->kinds & ROWS_FIRST && !i)
		memcpy(place_of(r, ROWS_FIRST), row, bytes);
	if (r->kinds & ROWS_MAX) {
		float *max = place_of(r, ROWS_MAX);

		for (int c = 0; c < r->cols; c++)
			max[c] = !i || row[c] > max[c] ? row[c] : max[c];
	}
	for (int c = 0; c < r->cols && r->sum; c++)
		r->sum[c] += (double)row[c];
	for (int c = 0; c < r->cols && r->by_place; c++)
		r->by_place[c] += (double)row[c] * (pos + 1);
	if (r->kinds & ROWS_LAST)
		memcpy(place_of(r, ROWS_LAST), row, bytes);
	if (r->kinds & ROWS_ALL)
		memcpy(place_of(r, ROWS_ALL) + (size_t)i * (size_t)r->cols, row, bytes);
	if (r->next == r->end)
		make_means(r);
}
