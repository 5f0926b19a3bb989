/* kv_policy.h - how many bits each attention layer's keys and values are kept in.
 *
 * The one place between the user's options (--kv-bits and its kin) and the row
 * formats that a paged cache is opened with: parsed before a model is known, then
 * applied to its layers.  A policy is chosen at start and never changes: what is
 * written at a position depends on the key and the value alone, so a cold run, a
 * restored prefix and a verified draft all read the same codes. */
#ifndef QUANT_KV_POLICY_H
#define QUANT_KV_POLICY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "quant/format.h"

/* As it was written; NULL and 0: left open. */
struct kv_ask {
	const char *bits;                  /* "16", "8", "4", "3.5" ... */
	const char *key_bits, *value_bits; /* of one side, over bits */
	const char *scheme;                /* "auto", "uniform", "turboquant" */
	const char *skip;                  /* attention layers that stay as they are: "first,last", "none", "0,7,-1" */
	int group;                         /* elements that share a scale, of uniform */
};

enum kv_scheme { KV_PLAIN, KV_UNIFORM, KV_TURBOQUANT };
struct kv_bits {
	enum kv_scheme scheme;
	int bits;  /* of KV_PLAIN: 16, or 0 for what the arithmetic has */
	bool open; /* the user named no scheme: another is taken where this one does not fit the heads */
};
struct kv_policy {
	struct kv_bits key, value;
	int group;        /* 0: the largest up to 64 that the head's size allows */
	const char *skip; /* checked; points into the ask */
};

/* E_ARG names the option and its value, or the two that disagree. */
int kv_policy_parse(struct kv_policy *p, const struct kv_ask *ask, struct err *err);

/* Nothing is kept in fewer than 16 bits. */
bool kv_policy_plain(const struct kv_policy *p);

/* The formats of `layers` attention layers, in order, each with heads of its own sizes; plain: of
 * what is not quantised.  E_ARG: a layer or a group that this model has not;
 * E_UNSUPPORTED: a format that is not for its heads. */
struct kv_dims {
	int k, v;
};
int kv_policy_apply(const struct kv_policy *p, int layers, const struct kv_dims *dim, const struct kv_format *plain,
                    struct kv_pair *layer, struct err *err);

/* For a person: "keys u8g64, values u4g64 in attention layers 1-6; bf16 in attention layers 0, 7 of 8". */
void kv_layers_describe(struct buf *out, const struct kv_pair *layer, int layers);

#endif
