/* slab_file.h - the packed slabs of a model's experts in one file, written once.
 *
 *   bytes 0 ..      struct header, then an entry for each expert, by layer; filled up to READ_ALIGN
 *   entry.at ..     a slab, READ_ALIGN aligned, entry.bytes long (slabs.h)
 *
 * All numbers are as the machine has them: the file stays on the machine that made it.  The name says of which
 * checkpoint and in which layout the slabs are, as a digest; the same stands in the header.  The file is written under
 * another name and renamed when it is whole and on disk, so that there is no half of one.
 * Format and reasons: docs/experts-from-disk.md, "Packed slabs". */
#ifndef BACKEND_SLAB_FILE_H
#define BACKEND_SLAB_FILE_H

#include "backend/slabs.h"

struct slab_entry {
	uint64_t at, bytes, check; /* check: slab_check of the slab */
};

/* A slab's digest is that of the check64 of its pieces in order, so that threads may share the work. */
enum { SLAB_PIECES = 8 };
uint64_t slab_piece_check(const uint8_t *slab, size_t bytes, int piece);
uint64_t slab_check(const uint64_t piece[SLAB_PIECES]);

/* The slabs to be packed. */
struct slab_list {
	struct moe *const *mix; /* [n_mix] */
	int n_mix;
	slab_packs_fn *packs;
	const void *packs_arg;
};

struct slab_file {
	struct read_file file;
	char *path;
	struct slab_entry *entry; /* by mixture, then expert */
	int n;
};

/* Opens dir's file of these slabs, or makes it from the mapped checkpoint: a copy of all experts.  key: the digest of
 * the checkpoint.  E_IO: the disk has no room or refuses, and nothing is left; E_FORMAT: the file that is there is not
 * what its name says.  progress, which may be NULL, is told how far packing is, in percent. */
int slab_file_open(struct slab_file *f, const char *dir, const struct digest *key, const struct slab_list *list,
                   const struct stream_opts *how, struct err *err);
void slab_file_close(struct slab_file *f);

#endif
