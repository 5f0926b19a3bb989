/* gguf_conf.c - see gguf_conf.h. */
#include "store/gguf/gguf_conf.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

enum { KEY_BYTES = 160 };

void gguf_conf_fail(struct gguf_conf *c, int code, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	if (c->code)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	c->code = err_set(c->err, code, "%s: %s", c->m->part[0].path, text);
}

/* ---- values ---- */

static const struct gguf_value *value_of(const struct gguf_conf *c, const char *key)
{
	char full[KEY_BYTES];

	snprintf(full, sizeof full, "%s.%s", c->m->arch->name, key);
	return gguf_find(&c->m->part[0], full);
}

bool gguf_conf_has(const struct gguf_conf *c, const char *key)
{
	return value_of(c, key) != NULL;
}

bool gguf_conf_has_tensor(const struct gguf_conf *c, const char *name)
{
	return gguf_tensor_info(c->m, name) != NULL;
}

bool gguf_conf_block_has(const struct gguf_conf *c, int64_t i, const char *tensor)
{
	char name[GGUF_NAME_BYTES];

	snprintf(name, sizeof name, "blk.%" PRId64 ".%s", i, tensor);
	return gguf_conf_has_tensor(c, name);
}

bool gguf_conf_mixture(struct gguf_conf *c, int64_t i)
{
	return gguf_conf_block_has(c, i, "ffn_gate_inp.weight");
}

bool gguf_conf_is_list(const struct gguf_conf *c, const char *key)
{
	const struct gguf_value *v = value_of(c, key);

	return v && v->array;
}

static const struct gguf_value *need(struct gguf_conf *c, const char *key, bool needed)
{
	const struct gguf_value *v = c->code ? NULL : value_of(c, key);

	if (!v && needed)
		gguf_conf_fail(c, E_MISSING, "key %s.%s: missing, and it has no safe default", c->m->arch->name, key);
	return v;
}

int64_t gguf_conf_int(struct gguf_conf *c, const char *key, int64_t dflt)
{
	const struct gguf_value *v = need(c, key, dflt == GGUF_NEEDED);
	int64_t out = dflt == GGUF_NEEDED ? 1 : dflt;

	if (v && (c->code = gguf_int(&c->m->part[0], v, 0, &out, c->err)))
		return 1;
	return out;
}

double gguf_conf_float(struct gguf_conf *c, const char *key, double dflt)
{
	const struct gguf_value *v = need(c, key, isnan(dflt));
	double out = isnan(dflt) ? 1 : dflt;

	if (v && !(c->code = gguf_float(&c->m->part[0], v, 0, &out, c->err)) && !isfinite(out))
		gguf_conf_fail(c, E_FORMAT, "key %s: is not a finite number", v->key);
	return out;
}

bool gguf_conf_bool(struct gguf_conf *c, const char *key, bool dflt)
{
	return gguf_conf_int(c, key, dflt) != 0;
}

struct gguf_string gguf_conf_string(struct gguf_conf *c, const char *key)
{
	const struct gguf_value *v = need(c, key, false);
	struct gguf_string s = { "", 0 };
	const uint8_t *at;

	if (!v)
		return s;
	if (v->kind != GGUF_STRING || v->array) {
		gguf_conf_fail(c, E_FORMAT, "key %s: is not a string", v->key);
		return s;
	}
	at = v->p;
	return gguf_next(&at);
}

bool gguf_conf_is(struct gguf_conf *c, const char *key, const char *value)
{
	struct gguf_string s = gguf_conf_string(c, key);

	return s.n == strlen(value) && !memcmp(s.p, value, s.n);
}

/* The key's value, with an element for block i; NULL: it is missing, or wrong. */
static const struct gguf_value *block_value(struct gguf_conf *c, const char *key, int64_t i, bool needed)
{
	const struct gguf_value *v = need(c, key, needed);

	if (!v || !v->array || v->n == (uint64_t)c->m->blocks ||
	    (v->n == (uint64_t)(c->m->blocks - c->m->drafts) && (uint64_t)i < v->n))
		return v;
	gguf_conf_fail(c, E_FORMAT, "key %s: has %" PRIu64 " elements, %s.block_count is %" PRId64, v->key, v->n,
	               c->m->arch->name, c->m->blocks);
	return NULL;
}

