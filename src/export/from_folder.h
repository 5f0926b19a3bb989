/* from_folder.h - a model folder as a source of a GGUF file, laid out as llama.cpp's converter lays it out. */
#ifndef EXPORT_FROM_FOLDER_H
#define EXPORT_FROM_FOLDER_H

#include "export/gguf_source.h"
#include "store/store.h"

/* Names, shapes, order of rows and metadata of st's language model; its matrices stay where st has them mapped, so st
 * outlives s.  E_UNSUPPORTED: an architecture, a rotation or a tokenizer that GGUF has and this does not write yet, or
 * matrices that are quantised already.  To be closed also after an error. */
int folder_source(struct gguf_source *s, struct store *st, struct err *err);
/* "llama, qwen2, ...": values of model_type that are written. */
void folder_families(struct buf *out);

#endif
