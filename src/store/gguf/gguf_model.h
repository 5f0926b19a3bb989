/* gguf_model.h - a model in GGUF files, seen with Hugging Face's names.  Inside src/store/.
 *
 * gguf_container.c opens the files and is the container; gguf_names.c says which tensor is
 * which; gguf_fix.c undoes what converters did to weights; gguf_config.c writes
 * config.json from the metadata, gguf_tokens.c tokenizer.json, gguf_settings.c the
 * other documents. */
#ifndef STORE_GGUF_MODEL_H
#define STORE_GGUF_MODEL_H

#include "store/container.h"
#include "store/gguf/gguf_file.h"

enum { GGUF_NAME_BYTES = 160 }; /* of a tensor's name that is put together */

struct gguf_model;
struct gguf_projector;

struct gguf_tensor {
	struct tensor t; /* as the store sees it */
	const struct gguf_info *from;
	const struct gguf_fix *fix;  /* NULL: as in the file */
	int part;                    /* index among the tensors that one tensor of the file becomes */
	const struct gguf_model *of; /* whose keys the fix reads */
};

/* Changes that a converter made to a tensor, to be undone. */
struct gguf_fix {
	/* Sets another shape (and count, bytes, type) than the file's; NULL: the same. */
	int (*shape)(const struct gguf_model *m, struct gguf_tensor *t, struct err *err);
	/* Writes the tensor's bytes; NULL: they are the file's. */
	void (*fill)(const struct gguf_model *m, const struct gguf_tensor *t, uint8_t *to);
};

/* One line of a table of names.  Several lines may name one tensor: it becomes several. */
struct gguf_name {
	const char *gguf; /* behind "blk.N.", or whole */
	const char *hf;   /* behind "model." and the block, or whole */
	const struct gguf_fix *fix;
	int part;
};

/* Appends the members of config.json that this architecture has. */
struct gguf_conf;
typedef void gguf_config_fn(struct gguf_conf *c);

struct gguf_arch {
	const char *name;              /* general.architecture */
	const char *model_type;        /* of config.json */
	const struct gguf_name *names; /* looked up before the common ones; ends with .gguf NULL */
	gguf_config_fn *config;
	bool mtp_apart; /* draft heads are mtp.*, not layers behind the last */
	/* A key whose number is above 0 where this line is the right one of several of that name; NULL: the others. */
	const char *with;
	const char *block; /* a block's names begin with "model.", this and its number; NULL: "layers." */
	bool both_ways;    /* every row sees its whole text, as attention.causal false says */
	bool head;         /* a draft head alone: gguf_heads.c */
	bool sizeless;     /* of which the metadata has no sizes: they are the model's that it is for */
};

struct gguf_model {
	struct gguf *part; /* part[0] has the metadata */
	int n_part;
	const struct gguf_arch *arch;
	int64_t blocks, drafts;      /* block_count; how many of them, at the end, are draft heads */
	struct gguf_projector *seen; /* the tower, in a file of its own: gguf_projector.h; NULL: none */
};

/* As the file has it: name, fix and part are left to the caller. */
void gguf_describe(struct gguf_tensor *t, const struct gguf_info *from, const char *file);

/* gguf_names.c */
const struct gguf_arch *gguf_arch_find(const char *name); /* NULL: not known; without `with` */
/* The one of m->arch's name that its keys ask for. */
const struct gguf_arch *gguf_arch_choose(const struct gguf_model *m);
/* The one that shares most letters at its beginning with the name; NULL: none shares two. */
const char *gguf_arch_nearest(const char *name);
extern const struct gguf_name gguf_block_names[], gguf_top_names[], gguf_draft_names[], gguf_behind_names[];

/* Hugging Face's names for the GGUF tensor of that name: prefix, block and the hf of each line of the tables.  n 0: no
 * table has it. */
enum { GGUF_PER_TENSOR = 6 }; /* most tensors that one of the file becomes */
struct gguf_named {
	const char *prefix;
	char block[48];
	const struct gguf_name *name[GGUF_PER_TENSOR];
	int n;
};
void gguf_name_of(const struct gguf_model *m, const char *name, struct gguf_named *out);

