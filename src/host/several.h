/* several.h - models of one process that are loaded and unloaded by turns: how much memory each may take.
 *
 * One budget is shared out before any of them is loaded, so that a model has the same context whatever was loaded before it. */
#ifndef HOST_SEVERAL_H
#define HOST_SEVERAL_H

#include <stddef.h>

#include "base/err.h"

struct host_opts;
struct session;

/* One of the models. */
struct one_of_several {
	struct host_opts *o; /* the caller's.  several_plan sets memory_bytes, where it is 0, and text_bytes */
	size_t least;        /* bytes that it takes without keys, values and kept prefixes */
	size_t bytes;        /* bytes of the budget while it is loaded */
	struct err why;      /* code 0: it can be loaded.  Else why not; the other members are 0 */
};

/* Bytes that all models of the process may take together, where it may take `memory` (0: fifteen sixteenths of the machine's).  What
 * the program itself takes is not part of them: called before any model is loaded. */
size_t several_budget(size_t memory);

/* Looks at each model and plans its memory; opens and closes one after the other.  taken: bytes of the budget that models have which
 * were planned before.  Where all leave a quarter of the budget when they are loaded, each gets an equal share of the rest, and all
 * fit together.  Else each gets a quarter of what it leaves alone, and they take turns.
 * told is called once for each that can be loaded, with a session that was opened with LOAD_PLAN as the model will be loaded. */
void several_plan(struct one_of_several *v, int n, size_t budget, size_t taken,
                  void (*told)(void *arg, int i, const struct session *s), void *arg);

#endif
