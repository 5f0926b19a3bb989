/* api_chat.c - POST /v1/chat/completions, in the OpenAI API's shapes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/generate.h"
#include "server/inside.h"
#include "server/messages.h"
#include "server/routes.h"

static const struct field chat_fields[] = {
	{ "messages" }, { "tools" }, { "tool_choice" }, { "max_completion_tokens" }, { "top_logprobs" },
	{ "reasoning_effort" }, { "chat_template_kwargs" }, { "add_generation_prompt" },
	{ "parallel_tool_calls", "true" },
	{ "response_format", "{\"type\":\"text\"}" },
	{ "functions", "[]", "use tools" }, { "function_call", "\"auto\"|\"none\"", "use tool_choice" },
	{ "audio", "" }, { "modalities", "[\"text\"]" }, { "prediction", "" }, { "web_search_options", "" },
	{ "verbosity", "\"medium\"" }, { "reasoning", "" }, { "include_reasoning", "true" },
	{ "enable_thinking", "", "use chat_template_kwargs" }, { "thinking", "", "use chat_template_kwargs" },
	{ "chat_template", "" }, { "continue_final_message", "false" }, { "add_special_tokens", "false" },
	{ "documents", "[]", "use chat_template_kwargs" }, { "mm_processor_kwargs", "{}" }, { "echo", "false" },
	{ "suffix", "\"\"" },
	{ NULL },
};

/* ---- reading ---- */

