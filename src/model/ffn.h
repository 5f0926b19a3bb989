/* ffn.h - the feed-forward block: gated MLP or mixture of experts.  Inside src/model/. */
#ifndef MODEL_FFN_H
#define MODEL_FFN_H

#include "backend/backend.h"
#include "model/bind.h"

struct ffn {
	int hidden;
	struct weight gate, up, down;                 /* the MLP, or the shared expert */
	const float *bias_gate, *bias_up, *bias_down; /* or NULL */
	struct moe moe;                               /* experts 0: a plain MLP */
	struct weight router, shared_router;
};

struct moe_form {
	int experts, top_k, inner, shared_inner;
	bool normalise;
};

/* layers.N.mlp.{gate,up,down}_proj */
void ffn_bind_dense(struct binder *b, struct ffn *f, int hidden, int inner, bool bias, int layer);
/* layers.N.mlp.gate and the experts in any of the layouts that exist: fused
 * stacks (experts.gate_up_proj), one tensor per expert (experts.E.gate_proj),
 * stacks of mlx (switch_mlp.gate_proj); and a shared expert when there is one. */
void ffn_bind_moe(struct binder *b, struct ffn *f, int hidden, const struct moe_form *form, int layer);
/* x += ffn(h); h[n_row][hidden] */
void ffn_forward(struct pass *p, const struct ffn *f, float *x, const float *h);
size_t ffn_floats(const struct ffn *f, int n_row);

#endif
