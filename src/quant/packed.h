/* packed.h - the packed form of a weight: its numbers once more, in the order in which kernels read them (packed.c has the
 * layouts and the reason).
 *
 * Kernels whose struct kernels says `packed` read it in place, and then nothing of the rows in the file.  The bits of the
 * products are the same, so the packed form may appear at any time, also while products run. */
#ifndef QUANT_PACKED_H
#define QUANT_PACKED_H

#include "quant/format.h"

/* at: NULL while there is no packed form.  Its maker stores the address once, with release, when all bytes are written;
 * aligned to 64 bytes.  The bytes stay until the last product has ended. */
struct packed {
	const uint8_t *_Atomic at;
};

/* For w, a whole tensor: whether it has a packed form; the bytes of that form, a multiple of 64; and writing rows
 * [first, first + n), multiples of BLOCK_OUT, to `to`.  Any thread. */
enum { BLOCK_OUT = 16 };
/* Do rows of w carry their scales between their codes?  Kernels of few rows then go through the rows several times as slowly as
 * through the packed form; through other rows hardly more slowly. */
bool packed_rows_slow(const struct weight *w);
bool packed_fit(const struct weight *w);
size_t packed_bytes(const struct weight *w);
void packed_fill(uint8_t *to, const struct weight *w, int first, int n);

#endif
