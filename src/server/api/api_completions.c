/* api_completions.c - POST /v1/completions, in the OpenAI API's shapes.
 *
 * prompt is a string, an array of strings, an array of token ids, or an array of
 * those; several prompts give several choices, n of each, in order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "base/utf8.h"
#include "server/api/complete.h"
#include "server/inside.h"
#include "server/routes.h"
#include "server/chat/structured.h"

#define CHAT "use /v1/chat/completions"
static const struct field completion_fields[] = {
	{ "prompt" },
	{ "add_special_tokens" },
	{ "echo" },
	{ "suffix" },
	{ "prompt_logprobs" },
	{ "timings_per_token" },
	{ "prompt_embeds", "" },
	SYNONYM("max_completion_tokens", "max_tokens"),
	{ "top_logprobs", "", "logprobs is the number of alternatives" },
	{ "messages", "", CHAT },
	{ "tools", "[]", CHAT },
	{ "tool_choice", "\"auto\"|\"none\"", CHAT },
	{ "parallel_tool_calls", "true|false", CHAT },
	{ "functions", "[]", CHAT },
	{ "function_call", "\"auto\"|\"none\"", CHAT },
	{ "reasoning_effort", "\"none\"", CHAT },
	{ "thinking", "", CHAT },
	{ "enable_thinking", "false", CHAT },
	{ "thinking_budget", "", CHAT },
	{ "thinking_token_budget", "", CHAT },
	{ "chat_template_kwargs", "{}", CHAT },
	{ "return_progress", "false", CHAT },
	{ "input", "", "use prompt" },
	SYNONYM("max_output_tokens", "max_tokens"),
	{ NULL },
};
#undef CHAT

/* State of telling the client about its prompt. */
struct telling_prompt {
	bool echo; /* its text comes before the answer's */
	int top;   /* prompt_logprobs: alternatives of each of its tokens; -1: none are sent */
};

static void *own_new(void)
{
	struct telling_prompt *own = xcalloc(1, sizeof *own);

	own->top = -1;
	return own;
}

/* ---- reading ---- */

static int read_ids(struct generation *g, int i, const struct json *ids, const char *name, struct problem *p)
{
	char where[80], expected[60];

	for (size_t k = 0; k < json_len(ids) && allowance_spend(1); k++) {
		int64_t id;

		if (json_to_int(json_at(ids, k), &id) || id < 0 || id >= g->served->vocab) {
			snprintf(where, sizeof where, "%.40s[%zu]", name, k);
			snprintf(expected, sizeof expected, "a token id from 0 to %d", g->served->vocab - 1);
			return field_wrong(p, where, expected, json_at(ids, k));
		}
		tokens_put(&g->prompts.of[i], (int32_t)id);
	}
	return 0;
}

static int read_one(struct generation *g, int i, const struct json *v, const char *name, unsigned flags,
                    struct problem *p)
{
	size_t n;
	const char *s = json_str(v, &n);

	if (s)
		return generation_tokenize(g, i, s, n, flags, NULL, 0, p);
	if (json_kind(v) == JSON_ARRAY)
		return read_ids(g, i, v, name, p);
	return field_wrong(p, name, "a string or an array of token ids", v);
}

int prompts_read(struct generation *g, const struct json *v, const char *field, unsigned flags, struct problem *p)
{
	bool several;
	char name[40];
	int r = 0;

	if (!v)
		return problem_set(p, 400, "missing_field", field, "%s is missing: a string or an array of token ids",
		                   field);
	several = json_kind(v) == JSON_ARRAY && json_kind(json_at(v, 0)) != JSON_INT && json_len(v);
	if (several && json_len(v) * (size_t)g->params.n > CHOICES_MAX)
		return problem_set(p, 400, "invalid_value", field,
		                   "%zu prompts with n %d make %zu answers; at most %d are given at once", json_len(v),
		                   g->params.n, json_len(v) * (size_t)g->params.n, CHOICES_MAX);
	generation_prompts(g, several ? (int)json_len(v) : 1);
	for (int i = 0; i < g->prompts.n && !r; i++) {
		snprintf(name, sizeof name, several ? "%s[%d]" : "%s", field, i);
		r = read_one(g, i, several ? json_at(v, (size_t)i) : v, name, flags, p);
	}
	return r;
}

