/* json.c - see json.h.  struct json is json-c's json_object under our name. */
#include "base/json.h"

#include <assert.h>
#include <errno.h>
#include <json-c/json.h>
#include <json-c/printbuf.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "base/fault.h"
#include "base/utf8.h"

enum { DEPTH_DEFAULT = 64 };

static struct json_object *raw(const struct json *j)
{
	return (struct json_object *)(uintptr_t)j;
}

static const struct json *wrap(struct json_object *o)
{
	return (const struct json *)o;
}

/* json-c stores JSON null as NULL.  A root or a member that is null is given
 * this address instead, so that "present and null" differs from "absent". */
static const char null_value;
#define JSON_NULL_VALUE ((const struct json *)(const void *)&null_value)

static const struct json *present(struct json_object *o)
{
	return o ? wrap(o) : JSON_NULL_VALUE;
}
static bool is_null(const struct json *j)
{
	return !j || j == JSON_NULL_VALUE;
}

/* Whether a byte of the 64 at p is '"', '\\' or a control character; the compiler turns this into vectors. */
static bool special_in_block(const char *p)
{
	unsigned char any = 0;

	for (int k = 0; k < 64; k++) {
		unsigned char c = (unsigned char)p[k];

		any |= (unsigned char)((c == '"') | (c == '\\') | (c < 0x20));
	}
	return any;
}

/* Bytes of p[0..n) before the first '"', '\\' or control character; n: there is none.  Less where the allowance says
 * no. */
static size_t plain_run(const char *p, size_t n)
{
	size_t i = 0;

	/* One escape behind another is common. */
	if (n && *p == '\\')
		return 0;
	while (i + 64 <= n && !special_in_block(p + i)) {
		i += 64;
		if (i % ALLOWANCE_PIECE == 0 && !allowance_spend(0))
			return i;
	}
	while (i < n && p[i] != '"' && p[i] != '\\' && (unsigned char)p[i] >= 0x20)
		i++;
	return i;
}

/* json-c clamps an integer beyond 64 bits.  So it is read from a text in which this suffix follows such integers: then
 * json-c keeps the double nearest to it, with its digits. No smaller number of a text ends so by chance. */
#define BEYOND "e000"

/* Whether digits, with a sign or without, are an integer beyond 64 bits. */
static bool beyond_64_bits(const char *p, size_t n)
{
	char num[32];

	if (n < 19)
		return false;
	if (n >= sizeof num)
		return true; /* JSON has no zeros in front */
	memcpy(num, p, n);
	num[n] = 0;
	errno = 0;
	strtoll(num, NULL, 10);
	return errno == ERANGE;
}

/* Finds errors that json-c accepts even when strict: NaN and Infinity, and control characters in strings.  Returns the
 * offset of the first, or n, also where the allowance ends the search.  beyond: gets the text up to and with each
 * integer beyond 64 bits, which BEYOND follows then; the rest from *copied on is the caller's to add. */
static size_t refused_at(const char *p, size_t n, bool python, const char **why, struct buf *beyond, size_t *copied)
{
	size_t i = 0, look = ALLOWANCE_PIECE; /* where to look at the allowance next */

	while (i < n) {
		char c = p[i];

		if (i >= look) {
			if (!allowance_spend(0))
				return n;
			look = i + ALLOWANCE_PIECE;
		}
		if (c == '"') {
			for (i++; i < n && (i += plain_run(p + i, n - i)) < n && p[i] == '\\' && allowance_spend(0);
			     i += 2)
				;
			if (allowance_why())
				return n;
			if (i < n && p[i] != '"') {
				*why = "control character in a string";
				return i;
			}
			i++;
		} else if (!python && (c == 'N' || c == 'I' || (c == '-' && i + 1 < n && p[i + 1] == 'I'))) {
			*why = "NaN and Infinity are not JSON";
			return i;
		} else if (c == '-' || (c >= '0' && c <= '9')) {
			size_t start = i, digits = 0;
			bool integer = true;

			for (; i < n && strchr("+-.eE0123456789", p[i]) && p[i]; i++) {
				if (p[i] >= '0' && p[i] <= '9')
					digits++;
				else if (p[i] != '-')
					integer = false;
			}
			if (integer && digits >= 19 && beyond_64_bits(p + start, i - start)) {
				buf_put(beyond, p + *copied, i - *copied);
				buf_puts(beyond, BEYOND);
				*copied = i;
			}
		} else {
			i++;
		}
	}
	return n;
}

