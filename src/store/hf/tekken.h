/* tekken.h - tekken.json, the tokenizer file of Mistral's own library, as documents of Hugging Face.  Inside src/store/. */
#ifndef STORE_TEKKEN_H
#define STORE_TEKKEN_H

#include "base/buf.h"
#include "base/err.h"

/* Appends the tokenizer.json, or the tokenizer_config.json, that means what the tekken.json in text[0..n) does.  The
 * first holds a model of the kind "ScoredBPE", which is not Hugging Face's (text/tokens/scored.c).  E_FORMAT,
 * E_UNSUPPORTED and E_LIMIT name the key; the caller adds the file. */
int tekken_tokenizer(const char *text, size_t n, struct buf *out, struct err *err);
int tekken_tokenizer_config(const char *text, size_t n, struct buf *out, struct err *err);

#endif
