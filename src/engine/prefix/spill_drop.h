/* spill_drop.h - which files are of a prefix, or of what begins with it.
 *
 * Names do not tell what came before a page, heads do: so this reads the heads of
 * all pieces.  For the threads that write; holds no lock. */
#ifndef ENGINE_SPILL_DROP_H
#define ENGINE_SPILL_DROP_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/prefix/spill_file.h"

struct spill_name {
	enum spill_kind kind;
	struct digest key;
	uint32_t pos; /* of a snapshot */
	uint64_t tail;
	bool out;
};

/* Reads the head of a piece and its first n recorded tokens.  false: it cannot be read. */
struct spill_peek {
	bool (*peek)(struct spill_peek *, const struct spill_name *f, struct spill_head *h, int32_t *tok, size_t n);
};
/* For the files in a folder. */
struct spill_peek_files {
	struct spill_peek peek;
	const struct spill_io *io;
	int dir;
};
struct spill_peek_files spill_peek_files(const struct spill_io *io, int dir);

/* Marks (out) those of v[0..n) that begin with tok[0..n_tok), whose keys are
 * key[0..n_tok / page_rows], and those for which it is unknown.  Orders v anew. */
void spill_mark(struct spill_peek *peek, int page_rows, const struct digest *key, const int32_t *tok, int n_tok,
                struct spill_name *v, size_t n);

#endif
