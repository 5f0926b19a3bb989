/* api_gemini.c - POST /v1beta/models/NAME:METHOD, where METHOD is generateContent, streamGenerateContent or countTokens, in the shapes
 * of Google's Gemini API.  A body is rewritten to that of a chat completion and read as one. */
#include <stdio.h>
#include <string.h>

#include "server/chat/chat.h"
#include "server/inside.h"
#include "server/routes.h"
#include "server/chat/structured.h"

static const struct endpoint count_endpoint;

/* ---- reading ---- */

static const struct field gemini_fields[] = {
	TAKEN("model", TAKES_STRING), /* put_into_body puts it and stream there, from the path */
	TAKEN("stream", TAKES_BOOL),
	{ "contents" },
	{ "systemInstruction" },
	{ "tools" },
	{ "toolConfig" },
	{ "generationConfig" },
	TAKEN("labels", TAKES_OBJECT),
	IGNORED("safetySettings", "[]"),
	{ "cachedContent", "\"\"", "prefixes are kept without being named" },
	{ "generateContentRequest", "", "put its members into the body" },
	SYNONYM("system_instruction", "systemInstruction"),
	SYNONYM("tool_config", "toolConfig"),
	SYNONYM("generation_config", "generationConfig"),
	{ "messages", "", "use contents" },
	{ NULL },
};

static bool str_is(const struct json *j, const char *text)
{
	size_t n;
	const char *s = json_str(j, &n);

	return s && !strcmp(s, text);
}

/* Begins a member of the object in out. */
static void put_name(struct buf *out, const char *name)
{
	buf_puts(out, out->n > 1 ? "," : "");
	json_put_cstr(out, name);
	buf_putc(out, ':');
}

static void put_member(struct buf *out, const char *name, const struct json *v)
{
	put_name(out, name);
	json_put(out, v);
}

static void put_raw_member(struct buf *out, const char *name, const char *text)
{
	put_name(out, name);
	buf_puts(out, text);
}

/* ---- schemas ---- */

/* A name of a type: in capitals in this API, in small letters in JSON schemas. */
static void put_type(const struct json *type, bool or_null, struct buf *out)
{
	struct buf small;
	size_t n = 0;
	const char *s = json_str(type, &n);

	buf_init(&small);
	for (size_t i = 0; i < n; i++)
		buf_putc(&small, (char)(s[i] >= 'A' && s[i] <= 'Z' ? s[i] - 'A' + 'a' : s[i]));
	buf_puts(out, or_null ? "[" : "");
	json_put_str(out, small.p, small.n);
	buf_puts(out, or_null ? ",\"null\"]" : "");
	buf_fini(&small);
}

/* Bounds come as strings too, as all integers of 64 bits may in this API. */
static bool is_bound(const char *key, const struct json *v)
{
	size_t n, len = strlen(key);
	const char *s = json_str(v, &n);

	return s && n && n < 19 && strspn(s, "0123456789") == n &&
	       (!strncmp(key, "min", 3) || !strncmp(key, "max", 3)) && len > 5;
}

static void put_schema(const struct json *schema, struct buf *out);

/* The members of an object that are schemas: of properties and $defs. */
static void put_schemas(const struct json *v, struct buf *out)
{
	struct json_cursor c = json_first(v);
	const struct json *one;
	const char *key;
	struct buf own;

	buf_init(&own);
	buf_putc(&own, '{');
	while (json_next(&c, &key, &one)) {
		put_name(&own, key);
		put_schema(one, &own);
	}
	buf_putc(&own, '}');
	buf_put(out, own.p, own.n);
	buf_fini(&own);
}

static void put_keyword(const char *key, const struct json *v, bool nullable, struct buf *out)
{
	size_t n;

	put_name(out, key);
	if (!strcmp(key, "type") && json_str(v, &n)) {
		put_type(v, nullable, out);
	} else if (is_bound(key, v)) {
		buf_puts(out, json_str(v, &n));
	} else if ((!strcmp(key, "properties") || !strcmp(key, "$defs")) && json_kind(v) == JSON_OBJECT) {
		put_schemas(v, out);
	} else if (!strcmp(key, "items") || !strcmp(key, "additionalProperties")) {
		put_schema(v, out);
	} else if (!strcmp(key, "anyOf") && json_kind(v) == JSON_ARRAY) {
		buf_putc(out, '[');
		for (size_t i = 0; i < json_len(v); i++) {
			buf_puts(out, i ? "," : "");
			put_schema(json_at(v, i), out);
		}
		buf_putc(out, ']');
	} else {
		json_put(out, v);
	}
}

