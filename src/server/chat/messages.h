/* messages.h - the messages and tools of a chat, checked, in the form templates want. */
#ifndef SERVER_MESSAGES_H
#define SERVER_MESSAGES_H

#include "base/json.h"
#include "server/images/images.h"
#include "server/http/problem.h"

/* Checks an array of OpenAI messages and appends its normal form to out, as JSON:
 * text parts are joined to one string, a content that is null or absent becomes
 * "", the role developer becomes system, arguments of tool calls that are JSON
 * objects in a string become objects (templates walk through them), an assistant's
 * thought becomes reasoning_content by whatever name it came.  Members
 * that we do not know go to the template as they are.  Images of the user become marks
 * (images.h). */
int messages_normal(const struct json *messages, struct images *im, struct buf *out, struct problem *p);

/* Appends an assistant's message in the normal form; thinking and calls (a list without brackets) are left out where they are
 * empty. */
void message_put_assistant(struct buf *out, const struct buf *content, const struct buf *thinking,
                           const struct buf *calls);

/* Checks an array of tools: each {"type": "function", "function": {"name": ...}}. */
int tools_check(const struct json *tools, struct problem *p);

/* The mark of the sound of a part: {"type": "input_audio", "input_audio": {"data": BASE64}}, the same under audio_url or audio with a
 * url, or {"inline_data": {"mime_type": "audio/wav", "data": BASE64}}.  at names the part. */
int sound_part(const struct json *part, struct images *im, const char *at, struct buf *text, struct problem *p);

#endif
