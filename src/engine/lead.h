/* lead.h - what an answer is made to say: see struct lead in engine.h.
 *
 * A small machine over the tokens of one answer.  It looks at nothing else, so
 * what is given is a function of the request's own tokens.  verify.c asks `next`
 * before each token and tells it each one that was taken.  For src/engine/. */
#ifndef ENGINE_LEAD_H
#define ENGINE_LEAD_H

#include "engine/engine.h"

struct lead_run {
	struct lead l; /* its arrays are ours */
	enum { LEAD_BEGIN, LEAD_THOUGHT, LEAD_END, LEAD_THEN, LEAD_FREE } at;
	int i; /* of end[] or then[]; BEGIN, FREE: tokens of what opens a thought */
	int n_thought;
	bool then_said; /* what comes after the first thought does not come after another */
};

/* Copies.  E_ARG: an id is not in [0, vocab), or a bound without an end. */
int lead_init(struct lead_run *r, const struct lead *l, int vocab, struct err *err);
void lead_fini(struct lead_run *r); /* also of a zeroed one */

/* The token that comes next whatever the model says; -1: the model chooses. */
int32_t lead_next(const struct lead_run *r);
/* The forced tokens after the next one: writes those that are settled already, at most max, to out,
 * and returns their number. */
int lead_ahead(const struct lead_run *r, int32_t *out, int max);
/* Is the next token part of a thought?  The one that ends it is. */
bool lead_thinks(const struct lead_run *r);
/* token is now part of the answer. */
void lead_take(struct lead_run *r, int32_t token);

#endif
