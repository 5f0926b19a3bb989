/* from_responses.c - see from_responses.h. */
#include "server/responses/from_responses.h"

#include <stdio.h>
#include <string.h>

#include "server/chat/messages.h"
#include "server/chat/tool_kinds.h"

/* The messages, and consecutive items of the assistant, collected until a message of another role comes. */
struct spoken {
	struct json *out, *calls;
	struct buf thinking, text;
	bool some;
};

static bool str_is(const struct json *j, const char *text)
{
	size_t n;
	const char *s = json_str(j, &n);

	return s && !strcmp(s, text);
}

static void end_turn(struct spoken *t)
{
	if (t->some) {
		json_add(t->out, message_assistant(&t->text, &t->thinking, t->calls));
		t->calls = json_new_array();
	}
	buf_reset(&t->thinking);
	buf_reset(&t->text);
	t->some = false;
}

static void put_result(struct spoken *t, const struct buf *text, const struct json *id)
{
	struct json *m = message_new("tool", text->p, text->n);

	end_turn(t);
	json_set(m, "tool_call_id", json_share(id));
	json_add(t->out, m);
}

/* {"type": "input_image", "image_url": URL}. */
static int image(const struct json *part, struct images *im, const char *at, struct buf *out, struct problem *p)
{
	const struct json *url = json_get(part, "image_url");
	char where[140];
	const char *s;
	size_t n;

	if (json_kind(url) == JSON_OBJECT)
		url = json_get(url, "url");
	snprintf(where, sizeof where, "%.90s.image_url", at);
	if (!(s = json_str(url, &n)))
		return field_wrong(p, where, "a data URL: there are no files here that a file_id could name", url);
	return images_url(im, s, n, where, out, p);
}

/* A string, or parts with text, joined, and marks of images between; im NULL: none is accepted here. */
static int text_of(const struct json *v, struct images *im, const char *at, struct buf *out, struct problem *p)
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
		if (str_is(type, "input_image") || str_is(type, "input_audio")) {
			int r;

			snprintf(where, sizeof where, "%.80s[%zu]", at, i);
			r = str_is(type, "input_image") ? image(part, im, where, out, p) :
			                                  sound_part(part, im, where, out, p);
			if (r)
				return r;
			continue;
		}
		if (k == 6)
			return problem_set(p, 400, "unsupported_content", where,
			                   "%s is \"%.40s\": this server reads text, images and sounds only", where,
			                   json_str(type, &n));
		snprintf(where, sizeof where, "%.80s[%zu].text", at, i);
		if (!(s = json_str(text, &n)))
			return field_wrong(p, where, "a string", text);
		buf_put(out, s, n);
	}
	return 0;
}

static int message(const struct json *m, struct images *im, const char *at, struct spoken *t, struct problem *p)
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
		return text_of(json_get(m, "content"), NULL, where, &t->text, p);
	}
	if (json_kind(json_get(m, "content")) == JSON_NULL)
		return field_wrong(p, where, "a string or an array of parts", json_get(m, "content"));
	buf_init(&text);
	if (!(r = text_of(json_get(m, "content"), k ? NULL : im, where, &text, p))) {
		end_turn(t);
		json_add(t->out, message_new(k ? "system" : "user", text.p, text.n));
	}
	buf_fini(&text);
	return r;
}

/* Arguments that came as JSON text: an object, through which templates walk, or else the text. */
static struct json *arguments_of(const char *text, size_t n)
{
	struct json *j = json_parse(text, n, 0, NULL);

	if (json_kind(j) == JSON_OBJECT)
		return j;
	json_free(j);
	return json_new_str(text, n);
}

/* Takes arguments over. */
static void put_call(struct spoken *t, const struct json *id, const char *name, struct json *arguments)
{
	json_add(t->calls, call_new(id, name, strlen(name), arguments));
	t->some = true;
}

