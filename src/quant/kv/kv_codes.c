/* kv_codes.c - what the codes of a cache row stand for, in plain C: the truth of kv_coded.c. */
#include <assert.h>
#include <string.h>

#include "quant/kv/kv_coded.h"

/* The dims that the books were made for. */
static int book_dim(int dim)
{
	return dim == 64 ? 0 : dim == 128 ? 1 : dim == 256 ? 2 : dim == 512 ? 3 : -1;
}

size_t kv_coded_bytes(int bits, int group, int dim)
{
	size_t codes = (size_t)(dim + KV_CHUNK - 1) / KV_CHUNK * (size_t)(KV_CHUNK / 8 * bits);

	if (!group)
		return book_dim(dim) < 0 ? 0 : codes + sizeof(float);
	if (dim < group || dim > KV_DIM_MAX || dim % group)
		return 0;
	return codes + (size_t)(dim / group) * 4;
}

int kv_code_at(const uint8_t *chunk, int bits, int i)
{
	switch (bits) {
	case 8: return chunk[i];
	case 4: return chunk[i % 32] >> i / 32 * 4 & 15;
	case 2: return chunk[i % 16] >> i / 16 * 2 & 3;
	case 3: return (chunk[i % 16] >> i / 16 * 2 & 3) | (chunk[16 + i / 8] >> i % 8 & 1) << 2;
	}
	assert(!"a number of bits that no format has");
	return 0;
}

/* Lloyd-Max centroids of one coordinate of a random unit vector, the largest set to
 * 127: rounding the others to whole numbers costs less than half a percent of the
 * error.  They hardly depend on the dimension; the units do. */
const int8_t kv_books[9][16] = {
	[2] = { -127, -38, 38, 127 },
	[3] = { -127, -79, -45, -15, 15, 45, 79, 127 },
	[4] = { -127, -96, -75, -59, -44, -31, -18, -6, 6, 18, 31, 44, 59, 75, 96, 127 },
};

float kv_book_unit(int bits, int dim)
{
	/* The largest centroid times the root of the dimension: 64, 128, 256, 512. */
	static const float largest[5][4] = {
		[2] = { 1.5000f, 1.5052f, 1.5078f, 1.5091f },
		[3] = { 2.1113f, 2.1315f, 2.1417f, 2.1468f },
		[4] = { 2.6464f, 2.6889f, 2.7106f, 2.7215f },
	};

	return largest[bits][book_dim(dim)] / 127.0f;
}

/* Any fixed bits that look random do; these are of splitmix64, 1 to 16. */
const uint16_t kv_signs[2][KV_DIM_MAX / 16] = {
	{ 0xcdaf, 0x7b1d, 0xa839, 0xe220, 0x65f4, 0xa1b9, 0x9e6a, 0x6e78, 0x454f, 0x8009, 0x5d18,
	  0x6c4,  0x81ec, 0x724c, 0xb8a8, 0xf88b, 0x749b, 0x51a8, 0x896a, 0x1b39, 0xa2ea, 0x747e,
	  0x9f0c, 0x53cb, 0x32e1, 0x1f45, 0x9abe, 0x2c82, 0xab3c, 0xc916, 0x133a, 0xc584 },
	{ 0x8ac3, 0x41c9, 0x7890, 0x3ee5, 0xb0a6, 0x368c, 0x488c, 0xf3b8, 0x3d09, 0x3cb1, 0xecdd,
	  0x657e, 0xdef6, 0x55b,  0x26e0, 0xc2d3, 0xdb7b, 0xe0bb, 0xa03f, 0x8621, 0xa92f, 0x983a,
	  0x7555, 0x8e1f, 0x4d19, 0xcc,   0xf16,  0xb54e, 0x80ab, 0x971d, 0x3f97, 0x84bb },
};

uint16_t kv_f16_below(float x)
{
	uint16_t h = float_to_f16(x);

	if (f16_to_float(h) > x)
		h = (uint16_t)(h & 0x8000 ? h + 1 : h ? h - 1 : 0x8001);
	return h;
}

void kv_coded_decode(float *x, const void *row, int dim, int bits, int group)
{
	const uint8_t *p = row, *scale = p + (dim + KV_CHUNK - 1) / KV_CHUNK * KV_CHUNK / 8 * bits;

	for (int i = 0; i < dim; i++) {
		int code = kv_code_at(p + i / KV_CHUNK * KV_CHUNK / 8 * bits, bits, i % KV_CHUNK);
		float s, b;

		if (!group) {
			memcpy(&s, scale, sizeof s);
			x[i] = s * (float)kv_book(bits)[code];
			continue;
		}
		dtype_to_float(&s, scale + 2 * (i / group), DT_F16, 1);
		dtype_to_float(&b, scale + 2 * (dim / group + i / group), DT_F16, 1);
		x[i] = __builtin_fmaf(s, (float)code, b);
	}
}