/* gguf_fix.c */
extern const struct gguf_fix gguf_permuted, gguf_third, gguf_log, gguf_log_minus, gguf_minus_one, gguf_conv, gguf_row,
	gguf_ba, gguf_sixth, gguf_ahead;

/* The shape of fixes that compute in float32: as in the file, where other types are refused. */
int gguf_floats_shape(const struct gguf_model *m, struct gguf_tensor *t, struct err *err);

/* A tensor of any of the parts; NULL: none. */
const struct gguf_info *gguf_tensor_info(const struct gguf_model *m, const char *name);

/* gguf_config.c: the members of config.json by architecture */
gguf_config_fn gguf_config_plain, gguf_config_llama, gguf_config_qwen2_moe, gguf_config_qwen3_moe, gguf_config_phi3,
	gguf_config_granite_dense, gguf_config_qwen3_next, gguf_config_qwen3_5, gguf_config_qwen4;
/* gguf_families.c */
gguf_config_fn gguf_config_gemma3, gguf_config_gemma4, gguf_config_gpt_oss, gguf_config_glm4_moe, gguf_config_falcon_h1,
	gguf_config_granite, gguf_config_nemotron, gguf_config_lfm2, gguf_config_deepseek, gguf_config_dsa,
	gguf_config_kimi_linear, gguf_config_glm5_next, gguf_config_deepseek4, gguf_config_mamba2, gguf_config_gemma2,
	gguf_config_olmo, gguf_config_glm4, gguf_config_minimax, gguf_config_jamba, gguf_config_rwkv7,
	gguf_config_bailing2, gguf_config_mixtral, gguf_config_gemma, gguf_config_arcee, gguf_config_cohere2,
	gguf_config_cohere2_moe, gguf_config_ernie_moe, gguf_config_olmoe, gguf_config_granite_moe,
	gguf_config_granite_swa, gguf_config_phimoe, gguf_config_afmoe, gguf_config_mamba, gguf_config_apertus,
	gguf_config_mistral4, gguf_config_bailing, gguf_config_bailing3;
/* gguf_windows.c */
gguf_config_fn gguf_config_mimo, gguf_config_step, gguf_config_llama4;
/* gguf_heads.c */
gguf_config_fn gguf_config_eagle3, gguf_config_dflash, gguf_config_assistant, gguf_config_deepseek4_head;

/* gguf_encoders.c */
gguf_config_fn gguf_config_bert, gguf_config_jina_bert, gguf_config_nomic_bert, gguf_config_modern_bert,
	gguf_config_gemma_embedding;
/* Appends what attention.causal and pooling_type say of any architecture, or refuses it. */
gguf_config_fn gguf_config_pooling;

/* ---- documents ---- */
enum { GGUF_STOPS = 32, GGUF_TOKENS_MAX = 1 << 20 };
/* Ids that end an answer, at most GGUF_STOPS: gguf_settings.c. */
int gguf_stops(const struct gguf_model *m, int32_t *id, int *n, struct err *err);
int gguf_config(const struct gguf_model *m, struct buf *out, struct err *err);
int gguf_tokenizer(const struct gguf_model *m, struct buf *out, struct err *err);
int gguf_tokenizer_config(const struct gguf_model *m, struct buf *out, struct err *err);
int gguf_generation_config(const struct gguf_model *m, struct buf *out, struct err *err);
int gguf_basis(const struct gguf_model *m, struct buf *out, struct err *err);
/* gguf_encoders.c: the files of sentence-transformers.  E_MISSING: the metadata names no pooling. */
int gguf_modules(const struct gguf_model *m, struct buf *out, struct err *err);
int gguf_pooling(const struct gguf_model *m, struct buf *out, struct err *err);
int gguf_dense_2(const struct gguf_model *m, struct buf *out, struct err *err);
int gguf_dense_3(const struct gguf_model *m, struct buf *out, struct err *err);

#endif
