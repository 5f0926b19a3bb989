/* gguf_vocab.h - the token list of a GGUF file.  Inside src/store/. */
#ifndef STORE_GGUF_VOCAB_H
#define STORE_GGUF_VOCAB_H

#include <stdbool.h>

#include "store/gguf/gguf_model.h"

/* tokenizer.ggml.token_type */
enum { GGUF_NORMAL = 1, GGUF_UNKNOWN, GGUF_CONTROL, GGUF_USER, GGUF_UNUSED, GGUF_BYTE };

struct gguf_vocab {
	const struct gguf *g;
	struct gguf_string *tok; /* [n] bytes in the file, any */
	uint8_t *type;           /* [n] */
	float *score;            /* [n]; NULL: there are none */
	int32_t *order;          /* [n] ids in the order of their bytes */
	size_t n;
};

/* Reads and checks the lists.  E_MISSING: the file has no tokens.  Nothing to free after an error. */
int gguf_vocab_read(struct gguf_vocab *v, const struct gguf_model *m, struct err *err);
void gguf_vocab_free(struct gguf_vocab *v);
/* The id of the token whose bytes are p[0..n), or -1. */
int32_t gguf_vocab_find(const struct gguf_vocab *v, const char *p, size_t n);
/* The id under tokenizer.ggml.KEY: *out, -1 when it is missing.  E_FORMAT when it is not a token. */
int gguf_vocab_id(const struct gguf_vocab *v, const char *key, int32_t *out, struct err *err);

/* Whether p[0..n) is one of Gemma 4's marks of channels and tools: special tokens, which files of its kind ("gemma4") have as
 * tokens of the user, so that llama.cpp prints them. */
bool gguf_printed_mark(const char *p, size_t n);

#endif
