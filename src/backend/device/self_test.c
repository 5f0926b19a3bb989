/* self_test.c - see self_test.h. */
#include "backend/device/self_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/alloc.h"
#include "quant/placed.h"

enum { ROWS = 12, COLS = 256, OUTPUTS = 96, GROUP = 64, FLOATS = ROWS * COLS };

/* The data of the test: weights as a model file has them, and rows of numbers. */
struct data {
	uint8_t codes[OUTPUTS * COLS / 2];
	uint16_t scales[OUTPUTS * COLS / GROUP], biases[OUTPUTS * COLS / GROUP], plain[OUTPUTS * COLS];
	float gain[COLS], x[FLOATS];
	struct weight coded_w, plain_w;
};

static void data_make(struct data *d)
{
	uint32_t seed = 12345;
	struct err err;

#define RANDOM() (seed = seed * 1664525u + 1013904223u, seed >> 8)
	for (size_t i = 0; i < sizeof d->codes; i++)
		d->codes[i] = (uint8_t)RANDOM();
	for (size_t i = 0; i < sizeof d->scales / sizeof *d->scales; i++) {
		d->scales[i] = (uint16_t)(0x3b80 | (RANDOM() & 0x7f));
		d->biases[i] = (uint16_t)(0xbd00 | (RANDOM() & 0x7f));
	}
	for (size_t i = 0; i < sizeof d->plain / sizeof *d->plain; i++)
		d->plain[i] = (uint16_t)(0x3d00 | (RANDOM() & 0x80ff));
	for (int i = 0; i < COLS; i++)
		d->gain[i] = 1.0f + (float)(RANDOM() & 0xff) / 512.0f;
	for (int i = 0; i < FLOATS; i++)
		d->x[i] = ((float)(RANDOM() & 0xffff) - 32768.0f) / 4096.0f;
	weight_coded(&d->coded_w, "codes", "affine", 4, GROUP, OUTPUTS, COLS, d->codes, sizeof d->codes, d->scales,
	             sizeof d->scales, d->biases, sizeof d->biases, DT_BF16, &err);
	weight_plain(&d->plain_w, "numbers", DT_BF16, OUTPUTS, COLS, d->plain, sizeof d->plain, &err);
}

/* The parts of the test, in memory of the backend: [ROWS][COLS] in, and as many floats out of which the first n count. */
static void norm(struct pass *p, const struct data *d, float *out, float *in)
{
	p->be->ops->norm(p, out, in, ROWS, COLS, d->gain, 1e-6f);
}
static void gate(struct pass *p, const struct data *d, float *out, float *in)
{
	p->be->ops->norm(p, out, in, ROWS, COLS, NULL, 1e-6f);
	p->be->ops->gate(p, out, in, ROWS, COLS, &(struct activation){ .kind = ACT_GELU_ERF });
}
static void product(struct pass *p, const struct weight *w, float *out, float *in, int rows)
{
	struct linear job = { .w = w, .out = out, .ld = OUTPUTS };

	p->be->ops->linear(p, &job, 1, in, rows, COLS);
}
static void few(struct pass *p, const struct data *d, float *out, float *in)
{
	product(p, &d->coded_w, out, in, 3);
}
static void many(struct pass *p, const struct data *d, float *out, float *in)
{
	product(p, &d->coded_w, out, in, ROWS);
}
static void plain(struct pass *p, const struct data *d, float *out, float *in)
{
	product(p, &d->plain_w, out, in, ROWS);
}
static const struct part {
	const char *what;
	void (*run)(struct pass *, const struct data *, float *out, float *in);
	size_t n;
} parts[] = {
	{ "norms of rows", norm, FLOATS },
	{ "activations", gate, FLOATS },
	{ "products of 4 bits, few rows", few, 3 * OUTPUTS },
	{ "products of 4 bits, many rows", many, ROWS *OUTPUTS },
	{ "products of bf16", plain, ROWS *OUTPUTS },
};

/* result[n]: what the part gives. */
static int compute(struct backend *be, const struct data *d, const struct part *part, float *result)
{
	const int32_t zero[ROWS] = { 0 };
	const struct span span = { .n = ROWS };
	struct pass p = { .be = be,
		          .arith = ARITH_FAST,
		          .n_row = ROWS,
		          .n_item = 1,
		          .tok = zero,
		          .pos = zero,
		          .item = zero,
		          .span = &span,
		          .row = zero };
	size_t bytes = FLOATS * sizeof(float);
	float *in = be->ops->alloc(be, bytes), *out = be->ops->alloc(be, bytes);
	int rc = in && out ? 0 : E_FULL;

	if (!rc) {
		be->ops->write(be, in, d->x, bytes);
		rc = pass_begin(&p);
		if (!rc)
			part->run(&p, d, out, in);
		pass_end(&p);
		rc = be->ops->read(be, result, out, part->n * sizeof(float));
	}
	be->ops->free(be, in, bytes);
	be->ops->free(be, out, bytes);
	return rc;
}

int self_test(struct backend *be, struct err *err)
{
	struct backend *cpu = backend_cpu_open(1, CPU_SCALAR);
	struct data *d = xcalloc(1, sizeof *d);
	const struct placed placed = { .p = (const uint8_t *)d, .bytes = sizeof *d };
	float *want = xmalloc(FLOATS * sizeof *want), *got = xmalloc(FLOATS * sizeof *got);
	int rc;

	data_make(d);
	rc = be->ops->place(be, &placed, 1, err);
	for (size_t i = 0; i < sizeof parts / sizeof *parts && !rc; i++) {
		compute(cpu, d, &parts[i], want);
		if (compute(be, d, &parts[i], got))
			rc = err_set(err, E_UNSUPPORTED, "self-test, %s: %s", parts[i].what,
			             be->failed.code ? be->failed.msg : "no memory");
		for (size_t k = 0; k < parts[i].n && !rc; k++)
			if (memcmp(&want[k], &got[k], sizeof *got))
				rc = err_set(err, E_UNSUPPORTED,
				             "%s computes %s differently: number %zu is %a and should be %a", be->level,
				             parts[i].what, k, (double)got[k], (double)want[k]);
	}
	be->ops->unplace(be, &placed, 1);
	cpu->ops->close(cpu);
	free(d);
	free(want);
	free(got);
	return rc;
}