/* A function_call, or a custom_tool_call. */
static int call(const struct json *item, const char *at, bool custom, struct spoken *t, struct problem *p)
{
	const struct json *v = json_get(item, custom ? "input" : "arguments"), *own = json_get(item, "name");
	size_t n = 0;
	const char *name = json_str(own, &n), *space = json_str(json_get(item, "namespace"), &n), *s;
	struct json *arguments;
	struct buf flat;
	char where[100];
	int r;

	snprintf(where, sizeof where, "%.80s.name", at);
	if (!name)
		return field_wrong(p, where, "a string", own);
	if ((r = field_takes(item, at, "namespace", TAKES_STRING, p)))
		return r;
	snprintf(where, sizeof where, "%.80s.%s", at, custom ? "input" : "arguments");
	if (!(s = json_str(v, &n)) && (custom || json_kind(v) != JSON_OBJECT))
		return field_wrong(p, where, custom ? "a string" : "a string or an object", v);
	buf_init(&flat);
	tool_flat_name(space, name, &flat);
	if (custom)
		arguments = tool_arguments(v);
	else
		arguments = s ? arguments_of(s, n) : json_share(v);
	put_call(t, json_get(item, "call_id"), flat.p, arguments);
	buf_fini(&flat);
	return 0;
}

static int output(const struct json *item, struct images *im, const char *at, struct spoken *t, struct problem *p)
{
	const struct json *v = json_get(item, "output"), *type = json_get(item, "type");
	char where[100];
	struct buf text;
	size_t n;
	const char *status = json_str(json_get(item, "status"), &n);
	int r = 0;

	snprintf(where, sizeof where, "%.80s.output", at);
	buf_init(&text);
	/* Results of a shell or a search have no text parts, and of a patch there may be nothing but the status. */
	if (str_is(type, "tool_search_output") && json_kind(v) == JSON_NULL && json_len(json_get(item, "tools")))
		json_put(&text, json_get(item, "tools"));
	else if (str_is(type, "apply_patch_call_output") && json_kind(v) == JSON_NULL)
		buf_puts(&text, status ? status : "");
	else if (json_kind(v) == JSON_OBJECT ||
	         (json_len(v) && json_kind(v) == JSON_ARRAY && !json_get(json_at(v, 0), "type")))
		json_put(&text, v);
	else
		r = text_of(v, im, where, &text, p);
	if (!r)
		put_result(t, &text, json_get(item, "call_id"));
	buf_fini(&text);
	return r;
}

/* Items of tools that the API's provider ran: "web_search_call" is a call of web_search.  where: the member with the
 * arguments; brought: the member with the result; NULL: the result is in another item, or there is none. */
static const struct {
	const char *type, *where, *brought;
} hosted[] = {
	{ "web_search_call", "action", NULL },
	{ "file_search_call", "queries", "results" },
	{ "code_interpreter_call", "code", "outputs" },
	{ "computer_call", "action", NULL },
	{ "image_generation_call", NULL, NULL },
	{ "local_shell_call", "action", NULL },
	{ "shell_call", "action", NULL },
	{ "apply_patch_call", "operation", NULL },
	{ "mcp_call", "arguments", "output" },
	{ "mcp_list_tools", NULL, NULL },
	{ "tool_search_call", "arguments", NULL },
};

/* An object is the arguments, and so is text that is called so; other values are their one member. */
static struct json *hosted_arguments(const struct json *asked, const char *where)
{
	struct json *out;
	size_t n;
	const char *s = json_str(asked, &n);

	if (json_kind(asked) == JSON_OBJECT)
		return json_share(asked);
	if (s && n && !strcmp(where, "arguments"))
		return arguments_of(s, n);
	out = json_new_object();
	if (json_kind(asked) != JSON_NULL && (!s || strcmp(where, "arguments")))
		json_set(out, where, json_share(asked));
	return out;
}

static void hosted_call(const struct json *item, size_t k, struct spoken *t)
{
	const char *type = hosted[k].type, *name;
	const struct json *asked = hosted[k].where ? json_get(item, hosted[k].where) : NULL;
	const struct json *brought = hosted[k].brought ? json_get(item, hosted[k].brought) : NULL;
	const struct json *id = json_get(item, "call_id") ? json_get(item, "call_id") : json_get(item, "id");
	struct buf own;
	size_t n;

	buf_init(&own);
	if ((name = json_str(json_get(item, "name"), &n)))
		buf_puts(&own, name);
	else
		buf_put(&own, type,
		        strlen(type) - (strlen(type) > 5 && !strcmp(type + strlen(type) - 5, "_call") ? 5 : 0));
	put_call(t, id, own.p, hosted_arguments(asked, hosted[k].where));
	if (json_kind(brought) != JSON_NULL) {
		buf_reset(&own);
		if (json_str(brought, &n))
			buf_put(&own, json_str(brought, &n), n);
		else
			json_put(&own, brought);
		put_result(t, &own, id);
	}
	buf_fini(&own);
}

