/* messages.c - see messages.h. */
#include "server/chat/messages.h"

#include <stdio.h>
#include <string.h>

#include "base/allowance.h"
#include "server/chat/fields.h"

static bool str_is(const struct json *j, const char *text)
{
	size_t n;
	const char *s = json_str(j, &n);

	return s && n == strlen(text) && !memcmp(s, text, n);
}

/* {"type": "image_url", "image_url": URL or {"url": URL}}, and what others call so. */
static int image_part(const struct json *part, const char *type, struct images *im, const char *at, struct buf *text,
                      struct problem *p)
{
	const struct json *v = json_get(part, !strcmp(type, "image") ? "image" : "image_url");
	char where[140];
	const char *s;
	size_t n;

	if (json_kind(v) == JSON_OBJECT)
		v = json_get(v, "url");
	snprintf(where, sizeof where, "%.90s.%s", at, !strcmp(type, "image") ? "image" : "image_url");
	if (!(s = json_str(v, &n)))
		return field_wrong(p, where, "a data URL, or an object with a url", v);
	return images_url(im, s, n, where, text, p);
}

static bool is_sound(const struct json *type)
{
	return str_is(type, "input_audio") || str_is(type, "audio_url") || str_is(type, "audio");
}

/* The member of a part that has a sound: Gemini's inline_data, which needs no type, or the one that the type names. */
static const struct json *sound_of(const struct json *part, const char **name)
{
	static const char *const inlines[] = { "inline_data", "inlineData" };
	const struct json *type = json_get(part, "type"), *v;
	size_t n;

	for (int i = 0; i < 2; i++)
		if (json_kind(v = json_get(part, *name = inlines[i])) == JSON_OBJECT)
			return v;
	*name = is_sound(type) ? json_str(type, &n) : "url";
	v = json_get(part, *name);
	return v ? v : json_get(part, *name = "url");
}

int sound_part(const struct json *part, struct images *im, const char *at, struct buf *text, struct problem *p)
{
	const char *name, *inner, *s;
	const struct json *v = sound_of(part, &name);
	char where[140];
	size_t n;

	snprintf(where, sizeof where, "%.90s.%s", at, name);
	if (json_kind(v) == JSON_OBJECT) {
		inner = json_get(v, "data") ? "data" : "url";
		v = json_get(v, inner);
		snprintf(where, sizeof where, "%.90s.%s.%s", at, name, inner);
	}
	if (!(s = json_str(v, &n)))
		return field_wrong(p, where, "base64, a data URL, or an object with data or a url", v);
	return images_sound(im, s, n, where, text, p);
}

/* {"inline_data": {"mime_type": "audio/wav", "data": BASE64}} */
static bool is_inline_sound(const struct json *part)
{
	const char *name, *s;
	const struct json *v = json_get(part, "type") ? NULL : sound_of(part, &name), *kind;
	size_t n;

	kind = json_get(v, "mime_type");
	s = json_str(kind ? kind : json_get(v, "mimeType"), &n);
	return s && n >= 6 && !memcmp(s, "audio/", 6);
}

static int text_part(const struct json *part, struct images *im, const char *at, struct buf *text, struct problem *p)
{
	const struct json *type = json_get(part, "type"), *t;
	char where[120];
	const char *s;
	size_t n;

	if (json_kind(part) != JSON_OBJECT)
		return field_wrong(p, at, "an object with a type", part);
	if (is_sound(type) || is_inline_sound(part))
		return sound_part(part, im, at, text, p);
	snprintf(where, sizeof where, "%.90s.type", at);
	if (json_kind(type) != JSON_STRING)
		return field_wrong(p, where, "a string", type);
	if (str_is(type, "image_url") || str_is(type, "image") || str_is(type, "input_image"))
		return image_part(part, json_str(type, &n), im, at, text, p);
	if (!str_is(type, "text") && !str_is(type, "refusal"))
		return problem_set(p, 400, "unsupported_content", where,
		                   "%s is \"%.40s\": this server reads parts of type \"text\", \"image_url\" and "
		                   "\"input_audio\"",
		                   where, json_str(type, &n));
	t = json_get(part, json_str(type, &n));
	snprintf(where, sizeof where, "%.90s.%s", at, json_str(type, &n));
	if (!(s = json_str(t, &n)))
		return field_wrong(p, where, "a string", t);
	buf_put(text, s, n);
	return 0;
}

/* Text parts, joined, and marks of images.  im NULL: no images. */
static int parts(const struct json *c, int i, struct images *im, struct json *out, struct problem *p)
{
	struct buf text;
	char at[60];
	int r = 0;

	buf_init(&text);
	for (size_t k = 0; k < json_len(c) && !r; k++) {
		snprintf(at, sizeof at, "messages[%d].content[%zu]", i, k);
		r = text_part(json_at(c, k), im, at, &text, p);
	}
	json_set_str(out, "content", text.p, text.n);
	buf_fini(&text);
	return r;
}

