/* file_block.c - rows whose codes and scales lie between one another, read a block at a time. */
#include <assert.h>
#include <string.h>

#include "quant/coding.h"

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

/* Scales (and biases) of all n groups of a block. */
static void scales_of_parts(float *scale, float *bias, const struct coding *c, const struct scale_parts *p, int n)
{
	enum scale_kind kind = c->block->kind;
	float d, m;

	if (kind == SCALE_E8M0 || kind == SCALE_UE4M3) {
		for (int g = 0; g < n; g++)
			scale[g] = kind == SCALE_E8M0 ? e8m0_half(p->s[g]) : ue4m3_half(p->s[g]);
		return;
	}
	d = f16_to_float(p->d);
	if (kind == SCALE_BLOCK || kind == SCALE_HALF) {
		for (int g = 0; g < n; g++)
			scale[g] = d;
		return;
	}
	if (kind == SCALE_TIMES) {
		for (int g = 0; g < n; g++)
			scale[g] = d * (float)(int8_t)p->s[g] * c->scale_unit;
		return;
	}
	m = f16_to_float(p->m);
	if (kind == SCALE_HALVES) {
		*scale = d;
		*bias = m;
		return;
	}
	for (int g = 0; g < n; g++) {
		scale[g] = d * (float)p->s[g];
		bias[g] = -(m * (float)p->min[g]);
	}
}

void scale_of_parts(float *scale, float *bias, const struct coding *c, const struct scale_parts *p, int g)
{
	float s[FILE_BLOCK_GROUPS], m[FILE_BLOCK_GROUPS] = { 0 };

	scales_of_parts(s, m, c, p, g + 1);
	*scale = s[g];
	*bias = m[g];
}

void file_block_scales(float *scale, float *bias, const struct weight *w, int o, int g, int n)
{
	const struct coding *c = w->fmt->coding;
	const uint8_t *at = block_of(w, o, g * w->group);
	int groups = c->block->length / c->block->group;
	struct scale_parts parts;

	assert(n % groups == 0);
	for (int i = 0; i < n; i += groups, at += c->block->bytes) {
		c->block->scales(&parts, at);
		scales_of_parts(scale + i, bias + i, c, &parts, groups);
	}
}

/* Scales of all of a row's blocks that have one number each, to scale[block * step]. */
static void halves_lane(float *scale, size_t step, const struct file_block *b, const uint8_t *at, int blocks)
{
	enum { SOME = 32 };
	uint16_t d[SOME];
	float f[SOME];

	for (int g = 0; g < blocks; g += SOME) {
		int n = blocks - g < SOME ? blocks - g : SOME;

		for (int j = 0; j < n; j++, at += b->bytes)
			memcpy(&d[j], at, sizeof d[j]);
		dtype_to_float(f, d, DT_F16, (size_t)n);
		for (int j = 0; j < n; j++, scale += step)
			*scale = f[j];
	}
}

void file_block_lanes(float *scale, float *bias, size_t step, const struct weight *w, int o, int n)
{
	const struct coding *c = w->fmt->coding;
	int groups = w->cols / w->group, per = c->block->length / c->block->group;
	float s[FILE_BLOCK_GROUPS] = { 0 }, m[FILE_BLOCK_GROUPS] = { 0 };
	struct scale_parts parts;

	for (int i = 0; i < 16; i++) {
		const uint8_t *at = i < n ? block_of(w, o + i, 0) : NULL;
		float *to = scale + i, *to_bias = c->bias ? bias + i : NULL;

		if (at && c->block->kind == SCALE_HALF) {
			halves_lane(to, step, c->block, at, groups);
			continue;
		}
		if (i == n) { /* zeros from here on */
			memset(s, 0, sizeof s);
			memset(m, 0, sizeof m);
		}
		for (int g = 0; g < groups; g += per) {
			if (at) {
				c->block->scales(&parts, at);
				scales_of_parts(s, m, c, &parts, per);
				at += c->block->bytes;
			}
			for (int j = 0; j < per; j++, to += step)
				*to = s[j];
			for (int j = 0; j < per && to_bias; j++, to_bias += step)
				*to_bias = m[j];
		}
	}
}
