/* op_kernels.h - inside backend/cpu/: the inner loops that op_kernels.c writes
 * over quant/lanes/lanes.h, once per level.  The same bits at every level. */
#ifndef BACKEND_CPU_OP_KERNELS_H
#define BACKEND_CPU_OP_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include "backend/backend.h"
#include "base/cpu.h"

enum {
	ATTN_BLOCK = 64,    /* keys of one online-softmax step, at absolute positions */
	ATTN_SEGMENT = 256, /* keys whose partial is merged in order; a multiple of the block */
};

struct op_table {
	/* out = in * rsqrt(mean(in^2) + eps) * gain; gain NULL: 1. */
	void (*norm)(float *out, const float *in, int n, const float *gain, float eps);
	/* out = (in - mean) * rsqrt(mean((in - mean)^2) + eps) * gain + bias */
	void (*layer_norm)(float *out, const float *in, int n, const float *gain, const float *bias, float eps);
	/* out = a + (b - a) * sigmoid(t) */
	void (*blend)(float *out, const float *a, const float *b, const float *t, int n);
	/* x = min(max(x * gain + shift, low), high); gain and shift may be NULL. */
	void (*affine)(float *x, int n, const float *gain, const float *shift, float low, float high);
	/* x *= rsqrt(sum x^2 + 1e-6) * scale */
	void (*l2norm)(float *x, int n, float scale);
	/* out = act(gate), times up unless up is NULL; out may be either. */
	void (*gate)(float *out, const float *gate, const float *up, int n, const struct activation *act);
	void (*sigmoid)(float *out, const float *in, int n);
	void (*exp)(float *out, const float *in, int n);
	/* y += a * x */
	void (*axpy)(float *y, float a, const float *x, int n);
	void (*add)(float *y, const float *x, int n);
	void (*mul)(float *y, const float *x, int n);
	/* x *= f; x = cap tanh(f x / cap) */
	void (*scale)(float *x, float f, int n);
	void (*cap)(float *x, float f, float cap, int n);
	/* y[i] = fma(scale, sum over rising r of h[r] B[o + i][r], y[i]), i < n; b lies as struct low_rank has it. */
	void (*low_rank)(float *y, int n, const float *h, const void *b, bool half, int rank, int o, float scale);
	/* Pairs (i, i + apart) of x, i < n, by cos and sin. */
	void (*rope)(float *x, const float *cos, const float *sin, int n, int apart);

	/* One block of scores s[n][ATTN_BLOCK] of n <= 16 queries, of which [from[j], see[j]) are real and at least
	 * one is: scales them, moves the running maxima and sums, leaves the weights in s (0 for what is not real)
	 * and in corr[j] what to multiply the accumulator by. */
	void (*softmax_block)(float *s, const int *from, const int *see, int n, float scale, float *max, float *sum,
	                      float *corr);
	/* (max, sum, acc) absorbs a segment's (m, l, a). */
	void (*merge)(float *acc, float *max, float *sum, const float *a, float m, float l, int dim);
	/* (max, sum, acc) absorbs a score that has no value. */
	void (*sink)(float *acc, float max, float *sum, float score, int dim);
	/* out = acc / sum, times sigmoid(gate) unless gate is NULL. */
	void (*attn_out)(float *out, const float *acc, float sum, const float *gate, int dim);
	/* score[i] = sum over rising h of w[h] max(s[h * ld + i], 0), by fma from 0; i < n; w NULL: 1. */
	void (*index_sum)(float *score, const float *s, size_t ld, const float *w, int heads, int n);

	/* out[n] = sum over rising s, from 0, of by[s][n] x[s][n], by fma */
	void (*mix)(float *out, const float *x, const float *by, int streams, int n);
	/* x = f y, or x += f y with add */
	void (*spread)(float *x, bool add, float f, const float *y, int n);
	/* x += (base + by[i / each]) in, or x = that without add */
	void (*tap)(float *x, bool add, const float *base, const float *by, int each, const float *in, int n);
	/* x = the root of |scale x|, at least 1e-3, with the sign of x; 0 of 0 */
	void (*root)(float *x, float scale, int n);
	/* out = norm(in) * gain * act(z), act SiLU or sigmoid */
	void (*gated_norm)(float *out, const float *in, const float *z, int n, const float *gain, float eps,
	                   bool sigmoid);
};
extern const struct op_table op_table_scalar, op_table_avx2, op_table_avx512, op_table_neon;

#endif
