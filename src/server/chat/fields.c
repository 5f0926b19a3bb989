/* fields.c - see fields.h. */
#include "server/chat/fields.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum {
	NEST_MAX = 64,
};

static const struct field *lookup(const struct field *const *tables, const char *name)
{
	for (; *tables; tables++)
		for (const struct field *f = *tables; f->name; f++)
			if (!strcmp(f->name, name))
				return f;
	return NULL;
}

static bool is_neutral(const struct field *f, const struct json *v)
{
	const char *at = f->neutral;
	bool found = false;
	struct buf b;

	buf_init(&b);
	json_put(&b, v);
	while (!found) {
		size_t n = strcspn(at, "|");

		found = n && n == b.n && !memcmp(at, b.p, n);
		if (!at[n])
			break;
		at += n + 1;
	}
	buf_fini(&b);
	return found;
}

/* ---- warnings ---- */

void warnings_init(struct warnings *w)
{
	buf_init(&w->unknown);
	buf_init(&w->ignored);
	buf_init(&w->tools);
	buf_init(&w->let_go);
	buf_init(&w->renamed);
}

void warnings_fini(struct warnings *w)
{
	buf_fini(&w->unknown);
	buf_fini(&w->ignored);
	buf_fini(&w->tools);
	buf_fini(&w->let_go);
	buf_fini(&w->renamed);
}

bool warnings_some(const struct warnings *w)
{
	return w->unknown.n || w->ignored.n || w->tools.n || w->let_go.n;
}

void warnings_put(const struct warnings *w, struct buf *out)
{
	const struct {
		const char *about;
		const struct buf *list;
	} kinds[] = {
		{ "unknown fields", &w->unknown },
		{ "ignored fields", &w->ignored },
		{ "tools left out", &w->tools },
		{ "parameters not held", &w->let_go },
	};
	int count = 0;

	for (int i = 0; i < (int)(sizeof kinds / sizeof *kinds); i++)
		if (kinds[i].list->n)
			buf_printf(out, "%s%s: %s", count++ ? "; " : "", kinds[i].about, kinds[i].list->p);
}

/* Does the list hold the entry that was appended to it at that byte? */
static bool listed(const struct buf *list, size_t at)
{
	const char *entry = list->p + at;
	size_t n = list->n - at;

	for (const char *s = list->p; s < entry; s += strcspn(s, ",") + 2)
		if (strcspn(s, ",") == n && !memcmp(s, entry, n))
			return true;
	return false;
}

void warnings_add(struct buf *list, const char *at, const char *name)
{
	enum { NAME_MAX_SHOWN = 60, LIST_MAX = 1000 };
	size_t before = list->n, from;

	if (list->n > LIST_MAX)
		return;
	if (list->n)
		buf_puts(list, ", ");
	from = list->n;
	if (at)
		buf_printf(list, "%s.", at);
	/* As it may stand in a header: what else it holds becomes '?'. */
	for (int i = 0; name[i] && i < NAME_MAX_SHOWN; i++)
		buf_putc(list, name[i] > 0x20 && name[i] < 0x7f && name[i] != ',' && name[i] != ';' ? name[i] : '?');
	if (listed(list, from)) {
		list->n = before;
		list->p[before] = 0;
	}
}

/* ---- tables ---- */

/* "a string, a number or an array", of a set of kinds. */
static void name_kinds(int kinds, char *out, size_t size)
{
	static const struct {
		int kind;
		const char *name;
	} names[] = {
		{ TAKES_STRING, "a string" }, { TAKES_NUMBER, "a number" },  { TAKES_BOOL, "true or false" },
		{ TAKES_ARRAY, "an array" },  { TAKES_OBJECT, "an object" },
	};
	size_t n = 0;

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (kinds & names[i].kind) {
			kinds &= ~names[i].kind;
			n += (size_t)snprintf(out + n, size - n, "%s%s",
			                      !n    ? "" :
			                      kinds ? ", " :
			                              " or ",
			                      names[i].name);
		}
}

static int kind_bit(enum json_kind kind)
{
	switch (kind) {
	case JSON_BOOL: return TAKES_BOOL;
	case JSON_STRING: return TAKES_STRING;
	case JSON_ARRAY: return TAKES_ARRAY;
	case JSON_OBJECT: return TAKES_OBJECT;
	case JSON_NULL: return 0;
	default: return TAKES_NUMBER;
	}
}

static int wrong_kind(const char *path, int kinds, const struct json *v, struct problem *p)
{
	char expected[100];

	if (json_kind(v) == JSON_NULL || (kinds & kind_bit(json_kind(v))))
		return 0;
	name_kinds(kinds, expected, sizeof expected);
	return field_wrong(p, path, expected, v);
}

int field_takes(const struct json *object, const char *at, const char *name, int kinds, struct problem *p)
{
	char path[120];

	snprintf(path, sizeof path, "%.80s%s%s", at ? at : "", at ? "." : "", name);
	return wrong_kind(path, kinds, json_get(object, name), p);
}

