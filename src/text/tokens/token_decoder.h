/* token_decoder.h - what each token stands for in a text: the "decoder" of a tokenizer.json.
 *
 * ByteLevel; Replace, ByteFallback, Fuse and Strip in a Sequence, as SentencePiece's vocabularies have them; Metaspace;
 * WordPiece.  All of them come down to bytes per token and to spaces that the beginning of a text loses, which is what
 * lets text be decoded token by token. */
#ifndef TEXT_TOKEN_DECODER_H
#define TEXT_TOKEN_DECODER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/json.h"

enum { DECODER_REPLACES = 4 };

struct decoder {
	bool byte_level;    /* tokens are bytes in GPT-2's alphabet, and nothing else is done */
	bool byte_fallback; /* "<0x0A>" is the byte */
	struct {
		char *from, *to;
	} replace[DECODER_REPLACES];
	int n_replace;
	int strip;    /* spaces that the beginning of a text loses, if they are there */
	char *inner;  /* WordPiece: tokens that begin with it join what comes before; others follow a space */
	bool cleanup; /* WordPiece: no space before some punctuation */
};

/* j is the value of "decoder"; null: tokens are put together as they are. */
int decoder_open(struct decoder *d, const struct json *j, struct err *err);
void decoder_close(struct decoder *d);
/* Appends what the token with the text s[0..n) stands for. */
void decoder_put(const struct decoder *d, const char *s, size_t n, struct buf *out);

#endif
