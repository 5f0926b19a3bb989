/* levels.h - inside quant/: what each level offers, for the formats to choose from.
 *
 * lane_kernels.c is compiled once per level and fills a struct lane_table;
 * coded_avx2.c (twice) and coded_avx512.c add integer kernels for coded weights. */
#ifndef QUANT_LEVELS_H
#define QUANT_LEVELS_H

#include <stdbool.h>

#include "quant/coded/blocks_layout.h"

struct lane_table {
	struct vec_kernels vec;
	acts_quantise_fn *quantise;
	weight_mul_fn *mul_f32, *mul_bf16, *mul_f16; /* plain weights in place */
	weight_mul_fn *mul_mxfp8;
	weight_mul_fn *mul_decoded; /* any format, decoded a few rows at a time */
	struct kv_kernels kv_f32, kv_bf16;
	quant_peak_fn *peak; /* of fused multiply-adds */
};
extern const struct lane_table lane_table_scalar, lane_table_avx2, lane_table_avx512;
const struct lane_table *lane_table(enum cpu_level level);
acts_quantise_fn acts_quantise_avx512;

/* n rows cut evenly into `of` parts: where part i begins. */
static inline int part_begin(int n, int i, int of)
{
	return (int)((int64_t)n * i / of);
}

/* Cache rows of small codes (kv_coded.c): name, bits of a code, elements that share
 * a scale and a bias (0: turned, one scale and no bias for the row). */
#define KV_CODED(X)     \
	X(u8g32, 8, 32) \
	X(u8g64, 8, 64) \
	X(u8g128, 8, 128) X(u4g32, 4, 32) X(u4g64, 4, 64) X(u4g128, 4, 128) X(tq2, 2, 0) X(tq3, 3, 0) X(tq4, 4, 0)
enum { KV_CHUNK = 64, KV_DIM_MAX = 512, KV_GROUPS_MAX = 16 }; /* groups: as many as lanes */
extern const struct kv_kernels kv_coded_scalar[], kv_coded_avx2[], kv_coded_avx512[];

/* Over rows opened as floats (kv_panels.c). */
extern kv_opened_score_fn kv_opened_score_scalar, kv_opened_score_avx2, kv_opened_score_avx512;
extern kv_opened_mix_fn kv_opened_mix_scalar, kv_opened_mix_avx2, kv_opened_mix_avx512;

/* Of a row; 0: not for heads of this size. */
size_t kv_coded_bytes(int bits, int group, int dim);
void kv_coded_decode(float *x, const void *row, int dim, int bits, int group);
/* Code i of a chunk of 64. */
int kv_code_at(const uint8_t *chunk, int bits, int i);
/* What the codes of a turned row stand for, 1 << bits numbers of [16] (by bits), and by what to
 * multiply them for a vector whose squares have a mean of 1. */
extern const int8_t kv_books[9][16];
static inline const int8_t *kv_book(int bits)
{
	return kv_books[bits];
}
float kv_book_unit(int bits, int dim);
/* Bit i of word w: element 16 w + i changes its sign, in each round of the rotation. */
extern const uint16_t kv_signs[2][KV_DIM_MAX / 16];
/* The largest f16 at or below x in [-65504, 65504]. */
uint16_t kv_f16_below(float x);

/* Of w that has blocks: mul for those outputs of which blocks are whole; plain C for the others, nobody's usual part. */
void coded_whole_blocks(weight_mul_fn *mul, float *out, size_t ld, const struct weight *w, int o0, int o1,
                        const struct acts *x, int r0, int r1, void *scratch);
weight_mul_fn blocks_mul_avx2, blocks_mul_avxvnni; /* those outputs */
/* n times 16 outputs of w, whose blocks those at `blocks` are, by at most FEW_ROWS rows. */
void blocks_few_avx512(float *out, size_t ld, const struct weight *w, const uint8_t *blocks, int n,
                       const struct acts *x, int r0, int r1, void *scratch);
