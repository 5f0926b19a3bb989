/* store.h - a model as it lies on disk: its settings and its named tensors.
 *
 * A container (container.h) reads the files: a Hugging Face folder, the same
 * folder converted by mlx-lm, a GGUF file.  Tensors are mapped read-only and never
 * copied whole; settings are documents, asked for by name.  Nothing is ever
 * downloaded.  Serves the loader (src/model/) and the commands; knows nothing of
 * architectures.
 *
 * Tensors are handed out as weights in the number format they are stored in.
 * Every request states the shape that the config implies, and a disagreement is
 * one line that names the file, the tensor and the two values.  What was handed
 * out is marked used; the rest must be named ignored, with a reason. */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "quant/format.h"
#include "quant/placed.h"
#include "store/container.h"

/* Parameters of one coded module, from config.json. */
struct quant_entry {
	const char *path; /* normalised, see store_weight; NULL: the default of all */
	const char *mode; /* "affine", "mxfp4", "mxfp8", "nvfp4" */
	int bits, group;
	bool plain; /* the config says: not coded */
};

/* A matrix that was handed out whole, and no stack. */
struct store_matrix {
	const char *path; /* as it was asked for */
	struct weight w;
	bool apart; /* see store_apart */
};

struct store {
	struct arena arena;
	struct container box;
	const char *dir;               /* the folder or file, as opened */
	const char *name;              /* what a person calls the model: "org/name" or the path's last part */
	struct json *config;           /* config.json, whole */
	const struct json *text;       /* its text_config, or config itself */
	struct json *generation;       /* generation_config.json; NULL when absent */
	struct json *tokenizer_config; /* tokenizer_config.json; NULL when absent */
	const char *config_path;       /* where config.json is, for messages */
	const struct store_file *file; /* the mapped files */
	int n_file;
	struct tensor **v; /* every tensor of every file, by name */
	size_t n;
	struct store_matrix *matrix; /* in the order of their first use */
	size_t n_matrix;             /* those of a model that is bound twice are there twice */
	bool coded;                  /* the config has a quantization section; then dflt holds */
	struct quant_entry dflt, *entry;
	size_t n_entry;
	/* basis_file.h: a basis for each width; whether widths have signs; inputs of a block. */
	struct basis *basis;
	int n_basis, basis_block;
	bool basis_signs;
	/* For other quantisers (foreign.h): the bits of a code, 0 where the config names no such quantiser. */
	struct {
		int bits, block[2]; /* block: rows and inputs that share an FP8 scale */
		bool awq, zeros_as_they_are;
	} foreign;
};

/* MODEL as a person writes it: the path of a folder or file, or a name like
 * "Qwen/Qwen3.5-4B" that is looked up in the Hugging Face cache on disk
 * (HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub,
 * ~/.cache/huggingface/hub).  E_MISSING says where it looked. */
int store_open(struct store **out, const char *model, struct err *err);
/* store_open, with the tower of a GGUF model, which is a file of its own: tower names it, and an error says why it cannot be
 * used; "": the one next to the model, if there is one; if it cannot be used the log says why.  NULL: as
 * store_open, which looks for none.  Towers that lie among a model's own files are in every store. */
int store_open_seeing(struct store **out, const char *model, const char *tower, struct err *err);
void store_close(struct store *st);
/* Opens the model at path with the container ops (NULL: the first that matches); name is the user's name for it. */
int store_open_as(struct store **out, const struct container_ops *ops, const char *path, const char *name,
                  struct err *err);

/* The folder or file of MODEL, by the same rules, into out. */
int store_locate(const char *model, struct buf *out, struct err *err);

/* ---- documents ---- */

/* Appends the text that Hugging Face keeps under that name with the tensors ("tokenizer.json"), from a file or
 * made from metadata: the one way to what a model says of itself.  E_MISSING when it has none.  One thread at a time. */
int store_document(const struct store *st, const char *name, struct buf *out, struct err *err);
/* *out: the names under which store_document has the texts of a folder with the tensors ("additional_chat_templates"), with
 * the folder in them, sorted, ended by NULL, until store_close.  Often there are none. */
int store_list(const struct store *st, const char *folder, const char *const **out, struct err *err);
/* The path that the document of that name has or would have, for messages; in the store's arena. */
const char *store_place(const struct store *st, const char *name);

/* ---- tensors ---- */

struct tensor *store_find(const struct store *st, const char *name);
/* The tensor named path followed by suffix; NULL: there is none. */
struct tensor *store_part(const struct store *st, const char *path, const char *suffix);
/* Whether there is a tensor of that name, or, of a name that ends in ".weight", a matrix in another quantiser's words. */
bool store_has(const struct store *st, const char *name);
/* Makes sure that t->data is there: some tensors are made when they are first used. */
int store_data(struct store *st, struct tensor *t, struct err *err);
/* A tensor's name with the first of the prefixes under which it exists; NULL
 * when there is none.  Returns the prefix. */
const char *store_prefix(const struct store *st, const char *const *prefix, const char *name);

