/* chat_steps.h - the steps from a conversation to its prompt, in the order in which chat.c calls them.
 *
 * Every step returns 0, or fills *p and returns its status.  Worker threads. */
#ifndef SERVER_CHAT_STEPS_H
#define SERVER_CHAT_STEPS_H

#include "server/chat/chat.h"

/* chat_tools.c: sets g->tools.list, and *shown to the tools that the template sees (NULL: none). */
int chat_use_tools(struct generation *g, struct chat *c, const struct json **shown, struct problem *p);
/* The tokens that the answer is made to say: the end of a thought that is too long, the beginning of a call. */
int chat_set_lead(struct generation *g, const struct chat *c, struct problem *p);

/* chat_render.c: the prompt's text.  Calls chat_use_tools, whose result the template sees. */
int chat_render(struct generation *g, struct chat *c, struct prompt *out, struct problem *p);
/* Does a text that an answer goes on from end inside of a thought? */
bool chat_in_thought(const struct speech *how, const char *text);

#endif
