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

/* n, rounded up to whole pages. */
size_t whole_pages(size_t n);

/* Addresses for n bytes, n > 0, from the start of a page on: zeros that take no memory until they are written; without
 * `writable` the addresses are only reserved.  NULL: there are none. */
void *pages_any(size_t n, bool writable);
/* pages_any from the start of a huge page on. */
void *pages_room(size_t n, bool writable);
extern size_t pages_room_max; /* tests: more than that pages_room refuses */
/* From now on only to be read; false: the system refuses. */
bool pages_seal(void *p, size_t n);
/* Gives back whole pages from p on; p at the start of one, n rounded up. */
void pages_free(void *p, size_t n);

/* ---- what each system does in its own way, in its folder (system.h); p is at the start of a page ---- */

/* Whether pages_huge is of use; posix/: false. */
bool pages_huge_offered(void);
/* The system may hold them in huge pages; false: it has none (posix/). */
bool pages_huge(void *p, size_t n);
/* The system gives the memory now, not when it is written first; what is there stays, and other threads may write meanwhile.
 * False: it has none, or cannot (Linux before 5.14, posix/): then it gives it when it is written. */
bool pages_ready(void *p, size_t n);
/* Memory of pages_any, and whole pages of it: they read as zeros again and take no memory until they are written. */
void pages_clear(void *p, size_t n);
/* Puts sealed zeros in place of whatever is at the pages, a mapped file too; false: the system refuses.  A signal handler
 * may call it. */
bool pages_blank(void *p, size_t n);
/* Moves pages from `from` to the addresses `to`, in place of what is there, at once for other threads; false: the system
 * cannot (posix/) or refuses, and both are as they were. */
bool pages_move(void *from, size_t n, void *to);
/* Pages of a mapped file leave the process's memory; a later read loads them again.  posix/: they may stay. */
void pages_unload(const void *p, size_t n);

#endif
