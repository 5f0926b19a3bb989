/* adapter.h - adapters (LoRA) of a model: what a file holds, as operations read it (backend/low_rank.h). */
#ifndef MODEL_ADAPTER_H
#define MODEL_ADAPTER_H

#include "backend/low_rank.h"
#include "model/model.h"

struct adapter_matrix; /* store/adapter_file.h */

/* Reads the adapter at path for a model that is attached; name is what requests call it.  It serves the model's arithmetic:
 * its numbers are kept as floats for ARITH_F32, rounded to bf16 for ARITH_FAST.  E_UNSUPPORTED, E_FORMAT, E_MISSING name
 * the tensor; E_UNSUPPORTED also where the backend adds nothing to products.  A backend that has memory of its own is given
 * the matrices, so it outlives the adapter; E_FULL: they do not fit. */
int adapter_open(struct adapter **out, struct model *m, const char *name, const char *path, struct err *err);
/* Makes an adapter of n pairs in memory, which are copied; where is for messages. */
int adapter_make(struct adapter **out, struct model *m, const char *name, const char *where,
                 const struct adapter_matrix *v, int n, struct err *err);
void adapter_close(struct adapter *a); /* no pass names it any more */

#endif
