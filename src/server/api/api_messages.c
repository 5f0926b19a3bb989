/* api_messages.c - POST /v1/messages and /v1/messages/count_tokens, in the shapes of
 * Anthropic's API.  An answer is a list of blocks: thinking, text, tool_use. */
#include <stdio.h>
#include <string.h>

#include "server/chat/chat.h"
#include "server/api/from_anthropic.h"
#include "server/inside.h"
#include "server/routes.h"
#include "server/chat/structured.h"
#include "text/calls/dialect.h"

static const struct field message_fields[] = {
	{ "messages" },
	{ "system" },
	{ "tools" },
	{ "tool_choice" },
	{ "stop_sequences" },
	{ "thinking" },
	{ "output_config" },
	{ "chat_template_kwargs" },
	{ "return_progress" },
	/* harmless */
	TAKEN("anthropic_version", TAKES_STRING),
	TAKEN("anthropic_beta", TAKES_STRING | TAKES_ARRAY),
	TAKEN("betas", TAKES_ARRAY),
	TAKEN("inference_geo", TAKES_STRING),
	TAKEN("user_profile_id", TAKES_STRING),
	TAKEN("workspace_id", TAKES_STRING),
	/* the common fields that this API has room for */
	{ "n", "1" },
	{ "logprobs", "false|0" },
	{ "stream_options", "{}" },
	SYNONYM("stop", "stop_sequences"),
	IGNORED("service_tier", "\"auto\"|\"standard_only\""),
	IGNORED("container", ""),
	IGNORED("mcp_servers", "[]"),
	IGNORED("context_management", "{}"),
	{ "output_format" },
	IGNORED("speed", "\"standard\""),
	IGNORED("diagnostics", "{}"),
	IGNORED("compaction", ""),
	{ "thread", "" },
	IGNORED("fallbacks", "[]|\"default\""),
	IGNORED("fallback_credit_token", ""),
	IGNORED("billing_policy", "{\"bill_to\":\"self\"}"),
	/* of the other APIs */
	SYNONYM("max_completion_tokens", "max_tokens"),
	SYNONYM("max_output_tokens", "max_tokens"),
	{ "input", "", "use messages" },
	{ "prompt", "", "use messages" },
	{ "instructions", "", "use system" },
	{ "response_format", "{\"type\":\"text\"}", "use output_config.format" },
	{ "reasoning_effort", "", "use output_config.effort" },
	{ "reasoning", "", "use output_config.effort" },
	{ "enable_thinking", "", "use thinking" },
	{ "thinking_budget", "", "use thinking.budget_tokens" },
	{ "thinking_token_budget", "", "use thinking.budget_tokens" },
	{ "parallel_tool_calls", "true", "use tool_choice.disable_parallel_tool_use" },
	{ "top_logprobs", "0" },
	{ "functions", "[]", "use tools" },
	{ "function_call", "", "use tool_choice" },
	{ NULL },
};

/* Signature of thinking blocks: clients require one, and none checks it. */
static const char signature[] = "weft";

/* ---- reading ---- */

static int read_choice(struct generation *g, struct chat *c, const struct json *body, struct problem *p)
{
	static const struct field known[] = { { "type" }, { "name" }, { "disable_parallel_tool_use" }, { NULL } };
	static const struct field *const tables[] = { known, NULL };
	const struct json *v, *type;
	bool one = false;
	const char *s;
	size_t n;
	int r;

	if ((r = field_value(body, "tool_choice", JSON_OBJECT, &v, p)) || !v ||
	    (r = fields_check(v, "tool_choice", tables, &g->params.warnings, p)))
		return r;
	type = json_get(v, "type");
	s = json_str(type, &n);
	if (!s || (strcmp(s, "auto") && strcmp(s, "any") && strcmp(s, "tool") && strcmp(s, "none")))
		return field_wrong(p, "tool_choice.type", "auto, any, tool or none", type);
	c->use = *s == 'a' ? (s[1] == 'u' ? TOOLS_AUTO : TOOLS_ANY) : *s == 't' ? TOOLS_NAMED : TOOLS_NONE;
	if (c->use == TOOLS_NAMED && !(c->named = json_str(json_get(v, "name"), &n)))
		return field_wrong(p, "tool_choice.name", "a string", json_get(v, "name"));
	if ((r = field_bool(v, "disable_parallel_tool_use", &one, p)))
		return r;
	g->params.parallel = !one;
	return 0;
}

