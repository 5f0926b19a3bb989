/* file.h - files read whole or mapped. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

/* Identity of a file and of its contents.  Only the system sets changed_ns: a file that was
 * written, replaced or renamed has another. */
struct file_id {
	uint64_t device, inode, bytes;
	int64_t changed_ns, modified_ns; /* st_ctim, st_mtim */
};
int file_id_get(const char *path, struct file_id *out, struct err *err);
/* Fills *out for an open file.  0, or -1 with errno. */
int file_id_of(int fd, struct file_id *out);

/* A file mapped read-only.  Stays valid until closed, whatever happens to the name.  Where the
 * file becomes shorter, the bytes that it lost read as zeros after fault_install, and
 * file_lost names it from then on: code that computed with the mapping calls file_lost before it
 * publishes results.  Without fault_install the program ends (SIGBUS), as with every mapping. */
struct file_map {
	const uint8_t *p;
	size_t n;
	struct file_id id; /* of the file that is mapped, whatever its name leads to now */
};

/* A file of a huge page's size (2 MB) or more begins at the start of one. */
int file_map_open(struct file_map *m, const char *path, struct err *err);
void file_map_close(struct file_map *m);

/* The path of a mapped file that became shorter while its bytes were read; NULL: none did.  For good.
 * Any thread, at the cost of a load. */
const char *file_lost(void);
/* For fault.c's handler of SIGBUS: whether the address lies in a mapping whose file became shorter.  If so, its page
 * reads as zeros from now on. */
bool file_map_mend(const void *address);

/* Replaces the whole huge pages within bytes [from, to) of the mapping, from the front, by memory of
 * the process's own with the same bytes at the same addresses, which the system may hold in huge pages:
 * there are none for mapped files, and reading small ones is slower (bench/notes/kernels.md says by
 * how much).  Any thread; other threads may read the mapping during the call, and see the same bytes.
 * Before each piece of 32 MB, while the last is still mapped, it calls more(arg, bytes done so
 * far), and ends when that returns false.  Returns the bytes replaced: fewer than possible where
 * the system gives no memory. */
size_t file_map_own(const struct file_map *m, size_t from, size_t to, bool (*more)(void *arg, size_t done), void *arg);
/* Removes the whole pages within [from, to) from the process's resident memory; a later read loads them from the file
 * again.  Never for ranges that file_map_own replaced: their bytes would be lost.  Any thread; other threads may read
 * the mapping during the call. */
void file_map_drop(const struct file_map *m, size_t from, size_t to);

/* Appends the file's bytes to out; E_LIMIT when it is larger than max. */
int file_read(const char *path, size_t max, struct buf *out, struct err *err);
/* Appends an open file, from its current offset to its end, to out, as file_read does; name is for messages. */
int file_read_fd(int fd, const char *name, size_t max, struct buf *out, struct err *err);

/* Writes p[0..n) at this offset of an open file.  0, or -1 with errno: ENOSPC also where the system takes no byte of it. */
int file_write_at(int fd, const void *p, size_t n, uint64_t at);

/* pipe(2), both ends closed by exec, with these flags of O_NONBLOCK's kind.  0, or -1 with errno. */
int file_pipe(int ends[2], int flags);

int file_exists(const char *path); /* 1 when path can be opened for reading as a regular file */
int dir_exists(const char *path);
/* The directory and those above it that are not there, for their owner alone; E_IO. */
int dir_make(const char *path, struct err *err);
/* dir_make with the permissions that mode has and the umask allows. */
int dir_make_for(const char *path, mode_t mode, struct err *err);
/* Removes the directory and all that is in it, if it is there; links are removed, not followed.  E_IO. */
int dir_remove(const char *path, struct err *err);
/* 1 when something is there that renaming a file to path would destroy and a file cannot
 * stand for: a device, a pipe, a link to one. */
int file_is_special(const char *path);
/* E_IO where path is such a thing, whose reading might wait or go on forever; for files that others wrote. */
int file_refuse_special(const char *path, struct err *err);

#endif
