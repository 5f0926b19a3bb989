/* pages.c - see pages.h; what the systems have in common. */
#include "base/pages.h"

#include <stdint.h>
#include <sys/mman.h>

size_t pages_room_max = SIZE_MAX;

size_t whole_pages(size_t n)
{
	size_t page = page_bytes();

	return (n + page - 1) / page * page;
}

void *pages_room(size_t n, bool writable)
{
	uintptr_t at, from;
	size_t all, page = HUGE_PAGE_BYTES;
	void *p;

	if (n > pages_room_max || n > SIZE_MAX - 2 * page)
		return NULL;
	n = whole_pages(n);
	all = n + page;
	p = pages_any(all, writable);
	if (!p)
		return NULL;
	at = (uintptr_t)p;
	from = (at + page - 1) / page * page;
	if (from > at)
		munmap(p, from - at);
	if (at + all > from + n)
		munmap((void *)(from + n), at + all - from - n);
	return (void *)from;
}

bool pages_seal(void *p, size_t n)
{
	return !mprotect(p, whole_pages(n), PROT_READ);
}

void pages_free(void *p, size_t n)
{
	if (n)
		munmap(p, whole_pages(n));
}