static int read_thinking(struct generation *g, struct chat *c, const struct json *body, struct problem *p)
{
	static const struct field in_thinking[] = { { "type" }, { "budget_tokens" }, { "display" }, { NULL } };
	static const struct field in_output[] = { { "effort" }, { "format" }, IGNORED("task_budget", ""), { NULL } };
	static const struct field *const thinking[] = { in_thinking, NULL }, *const output[] = { in_output, NULL };
	const struct template *t = chat_template(g, c);
	const struct json *v, *o, *effort, *display;
	const char *s;
	size_t n;
	int r;

	if ((r = field_value(body, "thinking", JSON_OBJECT, &v, p)) ||
	    (r = field_value(body, "output_config", JSON_OBJECT, &o, p)) ||
	    (v && (r = fields_check(v, "thinking", thinking, &g->params.warnings, p))) ||
	    (o && (r = fields_check(o, "output_config", output, &g->params.warnings, p))) ||
	    (r = field_value(v, "display", JSON_STRING, &display, p)))
		return r;
	if ((s = json_str(display, &n))) {
		if (strcmp(s, "summarized") && strcmp(s, "omitted"))
			return field_wrong(p, "thinking.display", "summarized or omitted", display);
		g->thoughts.hidden = *s == 'o';
	}
	if (v) {
		s = json_str(json_get(v, "type"), &n);
		if (!s || (strcmp(s, "enabled") && strcmp(s, "disabled") && strcmp(s, "adaptive")))
			return field_wrong(p, "thinking.type", "enabled, disabled or adaptive", json_get(v, "type"));
		if (strcmp(s, "adaptive"))
			c->think = *s == 'e';
		if ((r = field_int(v, "budget_tokens", 0, INT32_MAX, &c->budget, p)))
			return r;
		if (c->think == 1 && t && !template_uses(t, "enable_thinking") && !speech_thinks(t)) {
			warnings_add(&g->params.warnings.ignored, NULL, "thinking");
			c->think = -1;
			c->budget = -1;
		}
	}
	if ((r = structured_format(g, json_get(o, "format"), "output_config.format", p)) ||
	    (r = structured_format(g, json_get(body, "output_format"), "output_format", p)))
		return r;
	if ((r = field_value(o, "effort", JSON_STRING, &effort, p)))
		return r;
	c->effort = json_str(effort, &n);
	return 0;
}

static int read_tools(struct generation *g, struct chat *c, struct problem *p)
{
	const struct json *tools;
	int r = field_value(g->body, "tools", JSON_ARRAY, &tools, p);

	if (r || !json_len(tools))
		return r;
	c->tools = g->made = json_new_array();
	return tools_of_messages(tools, &g->params.warnings, g->made, p);
}

static int read_chat(struct generation *g, struct chat *c, struct problem *p)
{
	const struct json *body = g->body, *v;
	const char *s;
	size_t n;
	int r;

	c->effort_field = "output_config.effort";
	c->budget_field = "thinking.budget_tokens";
	if ((r = params_read(&g->params, body, g->served, p)) ||
	    (r = params_stop(&g->params, body, "stop_sequences", p)) || (r = read_tools(g, c, p)) ||
	    (r = read_choice(g, c, body, p)) || (r = read_thinking(g, c, body, p)) ||
	    (r = field_value(body, "chat_template_kwargs", JSON_OBJECT, &c->kwargs, p)) ||
	    (r = field_bool(body, "return_progress", &g->params.progress, p)) ||
	    (r = anthropic_messages(body, c->messages, &g->images, p)))
		return r;
	v = json_get(body, "messages");
	for (size_t i = 0; i < json_len(v); i++)
		chat_tell_compaction(g, json_get(json_at(v, i), "content"), "messages");
	s = json_str(json_get(json_at(v, json_len(v) - 1), "role"), &n);
	c->go_on = s && !strcmp(s, "assistant");
	return 0;
}

static int read_body(struct generation *g, struct json *body, struct problem *p)
{
	static const struct field *const tables[] = { message_fields, params_fields, NULL };

	return chat_body(g, body, tables, read_chat, chat_prompt, p);
}

/* ---- writing ---- */

