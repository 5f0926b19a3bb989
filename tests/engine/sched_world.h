/* sched_world.h - the engine over the toy model, driven by hand under a clock that each step moves by what it would cost. */
#ifndef TESTS_SCHED_WORLD_H
#define TESTS_SCHED_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "lives.h"
#include "model/model.h"
#include "toy.h"

enum { MS = 1000000 };

/* The clock, and what a step costs.  Begins with 10 ms a step and 1 ms a row. */
struct world {
	struct clock clock;
	int64_t now, base_ns, row_ns, ahead_ns; /* ahead: per row and position */
	struct model *m;
	struct engine *e;
	int64_t step_ns; /* of the last step */
	int step_rows, step_items;
	int64_t rows;                /* of all steps */
	struct engine_stats *within; /* what is seen while a step goes on; NULL: nobody looks */
};

/* Options with room for all lives of a test. */
extern const struct toy_opts world_roomy;
void world_open(struct world *w, struct toy_opts to, struct engine_opts eo);
/* Checks that nothing runs, waits or holds a page, and closes. */
void world_close(struct world *w);
struct engine_stats world_stats(struct world *w);
void world_submit(struct life *l, struct world *w);
/* Steps until there is nothing to do. */
void world_pump(struct world *w);
/* Compares a life's answer with that of a life alone; partial: its beginning, as far as it came. */
void world_check(struct life *l, struct world *w, bool partial);
/* Checks that a life ended by its length with the answer it would have had alone, and frees it. */
void world_end(struct life *l, struct world *w);

#endif
