/* api_gemini.c - POST /v1beta/models/NAME:METHOD, where METHOD is generateContent, streamGenerateContent or countTokens, in the shapes
 * of Google's Gemini API.  A body becomes that of a chat completion, which shares its values, and is read as one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allowance.h"
#include "server/chat/chat.h"
#include "server/chat/messages.h"
#include "server/inside.h"
#include "server/routes.h"
#include "server/chat/structured.h"

static const struct endpoint count_endpoint;

/* ---- reading ---- */

static const struct field gemini_fields[] = {
	TAKEN("model", TAKES_STRING), /* prep puts it and stream there, from the path */
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

/* ---- schemas ---- */

/* A name of a type: in capitals in this API, in small letters in JSON schemas. */
static struct json *type_of(const struct json *type)
{
	struct json *out;
	struct buf small;
	size_t n = 0;
	const char *s = json_str(type, &n);

	buf_init(&small);
	for (size_t i = 0; i < n; i++)
		buf_putc(&small, (char)(s[i] >= 'A' && s[i] <= 'Z' ? s[i] - 'A' + 'a' : s[i]));
	out = json_new_str(small.p, small.n);
	buf_fini(&small);
	return out;
}

/* Bounds come as strings too, as all integers of 64 bits may in this API. */
static bool is_bound(const char *key, const struct json *v)
{
	size_t n, len = strlen(key);
	const char *s = json_str(v, &n);

	return s && n && n < 19 && strspn(s, "0123456789") == n &&
	       (!strncmp(key, "min", 3) || !strncmp(key, "max", 3)) && len > 5;
}

static struct json *schema_of(const struct json *schema);

/* The members of an object that are schemas: of properties and $defs. */
static struct json *schemas_of(const struct json *v)
{
	struct json_cursor c = json_first(v);
	struct json *out = json_new_object();
	const struct json *one;
	const char *key;

	while (json_next(&c, &key, &one) && allowance_spend(1))
		json_set(out, key, schema_of(one));
	return out;
}

static struct json *keyword_of(const char *key, const struct json *v, bool nullable)
{
	struct json *out;
	size_t n;

	if (!strcmp(key, "type") && json_str(v, &n)) {
		if (!nullable)
			return type_of(v);
		out = json_new_array();
		json_add(out, type_of(v));
		json_add(out, json_new_str("null", 4));
		return out;
	}
	if (is_bound(key, v))
		return json_new_int(strtoll(json_str(v, &n), NULL, 10));
	if ((!strcmp(key, "properties") || !strcmp(key, "$defs")) && json_kind(v) == JSON_OBJECT)
		return schemas_of(v);
	if (!strcmp(key, "items") || !strcmp(key, "additionalProperties"))
		return schema_of(v);
	if (strcmp(key, "anyOf") || json_kind(v) != JSON_ARRAY)
		return json_share(v);
	out = json_new_array();
	for (size_t i = 0; i < json_len(v) && allowance_spend(1); i++)
		json_add(out, schema_of(json_at(v, i)));
	return out;
}

/* A schema in this API's form as a JSON schema.  As deep as the body, which is bounded where it is parsed. */
static struct json *schema_of(const struct json *schema)
{
	struct json_cursor c = json_first(schema);
	const struct json *v;
	bool nullable = false;
	struct json *out;
	const char *key;

	if (json_kind(schema) != JSON_OBJECT)
		return json_share(schema);
	json_to_bool(json_get(schema, "nullable"), &nullable);
	out = json_new_object();
	while (json_next(&c, &key, &v) && allowance_spend(1))
		if (strcmp(key, "nullable") && strcmp(key, "propertyOrdering") && strcmp(key, "example"))
			json_set(out, key, keyword_of(key, v, nullable));
	return out;
}

/* ---- contents ---- */

/* Messages as they are made: what the user says is gathered until something else comes. */
struct talk {
	struct json *out, *said; /* messages; parts */
	int n_call, n_result;    /* so far, of those without an id */
};

/* A message of these parts, which are taken over. */
static struct json *message_of_parts(const char *role, struct json *parts)
{
	struct json *m = message_new(role, "", 0);

	json_set(m, "content", parts);
	return m;
}

static void flush_said(struct talk *t, const char *role)
{
	if (!json_len(t->said))
		return;
	json_add(t->out, message_of_parts(role, t->said));
	t->said = json_new_array();
}

/* Adds {"type": "text", "text"}; takes text over. */
static void add_text(struct json *parts, struct json *text)
{
	struct json *part = json_new_object();

	json_set_cstr(part, "type", "text");
	json_set(part, "text", text);
	json_add(parts, part);
}

/* Adds {"type": TYPE, TYPE: {name: value}}; takes value over. */
static void add_media(struct json *parts, const char *type, const char *name, struct json *value)
{
	struct json *part = json_new_object(), *inner = json_new_object();

	json_set(inner, name, value);
	json_set_cstr(part, "type", type);
	json_set(part, type, inner);
	json_add(parts, part);
}

/* data:KIND;base64,DATA */
static struct json *data_url(const char *kind, size_t n_kind, const char *data, size_t n)
{
	struct json *url;
	struct buf b;

	buf_init(&b);
	buf_puts(&b, "data:");
	buf_put(&b, kind, n_kind);
	buf_puts(&b, ";base64,");
	buf_put(&b, data, n);
	url = json_new_str(b.p, b.n);
	buf_fini(&b);
	return url;
}

/* Text; inlineData {"mimeType", "data"} and fileData {"mimeType", "fileUri"} of images and sounds. */
static int add_part(const struct json *part, const char *at, struct json *parts, struct problem *p)
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
		if (json_kind(v) != JSON_STRING)
			return field_wrong(p, where, "a string", v);
		add_text(parts, json_share(v));
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
	if (*kind == 'a')
		add_media(parts, "input_audio", "data", json_share(v));
	else
		add_media(parts, "image_url", "url", inside ? data_url(kind, n_kind, s, n) : json_share(v));
	return 0;
}

