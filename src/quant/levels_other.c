/* levels_other.c - a processor that has no level but plain C. */
#include "quant/level_fill.h"

void level_fill(struct level_kernels *k, enum cpu_level level) {}

size_t level_bf16_scratch(const struct weight *w)
{
	return 0;
}
