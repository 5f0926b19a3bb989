/* coded_table.h - inside quant/: the table by which a level chooses its kernel for a weight of small codes. */
#ifndef QUANT_CODED_TABLE_H
#define QUANT_CODED_TABLE_H

#include <limits.h>

#include "quant/coded/coded_kernels.h"

/* How a weight lies in memory. */
enum layout {
	PACKED,    /* blocks of codes in groups of 64 (packed.c) */
	PLANES_32, /* packed GGUF types (planes.h) with groups of 32 */
	PLANES_16, /* packed GGUF types with groups of 16 */
	ROWS_G64,  /* rows as the file has them, of weights that coded_is_g64 names */
	ROWS_32,   /* other rows: groups of a multiple of 32, and at most half of what tiles unpack at a time */
	ROWS_16,   /* other rows: groups of a multiple of 16 */
	ROWS_ANY,
	LAYOUTS
};

/* A kernel, and the most rows of activations that it is used for; the next range has the kernel for more. */
enum { RANGES = 3, ANY = INT_MAX };
struct coded_range {
	int rows;
	weight_mul_fn *mul;
};
typedef const struct coded_range coded_table[LAYOUTS][RANGES];

/* weight_mul_fn by a table. */
void coded_table_mul(coded_table table, float *out, size_t ld, const struct weight *weight, int o0, int o1,
                     const struct acts *x, int r0, int r1, void *scratch);

/* struct kernels holds functions without a level, so each table has one. */
#define CODED_MUL(level)                                                                                            \
	void coded_mul_##level(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, \
	                       int r0, int r1, void *scratch)                                                       \
	{                                                                                                           \
		coded_table_mul(table_##level, out, ld, w, o0, o1, x, r0, r1, scratch);                             \
	}

#endif
