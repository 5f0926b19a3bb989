/* dtype.c - number types of stored tensors, to float and back. */
#include <assert.h>
#include <string.h>

#include "quant/format.h"

static const struct {
	const char *name;
	int size;
} types[DT_COUNT] = {
	[DT_BOOL] = { "BOOL", 1 },
	[DT_U8] = { "U8", 1 },
	[DT_I8] = { "I8", 1 },
	[DT_U16] = { "U16", 2 },
	[DT_I16] = { "I16", 2 },
	[DT_U32] = { "U32", 4 },
	[DT_I32] = { "I32", 4 },
	[DT_U64] = { "U64", 8 },
	[DT_I64] = { "I64", 8 },
	[DT_F16] = { "F16", 2 },
	[DT_BF16] = { "BF16", 2 },
	[DT_F32] = { "F32", 4 },
	[DT_F64] = { "F64", 8 },
	[DT_F8_E4M3] = { "F8_E4M3", 1 },
	[DT_F8_E5M2] = { "F8_E5M2", 1 },
	[DT_F8_E8M0] = { "F8_E8M0", 1 },
	[DT_OTHER] = { "another type", 0 },
};

const char *dtype_name(enum dtype t)
{
	assert((unsigned)t < DT_COUNT);
	return types[t].name;
}

int dtype_size(enum dtype t)
{
	assert((unsigned)t < DT_COUNT);
	return types[t].size;
}

int dtype_parse(const char *name, enum dtype *out)
{
	for (int i = 0; i < DT_OTHER; i++)
		if (!strcmp(name, types[i].name)) {
			*out = (enum dtype)i;
			return 0;
		}
	return E_FORMAT;
}

static float from_bits(uint32_t u)
{
	float f;

	memcpy(&f, &u, sizeof f);
	return f;
}

static uint32_t to_bits(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof u);
	return u;
}

float bf16_to_float(uint16_t h)
{
	return from_bits((uint32_t)h << 16);
}

uint16_t float_to_bf16(float f)
{
	uint32_t u = to_bits(f);

	if ((u & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(u >> 16 | 0x40); /* stays a NaN when the low bits go */
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

float f16_to_float(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = h >> 10 & 31, man = h & 0x3ff;

	if (exp == 31)
		/* a NaN made quiet, as the hardware does */
		return from_bits(sign | 0x7f800000 | man << 13 | (man ? 0x400000 : 0));
	if (exp)
		return from_bits(sign | (exp + 112) << 23 | man << 13);
	return from_bits(sign | to_bits((float)man * 0x1p-24f));
}

uint16_t float_to_f16(float f)
{
	uint32_t u = to_bits(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;

	if (a > 0x7f800000)
		return (uint16_t)(sign | 0x7e00);
	if (a >= 0x477ff000) /* 65520: half way to 2^16 */
		return (uint16_t)(sign | 0x7c00);
	if (a < 0x38800000) /* below 2^-14: the sum rounds to steps of 2^-24 */
		return (uint16_t)(sign | (to_bits(from_bits(a) + 0.5f) - to_bits(0.5f)));
	return (uint16_t)(sign | (a - (112u << 23) + 0xfff + (a >> 13 & 1)) >> 13);
}

static float e4m3_to_float(uint8_t b)
{
	uint32_t sign = (uint32_t)(b & 0x80) << 24, exp = b >> 3 & 15, man = b & 7;

	if ((b & 0x7f) == 0x7f)
		return from_bits(sign | 0x7fc00000);
	if (exp)
		return from_bits(sign | (exp + 120) << 23 | man << 20);
	return from_bits(sign | to_bits((float)man * 0x1p-9f));
}

static float e5m2_to_float(uint8_t b)
{
	return f16_to_float((uint16_t)(b << 8));
}

static float e8m0_to_float(uint8_t b)
{
	if (b == 255)
		return from_bits(0x7fc00000);
	return b ? from_bits((uint32_t)b << 23) : 0x1p-127f;
}

/* As f16_to_float, without a branch, so that the compiler makes it one of vectors. */
static void f16_to_floats(float *out, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t u, normal, tiny, odd;
		uint16_t h;

		memcpy(&h, p + 2 * i, sizeof h);
		u = h & 0x7fff;
		normal = (u << 13) + (112u << 23);
		tiny = to_bits((float)(int)u * 0x1p-24f);
		odd = (normal + (112u << 23)) | (u > 0x7c00 ? 0x400000u : 0);
		u = u < 0x400 ? tiny : u < 0x7c00 ? normal : odd;
		out[i] = from_bits(u | (uint32_t)(h & 0x8000) << 16);
	}
}

void dtype_to_float(float *out, const void *p, enum dtype t, size_t n)
{
	const uint8_t *b = p;

	if (t == DT_F16) {
		f16_to_floats(out, b, n);
		return;
	}
	for (size_t i = 0; i < n; i++, b += types[t].size) {
		uint16_t h;
		double d;

		switch (t) {
		case DT_F32: memcpy(&out[i], b, 4); break;
		case DT_F64:
			memcpy(&d, b, 8);
			out[i] = (float)d;
			break;
		case DT_BF16:
			memcpy(&h, b, 2);
			out[i] = bf16_to_float(h);
			break;
		case DT_F8_E4M3: out[i] = e4m3_to_float(*b); break;
		case DT_F8_E5M2: out[i] = e5m2_to_float(*b); break;
		case DT_F8_E8M0: out[i] = e8m0_to_float(*b); break;
		default: assert(!"a type that is not a float");
		}
	}
}

float e4m3_mlx(uint8_t b)
{
	return (b & 0x80 ? -256.0f : 256.0f) * f16_to_float((uint16_t)((b & 0x7f) << 7));
}
