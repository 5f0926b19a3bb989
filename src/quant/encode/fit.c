/* fit.c - see fit.h.
 *
 * The error as a function of the scale has many small valleys, one for each way that the numbers fall to codes.  So some
 * scales around the one that just holds the largest number are tried; from each, the codes that it gives have a best
 * scale (and bias) by least squares, which gives codes again.  The best of all is kept, with scales rounded as they
 * will be stored. */
#include "quant/encode/fit.h"

#include <assert.h>
#include <math.h>
#include <string.h>

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

/* Sums are kept in LANES parts, side by side in the vectors that every machine has: the same bytes on all of them.  Numbers
 * come in multiples of LANES. */
enum { LANES = 4 };
typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));

static inline lanes lanes_at(const float *x)
{
	lanes v;

	memcpy(&v, x, sizeof v);
	return v;
}

static double lanes_sum(lanes part)
{
	double sum = 0;

	for (int i = 0; i < LANES; i++)
		sum += (double)part[i];
	return sum;
}

/* The steps that x / a - c / a are nearest to. */
static void steps_near(float *q, const float *x, int n, const struct steps *s, float inv, float c)
{
	float v[FIT_MOST];

	if (!s->table) {
		for (int i = 0; i < n; i++)
			q[i] = near(clamp((x[i] - c) * inv, (float)s->lo, (float)s->hi));
		return;
	}
	for (int i = 0; i < n; i++) {
		v[i] = (x[i] - c) * inv;
		q[i] = (float)s->table[0];
	}
	for (int k = 1; k < s->n; k++) {
		float before = s->table[k - 1], value = s->table[k], border = 0.5f * (before + value);

		for (int i = 0; i < n; i++)
			q[i] = v[i] > border ? value : q[i];
	}
}

/* The code of a step of steps_near. */
static unsigned char code_of(const struct steps *s, float step)
{
	int i = 0;

	if (!s->table)
		return (unsigned char)((int)step - s->lo);
	while (i + 1 < s->n && (float)s->table[i] < step)
		i++;
	return (unsigned char)i;
}

static double error_of(const float *x, const float *w, const float *q, int n, float a, float c)
{
	lanes sum = { 0 };

	assert(n % LANES == 0);
	for (int i = 0; i < n; i += LANES) {
		lanes d = a * lanes_at(q + i) + c - lanes_at(x + i);

		sum += lanes_at(w + i) * d * d;
	}
	return lanes_sum(sum);
}

double fit_codes(unsigned char *code, const float *x, const float *w, int n, const struct steps *s, float a, float c)
{
	float q[FIT_MOST];

	steps_near(q, x, n, s, a != 0 ? 1 / a : 0, c);
	for (int i = 0; i < n && code; i++)
		code[i] = code_of(s, q[i]);
	return error_of(x, w, q, n, a, c);
}

/* Least squares of x = a q + c; both: c is free. */
static struct fit solve(const float *x, const float *w, const float *q, int n, int both, int sign)
{
	lanes w1 = { 0 }, q1 = { 0 }, q2 = { 0 }, x1 = { 0 }, xq = { 0 };
	double sw, sq, sqq, sx, sxq, det, least;
	struct fit f = { 0, 0, 0 };

	for (int i = 0; i < n; i += LANES) {
		lanes wi = lanes_at(w + i), qi = lanes_at(q + i), xi = lanes_at(x + i), wq = wi * qi;

		q2 += wq * qi;
		xq += wq * xi;
		if (both) {
			w1 += wi;
			q1 += wq;
			x1 += wi * xi;
		}
	}
	sqq = lanes_sum(q2);
	sxq = lanes_sum(xq);
	f.a = sqq > 0 ? (float)(sxq / sqq) : 0;
	if (!both)
		return f;
	sw = lanes_sum(w1);
	sq = lanes_sum(q1);
	sx = lanes_sum(x1);
	det = sw * sqq - sq * sq;
	least = 1e-6 * sw * sqq; /* below it is the rounding of sums of floats */
	if (det > least && !(sign && (float)sign * (float)((sqq * sx - sq * sxq) / det) > 0)) {
		f.a = (float)((sw * sxq - sq * sx) / det);
		f.c = (float)((sqq * sx - sq * sxq) / det);
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
