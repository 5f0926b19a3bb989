/* schema.c - the keywords of JSON Schema, read into sets (shapes.h).
 *
 * docs/structured-output.md has the table of what is done.  A keyword that would
 * restrict values and is not done is an error that names it and its place;
 * keywords that only describe, and unknown ones, say nothing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/grammar/lexeme.h"
#include "text/grammar/pattern.h"
#include "text/grammar/shapes.h"

enum type { T_NULL = 1, T_BOOL = 2, T_INT = 4, T_NUM = 8, T_STR = 16, T_ARR = 32, T_OBJ = 64, T_ALL = 127 };

/* A schema that is being read, and the constraints of its keywords so far. */
struct reader {
	struct builder *b;
	const struct json *j;
	const char *at;
};

void put_plain(struct buf *out, const char *p, size_t n)
{
	static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";

	buf_putc(out, '"');
	for (size_t i = 0; i < n; i++) {
		const char *at = p[i] ? strchr(from, p[i]) : NULL;

		if (at)
			buf_printf(out, "\\%c", to[at - from]);
		else if ((unsigned char)p[i] < 0x20)
			buf_printf(out, "\\u%04x", p[i]);
		else
			buf_putc(out, p[i]);
	}
	buf_putc(out, '"');
}

/* A place is only told in messages, which show the beginning of it. */
enum { AT_BYTES_MAX = 160 };

static const char *below(struct builder *b, const char *at, const char *key)
{
	char out[2 * AT_BYTES_MAX + 4];
	size_t n = strlen(at);

	if (n >= AT_BYTES_MAX)
		return at;
	memcpy(out, at, n);
	out[n++] = '/';
	for (; *key && n < 2 * AT_BYTES_MAX; key++) {
		if (*key == '~' || *key == '/') {
			out[n++] = '~';
			out[n++] = *key == '~' ? '0' : '1';
		} else {
			out[n++] = *key;
		}
	}
	return arena_strndup(&b->pool.a, out, n);
}

static const char *below_i(struct builder *b, const char *at, size_t i)
{
	return strlen(at) < AT_BYTES_MAX ? arena_printf(&b->pool.a, "%s/%zu", at, i) : at;
}

static int wrong(struct reader *r, const char *key, const char *expected, const struct json *found)
{
	return builder_fail(r->b, E_FORMAT, below(r->b, r->at, key), "it must be %s, and is %s", expected,
	                    json_kind_name(json_kind(found)));
}

/* A member of that kind; *out NULL when absent. */
static int member(struct reader *r, const char *key, enum json_kind kind, const char *expected, const struct json **out)
{
	*out = json_get(r->j, key);
	if (*out && json_kind(*out) != kind)
		return wrong(r, key, expected, *out);
	return 0;
}

/* A count; 3.0 is one. */
static int count(struct reader *r, const char *key, int64_t deflt, int64_t *out)
{
	const struct json *v = json_get(r->j, key);
	double d;

	*out = deflt;
	if (!v)
		return 0;
	if (json_to_int(v, out)) {
		if (json_to_double(v, &d) || d != floor(d) || d < 0 || d > 1e15)
			return wrong(r, key, "a whole number from 0", v);
		*out = (int64_t)d;
	}
	if (*out < 0)
		return wrong(r, key, "a whole number from 0", v);
	if (*out > COUNT_MAX)
		*out = key[1] == 'a' ? -1 : COUNT_MAX; /* max...: as good as none */
	return 0;
}

/* ---- types ---- */

static int one_type(struct reader *r, const struct json *v, unsigned *types)
{
	static const struct {
		const char *name;
		unsigned bits;
	} known[] = {
		{ "null", T_NULL },  { "boolean", T_BOOL }, { "integer", T_INT }, { "number", T_INT | T_NUM },
		{ "string", T_STR }, { "array", T_ARR },    { "object", T_OBJ },
	};
	size_t n;
	const char *s = json_str(v, &n);

	for (size_t i = 0; s && i < sizeof known / sizeof *known; i++)
		if (!strcmp(known[i].name, s)) {
			*types |= known[i].bits;
			return 0;
		}
	return builder_fail(r->b, E_FORMAT, below(r->b, r->at, "type"), "\"%.40s\" is not a type of JSON", s ? s : "?");
}

