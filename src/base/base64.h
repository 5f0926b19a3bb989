/* base64.h - bytes written as text (RFC 4648, sections 4 and 5). */
#ifndef BASE_BASE64_H
#define BASE_BASE64_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Decodes s[0..n) to out, which has room for 3 (n + 3) / 4 bytes.  Both alphabets are read, '=' at the end may be
 * missing, and line ends are passed over.  Returns the bytes; -1: s is not base64, and *bad is the index of the
 * character that is not one, or n where a lone digit is left over. */
int64_t base64_decode(uint8_t *out, const char *s, size_t n, size_t *bad);

/* Appends the characters of bytes[0..n), the last group filled with '='. */
void base64_put(struct buf *out, const void *bytes, size_t n);

#endif
