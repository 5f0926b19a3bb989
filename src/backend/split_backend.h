/* split_backend.h - a backend made of two: the first layers of a model run on one of them and the rest on the other, or its
 * mixtures of experts on one of them and all else on the other. */
#ifndef BACKEND_SPLIT_BACKEND_H
#define BACKEND_SPLIT_BACKEND_H

#include "backend/backend.h"

/* The first `layers` layers of each model run on `first`, everything else on `rest`: the other layers, the embedding and
 * the output matrix.  Owns both: close() closes them.  A snapshot of one is a snapshot
 * of the other: their orders of numbers are one. */
struct backend *split_open(struct backend *first, struct backend *rest, int layers);

/* The operation moe, with routers and shared experts, runs on `rest`, which is near (backend.h); everything else on `first`.  A
 * mixture's input rows go over, and its output rows come back.  Experts on disk are as `rest` has them.  Owns both. */
struct backend *split_open_mixtures(struct backend *first, struct backend *rest);

#endif
