/* reads.h - many reads from files under way at once, behind the caller's back.
 *
 * By io_uring where the system allows it, else by threads that call pread (containers commonly forbid io_uring).
 * Both give the same bytes and the same errors.  One thread owns a struct reads. */
#ifndef BASE_READS_H
#define BASE_READS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/file.h"

/* A file's own alignment for direct reads: offsets, lengths and addresses are multiples of it. */
enum { READ_ALIGN = 4096 };

/* A file to read from.  Opened so that the system keeps no copy of what is read (O_DIRECT), or, where the file system
 * has no such thing, such that each read's copy is given up afterwards. */
struct read_file {
	int fd;
	bool direct;
	const char *path; /* borrowed, for messages */
	struct file_id id;
};
int read_file_open(struct read_file *f, const char *path, struct err *err);
void read_file_close(struct read_file *f);
/* Whether the file is unchanged since it was opened, judged by everything in struct file_id. */
bool read_file_same(const struct read_file *f);

struct read_ask {
	const struct read_file *file;
	uint64_t at; /* a multiple of READ_ALIGN, as n and to */
	uint8_t *to;
	size_t n;
	size_t need;  /* <= n: bytes that must be there; the file may end after them */
	uint64_t tag; /* the caller's */
};
struct read_done {
	uint64_t tag;
	int error; /* an errno; ENODATA: the file ended before `need` bytes; 0 */
};

enum reads_way {
	READS_BEST, /* io_uring where it is allowed, else threads */
	READS_URING,
	READS_THREADS,
};
struct reads;
/* depth: reads under way at once, the rest wait their turn in order.  E_UNSUPPORTED: READS_URING, and the system
 * does not allow it; E_IO: no thread could be started. */
int reads_open(struct reads **out, enum reads_way way, int depth, struct err *err);
/* Waits for what is under way; what has not begun is dropped. */
void reads_close(struct reads *r);
const char *reads_name(const struct reads *r); /* "io_uring", "threads" */

/* Queues a read; *ask is copied.  Never waits. */
void reads_put(struct reads *r, const struct read_ask *ask);
/* One that has ended.  False: none has; with wait: none is left. */
bool reads_next(struct reads *r, struct read_done *done, bool wait);

/* Tests: gives the error that a read ends with, 0 for none.  Called on any thread. */
extern int (*reads_fault)(const struct read_ask *ask);

#endif
