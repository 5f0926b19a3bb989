/* shown_tools.h - tools made to fit a model's chat template.
 *
 * Clients, MCP's among them, declare functions without a description, without parameters, or with parameters that
 * name no properties.  Some templates refuse such a function, or read members that it lacks.  Each template is tried
 * once with small functions; then every function gets what the template wants and it lacks, as an empty text or an
 * empty object.  A template that takes everything is shown each function as the client declared it. */
#ifndef SERVER_SHOWN_TOOLS_H
#define SERVER_SHOWN_TOOLS_H

#include <stdbool.h>

#include "base/json.h"
#include "server/server.h"

/* Properties that the template requires of a function's description. */
struct tool_needs {
	bool no_null;          /* that its description is not null: it is left out */
	bool description;      /* a description */
	bool parameters;       /* parameters that are an object with "properties" */
	bool property_details; /* a description of each property, and which of them are required */
};

/* Tries the template of d for requests with tools; there must be one. */
void tool_needs_try(struct tool_needs *needs, const struct served *d);

/* An array of functions in the form of chat.completions, with what they lack.  The caller frees it.  NULL: the
 * template wants nothing that they may lack, and the array is shown as it is. */
struct json *tools_fit(const struct tool_needs *needs, const struct json *tools);

#endif
