/* structured.h - answers held to a form (a JSON schema, rules, an expression): what a request says of it, and the
 * constraint that the engine is given (text/grammar/constraint.h). */
#ifndef SERVER_STRUCTURED_H
#define SERVER_STRUCTURED_H

#include "server/chat/generate.h"

/* {"type": "text" | "json_object" | "json_schema" | "grammar", ...} in the form of chat
 * completions (json_schema: {schema}) or responses (schema next to type).  field is
 * what errors call it.  Sets g->held.content. */
int structured_format(struct generation *g, const struct json *format, const char *field, struct problem *p);

/* response_format, and what other servers have, out of a body: the fields of form_fields,
 * which must come before params_fields in an endpoint's tables. */
extern const struct field form_fields[];
int structured_fields(struct generation *g, const struct json *body, struct problem *p);

/* Calls are held to the schemas of the functions in tools, where the form that the model was taught is one that can be:
 * sets g->held.calls.  only: the one that may be called, or NULL; must: one must be. */
int structured_calls(struct generation *g, const struct json *tools, const char *only, bool must, struct problem *p);

/* For one choice, with the tokens that end it; NULL: its answer is free. */
struct mask_source *structured_mask(const struct generation *g, const int32_t *end, int n_end);

#endif
