/* posix_pages.c - see base/pages.h. */
#define _DEFAULT_SOURCE 1 /* MAP_ANONYMOUS, in POSIX since 2024; systems had it before */
#include "base/pages.h"

#include <stdint.h>
#include <sys/mman.h>

#include "base/fault.h"

void *pages_any(size_t n, bool writable)
{
	void *p = mmap(NULL, n, writable ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

bool pages_huge_offered(void)
{
	return false;
}

bool pages_huge(void *p, size_t n)
{
	return false;
}

bool pages_ready(void *p, size_t n)
{
	return false;
}

void pages_clear(void *p, size_t n)
{
	if (mmap(p, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		fault_no_memory(); /* what is there must not be read */
}

bool pages_blank(void *p, size_t n)
{
	return mmap(p, n, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

bool pages_move(void *from, size_t n, void *to)
{
	return false;
}

void pages_unload(const void *p, size_t n)
{
	posix_madvise((void *)(uintptr_t)p, n, POSIX_MADV_DONTNEED);
}
