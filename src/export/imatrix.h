/* imatrix.h - importance matrices: for each input of a weight the mean of its squared activations over a text.
 *
 * Read from the two forms that llama.cpp writes: a GGUF file of type "imatrix", and the older binary one. */
#ifndef EXPORT_IMATRIX_H
#define EXPORT_IMATRIX_H

#include "base/err.h"

struct importance {
	const char *name; /* of the tensor: "blk.0.attn_q.weight" */
	int stack, cols;  /* experts, or 1 */
	float *v;         /* [stack][cols] */
};
struct imatrix {
	struct importance *v; /* by name */
	int n;
};

int imatrix_read(struct imatrix *m, const char *path, struct err *err);
void imatrix_fini(struct imatrix *m);
/* For rows of that many inputs; NULL: there is none, or of another shape. */
const struct importance *imatrix_find(const struct imatrix *m, const char *name, int cols);

#endif