static int read_types(struct reader *r, unsigned *types)
{
	const struct json *v = json_get(r->j, "type");
	bool nullable = false;
	int rc = 0;

	*types = v ? 0 : T_ALL;
	if (v && json_kind(v) == JSON_STRING)
		rc = one_type(r, v, types);
	else if (v && json_kind(v) != JSON_ARRAY)
		return wrong(r, "type", "a string or an array of strings", v);
	for (size_t i = 0; json_kind(v) == JSON_ARRAY && i < json_len(v) && !rc; i++)
		rc = one_type(r, json_at(v, i), types);
	json_to_bool(json_get(r->j, "nullable"), &nullable);
	if (nullable)
		*types |= T_NULL;
	return rc;
}

/* ---- numbers ---- */

static int read_decimal(struct reader *r, const char *key, const struct json *v, struct decimal *d)
{
	const char *text = json_number_text(v);

	if (!text)
		return wrong(r, key, "a number", v);
	if (decimal_parse(d, text))
		return builder_fail(r->b, E_LIMIT, below(r->b, r->at, key),
		                    "%.40s has more digits than the %d before and after the point that are done", text,
		                    NUMBER_DIGITS_MAX);
	return 0;
}

/* A bound that no decimal holds, as float's largest and least numbers: numbers here end below 10^24, and what is not
 * zero is 10^-24 at least.  *d and *open: the bound that says the same of them; *none: it says nothing. */
static bool far_bound(const char *text, bool is_below, struct decimal *d, bool *open, bool *none)
{
	bool negative = *text == '-';
	double v = fabs(strtod(text, NULL));

	*none = v >= 1e24 && is_below != negative;
	if (v < 1e-24) {
		memset(d, 0, sizeof *d);
		*open = is_below == negative;
	}
	return *none || v < 1e-24;
}

/* Holds *d to the bound v under a key. */
static int hold_bound(struct reader *r, const char *key, const struct json *v, bool is_below, bool open,
                      const struct dfa **d)
{
	const char *text = json_number_text(v);
	struct decimal at;
	bool none = false;
	int rc;

	if (!text || !decimal_parse(&at, text) || !far_bound(text, is_below, &at, &open, &none))
		if ((rc = read_decimal(r, key, v, &at)))
			return rc;
	if (!none)
		*d = dfa_and(&r->b->pool, *d, lexeme_bound(&r->b->pool, &at, is_below, open));
	return 0;
}

/* minimum and its kin.  `flag`: the boolean form of draft 4. */
static int read_bound(struct reader *r, const char *key, const char *flag, bool is_below, const struct dfa **d)
{
	const struct json *v = json_get(r->j, key), *f = json_get(r->j, flag);
	bool open = false;
	int rc;

	json_to_bool(f, &open);
	if (v && (rc = hold_bound(r, key, v, is_below, open, d)))
		return rc;
	return f && json_kind(f) != JSON_BOOL ? hold_bound(r, flag, f, is_below, true, d) : 0;
}

static int read_number(struct reader *r, unsigned types, const struct dfa **out)
{
	static const char *const keys[] = { "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
		                            "multipleOf" };
	const struct json *v = json_get(r->j, "multipleOf");
	const struct dfa *d = types & T_NUM ? r->b->all.decimal : r->b->all.integer;
	struct decimal m;
	bool plain = types & T_NUM;
	int rc;

	for (int i = 0; i < 5; i++)
		plain &= !json_get(r->j, keys[i]);
	*out = r->b->all.number;
	if (plain)
		return 0;
	if ((rc = read_bound(r, "minimum", "exclusiveMinimum", false, &d)) ||
	    (rc = read_bound(r, "maximum", "exclusiveMaximum", true, &d)))
		return rc;
	if (v) {
		struct dfa *of;

		if ((rc = read_decimal(r, "multipleOf", v, &m)))
			return rc;
		if (m.negative || (!m.n_whole && !m.n_part))
			return wrong(r, "multipleOf", "above 0", v);
		of = lexeme_multiple(&r->b->pool, &m);
		if (!of && !r->b->pool.why)
			return builder_fail(r->b, E_LIMIT, below(r->b, r->at, "multipleOf"), "its digits are too many");
		d = dfa_and(&r->b->pool, d, of);
	}
	*out = d && d->n ? d : NULL;
	return 0;
}

