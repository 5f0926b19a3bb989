/* split.h - a backend made of two: the first layers of a model run on one of them, the rest on the other. */
#ifndef TESTS_BACKEND_SPLIT_H
#define TESTS_BACKEND_SPLIT_H

#include "backend/backend.h"

/* The first `layers` layers of each model run on `first`, everything else on `rest`: the other layers, the embedding and
 * the output matrix.  Owns both: close() closes them. */
struct backend *split_open(struct backend *first, struct backend *rest, int layers);

#endif
