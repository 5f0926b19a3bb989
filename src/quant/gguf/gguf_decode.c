/* gguf_decode.c - rows of blocks, packed or not, as floats. */
#include "quant/coded/packed_layout.h"
#include "quant/gguf/gguf_types.h"

/* One group, of codes as they are multiplied. */
static void group_values(float *out, const uint8_t *code, const struct weight *w, float scale, float bias)
{
	const struct coding *c = w->fmt->coding;

	for (int i = 0; i < w->group; i++) {
		out[i] = scale * (float)(code[i] - c->zero);
		if (c->bias)
			out[i] += bias;
	}
}

/* Where there are blocks (packed.h), which a product reads and nothing else. */
static void decode_planes(float *out, const struct weight *w, int o)
{
	/* The codes wait in the last quarter of out: float i covers bytes up to 4 i + 3, and code j > i lies at 3 cols + j. */
	uint8_t *code = (uint8_t *)out + 3 * (size_t)w->cols;

	coding_row(code, w, o);
	for (int g = 0; g < w->cols / w->group; g++, out += w->group, code += w->group) {
		float scale, bias;
		uint8_t group[FILE_BLOCK_MOST];

		coding_scale(&scale, &bias, w, o, g);
		memcpy(group, code, (size_t)w->group);
		group_values(out, group, w, scale, bias);
	}
}

void gguf_decode(float *out, const struct weight *w, int o)
{
	const struct coding *c = w->fmt->coding;
	const struct file_block *b = c->block;
	float scale[FILE_BLOCK_GROUPS], bias[FILE_BLOCK_GROUPS];
	uint8_t code[FILE_BLOCK_MOST];

	if (packed_of(w)) {
		decode_planes(out, w, o);
		return;
	}
	for (int k = 0; k < w->cols; k += b->length, out += b->length) {
		file_block_codes(code, w, o, k, b->length);
		file_block_scales(scale, bias, w, o, k / w->group, b->length / w->group);
		for (int i = 0; i < b->length && c->lut; i++)
			code[i] = c->lut[code[i]];
		for (int i = 0; i < b->length; i += w->group)
			group_values(out + i, code + i, w, scale[i / w->group], bias[i / w->group]);
	}
}