/* A schema in this API's form as a JSON schema.  As deep as the body, which is bounded where it is parsed. */
static void put_schema(const struct json *schema, struct buf *out)
{
	struct json_cursor c = json_first(schema);
	const struct json *v;
	bool nullable = false;
	const char *key;
	struct buf own;

	if (json_kind(schema) != JSON_OBJECT) {
		json_put(out, schema);
		return;
	}
	json_to_bool(json_get(schema, "nullable"), &nullable);
	buf_init(&own);
	buf_putc(&own, '{');
	while (json_next(&c, &key, &v))
		if (strcmp(key, "nullable") && strcmp(key, "propertyOrdering") && strcmp(key, "example"))
			put_keyword(key, v, nullable, &own);
	buf_putc(&own, '}');
	buf_put(out, own.p, own.n);
	buf_fini(&own);
}

/* ---- contents ---- */

/* Messages as they are made: what the user says is gathered until something else comes. */
struct talk {
	struct buf *out, said; /* said: parts, as the inside of an array */
	int n_call, n_result;  /* so far, of those without an id */
};

static void put_message(struct buf *out, const char *role)
{
	buf_printf(out, "%s{\"role\":\"%s\",\"content\":", out->n > 1 ? "," : "", role);
}

static void flush_said(struct talk *t, const char *role)
{
	if (!t->said.n)
		return;
	put_message(t->out, role);
	buf_printf(t->out, "[%s]}", t->said.p);
	buf_reset(&t->said);
}

static void put_text(struct buf *parts, const char *s, size_t n)
{
	buf_puts(parts, parts->n ? ",{\"type\":\"text\",\"text\":" : "{\"type\":\"text\",\"text\":");
	json_put_str(parts, s, n);
	buf_putc(parts, '}');
}

/* Text; inlineData {"mimeType", "data"} and fileData {"mimeType", "fileUri"} of images and sounds. */
static int put_part(const struct json *part, const char *at, struct buf *parts, struct problem *p)
{
	const struct json *inside = json_get(part, "inlineData"), *file = json_get(part, "fileData"), *v, *type;
	const char *s, *kind, *name = inside ? "inlineData" : "fileData";
	char where[120];
	size_t n, n_kind;
	int r;

	if (json_kind(part) != JSON_OBJECT)
		return field_wrong(p, at, "an object with text, inlineData or fileData", part);
	if ((r = field_takes(part, at, "thought", TAKES_BOOL, p)) ||
	    (r = field_takes(part, at, "thoughtSignature", TAKES_STRING, p)))
		return r;
	snprintf(where, sizeof where, "%.80s.text", at);
	if ((v = json_get(part, "text"))) {
		if (!(s = json_str(v, &n)))
			return field_wrong(p, where, "a string", v);
		put_text(parts, s, n);
		return 0;
	}
	if (!inside && !file)
		return problem_set(p, 400, "unsupported_content", at,
		                   "%s: this server reads parts with text, inlineData, fileData, functionCall (of a "
		                   "model) and functionResponse (of a user)",
		                   at);
	type = json_get(inside ? inside : file, "mimeType");
	snprintf(where, sizeof where, "%.80s.%s.mimeType", at, name);
	if (!(kind = json_str(type, &n_kind)))
		return field_wrong(p, where, "a string", type);
	if (strncmp(kind, "image/", 6) && (!inside || strncmp(kind, "audio/", 6)))
		return problem_set(p, 400, "unsupported_content", where, "%s is \"%.40s\": this server reads %s here",
		                   where, kind, inside ? "images and sounds" : "images");
	v = inside ? json_get(inside, "data") : json_get(file, "fileUri");
	snprintf(where, sizeof where, "%.80s.%s", at, inside ? "inlineData.data" : "fileData.fileUri");
	if (!(s = json_str(v, &n)))
		return field_wrong(p, where, "a string", v);
	buf_puts(parts, parts->n ? "," : "");
	buf_puts(parts, *kind == 'i' ? "{\"type\":\"image_url\",\"image_url\":{\"url\":\"" :
	                               "{\"type\":\"input_audio\",\"input_audio\":{\"data\":\"");
	if (inside && *kind == 'i') {
		buf_puts(parts, "data:");
		json_put_inside(parts, kind, n_kind);
		buf_puts(parts, ";base64,");
	}
	json_put_inside(parts, s, n);
	buf_puts(parts, "\"}}");
	return 0;
}

/* The id of a call or a result that came with none: that of its place. */
static void put_id(const struct json *of, int *n, struct buf *out)
{
	size_t len = 0;

	if (json_str(json_get(of, "id"), &len) && len)
		json_put(out, json_get(of, "id"));
	else
		buf_printf(out, "\"call_%d\"", (*n)++);
}

