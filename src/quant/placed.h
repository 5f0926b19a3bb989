/* placed.h - host memory of a model that operations will be given pointers into: what a
 * store lists and a backend is told of (backend.h, place). */
#ifndef QUANT_PLACED_H
#define QUANT_PLACED_H

#include <limits.h>

#include "base/file.h"
#include "quant/format.h"

enum { PLACED_NO_LAYER = INT_MAX };

struct placed {
	const uint8_t *p; /* host address: in operations it names the bytes, wherever the backend has them */
	size_t bytes;
	const struct weight *whole;  /* the matrix that begins here, if it may be packed (packed.h); else NULL */
	const struct file_map *file; /* the mapping that p lies in; NULL: none */
	int layer;    /* 1 + the layer that the tensor is of; PLACED_NO_LAYER: of none; 0: a vector, of any */
	bool mixture; /* the operation moe alone reads it */
};

#endif