/* Four hex digits at p, or -1. */
static int hex4(const char *p, const char *end)
{
	int v = 0;

	if (end - p < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		int c = (unsigned char)p[i], d = c >= '0' && c <= '9'               ? c - '0' :
		                                 (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 :
		                                                                      -1;

		if (d < 0)
			return -1;
		v = v << 4 | d;
	}
	return v;
}

/* Bytes of a string from which on it is copied, and not given to json-c. */
enum { LONG = 4096 };

/* json-c 0.16 reads some escaped surrogate pairs, "\ud836\udea8", as U+FFFD.  So
 * pairs are written out as UTF-8 before it sees them.  Some clients write each / of
 * base64 as \/, which makes a picture no plain string: where one may be long these are
 * written out as well.  Returns whether there was any; out is the text then. */
static bool write_out(const char *p, size_t n, struct buf *out)
{
	const char *end = p + n, *from = p;
	bool any = false, slashes = n >= LONG;
	char utf8[4];

	for (; (p = memchr(p, '\\', (size_t)(end - p))) && allowance_spend(0); p += 2) {
		int hi, lo;

		if (end - p < 12) { /* shorter than a pair */
			break;
		} else if (p[1] == '/' && slashes) {
			buf_put(out, from, (size_t)(p - from));
			from = p + 1;
			any = true;
			continue;
		} else if (p[1] != 'u' || (hi = hex4(p + 2, end)) < 0xD800 || hi > 0xDBFF || p[6] != '\\' ||
		           p[7] != 'u' || (lo = hex4(p + 8, end)) < 0xDC00 || lo > 0xDFFF) {
			continue;
		}
		buf_put(out, from, (size_t)(p - from));
		buf_put(out, utf8,
		        (size_t)utf8_encode(0x10000 + ((uint32_t)(hi & 0x3FF) << 10 | (uint32_t)(lo & 0x3FF)), utf8));
		p += 10;
		from = p + 2;
		any = true;
	}
	if (any)
		buf_put(out, from, (size_t)(end - from));
	return any;
}

/* State of json_weigh between two pieces of a text. */
struct weighing {
	size_t containers, values;
	bool in_string, escaped;
};

static void weigh_piece(struct weighing *w, const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char c = p[i];

		if (w->in_string && !w->escaped) {
			if ((i += plain_run(p + i, n - i)) == n)
				return;
			c = p[i];
		}
		if (w->escaped)
			w->escaped = false;
		else if (w->in_string && c == '\\')
			w->escaped = true;
		else if (c == '"')
			w->in_string = !w->in_string;
		else if (w->in_string)
			continue;
		else if (c == '[' || c == '{')
			w->containers++;
		else if (c == ',')
			w->values++;
	}
}

void json_weigh(const char *p, size_t n, size_t *containers, size_t *values)
{
	struct weighing w = { .values = 1 };

	for (size_t i = 0; i < n && allowance_spend(0); i += ALLOWANCE_PIECE)
		weigh_piece(&w, p + i, n - i < ALLOWANCE_PIECE ? n - i : ALLOWANCE_PIECE);
	*containers = w.containers;
	*values = w.values;
}

static struct json *parse_text(const char *p, size_t n, int depth_max, bool python, struct err *err);

static struct json *parse(const char *p, size_t n, int depth_max, bool python, struct err *err)
{
	struct json *root;
	struct buf b;
	size_t at;

