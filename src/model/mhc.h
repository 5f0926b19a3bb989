/* mhc.h - residual streams mixed around blocks by gates made of all of them (manifold-constrained hyper-connections, 2025,
 * arXiv 2512.24880).  Inside src/model/.
 *
 *     z = fn norm(x), one norm over all streams, without a gain;  pre, post, M by struct stream_gates
 *     h = sum of pre_s x_s;  x_b = post_b block(norm h) + sum over a of M[a][b] x_a
 *
 * C streams of hidden floats lie side by side in a row of x.  The norm of h is the block's own. */
#ifndef MODEL_MHC_H
#define MODEL_MHC_H

#include "model/bind.h"

struct mhc_form {
	int hidden, streams, rounds;
	float eps, gate_eps; /* of the norm; of gates */
};

/* What is around a block. */
struct mhc {
	int hidden;
	float eps;
	struct weight fn;
	struct stream_gates gates;
};

/* hc_mult, hc_sinkhorn_iters and hc_eps; hidden and eps are the caller's. */
struct conf;
void mhc_read(struct mhc_form *f, struct conf *c);
/* PATH_fn, PATH_base and PATH_scale. */
void mhc_bind(struct binder *b, struct mhc *s, const struct mhc_form *f, const char *path);
/* The same of what is before the last norm, which reads streams and writes none. */
void mhc_bind_last(struct binder *b, struct mhc *s, const struct mhc_form *f, const char *path);
/* h[n_row][hidden] of x[n_row][streams * hidden]; gates[n_row][stream_gates_cols] is for mhc_end. */
void mhc_begin(struct pass *p, const struct mhc *s, float *h, float *gates, const float *x);
/* x becomes what the block's output y and the gates make of it. */
void mhc_end(struct pass *p, const struct mhc *s, float *x, const float *y, const float *gates);
/* Work memory of mhc_begin. */
size_t mhc_floats(const struct mhc *s, int n_row);

#endif
