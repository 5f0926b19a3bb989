/* pages.h - memory straight from the system, in whole pages: for gigabytes that are filled once. */
#ifndef BASE_PAGES_H
#define BASE_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

enum { HUGE_PAGE_BYTES = 2 << 20 };

/* Bytes of a page of this system: 4 KB, on Arm also 16 or 64 KB.  glibc has the number in memory, so a signal handler
 * may ask. */
static inline size_t page_bytes(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

/* Addresses for n bytes, whole pages from the start of a huge page on: zeros that take no memory until
 * they are written, and that without `writable` are there to be replaced.  NULL: there are none. */
void *pages_room(size_t n, bool writable);
extern size_t pages_room_max; /* tests: more than that is refused */
/* The system may hold them in huge pages; false: it has none. */
bool pages_huge(void *p, size_t n);
/* The system gives the memory now, not when it is written first; what is there stays, and other threads may write meanwhile.
 * False: it has none, or cannot (Linux before 5.14): then it gives it when it is written. */
bool pages_ready(void *p, size_t n);
/* From now on only to be read; false: the system refuses. */
bool pages_seal(void *p, size_t n);
/* Gives back whole pages from p on; p at the start of one, n rounded up. */
void pages_free(void *p, size_t n);

#endif
