/* test_toy_format.c - a number format made here, in one struct, as the recipe of
 * docs/formats.md says, multiplied the way the backend does it.
 *
 * "ternary": four elements per byte, two bits each, 0 1 2 for -1 0 +1; no scales.
 * It brings decode and takes the shared "decode, then dot" kernel for both
 * arithmetics, as a format without integer kernels may. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "quant/lanes/lane_table.h"
#include "quant/level_kernels.h"

static void ternary_decode(float *out, const struct weight *w, int o)
{
	const uint8_t *row = w->data + (size_t)o * w->row_bytes;

	for (int i = 0; i < w->cols; i++)
		out[i] = (float)(row[i / 4] >> (i % 4 * 2) & 3) - 1;
}

static void ternary_kernels(struct kernels *k, enum cpu_level level)
{
	weight_mul_fn *mul = level_kernels(level)->lanes->mul_decoded;

	*k = (struct kernels){ .mul = { mul, mul } };
}

static const struct format ternary = {
	.name = "ternary",
	.bits = 2,
	.decode = ternary_decode,
	.kernels = ternary_kernels,
};

enum { OUT = 37, IN = 52, ROWS = 9 };

/* out[ROWS][OUT]: n rows and then n outputs a call, so that 1 and ROWS must agree. */
static void multiply(const struct weight *w, enum cpu_level level, enum arith arith, const float *in, float *out, int n)
{
	struct acts acts = { .rows = ROWS, .cols = IN, .f = in, .ld = IN };
	void *scratch = aligned_alloc(64, weight_scratch_bytes(w));
	struct kernels k;

	w->fmt->kernels(&k, level);
	for (int r = 0; r < ROWS; r += n)
		for (int o = 0; o < OUT; o += n)
			k.mul[arith](out + (size_t)r * OUT + o, OUT, w, o, o + n > OUT ? OUT : o + n, &acts, r,
			             r + n > ROWS ? ROWS : r + n, scratch);
	free(scratch);
}

int main(void)
{
	static uint8_t codes[OUT * IN / 4];
	static float in[ROWS * IN], want[ROWS * OUT], got[ROWS * OUT];
	struct weight w = {
		.fmt = &ternary,
		.name = "toy",
		.rows = OUT,
		.cols = IN,
		.data = codes,
		.row_bytes = IN / 4,
	};
	int bad = 0, first = 1;

	for (size_t i = 0; i < sizeof codes; i++)
		for (int j = 0; j < 4; j++)
			codes[i] |= (uint8_t)(rng_bits(1, i, (uint64_t)j) % 3 << (2 * j));
	for (size_t i = 0; i < ROWS * IN; i++)
		in[i] = (float)(rng_uniform(2, i, 0) * 2 - 1);
	for (enum cpu_level level = CPU_SCALAR; level < CPU_LEVELS; level = cpu_level_next(level)) {
		for (int arith = ARITH_F32; arith <= ARITH_FAST; arith++) {
			for (int n = 1; n <= ROWS; n += 4) {
				memset(got, 0xff, sizeof got);
				multiply(&w, level, (enum arith)arith, in, first ? want : got, n);
				if (!first && memcmp(got, want, sizeof want)) {
					printf("FAIL %s, arithmetic %d, %d rows a call: bits differ\n",
					       cpu_level_name(level), arith, n);
					bad = 1;
				}
				first = 0;
			}
		}
	}
	for (int r = 0; r < ROWS; r++) {
		for (int o = 0; o < OUT; o++) {
			double sum = 0;

			for (int i = 0; i < IN; i++)
				sum += (double)in[r * IN + i] * ((codes[o * (IN / 4) + i / 4] >> (i % 4 * 2) & 3) - 1);
			/* 52 roundings of sums below 52: 52 * 52 * 2^-24. */
			if (!(fabs(sum - (double)want[r * OUT + o]) < 1.7e-4)) {
				printf("FAIL row %d, output %d: %g, should be %g\n", r, o, (double)want[r * OUT + o],
				       sum);
				bad = 1;
			}
		}
	}
	return bad;
}
