/* kernel_rows.h - inside quant/: numbers of rows and outputs that kernels of several folders agree on. */
#ifndef QUANT_KERNEL_ROWS_H
#define QUANT_KERNEL_ROWS_H

enum {
	OUT_ONCE = 16,            /* outputs that kernels of few rows read at a time */
	FEW_ROWS = 8,             /* rows whose sums a kernel of few rows keeps in registers */
	FEW_TWICE = 2 * FEW_ROWS, /* rows that such a kernel takes in two halves, the second out of a cache */
	TILED_ROWS = 256,         /* rows that a kernel takes in one go where they come as tiles */
};

#endif
