/* from_responses.c - see from_responses.h. */
#include "server/from_responses.h"

#include <stdio.h>
#include <string.h>

#include "server/fields.h"

/* What the assistant did, until somebody else says something. */
struct turn {
	struct buf thinking, text, calls;
	bool some;
};

static bool str_is(const struct json *j, const char *text)
{
	size_t n;
	const char *s = json_str(j, &n);

	return s && !strcmp(s, text);
}

static void put_role(struct buf *out, const char *role)
{
	buf_printf(out, "%s{\"role\":\"%s\",\"content\":", out->n ? "," : "", role);
}

static void end_turn(struct turn *t, struct buf *out)
{
	if (t->some) {
		put_role(out, "assistant");
		json_put_str(out, t->text.p, t->text.n);
		if (t->thinking.n) {
			buf_puts(out, ",\"reasoning_content\":");
			json_put_str(out, t->thinking.p, t->thinking.n);
		}
		if (t->calls.n)
			buf_printf(out, ",\"tool_calls\":[%s]", t->calls.p);
		buf_putc(out, '}');
	}
	buf_reset(&t->thinking);
	buf_reset(&t->text);
	buf_reset(&t->calls);
	t->some = false;
}

/* A string, or parts with text, joined. */
static int text_of(const struct json *v, const char *at, struct buf *out, struct problem *p)
{
	static const char *const kinds[] = { "input_text", "output_text",  "text",
		                             "refusal",    "summary_text", "reasoning_text" };
	char where[120];
	const char *s;
	size_t n;

	if ((s = json_str(v, &n))) {
		buf_put(out, s, n);
		return 0;
	}
	if (json_kind(v) == JSON_NULL)
		return 0;
	if (json_kind(v) != JSON_ARRAY)
		return field_wrong(p, at, "a string or an array of parts", v);
	for (size_t i = 0; i < json_len(v); i++) {
		const struct json *part = json_at(v, i), *type = json_get(part, "type");
		const struct json *text = json_get(part, str_is(type, "refusal") ? "refusal" : "text");
		size_t k = 0;

		while (k < 6 && !str_is(type, kinds[k]))
			k++;
		snprintf(where, sizeof where, "%.80s[%zu].type", at, i);
		if (json_kind(type) != JSON_STRING)
			return field_wrong(p, where, "a string", type);
		if (k == 6)
			return problem_set(p, 400, "unsupported_content", where,
			                   "%s is \"%.40s\": this server reads text only", where, json_str(type, &n));
		snprintf(where, sizeof where, "%.80s[%zu].text", at, i);
		if (!(s = json_str(text, &n)))
			return field_wrong(p, where, "a string", text);
		buf_put(out, s, n);
	}
	return 0;
}

static int message(const struct json *m, const char *at, struct turn *t, struct buf *out, struct problem *p)
{
	static const char *const roles[] = { "user", "system", "developer", "assistant" };
	const struct json *role = json_get(m, "role");
	char where[100];
	struct buf text;
	size_t k = 0;
	int r;

	while (k < 4 && !str_is(role, roles[k]))
		k++;
	snprintf(where, sizeof where, "%.80s.role", at);
	if (k == 4)
		return field_wrong(p, where, "user, system, developer or assistant", role);
	snprintf(where, sizeof where, "%.80s.content", at);
	if (k == 3) {
		t->some = true;
		return text_of(json_get(m, "content"), where, &t->text, p);
	}
	if (json_kind(json_get(m, "content")) == JSON_NULL)
		return field_wrong(p, where, "a string or an array of parts", json_get(m, "content"));
	buf_init(&text);
	if (!(r = text_of(json_get(m, "content"), where, &text, p))) {
		end_turn(t, out);
		put_role(out, k ? "system" : "user");
		json_put_str(out, text.p, text.n);
		buf_putc(out, '}');
	}
	buf_fini(&text);
	return r;
}

static int call(const struct json *item, const char *at, struct turn *t, struct problem *p)
{
	const struct json *name = json_get(item, "name"), *args = json_get(item, "arguments");
	struct json *j = NULL;
	char where[100];
	const char *s;
	size_t n;

	snprintf(where, sizeof where, "%.80s.name", at);
	if (json_kind(name) != JSON_STRING)
		return field_wrong(p, where, "a string", name);
	snprintf(where, sizeof where, "%.80s.arguments", at);
	if (!(s = json_str(args, &n)))
		return field_wrong(p, where, "a string", args);
	buf_puts(&t->calls, t->calls.n ? ",{\"id\":" : "{\"id\":");
	json_put(&t->calls, json_get(item, "call_id"));
	buf_puts(&t->calls, ",\"type\":\"function\",\"function\":{\"name\":");
	json_put(&t->calls, name);
	buf_puts(&t->calls, ",\"arguments\":");
	/* Templates walk through arguments that are an object. */
	j = json_parse(s, n, 0, NULL);
	json_put(&t->calls, json_kind(j) == JSON_OBJECT ? j : args);
	json_free(j);
	buf_puts(&t->calls, "}}");
	t->some = true;
	return 0;
}

