/* api_responses.c - POST /v1/responses and GET, DELETE /v1/responses/{id}, in the
 * shapes of OpenAI's Responses API.  An answer is a list of items: reasoning,
 * message, function_call; a finished one is kept for later requests to go on from
 * (response_store.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/chat.h"
#include "server/from_responses.h"
#include "server/inside.h"
#include "server/routes.h"
#include "server/structured.h"

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
	{ "top_logprobs" },
	{ "n", "1" },
	{ "logprobs", "false|0", "use include: message.output_text.logprobs" },
	{ "truncation", "\"disabled\"", "a prompt is never cut in silence" },
	{ "max_tokens", "", "use max_output_tokens" },
	{ "background", "false" },
	{ "conversation", "" },
	{ "prompt", "" },
	{ "max_tool_calls", "" },
	{ "messages", "", "use input" },
	{ "context_management", "[]" },
	{ "moderation", "" },
	/* of the other APIs */
	{ "max_completion_tokens", "", "use max_output_tokens" },
	{ "system", "", "use instructions" },
	{ "stop_sequences", "[]", "use stop" },
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

static int read_choice(struct chat *c, const struct json *body, struct problem *p)
{
	const struct json *v = json_get(body, "tool_choice");
	const char *s;
	size_t n;

	if (json_kind(v) == JSON_NULL)
		return 0;
	if ((s = json_str(v, &n))) {
		if (strcmp(s, "auto") && strcmp(s, "none") && strcmp(s, "required"))
			return field_wrong(p, "tool_choice", "auto, none, required or an object that names a function",
			                   v);
		c->use = *s == 'a' ? TOOLS_AUTO : *s == 'n' ? TOOLS_NONE : TOOLS_ANY;
		return 0;
	}
	s = json_str(json_get(v, "type"), &n);
	if (s && strcmp(s, "function"))
		return problem_set(p, 400, "unsupported_field", "tool_choice",
		                   "tool_choice of type \"%.40s\" is not supported by this server", s);
	if (!(c->named = json_str(json_get(v, "name"), &n)))
		return field_wrong(p, "tool_choice.name", "a string", json_get(v, "name"));
	c->use = TOOLS_NAMED;
	return 0;
}

static int read_wishes(struct generation *g, struct chat *c, struct problem *p)
{
	static const struct field in_reasoning[] = {
		{ "effort" }, { "summary" }, { "generate_summary" }, { "context", "\"auto\"" }, { NULL }
	};
	static const struct field in_text[] = { { "format" }, { "verbosity", "\"medium\"" }, { NULL } };
	static const struct field in_stream[] = { { "include_obfuscation", "false" }, { "include_usage" }, { NULL } };
	static const struct {
		const char *name;
		const struct field *fields;
	} objects[] = {
		{ "reasoning", in_reasoning },
		{ "text", in_text },
		{ "stream_options", in_stream },
	};
	const struct json *v, *effort;
	size_t n;
	int r;

	c->effort_field = "reasoning.effort";
	for (int i = 0; i < 3; i++) {
		const struct field *const tables[] = { objects[i].fields, NULL };

		if ((r = field_value(g->body, objects[i].name, JSON_OBJECT, &v, p)) ||
		    (v && (r = fields_check(v, objects[i].name, tables, &g->params.unknown, p))))
			return r;
	}
	if ((r = field_value(json_get(g->body, "reasoning"), "effort", JSON_STRING, &effort, p)))
		return r;
	c->effort = json_str(effort, &n);
	if ((r = structured_format(g, json_get(json_get(g->body, "text"), "format"), "text.format", p)))
		return r;
	return field_value(g->body, "chat_template_kwargs", JSON_OBJECT, &c->kwargs, p);
}

/* The messages that templates see: instructions before all others. */
static void put_messages(const struct json *instructions, const struct buf *history, struct buf *out)
{
	const char *s;
	size_t n;

	buf_putc(out, '[');
	if ((s = json_str(instructions, &n)) && n) {
		buf_puts(out, "{\"role\":\"system\",\"content\":");
		json_put_str(out, s, n);
		buf_puts(out, history->n ? "}," : "}");
	}
	buf_put(out, history->p, history->n);
	buf_putc(out, ']');
}

