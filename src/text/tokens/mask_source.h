/* mask_source.h - which tokens an answer may go on with.
 *
 * The engine asks before it picks a token, and says what it picked; drafters
 * accept their guesses too and take them back before the engine goes on.
 * So a mask is a function of the accepted tokens alone, however they came.
 * Used by one thread at a time. */
#ifndef TEXT_MASK_SOURCE_H
#define TEXT_MASK_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mask_source;

/* Given n bytes, 2 to AHEAD_MAX, that may come after text[0..n_text): the one to go on with; -1: none. */
enum { AHEAD_MAX = 4 };
typedef int ahead_choice(void *arg, const char *text, size_t n_text, const uint8_t *may, int n);

struct mask_source_ops {
	/* Bit i % 32 of mask[i / 32] allows id i; NULL: all are allowed.  Valid until
	 * the next call of any member. */
	const uint32_t *(*mask)(struct mask_source *m);
	/* token is now part of the answer: one that the mask allowed, or that the answer
	 * was made to say.  Tokens that end an answer are not told. */
	void (*accept)(struct mask_source *m, int32_t token);
	/* The last n accepted tokens are taken back. */
	void (*rollback)(struct mask_source *m, int n);
	/* Nothing may follow: the answer is whole, whether or not an end token comes. */
	bool (*whole)(const struct mask_source *m);
	void (*free)(struct mask_source *m);
	/* Optional: text that must come next, whatever is picked, up to max bytes into out; how many there are.  Where
	 * a few bytes may come, `choose` goes on with one of them, and what follows is a guess.  Text ends where the
	 * answer may. */
	size_t (*ahead)(struct mask_source *m, char *out, size_t max, ahead_choice *choose, void *arg);
};

/* The first member of an implementation's struct. */
struct mask_source {
	const struct mask_source_ops *ops;
};

#endif
