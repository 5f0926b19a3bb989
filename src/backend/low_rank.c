/* low_rank.c - see low_rank.h. */
#include "backend/low_rank.h"

#include <assert.h>

#include "backend/backend.h"

const struct low_rank *low_rank_find(const struct adapter *a, const struct weight *w, int *row0)
{
	int lo = 0, hi = a->n;

	while (lo < hi) { /* the first that begins beyond w */
		int mid = (lo + hi) / 2;

		if (a->v[mid].of <= w->data)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo || w->data >= a->v[lo - 1].of + (size_t)a->v[lo - 1].of_rows * a->v[lo - 1].of_row_bytes)
		return NULL;
	*row0 = (int)((size_t)(w->data - a->v[lo - 1].of) / a->v[lo - 1].of_row_bytes);
	return &a->v[lo - 1];
}

bool low_rank_any(const struct pass *p, const struct weight *w)
{
	int row0;

	for (int i = 0; p->adapter && i < p->n_item; i++)
		for (int k = 0; p->adapter[i] && k < p->adapter[i]->n; k++)
			if (low_rank_find(p->adapter[i]->part[k].of, w, &row0))
				return true;
	return false;
}

int low_rank_first_row(const struct pass *p, int i, int n)
{
	int row = i < p->n_item ? p->row[i] : p->n_row, k = 0;

	if (n == p->n_row)
		return row;
	assert(n == p->n_logit);
	while (k < n && p->logit_row[k] < row)
		k++;
	return k;
}

bool adapter_mix_same(const struct adapter_mix *a, const struct adapter_mix *b)
{
	if (a->n != b->n)
		return false;
	for (int i = 0; i < a->n; i++)
		if (a->part[i].of != b->part[i].of || a->part[i].scale != b->part[i].scale)
			return false;
	return true;
}
