/* folder_vocab.h - a folder's vocabulary on its way into a GGUF file.  Inside src/export/.
 *
 * folder_tokens.c reads tokenizer.json into a list, and writes byte-level pairs and what all vocabularies share;
 * folder_pieces.c writes the kinds of SentencePiece, normal_form.c reads how they normalise text, pair_order.c finds
 * scores that join pairs as merges do. */
#ifndef EXPORT_FOLDER_VOCAB_H
#define EXPORT_FOLDER_VOCAB_H

#include "export/folder_making.h"
#include "store/gguf/gguf_vocab.h"

#define WORD_MARK "\xE2\x96\x81" /* U+2581, which SentencePiece writes for a space */

struct token {
	const char *p; /* NULL: no token has this id */
	size_t n;
	int type; /* GGUF_NORMAL ... */
	float score;
	bool inside;     /* is in the model's vocabulary, not only among added_tokens */
	bool normalized; /* is looked for in the normalised text */
	bool unseen;     /* no text that the model is given has this one in it */
};
/* Text never becomes these, however it spells them. */
static inline bool token_hidden(const struct token *t)
{
	return t->type == GGUF_CONTROL || t->type == GGUF_UNKNOWN;
}

struct tokens_made {
	struct making *m;
	const struct json *tokenizer, *model;
	bool listed;  /* the vocabulary is a list of [text, score] by id */
	bool rounded; /* a score of it is rounded by a float */
	struct token *tok;
	int64_t n;       /* rows of the embedding */
	int64_t unknown; /* the token for what the vocabulary lacks, if the model names it; -1: it does not */
	bool pieces;     /* folder_pieces.c writes it */
};

/* ---- folder_tokens.c ---- */

bool json_says(const struct json *j, const char *text);
/* Fills t->tok from the vocabulary and from added_tokens. */
void vocab_read(struct tokens_made *t);
/* Writes texts and types.  Rows of the embedding that no token has get a text of their own, behind `pad`. */
void vocab_put(struct tokens_made *t, const char *pad);
/* Both halves of merge i of the model; false: a failure, which is noted. */
struct merge_text {
	const char *p[2];
	size_t n[2];
};
bool merge_read(struct tokens_made *t, size_t i, struct merge_text *out);
void vocab_put_merges(struct tokens_made *t);
/* The id of the token with that text, or -1. */
int64_t vocab_find(const struct tokens_made *t, const char *text, size_t n);

/* ---- folder_pieces.c ---- */

/* Writes a vocabulary whose tokens are pieces of text, not of bytes.  Fails where a GGUF file cannot say it. */
void pieces_put(struct tokens_made *t);

/* ---- normal_form.c ---- */

/* How text is normalised and cut before it is made tokens, where GGUF files have keys for it. */
struct normal_form {
	enum mark_before {
		MARK_NONE,
		MARK_ALWAYS,
		MARK_UNLESS_THERE,
		MARK_FIRST_TEXT
	} mark;             /* WORD_MARK before a text */
	bool spaces_marked; /* a space becomes WORD_MARK */
	bool stripped;      /* spaces at the end go */
	bool merged;        /* several spaces are one */
	bool cut;           /* words are cut before WORD_MARK */
	bool words;         /* white space is dropped where words are cut */
	const struct json *charsmap;
};
/* Fails, naming the step, where there is another one than these, or in another order. */
void normal_form_read(struct tokens_made *t, struct normal_form *f);

/* ---- pair_order.c ---- */

/* Ids by their text. */
struct text_index {
	const struct token **sorted;
	size_t n;
	const struct token *base;
};
/* twin: the ids of two tokens with the same text, or -1. */
void text_index_open(struct text_index *x, const struct token *tok, int64_t n, int64_t twin[2]);
void text_index_close(struct text_index *x);
int32_t text_index_find(const struct text_index *x, const char *p, size_t n);

struct pair_merge {
	int32_t left, right, made; /* ids */
	int32_t rank;
};

struct pair_order {
	const struct token *tok; /* [n] by id */
	int64_t n;
	const struct text_index *index;
	struct pair_merge *merge; /* [n_merge]; put in another order here */
	size_t n_merge;
	bool cut; /* nothing is joined before WORD_MARK */
};

enum { PAIR_CHARS_MAX = 512 }; /* of a token's text */

/* Sets rank[id] to the rank of the merge that gives the token where its own text is read; -1: none does.
 *
 * Returns -1, or the id of the first token that two neighbours have the text of, with no merge that joins them: scores would.
 * Hidden and unseen tokens do not count. */
int64_t pair_order(struct pair_order *o, int32_t *rank);

#endif
