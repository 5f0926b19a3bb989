/* level_kernels.h - inside quant/: the kernels of a level of instructions.
 *
 * A level begins with its parent's kernels and replaces those that it improves: levels_x86.c has the levels of x86,
 * levels_arm.c those of 64-bit Arm; a processor of another kind has none but plain C (levels_other.c). */
#ifndef QUANT_LEVEL_KERNELS_H
#define QUANT_LEVEL_KERNELS_H

#include "quant/format.h"

struct kv_tiles;   /* kv/kv_tiles.h */
struct lane_table; /* lanes/lane_table.h */

struct level_kernels {
	const struct lane_table *lanes;
	const struct kv_kernels *kv_coded; /* of cache rows of codes, in the order of KV_CODED */
	acts_quantise_fn *quantise;
	acts_tile_fn *tile, *pair; /* NULL: the level's kernels read no tiles, no pairs */
	/* Weights of small codes under ARITH_FAST, and struct kernels.prefetch_rows of that product. */
	weight_mul_fn *coded;
	int coded_prefetch_rows;
	/* bf16 weights under ARITH_FAST by dot products of bf16; NULL: as plain floats.  bf16_packed: it reads packed pairs. */
	weight_mul_fn *bf16;
	bool bf16_packed;
	const struct kv_tiles *kv_tiles; /* attention over bf16 rows by dot products of bf16; NULL: as plain floats */
	struct level_orders orders;
	struct peaks peaks;
};

/* The kernels of a level that this machine has.  The first call for a level may measure which of two kernels with the same
 * bits is faster (trial.h); a backend makes it when it is opened.  Any thread. */
const struct level_kernels *level_kernels(enum cpu_level level);

#endif
