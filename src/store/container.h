/* container.h - how a model lies on disk: tensors and documents.
 *
 * A container is a format of model files: a folder as Hugging Face leaves it, a
 * GGUF file.  An open one yields tensors under Hugging Face's names, each with its
 * type and, where the file says it, its number format; and documents, the texts
 * that Hugging Face keeps with the tensors ("config.json", "tokenizer.json",
 * "tokenizer_config.json", "generation_config.json", "chat_template.jinja"), read
 * from files or made from metadata.  Nothing above src/store/ knows which container
 * a model came from.  To add one: docs/formats.md. */
#ifndef STORE_CONTAINER_H
#define STORE_CONTAINER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "store/tensor.h"

/* A file of the model that is mapped. */
struct store_file {
	const char *path;
	struct file_map map; /* the container closes it */
};

struct container {
	const struct container_ops *ops;
	struct arena arena; /* of what lives as long as the container: names, tables, tensors made anew */
	const char *path;   /* as opened */
	/* A file with the tower of the model, whose text is elsewhere; "": the one next to the model, if there is one;
	 * NULL: none is looked for. */
	const char *tower;
	struct tensor **v; /* in any order; no name twice (the store checks) */
	size_t n;
	struct store_file *file;
	int n_file;
	void *own;
};

struct container_ops {
	const char *name; /* "folder", "gguf" */
	bool tower_apart; /* towers are files of their own; else c->tower names none */
	/* Whether path looks like one; reads no more than it must. */
	bool (*match)(const char *path);
	/* ops, arena, path and tower of c are set.  From then on documents can be asked for. */
	int (*open)(struct container *c, struct err *err);
	/* Lists tensors and files into c; called once, after open. */
	int (*tensors)(struct container *c, struct err *err);
	/* Called also after open or tensors has failed. */
	void (*close)(struct container *c);
	/* Appends the document of that name to out.  E_MISSING when the model has none.  One thread at a time, as
	 * place and load. */
	int (*document)(struct container *c, const char *name, struct buf *out, struct err *err);
	/* The path that the document of that name has or would have, for messages; lives as long as c. */
	const char *(*place)(struct container *c, const char *name);
	/* Optional.  *out: the names of the documents in that folder, each with the folder and a slash before
	 * it, sorted, ended by NULL, alive as long as c.  There may be none. */
	int (*list)(struct container *c, const char *folder, const char *const **out, struct err *err);
	/* Optional.  Makes t->data of a tensor that was listed without; called once, before its first use. */
	int (*load)(struct container *c, struct tensor *t, struct err *err);
};

/* containers.c: the list, NULL-ended.  The first that matches opens the model. */
extern const struct container_ops *const containers[];

/* Opens path with ops, or with the first of the list that matches it (ops NULL).  tower: as the member; E_ARG where one is
 * named and the model's container has none apart.  To be closed also after an error. */
int container_open(struct container *c, const struct container_ops *ops, const char *path, const char *tower,
                   struct err *err);
int container_tensors(struct container *c, struct err *err);
int container_document(struct container *c, const char *name, struct buf *out, struct err *err);
int container_list(struct container *c, const char *folder, const char *const **out, struct err *err);
const char *container_place(struct container *c, const char *name);
int container_load(struct container *c, struct tensor *t, struct err *err);
void container_close(struct container *c);

#endif
