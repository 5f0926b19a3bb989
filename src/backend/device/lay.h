/* lay.h - weights as kernels read them (kernels/coded.cl): a permutation of the codes, and scales and biases as floats. */
#ifndef BACKEND_DEVICE_LAY_H
#define BACKEND_DEVICE_LAY_H

#include <stddef.h>
#include <stdint.h>

#include "quant/format.h"

/* Outputs are filled up with zeros to a multiple of this: the tiles of the widest kernel. */
enum { LAY_OUTPUTS = 64 };

/* The module that multiplies w, "affine4_64"; NULL: kernels/modules has none. */
const char *lay_module(const struct weight *w);
static inline int lay_outputs(const struct weight *w)
{
	return (w->rows + LAY_OUTPUTS - 1) / LAY_OUTPUTS * LAY_OUTPUTS;
}
/* Bytes of the codes and of the scales, of a weight that has a module. */
size_t lay_code_bytes(const struct weight *w);
size_t lay_scale_bytes(const struct weight *w);
/* Writes both. */
void lay_coded(uint32_t *codes, float *scales, const struct weight *w);

#endif