	if (n >= 3 && !memcmp(p, "\xEF\xBB\xBF", 3)) {
		p += 3;
		n -= 3;
	}
	if (n > JSON_BYTES_MAX) {
		err_set(err, E_LIMIT, "JSON of %zu bytes: more than %d", n, JSON_BYTES_MAX);
		return NULL;
	}
	if (allowance_on()) {
		size_t containers, values;

		json_weigh(p, n, &containers, &values);
		if (!allowance_read(containers, values) || !allowance_spend(n / 4 + 5 * values)) {
			err_set(err, E_LIMIT, "JSON of %zu arrays and objects and %zu values: %s", containers, values,
			        allowance_why());
			return NULL;
		}
	}
	if ((at = utf8_valid_piecewise(p, n)) < n) {
		err_set(err, E_FORMAT, "JSON: invalid UTF-8 at byte %zu", at);
		return NULL;
	}
	buf_init(&b);
	if (!write_out(p, n, &b))
		root = parse_text(p, n, depth_max, python, err);
	else if (!(root = parse_text(b.p, b.n, depth_max, python, err)) && !allowance_why() && allowance_spend(n / 4))
		root = parse_text(p, n, depth_max, python, err); /* for the error's place in the text as it came */
	buf_fini(&b);
	return root;
}

struct json *json_parse(const char *p, size_t n, int depth_max, struct err *err)
{
	return parse(p, n, depth_max, false, err);
}

struct json *json_parse_python(const char *p, size_t n, int depth_max, struct err *err)
{
	return parse(p, n, depth_max, true, err);
}

/* Bytes of p[0..n) to give the parser at once, so that a request whose client left ends soon.  The piece is cut
 * behind a comma where there is one, else between two characters: the parser checks UTF-8 call by call. */
static size_t piece_of(const char *p, size_t n)
{
	enum { NEAR = 4 << 10 };
	const char *comma;

	if (n > ALLOWANCE_PIECE && (comma = memrchr(p + ALLOWANCE_PIECE - NEAR, ',', NEAR)))
		return (size_t)(comma - p) + 1;
	return utf8_piece(p, n, ALLOWANCE_PIECE);
}

/* A long string without escapes: where its inside begins, and its bytes. */
struct long_string {
	size_t at, n;
};

/* The first long string at or behind from, a place outside strings; at is n where there is none. */
static struct long_string next_long(const char *p, size_t n, size_t from)
{
	const char *quote;

	for (size_t i = from; i < n && (quote = memchr(p + i, '"', n - i)) && allowance_spend(0); i++) {
		size_t at = (size_t)(quote - p) + 1, run = plain_run(p + at, n - at);

		if (at + run < n && p[at + run] == '"' && run >= LONG)
			return (struct long_string){ at, run };
		for (i = at + run; i < n && p[i] != '"' && allowance_spend(0); i += plain_run(p + i, n - i))
			i += p[i] == '\\' && i + 1 < n ? 2 : 1;
	}
	return (struct long_string){ n, 0 };
}

/* Whether an allocation of json-c's failed while it read a text of n bytes.  It reads on then, as if there were null or
 * less text, and only errno tells, which malloc also sets where it fails at first and then finds memory elsewhere.  So
 * as much as the text can need at once is asked for: what failed would fail again. */
static bool failed_to_grow(size_t n)
{
	void *p;

	if (errno != ENOMEM)
		return false;
	p = try_malloc(2 * n + ALLOWANCE_PIECE);
	free(p);
	errno = 0;
	return !p;
}

/* *end: bytes that were read; *full: there was no memory.  json_tokener_continue: the text ends, or the allowance does,
 * before the value.
 *
 * json-c looks at each byte of a string, at 10 ns a byte: for an image of 3 MB that is longer than a step of most
 * models. So it is given what precedes a long string, and the string is copied to where json-c gathers the one that it
 * is in. */
