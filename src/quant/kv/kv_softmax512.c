/* kv_softmax512.c - see kv_softmax512.h. */
#include "quant/kv/kv_softmax512.h"

#include <math.h>

#include "quant/bf16/bf16_dots512.h"
#include "quant/lanes/transpose512.h"

#define INLINE DOTS_INLINE
enum { LINE = DOTS_LINE };

/* 2^x for x <= 0: x = k + r, k whole, a polynomial of r (relative error 1e-7, 2^0 = 1
 * exactly), and k added to its exponent.  Below -126 something below 2^-125, at -127 and
 * below 0.  A NaN stays one: it has no bits where k is taken from. */
INLINE __m512 exp2_down(__m512 x)
{
	const __m512 magic = _mm512_set1_ps(12582912.0f); /* 1.5 * 2^23: below it floats have no fraction left */
	__m512 t, r, p;

	x = _mm512_max_ps(_mm512_set1_ps(-127.0f), x);
	t = _mm512_add_ps(x, magic);
	r = _mm512_sub_ps(x, _mm512_sub_ps(t, magic));
	p = _mm512_set1_ps(0x1.5bba18p-10f);
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.3cea8cp-7f));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.c6b752p-5f));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.ebf9bcp-3f));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.62e42ap-1f));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
	return _mm512_castsi512_ps(
		_mm512_add_epi32(_mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(t), 23)));
}

INLINE __m512 binary(float scale)
{
	return _mm512_set1_ps(scale * 0x1.715476p+0f);
}

INLINE __m512 weight(const float *s, int i, __m512 top, __m512 c)
{
	return exp2_down(_mm512_mul_ps(_mm512_sub_ps(_mm512_load_ps(s + i * KV_LANES), top), c));
}

INLINE void weights(uint8_t *w, float *s, const int32_t *from, const int32_t *see, int first, int n, float scale,
                    float *max, float *sum, const bool paired)
{
	const __m512i pairs = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22,
	                                       6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
	const __m512 none = _mm512_set1_ps(-INFINITY), c = binary(scale);
	__m512i sees = _mm512_loadu_si512(see);
	__m512i begins = _mm512_loadu_si512(from);
	int least = _mm512_reduce_min_epi32(sees), most = _mm512_reduce_max_epi32(begins), begin = first * KV_SUMMED;
	__m512 top[4] = { none, none, none, none };
	__m512 part[2] = { _mm512_setzero_ps(), _mm512_setzero_ps() }; /* of even and odd positions */

	for (int i = begin; i < most && i < n * KV_SUMMED; i++)
		_mm512_mask_store_ps(s + i * 16, _mm512_cmpgt_epi32_mask(begins, _mm512_set1_epi32(i)), none);
	for (int i = least > begin ? least : begin; i < n * KV_SUMMED; i++)
		_mm512_mask_store_ps(s + i * 16, _mm512_cmple_epi32_mask(sees, _mm512_set1_epi32(i)), none);
	for (int i = begin; i < n * KV_SUMMED; i += 4)
#pragma GCC unroll 4
		for (int j = 0; j < 4; j++)
			top[j] = _mm512_max_ps(_mm512_load_ps(s + (i + j) * 16), top[j]);
	top[0] = _mm512_max_ps(_mm512_max_ps(top[0], top[1]), _mm512_max_ps(top[2], top[3]));
	_mm512_store_ps(max, top[0]);
	s += begin * KV_LANES;
	w += first * KV_LANES * LINE;
	for (int b = first; b < n; b++, s += KV_SUMMED * KV_LANES, w += KV_LANES * LINE) {
		__m512i t[16];

#pragma GCC unroll 16
		for (int i = 0; i < 16; i++) {
			/* The positions that are the lower and the upper half of pair i. */
			const int lower = paired ? dots_lower_of(i) : 2 * i,
				  upper = paired ? dots_upper_of(i) : 2 * i + 1;

			t[i] = _mm512_permutexvar_epi16(
				pairs,
				(__m512i)_mm512_cvtne2ps_pbh(weight(s, upper, top[0], c), weight(s, lower, top[0], c)));
		}
#pragma GCC unroll 16
		for (int i = 0; i < 16; i++) {
			__m512 low = dots_lower(t[i]), high = dots_upper(t[i]);

			if (!paired) {
				part[0] = _mm512_add_ps(part[0], low);
				part[1] = _mm512_add_ps(part[1], high);
			} else {
				part[i % 2] = _mm512_add_ps(_mm512_add_ps(part[i % 2], high), low);
			}
		}
		transpose16(t);
#pragma GCC unroll 16
		for (int i = 0; i < 16; i++)
			_mm512_store_si512(w + i * LINE, t[i]);
	}
	_mm512_store_ps(sum, _mm512_add_ps(part[0], part[1]));
}

void kv_weights(uint8_t *w, float *s, const int32_t *from, const int32_t *see, int first, int n, float scale,
                float *max, float *sum)
{
	weights(w, s, from, see, first, n, scale, max, sum, false);
}

void kv_weights_paired(uint8_t *w, float *s, const int32_t *from, const int32_t *see, int first, int n, float scale,
                       float *max, float *sum)
{
	weights(w, s, from, see, first, n, scale, max, sum, true);
}

bool kv_finite_bf16(const struct kv_segment *seg, int from, int to, int dim)
{
	const __m512i magnitude = _mm512_set1_epi16(0x7fff), infinity = _mm512_set1_epi16(0x7f80);
	__m512i top = _mm512_setzero_si512();
	size_t step = (size_t)dim * 2;

	for (int r = from; r < to; r++) {
		const uint8_t *p = seg->value[r / KV_RUN] + (size_t)(r % KV_RUN) * step;

		for (size_t i = 0; i < step; i += LINE)
			top = _mm512_max_epu16(top, _mm512_and_si512(_mm512_loadu_si512(p + i), magnitude));
	}
	return !_mm512_cmpge_epu16_mask(top, infinity);
}

void kv_merge(float *all, float *max, float *sum, const float *acc, const float *m, const float *l, int n, int dim,
              float scale)
{
	const __m512 c = binary(scale);

	for (; n > 0; n -= 16, max += 16, sum += 16, m += 16, l += 16) {
		__mmask16 mask = (__mmask16)(n >= 16 ? 0xffff : (1u << n) - 1);
		__m512 old = _mm512_maskz_loadu_ps(mask, max), new = _mm512_maskz_loadu_ps(mask, m),
		       top = _mm512_max_ps(new, old);
		__m512 f = exp2_down(_mm512_mul_ps(_mm512_sub_ps(old, top), c)),
		       g = exp2_down(_mm512_mul_ps(_mm512_sub_ps(new, top), c));
		float fs[16], gs[16];

		_mm512_storeu_ps(fs, f);
		_mm512_storeu_ps(gs, g);
		_mm512_mask_storeu_ps(max, mask, top);
		_mm512_mask_storeu_ps(sum, mask,
		                      _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, l), g,
		                                      _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, sum), f)));
		for (int j = 0; j < 16 && j < n; j++) {
			__m512 x = _mm512_set1_ps(fs[j]), y = _mm512_set1_ps(gs[j]);

			for (int i = 0; i < dim; i += 16, all += 16, acc += 16)
				_mm512_storeu_ps(all, _mm512_fmadd_ps(_mm512_loadu_ps(acc), y,
				                                      _mm512_mul_ps(_mm512_loadu_ps(all), x)));
		}
	}
}
