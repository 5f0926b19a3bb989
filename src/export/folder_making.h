/* folder_making.h - what the parts of from_folder.h share.  Inside src/export/. */
#ifndef EXPORT_FOLDER_MAKING_H
#define EXPORT_FOLDER_MAKING_H

#include "export/from_folder.h"
#include "store/gguf_model.h"

/* The largest count of heads, and of inputs of one, that config.json is believed: products of three fit. */
enum { MAKING_SIZE_MAX = 1 << 20 };

struct making {
	struct store *st;
	struct gguf_source *s;
	struct pairs p;
	const struct gguf_arch *arch;
	int64_t blocks, drafts; /* layers, and draft heads behind them */
	bool delta;             /* has gated delta nets, whose norms the converter adds 1 to */
	bool tiled;             /* and whose value heads it puts in another order */
	bool norms_whole;       /* norms hold 1 + w already, as mlx writes them */
	bool inside;            /* a mistral inside of a wrapper, which leaves out what is MistralConfig's default */
	double query_scale; /* of queries' norms, for scores that the file's readers scale by the size of a head; 0: 1 */
	struct err *err;
	int code; /* the first failure; later steps do nothing */
};

void making_fail(struct making *m, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Members of the text model's config; a missing one gives dflt, and fails where that is INT64_MIN or NAN. */
int64_t making_int(struct making *m, const char *member, int64_t dflt);
double making_float(struct making *m, const char *member, double dflt);

/* Inputs of an attention head, even and at most MAKING_SIZE_MAX; 2 after a failure. */
int64_t making_head_dim(struct making *m);

bool making_flag(struct making *m, const char *member, bool dflt);
/* A member of rope_parameters (or rope_scaling). */
double rope_float(struct making *m, const char *member, double dflt);

/* Keys of the architecture, from a value or from a member that is needed. */
void key_put(struct making *m, const char *key, int64_t v);
void key_put_whole(struct making *m, const char *key, double v); /* v cut to a whole number */
void key_copy(struct making *m, const char *key, const char *member);
void key_copy_if_there(struct making *m, const char *key, const char *member);
/* The rotation of heads of dim. */
void key_rope(struct making *m, int64_t dim);
/* Adds the tensor of n divisors of angles, to be filled by the caller. */
float *making_divisors(struct making *m, int64_t n);

/* Everything that the architecture's metadata has. */
typedef void making_keys_fn(struct making *m);
/* folder_keys.c: sizes that all have, and experts. */
making_keys_fn keys_plain, keys_experts;
/* folder_families.c */
making_keys_fn keys_ministral3, keys_smollm3, keys_granite, keys_phi3, keys_glm4, keys_olmo3, keys_qwen2_moe,
	keys_gemma2, keys_gemma3, keys_gemma4, keys_glm4_moe, keys_lfm2, keys_lfm2_moe, keys_minimax,
	keys_granite_hybrid, keys_mamba2, keys_nemotron;

/* folder_keys.c: finds the architecture and writes its metadata. */
void making_keys(struct making *m);
/* folder_tokens.c: tokenizer, special tokens, chat template and sampling; vocabulary: rows of the embedding. */
void making_tokens(struct making *m, int64_t vocabulary);

#endif
