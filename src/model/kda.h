/* kda.h - the block of Kimi Delta Attention (backend/cpu/state/rule_kda.c).  Inside src/model/.
 *
 *     x = q u | k u | v u;  out = o_proj (rms by head (kda(conv x, f u, b u)) sigmoid(g u))
 *
 * f and g are matrices of full rank, f_proj and g_proj, or products of two, f_b_proj f_a_proj, whose rank is a head's
 * size: what the file set has. */
#ifndef MODEL_KDA_H
#define MODEL_KDA_H

#include "model/stack.h"

/* Parameters that an architecture chooses once for all its KDA layers. */
struct kda_form {
	int heads, dim, width; /* width: of the convolutions */
	float floor;           /* least logarithm of a decay; 0: none */
	const char *at;        /* the block's name in its layer */
};

/* Adds the block, which takes the next layer of the state's cache. */
struct block *stack_add_kda(struct stack *s, struct binder *b, const struct kda_form *f, const float *norm, int layer);

#endif
