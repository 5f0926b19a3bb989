/* lfs.h - pointers of git-lfs: what a clone leaves in place of a file that it did not fetch. */
#ifndef STORE_LFS_H
#define STORE_LFS_H

#include <stddef.h>

#include "base/err.h"

/* E_FORMAT, with what to do, when the n bytes that are a file's beginning are such a pointer; else 0.  Any thread. */
int lfs_refuse(const char *path, const void *p, size_t n, struct err *err);
/* Looks at a file on disk; 0 also where it cannot be read. */
int lfs_refuse_file(const char *path, struct err *err);

#endif
