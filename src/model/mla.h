/* mla.h - latent attention (MLA; DeepSeek-V2, 2024, arXiv 2405.04434): keys and values of all heads are
 * projections of one row.  Inside src/model/.
 *
 *     q = q_b rms(q_a u), or q_proj u          per head [q_nope | q_pe]
 *     [c | k_pe] = kv_a u;  c = rms(c)         one row for all heads
 *     score = (q_nope . Wk_h c + q_pe . k_pe) scale      out = o_proj (Wv_h sum of p c)
 *
 * The cache holds [k_pe | c] and nothing per head: Wk_h moves to the queries and Wv_h behind the sum (absorbed),
 * so attention is that of one key head, whose values are its keys. Prompts are computed in the same way, since
 * another order of roundings would break the law of the row. */
#ifndef MODEL_MLA_H
#define MODEL_MLA_H

#include "model/conf.h"
#include "model/indexer.h"
#include "model/stack.h"

struct mla_form {
	int hidden, heads;
	int q_lora;             /* rank of the queries; 0: q_proj */
	int kv_lora;            /* width of c */
	int nope, rope, values; /* of a head: dims without positions and with; of its values */
	float scale, norm_eps;
	float q_bend; /* queries grow with their position (struct attn); q_bend_every 0: they do not */
	int q_bend_every;
	struct rope turn; /* of the rope dims */
	/* Outputs of g_proj, whose sigmoid multiplies the values before o_proj: heads, or heads * values; 0: no gate. */
	int gates;
	int first; /* no row sees positions before it (struct attn) */
	/* The layer's rows see what an indexer chooses, which is the layer's own, or with `follows` that of the nearest layer
	 * before it that has one; NULL: all positions.  Needs q_lora. */
	const struct indexer_form *index;
	bool follows;
	const char *at, *o_proj; /* the block's name in its layer, "self_attn", and a name in it; NULL: "o_proj" */
};

/* q_lora_rank, kv_lora_rank, the heads' dims, llama_4_scaling_beta, scale with yarn's factor.  unturned: the rope dims
 * are not rotated, and there may be none. */
void mla_read(struct mla_form *f, struct stack *s, struct conf *c, bool unturned);
/* Adds the block, which takes the next layer of the keys' and values' cache. */
struct block *stack_add_mla(struct stack *s, struct binder *b, const struct mla_form *f, const float *norm, int layer);

#endif