/* ---- strings ---- */

static int read_pattern(struct reader *r, const char *key, const char *re, size_t n, const struct dfa **out)
{
	struct dfa *d;
	struct err why;
	int rc = pattern_compile(&r->b->pool, re, n, &d, &why);

	if (rc)
		return builder_fail(r->b, rc, below(r->b, r->at, key), "%s", why.msg);
	*out = d;
	return builder_check(r->b, below(r->b, r->at, key));
}

static int read_string(struct reader *r, struct set *s)
{
	const struct json *pattern, *format;
	struct str_shape *x = arena_zalloc(&r->b->pool.a, sizeof *x);
	const struct dfa *d = NULL;
	struct dfa *f;
	struct err why;
	size_t n;
	int rc;

	if ((rc = count(r, "minLength", 0, &x->min)) || (rc = count(r, "maxLength", -1, &x->max)) ||
	    (rc = member(r, "pattern", JSON_STRING, "a string", &pattern)) ||
	    (rc = member(r, "format", JSON_STRING, "a string", &format)))
		return rc;
	if (pattern) {
		const char *re = json_str(pattern, &n);

		if ((rc = read_pattern(r, "pattern", re, n, &d)))
			return rc;
	}
	if (format) {
		rc = pattern_format(&r->b->pool, json_str(format, &n), &f, &why);
		if (rc && rc != E_MISSING)
			return builder_fail(r->b, rc, below(r->b, r->at, "format"), "%s", why.msg);
		if (!rc && (rc = builder_check(r->b, below(r->b, r->at, "format"))))
			return rc;
		if (rc != E_MISSING)
			d = d ? dfa_and(&r->b->pool, d, f) : f;
	}
	s->str = x;
	if (d) {
		*x = (struct str_shape){ x->min || x->max >= 0 ? lexeme_length(&r->b->pool, d, x->min, x->max) : d, 0,
			                 -1 };
		s->n_str = x->d && x->d->n;
		return builder_check(r->b, r->at);
	}
	s->n_str = x->max < 0 || x->min <= x->max;
	return 0;
}

/* ---- arrays and objects ---- */

/* The node of a member that is a schema; absent: any. */
static int sub_node(struct reader *r, const char *key, int *out)
{
	const struct json *v = json_get(r->j, key);

	*out = NODE_ANY;
	if (v)
		*out = node_of(r->b, v, below(r->b, r->at, key), false);
	return *out < 0 ? *out : 0;
}

