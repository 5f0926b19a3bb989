/* An answer's text as five APIs tell it, in a stream and whole: every event is
 * JSON, blocks and items begin and end in order, and both say the same.  The first
 * byte chooses the API and what was asked for, the second seeds the cuts, the rest
 * is what the model says. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "server/chat/generate.h"
#include "server/inside.h"
#include "server/routes.h"
#include "served.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CHAT, COMPLETIONS, MESSAGES, RESPONSES, GEMINI };
enum { TOOLS = 4, THINK = 8, LOGPROBS = 16, ONE_CALL = 32, CUT_OFF = 64, GOOGLES = 128 };

/* What a client ends up with. */
struct told {
	struct buf thinking, content, calls; /* calls: name(arguments) each, by the order of their beginnings */
	bool malformed;
	int64_t open, begun; /* the block that is open (-1), and how many there were */
	int64_t sequence;
	struct buf arguments; /* of the open block */
};

static void told_init(struct told *t)
{
	memset(t, 0, sizeof *t);
	t->open = -1;
	buf_init(&t->thinking);
	buf_init(&t->content);
	buf_init(&t->calls);
	buf_init(&t->arguments);
}

static void told_fini(struct told *t)
{
	buf_fini(&t->thinking);
	buf_fini(&t->content);
	buf_fini(&t->calls);
	buf_fini(&t->arguments);
}

