/* messages.h - the messages and tools of a chat, checked, in the form templates want. */
#ifndef SERVER_MESSAGES_H
#define SERVER_MESSAGES_H

#include "base/json.h"
#include "server/images/images.h"
#include "server/http/problem.h"

/* Checks an array of OpenAI messages and adds its normal form to the array out:
 * text parts are joined to one string, a content that is null or absent becomes
 * "", the role developer becomes system, arguments of tool calls that are JSON
 * objects in a string become objects (templates walk through them), an assistant's
 * thought becomes reasoning_content by whatever name it came.  Members
 * that we do not know go to the template as they are, shared with messages.  Images of the user become marks
 * (images.h). */
int messages_normal(const struct json *messages, struct images *im, struct json *out, struct problem *p);

/* {"role", "content"}. */
struct json *message_new(const char *role, const char *text, size_t n);
/* An assistant's message in the normal form; thinking and calls (an array, which is taken over, of call_new) are left
 * out where they are empty. */
struct json *message_assistant(const struct buf *content, const struct buf *thinking, struct json *calls);
/* A call; takes arguments over. */
struct json *call_new(const struct json *id, const char *name, size_t n, struct json *arguments);

/* Checks an array of tools: each {"type": "function", "function": {"name": ...}}. */
int tools_check(const struct json *tools, struct problem *p);

/* The mark of the sound of a part: {"type": "input_audio", "input_audio": {"data": BASE64}}, the same under audio_url or audio with a
 * url, or {"inline_data": {"mime_type": "audio/wav", "data": BASE64}}.  at names the part. */
int sound_part(const struct json *part, struct images *im, const char *at, struct buf *text, struct problem *p);

#endif
