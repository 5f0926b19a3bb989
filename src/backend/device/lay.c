/* lay.c - see lay.h. */
#include "backend/device/lay.h"

#include <assert.h>
#include <string.h>

static const struct {
	const char *format;
	int group;
	const char *module;
} served[] = {
	{ "affine4", 32, "affine4_32" }, { "affine4", 64, "affine4_64" }, { "affine4", 128, "affine4_128" },
	{ "affine8", 32, "affine8_32" }, { "affine8", 64, "affine8_64" }, { "affine8", 128, "affine8_128" },
};

const char *lay_module(const struct weight *w)
{
	for (size_t i = 0; i < sizeof served / sizeof *served; i++)
		if (w->group == served[i].group && !strcmp(w->fmt->name, served[i].format))
			return served[i].module;
	return NULL;
}

size_t lay_code_bytes(const struct weight *w)
{
	return (size_t)lay_outputs(w) * (size_t)w->cols * (size_t)w->fmt->bits / 8;
}

size_t lay_scale_bytes(const struct weight *w)
{
	return (size_t)lay_outputs(w) * (size_t)(w->cols / w->group) * 2 * sizeof(float);
}

/* The eight inputs from byte `from` on of a row: in 4 bits one word, as it is; in 8 bits even inputs, then odd ones. */
static void lay_eight(uint32_t *to, const uint8_t *from, int bits)
{
	if (bits == 4) {
		memcpy(to, from, 4);
		return;
	}
	to[0] = from[0] | (uint32_t)from[2] << 8 | (uint32_t)from[4] << 16 | (uint32_t)from[6] << 24;
	to[1] = from[1] | (uint32_t)from[3] << 8 | (uint32_t)from[5] << 16 | (uint32_t)from[7] << 24;
}

void lay_coded(uint32_t *codes, float *scales, const struct weight *w)
{
	int groups = w->cols / w->group, bits = w->fmt->bits, words = bits / 4, steps = w->group / 32;
	size_t scale_size = (size_t)dtype_size(w->scale_type);

	assert(lay_module(w) && w->biases);
	memset(codes, 0, lay_code_bytes(w));
	memset(scales, 0, lay_scale_bytes(w));
	for (int o = 0; o < w->rows; o++) {
		const uint8_t *row = w->data + (size_t)o * w->row_bytes;

		for (int g = 0; g < groups; g++) {
			size_t tile = (size_t)(o / 16) * (size_t)groups + (size_t)g,
			       at = (size_t)o * (size_t)groups + (size_t)g;
			float *s = scales + (tile * 16 + (size_t)(o % 16)) * 2;

			dtype_to_float(s, w->scales + at * scale_size, w->scale_type, 1);
			dtype_to_float(s + 1, w->biases + at * scale_size, w->scale_type, 1);
			for (int i = 0; i < w->group / 8; i++) {
				size_t lane = tile * 32 + (size_t)(o % 8 * 4 + i % 4);

				lay_eight(codes + lane * (size_t)(steps * words * 2) + i / 4 * 2 * words +
				                  o % 16 / 8 * words,
				          row + ((size_t)g * (size_t)w->group + (size_t)i * 8) * (size_t)bits / 8,
				          bits);
			}
		}
	}
}
