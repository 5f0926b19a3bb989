/* spill_file.h - one piece of a kept prefix as one immutable file.
 *
 *     head (HEAD bytes), the tokens it stands for, the payload
 *
 * Written whole under a temporary name, synced, then renamed: a name that is there
 * was once complete.  Reading trusts nothing all the same: every number of the head
 * is checked against the file and against what is asked for, the recorded tokens are
 * compared one by one, and a checksum covers tokens and payload.
 *
 * Two kinds.  A page holds the rows of one whole page of positions and records that
 * page's tokens and the key of what came before.  A snapshot holds what is needed to
 * resume at a position besides the whole pages below it, and records all tokens from
 * the first.
 *
 * No state and no locks of its own; spill.h says what calls it.  All bytes are little
 * endian. */
#ifndef ENGINE_SPILL_FILE_H
#define ENGINE_SPILL_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/digest.h"
#include "base/err.h"

enum spill_kind { SPILL_PAGE = 1, SPILL_SNAP = 2 };

enum {
	SPILL_VERSION = 1, /* of the layout below; part of every model's fingerprint too */
	SPILL_HEAD = 160,  /* bytes of a head */
	SPILL_NAME = 112,  /* room for a file's name and its 0 */
};

struct spill_head {
	enum spill_kind kind;
	uint32_t pos;   /* the piece ends here, counted from the first token */
	uint32_t n_tok; /* recorded tokens: the last n_tok before pos */
	uint64_t payload_bytes;
	struct digest model; /* what the numbers are a function of, besides the tokens */
	struct digest prev;  /* page: the key before its tokens; snapshot: zeros */
	struct digest key;   /* of all whole pages before pos, salt and model included */
	struct check128 sum; /* of the recorded tokens and the payload */
};

/* The way to the operating system; a test puts its own in to make calls fail.
 * Results and errno as of the calls they are named for. */
struct spill_io {
	int (*open)(const struct spill_io *, int dir, const char *name, int flags);
	ssize_t (*write)(const struct spill_io *, int fd, const void *p, size_t n);
	ssize_t (*read)(const struct spill_io *, int fd, void *p, size_t n, uint64_t at);
	int (*sync)(const struct spill_io *, int fd);
	int (*rename)(const struct spill_io *, int dir, const char *from, const char *to);
	int (*unlink)(const struct spill_io *, int dir, const char *name);
};
extern const struct spill_io spill_io_real;

void spill_head_put(const struct spill_head *h, uint8_t out[SPILL_HEAD]);
/* From the first bytes of a file of file_bytes.  E_FORMAT, or E_UNSUPPORTED for
 * another version; the message has both values. */
int spill_head_get(struct spill_head *h, const uint8_t *p, size_t n, uint64_t file_bytes, struct err *err);

/* Gives the file fd, written in folder dir as tmp, its name once it is on the disk, and closes it.  After a failure, also one
 * before the call (failed, an errno), tmp is removed.  0 or an errno. */
int spill_settle(const struct spill_io *io, int dir, int fd, const char *tmp, const char *name, int failed);
/* Writes a file, first as tmp; used last at used_ns (its modification time).  h->sum is filled in.
 * 0 or an errno; then nothing is left behind, if the disk lets that be. */
int spill_file_write(const struct spill_io *io, int dir, const char *tmp, const char *name, struct spill_head *h,
                     const int32_t *tok, const void *payload, int64_t used_ns);

/* A file, or a part of one: its bytes [at, at + bytes). */
struct spill_part {
	int fd;
	uint64_t at, bytes;
};

/* The whole file of that name, to be closed: E_MISSING, E_IO; E_FORMAT: it is not a regular file. */
int spill_file_open(const struct spill_io *io, int dir, const char *name, struct spill_part *out, struct err *err);
/* Its head: spill_head_get. */
int spill_part_head(const struct spill_io *io, const struct spill_part *part, struct spill_head *h, struct err *err);
/* Reads a part as spill_file_read reads a file; no name is in the messages. */
int spill_part_read(const struct spill_io *io, const struct spill_part *part, struct spill_head *want, size_t most,
                    const int32_t *tok, void **payload, struct err *err);
/* Copies a part to a file at its offset (to -1: reads it only), a megabyte at a time.  sum: of all of it; body: what
 * spill_head.sum should be. */
int spill_copy(const struct spill_io *io, const struct spill_part *from, int to, struct digest *sum,
               struct check128 *body, struct err *err);
/* All n bytes at `at`: E_IO; E_FORMAT where the file ends first; E_MISSING: it was removed (ESTALE, over a network). */
int spill_read_all(const struct spill_io *io, int fd, void *p, size_t n, uint64_t at, struct err *err);
/* All n bytes to a file at its offset: 0 or an errno. */
int spill_write_all(const struct spill_io *io, int fd, const void *p, size_t n);

/* Reads the file that should be *want (all but sum) over tok[0..want->n_tok), into
 * *payload, which the caller frees.  want->payload_bytes 0: any, but at most `most`,
 * and filled in.  E_MISSING: no such file, or it went while it was read (ESTALE).  E_FORMAT: not what its name says, or
 * damaged.  E_IO: the disk does not give it. */
int spill_file_read(const struct spill_io *io, int dir, const char *name, struct spill_head *want, size_t most,
                    const int32_t *tok, void **payload, struct err *err);

/* Removes a file that spill_file_read called damaged; under the name tmp, by which it is read once more: another program
 * may have written it anew meanwhile.  E_FORMAT: it is gone; E_GONE: it was written anew, and stays; E_IO: it cannot be
 * removed. */
int spill_file_discard(const struct spill_io *io, int dir, const char *tmp, const char *name, struct spill_head *want,
                       size_t most, const int32_t *tok);

/* Names: KEY.page, and KEY.POSITION.TAIL.snap, where tail is check64 of the tokens
 * after the last whole page.  The parser fills kind, pos (snapshots), key and tail;
 * E_FORMAT for a name that is not of this form. */
void spill_name_put(char out[SPILL_NAME], enum spill_kind kind, const struct digest *key, uint32_t pos, uint64_t tail);
int spill_name_get(const char *name, enum spill_kind *kind, struct digest *key, uint32_t *pos, uint64_t *tail);

/* The name of a model's folder in it. */
enum { SPILL_FOLDER = 17 };
void spill_folder_name(const struct digest *model, char out[SPILL_FOLDER]);
/* The file in a model's folder that says what the model's digest stands for (host/identity.h). */
#define SPILL_ABOUT "identity"

/* Begins the names of files that are being written. */
#define SPILL_TMP ".tmp-"

#endif
