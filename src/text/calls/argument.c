/* argument.c - arguments of calls that are written as text between marks: what the tool's schema lets an argument be, where
 * its text ends, and what JSON that text becomes. */
#include <string.h>
#include <strings.h>

#include "text/calls/dialect.h"
#include "text/grammar/anchors.h"
#include "text/grammar/pattern.h"
#include "text/grammar/shapes.h"

/* ---- what a schema allows ---- */

enum {
	LOOK_MAX = 1000,            /* schemas looked at for one argument: references may go in circles */
	DEPTH_MAX = 16,             /* of them in each other */
	PATTERNS_WORK_MAX = 200000, /* steps of making what matches keys; a pattern beyond says nothing */
	ALL = 1 << JSON_NULL | 1 << JSON_BOOL | 1 << JSON_INT | 1 << JSON_DOUBLE | 1 << JSON_STRING | 1 << JSON_ARRAY |
	      1 << JSON_OBJECT,
};

struct looking {
	const struct json *root;
	const char *key; /* of the argument; NULL once its own schema is looked at */
	bool named;      /* some `properties` has the key */
	int left;
	struct dfa_pool pool; /* of patterns and names */
	struct anchors anchors;
};

/* bits: the kinds that are left, of enum json_kind; said: some keyword restricted them. */
struct kinds {
	unsigned bits;
	bool said;
};

static struct kinds kinds_of(struct looking *l, const struct json *schema, int depth);

static void narrow(struct kinds *k, unsigned bits)
{
	k->bits &= bits;
	k->said = true;
}

static void narrow_by(struct kinds *k, struct kinds by)
{
	if (by.said)
		narrow(k, by.bits);
}

static unsigned kind_named(const struct json *type)
{
	static const struct {
		const char *name;
		unsigned bits;
	} names[] = {
		{ "string", 1u << JSON_STRING },
		{ "integer", 1u << JSON_INT },
		{ "number", 1u << JSON_INT | 1u << JSON_DOUBLE },
		{ "boolean", 1u << JSON_BOOL },
		{ "object", 1u << JSON_OBJECT },
		{ "array", 1u << JSON_ARRAY },
		{ "null", 1u << JSON_NULL },
	};
	size_t n;
	const char *s = json_str(type, &n);

	for (size_t i = 0; s && i < sizeof names / sizeof *names; i++)
		if (!strcmp(s, names[i].name))
			return names[i].bits;
	return 0;
}

static void by_type(struct kinds *k, const struct json *schema)
{
	const struct json *type = json_get(schema, "type");
	unsigned bits = kind_named(type);
	bool nullable = false;

	for (size_t i = 0; json_kind(type) == JSON_ARRAY && i < json_len(type); i++)
		bits |= kind_named(json_at(type, i));
	json_to_bool(json_get(schema, "nullable"), &nullable);
	if (bits)
		narrow(k, bits | (nullable ? 1u << JSON_NULL : 0));
}

static bool is_member(const struct json *j, const char *key)
{
	struct json_cursor c = json_first(j);
	const struct json *v;
	const char *name;

	while (json_next(&c, &name, &v))
		if (!strcmp(name, key))
			return true;
	return false;
}

/* A number with a fraction of zero may be written as an integer. */
static unsigned kind_bit(const struct json *v)
{
	return 1u << json_kind(v) | (json_kind(v) == JSON_DOUBLE ? 1u << JSON_INT : 0);
}

static void by_constants(struct kinds *k, const struct json *schema)
{
	const struct json *list = json_get(schema, "enum");
	unsigned bits = 0;

	for (size_t i = 0; i < json_len(list); i++)
		bits |= kind_bit(json_at(list, i));
	if (bits)
		narrow(k, bits);
	if (is_member(schema, "const"))
		narrow(k, kind_bit(json_get(schema, "const")));
}

/* Keywords that speak of the members of an object, where the key is one. */
static bool matches(struct looking *l, const char *re)
{
	struct dfa *d = NULL;
	struct buf text;
	bool yes;

	buf_init(&text);
	put_plain(&text, l->key, strlen(l->key));
	yes = !pattern_compile(&l->pool, re, strlen(re), &d, NULL) && d && dfa_match(d, text.p, text.n) >= 0;
	buf_fini(&text);
	return yes;
}

/* The key's own schema is read with no key. */
static struct kinds kinds_below(struct looking *l, const struct json *schema, int depth)
{
	const char *key = l->key;
	struct kinds k;

