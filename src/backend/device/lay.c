/* lay.c - see lay.h. */
#include "backend/device/lay.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device/device.h"
#include "base/alloc.h"
#include "quant/codes.h"

/* How codes lie: what the options of a module say (coded.cl). */
struct form {
	struct codes codes;
	int bits;          /* BITS: 2, 3, 4, 5, 6 or 8 */
	int low, high;     /* of them in either plane */
	int units, steps;  /* of a row, of a unit */
	const char *named; /* the module's name without numbers; NULL: no kernel reads such codes */
};
enum { STEP = 32, TILE = 16, TABLE = 8 /* floats of a table, before the scales */ };

/* The codes at which signed modules begin to count (-DZERO); those of 8 bits are turned into signed bytes here. */
static const uint8_t zero_of[9] = { [2] = 1, [3] = 4, [4] = 8, [5] = 16, [6] = 32, [8] = 128 };

static struct form form_of(const struct weight *w)
{
	struct form f = { 0 };
	int unit = w->group < STEP ? STEP : w->group;

	if (!weight_codes(&f.codes, w) || w->group < 16 || unit % STEP || w->cols % unit)
		return f;
	f.bits = f.codes.bits == 1 ? 2 : f.codes.bits;
	f.low = f.bits == 8 ? 8 : f.bits >= 4 ? 4 : 2;
	f.high = f.bits - f.low;
	f.units = w->cols / unit;
	f.steps = unit / STEP;
	if (f.codes.lut)
		f.named = "lut";
	else if (f.codes.bias && !f.codes.zero)
		f.named = "affine";
	else if (!f.codes.bias && f.codes.zero == zero_of[f.bits])
		f.named = "signed";
	return f;
}

const char *lay_module(const struct weight *w)
{
	struct form f = form_of(w);
	const struct device_text *t = device_texts;
	char name[40];

	snprintf(name, sizeof name, "%s%d_%d", f.named ? f.named : "none", f.bits, w->group);
	while (t->name && strcmp(t->name, name) != 0)
		t++;
	return t->name;
}

size_t lay_code_bytes(const struct weight *w)
{
	return (size_t)lay_outputs(w) * (size_t)w->cols / 8 * (size_t)form_of(w).bits;
}

size_t lay_scale_bytes(const struct weight *w)
{
	struct form f = form_of(w);
	size_t floats = (size_t)lay_outputs(w) * (size_t)(w->cols / w->group) * (f.codes.bias ? 2 : 1);

	return (floats + (f.codes.lut ? TABLE : 0)) * sizeof(float);
}

/* The table as it is multiplied, signed bytes, and after it the code that stands for -0. */
static void lay_table(float *to, const struct codes *c)
{
	int32_t minus_zero = c->minus_zero;
	int8_t value[16];

	for (int i = 0; i < 16; i++)
		value[i] = (int8_t)(c->lut[i] - c->zero);
	memset(to, 0, TABLE * sizeof *to);
	memcpy(to, value, sizeof value);
	memcpy(to + 4, &minus_zero, sizeof minus_zero);
}

/* The input, of 32, at byte k of a lane's part `half`; lane 0 to 3.  Kernels read inputs by even and odd ones, groups of 16
 * one after the other. */
static int input_at(int group, int lane, int half, int k)
{
	return group < STEP ? 16 * half + 8 * (lane / 2) + 2 * k + lane % 2 : 8 * lane + 2 * k + half;
}

/* The codes of 32 inputs of output o, to step s of their unit: a lane's eight as two words of four bytes, each then cut into the
 * planes. */
static void lay_step(uint32_t *unit, const struct form *f, const uint8_t *code, int group, int o, int s)
{
	int up = o % TILE
	/ 8, words = f->steps * f->low / 2; /* of a lane, in the low plane */
	uint32_t low_bits = 0x01010101u * ((1u << f->low) - 1), high_bits = 0x01010101u * ((1u << f->high) - 1);

	for (int i = 0; i < 8; i++) {
		int half = i % 2, lane = o % 8 * 4 + i / 2, at = half * 2 + up, step = lane * f->steps + s;
		uint32_t *low = unit + lane * words + s * f->low / 2, *high = unit + STEP * words, four = 0, more;

		for (int k = 0; k < 4; k++)
			four |= (uint32_t)code[input_at(group, i / 2, half, k)] << 8 * k;
		more = four >> f->low & high_bits;
		four &= low_bits;
		if (f->low == 8)
			low[up * 2 + half] = four;
		else if (f->low == 4)
			low[up] |= four << 4 * half;
		else
			*low |= four << 2 * at;
		if (f->high == 2)
			high[step] |= more << 2 * at;
		else if (f->high == 1) /* the four bits side by side */
			high[step / 2] |= ((more | more >> 7 | more >> 14 | more >> 21) & 15)
			                  << (step % 2 * 16 + 4 * at);
	}
}

void lay_coded(uint32_t *codes, float *scales, const struct weight *w)
{
	struct form f = form_of(w);
	int groups = w->cols / w->group, each = f.codes.bias ? 2 : 1;
	uint8_t *code = xmalloc((size_t)w->cols);
	float *scale = xmalloc(2 * (size_t)groups * sizeof *scale), *bias = scale + groups;

	assert(f.named);
	memset(codes, 0, lay_code_bytes(w));
	memset(scales, 0, lay_scale_bytes(w));
	if (f.codes.lut) {
		lay_table(scales, &f.codes);
		scales += TABLE;
	}
	for (int o = 0; o < w->rows; o++) {
		size_t tile = (size_t)(o / TILE);

		weight_codes_row(code, scale, bias, w, o);
		for (int i = 0; i < w->cols && f.named[0] == 's' && f.bits == 8; i++)
			code[i] ^= 0x80;
		for (int i = 0; i < w->cols / STEP; i++)
			lay_step(codes + (tile * (size_t)f.units + (size_t)(i / f.steps)) *
			                         (size_t)(f.steps * TILE * f.bits),
			         &f, code + i * STEP, w->group, o, i % f.steps);
		for (int g = 0; g < groups; g++) {
			float *to = scales +
			            ((tile * (size_t)groups + (size_t)g) * TILE + (size_t)(o % TILE)) * (size_t)each;

			to[0] = scale[g];
			if (each == 2)
				to[1] = bias[g];
		}
	}
	free(code);
	free(scale);
}
