/* json.h - JSON values read from outside bytes, and JSON written.
 *
 * The parser is json-c behind this header; nothing else in the tree includes
 * json-c.  What the wrapper adds: a size, depth and UTF-8 check, an error with
 * the byte offset, refusal of NaN, Infinity and trailing bytes, the source text
 * of numbers (a chat template must print 1.0 as 1.0), and integers of any size: one
 * beyond 64 bits is a JSON_INT that json_to_int refuses, that json_to_double rounds
 * and whose digits json_number_text has.  A byte order mark in front is left out.  Objects keep their order; of a
 * repeated key the last value counts. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* Limits of one text of a request (allowance.h).  A value costs up to some hundred bytes of memory and may
 * have been two bytes of JSON, so both are bounded: some 100 MB each at most.  A token array of a million ids,
 * or fifty thousand messages, still fit. */
enum {
	JSON_CONTAINERS_MAX = 200 << 10,
	JSON_VALUES_MAX = 2 << 20,
	JSON_BYTES_MAX = 1 << 30, /* of any text */
};

struct json; /* a value; lives as long as its root */

enum json_kind { JSON_NULL, JSON_BOOL, JSON_INT, JSON_DOUBLE, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

/* Parses one value from p[0..n).  depth_max counts nested containers (0: 64).
 * Returns the root, to be freed with json_free, or NULL with err set; the
 * message names the byte offset. */
struct json *json_parse(const char *p, size_t n, int depth_max, struct err *err);
/* json_parse for files that Python wrote: Infinity and NaN are numbers too. */
struct json *json_parse_python(const char *p, size_t n, int depth_max, struct err *err);
/* Arrays and objects, and values, of a text, counted without parsing it. */
void json_weigh(const char *p, size_t n, size_t *containers, size_t *values);
void json_free(struct json *root);

enum json_kind json_kind(const struct json *j); /* NULL reads as JSON_NULL */
const char *json_kind_name(enum json_kind t);   /* "null", "boolean", "integer" ... */

/* Members and elements: NULL when absent, or when j is not of that kind. */
const struct json *json_get(const struct json *j, const char *key);
const struct json *json_at(const struct json *j, size_t i);
size_t json_len(const struct json *j); /* elements or members; 0 otherwise */

/* The i-th member in source order is reached by a cursor, in constant time. */
struct json_cursor {
	void *entry;
};
struct json_cursor json_first(const struct json *object);
bool json_next(struct json_cursor *c, const char **key, const struct json **value);

/* json_to_int for numbers that people and other languages wrote: 3.0 and 3e0 are 3 too, up to 2^53. */
int json_to_whole(const struct json *j, int64_t *out);
/* Scalars: 0, or E_ARG when the value is of another type (or out of range). */
int json_to_int(const struct json *j, int64_t *out);   /* integers only; 3.0 is not one */
int json_to_double(const struct json *j, double *out); /* integer or double */
int json_to_bool(const struct json *j, bool *out);
/* A string's bytes (valid UTF-8, may hold 0) and length; NULL for other types. */
const char *json_str(const struct json *j, size_t *n);
/* A number exactly as the source wrote it ("1.0", "1e3"); NULL for other types. */
const char *json_number_text(const struct json *j);

/* Convenience for configs: the value, or the default when the key is absent or
 * null.  A present value of another type is an error naming the key. */
int json_get_int(const struct json *j, const char *key, int64_t deflt, int64_t *out, struct err *err);
int json_get_double(const struct json *j, const char *key, double deflt, double *out, struct err *err);
int json_get_bool(const struct json *j, const char *key, bool deflt, bool *out, struct err *err);
int json_get_str(const struct json *j, const char *key, const char *deflt, const char **out, struct err *err);

/* Building.  json_set, json_add, json_set_at, json_cut and json_drop change a value that json_parse, json_new_... or
 * json_copy gave, and that has one owner.  Values are shared and not copied: each json_share is one more owner, which
 * frees it (or gives it to json_set or json_add), and the owners of one value belong to one thread at a time. */
struct json *json_new_object(void);
struct json *json_new_array(void);
struct json *json_new_str(const char *s, size_t n);   /* s[0..n) is UTF-8 */
struct json *json_new_bytes(const char *s, size_t n); /* bytes that are not UTF-8 become U+FFFD */
struct json *json_new_int(int64_t i);
struct json *json_share(const struct json *j);
/* An object or array of its own with the members of j, which are shared.  Under an allowance that says no, some are
 * missing, as of a text. */
struct json *json_copy(const struct json *j);
/* A value that shares nothing with j: for what other threads read too.  As json_copy under an allowance. */
struct json *json_copy_whole(const struct json *j);
/* Each takes value over.  A member that is there already keeps its place. */
void json_set(struct json *object, const char *key, struct json *value);
void json_set_str(struct json *object, const char *key, const char *s, size_t n);
void json_set_cstr(struct json *object, const char *key, const char *s);
void json_set_bool(struct json *object, const char *key, bool value);
void json_add(struct json *array, struct json *value);
void json_set_at(struct json *array, size_t i, struct json *value); /* i < json_len */
void json_cut(struct json *array, size_t n);                        /* leaves the first n elements */
void json_drop(struct json *object, const char *key);

/* Writing.  Under an allowance (allowance.h) that says no, texts end anywhere: they are JSON no more, and no one
 * waits for them.  json_put_str quotes and escapes s[0..n), which must be UTF-8; bytes
 * that are not become U+FFFD.  json_put_double writes the shortest text that
 * reads back the same, null for NaN and infinities. */
void json_put_str(struct buf *b, const char *s, size_t n);
/* Appends s[0..n), whole characters, as the inside of a JSON string: escaped, without quotes. */
void json_put_inside(struct buf *b, const char *s, size_t n);
void json_put_cstr(struct buf *b, const char *s);
void json_put_double(struct buf *b, double v);
void json_put(struct buf *b, const struct json *j); /* any value, compact, numbers as in the source */

#endif
