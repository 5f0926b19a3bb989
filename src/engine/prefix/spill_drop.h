/* spill_drop.h - which files are of a prefix, or of what begins with it.
 *
 * Names do not tell what came before a page, heads do: so this reads the heads of
 * all files.  For spill.c's writing thread; holds no lock. */
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

/* Marks (out) those of v[0..n) that begin with tok[0..n_tok), whose keys are
 * key[0..n_tok / page_rows], and those for which it is unknown.  Orders v anew. */
void spill_mark(const struct spill_io *io, int dir, int page_rows, const struct digest *key, const int32_t *tok,
                int n_tok, struct spill_name *v, size_t n);

#endif
