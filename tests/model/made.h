/* made.h - model folders written from sizes alone: every tensor zero, the data a
 * hole in the file.  For loader tests and for real sizes without real weights. */
#ifndef TESTS_MADE_H
#define TESTS_MADE_H

#include <stdint.h>

#include "base/buf.h"

/* A header under construction. */
struct made {
	struct buf head;
	uint64_t at; /* bytes of data so far */
	/* What a test breaks: a tensor whose name ends with `break_name` gets other
	 * fields, or is left out when they are all unset. */
	const char *break_name;
	const char *break_dtype;
	int64_t break_dim[3]; /* 0: as it is */
	int64_t break_shift;  /* added to its data_offsets */
};

void made_init(struct made *m);
/* A tensor of n_dim <= 3 dimensions; dtype "BF16" or "F32". */
void made_add(struct made *m, const char *dtype, int n_dim, int64_t d0, int64_t d1, int64_t d2, const char *fmt, ...)
	__attribute__((format(printf, 7, 8)));
/* dir/file, cut short by `cut` bytes; frees m's memory.  0, or -1 when the file
 * system refuses a hole of that size. */
int made_write(struct made *m, const char *dir, const char *file, uint64_t cut);

/* Sizes of the Qwen3.5 family; experts 0: dense.  next: Qwen3-Next's names. */
struct made_qwen {
	int hidden, layers, heads, heads_kv, dim, lin_k, lin_v, inner, experts, top_k, moe_inner, shared, vocab, tied,
		next;
};
void made_qwen_config(struct buf *out, const struct made_qwen *q);
void made_qwen_tensors(struct made *m, const struct made_qwen *q);

#endif