	l->key = NULL;
	k = kinds_of(l, schema, depth + 1);
	l->key = key;
	return k;
}

static void by_members(struct looking *l, struct kinds *k, const struct json *schema, int depth)
{
	const struct json *properties = json_get(schema, "properties"), *v;
	struct json_cursor c = json_first(json_get(schema, "patternProperties"));
	bool own = is_member(properties, l->key);
	const char *re;

	if (own) {
		l->named = true;
		narrow_by(k, kinds_below(l, json_get(properties, l->key), depth));
	}
	while (json_next(&c, &re, &v))
		if (matches(l, re)) {
			own = true;
			narrow_by(k, kinds_below(l, v, depth));
		}
	if (!own && (v = json_get(schema, "additionalProperties")))
		narrow_by(k, kinds_below(l, v, depth));
}

static void by_reference(struct looking *l, struct kinds *k, const struct json *schema, int depth)
{
	const struct json *to;
	const char *ref;
	size_t n;

	if (!(ref = json_str(json_get(schema, "$ref"), &n)) || ref[0] != '#')
		return;
	to = !ref[1] || ref[1] == '/' ? schema_at(l->root, ref + 1) :
	                                anchors_find(&l->anchors, &l->pool, l->root, ref + 1);
	if (to)
		narrow_by(k, kinds_of(l, to, depth + 1));
}

/* One of a list; where a member of it says nothing, any kind is left. */
static void by_choice(struct looking *l, struct kinds *k, const struct json *list, int depth)
{
	struct kinds all = { 0, false };

	for (size_t i = 0; i < json_len(list); i++) {
		struct kinds one = kinds_of(l, json_at(list, i), depth + 1);

		all.bits |= one.bits;
		all.said |= one.said;
	}
	narrow_by(k, all);
}

/* "not" of nothing but a type. */
static void by_not(struct kinds *k, const struct json *schema)
{
	const struct json *no = json_get(schema, "not");
	struct kinds k_no = { ALL, false };

	by_type(&k_no, no);
	if (json_kind(no) == JSON_OBJECT && json_len(no) == 1 && k_no.said)
		narrow(k, ALL & ~k_no.bits);
}

static struct kinds kinds_of(struct looking *l, const struct json *schema, int depth)
{
	const struct json *all = json_get(schema, "allOf");
	struct kinds k = { ALL, false };
	bool yes = true;

	if (depth > DEPTH_MAX || l->left <= 0)
		return k;
	l->left--;
	if (!json_to_bool(schema, &yes) && !yes)
		narrow(&k, 0);
	if (json_kind(schema) != JSON_OBJECT)
		return k;
	if (l->key) {
		by_members(l, &k, schema, depth);
	} else {
		by_type(&k, schema);
		by_constants(&k, schema);
		by_not(&k, schema);
	}
	by_reference(l, &k, schema, depth);
	for (size_t i = 0; i < json_len(all); i++)
		narrow_by(&k, kinds_of(l, json_at(all, i), depth + 1));
	by_choice(l, &k, json_get(schema, "anyOf"), depth);
	by_choice(l, &k, json_get(schema, "oneOf"), depth);
	return k;
}

static struct kinds look(const struct json *parameters, const char *key, bool *named)
{
	struct looking l = { .root = parameters, .key = key, .left = LOOK_MAX };
	struct kinds k;

	dfa_pool_init(&l.pool);
	l.pool.work = DFA_WORK_MAX - PATTERNS_WORK_MAX;
	k = kinds_of(&l, parameters, 0);
	dfa_pool_fini(&l.pool);
	anchors_fini(&l.anchors);
	*named = l.named;
	return k;
}

unsigned argument_kinds(const struct json *parameters, const char *key)
{
	bool named;
	struct kinds k = look(parameters, key, &named);

	return k.said ? k.bits : 0;
}

bool argument_named(const struct json *parameters, const char *key)
{
	bool named;

	look(parameters, key, &named);
	return named;
}

/* ---- where its text ends ---- */

/* Is p[0..n), behind an end, what follows one? */
static enum verdict follows(const struct value_form *f, const char *p, size_t n)
{
	size_t at = blanks(p, n);
	bool maybe = at == n;

	for (const char *const *t = f->follow; *t; t++) {
		enum verdict v = text_match(p + at, n - at, *t);

		if (v == CALL_YES)
			return v;
		maybe |= v == CALL_MAYBE;
	}
	return maybe ? CALL_MAYBE : text_match(p + at, n - at, f->end);
}

