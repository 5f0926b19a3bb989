/* tensor.h - one named tensor of a model's files. */
#ifndef STORE_TENSOR_H
#define STORE_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "quant/packed.h"

enum { TENSOR_DIMS = 8 }; /* most dimensions; a convolution in a vision tower has 5 */

struct tensor {
	const char *name;
	const char *file;   /* as given to open */
	const char *origin; /* its name there, if that is another and the elements are as the file has them; or NULL */
	enum dtype type;    /* of the elements; not read where format is set */
	const char *other;  /* the name of DT_OTHER in its file */
	const char *format; /* a number format whose scales lie inside a row's bytes ("q4_k"); NULL: plain elements */
	int n_dim;          /* 0: a scalar, one element */
	int64_t dim[TENSOR_DIMS];
	int64_t count;       /* elements: the product of dim */
	const uint8_t *data; /* in the mapping; NULL: the container makes it when it is first used */
	size_t bytes;

	/* Whether a weight was made of the tensor or it was ignored, kept by the store: see store_weight and store_ignore. */
	int used;
	int64_t elements;          /* as the model sees it: coded words unpacked, their scales 0 */
	const struct format *fmt;  /* when handed out as a matrix: how it is written */
	int group;                 /* of fmt; 0: none */
	size_t stored;             /* of that matrix: bytes with scales and biases */
	const struct weight *made; /* that matrix, where its codes or scales were laid out anew; NULL: as in the file */
	const char *ignored;       /* why; NULL while neither used nor ignored */
	bool rotated;              /* its rows are in another basis (basis_file.h) */
	const struct weight *whole; /* the matrix, where it may be packed into blocks; NULL: it may not */
	struct packed packed;       /* of it, once they are there */
};

/* Sorts v by name; lookup in what is sorted, NULL when there is none of that name. */
void tensors_sort(struct tensor **v, size_t n);
struct tensor *tensors_find(struct tensor *const *v, size_t n, const char *name);

/* Sets `to` to the name without the suffix.  False, and `to` is as it was: the name does not end in the suffix, or is that
 * alone. */
bool tensor_stem(struct buf *to, const char *name, const char *suffix);
/* "[512, 64]" into buf, which is returned. */
char *shape_text(char *buf, size_t cap, const int64_t *dim, int n_dim);
/* How a person calls the type: "BF16", "Q4_K". */
const char *tensor_type_name(const struct tensor *t);

#endif
