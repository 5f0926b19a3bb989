/* lora.c - see lora.h. */
#include "lora.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"

/* Small against weights of a model that was made of normal numbers, large enough to change every row. */
static float *numbers(size_t n, float scale, uint64_t seed, uint64_t stream)
{
	float *x = xmalloc(n * sizeof *x);

	for (size_t i = 0; i < n; i++)
		x[i] = scale * (float)(2 * rng_uniform(seed, i, stream) - 1);
	return x;
}

struct adapter_matrix *lora_pairs(const struct model *m, int rank, uint64_t seed, int every, int *n)
{
	struct adapter_matrix *v = xcalloc(m->st->n_matrix + 1, sizeof *v);

	*n = 0;
	for (size_t i = 0; i < m->st->n_matrix; i++) {
		const struct store_matrix *w = &m->st->matrix[i];
		struct adapter_matrix one = { .name = w->path, .path = w->path, .rank = rank };

		if (w->apart || store_matrix(m->st, w->path) != w || (every && (i + seed) % (uint64_t)every == 0))
			continue;
		one.rows = w->w.rows;
		one.cols = w->w.cols;
		one.factor = 0.5f;
		one.a = numbers((size_t)rank * (size_t)one.cols, 1 / sqrtf((float)one.cols), seed, 2 * i);
		one.b = numbers((size_t)rank * (size_t)one.rows, 0.5f / sqrtf((float)rank), seed, 2 * i + 1);
		v[(*n)++] = one;
	}
	return v;
}

void lora_free(struct adapter_matrix *v, int n)
{
	for (int i = 0; i < n; i++) {
		free((float *)v[i].a);
		free((float *)v[i].b);
	}
	free(v);
}

struct adapter *lora_made(struct model *m, int rank, uint64_t seed)
{
	struct adapter *a;
	struct err err;
	int n;
	struct adapter_matrix *v = lora_pairs(m, rank, seed, 5, &n);

	if (adapter_make(&a, m, seed ? "second" : "first", "made", v, n, &err)) {
		printf("FAIL %s\n", err.msg);
		exit(1);
	}
	lora_free(v, n);
	return a;
}
