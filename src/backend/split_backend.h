/* split_backend.h - a backend made of two: the first layers of a model run on one of them, the rest on the other. */
#ifndef BACKEND_SPLIT_BACKEND_H
#define BACKEND_SPLIT_BACKEND_H

#include "backend/backend.h"

/* The first `layers` layers of each model run on `first`, everything else on `rest`: the other layers, the embedding and
 * the output matrix.  Owns both: close() closes them.  A snapshot of one is a snapshot
 * of the other: their orders of numbers are one. */
struct backend *split_open(struct backend *first, struct backend *rest, int layers);

#endif
