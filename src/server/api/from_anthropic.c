/* from_anthropic.c - see from_anthropic.h. */
#include "server/api/from_anthropic.h"

#include <stdio.h>
#include <string.h>

#include "server/chat/fields.h"
#include "server/chat/messages.h"

static bool str_is(const struct json *j, const char *text)
{
	size_t n;
	const char *s = json_str(j, &n);

	return s && !strcmp(s, text);
}

static int joined(const struct json *v, const char *at, struct buf *out, struct images *im, struct problem *p);

/* A document whose source is text, or blocks of text. */
static int document(const struct json *block, const char *at, struct buf *out, struct images *im, struct problem *p)
{
	const struct json *source = json_get(block, "source"), *type = json_get(source, "type");
	char where[120];
	size_t n;

	snprintf(where, sizeof where, "%.90s.source.type", at);
	if (str_is(type, "text") && json_str(json_get(source, "data"), &n)) {
		buf_put(out, json_str(json_get(source, "data"), &n), n);
		return 0;
	}
	if (str_is(type, "content")) {
		snprintf(where, sizeof where, "%.90s.source.content", at);
		return joined(json_get(source, "content"), where, out, im, p);
	}
	return problem_set(p, 400, "unsupported_content", where, "%s: this server reads documents of text only", where);
}

/* {"type": "image", "source": {"type": "base64", "data"} or {"type": "url", "url"}}. */
static int image(const struct json *block, const char *at, struct buf *out, struct images *im, struct problem *p)
{
	const struct json *source = json_get(block, "source"), *type = json_get(source, "type");
	const char *name = str_is(type, "url") ? "url" : "data", *s;
	char where[120];
	size_t n;

	snprintf(where, sizeof where, "%.90s.source.type", at);
	if (!str_is(type, "base64") && !str_is(type, "url"))
		return problem_set(p, 400, "unsupported_content", where,
		                   "%s: this server reads images of source type \"base64\"", where);
	snprintf(where, sizeof where, "%.90s.source.%s", at, name);
	if (!(s = json_str(json_get(source, name), &n)))
		return field_wrong(p, where, "a string", json_get(source, name));
	return images_url(im, s, n, where, out, p);
}

/* Checks cache_control, which any block may have and which changes nothing. */
static int check_marks(const struct json *block, const char *at, struct problem *p)
{
	char where[120];
	int r;

	if ((r = field_takes(block, at, "cache_control", TAKES_OBJECT, p)))
		return r;
	snprintf(where, sizeof where, "%.90s.cache_control", at);
	return field_takes(json_get(block, "cache_control"), where, "type", TAKES_STRING, p);
}

/* The text of a block, or the mark of its image. */
static int text_of(const struct json *block, const char *at, struct buf *out, struct images *im, struct problem *p)
{
	const struct json *type = json_get(block, "type"), *text = json_get(block, "text");
	char where[120];
	const char *s;
	size_t n;
	int r;

	snprintf(where, sizeof where, "%.90s.type", at);
	if (json_kind(type) != JSON_STRING)
		return field_wrong(p, where, "a string", type);
	if ((r = check_marks(block, at, p)))
		return r;
	if (str_is(type, "document"))
		return document(block, at, out, im, p);
	if (str_is(type, "search_result")) {
		snprintf(where, sizeof where, "%.90s.content", at);
		return joined(json_get(block, "content"), where, out, im, p);
	}
	if (str_is(type, "image"))
		return image(block, at, out, im, p);
	/* Tools are never deferred here: the one that is named is there already. */
	if (str_is(type, "tool_reference")) {
		s = json_str(json_get(block, "tool_name"), &n);
		buf_printf(out, "%sThe tool %s is available.", out->n ? "\n" : "", s ? s : "");
		return 0;
	}
	if (!str_is(type, "text"))
		return problem_set(p, 400, "unsupported_content", where,
		                   "%s is \"%.40s\": this server reads blocks of type \"text\" and \"image\" here",
		                   where, json_str(type, &n));
	snprintf(where, sizeof where, "%.90s.text", at);
	if (!(s = json_str(text, &n)))
		return field_wrong(p, where, "a string", text);
	buf_put(out, s, n);
	return 0;
}

