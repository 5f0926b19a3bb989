/* trial.c - see trial.h. */
#include "trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

enum { ROWS = 5 };

void trial_refusal(int rc, const struct err *err)
{
	if (rc && (!err->msg[0] || strchr(err->msg, '\n')))
		abort();
}

/* Is a config allowed to ask for so much?  Tensors bound what the rest of it bounds, but for these. */
static bool is_small(const struct model *m)
{
	return m->shape.vocab <= 4096 && m->shape.layers <= 64;
}

static void check_cut(const struct driver *d, const float *whole, const float *cut)
{
	size_t n = (size_t)d->vocab;

	for (size_t i = 0; i < n; i++)
		if (isnan(whole[i]) != isnan(cut[i]))
			abort();
	for (size_t i = 0; i < n; i++)
		if (!isnan(whole[i]) && memcmp(whole + i, cut + i, sizeof *cut))
			abort();
}

static void run(const char *dir, enum arith arith)
{
	const struct driver_opts o = { .arith = arith,
		                       .threads = 1,
		                       .level = cpu_detect(),
		                       .slots = 2,
		                       .ctx_max = 4 * ROWS,
		                       .step_rows = ROWS,
		                       .tape_rows = 0 };
	const int32_t tok[ROWS] = { 1, 3, 0, 2, 1 };
	static const int one[] = { 1 };
	struct err err = { 0 };
	struct driver d;
	float *whole, *cut;
	size_t n;
	int rc = driver_open(&d, dir, &o, &err);

	trial_refusal(rc, &err);
	if (rc)
		return;
	n = (size_t)d.vocab * ROWS;
	/* A model that sees both ways reads a text in one step and gives no logits. */
	if (d.vocab > 3 && !d.m->shape.whole && (d.m->shape.ctx_max >= ROWS || !d.m->shape.ctx_max)) {
		whole = xmalloc(n * sizeof *whole);
		cut = xmalloc(n * sizeof *cut);
		driver_feed(&d, 0, 0, tok, ROWS, NULL, 0, whole);
		driver_feed(&d, 1, 0, tok, ROWS, one, 1, cut);
		check_cut(&d, whole + n - d.vocab, cut + n - d.vocab);
		free(whole);
		free(cut);
	}
	driver_close(&d);
}

void trial_model(const char *dir)
{
	struct store *st = NULL;
	struct model *m = NULL, *head = NULL;
	struct err err = { 0 };
	bool small = false;
	int rc = store_open(&st, dir, &err);

	if (!rc)
		rc = model_bind(&m, st, &err);
	trial_refusal(rc, &err);
	if (!rc) {
		small = is_small(m);
		err = (struct err){ 0 };
		trial_refusal(model_bind_head(&head, m, st, &err), &err);
	}
	model_close(head);
	model_close(m);
	store_close(st);
	if (!small)
		return;
	run(dir, ARITH_F32);
	run(dir, ARITH_FAST);
}
