/* pretok.h - how a text is cut into pieces before merging, for tokenizer.c.
 *
 * A chain of stages from tokenizer.json's pre_tokenizer: Split with a regular
 * expression or a plain string, Digits, Punctuation, Whitespace, WhitespaceSplit,
 * BertPreTokenizer, Metaspace, and at the end ByteLevel.  Expressions are
 * PCRE2 with its JIT; they were written for Oniguruma, so the constructs whose
 * meaning differs are rewritten or refused.  An open pretok is constant. */
#ifndef TEXT_PRETOK_H
#define TEXT_PRETOK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/json.h"

struct pretok;

/* pre is the value of "pre_tokenizer". */
int pretok_open(struct pretok **out, const struct json *pre, struct err *err);
void pretok_close(struct pretok *p); /* NULL is allowed */
/* Pieces are bytes for a vocabulary in GPT-2's alphabet. */
bool pretok_byte_level(const struct pretok *p);

/* Working memory of one caller that splits n bytes in all (the time limit depends on n); not shared between threads. */
struct pretok_run *pretok_run_new(const struct pretok *p, size_t n);
void pretok_run_free(struct pretok_run *r);

/* Calls fn for each piece of text[0..n) (valid UTF-8) in order; pieces are not
 * empty.  first: it begins the whole text, which some put a space before.  E_LIMIT when an expression needs too many steps or too long. */
typedef void pretok_fn(void *ctx, const char *piece, size_t n);
int pretok_split(struct pretok_run *r, const char *text, size_t n, bool first, pretok_fn *fn, void *ctx,
                 struct err *err);

/* An Oniguruma expression compiled by PCRE2; the caller frees it. */
struct pcre2_real_code_8;
int pretok_compile(const char *re, size_t n, struct pcre2_real_code_8 **out, struct err *err);

/* Appends to out the PCRE2 form of an Oniguruma expression, or E_UNSUPPORTED
 * naming the construct and its byte.  Open for tests. */
int pretok_translate(const char *re, size_t n, struct buf *out, struct err *err);

#endif
