/* imatrix.h - importance matrices: for each input of a weight the mean of its squared activations over a text.
 *
 * Read from the two forms that llama.cpp writes: a GGUF file of type "imatrix", and the older binary one. */
#ifndef EXPORT_IMATRIX_H
#define EXPORT_IMATRIX_H

#include <stddef.h>

#include "base/err.h"

struct importance {
	const char *name; /* of the tensor: "blk.0.attn_q.weight" */
	int stack, cols;  /* experts, or 1 */
	double rows;      /* while it is gathered */
	float *v;         /* [stack][cols] */
};
struct imatrix {
	struct importance *v; /* by name */
	int n;
};

/* Gathering one: the squares of n rows of cols numbers, ld apart, are added to what `name` has.  One thread. */
void imatrix_add(struct imatrix *m, const char *name, const float *x, size_t ld, int n, int cols);
/* To means; a name that another table knows by another one is added under it as well (imatrix_rename). */
void imatrix_finish(struct imatrix *m);
void imatrix_rename(struct imatrix *m, const char *from, const char *to);

int imatrix_read(struct imatrix *m, const char *path, struct err *err);
void imatrix_fini(struct imatrix *m);
/* For rows of that many inputs; NULL: there is none, or of another shape. */
const struct importance *imatrix_find(const struct imatrix *m, const char *name, int cols);

#endif
