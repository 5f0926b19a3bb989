/* ffn.h - the feed-forward block: MLP, gated or not, or mixture of experts.  Inside src/model/. */
#ifndef MODEL_FFN_H
#define MODEL_FFN_H

#include "backend/backend.h"
#include "model/bind.h"
#include "model/conf.h"

struct ffn {
	int hidden;
	struct weight gate, up, down; /* the MLP, or the shared expert; gate: no rows where there is none */
	const float *bias_gate, *bias_up, *bias_down; /* or NULL */
	struct activation act;
	struct moe moe; /* experts 0: a plain MLP */
	struct weight router, shared_router;
};

/* Names are printf arguments behind layers.N.; NULL: what is said here. */
struct ffn_form {
	int inner;
	bool bias;
	struct activation act;
	bool gateless;       /* down(act(up)): no gate_proj */
	bool fused;          /* gate_up_proj in place of gate_proj and up_proj: gate rows, then up rows */
	const char *at;      /* "mlp" */
	const char *proj[3]; /* "gate_proj", "up_proj", "down_proj"; all or none */
	/* alpha_p, alpha_n, beta and eps of xIELU by layer; NULL: they are tensors of the layers */
	const float (*xielu)[4];
};

struct moe_form {
	int experts, top_k, inner, shared_inner; /* shared_inner 0: no shared expert */
	bool normalise, weight_input;
	bool turned; /* experts.gate_up_proj [E, H, 2 I] and experts.down_proj [E, I, H]: a column for each output */
	struct activation act, shared_act; /* shared_act ACT_NONE: act */
	enum moe_route route;
	int groups, groups_used;
	bool groups_strict;
	float scale, norm_eps, jitter;
	bool gateless;
	int router_cols;         /* what the router reads; 0: what the experts read */
	bool shared_plain;       /* the shared expert has no router of its own */
	bool router_bias, bias;  /* PATH.bias of the router; of the experts' products */
	const char *at;          /* "mlp"; "": straight in the layer */
	const char *router;      /* in at: "gate" */
	const char *select_bias; /* in at: "gate.e_score_correction_bias"; NULL: there is none */
	const char *shared;      /* in at: "shared_expert" */
	const char *shared_at;   /* the shared expert's place in the layer, where it is not in at; NULL: it is */
	const char *proj[3];     /* of the experts: "gate_proj", "up_proj", "down_proj"; all or none */
	bool shared_alike;       /* the shared expert's matrices are named as the experts' */
};

/* hidden_act or hidden_activation; when neither is there `absent`, and SiLU for ACT_NONE. */
struct activation ffn_read_act(struct conf *c, enum act absent);
/* A list of limits by layer, which may go on with those of draft heads; NULL: the key is absent. */
const struct json *ffn_read_limits(struct conf *c, const char *key, int layers);
/* act, which is SiLU, under the limit of layer i in such a list; act as it is where that is 0 or null, or list NULL. */
struct activation ffn_limited(struct activation act, const struct json *list, int i);

/* Groups of experts, of which topk_group are chosen from; key: how many there are.  experts and top_k are known.  E_FORMAT:
 * experts that they do not cut into groups of two and more, or too few in those that are chosen from. */
void moe_read_groups(struct moe_form *m, struct conf *c, const char *key);
/* The mixture of DeepSeek-V3 and its kin: chosen by sigmoids and a bias, in groups, with shared experts for all rows. */
void moe_read_noaux(struct moe_form *m, struct conf *c, struct activation act);

/* layers.N.mlp.{gate,up,down}_proj */
void ffn_bind_dense(struct binder *b, struct ffn *f, int hidden, const struct ffn_form *form, int layer);
/* layers.N.mlp.gate and the experts in any of the layouts that exist: fused
 * stacks (experts.gate_up_proj), one tensor per expert (experts.E.gate_proj),
 * stacks of mlx (switch_mlp.gate_proj and others); and a shared expert when there is one. */
void ffn_bind_moe(struct binder *b, struct ffn *f, int hidden, const struct moe_form *form, int layer);
/* out = ffn(h), or out += it with add; h[n_row][hidden], which may be out. */
void ffn_forward(struct pass *p, const struct ffn *f, float *out, bool add, const float *h);
size_t ffn_floats(const struct ffn *f, int n_row);

#endif
