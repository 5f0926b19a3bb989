/* kv_softmax512.h - inside quant/: what attention over bf16 rows does between its products,
 * shared by tiles (kv_amx.c) and dot products (kv_avx512bf16.c); in the order that format.h
 * states, denormals counting as what they are. */
#ifndef QUANT_KV_SOFTMAX512_H
#define QUANT_KV_SOFTMAX512_H

#include "quant/kv/kv_tiles.h"

enum {
	KV_LANES = 16,  /* queries whose scores of a position are a vector */
	KV_SUMMED = 32, /* positions of a block of products */
	KV_BLOCKS = KV_SEGMENT / KV_SUMMED,
	KV_SCORES = KV_SEGMENT * KV_LANES, /* of 16 queries in a segment */
};

/* By 16 queries. */
struct kv_work {
	float s[2][KV_SCORES];       /* [position][query] scores */
	uint8_t w[2][2 * KV_SCORES]; /* [block][query][32 positions] weights, bf16 */
};

/* Scores of blocks [first, n) of positions to weights, both 64-byte aligned.  Positions outside of a query's [from, see)
 * get weight 0, whatever their scores.  max: the maximum of each query's scores; sum: the sum of its weights. */
typedef void kv_weights_fn(uint8_t *w, float *s, const int32_t *from, const int32_t *see, int first, int n, float scale,
                           float *max, float *sum);
kv_weights_fn kv_weights;        /* positions in their order */
kv_weights_fn kv_weights_paired; /* each four a b c d as c a d b, for dot products */

bool kv_finite_bf16(const struct kv_segment *seg, int from, int to, int dim);
void kv_merge(float *all, float *max, float *sum, const float *acc, const float *m, const float *l, int n, int dim,
              float scale);

#endif
