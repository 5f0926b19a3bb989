/* sim_store.h - the prefix store of a server that computes nothing: its caches are real, the memory behind them is not. */
#ifndef TESTS_SIM_STORE_H
#define TESTS_SIM_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/kinds.h"
#include "engine/prefix/place.h"
#include "engine/prefix/prefix.h"
#include "sim_talks.h"

struct sim {
	struct backend be;
	struct caches caches;
	struct prefix prefix;
	int states;
	bool coarse; /* places 512 tokens apart: what the grid is compared with */
	int64_t prompt, computed;
	int64_t now;
};

/* Room for so many states (0: for everything), each as large as the keys and values of 1572 tokens, which cost next to nothing
 * without kv. */
void sim_open(struct sim *s, int states, bool kv);
void sim_close(struct sim *s);
/* One request, as reuse.c would have it: x->tok[0..n_prompt) and then the answer.  Adds to prompt and computed. */
void sim_serve(struct sim *s, const struct text *x, int n_prompt);

#endif