/* An item of the request as it is listed: with an id, and text in parts. */
static void put_input_item(const struct json *item, struct buf *out)
{
	const struct json *v = json_get(item, "content"), *role = json_get(item, "role");
	struct json_cursor k;
	const char *key;
	char id[24];
	size_t n;
	const char *s = json_str(role, &n);
	bool text = json_kind(v) == JSON_STRING;

	buf_putc(out, '{');
	if (json_kind(json_get(item, "id")) == JSON_NULL) {
		random_id(id);
		buf_printf(out, "\"id\":\"%s_%s\",", role ? "msg" : "item", id);
	}
	if (json_kind(json_get(item, "type")) == JSON_NULL)
		buf_puts(out, "\"type\":\"message\",");
	if (json_kind(json_get(item, "status")) == JSON_NULL)
		buf_puts(out, "\"status\":\"completed\",");
	for (k = json_first(item); json_next(&k, &key, &v);) {
		if (json_kind(v) == JSON_NULL || (text && !strcmp(key, "content")))
			continue;
		json_put_cstr(out, key);
		buf_putc(out, ':');
		json_put(out, v);
		buf_putc(out, ',');
	}
	if (text) {
		buf_printf(out, "\"content\":[{\"type\":\"%s\",\"text\":",
		           s && !strcmp(s, "assistant") ? "output_text" : "input_text");
		json_put(out, json_get(item, "content"));
		buf_puts(out, "}]}");
	} else {
		out->p[out->n - 1] = '}'; /* there was a comma: of the role, or of the type */
	}
}

static void put_input_items(const struct json *input, struct buf *out)
{
	char id[24];

	if (json_kind(input) == JSON_STRING) {
		random_id(id);
		buf_printf(
			out,
			"{\"id\":\"msg_%s\",\"type\":\"message\",\"status\":\"completed\",\"role\":\"user\",\"content\":[{"
			"\"type\":\"input_text\",\"text\":",
			id);
		json_put(out, input);
		buf_puts(out, "}]}");
	}
	for (size_t i = 0; json_kind(input) == JSON_ARRAY && i < json_len(input); i++) {
		if (i)
			buf_putc(out, ',');
		put_input_item(json_at(input, i), out);
	}
}

static int read_input(struct generation *g, struct chat *c, struct problem *p)
{
	const struct json *previous, *instructions;
	const char *id;
	size_t n;
	int r;

	if ((r = field_value(g->body, "previous_response_id", JSON_STRING, &previous, p)) ||
	    (r = field_value(g->body, "instructions", JSON_STRING, &instructions, p)))
		return r;
	if ((id = json_str(previous, &n)) &&
	    (!g->x || !response_store_get(&g->x->srv->responses, id, g->x->key, KEPT_MESSAGES, &g->history)))
		return problem_set(p, 404, "previous_response_not_found", "previous_response_id",
		                   "there is no response \"%.60s\" here, or no longer", id);
	if ((r = responses_input(json_get(g->body, "input"), &g->history, p)))
		return r;
	if (!g->history.n)
		return problem_set(p, 400, "invalid_value", "input", "input is empty");
	if (g->params.store)
		put_input_items(json_get(g->body, "input"), &g->items);
	put_messages(instructions, &g->history, &c->messages);
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
			return problem_set(p, 400, "unsupported_field", at,
			                   "%s: \"%.60s\" is not supported by this server", at, s);
	}
	params_logprobs(a, (int)top);
	return 0;
}

/* What a response says again of its request, from "instructions" on. */
static void make_echo(struct generation *g, const struct chat *c)
{
	static const struct {
		const char *name, *deflt;
	} fields[] = {
		{ "instructions", "null" },
		{ "max_output_tokens", "null" },
		{ "metadata", "{}" },
		{ "parallel_tool_calls", "true" },
		{ "previous_response_id", "null" },
		{ "text", "{\"format\":{\"type\":\"text\"}}" },
		{ "tool_choice", "\"auto\"" },
		{ "tools", "[]" },
		{ "user", "null" },
		{ "safety_identifier", "null" },
		{ "prompt_cache_key", "null" },
	};
	struct buf *b = &g->echo;

	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
		const struct json *v = json_get(g->body, fields[i].name);

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
	buf_printf(
		b,
		",\"store\":%s,\"background\":false,\"service_tier\":\"default\",\"top_logprobs\":%d,\"truncation\":\"disabled\"",
		g->params.store ? "true" : "false", g->params.top_logprobs);
}

