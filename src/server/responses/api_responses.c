/* api_responses.c - POST /v1/responses, in the
 * shapes of OpenAI's Responses API.  An answer is a list of items: reasoning,
 * message, function_call; a finished one is kept for later requests to go on from
 * (response_store.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/chat/chat.h"
#include "server/responses/from_responses.h"
#include "server/inside.h"
#include "server/routes.h"
#include "server/chat/structured.h"

/* State of a request until its answer is complete. */
struct responses {
	struct buf history; /* the conversation so far, as messages */
	struct buf items;   /* what was asked, as it is listed */
	struct buf tools;   /* the items so far that bring tools */
	bool summary;       /* thoughts are told as their own summary: clients that ask for one show nothing else */
};

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
	IGNORED("background", "false"),
	{ "conversation", "" },
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
	struct responses *own = g->own;
	const struct json *previous, *instructions;
	const char *id;
	size_t n;
	int r;

	if ((r = field_value(g->body, "previous_response_id", JSON_STRING, &previous, p)) ||
	    (r = field_value(g->body, "instructions", JSON_STRING, &instructions, p)))
		return r;
	if ((id = json_str(previous, &n)) &&
	    (!g->x || !response_store_get(&g->x->srv->responses, id, g->x->key, KEPT_MESSAGES, &own->history) ||
	     !response_store_get(&g->x->srv->responses, id, g->x->key, KEPT_TOOLS, &own->tools)))
		return problem_set(p, 404, "previous_response_not_found", "previous_response_id",
		                   "there is no response \"%.60s\" here, or no longer", id);
	if ((r = responses_input(json_get(g->body, "input"), &g->images, &own->history, p)))
		return r;
	chat_tell_compaction(g, json_get(g->body, "input"), "input");
	if (!own->history.n)
		return problem_set(p, 400, "invalid_value", "input", "input is empty");
	if (g->params.store)
		put_input_items(json_get(g->body, "input"), &own->items);
	put_messages(instructions, &own->history, &c->messages);
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
	buf_printf(
		b,
		",\"store\":%s,\"background\":false,\"service_tier\":\"default\",\"access_programs\":null,\"top_logprobs\":%d,\"truncation\":\"disabled\"",
		g->params.store ? "true" : "false", g->params.top_logprobs);
}

/* The tools of the body and of the conversation's items. */
static int read_tools(struct generation *g, struct chat *c, struct problem *p)
{
	const struct json *tools, *input = json_get(g->body, "input");
	struct responses *own = g->own;
	struct json *kept;
	struct buf b;
	int r;

	if ((r = field_value(g->body, "tools", JSON_ARRAY, &tools, p)))
		return r;
	buf_init(&b);
	buf_printf(&b, "[%s]", own->tools.n ? own->tools.p : "");
	kept = json_parse(b.p, b.n, 200, NULL);
	buf_reset(&b);
	if (!(r = tools_of_responses(tools, kept, input, &g->kinds, &g->params.warnings, &b, p)))
		c->tools = g->made = json_parse(b.p, b.n, 200, NULL);
	buf_fini(&b);
	json_free(kept);
	for (size_t i = 0; json_kind(input) == JSON_ARRAY && i < json_len(input); i++) {
		if (!json_len(tools_in_item(json_at(input, i))))
			continue;
		if (own->tools.n)
			buf_putc(&own->tools, ',');
		json_put(&own->tools, json_at(input, i));
	}
	return r;
}

static int read_chat(struct generation *g, struct chat *c, struct problem *p)
{
	const struct json *body = g->body;
	struct params *a = &g->params;
	int r;

	if ((r = params_sampling(a, body, g->served, p)) || (r = field_bool(body, "stream", &a->stream, p)) ||
	    (r = read_include(a, body, p)))
		return r;
	a->store = true;
	if ((r = field_bool(body, "store", &a->store, p)) ||
	    (r = field_bool(body, "parallel_tool_calls", &a->parallel, p)) ||
	    (r = params_max_tokens(a, body, "max_output_tokens", p)) ||
	    (r = field_bool(body, "return_progress", &a->progress, p)) || (r = read_wishes(g, c, p)) ||
	    (r = chat_choice(c, json_get(body, "tool_choice"), p)) || (r = read_input(g, c, p)) ||
	    (r = read_tools(g, c, p)))
		return r;
	make_echo(g, c);
	return 0;
}

