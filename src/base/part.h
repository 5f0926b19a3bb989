/* part.h - how n things are cut into parts that differ by at most one. */
#ifndef BASE_PART_H
#define BASE_PART_H

#include <stdint.h>

/* The first thing of part i of `of`, 0 <= i <= of; it is n where i == of, so part i ends where part i + 1 begins. */
static inline int part_begin(int n, int i, int of)
{
	return (int)((int64_t)n * i / of);
}

#endif
