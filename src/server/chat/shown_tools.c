/* shown_tools.c - see shown_tools.h. */
#include "server/chat/shown_tools.h"

#include <string.h>

#include "server/chat/messages.h"

/* ---- trying a template ---- */

static bool renders(const struct served *d, const char *text)
{
	struct json *tools = json_parse(text, strlen(text), 0, NULL), *messages = json_new_array();
	struct template_input in = { .messages = messages,
		                     .tools = tools,
		                     .extra = d->template_args,
		                     .add_generation_prompt = true,
		                     .bos_token = d->bos_token,
		                     .eos_token = d->eos_token };
	struct template_output o;
	bool good;

	json_add(messages, message_new("user", "q", 1));
	template_output_init(&o);
	good = tools && !template_render(served_template(d, true), &in, &o, NULL);
	template_output_fini(&o);
	json_free(messages);
	json_free(tools);
	return good;
}

/* Whether the template renders a function with these members. */
#define RENDERS(members) renders(d, "[{\"type\":\"function\",\"function\":{\"name\":\"f\"" members "}}]")
#define ABOUT ",\"description\":\"d\""
#define PARAMETERS(properties) ",\"parameters\":{\"type\":\"object\",\"properties\":{" properties "},\"required\":[]}"

void tool_needs_try(struct tool_needs *needs, const struct served *d)
{
	*needs = (struct tool_needs){ 0 };
	/* A template that takes no function at all is not judged by what it wants of one. */
	if (!RENDERS(ABOUT PARAMETERS("\"p\":{\"type\":\"string\",\"description\":\"d\"}")))
		return;
	needs->description = !RENDERS(PARAMETERS(""));
	needs->no_null = !RENDERS(",\"description\":null" PARAMETERS(""));
	needs->parameters = !RENDERS(ABOUT) || !RENDERS(ABOUT ",\"parameters\":{}") ||
	                    !RENDERS(ABOUT ",\"parameters\":{\"type\":\"object\"}");
	needs->property_details = !RENDERS(ABOUT PARAMETERS("\"p\":{\"type\":\"string\"}"));
}

/* ---- completing tools ---- */

/* The members of object, if it is one, without the one that the caller sets last. */
static struct json *copy_but(const struct json *object, const char *but)
{
	struct json *out = json_kind(object) == JSON_OBJECT ? json_copy(object) : json_new_object();

	json_drop(out, but);
	return out;
}

static struct json *fit_property(const struct json *property)
{
	const struct json *about = json_get(property, "description");
	struct json *out;

	if (json_kind(property) != JSON_OBJECT)
		return json_share(property);
	out = copy_but(property, "description");
	json_set(out, "description", json_kind(about) == JSON_STRING ? json_share(about) : json_new_str("", 0));
	return out;
}

static struct json *fit_parameters(const struct tool_needs *needs, const struct json *parameters)
{
	struct json *out = json_new_object(), *properties = json_new_object();
	struct json_cursor c = json_first(parameters);
	const struct json *v;
	const char *key;

	if (!json_get(parameters, "type"))
		json_set_cstr(out, "type", "object");
	while (json_next(&c, &key, &v))
		if (strcmp(key, "properties"))
			json_set(out, key, json_share(v));
	for (c = json_first(json_get(parameters, "properties")); json_next(&c, &key, &v);)
		json_set(properties, key, needs->property_details ? fit_property(v) : json_share(v));
	json_set(out, "properties", properties);
	if (needs->property_details && !json_get(parameters, "required"))
		json_set(out, "required", json_new_array());
	return out;
}

static struct json *fit_function(const struct tool_needs *needs, const struct json *function)
{
	const struct json *about = json_get(function, "description"), *parameters = json_get(function, "parameters");
	bool completed = (needs->parameters || needs->property_details) &&
	                 (json_kind(parameters) == JSON_OBJECT || json_kind(parameters) == JSON_NULL);
	struct json *out = json_copy(function);

	if ((needs->no_null || needs->description) && json_kind(about) == JSON_NULL)
		json_drop(out, "description");
	if (completed)
		json_drop(out, "parameters");
	if (needs->description && json_kind(about) == JSON_NULL)
		json_set_cstr(out, "description", "");
	if (completed)
		json_set(out, "parameters", fit_parameters(needs, parameters));
	return out;
}

struct json *tools_fit(const struct tool_needs *needs, const struct json *tools)
{
	struct json *out, *tool;

	if (!needs->no_null && !needs->description && !needs->parameters && !needs->property_details)
		return NULL;
	out = json_new_array();
	for (size_t i = 0; i < json_len(tools); i++) {
		tool = copy_but(json_at(tools, i), "function");
		json_set(tool, "function", fit_function(needs, json_get(json_at(tools, i), "function")));
		json_add(out, tool);
	}
	return out;
}
