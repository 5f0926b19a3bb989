/* byte_text.h - bytes written in GPT-2's alphabet, a printable character for each.  Inside src/store/. */
#ifndef STORE_BYTE_TEXT_H
#define STORE_BYTE_TEXT_H

#include <stdint.h>

#include "base/buf.h"

/* Appends the character of a byte, as part of a JSON string. */
void byte_text_put(struct buf *out, uint8_t byte);
/* The bytes that the characters of text[0..n) stand for into out, which has room for n; -1: a character stands for none. */
int64_t byte_text_read(uint8_t *out, const char *text, size_t n);

#endif
