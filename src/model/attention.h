/* attention.h - the softmax attention block: projections, rotary, cache, output.  Inside src/model/. */
#ifndef MODEL_ATTENTION_H
#define MODEL_ATTENTION_H

#include "backend/backend.h"
#include "model/bind.h"

/* What an architecture chooses, the same for all its layers. */
struct attention_form {
	int hidden;
	struct attn op; /* sizes, scale, eps, rope; the norms are each layer's */
	bool gated;     /* q_proj holds per head dim queries, then dim gates */
	bool norms;     /* q_norm, k_norm before the rotation */
	float norm_add; /* 1 when those are stored without their 1 */
	bool bias_qkv, bias_o;
};

struct attention {
	struct attn op;
	bool gated;
	struct weight q, k, v, o;
	const float *bias_q, *bias_k, *bias_v, *bias_o; /* or NULL */
};

/* layers.N.self_attn.* */
void attention_bind(struct binder *b, struct attention *a, const struct attention_form *f, int layer);
/* x += attention(h); h[n_row][hidden].  layer: index in the cache. */
void attention_forward(struct pass *p, const struct attention *a, float *x, const float *h, const struct kv_view *kv,
                       int layer);
size_t attention_floats(const struct attention *a, int n_row);

#endif
