/* blocks.h - a matrix once more, in another order for kernels to read: blocks.c says which and why.
 *
 * Kernels whose struct kernels says `blocks` read them where they are, and then nothing of the rows; the
 * bits are the same.  So they may come at any time, also while others multiply. */
#ifndef QUANT_BLOCKS_H
#define QUANT_BLOCKS_H

#include "quant/format.h"

/* at NULL: they are not there, or not yet.  Whoever makes them stores it once, when all is in it, with release;
 * aligned to 64 bytes.  They stay until the last product has ended. */
struct blocks {
	const uint8_t *_Atomic at;
};

/* Can w, a whole tensor, be had in blocks; how many bytes, a multiple of 64; and those of rows
 * [first, first + n), multiples of BLOCK_OUT, at `to`.  Any thread. */
enum { BLOCK_OUT = 16 };
bool blocks_fit(const struct weight *w);
size_t blocks_bytes(const struct weight *w);
void blocks_fill(uint8_t *to, const struct weight *w, int first, int n);

#endif
