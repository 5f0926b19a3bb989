/* test_kv_distortion.c - how far the codes of cache rows are from what they were made of.
 *
 *   test_kv_distortion [--verbose]
 *
 * Turned rows against what the best book can reach, affine ones against MLX's way of
 * making such codes, and both kinds against the reference codec's own vectors.  The
 * vectors are the same every time: these are means, with nothing left to chance. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "fenced.h"
#include "golden.h"

static struct check_opts o;

/* Two of them are independent normal numbers. */
static void normal(float out[2])
{
	double r = sqrt(-2 * log(1 - (double)bits() * 0x1p-64)), t = 6.283185307179586 * ((double)bits() * 0x1p-64);

	out[0] = (float)(r * cos(t));
	out[1] = (float)(r * sin(t));
}

/* Squared error over squared length, the mean of n vectors, turned back; slope (NULL: not
 * wanted): of scores with random queries against true ones. */
static double distortion(const struct kv_format *f, const float *x, int n, int dim, enum kv_side side, double *slope)
{
	uint8_t *row = xmalloc(f->row_bytes(dim));
	float *back = xmalloc((size_t)dim * sizeof *back), q[2];
	double sum = 0, xy = 0, xx = 0;
	struct kv_kernels k;

	f->kernels(&k, cpu_detect());
	for (int i = 0; i < n; i++, x += dim) {
		double far = 0, size = 0;

		k.encode(row, x, dim, side);
		f->decode(back, row, dim);
		if (k.turn_back)
			k.turn_back(back, dim);
		for (int d = 0; d < dim; d++) {
			far += ((double)x[d] - (double)back[d]) * ((double)x[d] - (double)back[d]);
			size += (double)x[d] * (double)x[d];
		}
		sum += far / size;
		for (int j = 0; j < 16 && slope; j++) {
			double a = 0, b = 0;

			for (int d = 0; d < dim; d += 2) {
				normal(q);
				a += (double)q[0] * (double)x[d] + (double)q[1] * (double)x[d + 1];
				b += (double)q[0] * (double)back[d] + (double)q[1] * (double)back[d + 1];
			}
			xy += a * b;
			xx += a * a;
		}
	}
	if (slope)
		*slope = xy / xx;
	free(row);
	free(back);
	return sum / n;
}

/* What turning and the best book of so many entries can reach: 2, 3, 4 bits. */
static const struct {
	int dim;
	double d[3];
} best_known[] = {
	{ 64, { 0.11453, 0.03339, 0.00913 } },
	{ 128, { 0.11600, 0.03397, 0.00932 } },
	{ 256, { 0.11674, 0.03426, 0.00941 } },
	{ 512, { 0.11711, 0.03440, 0.00945 } },
};

static void distortion_is(const char *what, const char *name, int dim, double got, double most)
{
	if (o.verbose)
		printf("%-24s %-8s %3d  %.5f (at most %.5f)\n", what, name, dim, got, most);
	if (!(got <= most)) {
		printf("FAIL %s of %s, heads of %d: %.5f, at most %.5f\n", what, name, dim, got, most);
		failures++;
	}
}

/* n normal vectors, always the same ones of a name. */
static void vectors(float *x, int n, int dim, int name)
{
	counter = (uint64_t)name << 40;
	for (int i = 0; i < n * dim; i += 2)
		normal(x + i);
}

/* Random vectors, and the ones that a rotation by signs could take badly: all of
 * the length in one element, or nearly all in a few. */
static void check_turned(void)
{
	enum { N = 1000 };
	const int n = o.quick ? 250 : N; /* of the vectors whose bounds are wide */

	for (size_t t = 0; t < sizeof best_known / sizeof *best_known; t++) {
		int dim = best_known[t].dim;
		float *x = xcalloc((size_t)(N * dim), sizeof *x);

		for (int b = 2; b <= 4; b++) {
			const char *name = b == 2 ? "tq2" : b == 3 ? "tq3" : "tq4";
			const struct kv_format *f = kv_format_find(name);
			double best = best_known[t].d[b - 2], slope;

			vectors(x, N, dim, 0);
			distortion_is("values", name, dim, distortion(f, x, N, dim, KV_VALUES, NULL), best * 1.02);
			/* A longer vector has the same score with itself: that costs D squared. */
			distortion_is("keys", name, dim, distortion(f, x, N, dim, KV_KEYS, NULL),
			              best * (1 + best) * 1.02);
			distortion(f, x, n, dim, KV_KEYS, &slope);
			distortion_is("keys, scores", name, dim, fabs(slope - 1), 0.01 + best / 10);
			memset(x, 0, (size_t)(N * dim) * sizeof *x);
			for (int i = 0; i < dim && i < n; i++)
				x[i * dim + i] = i % 2 ? 3.0f : -3.0f;
			distortion_is("one element", name, dim,
			              distortion(f, x, dim < n ? dim : n, dim, KV_VALUES, NULL), best * 1.1);
			for (int large = 1; large <= 4; large++) {
				vectors(x, n, dim, large);
				for (int i = 0; i < n * large; i++)
					x[i / large * dim + pick(dim)] *= 100;
				distortion_is("large elements", name, dim, distortion(f, x, n, dim, KV_VALUES, NULL),
				              best * (dim == 64 ? 1.4 : 1.15));
			}
		}
		free(x);
	}
}

