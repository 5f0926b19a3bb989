/* pick.h - which of a folder's files is the model.  Inside src/store/. */
#ifndef STORE_PICK_H
#define STORE_PICK_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

/* path is a folder.  It becomes the GGUF file in it where that is the model: where type names one ("Q4_K_M", any
 * case), or where the folder has no safetensors and one GGUF file (of a split one, its first part).  E_MISSING and
 * E_ARG name the files that are there. */
int pick_file(struct buf *path, const char *type, struct err *err);
/* Whether a file of that name holds a tower, which is next to its model: a GGUF file with "mmproj" in its name. */
bool pick_is_projector(const char *name);

#endif
