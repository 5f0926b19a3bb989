/* check_heads.c - kernels/heads.cl: products by head, and heads of other sizes, through the backend over the device. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "check.h"

enum { HEADS = 5, MOST = 1024 };

static const struct head_case {
	int rows, cols, rest, more; /* more: numbers of a head that no one reads */
	bool half;
} cases[] = { { 24, 40, 8, 0, true }, { 33, 64, 0, 5, false }, { 8, 17, 3, 1, false } };

struct heads {
	struct head_case of;
	struct by_head h;
	struct weight w[HEADS];
	void *data;
	float *x;
	size_t in, out; /* numbers of a row */
};

static void compute(struct backend *be, const struct heads *s, int n, float *got)
{
	size_t in_bytes = (size_t)n * s->in * sizeof(float), out_bytes = (size_t)n * s->out * sizeof(float);
	struct pass p = { .be = be, .arith = ARITH_FAST };
	float *in = be->ops->alloc(be, in_bytes), *out = be->ops->alloc(be, out_bytes);

	memset(got, 0, out_bytes);
	be->ops->write(be, in, s->x, in_bytes);
	be->ops->write(be, out, got, out_bytes);
	be->ops->by_head(&p, out, &s->h, in, n);
	check_ok(be->ops->read(be, got, out, out_bytes), &be->failed);
	be->ops->free(be, in, in_bytes);
	be->ops->free(be, out, out_bytes);
}

static void weights(struct heads *s, struct backend *device)
{
	const struct head_case *k = &s->of;
	size_t each = (size_t)k->rows * (size_t)k->cols, size = k->half ? 2 : 4, gap = 64; /* between heads' weights */
	float *f = check_floats(HEADS * (each + gap), 21);
	struct placed all = { .p = (uint8_t *)f, .bytes = HEADS * (each + gap) * 4 };
	struct err err = { 0 };

	s->data = f;
	for (size_t i = 0; i < HEADS * (each + gap); i++) {
		uint16_t half = float_to_bf16(f[i]);

		if (k->half)
			memcpy((uint8_t *)f + 2 * i, &half, 2);
	}
	for (size_t i = 0; i < HEADS; i++)
		check_ok(weight_plain(&s->w[i], "w", k->half ? DT_BF16 : DT_F32, k->rows, k->cols,
		                      (uint8_t *)f + i * (each + gap) * size, each * size, &err),
		         &err);
	check_ok(device->ops->place(device, &all, 1, &err), &err);
	s->h = (struct by_head){ .w = s->w,
		                 .heads = HEADS,
		                 .rest = k->rest,
		                 .in_head = (size_t)(k->cols + k->rest + k->more),
		                 .out_head = (size_t)(k->rows + k->rest + k->more) };
	s->in = HEADS * s->h.in_head;
	s->out = HEADS * s->h.out_head;
}

static void products(struct check *c, struct backend *device, const struct head_case *k)
{
	static const int rows[] = { 1, 3, 9, 70 };
	struct heads s = { .of = *k };
	struct placed all;

	weights(&s, device);
	all = (struct placed){ .p = s.data };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		size_t n = (size_t)rows[i];
		float *want = xmalloc(n * s.out * sizeof *want), *got = xmalloc(n * s.out * sizeof *got);
		char what[80];

		s.x = check_floats(n * s.in, (uint32_t)rows[i]);
		compute(c->cpu, &s, rows[i], want);
		compute(device, &s, rows[i], got);
		snprintf(what, sizeof what, "products by head, %d x %d: %d rows", k->rows, k->cols, rows[i]);
		check_floats_alike(c, what, want, got, n * s.out);
		free(want), free(got), free(s.x);
	}
	device->ops->unplace(device, &all, 1);
	free(s.data);
}

static void resized(struct check *c, struct backend *device, int out_dim, int in_dim)
{
	enum { N = 7 };
	struct backend *be[2] = { c->cpu, device };
	float *x = check_floats((size_t)(N * HEADS * in_dim), 3), got[2][MOST];
	size_t in_bytes = (size_t)(N * HEADS * in_dim) * sizeof *x, n = (size_t)(N * HEADS * out_dim);

	for (int i = 0; i < 2; i++) {
		struct pass p = { .be = be[i] };
		float *in = be[i]->ops->alloc(be[i], in_bytes), *out = be[i]->ops->alloc(be[i], n * sizeof *out);

		be[i]->ops->write(be[i], in, x, in_bytes);
		be[i]->ops->heads(&p, out, out_dim, in, in_dim, N, HEADS, NULL);
		check_ok(be[i]->ops->read(be[i], got[i], out, n * sizeof *out), &be[i]->failed);
		be[i]->ops->free(be[i], in, in_bytes);
		be[i]->ops->free(be[i], out, n * sizeof *out);
	}
	check_floats_alike(c, "heads of another size", got[0], got[1], n);
	free(x);
}

void check_heads(struct check *c)
{
	struct backend *device = check_backend(c);

	for (size_t i = 0; i < (c->small ? 1 : sizeof cases / sizeof *cases); i++)
		products(c, device, &cases[i]);
	resized(c, device, 12, 20);
	resized(c, device, 20, 12);
	device->ops->close(device);
}
