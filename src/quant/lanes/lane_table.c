/* lane_table.c - which table of lane kernels a level runs. */
#include "quant/lanes/lane_table.h"

const struct lane_table *lane_table(enum cpu_level level)
{
#if defined(__x86_64__)
	if (level >= CPU_AVX512)
		return &lane_table_avx512;
	if (level >= CPU_AVX2)
		return &lane_table_avx2;
#endif
	return &lane_table_scalar;
}

size_t lane_scratch(const struct weight *w)
{
	size_t cols = (size_t)w->cols, groups = w->group ? cols / (size_t)w->group : 0;

	/* Decoded rows; packed rows and their sums; scales and biases of four outputs as floats. */
	return (DECODE_ROWS * cols + PACKED_OUT * (cols + 16) + PACKED_ROWS * PACKED_OUT * 16 + 8 * (groups + 16)) *
	       sizeof(float);
}
