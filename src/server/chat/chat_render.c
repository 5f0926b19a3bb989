/* chat_render.c - a conversation as the template's text: its variables, the turns that are ours, and where an answer
 * goes on from the last message. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/chat/chat_steps.h"
#include "server/inside.h"
#include "server/chat/roles.h"
#include "text/calls/dialect.h"

/* ---- thinking ---- */

/* Tokens of thought that an effort stands for where the template does not know it;
 * each about four times the one before.  -1: no bound. */
static int64_t budget_of(const char *effort)
{
	return !strcmp(effort, "minimal") ? 256 : !strcmp(effort, "low") ? 1024 : !strcmp(effort, "medium") ? 4096 : -1;
}

static int use_effort(struct generation *g, struct chat *c, struct problem *p)
{
	static const char *const efforts[] = { "none", "minimal", "low", "medium", "high", "xhigh", "max" };
	const struct template *t = generation_template(g);
	size_t i = 0;

	if (!c->effort)
		return 0;
	while (i < 7 && strcmp(c->effort, efforts[i]))
		i++;
	if (template_uses(t, "reasoning_effort")) {
		/* Templates with messages for thoughts know three efforts; "none" is the lowest of them, with the thought cut
		 * short. */
		if (speech_of(t)->turn && i < 7) {
			c->budget = !i && c->budget < 0 ? 0 : c->budget;
			c->effort = i < 3 ? "low" : i > 3 ? "high" : "medium";
		} else if (template_uses(t, "enable_thinking")) {
			/* How much is said apart from whether, and "none" is not among their efforts. */
			c->think = c->think < 0 ? i > 0 : c->think;
			c->budget = !i && c->budget < 0 && !c->think ? 0 : c->budget;
			c->effort = i ? c->effort : NULL;
		}
		return 0;
	}
	if (i == 7)
		return problem_set(p, 400, "invalid_value", c->effort_field,
		                   "%s must be none, minimal, low, medium, high, xhigh or max; found \"%.40s\"",
		                   c->effort_field, c->effort);
	/* More thought of a model that has none asks for nothing that it could do. */
	if (!template_uses(t, "enable_thinking") && !speech_thinks(t)) {
		if (i)
			warnings_add(&g->params.warnings.ignored, NULL, c->effort_field);
		return 0;
	}
	if (c->think < 0)
		c->think = i > 0;
	if (c->budget < 0)
		c->budget = i ? budget_of(c->effort) : 0;
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

/* The template's variables: the server's, over them what the request's fields mean,
 * over them its own.  The last value of a repeated name counts. */
static struct json *variables(const struct generation *g, const struct chat *c)
{
	struct json *out;
	struct buf b;

	buf_init(&b);
	buf_putc(&b, '{');
	put_members(&b, g->served->template_args);
	if (c->effort && template_uses(generation_template(g), "reasoning_effort")) {
		buf_printf(&b, "%s\"reasoning_effort\":", b.n > 1 ? "," : "");
		json_put_cstr(&b, c->effort);
	}
	if (c->think >= 0 && template_uses(generation_template(g), "enable_thinking"))
		buf_printf(&b, "%s\"enable_thinking\":%s", b.n > 1 ? "," : "", c->think ? "true" : "false");
	put_members(&b, c->kwargs);
	buf_putc(&b, '}');
	out = json_parse(b.p, b.n, 0, NULL);
	buf_fini(&b);
	return out;
}

/* Variables that the template does not read change nothing: so the reply says. */
static void tell_unused(struct generation *g, const struct json *kwargs)
{
	struct json_cursor c;
	const struct json *v;
	const char *key;

	if (!kwargs)
		return;
	for (c = json_first(kwargs); json_next(&c, &key, &v);)
		if (!template_uses(generation_template(g), key))
			warnings_add(&g->params.warnings.unknown, "chat_template_kwargs", key);
}

/* Harmony's templates can show tools that the provider of an API runs, a browser and a Python, and their models call
 * them in messages of their own kind.  Nothing here runs them and no API has a place for such a call: a prompt that
 * shows them is refused.  Other templates write calls of such tools as they do those of functions. */
static int refuse_builtin(const struct generation *g, const struct chat *c, const struct json *variables,
                          struct problem *p)
{
	static const char name[] = "builtin_tools";
	const struct json *tools = json_get(variables, name);
	bool theirs = json_get(c->kwargs, name);
	struct buf b;
	int r;

	if (!speech_of(generation_template(g))->turn || !template_uses(generation_template(g), name) ||
	    !json_len(tools))
		return 0;
	buf_init(&b);
	json_put(&b, tools);
	r = problem_set(
		p, 400, "unsupported_value", theirs ? "chat_template_kwargs" : NULL,
		"%s: builtin_tools %.80s: this server does not run the model's own tools; give functions in tools",
		theirs ? "chat_template_kwargs" : "--chat-template-args", b.p);
	buf_fini(&b);
	return r;
}

/* ---- the prompt ---- */

/* Prepares a conversation for rendering: drops lines without meaning, and puts our own
 * earlier turns back as they were.  Takes over messages, returns others. */
static struct json *recall(struct generation *g, struct json *messages, const struct json *tools,
                           const struct json *variables)
{
	const struct server *s = g->x ? g->x->srv : NULL;
	struct past_context context = { .salt = g->params.cache_salt, .tools = tools, .variables = variables };
	struct buf b;

	if (!s)
		return messages;
	buf_init(&b);
	if (s->opts.drop_volatile && past_drop_volatile(messages, &b))
		messages = messages_instead(messages, &b);
	context.key = g->x->key;
	context.model = g->x->model->serial;
	if (s->opts.turn_replay && g->params.turn_replay) {
		past_fini(&g->past);
		past_read(&g->past, s->turns, s->opts.turn_replay, &context, messages);
		if (g->past.n_turn) {
			past_restore(&g->past, messages, &b);
			messages = messages_instead(messages, &b);
		}
	}
	buf_fini(&b);
	return messages;
}

/* The turns' own text into the rendered prompt. */
static void splice(struct generation *g, const struct template_input *in, struct prompt *out)
{
	struct template_input blank = *in;
	struct template_output o;
	struct json *messages;
	struct buf b;

	if (!g->past.n_turn)
		return;
	buf_init(&b);
	past_blank(&g->past, in->messages, &b);
	messages = json_parse(b.p, b.n, 200, NULL);
	buf_fini(&b);
	blank.messages = messages;
	template_output_init(&o);
	if (messages && !template_render(generation_template(g), &blank, &o, NULL))
		past_splice(&g->past, out, &o, g->served->tokenizer);
	template_output_fini(&o);
	json_free(messages);
}
/* ---- an answer that is the rest of the last message ---- */

/* A mark at the end of the message while it is rendered: private-use characters, which
 * have no other meaning, and no blanks, which templates cut off. */
static const char here[] = "\xEE\x80\x80"
			   "goes on here"
			   "\xEE\x80\x81";

static const struct json *last_of(const struct json *messages)
{
	return json_at(messages, json_len(messages) - 1);
}

/* messages with the mark in them; frees what it does not return.  NULL: *p says why not. */
static struct json *mark_end(struct generation *g, struct json *messages, struct problem *p)
{
	const struct json *last = last_of(messages), *v;
	struct json_cursor k;
	const char *key, *role, *text;
	struct buf b;
	size_t n;

	role = json_str(json_get(last, "role"), &n);
	text = json_str(json_get(last, "content"), &n);
	if (!role || strcmp(role, "assistant") || !text || !n || json_len(json_get(last, "tool_calls"))) {
		problem_set(
			p, 400, "invalid_value", "messages",
			"messages: to go on from, the last message must be the assistant's, with text and without calls");
		json_free(messages);
		return NULL;
	}
	g->prefill = xstrndup(text, n);
	buf_init(&b);
	buf_putc(&b, '[');
	for (size_t i = 0; i + 1 < json_len(messages); i++) {
		json_put(&b, json_at(messages, i));
		buf_putc(&b, ',');
	}
	buf_putc(&b, '{');
	for (k = json_first(last); json_next(&k, &key, &v);) {
		json_put_cstr(&b, key);
		buf_putc(&b, ':');
		if (!strcmp(key, "content")) {
			struct buf marked;

			buf_init(&marked);
			buf_put(&marked, text, n);
			buf_puts(&marked, here);
			json_put_str(&b, marked.p, marked.n);
			buf_fini(&marked);
		} else {
			json_put(&b, v);
		}
		buf_putc(&b, ',');
	}
	b.n--; /* there was content, and so a comma */
	buf_puts(&b, "}]");
	messages = messages_instead(messages, &b);
	buf_fini(&b);
	return messages;
}

static int cut_end(struct prompt *out, struct problem *p)
{
	const char *text = out->out.text.p, *at = NULL, *next = text;

	while (next && (next = strstr(next, here)))
		at = next++;
	if (!at)
		return problem_set(
			p, 400, "template_error", "messages",
			"the chat template of this model does not show the last message as it is: nothing can go on from it");
	prompt_cut(out, (size_t)(at - text));
	return 0;
}

/* Does the text that an answer goes on from end inside of a thought? */
bool chat_in_thought(const struct speech *how, const char *text)
{
	const char *open = NULL, *close = NULL;

	for (const char *at = text; (at = strstr(at, how->think_open)); at++)
		open = at;
	for (const char *at = text; (at = strstr(at, how->think_close)); at++)
		close = at;
	return open && (!close || close < open);
}

int chat_render(struct generation *g, struct chat *c, struct prompt *out, struct problem *p)
{
	struct template_input in = {
		.add_generation_prompt = c->add_generation_prompt,
		.bos_token = g->served->bos_token,
		.eos_token = g->served->eos_token,
		.now = g->created,
	};
	struct json *messages, *extra, *parts;
	const struct json *tools;
	struct err err;
	int r;

	if (!g->served->tmpl)
		return problem_set(
			p, 400, "no_chat_template", NULL,
			"this model has no chat template: use /v1/completions, or start the server with --chat-template");
	if ((r = chat_use_tools(g, c, &tools, p)) || (r = use_effort(g, c, p)))
		return r;
	/* Deeper by what a message wraps around its arguments. */
	messages = json_parse(c->messages.p, c->messages.n, 200, &err);
	if (!messages)
		return problem_set(p, 400, "invalid_value", "messages", "messages: %s", err.msg);
	extra = variables(g, c);
	tell_unused(g, c->kwargs);
	if ((r = refuse_builtin(g, c, extra, p))) {
		json_free(messages);
		json_free(extra);
		return r;
	}
	if (g->x)
		messages = roles_fit(&g->x->model->roles[g->tools != NULL], messages);
	/* Neither a message that the answer continues nor the continuation is a turn of ours. */
	if (c->go_on) {
		g->params.turn_replay = c->add_generation_prompt = in.add_generation_prompt = false;
		if (!(messages = mark_end(g, messages, p))) {
			json_free(extra);
			return p->status;
		}
	}
	messages = recall(g, messages, tools, extra);
	if ((parts = images_parts(&g->images, messages, p))) {
		json_free(messages);
		messages = parts;
	} else if (p->status) {
		json_free(messages);
		json_free(extra);
		return p->status;
	}
	c->n_message = (int)json_len(messages);
	in.messages = messages;
	in.tools = tools;
	in.extra = extra;
	r = prompt_render(out, generation_template(g), &in, p);
	if (!r)
		splice(g, &in, out);
	if (!r && c->go_on)
		r = cut_end(out, p);
	json_free(messages);
	json_free(extra);
	return r;
}
