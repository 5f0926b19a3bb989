/* posix_missing.c - see missing.h. */
#include "base/posix/missing.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"

void *missing_memmem(const void *in, size_t n, const void *what, size_t m)
{
	const char *p = in, *first = what;

	if (!m)
		return (void *)(uintptr_t)in;
	for (const char *at; n >= m && (at = memchr(p, *first, n - m + 1)); n -= (size_t)(at + 1 - p), p = at + 1)
		if (!memcmp(at, what, m))
			return (void *)(uintptr_t)at;
	return NULL;
}

void *missing_memrchr(const void *in, int c, size_t n)
{
	const unsigned char *p = in;

	while (n--)
		if (p[n] == (unsigned char)c)
			return (void *)(uintptr_t)(p + n);
	return NULL;
}

char *missing_strcasestr(const char *in, const char *what)
{
	size_t m = strlen(what);

	for (const char *p = in;; p++) {
		if (!strncasecmp(p, what, m))
			return (char *)(uintptr_t)p;
		if (!*p)
			return NULL;
	}
}

/* Merges the sorted halves of [0, n) of v by way of spare. */
static void merge_halves(char *v, size_t n, size_t size, char *spare,
                         int (*compare)(const void *, const void *, void *), void *arg)
{
	size_t half = n / 2, a = 0, b = half;

	for (size_t i = 0; i < n; i++) {
		size_t *from = b == n || (a < half && compare(v + a * size, v + b * size, arg) <= 0) ? &a : &b;

		memcpy(spare + i * size, v + (*from)++ * size, size);
	}
	memcpy(v, spare, n * size);
}

static void merge_sort(char *v, size_t n, size_t size, char *spare, int (*compare)(const void *, const void *, void *),
                       void *arg)
{
	if (n < 2)
		return;
	merge_sort(v, n / 2, size, spare, compare, arg);
	merge_sort(v + n / 2 * size, n - n / 2, size, spare, compare, arg);
	merge_halves(v, n, size, spare, compare, arg);
}

void missing_qsort_r(void *base, size_t n, size_t size, int (*compare)(const void *, const void *, void *), void *arg)
{
	char *spare = xmalloc(size_mul(n + 1, size));

	merge_sort(base, n, size, spare, compare, arg);
	free(spare);
}