int64_t gguf_conf_block_int(struct gguf_conf *c, const char *key, int64_t i, int64_t dflt)
{
	const struct gguf_value *v = block_value(c, key, i, dflt == GGUF_NEEDED);
	int64_t out = dflt == GGUF_NEEDED ? 1 : dflt;

	if (v && (c->code = gguf_int(&c->m->part[0], v, (uint64_t)i, &out, c->err)))
		return 1;
	return out;
}

double gguf_conf_block_float(struct gguf_conf *c, const char *key, int64_t i, double dflt)
{
	const struct gguf_value *v = block_value(c, key, i, false);
	double out = dflt;

	if (v && !(c->code = gguf_float(&c->m->part[0], v, (uint64_t)i, &out, c->err)) && !isfinite(out))
		gguf_conf_fail(c, E_FORMAT, "key %s: is not a finite number", v->key);
	return out;
}

/* ---- members ---- */

void gguf_put_name(struct gguf_conf *c, const char *member)
{
	if (c->out->n && c->out->p[c->out->n - 1] != '{')
		buf_putc(c->out, ',');
	json_put_cstr(c->out, member);
	buf_putc(c->out, ':');
}

void gguf_put_number(struct buf *b, double v)
{
	char text[40];

	for (int digits = 6; digits <= 9; digits++) {
		snprintf(text, sizeof text, "%.*g", digits, v);
		if (strtof(text, NULL) == (float)v)
			break;
	}
	buf_puts(b, text);
}

void gguf_put_int(struct gguf_conf *c, const char *member, int64_t v)
{
	if (c->code)
		return;
	gguf_put_name(c, member);
	buf_printf(c->out, "%" PRId64, v);
}

void gguf_put_float(struct gguf_conf *c, const char *member, double v)
{
	if (c->code)
		return;
	gguf_put_name(c, member);
	gguf_put_number(c->out, v);
}

void gguf_put_bool(struct gguf_conf *c, const char *member, bool v)
{
	if (c->code)
		return;
	gguf_put_name(c, member);
	buf_puts(c->out, v ? "true" : "false");
}

void gguf_put_str(struct gguf_conf *c, const char *member, const char *v)
{
	if (c->code)
		return;
	gguf_put_name(c, member);
	json_put_cstr(c->out, v);
}

void gguf_copy_list(struct gguf_conf *c, const char *member, const char *key, int64_t add)
{
	const struct gguf_value *v = need(c, key, true);

	if (!v)
		return;
	gguf_put_name(c, member);
	for (uint64_t i = 0; i < (v->array ? v->n : 1) && !c->code; i++) {
		int64_t one = 0;

		c->code = gguf_int(&c->m->part[0], v, i, &one, c->err);
		buf_printf(c->out, "%c%" PRId64, i ? ',' : '[', one + add);
	}
	buf_puts(c->out, v->array && !v->n ? "[]" : "]");
}

void gguf_copy_floats(struct gguf_conf *c, const char *member, const char *key)
{
	const struct gguf_value *bare = gguf_find(&c->m->part[0], key), *v = bare ? bare : need(c, key, true);

	if (!v)
		return;
	if (v->array && v->n < (uint64_t)(c->m->blocks - c->m->drafts))
		gguf_conf_fail(c, E_FORMAT, "key %s: has %" PRIu64 " elements, %s.block_count is %" PRId64, v->key,
		               v->n, c->m->arch->name, c->m->blocks);
	gguf_put_name(c, member);
	for (int64_t i = 0; i < c->m->blocks - c->m->drafts && !c->code; i++) {
		double one = 0;

		c->code = gguf_float(&c->m->part[0], v, v->array ? (uint64_t)i : 0, &one, c->err);
		if (!c->code && !isfinite(one))
			gguf_conf_fail(c, E_FORMAT, "key %s: element %" PRId64 " is not a finite number", v->key, i);
		buf_putc(c->out, i ? ',' : '[');
		gguf_put_number(c->out, c->code ? 0 : one);
	}
	buf_putc(c->out, ']');
}

