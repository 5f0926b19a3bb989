/* packed_layout.h - inside quant/: where the blocks of packed weights (packed.h, packed.c) lie, and what is in them. */
#ifndef QUANT_PACKED_LAYOUT_H
#define QUANT_PACKED_LAYOUT_H

#include <stdatomic.h>

#include "quant/coding.h"
#include "quant/packed.h"

/* Rows of a GGUF type are packed as planes (planes.h): bytes of the scales of 16 outputs, bytes of the codes of 16
 * outputs by 64 inputs. */
size_t planes_head(const struct weight *w);
size_t planes_code_bytes(const struct coding *c);

/* A block is BLOCK_OUT outputs by BLOCK_INPUTS inputs: lines of code words and one of scales, or lines of pairs of
 * bf16. */
enum { BLOCK_INPUTS = 64, BLOCK_LINE = 64, BLOCK_PAIRS = BLOCK_INPUTS / 2 };
static inline size_t packed_block_bytes(const struct weight *w)
{
	const struct coding *c = w->fmt->coding;

	if (c && c->block)
		return planes_code_bytes(c);
	return (c ? (size_t)c->bits * 2 + 1 : BLOCK_PAIRS) * BLOCK_LINE;
}
/* Bytes before the blocks of 16 outputs. */
static inline size_t packed_head(const struct weight *w)
{
	return w->fmt->coding && w->fmt->coding->block ? planes_head(w) : 0;
}
/* Bytes from 16 outputs to the next 16. */
static inline size_t packed_step(const struct weight *w)
{
	return packed_head(w) + (size_t)(w->cols / BLOCK_INPUTS) * packed_block_bytes(w);
}
/* The packed form of w, from its first row on.  NULL: w is not packed (yet), or its first row is inside a block. */
static inline const uint8_t *packed_of(const struct weight *w)
{
	const uint8_t *at = w->packed ? atomic_load_explicit(&w->packed->at, memory_order_acquire) : NULL;

	if (!at || !w->packed_row0)
		return at;
	return w->packed_row0 % BLOCK_OUT ? NULL : at + (size_t)(w->packed_row0 / BLOCK_OUT) * packed_step(w);
}
/* The block of output o and inputs 64 g .. 64 g + 63; blocks: packed_of(w). */
static inline const uint8_t *packed_at(const struct weight *w, const uint8_t *blocks, int o, int g)
{
	return blocks + (size_t)(o / BLOCK_OUT) * packed_step(w) + packed_head(w) + (size_t)g * packed_block_bytes(w);
}
/* Snapshot of w for one product: if the packed form appears while the product runs, it is ignored.  copy: storage for
 * the snapshot. */
static inline const struct weight *packed_settled(struct weight *copy, const struct weight *w)
{
	*copy = *w;
	copy->packed = NULL;
	return packed_of(w) ? w : copy;
}
/* Row o as the file has it, and the scale and bias of one of its groups, read from the blocks of w. */
void packed_read_row(uint8_t *row, const struct weight *w, const uint8_t *blocks, int o);
void packed_read_scale(float *scale, float *bias, const struct weight *w, const uint8_t *blocks, int o, int g);

#endif
