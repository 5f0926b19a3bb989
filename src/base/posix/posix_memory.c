/* posix_memory.c - see base/memory.h. */
#include "base/memory.h"

#include <stdint.h>
#include <sys/resource.h>
#include <unistd.h>

static size_t least(size_t n, const struct rlimit *r)
{
	return r->rlim_cur == RLIM_INFINITY || r->rlim_cur > n ? n : (size_t)r->rlim_cur;
}

size_t memory_total(void)
{
	/* Not in POSIX, but Linux, macOS and FreeBSD have it. */
	long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
	size_t n = pages > 0 && bytes > 0 ? (size_t)pages * (size_t)bytes : (size_t)4 << 30;
	struct rlimit r;

	if (!getrlimit(RLIMIT_AS, &r))
		n = least(n, &r);
	if (!getrlimit(RLIMIT_DATA, &r))
		n = least(n, &r);
	return n;
}

size_t memory_available(void)
{
	return memory_total() / 2;
}

double memory_pressure(void)
{
	return 0;
}

size_t memory_own(void)
{
	return 0;
}

size_t memory_resident(void)
{
	return 0;
}
