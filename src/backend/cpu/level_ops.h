/* level_ops.h - inside backend/cpu/: the backend's own kernels at a level of instructions, those that op_kernels.c and
 * recur_kernels.c write over quant/lanes/lanes.h. */
#ifndef BACKEND_CPU_LEVEL_OPS_H
#define BACKEND_CPU_LEVEL_OPS_H

#include "backend/cpu/op_kernels.h"
#include "backend/cpu/recur_kernels.h"

struct level_ops {
	const struct op_table *op;
	const struct recur_table *recur;
};
const struct level_ops *level_ops(enum cpu_level level);

#endif