int completion_prompts(struct generation *g, const struct json *body, struct problem *p)
{
	bool around = true;
	int r = field_bool(body, "add_special_tokens", &around, p);

	return r ? r :
	           prompts_read(g, json_get(body, "prompt"), "prompt",
	                        TOKENIZE_SPECIAL | (around ? TOKENIZE_AROUND : 0), p);
}

/* The logarithms of the prompt's own tokens: it is said again, token by token, which nothing else may take part in. */
static int read_echo(struct generation *g, const struct json *body, struct problem *p)
{
	struct telling_prompt *own = g->own;
	const struct sampler_params *s = &g->params.sampling;
	int64_t top = -1;
	int r;

	if ((r = field_bool(body, "echo", &own->echo, p)) ||
	    (r = field_int(body, "prompt_logprobs", 0, TOP_LOGPROBS_MAX, &top, p)))
		return r;
	own->top = (int)top;
	g->prompts.told = top >= 0 || (own->echo && g->params.logprobs);
	if (g->prompts.told &&
	    (g->held.content || s->presence_penalty != 0 || s->frequency_penalty != 0 || s->min_tokens))
		return problem_set(
			p, 400, "invalid_value", top >= 0 ? "prompt_logprobs" : "echo",
			"%s: log-probabilities of a prompt are told of answers without a form, penalties and min_tokens",
			top >= 0 ? "prompt_logprobs" : "echo");
	/* Harnesses that score a prompt ask for one token and cut it off: an end of the answer is that token, too. */
	if (g->prompts.told && g->params.max_tokens == 1)
		g->params.ignore_eos = true;
	if (top >= 0 && top > g->params.sampling.n_logprobs)
		g->params.sampling.n_logprobs = (int)top;
	return 0;
}

static int read_suffix(struct generation *g, const struct json *body, struct problem *p)
{
	const struct json *suffix, *prompt = json_get(body, "prompt");
	const char *before, *after;
	size_t n = 0, n_after = 0;
	int r;

	if ((r = field_value(body, "suffix", JSON_STRING, &suffix, p)))
		return r;
	after = json_str(suffix, &n_after);
	if (!after || !n_after)
		return completion_prompts(g, body, p);
	if (!(before = json_str(prompt, &n)))
		return field_wrong(p, "prompt", "a string, for there is a suffix", prompt);
	return fim_prompt(g, before, n, after, n_after, "suffix", p);
}

static int read_body(struct generation *g, struct json *body, struct problem *p)
{
	static const struct field *const tables[] = { completion_fields, form_fields, params_fields, NULL };
	struct params *a = &g->params;
	int64_t top = -1;
	int r;

	if (!(g->body = body = body_check(body, tables, &a->warnings, p)))
		return p->status;
	if ((r = model_read(g, body, p)))
		return r;
	if ((r = params_read(a, body, g->served, p)) || (r = field_bool(body, "timings_per_token", &a->timings, p)) ||
	    (r = field_int(body, "logprobs", 0, TOP_LOGPROBS_MAX, &top, p)))
		return r;
	if (top >= 0) {
		a->logprobs = true;
		params_logprobs(a, (int)top);
	}
	if ((r = structured_fields(g, body, p)) || (r = read_echo(g, body, p)))
		return r;
	return read_suffix(g, body, p);
}

/* ---- writing ---- */

enum { TOKENS, TOKEN_LOGPROBS, TOP_LOGPROBS, TEXT_OFFSET }; /* of choice.logprobs */

static void comma(struct buf *b)
{
	if (b->n)
		buf_putc(b, ',');
}

/* Do a and b stand for the same bytes? */
static bool spelled_alike(const struct tokenizer *t, int32_t a, int32_t b)
{
	size_t n_a = 0, n_b = 0;
	const char *p_a = tokenizer_token_bytes(t, a, &n_a), *p_b = tokenizer_token_bytes(t, b, &n_b);

	return n_a == n_b && (!n_a || !memcmp(p_a, p_b, n_a));
}

/* The token's text; of one that is not text by itself, since it ends or begins inside of a character, its bytes in the
 * API's form: bytes:\xf0\x9f. */