static int read_model(struct generation *g, const struct json *body, struct problem *p)
{
	const struct json *v;
	const char *name;
	size_t n;
	int r;

	if ((r = field_value(body, "model", JSON_STRING, &v, p)) || !v)
		return r;
	name = json_str(v, &n);
	return model_known(g->served, name, n, p);
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

/* Sets g->tools, and *shown to what the template is to see. */
static int read_tools(struct generation *g, const struct json *body, const struct json **shown, struct problem *p)
{
	const struct json *tools, *choice = json_get(body, "tool_choice");
	const char *s;
	bool none = false;
	size_t n;
	int r;

	*shown = NULL;
	if ((r = field_value(body, "tools", JSON_ARRAY, &tools, p)))
		return r;
	if (json_kind(choice) == JSON_STRING) {
		s = json_str(choice, &n);
		none = !strcmp(s, "none");
		if (!none && strcmp(s, "auto"))
			return problem_set(p, 400, "unsupported_field", "tool_choice",
			                   "tool_choice \"%.40s\" is not supported by this server: only \"auto\" and \"none\" are", s);
	} else if (json_kind(choice) != JSON_NULL) {
		return problem_set(p, 400, "unsupported_field", "tool_choice",
		                   "a tool_choice that names a tool is not supported by this server: only \"auto\" and \"none\" are");
	}
	if (!json_len(tools))
		return 0;
	if ((r = tools_check(tools, p)))
		return r;
	if (none)
		return 0;
	if (!template_uses(g->served->tmpl, "tools"))
		return problem_set(p, 400, "unsupported_field", "tools", "the chat template of this model takes no tools");
	g->tools = *shown = tools;
	return 0;
}

static void put_members(struct buf *b, const struct json *object)
{
	struct json_cursor c;
	const struct json *v;
	const char *key;

	if (json_kind(object) != JSON_OBJECT)
		return;
	for (c = json_first(object); json_next(&c, &key, &v);) {
		if (b->n > 1)
			buf_putc(b, ',');
		json_put_cstr(b, key);
		buf_putc(b, ':');
		json_put(b, v);
	}
}

/* The template's variables: the server's, over them the request's. */
static int read_extra(struct generation *g, const struct json *body, struct json **out, struct problem *p)
{
	const struct json *kwargs, *effort;
	struct buf b;
	int r;

	*out = NULL;
	if ((r = field_value(body, "chat_template_kwargs", JSON_OBJECT, &kwargs, p)) ||
	    (r = field_value(body, "reasoning_effort", JSON_STRING, &effort, p)))
		return r;
	if (effort && !template_uses(g->served->tmpl, "reasoning_effort"))
		return problem_set(p, 400, "unsupported_field", "reasoning_effort",
		                   "the chat template of this model has no reasoning_effort%s",
		                   template_uses(g->served->tmpl, "enable_thinking")
		                           ? ": chat_template_kwargs {\"enable_thinking\": true or false} is what it knows"
		                           : "");
	/* Of a repeated name the last value counts. */
	buf_init(&b);
	buf_putc(&b, '{');
	put_members(&b, g->served->template_args);
	put_members(&b, kwargs);
	if (effort) {
		if (b.n > 1)
			buf_putc(&b, ',');
		buf_puts(&b, "\"reasoning_effort\":");
		json_put(&b, effort);
	}
	buf_putc(&b, '}');
	*out = json_parse(b.p, b.n, 0, NULL);
	buf_fini(&b);
	return 0;
}

static int render(struct generation *g, const struct json *body, const struct json *messages, const struct json *tools,
                  const struct json *extra, struct problem *p)
{
	struct template_input in = {
		.messages = messages, .tools = tools, .extra = extra, .add_generation_prompt = true,
		.bos_token = g->served->bos_token, .eos_token = g->served->eos_token, .now = (int64_t)time(NULL),
	};
	struct prompt prompt;
	int r;

	if ((r = field_bool(body, "add_generation_prompt", &in.add_generation_prompt, p)))
		return r;
	prompt_init(&prompt);
	r = prompt_render(&prompt, g->served->tmpl, &in, p);
	if (!r)
		r = generation_tokenize(g, 0, prompt.out.text.p, prompt.out.text.n, TOKENIZE_SPECIAL, prompt.user,
		                        prompt.n_user, p);
	if (!r) {
		g->thinking = in.add_generation_prompt && split_opens(prompt.out.text.p, prompt.out.text.n);
		g->n_mark = prompt_marks(&prompt, g->served->tokenizer, &g->prompt[0], g->mark);
	}
	prompt_fini(&prompt);
	return r;
}

static int read_prompt(struct generation *g, const struct json *body, struct problem *p)
{
	const struct json *tools;
	struct json *messages = NULL, *extra = NULL;
	struct buf normal;
	int r;

	buf_init(&normal);
	if (!(r = read_tools(g, body, &tools, p)) && !(r = read_extra(g, body, &extra, p)) &&
	    !(r = messages_normal(json_get(body, "messages"), &normal, p))) {
		struct err err;

		/* Deeper by what a message wraps around its arguments. */
		messages = json_parse(normal.p, normal.n, 200, &err);
		if (messages)
			r = render(g, body, messages, tools, extra, p);
		else
			r = problem_set(p, 400, "invalid_value", "messages", "messages: %s", err.msg);
	}
	buf_fini(&normal);
	json_free(messages);
	json_free(extra);
	return r;
}

static int read_body(struct generation *g, const char *bytes, size_t n, struct problem *p)
{
	static const struct field *const tables[] = { params_fields, chat_fields, NULL };
	struct params *a = &g->params;
	struct json *body = body_parse(bytes, n, p);
	int r;

	if (!body)
		return p->status;
	g->body = body;
	generation_prompts(g, 1);
	if ((r = fields_check(body, tables, &a->unknown, p)) || (r = read_model(g, body, p)) ||
	    (r = params_read(a, body, g->served, p)) || (r = read_logprobs(a, body, p)) ||
	    (r = field_int(body, "max_completion_tokens", 0, INT32_MAX, &a->max_tokens, p)))
		return r;
	if (!g->served->tmpl)
		return problem_set(p, 400, "no_chat_template", NULL,
		                   "this model has no chat template: use /v1/completions, or start the server with --chat-template");
	return read_prompt(g, body, p);
}

/* ---- writing ---- */

static void open_choice(struct generation *g, struct choice *c)
{
	c->split.indexed = g->params.stream;
}

static void put_bytes(const struct served *d, int32_t id, struct buf *out)
{
	size_t n = 0;
	const char *s = tokenizer_token_bytes(d->tokenizer, id, &n);

	buf_putc(out, '[');
	for (size_t i = 0; s && i < n; i++)
		buf_printf(out, "%s%u", i ? "," : "", (unsigned char)s[i]);
	buf_putc(out, ']');
}

/* {"token", "logprob", "bytes" without the closing brace. */
static void put_alternative(const struct served *d, int32_t id, float logprob, struct buf *out)
{
	buf_puts(out, "{\"token\":");
	put_token(d, id, out);
	buf_puts(out, ",\"logprob\":");
	put_logprob(out, logprob);
	buf_puts(out, ",\"bytes\":");
	put_bytes(d, id, out);
}

static void token(struct generation *g, struct choice *c, const struct event *ev)
{
	if (ev->kind == EV_TOKEN && c->split.state == SPLIT_THINK)
		c->n_thinking++;
	split_put(&c->split, ev->text, ev->n_text);
	if (!g->params.logprobs || ev->kind != EV_TOKEN)
		return;
	struct buf *b = &c->logprobs[0];

	if (b->n)
		buf_putc(b, ',');
	put_alternative(g->served, ev->token, ev->pick.logprob, b);
	buf_puts(b, ",\"top_logprobs\":[");
	for (int i = 0; i < ev->pick.n_top; i++) {
		if (i)
			buf_putc(b, ',');
		put_alternative(g->served, ev->pick.top[i].token, ev->pick.top[i].logprob, b);
		buf_putc(b, '}');
	}
	buf_puts(b, "]}");
}

static void end(struct generation *g, struct choice *c)
{
	(void)g;
	split_end(&c->split);
}

static void put_finish(const struct choice *c, struct buf *out)
{
	const char *why = c->split.n_call && c->finish == FINISH_STOP ? "tool_calls" : finish_name(c->finish);

	buf_printf(out, ",\"finish_reason\":\"%s\"}", why);
}

static void put_logprobs(const struct generation *g, const struct choice *c, struct buf *out)
{
	if (!g->params.logprobs) {
		buf_puts(out, ",\"logprobs\":null");
		return;
	}
	buf_puts(out, ",\"logprobs\":{\"content\":[");
	buf_put(out, c->logprobs[0].p, c->logprobs[0].n);
	buf_puts(out, "],\"refusal\":null}");
}

static void chunk_begin(const struct generation *g, const struct choice *c, struct buf *out)
{
	event_begin(out);
	put_reply_head(g, out, "chat.completion.chunk");
	buf_printf(out, "[{\"index\":%d,\"delta\":{", c->index);
}

static void chunk_end(const struct generation *g, struct buf *out)
{
	buf_puts(out, g->params.include_usage ? "],\"usage\":null}" : "]}");
	event_end(out);
}

static void first(struct generation *g, struct choice *c, struct buf *out)
{
	chunk_begin(g, c, out);
	buf_puts(out, "\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}");
	chunk_end(g, out);
}

/* A member of the delta or message, when there is something. */
static void put_text(struct buf *out, const char *name, const struct buf *text, int *count)
{
	if (!text->n)
		return;
	buf_printf(out, "%s\"%s\":", (*count)++ ? "," : "", name);
	json_put_str(out, text->p, text->n);
}

static void delta(struct generation *g, struct choice *c, struct buf *out)
{
	struct split *s = &c->split;
	int count = 0;

	if (!s->thinking.n && !s->content.n && !s->calls.n && !c->logprobs[0].n)
		return;
	chunk_begin(g, c, out);
	put_text(out, "reasoning_content", &s->thinking, &count);
	put_text(out, "content", &s->content, &count);
	if (s->calls.n)
		buf_printf(out, "%s\"tool_calls\":[%s]", count++ ? "," : "", s->calls.p);
	if (!count)
		buf_puts(out, "\"content\":\"\"");
	buf_putc(out, '}');
	put_logprobs(g, c, out);
	buf_puts(out, ",\"finish_reason\":null}");
	chunk_end(g, out);
	buf_reset(&s->thinking);
	buf_reset(&s->content);
	buf_reset(&s->calls);
	buf_reset(&c->logprobs[0]);
}

static void last(struct generation *g, struct choice *c, struct buf *out)
{
	chunk_begin(g, c, out);
	buf_puts(out, "},\"logprobs\":null");
	put_finish(c, out);
	chunk_end(g, out);
}

static void usage(struct generation *g, struct buf *out)
{
	event_begin(out);
	put_reply_head(g, out, "chat.completion.chunk");
	buf_puts(out, "[],\"usage\":");
	put_usage(g, out, true);
	buf_putc(out, '}');
	event_end(out);
}

static void whole(struct generation *g, struct buf *out)
{
	put_reply_head(g, out, "chat.completion");
	for (int i = 0; i < g->n_choice; i++) {
		const struct choice *c = &g->choice[i];
		const struct split *s = &c->split;
		int count = 1;

		buf_printf(out, "%s{\"index\":%d,\"message\":{\"role\":\"assistant\",\"content\":", i ? "," : "[", c->index);
		if (s->n_call && !s->content.n)
			buf_puts(out, "null");
		else
			json_put_str(out, s->content.p, s->content.n);
		put_text(out, "reasoning_content", &s->thinking, &count);
		if (s->n_call)
			buf_printf(out, ",\"tool_calls\":[%s]", s->calls.p);
		buf_puts(out, ",\"refusal\":null}");
		put_logprobs(g, c, out);
		put_finish(c, out);
	}
	buf_puts(out, "],\"usage\":");
	put_usage(g, out, true);
	buf_puts(out, "}\n");
}

const struct family chat_family = {
	.path = "/v1/chat/completions", .id_prefix = "chatcmpl-",
	.read = read_body, .open = open_choice, .token = token, .end = end,
	.first = first, .delta = delta, .last = last, .usage = usage, .whole = whole,
};

static void prep(struct exchange *x) { generation_prep(x, &chat_family); }

const struct api chat_api = {
	.prep = prep, .ready = generation_ready, .wake = generation_wake, .drop = generation_drop,
	.stop = generation_stop,
};
