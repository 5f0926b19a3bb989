/* lane_scratch.c - scratch of the lane kernels. */
#include "quant/lanes/lane_table.h"

size_t lane_scratch(const struct weight *w)
{
	size_t cols = (size_t)w->cols, groups = w->group ? cols / (size_t)w->group : 0;

	/* Decoded rows; packed rows and their sums; scales and biases of four outputs as floats. */
	return (DECODE_ROWS * cols + PACKED_OUT * (cols + 16) + PACKED_ROWS * PACKED_OUT * 16 + 8 * (groups + 16)) *
	       sizeof(float);
}