static struct json_object *feed(struct json_tokener *tok, const char *p, size_t n, size_t *end, bool *full)
{
	struct long_string s = next_long(p, n, 0);
	struct json_object *root = NULL;

	errno = 0;
	*full = false;
	for (*end = 0; *end < n && allowance_spend(1);) {
		size_t k = piece_of(p + *end, s.at - *end);

		root = json_tokener_parse_ex(tok, p + *end, (int)k);
		if ((*full = failed_to_grow(n)))
			return root;
		if (json_tokener_get_error(tok) != json_tokener_continue) {
			*end += json_tokener_get_parse_end(tok);
			return root;
		}
		*end += k;
		if (*end < s.at || !s.n)
			continue;
		if ((*full = printbuf_memappend(tok->pb, p + s.at, (int)s.n) < 0))
			return root;
		*end += s.n;
		s = next_long(p, n, *end + 1);
	}
	return root;
}

/* The allowance said no while a text of n bytes was read. */
static struct json *ended(struct json_object *root, size_t n, struct err *err)
{
	if (root)
		json_free((struct json *)root);
	err_set(err, E_LIMIT, "JSON of %zu bytes: %s", n, allowance_why());
	return NULL;
}

/* Takes BEYOND off the numbers of a value that were read with it. */
static void take_off(struct json_object *o)
{
	char *text;
	size_t n;

	if (!o || !allowance_spend(1))
		return;
	switch (json_object_get_type(o)) {
	case json_type_double:
		text = json_object_get_userdata(o);
		n = text ? strlen(text) : 0;
		if (n > strlen(BEYOND) && !strcmp(text + n - strlen(BEYOND), BEYOND) && !strpbrk(text, ".E"))
			text[n - strlen(BEYOND)] = 0;
		break;
	case json_type_array:
		for (size_t i = 0; i < json_object_array_length(o); i++)
			take_off(json_object_array_get_idx(o, i));
		break;
	case json_type_object:
		for (struct lh_entry *e = lh_table_head(json_object_get_object(o)); e; e = lh_entry_next(e))
			take_off((struct json_object *)lh_entry_v(e));
		break;
	default: break;
	}
}

/* Reads a text again whose integers beyond 64 bits are marked. */
static struct json *parse_marked(struct buf *marked, int depth_max, bool python, struct err *err)
{
	struct json *root = NULL;

	if (allowance_spend(marked->n / 4))
		root = parse_text(marked->p, marked->n, depth_max, python, err);
	else
		ended(NULL, marked->n, err);
	if (root && !is_null(root))
		take_off(raw(root));
	return root;
}

static struct json *parse_text(const char *p, size_t n, int depth_max, bool python, struct err *err)
{
	struct json_tokener *tok;
	struct buf beyond;
	size_t copied = 0;
	struct json_object *root;
	enum json_tokener_error e;
	const char *why = "";
	size_t at, end;
	bool full;

