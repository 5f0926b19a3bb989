/* rounds.c - see rounds.h. */
#include "rounds.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../check.h"
#include "base/buf.h"
#include "base/file.h"

static const float TOLERANCE = 1e-3f;

int rounds_ids(const struct json *a, int32_t *out)
{
	int n = (int)json_len(a);

	for (int i = 0; i < n; i++) {
		int64_t v;

		CHECK(!json_to_int(json_at(a, (size_t)i), &v), "no id");
		out[i] = (int32_t)v;
	}
	return n;
}

void rounds_open(struct rounds *g, const char *folder)
{
	char path[4300];
	struct err err;
	struct buf b;

	buf_init(&b);
	snprintf(path, sizeof path, "%s/draft.json", folder);
	CHECK(!file_read(path, 1 << 20, &b, &err), "%s", err.msg);
	g->j = json_parse(b.p, b.n, 0, &err);
	CHECK(g->j, "%s", err.msg);
	buf_fini(&b);
	g->n_tok = rounds_ids(json_get(g->j, "prompt_ids"), g->tok);
	g->n_tok += rounds_ids(json_get(g->j, "target_greedy"), g->tok + g->n_tok);
	snprintf(path, sizeof path, "%s/draft.safetensors", folder);
	CHECK(!safetensors_open(&g->file, path, &err), "%s", err.msg);
}

void rounds_close(struct rounds *g)
{
	json_free(g->j);
	safetensors_close(&g->file);
}

void rounds_compare(const struct rounds *g, int round, const char *name, const float *got, int n, int cols, bool must)
{
	char whole[64];
	const struct tensor *t;
	float most = 0;

	snprintf(whole, sizeof whole, "round%d.%s", round, name);
	t = safetensors_find(&g->file, whole);
	CHECK(t || !must, "no %s", whole);
	if (!t)
		return;
	if (n == 1 && t->n_dim == 1)
		CHECK(t->dim[0] == cols, "%s: not %d numbers", whole, cols);
	else
		CHECK(t->dim[0] == n && t->dim[1] == cols, "%s: not %d rows of %d", whole, n, cols);
	for (size_t i = 0; i < (size_t)n * (size_t)cols; i++) {
		float want;

		memcpy(&want, t->data + i * sizeof want, sizeof want);
		CHECK(fabsf(got[i] - want) <= TOLERANCE, "%s: row %zu: %g, not %g", whole, i / (size_t)cols,
		      (double)got[i], (double)want);
		most = fmaxf(most, fabsf(got[i] - want));
	}
	printf("  %s: %d rows within %.1e\n", whole, n, (double)most);
}

int rounds_best(const float *x, int n)
{
	int best = 0;

	for (int i = 1; i < n; i++)
		best = x[i] > x[best] ? i : best;
	return best;
}
