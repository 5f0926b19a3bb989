/* gguf_file.h - one GGUF file, mapped and checked before use.
 *
 *     "GGUF", u32 version (2 or 3), i64 tensors, i64 pairs
 *     pairs    string key, i32 type, value
 *     tensors  string name, u32 n_dims, n_dims x i64, i32 type, u64 offset
 *     padding to general.alignment, data
 *
 * A string is a u64 length and bytes; an array is an i32 element type, a u64
 * count and elements.  Little-endian.  Every length, count, offset and type is
 * checked against the bytes that are there before memory is taken for it, and
 * tensors must follow one another without overlap.  An error is one line: the
 * file, the key or tensor, and the two values that disagree.  Inside src/store/. */
#ifndef STORE_GGUF_FILE_H
#define STORE_GGUF_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "quant/gguf/gguf.h"

enum gguf_kind {
	GGUF_U8,
	GGUF_I8,
	GGUF_U16,
	GGUF_I16,
	GGUF_U32,
	GGUF_I32,
	GGUF_F32,
	GGUF_BOOL,
	GGUF_STRING,
	GGUF_ARRAY,
	GGUF_U64,
	GGUF_I64,
	GGUF_F64,
	GGUF_KINDS,
};

/* One pair of the metadata.  A scalar is an array of one element. */
struct gguf_value {
	const char *key;
	enum gguf_kind kind; /* of the elements */
	bool array;
	uint64_t n;       /* elements; 1 for a scalar */
	const uint8_t *p; /* the first element */
};

enum { GGUF_DIMS = 4 };

struct gguf_info {
	const char *name;
	const struct gguf_type *type;
	int n_dim;             /* 0: one element */
	int64_t ne[GGUF_DIMS]; /* the first varies fastest; those beyond n_dim are 1 */
	int64_t count;         /* elements */
	const uint8_t *data;
	size_t bytes;
};

struct gguf {
	const char *path; /* for messages */
	struct file_map map;
	struct arena arena;
	struct gguf_value *kv; /* by key */
	size_t n_kv;
	struct gguf_info *info; /* by name */
	size_t n_info;
	size_t tail_bytes; /* behind the last tensor */
};

/* Maps the file.  On an error nothing is left open. */
int gguf_open(struct gguf *g, const char *path, struct err *err);
/* gguf_open over bytes in memory, which the caller keeps until close; path is for messages. */
int gguf_open_bytes(struct gguf *g, const char *path, const void *p, size_t n, struct err *err);
void gguf_close(struct gguf *g);
/* Whether the file begins like a GGUF file. */
bool gguf_is(const char *path);

const struct gguf_value *gguf_find(const struct gguf *g, const char *key); /* NULL: none */
const struct gguf_info *gguf_info(const struct gguf *g, const char *name); /* NULL: none */

/* Elements of a value.  Writers do not agree on types: any integer type that
 * holds the number will do, a scalar stands for an array of any length, and a
 * float never counts as an integer.  0, or E_FORMAT with the key named. */
int gguf_int(const struct gguf *g, const struct gguf_value *v, uint64_t i, int64_t *out, struct err *err);
int gguf_float(const struct gguf *g, const struct gguf_value *v, uint64_t i, double *out, struct err *err);
int gguf_bool(const struct gguf *g, const struct gguf_value *v, uint64_t i, bool *out, struct err *err);

/* Strings, which have no index: at is v->p for the first element, and is moved to
 * the next.  They may hold any bytes. */
struct gguf_string {
	const char *p;
	size_t n;
};
struct gguf_string gguf_next(const uint8_t **at);

#endif
