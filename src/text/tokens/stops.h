/* stops.h - cutting a growing text at the first stop string.
 *
 * Text goes in as it is made and comes out as soon as no stop string can begin in
 * it.  The stop that is complete first counts, and the longest of those that end
 * at the same byte; so the result does not depend on how the text
 * was cut into calls.  Neither the stop nor anything after it comes out. */
#ifndef TEXT_STOPS_H
#define TEXT_STOPS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

enum { STOPS_MAX = 64, STOP_BYTES_MAX = 4096 };

struct stop;

struct stops {
	struct stop *stop;
	int n;
	struct buf held; /* the longest end of the text that begins a stop */
	int hit;         /* index of the stop that was found, or -1 */
};

/* Copies n strings of UTF-8.  E_ARG for an empty or an invalid one, E_LIMIT for too
 * many or too long; then s is as after stops_fini. */
int stops_init(struct stops *s, const char *const *text, const size_t *len, int n, struct err *err);
void stops_fini(struct stops *s);
void stops_reset(struct stops *s); /* for a new text */

/* Takes text[0..n) and appends to out what is safe.  True once a stop is found;
 * from then on nothing comes out. */
bool stops_put(struct stops *s, const char *text, size_t n, struct buf *out);

/* The end of the text: appends what is still held, unless a stop was found. */
void stops_flush(struct stops *s, struct buf *out);

#endif
