/* op_kernels.h - inside backend/cpu/: the inner loops that op_kernels.c writes
 * over quant/lanes/lanes.h, once per level.  The same bits at every level. */
#ifndef BACKEND_CPU_OP_KERNELS_H
#define BACKEND_CPU_OP_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cpu.h"

enum {
	ATTN_BLOCK = 64,    /* keys of one online-softmax step, at absolute positions */
	ATTN_SEGMENT = 256, /* keys whose partial is merged in order; a multiple of the block */
	CONV_MAX = 8,       /* widest convolution */
	DELTA_SPARE = 64,   /* columns of S that a level takes at once, at most */
};

/* Tokens of one item for one value head, after n_old of which S lacks the updates.  Strides are in floats. */
struct delta_rows {
	const float *old_k, *old_alpha, *old_delta; /* [dim_k], one, [dim_v] of the first; rows tape_ld apart */
	int n_old;
	const float *q, *k;             /* normalised q and k [dim_k] of token 0, rows kq_ld apart */
	const float *v;                 /* [n][dim_v] */
	const float *alpha, *beta, *kq; /* [n]; kq: k . q */
	float *out;                     /* [n][dim_v] */
	size_t kq_ld;
	int n, n_sure; /* S is written as it is after the old tokens and n_sure; not if n_sure = 0 < n */
	float *tape;   /* delta of token n_sure; rows tape_ld apart */
	size_t tape_ld;
};

struct op_table {
	/* out = in * rsqrt(mean(in^2) + eps) * gain; gain NULL: 1. */
	void (*norm)(float *out, const float *in, int n, const float *gain, float eps);
	/* x *= rsqrt(sum x^2 + 1e-6) * scale */
	void (*l2norm)(float *x, int n, float scale);
	void (*swiglu)(float *out, const float *gate, const float *up, int n);
	void (*sigmoid)(float *out, const float *in, int n);
	void (*exp)(float *out, const float *in, int n);
	/* y += a * x */
	void (*axpy)(float *y, float a, const float *x, int n);
	void (*add)(float *y, const float *x, int n);
	/* Pairs (i, i + n) of x by cos and sin. */
	void (*rope)(float *x, const float *cos, const float *sin, int n);

	/* One block of scores s[n][ATTN_BLOCK] of n <= 16 queries, see[j] of them real: scales them,
	 * moves the running maxima and sums, leaves the weights in s (0 from see[j] on) and in
	 * corr[j] what to multiply the accumulator by. */
	void (*softmax_block)(float *s, const int *see, int n, float scale, float *max, float *sum, float *corr);
	void (*scale)(float *x, float f, int n);
	/* (max, sum, acc) absorbs a segment's (m, l, a). */
	void (*merge)(float *acc, float *max, float *sum, const float *a, float m, float l, int dim);
	/* out = acc / sum, times sigmoid(gate) unless gate is NULL. */
	void (*attn_out)(float *out, const float *acc, float sum, const float *gate, int dim);

	/* Convolution and SiLU of n channels of `rows` tokens, written out_ld apart; x [width - 1 + rows] rows in
	 * their order, of which token i sees those from x[i] to x[i + width - 1]; w [width <= CONV_MAX] rows w_ld apart. */
	void (*conv_silu)(float *out, size_t out_ld, const float *const *x, int rows, const float *w, size_t w_ld,
	                  int width, int n);
	/* S of one head, [dim_v / 32][dim_k][32] and [dim_k][16] for what is left,
	 * through the tokens; spare: DELTA_SPARE floats a row of S. */
	void (*delta_head)(float *s, int dim_k, int dim_v, const struct delta_rows *t, float *spare);
	/* out = norm(in) * gain * act(z), act SiLU or sigmoid */
	void (*gated_norm)(float *out, const float *in, const float *z, int n, const float *gain, float eps,
	                   bool sigmoid);
};
extern const struct op_table op_table_scalar, op_table_avx2, op_table_avx512;

#endif
