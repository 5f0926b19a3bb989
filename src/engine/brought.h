/* brought.h - the rows of a request that bring their own vectors (docs/images.md): where they are in its prompt, their
 * rotary positions, what they see, and whether their vectors are there yet.
 *
 * Engine's thread, but where it is said. */
#ifndef ENGINE_BROUGHT_H
#define ENGINE_BROUGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct ask;
struct ask_span;
struct engine;
struct request;

/* The spans of a request, rising and apart. */
struct brought {
	struct brought_span {
		struct media *media; /* a reference */
		int at, n, from;
		int rope;  /* rotary position of its first row */
		int after; /* rotary position of the row after it */
	} * span;
	int n;
	int whole; /* rows of a text that sees itself both ways, from the first on; 0: it is none */
};

/* Are the ask's spans in its prompt, apart, and such that the model and the engine can compute them?  Any thread. */
int brought_check(const struct engine *e, const struct ask *a, struct err *err);
/* Writes the spans' ids to tok.  False: ids are used up.  Any thread. */
bool brought_ids(struct engine *e, const struct ask_span *span, int n, int32_t *tok);
/* Takes references to the spans' media, and writes the spans' ids to tok, the engine's copy of the prompt.  False: no ids
 * are left; prefixes with these rows cannot be kept.  Any thread. */
bool brought_init(struct brought *b, struct engine *e, const struct ask_span *span, int n, int32_t *tok);
void brought_fini(struct brought *b);

/* The vectors of the row at pos; NULL: it is a token. */
const float *brought_row(const struct brought *b, const struct engine *e, int pos);
/* Rotary positions of the row at pos: time, height, width. */
void brought_rope(const struct brought *b, int pos, int32_t out[3]);
/* The last position that the row at pos sees where attention goes both ways. */
int brought_sees(const struct brought *b, int pos);
/* pos, or, inside a stretch that is not cut, the stretch's begin or end. */
int brought_floor(const struct brought *b, int pos);
int brought_ceil(const struct brought *b, int pos);
/* The first position from pos on whose vectors are not there yet; end: there is none before it. */
int brought_ready(const struct brought *b, int pos, int end);

/* Does the prompt have rows that bring their own vectors at or behind pos, or shortly before it?  A question that follows its
 * pictures comes in as they do. */
bool brought_more(const struct brought *b, int pos);
/* Does r wait for vectors of its next row? */
bool brought_waits(const struct request *r);
/* Between steps: computes a part of the vectors that a running request waits for; a request whose media fails ends.
 * Returns false when no request waits for any but those that are still on their way from disk (disk.h). */
bool brought_work(struct engine *e);

#endif
