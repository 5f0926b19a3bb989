/* gguf_conf.h - members of config.json written from metadata, one error for all.  Inside src/store/.
 *
 * Keys are those of the architecture ("attention.head_count" is read as
 * "llama.attention.head_count").  The first failure stays in code and err; later
 * calls write nothing, so that a config reads as the list of members it is. */
#ifndef STORE_GGUF_CONF_H
#define STORE_GGUF_CONF_H

#include "store/gguf/gguf_model.h"

struct gguf_conf {
	const struct gguf_model *m;
	struct buf *out;
	struct err *err;
	int code;
};

/* Values.  A key that is missing gives dflt; NEEDED: then it is an error. */
#define GGUF_NEEDED INT64_MIN
bool gguf_conf_has(const struct gguf_conf *c, const char *key);
bool gguf_conf_has_tensor(const struct gguf_conf *c, const char *name); /* of that name in the files */
bool gguf_conf_block_has(const struct gguf_conf *c, int64_t i,
                         const char *tensor);                       /* has block i a tensor of that name? */
bool gguf_conf_is_list(const struct gguf_conf *c, const char *key); /* false too when it is missing */
int64_t gguf_conf_int(struct gguf_conf *c, const char *key, int64_t dflt);
double gguf_conf_float(struct gguf_conf *c, const char *key, double dflt); /* NAN: needed */
bool gguf_conf_bool(struct gguf_conf *c, const char *key, bool dflt);
/* The string under the key, "" when it is missing. */
struct gguf_string gguf_conf_string(struct gguf_conf *c, const char *key);
/* The value of block i; a scalar holds for every block, an array must have an element for each, or for each but draft heads. */
int64_t gguf_conf_block_int(struct gguf_conf *c, const char *key, int64_t i, int64_t dflt);
double gguf_conf_block_float(struct gguf_conf *c, const char *key, int64_t i, double dflt);
typedef bool gguf_block_is_fn(struct gguf_conf *c, int64_t i);
gguf_block_is_fn gguf_conf_mixture; /* block i has a router */
bool gguf_conf_is(struct gguf_conf *c, const char *key, const char *value);

/* Element i of a tensor of F32. */
float gguf_float_at(const struct gguf_info *t, int64_t i);

/* Members. */
void gguf_put_int(struct gguf_conf *c, const char *member, int64_t v);
void gguf_put_float(struct gguf_conf *c, const char *member, double v);
void gguf_put_bool(struct gguf_conf *c, const char *member, bool v);
void gguf_put_str(struct gguf_conf *c, const char *member, const char *v);
/* An integer or a float of the metadata as it is, left out when it is missing. */
void gguf_copy_int(struct gguf_conf *c, const char *member, const char *key);
void gguf_copy_float(struct gguf_conf *c, const char *member, const char *key);
/* A list of integers, each plus add; a number is a list of one.  A missing key is an error. */
void gguf_copy_list(struct gguf_conf *c, const char *member, const char *key, int64_t add);
/* A list of numbers, of which the key has one for each block, with the architecture's name before it or without. */
void gguf_copy_floats(struct gguf_conf *c, const char *member, const char *key);
/* A list: gguf_put_name(c, member), then text of the caller's own. */
void gguf_put_name(struct gguf_conf *c, const char *member);
/* The shortest text that is this float again. */
void gguf_put_number(struct buf *b, double v);
void gguf_conf_fail(struct gguf_conf *c, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Values that all architectures have: widths, layers, vocabulary, heads, eps; gguf_config.c. */
void gguf_put_common(struct gguf_conf *c);
/* num_key_value_heads, head_dim and the rotation, where key and value heads are 0 in blocks of another kind; gguf_families.c, as
 * the three behind it.  theta: where the metadata names none. */
void gguf_put_heads(struct gguf_conf *c, double theta);
/* layer_types: `yes` for blocks in which the key's element is not 0. */
void gguf_put_types(struct gguf_conf *c, const char *key, const char *yes, const char *no);
/* Experts, groups and factors under the names of routers by sigmoids. */
void gguf_put_routed(struct gguf_conf *c);
/* The width of shared experts, 0 where there are none: their tensor's, since writers differ in what
 * expert_shared_feed_forward_length counts. */
int64_t gguf_shared_width(const struct gguf_conf *c);
/* Granite's factors of embeddings, scores, blocks and logits; gguf_families.c. */
void gguf_put_scales(struct gguf_conf *c);
/* rope_parameters of a head of dim elements; theta where the metadata names none. */
void gguf_put_rope(struct gguf_conf *c, int64_t dim, double theta);

#endif