static int read_chat(struct generation *g, struct chat *c, struct problem *p)
{
	const struct json *body = g->body, *tools;
	struct params *a = &g->params;
	struct buf b;
	int r;

	if ((r = params_sampling(a, body, g->served, p)) || (r = field_bool(body, "stream", &a->stream, p)) ||
	    (r = read_include(a, body, p)))
		return r;
	a->store = true;
	if ((r = field_bool(body, "store", &a->store, p)) ||
	    (r = field_bool(body, "parallel_tool_calls", &a->parallel, p)) ||
	    (r = field_int(body, "max_output_tokens", 0, INT32_MAX, &a->max_tokens, p)) ||
	    (r = field_bool(body, "return_progress", &a->progress, p)) || (r = read_wishes(g, c, p)) ||
	    (r = field_value(body, "tools", JSON_ARRAY, &tools, p)) || (r = read_choice(c, body, p)) ||
	    (r = read_input(g, c, p)))
		return r;
	buf_init(&b);
	if (json_len(tools) && !(r = responses_tools(tools, &b, p)))
		c->tools = g->made = json_parse(b.p, b.n, 200, NULL);
	buf_fini(&b);
	if (!r)
		make_echo(g, c);
	return r;
}

static int read_body(struct generation *g, const char *bytes, size_t n, struct problem *p)
{
	static const struct field *const tables[] = { response_fields, params_fields, NULL };

	return chat_body(g, bytes, n, tables, read_chat, chat_prompt, p);
}

/* ---- items ---- */

static const char *const prefix_of[] = { [PIECE_THINKING] = "rs", [PIECE_CONTENT] = "msg", [PIECE_CALL] = "fc" };

/* Logprobs are of the tokens of messages: an array for each of the first of them, and
 * what the next event of a stream is to tell. */
enum { MESSAGES_MAX = 3, NEXT = MESSAGES_MAX };

static int message_of(const struct choice *c, int piece)
{
	int k = -1;

	for (int i = 0; i <= piece && i < c->split.n_piece; i++)
		k += c->split.piece[i].kind == PIECE_CONTENT;
	return k;
}

static void token(struct generation *g, struct choice *c, const struct event *ev)
{
	bool thought = c->split.state == SPLIT_THINK;
	int calls = c->split.n_call, k;

	chat_token(g, c, ev);
	if (!g->params.logprobs || ev->kind != EV_TOKEN || thought || c->split.n_call != calls ||
	    c->split.state == SPLIT_CALL)
		return;
	k = message_of(c, c->split.n_piece - 1);
	if (k < 0 || k >= MESSAGES_MAX)
		return;
	chat_logprob(g, ev, &c->logprobs[k]);
	chat_logprob(g, ev, &c->logprobs[NEXT]);
}

/* ,"logprobs":[...] of the message that piece i is. */
static void put_logprobs(const struct choice *c, int i, struct buf *out)
{
	int k = message_of(c, i);

	buf_puts(out, ",\"logprobs\":[");
	if (k >= 0 && k < MESSAGES_MAX)
		buf_put(out, c->logprobs[k].p, c->logprobs[k].n);
	buf_putc(out, ']');
}

/* Item k of the answer, which piece i began.  open: as it is announced, still empty. */
static void put_item(struct choice *c, int i, int k, const char *status, bool open, struct buf *out)
{
	const struct piece *p = &c->split.piece[i];
	const char *text = c->split.text.p, *id = chat_call_id(c, k);

	buf_printf(out, "{\"id\":\"%s_%s\",", prefix_of[p->kind], id);
	switch (p->kind) {
	case PIECE_THINKING:
		buf_puts(out, "\"type\":\"reasoning\",\"summary\":[],\"content\":[");
		if (!open) {
			buf_puts(out, "{\"type\":\"reasoning_text\",\"text\":");
			json_put_str(out, text + p->at, p->n);
			buf_putc(out, '}');
		}
		break;
	case PIECE_CALL:
		buf_printf(out, "\"type\":\"function_call\",\"call_id\":\"call_%s\",\"name\":", id);
		json_put_str(out, text + p->at, p->n);
		buf_puts(out, ",\"arguments\":");
		if (open)
			buf_puts(out, "\"\"");
		else
			json_put_str(out, text + p[1].at, p[1].n);
		break;
	default:
		buf_puts(out, "\"type\":\"message\",\"role\":\"assistant\",\"content\":[");
		if (!open) {
			buf_puts(out, "{\"type\":\"output_text\",\"annotations\":[]");
			put_logprobs(c, i, out);
			buf_puts(out, ",\"text\":");
			json_put_str(out, text + p->at, p->n);
			buf_putc(out, '}');
		}
		break;
	}
	buf_printf(out, "%s,\"status\":\"%s\"}", p->kind == PIECE_CALL ? "" : "]", status);
}

