/* codes.h - a weight as small codes and scales, whatever way its file has them, for those that lay it out anew. */
#ifndef QUANT_CODES_H
#define QUANT_CODES_H

#include "quant/format.h"

/* An element is scale * (c - zero), plus bias where there is one: c is its stored code, or lut[code]. */
struct codes {
	int bits, zero; /* of a stored code; what it counts from */
	bool bias;
	const uint8_t *lut; /* [16]; NULL: none */
	int minus_zero;     /* the stored code that weight_decode gives as -0; -1: none */
};
/* false: the format has no codes (floats). */
bool weight_codes(struct codes *c, const struct weight *w);
/* Row o as the file has it: stored codes [cols]; scales and biases [cols / group], these 0 where there is none.  Any
 * thread. */
void weight_codes_row(uint8_t *code, float *scale, float *bias, const struct weight *w, int o);

#endif
