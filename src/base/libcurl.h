/* libcurl.h - opens libcurl when it is needed, so that programs that make no requests start without the dozen libraries
 * it brings. */
#ifndef BASE_LIBCURL_H
#define BASE_LIBCURL_H

#include "base/err.h"

struct libcurl_function {
	const char *name;
	void *at; /* a pointer to a function of that name's type; filled */
};
/* Fills f[n].  `why`, an option, is named where the library is missing.  E_MISSING.  The library stays open.  Any
 * thread. */
int libcurl_open(const struct libcurl_function *f, int n, const char *why, struct err *err);

#endif
