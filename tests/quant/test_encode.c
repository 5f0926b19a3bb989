/* test_encode.c - what encoders write is read back, and is not further from the row than what the reference quantiser made
 * of it (../shared: rows of several kinds with its blocks; else rows of our own against bounds of the format). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "golden.h"
#include "quant/encode/encode.h"

enum { COLS = 512 };
static int failures;

static double squares(const struct weight *w, int o, const float *x)
{
	static float y[COLS];
	double sum = 0;

	w->fmt->decode(y, w, o);
	for (int i = 0; i < COLS; i++)
		sum += ((double)y[i] - (double)x[i]) * ((double)y[i] - (double)x[i]);
	return sum;
}

static double gguf_error(const struct gguf_type *type, const float *x, const float *importance)
{
	static uint8_t row[COLS * 4];
	struct weight w;
	struct err err;
	size_t bytes = (size_t)(COLS / type->block * type->block_bytes);

	gguf_encode(row, type, x, COLS, importance);
	if (weight_gguf(&w, "row", type, 1, COLS, row, bytes, &err)) {
		printf("FAIL %s: %s\n", type->name, err.msg);
		failures++;
		return INFINITY;
	}
	return squares(&w, 0, x);
}

static const char *const names[] = { "Q4_0", "Q4_1", "Q5_0", "Q5_1",   "Q8_0",   "Q2_K", "Q3_K",
	                             "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "Q1_0", "Q2_0" };
enum { NAMES = sizeof names / sizeof *names };

/* Beside the reference's quantiser, row by row. */
static bool check_reference(bool verbose)
{
	struct golden *in = golden_open("_gguf/blocks/input.safetensors");
	int dim[4], qd[4];
	const float *x = in ? golden_get(in, "x", dim) : NULL;

	for (int t = 0; t < NAMES && x; t++) {
		const struct gguf_type *type = gguf_type_named(names[t]);
		char path[64];
		struct golden *g;
		struct weight w;
		struct err err;
		const uint8_t *q;

		snprintf(path, sizeof path, "_gguf/blocks/%s.safetensors", names[t]);
		g = golden_open(path);
		q = g ? golden_get(g, "q", qd) : NULL;
		if (!q || weight_gguf(&w, "q", type, dim[0], COLS, q, (size_t)qd[0] * (size_t)qd[1], &err)) {
			printf("FAIL %s: no reference\n", names[t]);
			failures++;
			golden_close(g);
			continue;
		}
		for (int r = 0; r < dim[0]; r++) {
			double theirs = squares(&w, r, x + r * COLS), ours = gguf_error(type, x + r * COLS, NULL),
			       size = 0;

			for (int i = 0; i < COLS; i++)
				size += (double)x[r * COLS + i] * (double)x[r * COLS + i];
			if (verbose)
				printf("%-7s row %d: %.6g, the reference's %.6g, %.3f\n", names[t], r, ours, theirs,
				       theirs > 0 ? ours / theirs : 1);
			/* Below a millionth of the row it is how a scale falls when it is rounded to 16 bits. */
			if (!(ours <= theirs || ours <= 1e-6 * size)) {
				printf("FAIL %s row %d: error %g, the reference has %g\n", names[t], r, ours, theirs);
				failures++;
			}
		}
		golden_close(g);
	}
	golden_close(in);
	return x != NULL;
}

static void row_random(float *x, uint64_t seed, float scale)
{
	for (int i = 0; i < COLS; i++) {
		float sum = -2.0f;

		for (uint64_t k = 0; k < 4; k++) /* nearly normal */
			sum += (float)rng_uniform(seed, (uint64_t)i, k);
		x[i] = sum * scale;
	}
}

