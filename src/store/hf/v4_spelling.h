/* v4_spelling.h - DeepSeek V4's folders as mlx-lm and transformers write them, read as DeepSeek writes its own.
 *
 * The three give the same tensors other names, and transformers gives parts of the config another form.  Folders of other
 * models are left alone. */
#ifndef STORE_HF_V4_SPELLING_H
#define STORE_HF_V4_SPELLING_H

#include "base/alloc.h"
#include "base/buf.h"
#include "base/err.h"
#include "store/tensor.h"

/* text: a config.json, which comes back with DeepSeek's members in place of the others.  What cannot be parsed stays as it is.
 * *v4: whether it is a config of DeepSeek V4.  0 or E_FORMAT: a list of layers that has no such form; err says where, without the
 * path. */
int v4_spell_config(struct buf *text, bool *v4, struct err *err);

/* Gives the n tensors DeepSeek's names, in the order they have; names are kept in a.  Whether any was changed. */
bool v4_spell_tensors(struct tensor **v, size_t n, struct arena *a);

#endif
