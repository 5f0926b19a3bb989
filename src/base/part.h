/* part.h - n things cut evenly into parts. */
#ifndef BASE_PART_H
#define BASE_PART_H

#include <stdint.h>

/* Where part i of `of` begins; part `of` begins at n. */
static inline int part_begin(int n, int i, int of)
{
	return (int)((int64_t)n * i / of);
}

#endif
