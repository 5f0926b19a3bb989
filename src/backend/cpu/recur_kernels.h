/* recur_kernels.h - inside backend/cpu/: the inner loops of recurrent layers, which
 * recur_kernels.c writes over quant/lanes/lanes.h, once per level.  The same bits at every level.
 *
 * S of one value head lies in tiles of 32 value columns, [dim_v / 32][dim_k][32], and one of
 * [dim_k][16] for what is left. */
#ifndef BACKEND_CPU_RECUR_KERNELS_H
#define BACKEND_CPU_RECUR_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

enum {
	CONV_MAX = 8,     /* widest convolution */
	RECUR_SPARE = 64, /* columns of S that a level takes at once, at most */
};

/* Tokens of one item for one value head, after n_old of which S lacks the updates.  Strides are in floats.
 * Which fields a kernel reads is said at the kernel. */
struct recur_rows {
	const float *old_k, *old_decay, *old_d; /* of the first old row; rows tape_ld apart */
	const float *old_k2, *old_d2;
	int n_old;
	size_t tape_ld;
	const float *k, *q;      /* [dim_k] of token 0: what S is read with before its update and after it */
	const float *put, *put2; /* [dim_k] of token 0: the update's left factors; rows of all four kq_ld apart */
	const float *decay;      /* of token 0; rows decay_ld apart */
	const float *v;          /* [n][dim_v] */
	const float *beta, *dot,
		*dot2;            /* [n]; dot: put . q, as the update reaches this token's output; dot2: of put2 */
	const float *rate, *skip; /* [dim_k][dim_v] and [dim_v] of the head */
	float *out;               /* [n][dim_v] */
	size_t kq_ld, decay_ld;
	int n, n_sure;       /* S is written as it is after the old tokens and n_sure; not if n_sure = 0 < n */
	float *tape, *tape2; /* the update's right factors of token n_sure; rows tape_ld apart */
};

/* S through the tokens; spare: RECUR_SPARE floats a row of S. */
typedef void recur_head_fn(float *s, int dim_k, int dim_v, const struct recur_rows *t, float *spare);

/* How S of a head moves from token to token. */
enum recur_head {
	/* d = beta (v - a S'k)    out = a S'q + dot d    S <- a S + put d'    a: one decay per token */
	HEAD_DELTA,
	/* d = beta v              out = a S'q + dot d    S <- a S + put d' */
	HEAD_INSERT,
	/* d = beta (v - S'k)      out = S'q + dot d      S <- diag(a) S + put d'    a [dim_k] per token, also in k and q */
	HEAD_DELTA_BY_KEY,
	/* d = S'k                 out = S'q + dot d + dot2 v    S <- diag(a) S + put d' + put2 v'    a as before, in q */
	HEAD_TWO_RANK,
	/* a = exp(decay rate), of each element of S, decay [dim_v] per token
	 * d = decay v             S <- a S + put d'      out = S'q + skip v    (of the S after its update) */
	HEAD_SCAN,
	RECUR_HEADS
};

struct recur_table {
	/* Convolution of n channels of `rows` tokens, plus bias (NULL: none), through SiLU if silu, written out_ld
	 * apart; x [width - 1 + rows] rows in their order, of which token i sees those from x[i] to x[i + width - 1];
	 * w [width <= CONV_MAX] rows w_ld apart. */
	void (*conv)(float *out, size_t out_ld, const float *const *x, int rows, const float *w, size_t w_ld,
	             const float *bias, int width, int n, bool silu);
	/* out = ln(1 + e^in), within 2e-7 of it relatively. */
	void (*softplus)(float *out, const float *in, int n);
	/* out = a * b */
	void (*mul)(float *out, const float *a, const float *b, int n);
	recur_head_fn *head[RECUR_HEADS];
};
extern const struct recur_table recur_table_scalar, recur_table_avx2, recur_table_avx512, recur_table_neon;

#endif
