/* chat_openai.c - the OpenAI API's body of a chat. */
#include <string.h>

#include "server/chat/chat.h"
#include "server/chat/messages.h"
#include "server/chat/structured.h"
#include "text/calls/dialect.h"

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
	IGNORED("prediction", ""),
	IGNORED("web_search_options", ""),
	IGNORED("verbosity", "\"medium\""),
	{ "reasoning" },
	{ "include_reasoning" },
	{ "chat_template", "" },
	{ "continue_final_message" },
	{ "add_special_tokens", "false" },
	{ "documents", "[]", "use chat_template_kwargs" },
	{ "mm_processor_kwargs", "{}" },
	{ "echo", "false" },
	{ "suffix", "\"\"" },
	IGNORED("moderation", ""),
	/* of the other APIs */
	SYNONYM("max_tokens", "max_completion_tokens"),
	SYNONYM("max_output_tokens", "max_completion_tokens"),
	OTHER_LIMITS("max_completion_tokens"),
	SYNONYM("stop_sequences", "stop"),
	{ "system", "", "use a message of that role" },
	{ "input", "", "use messages" },
	{ "instructions", "", "use a message of role system" },
	{ "output_config", "{}", "use reasoning_effort and response_format" },
	{ NULL },
};

/* {"type": "enabled" or "disabled", "budget_tokens": N}, as some servers have it. */
static int read_thinking(struct chat *c, const struct json *body, struct warnings *w, struct problem *p)
{
	static const struct field known[] = { { "type" }, { "budget_tokens" }, { NULL } };
	static const struct field *const tables[] = { known, NULL };
	const struct json *v;
	const char *type;
	size_t n;
	int r;

	if ((r = field_value(body, "thinking", JSON_OBJECT, &v, p)) || !v ||
	    (r = fields_check(v, "thinking", tables, w, p)))
		return r;
	type = json_str(json_get(v, "type"), &n);
	if (!type || (strcmp(type, "enabled") && strcmp(type, "disabled") && strcmp(type, "adaptive")))
		return field_wrong(p, "thinking.type", "enabled, disabled or adaptive", json_get(v, "type"));
	if (strcmp(type, "adaptive"))
		c->think = *type == 'e';
	return field_int(v, "budget_tokens", 0, INT32_MAX, &c->budget, p);
}

/* {"effort", "max_tokens", "exclude", "enabled"} as routers of many models have it. */
static int read_reasoning(struct generation *g, struct chat *c, struct problem *p)
{
	static const struct field known[] = { { "effort" },  { "max_tokens" },       { "exclude" },
		                              { "enabled" }, IGNORED("summary", ""), IGNORED("context", "\"auto\""),
		                              { NULL } };
	static const struct field *const tables[] = { known, NULL };
	const struct json *v, *effort;
	bool told = true, enabled = false;
	size_t n;
	int r;

	if ((r = field_value(g->body, "reasoning", JSON_OBJECT, &v, p)) ||
	    (r = field_bool(g->body, "include_reasoning", &told, p)))
		return r;
	g->thoughts.hidden = !told;
	if (!v)
		return 0;
	if ((r = fields_check(v, "reasoning", tables, &g->params.warnings, p)) ||
	    (r = field_value(v, "effort", JSON_STRING, &effort, p)) ||
	    (r = field_int(v, "max_tokens", 0, INT32_MAX, &c->budget, p)) ||
	    (r = field_bool(v, "exclude", &g->thoughts.hidden, p)) || (r = field_bool(v, "enabled", &enabled, p)))
		return r;
	if (effort)
		c->effort = json_str(effort, &n);
	if (json_kind(json_get(v, "enabled")) == JSON_BOOL && chat_template(g, c) &&
	    template_uses(chat_template(g, c), "enable_thinking"))
		c->think = enabled;
	return 0;
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

static int read_tools(struct generation *g, struct chat *c, struct problem *p)
{
	const struct json *tools;
	int r;

	if ((r = field_value(g->body, "tools", JSON_ARRAY, &tools, p)) || !json_len(tools))
		return r;
	c->tools = g->made = json_new_array();
	return tools_of_chat(tools, &g->tools.kinds, &g->params.warnings, g->made, p);
}

static int read_logprobs(struct params *a, const struct json *body, struct problem *p)
{
	int64_t top = 0;
	int r;

	if ((r = field_bool(body, "logprobs", &a->logprobs, p)) ||
	    (r = field_int(body, "top_logprobs", 0, TOP_LOGPROBS_MAX, &top, p)))
		return r;
	if (top && !a->logprobs)
		return problem_set(p, 400, "invalid_value", "top_logprobs", "top_logprobs is only for logprobs: true");
	params_logprobs(a, (int)top);
	return 0;
}

/* Reads the fields of the conversation: all but sampling and log-probabilities. */
static int read_wishes(struct generation *g, struct chat *c, struct problem *p)
{
	const struct json *body = g->body, *effort;
	const struct template *t;
	bool think = false;
	size_t n;
	int r;

	if ((r = read_tools(g, c, p)) || (r = chat_choice(c, json_get(body, "tool_choice"), p)) ||
	    (r = field_bool(body, "parallel_tool_calls", &g->params.parallel, p)) ||
	    (r = field_value(body, "chat_template_kwargs", JSON_OBJECT, &c->kwargs, p)) ||
	    (r = field_value(body, "reasoning_effort", JSON_STRING, &effort, p)) ||
	    (r = read_thinking(c, body, &g->params.warnings, p)) ||
	    (r = field_bool(body, "enable_thinking", &think, p)) ||
	    (r = field_int(body, "thinking_token_budget", 0, INT32_MAX, &c->budget, p)) ||
	    (r = field_int(body, "thinking_budget", 0, INT32_MAX, &c->budget, p)) ||
	    (r = field_bool(body, "return_progress", &g->params.progress, p)) ||
	    (r = field_bool(body, "add_generation_prompt", &c->add_generation_prompt, p)) ||
	    (r = read_go_on(c, body, p)))
		return r;
	if ((r = read_reasoning(g, c, p)))
		return r;
	if (effort)
		c->effort = json_str(effort, &n);
	if (json_kind(json_get(body, "enable_thinking")) == JSON_BOOL)
		c->think = think;
	/* A model that never thinks does what is asked here. */
	t = chat_template(g, c);
	if (!c->think && t && !template_uses(t, "enable_thinking") && !speech_thinks(t))
		c->think = -1;
	if (c->think >= 0 && t && !template_uses(t, "enable_thinking"))
		return problem_set(p, 400, "unsupported_field", "enable_thinking",
		                   "the chat template of this model does not let thinking be turned on or off");
	if ((r = structured_fields(g, body, p)))
		return r;
	return messages_normal(json_get(body, "messages"), &g->images, c->messages, p);
}

int chat_read(struct generation *g, struct chat *c, struct problem *p)
{
	struct params *a = &g->params;
	int r;

	if ((r = params_read(a, g->body, g->served, p)) || (r = read_logprobs(a, g->body, p)) ||
	    (r = params_max_tokens(a, g->body, "max_completion_tokens", p)))
		return r;
	return read_wishes(g, c, p);
}