/* A string, or an array of blocks of text. */
static int joined(const struct json *v, const char *at, struct buf *out, struct images *im, struct problem *p)
{
	char where[100];
	const char *s;
	size_t n;
	int r = 0;

	if ((s = json_str(v, &n))) {
		buf_put(out, s, n);
		return 0;
	}
	if (json_kind(v) == JSON_NULL)
		return 0;
	if (json_kind(v) != JSON_ARRAY)
		return field_wrong(p, at, "a string or an array of blocks", v);
	for (size_t i = 0; i < json_len(v) && !r; i++) {
		snprintf(where, sizeof where, "%.70s[%zu]", at, i);
		r = text_of(json_at(v, i), where, out, im, p);
	}
	return r;
}

static void put_message(struct json *out, const char *role, const struct buf *text)
{
	json_add(out, message_new(role, text->p, text->n));
}

static void put_result(struct json *out, const struct buf *text, const struct json *id, bool failed)
{
	struct json *m = message_new("tool", text->p, text->n);

	json_set(m, "tool_call_id", json_share(id));
	if (failed)
		json_set_bool(m, "is_error", true);
	json_add(out, m);
}

static int tool_result(const struct json *block, const char *at, struct json *out, struct images *im, struct problem *p)
{
	const struct json *id = json_get(block, "tool_use_id"), *is_error = json_get(block, "is_error");
	bool failed = false;
	char where[120];
	struct buf text;
	int r;

	if ((r = check_marks(block, at, p)))
		return r;
	snprintf(where, sizeof where, "%.90s.tool_use_id", at);
	if (json_kind(id) != JSON_STRING)
		return field_wrong(p, where, "a string", id);
	snprintf(where, sizeof where, "%.90s.is_error", at);
	if (json_kind(is_error) != JSON_NULL && json_to_bool(is_error, &failed))
		return field_wrong(p, where, "true or false", is_error);
	buf_init(&text);
	snprintf(where, sizeof where, "%.90s.content", at);
	if (!(r = joined(json_get(block, "content"), where, &text, im, p)))
		put_result(out, &text, id, failed);
	buf_fini(&text);
	return r;
}

static void flush_user(struct json *out, struct buf *text, bool *some)
{
	if (!*some)
		return;
	put_message(out, "user", text);
	buf_reset(text);
	*some = false;
}

/* Text and results, in their order. */
static int user_blocks(const struct json *v, const char *at, struct json *out, struct images *im, struct problem *p)
{
	char where[100];
	struct buf text;
	bool some = false;
	int r = 0;

	buf_init(&text);
	for (size_t i = 0; i < json_len(v) && !r; i++) {
		const struct json *block = json_at(v, i);

		snprintf(where, sizeof where, "%.70s[%zu]", at, i);
		if (str_is(json_get(block, "type"), "tool_result")) {
			flush_user(out, &text, &some);
			r = tool_result(block, where, out, im, p);
		} else {
			r = text_of(block, where, &text, im, p);
			some = true;
		}
	}
	if (!r)
		flush_user(out, &text, &some);
	buf_fini(&text);
	return r;
}

static int tool_use(const struct json *block, const char *at, struct json *calls, struct problem *p)
{
	const struct json *name = json_get(block, "name"), *input = json_get(block, "input");
	char where[120];
	const char *s;
	size_t n;
	int r;

	if ((r = check_marks(block, at, p)) || (r = field_takes(block, at, "id", TAKES_STRING, p)))
		return r;
	snprintf(where, sizeof where, "%.90s.name", at);
	if (!(s = json_str(name, &n)))
		return field_wrong(p, where, "a string", name);
	snprintf(where, sizeof where, "%.90s.input", at);
	if (json_kind(input) != JSON_OBJECT && json_kind(input) != JSON_NULL)
		return field_wrong(p, where, "an object", input);
	json_add(calls, call_new(json_get(block, "id"), s, n,
	                         json_kind(input) == JSON_OBJECT ? json_share(input) : json_new_object()));
	return 0;
}

/* Text and calls of the assistant, collected until a result comes. */
struct said {
	struct buf text, thinking;
	struct json *calls;
};

static void put_said(struct said *t, struct json *out)
{
	json_add(out, message_assistant(&t->text, &t->thinking, t->calls));
	buf_reset(&t->text);
	buf_reset(&t->thinking);
	t->calls = json_new_array();
}

/* Adds the result of a tool that the API's provider ran: a message of its own, as JSON. */
static void put_hosted_result(const struct json *block, struct said *t, struct json *out)
{
	struct buf text;

	put_said(t, out);
	buf_init(&text);
	json_put(&text, json_get(block, "content"));
	put_result(out, &text, json_get(block, "tool_use_id"), false);
	buf_fini(&text);
}

static bool ends_with(const struct json *type, const char *end)
{
	size_t n, len = strlen(end);
	const char *s = json_str(type, &n);

	return s && n >= len && !memcmp(s + n - len, end, len);
}