	tok = json_tokener_new_ex(depth_max > 0 ? depth_max : DEPTH_DEFAULT);
	if (!tok)
		fault_no_memory();
	json_tokener_set_flags(tok, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	root = feed(tok, p, n, &end, &full);
	if (full) {
		json_object_put(root);
		json_tokener_free(tok);
		fault_no_memory();
	}
	e = n ? json_tokener_get_error(tok) : json_tokener_continue;
	if (e == json_tokener_continue && end == n && n) {
		/* A bare number ends only at a byte that cannot belong to it. */
		root = json_tokener_parse_ex(tok, "\n", 1);
		e = json_tokener_get_error(tok);
	}
	json_tokener_free(tok);
	if (allowance_why())
		return ended(root, n, err);
	if (e != json_tokener_success) {
		json_object_put(root);
		if (e == json_tokener_continue || !n)
			err_set(err, E_FORMAT, "JSON: ends after %zu bytes, before the value is complete", n);
		else
			err_set(err, E_FORMAT, "JSON: %s at byte %zu", json_tokener_error_desc(e), end);
		return NULL;
	}
	buf_init(&beyond);
	if ((at = refused_at(p, n, python, &why, &beyond, &copied)) < n) {
		buf_fini(&beyond);
		json_object_put(root);
		err_set(err, E_FORMAT, "JSON: %s, at byte %zu", why, at);
		return NULL;
	}
	for (; end < n && (end % ALLOWANCE_PIECE || allowance_spend(0)); end++) {
		if (!strchr(" \t\r\n", p[end])) {
			buf_fini(&beyond);
			json_object_put(root);
			err_set(err, E_FORMAT, "JSON: unexpected bytes after the value, at byte %zu", end);
			return NULL;
		}
	}
	if (copied && !allowance_why()) {
		struct json *again;

		json_object_put(root);
		buf_put(&beyond, p + copied, n - copied);
		again = parse_marked(&beyond, depth_max, python, err);
		buf_fini(&beyond);
		return again;
	}
	buf_fini(&beyond);
	if (allowance_why())
		return ended(root, n, err);
	return (struct json *)(uintptr_t)present(root);
}

static void drop_object(void *o)
{
	json_object_put(o);
}

static bool is_container(struct json_object *o)
{
	return json_object_is_type(o, json_type_array) || json_object_is_type(o, json_type_object);
}

/* Owners of a container beyond the first, or more than there are: json-c does not tell its count, and an owner that
 * it frees by itself is not taken off. */
static uintptr_t more_owners(struct json_object *o)
{
	return (uintptr_t)json_object_get_userdata(o);
}

static void set_more_owners(struct json_object *o, uintptr_t n)
{
	json_object_set_userdata(o, (void *)n, NULL);
}

/* Frees what is in an array or an object, but for what another owner has.  False: the allowance said no, and some is
 * left. */
static bool empty(struct json_object *o)
{
	struct lh_entry *e;

	if (is_container(o) && more_owners(o)) {
		set_more_owners(o, more_owners(o) - 1);
		return true;
	}
	if (json_object_is_type(o, json_type_array))
		for (size_t n = json_object_array_length(o); n; n--) {
			if (!allowance_spend(0) || !empty(json_object_array_get_idx(o, n - 1)))
				return false;
			json_object_array_del_idx(o, n - 1, 1);
		}
	else if (json_object_is_type(o, json_type_object))
		while ((e = lh_table_head(json_object_get_object(o)))) {
			if (!allowance_spend(0) || !empty((struct json_object *)lh_entry_v(e)))
				return false;
			lh_table_delete_entry(json_object_get_object(o), e);
		}
	return true;
}

void json_free(struct json *root)
{
	if (is_null(root))
		return;
	/* A text of two million values takes a tenth of a second to free. */
	if (allowance_on() && !empty(raw(root)) && allowance_free_later(drop_object, raw(root)))
		return;
	json_object_put(raw(root));
}

/* Whether a double stands for an integer beyond 64 bits. */
static bool is_beyond(struct json_object *o)
{
	const char *text = json_object_get_userdata(o);

	return text && !text[strspn(text, "-0123456789")];
}

enum json_kind json_kind(const struct json *j)
{
	if (is_null(j))
		return JSON_NULL;
	switch (json_object_get_type(raw(j))) {
	case json_type_boolean: return JSON_BOOL;
	case json_type_int: return JSON_INT;
	case json_type_double: return is_beyond(raw(j)) ? JSON_INT : JSON_DOUBLE;
	case json_type_string: return JSON_STRING;
	case json_type_array: return JSON_ARRAY;
	case json_type_object: return JSON_OBJECT;
	default: return JSON_NULL;
	}
}

const char *json_kind_name(enum json_kind t)
{
	static const char *const name[] = { "null", "boolean", "integer", "number", "string", "array", "object" };

	return name[t];
}

const struct json *json_get(const struct json *j, const char *key)
{
	struct json_object *v;

	if (json_kind(j) != JSON_OBJECT || !json_object_object_get_ex(raw(j), key, &v))
		return NULL;
	return present(v);
}

const struct json *json_at(const struct json *j, size_t i)
{
	if (json_kind(j) != JSON_ARRAY || i >= json_object_array_length(raw(j)))
		return NULL;
	return present(json_object_array_get_idx(raw(j), i));
}

size_t json_len(const struct json *j)
{
	if (json_kind(j) == JSON_ARRAY)
		return json_object_array_length(raw(j));
	if (json_kind(j) == JSON_OBJECT)
		return (size_t)json_object_object_length(raw(j));
	return 0;
}

struct json_cursor json_first(const struct json *j)
{
	struct lh_table *t;

