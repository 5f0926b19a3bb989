/* kv_layout.h - how the rows of a cache format are made of bits, for backends with kernels of their own; docs/kv-cache.md. */
#ifndef QUANT_KV_LAYOUT_H
#define QUANT_KV_LAYOUT_H

#include <stdint.h>

#include "quant/format.h"

/* Numbers of 32 or 16 bits (f32, bf16), or codes of `bits`: `group` of them share a scale and a bias; of a rotated row all share
 * one scale, and name entries of a book. */
struct kv_layout {
	int bits, group; /* group 0: plain numbers, or a rotated row */
	float unit;      /* what multiplies the book for a vector whose squares have a mean of 1; 0: not rotated */
	int8_t book[16]; /* 1 << bits entries, rising */
	uint16_t negative[2][32]; /* the rotation: in each round bit i of word w changes the sign of element 16 w + i */
};
/* f: one of kv_formats; dim: of heads that it has rows for. */
struct kv_layout kv_layout_of(const struct kv_format *f, int dim);

#endif
