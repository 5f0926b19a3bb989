/* added.h - tokens that are found in the text itself, before any splitting.
 *
 * For tokenizer.c alone: a trie over the contents of tokenizer.json's added_tokens,
 * and the rules of its flags (lstrip, rstrip, single_word). */
#ifndef TEXT_ADDED_H
#define TEXT_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/tokens/trie.h"

struct added_token {
	int32_t id;
	bool special, normalized, lstrip, rstrip, single_word;
};

struct added {
	struct trie trie;
	const struct added_token *token; /* the tokens that added_put numbers point into */
	bool first[256];                 /* some token begins with this byte */
	size_t n;
};

/* Room for contents of n_bytes in all.  token must outlive a. */
void added_init(struct added *a, const struct added_token *token, size_t n_bytes);
void added_fini(struct added *a);

/* Adds token[k] under content p[0..n), 1 <= n; false when the content is taken. */
bool added_put(struct added *a, const char *p, size_t n, uint32_t k);

struct added_match {
	const struct added_token *token;
	size_t start, end; /* with the white space that the flags take in */
	size_t from, to;   /* the content alone */
};

/* Whether a special token may be at [start, end). */
typedef bool added_may(void *ctx, size_t start, size_t end);

/* The first match at or after at in p[0..n), the longest of those that begin
 * there; its start is at least at.  may is asked about special tokens. */
bool added_next(const struct added *a, const char *p, size_t n, size_t at, added_may *may, void *ctx,
                struct added_match *m);

#endif