static int output(const struct json *item, const char *at, struct turn *t, struct buf *out, struct problem *p)
{
	char where[100];
	struct buf text;
	int r;

	snprintf(where, sizeof where, "%.80s.output", at);
	if (json_kind(json_get(item, "output")) == JSON_NULL)
		return field_wrong(p, where, "a string or an array of parts", json_get(item, "output"));
	buf_init(&text);
	if (!(r = text_of(json_get(item, "output"), where, &text, p))) {
		end_turn(t, out);
		put_role(out, "tool");
		json_put_str(out, text.p, text.n);
		buf_puts(out, ",\"tool_call_id\":");
		json_put(out, json_get(item, "call_id"));
		buf_putc(out, '}');
	}
	buf_fini(&text);
	return r;
}

static int item(const struct json *v, size_t i, struct turn *t, struct buf *out, struct problem *p)
{
	const struct json *type = json_get(v, "type");
	char at[60], where[80];
	size_t n;
	int r;

	snprintf(at, sizeof at, "input[%zu]", i);
	if (json_kind(v) != JSON_OBJECT)
		return field_wrong(p, at, "an object", v);
	if (json_kind(type) == JSON_NULL || str_is(type, "message"))
		return message(v, at, t, out, p);
	if (str_is(type, "function_call"))
		return call(v, at, t, p);
	if (str_is(type, "function_call_output"))
		return output(v, at, t, out, p);
	if (str_is(type, "reasoning")) {
		t->some = true;
		snprintf(where, sizeof where, "%.40s.content", at);
		if ((r = text_of(json_get(v, "content"), where, &t->thinking, p)) || t->thinking.n)
			return r;
		snprintf(where, sizeof where, "%.40s.summary", at);
		return text_of(json_get(v, "summary"), where, &t->thinking, p);
	}
	snprintf(where, sizeof where, "%.40s.type", at);
	if (json_kind(type) != JSON_STRING)
		return field_wrong(p, where, "a string", type);
	return problem_set(p, 400, "unsupported_content", where, "%s is \"%.40s\", which this server does not support",
	                   where, json_str(type, &n));
}

int responses_input(const struct json *input, struct buf *out, struct problem *p)
{
	struct turn t = { .some = false };
	const char *s;
	size_t n;
	int r = 0;

	if ((s = json_str(input, &n))) {
		put_role(out, "user");
		json_put_str(out, s, n);
		buf_putc(out, '}');
		return 0;
	}
	if (json_kind(input) != JSON_ARRAY)
		return input ? field_wrong(p, "input", "a string or an array of items", input) :
		               problem_set(p, 400, "missing_field", "input",
		                           "input is missing: a string or an array of items");
	buf_init(&t.thinking);
	buf_init(&t.text);
	buf_init(&t.calls);
	for (size_t i = 0; i < json_len(input) && !r; i++)
		r = item(json_at(input, i), i, &t, out, p);
	end_turn(&t, out);
	buf_fini(&t.thinking);
	buf_fini(&t.text);
	buf_fini(&t.calls);
	return r;
}

int responses_tools(const struct json *tools, struct buf *out, struct problem *p)
{
	char at[60];

	buf_putc(out, '[');
	for (size_t i = 0; i < json_len(tools); i++) {
		const struct json *t = json_at(tools, i), *type = json_get(t, "type"), *v;
		struct json_cursor c;
		const char *key;
		size_t n;
		int count = 0;

		snprintf(at, sizeof at, "tools[%zu]", i);
		if (json_kind(t) != JSON_OBJECT)
			return field_wrong(p, at, "an object", t);
		snprintf(at, sizeof at, "tools[%zu].type", i);
		if (json_kind(type) != JSON_STRING)
			return field_wrong(p, at, "\"function\"", type);
		if (!str_is(type, "function"))
			return problem_set(p, 400, "unsupported_field", at,
			                   "%s is \"%.60s\": only functions of the client's own are supported", at,
			                   json_str(type, &n));
		snprintf(at, sizeof at, "tools[%zu].name", i);
		if (json_kind(json_get(t, "name")) != JSON_STRING)
			return field_wrong(p, at, "a string", json_get(t, "name"));
		buf_puts(out, i ? ",{\"type\":\"function\",\"function\":{" : "{\"type\":\"function\",\"function\":{");
		for (c = json_first(t); json_next(&c, &key, &v);) {
			if (!strcmp(key, "type") || json_kind(v) == JSON_NULL)
				continue;
			if (count++)
				buf_putc(out, ',');
			json_put_cstr(out, key);
			buf_putc(out, ':');
			json_put(out, v);
		}
		buf_puts(out, "}}");
	}
	buf_putc(out, ']');
	return 0;
}