/* What a function gave: "output" or "error" of its response where they are, else all of it. */
static void put_response(const struct json *response, struct buf *parts)
{
	const struct json *v = json_get(response, "output") ? json_get(response, "output") :
	                                                      json_get(response, "error");
	struct buf text;
	const char *s;
	size_t n;

	if ((s = json_str(v, &n))) {
		put_text(parts, s, n);
		return;
	}
	buf_init(&text);
	json_put(&text, v ? v : response);
	put_text(parts, text.p, text.n);
	buf_fini(&text);
}

static int put_result(const struct json *result, const char *at, struct talk *t, struct problem *p)
{
	const struct json *name = json_get(result, "name"), *response = json_get(result, "response"),
			  *more = json_get(result, "parts");
	struct buf parts;
	char where[120];
	int r = 0;

	snprintf(where, sizeof where, "%.70s.functionResponse", at);
	if ((r = field_takes(result, where, "id", TAKES_STRING, p)) ||
	    (r = field_takes(result, where, "parts", TAKES_ARRAY, p)))
		return r;
	snprintf(where, sizeof where, "%.70s.functionResponse.name", at);
	if (json_kind(name) != JSON_STRING)
		return field_wrong(p, where, "a string", name);
	snprintf(where, sizeof where, "%.70s.functionResponse.response", at);
	if (json_kind(response) != JSON_OBJECT && json_kind(response) != JSON_NULL)
		return field_wrong(p, where, "an object", response);
	buf_init(&parts);
	put_response(response, &parts);
	for (size_t i = 0; i < json_len(more) && !r; i++) {
		snprintf(where, sizeof where, "%.60s.functionResponse.parts[%zu]", at, i);
		r = put_part(json_at(more, i), where, &parts, p);
	}
	put_message(t->out, "tool");
	buf_printf(t->out, "[%s],\"name\":", parts.p);
	json_put(t->out, name);
	buf_puts(t->out, ",\"tool_call_id\":");
	put_id(result, &t->n_result, t->out);
	buf_puts(t->out, json_get(response, "error") ? ",\"is_error\":true}" : "}");
	buf_fini(&parts);
	return r;
}

static int put_call(const struct json *call, const char *at, struct talk *t, struct buf *calls, struct problem *p)
{
	const struct json *name = json_get(call, "name"), *args = json_get(call, "args");
	char where[120];
	int r;

	snprintf(where, sizeof where, "%.70s.functionCall", at);
	if ((r = field_takes(call, where, "id", TAKES_STRING, p)))
		return r;
	snprintf(where, sizeof where, "%.70s.functionCall.name", at);
	if (json_kind(name) != JSON_STRING)
		return field_wrong(p, where, "a string", name);
	snprintf(where, sizeof where, "%.70s.functionCall.args", at);
	if (json_kind(args) != JSON_OBJECT && json_kind(args) != JSON_NULL)
		return field_wrong(p, where, "an object", args);
	buf_puts(calls, calls->n ? ",{\"id\":" : "{\"id\":");
	put_id(call, &t->n_call, calls);
	buf_puts(calls, ",\"type\":\"function\",\"function\":{\"name\":");
	json_put(calls, name);
	buf_puts(calls, ",\"arguments\":");
	if (json_kind(args) == JSON_OBJECT)
		json_put(calls, args);
	else
		buf_puts(calls, "{}");
	buf_puts(calls, "}}");
	return 0;
}

static int put_user(const struct json *parts, const char *at, struct talk *t, struct problem *p)
{
	char where[100];
	int r = 0;

	for (size_t i = 0; i < json_len(parts) && !r; i++) {
		const struct json *part = json_at(parts, i), *result = json_get(part, "functionResponse");

		snprintf(where, sizeof where, "%.60s.parts[%zu]", at, i);
		if (result)
			flush_said(t, "user");
		r = result ? put_result(result, where, t, p) : put_part(part, where, &t->said, p);
	}
	flush_said(t, "user");
	return r;
}