float gguf_float_at(const struct gguf_info *t, int64_t i)
{
	float f;

	memcpy(&f, t->data + 4 * i, sizeof f);
	return f;
}

void gguf_copy_int(struct gguf_conf *c, const char *member, const char *key)
{
	int64_t v = gguf_conf_int(c, key, 0);

	if (gguf_conf_has(c, key))
		gguf_put_int(c, member, v);
}

void gguf_copy_float(struct gguf_conf *c, const char *member, const char *key)
{
	double v = gguf_conf_float(c, key, 0);

	if (gguf_conf_has(c, key))
		gguf_put_float(c, member, v);
}

/* ---- rotation ---- */

static void put_yarn(struct gguf_conf *c, double factor)
{
	double attn = gguf_conf_float(c, "rope.scaling.attn_factor", 1);

	gguf_put_str(c, "rope_type", "yarn");
	gguf_put_float(c, "factor", factor);
	gguf_put_int(c, "original_max_position_embeddings",
	             gguf_conf_int(c, "rope.scaling.original_context_length",
	                           gguf_conf_int(c, "context_length", GGUF_NEEDED)));
	gguf_put_float(c, "beta_fast", gguf_conf_float(c, "rope.scaling.yarn_beta_fast", 32));
	gguf_put_float(c, "beta_slow", gguf_conf_float(c, "rope.scaling.yarn_beta_slow", 1));
	/* Mistral 3: queries grow with their position. */
	if (gguf_conf_has(c, "attention.temperature_scale"))
		gguf_put_float(c, "llama_4_scaling_beta", gguf_conf_float(c, "attention.temperature_scale", 0));
	if (attn != 1)
		gguf_put_float(c, "attention_factor", attn * (factor > 1 ? 0.1 * log(factor) + 1 : 1));
	/* DeepSeek: a tenth of what configs have.  Both of theirs are one number, so rotated rows keep their size. */
	if (gguf_conf_has(c, "rope.scaling.yarn_log_multiplier")) {
		double all = gguf_conf_float(c, "rope.scaling.yarn_log_multiplier", 0) *
		             (strncmp(c->m->arch->name, "deepseek", 8) ? 1 : 10);

		gguf_put_float(c, "mscale", all);
		gguf_put_float(c, "mscale_all_dim", all);
	}
}

static void put_list(struct gguf_conf *c, const char *member, const struct gguf_info *t, int64_t dims)
{
	if (strcmp(t->type->name, "F32") || t->count != dims / 2) {
		gguf_conf_fail(c, E_FORMAT, "tensor %s: %" PRId64 " elements of %s, %" PRId64 " of F32 are wanted",
		               t->name, t->count, t->type->name, dims / 2);
		return;
	}
	gguf_put_name(c, member);
	for (int64_t i = 0; i < t->count; i++) {
		float f = gguf_float_at(t, i);

		if (!(f > 0) || !isfinite(f))
			gguf_conf_fail(c, E_FORMAT, "tensor %s: element %" PRId64 " is %g", t->name, i, (double)f);
		buf_putc(c->out, i ? ',' : '[');
		gguf_put_number(c->out, isfinite(f) ? (double)f : 1);
	}
	buf_putc(c->out, ']');
}

/* The divisors of the angles, which stand in tensors: Hugging Face has a list of those in "longrope", one for long
 * sequences and one for short ones, which may be the same. */