/* The id of a call or a result; of one that came with none, that of its place. */
static struct json *id_of(const struct json *of, int *n)
{
	size_t len = 0;
	char id[20];

	if (json_str(json_get(of, "id"), &len) && len)
		return json_share(json_get(of, "id"));
	snprintf(id, sizeof id, "call_%d", (*n)++);
	return json_new_str(id, strlen(id));
}

/* The result of a function as text: "output" or "error" of its response where they are, else all of it, as JSON. */
static struct json *response_text(const struct json *response)
{
	const struct json *v = json_get(response, "output") ? json_get(response, "output") :
	                                                      json_get(response, "error");
	struct json *out;
	struct buf text;

	if (json_kind(v) == JSON_STRING)
		return json_share(v);
	buf_init(&text);
	json_put(&text, v ? v : response);
	out = json_new_str(text.p, text.n);
	buf_fini(&text);
	return out;
}

static int add_result(const struct json *result, const char *at, struct talk *t, struct problem *p)
{
	const struct json *name = json_get(result, "name"), *response = json_get(result, "response"),
			  *more = json_get(result, "parts");
	struct json *parts, *m;
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
	parts = json_new_array();
	add_text(parts, response_text(response));
	for (size_t i = 0; i < json_len(more) && !r && allowance_spend(1); i++) {
		snprintf(where, sizeof where, "%.60s.functionResponse.parts[%zu]", at, i);
		r = add_part(json_at(more, i), where, parts, p);
	}
	m = message_of_parts("tool", parts);
	json_set(m, "name", json_share(name));
	json_set(m, "tool_call_id", id_of(result, &t->n_result));
	if (json_get(response, "error"))
		json_set_bool(m, "is_error", true);
	json_add(t->out, m);
	return r;
}

