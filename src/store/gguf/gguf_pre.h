/* gguf_pre.h - how tokenizers of GGUF files cut text before merging, by name.  Inside src/store/. */
#ifndef STORE_GGUF_PRE_H
#define STORE_GGUF_PRE_H

#include <stdbool.h>

enum { GGUF_PRE_STEPS = 6 };

struct gguf_pre {
	const char *names;                /* "qwen2 deepseek-r1-qwen ...": those that cut so */
	const char *step[GGUF_PRE_STEPS]; /* expressions, each over the pieces that the one before left */
	bool whole_first;                 /* a piece that is a token is that token (ignore_merges) */
	bool bos;                         /* a begin token goes before a text, if the file does not say */
	/* The authors' one expression, where the makers of the name cut by `step` in its place; NULL: step is theirs. */
	const char *meant;
};

/* NULL: no such name. */
const struct gguf_pre *gguf_pre_find(const char *name, int n);

/* How a byte-level pre-tokenizer cuts that has no expression of its own. */
extern const char GGUF_PRE_BYTE_LEVEL[];
/* How Kimi's own tokenizer cuts. */
extern const char GGUF_PRE_KIMI[];
/* The first name, of *length bytes, of a pre-tokenizer that splits by these n expressions of a tokenizer.json and takes
 * whole pieces first or not.  NULL: there is none.  *other: files of that name cut some words otherwise (meant). */
const char *gguf_pre_name(const char *const *step, int n, bool whole_first, int *length, bool *other);

#endif