static int read_array(struct reader *r, struct set *s)
{
	const struct json *items = json_get(r->j, "items"), *prefix;
	struct arr_layer *l = arena_zalloc(&r->b->pool.a, sizeof *l);
	struct arr_shape *a = arena_zalloc(&r->b->pool.a, sizeof *a);
	const char *key = "prefixItems";
	bool unique = false;
	int rc;

	if ((rc = member(r, "prefixItems", JSON_ARRAY, "an array", &prefix)) ||
	    (rc = count(r, "minItems", 0, &a->min)) || (rc = count(r, "maxItems", -1, &a->max)))
		return rc;
	l->rest = NODE_ANY;
	/* Before 2020-12 an array under items is what prefixItems is now. */
	if (json_kind(items) == JSON_ARRAY) {
		prefix = items;
		key = "items";
		rc = sub_node(r, "additionalItems", &l->rest);
	} else {
		rc = sub_node(r, "items", &l->rest);
	}
	l->prefix = arena_zalloc(&r->b->pool.a, (json_len(prefix) + 1) * sizeof *l->prefix);
	for (size_t i = 0; i < json_len(prefix) && !rc; i++) {
		int id = node_of(r->b, json_at(prefix, i), below_i(r->b, below(r->b, r->at, key), i), false);

		l->prefix[l->n_prefix++] = id;
		rc = id < 0 ? id : 0;
	}
	json_to_bool(json_get(r->j, "uniqueItems"), &unique);
	if (!rc && unique && (a->max < 0 || a->max > 1))
		return builder_fail(r->b, E_UNSUPPORTED, below(r->b, r->at, "uniqueItems"),
		                    "it is not supported, but where maxItems is at most 1");
	a->layer[a->n_layer++] = l;
	s->arr = arena_alloc(&r->b->pool.a, sizeof *s->arr);
	s->arr[0] = a;
	s->n_arr = a->max < 0 || a->min <= a->max;
	/* The shape that says nothing is one for all. */
	if (!l->n_prefix && l->rest == NODE_ANY && !a->min && a->max < 0)
		s->arr[0] = r->b->node[NODE_ANY].set.arr[0];
	return rc;
}

static int read_keys(struct reader *r, struct obj_layer *l)
{
	const struct json *properties, *patterns, *v;
	struct json_cursor c;
	const char *key;
	int rc;

	if ((rc = member(r, "properties", JSON_OBJECT, "an object", &properties)) ||
	    (rc = member(r, "patternProperties", JSON_OBJECT, "an object", &patterns)))
		return rc;
	if (json_len(properties) > KEYS_MAX)
		return builder_fail(r->b, E_LIMIT, below(r->b, r->at, "properties"),
		                    "%zu properties; at most %d are done", json_len(properties), KEYS_MAX);
	l->key = arena_zalloc(&r->b->pool.a, (json_len(properties) + 1) * sizeof *l->key);
	for (c = json_first(properties); json_next(&c, &key, &v);) {
		struct key *k = &l->key[l->n_key++];

		k->p = arena_strndup(&r->b->pool.a, key, strlen(key));
		k->n = strlen(key);
		k->node = node_of(r->b, v, below(r->b, below(r->b, r->at, "properties"), key), false);
		if (k->node < 0)
			return k->node;
	}
	for (c = json_first(patterns); json_next(&c, &key, &v);) {
		const char *at = below(r->b, below(r->b, r->at, "patternProperties"), key);
		struct reader at_key = { r->b, r->j, below(r->b, r->at, "patternProperties") };

		if (l->n_pattern == PATTERNS_MAX)
			return builder_fail(r->b, E_LIMIT, at, "more than %d patterns of one object", PATTERNS_MAX);
		if ((rc = read_pattern(&at_key, key, key, strlen(key), &l->pattern[l->n_pattern].d)))
			return rc;
		l->pattern[l->n_pattern].node = node_of(r->b, v, at, false);
		if (l->pattern[l->n_pattern++].node < 0)
			return l->pattern[l->n_pattern - 1].node;
	}
	return sub_node(r, "additionalProperties", &l->rest);
}

static int read_names(struct reader *r, struct obj_shape *o)
{
	const struct set *s;
	const struct dfa *d = NULL;
	int id, rc;

	if (!json_get(r->j, "propertyNames"))
		return 0;
	if ((rc = sub_node(r, "propertyNames", &id)) || id == NODE_ANY || (rc = node_expand(r->b, id)))
		return rc;
	s = &r->b->node[id].set;
	for (int i = 0; i < s->n_str; i++) {
		const struct dfa *one = s->str[i].d;

		if (!one)
			one = lexeme_length(&r->b->pool, r->b->all.plain, s->str[i].min, s->str[i].max);
		d = d ? dfa_or(&r->b->pool, d, one) : one;
	}
	/* None allowed: the empty language. */
	o->names = s->n_str ? d : dfa_minus(&r->b->pool, r->b->all.plain, r->b->all.plain);
	return builder_check(r->b, r->at);
}

