/* token_model.h - how a piece of text becomes tokens: one interface, one file per kind of vocabulary.
 *
 * For tokenizer.c.  To add a kind: its file and its line in token_models.c.  An open
 * model is constant; what a call needs for itself is in struct token_work. */
#ifndef TEXT_TOKEN_MODEL_H
#define TEXT_TOKEN_MODEL_H

#include <stdbool.h>

#include "text/tokens/lexicon.h"
#include "text/tokens/tokenizer.h"

struct token_model_ops;

struct token_model {
	const struct token_model_ops *ops;
	struct lexicon words;
	bool byte_level;      /* text comes as bytes that the vocabulary spells in GPT-2's alphabet */
	int32_t byte_id[256]; /* tokens that stand for a byte; -1: none */
	bool byte_fallback;   /* what the vocabulary lacks becomes tokens of bytes */
	int32_t unknown;      /* without byte_fallback, the token for what the vocabulary lacks; -1: none */
	bool fuse_unknown;    /* one for a run of unknown characters */
	/* By id below n_hidden: special tokens, which no ordinary text becomes however it spells them; NULL while
	 * loading. */
	const bool *hidden;
	int32_t n_hidden;
	void *own;
};
static inline bool token_model_hidden(const struct token_model *m, int32_t id)
{
	return id < m->n_hidden && m->hidden[id];
}
/* The id of the token of bytes p[0..n) that text may become, or -1. */
static inline int32_t token_model_find(const struct token_model *m, const char *p, size_t n)
{
	int32_t id = lexicon_find(&m->words, p, n);

	return id >= 0 && token_model_hidden(m, id) ? -1 : id;
}

/* Memory that one caller keeps between pieces. */
struct token_work {
	void *mem;
	size_t bytes;
};
void *token_work_get(struct token_work *w, size_t bytes);
void token_work_fini(struct token_work *w);

struct token_model_ops {
	const char *type; /* of tokenizer.json: "BPE" */
	/* m->byte_level is set; fills the rest.  After an error close is called. */
	int (*open)(struct token_model *m, const struct json *model, struct err *err);
	/* Frees own; NULL: nothing to free. */
	void (*close)(struct token_model *m);
	/* Appends the ids of one piece, n >= 1 bytes of valid UTF-8 (byte-level: of bytes).  Time grows as n log n, or
	 * as n times the longest token, whatever the bytes. */
	void (*encode)(const struct token_model *m, struct token_work *w, const char *p, size_t n, struct tokens *out);
};

extern const struct token_model_ops *const token_models[]; /* NULL-ended */

int token_model_open(struct token_model *m, const struct json *model, bool byte_level, struct err *err);
void token_model_close(struct token_model *m);

/* ---- for the kinds ---- */

/* The value of a key that is no more than false, 0 or "" here, or E_UNSUPPORTED naming it. */
int token_model_without(const struct json *model, const char *key, struct err *err);
/* "unk_token" (a text) or "unk_id", and byte_fallback with its tokens "<0x00>" ... */
int token_model_fallback(struct token_model *m, const struct json *model, struct err *err);
/* Appends what stands for p[0..n), one character that the vocabulary lacks; *fused says whether the token before was
 * the unknown one. */
void token_model_lacking(const struct token_model *m, const char *p, size_t n, bool *fused, struct tokens *out);
/* Bytes of the character at p[0..n); 1 for what is none. */
size_t token_model_char(const char *p, size_t n);

#endif
