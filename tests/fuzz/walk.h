/* walk.h - for fuzz targets: a grammar walked by bytes of the input. */
#ifndef FUZZ_WALK_H
#define FUZZ_WALK_H

#include "text/grammar/grammar.h"

/* Walks g by text[0..size), or by any byte that may come where the text's may not; takes over the reference to g.  Aborts
 * where no byte may follow and the text is not complete, or where a mask allows a token that cannot be taken. */
void walk_grammar(struct grammar *g, const char *text, size_t size);

#endif
