/* kv_policy.c - see kv_policy.h. */
#include "quant/kv/kv_policy.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const scheme_name[] = { "16 bits", "uniform", "turboquant" };

/* ---- parsing ---- */

/* Bits of a side; halves too when they are allowed.  Twice the bits, or 0. */
static int twice_bits(const char *text, bool halves)
{
	static const struct {
		const char *text;
		int twice;
	} known[] = {
		{ "16", 32 }, { "8", 16 }, { "4", 8 }, { "3.5", 7 }, { "3", 6 }, { "2.5", 5 }, { "2", 4 },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(text, known[i].text) && (halves || known[i].twice % 2 == 0))
			return known[i].twice;
	return 0;
}

static int side_bits(int *bits, const char *option, const char *text, struct err *err)
{
	int twice = text ? twice_bits(text, false) : 0;

	if (text && !twice)
		return err_set(err, E_ARG, "--%s: '%s' is not one of 16, 8, 4, 3, 2", option, text);
	if (text)
		*bits = twice / 2;
	return 0;
}

/* Where several are asked for, the scheme must have all of them. */
static int side_scheme(struct kv_bits *s, const char *which, const char *scheme, struct err *err)
{
	bool uniform = !strcmp(scheme, "uniform"), turboquant = !strcmp(scheme, "turboquant");

	s->scheme = KV_PLAIN;
	if (!s->bits || s->bits == 16)
		return 0;
	if (uniform && s->bits != 8 && s->bits != 4)
		return err_set(err, E_ARG, "--kv-quant-scheme uniform has 8 and 4 bits, and %s of %d were asked for",
		               which, s->bits);
	if (turboquant && s->bits > 4)
		return err_set(err, E_ARG,
		               "--kv-quant-scheme turboquant has 4, 3 and 2 bits, and %s of %d were asked for", which,
		               s->bits);
	s->scheme = uniform || s->bits == 8 ? KV_UNIFORM : KV_TURBOQUANT;
	s->open = !uniform && !turboquant;
	return 0;
}

/* One of a list of layers; where it ends. */
static const char *skip_item(const char *p, int layers, int *layer)
{
	size_t n = strcspn(p, ",");
	char *end;
	long v;

	*layer = INT_MIN;
	if (n == 5 && !memcmp(p, "first", 5)) {
		*layer = 0;
	} else if (n == 4 && !memcmp(p, "last", 4)) {
		*layer = layers - 1;
	} else if (n) {
		errno = 0;
		v = strtol(p, &end, 10);
		if (end == p + n && !errno && v > -INT_MAX / 2 && v < INT_MAX / 2)
			*layer = v < 0 ? layers + (int)v : (int)v;
	}
	return p + n;
}

static int skip_check(const char *skip, struct err *err)
{
	int layer;

	if (!strcmp(skip, "none"))
		return 0;
	for (const char *p = skip;; p++) {
		p = skip_item(p, INT_MAX / 2, &layer);
		if (layer == INT_MIN)
			return err_set(err, E_ARG,
			               "--kv-skip-layers: '%s' is not none, or a list of first, last and numbers of "
			               "attention layers, as first,5,last",
			               skip);
		if (!*p)
			return 0;
	}
}

int kv_policy_parse(struct kv_policy *p, const struct kv_ask *ask, struct err *err)
{
	const char *scheme = ask->scheme ? ask->scheme : "auto";
	int twice = ask->bits ? twice_bits(ask->bits, true) : 0, rc;

	*p = (struct kv_policy){ .group = ask->group, .skip = ask->skip ? ask->skip : "none" };
	if (ask->bits && !twice)
		return err_set(err, E_ARG, "--kv-bits: '%s' is not one of 16, 8, 4, 3.5, 3, 2.5, 2", ask->bits);
	if (strcmp(scheme, "auto") && strcmp(scheme, "uniform") && strcmp(scheme, "turboquant"))
		return err_set(err, E_ARG, "--kv-quant-scheme: '%s' is not one of auto, uniform, turboquant", scheme);
	/* The values get the larger half: an error in a key is one factor of a weight,
	 * in a value it is in the sum. */
	p->key.bits = twice / 2;
	p->value.bits = twice / 2 + twice % 2;
	rc = side_bits(&p->key.bits, "kv-key-bits", ask->key_bits, err);
	if (!rc)
		rc = side_bits(&p->value.bits, "kv-value-bits", ask->value_bits, err);
	if (!rc)
		rc = side_scheme(&p->key, "keys", scheme, err);
	if (!rc)
		rc = side_scheme(&p->value, "values", scheme, err);
	if (!rc)
		rc = skip_check(p->skip, err);
	if (rc)
		return rc;
	if (kv_policy_plain(p) && (ask->scheme || ask->group || ask->skip))
		return err_set(err, E_ARG,
		               "%s is given, and keys and values have 16 bits: --kv-bits says how many instead",
		               ask->scheme ? "--kv-quant-scheme" :
		               ask->group  ? "--kv-group-size" :
		                             "--kv-skip-layers");
	if (ask->group && p->key.scheme != KV_UNIFORM && p->value.scheme != KV_UNIFORM)
		return err_set(err, E_ARG,
		               "--kv-group-size %d is of the scheme uniform, and the scheme is turboquant, which has "
		               "one length for each row",
		               ask->group);
	return 0;
}

