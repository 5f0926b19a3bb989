/* linux_pages.c - see base/pages.h. */
#include "base/pages.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "base/buf.h"
#include "base/file.h"

void *pages_any(size_t n, bool writable)
{
	void *p = mmap(NULL, n, writable ? PROT_READ | PROT_WRITE : PROT_NONE,
	               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

bool pages_huge_offered(void)
{
	struct err none = { 0 };
	struct buf text;
	bool offered;

	buf_init(&text);
	offered = !file_read("/sys/kernel/mm/transparent_hugepage/enabled", 1 << 16, &text, &none);
	buf_putc(&text, 0);
	offered = offered && !strstr(text.p, "[never]");
	buf_fini(&text);
	return offered;
}

bool pages_huge(void *p, size_t n)
{
	return !madvise(p, whole_pages(n), MADV_HUGEPAGE);
}

bool pages_ready(void *p, size_t n)
{
#ifdef MADV_POPULATE_WRITE
	return !madvise(p, whole_pages(n), MADV_POPULATE_WRITE);
#else
	return false;
#endif
}

void pages_clear(void *p, size_t n)
{
	madvise(p, n, MADV_DONTNEED);
}

bool pages_blank(void *p, size_t n)
{
	return mmap(p, n, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

bool pages_move(void *from, size_t n, void *to)
{
	return mremap(from, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, to) != MAP_FAILED;
}

void pages_unload(const void *p, size_t n)
{
	madvise((void *)(uintptr_t)p, n, MADV_DONTNEED);
}
