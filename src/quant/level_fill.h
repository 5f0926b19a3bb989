/* level_fill.h - between levels.c and the file of an architecture (levels_x86.c, levels_arm.c, levels_other.c). */
#ifndef QUANT_LEVEL_FILL_H
#define QUANT_LEVEL_FILL_H

#include "quant/level_kernels.h"

/* Replaces in k, which has the kernels of the level's parent, what the level improves. */
void level_fill(struct level_kernels *k, enum cpu_level level);
/* Scratch bytes for products of w by dot products of bf16, at any level of the architecture; 0: no level has them. */
size_t level_bf16_scratch(const struct weight *w);

/* Replaces the kernels that are written over lanes.h. */
void level_lanes(struct level_kernels *k, const struct lane_table *lanes, const struct kv_kernels *kv_coded);

#endif
