/* tokenizer.h - text to token ids and back, from a Hugging Face tokenizer.json.
 *
 * What is done: byte-level BPE (GPT-2's alphabet) and BPE of characters with byte
 * fallback, Unigram and WordPiece models, and two that Hugging Face does not have,
 * "ScoredBPE" (SentencePiece's pairs by score, tiktoken's by rank) and "Longest"
 * (RWKV's); normalizers (normal.h), pre-tokenizers (pretok.h), added tokens,
 * decoders (token_decoder.h), processors that put tokens before or after.  Anything else in
 * the file is an error at open that names it; nothing is skipped in silence.
 *
 * An open tokenizer is constant but for tokenizer_remember: any number of threads may use one.  The file is
 * outside input: sizes are limited before memory is taken for them. */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum {
	TOKENIZER_IDS_MAX = 1 << 20, /* ids are below this; the largest vocabularies known have 262,144 */
	TOKENIZER_MERGES_MAX = 1 << 22,
	TOKENIZER_ADDED_MAX = 1 << 16,
	TOKENIZER_ADDED_BYTES_MAX = 256, /* of one added token: bounds the work per byte of text */
	TOKENIZER_TEXT_MAX = 1 << 28,    /* bytes of one text */
};

/* Token ids that grow. */
struct tokens {
	int32_t *id;
	size_t n, cap;
};

void tokens_init(struct tokens *v);
void tokens_fini(struct tokens *v);
void tokens_reset(struct tokens *v); /* empty, memory kept */
void tokens_put(struct tokens *v, int32_t id);
void tokens_append(struct tokens *v, const int32_t *id, size_t n);

struct tokenizer;

/* Reads json[0..n), which may be freed afterwards. */
int tokenizer_open(struct tokenizer **out, const char *json, size_t n, struct err *err);
void tokenizer_close(struct tokenizer *t); /* NULL is allowed */

/* Ids are in [0, size).  An embedding may have more rows; those are not tokens. */
int32_t tokenizer_size(const struct tokenizer *t);

/* The bytes that a token stands for, or NULL when no token has this id (ids may
 * have holes), as it is inside of a text: " the" for SentencePiece's "▁the" too.  A
 * special token's bytes are its content, and so are those of any added token of a
 * byte-level vocabulary.  Bytes of one token need not be valid UTF-8. */
const char *tokenizer_token_bytes(const struct tokenizer *t, int32_t id, size_t *n);

/* Spaces that the beginning of a decoded text loses, if they are there. */
int tokenizer_begin_strip(const struct tokenizer *t);

/* Marked "special" in the file: not part of the text that a reader sees. */
bool tokenizer_is_special(const struct tokenizer *t, int32_t id);

/* The file's added tokens, special or not: found in the text itself, and not
 * pieces of ordinary text. */
bool tokenizer_is_added(const struct tokenizer *t, int32_t id);

/* The token whose content is p[0..n): an added token first, else a vocabulary
 * entry by its bytes (" the", not "Ġthe").  -1 when there is none. */
int32_t tokenizer_find(const struct tokenizer *t, const char *p, size_t n);

/* Ids that the file's post-processor puts before and after a single text (Llama-3's
 * begin-of-text, for one); NULL and 0 when it puts none. */
const int32_t *tokenizer_prefix(const struct tokenizer *t, size_t *n);
const int32_t *tokenizer_suffix(const struct tokenizer *t, size_t *n);

enum {
	/* Text that spells a special token becomes that token; without this flag it
	 * is ordinary text.  Added tokens that are not special are always matched. */
	TOKENIZE_SPECIAL = 1,
	/* Put the prefix and suffix around the text.  Chat templates write their own. */
	TOKENIZE_AROUND = 2,
	/* Neither use nor remember what tokenizer_remember keeps: the time does not tell whether the text was there before. */
	TOKENIZE_APART = 4,
};

/* From now on threads with an allowance remember the tokens of long texts between added tokens, in at most that many bytes, and
 * charge the allowance as if they encoded them again.  Before other threads use t; once. */
void tokenizer_remember(struct tokenizer *t, size_t bytes);

/* Appends the ids of text[0..n) to out.  E_ARG names the first byte that is not
 * UTF-8; E_LIMIT when the text is too long or a pattern of the file works too
 * hard on it.  After an error out is as it was. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, unsigned flags, struct tokens *out,
                     struct err *err);

/* Bytes [start, end) of a text. */
struct text_range {
	size_t start, end;
};

/* tokenizer_encode for a text with bytes from users: no special token is read where it
 * would touch a byte of the ranges user[0..n_user), so that a user cannot write the end of
 * their own turn.  The ranges are sorted and do not overlap (E_ARG). */
int tokenizer_encode_ranges(const struct tokenizer *t, const char *text, size_t n, unsigned flags,
                            const struct text_range *user, size_t n_user, struct tokens *out, struct err *err);

/* Appends the text of id[0..n) as struct detok (detok.h) yields it. */
void tokenizer_decode(const struct tokenizer *t, const int32_t *id, size_t n, bool skip_special, struct buf *out);

#endif
