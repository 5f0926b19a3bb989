/* foreign.h - matrices as other quantisers leave them: FP8 with scales by block, row or tensor, AWQ, GPTQ, and
 * compressed-tensors.  Inside src/store/.
 *
 * What a matrix is, its tensors say: config.json adds the bits of a code and how GPTQ counts its zeros.  Codes become
 * those of the formats that there are, affine groups and fp8, with the same values to the bit: an affine group's scale
 * and bias are floats s and -z s, whose sum with a code is (q - z) s without a rounding where s has 16 bits.  Where the
 * file's codes lie as a format wants them they are read in place; else they are laid out once, in memory. */
#ifndef STORE_FOREIGN_H
#define STORE_FOREIGN_H

#include "store/quantised.h"

/* Reads what config.json says under quant_method fp8, awq, gptq or compressed-tensors; false for another method. */
bool foreign_read_config(struct store *st, const struct json *section, const char *method, struct err *err, int *code);

/* The matrix at path, if it is of this kind: *is says so, and then the result counts. */
int foreign_matrix(struct store *st, const char *path, const struct wanted *m, struct weight *out, bool *is,
                   struct err *err);

/* Are w and its scales s, which are path.weight and path.scale, mxfp4 as DeepSeek V4's experts have it?  quantised.c reads such a
 * matrix. */
bool foreign_is_mxfp4(const struct tensor *w, const struct tensor *s);

/* Whether there is a matrix of this kind at path. */
bool foreign_has(const struct store *st, const char *path);

/* Corrects tensor.elements of matrices in these formats, and names their tensors that weft does not read. */
void foreign_count_elements(struct store *st);

#endif
