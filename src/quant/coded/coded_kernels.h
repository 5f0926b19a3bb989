/* coded_kernels.h - inside quant/coded: the kernels of every level for weights of small codes.
 *
 * All multiply rows of int8 activations (struct acts: q, scale, sum, scaled_sum) and give the bits of
 * coded_mul_scalar.  Which of them runs is said in one place, the tables of coded_table.h. */
#ifndef QUANT_CODED_KERNELS_H
#define QUANT_CODED_KERNELS_H

#include "quant/coded/packed_layout.h"
#include "quant/kernel_rows.h"

/* Rows at most of coded_direct_avx512; outputs of a panel of unpacked codes. */
enum { DIRECT_ROWS = 4, PANEL_OUT = 32 };

/* Any weight of small codes, any outputs. */
weight_mul_fn coded_mul_scalar;

/* Groups of a multiple of 16, any outputs, rows as the file has them or planes, with AVX-512 also packed blocks: by panels
 * of unpacked codes. */
weight_mul_fn coded_many_avx2, coded_many_avxvnni, coded_many_avx512;
/* At most DIRECT_ROWS rows over rows as the file has them: codes are unpacked in registers.  Codes and groups that it has
 * no form for it gives to coded_many_avx512. */
weight_mul_fn coded_direct_avx512;
/* Groups of a multiple of 32, at most TILED_INPUTS / 2, rows as the file has them or packed: by tiles of int8. */
weight_mul_fn coded_many_amx;
/* Rows as the file has them, of weights that coded_is_g64 names, a multiple of 16 outputs.  The few are for at most FEW_TWICE
 * rows. */
weight_mul_fn coded_few_avx2, coded_few_avxvnni, coded_few_avx512;
weight_mul_fn coded_g64_many_avx2, coded_g64_many_avxvnni;

/* Groups of a multiple of 16, any layout: coded_arm.c. */
weight_mul_fn coded_many_neon, coded_many_dotprod, coded_many_i8mm;

/* Packed weights (packed.h), whole blocks of 16 outputs.  Few: at most FEW_TWICE rows, with AVX-512 FEW_ROWS; by tiles
 * ACTS_TILED to FEW_TWICE rows. */
weight_mul_fn packed_few_avx2, packed_few_avxvnni, packed_few_avx512, packed_few_amx;
weight_mul_fn packed_many_avx2, packed_many_avxvnni, packed_many_avx512; /* with AVX-512 more than FEW_ROWS rows */
/* Does this processor run coded_many_avx512 faster than packed_many_avx512 from PANELS_FROM rows on?  Measured by the
 * first call, as bf16_dot_slow is. */
enum { PANELS_FROM = 49 };
bool packed_many_slow(void);
/* Packed weights of GGUF types (planes.h), whole blocks of 16 outputs, at most FEW_PLANES rows. */
weight_mul_fn planes_few_avx2, planes_few_avxvnni, planes_few_avx512;
/* One row, groups of 32: codes of one bit by tables, SIGNS_TABLES bytes of scratch an input; others as planes_few_avx512. */
weight_mul_fn planes_one_vbmi;
enum { SIGNS_TABLES = 8 };

/* struct acts.tiles for coded_many_amx.  It takes TILED_ROWS rows of given tiles in one go; where none are given it lays
 * out TILED_HERE rows at a time itself.  It unpacks TILED_INPUTS inputs at a time. */
enum { TILED_HERE = 64, TILED_INPUTS = 512 };
acts_tile_fn acts_tile_amx;
/* n rounds of the level's int8 dot product on registers; returns the multiplications and additions. */
quant_peak_fn coded_peak_scalar, coded_peak_avx2, coded_peak_avxvnni, coded_peak_avx512, coded_peak_amx,
	coded_peak_neon, coded_peak_dotprod, coded_peak_i8mm;

/* ---- what the kernels above share ---- */

/* The scales and scaled sums of rows r0 .. r0 + n - 1 of x as [groups][n][2], written to `to`; returns the end. */
float *coded_beside(float *to, const struct acts *x, int r0, int n);

/* Inputs [k0, k1) of outputs o .. o + n - 1, 0 < n <= 16; k0 a multiple of 64. */
struct coded_span {
	const struct weight *w;
	int o, n, k0, k1;
	int inputs; /* of a tile: 32 or 64 */
	bool ahead; /* prefetch the same inputs of the next PANEL_OUT outputs */
};
/* The span's codes, lut applied, to [(k1 - k0) / inputs][16][inputs]; outputs beyond n repeat the last. */
void coded_codes_avx512(uint8_t *to, const struct coded_span *span);
/* Scales (and biases) of outputs o .. o + n - 1, n <= 16, to lanes 0 .. n - 1 of scale[g * step]; 0 in the other lanes.
 * The form named _only prefetches nothing. */
typedef void coded_scales_fn(float *scale, float *bias, size_t step, const struct weight *w, int o, int n);
coded_scales_fn coded_scales_avx2, coded_scales_avxvnni, coded_scales_avx512, coded_scales_only_avx512;
/* Scales and biases of groups g .. g + 7 of 16 outputs, to scale and bias[(group - g) * step]. */
void coded_scales_eight_avx2(float *scale, float *bias, size_t step, const struct weight *w, int o, int g);
void coded_scales_eight_avxvnni(float *scale, float *bias, size_t step, const struct weight *w, int o, int g);

/* One row over weights that coded_is_g64 names, for the kernels of few rows: whole 16 outputs from o0 on, if the part is
 * long enough (with AVX-512 also: scales of 16 bits).  Returns the first output that it left to the caller.
 * q: with AVX-512 the inputs of each line of codes, of 4 bits the even ones, then the odd ones; with AVX2 inputs in order.
 * beside: [groups][scale, scaled sum].  scratch: coded_row_scratch() bytes. */
typedef int coded_row_fn(float *out, const struct weight *w, int o0, int o1, const int8_t *q, const float *beside,
                         void *scratch);
coded_row_fn coded_row_avx2, coded_row_avxvnni, coded_row_avx512;
/* Sums of 16 outputs of two runs, of this piece and the one before, by groups rounded up to whole vectors; a kilobyte of
 * scales; inputs as int16. */
static inline size_t coded_row_scratch(int cols)
{
	return 2 * 2 * OUT_ONCE * (((size_t)cols / 64 + 15) / 16 * 16) * sizeof(int32_t) + 1024 + 2 * (size_t)cols;
}

/* AVX2: rows of activations arranged in one go; inputs of a panel of 16 outputs, which stays in the first-level cache; rows
 * that coded_g64_many arranges in one go, and the bytes of its panel. */
enum { BLOCK_ROWS = 96, PANEL_INPUTS = 256, G64_ROWS = 64, G64_PANEL = 16 << 10 };

#endif