static int read_object(struct reader *r, struct set *s)
{
	struct obj_layer *l = arena_zalloc(&r->b->pool.a, sizeof *l);
	struct obj_shape *o = arena_zalloc(&r->b->pool.a, sizeof *o);
	const struct json *required;
	int rc;

	/* In draft 4 "required" is a list as well; a boolean one is draft 3's. */
	if ((rc = member(r, "required", JSON_ARRAY, "an array of strings", &required)) ||
	    (rc = count(r, "minProperties", 0, &o->min)) || (rc = count(r, "maxProperties", -1, &o->max)) ||
	    (rc = read_keys(r, l)) || (rc = read_names(r, o)))
		return rc;
	if (json_len(required) > KEYS_MAX)
		return builder_fail(r->b, E_LIMIT, below(r->b, r->at, "required"), "%zu names; at most %d are done",
		                    json_len(required), KEYS_MAX);
	o->need = arena_zalloc(&r->b->pool.a, (json_len(required) + 1) * sizeof *o->need);
	for (size_t i = 0; i < json_len(required); i++) {
		size_t n;
		const char *p = json_str(json_at(required, i), &n);

		if (!p)
			return wrong(r, "required", "an array of strings", json_at(required, i));
		o->need[o->n_need++] = (struct key){ arena_strndup(&r->b->pool.a, p, n), n, 0 };
	}
	o->layer[o->n_layer++] = l;
	s->obj = arena_alloc(&r->b->pool.a, sizeof *s->obj);
	s->obj[0] = o;
	s->n_obj = o->max < 0 || o->min <= o->max;
	if (!l->n_key && !l->n_pattern && l->rest == NODE_ANY && !o->n_need && !o->min && o->max < 0 && !o->names)
		s->obj[0] = r->b->node[NODE_ANY].set.obj[0];
	return 0;
}

/* ---- constants ---- */

static int constant_array(struct builder *b, const struct json *v, const char *at, struct set *s)
{
	struct arr_layer *l = arena_zalloc(&b->pool.a, sizeof *l);
	struct arr_shape *a = arena_zalloc(&b->pool.a, sizeof *a);

	l->prefix = arena_zalloc(&b->pool.a, (json_len(v) + 1) * sizeof *l->prefix);
	for (size_t i = 0; i < json_len(v); i++) {
		l->prefix[i] = node_of(b, json_at(v, i), at, true);
		if (l->prefix[i] < 0)
			return l->prefix[i];
	}
	l->n_prefix = (int)json_len(v);
	l->rest = NODE_NEVER;
	a->layer[a->n_layer++] = l;
	a->min = a->max = l->n_prefix;
	s->arr = arena_alloc(&b->pool.a, sizeof *s->arr);
	s->arr[0] = a;
	s->n_arr = 1;
	return 0;
}

static int constant_object(struct builder *b, const struct json *v, const char *at, struct set *s)
{
	struct obj_layer *l = arena_zalloc(&b->pool.a, sizeof *l);
	struct obj_shape *o = arena_zalloc(&b->pool.a, sizeof *o);
	struct json_cursor c;
	const struct json *value;
	const char *key;

	if (json_len(v) > KEYS_MAX)
		return builder_fail(b, E_LIMIT, at, "a constant of %zu members; at most %d are done", json_len(v),
		                    KEYS_MAX);
	l->key = arena_zalloc(&b->pool.a, (json_len(v) + 1) * sizeof *l->key);
	for (c = json_first(v); json_next(&c, &key, &value);) {
		struct key *k = &l->key[l->n_key++];

		*k = (struct key){ arena_strndup(&b->pool.a, key, strlen(key)), strlen(key),
			           node_of(b, value, at, true) };
		if (k->node < 0)
			return k->node;
	}
	l->rest = NODE_NEVER;
	o->layer[o->n_layer++] = l;
	o->need = l->key;
	o->n_need = l->n_key;
	o->max = -1;
	s->obj = arena_alloc(&b->pool.a, sizeof *s->obj);
	s->obj[0] = o;
	s->n_obj = 1;
	return 0;
}

