/* to_gguf.h - a GGUF file with its matrices in other types. */
#ifndef EXPORT_TO_GGUF_H
#define EXPORT_TO_GGUF_H

#include "export/gguf_source.h"
#include "export/imatrix.h"
#include "export/mix.h"
#include "export/write_rows.h"

/* Parameters that both kinds of output take. */
struct export_ask {
	const char *to;                   /* the file or folder to be made */
	const char *words;                /* what the source is, and what is asked of it: write_rows.h */
	const struct imatrix *importance; /* NULL: none */
	struct pool *pool;
	void (*progress)(void *arg, size_t done, size_t all);
	void *arg;
};

/* Metadata as `from` has it, but for the file type; tensors in its order.  E_UNSUPPORTED: a file in parts, or whose
 * matrices have fewer than 8 bits already; others as write_rows. */
int export_gguf(const struct gguf_source *from, const struct mix *mix, const struct export_ask *ask, struct err *err);

#endif
