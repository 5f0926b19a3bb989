/* gguf.h - the number formats of GGUF files: what a tensor type is called, how long its blocks are, and the weight
 * that rows of such blocks make.
 *
 * A row is whole blocks, one after the other; a block has the codes of some inputs and, between them, their scales.
 * An element is a small integer times the scale of its group of 16 or 32 inputs (plus the group's bias), for every
 * type, also those whose codes are points of a table: so one set of integer kernels serves all of them (coding.h).
 * Values are those of the reference decoder to the bit: products of a scale and a small integer are exact in a
 * float, and where there is a bias, scale * code is rounded first and the bias added then. */
#ifndef QUANT_GGUF_H
#define QUANT_GGUF_H

#include "quant/format.h"

/* A tensor type of the container.  A row of cols elements, a multiple of block, has cols / block * block_bytes bytes. */
struct gguf_type {
	int id;                   /* as the file has it */
	const char *name;         /* "Q4_K" */
	int block, block_bytes;   /* elements and bytes of a block; of plain numbers 1 and their size */
	const struct format *fmt; /* NULL: numbers that no matrix is made of (I32 ...) */
};

/* The type of that id.  NULL: there is none in files that are read; *why says why, as "TYPE ID: WHY" may be printed. */
const struct gguf_type *gguf_type(int64_t id, const char **why);
/* By name, in any case of letters; NULL: there is none. */
const struct gguf_type *gguf_type_named(const char *name);

/* A matrix of that type, rows outputs by cols inputs, read in place at any alignment.  E_FORMAT: a shape or a number of
 * bytes that does not fit; E_UNSUPPORTED: the type is of no matrix. */
int weight_gguf(struct weight *w, const char *name, const struct gguf_type *type, int rows, int cols, const void *data,
                size_t bytes, struct err *err);

#endif
