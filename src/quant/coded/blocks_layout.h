/* blocks_layout.h - inside quant/: where blocks of weights (blocks.h, blocks.c) and what is in them lie. */
#ifndef QUANT_BLOCKS_LAYOUT_H
#define QUANT_BLOCKS_LAYOUT_H

#include <stdatomic.h>

#include "quant/coded/blocks.h"
#include "quant/coded/coding.h"

/* Rows that are blocks of a file become planes instead (planes.h): the bytes of 16 outputs' scales, those of 64 inputs. */
size_t planes_head(const struct weight *w);
size_t planes_code_bytes(const struct coding *c);

/* Of codes words and scales, of bf16 pairs. */
enum { BLOCK_INPUTS = 64, BLOCK_LINE = 64, BLOCK_PAIRS = BLOCK_INPUTS / 2 };
static inline size_t block_bytes(const struct weight *w)
{
	const struct coding *c = w->fmt->coding;

	if (c && c->block)
		return planes_code_bytes(c);
	return (c ? (size_t)c->bits * 2 + 1 : BLOCK_PAIRS) * BLOCK_LINE;
}
/* What stands before the blocks of 16 outputs. */
static inline size_t blocks_head(const struct weight *w)
{
	return w->fmt->coding && w->fmt->coding->block ? planes_head(w) : 0;
}
static inline size_t blocks_of_rows(const struct weight *w)
{
	return blocks_head(w) + (size_t)(w->cols / BLOCK_INPUTS) * block_bytes(w);
}
/* Those of w, from its first row on; NULL: none, or they do not begin there. */
static inline const uint8_t *blocks_of(const struct weight *w)
{
	const uint8_t *at = w->blocks ? atomic_load_explicit(&w->blocks->at, memory_order_acquire) : NULL;

	return at && w->blocks_row % BLOCK_OUT == 0 ? at + (size_t)(w->blocks_row / BLOCK_OUT) * blocks_of_rows(w) :
	                                              NULL;
}
/* The one that has output o, of inputs 64 g and on. */
static inline const uint8_t *block_at(const struct weight *w, const uint8_t *blocks, int o, int g)
{
	return blocks + (size_t)(o / BLOCK_OUT) * blocks_of_rows(w) + blocks_head(w) + (size_t)g * block_bytes(w);
}
/* w as a product has it from its beginning to its end: blocks that come meanwhile are not for it.  rows: room. */
static inline const struct weight *blocks_settled(struct weight *rows, const struct weight *w)
{
	*rows = *w;
	rows->blocks = NULL;
	return blocks_of(w) ? w : rows;
}
/* Out of them row o as the file has it; a group's scale and bias. */
void block_row(uint8_t *row, const struct weight *w, const uint8_t *blocks, int o);
void block_scale(float *scale, float *bias, const struct weight *w, const uint8_t *blocks, int o, int g);

#endif
