/* pattern.h - the regular expressions of JSON Schema's "pattern" and "format".
 *
 * The part of ECMA-262 that is regular: characters, ., [...], \d \w \s and their
 * capitals, \t \n \r \f \v \0 \cX \xHH \uHHHH \u{H...}, groups, |, * + ? {m,n}
 * (lazy forms mean the same), ^ and $.  Not done, and said so: looking ahead or
 * behind, \b, \p, back references. */
#ifndef TEXT_PATTERN_H
#define TEXT_PATTERN_H

#include "base/err.h"
#include "text/grammar/dfa.h"

/* The JSON strings (in the one spelling, lexeme.h) in which re[0..n), UTF-8, is
 * found somewhere.  *out is NULL on error, or, without one, when the pool is used
 * up.  E_UNSUPPORTED and E_FORMAT name the place. */
int pattern_compile(struct dfa_pool *p, const char *re, size_t n, struct dfa **out, struct err *err);

/* The language of texts, not escaped, that re matches from beginning to end.  ^ and $ may be at its beginning and
 * end only. */
int pattern_compile_text(struct dfa_pool *p, const char *re, size_t n, struct dfa **out, struct err *err);

/* The language of a format of JSON Schema; E_MISSING: the format is not supported. */
int pattern_format(struct dfa_pool *p, const char *name, struct dfa **out, struct err *err);

#endif
