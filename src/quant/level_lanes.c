/* level_lanes.c - the kernels of a level that are written over lanes.h. */
#include "quant/lanes/lane_table.h"
#include "quant/level_fill.h"

void level_lanes(struct level_kernels *k, const struct lane_table *lanes, const struct kv_kernels *kv_coded)
{
	k->lanes = lanes;
	k->kv_coded = kv_coded;
	k->quantise = lanes->quantise;
	k->peaks.f32 = lanes->peak;
}