static void put_usage_anthropic(const struct generation *g, struct buf *out)
{
	struct usage u = generation_usage(g);

	/* Tokens from the cache do not count as input tokens in this API. */
	buf_printf(
		out,
		"{\"input_tokens\":%d,\"cache_creation_input_tokens\":0,\"cache_creation\":null,\"server_tool_use\":null,\"service_tier\":\"standard\",\"inference_geo\":null,\"speed\":null,\"cache_read_input_tokens\":%d,\"output_tokens\":%d,"
		"\"output_tokens_details\":{\"thinking_tokens\":%d}",
		u.prompt - u.cached, u.cached, u.output, u.thought);
	put_cache_report(g, out);
	buf_putc(out, '}');
}

static void put_head(const struct generation *g, struct buf *out)
{
	buf_printf(out,
	           "{\"id\":\"msg_%s\",\"type\":\"message\",\"role\":\"assistant\",\"diagnostics\":null,\"model\":",
	           g->x->id);
	json_put_cstr(out, model_shown(g));
}

static void put_stop(const struct choice *c, struct buf *out)
{
	const char *why = chat_calls(c) ? "tool_use" : c->finish == FINISH_LENGTH ? "max_tokens" : "end_turn";

	if (c->finish == FINISH_STOP && c->stop_text)
		why = "stop_sequence";
	buf_printf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", why);
	if (c->finish == FINISH_STOP && c->stop_text)
		json_put_cstr(out, c->stop_text);
	else
		buf_puts(out, "null");
	buf_puts(out, ",\"stop_details\":null,\"container\":null");
}

static void first(struct generation *g, struct choice *c, struct buf *out)
{
	(void)c;
	event_named(out, "message_start");
	buf_puts(out, "{\"type\":\"message_start\",\"message\":");
	put_head(g, out);
	buf_puts(
		out,
		",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"stop_details\":null,\"container\":null,\"usage\":");
	put_usage_anthropic(g, out);
	buf_puts(out, "}}");
	event_end(out);
}

static void block_stop(struct choice *c, struct buf *out)
{
	if (c->block.open == BLOCK_THINKING) {
		event_named(out, "content_block_delta");
		buf_printf(
			out,
			"{\"type\":\"content_block_delta\",\"index\":%d,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"%s\"}}",
			c->block.n - 1, signature);
		event_end(out);
	}
	if (c->block.open) {
		event_named(out, "content_block_stop");
		buf_printf(out, "{\"type\":\"content_block_stop\",\"index\":%d}", c->block.n - 1);
		event_end(out);
	}
	c->block.open = BLOCK_NONE;
}

/* A call up to where its arguments come. */
static void put_call_head(struct choice *c, const struct piece *name, struct buf *out)
{
	buf_printf(out, "{\"type\":\"tool_use\",\"caller\":{\"type\":\"direct\"},\"id\":\"toolu_%s\",\"name\":",
	           chat_call_id(c, c->told.calls++));
	json_put_str(out, c->split.text.p + name->at, name->n);
	buf_puts(out, ",\"input\":");
}

static void block_start(struct choice *c, const struct piece *p, struct buf *out)
{
	block_stop(c, out);
	event_named(out, "content_block_start");
	buf_printf(out, "{\"type\":\"content_block_start\",\"index\":%d,\"content_block\":", c->block.n++);
	switch (p->kind) {
	case PIECE_THINKING:
		buf_puts(out, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}");
		c->block.open = BLOCK_THINKING;
		break;
	case PIECE_CALL:
		put_call_head(c, p, out);
		buf_puts(out, "{}}}");
		c->block.open = BLOCK_CALL;
		break;
	default:
		buf_puts(out, "{\"type\":\"text\",\"text\":\"\"}}");
		c->block.open = BLOCK_TEXT;
		break;
	}
	event_end(out);
}

/* With display omitted a thought is a block without its text. */
static bool omitted(const struct generation *g, const struct piece *p)
{
	return g->thoughts.hidden && p->kind == PIECE_THINKING;
}

static void delta(struct generation *g, struct choice *c, struct buf *out)
{
	static const char *const kind[] = { [PIECE_THINKING] = "thinking_delta\",\"thinking",
		                            [PIECE_CONTENT] = "text_delta\",\"text",
		                            [PIECE_ARGUMENTS] = "input_json_delta\",\"partial_json" };
	struct piece p;
	bool begins;

	while (chat_next(c, &p, &begins)) {
		if (p.kind == PIECE_CALL_END)
			continue;
		if (begins && p.kind != PIECE_ARGUMENTS)
			block_start(c, &p, out);
		if (p.kind == PIECE_CALL || omitted(g, &p))
			continue;
		event_named(out, "content_block_delta");
		buf_printf(out,
		           "{\"type\":\"content_block_delta\",\"index\":%d,\"delta\":{\"type\":\"%s\":", c->block.n - 1,
		           kind[p.kind]);
		json_put_str(out, c->split.text.p + p.at, p.n);
		buf_puts(out, "}}");
		event_end(out);
	}
}