enum verdict value_json(const struct value_form *f, unsigned kinds, struct extent *x, const char *p, size_t n,
                        size_t *len)
{
	size_t at = blanks(p, n);

	if (at == n || !((p[at] == '[' && kinds >> JSON_ARRAY & 1) || (p[at] == '{' && kinds >> JSON_OBJECT & 1)))
		return CALL_NO;
	if (!extent_put(x, p + at, n - at))
		return CALL_MAYBE;
	*len = at + x->at;
	*len += blanks(p + *len, n - *len);
	return text_match(p + *len, n - *len, f->end);
}

enum verdict value_text(const struct value_form *f, unsigned kinds, const char *p, size_t n, bool over, size_t *len)
{
	size_t n_end = strlen(f->end);
	bool text = !kinds || kinds >> JSON_STRING & 1;

	*len = 0;
	for (const char *end; (end = memmem(p + *len, n - *len, f->end, n_end)); *len += n_end) {
		enum verdict v;

		*len = (size_t)(end - p);
		v = text ? follows(f, end + n_end, n - *len - n_end) : CALL_YES;
		if (v != CALL_NO)
			return v == CALL_YES || over ? CALL_YES : CALL_MAYBE;
	}
	*len = n - text_partial(p, n, f->end);
	return over ? CALL_NO : CALL_MAYBE;
}

/* ---- what it becomes ---- */

void bare_value_put(struct buf *out, unsigned kinds, const char *p, size_t n)
{
	static const struct {
		const char *word, *json;
		enum json_kind kind;
	} words[] = {
		{ "True", "true", JSON_BOOL },
		{ "False", "false", JSON_BOOL },
		{ "None", "null", JSON_NULL },
	};
	bool text = !(kinds & ~(1u << JSON_STRING));
	struct json *j = text ? NULL : json_parse(p, n, 0, NULL), *mended = text || j ? NULL : json_mended(p, n);
	size_t before = out->n;

	if (j && (kinds & 1u << json_kind(j)))
		json_put(out, j);
	if (mended && (kinds & 1u << json_kind(mended)))
		json_put(out, mended);
	json_free(mended);
	/* Templates write what is true as Python does. */
	for (size_t i = 0; i < 3 && out->n == before; i++)
		if (kinds & 1u << words[i].kind && n == strlen(words[i].word) && !strncasecmp(p, words[i].word, n))
			buf_puts(out, words[i].json);
	/* Not what the schema wants, but what the model said. */
	if (out->n == before && j && kinds && !(kinds & 1u << JSON_STRING))
		json_put(out, j);
	if (out->n == before)
		json_put_str(out, p, n);
	json_free(j);
}

int value_readings(unsigned kinds, bool breaks)
{
	static const unsigned numbers = 1u << JSON_INT | 1u << JSON_DOUBLE,
			      lists = 1u << JSON_ARRAY | 1u << JSON_OBJECT, words = 1u << JSON_BOOL | 1u << JSON_NULL;

	return (breaks ? READ_BREAKS : 0) | (kinds & numbers ? READ_NUMBERS : 0) | (kinds & lists ? READ_LISTS : 0) |
	       (kinds & words ? READ_WORDS : 0);
}

struct dfa *value_otherwise(struct dfa_pool *p, int readings)
{
	struct dfa *d = NULL;
	struct buf re;

	buf_init(&re);
	if (readings & READ_BREAKS)
		buf_puts(&re, "|^\\n|\\n$");
	if (readings & ~READ_BREAKS)
		buf_puts(&re, "|^\\s*\"[^]*\"\\s*$");
	if (readings & READ_NUMBERS)
		buf_puts(&re, "|^\\s*-?[0-9][-+.0-9eE]*\\s*$");
	if (readings & READ_LISTS)
		buf_puts(&re, "|^\\s*[\\[{]");
	if (readings & READ_WORDS)
		buf_puts(&re, "|^\\s*([tT][rR][uU][eE]|[fF][aA][lL][sS][eE]|[nN][oO][nN][eE]|null)\\s*$");
	pattern_compile(p, re.p + 1, re.n - 1, &d, NULL);
	buf_fini(&re);
	return d;
}

struct dfa *value_spelling(struct dfa_pool *p, const char *text)
{
	struct dfa *d = NULL;

	pattern_compile(p, text, strlen(text), &d, NULL);
	return d;
}
