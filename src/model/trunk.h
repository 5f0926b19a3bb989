/* trunk.h - what is around the layers of every model: the embedding below them, the last norm and the output
 * matrix above, and the residual stream that their blocks' outputs join.  Inside src/model/. */
#ifndef MODEL_TRUNK_H
#define MODEL_TRUNK_H

#include "backend/backend.h"
#include "model/bind.h"

/* A draft head's beginning (mtp.h): x = proj [norm(E[token]) | norm(given)]. */
struct fuse {
	struct weight proj; /* [hidden][2 hidden] */
	const float *norm_embed, *norm_given;
};

struct trunk {
	int hidden, vocab;
	struct weight embed, head;
	const float *norm; /* gain of the last norm */
	/* With a bias that and all norms of the layers are LayerNorms, and a first one may follow the embedding. */
	const float *norm_bias, *first, *first_bias;
	const float *head_bias; /* added to the logits, before the factor; NULL: none */
	float eps;
	const struct fuse *fuse;      /* NULL: x is the embedding */
	float embed_scale;            /* x = embed_scale E[token] */
	float logit_scale, logit_cap; /* logits = cap tanh(scale y / cap); cap 0: scale y */
};

/* Finds the prefix of the file set, unless the binder has one, and binds embed_tokens, norm and lm_head; scales are 1 and the
 * cap 0 unless the caller changes them.  norm_add: 1 for norms stored without their 1. */
void trunk_bind(struct binder *b, struct trunk *t, int vocab, int hidden, bool tied, float eps, float norm_add);
/* Names of the embedding and of the last norm, where they are not embed_tokens and norm. */
struct trunk_names {
	const char *embed, *norm;
};
void trunk_bind_as(struct binder *b, struct trunk *t, const struct trunk_names *names, int vocab, int hidden, bool tied,
                   float eps, float norm_add);
/* Binds lm_head.bias. */
void trunk_bind_head_bias(struct binder *b, struct trunk *t);
/* Begins a pass: returns x[n_row][hidden], the embeddings of its tokens, fused with what a draft head is given, in the pass's
 * work memory. */
float *trunk_begin(struct pass *p, const struct trunk *t);
/* After layer i: the residual stream x to the pass's taps of that layer. */
void trunk_tap(struct pass *p, const struct trunk *t, int i, const float *x);
/* Ends it: fills p->hidden, where it is asked for, and p->logits from the residual stream x. */
void trunk_end(struct pass *p, const struct trunk *t, const float *x);
/* Its two parts: p->hidden, which must be there; p->logits. */
void trunk_hidden(struct pass *p, const struct trunk *t, const float *x);
void trunk_logits(struct pass *p, const struct trunk *t, const float *x);
/* Work memory: of what trunk_begin returns, and of trunk_end. */
size_t trunk_begin_floats(const struct trunk *t, int n_row);
size_t trunk_end_floats(const struct trunk *t, int n_logit);

/* A norm of n rows of the residual stream's width; bias NULL: RMS norm. */
void trunk_norm(struct pass *p, const struct trunk *t, float *out, const float *in, int n, const float *gain,
                const float *bias);

/* How a block's output y joins the residual stream: x += scale norm(y).  A zeroed join is the plain x += y. */
struct join {
	const float *norm; /* gain; NULL: there is no norm between */
	float eps;
	float scale; /* 0: 1 */
};
/* Where the block writes: x itself, which it then adds to, where nothing is between, else spare[n_row][cols]. */
static inline float *join_to(const struct join *j, float *x, float *spare)
{
	return j->norm || (j->scale != 0 && j->scale != 1) ? spare : x;
}
/* After the block has written y = join_to(...); y is overwritten. */
void join_add(struct pass *p, const struct join *j, float *x, float *y, int cols);

#endif
