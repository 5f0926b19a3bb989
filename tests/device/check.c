/* check.c - see check.h. */
#include "check.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

uint32_t check_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state ^ *state >> 15;
}

float *check_floats(size_t n, uint32_t seed)
{
	static const float odd[] = { 0.0f, -0.0f, 30.0f, -95.0f, 1e-20f, -1e-38f, 130.0f, 1e4f };
	float *x = xmalloc(n * sizeof *x + 1);

	for (size_t i = 0; i < n; i++) {
		uint32_t r = check_random(&seed);

		x[i] = r % 61 == 7 ? odd[r / 61 % 8] : (float)(int32_t)check_random(&seed) * 0x1p-30f;
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
	return c->held[c->n_held++] = m;
}

struct device_kernel *check_kernel(struct check *c, const char *module, const char *kernel, int threads)
{
	static struct {
		struct device *dev;
		const char *name;
		struct device_module *m;
	} made[64];
	static int n;
	struct err err = { 0 };
	struct device_kernel *k;
	int i = 0;

	while (i < n && (made[i].dev != c->dev || strcmp(made[i].name, module) != 0))
		i++;
	if (i == n) {
		made[n].dev = c->dev;
		made[n].name = device_text(module)->name;
		check_ok(c->dev->ops->module(c->dev, &made[n++].m, device_text(module), &err), &err);
	}
	check_ok(c->dev->ops->kernel(c->dev, &k, made[i].m, kernel, threads, &err), &err);
	return k;
}

void check_run(struct check *c, const char *module, const char *kernel, int threads, int gx, int gy,
               const struct darg *arg, int n)
{
	struct err err = { 0 };

	check_ok(c->dev->ops->launch(c->dev, check_kernel(c, module, kernel, threads), gx, gy, arg, n, &err), &err);
}

void check_alike(struct check *c, const char *what, const float *want, struct dmem m, size_t n)
{
	float *got = xmalloc(n * sizeof *got);
	struct err err = { 0 };
	size_t bad = 0, first = 0;

	check_ok(c->dev->ops->down(c->dev, got, m, n * sizeof *got, &err), &err);
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
	free(got);
}

void check_done(struct check *c)
{
	while (c->n_held)
		c->dev->ops->free(c->dev, c->held[--c->n_held]);
}
