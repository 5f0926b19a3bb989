/* stack.h - models whose layers are blocks of several kinds: hybrids.  Inside src/model/.
 *
 *     h = scale E[token];  per block:  h += s norm(block(norm(h)));  logits = scale norm(h) lm_head'
 *
 * A family reads its config, adds its blocks in order, and leaves work memory and forward to the stack.  A
 * kind of block is a struct of its own behind struct block_ops. */
#ifndef MODEL_STACK_H
#define MODEL_STACK_H

#include "model/attention.h"
#include "model/ffn.h"
#include "model/model.h"
#include "model/trunk.h"

struct block;

/* The caches of a pass, as blocks read them; NULL where the model has none. */
struct stack_views {
	const struct kv_view *kv[KV_GROUPS];
	const struct state_view *state;
	float *shared; /* [n_row][stack.shared], which a block fills for later ones; NULL: 0 columns */
};

struct block_ops {
	/* out = block(h), or out += it with add; h[n_row][hidden], which may be out. */
	void (*forward)(struct pass *, const struct block *, float *out, bool add, const float *h,
	                const struct stack_views *);
	/* Work memory of forward. */
	size_t (*floats)(const struct block *, int n_row);
};

struct block {
	const struct block_ops *ops;
	void *own;         /* the kind's struct */
	const float *norm; /* gain of the norm before it; NULL: none */
	const float *bias; /* of that norm, which is a LayerNorm then; NULL: RMS norm */
	bool beside;       /* reads what the block before it reads, its norm included */
	struct join join;
	int last_of;        /* of the layer of this number it is the last block; below 0: of none */
	int layer;          /* its index in the cache of states */
	struct kv_place kv; /* of its keys and values */
};

struct stack {
	struct model m;
	struct trunk trunk;
	struct block *block;
	int n_block;
	int shared;   /* columns of stack_views.shared */
	bool besides; /* some block is parallel to another */
};

/* hidden_size, num_hidden_layers, vocab_size and max_position_embeddings into shape. */
void stack_read(struct stack *s, struct conf *c);
/* Heads, head size, biases and scale of the usual keys into f and shape; without rope and norms. */
void stack_read_attention(struct stack *s, struct conf *c, struct attention_form *f);
/* Allocates memory for at most `blocks` blocks, which the family adds, and binds embedding, last norm and output matrix,
 * tied or not, under these names (NULL: embed_tokens and norm).  Set shape and trunk.eps before; an error stays in b. */
void stack_init(struct stack *s, struct binder *b, int blocks, const struct trunk_names *names, bool tied);
/* Memory for blocks alone, for a draft head, whose trunk mtp_bind binds. */
void stack_room(struct stack *s, int blocks);
struct block *stack_add(struct stack *s, const struct block_ops *ops, void *own, const float *norm);
/* The block added last is the last of layer i. */
void stack_end_layer(struct stack *s, int i);
/* An attention block, which takes the next layer of the keys' and values' cache; a feed-forward block. */
struct block *stack_add_attention(struct stack *s, struct binder *b, const struct attention_form *f, const float *norm,
                                  int layer);
struct block *stack_add_ffn(struct stack *s, struct binder *b, const struct ffn_form *f, const float *norm, int layer);
/* Counts a layer with a mixture, and its experts, in shape: all mixtures of a model have as many.  For families that add the
 * block themselves. */
void stack_count_moe(struct stack *s, const struct moe_form *f);
/* A mixture of experts, which is counted. */
struct block *stack_add_moe(struct stack *s, struct binder *b, const struct moe_form *f, const float *norm, int layer);
/* A block around a feed-forward part that is bound already. */
struct block *stack_add_ready(struct stack *s, struct ffn *f, const float *norm);
struct ffn *stack_ffn(struct block *b);

size_t stack_work_floats(const struct model *m, int n_row, int n_logit);
void stack_forward(struct model *m, struct pass *p);

#endif
