/* recent.h - the tokens of long texts that were encoded lately.
 *
 * A conversation comes again at every turn, and its messages lie between added tokens, so each is encoded by itself:
 * what is found here has the tokens that encoding gives, as the whole text is compared.  For tokenizer.c alone.  Any number of
 * threads may use one. */
#ifndef TEXT_RECENT_H
#define TEXT_RECENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/tokens/tokenizer.h"

enum {
	RECENT_TEXT_LEAST = 2048, /* bytes; shorter ones are encoded faster than a tenth of a millisecond */
	RECENT_TEXTS = 256,
};

struct recent;

/* Keeps texts and their tokens in at most that many bytes.  recent_free ends it; NULL is allowed. */
struct recent *recent_new(size_t bytes);
void recent_free(struct recent *r);

/* Appends the tokens of p[0..n) to out and sets *steps to what encoding it cost; false: not known.  first: the text is the
 * beginning of all that is encoded. */
bool recent_find(struct recent *r, const char *p, size_t n, bool first, struct tokens *out, uint64_t *steps);

/* Copies the text and its tokens id[0..n_id); those that were used least recently make room.  What is larger than a
 * fourth of all, or known, is not copied. */
void recent_put(struct recent *r, const char *p, size_t n, bool first, const int32_t *id, size_t n_id, uint64_t steps);

#endif
