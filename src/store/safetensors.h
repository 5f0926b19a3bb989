/* safetensors.h - one file of named tensors, mapped and checked before use.
 *
 *     u64 N, N bytes of JSON {name: {dtype, shape, data_offsets}}, data
 *
 * Everything the header says is checked against the file before anyone sees a
 * pointer: lengths, types, shapes, products, ranges, overlaps, names.  An error
 * is one line that names the file, the tensor and the two values that disagree.
 * Unused bytes between tensors are allowed and counted.  Data may begin at any
 * address: writers other than Hugging Face's do not align it. */
#ifndef STORE_SAFETENSORS_H
#define STORE_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "store/tensor.h"

struct safetensors {
	struct file_map map;
	struct arena arena; /* names and the table */
	struct tensor *v;   /* by name */
	size_t n;
	size_t bytes;      /* of all tensors */
	size_t hole_bytes; /* data that belongs to no tensor */
};

/* Maps the file.  On an error nothing is left open. */
int safetensors_open(struct safetensors *s, const char *path, struct err *err);
/* safetensors_open over bytes in memory, which the caller keeps until close; path is for messages. */
int safetensors_open_bytes(struct safetensors *s, const char *path, const void *p, size_t n, struct err *err);
void safetensors_close(struct safetensors *s);
struct tensor *safetensors_find(const struct safetensors *s, const char *name);

/* A tensor to be written; data in its own type, row-major. */
struct tensor_out {
	const char *name;
	enum dtype type;
	int n_dim;
	int64_t dim[TENSOR_DIMS];
	const void *data;
};

/* Writes a file anew, under a temporary name until it is whole. */
int safetensors_write(const char *path, const struct tensor_out *v, int n, struct err *err);

#endif