static int reasoning(const struct json *v, const char *at, struct spoken *t, struct problem *p)
{
	char where[80];
	int r;

	t->some = true;
	if ((r = field_takes(v, at, "summary", TAKES_STRING | TAKES_ARRAY, p)))
		return r;
	snprintf(where, sizeof where, "%.40s.content", at);
	if ((r = text_of(json_get(v, "content"), NULL, where, &t->thinking, p)) || t->thinking.n)
		return r;
	snprintf(where, sizeof where, "%.40s.summary", at);
	return text_of(json_get(v, "summary"), NULL, where, &t->thinking, p);
}

static bool ends_with(const char *s, const char *end)
{
	return strlen(s) >= strlen(end) && !strcmp(s + strlen(s) - strlen(end), end);
}

static int tools_of_item(const struct json *item, const char *at, struct problem *p)
{
	const struct json *tools = json_get(item, "tools");
	char where[80];

	if (json_kind(tools) == JSON_ARRAY || json_kind(tools) == JSON_NULL)
		return 0;
	snprintf(where, sizeof where, "%.40s.tools", at);
	return field_wrong(p, where, "an array of tools", tools);
}

static int item(const struct json *v, struct images *im, size_t i, struct spoken *t, struct problem *p)
{
	const struct json *type = json_get(v, "type");
	size_t n;
	const char *s = json_str(type, &n);
	char at[60], where[80];
	int r;

	snprintf(at, sizeof at, "input[%zu]", i);
	if (json_kind(v) != JSON_OBJECT)
		return field_wrong(p, at, "an object", v);
	if ((r = field_takes(v, at, "id", TAKES_STRING, p)) || (r = field_takes(v, at, "call_id", TAKES_STRING, p)) ||
	    (r = field_takes(v, at, "status", TAKES_STRING, p)))
		return r;
	if (json_kind(type) == JSON_NULL || str_is(type, "message"))
		return message(v, im, at, t, p);
	snprintf(where, sizeof where, "%.40s.type", at);
	if (!s)
		return field_wrong(p, where, "a string", type);
	if (!strcmp(s, "function_call") || !strcmp(s, "custom_tool_call"))
		return call(v, at, *s == 'c', t, p);
	/* Its tools are read with the body's. */
	if (!strcmp(s, "additional_tools"))
		return tools_of_item(v, at, p);
	if (!strcmp(s, "tool_search_output") && (r = tools_of_item(v, at, p)))
		return r;
	if (ends_with(s, "_output"))
		return output(v, im, at, t, p);
	if (!strcmp(s, "reasoning"))
		return reasoning(v, at, t, p);
	for (size_t k = 0; k < sizeof hosted / sizeof *hosted; k++) {
		if (!strcmp(s, hosted[k].type)) {
			hosted_call(v, k, t);
			return 0;
		}
	}
	/* They carry nothing that could be read here. */
	if (!strcmp(s, "compaction") || !strcmp(s, "mcp_approval_request") || !strcmp(s, "mcp_approval_response"))
		return 0;
	return problem_set(p, 400, "unsupported_content", where, "%s is \"%.40s\", which this server does not support",
	                   where, s);
}

int responses_input(const struct json *input, struct images *im, struct json *out, struct problem *p)
{
	struct spoken t = { .out = out };
	const char *s;
	size_t n;
	int r = 0;

	if ((s = json_str(input, &n))) {
		json_add(out, message_new("user", s, n));
		return 0;
	}
	if (json_kind(input) != JSON_ARRAY)
		return input ? field_wrong(p, "input", "a string or an array of items", input) :
		               problem_set(p, 400, "missing_field", "input",
		                           "input is missing: a string or an array of items");
	buf_init(&t.thinking);
	buf_init(&t.text);
	t.calls = json_new_array();
	for (size_t i = 0; i < json_len(input) && !r; i++)
		r = item(json_at(input, i), im, i, &t, p);
	end_turn(&t);
	buf_fini(&t.thinking);
	buf_fini(&t.text);
	json_free(t.calls);
	return r;
}
