/* embedder.h - what is made of a model's rows besides text: vectors of texts, scores of pairs, labels.
 *
 * A folder says it in files of its own: modules.json and the folders that it names (sentence-transformers), or the head of a
 * classifier in config.json and among the tensors.  All of these are one thing here: which rows of a text are taken and how
 * they are pooled (engine/wanted_rows.h), and steps that turn the pooled row into the vector or the scores.  Steps are computed on
 * the host in float32, in one order, by any thread.  docs/embeddings.md has the files. */
#ifndef EMBED_EMBEDDER_H
#define EMBED_EMBEDDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/err.h"
#include "engine/wanted_rows.h"

struct model;
struct store;

enum { EMBED_PROMPTS_MAX = 64, EMBED_STEPS_MAX = 16, EMBED_LABELS_MAX = 1 << 16 };

enum step_act { STEP_PLAIN, STEP_TANH, STEP_GELU, STEP_GELU_TANH, STEP_RELU, STEP_SILU, STEP_SIGMOID };

/* y = act(W x + b); or a LayerNorm of x, where w is NULL; or scale x, where gain is NULL too. */
struct embed_step {
	int in, out;
	const float *w, *bias; /* [out][in]; [out] or NULL */
	const float *gain;     /* of the LayerNorm, whose bias is `bias` */
	float eps, scale;
	enum step_act act;
};

/* How scores are made of logits. */
enum score_act { SCORES_RAW, SCORES_SIGMOID, SCORES_SOFTMAX };

enum embedder_kind {
	EMBEDS, /* gives vectors */
	RANKS,  /* gives one score of a text or a pair of texts */
	LABELS, /* gives one of each label */
};

struct embedder {
	struct arena arena;
	enum embedder_kind kind;
	bool writes;     /* the model is one that writes, and its vectors are a by-product */
	unsigned rows;   /* what is taken of a text's rows */
	bool all_rows;   /* the steps are for every row, and rows is ROWS_ALL */
	bool no_prompt;  /* rows of the prompt are not pooled */
	bool normalized; /* vectors are made as long as 1 by the folder's own account */
	bool lower;      /* texts are lower-cased before they are tokenised */
	/* Scores by a question to a model that writes, as Qwen3-Reranker has them: score is that of yes against no. */
	bool asks;
	int in, out;    /* floats that the first step reads, and that the last one gives */
	int max_tokens; /* of a text, special tokens included; 0: as the model has it */
	int32_t pad;    /* of classifiers that read the last token which is another; -1: the last */
	const struct embed_step *step;
	int n_step;
	enum score_act act;
	const char *const *label; /* [out] of LABELS and RANKS; NULL: LABEL_0 and so on */
	struct embed_prompt {
		const char *name, *text;
	} prompt[EMBED_PROMPTS_MAX];
	int n_prompt, default_prompt; /* default_prompt -1: none */
};

/* Reads what the folder of a bound model says.  E_UNSUPPORTED, with its name: a module or head that is not computed.  The
 * embedder needs nothing of st after the return. */
int embedder_open(struct embedder **out, const struct model *m, struct store *st, struct err *err);
void embedder_close(struct embedder *e);

/* Which rows of a text are wanted: ask.rows and ask.rows_from of ids[0..n), the first n_prompt of which are the prompt's. */
unsigned embedder_rows(const struct embedder *e, const int32_t *ids, int n, int n_prompt, int *from);
/* Runs the steps: out[e->out] of in[e->in].  Any thread. */
void embedder_run(const struct embedder *e, const float *in, float *out);
/* Logits to scores, in place; raw: they stay logits. */
void embedder_scores(const struct embedder *e, float *v, bool raw);
/* The prompt of that name; NULL: there is none. */
const char *embedder_prompt(const struct embedder *e, const char *name);
/* Label i as it is shown. */
const char *embedder_label(const struct embedder *e, int i, char scratch[32]);

/* Makes v[n] as long as 1; zeros stay. */
void vector_normalize(float *v, int n);

#endif
