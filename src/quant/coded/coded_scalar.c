/* coded_scalar.c - the plain C product over weights of small codes: the truth that the kernels of every level repeat to
 * the bit. */
#include <assert.h>
#include <string.h>

#include "quant/coded/coded_kernels.h"

float *coded_beside(float *to, const struct acts *x, int r0, int n)
{
	size_t groups = (size_t)(x->cols / x->group), at = (size_t)r0 * groups;

	for (size_t g = 0; g < groups; g++)
		for (size_t r = 0; r < (size_t)n; r++, to += 2) {
			to[0] = x->scale[at + r * groups + g];
			to[1] = x->scaled_sum[at + r * groups + g];
		}
	return to;
}

void coded_mul_scalar(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0,
                      int r1, void *scratch)
{
	const struct coding *c = w->fmt->coding;
	int groups = w->cols / w->group;
	uint8_t *code = scratch;

	assert(x->cols == w->cols && x->group == w->group);
	for (int o = o0; o < o1; o++) {
		coding_row(code, w, o);
		for (int r = r0; r < r1; r++) {
			const int8_t *q = x->q + (size_t)r * (size_t)x->cols;
			float acc = 0.0f;

			for (int g = 0; g < groups; g++) {
				size_t at = (size_t)r * (size_t)groups + (size_t)g;
				int32_t isum = -c->zero * x->sum[at];
				float scale, bias;

				for (int i = g * w->group; i < (g + 1) * w->group; i++)
					isum += (int32_t)code[i] * q[i];
				coding_scale(&scale, &bias, w, o, g);
				acc = __builtin_fmaf(scale, x->scale[at] * (float)isum, acc);
				if (c->bias)
					acc = __builtin_fmaf(bias, x->scaled_sum[at], acc);
			}
			out[(size_t)(r - r0) * ld + (size_t)(o - o0)] = acc;
		}
	}
}

double coded_peak_scalar(int64_t n)
{
	enum { LENGTH = 64 };
	uint8_t u[LENGTH];
	int8_t s[LENGTH];
	int32_t sum = 0;
	volatile int32_t keep;

	memset(u, 3, sizeof u);
	memset(s, -5, sizeof s);
	for (int64_t k = 0; k < n; k++) {
		__asm__("" : "+m"(u), "+m"(s)); /* other values, for all the compiler knows */
		for (int i = 0; i < LENGTH; i++)
			sum += (int32_t)u[i] * s[i];
	}
	keep = sum;
	(void)keep;
	return 2.0 * LENGTH * (double)n;
}
