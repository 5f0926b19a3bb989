/* guess.h - drafters for the tests: as right or as wrong as asked. */
#ifndef TESTS_ENGINE_GUESS_H
#define TESTS_ENGINE_GUESS_H

#include "engine/draft/draft.h"
#include "lives.h"

enum guess {
	GUESS_RIGHT, /* what will be picked, as far as it is known */
	GUESS_WRONG, /* something else, each time */
	GUESS_TURN,  /* right `turn` times, then wrong */
	GUESS_DICE,  /* any of these, any length, and now and then no token at all */
};

/* A sequence that a guesser knows: prompt and answer. */
struct told {
	const int32_t *tok;
	int n;
};

struct guesser {
	struct drafter d;
	enum guess how;
	int turn;
	const struct told *told; /* or, with truth, whatever the model says */
	int n_told;
	truth_fn *truth;
	const struct model *m;
	uint64_t dice;
	int64_t asked;
};

void guesser_init(struct guesser *g, enum guess how);

/* Stands before a drafter with a head of its own, which guesses as ever: its caches go forward, and back, and follow the
 * model.  What the engine is told is another's guess, so that drafts come true which random weights never get right. */
struct rigged {
	struct drafter d;
	struct drafter_ops ops;
	struct drafter *head;
	struct guesser *by; /* NULL: the head's own guesses are told */
	bool books;         /* of one sequence: guesses after so many tokens are the same each time */
	int n_book[2 * LIFE_MAX];
	int32_t book[2 * LIFE_MAX][DRAFT_MAX];
	int64_t compared;
};
/* Takes the head over. */
void rigged_init(struct rigged *r, struct drafter *head, bool books);
/* Another sequence. */
void rigged_clear(struct rigged *r);

#endif
