/* buf.h - bytes that grow.
 *
 * p[0..n) are the bytes; p[n] is always 0, so p can be read as a C string when
 * the bytes hold no 0.  p is never NULL.  Not thread-safe. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdarg.h>
#include <stddef.h>

struct buf {
	char *p;
	size_t n, cap;
};

void buf_init(struct buf *b);
void buf_fini(struct buf *b);
void buf_reset(struct buf *b);                /* empty, memory kept */
void buf_reserve(struct buf *b, size_t more); /* room for more bytes */
void buf_put(struct buf *b, const void *p, size_t n);
void buf_puts(struct buf *b, const char *s);
void buf_putc(struct buf *b, int c);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_drop(struct buf *b, size_t n); /* removes the first n bytes */
char *buf_take(struct buf *b);          /* caller frees; b is empty again */

#endif
