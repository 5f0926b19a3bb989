/* lane_table.h - inside quant/: what lane_kernels.c offers, which is written once and compiled for
 * each width of vector registers. */
#ifndef QUANT_LANE_TABLE_H
#define QUANT_LANE_TABLE_H

#include "quant/format.h"

struct lane_table {
	struct vec_kernels vec;
	acts_quantise_fn *quantise;
	weight_mul_fn *mul_f32, *mul_bf16, *mul_f16; /* plain weights in place */
	weight_mul_fn *mul_mxfp8;
	weight_mul_fn *mul_decoded; /* any format, decoded a few rows at a time */
	struct kv_kernels kv_f32, kv_bf16;
	quant_peak_fn *peak; /* of fused multiply-adds */
};
extern const struct lane_table lane_table_scalar, lane_table_avx2, lane_table_avx512, lane_table_neon;
/* Scratch bytes that the products of the tables need for w. */
size_t lane_scratch(const struct weight *w);

/* Products over cache rows that were dequantised to panels of floats (kv_panels.c). */
extern kv_opened_score_fn kv_opened_score_scalar, kv_opened_score_avx2, kv_opened_score_avx512, kv_opened_score_neon;
extern kv_opened_mix_fn kv_opened_mix_scalar, kv_opened_mix_avx2, kv_opened_mix_avx512, kv_opened_mix_neon;

/* AVX-512 form of lane_table.quantise, faster for the groups that models have (quantise_avx512.c). */
acts_quantise_fn acts_quantise_avx512;

/* mul_decoded cuts outputs into DECODE_ROWS, a multiple of the tiles of floats (6, 8). */
enum { DECODE_ROWS = 24 };
/* Activations as packed floats: rows at most and bytes of them in one go, and inputs, which stay in the first-level
 * cache.  For each row sums of 16 are kept for at most PACKED_OUT outputs. */
enum { PACKED_ROWS = 256, PACKED_BYTES = 512 << 10, PACKED_INPUTS = 1024, PACKED_OUT = 6 };

#endif
