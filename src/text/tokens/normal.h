/* normal.h - a text made uniform before it is cut: the "normalizer" of a tokenizer.json.
 *
 * A chain of steps: NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, Replace (a text or an
 * expression), BertNormalizer, Precompiled (SentencePiece's table of replacements), and two of our own: PrependWord,
 * Prepend before the first character that is not a space, if there is one. Each byte of the result knows which byte of
 * the source it came from.  An open chain is constant. */
#ifndef TEXT_NORMAL_H
#define TEXT_NORMAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"

struct normal;

/* j is the value of "normalizer", null included: then *out is NULL, as for a chain without steps. */
int normal_open(struct normal **out, const struct json *j, struct err *err);
void normal_close(struct normal *f); /* NULL is allowed */

/* A text and where its bytes come from. */
struct normal_text {
	struct buf text;
	uint32_t *from; /* [text.n] offset in the source, rising */
	size_t cap;
};

/* Memory of one caller; text.text is the result of the last run. */
struct normal_work {
	struct normal_text text, next;
};
void normal_work_init(struct normal_work *w);
void normal_work_fini(struct normal_work *w);

/* p[0..n) is valid UTF-8.  False: the text is as it was, and w is not set.  E_LIMIT in *code when an expression works
 * too hard or the text grows beyond three times TOKENIZER_TEXT_MAX. */
bool normal_run(const struct normal *f, struct normal_work *w, const char *p, size_t n, int *code, struct err *err);
/* The source range that yielded [to, to_end) of the result; n is the source's length. */
void normal_source(const struct normal_work *w, size_t n, size_t to, size_t to_end, size_t *from, size_t *from_end);

#endif
