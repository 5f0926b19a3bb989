/* resample.c - see resample.h.
 *
 * Output i of n_out, from n_in, has its centre at c = (i + 1/2) s with s = n_in / n_out, and takes inputs j with weight
 * k((j + 1/2 - c) / max(s, 1)), divided by their sum.  k is a triangle, or Keys' cubic with a = -1/2 (R. Keys, Cubic
 * convolution interpolation for digital image processing, 1981). */
#include "vision/pixels/resample.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "vision/pixels/reader.h"

enum { TAP_BITS = 22 };

static double triangle(double x)
{
	x = fabs(x);
	return x < 1 ? 1 - x : 0;
}

static double cubic(double x)
{
	const double a = -0.5;

	x = fabs(x);
	if (x < 1)
		return ((a + 2) * x - (a + 3)) * x * x + 1;
	return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static double reach(int in, int out, enum resample kind)
{
	double scale = (double)in / out;

	return (kind == RESAMPLE_BICUBIC ? 2.0 : 1.0) * (scale > 1 ? scale : 1);
}

int resample_taps(int in, int out, enum resample kind)
{
	return (int)ceil(reach(in, out, kind)) * 2 + 1;
}

int resample_weights(double *tap, int *first, int in, int out, int i, enum resample kind)
{
	double scale = (double)in / out, by = 1 / (scale > 1 ? scale : 1), r = reach(in, out, kind), sum = 0;
	double centre = (i + 0.5) * scale;
	int from = (int)(centre - r + 0.5), to = (int)(centre + r + 0.5);

	from = from < 0 ? 0 : from;
	to = to > in ? in : to;
	for (int j = from; j < to; j++) {
		double x = (j - centre + 0.5) * by;

		tap[j - from] = kind == RESAMPLE_BICUBIC ? cubic(x) : triangle(x);
		sum += tap[j - from];
	}
	for (int j = 0; j < to - from && sum != 0; j++)
		tap[j] /= sum;
	*first = from;
	return to - from;
}

/* The taps of one direction, in fixed point. */
struct taps {
	int most, *first, *n;
	int32_t *tap; /* [out][most] */
};

static void taps_fini(struct taps *t)
{
	free(t->first);
	free(t->n);
	free(t->tap);
}

static void taps_init(struct taps *t, int in, int out, enum resample kind)
{
	double *w;

	t->most = resample_taps(in, out, kind);
	t->first = xcalloc((size_t)out, sizeof *t->first);
	t->n = xcalloc((size_t)out, sizeof *t->n);
	t->tap = xcalloc(size_mul((size_t)out, (size_t)t->most), sizeof *t->tap);
	w = xcalloc((size_t)t->most, sizeof *w);
	for (int i = 0; i < out; i++) {
		int32_t *tap = t->tap + (size_t)i * (size_t)t->most;

		t->n[i] = resample_weights(w, &t->first[i], in, out, i, kind);
		for (int j = 0; j < t->n[i]; j++)
			tap[j] = (int32_t)(w[j] * (1 << TAP_BITS) + (w[j] < 0 ? -0.5 : 0.5));
	}
	free(w);
}

static uint8_t rounded(int32_t sum)
{
	sum >>= TAP_BITS;
	return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* Output i of a run of pixels `step` bytes apart. */
static void resampled(uint8_t *to, const uint8_t *from, size_t step, const struct taps *t, int i)
{
	const int32_t *tap = t->tap + (size_t)i * (size_t)t->most;
	int32_t sum[3] = { 1 << (TAP_BITS - 1), 1 << (TAP_BITS - 1), 1 << (TAP_BITS - 1) };

	from += (size_t)t->first[i] * step;
	for (int j = 0; j < t->n[i]; j++, from += step)
		for (int c = 0; c < 3; c++)
			sum[c] += from[c] * tap[j];
	for (int c = 0; c < 3; c++)
		to[c] = rounded(sum[c]);
}

/* One direction: along columns with down, else along rows. */
static int pass(struct image *out, const struct image *in, int w, int h, bool down, enum resample kind, struct err *err)
{
	struct taps t;
	int rc = 0;

	*out = (struct image){ w, h, try_malloc(size_mul((size_t)w * (size_t)h, 3)) };
	if (!out->rgb)
		return err_set(err, E_LIMIT, "image: no memory for %d x %d pixels", w, h);
	if (down)
		taps_init(&t, in->h, h, kind);
	else
		taps_init(&t, in->w, w, kind);
	for (int y = 0; y < h && !rc; y++) {
		uint8_t *to = out->rgb + (size_t)y * (size_t)w * 3;

		if (!reading_spend((int64_t)w * t.most / 4))
			rc = reading_stopped(err);
		for (int x = 0; x < w && !rc; x++)
			resampled(to + 3 * x, in->rgb + 3 * (down ? (size_t)x : (size_t)y * (size_t)in->w),
			          down ? (size_t)in->w * 3 : 3, &t, down ? y : x);
	}
	taps_fini(&t);
	if (rc)
		image_fini(out);
	return rc;
}

int image_resample(struct image *out, const struct image *in, int w, int h, enum resample kind, struct err *err)
{
	struct image wide;
	int rc = pass(&wide, in, w, in->h, false, kind, err);

	if (rc)
		return rc;
	rc = pass(out, &wide, w, h, true, kind, err);
	image_fini(&wide);
	return rc;
}
