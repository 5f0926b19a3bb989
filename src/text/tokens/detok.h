/* detok.h - tokens back to text, one at a time.
 *
 * A token may end inside a character: its bytes wait for the next one, so what
 * comes out is whole characters only.  Bytes that can never become a character
 * come out as U+FFFD, one for each longest beginning of a character (the practice
 * of the Unicode standard, section 3.9).  However the tokens are fed, the pieces
 * together are the text of the whole. */
#ifndef TEXT_DETOK_H
#define TEXT_DETOK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "text/tokens/tokenizer.h"

struct detok {
	const struct tokenizer *t;
	bool skip_special; /* special tokens leave no text, and do not part what is around them */
	int strip;         /* spaces that the text may still lose at its beginning */
	int n_held;
	char held[4]; /* the beginning of a character */
};

void detok_init(struct detok *d, const struct tokenizer *t, bool skip_special);

/* Appends what token id completes.  An id that is not a token adds nothing. */
void detok_put(struct detok *d, int32_t id, struct buf *out);

/* The end of the tokens: appends U+FFFD if bytes are held.  d may be used again. */
void detok_flush(struct detok *d, struct buf *out);

#endif
