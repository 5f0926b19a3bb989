/* plain.h - families of transformers as data: what one reads from its config, names its tensors, and computes, in a row of a
 * table.  Inside src/model/.
 *
 *     h = a E[token]
 *     per layer:  h += r norm(attention(norm(h)));  h += r norm(ffn(norm(h)))
 *     logits = b norm(h) lm_head'
 *
 * or, with both blocks in parallel, h += r (attention(n) + ffn(n)) with n = norm(h).  Any of the norms may be absent,
 * and any layer's feed-forward block a mixture.  plain_table.c has the rows, plain.c reads configs and binds tensors by
 * them, decoder.c computes.  A family that computes something else has a file of its own. */
#ifndef MODEL_PLAIN_H
#define MODEL_PLAIN_H

#include "model/decoder.h"

struct plain;

/* What a model of a family is, by its row and its config. */
struct plain_plan {
	const struct plain *of;
	struct decoder_plan all;
	struct attention_form *attn;           /* [layers] */
	const struct attention_form *windowed; /* attention of layers with a window; NULL: all.attn */
	struct rope local; /* of layers with a window, where the row gives them a rotation of their own */
	bool *dense;       /* [layers] without a mixture, where the model has one */
	bool *upright;     /* [layers] that do not rotate; NULL: the row says which */
	const struct attention_form *standing; /* attention of layers that do not rotate; NULL: all.attn */
	struct rope *rope;            /* [layers]; NULL: all have one rotation, or those with a window `local` */
	float residual, residual_ffn; /* r of attention and of the feed-forward block; 0: 1 */
	float residual_moe;           /* r of mixtures; 0: residual_ffn */
	/* Limits of experts' activations, and of those of other feed-forward blocks, by layer (ffn_limited); NULL: none. */
	const struct json *limit, *limit_shared;
	bool layer_norm;              /* as the row says, unless the config says otherwise */
	float embed_scale, logit_cap; /* a; 0: 1.  The cap of the logits; 0: none */
	bool inside; /* the config is that of a model inside of a wrapper, which leaves out what is MistralConfig's default */
};

/* Which layers see a window. */
enum plain_windows {
	WINDOWS_NONE,
	WINDOWS_LISTED, /* those that layer_types names; without such a list sliding_window is a leftover */
	WINDOWS_ALL,    /* those that layer_types names; without such a list all, where there is a sliding_window */
	WINDOWS_EVERY,  /* the same, but for every n-th */
};

/* Which layers rotate. */
enum plain_rotates {
	ROTATES_ALL,
	ROTATES_LOCAL,    /* those with a window */
	ROTATES_WINDOWED, /* the same, and all where no layer has a window */
};

/* Keys of a mixture.  NULL: the row's moe has the value already, or the model has no such thing. */
struct plain_experts {
	const char *count, *used, *inner;
	const char *normalise;    /* true or false; without the key, what the row says, */
	bool normalise_needed;    /* or an error */
	const char *scale;        /* a factor; 1 without the key */
	const char *groups;       /* how many groups of experts there are; topk_group of them are used */
	const char *shared_width; /* of the shared expert */
	const char *shared_each;  /* its width is shared_count times this, NULL: times an expert's */
	const char *shared_count;
	const char *dense_first; /* this many first layers have none */
	const char *dense_inner; /* width of layers without a mixture; NULL: intermediate_size */
};

struct plain {
	const char *type;             /* model_type */
	struct decoder_defaults lack; /* of keys that a config may omit */
	/* What all models of the family have: names, rules, and the values of keys that are absent.  Sizes are read. */
	struct attention_form attn;
	struct ffn_form ffn;
	struct moe_form moe;
	struct plain_experts experts;
	/* Names of norms before and after attention, before and after the feed-forward block; all NULL: input_layernorm,
	 * none, post_attention_layernorm, none. */
	const char *norm[4];
	struct trunk_names trunk;                 /* NULL: embed_tokens and norm */
	bool beside;                              /* both blocks read what norm[0] gives */
	bool layer_norm, layer_norm_bias;         /* norms of the residual stream are LayerNorms; with a bias */
	const char *bias_qkv, *bias_o, *bias_mlp; /* keys; NULL: as attn and ffn say */
	const char *head_norm;                    /* key: columns of lm_head are divided by their lengths */
	const char *head_bias;                    /* key: lm_head has a bias */
	struct rotary_defaults rope, local;       /* local.kind NULL: all layers rotate alike */
	enum plain_rotates rotates;
	enum plain_windows windows;
	int every;               /* of WINDOWS_EVERY */
	const char *every_key;   /* key of that, a number or a string of L and G by layer; NULL: none */
	bool factors;            /* granite's four multipliers */
	const char *logit_scale; /* key of b */
	float logit_scale_or;
	/* Reads what the other members do not say.  Sizes, biases, windows, rotation and experts are in the plan already; the
	 * layers' forms are made of it afterwards.  NULL: nothing. */
	void (*more)(struct plain_plan *p, struct decoder *d, struct conf *c);
	const char *ignore; /* tensors that begin so are draft heads', which are not read; NULL: none */
	bool heads_behind;  /* layers behind the last are draft heads, too */
};

/* The family of that model_type; NULL: no row. */
const struct plain *plain_find(const char *type);
/* The types of all rows; ends with NULL. */
extern const char *const plain_arch[];

#endif
