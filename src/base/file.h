/* file.h - files read whole or mapped. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* Which file, and since when it is as it is.  Nobody sets changed_ns but the system:
 * a file that was written, replaced or renamed has another. */
struct file_id {
	uint64_t device, inode, bytes;
	int64_t changed_ns, modified_ns;        /* st_ctim, st_mtim */
};
int file_id_get(const char *path, struct file_id *out, struct err *err);

/* A file mapped read-only.  Stays valid until closed, whatever happens to the
 * name; truncation of the file underneath is not survived (SIGBUS), as for
 * every mapping. */
struct file_map {
	const uint8_t *p;
	size_t n;
	struct file_id id;      /* of the file that is mapped, whatever its name leads to now */
};

int file_map_open(struct file_map *m, const char *path, struct err *err);
void file_map_close(struct file_map *m);

/* Appends the file's bytes to out; E_LIMIT when it is larger than max. */
int file_read(const char *path, size_t max, struct buf *out, struct err *err);

int file_exists(const char *path);      /* 1 when path can be opened for reading as a regular file */
int dir_exists(const char *path);

#endif
