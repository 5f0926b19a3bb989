/* adapter_file.h - an adapter (LoRA) as it lies on disk: pairs of small matrices, each for one matrix of a model.
 *
 * Two forms are read: a GGUF file whose general.type is adapter (llama.cpp's convert_lora_to_gguf), and a folder as PEFT
 * leaves it (adapter_config.json, adapter_model.safetensors).  Whatever the form, rows of B and columns of A come in the
 * order of the model's own matrix.  What is not a plain low-rank addition (DoRA, embeddings, trained norms or biases,
 * modules saved whole, adapters that begin at a token) is refused by name.  docs/adapters.md. */
#ifndef STORE_ADAPTER_FILE_H
#define STORE_ADAPTER_FILE_H

#include "store/store.h"

struct adapter_matrix {
	const char *name; /* of the pair in the file, for messages */
	const char *path; /* of the model's matrix, as store_matrix has it */
	int rank, rows, cols;
	const float *a, *b; /* [rank][cols], [rows][rank] */
	float factor;       /* alpha / rank, or alpha / sqrt(rank) */
};

struct adapter_file {
	struct arena arena;
	const char *path;
	struct adapter_matrix *v;
	int n;
};

/* Reads what lies at path for the model of base, which has been bound.  To be closed in any case. */
int adapter_file_open(struct adapter_file *f, const struct store *base, const char *path, struct err *err);
void adapter_file_close(struct adapter_file *f);

/* Inside src/store/: room for n more pairs; base's own path of the matrix that another layout calls module, NULL where it
 * has none; the GGUF form, gguf_adapter.c. */
struct adapter_matrix *adapter_file_room(struct adapter_file *f, int n);
const char *adapter_file_path(const struct store *base, const char *module);
int gguf_adapter_read(struct adapter_file *f, const struct store *base, struct err *err);

#endif