	if (json_kind(j) != JSON_OBJECT)
		return (struct json_cursor){ 0 };
	t = json_object_get_object(raw(j));
	return (struct json_cursor){ lh_table_head(t) };
}

bool json_next(struct json_cursor *c, const char **key, const struct json **value)
{
	struct lh_entry *e = c->entry;

	if (!e)
		return false;
	*key = lh_entry_k(e);
	*value = present((struct json_object *)lh_entry_v(e));
	c->entry = lh_entry_next(e);
	return true;
}

int json_to_int(const struct json *j, int64_t *out)
{
	if (is_null(j) || !json_object_is_type(raw(j), json_type_int))
		return E_ARG;
	*out = json_object_get_int64(raw(j));
	return 0;
}

int json_to_whole(const struct json *j, int64_t *out)
{
	const double exact = 9007199254740992; /* 2^53: up to there each whole number is a double */
	double d;

	if (!json_to_int(j, out))
		return 0;
	if (json_to_double(j, &d) || !(d >= -exact && d <= exact) || d != (double)(int64_t)d)
		return E_ARG;
	*out = (int64_t)d;
	return 0;
}

int json_to_double(const struct json *j, double *out)
{
	enum json_kind t = json_kind(j);

	if (t != JSON_INT && t != JSON_DOUBLE)
		return E_ARG;
	*out = json_object_get_double(raw(j));
	return isfinite(*out) ? 0 : E_ARG;
}

int json_to_bool(const struct json *j, bool *out)
{
	if (json_kind(j) != JSON_BOOL)
		return E_ARG;
	*out = json_object_get_boolean(raw(j));
	return 0;
}

const char *json_str(const struct json *j, size_t *n)
{
	if (json_kind(j) != JSON_STRING)
		return NULL;
	if (n)
		*n = (size_t)json_object_get_string_len(raw(j));
	return json_object_get_string(raw(j));
}

const char *json_number_text(const struct json *j)
{
	enum json_kind t = json_kind(j);

	if (t != JSON_INT && t != JSON_DOUBLE)
		return NULL;
	return json_object_to_json_string_ext(raw(j), JSON_C_TO_STRING_PLAIN);
}

/* ---- building ---- */

static struct json *made(struct json_object *o)
{
	if (!o)
		fault_no_memory();
	return (struct json *)o;
}

struct json *json_new_object(void)
{
	return made(json_object_new_object());
}

struct json *json_new_array(void)
{
	return made(json_object_new_array());
}

struct json *json_new_str(const char *s, size_t n)
{
	return made(json_object_new_string_len(s, (int)n));
}

struct json *json_new_bytes(const char *s, size_t n)
{
	struct json *out;
	struct buf b;
	uint32_t cp;

