/* file_block.c - rows whose codes and scales lie between one another, read a block at a time. */
#include <assert.h>
#include <string.h>

#include "quant/levels.h"

static const uint8_t *block_of(const struct weight *w, int o, int k)
{
	const struct file_block *b = w->fmt->coding->block;

	assert(k % b->length == 0);
	return w->data + (size_t)o * w->row_bytes + (size_t)(k / b->length) * (size_t)b->bytes;
}

void file_block_codes(uint8_t *code, const struct weight *w, int o, int k, int n)
{
	const struct file_block *b = w->fmt->coding->block;
	const uint8_t *at = block_of(w, o, k);

	assert(n % b->length == 0);
	for (int i = 0; i < n; i += b->length, at += b->bytes)
		b->codes(code + i, at);
}

void file_block_scales(float *scale, float *bias, const struct weight *w, int o, int g, int n)
{
	const struct file_block *b = w->fmt->coding->block;
	const uint8_t *at = block_of(w, o, g * w->group);
	int groups = b->length / b->group;

	assert(n % groups == 0);
	for (int i = 0; i < n; i += groups, at += b->bytes)
		b->scales(scale + i, bias + i, at);
}

void file_block_lanes(float *scale, float *bias, size_t step, const struct weight *w, int o, int n)
{
	const struct file_block *b = w->fmt->coding->block;
	int groups = w->cols / w->group, per = b->length / b->group;
	float s[FILE_BLOCK_GROUPS], m[FILE_BLOCK_GROUPS] = { 0 };

	for (int i = 0; i < 16; i++)
		for (int g = 0; g < groups; g += per) {
			if (i < n)
				file_block_scales(s, m, w, o + i, g, per);
			for (int j = 0; j < per; j++) {
				scale[(size_t)(g + j) * step + (size_t)i] = i < n ? s[j] : 0.0f;
				if (w->fmt->coding->bias)
					bias[(size_t)(g + j) * step + (size_t)i] = i < n ? m[j] : 0.0f;
			}
		}
}
