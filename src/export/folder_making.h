/* folder_making.h - what the parts of from_folder.h share.  Inside src/export/. */
#ifndef EXPORT_FOLDER_MAKING_H
#define EXPORT_FOLDER_MAKING_H

#include "export/from_folder.h"
#include "store/gguf/gguf_model.h"

/* The largest count of heads, and of inputs of one, that config.json is believed: products of three fit. */
enum { MAKING_SIZE_MAX = 1 << 20, MAKING_NAME_BYTES = 64, MAKING_LAYERS_MAX = 4096 };

struct making;
/* Puts the order, the factors or the axes of a tensor that goes over as one; hf: its name in Hugging Face's words, what: in
 * GGUF's behind "blk.N.". */
typedef void making_settle_fn(struct making *m, struct source_tensor *t, const char *hf, const char *what);

struct making {
	struct store *st;
	struct gguf_source *s;
	struct pairs p;
	const struct gguf_arch *arch;
	int64_t blocks, drafts;   /* layers, and draft heads behind them */
	making_settle_fn *settle; /* NULL: tensors go over as they are */
	bool delta;               /* has gated delta nets, whose norms the converter adds 1 to */
	bool norms_whole;         /* norms hold 1 + w already, as mlx writes them */
	bool inside;              /* a mistral inside of a wrapper, which leaves out what is MistralConfig's default */
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
const struct json *rope_member(const struct making *m, const char *member); /* NULL: there is none */

enum { GATING_SIGMOID = 2, GATING_ROOT = 4 }; /* of .expert_gating_func */

/* Keys of the architecture, from a value or from a member that is needed. */
void key_put(struct making *m, const char *key, int64_t v);
void key_put_whole(struct making *m, const char *key, double v); /* v cut to a whole number */
void key_copy(struct making *m, const char *key, const char *member);
void key_copy_if_there(struct making *m, const char *key, const char *member);
/* The rotation of heads of dim. */
void key_rope(struct making *m, int64_t dim);
/* Adds the tensor of n divisors of angles, to be filled by the caller. */
float *making_divisors(struct making *m, int64_t n);

/* Whether config.json has a member that is not null. */
bool making_has(const struct making *m, const char *member);
/* A member as float32; the second: where there is one. */
void key_float(struct making *m, const char *key, const char *member, double dflt);
void key_float_if_there(struct making *m, const char *key, const char *member);
/* A list of one value per layer. */
void key_ints(struct making *m, const char *key, const int32_t *v);
/* Members for which a file has no key: they fail where they differ from what its readers take. */
void want_int(struct making *m, const char *member, int64_t dflt, int64_t want);
void want_flag(struct making *m, const char *member, bool dflt);
void want_text(struct making *m, const char *member, const char *want);
void want_float(struct making *m, const char *member, double want);

/* Whether layer i is said to be of that type; otherwise where there is no list. */
bool layer_is(const struct making *m, int64_t i, const char *type, bool otherwise);
/* Whether there are few enough layers for a list of them, and layer_types names each. */
bool layers_count(struct making *m);

/* Everything that the architecture's metadata has. */
typedef void making_keys_fn(struct making *m);
/* folder_keys.c: sizes that all have, and experts. */
making_keys_fn keys_plain, keys_experts;
/* folder_families.c */
making_keys_fn keys_ministral3, keys_smollm3, keys_granite, keys_phi3, keys_glm4, keys_olmo3, keys_qwen2_moe,
	keys_gemma2, keys_gemma3, keys_gemma4, keys_glm4_moe, keys_lfm2, keys_lfm2_moe, keys_minimax, keys_gpt_oss;
/* Granite's four factors. */
void keys_granite_scales(struct making *m);
/* folder_latent.c: attention over latent rows */
making_keys_fn keys_deepseek, keys_dsa, keys_kimi_linear, keys_glm5_next, keys_deepseek4;
/* folder_recurrent.c */
making_keys_fn keys_granite_hybrid, keys_mamba2, keys_nemotron, keys_falcon_h1, keys_jamba, keys_rwkv7;
/* folder_orders.c */
making_settle_fn settle_tiled, settle_mamba, settle_falcon_h1, settle_kimi_linear, settle_glm5_next, settle_rwkv7;

/* folder_keys.c: finds the architecture and writes its metadata. */
void making_keys(struct making *m);

/* ---- tensors ---- */

/* Behind prefix, or NULL. */
const char *name_behind(const char *s, const char *prefix);
bool name_ends(const char *s, const char *with);
/* "PREFIXn.rest": n, and the rest in *rest; -1: no such name. */
int64_t name_numbered(const char *name, const char *prefix, const char **rest);
/* The block of a language model's or draft head's layer, counted as the new file counts them, and what follows in *rest; -1:
 * a tensor of no layer. */
int64_t making_block(const struct making *m, const char *hf, const char **rest);
/* t under its new name, with its axes; axes of 1 go. */
void making_take(struct making *m, struct source_tensor *to, const struct tensor *t, const char *name);
/* The scales of a matrix in E4M3, of all of it; NULL: it has none, or after a failure. */
struct item_scales *making_scales(struct making *m, const struct tensor *t);
/* folder_orders.c: rows in pairs, for the other rotation.  NULL after a failure. */
const int32_t *making_paired(struct making *m, int64_t rows);
/* folder_parts.c: whether t, of a layer, is a matrix that the file has with others in a stack, in parts, or under a name that
 * no table has; then it is added, or is part of what is. */
bool making_parts(struct making *m, const struct tensor *t, const char *hf);
/* The most tensors that making_parts adds of one. */
enum { MAKING_PARTS_MOST = 2 };
/* folder_tokens.c: tokenizer, special tokens, chat template and sampling; vocabulary: rows of the embedding. */
void making_tokens(struct making *m, int64_t vocabulary);

#endif
