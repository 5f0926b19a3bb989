/* basis.c - see basis.h. */
#include "quant/basis.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "quant/lanes/lane_table.h"

static void hadamard(const struct basis *b, const struct vec_kernels *k, float *x)
{
	float scale = (float)(1 / sqrt((double)b->block));

	for (int i = 0; i < b->cols; i += b->block)
		k->hadamard(x + i, b->block, scale);
}

static void signs(const struct basis *b, float *x)
{
	for (int i = 0; b->sign && i < b->cols; i++)
		x[i] *= b->sign[i];
}

/* The place in the weight's order of the input head at place i. */
static int head_to(const struct basis *b, int i)
{
	int each = b->cols / b->head / b->heads_k;

	return i % b->heads_k * each + i / b->heads_k;
}

void basis_turn(const struct basis *b, const struct vec_kernels *k, float *out, const float *x)
{
	size_t n = (size_t)(b->head ? b->head : b->cols);

	for (int i = 0; i < b->cols / (int)n; i++)
		memcpy(out + (size_t)(b->head ? head_to(b, i) : i) * n, x + (size_t)i * n, n * sizeof *out);
	signs(b, out);
	hadamard(b, k, out);
}

void basis_undo(const struct basis *b, float *x)
{
	size_t n = (size_t)b->head;
	float *was;

	hadamard(b, &lane_table_scalar.vec, x);
	signs(b, x);
	if (!b->head)
		return;
	was = xmalloc((size_t)b->cols * sizeof *was);
	memcpy(was, x, (size_t)b->cols * sizeof *was);
	for (int i = 0; i < b->cols / b->head; i++)
		memcpy(x + (size_t)i * n, was + (size_t)head_to(b, i) * n, n * sizeof *x);
	free(was);
}