/* Adds what v is to the texts of its kind, or to s. */
static int one_constant(struct builder *b, const struct json *v, const char *at, struct texts text[4], int n_text[4],
                        struct set *s)
{
	struct set one = { 0 };
	struct decimal d;
	struct buf out;
	char number[2 * NUMBER_DIGITS_MAX + 4];
	const char *p;
	size_t n;
	bool yes = false;
	int kind = 0, rc;

	switch (json_kind(v)) {
	case JSON_NULL: texts_put(&text[kind], "null", 4, 0); break;
	case JSON_BOOL:
		json_to_bool(v, &yes);
		texts_put(&text[kind = 1], yes ? "true" : "false", yes ? 4 : 5, 0);
		break;
	case JSON_INT:
	case JSON_DOUBLE:
		if (decimal_parse(&d, json_number_text(v)))
			return builder_fail(
				b, E_LIMIT, at,
				"%.40s has more digits than the %d before and after the point that are done",
				json_number_text(v), NUMBER_DIGITS_MAX);
		decimal_text(&d, number);
		texts_put(&text[kind = 2], number, strlen(number), 0);
		break;
	case JSON_STRING:
		p = json_str(v, &n);
		buf_init(&out);
		put_plain(&out, p, n);
		texts_put(&text[kind = 3], out.p, out.n, 0);
		buf_fini(&out);
		break;
	case JSON_ARRAY:
	case JSON_OBJECT:
		rc = json_kind(v) == JSON_ARRAY ? constant_array(b, v, at, &one) : constant_object(b, v, at, &one);
		return rc ? rc : set_or(b, s, &one, at);
	}
	n_text[kind]++;
	return 0;
}

/* list NULL: the one constant. */
static int constants(struct builder *b, const struct json *list, const struct json *one, const char *at, struct set *s)
{
	struct texts text[4];
	const struct dfa *d[4];
	int n_text[4] = { 0 }, rc = 0;

	memset(s, 0, sizeof *s);
	for (int i = 0; i < 4; i++)
		texts_init(&text[i]);
	if (!list)
		rc = one_constant(b, one, at, text, n_text, s);
	for (size_t i = 0; list && i < json_len(list) && !rc; i++)
		rc = one_constant(b, json_at(list, i), at, text, n_text, s);
	for (int i = 0; i < 4; i++) {
		d[i] = n_text[i] ? texts_finish(&b->pool, &text[i]) : NULL;
		texts_fini(&text[i]);
	}
	s->null = d[0];
	s->boolean = d[1];
	s->number = d[2];
	s->str = arena_alloc(&b->pool.a, sizeof *s->str);
	s->str[0] = (struct str_shape){ d[3], 0, -1 };
	s->n_str = d[3] != NULL;
	return rc ? rc : builder_check(b, at);
}

int schema_constant(struct builder *b, const struct json *value, const char *at, struct set *s)
{
	return constants(b, NULL, value, at, s);
}

static bool has_member(const struct json *j, const char *key, const struct json **v)
{
	struct json_cursor c = json_first(j);
	const char *name;

	/* A member that is null reads as absent otherwise. */
	while (json_next(&c, &name, v))
		if (!strcmp(name, key))
			return true;
	return false;
}

static int read_constants(struct reader *r, struct set *s)
{
	const struct json *v;
	struct set only;
	int rc = 0;

	if (has_member(r->j, "enum", &v)) {
		if (json_kind(v) != JSON_ARRAY)
			return wrong(r, "enum", "an array", v);
		if (!(rc = constants(r->b, v, NULL, below(r->b, r->at, "enum"), &only)))
			rc = set_and(r->b, s, &only, r->at);
	}
	if (!rc && has_member(r->j, "const", &v) &&
	    !(rc = constants(r->b, NULL, v, below(r->b, r->at, "const"), &only)))
		rc = set_and(r->b, s, &only, r->at);
	return rc;
}