static void put_divisors(struct gguf_conf *c, const struct gguf_info *far, const struct gguf_info *near, int64_t dims)
{
	gguf_put_str(c, "rope_type", "longrope");
	gguf_put_float(c, "attention_factor", gguf_conf_float(c, "rope.scaling.attn_factor", 1));
	if (far != near)
		gguf_put_int(c, "original_max_position_embeddings",
		             gguf_conf_int(c, "rope.scaling.original_context_length", GGUF_NEEDED));
	put_list(c, "long_factor", far, dims);
	put_list(c, "short_factor", near, dims);
}

/* The share of dim that gives dims again when it is multiplied and cut to an integer. */
static double share(int64_t dims, int64_t dim)
{
	double p = (double)dims / (double)dim;

	while ((int64_t)((double)dim * p) < dims)
		p = nextafter(p, 2);
	return p;
}

/* How many frequencies turn by an image's time, row and column; positions of text alone turn as without. */
static void put_sections(struct gguf_conf *c)
{
	const struct gguf_value *v = value_of(c, "rope.dimension_sections");

	if (!c->m->seen || !v)
		return;
	if (!v->array || v->n < 3) {
		gguf_conf_fail(c, E_FORMAT, "key %s: %" PRIu64 " numbers, three are wanted", v->key, v->n);
		return;
	}
	gguf_put_name(c, "mrope_section");
	for (uint64_t i = 0; i < 3; i++) {
		int64_t n = 0;

		if (!c->code)
			c->code = gguf_int(&c->m->part[0], v, i, &n, c->err);
		buf_printf(c->out, "%c%" PRId64, i ? ',' : '[', n);
	}
	buf_putc(c->out, ']');
	gguf_put_bool(c, "mrope_interleaved", strcmp(c->m->arch->name, "qwen2vl") != 0);
}

void gguf_put_rope(struct gguf_conf *c, int64_t dim, double theta)
{
	const struct gguf_info *divisors = gguf_tensor_info(c->m, "rope_freqs.weight");
	const struct gguf_info *far = gguf_tensor_info(c->m, "rope_factors_long.weight"),
			       *near = gguf_tensor_info(c->m, "rope_factors_short.weight");
	int64_t dims = gguf_conf_int(c, "rope.dimension_count", dim);
	bool yarn = gguf_conf_is(c, "rope.scaling.type", "yarn"), none = gguf_conf_is(c, "rope.scaling.type", "none");
	double factor = none ? 1 : gguf_conf_float(c, "rope.scaling.factor", 1);
	double base = gguf_conf_float(c, "rope.freq_base", theta);

	if (!c->code && (dim < 1 || dims < 1 || dims > dim))
		gguf_conf_fail(c, E_FORMAT, "key %s.rope.dimension_count: %" PRId64 " of heads of %" PRId64,
		               c->m->arch->name, dims, dim);
	if (!c->code && !yarn && !none && !far && gguf_conf_string(c, "rope.scaling.type").n &&
	    !gguf_conf_is(c, "rope.scaling.type", "linear"))
		gguf_conf_fail(c, E_UNSUPPORTED, "key %s.rope.scaling.type: is none of none, linear, yarn",
		               c->m->arch->name);
	if (!c->code && !far != !near)
		gguf_conf_fail(c, E_MISSING, "tensor rope_factors_%s.weight: missing, with %s present",
		               far ? "short" : "long", (far ? far : near)->name);
	if (c->code)
		return;
	gguf_put_name(c, "rope_parameters");
	buf_putc(c->out, '{');
	gguf_put_float(c, "rope_theta", base);
	put_sections(c);
	if (dims != dim) {
		gguf_put_name(c, "partial_rotary_factor");
		buf_printf(c->out, "%.17g", share(dims, dim));
	}
	if (divisors)
		put_divisors(c, divisors, divisors, dims);
	else if (far)
		put_divisors(c, far, near, dims);
	else if (yarn)
		put_yarn(c, factor);
	else if (factor != 1) {
		gguf_put_str(c, "rope_type", "linear");
		gguf_put_float(c, "factor", factor);
	}
	buf_putc(c->out, '}');
}