/* Affine codes with a scale and a bias in float, as MLX makes them: one group. */
static void mlx_error(double *far, double *size, const float *x, int group, double most)
{
	double lo = INFINITY, hi = -INFINITY, s, e, q0, b = 0;

	for (int k = 0; k < group; k++) {
		lo = fmin(lo, (double)x[k]);
		hi = fmax(hi, (double)x[k]);
	}
	s = fmax((hi - lo) / most, 1e-7);
	s = fabs(lo) > fabs(hi) ? s : -s;
	e = fabs(lo) > fabs(hi) ? lo : hi;
	q0 = rint(e / s);
	if (q0 != 0) {
		s = e / q0;
		b = e;
	}
	for (int k = 0; k < group; k++) {
		double y = s * fmin(fmax(rint(((double)x[k] - b) / s), 0), most) + b;

		*far += (y - (double)x[k]) * (y - (double)x[k]);
		*size += (double)x[k] * (double)x[k];
	}
}

static double distortion_mlx(const float *x, int n, int dim, int group, int nbits)
{
	double sum = 0;

	for (int i = 0; i < n; i++, x += dim) {
		double far = 0, size = 0;

		for (int g = 0; g < dim; g += group)
			mlx_error(&far, &size, x + g, group, (1 << nbits) - 1);
		sum += far / size;
	}
	return sum / n;
}

static void check_affine(void)
{
	enum { N = 100, DIM = 256 };
	float x[N * DIM];

	for (int offset = 0; offset < 3; offset++) {
		vectors(x, N, DIM, 5 + offset);
		for (int i = 0; i < N * DIM; i++) /* elements of a mean of their own, as keys have */
			x[i] += (float)offset * 3 * (float)(i % 3 - 1);
		for (int f = 0; kv_formats[f]; f++) {
			int nbits, group;

			if (sscanf(kv_formats[f]->name, "u%dg%d", &nbits, &group) == 2)
				distortion_is("affine", kv_formats[f]->name, DIM,
				              distortion(kv_formats[f], x, N, DIM, KV_KEYS, NULL),
				              distortion_mlx(x, N, DIM, group, nbits) * 1.02);
		}
	}
}

/* ---- the reference codec's vectors ---- */

static const int golden_dims[] = { 64, 128, 256 };
enum { GOLDEN_DIMS = sizeof golden_dims / sizeof *golden_dims };

static double squared_error(const float *x, const float *y, int dim)
{
	double far = 0, size = 0;

	for (int k = 0; k < dim; k++) {
		far += ((double)x[k] - (double)y[k]) * ((double)x[k] - (double)y[k]);
		size += (double)x[k] * (double)x[k];
	}
	return size > 0 ? far / size : 0;
}

/* Of what it made of its vectors at `nbits`, and of what we make: mean squared error
 * over squared length.  The vectors are few: ours is the mean over all of them, and
 * theirs over the same. */
static void golden_distortion(struct golden *const g[], int nbits, const char *format)
{
	static const struct {
		const char *x, *y;
		int bits;
	} cases[] = {
		{ "x", "mse.b2.s0.dequant", 2 },
		{ "x", "mse.b3.s0.dequant", 3 },
		{ "x", "mse.b4.s0.dequant", 4 },
		{ "x", "mse.b2.s1.dequant", 2 },
		{ "x", "mse.b3.s1.dequant", 3 },
		{ "x", "mse.b4.s1.dequant", 4 },
		{ "cache.kv2.5.K", "cache.kv2.5.dequant_K", 2 },
		{ "cache.kv2.5.V", "cache.kv2.5.dequant_V", 3 },
		{ "cache.kv3.5.K", "cache.kv3.5.dequant_K", 3 },
		{ "cache.kv3.5.V", "cache.kv3.5.dequant_V", 4 },
		{ "cache.kv4.0.K", "cache.kv4.0.dequant_K", 4 },
		{ "cache.kv4.0.V", "cache.kv4.0.dequant_V", 4 },
	};
	double theirs = 0, ours = 0;
	int n = 0;

	for (int t = 0; t < GOLDEN_DIMS && g[t]; t++)
		for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
			int d[4], dim = golden_dims[t];
			const float *x = golden_get(g[t], cases[c].x, d), *y = golden_get(g[t], cases[c].y, d);

			if (cases[c].bits != nbits || !x || !y) /* the tree has fewer */
				continue;
			assert(d[3] == dim);
			for (int i = 0; i < d[0] * d[1] * d[2]; i++, n++) {
				theirs += squared_error(x + i * dim, y + i * dim, dim);
				if (squared_error(x + i * dim, y + i * dim, dim) > 0) /* one vector is zero */
					ours += distortion(kv_format_find(format), x + i * dim, 1, dim, KV_VALUES,
					                   NULL);
			}
		}
	assert(n >= 3 * 24);
	distortion_is("reference's vectors", format, 0, ours / n, theirs / n * 1.02);
}

static bool check_golden(void)
{
	struct golden *g[GOLDEN_DIMS];
	char name[64];

	for (int t = 0; t < GOLDEN_DIMS; t++) {
		snprintf(name, sizeof name, "_turboquant/turboquant_d%d.safetensors", golden_dims[t]);
		g[t] = golden_open(name); /* the tree has the smaller heads */
	}
	if (!g[0])
		return false;
	golden_distortion(g, 2, "tq2");
	golden_distortion(g, 3, "tq3");
	golden_distortion(g, 4, "tq4");
	for (int t = 0; t < GOLDEN_DIMS; t++)
		golden_close(g[t]);
	return true;
}

int main(int argc, char **argv)
{
	bool golden;

	check_opts_read(&o, argc, argv, 0);
	check_turned();
	check_affine();
	golden = check_golden();
	return failures ? 1 : golden ? 0 : 77;
}