static int read_body(struct generation *g, struct json *body, struct problem *p)
{
	static const struct field *const tables[] = { response_fields, params_fields, NULL };

	return chat_body(g, body, tables, read_chat, chat_prompt, p);
}

/* ---- items ---- */

/* Kinds of items of an answer. */
enum item { ITEM_REASONING, ITEM_MESSAGE, ITEM_CALL, ITEM_CUSTOM, ITEM_SEARCH };
static const char *const prefix_of[] = { "rs", "msg", "fc", "ctc", "tsc" };

static const struct tool_kind *kind_of(const struct generation *g, const struct choice *c, int i)
{
	return tool_kinds_find(&g->kinds, c->split.text.p + c->split.piece[i].at, c->split.piece[i].n);
}

static enum item item_of(const struct generation *g, const struct choice *c, int i)
{
	const struct tool_kind *k;

	switch (c->split.piece[i].kind) {
	case PIECE_THINKING: return ITEM_REASONING;
	case PIECE_CALL: return (k = kind_of(g, c, i)) ? ITEM_CALL + (enum item)k->form : ITEM_CALL;
	default: return ITEM_MESSAGE;
	}
}

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

static void put_input(const struct choice *c, int i, struct buf *out)
{
	const struct piece *p = &c->split.piece[i];
	struct buf input;

	buf_init(&input);
	if (i + 1 < c->split.n_piece)
		tool_get_input(c->split.text.p + p[1].at, p[1].n, &input);
	json_put_str(out, input.p, input.n);
	buf_fini(&input);
}

/* A search's arguments are an object, not its text; if it broke off, the text that came. */
static void put_search(const struct choice *c, int i, const char *id, bool open, struct buf *out)
{
	const struct piece *p = &c->split.piece[i];
	struct json *j = NULL;

	buf_printf(out,
	           "\"type\":\"tool_search_call\",\"execution\":\"client\",\"call_id\":\"call_%s\",\"arguments\":", id);
	if (open)
		buf_puts(out, "{}");
	else if ((j = json_parse(c->split.text.p + p[1].at, p[1].n, 200, NULL)))
		json_put(out, j);
	else
		json_put_str(out, c->split.text.p + p[1].at, p[1].n);
	json_free(j);
}

/* A call's members, from its id on. */
static void put_call(const struct generation *g, const struct choice *c, int i, const char *id, bool open,
                     struct buf *out)
{
	const struct tool_kind *k = kind_of(g, c, i);
	const struct piece *p = &c->split.piece[i];
	const char *text = c->split.text.p;
	bool custom = k && k->form == TOOL_CUSTOM;

	if (k && k->form == TOOL_SEARCH) {
		put_search(c, i, id, open, out);
		return;
	}
	buf_printf(out,
	           "\"type\":\"%s\",\"call_id\":\"call_%s\",\"name\":", custom ? "custom_tool_call" : "function_call",
	           id);
	if (k)
		json_put_cstr(out, k->own);
	else
		json_put_str(out, text + p->at, p->n);
	if (k && k->space) {
		buf_puts(out, ",\"namespace\":");
		json_put_cstr(out, k->space);
	}
	buf_puts(out, custom ? ",\"input\":" : ",\"arguments\":");
	if (open)
		buf_puts(out, "\"\"");
	else if (custom)
		put_input(c, i, out);
	else
		json_put_str(out, text + p[1].at, p[1].n);
}

/* Item k of the answer, which piece i began.  open: as it is announced, still empty. */
static void put_item(const struct generation *g, struct choice *c, int i, int k, const char *status, bool open,
                     struct buf *out)
{
	const struct responses *own = g->own;
	const struct piece *p = &c->split.piece[i];
	const char *text = c->split.text.p, *id = chat_call_id(c, k);
	enum item item = item_of(g, c, i);

