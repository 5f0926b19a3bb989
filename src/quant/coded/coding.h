/* coding.h - inside quant/: a weight whose elements are small codes, as integer kernels see it. */
#ifndef QUANT_CODING_H
#define QUANT_CODING_H

#include "quant/format.h"

/* Weights whose elements are small codes: value = scale * (code - zero) + bias,
 * with one scale (and bias) per group.  The integer kernels see only this. */
struct coding {
	int bits;           /* of a stored code; a little-endian bit stream along the row */
	int zero;           /* subtracted from the code */
	const uint8_t *lut; /* [16], 4 bits only: stored code to code; NULL: the same */
	float scale_unit;   /* multiplies the stored scale; a power of 2 */
	bool bias;
};

enum { OUT_ONCE = 16 }; /* outputs that kernels of few rows read at a time */

/* The codes of row o, lut applied: cols bytes. */
void coding_row(uint8_t *out, const struct weight *w, int o);
/* Scale and bias of one group of row o; *bias is 0 when there is none. */
void coding_scale(float *scale, float *bias, const struct weight *w, int o, int g);

#endif
