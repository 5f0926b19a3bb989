/* test_gguf.c - blocks of every tensor type of GGUF as the reference decodes them, to the bit: random bytes (of which
 * tests/golden has some) and what the reference's quantiser made of rows; and what is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "golden.h"
#include "quant/gguf/gguf.h"

static int failures;

static void fail(const char *type, const char *what, long at)
{
	printf("FAIL %s: %s %ld\n", type, what, at);
	failures++;
}

/* Rows q of g against floats y. */
static void compare(const struct golden *g, const struct gguf_type *type, const char *q, const char *y)
{
	int qd[4], yd[4];
	const uint8_t *bytes = golden_get(g, q, qd);
	const float *want = golden_get(g, y, yd);
	struct weight w;
	struct err err;
	float *row;

	if (!bytes || !want || qd[0] != yd[0]) {
		fail(type->name, "no golden", 0);
		return;
	}
	if (weight_gguf(&w, q, type, yd[0], yd[1], bytes, (size_t)qd[0] * (size_t)qd[1], &err)) {
		fail(type->name, err.msg, 0);
		return;
	}
	row = xmalloc((size_t)yd[1] * sizeof *row);
	for (int o = 0; o < w.rows; o++) {
		w.fmt->decode(row, &w, o);
		for (int i = 0; i < w.cols; i++)
			if (memcmp(&row[i], &want[(size_t)o * (size_t)w.cols + (size_t)i], sizeof *row)) {
				printf("FAIL %s %s: row %d element %d is %a, should be %a\n", type->name, q, o, i,
				       (double)row[i], (double)want[(size_t)o * (size_t)w.cols + (size_t)i]);
				failures++;
				o = w.rows;
				break;
			}
	}
	free(row);
}

static const char *const names[] = { "Q4_0",    "Q4_1",    "Q5_0",  "Q5_1",   "Q8_0",   "Q2_K",  "Q3_K",
	                             "Q4_K",    "Q5_K",    "Q6_K",  "IQ2_S",  "IQ1_M",  "IQ1_S", "IQ2_XS",
	                             "IQ2_XXS", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0",
	                             "MXFP4",   "NVFP4",   "Q1_0",  "Q2_0" };
enum { NAMES = sizeof names / sizeof *names };

static void check_tree(void)
{
	struct golden *g = golden_open("_gguf/blocks.safetensors");

	if (!g)
		fail("goldens", "tests/golden has none", 0);
	for (int i = 0; i < NAMES && g; i++) {
		char q[64], y[64];

		snprintf(q, sizeof q, "%s.rand_q", names[i]);
		snprintf(y, sizeof y, "%s.rand_y", names[i]);
		compare(g, gguf_type_named(names[i]), q, y);
	}
	golden_close(g);
}

/* All of ../shared, which a checkout may lack. */
static bool check_shared(void)
{
	static const char *const beside[] = { "PQ2_0", "PTQ1_0", "F16", "BF16" };

	for (int i = 0; i < NAMES + 4; i++) {
		const char *name = i < NAMES ? names[i] : beside[i - NAMES];
		char path[64];
		struct golden *g;

		snprintf(path, sizeof path, "_gguf/blocks/%s.safetensors", name);
		g = golden_open(path);
		if (!g)
			return false;
		compare(g, gguf_type_named(name), "q", "y");
		if (i < NAMES + 2)
			compare(g, gguf_type_named(name), "rand_q", "rand_y");
		golden_close(g);
	}
	return true;
}

/* Affine codes of one bit. */
static void check_one_bit(void)
{
	struct golden *g = golden_open("_gguf/blocks/onebit.safetensors");
	int dim[4], groups[4], to[4];
	const void *codes, *scales, *biases;
	const float *want;
	struct weight w;
	struct err err;
	float row[256];

	if (!g)
		return;
	codes = golden_get(g, "mlx1_weight", dim);
	scales = golden_get(g, "mlx1_scales", groups);
	biases = golden_get(g, "mlx1_biases", groups);
	want = golden_get(g, "mlx1_y", to);
	if (!codes || !scales || !biases || !want || to[1] != 256) {
		fail("affine1", "no golden", 0);
	} else if (weight_coded(&w, "mlx1", "affine", 1, to[1] / groups[1], to[0], to[1], codes,
	                        (size_t)(4 * dim[0] * dim[1]), scales, (size_t)(2 * groups[0] * groups[1]), biases,
	                        (size_t)(2 * groups[0] * groups[1]), DT_F16, &err)) {
		fail("affine1", err.msg, 0);
	} else {
		for (int o = 0; o < to[0]; o++) {
			w.fmt->decode(row, &w, o);
			if (memcmp(row, want + 256 * o, sizeof row))
				fail("affine1", "row", o);
		}
	}
	golden_close(g);
}

static void refuse(const char *what, int have, int want)
{
	if (have != want)
		fail(what, "answer", have);
}

static void check_refusals(void)
{
	static const int64_t none[] = { -1, 4, 5, 9, 15, 31, 33, 36, 38, 43, 97, INT64_MAX };
	static const uint8_t data[2 * 144];
	const struct gguf_type *t = gguf_type_named("q4_k");
	struct weight w;
	struct err err;

	for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
		const char *why = NULL;

		if (gguf_type(none[i], &why) || !why)
			fail("type", "accepted", (long)none[i]);
	}
	refuse("whole rows", weight_gguf(&w, "t", t, 2, 256, data, sizeof data, &err), 0);
	refuse("a byte less", weight_gguf(&w, "t", t, 2, 256, data, sizeof data - 1, &err), E_FORMAT);
	refuse("a byte more", weight_gguf(&w, "t", t, 1, 256, data, 145, &err), E_FORMAT);
	refuse("no rows", weight_gguf(&w, "t", t, 0, 256, data, 0, &err), E_FORMAT);
	refuse("half a block", weight_gguf(&w, "t", t, 2, 128, data, 144, &err), E_FORMAT);
	refuse("negative", weight_gguf(&w, "t", t, 1, -256, data, 144, &err), E_FORMAT);
	refuse("integers", weight_gguf(&w, "t", gguf_type_named("I32"), 1, 4, data, 16, &err), E_UNSUPPORTED);
}

int main(void)
{
	bool shared;

	check_tree();
	check_one_bit();
	check_refusals();
	shared = check_shared();
	return failures ? 1 : shared ? 0 : 77;
}
