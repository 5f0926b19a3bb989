/* packed.c - weights in blocks of 16 outputs by 64 inputs, which kernels read as they lie.
 *
 * Rows of a file are four streams of memory to a kernel that reads a few of them: codes of two runs
 * of outputs, scales and biases, in lines that end anywhere; and outputs become lanes only by turning
 * what was read.  A block is whole lines instead: of each 32 bits of a group of codes those of 16 outputs
 * side by side, [group's words][16], 8 lines of 4 bits or 16 of 8, and a line of 16 times scale and bias,
 * 16 bits each.  A word of 4 bits has codes 0 to 3 in the lower halves of its bytes and 4 to 7 in the upper
 * ones, so that either, masked, is four codes as inputs have them.  Blocks of 16 outputs follow each other by groups,
 * and those of the next 16 outputs follow them: whatever a kernel reads of a matrix is one run of memory.
 *
 * Rows that carry their scales become planes (planes.h).
 *
 * For bf16 a block is 32 lines of pairs of inputs of the 16 outputs, 32 bits each, as bf16_dots512.h multiplies them:
 * of inputs a b c d, one after the other, first c (the lower half) and a, then d and b. */
#include <assert.h>
#include <string.h>

#include "quant/coded/planes.h"

bool packed_fit(const struct weight *w)
{
	bool codes = w->fmt->coding && coded_is_g64(w) && w->scale_type == DT_BF16;

	if (planes_fit(w))
		return true;
	return (codes || (w->fmt->pairs && w->cols % BLOCK_INPUTS == 0)) && w->rows % BLOCK_OUT == 0;
}

bool packed_rows_slow(const struct weight *w)
{
	return w->fmt->coding && w->fmt->coding->block;
}

size_t packed_bytes(const struct weight *w)
{
	return (size_t)(w->rows / BLOCK_OUT) * packed_step(w);
}

/* Nibbles 0 to 3 of a word to bytes. */
static uint32_t spread(uint32_t v)
{
	v = (v | v << 8) & 0x00ff00ff;
	return (v | v << 4) & 0x0f0f0f0f;
}

static uint32_t gather(uint32_t v)
{
	v = (v & 0x000f000f) | (v >> 4 & 0x00f000f0);
	return (v | v >> 8) & 0xffff;
}

/* A word as the file has it to one of a block, and back. */
static uint32_t word_in(uint32_t v, int bits)
{
	return bits == 8 ? v : spread(v & 0xffff) | spread(v >> 16) << 4;
}
static uint32_t word_out(uint32_t v, int bits)
{
	return bits == 8 ? v : gather(v & 0x0f0f0f0f) | gather(v >> 4 & 0x0f0f0f0f) << 16;
}

static void copy_word(uint8_t *to, const uint8_t *from, uint32_t (*fn)(uint32_t, int), int bits)
{
	uint32_t v;

	memcpy(&v, from, sizeof v);
	v = fn(v, bits);
	memcpy(to, &v, sizeof v);
}

/* Output o, at its place of the block's first line. */
static void fill_codes(uint8_t *at, const struct weight *w, int o)
{
	size_t words = (size_t)w->fmt->coding->bits * 2, groups = (size_t)(w->cols / BLOCK_INPUTS);
	enum { WORD = 4, HALF = 2 };
	const uint8_t *row = w->data + (size_t)o * w->row_bytes;
	const uint8_t *scale = w->scales + (size_t)o * groups * HALF, *bias = w->biases + (size_t)o * groups * HALF;

	for (size_t g = 0; g < groups; g++, scale += HALF, bias += HALF) {
		for (size_t i = 0; i < words; i++, row += WORD, at += BLOCK_LINE)
			copy_word(at, row, word_in, w->fmt->coding->bits);
		memcpy(at, scale, HALF);
		memcpy(at + HALF, bias, HALF);
		at += BLOCK_LINE;
	}
}

/* Inputs of four to two lines, and back. */
enum { FOUR = 4 * sizeof(uint16_t) };
static void four_in(uint8_t *at, const uint8_t *from)
{
	uint16_t x[4];

	memcpy(x, from, FOUR);
	memcpy(at, (uint16_t[]){ x[2], x[0] }, FOUR / 2);
	memcpy(at + BLOCK_LINE, (uint16_t[]){ x[3], x[1] }, FOUR / 2);
}

static void four_out(uint8_t *to, const uint8_t *at)
{
	uint16_t ca[2], db[2];

	memcpy(ca, at, FOUR / 2);
	memcpy(db, at + BLOCK_LINE, FOUR / 2);
	memcpy(to, (uint16_t[]){ ca[1], db[1], ca[0], db[0] }, FOUR);
}

/* 16 outputs from o on, a block after the other. */
static void fill_pairs(uint8_t *to, const struct weight *w, int o)
{
	const uint8_t *from = w->data + (size_t)o * w->row_bytes;
	enum { BYTES = BLOCK_INPUTS * 2 };

	for (int g = 0; g < w->cols / BLOCK_INPUTS; g++, from += BYTES, to += BLOCK_PAIRS * BLOCK_LINE)
		for (size_t i = 0; i < BLOCK_OUT; i++)
			for (size_t k = 0; k < BYTES / FOUR; k++)
				four_in(to + 4 * i + 2 * BLOCK_LINE * k, from + i * w->row_bytes + FOUR * k);
}

void packed_fill(uint8_t *to, const struct weight *w, int first, int n)
{
	assert(packed_fit(w) && first % BLOCK_OUT == 0 && n % BLOCK_OUT == 0);
	for (int o = first; o < first + n; o += BLOCK_OUT, to += packed_step(w))
		if (!w->fmt->coding)
			fill_pairs(to, w, o);
		else if (w->fmt->coding->block)
			planes_fill(to, w, o);
		else
			for (int i = 0; i < BLOCK_OUT; i++)
				fill_codes(to + 4 * i, w, o + i);
}

void packed_read_row(uint8_t *row, const struct weight *w, const uint8_t *blocks, int o)
{
	const struct coding *c = w->fmt->coding;
	const uint8_t *at = packed_at(w, blocks, o, 0) + (size_t)(o % BLOCK_OUT) * 4;

	if (!c) {
		for (int i = 0; i < w->cols / 4; i++, row += FOUR, at += 2 * BLOCK_LINE)
			four_out(row, at);
		return;
	}
	for (int g = 0; g < w->cols / BLOCK_INPUTS; g++, at += BLOCK_LINE)
		for (int i = 0; i < 2 * c->bits; i++, row += 4, at += BLOCK_LINE)
			copy_word(row, at, word_out, c->bits);
}

void packed_read_scale(float *scale, float *bias, const struct weight *w, const uint8_t *blocks, int o, int g)
{
	const uint8_t *at = packed_at(w, blocks, o, g + 1) - BLOCK_LINE + (size_t)(o % BLOCK_OUT) * 4;

	dtype_to_float(scale, at, DT_BF16, 1);
	dtype_to_float(bias, at + 2, DT_BF16, 1);
}
