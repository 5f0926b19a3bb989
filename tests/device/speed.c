/* speed.c - what a device gives: memory, launches, products. */
#include <stdlib.h>
#include <time.h>

#include "check.h"

double speed_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void speed_say(struct check *c, const char *what, double value, const char *unit)
{
	printf("%-40s %10.2f %s\n", what, value, unit);
	if (c->csv)
		fprintf(c->csv, "speed,%s,%g,%s\n", what, value, unit);
}

/* Seconds of one launch of several in a row: the best of five rounds. */
static double timed(struct check *c, struct device_kernel *k, int gx, int gy, const struct darg *arg, int n,
                    int launches)
{
	double best = 1e9;
	struct err err = { 0 };

	for (int round = 0; round < 5; round++) {
		double t = speed_now();

		for (int i = 0; i < launches; i++)
			check_ok(c->dev->ops->launch(c->dev, k, gx, gy, arg, n, &err), &err);
		check_ok(c->dev->ops->wait(c->dev, &err), &err);
		t = (speed_now() - t) / launches;
		best = t < best ? t : best;
	}
	return best;
}

static void memory(struct check *c)
{
	size_t bytes = c->small ? 1 << 20 : (size_t)1 << 30;
	struct dmem a = check_up(c, NULL, bytes), b = check_up(c, NULL, bytes);
	double best = 1e9;
	struct err err = { 0 };

	for (int round = 0; round < 5; round++) {
		double t = speed_now();

		for (int i = 0; i < 4; i++)
			check_ok(c->dev->ops->copy(c->dev, b, a, bytes, &err), &err);
		check_ok(c->dev->ops->wait(c->dev, &err), &err);
		t = (speed_now() - t) / 4;
		best = t < best ? t : best;
	}
	speed_say(c, "memory copied, read and written", 2e-9 * (double)bytes / best, "GB/s");
	check_done(c);
}

static void launches(struct check *c)
{
	enum { N = 300 };
	struct dmem x = check_up(c, NULL, 4096), y = check_up(c, NULL, 4096);
	struct device_kernel *k = check_kernel(c, "rows", "add", 256);
	struct darg arg[] = { darg_mem(x), darg_mem(y), darg_int(256), darg_float(1.0f) };
	struct device_recording *r;
	struct err err = { 0 };
	double best = 1e9, t;

	t = timed(c, k, 1, 1, arg, 4, N);
	speed_say(c, "launch of a small kernel", 1e6 * t, "us");
	check_ok(c->dev->ops->record(c->dev, &err), &err);
	for (int i = 0; i < N; i++)
		check_ok(c->dev->ops->launch(c->dev, k, 1, 1, arg, 4, &err), &err);
	check_ok(c->dev->ops->recorded(c->dev, &r, &err), &err);
	for (int round = 0; round < 10; round++) {
		t = speed_now();
		check_ok(c->dev->ops->play(c->dev, r, &err), &err);
		check_ok(c->dev->ops->wait(c->dev, &err), &err);
		t = speed_now() - t;
		best = t < best ? t : best;
	}
	c->dev->ops->forget(c->dev, r);
	speed_say(c, "the same of a recording of 300", 1e6 * best / N, "us");
	check_done(c);
}

/* Products of codes of `bits` bits in groups of 64, of several matrices in turn so that caches do not hold them. */
static void products(struct check *c, int bits)
{
	enum { COPIES = 16 };
	int cols = c->small ? 256 : 4096, outputs = c->small ? 128 : 4096, groups = cols / 64,
	    most = c->small ? 64 : 2048;
	size_t code_bytes = (size_t)outputs * (size_t)cols * (size_t)bits / 8,
	       scale_bytes = (size_t)outputs * (size_t)groups * 8;
	const char *module = bits == 4 ? "affine4_64" : "affine8_64";
	struct dmem w[COPIES], sb[COPIES], q, qs, qss, out;
	struct device_kernel *few = check_kernel(c, module, "few", 256), *many = check_kernel(c, module, "many", 128);
	struct err err = { 0 };
	char what[80];

	for (int i = 0; i < COPIES; i++)
		w[i] = check_up(c, NULL, code_bytes), sb[i] = check_up(c, NULL, scale_bytes);
	q = check_up(c, NULL, (size_t)most * (size_t)cols), qs = check_up(c, NULL, (size_t)most * (size_t)groups * 4);
	qss = check_up(c, NULL, (size_t)most * (size_t)groups * 4);
	out = check_up(c, NULL, (size_t)most * (size_t)outputs * 4);
#define PRODUCT(i, rows)                                                                               \
	ARGS(darg_mem(out), darg_mem(w[i]), darg_mem(sb[i]), darg_mem(q), darg_mem(qs), darg_mem(qss), \
	     darg_mem((struct dmem){ 0 }), darg_mem((struct dmem){ 0 }), darg_mem((struct dmem){ 0 }), \
	     darg_int(outputs), darg_int(groups), darg_int(rows), darg_int(outputs), darg_int(0))
	for (int rows = 1; rows <= 8; rows *= 2) {
		double best = 1e9;

		for (int round = 0; round < 5; round++) {
			double t = speed_now();

			for (int i = 0; i < COPIES; i++)
				check_ok(c->dev->ops->launch(c->dev, few, outputs / 16, 1, PRODUCT(i, rows), &err),
				         &err);
			check_ok(c->dev->ops->wait(c->dev, &err), &err);
			t = (speed_now() - t) / COPIES;
			best = t < best ? t : best;
		}
		snprintf(what, sizeof what, "few, %d bits, %d rows", bits, rows);
		speed_say(c, what, 1e-9 * (double)(code_bytes + scale_bytes) / best, "GB/s");
	}
	for (int rows = 64; rows <= most; rows *= 4) {
		double t = timed(c, many, outputs / 64, (rows + 63) / 64, PRODUCT(0, rows), 4);

		snprintf(what, sizeof what, "many, %d bits, %d rows", bits, rows);
		speed_say(c, what, 2e-12 * (double)outputs * (double)cols * (double)rows / t, "TOP/s");
	}
	check_done(c);
}

void speed_all(struct check *c)
{
	memory(c);
	launches(c);
	products(c, 4);
	products(c, 8);
}
