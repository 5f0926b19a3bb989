/* coding.h - inside quant/: a weight whose elements are small codes, as integer kernels see it. */
#ifndef QUANT_CODING_H
#define QUANT_CODING_H

#include "quant/format.h"

/* Weights whose elements are small codes: value = scale * (code - zero) + bias,
 * with one scale (and bias) per group.  The integer kernels see only this. */
struct coding {
	int bits;           /* of a stored code; a little-endian bit stream along the row, unless there is block */
	int most;           /* the largest code */
	int zero;           /* subtracted from the code */
	const uint8_t *lut; /* [16], up to 4 bits: stored code to code; NULL: the same */
	float scale_unit;   /* multiplies the stored scale; a power of 2 */
	bool bias;
	/* Rows that have codes and scales between one another, in blocks; NULL: struct weight says where scales are. */
	const struct file_block *block;
};

/* A block of such a row, as the file has it: readers in plain C, which are the truth. */
enum { FILE_BLOCK_MOST = 256, FILE_BLOCK_GROUPS = 16 }; /* elements and groups of one at most */
struct file_block {
	int length, bytes, group;                       /* elements, bytes; elements that share a scale */
	void (*codes)(uint8_t *code, const uint8_t *b); /* stored codes: [length] */
	/* [length / group]; bias is left as it is where the coding has none. */
	void (*scales)(float *scale, float *bias, const uint8_t *b);
};
/* Stored codes of inputs [k, k + n) of row o; scales and biases of groups [g, g + n).  Whole blocks. */
void file_block_codes(uint8_t *code, const struct weight *w, int o, int k, int n);
void file_block_scales(float *scale, float *bias, const struct weight *w, int o, int g, int n);
/* Scales and biases of all groups of outputs o .. o + n - 1, n <= 16, to lanes 0 .. n - 1 of scale[g * step], the rest 0. */
void file_block_lanes(float *scale, float *bias, size_t step, const struct weight *w, int o, int n);

enum { OUT_ONCE = 16 }; /* outputs that kernels of few rows read at a time */

/* The codes of row o, lut applied: cols bytes. */
void coding_row(uint8_t *out, const struct weight *w, int o);
/* Scale and bias of one group of row o; *bias is 0 when there is none. */
void coding_scale(float *scale, float *bias, const struct weight *w, int o, int g);

#endif
