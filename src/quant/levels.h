/* levels.h - inside quant/: what each level offers, for the formats to choose from.
 *
 * lane_kernels.c is compiled once per level and fills a struct lane_table;
 * coded_avx2.c and coded_avx512.c add integer kernels for coded weights. */
#ifndef QUANT_LEVELS_H
#define QUANT_LEVELS_H

#include <stdbool.h>

#include "quant/format.h"

struct lane_table {
	struct vec_kernels vec;
	acts_quantise_fn *quantise;
	weight_mul_fn *mul_f32, *mul_bf16, *mul_f16;    /* plain weights in place */
	weight_mul_fn *mul_mxfp8;
	weight_mul_fn *mul_decoded;                     /* any format, decoded a few rows at a time */
	struct kv_kernels kv_f32, kv_bf16;
	quant_peak_fn *peak;                            /* of fused multiply-adds */
};
extern const struct lane_table lane_table_scalar, lane_table_avx2, lane_table_avx512;
const struct lane_table *lane_table(enum cpu_level level);

/* Weights whose elements are small codes: value = scale * (code - zero) + bias,
 * with one scale (and bias) per group.  The integer kernels see only this. */
struct coding {
	int bits;               /* of a stored code; a little-endian bit stream along the row */
	int zero;               /* subtracted from the code */
	const uint8_t *lut;     /* [16], 4 bits only: stored code to code; NULL: the same */
	float scale_unit;       /* multiplies the stored scale; a power of 2 */
	bool bias;
};

/* The codes of row o, lut applied: cols bytes. */
void coding_row(uint8_t *out, const struct weight *w, int o);
/* Scale and bias of one group of row o; *bias is 0 when there is none. */
void coding_scale(float *scale, float *bias, const struct weight *w, int o, int g);

/* ARITH_FAST of a coded weight.  The AVX forms hand shapes they do not like
 * (a group that is not a multiple of 16) to the scalar one. */
weight_mul_fn coded_mul_scalar, coded_mul_avx2, coded_mul_avx512, coded_mul_amx;
/* n rounds of the level's int8 dot product on registers; returns the multiplications and additions. */
quant_peak_fn coded_peak_scalar, coded_peak_avx2, coded_peak_avx512, coded_peak_amx;
/* A coded format's kernels(): decode and dot for the reference, the above for serving. */
void coded_kernels(struct kernels *k, enum cpu_level level);

/* Many rows: the codes and scales of PANEL_OUT outputs as coded_avx512.c lays
 * them out, and what multiplies rows r0 on (`rows` of them) by its first n_out. */
struct panel {
	const uint8_t *code;                    /* [cols / 4][PANEL_OUT][4] */
	const float *scale, *bias;              /* [groups][PANEL_OUT]; bias NULL when there is none */
	const struct acts *x;
	int group, groups, zero;
};
typedef void panel_rows_fn(float *out, size_t ld, const struct panel *t, int r0, int rows, int n_out);
panel_rows_fn panel_rows_avx512;
void coded_panels_avx512(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                         int r1, void *scratch, panel_rows_fn *rows_fn);

/* MLX's reading of E4M3: 0x7f is 480, there is no NaN. */
float e4m3_mlx(uint8_t b);

/* mul_decoded and the coded kernels cut outputs into these. */
enum { DECODE_ROWS = 8, PANEL_OUT = 32, DIRECT_ROWS = 4 };

#endif
