/* alloc.c - see alloc.h. */
#include "base/alloc.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"

static void *need(void *p, size_t n)
{
	if (!p && n) {
		fprintf(stderr, "weft: out of memory: cannot get %zu bytes\n", n);
		fault_no_memory();
	}
	return p;
}

size_t size_mul(size_t n, size_t size)
{
	size_t out;

	if (__builtin_mul_overflow(n, size, &out)) {
		fprintf(stderr, "weft: size overflow: %zu times %zu bytes\n", n, size);
		fault_abort();
	}
	return out;
}

void *xmalloc(size_t n)
{
	return need(fault_alloc_now() ? NULL : malloc(n ? n : 1), n ? n : 1);
}

void *xcalloc(size_t n, size_t size)
{
	return need(fault_alloc_now() ? NULL : calloc(n ? n : 1, size ? size : 1), n ? n : 1);
}

void *xrealloc(void *p, size_t n)
{
	return need(fault_alloc_now() ? NULL : realloc(p, n ? n : 1), n ? n : 1);
}

size_t try_malloc_max = SIZE_MAX;

void *try_malloc(size_t n)
{
	return n <= try_malloc_max ? malloc(n ? n : 1) : NULL;
}

char *xstrndup(const char *s, size_t n)
{
	char *p = xmalloc(n + 1);

	memcpy(p, s, n);
	p[n] = 0;
	return p;
}

char *xstrdup(const char *s)
{
	return xstrndup(s, strlen(s));
}

/* Blocks grow by doubling from 4 KiB up to 1 MiB; a larger request gets a block
 * of its own, so no request ever moves. */
struct arena_block {
	struct arena_block *next;
	size_t used, cap;
	_Alignas(16) unsigned char mem[];
};

enum { BLOCK_MIN = 4096, BLOCK_MAX = 1 << 20, ALIGN = 16 };

void arena_init(struct arena *a)
{
	*a = (struct arena){ 0 };
}

void arena_fini(struct arena *a)
{
	struct arena_block *b = a->head, *next;

	for (; b; b = next) {
		next = b->next;
		free(b);
	}
	*a = (struct arena){ 0 };
}

void arena_reset(struct arena *a)
{
	arena_fini(a);
}

size_t arena_blocks(const struct arena *a)
{
	size_t n = 0;

	for (const struct arena_block *b = a->head; b; b = b->next)
		n++;
	return n;
}

bool arena_next(const struct arena *a, const struct arena_block **at, const void **p, size_t *n)
{
	*at = *at ? (*at)->next : a->head;
	if (!*at)
		return false;
	*p = (*at)->mem;
	*n = (*at)->used;
	return true;
}

void *arena_alloc(struct arena *a, size_t n)
{
	struct arena_block *b = a->head;
	size_t cap;
	void *p;

	n = (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
	if (!b || b->cap - b->used < n) {
		cap = b ? b->cap * 2 : BLOCK_MIN;
		if (cap > BLOCK_MAX)
			cap = BLOCK_MAX;
		if (cap < n)
			cap = n;
		b = xmalloc(sizeof *b + cap);
		b->next = a->head;
		b->used = 0;
		b->cap = cap;
		a->head = b;
	}
	p = b->mem + b->used;
	b->used += n;
	a->used += n;
	return p;
}

void *arena_zalloc(struct arena *a, size_t n)
{
	return memset(arena_alloc(a, n), 0, n);
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
	char *p = arena_alloc(a, n + 1);

	memcpy(p, s, n);
	p[n] = 0;
	return p;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
	va_list ap;
	char *p;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		fault_abort();
	p = arena_alloc(a, (size_t)n + 1);
	va_start(ap, fmt);
	vsnprintf(p, (size_t)n + 1, fmt, ap);
	va_end(ap);
	return p;
}