#define MUST(what)                                              \
	do {                                                    \
		if (!(what)) {                                  \
			fprintf(stderr, "not so: %s\n", #what); \
			abort();                                \
		}                                               \
	} while (0)

static bool is(const struct json *j, const char *text)
{
	size_t n;
	const char *s = json_str(j, &n);

	return s && n == strlen(text) && !memcmp(s, text, n);
}

static void add(struct buf *b, const struct json *j)
{
	size_t n;
	const char *s = json_str(j, &n);

	if (s)
		buf_put(b, s, n);
}

static int64_t number(const struct json *j, const char *name)
{
	int64_t v;

	MUST(!json_to_int(json_get(j, name), &v));
	return v;
}

/* ---- chat completions and completions ---- */

static void chat_part(struct told *t, const struct json *message, bool stream)
{
	const struct json *calls = json_get(message, "tool_calls");

	add(&t->thinking, json_get(message, "reasoning_content"));
	add(&t->content, json_get(message, "content"));
	for (size_t i = 0; i < json_len(calls); i++) {
		const struct json *call = json_at(calls, i), *f = json_get(call, "function");
		bool begins = json_get(f, "name");

		if (stream) {
			MUST(number(call, "index") == t->begun - !begins);
			MUST(begins || !i);
		}
		if (begins) {
			MUST(json_get(call, "id") && is(json_get(call, "type"), "function"));
			t->begun++;
			buf_putc(&t->calls, '\n');
			add(&t->calls, json_get(f, "name"));
			buf_putc(&t->calls, '(');
		}
		MUST(json_kind(json_get(f, "arguments")) == JSON_STRING);
		add(&t->calls, json_get(f, "arguments"));
	}
}

static void openai_object(struct told *t, const struct json *j, bool stream)
{
	const struct json *choice = json_at(json_get(j, "choices"), 0);

	t->malformed |= json_get(choice, "malformed_tool_call") != NULL;
	add(&t->content, json_get(choice, "text"));
	chat_part(t, json_get(choice, stream ? "delta" : "message"), stream);
}

/* ---- messages ---- */

/* A call's input, if it is an object; else it counts as text, as it does where the reply is whole. */
static void put_input(struct told *t, const struct json *name, const struct json *input, const struct buf *raw)
{
	struct buf *to = json_kind(input) == JSON_OBJECT ? &t->calls : &t->content;

	if (to == &t->calls)
		buf_putc(to, '\n');
	add(to, name);
	buf_putc(to, to == &t->calls ? '(' : ' ');
	if (to == &t->calls)
		json_put(to, input);
	else
		buf_put(to, raw->p, raw->n);
}

static void block_ends(struct told *t, struct buf *name)
{
	struct json *input, *quoted;
	struct buf b;

	t->open = -1;
	if (!name->n)
		return;
	input = json_parse(t->arguments.p, t->arguments.n, 200, NULL);
	buf_init(&b);
	json_put_str(&b, name->p, name->n);
	MUST(quoted = json_parse(b.p, b.n, 0, NULL));
	put_input(t, quoted, input, &t->arguments);
	json_free(quoted);
	json_free(input);
	buf_fini(&b);
	buf_reset(name);
}

static void messages_event(struct told *t, const struct json *j, struct buf *name)
{
	const struct json *type = json_get(j, "type"), *block = json_get(j, "content_block"),
			  *delta = json_get(j, "delta");

	if (is(type, "content_block_start")) {
		MUST(t->open < 0 && number(j, "index") == t->begun++);
		t->open = t->begun - 1;
		buf_reset(name);
		buf_reset(&t->arguments);
		add(name, json_get(block, "name"));
		MUST(is(json_get(block, "type"), "tool_use") == (name->n > 0));
	} else if (is(type, "content_block_delta")) {
		MUST(t->open >= 0 && number(j, "index") == t->open);
		add(&t->thinking, json_get(delta, "thinking"));
		add(&t->content, json_get(delta, "text"));
		add(&t->arguments, json_get(delta, "partial_json"));
	} else if (is(type, "content_block_stop")) {
		MUST(t->open >= 0 && number(j, "index") == t->open);
		block_ends(t, name);
	} else if (is(type, "message_delta")) {
		MUST(t->open < 0);
		t->malformed |= json_get(delta, "malformed_tool_call") != NULL;
	} else {
		MUST(is(type, "message_start") || is(type, "message_stop"));
	}
}

static void messages_whole(struct told *t, const struct json *j)
{
	const struct json *content = json_get(j, "content");

	t->malformed |= json_get(j, "malformed_tool_call") != NULL;
	for (size_t i = 0; i < json_len(content); i++) {
		const struct json *block = json_at(content, i);

		add(&t->thinking, json_get(block, "thinking"));
		add(&t->content, json_get(block, "text"));
		if (json_get(block, "input"))
			put_input(t, json_get(block, "name"), json_get(block, "input"), &t->arguments);
	}
}

/* ---- responses ---- */

static void responses_whole(struct told *t, const struct json *j)
{
	const struct json *output = json_get(j, "output");

	t->malformed |= json_get(j, "malformed_tool_call") != NULL;
	for (size_t i = 0; i < json_len(output); i++) {
		const struct json *item = json_at(output, i),
				  *text = json_get(json_at(json_get(item, "content"), 0), "text");

		MUST(json_get(item, "id"));
		if (is(json_get(item, "type"), "function_call")) {
			buf_putc(&t->calls, '\n');
			add(&t->calls, json_get(item, "name"));
			buf_putc(&t->calls, '(');
			add(&t->calls, json_get(item, "arguments"));
		} else {
			add(is(json_get(item, "type"), "reasoning") ? &t->thinking : &t->content, text);
		}
	}
}

static void same(const struct told *a, const struct told *b)
{
	MUST(a->thinking.n == b->thinking.n && !memcmp(a->thinking.p, b->thinking.p, a->thinking.n));
	MUST(a->content.n == b->content.n && !memcmp(a->content.p, b->content.p, a->content.n));
	MUST(a->calls.n == b->calls.n && !memcmp(a->calls.p, b->calls.p, a->calls.n));
}

static void responses_event(struct told *t, const struct json *j)
{
	const struct json *type = json_get(j, "type"), *item = json_get(j, "item");

	MUST(number(j, "sequence_number") == t->sequence++);
	if (is(type, "response.output_item.added")) {
		MUST(t->open < 0 && number(j, "output_index") == t->begun++);
		t->open = t->begun - 1;
		if (is(json_get(item, "type"), "function_call")) {
			buf_putc(&t->calls, '\n');
			add(&t->calls, json_get(item, "name"));
			buf_putc(&t->calls, '(');
		}
	} else if (is(type, "response.output_item.done")) {
		MUST(t->open >= 0 && number(j, "output_index") == t->open);
		t->open = -1;
	} else if (is(type, "response.reasoning_text.delta")) {
		add(&t->thinking, json_get(j, "delta"));
	} else if (is(type, "response.output_text.delta")) {
		add(&t->content, json_get(j, "delta"));
	} else if (is(type, "response.function_call_arguments.delta")) {
		add(&t->calls, json_get(j, "delta"));
	} else if (is(type, "response.completed") || is(type, "response.incomplete")) {
		struct told last;

		MUST(t->open < 0);
		told_init(&last);
		responses_whole(&last, json_get(j, "response"));
		same(t, &last);
		t->malformed = last.malformed;
		told_fini(&last);
		return;
	}
	MUST(t->open < 0 || number(j, "output_index") == t->open);
}

/* ---- generateContent ---- */

static void gemini_object(struct told *t, const struct json *j)
{
	const struct json *candidate = json_at(json_get(j, "candidates"), 0),
			  *parts = json_get(json_get(candidate, "content"), "parts");

	MUST(json_len(parts) && t->open < 0 && is(json_get(json_get(candidate, "content"), "role"), "model"));
	for (size_t i = 0; i < json_len(parts); i++) {
		const struct json *part = json_at(parts, i), *call = json_get(part, "functionCall");

		add(json_get(part, "thought") ? &t->thinking : &t->content, json_get(part, "text"));
		MUST(call || json_kind(json_get(part, "text")) == JSON_STRING);
		if (!call)
			continue;
		MUST(json_get(call, "id") && json_kind(json_get(call, "args")) == JSON_OBJECT);
		put_input(t, json_get(call, "name"), json_get(call, "args"), NULL);
	}
	if (json_get(candidate, "finishReason"))
		t->open = 0; /* nothing comes after it */
}

/* ---- the way of an answer ---- */

/* Reads the events, each "event: NAME\n"? "data: JSON\n\n". */
static void read_stream(struct told *t, int api, const struct buf *out)
{
	const char *p = out->p, *end = out->p + out->n;
	struct buf name;

	buf_init(&name);
	while (p < end) {
		const char *stop = strstr(p, "\n\n"), *data = p;
		struct json *j;

		MUST(stop);
		if (!strncmp(p, "event: ", 7))
			data = strchr(p, '\n') + 1;
		MUST((data == p) == (api == CHAT || api == COMPLETIONS || api == GEMINI) &&
		     !strncmp(data, "data: ", 6));
		data += 6;
		p = stop + 2;
		if (!strncmp(data, "[DONE]", 6))
			continue;
		MUST(j = json_parse(data, (size_t)(stop - data), 0, NULL));
		if (api == MESSAGES)
			messages_event(t, j, &name);
		else if (api == RESPONSES)
			responses_event(t, j);
		else if (api == GEMINI)
			gemini_object(t, j);
		else
			openai_object(t, j, true);
		json_free(j);
	}
	buf_fini(&name);
}

static void read_whole(struct told *t, int api, const struct buf *out)
{
	struct json *j = json_parse(out->p, out->n, 0, NULL);

	MUST(j);
	if (api == MESSAGES)
		messages_whole(t, j);
	else if (api == RESPONSES)
		responses_whole(t, j);
	else if (api == GEMINI)
		gemini_object(t, j);
	else
		openai_object(t, j, false);
	json_free(j);
}

static void put_body(struct buf *b, int api, unsigned asked, bool stream)
{
	static const char schema[] =
		"{\"type\":\"object\",\"properties\":{\"i\":{\"type\":\"integer\"},\"s\":{\"type\":\"string\"}}}";

	if (api == GEMINI) {
		buf_printf(b,
		           "{\"contents\":[{\"parts\":[{\"text\":\"x\"}]}],\"stream\":%s,\"generationConfig\":"
		           "{\"thinkingConfig\":{\"includeThoughts\":true%s}}",
		           stream ? "true" : "false", asked & THINK ? ",\"thinkingLevel\":\"HIGH\"" : "");
		if (asked & TOOLS)
			buf_printf(b, ",\"tools\":[{\"functionDeclarations\":[{\"name\":\"f\",\"parameters\":%s}]}]",
			           schema);
		buf_putc(b, '}');
		return;
	}
	buf_puts(b, api == COMPLETIONS ? "{\"prompt\":\"x\"" :
	            api == RESPONSES   ? "{\"input\":\"x\"" :
	                                 "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]");
	if (api == MESSAGES)
		buf_puts(b, ",\"max_tokens\":9");
	if (stream)
		buf_puts(b, ",\"stream\":true");
	if (asked & LOGPROBS && api != MESSAGES)
		buf_puts(b, api == CHAT        ? ",\"logprobs\":true,\"top_logprobs\":1" :
		            api == COMPLETIONS ? ",\"logprobs\":1" :
		                                 ",\"include\":[\"message.output_text.logprobs\"],\"top_logprobs\":1");
	if (asked & TOOLS && api != COMPLETIONS) {
		buf_printf(b, ",\"tools\":[{%s\"name\":\"f\",\"%s\":%s}",
		           api == MESSAGES ? "" :
		           api == CHAT     ? "\"type\":\"function\",\"function\":{" :
		                             "\"type\":\"function\",",
		           api == MESSAGES ? "input_schema" : "parameters", schema);
		buf_puts(b, api == CHAT ? "}]" : "]");
		if (asked & ONE_CALL)
			buf_puts(b, api == MESSAGES ?
			                    ",\"tool_choice\":{\"type\":\"auto\",\"disable_parallel_tool_use\":true}" :
			                    ",\"parallel_tool_calls\":false");
	}
	if (asked & THINK && api != COMPLETIONS)
		buf_puts(b, ",\"chat_template_kwargs\":{\"enable_thinking\":true}");
	buf_putc(b, '}');
}

/* As generate.c does it, without an engine. */
static void answer(struct generation *g, unsigned asked, bool stream, uint32_t cut, const char *text, size_t n,
                   struct buf *out)
{
	struct choice *c;

	g->n_choice = 1;
	c = g->choice = xcalloc(1, sizeof *c);
	choice_open(g, c);
	if (stream && g->endpoint->first)
		g->endpoint->first(g, c, out);
	while (n && !c->enough) {
		struct event ev = { .kind = EV_TOKEN, .token = (int32_t)(unsigned char)*text, .text = text };

		cut = cut * 1664525 + 1013904223;
		ev.n_text = 1 + (cut >> 20) % 13;
		ev.n_text = ev.n_text < n ? ev.n_text : n;
		ev.pick.top[0].token = ev.token;
		ev.pick.n_top = asked & LOGPROBS ? 1 : 0;
		c->usage.output++;
		g->endpoint->token(g, c, &ev);
		text += ev.n_text;
		n -= ev.n_text;
		/* Where the connection has room, that is: not behind every token. */
		if (stream && cut >> 30)
			g->endpoint->delta(g, c, out);
	}
	c->done = true;
	c->finish = asked & CUT_OFF && !c->enough ? FINISH_LENGTH : FINISH_STOP;
	g->n_done++;
	g->endpoint->end(g, c);
	if (!stream) {
		g->endpoint->whole(g, out);
		return;
	}
	g->endpoint->delta(g, c, out);
	g->endpoint->last(g, c, out);
	g->endpoint->close(g, out);
}

static void run(int api, unsigned asked, bool stream, uint32_t cut, const char *text, size_t n, struct told *t)
{
	static const struct endpoint *const families[] = { &chat_endpoint, &completions_endpoint, &messages_endpoint,
		                                           &responses_endpoint, &gemini_endpoint };
	static struct server srv;
	struct exchange x = { .srv = &srv, .id = "0123456789" };
	struct generation *g = generation_new(fuzz_served(), families[api]);
	struct problem p = { 0 };
	struct json *asked_for;
	struct buf body, out;

	if (!srv.responses.bytes_max) {
		response_store_init(&srv.responses, 1 << 20);
		known_init(&srv);
		known_add(&srv, g->served);
	}
	x.model = srv.known.v[0];
	g->x = &x; /* by whom grammars are kept: they take most of the time */
	buf_init(&body);
	buf_init(&out);
	put_body(&body, api, asked, stream);
	if (!(asked_for = body_parse(body.p, body.n, &p)) || g->endpoint->read(g, asked_for, &p)) {
		fprintf(stderr, "%s: %s\n", body.p, p.message);
		abort();
	}
	answer(g, asked, stream, cut, text, n, &out);
	told_init(t);
	(stream ? read_stream : read_whole)(t, api, &out);
	g->x = NULL;
	generation_free(g);
	buf_fini(&body);
	buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct told stream, whole;
	char *text;
	int api;

	if (size < 2)
		return 0;
	api = data[0] & GOOGLES ? GEMINI : data[0] & 3;
	/* Events hold whole characters; those of one byte do. */
	text = xmalloc(size);
	for (size_t i = 2; i < size; i++)
		text[i - 2] = (char)(data[i] & 0x7f);
	run(api, data[0], true, data[1], text, size - 2, &stream);
	run(api, data[0], false, data[1], text, size - 2, &whole);
	same(&stream, &whole);
	MUST(stream.malformed == whole.malformed);
	told_fini(&stream);
	told_fini(&whole);
	free(text);
	return 0;
}