static int put_model(const struct json *parts, const char *at, struct talk *t, struct problem *p)
{
	struct buf text, thought, calls;
	char where[100];
	int r = 0;

	buf_init(&text);
	buf_init(&thought);
	buf_init(&calls);
	for (size_t i = 0; i < json_len(parts) && !r; i++) {
		const struct json *part = json_at(parts, i), *call = json_get(part, "functionCall");
		bool thinks = false;
		const char *s;
		size_t n;

		snprintf(where, sizeof where, "%.60s.parts[%zu]", at, i);
		json_to_bool(json_get(part, "thought"), &thinks);
		if ((r = field_takes(part, where, "thought", TAKES_BOOL, p)) ||
		    (r = field_takes(part, where, "thoughtSignature", TAKES_STRING, p)))
			break;
		s = json_str(json_get(part, "text"), &n);
		if (call)
			r = put_call(call, where, t, &calls, p);
		else if (s)
			buf_put(thinks ? &thought : &text, s, n);
		else if (json_get(part, "text") || !json_get(part, "thoughtSignature"))
			r = problem_set(p, 400, "unsupported_content", where,
			                "%s: this server reads parts of a model with text or functionCall", where);
	}
	put_message(t->out, "assistant");
	json_put_str(t->out, text.p, text.n);
	if (thought.n) {
		buf_puts(t->out, ",\"reasoning_content\":");
		json_put_str(t->out, thought.p, thought.n);
	}
	if (calls.n)
		buf_printf(t->out, ",\"tool_calls\":[%s]", calls.p);
	buf_putc(t->out, '}');
	buf_fini(&text);
	buf_fini(&thought);
	buf_fini(&calls);
	return r;
}

static int put_content(const struct json *content, size_t i, struct talk *t, struct problem *p)
{
	const struct json *role = json_get(content, "role"), *parts = json_get(content, "parts");
	char at[60], where[80];

	snprintf(at, sizeof at, "contents[%zu]", i);
	if (json_kind(content) != JSON_OBJECT)
		return field_wrong(p, at, "an object with role and parts", content);
	snprintf(where, sizeof where, "%s.parts", at);
	if (json_kind(parts) != JSON_ARRAY)
		return field_wrong(p, where, "an array of parts", parts);
	snprintf(where, sizeof where, "%s.role", at);
	if (str_is(role, "model"))
		return put_model(parts, at, t, p);
	if (!json_len(parts))
		return problem_set(p, 400, "invalid_value", at, "%s.parts is empty: at least one part is needed", at);
	if (json_kind(role) != JSON_NULL && !str_is(role, "user") && !str_is(role, "function"))
		return field_wrong(p, where, "user, model or function", role);
	return put_user(parts, at, t, p);
}

static int put_messages(const struct json *body, struct buf *out, struct problem *p)
{
	const struct json *contents = json_get(body, "contents"), *system = json_get(body, "systemInstruction"),
			  *parts = json_get(system, "parts");
	struct talk t = { .out = out };
	char where[60];
	int r = 0;

	if (json_kind(contents) != JSON_ARRAY || !json_len(contents))
		return field_wrong(p, "contents", "an array of one or more contents", contents);
	if (json_kind(system) != JSON_NULL && json_kind(parts) != JSON_ARRAY)
		return field_wrong(p, "systemInstruction", "an object with parts", system);
	if ((r = field_takes(system, "systemInstruction", "role", TAKES_STRING, p)))
		return r;
	buf_init(&t.said);
	buf_putc(out, '[');
	for (size_t i = 0; i < json_len(parts) && !r; i++) {
		snprintf(where, sizeof where, "systemInstruction.parts[%zu]", i);
		r = put_part(json_at(parts, i), where, &t.said, p);
	}
	flush_said(&t, "system");
	for (size_t i = 0; i < json_len(contents) && !r; i++)
		r = put_content(json_at(contents, i), i, &t, p);
	buf_putc(out, ']');
	buf_fini(&t.said);
	return r;
}

/* ---- tools ---- */

static int put_function(const struct json *f, const char *at, struct buf *out, struct problem *p)
{
	const struct json *v;

	if (json_kind(f) != JSON_OBJECT)
		return field_wrong(p, at, "an object with a name", f);
	buf_puts(out, out->n ? ",{\"type\":\"function\",\"function\":{\"name\":" :
	                       "{\"type\":\"function\",\"function\":{\"name\":");
	json_put(out, json_get(f, "name"));
	if ((v = json_get(f, "description"))) {
		buf_puts(out, ",\"description\":");
		json_put(out, v);
	}
	if ((v = json_get(f, "parametersJsonSchema"))) {
		buf_puts(out, ",\"parameters\":");
		json_put(out, v);
	} else if ((v = json_get(f, "parameters"))) {
		buf_puts(out, ",\"parameters\":");
		put_schema(v, out);
	}
	buf_puts(out, "}}");
	return 0;
}