static int add_call(const struct json *call, const char *at, struct talk *t, struct json *calls, struct problem *p)
{
	const struct json *name = json_get(call, "name"), *args = json_get(call, "args");
	struct json *id;
	char where[120];
	const char *s;
	size_t n;
	int r;

	snprintf(where, sizeof where, "%.70s.functionCall", at);
	if ((r = field_takes(call, where, "id", TAKES_STRING, p)))
		return r;
	snprintf(where, sizeof where, "%.70s.functionCall.name", at);
	if (!(s = json_str(name, &n)))
		return field_wrong(p, where, "a string", name);
	snprintf(where, sizeof where, "%.70s.functionCall.args", at);
	if (json_kind(args) != JSON_OBJECT && json_kind(args) != JSON_NULL)
		return field_wrong(p, where, "an object", args);
	id = id_of(call, &t->n_call);
	json_add(calls, call_new(id, s, n, json_kind(args) == JSON_OBJECT ? json_share(args) : json_new_object()));
	json_free(id);
	return 0;
}

static int add_user(const struct json *parts, const char *at, struct talk *t, struct problem *p)
{
	char where[100];
	int r = 0;

	for (size_t i = 0; i < json_len(parts) && !r && allowance_spend(1); i++) {
		const struct json *part = json_at(parts, i), *result = json_get(part, "functionResponse");

		snprintf(where, sizeof where, "%.60s.parts[%zu]", at, i);
		if (result)
			flush_said(t, "user");
		r = result ? add_result(result, where, t, p) : add_part(part, where, t->said, p);
	}
	flush_said(t, "user");
	return r;
}

static int add_model(const struct json *parts, const char *at, struct talk *t, struct problem *p)
{
	struct json *calls = json_new_array();
	struct buf text, thought;
	char where[100];
	int r = 0;

	buf_init(&text);
	buf_init(&thought);
	for (size_t i = 0; i < json_len(parts) && !r && allowance_spend(1); i++) {
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
			r = add_call(call, where, t, calls, p);
		else if (s)
			buf_put(thinks ? &thought : &text, s, n);
		else if (json_get(part, "text") || !json_get(part, "thoughtSignature"))
			r = problem_set(p, 400, "unsupported_content", where,
			                "%s: this server reads parts of a model with text or functionCall", where);
	}
	json_add(t->out, message_assistant(&text, &thought, calls));
	buf_fini(&text);
	buf_fini(&thought);
	return r;
}

static int add_content(const struct json *content, size_t i, struct talk *t, struct problem *p)
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
		return add_model(parts, at, t, p);
	if (!json_len(parts))
		return problem_set(p, 400, "invalid_value", at, "%s.parts is empty: at least one part is needed", at);
	if (json_kind(role) != JSON_NULL && !str_is(role, "user") && !str_is(role, "function"))
		return field_wrong(p, where, "user, model or function", role);
	return add_user(parts, at, t, p);
}

static int add_messages(const struct json *body, struct json *out, struct problem *p)
{
	const struct json *contents = json_get(body, "contents"), *system = json_get(body, "systemInstruction"),
			  *parts = json_get(system, "parts");
	struct talk t = { .out = out, .said = NULL };
	char where[60];
	int r = 0;

	if (json_kind(contents) != JSON_ARRAY || !json_len(contents))
		return field_wrong(p, "contents", "an array of one or more contents", contents);
	if (json_kind(system) != JSON_NULL && json_kind(parts) != JSON_ARRAY)
		return field_wrong(p, "systemInstruction", "an object with parts", system);
	if ((r = field_takes(system, "systemInstruction", "role", TAKES_STRING, p)))
		return r;
	t.said = json_new_array();
	for (size_t i = 0; i < json_len(parts) && !r && allowance_spend(1); i++) {
		snprintf(where, sizeof where, "systemInstruction.parts[%zu]", i);
		r = add_part(json_at(parts, i), where, t.said, p);
	}
	flush_said(&t, "system");
	for (size_t i = 0; i < json_len(contents) && !r && allowance_spend(1); i++)
		r = add_content(json_at(contents, i), i, &t, p);
	json_free(t.said);
	return r;
}

