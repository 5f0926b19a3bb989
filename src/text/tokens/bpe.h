/* bpe.h - GPT-2's alphabet, in which byte-level vocabularies are written: each of the 256 bytes is one printable
 * character.  The pairs are in bpe.c, behind token_model.h. */
#ifndef TEXT_BPE_H
#define TEXT_BPE_H

#include <stddef.h>

/* The alphabet undone: writes the bytes of s[0..n) to out (room for n) and returns how many, or -1 when a character
 * is outside of it. */
long bpe_unmap(const char *s, size_t n, char *out);

#endif
