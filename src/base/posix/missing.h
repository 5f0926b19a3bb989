/* missing.h - functions of glibc that POSIX.1-2008 does not have, under their names; in front of every file of a portable
 * build (meson.build).  They do as Linux's manual says, linux/ has glibc's. */
#ifndef BASE_POSIX_MISSING_H
#define BASE_POSIX_MISSING_H

/* No header of the system: a file may still say what it wants of them. */
#include <stddef.h>

void *missing_memmem(const void *in, size_t n, const void *what, size_t m);
void *missing_memrchr(const void *in, int c, size_t n);
char *missing_strcasestr(const char *in, const char *what);
void missing_qsort_r(void *base, size_t n, size_t size, int (*compare)(const void *, const void *, void *), void *arg);

#define memmem missing_memmem
#define memrchr missing_memrchr
#define strcasestr missing_strcasestr
#define qsort_r missing_qsort_r

#endif
