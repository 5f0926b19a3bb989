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

static float e8m0_half(uint8_t e)
{
	uint32_t bits = e < 2 ? 0x200000u << e : (uint32_t)(e - 1) << 23;
	float f;

	memcpy(&f, &bits, sizeof f);
	return f;
}

static float ue4m3_half(uint8_t v)
{
	return v == 0x7f ? 0.0f : 128.0f * f16_to_float((uint16_t)((v & 0x7f) << 7));
}

void scale_of_parts(float *scale, float *bias, const struct coding *c, const struct scale_parts *p, int g)
{
	*bias = 0.0f;
	switch (c->block->kind) {
	case SCALE_E8M0: *scale = e8m0_half(p->s[g]); break;
	case SCALE_UE4M3: *scale = ue4m3_half(p->s[g]); break;
	case SCALE_TIMES: *scale = f16_to_float(p->d) * (float)(int8_t)p->s[g] * c->scale_unit; break;
	case SCALE_TIMES_MIN:
		*scale = f16_to_float(p->d) * (float)p->s[g];
		*bias = -(f16_to_float(p->m) * (float)p->min[g]);
		break;
	default:
		*scale = f16_to_float(p->d);
		if (c->block->kind == SCALE_HALVES)
			*bias = f16_to_float(p->m);
	}
}

void file_block_scales(float *scale, float *bias, const struct weight *w, int o, int g, int n)
{
	const struct file_block *b = w->fmt->coding->block;
	const uint8_t *at = block_of(w, o, g * w->group);
	int groups = b->length / b->group;
	struct scale_parts parts;

	assert(n % groups == 0);
	for (int i = 0; i < n; i += groups, at += b->bytes) {
		b->scales(&parts, at);
		for (int j = 0; j < groups; j++)
			scale_of_parts(scale + i + j, bias + i + j, w->fmt->coding, &parts, j);
	}
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