/* ---- references ---- */

static int hex_value(char c)
{
	return c >= '0' && c <= '9' ? c - '0' :
	       c >= 'a' && c <= 'f' ? c - 'a' + 10 :
	       c >= 'A' && c <= 'F' ? c - 'A' + 10 :
	                              -1;
}

/* One part of a pointer, %XX and ~0 ~1 undone; *p moves to the next '/' or the end. */
static void pointer_part(const char **p, struct buf *out)
{
	const char *s = *p;

	buf_reset(out);
	for (; *s && *s != '/'; s++) {
		if (*s == '%' && hex_value(s[1]) >= 0 && hex_value(s[2]) >= 0) {
			buf_putc(out, hex_value(s[1]) * 16 + hex_value(s[2]));
			s += 2;
		} else {
			buf_putc(out, *s);
		}
	}
	*p = s;
	/* ~1 first: ~01 is ~1. */
	for (size_t i = 0, k = 0, n = out->n;; i++, k++) {
		if (i < n && out->p[i] == '~' && i + 1 < n && (out->p[i + 1] == '0' || out->p[i + 1] == '1')) {
			out->p[k] = out->p[++i] == '0' ? '~' : '/';
		} else if (i < n) {
			out->p[k] = out->p[i];
		} else {
			out->p[k] = 0;
			out->n = k;
			break;
		}
	}
}

const struct json *schema_at(const struct json *j, const char *p)
{
	struct buf part;

	buf_init(&part);
	while (j && *p == '/') {
		p++;
		pointer_part(&p, &part);
		if (json_kind(j) == JSON_ARRAY) {
			char *end;
			unsigned long i = strtoul(part.p, &end, 10);

			j = *end || !part.n ? NULL : json_at(j, i);
		} else {
			j = json_get(j, part.p);
		}
	}
	buf_fini(&part);
	return *p ? NULL : j;
}

static int read_ref(struct reader *r, struct set *s)
{
	const struct json *v, *to = NULL;
	const char *ref, *at = below(r->b, r->at, "$ref");
	struct set copy;
	size_t n;
	int id, rc;

	if ((rc = member(r, "$ref", JSON_STRING, "a string", &v)) || !v)
		return rc;
	ref = json_str(v, &n);
	if (ref[0] != '#')
		return builder_fail(r->b, E_UNSUPPORTED, at,
		                    "\"%.60s\" is outside of this schema; only #... is supported", ref);
	dfa_spend(&r->b->pool, n / 16);
	to = !ref[1] || ref[1] == '/' ? schema_at(r->b->root, ref + 1) :
	                                anchors_find(&r->b->anchors, &r->b->pool, r->b->root, ref + 1);
	if ((rc = builder_check(r->b, at)))
		return rc;
	if (!to)
		return builder_fail(r->b, E_MISSING, at, "\"%.60s\" is not in this schema", ref);
	id = node_of(r->b, to, ref + 1, false);
	if (id < 0 || (rc = node_expand(r->b, id)))
		return id < 0 ? id : rc;
	copy = r->b->node[id].set;
	return set_and(r->b, s, &copy, r->at);
}

/* ---- combinations ---- */

/* The sets of an array of schemas; *part NULL when the key is absent. */
static int read_parts(struct reader *r, const char *key, struct set ***part, int *n)
{
	const struct json *list;
	const char *at = below(r->b, r->at, key);
	int rc;

	*part = NULL;
	*n = 0;
	if ((rc = member(r, key, JSON_ARRAY, "an array", &list)) || !list)
		return rc;
	if (!json_len(list))
		return builder_fail(r->b, E_FORMAT, at, "it is empty");
	*part = arena_alloc(&r->b->pool.a, json_len(list) * sizeof **part);
	for (size_t i = 0; i < json_len(list); i++) {
		int id = node_of(r->b, json_at(list, i), below_i(r->b, at, i), false);

		if (id < 0 || (rc = node_expand(r->b, id)))
			return id < 0 ? id : rc;
		(*part)[i] = arena_alloc(&r->b->pool.a, sizeof ***part);
		*(*part)[i] = r->b->node[id].set;
	}
	*n = (int)json_len(list);
	return 0;
}

