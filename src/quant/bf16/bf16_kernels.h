/* bf16_kernels.h - inside quant/: products of bf16 weights under ARITH_FAST, at levels that have a dot product of bf16
 * or tiles of it. */
#ifndef QUANT_BF16_KERNELS_H
#define QUANT_BF16_KERNELS_H

#include "quant/format.h"

/* By vdpbf16ps, by the multiply-adds that it stands for (the same bits), and by tiles. */
weight_mul_fn bf16_mul_dot, bf16_mul_floats, bf16_mul_amx;
/* Whether bf16_mul_floats is faster on this processor than bf16_mul_dot.  The first call measures both for some
 * microseconds; it is made while a backend is opened, so no product waits for it.  Any thread: two threads that measure at
 * once may get different answers, and either gives the same bits. */
bool bf16_dot_slow(void);
/* By products of matrices of Arm's bfmmla, which have an order of their own. */
weight_mul_fn bf16_mul_arm;
/* struct acts.pairs as the level's kernels read it. */
acts_tile_fn acts_pairs_avx512bf16, acts_pairs_amx, acts_pairs_arm;
quant_peak_fn bf16_peak_avx512bf16, bf16_peak_amx, bf16_peak_arm;
/* Scratch bytes for a weight of cols inputs. */
size_t bf16_scratch_avx512bf16(int cols), bf16_scratch_amx(int cols), bf16_scratch_arm(int cols);

#endif