/* Functions; what Google itself would do is left out with a warning. */
static int put_tools(const struct json *tools, struct warnings *w, struct buf *out, struct problem *p)
{
	struct buf list;
	char at[80];
	int r = 0;

	if (json_kind(tools) != JSON_NULL && json_kind(tools) != JSON_ARRAY)
		return field_wrong(p, "tools", "an array of tools", tools);
	buf_init(&list);
	for (size_t i = 0; i < json_len(tools) && !r; i++) {
		struct json_cursor c = json_first(json_at(tools, i));
		const struct json *v;
		const char *key;

		snprintf(at, sizeof at, "tools[%zu]", i);
		if (json_kind(json_at(tools, i)) != JSON_OBJECT)
			r = field_wrong(p, at, "an object", json_at(tools, i));
		while (!r && json_next(&c, &key, &v)) {
			if (strcmp(key, "functionDeclarations") && strcmp(key, "function_declarations")) {
				warnings_add(&w->tools, NULL, key);
				continue;
			}
			snprintf(at, sizeof at, "tools[%zu].functionDeclarations", i);
			if (json_kind(v) != JSON_ARRAY && json_kind(v) != JSON_NULL)
				r = field_wrong(p, at, "an array of functions", v);
			for (size_t k = 0; k < json_len(v) && !r; k++) {
				snprintf(at, sizeof at, "tools[%zu].functionDeclarations[%zu]", i, k);
				r = put_function(json_at(v, k), at, &list, p);
			}
		}
	}
	if (list.n) {
		put_name(out, "tools");
		buf_printf(out, "[%s]", list.p);
	}
	buf_fini(&list);
	return r;
}

static int put_tool_config(const struct json *config, struct warnings *w, struct buf *out, struct problem *p)
{
	static const char at[] = "toolConfig.functionCallingConfig.mode";
	const struct json *own = json_get(config, "functionCallingConfig"), *mode = json_get(own, "mode"),
			  *allowed = json_get(own, "allowedFunctionNames");
	bool any = str_is(mode, "ANY"), none = str_is(mode, "NONE");
	const char *use = any ? "\"required\"" : none ? "\"none\"" : "\"auto\"";

	int r;

	if (json_kind(config) != JSON_NULL && json_kind(config) != JSON_OBJECT)
		return field_wrong(p, "toolConfig", "an object", config);
	if ((r = field_takes(config, "toolConfig", "functionCallingConfig", TAKES_OBJECT, p)) ||
	    (r = field_takes(own, "toolConfig.functionCallingConfig", "allowedFunctionNames", TAKES_ARRAY, p)))
		return r;
	if (json_kind(mode) == JSON_NULL)
		return 0;
	if (!any && !none && !str_is(mode, "AUTO") && !str_is(mode, "VALIDATED") && !str_is(mode, "MODE_UNSPECIFIED"))
		return field_wrong(p, at, "AUTO, ANY, NONE or VALIDATED", mode);
	warnings_rename(w, "tool_choice", at);
	put_name(out, "tool_choice");
	if (none || !json_len(allowed)) {
		buf_puts(out, use);
		return 0;
	}
	buf_printf(out, "{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":%s,\"tools\":[", use);
	for (size_t i = 0; i < json_len(allowed); i++) {
		if (json_kind(json_at(allowed, i)) != JSON_STRING)
			return field_wrong(p, "toolConfig.functionCallingConfig.allowedFunctionNames",
			                   "an array of names", json_at(allowed, i));
		buf_puts(out, i ? ",{\"type\":\"function\",\"function\":{\"name\":" :
		                  "{\"type\":\"function\",\"function\":{\"name\":");
		json_put(out, json_at(allowed, i));
		buf_puts(out, "}}");
	}
	buf_puts(out, "]}}");
	return 0;
}

/* ---- generationConfig ---- */

/* Members of it that have another name in chats; path: what errors call them. */
enum { PATH = sizeof "generationConfig." - 1 };
static const struct {
	const char *path, *as;
} renamed[] = {
	{ "generationConfig.temperature", "temperature" },
	{ "generationConfig.topP", "top_p" },
	{ "generationConfig.topK", "top_k" },
	{ "generationConfig.maxOutputTokens", "max_completion_tokens" },
	{ "generationConfig.stopSequences", "stop" },
	{ "generationConfig.candidateCount", "n" },
	{ "generationConfig.seed", "seed" },
	{ "generationConfig.presencePenalty", "presence_penalty" },
	{ "generationConfig.frequencyPenalty", "frequency_penalty" },
};
static const struct field config_fields[] = {
	{ "temperature" },
	{ "topP" },
	{ "topK" },
	{ "maxOutputTokens" },
	{ "stopSequences" },
	{ "candidateCount" },
	{ "seed" },
	{ "presencePenalty" },
	{ "frequencyPenalty" },
	{ "thinkingConfig" },
	{ "responseMimeType" },
	{ "responseSchema" },
	{ "responseJsonSchema" },
	{ "responseLogprobs", "false" },
	{ "logprobs", "0" },
	{ "responseModalities", "[\"TEXT\"]|[]" },
	{ "speechConfig", "" },
	IGNORED("mediaResolution", "\"MEDIA_RESOLUTION_UNSPECIFIED\""),
	IGNORED("enableEnhancedCivicAnswers", "false"),
	{ NULL },
};