bool kv_policy_plain(const struct kv_policy *p)
{
	return p->key.scheme == KV_PLAIN && p->value.scheme == KV_PLAIN;
}

/* ---- applying ---- */

static bool skips(const char *skip, int layers, int layer)
{
	int one;

	if (!strcmp(skip, "none"))
		return false;
	for (const char *p = skip;; p++) {
		p = skip_item(p, layers, &one);
		if (one == layer)
			return true;
		if (!*p)
			return false;
	}
}

static int skip_fits(const char *skip, int layers, struct err *err)
{
	int one;

	if (!strcmp(skip, "none"))
		return 0;
	for (const char *p = skip;; p++) {
		p = skip_item(p, layers, &one);
		if (one < 0 || one >= layers)
			return err_set(
				err, E_ARG,
				"--kv-skip-layers %s: %d is not one of the model's %d attention layers, which are "
				"counted from 0",
				skip, one < 0 ? one - layers : one, layers);
		if (!*p)
			return 0;
	}
}

static int group_of(const struct kv_policy *p, int dim, int *group, struct err *err)
{
	*group = p->group ? p->group : dim % 64 ? 32 : 64;
	if (dim % *group == 0)
		return 0;
	return p->group ? err_set(err, E_ARG, "--kv-group-size %d does not divide the model's heads of %d", p->group,
	                          dim) :
	                  err_set(err, E_ARG,
	                          "--kv-quant-scheme uniform needs groups of 32 at least, which do not divide the "
	                          "model's heads of %d",
	                          dim);
}

static int side_format(const struct kv_policy *p, const struct kv_bits *s, int dim, const struct kv_format *plain,
                       const struct kv_format **out, struct err *err)
{
	struct kv_bits other = { KV_UNIFORM, s->bits, false };
	char name[32];
	int group, rc;

	*out = plain;
	if (s->scheme == KV_PLAIN && !s->bits)
		return 0;
	if (s->scheme == KV_PLAIN) {
		snprintf(name, sizeof(name), "bf16");
	} else if (s->scheme == KV_UNIFORM) {
		rc = group_of(p, dim, &group, err);
		if (rc)
			return rc;
		snprintf(name, sizeof(name), "u%dg%d", s->bits, group);
	} else {
		snprintf(name, sizeof(name), "tq%d", s->bits);
	}
	*out = kv_format_find(name);
	if (!*out)
		return err_set(err, E_UNSUPPORTED, "%s of %d bits (%s): there is no such format of keys and values",
		               scheme_name[s->scheme], s->bits, name);
	if (!(*out)->row_bytes(dim) && s->open && s->scheme == KV_TURBOQUANT && s->bits == 4)
		return side_format(p, &other, dim, plain, out, err);
	if (!(*out)->row_bytes(dim))
		return err_set(err, E_UNSUPPORTED, "%s of %d bits (%s) is not for the model's heads of %d",
		               scheme_name[s->scheme], s->bits, name, dim);
	return 0;
}

int kv_policy_apply(const struct kv_policy *p, int layers, const struct kv_dims *dim, const struct kv_format *plain,
                    struct kv_pair *layer, struct err *err)
{
	int rc = skip_fits(p->skip, layers, err);

	for (int i = 0; i < layers && !rc; i++) {
		struct kv_pair covered;

		rc = side_format(p, &p->key, dim[i].k, plain, &covered.k, err);
		if (!rc)
			rc = side_format(p, &p->value, dim[i].v, plain, &covered.v, err);
		if (!rc)
			layer[i] = skips(p->skip, layers, i) ? (struct kv_pair){ plain, plain } : covered;
	}
	return rc;
}

/* ---- describing ---- */

static bool alike(struct kv_pair a, struct kv_pair b)
{
	return a.k == b.k && a.v == b.v;
}

static void describe_like(struct buf *out, const struct kv_pair *layer, int layers, int like)
{
	bool any = false;

	for (int i = 0, end; i < layers; i = end) {
		end = i + 1;
		if (!alike(layer[i], layer[like]))
			continue;
		while (end < layers && alike(layer[end], layer[i]))
			end++;
		buf_printf(out, any ? ", %d" : "%d", i);
		if (end > i + 1)
			buf_printf(out, "-%d", end - 1);
		any = true;
	}
}

void kv_layers_describe(struct buf *out, const struct kv_pair *layer, int layers)
{
	for (int i = 0; i < layers; i++) {
		int first = 0;

		while (!alike(layer[first], layer[i]))
			first++;
		if (first < i)
			continue;
		buf_puts(out, i ? "; " : "");
		if (layer[i].k == layer[i].v)
			buf_printf(out, "%s", layer[i].k->name);
		else
			buf_printf(out, "keys %s, values %s", layer[i].k->name, layer[i].v->name);
		buf_puts(out, " in attention layers ");
		describe_like(out, layer, layers, i);
	}
	buf_printf(out, " of %d", layers);
}