static int read_combinations(struct reader *r, struct set *s)
{
	struct set **part, all;
	int n, rc, id;

	if ((rc = read_parts(r, "allOf", &part, &n)))
		return rc;
	for (int i = 0; i < n; i++)
		if ((rc = set_and(r->b, s, part[i], r->at)))
			return rc;
	if ((rc = read_parts(r, "anyOf", &part, &n)))
		return rc;
	if (n) {
		all = *part[0];
		for (int i = 1; i < n; i++)
			if ((rc = set_or(r->b, &all, part[i], r->at)))
				return rc;
		if ((rc = set_and(r->b, s, &all, r->at)))
			return rc;
	}
	if ((rc = read_parts(r, "oneOf", &part, &n)))
		return rc;
	if (n && ((rc = set_one(r->b, &all, (const struct set *const *)part, n, below(r->b, r->at, "oneOf"))) ||
	          (rc = set_and(r->b, s, &all, r->at))))
		return rc;
	if (json_get(r->j, "not")) {
		if ((rc = sub_node(r, "not", &id)) || (rc = node_expand(r->b, id)))
			return rc;
		all = r->b->node[id].set;
		if ((rc = set_not(r->b, &all, &all, below(r->b, r->at, "not"))) || (rc = set_and(r->b, s, &all, r->at)))
			return rc;
	}
	return 0;
}

/* ---- all of it ---- */

/* Refuses keywords that restrict values and are not supported; values without effect are accepted. */
static int refuse(struct reader *r)
{
	static const char *const no[] = {
		"if",           "contains",         "dependentRequired",     "dependentSchemas",
		"dependencies", "unevaluatedItems", "unevaluatedProperties", "$dynamicRef",
		"$recursiveRef"
	};

	for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
		const struct json *v = json_get(r->j, no[i]);
		bool yes = false;

		if (!v || (!json_to_bool(v, &yes) && yes && strcmp(no[i], "contains")))
			continue;
		if (!strncmp(no[i], "dep", 3) && json_kind(v) == JSON_OBJECT && !json_len(v))
			continue;
		if (!strcmp(no[i], "if") && !json_get(r->j, "then") && !json_get(r->j, "else"))
			continue;
		return builder_fail(r->b, E_UNSUPPORTED, below(r->b, r->at, no[i]), "\"%s\" is not supported", no[i]);
	}
	if (r->j != r->b->root && json_kind(json_get(r->j, "$id")) == JSON_STRING) {
		size_t n;

		if (json_str(json_get(r->j, "$id"), &n)[0] != '#')
			return builder_fail(r->b, E_UNSUPPORTED, below(r->b, r->at, "$id"),
			                    "\"$id\" inside a schema is not supported");
	}
	return 0;
}

int schema_read(struct builder *b, const struct json *j, const char *at, struct set *s)
{
	struct reader r = { b, j, at };
	unsigned types;
	int rc;

	memset(s, 0, sizeof *s);
	if ((rc = refuse(&r)) || (rc = read_types(&r, &types)))
		return rc;
	if (types & T_NULL)
		s->null = b->all.null;
	if (types & T_BOOL)
		s->boolean = b->all.boolean;
	if (((types & (T_INT | T_NUM)) && (rc = read_number(&r, types, &s->number))) ||
	    ((types & T_STR) && (rc = read_string(&r, s))) || ((types & T_ARR) && (rc = read_array(&r, s))) ||
	    ((types & T_OBJ) && (rc = read_object(&r, s))))
		return rc;
	if ((rc = read_constants(&r, s)) || (rc = read_ref(&r, s)))
		return rc;
	return read_combinations(&r, s);
}
