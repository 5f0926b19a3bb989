/* basis.h - weights stored in another basis of their inputs.
 *
 * Published ternary models store W' = (W P^T S) H instead of W: H is the normalised Walsh-Hadamard matrix on blocks of
 * inputs, S a sign for each input, P an order of heads.  A product is W' (H S P x): the input is turned, once for all
 * products that share it, and then multiplied like any other.  Butterflies go from neighbours outwards and the factor
 * comes last, so a turned row has the same bits at every level and in every batch.
 *
 * H is symmetric and its own inverse.  The keys in files: docs/formats.md. */
#ifndef QUANT_BASIS_H
#define QUANT_BASIS_H

#include "quant/format.h"

struct basis {
	int cols, block;   /* block: a power of two that divides cols */
	const float *sign; /* [cols] of 1 and -1; NULL: all 1 */
	/* P moves heads of `head` inputs: head j * heads_k + k becomes head k * (heads / heads_k) + j.  head 0: P moves
	 * nothing. */
	int head, heads_k;
};

/* out[cols] = H S P x; out is not x.  The level's kernels do not change the bits. */
void basis_turn(const struct basis *b, const struct vec_kernels *k, float *out, const float *x);
/* x[cols] = P^T S H x: a row of a weight, or a looked-up embedding, in the basis of the inputs. */
void basis_undo(const struct basis *b, float *x);

#endif
