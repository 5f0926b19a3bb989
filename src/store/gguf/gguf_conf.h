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
bool gguf_conf_is_list(const struct gguf_conf *c, const char *key);     /* false too when it is missing */
int64_t gguf_conf_int(struct gguf_conf *c, const char *key, int64_t dflt);
double gguf_conf_float(struct gguf_conf *c, const char *key, double dflt); /* NAN: needed */
bool gguf_conf_bool(struct gguf_conf *c, const char *key, bool dflt);
/* The string under the key, "" when it is missing. */
struct gguf_string gguf_conf_string(struct gguf_conf *c, const char *key);
/* The value of block i; a scalar holds for every block, an array must have an element for each, or for each but draft heads. */
int64_t gguf_conf_block_int(struct gguf_conf *c, const char *key, int64_t i, int64_t dflt);
double gguf_conf_block_float(struct gguf_conf *c, const char *key, int64_t i, double dflt);
bool gguf_conf_is(struct gguf_conf *c, const char *key, const char *value);

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
/* A list: gguf_put_name(c, member), then text of the caller's own. */
void gguf_put_name(struct gguf_conf *c, const char *member);
/* The shortest text that is this float again. */
void gguf_put_number(struct buf *b, double v);
void gguf_conf_fail(struct gguf_conf *c, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Values that all architectures have: widths, layers, vocabulary, heads, eps; gguf_config.c. */
void gguf_put_common(struct gguf_conf *c);
/* Granite's factors of embeddings, scores, blocks and logits; gguf_families.c. */
void gguf_put_scales(struct gguf_conf *c);
/* rope_parameters of a head of dim elements; theta where the metadata names none. */
void gguf_put_rope(struct gguf_conf *c, int64_t dim, double theta);

#endif