static bool begins_item(const struct piece *p)
{
	return p->kind != PIECE_ARGUMENTS && p->kind != PIECE_CALL_END;
}

/* Only the last item of an answer can have been cut short. */
static const char *status_of(const struct choice *c, int i)
{
	const struct split *s = &c->split;

	for (i++; i < s->n_piece; i++)
		if (begins_item(&s->piece[i]))
			return "completed";
	return c->done && c->finish == FINISH_LENGTH ? "incomplete" : "completed";
}

static void put_output(struct choice *c, struct buf *out)
{
	int k = 0;

	buf_putc(out, '[');
	for (int i = 0; i < c->split.n_piece; i++) {
		if (!begins_item(&c->split.piece[i]))
			continue;
		if (k)
			buf_putc(out, ',');
		put_item(c, i, k++, status_of(c, i), false, out);
	}
	buf_putc(out, ']');
}

/* why: of one that failed, or NULL. */
static void put_response(struct generation *g, const char *status, const struct problem *why, struct buf *out)
{
	struct choice *c = g->choice ? &g->choice[0] : NULL;
	struct usage u = generation_usage(g);
	bool over = c && c->done && !why;

	buf_printf(out, "{\"id\":\"resp_%s\",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\",\"model\":",
	           g->x->id, (long long)g->created, status);
	json_put_cstr(out, g->served->name);
	buf_puts(out, ",\"error\":");
	if (why) {
		buf_puts(out, "{\"code\":\"server_error\",\"message\":");
		json_put_cstr(out, why->message);
		buf_putc(out, '}');
	} else {
		buf_puts(out, "null");
	}
	buf_puts(out, ",\"incomplete_details\":");
	buf_puts(out, over && c->finish == FINISH_LENGTH ? "{\"reason\":\"max_output_tokens\"}" : "null");
	buf_puts(out, ",\"output\":");
	if (over)
		put_output(c, out);
	else
		buf_puts(out, "[]");
	buf_put(out, g->echo.p, g->echo.n);
	if (over)
		buf_printf(
			out,
			",\"usage\":{\"input_tokens\":%d,\"input_tokens_details\":{\"cached_tokens\":%d},\"output_tokens\":%d,"
			"\"output_tokens_details\":{\"reasoning_tokens\":%d},\"total_tokens\":%d",
			u.prompt, u.cached, u.output, u.thought, u.prompt + u.output);
	if (over) {
		put_cache_report(g, out);
		buf_putc(out, '}');
	} else {
		buf_puts(out, ",\"usage\":null");
	}
	if (over && c->split.malformed)
		buf_puts(out, ",\"malformed_tool_call\":true");
	buf_putc(out, '}');
}

/* ---- keeping ---- */

/* The answer as the message that a later request goes on from. */
static void put_answer(struct choice *c, struct buf *out)
{
	const char *text = c->split.text.p;
	struct buf part[2], calls;
	int k = 0;

	buf_init(&part[0]);
	buf_init(&part[1]);
	buf_init(&calls);
	for (int i = 0; i < c->split.n_piece; i++) {
		const struct piece *p = &c->split.piece[i];

		if (p->kind == PIECE_CALL) {
			struct json *j = json_parse(text + p[1].at, p[1].n, 0, NULL);

			buf_printf(&calls, "%s{\"id\":\"call_%s\",\"type\":\"function\",\"function\":{\"name\":",
			           calls.n ? "," : "", chat_call_id(c, k));
			json_put_str(&calls, text + p->at, p->n);
			buf_puts(&calls, ",\"arguments\":");
			if (json_kind(j) == JSON_OBJECT)
				json_put(&calls, j);
			else
				json_put_str(&calls, text + p[1].at, p[1].n);
			buf_puts(&calls, "}}");
			json_free(j);
		} else if (begins_item(p)) {
			buf_put(&part[p->kind == PIECE_CONTENT], text + p->at, p->n);
		}
		k += begins_item(p);
	}
	buf_puts(out, ",{\"role\":\"assistant\",\"content\":");
	json_put_str(out, part[1].p, part[1].n);
	if (part[0].n) {
		buf_puts(out, ",\"reasoning_content\":");
		json_put_str(out, part[0].p, part[0].n);
	}
	if (calls.n)
		buf_printf(out, ",\"tool_calls\":[%s]", calls.p);
	buf_putc(out, '}');
	buf_fini(&part[0]);
	buf_fini(&part[1]);
	buf_fini(&calls);
}