static void put_spelling(const struct tokenizer *t, int32_t id, struct buf *out)
{
	size_t n = 0;
	const char *p = tokenizer_token_bytes(t, id, &n);
	struct buf b;

	if (!p || utf8_valid(p, n) == n) {
		json_put_str(out, p ? p : "", p ? n : 0);
		return;
	}
	buf_init(&b);
	buf_puts(&b, "bytes:");
	for (size_t i = 0; i < n; i++)
		buf_printf(&b, p[i] >= 0x20 && p[i] < 0x7f ? "%c" : "\\x%02x", (unsigned char)p[i]);
	json_put_str(out, b.p, b.n);
	buf_fini(&b);
}

/* The name of a token among the first n alternatives of ev: its spelling, unless a likelier one has that too; then
 * token_id:N.  So no key occurs twice in an object, and a token is found under its own name. */
static void put_name(const struct generation *g, const struct event *ev, int n, int32_t id, struct buf *out)
{
	const struct tokenizer *t = g->served->tokenizer;

	for (int i = 0; i < n && ev->pick.top[i].token != id; i++)
		if (spelled_alike(t, ev->pick.top[i].token, id)) {
			buf_printf(out, "\"token_id:%d\"", id);
			return;
		}
	put_spelling(t, id, out);
}

/* A token and its logarithms; ev NULL: of the prompt's first, which follows nothing and so has none. */
static void put_logprobs(const struct generation *g, struct choice *c, int32_t token, const struct event *ev)
{
	int most = g->params.top_logprobs, n = ev ? ev->pick.n_top < most ? ev->pick.n_top : most : 0;
	struct buf *tops = &c->logprobs[TOP_LOGPROBS];

	for (int i = 0; i < 4; i++)
		comma(&c->logprobs[i]);
	put_name(g, ev, n, token, &c->logprobs[TOKENS]);
	buf_printf(&c->logprobs[TEXT_OFFSET], "%zu", c->text_at);
	if (!ev) {
		buf_puts(&c->logprobs[TOKEN_LOGPROBS], "null");
		buf_puts(tops, "null");
		return;
	}
	put_logprob(&c->logprobs[TOKEN_LOGPROBS], ev->pick.logprob);
	buf_putc(tops, '{');
	for (int i = 0; i < n; i++) {
		buf_puts(tops, i ? "," : "");
		put_name(g, ev, n, ev->pick.top[i].token, tops);
		buf_putc(tops, ':');
		put_logprob(tops, ev->pick.top[i].logprob);
	}
	buf_putc(tops, '}');
}

/* An element of vLLM's prompt_logprobs: the token and its alternatives, by id. */
static void put_prompt_logprob(const struct generation *g, struct choice *c, const struct event *ev)
{
	const struct telling_prompt *own = g->own;
	struct buf *b = &c->called;
	bool seen = false;

	comma(b);
	buf_putc(b, '{');
	for (int i = 0; i < ev->pick.n_top && i < own->top; i++) {
		seen |= ev->pick.top[i].token == ev->token;
		buf_printf(b, "%s\"%d\":{\"rank\":%d,\"logprob\":", i ? "," : "", ev->pick.top[i].token, i + 1);
		put_logprob(b, ev->pick.top[i].logprob);
		buf_puts(b, ",\"decoded_token\":");
		put_token(g->served, ev->pick.top[i].token, b);
		buf_putc(b, '}');
	}
	if (!seen) {
		buf_printf(b, "%s\"%d\":{\"rank\":null,\"logprob\":", b->p[b->n - 1] == '{' ? "" : ",", ev->token);
		put_logprob(b, ev->pick.logprob);
		buf_puts(b, ",\"decoded_token\":");
		put_token(g->served, ev->token, b);
		buf_putc(b, '}');
	}
	buf_putc(b, '}');
}

static void add_text(struct choice *c, const char *p, size_t n)
{
	buf_put(&c->text, p, n);
	/* Offsets count characters, as clients' strings do. */
	for (size_t i = 0; i < n; i++)
		c->text_at += ((unsigned char)p[i] & 0xc0) != 0x80;
}

