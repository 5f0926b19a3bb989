/* api_chat.c - POST /v1/chat/completions, in the OpenAI API's shapes. */
#include <stdio.h>
#include <string.h>

#include "server/chat/chat.h"
#include "server/inside.h"
#include "server/routes.h"
#include "server/chat/structured.h"

/* ---- reading ---- */

static int read_body(struct generation *g, struct json *body, struct problem *p)
{
	static const struct field own[] = { { "timings_per_token" }, { NULL } };
	static const struct field *const tables[] = { own, chat_fields, form_fields, params_fields, NULL };
	int r = chat_body(g, body, tables, chat_read, chat_prompt, p);

	return r ? r : field_bool(g->body, "timings_per_token", &g->params.timings, p);
}

/* ---- writing ---- */

static void token(struct generation *g, struct choice *c, const struct event *ev)
{
	chat_token(g, c, ev);
	if (!g->params.logprobs || ev->kind != EV_TOKEN)
		return;
	chat_logprob(g, ev, &c->logprobs[0]);
}

static void put_finish(const struct choice *c, struct buf *out)
{
	buf_printf(out, ",\"finish_reason\":\"%s\"", chat_calls(c) ? "tool_calls" : finish_name(c->finish));
	/* Not of the API: something looked like a call and was none, or broke off. */
	if (c->split.malformed)
		buf_puts(out, ",\"malformed_tool_call\":true");
	buf_putc(out, '}');
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

static void chunk_end(const struct generation *g, bool timings, struct buf *out)
{
	buf_puts(out, g->params.include_usage ? "],\"usage\":null" : "]");
	if (timings)
		put_timings(g, generation_usage(g), out);
	buf_putc(out, '}');
	event_end(out);
}

static void first(struct generation *g, struct choice *c, struct buf *out)
{
	chunk_begin(g, c, out);
	buf_puts(out, "\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}");
	chunk_end(g, false, out);
}

/* New pieces of the answer, by kind; calls are elements of a tool_calls array, one for
 * each call that has a new piece. */
struct news {
	struct buf thinking, content, calls;
};

/* The tool that is being called, when it is not a function. */
static bool calls_custom(const struct generation *g, const struct choice *c)
{
	const struct tool_kind *k = tool_kinds_find(&g->tools.kinds, c->called.p, c->called.n);

	return k && k->form == TOOL_CUSTOM;
}

static void begin_call(const struct generation *g, struct choice *c, const char *name, size_t n, struct buf *b,
                       bool stream)
{
	const struct tool_kind *kind = tool_kinds_find(&g->tools.kinds, name, n);
	bool custom = kind && kind->form == TOOL_CUSTOM;

	buf_reset(&c->called);
	buf_put(&c->called, name, n);
	if (b->n)
		buf_puts(b, "\"}},");
	buf_putc(b, '{');
	if (stream)
		buf_printf(b, "\"index\":%d,", c->told.calls);
	buf_printf(b, "\"id\":\"call_%s\",\"type\":\"%s\",\"%s\":{\"name\":", chat_call_id(c, c->told.calls++),
	           custom ? "custom" : "function", custom ? "custom" : "function");
	json_put_str(b, name, n);
	buf_printf(b, ",\"%s\":\"", custom ? "input" : "arguments");
}

static void put_custom_input(const struct choice *c, struct buf *b)
{
	struct buf input;

	buf_init(&input);
	/* The piece before the end is the arguments. */
	if (c->told.n && c->split.piece[c->told.n - 1].kind == PIECE_ARGUMENTS)
		tool_get_input(c->split.text.p + c->split.piece[c->told.n - 1].at, c->split.piece[c->told.n - 1].n,
		               &input);
	if (!b->n)
		buf_printf(b, "{\"index\":%d,\"custom\":{\"input\":\"", c->told.calls - 1);
	json_put_inside(b, input.p, input.n);
	buf_fini(&input);
}

static void take_news(const struct generation *g, struct choice *c, struct news *w, bool stream)
{
	struct piece p;
	bool begins;

	buf_init(&w->thinking);
	buf_init(&w->content);
	buf_init(&w->calls);
	while (chat_next(c, &p, &begins)) {
		const char *text = c->split.text.p + p.at;
		struct buf *b = &w->calls;

		switch (p.kind) {
		case PIECE_THINKING: buf_put(&w->thinking, text, g->thoughts.hidden ? 0 : p.n); break;
		case PIECE_CONTENT: buf_put(&w->content, text, p.n); break;
		case PIECE_CALL: begin_call(g, c, text, p.n, b, stream); break;
		case PIECE_ARGUMENTS:
			/* The input of a custom tool is sent when it is complete. */
			if (calls_custom(g, c))
				break;
			if (!b->n)
				buf_printf(b, "{\"index\":%d,\"function\":{\"arguments\":\"", c->told.calls - 1);
			json_put_inside(b, text, p.n);
			break;
		case PIECE_CALL_END:
			if (calls_custom(g, c))
				put_custom_input(c, b);
			break;
		}
	}
	if (w->calls.n)
		buf_puts(&w->calls, "\"}}");
}

static void drop_news(struct news *w)
{
	buf_fini(&w->thinking);
	buf_fini(&w->content);
	buf_fini(&w->calls);
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
	struct news w;
	int count = 0;

	take_news(g, c, &w, true);
	if (w.thinking.n || w.content.n || w.calls.n || c->logprobs[0].n) {
		chunk_begin(g, c, out);
		put_text(out, "reasoning_content", &w.thinking, &count);
		put_text(out, "content", &w.content, &count);
		if (w.calls.n)
			buf_printf(out, "%s\"tool_calls\":[%s]", count++ ? "," : "", w.calls.p);
		if (!count)
			buf_puts(out, "\"content\":\"\"");
		buf_putc(out, '}');
		put_logprobs(g, c, out);
		buf_puts(out, ",\"finish_reason\":null}");
		chunk_end(g, g->params.timings, out);
		buf_reset(&c->logprobs[0]);
	}
	drop_news(&w);
}

static void progress(struct generation *g, struct choice *c, const struct event *ev, struct buf *out)
{
	event_begin(out);
	put_reply_head(g, out, "chat.completion.chunk");
	buf_puts(out, "[],\"prompt_progress\":");
	put_progress(g, c, ev, out);
	buf_putc(out, '}');
	event_end(out);
}

static void last(struct generation *g, struct choice *c, struct buf *out)
{
	chunk_begin(g, c, out);
	buf_puts(out, "},\"logprobs\":null");
	put_finish(c, out);
	/* As llama-server: in the last chunk, which is that of usage where that was asked for. */
	chunk_end(g, g->n_done == g->n_choice && !g->params.include_usage, out);
}

static void close_stream(struct generation *g, struct buf *out)
{
	close_openai(g, "chat.completion.chunk", true, out);
}

static void chat_whole(struct generation *g, struct buf *out)
{
	put_reply_head(g, out, "chat.completion");
	for (int i = 0; i < g->n_choice; i++) {
		struct choice *c = &g->choice[i];
		struct news w;
		int count = 1;

		take_news(g, c, &w, false);
		buf_printf(out, "%s{\"index\":%d,\"message\":{\"role\":\"assistant\",\"content\":", i ? "," : "[",
		           c->index);
		if (w.calls.n && !w.content.n)
			buf_puts(out, "null");
		else
			json_put_str(out, w.content.p, w.content.n);
		put_text(out, "reasoning_content", &w.thinking, &count);
		if (w.calls.n)
			buf_printf(out, ",\"tool_calls\":[%s]", w.calls.p);
		buf_puts(out, ",\"refusal\":null}");
		put_logprobs(g, c, out);
		put_finish(c, out);
		drop_news(&w);
	}
	buf_puts(out, "],\"usage\":");
	put_usage(g, out, true);
	put_timings(g, generation_usage(g), out);
	buf_puts(out, "}\n");
}

const struct endpoint chat_endpoint = {
	GENERATION_STEPS,     .id_prefix = "chatcmpl-", .resumes = true,     .read = read_body, .open = chat_open,
	.token = token,       .end = chat_end,          .first = first,      .delta = delta,    .last = last,
	.progress = progress, .close = close_stream,    .whole = chat_whole,
};
