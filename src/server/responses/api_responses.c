/* api_responses.c - POST /v1/responses, OpenAI's Responses API: what a request asks.
 *
 * An answer is a list of items: reasoning, message, function_call (response_tell.c); a finished one is kept for later
 * requests to go on from, and one in the background is there while it is made (response_keep.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/chat/chat.h"
#include "server/chat/messages.h"
#include "server/inside.h"
#include "server/responses/from_responses.h"
#include "server/responses/response_items.h"
#include "server/responses/response_keep.h"
#include "server/responses/response_tell.h"
#include "server/routes.h"
#include "server/chat/structured.h"

static void *own_new(void)
{
	struct responses *own = xcalloc(1, sizeof *own);

	buf_init(&own->history);
	buf_init(&own->items);
	buf_init(&own->tools);
	return own;
}

static void own_free(void *p)
{
	struct responses *own = p;

	buf_fini(&own->history);
	buf_fini(&own->items);
	buf_fini(&own->tools);
	json_free(own->brought);
	free(own);
}

static const struct field response_fields[] = {
	{ "input" },
	{ "instructions" },
	{ "previous_response_id" },
	{ "store" },
	{ "tools" },
	{ "tool_choice" },
	{ "parallel_tool_calls" },
	{ "max_output_tokens" },
	{ "reasoning" },
	{ "text" },
	{ "stream_options" },
	{ "chat_template_kwargs" },
	{ "return_progress" },
	{ "include" },
	TAKEN("client_metadata", TAKES_OBJECT), /* Codex's: about the client, and changes nothing */
	{ "verbosity", "\"medium\"", "use text.verbosity", FIELD_IGNORED },
	{ "top_logprobs" },
	{ "n", "1" },
	{ "logprobs", "false|0", "use include: message.output_text.logprobs" },
	IGNORED("truncation", "\"disabled\""),
	SYNONYM("max_tokens", "max_output_tokens"),
	OTHER_LIMITS("max_output_tokens"),
	{ "background" },
	{ "conversation" },
	{ "prompt", "" },
	IGNORED("max_tool_calls", ""),
	{ "messages", "", "use input" },
	IGNORED("context_management", "[]"),
	IGNORED("moderation", ""),
	/* of the other APIs */
	SYNONYM("max_completion_tokens", "max_output_tokens"),
	{ "system", "", "use instructions" },
	SYNONYM("stop_sequences", "stop"),
	{ "response_format", "{\"type\":\"text\"}", "use text.format" },
	{ "output_config", "{}", "use reasoning.effort and text.format" },
	{ "reasoning_effort", "", "use reasoning.effort" },
	{ "thinking", "", "use reasoning.effort" },
	{ "enable_thinking", "", "use reasoning.effort or chat_template_kwargs" },
	{ "thinking_budget", "", "use reasoning.effort" },
	{ "thinking_token_budget", "", "use reasoning.effort" },
	{ "functions", "[]", "use tools" },
	{ "function_call", "", "use tool_choice" },
	{ NULL },
};

/* ---- reading ---- */

static int read_wishes(struct generation *g, struct chat *c, struct problem *p)
{
	static const struct field in_reasoning[] = {
		{ "effort" },
		TAKEN("summary", TAKES_STRING),
		TAKEN("generate_summary", TAKES_STRING),
		IGNORED("context", "\"auto\""),
		{ NULL },
	};
	static const struct field in_text[] = { { "format" }, IGNORED("verbosity", "\"medium\""), { NULL } };
	static const struct field in_stream[] = { IGNORED("include_obfuscation", "false"),
		                                  TAKEN("include_usage", TAKES_BOOL),
		                                  { NULL } };
	static const struct {
		const char *name;
		const struct field *fields;
	} objects[] = {
		{ "reasoning", in_reasoning },
		{ "text", in_text },
		{ "stream_options", in_stream },
	};
	struct responses *own = g->own;
	const struct json *v, *effort;
	size_t n;
	int r;

	c->effort_field = "reasoning.effort";
	for (int i = 0; i < 3; i++) {
		const struct field *const tables[] = { objects[i].fields, NULL };

		if ((r = field_value(g->body, objects[i].name, JSON_OBJECT, &v, p)) ||
		    (v && (r = fields_check(v, objects[i].name, tables, &g->params.warnings, p))))
			return r;
	}
	if ((r = field_value(json_get(g->body, "reasoning"), "effort", JSON_STRING, &effort, p)))
		return r;
	c->effort = json_str(effort, &n);
	own->summary = json_kind(json_get(json_get(g->body, "reasoning"), "summary")) == JSON_STRING ||
	               json_kind(json_get(json_get(g->body, "reasoning"), "generate_summary")) == JSON_STRING;
	if ((r = structured_format(g, json_get(json_get(g->body, "text"), "format"), "text.format", p)))
		return r;
	return field_value(g->body, "chat_template_kwargs", JSON_OBJECT, &c->kwargs, p);
}