/* Thoughts are told only to those who ask.  A budget of -1 is the model's own, 0 is none. */
static int put_thinking(const struct json *config, struct warnings *w, struct buf *out, struct problem *p)
{
	static const struct field known[] = {
		{ "includeThoughts" }, { "thinkingBudget" }, { "thinkingLevel" }, { NULL }
	};
	static const struct field *const tables[] = { known, NULL };
	const struct json *thinking, *level;
	bool told = false;
	int64_t budget = -1;
	const char *s;
	size_t n;
	int r;

	if ((r = field_value(config, "thinkingConfig", JSON_OBJECT, &thinking, p)) ||
	    (thinking && (r = fields_check(thinking, "generationConfig.thinkingConfig", tables, w, p))) ||
	    (r = field_bool(thinking, "includeThoughts", &told, p)) ||
	    (r = field_int(thinking, "thinkingBudget", -1, INT32_MAX, &budget, p)) ||
	    (r = field_value(thinking, "thinkingLevel", JSON_STRING, &level, p)))
		return r;
	put_raw_member(out, "include_reasoning", told ? "true" : "false");
	if ((s = json_str(level, &n)) && strcmp(s, "THINKING_LEVEL_UNSPECIFIED")) {
		warnings_rename(w, "reasoning_effort", "generationConfig.thinkingConfig.thinkingLevel");
		put_name(out, "reasoning_effort");
		put_type(level, false, out);
	} else if (!budget) {
		warnings_rename(w, "reasoning_effort", "generationConfig.thinkingConfig.thinkingBudget");
		put_raw_member(out, "reasoning_effort", "\"none\"");
	}
	if (budget > 0) {
		warnings_rename(w, "thinking_budget", "generationConfig.thinkingConfig.thinkingBudget");
		put_member(out, "thinking_budget", json_get(thinking, "thinkingBudget"));
	}
	return 0;
}

static int put_form(const struct json *config, struct warnings *w, struct buf *out, struct problem *p)
{
	static const char at[] = "generationConfig.responseMimeType";
	const struct json *type = json_get(config, "responseMimeType"),
			  *schema = json_get(config, "responseJsonSchema"), *own = json_get(config, "responseSchema");

	if (json_kind(type) != JSON_NULL && !str_is(type, "text/plain") && !str_is(type, "application/json"))
		return field_wrong(p, at, "text/plain or application/json", type);
	if (json_kind(schema) == JSON_NULL)
		schema = NULL;
	if (schema || json_kind(own) != JSON_NULL) {
		warnings_rename(w, "json_schema",
		                schema ? "generationConfig.responseJsonSchema" : "generationConfig.responseSchema");
		put_name(out, "json_schema");
		if (schema)
			json_put(out, schema);
		else
			put_schema(own, out);
	} else if (str_is(type, "application/json")) {
		put_raw_member(out, "response_format", "{\"type\":\"json_object\"}");
	}
	return 0;
}

static int put_config(const struct json *body, struct warnings *w, struct buf *out, struct problem *p)
{
	static const struct field *const tables[] = { config_fields, NULL };
	const struct json *config, *v;
	int r;

	if ((r = field_value(body, "generationConfig", JSON_OBJECT, &config, p)) ||
	    (config && (r = fields_check(config, "generationConfig", tables, w, p))))
		return r;
	for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++) {
		if (json_kind(v = json_get(config, renamed[i].path + PATH)) == JSON_NULL)
			continue;
		warnings_rename(w, renamed[i].as, renamed[i].path);
		put_member(out, renamed[i].as, v);
	}
	return (r = put_thinking(config, w, out, p)) ? r : put_form(config, w, out, p);
}

/* Appends the body of a chat completion that asks for the same as body, which body_check has seen.  Names of members that change are
 * told to w, so that errors name the client's own. */
