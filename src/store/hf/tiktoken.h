/* tiktoken.h - tiktoken.model, a tokenizer's list of byte strings by rank, as a document of Hugging Face.  Inside src/store/. */
#ifndef STORE_TIKTOKEN_H
#define STORE_TIKTOKEN_H

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

/* The expression by which text is cut, which stands in the model's Python and not in its data: known by the tokenizer_class
 * of the tokenizer_config.json.  NULL: E_UNSUPPORTED names the class. */
const char *tiktoken_pattern(const struct json *config, struct err *err);

/* Appends the tokenizer.json that means what the tiktoken.model in text[0..n) does, with the added_tokens_decoder of config
 * (NULL: none) as its special tokens; 256 ids behind the ranks are special ones whether they are named or not.  The model is of
 * the kind "ScoredBPE" (text/tokens/scored.c).  E_FORMAT and E_LIMIT name the line or the key; the caller adds the file. */
int tiktoken_tokenizer(const char *text, size_t n, const char *pattern, const struct json *config, struct buf *out,
                       struct err *err);

#endif