static int read_previous(struct generation *g, struct chat *c, const char *id, struct problem *p)
{
	struct responses *own = g->own;
	struct json *kept;
	struct buf tools;

	buf_init(&tools);
	if (!g->x || strncmp(id, "resp_", 5) != 0 ||
	    !response_store_get(&g->x->srv->responses, id, g->x->from.key, KEPT_MESSAGES, &own->history) ||
	    !response_store_get(&g->x->srv->responses, id, g->x->from.key, KEPT_TOOLS, &tools))
		return problem_set(p, 404, "previous_response_not_found", "previous_response_id",
		                   "there is no response \"%.60s\" here that has ended, or no longer", id);
	own->brought = items_parse(&tools);
	buf_fini(&tools);
	if (!own->history.n)
		return problem_set(p, 400, "invalid_value", "previous_response_id",
		                   "the response \"%.60s\" did not complete, and nothing can follow it", id);
	kept = items_parse(&own->history);
	for (size_t i = 0; i < json_len(kept); i++)
		json_add(c->messages, json_share(json_at(kept, i)));
	json_free(kept);
	return 0;
}

/* p says what of an item of the conversation cannot be read. */
static int bad_item(const char *id, struct problem *p)
{
	struct problem of_item = *p;

	return problem_set(p, of_item.status, of_item.code, "conversation", "of the items of conversation %.60s: %s",
	                   id, of_item.message);
}

/* Those of an array of items that bring tools. */
static struct json *with_tools(const struct json *items)
{
	struct json *out = json_new_array();

	for (size_t i = 0; json_kind(items) == JSON_ARRAY && i < json_len(items); i++)
		if (json_len(tools_in_item(json_at(items, i))))
			json_add(out, json_share(json_at(items, i)));
	return out;
}

/* Begins with the items of a conversation: an id, or an object with one. */
static int read_conversation(struct generation *g, struct chat *c, bool previous, struct problem *p)
{
	const struct json *v = json_get(g->body, "conversation");
	struct responses *own = g->own;
	struct json *items;
	struct buf kept;
	size_t n;
	const char *id;
	int r = 0;

	if (json_kind(v) == JSON_NULL)
		return 0;
	if (!(id = json_str(json_kind(v) == JSON_OBJECT ? json_get(v, "id") : v, &n)))
		return field_wrong(p, "conversation", "an id, or an object with one", v);
	if (previous)
		return problem_set(p, 400, "invalid_value", "conversation",
		                   "conversation and previous_response_id exclude each other");
	buf_init(&kept);
	if (!g->x || strncmp(id, "conv_", 5) != 0 || n >= sizeof own->conversation ||
	    !response_store_get(&g->x->srv->responses, id, g->x->from.key, KEPT_ITEMS, &kept)) {
		buf_fini(&kept);
		return problem_set(p, 404, "conversation_not_found", "conversation",
		                   "there is no conversation \"%.60s\" here, or no longer", id);
	}
	memcpy(own->conversation, id, n + 1);
	items = items_parse(&kept);
	if (json_len(items) && (r = responses_input(items, &g->images, c->messages, p)))
		r = bad_item(id, p);
	own->brought = with_tools(items);
	json_free(items);
	buf_fini(&kept);
	return r;
}

