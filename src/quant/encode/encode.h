/* encode.h - rows of floats to the number formats of files.
 *
 * Every encoder minimises sum(importance[i] * (x[i] - value[i])^2) over its groups; importance NULL counts as ones.
 * The bytes depend on the row alone.  Elements must be what encode_takes takes. */
#ifndef QUANT_ENCODE_H
#define QUANT_ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quant/gguf/gguf.h"

/* Which types gguf_encode takes: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, Q2_K to Q6_K, IQ4_XS,
 * Q1_0, Q2_0. */
bool gguf_encodes(const struct gguf_type *type);
/* cols, a multiple of type->block, to cols / block * block_bytes bytes. */
void gguf_encode(uint8_t *out, const struct gguf_type *type, const float *x, int cols, const float *importance);

/* As mlx has them: codes of 2, 3, 4, 5, 6 or 8 bits as one little-endian stream of cols * bits / 8 bytes; per group a
 * scale and a bias in bf16, value = scale * code + bias. */
void affine_encode(uint8_t *code, uint16_t *scale, uint16_t *bias, const float *x, int cols, int bits, int group,
                   const float *importance);
/* Groups of 32, a byte E8M0 each, E2M1 codes, the first in the lower half of its byte. */
void mxfp4_encode(uint8_t *code, uint8_t *scale, const float *x, int cols, const float *importance);

/* Row `row` of w, which is mxfp4 in groups of 32, as blocks of GGUF's type MXFP4: the same codes and scales, 17 bytes a
 * group. */
void mxfp4_recode(uint8_t *out, const struct weight *w, int row);

/* Every element is finite and at most 65504, so that no scale of 16 bits overflows. */
bool encode_takes(const float *x, int cols);

#endif
