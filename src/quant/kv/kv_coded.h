/* kv_coded.h - inside quant/kv: cache rows of small codes (kv_coded.c). */
#ifndef QUANT_KV_CODED_H
#define QUANT_KV_CODED_H

#include "quant/format.h"

/* Formats of small codes: name, bits of a code, elements that share a scale and a bias.  0 elements: the row is rotated
 * and has one scale and no bias. */
#define KV_CODED(X)     \
	X(u8g32, 8, 32) \
	X(u8g64, 8, 64) \
	X(u8g128, 8, 128) X(u4g32, 4, 32) X(u4g64, 4, 64) X(u4g128, 4, 128) X(tq2, 2, 0) X(tq3, 3, 0) X(tq4, 4, 0)
enum { KV_CHUNK = 64, KV_DIM_MAX = 512, KV_GROUPS_MAX = 16 }; /* groups: as many as lanes */
extern const struct kv_kernels kv_coded_scalar[], kv_coded_avx2[], kv_coded_avx512[], kv_coded_neon[];

/* Bytes of a row; 0: the format is not for heads of this size. */
size_t kv_coded_bytes(int bits, int group, int dim);
void kv_coded_decode(float *x, const void *row, int dim, int bits, int group);
/* Code i of a chunk of 64. */
int kv_code_at(const uint8_t *chunk, int bits, int i);
/* The values that the codes of a rotated row stand for: 1 << bits numbers of [16] (by bits).  kv_book_unit multiplies
 * them for a vector whose squares have a mean of 1. */
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

#endif
