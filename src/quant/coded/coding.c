/* coding.c - codes and scales of a weight read in plain C, wherever it has them: in rows, in the blocks of a file,
 * packed.  This is what the kernels' ways of reading are compared with. */
#include <string.h>

#include "quant/codes.h"
#include "quant/coded/planes.h"

const uint8_t e2m1_code[16] = { 12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0 };

/* Stored codes to codes. */
static void code_values(uint8_t *code, const struct coding *c, int n)
{
	for (int i = 0; i < n && c->lut; i++)
		code[i] = c->lut[code[i]];
}

/* Stored codes of a row that is one stream of bits. */
static void stream_codes(uint8_t *out, const struct weight *w, const uint8_t *p)
{
	const struct coding *c = w->fmt->coding;
	unsigned mask = (1u << c->bits) - 1;

	if (c->bits == 8) {
		if (p != out)
			memcpy(out, p, (size_t)w->cols);
		return;
	}
	for (int i = 0; i < w->cols; i++) {
		size_t bit = (size_t)i * (size_t)c->bits;
		unsigned shift = bit & 7, v = p[bit >> 3] >> shift;

		if (shift + (unsigned)c->bits > 8)
			v |= (unsigned)p[(bit >> 3) + 1] << (8 - shift);
		out[i] = (uint8_t)(v & mask);
	}
}

void coding_row(uint8_t *out, const struct weight *w, int o)
{
	const struct coding *c = w->fmt->coding;
	const uint8_t *p = w->data + (size_t)o * w->row_bytes, *blocks = packed_of(w);

	if (c->block && blocks) {
		planes_row(out, w, blocks, o);
		return;
	}
	if (c->block) {
		file_block_codes(out, w, o, 0, w->cols);
		code_values(out, c, w->cols);
		return;
	}
	if (blocks) { /* to the end of out, so that a byte's result is never before the byte */
		uint8_t *row = out + (size_t)w->cols - (size_t)w->cols * (size_t)c->bits / 8;

		packed_read_row(row, w, blocks, o);
		p = row;
	}
	stream_codes(out, w, p);
	code_values(out, c, w->cols);
}

/* Out of the block that has group g. */
static void one_scale(float *scale, float *bias, const struct weight *w, int o, int g)
{
	float scales[FILE_BLOCK_GROUPS], biases[FILE_BLOCK_GROUPS] = { 0 };
	int groups = w->fmt->coding->block->length / w->group;

	file_block_scales(scales, biases, w, o, g / groups * groups, groups);
	*scale = scales[g % groups];
	*bias = biases[g % groups];
}

/* Scale and bias `at` of the lists that lie apart from the rows. */
static void listed_scale(float *scale, float *bias, const struct weight *w, size_t at)
{
	const struct coding *c = w->fmt->coding;

	at *= (size_t)dtype_size(w->scale_type);
	*bias = 0.0f;
	if (w->scale_type == DT_F8_E4M3)
		*scale = e4m3_mlx(w->scales[at]);
	else
		dtype_to_float(scale, w->scales + at, w->scale_type, 1);
	*scale *= c->scale_unit;
	if (c->bias)
		dtype_to_float(bias, w->biases + at, w->scale_type, 1);
}

void coding_scale(float *scale, float *bias, const struct weight *w, int o, int g)
{
	const struct coding *c = w->fmt->coding;
	const uint8_t *blocks = packed_of(w);

	if (c->block && blocks) {
		planes_scale(scale, bias, w, blocks, o, g);
		return;
	}
	if (blocks) {
		packed_read_scale(scale, bias, w, blocks, o, g);
		return;
	}
	if (c->block) {
		one_scale(scale, bias, w, o, g);
		return;
	}
	listed_scale(scale, bias, w, (size_t)o * (size_t)(w->cols / w->group) + (size_t)g);
}

/* ---- codes.h ---- */

bool weight_codes(struct codes *to, const struct weight *w)
{
	const struct coding *c = w->fmt->coding;

	if (!c)
		return false;
	*to = (struct codes){ .bits = c->bits, .zero = c->zero, .bias = c->bias, .lut = c->lut, .minus_zero = -1 };
	while (!c->lut && c->most >> to->bits)
		to->bits++;
	if (c->lut == e2m1_code && !c->block)
		to->minus_zero = 8;
	return true;
}

void weight_codes_row(uint8_t *code, float *scale, float *bias, const struct weight *w, int o)
{
	int groups = w->cols / w->group;

	if (w->fmt->coding->block) {
		memset(bias, 0, (size_t)groups * sizeof *bias);
		file_block_codes(code, w, o, 0, w->cols);
		file_block_scales(scale, bias, w, o, 0, groups);
		return;
	}
	stream_codes(code, w, w->data + (size_t)o * w->row_bytes);
	for (int g = 0; g < groups; g++)
		listed_scale(scale + g, bias + g, w, (size_t)o * (size_t)groups + (size_t)g);
}
