/* fit.c - see fit.h.
 *
 * The error as a function of the scale has many small valleys, one for each way that the numbers fall to codes.  So some
 * scales around the one that just holds the largest number are tried; from each, the codes that it gives have a best
 * scale (and bias) by least squares, which gives codes again.  The best of all is kept, with scales rounded as they
 * will be stored. */
#include "quant/encode/fit.h"

#include <math.h>
#include <stddef.h>

/* To the nearest integer, for |x| below 2^22: one that compilers make vectors of. */
static float near(float x)
{
	const float shift = 12582912.0f; /* 1.5 * 2^23 */

	return (x + shift) - shift;
}

static float clamp(float x, float lo, float hi)
{
	return x < lo ? lo : x > hi ? hi : x;
}

/* The index of the table's value that is nearest to v. */
static int table_near(const struct steps *s, float v)
{
	int i = 0;

	while (i + 1 < s->n && v > 0.5f * ((float)s->table[i] + (float)s->table[i + 1]))
		i++;
	return i;
}

/* The steps that x / a - c / a are nearest to. */
static void steps_near(float *q, const float *x, int n, const struct steps *s, float inv, float c)
{
	for (int i = 0; i < n && !s->table; i++)
		q[i] = near(clamp((x[i] - c) * inv, (float)s->lo, (float)s->hi));
	for (int i = 0; i < n && s->table; i++)
		q[i] = (float)s->table[table_near(s, (x[i] - c) * inv)];
}

static double error_of(const float *x, const float *w, const float *q, int n, float a, float c)
{
	float sum = 0;

	for (int i = 0; i < n; i++) {
		float d = a * q[i] + c - x[i];

		sum += w[i] * d * d;
	}
	return (double)sum;
}

double fit_codes(unsigned char *code, const float *x, const float *w, int n, const struct steps *s, float a, float c)
{
	float q[FIT_MOST];

	steps_near(q, x, n, s, a != 0 ? 1 / a : 0, c);
	for (int i = 0; i < n && code; i++)
		code[i] = (unsigned char)(s->table ? table_near(s, q[i]) : (int)q[i] - s->lo);
	return error_of(x, w, q, n, a, c);
}

/* Least squares of x = a q + c; both: c is free. */
static struct fit solve(const float *x, const float *w, const float *q, int n, int both, int sign)
{
	double sw = 0, sq = 0, sqq = 0, sx = 0, sxq = 0, det;
	struct fit f = { 0, 0, 0 };

	for (int i = 0; i < n; i++) {
		double wi = (double)w[i], qi = (double)q[i], xi = (double)x[i];

		sw += wi;
		sq += wi * qi;
		sqq += wi * qi * qi;
		sx += wi * xi;
		sxq += wi * xi * qi;
	}
	det = sw * sqq - sq * sq;
	if (both && det > 1e-12 * sw * sqq) {
		f.a = (float)((sw * sxq - sq * sx) / det);
		f.c = (float)((sqq * sx - sq * sxq) / det);
	}
	if (!both || det <= 1e-12 * sw * sqq || (sign && (float)sign * f.c > 0)) {
		f.a = sqq > 0 ? (float)(sxq / sqq) : 0;
		f.c = 0;
	}
	return f;
}

/* Alternates, from a and c on, between the best codes for a and c and the best a and c for those codes; keeps the best
 * met in *best. */
static void descend(struct fit *best, const float *x, const float *w, int n, const struct steps *s, struct fit f,
                    int both, int sign, rounding_fn *round)
{
	enum { ROUNDS = 2 };
	float q[FIT_MOST];

	for (int k = 0; k <= ROUNDS; k++) {
		f.a = round(f.a);
		f.c = round(f.c);
		if (!isfinite(f.a) || !isfinite(f.c) || (both && f.a < 0))
			return;
		steps_near(q, x, n, s, f.a != 0 ? 1 / f.a : 0, f.c);
		f.err = error_of(x, w, q, n, f.a, f.c);
		if (f.err < best->err)
			*best = f;
		if (k < ROUNDS)
			f = solve(x, w, q, n, both, sign);
	}
}

static struct fit nothing(const float *x, const float *w, int n)
{
	struct fit f = { 0, 0, 0 };

	for (int i = 0; i < n; i++)
		f.err += (double)w[i] * (double)x[i] * (double)x[i];
	return f;
}

struct fit fit_scale(const float *x, const float *w, int n, const struct steps *s, rounding_fn *round)
{
	enum { TRIES = 9 };
	struct fit best = nothing(x, w, n);
	float far = 0, ends[2] = { (float)s->lo, (float)s->hi };

	if (s->table) {
		ends[0] = s->table[0];
		ends[1] = s->table[s->n - 1];
	}
	for (int i = 0; i < n; i++)
		far = fabsf(x[i]) > fabsf(far) ? x[i] : far;
	if (far == 0)
		return best;
	for (int e = 0; e < 2; e++)
		for (int k = 0; k < TRIES; k++) {
			/* The largest number at the end, within it, or up to a fifth beyond it. */
			float share = 1.0f + 0.05f * (float)(k - 3);

			descend(&best, x, w, n, s, (struct fit){ far / (ends[e] * share), 0, 0 }, 0, 0, round);
		}
	return best;
}

struct fit fit_both(const float *x, const float *w, int n, const struct steps *s, int sign, rounding_fn *round)
{
	enum { TRIES = 12 };
	struct fit best = nothing(x, w, n);
	float lo = x[0], hi = x[0];

	for (int i = 1; i < n; i++) {
		lo = x[i] < lo ? x[i] : lo;
		hi = x[i] > hi ? x[i] : hi;
	}
	if (sign > 0 && lo > 0)
		lo = 0;
	if (sign < 0 && lo < 0)
		lo = 0;
	if (hi <= lo) {
		/* All alike: a bias alone, or one step. */
		descend(&best, x, w, n, s, (struct fit){ hi / (float)s->hi, 0, 0 }, 0, 0, round);
		if (!sign || (float)sign * hi <= 0)
			descend(&best, x, w, n, s, (struct fit){ 0, hi, 0 }, 1, sign, round);
		return best;
	}
	for (int k = 0; k < TRIES; k++) {
		float share = 1.0f - 0.04f * (float)(k - 2), a = (hi - lo) * share / (float)(s->hi - s->lo);

		descend(&best, x, w, n, s, (struct fit){ a, lo + (hi - lo) * (1 - share) * 0.5f, 0 }, 1, sign, round);
		if (sign)
			descend(&best, x, w, n, s, (struct fit){ a, lo, 0 }, 1, sign, round);
	}
	return best;
}
