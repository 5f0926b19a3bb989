/* chunks.h - loops over n floats, sixteen at a time, with the rest masked.  Inside backend/cpu/, for the
 * sources that are compiled once per level over quant/lanes/lanes.h. */
#ifndef BACKEND_CPU_CHUNKS_H
#define BACKEND_CPU_CHUNKS_H

/* Runs body for each 16 of n with i the first and m how many: twice in the program, first for whole sixteens, without masks. */
#define CHUNKS(n)                                                                                                \
	_Pragma("GCC unroll 2") for (int whole = 1; whole >= 0;                                                  \
	                             whole--) for (int i = whole ? 0 : (n) / 16 * 16, m = whole ? 16 : (n) % 16; \
	                                           i < (whole ? (n) / 16 * 16 : (n)); i += 16)

/* Loops over n elements V vectors at a time, first LANES_ABREAST (exponentials are fastest so), then one. */
#define CHUNKS_ABREAST(n)                                                                                          \
	_Pragma("GCC unroll 3") for (int step = 2, i = 0; step >= 0;                                               \
	                             step--) for (int V = step == 2 ? LANES_ABREAST : 1, m = step ? 16 : (n) % 16; \
	                                          step ? i + 16 * V <= (n) : i < (n); i += 16 * V)

#endif
