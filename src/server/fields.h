/* fields.h - reading a request's JSON with messages that say field, expected, found.
 *
 * Every reader leaves *out alone when the field is absent or null, returns 0, or
 * fills *p with a 400 and returns its status. */
#ifndef SERVER_FIELDS_H
#define SERVER_FIELDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "server/problem.h"

/* What is known of a top-level field.  neutral NULL: it is honoured (or harmless)
 * whatever it says.  Else the field is not supported, and only these values, JSON
 * texts between '|', may stand there: they ask for nothing.  null always may. */
struct field {
	const char *name, *neutral;
	const char *hint; /* NULL, or what to do instead */
};

/* Checks every member of object, which is the body (at NULL) or what stands there at
 * that path, against the tables (each ends with name NULL).  Names in none of them go
 * to unknown. */
int fields_check(const struct json *object, const char *at, const struct field *const *tables, struct buf *unknown,
                 struct problem *p);
/* Appends a name (at as above) to what is told of unknown ones, separated by ", ". */
void field_unknown(struct buf *unknown, const char *at, const char *name);

int field_bool(const struct json *body, const char *name, bool *out, struct problem *p);
int field_int(const struct json *body, const char *name, int64_t min, int64_t max, int64_t *out,
              struct problem *p); /* 5.0 is one */
int field_number(const struct json *body, const char *name, double min, double max, double *out, struct problem *p);
/* The value of that kind, or NULL when absent or null. */
int field_value(const struct json *body, const char *name, enum json_kind kind, const struct json **out,
                struct problem *p);

/* "name must be EXPECTED; found FOUND", a 400.  name may be a path. */
int field_wrong(struct problem *p, const char *name, const char *expected, const struct json *found);

/* Parses a body; refuses one that would need far more memory than it has bytes.
 * NULL with *p filled, or an object to be freed with json_free. */
struct json *body_parse(const char *bytes, size_t n, struct problem *p);

#endif
