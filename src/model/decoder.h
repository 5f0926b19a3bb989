/* decoder.h - transformers whose every layer is attention and a feed-forward block.  Inside src/model/.
 *
 *     h = scale E[token]
 *     per layer:  h += s norm(attention(norm(h)));  h += s norm(ffn(norm(h)))
 *     logits = cap(norm(h) lm_head')
 *
 * Any of the four norms of a layer may be absent.  A family reads its config into a plan, corrects what differs,
 * and binds its layers; work memory and forward are the same for all. */
#ifndef MODEL_DECODER_H
#define MODEL_DECODER_H

#include "model/attention.h"
#include "model/conf.h"
#include "model/ffn.h"
#include "model/model.h"
#include "model/rotary.h"
#include "model/trunk.h"

struct decoder_layer {
	const float *norm_attn, *norm_ffn; /* gains of the norms before the blocks; NULL: none */
	const float *bias_attn, *bias_ffn; /* of these norms, which are LayerNorms then; NULL: RMS norms */
	bool beside;                       /* the feed-forward block reads what attention reads, its norm included */
	struct join join_attn, join_ffn;   /* how their outputs meet the residual stream */
	struct attention attn;
	struct kv_place
		kv; /* where its keys and values are; a layer without its own: those of the layer that it shares */
	struct ffn ffn;
};

struct decoder {
	struct model m;
	struct trunk trunk;
	float eps;
	struct decoder_layer *layer;
};

/* Values of a config beyond struct shape. */
struct decoder_plan {
	struct attention_form attn; /* what all layers have */
	struct ffn_form ffn;
	struct moe_form moe; /* experts 0: dense */
	bool tied;
	int window;  /* of the layers that are local */
	bool *local; /* [layers]; a layer that sees a window alone */
};

/* Defaults of values that a config of the family may omit; 0: it must give them. */
struct decoder_defaults {
	int vocab, ctx, heads, heads_kv, dim;
	double eps;
	const char *eps_key; /* NULL: rms_norm_eps */
	enum act act;        /* ACT_NONE: SiLU */
	bool tied;
};

/* The conf of the text part of st's config.json. */
struct conf decoder_conf(const struct store *st, struct err *err);
/* model_type of that part, or the model's own where it names none. */
const char *decoder_kind(const struct decoder *d, const struct store *st);
/* Sizes, eps, activation, ties: the keys that all families have, into shape and plan.  An activation that the plan has
 * already stays. */
void decoder_read(struct decoder *d, struct conf *c, const struct decoder_defaults *f, struct decoder_plan *p);
/* sliding_window, and from layer_types which layers have it; without layer_types every `every`-th layer sees all
 * (0: all layers have the window).  Without a sliding_window there is none. */
void decoder_windows(struct decoder *d, struct conf *c, int every, struct decoder_plan *p);
/* The form of layer i's attention: the plan's, with its window. */
struct attention_form decoder_attention(const struct decoder_plan *p, int i);

/* Embedding, last norm, output matrix, and memory for the layers. */
void decoder_bind(struct binder *b, struct decoder *d, const struct decoder_plan *p, float norm_add);
/* Attention of layer i, for a family whose norms have other names or places. */
void decoder_bind_attention(struct binder *b, struct decoder *d, const struct attention_form *f, int i);
/* input_layernorm and post_attention_layernorm as norms before the blocks; attention; a dense MLP unless the plan
 * has experts and layer i is not `dense`. */
void decoder_bind_layer(struct binder *b, struct decoder *d, const struct decoder_plan *p, int i, bool dense);
/* For a draft head, whose trunk mtp_bind binds: memory for its layers; one of them, from layer i of the file, with
 * attention of form f. */
void decoder_room(struct decoder *d, const struct decoder_plan *p, int layers);
void decoder_bind_into(struct binder *b, struct decoder *d, const struct decoder_plan *p, struct decoder_layer *y,
                       const struct attention_form *f, int i, bool dense);
/* Tensors of towers and draft heads are not read. */
void decoder_ignore(struct store *st);

/* x += attention of layer i, through its norms.  h[n_row][hidden] is spoiled; where nothing is between the block and x, it is
 * what the block has read. */
void decoder_attend(const struct decoder *d, struct pass *p, int i, float *x, float *h);
size_t decoder_work_floats(const struct model *m, int n_row, int n_logit);
void decoder_forward(struct model *m, struct pass *p);

#endif