/* The response in its last state, which is also kept. */
static void put_last(struct generation *g, struct buf *out)
{
	struct choice *c = &g->choice[0];
	size_t at = out->n;
	struct buf object;
	char id[48];

	put_response(g, c->finish == FINISH_LENGTH ? "incomplete" : "completed", NULL, out);
	if (!g->params.store)
		return;
	buf_init(&object);
	buf_put(&object, out->p + at, out->n - at);
	put_answer(c, &g->history);
	snprintf(id, sizeof id, "resp_%s", g->x->id);
	response_store_put(&g->x->srv->responses, id, g->x->key,
	                   (const struct buf *[N_KEPT]){ &object, &g->history, &g->items });
	buf_fini(&object);
}

/* ---- the stream ---- */

static void begin(struct generation *g, const char *type, struct buf *out)
{
	event_named(out, type);
	buf_printf(out, "{\"type\":\"%s\",\"sequence_number\":%d", type, g->sequence++);
}

static void put_end(struct buf *out)
{
	buf_putc(out, '}');
	event_end(out);
}

static void response_event(struct generation *g, const char *type, const char *status, struct buf *out)
{
	begin(g, type, out);
	buf_puts(out, ",\"response\":");
	put_response(g, status, NULL, out);
	put_end(out);
}

static void first(struct generation *g, struct choice *c, struct buf *out)
{
	(void)c;
	response_event(g, "response.created", "in_progress", out);
	response_event(g, "response.in_progress", "in_progress", out);
}

/* An event about the open item, up to its own members. */
static void about_item(struct generation *g, struct choice *c, const char *type, struct buf *out)
{
	int k = c->n_block - 1;

	begin(g, type, out);
	buf_printf(out, ",\"output_index\":%d", k);
	if (strncmp(type, "response.output_item.", 21)) {
		const struct piece *p = &c->split.piece[c->block_piece];

		buf_printf(out, ",\"item_id\":\"%s_%s\"", prefix_of[p->kind], chat_call_id(c, k));
		if (p->kind != PIECE_CALL)
			buf_puts(out, ",\"content_index\":0");
	}
}

static void item_event(struct generation *g, struct choice *c, bool added, struct buf *out)
{
	about_item(g, c, added ? "response.output_item.added" : "response.output_item.done", out);
	buf_puts(out, ",\"item\":");
	put_item(c, c->block_piece, c->n_block - 1, added ? "in_progress" : status_of(c, c->block_piece), added, out);
	put_end(out);
}

static void part_event(struct generation *g, struct choice *c, const char *type, const char *text, size_t n,
                       struct buf *out)
{
	about_item(g, c, type, out);
	if (c->split.piece[c->block_piece].kind == PIECE_THINKING)
		buf_puts(out, ",\"part\":{\"type\":\"reasoning_text\",\"text\":");
	else
		buf_puts(out, ",\"part\":{\"type\":\"output_text\",\"annotations\":[]");
	if (c->split.piece[c->block_piece].kind != PIECE_THINKING) {
		if (n)
			put_logprobs(c, c->block_piece, out);
		else
			buf_puts(out, ",\"logprobs\":[]");
		buf_puts(out, ",\"text\":");
	}
	json_put_str(out, text, n);
	buf_putc(out, '}');
	put_end(out);
}

static void item_ends(struct generation *g, struct choice *c, struct buf *out)
{
	const char *text = c->split.text.p;
	const struct piece *p;

	if (!c->block_open)
		return; /* there may be no piece at all */
	p = &c->split.piece[c->block_piece];
	if (p->kind == PIECE_CALL) {
		about_item(g, c, "response.function_call_arguments.done", out);
		buf_puts(out, ",\"name\":");
		json_put_str(out, text + p->at, p->n);
		buf_puts(out, ",\"arguments\":");
		json_put_str(out, text + p[1].at, p[1].n);
		put_end(out);
	} else {
		about_item(g, c,
		           p->kind == PIECE_THINKING ? "response.reasoning_text.done" : "response.output_text.done",
		           out);
		buf_puts(out, ",\"text\":");
		json_put_str(out, text + p->at, p->n);
		if (p->kind == PIECE_CONTENT)
			put_logprobs(c, c->block_piece, out);
		put_end(out);
		part_event(g, c, "response.content_part.done", text + p->at, p->n, out);
	}
	item_event(g, c, false, out);
	c->block_open = BLOCK_NONE;
}

