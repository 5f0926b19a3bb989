/* chat_tell.c - a chat's answer: its pieces as they come, and the turn that it is when it is whole. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/chat/chat.h"

void chat_open(struct generation *g, struct choice *c)
{
	split_init(&c->split, g->thoughts.open, g->tools.list, g->tools.dialects);
	c->split.demanded = g->led.then.n > 0;
	if (g->thoughts.speech)
		c->split.speech = g->thoughts.speech;
}

void chat_token(struct generation *g, struct choice *c, const struct event *ev)
{
	if (ev->kind == EV_TOKEN && c->split.state == SPLIT_THINK)
		c->usage.thought++;
	split_put(&c->split, ev->text, ev->n_text);
	/* One call was asked for, and there it is. */
	if (!g->params.parallel && c->split.n_whole && c->split.state != SPLIT_CALL)
		c->enough = true;
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

void chat_logprob(const struct generation *g, const struct event *ev, struct buf *out)
{
	if (out->n)
		buf_putc(out, ',');
	put_alternative(g->served, ev->token, ev->pick.logprob, out);
	buf_puts(out, ",\"top_logprobs\":[");
	for (int i = 0; i < ev->pick.n_top; i++) {
		if (i)
			buf_putc(out, ',');
		put_alternative(g->served, ev->pick.top[i].token, ev->pick.top[i].logprob, out);
		buf_putc(out, '}');
	}
	buf_puts(out, "]}");
}

static void set_pieces(struct json *message, const char *name, const struct split *s, enum piece_kind kind)
{
	struct buf text;

	buf_init(&text);
	for (int i = 0; i < s->n_piece; i++)
		if (s->piece[i].kind == kind)
			buf_put(&text, s->text.p + s->piece[i].at, s->piece[i].n);
	json_set_str(message, name, text.p, text.n);
	buf_fini(&text);
}

/* The calls of an answer, whose arguments the model wrote; NULL when one has not ended, or its arguments are not JSON. */
static struct json *calls_of(const struct split *s)
{
	enum { DEPTH = 200 - 4 }; /* of arguments in a message, whose own depth is limited where it is read */
	struct json *calls = json_new_array(), *function = NULL, *call, *arguments;
	bool good = true;

	for (int i = 0; i < s->n_piece && good; i++) {
		const struct piece *p = &s->piece[i];

		if (p->kind == PIECE_CALL) {
			good = !function;
			json_free(function);
			function = json_new_object();
			json_set_str(function, "name", s->text.p + p->at, p->n);
		} else if (p->kind == PIECE_ARGUMENTS) {
			arguments = function ? json_parse(s->text.p + p->at, p->n, DEPTH, NULL) : NULL;
			if ((good = arguments))
				json_set(function, "arguments", arguments);
		} else if (p->kind == PIECE_CALL_END && (good = json_get(function, "arguments"))) {
			call = json_new_object();
			json_set(call, "function", function);
			json_add(calls, call);
			function = NULL;
		}
	}
	if (good && !function)
		return calls;
	json_free(function);
	json_free(calls);
	return NULL;
}

/* The answer as a message in the normal form; NULL when it is not wholly one. */
static struct json *message_of(const struct choice *c)
{
	struct json *calls = calls_of(&c->split), *message;

	if (!calls)
		return NULL;
	message = json_new_object();
	json_set_cstr(message, "role", "assistant");
	set_pieces(message, "content", &c->split, PIECE_CONTENT);
	set_pieces(message, "reasoning_content", &c->split, PIECE_THINKING);
	json_set(message, "tool_calls", calls);
	return message;
}

void chat_end(struct generation *g, struct choice *c)
{
	struct json *message;

	if (!c->enough)
		split_end(&c->split);
	else if (c->split.held.n)
		return; /* part of the last token belongs to text that was not asked for */
	if (!g->past.header || !c->said.n || !(message = message_of(c)))
		return;
	past_remember(&g->past, message, &c->said);
	json_free(message);
}

bool chat_next(struct choice *c, struct piece *out, bool *begins)
{
	const struct split *s = &c->split;
	struct told_pieces *told = &c->told;

	/* The last piece may have grown. */
	while (told->n < s->n_piece) {
		const struct piece *p = &s->piece[told->n];

		*begins = !told->begun;
		if (*begins || told->bytes < p->n) {
			*out = (struct piece){ p->kind, p->at + told->bytes, p->n - told->bytes };
			told->bytes = p->n;
			told->begun = true;
			return true;
		}
		if (told->n + 1 == s->n_piece)
			return false;
		told->n++;
		told->bytes = 0;
		told->begun = false;
	}
	return false;
}

const char *chat_call_id(struct choice *c, int k)
{
	struct call_ids *ids = &c->ids;

	while (ids->n <= k) {
		ids->v = xrealloc(ids->v, size_mul((size_t)ids->n + 1, sizeof *ids->v));
		random_id(ids->v[ids->n++]);
	}
	return ids->v[k];
}

bool chat_calls(const struct choice *c)
{
	return c->split.n_whole && c->finish == FINISH_STOP;
}
