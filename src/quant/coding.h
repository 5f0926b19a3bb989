/* coding.h - inside quant/: a weight whose elements are small codes, as integer kernels see it. */
#ifndef QUANT_CODING_H
#define QUANT_CODING_H

#include "quant/format.h"

/* Weights whose elements are small codes: value = scale * (code - zero) + bias,
 * with one scale (and bias) per group.  The integer kernels see only this. */
struct coding {
	/* Bits of a stored code.  Codes are a little-endian bit stream along the row, unless there is block.  In
	 * blocks, codes of one bit are 0 and 2. */
	int bits;
	int most;           /* the largest code */
	int zero;           /* subtracted from the code */
	const uint8_t *lut; /* [16], up to 4 bits: stored code to code; NULL: the same */
	float scale_unit;   /* multiplies the stored scale; a power of 2 */
	bool bias;
	/* Rows that have codes and scales between one another, in blocks; NULL: struct weight says where scales are. */
	const struct file_block *block;
	/* A block's codes of 4 bits, two in a byte: where these begin, and how many bytes hold the lower codes' inputs
	 * and then the upper codes'; run 0: they lie otherwise. */
	int nibbles_at, nibbles_run;
};

/* Kinds of scales in a file's block, and how a group's scale (and bias) follows from them; d and m are f16 numbers of
 * the block. */
enum scale_kind {
	SCALE_HALF,      /* d, the block's first two bytes; a block is a group */
	SCALE_HALVES,    /* d and, as bias, m, the first four; a block is a group */
	SCALE_BLOCK,     /* d, for all groups of the block */
	SCALE_TIMES,     /* d times the group's s, an int8, times scale_unit */
	SCALE_TIMES_MIN, /* d times the group's s, bias - m times its min, both uint8 */
	SCALE_E8M0,      /* 2^(s - 128), s a byte: half of what E8M0 says, for codes that are doubled */
	SCALE_UE4M3,     /* half of E4M3 s, whose sign counts for nothing and whose 0x7f is 0 */
};
enum { FILE_BLOCK_MOST = 256, FILE_BLOCK_GROUPS = 16 }; /* elements and groups of one at most */
struct scale_parts {
	uint16_t d, m;
	uint8_t s[FILE_BLOCK_GROUPS], min[FILE_BLOCK_GROUPS];
};
/* A block of a row as the file has it, with its readers in plain C, which define its values. */
struct file_block {
	int length, bytes, group; /* elements, bytes; elements that share a scale */
	enum scale_kind kind;
	void (*codes)(uint8_t *code, const uint8_t *b);          /* stored codes: [length] */
	void (*scales)(struct scale_parts *p, const uint8_t *b); /* those members that the kind has */
};
/* The scale and bias of group g of a block. */
void scale_of_parts(float *scale, float *bias, const struct coding *c, const struct scale_parts *p, int g);
/* Stored codes of inputs [k, k + n) of row o; scales and biases of groups [g, g + n).  Whole blocks. */
void file_block_codes(uint8_t *code, const struct weight *w, int o, int k, int n);
void file_block_scales(float *scale, float *bias, const struct weight *w, int o, int g, int n);
/* Scales and biases of all groups of outputs o .. o + n - 1, n <= 16, to lanes 0 .. n - 1 of scale[g * step], the rest
 * 0. */
void file_block_lanes(float *scale, float *bias, size_t step, const struct weight *w, int o, int n);

/* The commonest weights: affine codes of 4 or 8 bits in groups of 64, whole lines of them. */
static inline bool coded_is_g64(const struct weight *w)
{
	const struct coding *c = w->fmt->coding;

	return w->group == 64 && c->bias && !c->lut && !c->zero && (c->bits == 4 || c->bits == 8) &&
	       w->row_bytes % 64 == 0;
}

/* The codes of E2M1 numbers: twice the number plus 12. */
extern const uint8_t e2m1_code[16];

/* The codes of row o, lut applied: cols bytes. */
void coding_row(uint8_t *out, const struct weight *w, int o);
/* Scale and bias of one group of row o; *bias is 0 when there is none. */
void coding_scale(float *scale, float *bias, const struct weight *w, int o, int g);

#endif
