/* races.h - tells the thread sanitizer of memory that code reads and writes which it does not instrument.
 *
 * Under the thread sanitizer the kernels of products are built without it (src/quant/meson.build): it would
 * check every load of a weight, which takes ten times as long as all the rest.  Their callers announce the rows
 * that a kernel reads and writes instead.  In other builds these functions do nothing. */
#ifndef BASE_RACES_H
#define BASE_RACES_H

#include <stddef.h>

#if defined(__SANITIZE_THREAD__)
#define RACES_SEEN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RACES_SEEN 1
#endif
#endif

#if defined(RACES_SEEN)
void __tsan_read_range(void *p, long n);
void __tsan_write_range(void *p, long n);
#endif

/* Whether the calls below do anything: a caller that must find the memory first asks this before. */
static inline int races_seen(void)
{
#if defined(RACES_SEEN)
	return 1;
#else
	return 0;
#endif
}

/* The calling thread reads, or writes, the n bytes at p. */
static inline void races_read(const void *p, size_t n)
{
#if defined(RACES_SEEN)
	__tsan_read_range((void *)p, (long)n);
#endif
}
static inline void races_write(void *p, size_t n)
{
#if defined(RACES_SEEN)
	__tsan_write_range(p, (long)n);
#endif
}

#endif
