/* roles.h - which turns a model's chat template takes, and conversations made to fit it.
 *
 * Clients put system messages anywhere, send several calls in one message, name calls as they like.  Many templates
 * refuse that, or leave it out of the prompt without a word.  Each template is tried once with small conversations;
 * then every conversation is rewritten to what it takes.  docs/roles.md says what becomes what, and why.
 *
 * A message is rewritten in its place, as a function of itself and of the messages before it, so that a prompt is
 * still the beginning of the next request's. */
#ifndef SERVER_ROLES_H
#define SERVER_ROLES_H

#include <stdbool.h>

#include "base/json.h"
#include "server/server.h"

/* Roles and orders of messages that the template accepts. */
struct roles {
	bool system;          /* a system message at the beginning */
	bool several;         /* more than one of them there */
	bool later;           /* one further on, in its place */
	bool repeat;          /* two messages of the user in a row */
	bool after_tool;      /* a message of the user after a tool's result */
	bool after_assistant; /* two messages of the assistant in a row */
	bool calls;           /* several calls in one message */
	bool text_arguments;  /* a call's arguments as text */
	bool long_ids;        /* ids of calls that have not nine letters or digits */
	bool thinking;        /* a thought is looked for under "thinking", not "reasoning_content" */
};

/* Tries the template of d for requests that show tools, or for those that show none; there must be one. */
void roles_try(struct roles *r, const struct served *d, bool tools);

/* An array of messages in the normal form of messages.h as the template takes it, to be freed.  Shares what is not
 * changed. */
struct json *roles_fit(const struct roles *r, const struct json *messages);

#endif
