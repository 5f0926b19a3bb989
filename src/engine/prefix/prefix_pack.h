/* prefix_pack.h - kept prefixes in one file, which can be copied to another machine: docs/prefix-store.md.
 *
 *   head    PACK_HEAD bytes: magic, version, sizes, the model's digest, the SHA-256 of about and table
 *   about   JSON: what the model's digest stands for (host/identity.h)
 *   pieces  files of spill_file.h, one after the other: snapshots, then pages; each by position, key and tail
 *   table   an entry of PACK_ENTRY bytes for each piece: its SHA-256, its bytes, its tail (spill_name_put)
 *
 * A pack of the same pieces is the same file: no time and no name is in it.  All bytes are little endian.  A file is read as one that
 * others wrote: every size is compared with the file's, and no more than one entry or one megabyte is in memory at once.
 *
 * Any thread; one open pack may be read by several. */
#ifndef ENGINE_PREFIX_PACK_H
#define ENGINE_PREFIX_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/digest.h"
#include "base/err.h"
#include "engine/prefix/spill_file.h"

enum { PACK_VERSION = 1, PACK_HEAD = 112, PACK_ENTRY = 48, PACK_ABOUT_MAX = 1 << 20 };

/* ---- reading ---- */

struct pack;

/* Opens a file and checks its head, about and table; pieces are checked by pack_check.  E_IO; E_FORMAT, or E_UNSUPPORTED for
 * another version: the message has the path and both values. */
int pack_open(struct pack **out, const char *path, struct err *err);
void pack_close(struct pack *p);
const char *pack_path(const struct pack *p);
const struct digest *pack_model(const struct pack *p);
/* SHA-256 of the head, and so a name for all bytes of the file. */
const struct digest *pack_digest(const struct pack *p);
const char *pack_about(const struct pack *p); /* text */
uint64_t pack_pieces(const struct pack *p);
uint64_t pack_bytes(const struct pack *p); /* of the file */

struct pack_piece {
	struct spill_head head;
	struct spill_part part;
	struct digest sum;
	uint64_t tail;
};
/* Goes through the pieces in order: false: after the last, or *rc is not 0 (E_FORMAT, E_IO) and *err has the path.
 * What a piece holds is not read. */
struct pack_walk {
	const struct pack *p;
	uint64_t i, at;
	struct spill_head last;
	uint64_t last_tail;
};
struct pack_walk pack_walk(const struct pack *p);
bool pack_next(struct pack_walk *w, struct pack_piece *out, int *rc, struct err *err);
/* The tokens that a piece records, [head.n_tok], not yet compared with its digest; the caller frees them.  E_FORMAT, E_IO. */
int pack_tokens(const struct pack_piece *piece, int32_t **out, struct err *err);
/* The part [at, at + bytes) of its file. */
struct spill_part pack_part(const struct pack *p, uint64_t at, uint64_t bytes);

/* Reads all pieces, and compares each with its digest.  told: called with the percentage that is done; NULL: never. */
int pack_check(const struct pack *p, void (*told)(void *arg, int percent), void *arg, struct err *err);

/* ---- between packs and folders ---- */

struct pack_sum {
	uint64_t pieces, bytes; /* that are in the pack */
	uint64_t left_out;    /* pieces that were damaged or evicted meanwhile; of an import: that were there already */
	struct digest digest; /* pack_digest */
};

/* The file DIR/MODEL/identity: what the model's digest stands for.  E_MISSING, E_IO, E_LIMIT. */
int pack_about_read(const char *dir, const struct digest *model, struct buf *out, struct err *err);
/* Writes it, unless it is there: under a temporary name first. */
int pack_about_write(const char *dir, const struct digest *model, const char *text, struct err *err);

struct pack_from {
	const char *dir;     /* folder of kept prefixes; a server may have it open */
	struct digest model; /* whose prefixes */
	const int *
		pos; /* [n_pos] rising: positions of the snapshots that are taken, and pages up to the last; n_pos 0: all */
	int n_pos;
	const struct spill_io *io; /* NULL: the system's (tests) */
};
/* Writes a pack: as PATH.partial, which is removed after a failure, then under its name.  E_MISSING: there is nothing to
 * write, or no snapshot at one of the positions. */
int pack_write(const struct pack_from *from, const char *path, struct pack_sum *out, struct err *err);

/* Writes the pieces of a checked pack as files of a folder, which servers may have open: they see them.  After a failure the
 * folder may have some of them, each whole. */
int pack_import(const struct pack *p, const char *dir, const struct spill_io *io, struct pack_sum *out,
                struct err *err);

#endif