/* The prompt's text where its tokens are not said; its first token where they are. */
static void open_text(struct generation *g, struct choice *c)
{
	const struct telling_prompt *own = g->own;
	const struct tokens *prompt = &g->prompts.of[c->prompt];
	struct buf text;

	c->n_told = g->prompts.told ? (int)prompt->n - 1 : 0;
	if (own->top >= 0)
		buf_puts(&c->called, "null");
	if (!own->echo)
		return;
	if (g->prompts.told && g->params.logprobs)
		put_logprobs(g, c, prompt->id[0], NULL);
	buf_init(&text);
	tokenizer_decode(g->served->tokenizer, prompt->id, g->prompts.told ? 1 : prompt->n, g->params.skip_special,
	                 &text);
	add_text(c, text.p, text.n);
	buf_fini(&text);
}

static void token(struct generation *g, struct choice *c, const struct event *ev)
{
	const struct telling_prompt *own = g->own;
	bool prompt = ev->kind == EV_TOKEN && c->n_told > 0;

	if (prompt) {
		c->n_told--;
		if (own->top >= 0)
			put_prompt_logprob(g, c, ev);
		if (!own->echo)
			return;
	}
	if (g->params.logprobs && ev->kind == EV_TOKEN)
		put_logprobs(g, c, ev->token, ev);
	add_text(c, ev->text, ev->n_text);
}

static void end(struct generation *g, struct choice *c)
{
	(void)g;
	(void)c;
}

static void put_choice(const struct generation *g, struct choice *c, const char *finish, struct buf *out)
{
	static const char *const name[] = { "tokens", "token_logprobs", "top_logprobs", "text_offset" };
	const struct telling_prompt *own = g->own;

	buf_printf(out, "{\"index\":%d,\"text\":", c->index);
	json_put_str(out, c->text.p, c->text.n);
	buf_reset(&c->text);
	if (g->params.logprobs && c->logprobs[TOKENS].n) {
		buf_puts(out, ",\"logprobs\":{");
		for (int i = 0; i < 4; i++) {
			buf_printf(out, "%s\"%s\":[", i ? "," : "", name[i]);
			buf_put(out, c->logprobs[i].p, c->logprobs[i].n);
			buf_putc(out, ']');
			buf_reset(&c->logprobs[i]);
		}
		buf_putc(out, '}');
	} else {
		buf_puts(out, ",\"logprobs\":null");
	}
	if (own->top >= 0 && finish)
		buf_printf(out, ",\"prompt_logprobs\":[%s]", c->called.p);
	if (finish)
		buf_printf(out, ",\"finish_reason\":\"%s\"}", finish);
	else
		buf_puts(out, ",\"finish_reason\":null}");
}

static void chunk(const struct generation *g, struct choice *c, const char *finish, struct buf *out)
{
	event_begin(out);
	put_reply_head(g, out, "text_completion");
	buf_putc(out, '[');
	put_choice(g, c, finish, out);
	buf_puts(out, g->params.include_usage ? "],\"usage\":null" : "]");
	/* As llama-server: in the last chunk, which is that of usage where that was asked for. */
	if (finish ? g->n_done == g->n_choice && !g->params.include_usage : g->params.timings)
		put_timings(g, generation_usage(g), out);
	buf_putc(out, '}');
	event_end(out);
}

static void delta(struct generation *g, struct choice *c, struct buf *out)
{
	if (c->text.n || c->logprobs[TOKENS].n)
		chunk(g, c, NULL, out);
}

static void last(struct generation *g, struct choice *c, struct buf *out)
{
	chunk(g, c, finish_name(c->finish), out);
}

static void close_stream(struct generation *g, struct buf *out)
{
	close_openai(g, "text_completion", false, out);
}

static void completions_whole(struct generation *g, struct buf *out)
{
	put_reply_head(g, out, "text_completion");
	buf_putc(out, '[');
	for (int i = 0; i < g->n_choice; i++) {
		if (i)
			buf_putc(out, ',');
		put_choice(g, &g->choice[i], finish_name(g->choice[i].finish), out);
	}
	buf_puts(out, "],\"usage\":");
	put_usage(g, out, false);
	put_timings(g, generation_usage(g), out);
	buf_puts(out, "}\n");
}

const struct endpoint completions_endpoint = {
	GENERATION_STEPS,
	.id_prefix = "cmpl-",
	.resumes = true,
	.read = read_body,
	.own_new = own_new,
	.own_free = free,
	.open = open_text,
	.token = token,
	.end = end,
	.delta = delta,
	.last = last,
	.close = close_stream,
	.whole = completions_whole,
};
