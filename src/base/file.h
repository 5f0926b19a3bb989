/* file.h - files read whole or mapped. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* A file mapped read-only.  Stays valid until closed, whatever happens to the
 * name; truncation of the file underneath is not survived (SIGBUS), as for
 * every mapping. */
struct file_map {
	const uint8_t *p;
	size_t n;
};

int file_map_open(struct file_map *m, const char *path, struct err *err);
void file_map_close(struct file_map *m);

/* Appends the file's bytes to out; E_LIMIT when it is larger than max. */
int file_read(const char *path, size_t max, struct buf *out, struct err *err);

int file_exists(const char *path);      /* 1 when path can be opened for reading as a regular file */
int dir_exists(const char *path);

#endif