/* Instructions come before all other messages, and are not kept. */
static int read_input(struct generation *g, struct chat *c, struct problem *p)
{
	struct responses *own = g->own;
	const struct json *previous, *instructions;
	size_t n, first, fresh;
	struct json *items;
	const char *s;
	int r;

	if ((r = field_value(g->body, "previous_response_id", JSON_STRING, &previous, p)) ||
	    (r = field_value(g->body, "instructions", JSON_STRING, &instructions, p)))
		return r;
	if ((s = json_str(instructions, &n)) && n)
		json_add(c->messages, message_new("system", s, n));
	first = fresh = json_len(c->messages);
	if ((r = read_conversation(g, c, previous != NULL, p)))
		return r;
	if ((s = json_str(previous, &n))) {
		if ((r = read_previous(g, c, s, p)))
			return r;
		fresh = json_len(c->messages);
	}
	if ((r = responses_input(json_get(g->body, "input"), &g->images, c->messages, p)))
		return r;
	chat_tell_compaction(g, json_get(g->body, "input"), "input");
	if (json_len(c->messages) == first)
		return problem_set(p, 400, "invalid_value", "input", "input is empty");
	if (g->params.store || *own->conversation) {
		items = items_of(json_get(g->body, "input"));
		items_put(items, &own->items);
		json_free(items);
	}
	for (size_t i = fresh; g->params.store && i < json_len(c->messages); i++) {
		if (own->history.n)
			buf_putc(&own->history, ',');
		json_put(&own->history, json_at(c->messages, i));
	}
	return 0;
}

static int read_include(struct params *a, const struct json *body, struct problem *p)
{
	const struct json *v;
	int64_t top = 0;
	char at[40];
	int r;

	if ((r = field_value(body, "include", JSON_ARRAY, &v, p)) ||
	    (r = field_int(body, "top_logprobs", 0, TOP_LOGPROBS_MAX, &top, p)))
		return r;
	a->logprobs = top > 0;
	for (size_t i = 0; i < json_len(v); i++) {
		size_t n;
		const char *s = json_str(json_at(v, i), &n);

		snprintf(at, sizeof at, "include[%zu]", i);
		if (!s)
			return field_wrong(p, at, "a string", json_at(v, i));
		if (!strcmp(s, "message.output_text.logprobs"))
			a->logprobs = true;
		else if (strcmp(s, "reasoning.encrypted_content")) /* reasoning is there in plain text */
			warnings_add(&a->warnings.ignored, "include", s);
	}
	params_logprobs(a, (int)top);
	return 0;
}

/* Makes the members of a response that repeat its request, from "instructions" on. */
static void make_echo(struct generation *g, const struct chat *c)
{
	static const struct {
		const char *name, *deflt; /* deflt NULL: a member that may be missing, but not null */
	} fields[] = {
		{ "instructions", "null" },
		{ "max_output_tokens", "null" },
		{ "metadata", "{}" },
		{ "parallel_tool_calls", "true" },
		{ "previous_response_id", "null" },
		{ "text", "{\"format\":{\"type\":\"text\"}}" },
		{ "tool_choice", "\"auto\"" },
		{ "tools", "[]" },
		{ "user", NULL },
		{ "safety_identifier", "null" },
		{ "prompt_cache_key", "null" },
	};
	const struct responses *own = g->own;
	struct buf *b = &g->echo;

	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
		const struct json *v = json_get(g->body, fields[i].name);

		if (json_kind(v) == JSON_NULL && !fields[i].deflt)
			continue;
		buf_printf(b, ",\"%s\":", fields[i].name);
		if (json_kind(v) == JSON_NULL)
			buf_puts(b, fields[i].deflt);
		else
			json_put(b, v);
	}
	buf_puts(b, ",\"reasoning\":{\"effort\":");
	if (c->effort)
		json_put_cstr(b, c->effort);
	else
		buf_puts(b, "null");
	buf_puts(b, ",\"summary\":null},\"temperature\":");
	json_put_double(b, (double)g->params.sampling.temperature);
	buf_puts(b, ",\"top_p\":");
	json_put_double(b, (double)g->params.sampling.top_p);
	buf_printf(b, ",\"store\":%s,\"background\":%s", g->params.store ? "true" : "false",
	           own->wants_background ? "true" : "false");
	buf_printf(
		b,
		",\"service_tier\":\"default\",\"access_programs\":null,\"top_logprobs\":%d,\"truncation\":\"disabled\"",
		g->params.top_logprobs);
	if (!*own->conversation)
		return;
	buf_puts(b, ",\"conversation\":{\"id\":");
	json_put_cstr(b, own->conversation);
	buf_putc(b, '}');
}

