/* folder_making.h - what the parts of from_folder.h share.  Inside src/export/. */
#ifndef EXPORT_FOLDER_MAKING_H
#define EXPORT_FOLDER_MAKING_H

#include "export/from_folder.h"
#include "store/gguf_model.h"

/* The largest count of heads, and of inputs of one, that config.json is believed: products of three fit. */
enum { MAKING_SIZE_MAX = 1 << 20 };

struct making {
	struct store *st;
	struct gguf_source *s;
	struct pairs p;
	const struct gguf_arch *arch;
	int64_t blocks, drafts; /* layers, and draft heads behind them */
	bool delta;             /* has gated delta nets, which the converter lays out anew */
	bool norms_whole;       /* norms hold 1 + w already, as mlx writes them */
	bool inside;            /* a mistral inside of a wrapper, which leaves out what is MistralConfig's default */
	struct err *err;
	int code; /* the first failure; later steps do nothing */
};

void making_fail(struct making *m, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Members of the text model's config; a missing one gives dflt, and fails where that is INT64_MIN or NAN. */
int64_t making_int(struct making *m, const char *member, int64_t dflt);
double making_float(struct making *m, const char *member, double dflt);

/* Inputs of an attention head, even and at most MAKING_SIZE_MAX; 2 after a failure. */
int64_t making_head_dim(struct making *m);

/* folder_keys.c: finds the architecture and writes its metadata. */
void making_keys(struct making *m);
/* folder_tokens.c: tokenizer, special tokens, chat template and sampling; vocabulary: rows of the embedding. */
void making_tokens(struct making *m, int64_t vocabulary);

#endif
