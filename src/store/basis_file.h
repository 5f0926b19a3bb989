/* basis_file.h - which weights of a model are stored in another basis (quant/basis.h): the document hadamard.json, which a
 * GGUF file has as its keys prism.hadamard.*.  Inside src/store/.  docs/formats.md has its members. */
#ifndef STORE_BASIS_FILE_H
#define STORE_BASIS_FILE_H

#include "quant/basis.h"
#include "store/store.h"

/* Reads the document, if the model has one, and marks the tensors that it names.  After the tensors are listed.
 * E_FORMAT, E_UNSUPPORTED: it contradicts itself or the tensors, or is of another kind. */
int basis_read(struct store *st, struct err *err);
/* The basis of a marked tensor's rows, of `cols` inputs.  The store owns it; one for each width, so that weights with a
 * common input share it. */
int basis_of(struct store *st, const struct tensor *t, int cols, const struct basis **out, struct err *err);

#endif
