/* attention.h - the softmax attention block: projections, rotary, cache, output.  Inside src/model/. */
#ifndef MODEL_ATTENTION_H
#define MODEL_ATTENTION_H

#include "backend/backend.h"
#include "model/bind.h"

/* Variants of attention that an architecture chooses for a layer. */
struct attention_form {
	int hidden;
	struct attn op;     /* sizes, scale, eps, rope, window; gains and sinks are each layer's own */
	bool gated;         /* q_proj holds per head dim queries, then dim gates */
	bool norms;         /* q_norm, k_norm before the rotation, per head */
	bool norms_whole;   /* the same over all heads of a row together */
	bool norms_by_head; /* per head, with a gain for each: tensors of these names without ".weight" */
	float norm_add;     /* 1 when those are stored without their 1 */
	bool bias_qkv, bias_o;
	bool sinks;
	int dim_v;          /* of a head of values, which are kept with zeros up to dim; 0: dim */
	float values_scale; /* what values are multiplied with; 0: 1 */
	bool norms_plain;   /* norms without gains, behind the rotation */
	bool norms_after;   /* norms: behind the rotation, not before it */
	/* A matrix in the block whose product's sigmoid multiplies what o_proj reads, number by number; NULL: none. */
	const char *gate_proj;
	bool gate_by_head; /* that matrix has a row for each head, whose sigmoid multiplies all numbers of the head */
	bool fused;        /* qkv_proj in place of q_proj, k_proj, v_proj: their rows in this order */
	bool v_is_k;       /* no v_proj: the values are what k_proj gives */
	bool no_kv;        /* no k_proj and v_proj: reads what another layer of the step has written */
	const char *at;    /* the block's name in its layer; NULL: "self_attn" */
	/* Names in it; NULL: "o_proj", "q_norm", "k_norm", "qkv_proj", "sinks". */
	const char *o_proj, *q_norm, *k_norm, *qkv_proj, *sinks_name;
};

struct attention {
	struct attn op;
	bool gated, v_is_k, no_kv;
	struct rope turn;               /* of norms that come after it; n_freq 0: op's rope turns */
	struct weight q, k, v, o, gate; /* k, v, gate: no rows where there are none */
	int dim_v;                      /* of a head of v and of what o reads */
	float values_scale;             /* 0: 1 */
	bool gate_by_head;
	const float *bias_q, *bias_k, *bias_v, *bias_o; /* or NULL */
	const float *norm_q, *norm_k;                   /* of whole rows, or of each head apart; or NULL */
	bool norms_by_head;
};

/* Reads the sizes and the rotary of Qwen's gated attention (from Qwen3-Next on) into *f; m's hidden and ctx_max are read. */
struct conf;
void attention_read_gated(struct attention_form *f, struct conf *c, struct model *m, float eps);
/* layers.N.self_attn.* */
void attention_bind(struct binder *b, struct attention *a, const struct attention_form *f, int layer);
/* Adds a layer of keys and values of this form to the model's caches (model_kv_add); its place goes to *out. */
struct kv_place;
int attention_keep(struct model *m, const struct attention_form *f, struct kv_place *out, struct err *err);
/* out = attention(h), or out += it with add; h[n_row][hidden], which may be out.  layer: index in the cache. */
void attention_forward(struct pass *p, const struct attention *a, float *out, bool add, const float *h,
                       const struct kv_view *kv, int layer);
/* As attention_forward, over the positions in chosen (struct backend_ops, attend_chosen); NULL: all. */
void attention_over(struct pass *p, const struct attention *a, float *out, bool add, const float *h,
                    const int32_t *chosen, int most, const struct kv_view *kv, int layer);
size_t attention_floats(const struct attention *a, int n_row);

#endif
