/* mamba.h - the Mamba-2 block: projections around convolution and state (backend/cpu/state/rule_ssm.c).  Inside src/model/.
 *
 *     [z | x B C | dt] = in_proj h     y = ssm(SiLU(conv(x B C)), dt)     out = out_proj norm(y SiLU(z)) */
#ifndef MODEL_MAMBA_H
#define MODEL_MAMBA_H

#include "model/conf.h"
#include "model/stack.h"

/* Parameters that an architecture chooses once for all its Mamba layers. */
struct mamba_form {
	struct state_shape shape; /* layers left out */
	bool bias, conv_bias;     /* of the projections; of the convolution */
	bool norm; /* a norm of the output, over norm_cols columns, with the gate before it or after it */
	int norm_cols;
	bool norm_first;
	float dt_min, dt_max;
	const char *at; /* the block's name in its layer */
	/* Factors of what in_proj yields: z, x, B, C, dt; NULL: 1 each. */
	const float *scale;
};

/* Sizes into the form's shape; fails in c where they do not go together. */
void mamba_sizes(struct mamba_form *f, struct conf *c, int heads, int head_dim, int groups, int states, int conv_width);
/* time_step_limit, by default (0, infinity). */
void mamba_read_limits(struct mamba_form *f, struct conf *c);
/* The form by the keys of Granite 4 and Bamba, whose norm goes over the whole width. */
void mamba_read(struct mamba_form *f, struct conf *c, int hidden);
/* Adds the block, which takes the next layer of the state's cache. */
struct block *stack_add_mamba(struct stack *s, struct binder *b, const struct mamba_form *f, const float *norm,
                              int layer);

/* [channels][width] in files, which may have a third dimension of 1; a row for each input here, times scale[channel]
 * (NULL: 1). */
const float *mamba_conv(struct binder *b, const float *w, int channels, int width, const float *scale);
/* The convolutions of q, k and v, of channels[0..2] channels, joined to one: q_conv1d, k_conv1d, v_conv1d under
 * layers.N.AT, or mlx's names. */
const float *mamba_conv_qkv(struct binder *b, const int channels[3], int width, const char *at, int layer);
/* The gains of the norms of B and C, n numbers each, one after the other. */
const float *mamba_gains(struct binder *b, const float *gain_b, const float *gain_c, int n);

#endif
