/* utf8.h - the few things about UTF-8 that several folders need. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes one code point from p[0..n), n >= 1.  Returns its length in bytes, or
 * 0 when the bytes are not the start of a valid sequence (overlong forms,
 * surrogates and values above U+10FFFF are invalid). */
int utf8_decode(const char *p, size_t n, uint32_t *cp);

/* Writes cp to out[0..4) and returns its length; cp must be a scalar value. */
int utf8_encode(uint32_t cp, char *out);

/* Offset of the first invalid byte of p[0..n), or n when all is valid. */
size_t utf8_valid(const char *p, size_t n);

/* utf8_valid for a text that a request brings: asks the thread's allowance (allowance.h) before each piece.  Where the
 * allowance refuses, allowance_why() is set and the rest of the text counts as valid. */
size_t utf8_valid_piecewise(const char *p, size_t n);

/* Bytes of a piece of p[0..n), at most `most` (4 or more), that ends between two characters if the text is valid. */
size_t utf8_piece(const char *p, size_t n, size_t most);

/* How many bytes at the end of p[0..n) begin a sequence that more bytes could
 * complete (0 to 3).  Those must be held back when streaming. */
size_t utf8_incomplete_tail(const char *p, size_t n);

#endif
