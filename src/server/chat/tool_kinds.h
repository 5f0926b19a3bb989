/* tool_kinds.h - tools that are not functions: made functions for the model, and turned back for the client.
 *
 * A custom tool takes free text: the model sees a function with one string, "input".  A namespace holds functions: each
 * is one of its own, whose name begins with the namespace's.  A search for tools that the client runs is a function
 * called tool_search.  What only the API's provider could run (web search, MCP servers, shells) is left out, and told. */
#ifndef SERVER_TOOL_KINDS_H
#define SERVER_TOOL_KINDS_H

#include "server/chat/fields.h"

enum tool_form { TOOL_FUNCTION, TOOL_CUSTOM, TOOL_SEARCH };

struct tool_kind {
	char *name;        /* as the model sees it */
	char *own, *space; /* as the client does; space NULL: no namespace */
	enum tool_form form;
};

struct tool_kinds {
	struct tool_kind
		*kind; /* [n]; plain functions are in it only where a tool of another kind had their name before */
	int n;
};

void tool_kinds_fini(struct tool_kinds *k);
/* The kind of the tool that the model calls so; NULL: a plain function. */
const struct tool_kind *tool_kinds_find(const struct tool_kinds *k, const char *name, size_t n);

/* Add the tools of a request to the array out, as functions in the form of chat completions, and tell what is left out.  Return 0 or
 * *p's status.  Schemas are checked later (tools_check). */
int tools_of_chat(const struct json *tools, struct tool_kinds *k, struct warnings *w, struct json *out,
                  struct problem *p);
/* Tools come in the body, and in items of the input: additional_tools, and what a search for tools found
 * (tools_in_item).  kept is an array of such items of the responses that this one goes on from.  The body's tools come
 * first.  A tool that comes again in a later item takes the place of the first of its name. */
int tools_of_responses(const struct json *tools, const struct json *kept, const struct json *input,
                       struct tool_kinds *k, struct warnings *w, struct json *out, struct problem *p);
/* The tools that an item of /v1/responses brings; NULL: it is of another type, or brings none. */
const struct json *tools_in_item(const struct json *item);
int tools_of_messages(const struct json *tools, struct warnings *w, struct json *out, struct problem *p);

/* The name of a function in a namespace (NULL: in none) as the model sees it. */
void tool_flat_name(const char *space, const char *name, struct buf *out);
/* The arguments that stand for a custom tool's input, a string; to be freed. */
struct json *tool_arguments(const struct json *input);
/* And back, from what the model wrote, which ends early if the call broke off. */
void tool_get_input(const char *arguments, size_t n, struct buf *out);

/* The functions of list that may be called, as grammars want them: a function without parameters, in whatever spelling,
 * takes none at all; allowed: an array of those that may be, in any API's form; NULL: all may.  An array, to be freed. */
struct json *tools_callable(const struct json *list, const struct json *allowed, const struct tool_kinds *k);

#endif