static int rewrite(const struct json *body, struct warnings *w, struct buf *out, struct problem *p)
{
	struct buf messages;
	int r;

	buf_init(&messages);
	buf_putc(out, '{');
	put_member(out, "model", json_get(body, "model"));
	put_member(out, "stream", json_get(body, "stream"));
	if (!(r = put_messages(body, &messages, p)) && !(r = put_tools(json_get(body, "tools"), w, out, p)) &&
	    !(r = put_tool_config(json_get(body, "toolConfig"), w, out, p)) && !(r = put_config(body, w, out, p)))
		put_raw_member(out, "messages", messages.p);
	buf_putc(out, '}');
	buf_fini(&messages);
	return r;
}

static int read_body(struct generation *g, struct json *body, struct problem *p)
{
	static const struct field *const own[] = { gemini_fields, NULL };
	static const struct field *const tables[] = { chat_fields, form_fields, params_fields, NULL };
	struct json *meant = NULL;
	struct buf b;
	int r;

	if (!(body = body_check(body, own, &g->params.warnings, p)))
		return p->status;
	buf_init(&b);
	if (!(r = rewrite(body, &g->params.warnings, &b, p)) && !(meant = body_parse(b.p, b.n, p)))
		r = p->status;
	json_free(body);
	buf_fini(&b);
	return r ? r : chat_body(g, meant, tables, chat_read, chat_prompt, p);
}

/* Puts what the path says into the body, where all else looks for it; a member of the same name counts no more, since of two
 * the last does.  The parser refuses a body that is not an object. */
static void put_into_body(struct exchange *x, size_t n_name, bool stream)
{
	struct buf *b = &x->body;
	size_t end = b->n, before;

	while (end && strchr(" \t\r\n", b->p[end - 1]))
		end--;
	if (!end || b->p[end - 1] != '}')
		return;
	for (before = end - 1; before && strchr(" \t\r\n", b->p[before - 1]);)
		before--;
	b->n = end - 1;
	buf_puts(b, before && b->p[before - 1] == '{' ? "\"model\":" : ",\"model\":");
	json_put_str(b, x->rest.p, n_name);
	buf_printf(b, ",\"stream\":%s}", stream ? "true" : "false");
}

static void prep(struct exchange *x)
{
	const char *colon = x->rest.n ? memrchr(x->rest.p, ':', x->rest.n) : NULL, *method, *alt;
	size_t n_alt = 0;
	bool stream, counts;
	struct json *body;

	method = colon ? colon + 1 : "";
	stream = !strcmp(method, "streamGenerateContent");
	counts = !strcmp(method, "countTokens");
	if (!stream && !counts && strcmp(method, "generateContent")) {
		problem_set(&x->problem, 404, NULL, NULL,
		            "there is nothing at %s%.100s; methods of a model are :generateContent, "
		            ":streamGenerateContent and :countTokens",
		            x->route->path, x->rest.p);
		return;
	}
	alt = exchange_query(x, "alt", &n_alt);
	if (stream && (!alt || n_alt != 3 || memcmp(alt, "sse", 3))) {
		problem_set(&x->problem, 400, "unsupported_value", "alt",
		            "streamGenerateContent answers with server-sent events only: ask for them with ?alt=sse");
		return;
	}
	put_into_body(x, (size_t)(colon - x->rest.p), stream);
	body = body_parse(x->body.p, x->body.n, &x->problem);
	buf_fini(&x->body);
	if (body)
		generation_prep_as(x, counts ? &count_endpoint : x->route->endpoint, body);
}

/* ---- writing ---- */

static void put_said_text(const struct choice *c, const struct piece *p, struct buf *parts)
{
	buf_puts(parts, parts->n ? ",{\"text\":" : "{\"text\":");
	json_put_str(parts, c->split.text.p + p->at, p->n);
	buf_puts(parts, p->kind == PIECE_THINKING ? ",\"thought\":true}" : "}");
}

/* A call's name and its arguments as an object. */
static void put_called(struct choice *c, int i, struct buf *parts)
{
	const struct piece *name = &c->split.piece[i], *args = &c->split.piece[i + 1];
	const char *text = c->split.text.p;
	struct json *j = json_parse(text + args->at, args->n, 200, NULL);

	buf_printf(parts, "%s{\"functionCall\":{\"id\":\"call_%s\",\"name\":", parts->n ? "," : "",
	           chat_call_id(c, c->told_calls++));
	json_put_str(parts, text + name->at, name->n);
	buf_puts(parts, ",\"args\":");
	if (json_kind(j) == JSON_OBJECT) {
		json_put(parts, j);
	} else {
		buf_puts(parts, "{\"arguments\":");
		json_put_str(parts, text + args->at, args->n);
		buf_putc(parts, '}');
	}
	buf_puts(parts, "}}");
	json_free(j);
}

