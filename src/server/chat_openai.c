/* chat_openai.c - the OpenAI API's body of a chat. */
#include <string.h>

#include "server/chat.h"
#include "server/messages.h"
#include "server/structured.h"

const struct field chat_fields[] = {
	{ "messages" },
	{ "tools" },
	{ "tool_choice" },
	{ "parallel_tool_calls" },
	{ "max_completion_tokens" },
	{ "top_logprobs" },
	{ "reasoning_effort" },
	{ "chat_template_kwargs" },
	{ "add_generation_prompt" },
	{ "enable_thinking" },
	{ "thinking_budget" },
	{ "thinking_token_budget" },
	{ "thinking" },
	{ "return_progress" },
	{ "functions", "[]", "use tools" },
	{ "function_call", "\"auto\"|\"none\"", "use tool_choice" },
	{ "audio", "" },
	{ "modalities", "[\"text\"]" },
	{ "prediction", "" },
	{ "web_search_options", "" },
	{ "verbosity", "\"medium\"" },
	{ "reasoning", "", "use reasoning_effort" },
	{ "include_reasoning", "true" },
	{ "chat_template", "" },
	{ "continue_final_message" },
	{ "add_special_tokens", "false" },
	{ "documents", "[]", "use chat_template_kwargs" },
	{ "mm_processor_kwargs", "{}" },
	{ "echo", "false" },
	{ "suffix", "\"\"" },
	{ "moderation", "" },
	/* of the other APIs */
	{ "max_output_tokens", "", "use max_completion_tokens" },
	{ "stop_sequences", "[]", "use stop" },
	{ "system", "", "use a message of that role" },
	{ "input", "", "use messages" },
	{ "instructions", "", "use a message of role system" },
	{ "output_config", "{}", "use reasoning_effort and response_format" },
	{ NULL },
};

static int read_choice(struct chat *c, const struct json *body, struct problem *p)
{
	const struct json *v = json_get(body, "tool_choice"), *type, *name;
	const char *s;
	size_t n;

	if (json_kind(v) == JSON_NULL)
		return 0;
	if ((s = json_str(v, &n))) {
		if (!strcmp(s, "auto"))
			c->use = TOOLS_AUTO;
		else if (!strcmp(s, "none"))
			c->use = TOOLS_NONE;
		else if (!strcmp(s, "required"))
			c->use = TOOLS_ANY;
		else
			return field_wrong(p, "tool_choice", "auto, none, required or an object that names a function",
			                   v);
		return 0;
	}
	type = json_get(v, "type");
	name = json_get(json_get(v, "function"), "name");
	if (json_kind(v) == JSON_OBJECT && (s = json_str(type, &n)) && strcmp(s, "function"))
		return problem_set(p, 400, "unsupported_field", "tool_choice",
		                   "tool_choice of type \"%.40s\" is not supported by this server", s);
	if (!(c->named = json_str(name, &n)))
		return field_wrong(p, "tool_choice.function.name", "a string", name);
	c->use = TOOLS_NAMED;
	return 0;
}

/* {"type": "enabled" or "disabled", "budget_tokens": N}, as some servers have it. */
static int read_thinking(struct chat *c, const struct json *body, struct buf *unknown, struct problem *p)
{
	static const struct field known[] = { { "type" }, { "budget_tokens" }, { NULL } };
	static const struct field *const tables[] = { known, NULL };
	const struct json *v;
	const char *type;
	size_t n;
	int r;

	if ((r = field_value(body, "thinking", JSON_OBJECT, &v, p)) || !v ||
	    (r = fields_check(v, "thinking", tables, unknown, p)))
		return r;
	type = json_str(json_get(v, "type"), &n);
	if (!type || (strcmp(type, "enabled") && strcmp(type, "disabled") && strcmp(type, "adaptive")))
		return field_wrong(p, "thinking.type", "enabled, disabled or adaptive", json_get(v, "type"));
	if (strcmp(type, "adaptive"))
		c->think = *type == 'e';
	return field_int(v, "budget_tokens", 0, INT32_MAX, &c->budget, p);
}

/* vLLM's field, or that of Mistral's and DeepSeek's APIs in the last message. */
static int read_go_on(struct chat *c, const struct json *body, struct problem *p)
{
	const struct json *messages = json_get(body, "messages"), *asked = json_get(body, "add_generation_prompt");
	bool prefix = false;
	int r;

	if ((r = field_bool(body, "continue_final_message", &c->go_on, p)))
		return r;
	if (c->go_on && json_kind(asked) == JSON_BOOL && c->add_generation_prompt)
		return problem_set(p, 400, "invalid_value", "continue_final_message",
		                   "continue_final_message and add_generation_prompt cannot both be true");
	if (json_kind(messages) == JSON_ARRAY && json_len(messages))
		json_to_bool(json_get(json_at(messages, json_len(messages) - 1), "prefix"), &prefix);
	c->go_on |= prefix;
	return 0;
}

int chat_read(struct generation *g, struct chat *c, struct problem *p)
{
	const struct json *body = g->body, *effort;
	bool think = false;
	size_t n;
	int r;

	if ((r = field_value(body, "tools", JSON_ARRAY, &c->tools, p)) || (r = read_choice(c, body, p)) ||
	    (r = field_bool(body, "parallel_tool_calls", &g->params.parallel, p)) ||
	    (r = field_value(body, "chat_template_kwargs", JSON_OBJECT, &c->kwargs, p)) ||
	    (r = field_value(body, "reasoning_effort", JSON_STRING, &effort, p)) ||
	    (r = read_thinking(c, body, &g->params.unknown, p)) ||
	    (r = field_bool(body, "enable_thinking", &think, p)) ||
	    (r = field_int(body, "thinking_token_budget", 0, INT32_MAX, &c->budget, p)) ||
	    (r = field_int(body, "thinking_budget", 0, INT32_MAX, &c->budget, p)) ||
	    (r = field_bool(body, "return_progress", &g->params.progress, p)) ||
	    (r = field_bool(body, "add_generation_prompt", &c->add_generation_prompt, p)) ||
	    (r = read_go_on(c, body, p)))
		return r;
	c->effort = json_str(effort, &n);
	if (json_kind(json_get(body, "enable_thinking")) == JSON_BOOL)
		c->think = think;
	if (c->think >= 0 && g->served->tmpl && !template_uses(g->served->tmpl, "enable_thinking"))
		return problem_set(p, 400, "unsupported_field", "enable_thinking",
		                   "the chat template of this model does not let thinking be turned on or off");
	if ((r = structured_fields(g, body, p)))
		return r;
	return messages_normal(json_get(body, "messages"), &c->messages, p);
}
