/* charsmap.h - SentencePiece's table of replacements, as "precompiled_charsmap" holds it.
 *
 * Bytes: u32 size of a double array, that array (darts-clone's units of u32), then replacements, each ended by a 0
 * byte, whose offsets are the array's values.  Outside input: every index is checked. */
#ifndef TEXT_CHARSMAP_H
#define TEXT_CHARSMAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct charsmap {
	uint8_t *p;    /* all of it; NULL: an empty table */
	size_t n_unit; /* of the array, at p + 4 */
	const char *text;
	size_t n_text;
};

/* base64[0..n), which may be empty. */
int charsmap_open(struct charsmap *m, const char *base64, size_t n, struct err *err);
void charsmap_close(struct charsmap *m);

/* Bytes of p[0..n), at its beginning, that are an entry, the shortest there is, and what replaces it, with[0..len); 0: none. */
size_t charsmap_find(const struct charsmap *m, const char *p, size_t n, const char **with, size_t *len);

#endif
