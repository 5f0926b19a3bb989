/* bpe.h - byte-level byte pair encoding: the vocabulary and the merging.
 *
 * For tokenizer.c alone.  The file spells bytes in GPT-2's alphabet, where each of
 * the 256 bytes is one printable character; here everything is bytes again. */
#ifndef TEXT_BPE_H
#define TEXT_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "text/tokens/tokenizer.h"

struct bpe_token {
	const char *p; /* NULL: no token has this id */
	uint32_t n;
};

struct bpe_merge;

struct bpe {
	struct bpe_token *tok; /* by id; tokenizer.c lengthens it by the added tokens */
	int32_t n_tok;
	char *pool;    /* bytes of the vocabulary */
	int32_t *slot; /* open addressing, by bytes; -1 empty */
	uint32_t slot_mask;
	struct bpe_merge *merge; /* open addressing, by the pair of ids */
	uint32_t merge_mask;
	int32_t byte_id[256]; /* -1: the byte cannot occur in UTF-8 and has no token */
	bool whole_first;     /* ignore_merges: a piece that is a token is that token */
	uint64_t seed;        /* of both hashes, so that no file can aim at collisions */
};

int bpe_open(struct bpe *b, const struct json *model, struct err *err);
void bpe_close(struct bpe *b);

/* The vocabulary entry with these bytes, or -1. */
int32_t bpe_find(const struct bpe *b, const char *p, size_t n);

/* Memory that one caller keeps between pieces. */
struct bpe_scratch {
	struct bpe_sym *sym;
	struct bpe_cand *heap;
	size_t cap;
};

void bpe_scratch_fini(struct bpe_scratch *s);

/* Appends the ids of one piece, n >= 1 bytes of valid UTF-8.  Time grows as
 * n log n whatever the bytes. */
void bpe_encode(const struct bpe *b, struct bpe_scratch *s, const char *p, size_t n, struct tokens *out);

/* GPT-2's alphabet undone: writes the bytes of s[0..n) to out (room for n) and
 * returns how many, or -1 when a character is outside the alphabet. */
long bpe_unmap(const char *s, size_t n, char *out);

#endif
