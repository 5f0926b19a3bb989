/* test_taps.c - outputs of layers beside a pass (struct tap): every layer of every family gives its own, within 1e-3
 * of the reference's where there are some; however the prompt is cut, the same bits; and logits do not hang on them.
 *
 *     test_taps --families | FOLDER... */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../check.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "driver.h"
#include "store/safetensors.h"

enum { ROWS = 70, APART = 3 }; /* floats between two rows of a tap, beside the row */
static const float TOLERANCE = 1e-3f;

struct taken {
	struct tap *tap; /* [layers] */
	float *rows;     /* [layers][ROWS][ld] */
	size_t ld;
	float *logits; /* [ROWS][vocab] */
};

static float *row_of(const struct taken *t, int layer, int row)
{
	return t->rows + ((size_t)layer * ROWS + (size_t)row) * t->ld;
}

static void take(struct driver *d, struct taken *t, const int32_t *tok, const int *chunk, int n_chunk, bool taps)
{
	int layers = d->m->shape.layers;

	t->ld = (size_t)shape_residual(&d->m->shape) + APART;
	t->tap = xcalloc((size_t)layers, sizeof *t->tap);
	t->rows = xmalloc((size_t)layers * ROWS * t->ld * sizeof *t->rows);
	t->logits = xmalloc((size_t)ROWS * (size_t)d->vocab * sizeof *t->logits);
	for (size_t i = 0; i < (size_t)layers * ROWS * t->ld; i++)
		t->rows[i] = NAN;
	for (int at = 0, c = 0, n; at < ROWS; at += n, c++) {
		n = chunk[c % n_chunk] < ROWS - at ? chunk[c % n_chunk] : ROWS - at;
		for (int i = 0; i < layers; i++) /* from the last layer on: the order is free */
			t->tap[i] = (struct tap){ layers - 1 - i, row_of(t, layers - 1 - i, at), t->ld };
		d->pass.taps.v = t->tap;
		d->pass.taps.n = taps ? layers : 0;
		driver_feed(d, 0, at, tok + at, n, NULL, 0, t->logits + (size_t)at * (size_t)d->vocab);
	}
	caches_close(&d->m->caches, 0);
}

static void taken_free(struct taken *t)
{
	free(t->tap);
	free(t->rows);
	free(t->logits);
}

/* Taps of runs with other settings than those that the golden logits, with which weft agrees, are of. */
static const char *const other_run[] = { "/mamba2/", "/gpt_oss/" };

static void compare_golden(const struct taken *t, const struct model *m, const char *folder)
{
	struct safetensors file;
	char path[4300], name[32];
	struct err err;
	float most = 0;
	int n = ROWS, cols = shape_residual(&m->shape);
	const struct tensor *at; /* of which rows they are; NULL: of all */

	snprintf(path, sizeof path, "%s/taps.safetensors", folder);
	if (!file_exists(path) || strstr(folder, other_run[0]) || strstr(folder, other_run[1]))
		return;
	CHECK(!safetensors_open(&file, path, &err), "%s", err.msg);
	at = safetensors_find(&file, "positions");
	n = at ? (int)at->count : n;
	for (int i = 0; i < m->shape.layers; i++) {
		const struct tensor *want;

		snprintf(name, sizeof name, "L%02d.out", i);
		want = safetensors_find(&file, name);
		CHECK(want && want->count == (int64_t)n * cols, "%s: no %s of %d rows", path, name, n);
		for (int r = 0; r < n; r++)
			for (int c = 0; c < cols; c++) {
				int32_t row = r;
				float w, got;

				if (at)
					memcpy(&row, at->data + (size_t)r * sizeof row, sizeof row);
				got = row_of(t, i, row)[c];
				memcpy(&w, want->data + ((size_t)r * (size_t)cols + (size_t)c) * sizeof w, sizeof w);
				CHECK(fabsf(got - w) <= TOLERANCE * (1 + fabsf(w)), "%s: layer %d, row %d: %g, not %g",
				      folder, i, (int)row, (double)got, (double)w);
				most = fmaxf(most, fabsf(got - w));
			}
	}
	printf("  %d layers within %.1e of the reference\n", m->shape.layers, (double)most);
	safetensors_close(&file);
}

static void test(const char *folder)
{
	static const int whole[] = { ROWS }, cut[] = { 1, 7, 33 };
	struct driver_opts o = {
		.arith = ARITH_F32, .threads = 2, .level = cpu_detect(), .slots = 1, .ctx_max = ROWS, .step_rows = ROWS
	};
	struct taken all, parts, none;
	int32_t tok[ROWS];
	struct safetensors file;
	struct driver d;
	char path[4300];
	struct err err;
	size_t row;

	printf("%s\n", folder);
	CHECK(!driver_open(&d, folder, &o, &err), "%s", err.msg);
	row = (size_t)shape_residual(&d.m->shape) * sizeof(float);
	for (int i = 0; i < ROWS; i++)
		tok[i] = (7 * i + 3) % d.vocab;
	snprintf(path, sizeof path, "%s/golden.safetensors", folder);
	if (file_exists(path)) {
		const struct tensor *t;

		CHECK(!safetensors_open(&file, path, &err), "%s", err.msg);
		t = safetensors_find(&file, "prompt_ids");
		memcpy(tok, t->data, (t->count < ROWS ? (size_t)t->count : ROWS) * sizeof *tok);
		safetensors_close(&file);
	}
	take(&d, &all, tok, whole, 1, true);
	take(&d, &parts, tok, cut, 3, true);
	take(&d, &none, tok, whole, 1, false);
	for (int i = 0; i < d.m->shape.layers; i++)
		for (int r = 0; r < ROWS; r++) {
			const float *got = row_of(&all, i, r);

			for (int c = 0; c < shape_residual(&d.m->shape); c++)
				CHECK(!isnan(got[c]), "layer %d gives nothing", i);
			CHECK(isnan(got[shape_residual(&d.m->shape)]), "layer %d writes beside its rows", i);
			CHECK(!memcmp(got, row_of(&parts, i, r), row), "layer %d, row %d hang on the cut", i, r);
			CHECK(!i || memcmp(got, row_of(&all, i - 1, r), row), "layers %d and %d give the same", i - 1,
			      i);
		}
	CHECK(!memcmp(all.logits, none.logits, (size_t)ROWS * (size_t)d.vocab * sizeof(float)),
	      "logits hang on the taps");
	compare_golden(&all, d.m, folder);
	taken_free(&all);
	taken_free(&parts);
	taken_free(&none);
	driver_close(&d);
}

/* The folder with the reference's outputs, where the family has one. */
static void test_family(const char *folder)
{
	const char *end = strrchr(folder, '/');
	static const char *const variant[] = { "hf-f32", "hf-bf16" };
	char other[4200], path[4300];

	for (int v = 0; v < 2; v++) {
		snprintf(other, sizeof other, "%.*s/%s", (int)(end - folder), folder, variant[v]);
		snprintf(path, sizeof path, "%s/taps.safetensors", other);
		if (file_exists(path)) {
			test(other);
			return;
		}
	}
	test(folder);
}

int main(int argc, char **argv)
{
	log_set_level(LOG_WARN);
	if (argc > 1 && !strcmp(argv[1], "--families"))
		return each_golden_family(test_family) ? 0 : 77;
	for (int i = 1; i < argc; i++)
		test(argv[i]);
	return 0;
}
