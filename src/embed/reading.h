/* reading.h - inside embed/: a folder's files and tensors, read with one error for all. */
#ifndef EMBED_READING_H
#define EMBED_READING_H

#include "base/json.h"
#include "embed/embedder.h"
#include "model/conf.h"
#include "store/store.h"

struct model;

/* An embedder while its folder is read. */
struct reading {
	struct embedder *e;
	const struct model *m;
	struct store *st;
	struct err *err;
	int code;                                /* the first failure; later calls do nothing */
	struct embed_step step[EMBED_STEPS_MAX]; /* moves to e at the end */
	int n_step, width;                       /* floats after the last step so far */
	const char *arch;                        /* architectures[0], or "" */
};

void reading_fail(struct reading *r, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The JSON document of that name, to be freed; NULL: there is none, or a failure. */
struct json *reading_document(struct reading *r, const char *name);
/* A string of the arena. */
const char *reading_keep(struct reading *r, const char *text, size_t n);
/* Adds a step; what is wrong with its sizes is an error. */
void reading_step(struct reading *r, struct embed_step s, const char *what);
/* A tensor of the model's files under the first of the usual prefixes that has it, as floats of the arena; its rows by its
 * count over cols (1: a vector's length) to *rows.  NULL: there is none. */
const float *reading_floats(struct reading *r, const char *name, int cols, int *rows);
/* Activation by the last part of a name: "torch.nn.modules.activation.Tanh". */
enum step_act reading_act(struct reading *r, const char *where, const char *name);

/* modules.c: modules.json and what it names.  False: there is no such file. */
bool modules_read(struct reading *r);
/* classifiers.c: the head of a classifier, where architectures[0] says that there is one.  False: it does not. */
bool head_read(struct reading *r);
/* classifiers.c: scores by the words yes and no, from rows of the output matrix. */
void head_of_words(struct reading *r, int32_t yes, int32_t no);

#endif
