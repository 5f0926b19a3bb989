/* made_vocab.h - a vocabulary like that of a byte-level tokenizer of today, made up:
 * all single bytes, syllables and words with and without a blank before them,
 * capitals, runs of blanks and of punctuation as code has them, Chinese and
 * Cyrillic pieces, beginnings and ends of characters.  The sizes of its parts
 * follow what is known of vocabularies of 150,000 to 250,000 tokens; the tokens
 * themselves are random. */
#ifndef TESTS_TEXT_MADE_VOCAB_H
#define TESTS_TEXT_MADE_VOCAB_H

#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/rng.h"
#include "base/utf8.h"

struct made_vocab {
	char **p;
	size_t *len;
	int n;
};

static inline uint64_t made_dice(uint64_t *s, uint64_t n)
{
	++*s;
	return rng_bits(*s, 11, 7) % n;
}

static inline void made_word(struct buf *b, uint64_t *s)
{
	static const char *const on[] = { "b", "c", "d", "f", "g",  "h",  "l",  "m",  "n",  "p", "r",
		                          "s", "t", "v", "w", "st", "tr", "ch", "sh", "pr", "" };
	static const char *const in[] = { "a", "e", "i", "o", "u", "ou", "ea", "io", "y" };
	static const char *const off[] = { "", "", "n", "r", "s", "t", "l", "ng", "ment", "er", "_", "ck" };

	for (int k = 1 + (int)made_dice(s, 3); k; k--) {
		buf_puts(b, on[made_dice(s, sizeof on / sizeof *on)]);
		buf_puts(b, in[made_dice(s, sizeof in / sizeof *in)]);
		buf_puts(b, off[made_dice(s, sizeof off / sizeof *off)]);
	}
}

static inline void made_char(struct buf *b, uint64_t *s, uint32_t from, uint32_t n)
{
	char c[4];

	buf_put(b, c, (size_t)utf8_encode(from + (uint32_t)made_dice(s, n), c));
}

static inline void made_token(struct buf *b, uint64_t *s)
{
	static const char marks[] = "\"\"\"'{}[]():;,.<>/\\=+-*&|!?#%@_`~";
	uint64_t kind = made_dice(s, 100);

	if (kind < 55) {
		if (made_dice(s, 2))
			buf_putc(b, ' ');
		size_t at = b->n;

		made_word(b, s);
		if (!made_dice(s, 4))
			b->p[at] = (char)(b->p[at] >= 'a' && b->p[at] <= 'z' ? b->p[at] - 32 : b->p[at]);
	} else if (kind < 80) {
		for (int k = 1 + (int)made_dice(s, 4); k; k--)
			made_char(b, s, 0x4E00, 3000);
	} else if (kind < 90) {
		if (made_dice(s, 2))
			buf_putc(b, ' ');
		for (int k = 2 + (int)made_dice(s, 6); k; k--)
			made_char(b, s, 0x430, 32);
	} else if (kind < 96) {
		for (int k = 1 + (int)made_dice(s, 5); k; k--)
			buf_putc(b, marks[made_dice(s, sizeof marks - 1)]);
		if (!made_dice(s, 3))
			made_word(b, s);
	} else if (kind < 98) {
		if (made_dice(s, 2))
			buf_putc(b, '\n');
		for (int k = (int)made_dice(s, 40); k; k--)
			buf_putc(b, ' ');
		if (made_dice(s, 2))
			buf_putc(b, '"');
	} else {
		/* Part of a character. */
		made_char(b, s, 0x1F300, 500);
		b->n -= made_dice(s, 3);
	}
}

static inline struct made_vocab made_vocab(int n, uint64_t seed)
{
	static const char *const known[] = { "{\"",  "\":",   "\": ",  "\",",   "\", \"", "\"}",    "},",
		                             "\"]",  "[\"",   "{}",    "[]",    ": ",     ", ",     "null",
		                             "true", "false", " null", " true", "\":\"",  "\": \"", "\\n",
		                             "\\\"", "\\u",   "\\\\",  "00",    "10",     "12",     "2026",
		                             "-",    ".5",    "e+",    "\n\n",  "\n  \"", "],\n" };
	struct made_vocab v = { .n = n };
	struct buf b;
	int i = 0;

	v.p = xcalloc((size_t)n, sizeof *v.p);
	v.len = xcalloc((size_t)n, sizeof *v.len);
	buf_init(&b);
	for (; i < n; i++) {
		buf_reset(&b);
		if (i < 256) {
			buf_putc(&b, i);
		} else if (i - 256 < (int)(sizeof known / sizeof *known)) {
			buf_puts(&b, known[i - 256]);
		} else {
			made_token(&b, &seed);
		}
		v.p[i] = xmalloc(b.n + 1);
		memcpy(v.p[i], b.p, b.n);
		v.len[i] = b.n;
	}
	buf_fini(&b);
	return v;
}

static inline void made_vocab_fini(struct made_vocab *v)
{
	for (int i = 0; i < v->n; i++)
		free(v->p[i]);
	free(v->p);
	free(v->len);
}

static inline const char *made_bytes(void *ctx, int32_t id, size_t *len)
{
	const struct made_vocab *v = ctx;

	*len = v->len[id];
	return v->p[id];
}

#endif
