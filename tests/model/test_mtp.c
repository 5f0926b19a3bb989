/* test_mtp.c - the draft head against a reference: hidden rows of the model,
 * hidden rows and logits of the head over a prompt, and three guesses fed by its
 * own hidden; and the law of the row: however the prompt is cut, the same bits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "../check.h"
#include "driver.h"
#include "store/safetensors.h"

enum { ROWS = 128 };
static const float TOLERANCE = 1e-3f;

struct vectors {
	struct safetensors file;
	int32_t prompt[ROWS], next[ROWS], draft[ROWS];
	int n, n_draft, hidden, vocab;
};

static int ids(const struct json *j, const char *key, int32_t *out)
{
	const struct json *a = json_get(j, key);
	int n = (int)json_len(a);

	CHECK(n > 0 && n <= ROWS, "%s has %d", key, n);
	for (int i = 0; i < n; i++) {
		int64_t v;

		CHECK(!json_to_int(json_at(a, (size_t)i), &v), "%s", key);
		out[i] = (int32_t)v;
	}
	return n;
}

static void vectors_open(struct vectors *v, const char *folder, const char *model)
{
	char path[512];
	struct err err;
	struct json *j;
	struct buf b;

	buf_init(&b);
	snprintf(path, sizeof path, "%s/golden/_mtp/%s.json", folder, model);
	CHECK(!file_read(path, 1 << 20, &b, &err), "%s", err.msg);
	j = json_parse(b.p, b.n, 0, &err);
	CHECK(j, "%s", err.msg);
	v->n = ids(j, "prompt_ids", v->prompt);
	CHECK(ids(j, "next_ids", v->next) == v->n, "next_ids");
	v->n_draft = ids(j, "draft_token_ids", v->draft);
	json_free(j);
	buf_fini(&b);
	snprintf(path, sizeof path, "%s/golden/_mtp/%s.safetensors", folder, model);
	CHECK(!safetensors_open(&v->file, path, &err), "%s", err.msg);
	v->hidden = (int)safetensors_find(&v->file, "mtp_hidden")->dim[1];
	v->vocab = (int)safetensors_find(&v->file, "mtp_logits")->dim[1];
}

static void compare(const struct vectors *v, const char *name, const float *got, int n, int cols)
{
	const struct tensor *t = safetensors_find(&v->file, name);
	float most = 0;

	CHECK(t && t->dim[0] == n && t->dim[1] == cols, "%s: %d rows of %d", name, n, cols);
	for (size_t i = 0; i < (size_t)n * (size_t)cols; i++) {
		float want;

		memcpy(&want, (const char *)t->data + i * sizeof want, sizeof want);
		most = fabsf(got[i] - want) <= most ? most : fabsf(got[i] - want);
		CHECK(fabsf(got[i] - want) <= TOLERANCE, "%s: row %d differs by %g", name, (int)(i / (size_t)cols),
		      (double)fabsf(got[i] - want));
	}
	printf("  %s: %d rows within %.1e\n", name, n, (double)most);
}

static int largest(const float *x, int n)
{
	int best = 0;

	for (int i = 1; i < n; i++)
		best = x[i] > x[best] ? i : best;
	return best;
}

static void feed(struct driver *d, int slot, int pos, const int32_t *tok, const float *given, int n, float *hidden,
                 float *logits)
{
	struct item it = { .slot = slot, .pos = pos, .n = n, .tok = tok, .logits = logits, .keep = n };

	d->pass.given = given;
	d->pass.hidden = hidden;
	driver_step(d, &it, 1);
}

static void test(const char *shared, const char *model)
{
	struct driver_opts o = {
		.arith = ARITH_F32, .threads = 2, .level = cpu_detect(), .slots = 2, .ctx_max = ROWS, .step_rows = ROWS
	};
	static const int chunks[] = { 1, 7, 13, 40 };
	struct driver target, head = { 0 };
	struct vectors v = { 0 };
	struct model *m;
	char path[512];
	float *f, *h, *l, *h2, *l2, *zero;
	struct err err;

	printf("%s\n", model);
	vectors_open(&v, shared, model);
	snprintf(path, sizeof path, "%s/golden/%s/hf-f32", shared, model);
	CHECK(!driver_open(&target, path, &o, &err), "%s", err.msg);
	CHECK(!model_bind_head(&m, target.m, target.st, &err), "%s", err.msg);
	CHECK(!driver_attach(&head, m, &o, &err), "%s", err.msg);
	zero = xcalloc((size_t)v.hidden, sizeof *zero);
	f = xcalloc((size_t)ROWS * (size_t)v.hidden, sizeof *f);
	h = xcalloc((size_t)ROWS * (size_t)v.hidden, sizeof *h);
	h2 = xcalloc((size_t)ROWS * (size_t)v.hidden, sizeof *h);
	l = xcalloc((size_t)ROWS * (size_t)v.vocab, sizeof *l);
	l2 = xcalloc((size_t)ROWS * (size_t)v.vocab, sizeof *l);
	feed(&target, 0, 0, v.prompt, NULL, v.n, f, NULL);
	compare(&v, "target_hidden", f, v.n, v.hidden);
	/* Row 0 is the first token's, which the reference does not have; no other sees it. */
	feed(&head, 0, 0, v.prompt, zero, 1, h, l);
	feed(&head, 1, 0, v.prompt, zero, 1, h, l);
	feed(&head, 0, 1, v.next, f, v.n, h, l);
	compare(&v, "mtp_hidden", h, v.n, v.hidden);
	compare(&v, "mtp_logits", l, v.n, v.vocab);
	/* In chunks: the same bits. */
	for (int at = 0, i = 0; at < v.n; i++) {
		int n = chunks[i % 4] < v.n - at ? chunks[i % 4] : v.n - at;

		feed(&head, 1, 1 + at, v.next + at, f + (size_t)at * (size_t)v.hidden, n,
		     h2 + (size_t)at * (size_t)v.hidden, l2 + (size_t)at * (size_t)v.vocab);
		at += n;
	}
	CHECK(!memcmp(h, h2, (size_t)v.n * (size_t)v.hidden * sizeof *h), "hidden rows depend on the chunks");
	CHECK(!memcmp(l, l2, (size_t)v.n * (size_t)v.vocab * sizeof *l), "logits depend on the chunks");
	/* On its own hidden, greedily. */
	memcpy(f, h + (size_t)(v.n - 1) * (size_t)v.hidden, (size_t)v.hidden * sizeof *f);
	CHECK(largest(l + (size_t)(v.n - 1) * (size_t)v.vocab, v.vocab) == v.draft[0], "first guess");
	for (int i = 0; i < v.n_draft; i++) {
		int32_t token = i ? largest(l2 + (size_t)(i - 1) * (size_t)v.vocab, v.vocab) : v.draft[0];

		CHECK(token == v.draft[i], "guess %d is %d, not %d", i, token, v.draft[i]);
		feed(&head, 0, 1 + v.n + i, &token, i ? h2 + (size_t)(i - 1) * (size_t)v.hidden : f, 1,
		     h2 + (size_t)i * (size_t)v.hidden, l2 + (size_t)i * (size_t)v.vocab);
	}
	compare(&v, "draft_hidden", h2, v.n_draft, v.hidden);
	compare(&v, "draft_logits", l2, v.n_draft, v.vocab);
	free(zero);
	free(f);
	free(h);
	free(h2);
	free(l);
	free(l2);
	driver_close(&head);
	driver_close(&target);
	safetensors_close(&v.file);
}

int main(void)
{
	const char *shared = shared_folder();

	log_set_level(LOG_WARN);
	if (!shared)
		return 77; /* skipped; shared_folder said why */
	test(shared, "qwen3_5");
	test(shared, "qwen3_5_moe");
	return 0;
}
