/* fields.h - reading a request's JSON with messages that say field, expected, found.
 *
 * Every reader leaves *out alone when the field is absent or null, returns 0, or
 * fills *p with a 400 and returns its status. */
#ifndef SERVER_FIELDS_H
#define SERVER_FIELDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "server/http/problem.h"

/* Treatment of a field that clients send.  A field that asks for less, or for another service around the same answer, is
 * ignored with a warning; a field that would change the text is honoured or refused by name; an unknown field is treated
 * as an ignored one, never better than a known one. */
enum field_rule {
	FIELD_HONOURED, /* it is read, or changes nothing that a client could see */
	FIELD_REFUSED,  /* a 400 that names it */
	FIELD_IGNORED,  /* told in the warnings; a 400 with --strict */
	FIELD_SYNONYM,  /* another name of the field `hint`, and read as that */
};

/* Kinds of values, as a set. */
enum {
	TAKES_BOOL = 1,
	TAKES_NUMBER = 2,
	TAKES_STRING = 4,
	TAKES_ARRAY = 8,
	TAKES_OBJECT = 16,
};

/* One field.  neutral: JSON texts between '|' that ask for nothing, so that rule does not apply; null never asks for
 * anything.  NULL: every value counts as honoured, unless a rule is given. */
struct field {
	const char *name, *neutral;
	const char *hint;     /* NULL, or what to do instead */
	enum field_rule rule; /* 0 with neutral: FIELD_REFUSED */
	int takes;            /* kinds that fields_check lets through; 0: whatever reads the field checks its kind */
};
#define IGNORED(name, neutral)                     \
	{                                          \
		name, neutral, NULL, FIELD_IGNORED \
	}
#define SYNONYM(name, of)                     \
	{                                     \
		name, NULL, of, FIELD_SYNONYM \
	}

/* A field that is read by nothing, or not wherever its name is known: its value is of one of these kinds, or a 400. */
#define TAKEN(name, kinds)                                \
	{                                                 \
		name, NULL, NULL, FIELD_HONOURED, (kinds) \
	}

/* Names that other servers have for the limit of an answer's tokens; `name` is the API's own. */
#define OTHER_LIMITS(name) SYNONYM("max_new_tokens", name), SYNONYM("num_predict", name), SYNONYM("n_predict", name)

/* Warnings that a reply carries about its request: names of fields, separated by ", ". */
struct warnings {
	struct buf unknown, ignored, tools; /* fields, fields, kinds of tools that were left out */
	struct buf let_go;                  /* tools whose parameters calls are not held to */
	struct buf renamed;                 /* "NAME\0SYNONYM\0" of each field that came under another name */
};
void warnings_init(struct warnings *w);
void warnings_fini(struct warnings *w);
bool warnings_some(const struct warnings *w);
/* Appends "unknown fields: ...; ignored fields: ...; tools left out: ...; parameters not held: ...", fit for a header;
 * nothing when there are none. */
void warnings_put(const struct warnings *w, struct buf *out);
/* Appends a name to one of the lists, once.  at: the path of the object it stands in, or NULL. */
void warnings_add(struct buf *list, const char *at, const char *name);

/* Checks every member of object, which is the body (at NULL) or the value at that path of it, against the tables
 * (each ends with name NULL). */
int fields_check(const struct json *object, const char *at, const struct field *const *tables, struct warnings *w,
                 struct problem *p);
/* Replaces synonyms by the names that are read, and checks the fields.  Takes body, which body_parse made.  Returns the
 * object, to be freed with json_free, or NULL with *p filled.  A synonym given with the field's own name, or another synonym of
 * it, with another value is an ignored field. */
struct json *body_check(struct json *body, const struct field *const *tables, struct warnings *w, struct problem *p);
/* Tells of a field that is read as another: an error names it as it was written. */
void warnings_rename(struct warnings *w, const char *read, const char *written);
/* Makes *p name a field as the client wrote it, where body_check replaced a synonym. */
void fields_own_name(const struct warnings *w, struct problem *p);

int field_bool(const struct json *body, const char *name, bool *out, struct problem *p);
int field_int(const struct json *body, const char *name, int64_t min, int64_t max, int64_t *out,
              struct problem *p); /* 5.0 is one */
int field_number(const struct json *body, const char *name, double min, double max, double *out, struct problem *p);
/* The value of that kind, or NULL when absent or null. */
int field_value(const struct json *body, const char *name, enum json_kind kind, const struct json **out,
                struct problem *p);

/* Checks the kind (TAKES_...) of a member of the object at that path, which is NULL for the body itself. */
int field_takes(const struct json *object, const char *at, const char *name, int kinds, struct problem *p);

/* "name must be EXPECTED; found FOUND", a 400.  name may be a path. */
int field_wrong(struct problem *p, const char *name, const char *expected, const struct json *found);

/* Parses a body; refuses one that would need far more memory than it has bytes.
 * NULL with *p filled, or an object to be freed with json_free. */
struct json *body_parse(const char *bytes, size_t n, struct problem *p);

#endif
