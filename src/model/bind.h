/* bind.h - tensors taken from a store one after the other, one error for all.  For src/model/ and src/vision/.
 *
 * Paths are printf formats under the prefix of the file set.  The first failure
 * stays in code and err; later calls do nothing, so that a binder reads as the
 * table of tensors it is. */
#ifndef MODEL_BIND_H
#define MODEL_BIND_H

#include <stdbool.h>

#include "base/err.h"
#include "model/model.h"
#include "quant/format.h"
#include "store/store.h"

struct binder {
	struct store *st;
	struct model *m;    /* whose arenas take what is made */
	const char *prefix; /* "model.", "language_model.model.", ... */
	const char *
		layer; /* stands in paths where they have "layers.N", of files that name their one layer otherwise; or NULL */
	struct err *err;
	int code;
};

bool bind_has(const struct binder *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* PATH.weight, [rows][cols]. */
void bind_weight(struct binder *b, struct weight *out, int rows, int cols, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* Binds a tensor of more than two dimensions as a matrix: cols is the product of all dimensions but the first. */
void bind_flat(struct binder *b, struct weight *out, int rows, int cols, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* A stack [n][rows][cols], as n weights. */
void bind_stack(struct binder *b, struct weight *out, int n, int rows, int cols, const char *fmt, ...)
	__attribute__((format(printf, 6, 7)));
/* A stack [n][cols][rows] of plain numbers, as n weights whose rows are made in memory. */
void bind_turned(struct binder *b, struct weight *out, int n, int rows, int cols, const char *fmt, ...)
	__attribute__((format(printf, 6, 7)));
/* Keeps w row-major: it is not read by fast products alone, or is sliced below 16 rows, so it cannot be packed. */
void bind_rows_only(struct binder *b, struct weight *w);
/* w is a table: a row of it is looked up for each token, and nothing multiplies it.  It stays where it is in the model. */
void bind_looked_up(struct binder *b, struct weight *w);
/* w is looked up or laid out anew, not multiplied as it is: no adapter can be for it. */
void bind_apart(struct binder *b, const struct weight *w);
/* E_UNSUPPORTED if w is in a rotated basis (quant/basis.h): for a matrix whose operation takes its inputs as they are, which are
 * routers, experts, and matrices that are multiplied head by head. */
void bind_usual_basis(struct binder *b, const struct weight *w);
/* n floats for the binder to fill, that operations may be given: a table made of tensors or of the config. */
float *bind_table(struct binder *b, size_t n);
/* e^a of n numbers, as a table; NULL after a failure. */
const float *bind_exp(struct binder *b, const float *a, int n);
/* n floats of the tensor of that full name, each plus add; NULL after a failure. */
const float *bind_floats(struct binder *b, int64_t n, float add, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* n floats of the tensor of that full name for the host alone, NULL after a failure.  They are in the heap, and stay when the
 * backend drops the mapped file. */
const float *bind_host(struct binder *b, int64_t n, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* E_FORMAT unless the scale of attention's scores, which factors of the config may make, is above 0 and finite. */
void bind_scores_scale(struct binder *b, float scale);

/* Finds the prefix of tensor names, among those that checkpoints use, under which the embedding lies;
 * fails when there is none. */
void bind_find_prefix(struct binder *b, const char *embed);
/* The prefix of lm_head; NULL: there is none. */
const char *bind_head_prefix(const struct binder *b);
/* Embedding and output matrix.  tied: what the config says; the presence of
 * lm_head counts more.  *head = *embed when tied, and of architectures that have no output matrix. */
void bind_embedding(struct binder *b, struct weight *embed, struct weight *head, const char *name, int vocab,
                    int hidden, bool tied);

#endif