/* The same of more. */
void blocks_tiles_avx512(float *out, size_t ld, const struct weight *w, const uint8_t *blocks, int n,
                         const struct acts *x, int r0, int r1);
/* From PANELS_FROM rows on panels of unpacked codes are faster here: coded_mul_avx512_panels is for that.  Measured as
 * bf16_dot_slow, below, is. */
enum { PANELS_FROM = 49 };
bool blocks_tiles_slow(void);
/* The same of ACTS_TILED to FEW_TWICE rows, with tiles of the processor's. */
void blocks_few_amx(float *out, size_t ld, const struct weight *w, const uint8_t *blocks, int n, const struct acts *x,
                    int r0, int r1, void *scratch);

/* [groups][n][scale, scaled sum] of rows r0 .. r0 + n - 1 to `to`; returns what is behind them. */
float *coded_beside(float *to, const struct acts *x, int r0, int n);

/* ARITH_FAST of a coded weight.  The AVX forms hand shapes they do not like
 * (a group that is not a multiple of 16) to the scalar one. */
weight_mul_fn coded_mul_scalar, coded_mul_avx2, coded_mul_avxvnni, coded_mul_avx512, coded_mul_avx512_panels,
	coded_mul_amx;
weight_mul_fn coded_many_avx512; /* groups of a multiple of 16 */
/* n rounds of the level's int8 dot product on registers; returns the multiplications and additions. */
quant_peak_fn coded_peak_scalar, coded_peak_avx2, coded_peak_avxvnni, coded_peak_avx512, coded_peak_amx;
/* A coded format's kernels(): decode and dot for the reference, the above for serving. */
void coded_kernels(struct kernels *k, enum cpu_level level);

/* Inputs [k0, k1) of outputs o .. o + n - 1, 0 < n <= 16; k0 a multiple of 64. */
struct coded_span {
	const struct weight *w;
	int o, n, k0, k1;
	int inputs; /* of a tile: 32 or 64 */
	bool ahead; /* the same of the next PANEL_OUT outputs are asked for meanwhile */
};
/* Their codes, lut applied, to [(k1 - k0) / inputs][16][inputs]; outputs beyond n
 * repeat the last. */
void coded_codes_avx512(uint8_t *to, const struct coded_span *span);
/* Scales (and biases) of outputs o .. o + n - 1, n <= 16, to lanes 0 .. n - 1 of
 * scale[g * step], the rest 0. */
typedef void coded_scales_fn(float *scale, float *bias, size_t step, const struct weight *w, int o, int n);
coded_scales_fn coded_scales_avx2, coded_scales_avxvnni, coded_scales_avx512;
coded_scales_fn coded_scales_only_avx512; /* without asking for what follows */
/* The same of groups g .. g + 7 of 16 outputs, to scale and bias[(group - g) * step]. */
void coded_scales_eight_avx2(float *scale, float *bias, size_t step, const struct weight *w, int o, int g);
void coded_scales_eight_avxvnni(float *scale, float *bias, size_t step, const struct weight *w, int o, int g);

/* The commonest weights: affine codes of 4 or 8 bits in groups of 64, whole lines of them. */
bool coded_is_g64(const struct weight *w);
/* Of these, whole 16 outputs from o0 on; returns the first that is left to others.  With AVX-512
 * for at most FEW_TWICE rows. */
typedef int coded_g64_fn(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                         int r1, void *scratch);
coded_g64_fn coded_g64_avx2, coded_g64_avxvnni, coded_few_avx512;

/* For those of few rows: one row, whole 16 outputs of a part long enough, with AVX-512 scales of 16 bits; returns
 * the first that is left.  q: with AVX-512 of each line, of 4 bits the even inputs, then the odd ones; with AVX2
 * inputs in their order.  beside: [groups][scale, scaled sum]; scratch: coded_one_scratch() bytes. */
typedef int coded_one_fn(float *out, const struct weight *w, int o0, int o1, const int8_t *q, const float *beside,
                         void *scratch);
