/* check.c - see check.h. */
#include "check.h"

#include <stdlib.h>
#include <string.h>

#include "backend/device/device_backend.h"
#include "base/alloc.h"

uint32_t check_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state ^ *state >> 15;
}

float *check_floats(size_t n, uint32_t seed)
{
	static const float odd[] = {
		0.0f, -0.0f, 30.0f, -95.0f, 1e-20f, -1e-38f, 130.0f, 1e4f, -88.0f
	}; /* whose sigmoid is denormal */
	float *x = xmalloc(n * sizeof *x + 1);

	for (size_t i = 0; i < n; i++) {
		uint32_t r = check_random(&seed);

		x[i] = r % 61 == 7 ? odd[r / 61 % 9] : (float)(int32_t)check_random(&seed) * 0x1p-30f;
	}
	return x;
}

void check_ok(int code, const struct err *err)
{
	if (code) {
		printf("checkdev: %s\n", err->msg);
		exit(2);
	}
}

struct dmem check_up(struct check *c, const void *from, size_t bytes)
{
	struct err err = { 0 };
	struct dmem m;

	if (c->n_held == (int)(sizeof c->held / sizeof *c->held))
		abort();
	check_ok(c->dev->ops->alloc(c->dev, &m, bytes, &err), &err);
	check_ok(from ? c->dev->ops->up(c->dev, m, from, bytes, &err) : c->dev->ops->fill(c->dev, m, 0xff, bytes, &err),
	         &err);
	c->held[c->n_held].m = m;
	c->held[c->n_held++].bytes = bytes;
	return m;
}

struct device_kernel *check_kernel(struct check *c, const char *module, const char *kernel, int threads)
{
	struct err err = { 0 };
	struct device_kernel *k;

	check_ok(kernels_find(&c->kernels, &k, module, kernel, threads, &err), &err);
	return k;
}

void check_run(struct check *c, const char *module, const char *kernel, int threads, int gx, int gy,
               const struct darg *arg, int n)
{
	struct err err = { 0 };

	check_ok(kernels_run(&c->kernels, module, kernel, threads, gx, gy, arg, n, &err), &err);
}

void check_floats_alike(struct check *c, const char *what, const float *want, const float *got, size_t n)
{
	size_t bad = 0, first = 0;

	for (size_t i = n; i-- > 0;)
		if (memcmp(want + i, got + i, sizeof *got) != 0) {
			bad++;
			first = i;
		}
	c->shapes++;
	if (bad) {
		c->failed++;
		printf("%s: %zu of %zu numbers differ, the first at %zu: %a, and %a on the processor\n", what, bad, n,
		       first, (double)got[first], (double)want[first]);
	}
	if (c->csv)
		fprintf(c->csv, "bits,%s,%zu,%zu\n", what, n, bad);
}

void check_alike(struct check *c, const char *what, const float *want, struct dmem m, size_t n)
{
	float *got = xmalloc(n * sizeof *got);
	struct err err = { 0 };

	check_ok(c->dev->ops->down(c->dev, got, m, n * sizeof *got, &err), &err);
	check_floats_alike(c, what, want, got, n);
	free(got);
}

void check_back(struct check *c, int n_held)
{
	while (c->n_held > n_held)
		c->dev->ops->free(c->dev, c->held[--c->n_held].m);
}

void check_done(struct check *c)
{
	check_back(c, 0);
}

/* ---- a backend over the device ---- */

static const struct device_ops *lent; /* the device's own, while a backend has it */
static struct check *lender;

static int lend_alloc(struct device *d, struct dmem *m, size_t bytes, struct err *err)
{
	int code = lent->alloc(d, m, bytes, err);

	if (lender->n_held == (int)(sizeof lender->held / sizeof *lender->held))
		abort();
	lender->held[lender->n_held].m = *m;
	lender->held[lender->n_held].bytes = bytes;
	lender->n_held += !code;
	return code;
}

static void lend_free(struct device *d, struct dmem m)
{
	int i = 0;

	while (i < lender->n_held && lender->held[i].m.base != m.base)
		i++;
	if (i < lender->n_held)
		lender->held[i] = lender->held[--lender->n_held];
	lent->free(d, m);
}

static void lend_close(struct device *d)
{
	d->ops = lent;
}

struct backend *check_backend(struct check *c)
{
	static struct device_ops ops;

	lender = c;
	lent = c->dev->ops;
	ops = *lent;
	ops.alloc = lend_alloc;
	ops.free = lend_free;
	ops.close = lend_close;
	c->dev->ops = &ops;
	return backend_device_open(c->dev);
}

/* ---- launches that are settled ---- */

static const struct device_ops *launches; /* what the device's own are */
static struct check *settled;

static int launch_and_settle(struct device *d, struct device_kernel *k, int gx, int gy, const struct darg *arg, int n,
                             struct err *err)
{
	int code = launches->launch(d, k, gx, gy, arg, n, err);

	for (int i = 0; i < settled->n_held && !code; i++) {
		size_t bytes = settled->held[i].bytes;
		void *copy = xmalloc(bytes + 1);

		code = d->ops->down(d, copy, settled->held[i].m, bytes, err);
		code = code ? code : d->ops->up(d, settled->held[i].m, copy, bytes, err);
		free(copy);
	}
	return code;
}

void check_settle(struct check *c)
{
	static struct device_ops ops;

	settled = c;
	launches = c->dev->ops;
	ops = *launches;
	ops.launch = launch_and_settle;
	c->dev->ops = &ops;
}
