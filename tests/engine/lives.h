/* lives.h - requests for the engine's tests, what came back of them, and what
 * should have come back. */
#ifndef TESTS_ENGINE_LIVES_H
#define TESTS_ENGINE_LIVES_H

#include <stdio.h>
#include <stdlib.h>

#include "engine/engine.h"
#include "../check.h"

enum { LIFE_MAX = 400 }; /* positions of one request */

struct answer {
	int32_t tok[LIFE_MAX];
	float logprob[LIFE_MAX];
	int n;
	char text[LIFE_MAX * 16];
	size_t n_text;
	enum finish finish;
	char stop[64]; /* the stop string, or empty */
};

/* One request: fill prompt and ask, then life_submit. */
struct life {
	struct ask ask;
	int32_t prompt[LIFE_MAX];
	bool want_rows;           /* keep all logits, and check them */
	uint64_t masked;          /* seed of a mask over its tokens (rules_new); 0: none */
	struct mask_source *held; /* or this one, which life_submit takes; NULL: none */
	int mix;                  /* of its adapters among lives_opts.mix */
	bool loose;               /* it may be preempted and find a longer prefix then: rows may be missing */

	struct request *r;
	struct answer got;
	bool started, done;
	int cached, progress;
	int n_start, n_done;
	struct event end;
	int vocab;
	float *row[LIFE_MAX];
	int row_max; /* rows come in rising position: the last one */
};

/* A prompt of n tokens under `vocab` from a seed; greedy, max_tokens to be set. */
void life_init(struct life *l, int n_prompt, int vocab, uint64_t seed);
int life_submit(struct life *l, struct engine *e, struct err *err);
/* Takes what waits; wait: until DONE. */
void life_read(struct life *l, bool wait);
void life_free(struct life *l);

/* A mask that follows the accepted tokens: about half of the ids, and now and
 * then the answer is whole. */
struct mask_source *rules_new(uint64_t seed, int vocab);

/* What the model says of tok[0..n), computed outside the engine. */
typedef void truth_fn(const struct model *m, const int32_t *tok, int n, float *out);

/* Positions that the context and the page pool hold.  Not while the engine's thread runs. */
int life_room(const struct model *m);
/* The answer of that request alone, by the plainest loop there is. */
void life_alone(const struct life *l, const struct model *m, int room, const struct tokenizer *t, truth_fn *truth,
                struct answer *out);
/* got is `want`, or (partial) a beginning of it; rows are the truth's. */
void life_check(const struct life *l, const struct model *m, const struct answer *want, truth_fn *truth, bool partial);

/* Random numbers from a state that is counted up: in [0, n). */
uint64_t dice(uint64_t *state, uint64_t n);

/* Random requests come, run together and are cancelled, for so many steps and
 * until all have ended; each is checked against the truth.  The engine is driven
 * by hand. */
enum { LIVES_MAX = 24 };
struct lives_opts {
	int steps;
	int prompt_max, answer_max;
	int32_t poison; /* token after which there are no logits; -1: none */
	/* [n_mix] of which each request has one; about is told before the truth is asked for its tokens. */
	const struct ask_adapters *mix;
	int n_mix;
	void (*about)(const struct life *l);
	truth_fn *
		last; /* the row of the last of tok's n tokens, shape.hidden floats; NULL: such rows are not asked for */
};
void lives_many(struct engine *e, const struct model *m, const struct tokenizer *t, truth_fn *truth,
                const struct lives_opts *o, uint64_t *state);

#endif