static void item_begins(struct generation *g, struct choice *c, struct buf *out)
{
	item_ends(g, c, out);
	c->block_piece = c->told;
	c->n_block++;
	c->block_open = BLOCK_TEXT;
	item_event(g, c, true, out);
	if (c->split.piece[c->block_piece].kind != PIECE_CALL)
		part_event(g, c, "response.content_part.added", "", 0, out);
}

static void delta(struct generation *g, struct choice *c, struct buf *out)
{
	struct piece p;
	bool begins;

	while (chat_next(c, &p, &begins)) {
		if (begins && begins_item(&p))
			item_begins(g, c, out);
		if (p.kind == PIECE_CALL || p.kind == PIECE_CALL_END)
			continue;
		about_item(g, c,
		           p.kind == PIECE_THINKING ? "response.reasoning_text.delta" :
		           p.kind == PIECE_CONTENT  ? "response.output_text.delta" :
		                                      "response.function_call_arguments.delta",
		           out);
		buf_puts(out, ",\"delta\":");
		json_put_str(out, c->split.text.p + p.at, p.n);
		if (p.kind == PIECE_CONTENT) {
			buf_printf(out, ",\"logprobs\":[%s]", c->logprobs[NEXT].n ? c->logprobs[NEXT].p : "");
			buf_reset(&c->logprobs[NEXT]);
		}
		put_end(out);
	}
}

static void last(struct generation *g, struct choice *c, struct buf *out)
{
	item_ends(g, c, out);
}

static void close_stream(struct generation *g, struct buf *out)
{
	begin(g, g->choice[0].finish == FINISH_LENGTH ? "response.incomplete" : "response.completed", out);
	buf_puts(out, ",\"response\":");
	put_last(g, out);
	put_end(out);
}

static void error(struct generation *g, const struct problem *p, struct buf *out)
{
	begin(g, "response.failed", out);
	buf_puts(out, ",\"response\":");
	put_response(g, "failed", p, out);
	put_end(out);
}

static void progress(struct generation *g, struct choice *c, const struct event *ev, struct buf *out)
{
	begin(g, "response.prompt_progress", out); /* not of the API, and only for those who ask */
	buf_puts(out, ",\"prompt_progress\":");
	put_progress(g, c, ev, out);
	put_end(out);
}

static void whole(struct generation *g, struct buf *out)
{
	put_last(g, out);
	buf_putc(out, '\n');
}

const struct family responses_family = {
	.path = "/v1/responses",
	.id_prefix = "resp_",
	.read = read_body,
	.open = chat_open,
	.token = token,
	.end = chat_end,
	.first = first,
	.delta = delta,
	.last = last,
	.progress = progress,
	.close = close_stream,
	.error = error,
	.whole = whole,
};

static void prep(struct exchange *x)
{
	generation_prep(x, &responses_family);
}

const struct api responses_api = {
	.prep = prep,
	.ready = generation_ready,
	.wake = generation_wake,
	.drop = generation_drop,
	.abandon = generation_abandon,
	.stop = generation_stop,
};

/* ---- what is kept ---- */

static void none(struct exchange *x)
{
	struct problem p;

	problem_set(&p, 404, "response_not_found", NULL, "there is no response \"%.60s\" here, or no longer",
	            x->rest.p);
	exchange_refuse(x, &p);
}

/* One of a query's values, up to the next &; NULL: it is not there. */
static const char *query_value(const struct exchange *x, const char *name, size_t *n)
{
	size_t len = strlen(name);

	for (const char *p = x->query.n ? x->query.p : NULL; p; p = strchr(p, '&')) {
		p += *p == '&';
		if (strncmp(p, name, len) || p[len] != '=')
			continue;
		*n = strcspn(p + len + 1, "&");
		return p + len + 1;
	}
	return NULL;
}