/* The tools of the body and of the conversation's items. */
static int read_tools(struct generation *g, struct chat *c, struct problem *p)
{
	const struct json *tools, *input = json_get(g->body, "input");
	struct responses *own = g->own;
	struct json *brings;
	int r;

	if ((r = field_value(g->body, "tools", JSON_ARRAY, &tools, p)))
		return r;
	c->tools = g->made = json_new_array();
	r = tools_of_responses(tools, own->brought, input, &g->tools.kinds, &g->params.warnings, g->made, p);
	brings = with_tools(input);
	items_put(own->brought, &own->tools);
	items_put(brings, &own->tools);
	json_free(brings);
	json_free(own->brought);
	own->brought = NULL;
	return r;
}

static int read_chat(struct generation *g, struct chat *c, struct problem *p)
{
	const struct json *body = g->body;
	struct responses *own = g->own;
	struct params *a = &g->params;
	int r;

	if ((r = params_sampling(a, body, g->served, p)) || (r = field_bool(body, "stream", &a->stream, p)) ||
	    (r = read_include(a, body, p)))
		return r;
	a->store = true;
	if ((r = field_bool(body, "store", &a->store, p)) ||
	    (r = field_bool(body, "background", &own->wants_background, p)) ||
	    (r = field_bool(body, "parallel_tool_calls", &a->parallel, p)) ||
	    (r = params_max_tokens(a, body, "max_output_tokens", p)) ||
	    (r = field_bool(body, "return_progress", &a->progress, p)) || (r = read_wishes(g, c, p)) ||
	    (r = chat_choice(c, json_get(body, "tool_choice"), p)) || (r = read_input(g, c, p)) ||
	    (r = read_tools(g, c, p)))
		return r;
	if (own->wants_background && (!a->store || (g->x && !g->x->srv->responses.bytes_max)))
		return problem_set(p, 400, "invalid_value", "background",
		                   "a response in the background is fetched later: store must be true, and the server "
		                   "keep responses (--tune response-store-bytes)");
	make_echo(g, c);
	return 0;
}

static int read_body(struct generation *g, struct json *body, struct problem *p)
{
	static const struct field *const tables[] = { response_fields, params_fields, NULL };

	return chat_body(g, body, tables, read_chat, chat_prompt, p);
}

const struct endpoint responses_endpoint = {
	.prep = generation_prep,
	.ready = background_ready,
	.wake = generation_wake,
	.drop = background_drop,
	.abandon = generation_abandon,
	.stop = generation_stop,
	.id_prefix = "resp_",
	.own_new = own_new,
	.own_free = own_free,
	.read = read_body,
	.open = chat_open,
	.token = response_token,
	.end = chat_end,
	.first = response_first,
	.delta = response_delta,
	.last = response_last,
	.progress = response_progress,
	.close = response_close,
	.error = response_error,
	.whole = response_whole,
	.apart_events = background_events,
	.apart_failed = background_failed,
};

/* ---- counting ---- */

static void count(struct exchange *x)
{
	struct generation *g = x->work;
	struct buf b;

	buf_init(&b);
	buf_printf(&b, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}\n", g->prompts.of[0].n);
	generation_reply(g, &b);
	buf_fini(&b);
}

const struct endpoint input_tokens_endpoint = {
	.prep = generation_prep,
	.ready = count,
	.drop = generation_drop,
	.abandon = generation_abandon,
	.any_length = true,
	.read = read_body,
	.own_new = own_new,
	.own_free = own_free,
};