/* Appends what is new of the answer as parts.  A call comes whole: when it ends, or when the answer does. */
static void put_news(const struct generation *g, struct choice *c, struct buf *parts)
{
	struct piece p;
	bool begins;

	while (chat_next(c, &p, &begins)) {
		if (p.kind == PIECE_CONTENT || (p.kind == PIECE_THINKING && !g->hide_thinking))
			put_said_text(c, &p, parts);
		else if (p.kind == PIECE_CALL_END)
			put_called(c, c->told - 2, parts);
	}
}

/* The last object of a choice always has a part: clients look for one next to the reason. */
static void put_candidate(const struct choice *c, const struct buf *parts, bool ends, struct buf *out)
{
	buf_printf(out, "{\"content\":{\"parts\":[%s],\"role\":\"model\"}", parts->n ? parts->p : "{\"text\":\"\"}");
	if (ends)
		buf_printf(out, ",\"finishReason\":\"%s\"", c->finish == FINISH_LENGTH ? "MAX_TOKENS" : "STOP");
	buf_printf(out, ",\"index\":%d}", c->index);
}

static void put_tail(const struct generation *g, bool usage, struct buf *out)
{
	struct usage u = generation_usage(g);

	if (usage) {
		buf_printf(out,
		           "],\"usageMetadata\":{\"promptTokenCount\":%d,\"cachedContentTokenCount\":%d,"
		           "\"candidatesTokenCount\":%d,\"thoughtsTokenCount\":%d,\"totalTokenCount\":%d",
		           u.prompt, u.cached, u.output - u.thought, u.thought, u.prompt + u.output);
		put_cache_report(g, out);
		buf_puts(out, "},");
	} else {
		buf_puts(out, "],");
	}
	buf_puts(out, "\"modelVersion\":");
	json_put_cstr(out, model_shown(g));
	buf_printf(out, ",\"responseId\":\"%s\"}", g->x->id);
}

static void put_event(const struct generation *g, const struct choice *c, const struct buf *parts, bool ends,
                      struct buf *out)
{
	event_begin(out);
	buf_puts(out, "{\"candidates\":[");
	put_candidate(c, parts, ends, out);
	put_tail(g, ends, out);
	event_end(out);
}

static void delta(struct generation *g, struct choice *c, struct buf *out)
{
	struct buf parts;

	buf_init(&parts);
	put_news(g, c, &parts);
	if (parts.n)
		put_event(g, c, &parts, false, out);
	buf_fini(&parts);
}

static void last(struct generation *g, struct choice *c, struct buf *out)
{
	struct buf parts;

	buf_init(&parts);
	put_news(g, c, &parts);
	put_event(g, c, &parts, true, out);
	buf_fini(&parts);
}

static void close_stream(struct generation *g, struct buf *out)
{
	(void)g;
	(void)out;
}

static void error(struct generation *g, const struct problem *p, struct buf *out)
{
	(void)g;
	event_begin(out);
	problem_put(out, p);
	event_end(out);
}

static void gemini_whole(struct generation *g, struct buf *out)
{
	struct buf parts;

	buf_puts(out, "{\"candidates\":[");
	for (int i = 0; i < g->n_choice; i++) {
		buf_init(&parts);
		put_news(g, &g->choice[i], &parts);
		buf_puts(out, i ? "," : "");
		put_candidate(&g->choice[i], &parts, true, out);
		buf_fini(&parts);
	}
	put_tail(g, true, out);
	buf_putc(out, '\n');
}

static void ready(struct exchange *x)
{
	struct generation *g = x->work;
	struct buf b;

	if (g->endpoint != &count_endpoint) {
		generation_ready(x);
		return;
	}
	buf_init(&b);
	buf_printf(&b, "{\"totalTokens\":%zu}\n", g->prompt[0].n);
	generation_reply(g, &b);
	buf_fini(&b);
}

static const struct endpoint count_endpoint = { .any_length = true, .read = read_body };

/* Google's clients take a stream apart with an expression that allows space before "data:" and nothing else: one comment, and
 * they find no event any more. */
const struct endpoint gemini_endpoint = {
	.prep = prep,
	.ready = ready,
	.wake = generation_wake,
	.drop = generation_drop,
	.abandon = generation_abandon,
	.stop = generation_stop,
	.id_prefix = "gemini-",
	.stream_type = "text/event-stream; charset=utf-8",
	.keep_alive = "\n",
	.read = read_body,
	.open = chat_open,
	.token = chat_token,
	.end = chat_end,
	.delta = delta,
	.last = last,
	.close = close_stream,
	.error = error,
	.whole = gemini_whole,
};
