/* opening.h - a request's body as the server would render it, without a server: for `weft pack`.
 *
 * One thread. */
#ifndef SERVER_OPENING_H
#define SERVER_OPENING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "text/tokens/tokenizer.h"

struct opening;
struct served;

/* d is borrowed until opening_end.  drop_volatile: as in struct server_opts. */
struct opening *opening_begin(const struct served *d, bool drop_volatile);
void opening_end(struct opening *o);

/* Puts the prompt of a body that was sent to a path into ids, and sets *system to how many of them are system prompt and tools
 * (0: not known).  now: seconds since 1970, for templates that print the date; 0: the clock's.  E_ARG: the server would refuse it, in the server's words; E_UNSUPPORTED: nothing is answered there, or it has
 * images. */
int opening_render(struct opening *o, const char *path, const char *body, size_t n, int64_t now, struct tokens *ids,
                   int *system, struct err *err);

#endif
