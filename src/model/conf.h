/* conf.h - config.json read key by key, one error for all of them.  For src/model/ and src/vision/.
 *
 * The first failure stays in code and err; later calls return harmless values,
 * so that a reader can be a list of lines and look once at the end.  A key
 * without a default that is absent or null is an error naming file and key. */
#ifndef MODEL_CONF_H
#define MODEL_CONF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

struct conf {
	const struct json *j;
	const char *file;  /* for messages */
	const char *where; /* "" or "text_config." */
	struct err *err;
	int code;
};

/* Bounds of what is believed; far above any model, and their products fit. */
enum {
	CONF_DIM_MAX = 1 << 20,
	CONF_VOCAB_MAX = 1 << 26,
	CONF_LAYERS_MAX = 1 << 12,
	CONF_HEADS_MAX = 1 << 12,
	CONF_HEAD_DIM_MAX = 1 << 12,
	CONF_CTX_MAX = 1 << 28
};

int conf_int(struct conf *c, const char *key, int lo, int hi);
/* The value of a key, or dflt without it.  A default is often made of other keys, so both are held to lo and hi. */
int conf_int_or(struct conf *c, const char *key, int64_t dflt, int lo, int hi);
double conf_double(struct conf *c, const char *key);
double conf_double_or(struct conf *c, const char *key, double dflt);
double conf_above_zero_or(struct conf *c, const char *key, double dflt); /* as a float, too, and finite there */
bool conf_bool(struct conf *c, const char *key);
bool conf_bool_or(struct conf *c, const char *key, bool dflt);
const char *conf_str_or(struct conf *c, const char *key, const char *dflt);
const struct json *conf_get(const struct conf *c, const char *key); /* NULL for null too */

/* A list under a key; NULL when the key is absent, or when its value is not a list, which is noted. */
const struct json *conf_list(struct conf *c, const char *key);
/* An entry as messages show it: a number as it is written, of others the kind. */
const char *conf_entry(const struct json *entry);
/* A list of layers' numbers, which begin at `first`: out[i] = layer first + i is named, others stay.  False when the key
 * is absent. */
bool conf_layers_named(struct conf *c, const char *key, int first, int layers, bool *out);

/* A list of names, one per layer, "a" or "b": out[i] = it is "a".  False when
 * the key is absent. */
bool conf_layer_types(struct conf *c, const char *key, int layers, const char *a, const char *b, bool *out);

void conf_fail(struct conf *c, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
