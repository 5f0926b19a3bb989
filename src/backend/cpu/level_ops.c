/* level_ops.c - which tables of the backend's own kernels a level runs: its own, or its parent's. */
#include "backend/cpu/level_ops.h"

static const struct level_ops tables[CPU_LEVELS] = {
	[CPU_SCALAR] = { &op_table_scalar, &recur_table_scalar },
#if defined(__x86_64__)
	[CPU_AVX2] = { &op_table_avx2, &recur_table_avx2 },
	[CPU_AVX512] = { &op_table_avx512, &recur_table_avx512 },
#elif defined(__aarch64__)
	[CPU_NEON] = { &op_table_neon, &recur_table_neon },
#endif
};

const struct level_ops *level_ops(enum cpu_level level)
{
	while (!tables[level].op)
		level = cpu_level_parent(level);
	return &tables[level];
}