static int check_one(const struct field *f, const struct json *v, const char *at, const char *name, struct warnings *w,
                     struct problem *p)
{
	char path[120];
	int r;

	if (!f) {
		warnings_add(&w->unknown, at, name);
		return 0;
	}
	snprintf(path, sizeof path, "%s%s%s", at ? at : "", at ? "." : "", name);
	if (f->takes && (r = wrong_kind(path, f->takes, v, p)))
		return r;
	if (json_kind(v) == JSON_NULL || (f->neutral && is_neutral(f, v)) || (!f->neutral && f->rule != FIELD_IGNORED))
		return 0;
	if (f->rule == FIELD_IGNORED) {
		warnings_add(&w->ignored, at, name);
		return 0;
	}
	return problem_set(p, 400, "unsupported_field", path, "%s is not supported by this server%s%s", path,
	                   f->hint ? ": " : "", f->hint ? f->hint : "");
}

int fields_check(const struct json *object, const char *at, const struct field *const *tables, struct warnings *w,
                 struct problem *p)
{
	struct json_cursor c = json_first(object);
	const struct json *v;
	const char *name;
	int r = 0;

	while (!r && json_next(&c, &name, &v))
		r = check_one(lookup(tables, name), v, at, name, w, p);
	return r;
}

static bool is_synonym(const struct field *const *tables, const char *name, const struct field **f)
{
	*f = lookup(tables, name);
	return *f && (*f)->rule == FIELD_SYNONYM;
}

static bool same_json(const struct json *a, const struct json *b)
{
	struct buf s, t;
	bool same;

	buf_init(&s);
	buf_init(&t);
	json_put(&s, a);
	json_put(&t, b);
	same = s.n == t.n && !memcmp(s.p, t.p, s.n);
	buf_fini(&s);
	buf_fini(&t);
	return same;
}

/* Fields that came under other names, and the value that counts of each: its own name's, or else that of the first
 * synonym that is not null. */
struct renamed {
	struct {
		const char *name;
		const struct json *v;
	} of[16];
	int n;
};

static const struct json *counting(const struct renamed *r, const char *name)
{
	for (int i = 0; i < r->n; i++)
		if (!strcmp(r->of[i].name, name))
			return r->of[i].v;
	return NULL;
}

static void find_renamed(const struct json *body, const struct field *const *tables, struct renamed *r)
{
	struct json_cursor c = json_first(body);
	const struct field *f;
	const struct json *v;
	const char *name;

	r->n = 0;
	while (json_next(&c, &name, &v))
		if (json_kind(v) != JSON_NULL && is_synonym(tables, name, &f) && !counting(r, f->hint)) {
			const struct json *own = json_get(body, f->hint);

			assert(r->n < (int)(sizeof r->of / sizeof *r->of));
			r->of[r->n].name = f->hint;
			r->of[r->n++].v = json_kind(own) != JSON_NULL ? own : v;
		}
}

/* Sets a member under the name that is read; of a field that is there under several, one counts, and the others are
 * left out. */
static void set_renamed(const struct renamed *r, const struct field *const *tables, const char *name,
                        const struct json *v, struct warnings *w, struct json *out)
{
	const struct field *f;
	bool synonym = is_synonym(tables, name, &f);
	const char *read = synonym ? f->hint : name;
	const struct json *counts = counting(r, read);

	if (synonym ? counts != v : counts && json_kind(v) == JSON_NULL) {
		if (json_kind(v) != JSON_NULL && !same_json(v, counts))
			warnings_add(&w->ignored, NULL, name);
		return;
	}
	if (synonym)
		warnings_rename(w, read, name);
	json_set(out, read, json_share(v));
}

/* The body with its synonyms under the names that are read.  Takes body. */
static struct json *rename_synonyms(struct json *body, const struct field *const *tables, struct warnings *w)
{
	struct json_cursor c = json_first(body);
	const struct json *v;
	const char *name;
	struct json *other;
	struct renamed r;

	find_renamed(body, tables, &r);
	if (!r.n)
		return body;
	other = json_new_object();
	while (json_next(&c, &name, &v))
		set_renamed(&r, tables, name, v, w, other);
	json_free(body);
	return other;
}

void warnings_rename(struct warnings *w, const char *read, const char *written)
{
	buf_put(&w->renamed, read, strlen(read) + 1);
	buf_put(&w->renamed, written, strlen(written) + 1);
}

void fields_own_name(const struct warnings *w, struct problem *p)
{
	const char *at = w->renamed.p, *end = at + w->renamed.n;
	struct problem old = *p;

	while (at < end) {
		const char *name = at, *synonym = name + strlen(name) + 1;
		size_t n = strlen(name);

		at = synonym + strlen(synonym) + 1;
		if (strncmp(old.param, name, n) || (old.param[n] && old.param[n] != '[' && old.param[n] != '.'))
			continue;
		snprintf(p->param, sizeof p->param, "%s%s", synonym, old.param + n);
		if (!strncmp(old.message, name, n))
			snprintf(p->message, sizeof p->message, "%s%s", synonym, old.message + n);
		return;
	}
}

