/* route.h - inside backend/cpu/: which experts a row of a mixture gets, and with what weights. */
#ifndef BACKEND_CPU_ROUTE_H
#define BACKEND_CPU_ROUTE_H

#include "backend/backend.h"
#include "backend/cpu/op_kernels.h"

/* One row's logits[experts], of ROUTE_ROOT their softplus, which are overwritten, to expert[top_k] and weight[top_k], in falling order of score; of
 * equal scores the lower index comes first.  Where fewer than top_k scores are numbers, what is left of weight is NaN.
 * scratch: route_scratch_bytes(m).  fixed: the row's
 * experts [top_k], which scores do not choose; NULL: they do. */
void route_row(const struct op_table *op, const struct moe *m, float *logits, const int32_t *fixed, int *expert,
               float *weight, float *scratch);
size_t route_scratch_bytes(const struct moe *m);

#endif