static void last(struct generation *g, struct choice *c, struct buf *out)
{
	block_stop(c, out);
	event_named(out, "message_delta");
	buf_puts(out, "{\"type\":\"message_delta\",\"delta\":{");
	put_stop(c, out);
	if (c->split.malformed)
		buf_puts(out, ",\"malformed_tool_call\":true");
	buf_puts(out, "},\"usage\":");
	put_usage_anthropic(g, out);
	buf_putc(out, '}');
	event_end(out);
}

static void progress(struct generation *g, struct choice *c, const struct event *ev, struct buf *out)
{
	event_named(out, "ping"); /* which clients that do not look pass over */
	buf_puts(out, "{\"type\":\"ping\",\"prompt_progress\":");
	put_progress(g, c, ev, out);
	buf_putc(out, '}');
	event_end(out);
}

static void close_stream(struct generation *g, struct buf *out)
{
	(void)g;
	event_named(out, "message_stop");
	buf_puts(out, "{\"type\":\"message_stop\"}");
	event_end(out);
}

static void error(struct generation *g, const struct problem *p, struct buf *out)
{
	(void)g;
	event_named(out, "error");
	problem_put(out, p);
	event_end(out);
}

/* A call whose arguments are an object; anything else is handed over as text. */
static void put_call(struct choice *c, int i, struct buf *out)
{
	const struct piece *name = &c->split.piece[i], *args = &c->split.piece[i + 1];
	const char *text = c->split.text.p;
	struct json *j = json_parse(text + args->at, args->n, 200, NULL);

	if (json_kind(j) == JSON_OBJECT) {
		put_call_head(c, name, out);
		json_put(out, j);
		buf_putc(out, '}');
	} else {
		buf_puts(out, "{\"type\":\"text\",\"text\":\"");
		json_put_inside(out, text + name->at, name->n);
		buf_putc(out, ' ');
		json_put_inside(out, text + args->at, args->n);
		buf_puts(out, "\"}");
	}
	json_free(j);
}

static void messages_whole(struct generation *g, struct buf *out)
{
	struct choice *c = &g->choice[0];
	int count = 0;

	put_head(g, out);
	buf_puts(out, ",\"content\":[");
	for (int i = 0; i < c->split.n_piece; i++) {
		const struct piece *p = &c->split.piece[i];

		if (p->kind == PIECE_ARGUMENTS || p->kind == PIECE_CALL_END)
			continue;
		if (count++)
			buf_putc(out, ',');
		if (p->kind == PIECE_CALL) {
			put_call(c, i, out);
			continue;
		}
		buf_puts(out, p->kind == PIECE_THINKING ? "{\"type\":\"thinking\",\"thinking\":" :
		                                          "{\"type\":\"text\",\"text\":");
		json_put_str(out, c->split.text.p + p->at, omitted(g, p) ? 0 : p->n);
		if (p->kind == PIECE_THINKING)
			buf_printf(out, ",\"signature\":\"%s\"", signature);
		buf_putc(out, '}');
	}
	buf_puts(out, "],");
	put_stop(c, out);
	if (c->split.malformed)
		buf_puts(out, ",\"malformed_tool_call\":true");
	buf_puts(out, ",\"usage\":");
	put_usage_anthropic(g, out);
	buf_puts(out, "}\n");
}

const struct endpoint messages_endpoint = {
	GENERATION_STEPS,
	.id_prefix = "msg_",
	.resumes = true,
	.first_when_started = true,
	.read = read_body,
	.open = chat_open,
	.token = chat_token,
	.end = chat_end,
	.first = first,
	.delta = delta,
	.last = last,
	.progress = progress,
	.close = close_stream,
	.error = error,
	.whole = messages_whole,
};

/* ---- counting ---- */

static void count(struct exchange *x)
{
	struct generation *g = x->work;
	struct buf b;

	buf_init(&b);
	buf_printf(&b, "{\"input_tokens\":%zu}\n", g->prompts.of[0].n);
	generation_reply(g, &b);
	buf_fini(&b);
}

const struct endpoint count_tokens_endpoint = {
	.prep = generation_prep,
	.ready = count,
	.drop = generation_drop,
	.abandon = generation_abandon,
	.any_length = true,
	.read = read_body,
};
