/* buf.c - see buf.h. */
#include "base/buf.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static char empty[1]; /* what p points to before the first byte */

void buf_init(struct buf *b)
{
	*b = (struct buf){ .p = empty };
}

void buf_fini(struct buf *b)
{
	if (b->p != empty)
		free(b->p);
	buf_init(b);
}

void buf_reset(struct buf *b)
{
	b->n = 0;
	if (b->cap)
		b->p[0] = 0;
}

void buf_reserve(struct buf *b, size_t more)
{
	size_t need, cap;

	if (__builtin_add_overflow(b->n, more, &need) || __builtin_add_overflow(need, (size_t)1, &need))
		need = size_mul((size_t)-1, 2); /* aborts with a message */
	if (need <= b->cap)
		return;
	cap = b->cap ? b->cap : 64;
	while (cap < need)
		cap = cap > SIZE_MAX / 2 ? need : cap * 2;
	b->p = xrealloc(b->p == empty ? NULL : b->p, cap);
	b->cap = cap;
	b->p[b->n] = 0;
}

void buf_put(struct buf *b, const void *p, size_t n)
{
	if (!n)
		return;
	buf_reserve(b, n);
	memcpy(b->p + b->n, p, n);
	b->n += n;
	b->p[b->n] = 0;
}

void buf_puts(struct buf *b, const char *s)
{
	buf_put(b, s, strlen(s));
}

void buf_putc(struct buf *b, int c)
{
	char ch = (char)c;

	buf_put(b, &ch, 1);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	assert(n >= 0);
	buf_reserve(b, (size_t)n);
	va_start(ap, fmt);
	vsnprintf(b->p + b->n, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->n += (size_t)n;
}

void buf_drop(struct buf *b, size_t n)
{
	assert(n <= b->n);
	if (!n)
		return;
	memmove(b->p, b->p + n, b->n - n + 1);
	b->n -= n;
}

char *buf_take(struct buf *b)
{
	char *p;

	buf_reserve(b, 0);
	p = b->p;
	buf_init(b);
	return p;
}
