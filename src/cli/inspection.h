/* inspection.h - what `weft inspect` tells of a model, gathered once, as text or as JSON. */
#ifndef CLI_INSPECTION_H
#define CLI_INSPECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "model/model.h"
#include "sound/ear.h"
#include "vision/tower.h"

struct embedder;
struct kv_pair;
struct host_opts;
struct store;

/* Matrices written alike. */
struct matrix_kind {
	const char *name;
	int group; /* 0: no groups */
	int tensors;
	int64_t elements;
	size_t stored; /* bytes, with scales */
};

/* Tensors that are ignored for one reason. */
struct ignored_kind {
	const char *why, *first;
	size_t tensors, bytes;
};

/* Bytes, of the context and the number of sequences that were asked for. */
struct memory_plan {
	int parallel, ctx;
	struct model_opts opts;
	size_t row, plain_row;  /* of keys and values for each token; the same in 16 bits */
	size_t state;           /* for each sequence */
	struct buf kinds;       /* how keys and values are written, in words */
	double pages, kept;     /* bytes of all keys and values; bytes that they may take (--kv-bytes) */
	double states, step;    /* step: what computing one takes */
	size_t weights, tables; /* in memory; tables that rows are looked up of, which may stay on disk */
	double together;
};

/* A draft head in files of its own, given with --draft-model. */
struct given_head {
	const char *name;
	struct store *st;
	struct model *m;    /* NULL: it cannot be bound */
	struct err refused; /* why */
};

enum { MATRIX_KINDS = 64, IGNORED_KINDS = 16 };

struct inspection {
	const struct model *model;
	const struct store *store;
	int64_t elements;                      /* of all tensors in the files */
	size_t file_bytes;                     /* of all files */
	struct matrix_kind kind[MATRIX_KINDS]; /* the largest first */
	int n_kind;
	size_t vectors, vector_bytes;
	struct ignored_kind ignored[IGNORED_KINDS]; /* in the order they come */
	int n_ignored;
	bool sees;           /* the model has a tower for images */
	struct err no_tower; /* code: it has one that cannot be bound, and why */
	struct tower_info tower;
	bool hears;        /* the model has a tower for sounds, or reads them without one */
	struct err no_ear; /* code: it cannot be bound, and why */
	struct ear_info ear;
	struct model *head;       /* the model's own draft head; NULL: it has none */
	struct err no_head;       /* code: it has one that cannot be bound, and why */
	struct given_head *given; /* [n_given] */
	int n_given;
	struct embedder *embedder; /* of a model made for vectors, scores or labels; NULL: it is not one */
	struct err no_embedder;    /* code: it is one whose head is not computed, and why */
	struct memory_plan plan;
};

/* m and st are borrowed until inspection_free; layer: keys and values of each attention layer.  Looks for a tower of
 * images and a draft head in st, whose tensors are then not told as ignored, and for the heads that o names. */
void inspection_make(struct inspection *in, const struct model *m, struct store *st, const struct host_opts *o,
                     const struct kv_pair *layer);
void inspection_free(struct inspection *in);

/* The name of what e gives: "vectors", "scores" or "labels". */
const char *inspection_gives(const struct embedder *e);

/* The class that config.json names, or NULL. */
const char *inspection_class(const struct store *st);

/* One object with a line break: docs/commands.md says what its members are, and that they stay. */
void inspection_put_json(const struct inspection *in, bool tensors, struct buf *out);

#endif
