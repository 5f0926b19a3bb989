/* indexer.h - which positions an attention layer sees.  Inside src/model/.
 *
 * DSA (DeepSeek-V3.2, 2025), over latent attention, chooses single positions:
 *
 *     q = wq_b low          per head; low: the queries' low rank, normed
 *     k = layer_norm(wk u)  one row for all heads, cached;  q and k are rotated in their first dims
 *     w = weights_proj u;   score of a position = sum over heads of w max(q . k, 0)
 *
 * QSA (Qwen3.8, 2026) chooses blocks: q | k = index_qk_proj u, q = norm(q); a block's key is the norm of the mean of its k
 * (struct attn, pooled), and every w is 1.
 *
 * GLM-5.3-Flash (2026) chooses blocks by the scores of DSA, without positions; a block's key is a sum of its k weighted by
 * compress_gate u (struct compress; of a draft head struct attn, pool_bias).
 *
 * The positions or whole blocks with the highest scores are seen, of equal ones the lower; a row's own position has no place
 * of its own, but those behind the last whole block have. */
#ifndef MODEL_INDEXER_H
#define MODEL_INDEXER_H

#include "model/conf.h"
#include "model/model.h"

struct binder;
struct indexer_form {
	int hidden, q_lora;
	int heads, dim, most; /* most: positions that a row sees */
	int block;            /* positions of a block; 0: positions are chosen one by one */
	bool weighted;        /* keys of blocks are weighted sums */
	float eps, norm_add;  /* of the norms of blocks */
	struct rope turn;
	int first; /* as in struct mla_form */
};

/* index_n_heads, index_head_dim and index_topk; of the rope of attention, which turns `rope` dims, all but its factor.
 * adjacent: without indexer_rope_interleave pairs are neighbours. */
void indexer_read(struct indexer_form *f, struct conf *c, const struct rope *turn, int rope, bool adjacent);
/* index_n_heads, index_head_dim, index_topk and index_kpool, for blocks with weighted keys. */
void indexer_read_pools(struct indexer_form *f, struct conf *c);
/* indexer_n_heads, indexer_head_dim, indexer_budget and indexer_compress_ratio, for blocks. */
void indexer_read_blocks(struct indexer_form *f, struct conf *c, const struct rope *turn);

struct indexer;
/* Binds a layer's, whose keys take the next layer of the cache of such keys; the block's name in its layer is `at`. */
struct indexer *indexer_bind(struct binder *b, const struct indexer_form *f, const char *at, int layer);
/* Keeps the keys of rows h[n_row][hidden] and writes what the rows see (struct backend_ops, choose); low: NULL for QSA. */
void indexer_choose(struct pass *p, const struct indexer *x, int32_t *chosen, const float *h, const float *low);
/* Work memory of indexer_choose. */
size_t indexer_floats(const struct indexer *x, int n_row);

#endif