static int content(const struct json *m, int i, struct images *im, struct json *out, struct problem *p)
{
	const struct json *c = json_get(m, "content");
	char at[60];

	switch (json_kind(c)) {
	case JSON_NULL: json_set_cstr(out, "content", ""); return 0;
	case JSON_STRING: json_set(out, "content", json_share(c)); return 0;
	case JSON_ARRAY: return parts(c, i, im, out, p);
	default:
		snprintf(at, sizeof at, "messages[%d].content", i);
		return field_wrong(p, at, "a string, null or an array of text parts", c);
	}
}

/* An object, where the text is one.  Clients that cannot tell an empty map from an empty list write [], others null. */
static struct json *arguments_of(const struct json *a)
{
	size_t n;
	const char *s = json_str(a, &n);
	struct json *j = s ? json_parse(s, n, 0, NULL) : json_share(a);

	if (json_kind(j) == JSON_OBJECT)
		return j;
	if (j && (json_kind(j) == JSON_NULL || (json_kind(j) == JSON_ARRAY && !json_len(j)))) {
		json_free(j);
		return json_new_object();
	}
	json_free(j);
	return json_share(a);
}

/* {"id", "type", "function": {"name", "arguments"}} and whatever else. */
static int tool_call(const struct json *call, const char *at, struct json *list, struct problem *p)
{
	const struct json *f = json_get(call, "function"), *v;
	struct json *out, *function;
	char where[120];
	int r;

	if ((r = field_takes(call, at, "id", TAKES_STRING, p)) || (r = field_takes(call, at, "type", TAKES_STRING, p)))
		return r;
	snprintf(where, sizeof where, "%.90s.function", at);
	if (json_kind(f) != JSON_OBJECT)
		return field_wrong(p, where, "an object with a name", f);
	snprintf(where, sizeof where, "%.90s.function.name", at);
	if (json_kind(json_get(f, "name")) != JSON_STRING)
		return field_wrong(p, where, "a string", json_get(f, "name"));
	snprintf(where, sizeof where, "%.90s.function.arguments", at);
	v = json_get(f, "arguments");
	if (json_kind(v) != JSON_NULL && json_kind(v) != JSON_STRING && json_kind(v) != JSON_OBJECT &&
	    (json_kind(v) != JSON_ARRAY || json_len(v)))
		return field_wrong(p, where, "a string or an object", v);
	function = json_copy(f);
	if (json_get(f, "arguments"))
		json_set(function, "arguments", arguments_of(v));
	out = json_copy(call);
	json_drop(out, "function"); /* the last member, then */
	json_set(out, "function", function);
	json_add(list, out);
	return 0;
}

static int tool_calls(const struct json *calls, int i, struct json *out, struct problem *p)
{
	struct json *list = json_new_array();
	char at[60];
	int r = 0;

	snprintf(at, sizeof at, "messages[%d].tool_calls", i);
	if (json_kind(calls) != JSON_ARRAY)
		r = field_wrong(p, at, "an array", calls);
	for (size_t k = 0; k < json_len(calls) && !r; k++) {
		snprintf(at, sizeof at, "messages[%d].tool_calls[%zu]", i, k);
		r = tool_call(json_at(calls, k), at, list, p);
	}
	json_set(out, "tool_calls", list);
	return r;
}

/* The thought of an assistant's message, by each name that servers give it: a string, or a list of details, whose texts
 * are joined.  The first that is there and not empty counts. */
static int thought(const struct json *m, int i, struct buf *out, struct problem *p)
{
	static const char *const names[] = { "reasoning_content", "reasoning", "thinking" };
	const struct json *details = json_get(m, "reasoning_details");
	char at[60];
	const char *s;
	size_t n;

	for (int k = 0; k < 3; k++) {
		const struct json *v = json_get(m, names[k]);

		snprintf(at, sizeof at, "messages[%d].%s", i, names[k]);
		if (json_kind(v) == JSON_NULL)
			continue;
		if (!(s = json_str(v, &n)))
			return field_wrong(p, at, "a string", v);
		if (!out->n)
			buf_put(out, s, n);
	}
	snprintf(at, sizeof at, "messages[%d].reasoning_details", i);
	if (json_kind(details) != JSON_NULL && json_kind(details) != JSON_ARRAY)
		return field_wrong(p, at, "an array", details);
	for (size_t k = 0, some = out->n; k < json_len(details) && !some; k++) {
		const struct json *d = json_at(details, k);

		if ((s = json_str(json_get(d, "text"), &n)) || (s = json_str(json_get(d, "summary"), &n)))
			buf_put(out, s, n);
	}
	return 0;
}

/* A member that thought() reads. */
static bool is_thought(const char *key)
{
	return !strcmp(key, "reasoning_content") || !strcmp(key, "reasoning") || !strcmp(key, "thinking") ||
	       !strcmp(key, "reasoning_details");
}

static int put_thought(const struct json *m, int i, struct json *out, struct problem *p)
{
	struct buf b;
	int r;

	buf_init(&b);
	if (!(r = thought(m, i, &b, p)) && b.n)
		json_set_str(out, "reasoning_content", b.p, b.n);
	buf_fini(&b);
	return r;
}

