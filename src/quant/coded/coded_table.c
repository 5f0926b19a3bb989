/* coded_table.c - multiplies a weight of small codes by the kernel that a level's table names for the way the weight lies in
 * memory and for the number of rows of activations. */
#include "quant/coded/coded_table.h"

#include <assert.h>

#include "quant/coded/coded.h"

static enum layout layout_of(const struct weight *w)
{
	bool tiled = w->group % 32 == 0 && w->group <= TILED_INPUTS / 2;

	if (packed_of(w))
		return !w->fmt->coding->block ? PACKED : tiled ? PLANES_32 : PLANES_16;
	if (w->group % 16)
		return ROWS_ANY;
	return coded_is_g64(w) ? ROWS_G64 : tiled ? ROWS_32 : ROWS_16;
}

static weight_mul_fn *kernel_for(coded_table table, enum layout lies, int rows)
{
	const struct coded_range *r = table[lies];

	while (rows > r->rows)
		r++;
	return r->mul;
}

/* Kernels of packed weights take whole blocks, those of ROWS_G64 whole 16 outputs from o0 on.  The outputs before and
 * after go another way; they are rare, since parts are cut at multiples of 16. */
void coded_table_mul(coded_table table, float *out, size_t ld, const struct weight *weight, int o0, int o1,
                     const struct acts *x, int r0, int r1, void *scratch)
{
	struct weight copy;
	const struct weight *w = packed_settled(&copy, weight);
	enum layout lies = layout_of(w);
	weight_mul_fn *mul = kernel_for(table, lies, r1 - r0), *rest = coded_mul_scalar;
	int first = o0, last = o1;

	assert(x->cols == w->cols && x->group == w->group);
	if (lies < ROWS_G64) {
		first = (o0 + BLOCK_OUT - 1) / BLOCK_OUT * BLOCK_OUT;
		last = o1 / BLOCK_OUT * BLOCK_OUT;
	} else if (lies == ROWS_G64) {
		last = o0 + (o1 - o0) / BLOCK_OUT * BLOCK_OUT;
		rest = kernel_for(table, ROWS_32, r1 - r0);
	}
	if (first >= last)
		first = last = o1;
	if (o0 < first)
		rest(out, ld, w, o0, first, x, r0, r1, scratch);
	if (first < last)
		mul(out + (first - o0), ld, w, first, last, x, r0, r1, scratch);
	if (last < o1)
		rest(out + (last - o0), ld, w, last, o1, x, r0, r1, scratch);
}
