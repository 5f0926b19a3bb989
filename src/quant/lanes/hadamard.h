/* hadamard.h - sums and differences over lanes.h: the Walsh-Hadamard transform.
 *
 * Neighbours first, then wider strides; each sum is rounded once, so the bits are the same at every level. */
#ifndef QUANT_HADAMARD_H
#define QUANT_HADAMARD_H

#include "quant/lanes/lanes.h"

/* a with the sign of lane i changed where bit i of `negative` is set. */
LANES_INLINE v16 v16_signs(v16 a, uint32_t negative)
{
#if defined(__AVX512F__)
	__m512i u = _mm512_castps_si512(a);

	return _mm512_castsi512_ps(_mm512_mask_xor_epi32(u, (__mmask16)negative, u, _mm512_set1_epi32(INT32_MIN)));
#else
	float f[16];

	v16_store(f, a);
	for (int i = 0; i < 16; i++)
		f[i] = negative >> i & 1 ? -f[i] : f[i];
	return v16_load(f);
#endif
}

/* a + b in the first of each two lanes h apart, a - b in the second. */
LANES_INLINE v16 v16_butterfly(v16 a, const int h)
{
#if defined(__AVX512F__)
	v16 b = h == 8 ? _mm512_shuffle_f32x4(a, a, 0x4e) :
	        h == 4 ? _mm512_shuffle_f32x4(a, a, 0xb1) :
	        h == 2 ? _mm512_permute_ps(a, 0x4e) :
	                 _mm512_permute_ps(a, 0xb1);

	return v16_add(b, v16_signs(a, h == 8 ? 0xff00 : h == 4 ? 0xf0f0 : h == 2 ? 0xcccc : 0xaaaa));
#else
	float f[16], g[16];

	v16_store(f, a);
	for (int i = 0; i < 16; i++)
		g[i] = i & h ? f[i ^ h] - f[i] : f[i] + f[i ^ h];
	return v16_load(g);
#endif
}

/* x = H x, H of 1 and -1; n is a power of two. */
static void hadamard_sums(float *x, int n)
{
	if (n < 16) {
		for (int h = 1; h < n; h *= 2)
			for (int i = 0; i < n; i++)
				if (!(i & h)) {
					float a = x[i], b = x[i + h];

					x[i] = a + b;
					x[i + h] = a - b;
				}
		return;
	}
	for (int i = 0; i < n; i += 16) {
		v16 a = v16_load(x + i);

		a = v16_butterfly(a, 1);
		a = v16_butterfly(a, 2);
		a = v16_butterfly(a, 4);
		a = v16_butterfly(a, 8);
		v16_store(x + i, a);
	}
	for (int h = 16; h < n; h *= 2)
		for (int i = 0; i < n; i += 2 * h)
			for (int k = i; k < i + h; k += 16) {
				v16 a = v16_load(x + k), b = v16_load(x + k + h);

				v16_store(x + k, v16_add(a, b));
				v16_store(x + k + h, v16_sub(a, b));
			}
}

#endif
