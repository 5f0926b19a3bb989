/* to_folder.h - a folder as mlx-lm writes it, with matrices as affine groups or mxfp4. */
#ifndef EXPORT_TO_FOLDER_H
#define EXPORT_TO_FOLDER_H

#include "export/to_gguf.h"
#include "store/store.h"

struct folder_kind {
	const char *mode; /* "affine", "mxfp4" */
	int bits, group;
};

/* "affine4", "affine6g32", "mxfp4"; 0, or E_ARG with what there is. */
int folder_kind_parse(struct folder_kind *k, const char *text, struct err *err);

/* Every matrix that the model multiplies with, but for routers and rows that are not whole groups, which stay as they are;
 * everything else of the model is copied.  st: bound to its model, so that it is known what is a matrix. */
int export_folder(struct store *st, const struct folder_kind *kind, const struct export_ask *ask, struct err *err);

#endif
