/* test_basis.c - turning inputs into the basis of weights: against vectors, against the matrix written out, and the same bits
 * at every level. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cpu.h"
#include "base/rng.h"
#include "golden.h"
#include "quant/basis.h"

static int failures;

static void fail(const char *what, int n)
{
	printf("FAIL %s %d\n", what, n);
	failures++;
}

static struct vec_kernels kernels_of(enum cpu_level level)
{
	struct vec_kernels k;

	vec_kernels(&k, level);
	return k;
}

/* out = H S P x by the sums of the definition, in double. */
static void naive(double *out, const struct basis *b, const float *x)
{
	int heads = b->head ? b->cols / b->head : 0, each = b->head ? heads / b->heads_k : 0;
	double *y = xmalloc((size_t)b->cols * sizeof *y);

	for (int i = 0; i < b->cols; i++)
		y[i] = (double)x[i];
	for (int k = 0; k < (b->head ? b->heads_k : 0); k++)
		for (int j = 0; j < each; j++)
			for (int d = 0; d < b->head; d++)
				y[(k * each + j) * b->head + d] = (double)x[(j * b->heads_k + k) * b->head + d];
	for (int i = 0; i < b->cols; i++)
		y[i] *= b->sign ? (double)b->sign[i] : 1;
	for (int at = 0; at < b->cols; at += b->block)
		for (int r = 0; r < b->block; r++) {
			out[at + r] = 0;
			for (int c = 0; c < b->block; c++)
				out[at + r] += (__builtin_popcount((unsigned)(r & c)) & 1 ? -1 : 1) * y[at + c];
			out[at + r] /= sqrt(b->block);
		}
	free(y);
}

static void check(const struct basis *b)
{
	size_t n = (size_t)b->cols;
	float *x = xmalloc(n * sizeof *x), *first = xmalloc(n * sizeof *x), *out = xmalloc(n * sizeof *x);
	double *want = xmalloc(n * sizeof *want);

	for (size_t i = 0; i < n; i++)
		x[i] = (float)(rng_uniform(7, i, (uint64_t)b->block) - 0.5);
	naive(want, b, x);
	for (enum cpu_level level = CPU_SCALAR; level < CPU_LEVELS; level = cpu_level_next(level)) {
		struct vec_kernels k = kernels_of(level);

		basis_turn(b, &k, level == CPU_SCALAR ? first : out, x);
		if (level != CPU_SCALAR && memcmp(out, first, n * sizeof *out))
			fail("another level has other bits, block", b->block);
	}
	for (size_t i = 0; i < n; i++)
		if (fabs((double)first[i] - want[i]) > 1e-5) {
			fail("differs from the matrix at", (int)i);
			break;
		}
	basis_undo(b, first);
	for (size_t i = 0; i < n; i++)
		if (fabsf(first[i] - x[i]) > 1e-5f) {
			fail("undone differs at", (int)i);
			break;
		}
	free(x);
	free(first);
	free(out);
	free(want);
}

/* The vectors of block: H S x and S H x. */
static void check_golden(struct golden *g, int block)
{
	char name[32];
	int dim[4], n[4];
	const float *x, *forward, *inverse;
	const int32_t *signs;
	struct vec_kernels k = kernels_of(CPU_SCALAR);
	float *sign, *out;

	snprintf(name, sizeof name, "had%d_x", block);
	x = golden_get(g, name, dim);
	snprintf(name, sizeof name, "had%d_signs", block);
	signs = golden_get(g, name, n);
	snprintf(name, sizeof name, "had%d_forward", block);
	forward = golden_get(g, name, n);
	snprintf(name, sizeof name, "had%d_inverse", block);
	inverse = golden_get(g, name, n);
	if (!x || !signs || !forward || !inverse) {
		fail("no vectors of block", block);
		return;
	}
	sign = xmalloc((size_t)dim[1] * sizeof *sign);
	out = xmalloc((size_t)dim[1] * sizeof *out);
	for (int i = 0; i < dim[1]; i++)
		sign[i] = (float)signs[i];
	for (int r = 0; r < dim[0]; r++) {
		const struct basis b = { .cols = dim[1], .block = block, .sign = sign };
		size_t at = (size_t)r * (size_t)dim[1];

		basis_turn(&b, &k, out, x + at);
		for (int i = 0; i < dim[1]; i++)
			if (fabsf(out[i] - forward[at + (size_t)i]) > 2e-6f * fmaxf(1, fabsf(out[i])))
				fail("forward, block", block);
		memcpy(out, x + at, (size_t)dim[1] * sizeof *out);
		basis_undo(&b, out);
		for (int i = 0; i < dim[1]; i++)
			if (fabsf(out[i] - inverse[at + (size_t)i]) > 2e-6f * fmaxf(1, fabsf(out[i])))
				fail("inverse, block", block);
	}
	free(sign);
	free(out);
}

int main(void)
{
	struct golden *g = golden_open("_gguf/blocks/onebit.safetensors");
	float sign[768];

	for (int i = 0; i < 768; i++)
		sign[i] = rng_bits(3, (uint64_t)i, 1) & 1 ? -1 : 1;
	for (int block = 1; block <= 256; block *= 2) {
		check(&(struct basis){ .cols = 768, .block = block });
		check(&(struct basis){ .cols = 768, .block = block, .sign = sign });
		check(&(struct basis){ .cols = 768, .block = block, .sign = sign, .head = 64, .heads_k = 4 });
	}
	if (g) {
		check_golden(g, 4);
		check_golden(g, 128);
		check_golden(g, 1024);
		golden_close(g);
	}
	printf("%d failures%s\n", failures, g ? "" : ", without the reference vectors");
	return failures != 0;
}
