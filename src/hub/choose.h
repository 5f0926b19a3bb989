/* choose.h - which files of a repository a model is made of.  Inside src/hub/. */
#ifndef HUB_CHOOSE_H
#define HUB_CHOOSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* A file of a commit. */
struct hub_entry {
	char *path;
	int64_t size;
	char digest[65];  /* names the blob: SHA-256 of a large file, git's SHA-1 of another */
	char blob_id[41]; /* git's; of a large file, its pointer's */
};
struct hub_tree {
	struct hub_entry *v;
	int n, cap;
};

struct hub_choice {
	int *v, n; /* indices in the tree, each once */
	bool *has; /* [tree] */
	int model; /* the GGUF file, or the first part of it; -1: the snapshot's folder is the model */
	int index; /* model.safetensors.index.json, whose shards are not in v yet; -1: none */
};
/* The part and count of a split GGUF file, whose name ends in "-00001-of-00003.gguf"; false: it is not split. */
enum { HUB_SPLIT_TAIL = 20 }; /* characters of that end */
bool hub_split_of(const char *path, int *part, int *count);
/* Whether the path has type, in any case, followed by '.' or '-'. */
bool hub_has_type(const char *path, const char *type);

/* type: of a GGUF file, any case; NULL: a folder of safetensors where there is one, else a GGUF file of type Q4_K_M,
 * Q8_0, or the first.  projector: with a GGUF model, the tower for pictures too.  E_MISSING names what there is. */
int hub_choose(const struct hub_tree *t, const char *type, bool projector, struct hub_choice *out, struct err *err);
/* All files. */
void hub_choose_all(const struct hub_tree *t, struct hub_choice *out);
void hub_choice_free(struct hub_choice *c);
/* Adds the shards that the text of an index names.  E_FORMAT, E_MISSING. */
int hub_choose_shards(const struct hub_tree *t, const char *index, size_t n, struct hub_choice *out, struct err *err);

/* The file next to model whose path has `word` in it ("mmproj", "mtp-"): in its folder or one above.  The deepest folder
 * counts first, then type, then how near its bits are, then the order of the list.  -1: none. */
int hub_sidecar(const struct hub_tree *t, int model, const char *word, const char *type);

#endif
