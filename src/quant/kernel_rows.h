/* kernel_rows.h - inside quant/: numbers of rows and outputs that kernels of several folders agree on, and how a file
 * defines a kernel for each number of rows. */
#ifndef QUANT_KERNEL_ROWS_H
#define QUANT_KERNEL_ROWS_H

enum {
	OUT_ONCE = 16, /* outputs that kernels of few rows read at a time */
	FEW_ROWS = 8,  /* rows whose sums a kernel of few rows keeps in registers */
	FEW_TWICE = 2 *
	            FEW_ROWS, /* rows that a kernel of few rows takes in two halves, the second from cached weights */
	FEW_PLANES = 8 * FEW_ROWS, /* rows that the kernels of planes take, in as many turns as registers ask for */
	TILED_ROWS = 256,          /* rows that a kernel takes in one go where they come as tiles */
};

/* A kernel of few rows keeps the sums of all its rows in registers, so the compiler must know the number of rows: an
 * inline function takes it as an argument, and a file defines one function around it for each number:
 *
 *     #define FEW(bits, R) static void few_##bits##_##R(...) { outputs_few(..., bits, R); }
 *     ROWS_TO_8(FEW, 4)
 *     static few_fn *const few[FEW_ROWS] = { NAMES_TO_8(few_4_) };
 *
 * ROWS_TO_n(X, ...) expands to X(..., 1) to X(..., n).  NAMES_TO_n(prefix) lists prefix1 to prefix<n>: entry R - 1 takes
 * R rows. */
#define ROWS_TO_4(X, ...) X(__VA_ARGS__, 1) X(__VA_ARGS__, 2) X(__VA_ARGS__, 3) X(__VA_ARGS__, 4)
#define ROWS_TO_8(X, ...)         \
	ROWS_TO_4(X, __VA_ARGS__) \
	X(__VA_ARGS__, 5) X(__VA_ARGS__, 6) X(__VA_ARGS__, 7) X(__VA_ARGS__, 8)
#define NAMES_TO_4(prefix) NAMES_JOIN_4(prefix)
#define NAMES_TO_8(prefix) NAMES_JOIN_8(prefix)
/* Apart from the two above, so that a prefix may itself be the result of a macro. */
#define NAMES_JOIN_4(prefix) prefix##1, prefix##2, prefix##3, prefix##4
#define NAMES_JOIN_8(prefix) NAMES_JOIN_4(prefix), prefix##5, prefix##6, prefix##7, prefix##8

#endif