/* ---- tools ---- */

/* Adds {"type": "function", "function"}; takes function over. */
static void add_tool(struct json *list, struct json *function)
{
	struct json *tool = json_new_object();

	json_set_cstr(tool, "type", "function");
	json_set(tool, "function", function);
	json_add(list, tool);
}

static int add_function(const struct json *f, const char *at, struct json *list, struct problem *p)
{
	struct json *function;
	const struct json *v;

	if (json_kind(f) != JSON_OBJECT)
		return field_wrong(p, at, "an object with a name", f);
	function = json_new_object();
	json_set(function, "name", json_share(json_get(f, "name")));
	if ((v = json_get(f, "description")))
		json_set(function, "description", json_share(v));
	if ((v = json_get(f, "parametersJsonSchema")))
		json_set(function, "parameters", json_share(v));
	else if ((v = json_get(f, "parameters")))
		json_set(function, "parameters", schema_of(v));
	add_tool(list, function);
	return 0;
}

/* Functions; what Google itself would do is left out with a warning. */
static int set_tools(const struct json *tools, struct warnings *w, struct json *out, struct problem *p)
{
	struct json *list;
	char at[80];
	int r = 0;

	if (json_kind(tools) != JSON_NULL && json_kind(tools) != JSON_ARRAY)
		return field_wrong(p, "tools", "an array of tools", tools);
	list = json_new_array();
	for (size_t i = 0; i < json_len(tools) && !r && allowance_spend(1); i++) {
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
			for (size_t k = 0; k < json_len(v) && !r && allowance_spend(1); k++) {
				snprintf(at, sizeof at, "tools[%zu].functionDeclarations[%zu]", i, k);
				r = add_function(json_at(v, k), at, list, p);
			}
		}
	}
	if (json_len(list))
		json_set(out, "tools", list);
	else
		json_free(list);
	return r;
}

/* {"type": "allowed_tools", "allowed_tools": {"mode", "tools": [{"type": "function", "function": {"name"}}]}} */
static struct json *allowed_of(const struct json *names, const char *mode)
{
	struct json *out, *allowed, *list = json_new_array();

	for (size_t i = 0; i < json_len(names) && allowance_spend(1); i++) {
		struct json *function = json_new_object();

		json_set(function, "name", json_share(json_at(names, i)));
		add_tool(list, function);
	}
	allowed = json_new_object();
	json_set_cstr(allowed, "mode", mode);
	json_set(allowed, "tools", list);
	out = json_new_object();
	json_set_cstr(out, "type", "allowed_tools");
	json_set(out, "allowed_tools", allowed);
	return out;
}

static int set_tool_config(const struct json *config, struct warnings *w, struct json *out, struct problem *p)
{
	static const char at[] = "toolConfig.functionCallingConfig.mode";
	const struct json *own = json_get(config, "functionCallingConfig"), *mode = json_get(own, "mode"),
			  *allowed = json_get(own, "allowedFunctionNames");
	bool any = str_is(mode, "ANY"), none = str_is(mode, "NONE");
	const char *use = any ? "required" : none ? "none" : "auto";
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
	for (size_t i = 0; !none && i < json_len(allowed) && allowance_spend(1); i++)
		if (json_kind(json_at(allowed, i)) != JSON_STRING)
			return field_wrong(p, "toolConfig.functionCallingConfig.allowedFunctionNames",
			                   "an array of names", json_at(allowed, i));
	if (none || !json_len(allowed))
		json_set_cstr(out, "tool_choice", use);
	else
		json_set(out, "tool_choice", allowed_of(allowed, use));
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
static int set_thinking(const struct json *config, struct warnings *w, struct json *out, struct problem *p)
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
	json_set_bool(out, "include_reasoning", told);
	if ((s = json_str(level, &n)) && strcmp(s, "THINKING_LEVEL_UNSPECIFIED")) {
		warnings_rename(w, "reasoning_effort", "generationConfig.thinkingConfig.thinkingLevel");
		json_set(out, "reasoning_effort", type_of(level));
	} else if (!budget) {
		warnings_rename(w, "reasoning_effort", "generationConfig.thinkingConfig.thinkingBudget");
		json_set_cstr(out, "reasoning_effort", "none");
	}
	if (budget > 0) {
		warnings_rename(w, "thinking_budget", "generationConfig.thinkingConfig.thinkingBudget");
		json_set(out, "thinking_budget", json_share(json_get(thinking, "thinkingBudget")));
	}
	return 0;
}

