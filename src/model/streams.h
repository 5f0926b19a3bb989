/* streams.h - several residual streams: those of Qwen3.8, which are gated (after hyper-connections, arXiv 2409.19606), and what
 * all have.  Inside src/model/.
 *
 *     n_s = norm(x_s), a gain for each stream;  m = sigmoid(up silu(down n / C));  j = 2 sigmoid(inject n / C)
 *     what a block reads: h = sum over s of m_s n_s / C;  x_s += j_s block(h)
 *
 * C streams of hidden floats lie side by side in a row of x.  There are no other norms around blocks, nor a last one. */
#ifndef MODEL_STREAMS_H
#define MODEL_STREAMS_H

#include "model/bind.h"

struct streams_form {
	int hidden, streams, low; /* low: the rank of the gates */
	float eps, norm_add;
};

/* The gates around a block.  Before the output matrix there is one more site, which has no inject. */
struct site {
	int hidden, streams;
	float eps;
	const float *gain; /* [streams * hidden] over C */
	struct weight down, up, inject;
};

/* hc_count and hc_lowrank; hidden and eps are the caller's. */
struct conf;
void streams_read(struct streams_form *f, struct conf *c);
/* PATH.hc_norm and others. */
void site_bind(struct binder *b, struct site *s, const struct streams_form *f, bool inject, const char *path);
/* h[n][hidden] of x[n][streams * hidden]; by[n][streams], which is j / 2, where the site injects. */
void site_begin(struct pass *p, const struct site *s, float *h, float *by, const float *x, int n);
/* x_s += 2 by_s y. */
void site_end(struct pass *p, const struct site *s, float *x, const float *y, const float *by);
/* Work memory of site_begin. */
size_t site_floats(const struct site *s, int n);

/* A draft head's beginning: x_s = of_embed norm(E[token]) + of_given norm(given)_s. */
struct streams_fuse {
	int hidden, streams;
	float eps;
	bool each; /* given has a norm for each stream, with one gain; else one over all */
	struct weight of_embed, of_given;
	struct weight both;                   /* [hidden][2 hidden], the two side by side, which have no rows then */
	const float *norm_embed, *norm_given; /* NULL: the model is not a draft head */
};
/* x[n_row][streams * hidden] of p->given and the embeddings e, which are spoiled. */
void streams_fuse(struct pass *p, const struct streams_fuse *f, float *x, float *e);
/* Work memory of streams_fuse; 0 where the norms are NULL. */
size_t streams_fuse_floats(const struct streams_fuse *f, int n);

/* out = norm(in) for each stream, with a gain for each; out may be in. */
void streams_norm(struct pass *p, float *out, const float *in, int n, int streams, int hidden, const float *gain,
                  float eps);
/* All streams of x become e[n][hidden]. */
void streams_fill(struct pass *p, float *x, const float *e, int n, int streams, int hidden);
/* The residual streams behind layer i, rows of `wide` floats, to the pass's taps of it. */
void streams_tap(struct pass *p, int i, const float *x, int wide);

#endif
