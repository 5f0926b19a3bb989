/* work.h - sizes of work memory, as pass_floats hands it out.  Inside src/model/. */
#ifndef MODEL_WORK_H
#define MODEL_WORK_H

#include <stddef.h>

/* Floats that a [rows][cols] buffer takes, alignment to 64 bytes included. */
static inline size_t work_floats_of(int rows, int cols)
{
	return ((size_t)rows * (size_t)cols + 15) / 16 * 16;
}

static inline size_t work_max(size_t a, size_t b)
{
	return a > b ? a : b;
}

#endif
