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

static void set_members(struct json *out, const struct json *object)
{
	struct json_cursor c = json_first(object);
	const struct json *v;
	const char *key;

	while (json_next(&c, &key, &v))
		json_set(out, key, json_share(v));
}

/* The template's variables: the server's, over them what the request's fields mean,
 * over them its own. */
static struct json *variables(const struct generation *g, const struct chat *c)
{
	struct json *out = json_kind(g->served->template_args) == JSON_OBJECT ?
	                           json_copy_whole(g->served->template_args) :
	                           json_new_object();

	if (c->effort && template_uses(generation_template(g), "reasoning_effort"))
		json_set_cstr(out, "reasoning_effort", c->effort);
	if (c->think >= 0 && template_uses(generation_template(g), "enable_thinking"))
		json_set_bool(out, "enable_thinking", c->think);
	set_members(out, c->kwargs);
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

/* Puts other messages in the place of a conversation's; NULL: they stay. */
static void use(struct chat *c, struct json *messages)
{
	if (!messages)
		return;
	json_free(c->messages);
	c->messages = messages;
}

/* Prepares a conversation for rendering: drops lines without meaning, and puts our own
 * earlier turns back as they were. */
static void recall(struct generation *g, struct chat *c, const struct json *tools, const struct json *variables)
{
	const struct server *s = g->x ? g->x->srv : NULL;
	struct past_context context = { .salt = g->params.cache_salt, .tools = tools, .variables = variables };

	if (!s)
		return;
	if (s->opts.drop_volatile)
		use(c, past_drop_volatile(c->messages));
	context.key = g->x->from.key;
	context.model = g->x->model->serial;
	if (s->opts.turn_replay && g->params.turn_replay) {
		past_fini(&g->past);
		past_read(&g->past, s->turns, s->opts.turn_replay, &context, c->messages);
		if (g->past.n_turn)
			use(c, past_restore(&g->past, c->messages));
	}
}

/* The turns' own text into the rendered prompt. */
static void splice(struct generation *g, const struct template_input *in, struct prompt *out)
{
	struct template_input blank = *in;
	struct template_output o;
	struct json *messages;

	if (!g->past.n_turn)
		return;
	blank.messages = messages = past_blank(&g->past, in->messages);
	template_output_init(&o);
	if (!template_render(generation_template(g), &blank, &o, NULL))
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

/* Puts the mark into the messages. */
static int mark_end(struct chat *c, struct problem *p)
{
	const struct json *last = last_of(c->messages);
	struct json *marked;
	const char *role, *text;
	struct buf b;
	size_t n;

	role = json_str(json_get(last, "role"), &n);
	text = json_str(json_get(last, "content"), &n);
	if (!role || strcmp(role, "assistant") || !text || !n || json_len(json_get(last, "tool_calls")))
		return problem_set(
			p, 400, "invalid_value", "messages",
			"messages: to go on from, the last message must be the assistant's, with text and without calls");
	c->prefill = xstrndup(text, n);
	buf_init(&b);
	buf_put(&b, text, n);
	buf_puts(&b, here);
	marked = json_copy(last);
	json_set_str(marked, "content", b.p, b.n);
	buf_fini(&b);
	json_set_at(c->messages, json_len(c->messages) - 1, marked);
	return 0;
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

/* Makes the messages what the template takes, and the text of them. */
static int fit_and_render(struct generation *g, struct chat *c, struct template_input *in, struct prompt *out,
                          struct problem *p)
{
	int r;

	if (g->x)
		use(c, roles_fit(&g->x->model->roles[g->tools.list != NULL], c->messages));
	/* Neither a message that the answer continues nor the continuation is a turn of ours. */
	if (c->go_on) {
		g->params.turn_replay = c->add_generation_prompt = in->add_generation_prompt = false;
		if ((r = mark_end(c, p)))
			return r;
	}
	recall(g, c, in->tools, in->extra);
	use(c, images_parts(&g->images, c->messages, p));
	if (p->status)
		return p->status;
	c->n_message = (int)json_len(c->messages);
	in->messages = c->messages;
	if ((r = prompt_render(out, generation_template(g), in, p)))
		return r;
	splice(g, in, out);
	return c->go_on ? cut_end(out, p) : 0;
}

int chat_render(struct generation *g, struct chat *c, struct prompt *out, struct problem *p)
{
	struct template_input in = {
		.add_generation_prompt = c->add_generation_prompt,
		.bos_token = g->served->bos_token,
		.eos_token = g->served->eos_token,
		.now = g->created,
	};
	const struct json *tools;
	struct json *extra;
	int r;

	if (!g->served->tmpl)
		return problem_set(
			p, 400, "no_chat_template", NULL,
			"this model has no chat template: use /v1/completions, or start the server with --chat-template");
	if ((r = chat_use_tools(g, c, &tools, p)) || (r = use_effort(g, c, p)))
		return r;
	extra = variables(g, c);
	tell_unused(g, c->kwargs);
	if (!(r = refuse_builtin(g, c, extra, p))) {
		in.tools = tools;
		in.extra = extra;
		r = fit_and_render(g, c, &in, out, p);
	}
	json_free(extra);
	return r;
}