/* The matrix path.weight (or path itself, where there is no such name), rows by
 * cols, plain or coded: with path.scales and path.biases when the config or
 * their presence says so.  A config entry counts for the path after the leading
 * "model." and "language_model." are taken off both. */
int store_weight(struct store *st, const char *path, int rows, int cols, struct weight *out, struct err *err);
/* store_weight for a tensor of more than two dimensions, as a convolution's kernel: cols is the product of all dimensions
 * but the first. */
int store_flat(struct store *st, const char *path, int rows, int cols, struct weight *out, struct err *err);
/* store_weight for a stack [n][rows][cols]: n weights into out[0..n). */
int store_stack(struct store *st, const char *path, int n, int rows, int cols, struct weight *out, struct err *err);
/* store_stack, and for a tensor [n][cols][rows] of plain numbers: rows are made of it in memory of the store's, and the
 * tensor has the axes of a stack from then on. */
int store_turned(struct store *st, const char *path, int n, int rows, int cols, struct weight *out, struct err *err);
/* The matrix that store_weight has handed out for that path; NULL: none. */
struct store_matrix *store_matrix(const struct store *st, const char *path);
/* w is read otherwise than by products of all its rows or a run of them: looked up, or laid out anew.  No adapter can be
 * for it. */
void store_apart(struct store *st, const struct weight *w);
/* Where the scale of row r and input c of a matrix in E4M3 is: number r / high * wide + c / broad of s. */
struct store_grid {
	const struct tensor *s; /* NULL: it has none */
	int64_t wide;
	int high, broad;
};
/* The scales of w, which has two axes, in the words of any quantiser of FP8; store_data is done for them. */
int store_grid(struct store *st, const struct tensor *w, struct store_grid *out, struct err *err);
/* A small tensor as floats in the arena: count elements, in any shape whose other
 * dimensions are 1.  Each gets add added (norms stored without their 1). */
int store_floats(struct store *st, struct arena *a, const char *name, int64_t count, float add, const float **out,
                 struct err *err);
/* A list of count integers (I64 or I32) in the arena. */
int store_ints(struct store *st, struct arena *a, const char *name, int64_t count, const int64_t **out,
               struct err *err);
/* "FILE: tensor NAME is [..], CONFIG asks for [..]" */
int store_shape_error(const struct store *st, const struct tensor *t, const int64_t *dim, int n_dim, struct err *err);
int store_missing(const struct store *st, const char *name, struct err *err);

/* Tensors whose name begins with prefix or (when it begins with '*') ends with
 * the rest of it, and that nothing used, will not be: why is a static string. */
void store_ignore(struct store *st, const char *pattern, const char *why);
/* How often each tensor is used, before something is bound that may fail; then, with again, it is used as often again.
 * store_uses_end frees what store_uses returned. */
int *store_uses(const struct store *st);
void store_uses_end(struct store *st, int *uses, bool again);
/* After binding: one log line per reason, one warning per tensor that is neither
 * used nor ignored. */
void store_report(struct store *st);

/* ---- memory ---- */

/* w is read otherwise than by products of ARITH_FAST, or cut where no packed block begins: it is never packed. */
void store_rows_only(struct store *st, struct weight *w);

/* The *n regions that hold the tensors which were handed out, and those of made, in which the caller keeps what it
 * computed from some.  The caller frees the list, which is valid until store_close and arena_fini. */
struct placed *store_placed(const struct store *st, const struct arena *made, int *n);

/* ---- settings ---- */

/* Ids that end an answer: the union of what generation_config.json and
 * config.json name.  Returns how many, at most max. */
int store_eos(const struct store *st, int32_t *out, int max);

enum { SUPPRESSED_MAX = 64 };
/* Sampling the checkpoint suggests; a field it does not name keeps its value. */
struct store_sampling {
	int32_t suppressed[SUPPRESSED_MAX]; /* ids that no answer may have */
	int n_suppressed;
	double temperature, top_p, min_p, repetition_penalty;
	int top_k;
};
int store_sampling(const struct store *st, struct store_sampling *io, struct err *err);

/* A chat template of a model, by the name that Hugging Face gives it: "default", "tool_use", "rag". */
struct store_template {
	char *name, *text;
};

/* The chat templates of a model, no name twice.  v[0] is the one that counts where no other is asked for: "default", or the
 * first of a model that has none of that name.  n is 0 where a model has none at all. */
struct store_templates {
	struct store_template *v;
	size_t n;
};

/* Reads them where transformers does: from chat_template.jinja ("default") and additional_chat_templates/NAME.jinja; where
 * there is neither, from tokenizer_config.json (a string or a list); last from chat_template.json.  Files without a default
 * one take it from the others.  To be ended also after an error.
 * https://huggingface.co/docs/transformers/chat_templating_writing */
int store_templates_read(const struct store *st, struct store_templates *out, struct err *err);
void store_templates_end(struct store_templates *t);
/* The text of the template of that name; NULL: there is none. */
const char *store_templates_find(const struct store_templates *t, const char *name);

#endif