	buf_init(&b);
	for (size_t i = 0; i < n && allowance_spend(1);) {
		size_t good = utf8_valid(s + i, n - i);

		buf_put(&b, s + i, good);
		i += good;
		if (i < n && !utf8_decode(s + i, n - i, &cp)) {
			buf_puts(&b, "\xEF\xBF\xBD");
			i++;
		}
	}
	out = json_new_str(b.p, b.n);
	buf_fini(&b);
	return out;
}

struct json *json_new_int(int64_t i)
{
	return made(json_object_new_int64(i));
}

struct json *json_share(const struct json *j)
{
	if (is_null(j))
		return (struct json *)(uintptr_t)JSON_NULL_VALUE;
	if (is_container(raw(j)))
		set_more_owners(raw(j), more_owners(raw(j)) + 1);
	return (struct json *)json_object_get(raw(j));
}

struct json *json_copy(const struct json *j)
{
	struct json_cursor c = json_first(j);
	struct json *out = json_kind(j) == JSON_ARRAY ? json_new_array() : json_new_object();
	const struct json *v;
	const char *key;

	for (size_t i = 0; json_kind(j) == JSON_ARRAY && i < json_len(j) && allowance_spend(0); i++)
		json_add(out, json_share(json_at(j, i)));
	while (json_next(&c, &key, &v) && allowance_spend(0))
		json_set(out, key, json_share(v));
	return out;
}

/* json-c's copy would refuse containers that have more owners. */
struct json *json_copy_whole(const struct json *j)
{
	struct json_cursor c = json_first(j);
	enum json_kind kind = json_kind(j);
	struct json_object *leaf = NULL;
	const struct json *v;
	struct json *out;
	const char *key;

