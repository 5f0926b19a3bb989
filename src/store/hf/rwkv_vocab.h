/* rwkv_vocab.h - RWKV's list of tokens (rwkv_vocab_v20230424.txt) as a document of Hugging Face.  Inside src/store/. */
#ifndef STORE_RWKV_VOCAB_H
#define STORE_RWKV_VOCAB_H

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

/* Appends the tokenizer.json that means what the list in text[0..n) does; token 0, which ends a text, is not in it, and has the
 * name that the added_tokens_decoder of config gives it, or "<s>".  The model is of the kind "Longest" (text/tokens/longest.c).
 * E_FORMAT and E_LIMIT name the line; the caller adds the file. */
int rwkv_tokenizer(const char *text, size_t n, const struct json *config, struct buf *out, struct err *err);

#endif
