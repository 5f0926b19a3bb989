/* lexicon.h - the tokens of a vocabulary, by id and by their bytes.
 *
 * For the models of src/text/tokens.  Lookup by bytes is in constant time; the hash
 * is seeded, so that no file can aim at collisions. */
#ifndef TEXT_LEXICON_H
#define TEXT_LEXICON_H

#include <stddef.h>
#include <stdint.h>

#include "base/json.h"

struct token_text {
	const char *p; /* NULL: no token has this id */
	uint32_t n;
};

struct lexicon {
	struct token_text *tok; /* by id; tokenizer.c lengthens it by the added tokens */
	int32_t n_tok;
	double *score; /* by id, of the vocabulary's own; NULL: it has none */
	char *pool;    /* bytes of the vocabulary */
	int32_t *slot; /* open addressing, by bytes; -1 empty */
	uint32_t slot_mask;
	uint64_t seed;
};

/* Writes the bytes that s[0..n) spells to out (room for n) and returns how many; -1: it spells none, and then the
 * token keeps its text and is not found by bytes. */
typedef long lexicon_spell(const char *s, size_t n, char *out);

/* vocab is {"text": id ...} or [["text", score] ...] by id, in which null is an id without a token.  spell NULL: text
 * is bytes. */
int lexicon_open(struct lexicon *l, const struct json *vocab, lexicon_spell *spell, struct err *err);
void lexicon_close(struct lexicon *l);

/* The token with these bytes, or -1.  Tokens that were added later are not found. */
int32_t lexicon_find(const struct lexicon *l, const char *p, size_t n);

/* For other tables: a number without pattern, and a power of two with a third or more left empty. */
uint64_t lexicon_mix(uint64_t h);
uint32_t lexicon_table_size(size_t n);

#endif
