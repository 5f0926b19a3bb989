/* shown_tools.c - see shown_tools.h. */
#include "server/chat/shown_tools.h"

#include <string.h>

/* ---- trying a template ---- */

static bool renders(const struct served *d, const char *function)
{
	static const char question[] = "[{\"role\":\"user\",\"content\":\"q\"}]";
	struct json *tools, *messages = json_parse(question, strlen(question), 0, NULL);
	struct buf b;
	struct template_input in = { .extra = d->template_args,
		                     .add_generation_prompt = true,
		                     .bos_token = d->bos_token,
		                     .eos_token = d->eos_token };
	struct template_output o;
	bool good;

	buf_init(&b);
	buf_printf(&b, "[{\"type\":\"function\",\"function\":{\"name\":\"f\"%s}}]", function);
	tools = json_parse(b.p, b.n, 0, NULL);
	buf_fini(&b);
	in.messages = messages;
	in.tools = tools;
	template_output_init(&o);
	good = messages && tools && !template_render(served_template(d, true), &in, &o, NULL);
	template_output_fini(&o);
	json_free(messages);
	json_free(tools);
	return good;
}

#define ABOUT ",\"description\":\"d\""
#define PARAMETERS(properties) ",\"parameters\":{\"type\":\"object\",\"properties\":{" properties "},\"required\":[]}"

void tool_needs_try(struct tool_needs *needs, const struct served *d)
{
	*needs = (struct tool_needs){ 0 };
	/* A template that takes no function at all is not judged by what it wants of one. */
	if (!renders(d, ABOUT PARAMETERS("\"p\":{\"type\":\"string\",\"description\":\"d\"}")))
		return;
	needs->description = !renders(d, PARAMETERS(""));
	needs->no_null = !renders(d, ",\"description\":null" PARAMETERS(""));
	needs->parameters = !renders(d, ABOUT) || !renders(d, ABOUT ",\"parameters\":{}") ||
	                    !renders(d, ABOUT ",\"parameters\":{\"type\":\"object\"}");
	needs->property_details = !renders(d, ABOUT PARAMETERS("\"p\":{\"type\":\"string\"}"));
}

/* ---- completing tools ---- */

/* Puts the members of object but the one that is named `instead`; "{" comes before, and the members that come after
 * them begin with a comma. */
static void put_members_but(struct buf *b, const struct json *object, const char *instead)
{
	struct json_cursor c;
	const struct json *v;
	const char *key;

	if (json_kind(object) != JSON_OBJECT)
		return;
	for (c = json_first(object); json_next(&c, &key, &v);) {
		if (!strcmp(key, instead))
			continue;
		json_put_cstr(b, key);
		buf_putc(b, ':');
		json_put(b, v);
		buf_putc(b, ',');
	}
}

/* Ends an object whose members each have a comma behind them. */
static void close_object(struct buf *b)
{
	if (b->p[b->n - 1] == ',')
		b->n--;
	buf_putc(b, '}');
}

static void put_property(struct buf *b, const struct json *property)
{
	if (json_kind(property) != JSON_OBJECT) {
		json_put(b, property);
		return;
	}
	buf_putc(b, '{');
	put_members_but(b, property, "description");
	buf_puts(b, "\"description\":");
	if (json_kind(json_get(property, "description")) == JSON_STRING)
		json_put(b, json_get(property, "description"));
	else
		buf_puts(b, "\"\"");
	buf_putc(b, '}');
}

static void put_parameters(struct buf *b, const struct tool_needs *needs, const struct json *parameters)
{
	const struct json *properties = json_get(parameters, "properties"), *v;
	struct json_cursor c;
	const char *key;

	buf_putc(b, '{');
	if (!json_get(parameters, "type"))
		buf_puts(b, "\"type\":\"object\",");
	put_members_but(b, parameters, "properties");
	buf_puts(b, "\"properties\":{");
	if (json_kind(properties) == JSON_OBJECT) {
		for (c = json_first(properties); json_next(&c, &key, &v);) {
			json_put_cstr(b, key);
			buf_putc(b, ':');
			if (needs->property_details)
				put_property(b, v);
			else
				json_put(b, v);
			buf_putc(b, ',');
		}
	}
	close_object(b);
	if (needs->property_details && !json_get(parameters, "required"))
		buf_puts(b, ",\"required\":[]");
	buf_putc(b, '}');
}

static void put_function(struct buf *b, const struct tool_needs *needs, const struct json *function)
{
	const struct json *about = json_get(function, "description"), *parameters = json_get(function, "parameters");
	bool completed = (needs->parameters || needs->property_details) &&
	                 (json_kind(parameters) == JSON_OBJECT || json_kind(parameters) == JSON_NULL);
	struct json_cursor c;
	const struct json *v;
	const char *key;

	buf_putc(b, '{');
	for (c = json_first(function); json_next(&c, &key, &v);) {
		bool left_out = !strcmp(key, "description") ?
		                        (needs->no_null || needs->description) && json_kind(v) == JSON_NULL :
		                !strcmp(key, "parameters") ? completed :
		                                             false;

		if (left_out)
			continue;
		json_put_cstr(b, key);
		buf_putc(b, ':');
		json_put(b, v);
		buf_putc(b, ',');
	}
	if (needs->description && json_kind(about) == JSON_NULL)
		buf_puts(b, "\"description\":\"\",");
	if (completed) {
		buf_puts(b, "\"parameters\":");
		put_parameters(b, needs, parameters);
	}
	close_object(b);
}

struct json *tools_fit(const struct tool_needs *needs, const struct json *tools)
{
	struct json *out;
	struct buf b;

	if (!needs->no_null && !needs->description && !needs->parameters && !needs->property_details)
		return NULL;
	buf_init(&b);
	buf_putc(&b, '[');
	for (size_t i = 0; i < json_len(tools); i++) {
		const struct json *t = json_at(tools, i), *function = json_get(t, "function");

		buf_puts(&b, i ? ",{" : "{");
		put_members_but(&b, t, "function");
		buf_puts(&b, "\"function\":");
		put_function(&b, needs, function);
		buf_putc(&b, '}');
	}
	buf_putc(&b, ']');
	out = json_parse(b.p, b.n, 200, NULL);
	buf_fini(&b);
	return out;
}
