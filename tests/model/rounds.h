/* rounds.h - the first rounds of a drafter as a reference has them: draft.json and draft.safetensors of a golden folder. */
#ifndef TESTS_MODEL_ROUNDS_H
#define TESTS_MODEL_ROUNDS_H

#include "base/json.h"
#include "store/safetensors.h"

enum { ROUNDS_TOKENS = 96 };

struct rounds {
	struct safetensors file;
	struct json *j;
	int32_t tok[ROUNDS_TOKENS]; /* the prompt, then the model's greedy tokens */
	int n_tok;
};

/* Aborts where a file is missing or broken.  Owned: rounds_close. */
void rounds_open(struct rounds *g, const char *folder);
void rounds_close(struct rounds *g);

/* Reads an array of ids; returns how many. */
int rounds_ids(const struct json *a, int32_t *out);

/* Compares got [n][cols] with the tensor `name` of a round, within 1e-3.  must: a round without that tensor is a failure,
 * else it is passed over. */
void rounds_compare(const struct rounds *g, int round, const char *name, const float *got, int n, int cols, bool must);

/* Index of the largest of x[0..n), the first of equals. */
int rounds_best(const float *x, int n);

#endif
