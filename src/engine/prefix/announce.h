/* announce.h - tells routers of fleets which blocks of tokens a request can resume from.
 *
 * A block is `size` tokens of a prompt, from a multiple of size on.  Its name is a chain: the first eight bytes of the
 * SHA-256 of the name of the block before it (0: there is none) and of its tokens, all little-endian, as a big-endian
 * number.  So a name stands for all tokens up to the block's end.
 *
 * A block is announced while a request whose prompt goes on behind its end resumes there or later.  After each step the set of
 * such blocks is compared with the announced one, so whatever changed the tree is in it.  Only prefixes without salt
 * and adapters, up to the first row of an image, are announced, and only those in memory. */
#ifndef ENGINE_ANNOUNCE_H
#define ENGINE_ANNOUNCE_H

#include <stdbool.h>
#include <stdint.h>

struct announce;
struct prefix;

/* A receiver of announcements.  It is called on the engine's thread and may not wait. */
struct block_sink {
	/* Asked before each comparison: everything is announced again, after cleared(). */
	bool (*again)(struct block_sink *);
	void (*cleared)(struct block_sink *); /* no block is left */
	void (*removed)(struct block_sink *, const uint64_t *name, int n);
	/* n blocks, one behind the other, and their tokens tok[n * size].  parent: the name of the block before them, which is
	 * not always announced; 0: none is before them. */
	void (*stored)(struct block_sink *, uint64_t parent, const uint64_t *name, int n, const int32_t *tok, int size);
	void (*end)(struct block_sink *); /* what was said since the last end() is one message */
};

/* size > 0.  Says cleared() first. */
struct announce *announce_open(struct block_sink *sink, int size);
/* Says cleared().  NULL: nothing. */
void announce_close(struct announce *a);
/* Compares, if states came or went.  NULL: nothing. */
void announce_step(struct announce *a, const struct prefix *p);

#endif