static const char *item_id(const struct json *item)
{
	size_t n;
	const char *s = json_str(json_get(item, "id"), &n);

	return s ? s : "";
}

static void put_id(struct buf *out, const char *name, const struct json *item)
{
	buf_printf(out, ",\"%s\":", name);
	if (item)
		json_put_cstr(out, item_id(item));
	else
		buf_puts(out, "null");
}

/* GET /v1/responses/{id}/input_items: limit (20), order (desc), after. */
static void list_items(struct exchange *x, const struct buf *kept)
{
	enum { LIMIT = 20, LIMIT_MAX = 100 };
	const char *limit, *order, *after;
	size_t n_limit = 0, n_order = 0, n_after = 0, n, from = 0, to;
	struct json *items;
	struct buf b;
	long most = LIMIT;
	bool rising;

	limit = query_value(x, "limit", &n_limit);
	order = query_value(x, "order", &n_order);
	after = query_value(x, "after", &n_after);
	if (limit)
		most = strtol(limit, NULL, 10);
	rising = order && n_order == 3 && !memcmp(order, "asc", 3);
	if (most < 1 || most > LIMIT_MAX || (order && !rising && (n_order != 4 || memcmp(order, "desc", 4)))) {
		struct problem p;

		problem_set(&p, 400, "invalid_value", most < 1 || most > LIMIT_MAX ? "limit" : "order",
		            "limit must be from 1 to %d, order asc or desc", LIMIT_MAX);
		exchange_refuse(x, &p);
		return;
	}
	buf_init(&b);
	buf_printf(&b, "[%s]", kept->n ? kept->p : "");
	items = json_parse(b.p, b.n, 200, NULL);
	buf_reset(&b);
	n = json_len(items);
	for (size_t i = 0; after && i < n; i++) {
		const char *id = item_id(json_at(items, rising ? i : n - 1 - i));

		if (strlen(id) == n_after && !memcmp(id, after, n_after))
			from = i + 1;
	}
	to = n - from > (size_t)most ? from + (size_t)most : n;
	buf_puts(&b, "{\"object\":\"list\",\"data\":[");
	for (size_t i = from; i < to; i++) {
		if (i > from)
			buf_putc(&b, ',');
		json_put(&b, json_at(items, rising ? i : n - 1 - i));
	}
	buf_putc(&b, ']');
	put_id(&b, "first_id", from < to ? json_at(items, rising ? from : n - 1 - from) : NULL);
	put_id(&b, "last_id", from < to ? json_at(items, rising ? to - 1 : n - to) : NULL);
	buf_printf(&b, ",\"has_more\":%s}\n", to < n ? "true" : "false");
	exchange_reply(x, 200, "application/json", b.p, b.n);
	json_free(items);
	buf_fini(&b);
}

static void get(struct exchange *x)
{
	static const char list[] = "/input_items";
	size_t n = x->rest.n, len = sizeof list - 1, n_stream;
	bool items = n > len && !memcmp(x->rest.p + n - len, list, len);
	const char *stream = query_value(x, "stream", &n_stream);
	struct buf b;

	if (stream && n_stream == 4 && !memcmp(stream, "true", 4)) {
		struct problem p;

		problem_set(&p, 400, "unsupported_field", "stream",
		            "stream is not supported by this server: what is kept comes whole");
		exchange_refuse(x, &p);
		return;
	}
	buf_init(&b);
	if (items)
		x->rest.p[x->rest.n -= len] = 0;
	if (!response_store_get(&x->srv->responses, x->rest.p, x->key, items ? KEPT_ITEMS : KEPT_OBJECT, &b)) {
		none(x);
	} else if (items) {
		list_items(x, &b);
	} else {
		buf_putc(&b, '\n');
		exchange_reply(x, 200, "application/json", b.p, b.n);
	}
	buf_fini(&b);
}

static void drop(struct exchange *x)
{
	struct buf b;

	if (!response_store_drop(&x->srv->responses, x->rest.p, x->key)) {
		none(x);
		return;
	}
	buf_init(&b);
	buf_puts(&b, "{\"id\":");
	json_put_cstr(&b, x->rest.p);
	buf_puts(&b, ",\"object\":\"response\",\"deleted\":true}\n");
	exchange_reply(x, 200, "application/json", b.p, b.n);
	buf_fini(&b);
}

const struct api response_get_api = { .ready = get };
const struct api response_drop_api = { .ready = drop };
