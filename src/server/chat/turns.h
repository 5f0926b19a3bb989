/* turns.h - the answers this server gave, as the tokens they were, to be met again.
 *
 * A turn is found by a key that stands for the whole history up to and with it
 * (past.h).  Memory is bounded; the turn found least lately goes first.  Any
 * thread; a turn that was found stays valid until it is given back. */
#ifndef SERVER_TURNS_H
#define SERVER_TURNS_H

#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/json.h"
#include "text/tokens/tokenizer.h"

struct turns;

struct text {
	const char *p; /* [n] */
	size_t n;
};

/* The texts, without blanks around them, and the calls of an assistant's message. */
struct said {
	struct text content, thinking;
	const struct json *calls; /* an array of {"function": {"name", "arguments"}}; NULL: none */
};

struct turn {
	/* Constant. */
	int32_t *id; /* [n] the tokens that were sampled */
	size_t n;
	char *header;     /* what the prompt ended with: the beginning of the answer's turn */
	struct said said; /* several threads read it: they take json_copy_whole of its calls, and share none of them */
	/* turns.c's own. */
	struct digest key;
	int refs;
	struct turn *chain, *newer, *older;
};

/* bytes_max 0: remembers nothing. */
struct turns *turns_new(size_t bytes_max);
void turns_free(struct turns *s); /* NULL is allowed; all turns must have been given back */

/* NULL: there is none. */
struct turn *turns_find(struct turns *s, const struct digest *key);
void turns_give_back(struct turns *s, struct turn *t); /* NULL is allowed */

/* Copies what it is given.  The later of two turns with one key counts. */
void turns_put(struct turns *s, const struct digest *key, const struct tokens *answer, const char *header,
               const struct said *said);

struct turns_stats {
	size_t bytes, bytes_max;
	int n;
	int64_t evicted;
};
void turns_stats(struct turns *s, struct turns_stats *out);

#endif