coded_one_fn coded_one_avx2, coded_one_avxvnni, coded_one_avx512;
/* Sums of what is read and of what was before, 16 outputs of two runs each, by groups filled up to whole vectors; a
 * kilobyte of scales; inputs as int16. */
static inline size_t coded_one_scratch(int cols)
{
	return 2 * 2 * OUT_ONCE * (((size_t)cols / 64 + 15) / 16 * 16) * sizeof(int32_t) + 1024 + 2 * (size_t)cols;
}

/* Rows of activations that coded_mul_amx and coded_many_avx512 take in one go; of the former
 * those of the tiles it is given, and those it has to lay out itself. */
enum { TILED_ROWS = 256, TILED_HERE = 64, TILED_INPUTS = 512 };
enum { ASKING_512 = 17, ASKING_TILED = 33 }; /* struct kernels: asking */
acts_tile_fn acts_tile_amx;

extern const struct format format_bf16;

/* bf16 weights under ARITH_FAST, where there is a dot product of bf16 or tiles of it. */
weight_mul_fn bf16_mul_dot, bf16_mul_floats, bf16_mul_amx;
/* The second is faster here than the first; the bits are the same.  Measured, for some microseconds, by the first
 * who chooses kernels (a backend as it is opened, before there is a product), then known.  Any thread: should two
 * measure at once and differ, each has kernels with the same bits. */
bool bf16_dot_slow(void);
acts_tile_fn acts_pairs_avx512bf16, acts_pairs_amx;
quant_peak_fn bf16_peak_avx512bf16, bf16_peak_amx;
size_t bf16_scratch_avx512bf16(int cols), bf16_scratch_amx(int cols);

/* Attention over bf16 rows, where there are dot products of bf16 (or multiply-adds that are faster, as of weights) or tiles. */
extern const struct kv_tiles kv_tiles_dot, kv_tiles_floats, kv_tiles_amx;

/* E2M1 codes to twice their value plus 12. */
extern const uint8_t e2m1_code[16];
/* Planes (coded/planes.h), of 16 outputs from o on unless said otherwise: scales and biases of all groups to
 * scale[g * step] and bias[g * step]; codes of inputs [k0, k1) as quads to to[quad * step]; products of at most FEW_TWICE
 * rows, whole 16 outputs.  The AVX2 form takes codes beyond 127 128 less. */
typedef void planes_lanes_fn(float *scale, float *bias, size_t step, const struct weight *w, const uint8_t *planes,
                             int o);
typedef void planes_panel_fn(uint8_t *to, size_t step, const struct weight *w, const uint8_t *planes, int o, int k0,
                             int k1);
planes_lanes_fn planes_lanes_avx2, planes_lanes_avxvnni, planes_lanes_avx512;
planes_panel_fn planes_panel_avx2, planes_panel_avxvnni, planes_panel_avx512;
weight_mul_fn planes_few_avx2, planes_few_avxvnni, planes_few_avx512;

/* MLX's reading of E4M3: 0x7f is 480, there is no NaN. */
float e4m3_mlx(uint8_t b);

/* Rows of activations that the AVX2 kernels arrange in one go, inputs of a panel of
 * 16 outputs, which stays in the first cache; and rows that coded_g64_avx2.c does, bytes of its panel. */
enum { BLOCK_ROWS = 96, PANEL_INPUTS = 256, G64_ROWS = 64, G64_PANEL = 16 << 10 };

/* Floats that are packed: rows at most and bytes of them in one go, inputs that stay in the first cache; sums of 16 of
 * PACKED_OUT outputs at most are kept for each row. */
enum { PACKED_ROWS = 256, PACKED_BYTES = 512 << 10, PACKED_INPUTS = 1024, PACKED_OUT = 6 };

/* mul_decoded and the coded kernels cut outputs into these; the first a multiple of the tiles
 * of floats (6, 8). */
enum { DECODE_ROWS = 24, PANEL_OUT = 32, DIRECT_ROWS = 4, FEW_ROWS = 8, FEW_TWICE = 2 * FEW_ROWS };

#endif
