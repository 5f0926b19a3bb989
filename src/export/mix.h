/* mix.h - which type each tensor of a GGUF file gets: a type's name, or that of a mix as people know them (Q4_K_M). */
#ifndef EXPORT_MIX_H
#define EXPORT_MIX_H

#include "quant/gguf/gguf.h"

struct mix {
	const char *name;
	int file_type;    /* general.file_type, for people */
	const char *base; /* type of what nothing else is said of */
};

/* By name, any case; NULL: none.  names: all of them, for a message. */
const struct mix *mix_find(const char *name);
const char *mix_names(void);

/* Facts about the model that is written, which the choice of types depends on. */
struct mix_model {
	int blocks;  /* layers */
	bool tied;   /* no output matrix: the embedding is it */
	int experts; /* of a layer; 0: none */
};
/* The type for tensor `name` (GGUF's), rows of cols elements; NULL: it stays as it is. */
const struct gguf_type *mix_type(const struct mix *mix, const struct mix_model *m, const char *name, int n_dim,
                                 int64_t cols);

#endif