/* Adds a message's normal form to the list. */
static int message(const struct json *m, int i, struct images *im, struct json *list, struct problem *p)
{
	static const char *const roles[] = { "system", "developer", "user", "assistant", "tool" };
	const struct json *role = json_get(m, "role"), *v;
	struct json *out;
	struct json_cursor c;
	const char *key;
	char at[60];
	size_t k = 0;
	int r;

	snprintf(at, sizeof at, "messages[%d]", i);
	if (json_kind(m) != JSON_OBJECT)
		return field_wrong(p, at, "an object with role and content", m);
	while (k < 5 && !str_is(role, roles[k]))
		k++;
	snprintf(at, sizeof at, "messages[%d].role", i);
	if (k == 5)
		return field_wrong(p, at, "system, developer, user, assistant or tool", role);
	snprintf(at, sizeof at, "messages[%d]", i);
	if ((r = field_takes(m, at, "name", TAKES_STRING, p)) ||
	    (r = field_takes(m, at, "tool_call_id", TAKES_STRING, p)) ||
	    (r = field_takes(m, at, "prefix", TAKES_BOOL, p)))
		return r;
	snprintf(at, sizeof at, "messages[%d].content", i);
	if (k != 3 && !json_get(m, "content"))
		return field_wrong(p, at, "a string, null or an array of text parts", NULL);
	out = json_new_object();
	json_add(list, out);
	if (k == 1)
		json_set_cstr(out, "role", "system");
	else
		json_set(out, "role", json_share(role));
	if ((r = content(m, i, k == 2 || k == 4 ? im : NULL, out, p)) || (k == 3 && (r = put_thought(m, i, out, p))))
		return r;
	for (c = json_first(m); json_next(&c, &key, &v);) {
		if (!strcmp(key, "role") || !strcmp(key, "content") || json_kind(v) == JSON_NULL ||
		    (k == 3 && is_thought(key)))
			continue;
		if (!strcmp(key, "tool_calls")) {
			if ((r = tool_calls(v, i, out, p)))
				return r;
			continue;
		}
		if (!strcmp(key, "function_call") || !strcmp(key, "audio")) {
			snprintf(at, sizeof at, "messages[%d].%s", i, key);
			return problem_set(p, 400, "unsupported_field", at, "%s is not supported by this server%s", at,
			                   *key == 'f' ? ": use tool_calls" : "");
		}
		json_set(out, key, json_share(v));
	}
	return 0;
}

int messages_normal(const struct json *messages, struct images *im, struct json *out, struct problem *p)
{
	int r = 0;

	if (json_kind(messages) != JSON_ARRAY)
		return messages ? field_wrong(p, "messages", "an array of messages", messages) :
		                  problem_set(p, 400, "missing_field", "messages",
		                              "messages is missing: an array of messages");
	if (!json_len(messages))
		return problem_set(p, 400, "invalid_value", "messages", "messages is empty: at least one is needed");
	for (size_t i = 0; i < json_len(messages) && !r && allowance_spend(1); i++)
		r = message(json_at(messages, i), (int)i, im, out, p);
	return r;
}

int tools_check(const struct json *tools, struct problem *p)
{
	char at[60];
	int r;

	for (size_t i = 0; i < json_len(tools); i++) {
		const struct json *t = json_at(tools, i), *f = json_get(t, "function");

		snprintf(at, sizeof at, "tools[%zu].type", i);
		if (!str_is(json_get(t, "type"), "function"))
			return field_wrong(p, at, "\"function\"", json_get(t, "type"));
		snprintf(at, sizeof at, "tools[%zu].function", i);
		if (json_kind(f) != JSON_OBJECT)
			return field_wrong(p, at, "an object with a name", f);
		snprintf(at, sizeof at, "tools[%zu].function.name", i);
		if (json_kind(json_get(f, "name")) != JSON_STRING)
			return field_wrong(p, at, "a string", json_get(f, "name"));
		snprintf(at, sizeof at, "tools[%zu].function", i);
		if ((r = field_takes(f, at, "description", TAKES_STRING, p)) ||
		    (r = field_takes(f, at, "parameters", TAKES_OBJECT, p)) ||
		    (r = field_takes(f, at, "strict", TAKES_BOOL, p)))
			return r;
	}
	return 0;
}

struct json *message_new(const char *role, const char *text, size_t n)
{
	struct json *m = json_new_object();

	json_set_cstr(m, "role", role);
	json_set_str(m, "content", text, n);
	return m;
}

struct json *message_assistant(const struct buf *content, const struct buf *thinking, struct json *calls)
{
	struct json *m = message_new("assistant", content->p, content->n);

	if (thinking->n)
		json_set_str(m, "reasoning_content", thinking->p, thinking->n);
	if (json_len(calls))
		json_set(m, "tool_calls", calls);
	else
		json_free(calls);
	return m;
}

struct json *call_new(const struct json *id, const char *name, size_t n, struct json *arguments)
{
	struct json *call = json_new_object(), *function = json_new_object();

	json_set(call, "id", json_share(id));
	json_set_cstr(call, "type", "function");
	json_set_str(function, "name", name, n);
	json_set(function, "arguments", arguments);
	json_set(call, "function", function);
	return call;
}