static int assistant_block(const struct json *block, const char *at, struct said *t, struct json *out,
                           struct problem *p)
{
	const struct json *type = json_get(block, "type");
	char field[120];
	const char *s;
	size_t n;
	int r;

	if (str_is(type, "thinking")) {
		if ((r = field_takes(block, at, "signature", TAKES_STRING, p)))
			return r;
		snprintf(field, sizeof field, "%.90s.thinking", at);
		if (!(s = json_str(json_get(block, "thinking"), &n)))
			return field_wrong(p, field, "a string", json_get(block, "thinking"));
		buf_put(&t->thinking, s, n);
		return 0;
	}
	if (str_is(type, "tool_use") || str_is(type, "server_tool_use") || str_is(type, "mcp_tool_use"))
		return tool_use(block, at, t->calls, p);
	if (ends_with(type, "_tool_result")) {
		put_hosted_result(block, t, out);
		return 0;
	}
	if (str_is(type, "redacted_thinking") || str_is(type, "compaction") || str_is(type, "fallback"))
		return 0; /* it is encrypted */
	return text_of(block, at, &t->text, NULL, p);
}

static int assistant_blocks(const struct json *v, const char *at, struct json *out, struct problem *p)
{
	struct said t = { .calls = json_new_array() };
	char where[100];
	size_t n = json_len(v);
	int r = 0;

	buf_init(&t.text);
	buf_init(&t.thinking);
	for (size_t i = 0; i < n && !r; i++) {
		snprintf(where, sizeof where, "%.70s[%zu]", at, i);
		r = assistant_block(json_at(v, i), where, &t, out, p);
	}
	/* After a result there may be nothing more. */
	if (!r && (t.text.n || t.thinking.n || json_len(t.calls) || !n ||
	           !ends_with(json_get(json_at(v, n - 1), "type"), "_tool_result")))
		put_said(&t, out);
	buf_fini(&t.text);
	buf_fini(&t.thinking);
	json_free(t.calls);
	return r;
}

static int message(const struct json *m, size_t i, struct json *out, struct images *im, struct problem *p)
{
	const struct json *role = json_get(m, "role"), *v = json_get(m, "content");
	bool assistant = str_is(role, "assistant"), system = str_is(role, "system");
	char at[60];
	struct buf text;
	int r;

	snprintf(at, sizeof at, "messages[%zu]", i);
	if (json_kind(m) != JSON_OBJECT)
		return field_wrong(p, at, "an object with role and content", m);
	snprintf(at, sizeof at, "messages[%zu].role", i);
	if (!assistant && !system && !str_is(role, "user"))
		return field_wrong(p, at, "user, assistant or system", role);
	snprintf(at, sizeof at, "messages[%zu].content", i);
	if (system && json_kind(v) == JSON_ARRAY && !json_len(v))
		return 0; /* its cache_control is all it says */
	if (json_kind(v) == JSON_ARRAY && !assistant && !json_len(v))
		return problem_set(p, 400, "invalid_value", at, "%s is empty: at least one block is needed", at);
	if (json_kind(v) == JSON_ARRAY && !system)
		return assistant ? assistant_blocks(v, at, out, p) : user_blocks(v, at, out, im, p);
	if (json_kind(v) == JSON_NULL && !assistant)
		return field_wrong(p, at, "a string or an array of blocks", v);
	buf_init(&text);
	if (!(r = joined(v, at, &text, assistant || system ? NULL : im, p)))
		put_message(out, assistant ? "assistant" : system ? "system" : "user", &text);
	buf_fini(&text);
	return r;
}

int anthropic_messages(const struct json *body, struct json *out, struct images *im, struct problem *p)
{
	const struct json *system = json_get(body, "system"), *messages = json_get(body, "messages");
	size_t n = json_len(messages);
	struct buf text;
	int r = 0;

	if (json_kind(messages) != JSON_ARRAY)
		return messages ? field_wrong(p, "messages", "an array of messages", messages) :
		                  problem_set(p, 400, "missing_field", "messages",
		                              "messages is missing: an array of messages");
	if (!n)
		return problem_set(p, 400, "invalid_value", "messages", "messages is empty: at least one is needed");
	if (json_kind(system) != JSON_NULL) {
		buf_init(&text);
		if (!(r = joined(system, "system", &text, NULL, p)) && text.n)
			put_message(out, "system", &text);
		buf_fini(&text);
	}
	for (size_t i = 0; i < n && !r; i++)
		r = message(json_at(messages, i), i, out, im, p);
	return r;
}