/* Errors fall with bits; importance moves them to where they count less. */
static void check_own(void)
{
	static const struct {
		const char *name;
		double most; /* of the row's squares */
	} bound[] = { { "Q2_K", 0.12 },   { "Q3_K", 0.03 },   { "Q4_0", 0.009 },   { "Q4_K", 0.007 },
		      { "Q5_K", 0.0018 }, { "Q6_K", 0.0006 }, { "Q8_0", 0.00003 }, { "IQ4_XS", 0.008 },
		      { "Q1_0", 0.4 },    { "Q2_0", 0.2 } };
	float x[COLS], importance[COLS];
	double size = 0;

	row_random(x, 3, 0.05f);
	for (int i = 0; i < COLS; i++) {
		size += (double)x[i] * (double)x[i];
		importance[i] = i % 2 ? 1.0f : 1e-4f;
	}
	for (size_t t = 0; t < sizeof bound / sizeof *bound; t++) {
		const struct gguf_type *type = gguf_type_named(bound[t].name);
		double err = gguf_error(type, x, NULL), even = 0, odd = 0, without = 0;
		static uint8_t row[COLS * 4];
		static float y[COLS];
		struct weight w;
		struct err e;

		if (!(err <= bound[t].most * size)) {
			printf("FAIL %s: error %g of squares, at most %g\n", bound[t].name, err / size, bound[t].most);
			failures++;
		}
		for (int with = 0; with < 2; with++) {
			gguf_encode(row, type, x, COLS, with ? importance : NULL);
			weight_gguf(&w, "row", type, 1, COLS, row, (size_t)(COLS / type->block * type->block_bytes),
			            &e);
			w.fmt->decode(y, &w, 0);
			without = odd;
			even = odd = 0;
			for (int i = 0; i < COLS; i++)
				*(i % 2 ? &odd : &even) += pow((double)y[i] - (double)x[i], 2);
		}
		/* A code of one bit is the sign, whatever counts: only the scale can follow. */
		if (strcmp(type->name, "Q1_0") && strcmp(type->name, "Q2_0") && !(odd < even)) {
			printf("FAIL %s: what counts more has error %g, the rest %g\n", bound[t].name, odd, even);
			failures++;
		}
		if (!(odd < without)) {
			printf("FAIL %s: what counts more has error %g, and %g where all count alike\n", bound[t].name,
			       odd, without);
			failures++;
		}
	}
}

/* Affine codes of every width, against rounding to the range's steps; and mxfp4. */
static void check_mlx(void)
{
	static const int widths[] = { 2, 3, 4, 5, 6, 8 };
	static uint8_t code[COLS];
	uint16_t scale[COLS / 32], bias[COLS / 32];
	uint8_t e8m0[COLS / 32];
	float x[COLS];
	struct weight w;
	struct err err;

	row_random(x, 7, 0.02f);
	for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
		int bits = widths[i], most = (1 << bits) - 1;
		double ours, plain = 0;

		affine_encode(code, scale, bias, x, COLS, bits, 64, NULL);
		if (weight_coded(&w, "row", "affine", bits, 64, 1, COLS, code, (size_t)(COLS * bits / 8), scale,
		                 COLS / 64 * 2, bias, COLS / 64 * 2, DT_BF16, &err)) {
			printf("FAIL affine%d: %s\n", bits, err.msg);
			failures++;
			continue;
		}
		ours = squares(&w, 0, x);
		for (int k = 0; k < COLS; k += 64) {
			float lo = x[k], hi = x[k], step;

			for (int j = k; j < k + 64; j++) {
				lo = fminf(lo, x[j]);
				hi = fmaxf(hi, x[j]);
			}
			lo = bf16_to_float(float_to_bf16(lo));
			step = bf16_to_float(float_to_bf16((hi - lo) / (float)most));
			for (int j = k; j < k + 64; j++) {
				float q = fminf(fmaxf(rintf((x[j] - lo) / step), 0), (float)most);

				plain += pow((double)(q * step + lo - x[j]), 2);
			}
		}
		if (!(ours <= plain)) {
			printf("FAIL affine%d: error %g, that of its range %g\n", bits, ours, plain);
			failures++;
		}
	}
	mxfp4_encode(code, e8m0, x, COLS, NULL);
	if (weight_coded(&w, "row", "mxfp4", 4, 32, 1, COLS, code, COLS / 2, e8m0, COLS / 32, NULL, 0, DT_U8, &err) ||
	    !(squares(&w, 0, x) < 0.015 * COLS * 0.02 * 0.02 / 3)) {
		printf("FAIL mxfp4: error %g\n", squares(&w, 0, x));
		failures++;
	}
}

/* Zeros, one value, subnormal and large numbers: finite, and zeros stay zeros. */
static void check_edges(void)
{
	for (int t = 0; t < NAMES; t++) {
		const struct gguf_type *type = gguf_type_named(names[t]);
		static const float values[] = { 0, 1e-38f, -1e-7f, 1, -65504, 65504 };

		for (size_t v = 0; v < sizeof values / sizeof *values; v++)
			for (int one = 0; one < 2; one++) {
				float x[COLS] = { 0 };
				double err, size = 0;

				for (int i = 0; i < COLS; i += one ? 97 : 1)
					x[i] = values[v];
				for (int i = 0; i < COLS; i++)
					size += (double)x[i] * (double)x[i];
				err = gguf_error(type, x, NULL);
				if (!(err <= size)) {
					printf("FAIL %s: %g%s: error %g of %g\n", names[t], (double)values[v],
					       one ? " alone" : "", err, size);
					failures++;
				}
			}
	}
}

int main(int argc, char **argv)
{
	bool reference = check_reference(argc > 1 && !strcmp(argv[1], "--verbose"));

	check_own();
	check_mlx();
	check_edges();
	return failures ? 1 : reference ? 0 : 77;
}
