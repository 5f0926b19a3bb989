/* chat.h - what the endpoints that answer conversations share: from messages,
 * tools and wishes about thinking to a prompt and what the answer begins with;
 * and the pieces of an answer as they are sent. */
#ifndef SERVER_CHAT_H
#define SERVER_CHAT_H

#include "server/chat/generate.h"
#include "text/calls/dialect.h"

enum tool_use { TOOLS_AUTO, TOOLS_NONE, TOOLS_ANY, TOOLS_NAMED };

/* Fields of a chat request, as an API reads them from the body.  Pointers are into g->body. */
struct chat {
	struct json *messages;    /* array of its own, as messages_normal leaves it; chat_render changes it */
	int n_message;            /* once it was rendered */
	const struct json *tools; /* array in the OpenAI API's form; NULL: none */
	enum tool_use use;
	const char *named;          /* of TOOLS_NAMED */
	const struct json *allowed; /* array of the tools that may be called; NULL: all may */
	const struct json *kwargs;  /* variables of the template, over all else; NULL: none */
	const char *effort;         /* "none" "minimal" "low" "medium" "high" "xhigh" "max"; NULL: not said */
	int think;                  /* 1 yes, 0 no, -1 as the template has it */
	int64_t budget;             /* tokens of thought; -1: no bound */
	bool add_generation_prompt;
	bool go_on;    /* the last message is the assistant's, and the answer is the rest of it */
	char *prefill; /* text of that message, once it was rendered, or NULL */
	/* Names of the fields in error messages. */
	const char *tool_choice_field, *effort_field, *budget_field;
};

/* The template that will show the request, whose tools and tool_choice are read; NULL: the model has none. */
static inline const struct template *chat_template(const struct generation *g, const struct chat *c)
{
	return served_template(g->served, c->use != TOOLS_NONE && json_len(c->tools));
}

/* In the OpenAI API's names. */
void chat_init(struct chat *c);
void chat_fini(struct chat *c);

/* Fills g->prompts.of[0], marks, tools, dialects and lead. */
int chat_prompt(struct generation *g, struct chat *c, struct problem *p);
/* tool_choice, in the form of chat completions or of the Responses API. */
int chat_choice(struct chat *c, const struct json *v, struct problem *p);
/* The prompt's text alone, for those who want to see it. */
int chat_text(struct generation *g, struct chat *c, struct buf *out, struct problem *p);

/* An endpoint's body, which is taken over as g->body: checks that its names are in the tables, has read fill *c (and g->params),
 * then make the prompt of it. */
typedef int chat_step(struct generation *g, struct chat *c, struct problem *p);
int chat_body(struct generation *g, struct json *body, const struct field *const *tables, chat_step *read,
              chat_step *make, struct problem *p);
/* Tells of items of the type "compaction" in an array, or no array, of the field `at`: a history that another server made
 * shorter, and encrypted, is missing from what the model reads. */
void chat_tell_compaction(struct generation *g, const struct json *items, const char *at);
/* The OpenAI API's body: g->body is read into *c and g->params. */
chat_step chat_read;
extern const struct field chat_fields[];

/* ---- the answer ---- */

/* Steps of struct endpoint that all of them share. */
void chat_open(struct generation *g, struct choice *c);
void chat_token(struct generation *g, struct choice *c, const struct event *ev);
void chat_end(struct generation *g, struct choice *c);

/* Appends a token and its alternatives to an array of logprobs. */
void chat_logprob(const struct generation *g, const struct event *ev, struct buf *out);

/* The next stretch of the answer that was not told yet: false when there is none.
 * *begins: it is the first of its piece. */
bool chat_next(struct choice *c, struct piece *out, bool *begins);
/* The id of the k-th call of this answer, made when it is first asked for. */
const char *chat_call_id(struct choice *c, int k);
/* Did the answer end because it calls functions? */
bool chat_calls(const struct choice *c);

#endif