static int set_form(const struct json *config, struct warnings *w, struct json *out, struct problem *p)
{
	static const char at[] = "generationConfig.responseMimeType";
	const struct json *type = json_get(config, "responseMimeType"),
			  *schema = json_get(config, "responseJsonSchema"), *own = json_get(config, "responseSchema");
	struct json *form;

	if (json_kind(type) != JSON_NULL && !str_is(type, "text/plain") && !str_is(type, "application/json"))
		return field_wrong(p, at, "text/plain or application/json", type);
	if (json_kind(schema) == JSON_NULL)
		schema = NULL;
	if (schema || json_kind(own) != JSON_NULL) {
		warnings_rename(w, "json_schema",
		                schema ? "generationConfig.responseJsonSchema" : "generationConfig.responseSchema");
		json_set(out, "json_schema", schema ? json_share(schema) : schema_of(own));
	} else if (str_is(type, "application/json")) {
		form = json_new_object();
		json_set_cstr(form, "type", "json_object");
		json_set(out, "response_format", form);
	}
	return 0;
}

static int set_config(const struct json *body, struct warnings *w, struct json *out, struct problem *p)
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
		json_set(out, renamed[i].as, json_share(v));
	}
	return (r = set_thinking(config, w, out, p)) ? r : set_form(config, w, out, p);
}

/* The body of a chat completion that asks for the same as body, which body_check has seen, and shares its values; NULL with *p
 * filled.  Names of members that change are told to w, so that errors name the client's own. */
static struct json *translate(const struct json *body, struct warnings *w, struct problem *p)
{
	struct json *out = json_new_object(), *messages = json_new_array();

	json_set(out, "model", json_share(json_get(body, "model")));
	json_set(out, "stream", json_share(json_get(body, "stream")));
	if (add_messages(body, messages, p) || set_tools(json_get(body, "tools"), w, out, p) ||
	    set_tool_config(json_get(body, "toolConfig"), w, out, p) || set_config(body, w, out, p)) {
		json_free(messages);
		json_free(out);
		return NULL;
	}
	json_set(out, "messages", messages);
	return out;
}

static int read_body(struct generation *g, struct json *body, struct problem *p)
{
	static const struct field *const own[] = { gemini_fields, NULL };
	static const struct field *const tables[] = { chat_fields, form_fields, params_fields, NULL };
	struct json *meant;

	if (!(body = body_check(body, own, &g->params.warnings, p)))
		return p->status;
	meant = translate(body, &g->params.warnings, p);
	json_free(body);
	return meant ? chat_body(g, meant, tables, chat_read, chat_prompt, p) : p->status;
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
	body = body_parse(x->body.p, x->body.n, &x->problem);
	buf_fini(&x->body);
	if (!body)
		return;
	/* The model's name and the method are in the path; all else looks for them in the body. */
	json_set(body, "model", json_new_bytes(x->rest.p, (size_t)(colon - x->rest.p)));
	json_set_bool(body, "stream", stream);
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
	           chat_call_id(c, c->told.calls++));
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
		if (p.kind == PIECE_CONTENT || (p.kind == PIECE_THINKING && !g->thoughts.hidden))
			put_said_text(c, &p, parts);
		else if (p.kind == PIECE_CALL_END)
			put_called(c, c->told.n - 2, parts);
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
	buf_printf(&b, "{\"totalTokens\":%zu}\n", g->prompts.of[0].n);
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
