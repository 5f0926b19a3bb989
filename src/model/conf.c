/* conf.c - see conf.h. */
#include "model/conf.h"

#include <float.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void conf_fail(struct conf *c, int code, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	if (c->code)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	c->code = err_set(c->err, code, "%s: %s%s", c->file, c->where, text);
}

const struct json *conf_get(const struct conf *c, const char *key)
{
	const struct json *j = json_get(c->j, key);

	return json_kind(j) == JSON_NULL ? NULL : j;
}

/* The value of a key that must be there, or NULL with the failure noted. */
static const struct json *need(struct conf *c, const char *key)
{
	const struct json *j = conf_get(c, key);

	if (!j)
		conf_fail(c, E_MISSING, "%s: missing, and it has no safe default", key);
	return j;
}

static int int_of(struct conf *c, const char *key, const struct json *j, int lo, int hi)
{
	int64_t v;

	if (json_to_whole(j, &v) && json_kind(j) == JSON_INT)
		conf_fail(c, E_FORMAT, "%s: %.40s is not between %d and %d", key, json_number_text(j), lo, hi);
	else if (json_to_whole(j, &v))
		conf_fail(c, E_FORMAT, "%s: is %s, not an integer", key, json_kind_name(json_kind(j)));
	else if (v < lo || v > hi)
		conf_fail(c, E_FORMAT, "%s: %" PRId64 " is not between %d and %d", key, v, lo, hi);
	else
		return (int)v;
	return lo;
}

int conf_int(struct conf *c, const char *key, int lo, int hi)
{
	const struct json *j = need(c, key);

	return j ? int_of(c, key, j, lo, hi) : lo;
}

int conf_int_or(struct conf *c, const char *key, int64_t dflt, int lo, int hi)
{
	const struct json *j = conf_get(c, key);

	if (j)
		return int_of(c, key, j, lo, hi);
	if (dflt >= lo && dflt <= hi)
		return (int)dflt;
	conf_fail(c, E_FORMAT, "%s: missing, and %" PRId64 ", which follows from other keys, is not between %d and %d",
	          key, dflt, lo, hi);
	return lo;
}

static double double_of(struct conf *c, const char *key, const struct json *j)
{
	double v = 1;

	if (json_to_double(j, &v))
		conf_fail(c, E_FORMAT, "%s: is %s, not a number", key, json_kind_name(json_kind(j)));
	return v;
}

double conf_double(struct conf *c, const char *key)
{
	const struct json *j = need(c, key);

	return j ? double_of(c, key, j) : 1;
}

double conf_double_or(struct conf *c, const char *key, double dflt)
{
	const struct json *j = conf_get(c, key);

	return j ? double_of(c, key, j) : dflt;
}

double conf_above_zero_or(struct conf *c, const char *key, double dflt)
{
	double v = conf_double_or(c, key, dflt);

	if (!((float)v > 0 && (float)v <= FLT_MAX))
		conf_fail(c, E_FORMAT, "%s: %g is not above 0, or no number that a float holds", key, v);
	return v;
}

static bool bool_of(struct conf *c, const char *key, const struct json *j)
{
	bool v = false;

	if (json_to_bool(j, &v))
		conf_fail(c, E_FORMAT, "%s: is %s, not true or false", key, json_kind_name(json_kind(j)));
	return v;
}

bool conf_bool(struct conf *c, const char *key)
{
	const struct json *j = need(c, key);

	return j ? bool_of(c, key, j) : false;
}

bool conf_bool_or(struct conf *c, const char *key, bool dflt)
{
	const struct json *j = conf_get(c, key);

	return j ? bool_of(c, key, j) : dflt;
}

const char *conf_str_or(struct conf *c, const char *key, const char *dflt)
{
	const struct json *j = conf_get(c, key);
	const char *s = j ? json_str(j, NULL) : dflt;

	if (j && !s)
		conf_fail(c, E_FORMAT, "%s: is %s, not a string", key, json_kind_name(json_kind(j)));
	return s ? s : dflt;
}

const struct json *conf_list(struct conf *c, const char *key)
{
	const struct json *j = conf_get(c, key);

	if (!j || json_kind(j) == JSON_ARRAY)
		return j;
	conf_fail(c, E_FORMAT, "%s: is %s, not a list", key, json_kind_name(json_kind(j)));
	return NULL;
}

const char *conf_entry(const struct json *entry)
{
	const char *number = json_number_text(entry);

	return number ? number : json_kind_name(json_kind(entry));
}

bool conf_layers_named(struct conf *c, const char *key, int first, int layers, bool *out)
{
	const struct json *j = conf_list(c, key);
	int64_t at;

	for (size_t i = 0; i < json_len(j); i++)
		if (json_to_int(json_at(j, i), &at) || at < first || at - first >= layers)
			conf_fail(c, E_FORMAT, "%s: entry %zu is %.40s, not a layer of %d to %d", key, i,
			          conf_entry(json_at(j, i)), first, first + layers - 1);
		else
			out[at - first] = true;
	return conf_get(c, key);
}

bool conf_layer_types(struct conf *c, const char *key, int layers, const char *a, const char *b, bool *out)
{
	const struct json *j = conf_get(c, key);

	if (!j)
		return false;
	if (json_kind(j) != JSON_ARRAY || json_len(j) != (size_t)layers) {
		conf_fail(c, E_FORMAT, "%s: has %zu entries, num_hidden_layers is %d", key, json_len(j), layers);
		return true;
	}
	for (int i = 0; i < layers; i++) {
		const char *s = json_str(json_at(j, (size_t)i), NULL);

		if (!s || (strcmp(s, a) && strcmp(s, b)))
			conf_fail(c, E_UNSUPPORTED, "%s: layer %d is \"%.40s\"; known: %s, %s", key, i,
			          s ? s : "(not a name)", a, b);
		else
			out[i] = !strcmp(s, a);
	}
	return true;
}
