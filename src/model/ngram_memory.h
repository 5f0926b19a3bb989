/* ngram_memory.h - embeddings of hashed n-grams that join residual streams (Qwen3.8, 2026: PLE).  Inside src/model/.
 *
 *     e = rows of a table that the last tokens choose (struct ngrams);  k_s = norm(key e), q_s = norm(x_s)
 *     u_s = sigmoid(root(k_s . q_s / sqrt(hidden))) value e
 *     x += u + silu(conv(norm(u))), a causal convolution of every ngram_size-th row
 *
 * A sequence remembers the last rows of norm(u) and, in a channel behind them, tokens (struct shape, past). */
#ifndef MODEL_NGRAM_MEMORY_H
#define MODEL_NGRAM_MEMORY_H

#include "model/conf.h"
#include "model/streams.h"

struct ngram_form {
	const struct streams_form *streams;
	int most, heads, width;              /* most: tokens of the longest n-gram; width: columns of the table */
	int kernel;                          /* of the convolution */
	int32_t end;                         /* before which a row's tokens are not looked at */
	const int64_t *mult, *size, *offset; /* of struct ngrams, where the config has them; NULL: tensors do */
};

/* ngram_size and its like, and the first eos_token_id.  Lists are in a. */
void ngram_read(struct ngram_form *f, struct conf *c, struct arena *a);

struct ngram_memory;
/* layers.N.ple.*; takes the next layer of the model's past. */
struct ngram_memory *ngram_bind(struct binder *b, const struct ngram_form *f, int layer);
/* x[n_row][streams * hidden]. */
void ngram_add(struct pass *p, const struct ngram_memory *g, float *x);
/* Work memory of ngram_add. */
size_t ngram_floats(const struct ngram_memory *g, int n_row);

#endif