	buf_printf(out, "{\"id\":\"%s_%s\",", prefix_of[item], id);
	switch (item) {
	case ITEM_REASONING:
		buf_printf(out, "\"type\":\"reasoning\",%s",
		           own->summary ? "\"summary\":[" : "\"summary\":[],\"content\":[");
		if (!open) {
			buf_printf(out, "{\"type\":\"%s_text\",\"text\":", own->summary ? "summary" : "reasoning");
			json_put_str(out, text + p->at, p->n);
			buf_putc(out, '}');
		}
		break;
	case ITEM_CALL:
	case ITEM_CUSTOM:
	case ITEM_SEARCH: put_call(g, c, i, id, open, out); break;
	case ITEM_MESSAGE:
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
	buf_printf(out, "%s,\"status\":\"%s\"}", item >= ITEM_CALL ? "" : "]", status);
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

static void put_output(const struct generation *g, struct choice *c, struct buf *out)
{
	int k = 0;

	buf_putc(out, '[');
	for (int i = 0; i < c->split.n_piece; i++) {
		if (!begins_item(&c->split.piece[i]))
			continue;
		if (k)
			buf_putc(out, ',');
		put_item(g, c, i, k++, status_of(c, i), false, out);
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
	json_put_cstr(out, model_shown(g));
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
		put_output(g, c, out);
	else
		buf_puts(out, "[]");
	buf_put(out, g->echo.p, g->echo.n);
	/* The types have it once there is one, and null never. */
	if (over) {
		buf_printf(
			out,
			",\"usage\":{\"input_tokens\":%d,\"input_tokens_details\":{\"cached_tokens\":%d,\"cache_write_tokens\":0},\"output_tokens\":%d,"
			"\"output_tokens_details\":{\"reasoning_tokens\":%d},\"total_tokens\":%d",
			u.prompt, u.cached, u.output, u.thought, u.prompt + u.output);
		put_cache_report(g, out);
		buf_putc(out, '}');
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
	struct responses *own = g->own;
	struct choice *c = &g->choice[0];
	size_t at = out->n;
	struct buf object;
	char id[48];

	put_response(g, c->finish == FINISH_LENGTH ? "incomplete" : "completed", NULL, out);
	if (!g->params.store)
		return;
	buf_init(&object);
	buf_put(&object, out->p + at, out->n - at);
	put_answer(c, &own->history);
	snprintf(id, sizeof id, "resp_%s", g->x->id);
	response_store_put(&g->x->srv->responses, id, g->x->key,
	                   (const struct buf *[N_KEPT]){ &object, &own->history, &own->items, &own->tools });
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
	const struct responses *own = g->own;
	int k = c->n_block - 1;

	begin(g, type, out);
	buf_printf(out, ",\"output_index\":%d", k);
	if (strncmp(type, "response.output_item.", 21)) {
		enum item item = item_of(g, c, c->block_piece);

		buf_printf(out, ",\"item_id\":\"%s_%s\"", prefix_of[item], chat_call_id(c, k));
		if (item == ITEM_REASONING && own->summary)
			buf_puts(out, ",\"summary_index\":0");
		else if (item <= ITEM_MESSAGE)
			buf_puts(out, ",\"content_index\":0");
	}
}

static void item_event(struct generation *g, struct choice *c, bool added, struct buf *out)
{
	about_item(g, c, added ? "response.output_item.added" : "response.output_item.done", out);
	buf_puts(out, ",\"item\":");
	put_item(g, c, c->block_piece, c->n_block - 1, added ? "in_progress" : status_of(c, c->block_piece), added,
	         out);
	put_end(out);
}

/* The events of an item of text, by its kind. */
struct voice {
	const char *part, *delta, *done, *part_added, *part_done;
};

static const struct voice *voice_of(const struct generation *g, const struct choice *c)
{
	static const struct voice voices[] = {
		{ "{\"type\":\"output_text\",\"annotations\":[]", "response.output_text.delta",
		  "response.output_text.done", "response.content_part.added", "response.content_part.done" },
		{ "{\"type\":\"reasoning_text\"", "response.reasoning_text.delta", "response.reasoning_text.done",
		  "response.content_part.added", "response.content_part.done" },
		{ "{\"type\":\"summary_text\"", "response.reasoning_summary_text.delta",
		  "response.reasoning_summary_text.done", "response.reasoning_summary_part.added",
		  "response.reasoning_summary_part.done" },
	};
	const struct responses *own = g->own;

	if (item_of(g, c, c->block_piece) == ITEM_MESSAGE)
		return &voices[0];
	return &voices[own->summary ? 2 : 1];
}

static void part_event(struct generation *g, struct choice *c, bool added, const char *text, size_t n, struct buf *out)
{
	const struct voice *voice = voice_of(g, c);

	about_item(g, c, added ? voice->part_added : voice->part_done, out);
	buf_printf(out, ",\"part\":%s", voice->part);
	if (item_of(g, c, c->block_piece) == ITEM_MESSAGE && n)
		put_logprobs(c, c->block_piece, out);
	else if (item_of(g, c, c->block_piece) == ITEM_MESSAGE)
		buf_puts(out, ",\"logprobs\":[]");
	buf_puts(out, ",\"text\":");
	json_put_str(out, text, n);
	buf_putc(out, '}');
	put_end(out);
}

/* The input of a custom tool comes as one delta, because it is inside the arguments that the model wrote. */
static void custom_ends(struct generation *g, struct choice *c, struct buf *out)
{
	static const struct {
		const char *type, *member;
	} events[] = {
		{ "response.custom_tool_call_input.delta", "delta" },
		{ "response.custom_tool_call_input.done", "input" },
	};

	for (int i = 0; i < 2; i++) {
		about_item(g, c, events[i].type, out);
		buf_printf(out, ",\"%s\":", events[i].member);
		put_input(c, c->block_piece, out);
		put_end(out);
	}
}

static void call_ends(struct generation *g, struct choice *c, struct buf *out)
{
	const struct piece *p = &c->split.piece[c->block_piece];
	const struct tool_kind *k = kind_of(g, c, c->block_piece);
	const char *text = c->split.text.p;

	about_item(g, c, "response.function_call_arguments.done", out);
	buf_puts(out, ",\"name\":");
	if (k)
		json_put_cstr(out, k->own);
	else
		json_put_str(out, text + p->at, p->n);
	buf_puts(out, ",\"arguments\":");
	json_put_str(out, text + p[1].at, p[1].n);
	put_end(out);
}

static void text_ends(struct generation *g, struct choice *c, struct buf *out)
{
	const struct piece *p = &c->split.piece[c->block_piece];
	const char *text = c->split.text.p;

	about_item(g, c, voice_of(g, c)->done, out);
	buf_puts(out, ",\"text\":");
	json_put_str(out, text + p->at, p->n);
	if (p->kind == PIECE_CONTENT)
		put_logprobs(c, c->block_piece, out);
	put_end(out);
	part_event(g, c, false, text + p->at, p->n, out);
}

static void item_ends(struct generation *g, struct choice *c, struct buf *out)
{
	if (!c->block_open)
		return; /* there may be no piece at all */
	switch (item_of(g, c, c->block_piece)) {
	case ITEM_CALL: call_ends(g, c, out); break;
	case ITEM_CUSTOM: custom_ends(g, c, out); break;
	case ITEM_SEARCH: break;
	default: text_ends(g, c, out); break;
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
		part_event(g, c, true, "", 0, out);
}

static void delta(struct generation *g, struct choice *c, struct buf *out)
{
	struct piece p;
	bool begins;

	while (chat_next(c, &p, &begins)) {
		bool call;

		if (begins && begins_item(&p))
			item_begins(g, c, out);
		call = c->split.piece[c->block_piece].kind == PIECE_CALL;
		if (p.kind == PIECE_CALL || p.kind == PIECE_CALL_END ||
		    (call && item_of(g, c, c->block_piece) != ITEM_CALL))
			continue;
		about_item(g, c, call ? "response.function_call_arguments.delta" : voice_of(g, c)->delta, out);
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

static void responses_whole(struct generation *g, struct buf *out)
{
	put_last(g, out);
	buf_putc(out, '\n');
}

const struct endpoint responses_endpoint = {
	GENERATION_STEPS,  .id_prefix = "resp_", .own_new = own_new,    .own_free = own_free, .read = read_body,
	.open = chat_open, .token = token,       .end = chat_end,       .first = first,       .delta = delta,
	.last = last,      .progress = progress, .close = close_stream, .error = error,       .whole = responses_whole,
};

/* ---- counting ---- */

static void count(struct exchange *x)
{
	struct generation *g = x->work;
	struct buf b;

	buf_init(&b);
	buf_printf(&b, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}\n", g->prompt[0].n);
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