struct json *body_check(struct json *body, const struct field *const *tables, struct warnings *w, struct problem *p)
{
	body = rename_synonyms(body, tables, w);
	if (fields_check(body, NULL, tables, w, p)) {
		json_free(body);
		return NULL;
	}
	return body;
}

/* "the string \"hot\"", cut when it is long. */
static void describe(const struct json *v, char *out, size_t size)
{
	enum { SHOWN = 60 };
	enum json_kind k = json_kind(v);
	struct buf b;

	if (!v) {
		snprintf(out, size, "nothing");
		return;
	}
	if (k == JSON_NULL || k == JSON_ARRAY || k == JSON_OBJECT) {
		snprintf(out, size, "%s", k == JSON_NULL ? "null" : k == JSON_ARRAY ? "an array" : "an object");
		return;
	}
	buf_init(&b);
	json_put(&b, v);
	snprintf(out, size, "the %s %.*s%s", json_kind_name(k), (int)(b.n < SHOWN ? b.n : SHOWN), b.p,
	         b.n > SHOWN ? "..." : "");
	buf_fini(&b);
}

int field_wrong(struct problem *p, const char *name, const char *expected, const struct json *found)
{
	char text[160];

	describe(found, text, sizeof text);
	return problem_set(p, 400, "invalid_type", name, "%s must be %s; found %s", name, expected, text);
}

/* A number of the right kind that is out of range. */
static int out_of_range(struct problem *p, const char *name, const char *expected, const struct json *found)
{
	field_wrong(p, name, expected, found);
	if (json_kind(found) == JSON_INT || json_kind(found) == JSON_DOUBLE)
		p->code = "invalid_value";
	return p->status;
}

static const struct json *present(const struct json *body, const char *name)
{
	const struct json *v = json_get(body, name);

	return json_kind(v) == JSON_NULL ? NULL : v;
}

int field_bool(const struct json *body, const char *name, bool *out, struct problem *p)
{
	const struct json *v = present(body, name);

	if (v && json_to_bool(v, out))
		return field_wrong(p, name, "true or false", v);
	return 0;
}

int field_int(const struct json *body, const char *name, int64_t min, int64_t max, int64_t *out, struct problem *p)
{
	const struct json *v = present(body, name);
	int64_t i;
	char expected[100];

	if (!v)
		return 0;
	if (json_to_whole(v, &i) || i < min || i > max) {
		if (max == INT64_MAX && min == INT64_MIN)
			snprintf(expected, sizeof expected, "a whole number");
		else
			snprintf(expected, sizeof expected, "a whole number from %lld to %lld", (long long)min,
			         (long long)max);
		return out_of_range(p, name, expected, v);
	}
	*out = i;
	return 0;
}

int field_number(const struct json *body, const char *name, double min, double max, double *out, struct problem *p)
{
	const struct json *v = present(body, name);
	double d;
	char expected[100];

	if (!v)
		return 0;
	/* Written so that a NaN would be refused, too. */
	if (json_to_double(v, &d) || !(d >= min && d <= max)) {
		snprintf(expected, sizeof expected, "a number from %g to %g", min, max);
		return out_of_range(p, name, expected, v);
	}
	*out = d;
	return 0;
}

int field_value(const struct json *body, const char *name, enum json_kind kind, const struct json **out,
                struct problem *p)
{
	const struct json *v = present(body, name);
	char expected[40];

	*out = v;
	if (v && json_kind(v) != kind) {
		snprintf(expected, sizeof expected, "%s %s", kind == JSON_ARRAY || kind == JSON_OBJECT ? "an" : "a",
		         json_kind_name(kind));
		return field_wrong(p, name, expected, v);
	}
	return 0;
}

struct json *body_parse(const char *bytes, size_t n, struct problem *p)
{
	size_t containers, values;
	struct json *body;
	struct err err;

	if (!n) {
		problem_set(p, 400, "invalid_json", NULL, "the request has no body; a JSON object is expected");
		return NULL;
	}
	json_weigh(bytes, n, &containers, &values);
	if (containers > JSON_CONTAINERS_MAX || values > JSON_VALUES_MAX) {
		problem_set(p, 413, NULL, NULL,
		            "the body holds %zu arrays and objects and %zu values; at most %d and %d are read",
		            containers, values, JSON_CONTAINERS_MAX, JSON_VALUES_MAX);
		return NULL;
	}
	body = json_parse(bytes, n, NEST_MAX, &err);
	if (!body) {
		problem_set(p, 400, "invalid_json", NULL, "the body is not JSON: %s", err.msg);
		return NULL;
	}
	if (json_kind(body) != JSON_OBJECT) {
		field_wrong(p, "the body", "an object", body);
		p->param[0] = 0;
		json_free(body);
		return NULL;
	}
	return body;
}
