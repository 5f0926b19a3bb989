/* from_responses.h - conversations in the form of the Responses API, turned into
 * messages, which is what templates want. */
#ifndef SERVER_FROM_RESPONSES_H
#define SERVER_FROM_RESPONSES_H

#include "base/json.h"
#include "server/images/images.h"
#include "server/http/problem.h"

/* input, a string or an array of items, added to the array out as messages.  Consecutive items of the assistant (reasoning, text, calls) become one message.
 * Calls of custom tools have their input as the one argument; calls that the API's provider ran are calls like any
 * other, with their result.  Images become marks (images.h). */
int responses_input(const struct json *input, struct images *im, struct json *out, struct problem *p);

#endif