	if (kind != JSON_ARRAY && kind != JSON_OBJECT) {
		if (!is_null(j) && json_object_deep_copy(raw(j), &leaf, NULL))
			fault_no_memory();
		return (struct json *)(uintptr_t)present(leaf);
	}
	out = kind == JSON_ARRAY ? json_new_array() : json_new_object();
	for (size_t i = 0; kind == JSON_ARRAY && i < json_len(j) && allowance_spend(1); i++)
		json_add(out, json_copy_whole(json_at(j, i)));
	while (json_next(&c, &key, &v) && allowance_spend(1))
		json_set(out, key, json_copy_whole(v));
	return out;
}

void json_set(struct json *object, const char *key, struct json *value)
{
	if (json_object_object_add(raw(object), key, is_null(value) ? NULL : raw(value)))
		fault_no_memory();
}

void json_set_str(struct json *object, const char *key, const char *s, size_t n)
{
	json_set(object, key, json_new_str(s, n));
}

void json_set_cstr(struct json *object, const char *key, const char *s)
{
	json_set_str(object, key, s, strlen(s));
}

void json_set_bool(struct json *object, const char *key, bool value)
{
	json_set(object, key, made(json_object_new_boolean(value)));
}

void json_add(struct json *array, struct json *value)
{
	if (json_object_array_add(raw(array), is_null(value) ? NULL : raw(value)))
		fault_no_memory();
}

void json_set_at(struct json *array, size_t i, struct json *value)
{
	if (json_object_array_put_idx(raw(array), i, is_null(value) ? NULL : raw(value)))
		fault_no_memory();
}

void json_cut(struct json *array, size_t n)
{
	size_t len = json_len(array);

	if (n < len)
		json_object_array_del_idx(raw(array), n, len - n);
}

void json_drop(struct json *object, const char *key)
{
	json_object_object_del(raw(object), key);
}

static int wrong_type(const char *key, const char *want, const struct json *v, struct err *err)
{
	return err_set(err, E_FORMAT, "\"%s\": must be %s, is %s", key, want, json_kind_name(json_kind(v)));
}

int json_get_int(const struct json *j, const char *key, int64_t deflt, int64_t *out, struct err *err)
{
	const struct json *v = json_get(j, key);

	*out = deflt;
	if (is_null(v) || !json_to_whole(v, out))
		return 0;
	return wrong_type(key, "an integer", v, err);
}

int json_get_double(const struct json *j, const char *key, double deflt, double *out, struct err *err)
{
	const struct json *v = json_get(j, key);

	*out = deflt;
	if (is_null(v) || !json_to_double(v, out))
		return 0;
	return wrong_type(key, "a number", v, err);
}

int json_get_bool(const struct json *j, const char *key, bool deflt, bool *out, struct err *err)
{
	const struct json *v = json_get(j, key);

	*out = deflt;
	if (is_null(v) || !json_to_bool(v, out))
		return 0;
	return wrong_type(key, "true or false", v, err);
}

int json_get_str(const struct json *j, const char *key, const char *deflt, const char **out, struct err *err)
{
	const struct json *v = json_get(j, key);

	*out = deflt;
	if (is_null(v))
		return 0;
	if ((*out = json_str(v, NULL)))
		return 0;
	return wrong_type(key, "a string", v, err);
}

static void put_piece(struct buf *b, const char *s, size_t n)
{
	size_t start = 0, i = 0;
	uint32_t cp;

	while (i < n) {
		unsigned char c = (unsigned char)s[i];
		int len = utf8_decode(s + i, n - i, &cp);

		if (len && c >= 0x20 && c != '"' && c != '\\') {
			i += (size_t)len;
			continue;
		}
		buf_put(b, s + start, i - start);
		if (!len)
			buf_puts(b, "\xEF\xBF\xBD");
		else if (c == '"')
			buf_puts(b, "\\\"");
		else if (c == '\\')
			buf_puts(b, "\\\\");
		else if (c == '\n')
			buf_puts(b, "\\n");
		else if (c == '\r')
			buf_puts(b, "\\r");
		else if (c == '\t')
			buf_puts(b, "\\t");
		else
			buf_printf(b, "\\u%04x", c);
		i++;
		start = i;
	}
	buf_put(b, s + start, n - start);
}

void json_put_inside(struct buf *b, const char *s, size_t n)
{
	for (size_t k; n && allowance_spend(0); s += k, n -= k) {
		k = utf8_piece(s, n, ALLOWANCE_PIECE);
		put_piece(b, s, k);
	}
}

void json_put_str(struct buf *b, const char *s, size_t n)
{
	buf_putc(b, '"');
	json_put_inside(b, s, n);
	buf_putc(b, '"');
}

void json_put_cstr(struct buf *b, const char *s)
{
	json_put_str(b, s, strlen(s));
}

void json_put_double(struct buf *b, double v)
{
	char t[40];

	if (!isfinite(v)) {
		buf_puts(b, "null");
		return;
	}
	for (int digits = 15; digits <= 17; digits++) {
		snprintf(t, sizeof t, "%.*g", digits, v);
		if (strtod(t, NULL) == v)
			break;
	}
	buf_puts(b, t);
}

void json_put(struct buf *b, const struct json *j)
{
	struct json_cursor c;
	const struct json *v;
	const char *key, *s;
	bool flag = false, first = true;
	size_t n;

	if (!allowance_spend(1))
		return;
	switch (json_kind(j)) {
	case JSON_NULL: buf_puts(b, "null"); break;
	case JSON_BOOL:
		json_to_bool(j, &flag);
		buf_puts(b, flag ? "true" : "false");
		break;
	case JSON_INT:
	case JSON_DOUBLE: buf_puts(b, json_number_text(j)); break;
	case JSON_STRING:
		s = json_str(j, &n);
		json_put_str(b, s, n);
		break;
	case JSON_ARRAY:
		buf_putc(b, '[');
		for (size_t i = 0; i < json_len(j) && !allowance_why(); i++) {
			if (i)
				buf_putc(b, ',');
			json_put(b, json_at(j, i));
		}
		buf_putc(b, ']');
		break;
	case JSON_OBJECT:
		buf_putc(b, '{');
		for (c = json_first(j); !allowance_why() && json_next(&c, &key, &v); first = false) {
			if (!first)
				buf_putc(b, ',');
			json_put_cstr(b, key);
			buf_putc(b, ':');
			json_put(b, v);
		}
		buf_putc(b, '}');
		break;
	}
}
