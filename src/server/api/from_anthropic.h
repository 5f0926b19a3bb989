/* from_anthropic.h - conversations in Anthropic's form, turned into the OpenAI API's,
 * which is what templates want. */
#ifndef SERVER_FROM_ANTHROPIC_H
#define SERVER_FROM_ANTHROPIC_H

#include "base/json.h"
#include "server/chat/fields.h"
#include "server/images/images.h"

/* system and messages of body, as one array in the form of messages_normal.  Blocks
 * of text are joined; thinking becomes reasoning_content, tool_use tool_calls, and
 * each tool_result a message of the role tool.  Images become marks (images.h). */
int anthropic_messages(const struct json *body, struct json *out, struct images *im, struct problem *p);

#endif
