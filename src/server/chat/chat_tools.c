/* chat_tools.c - the tools of a request, and what its answer is made to begin with. */
#include <string.h>

#include "server/chat/chat_steps.h"
#include "server/inside.h"
#include "server/chat/messages.h"
#include "server/chat/structured.h"
#include "text/calls/dialect.h"

static const char *tool_name(const struct json *tools, size_t i)
{
	size_t n;

	return json_str(json_get(json_get(json_at(tools, i), "function"), "name"), &n);
}

/* ---- tool_choice ---- */

static int choice_mode(struct chat *c, const struct json *v, const char *at, struct problem *p)
{
	static const struct {
		const char *name;
		enum tool_use use;
	} modes[] = {
		{ "auto", TOOLS_AUTO },
		{ "none", TOOLS_NONE },
		{ "required", TOOLS_ANY },
	};
	size_t n;
	const char *s = json_str(v, &n);

	for (size_t i = 0; s && i < sizeof modes / sizeof *modes; i++) {
		if (!strcmp(s, modes[i].name)) {
			c->use = modes[i].use;
			return 0;
		}
	}
	return field_wrong(p, at, "auto, none, required or an object that names a function", v);
}

int chat_choice(struct chat *c, const struct json *v, struct problem *p)
{
	const struct json *type = json_get(v, "type"), *name = json_get(v, "name"), *own;
	size_t n;
	const char *s = json_str(type, &n), *inside;
	int r;

	if (json_kind(v) == JSON_NULL)
		return 0;
	if (json_kind(v) != JSON_OBJECT)
		return choice_mode(c, v, "tool_choice", p);
	if ((r = field_takes(v, "tool_choice", "type", TAKES_STRING, p)) ||
	    (r = field_takes(v, "tool_choice", "allowed_tools", TAKES_OBJECT, p)) ||
	    (r = field_takes(v, "tool_choice", "function", TAKES_OBJECT, p)) ||
	    (r = field_takes(v, "tool_choice", "custom", TAKES_OBJECT, p)))
		return r;
	if (s && !strcmp(s, "allowed_tools")) {
		own = json_get(v, "allowed_tools") ? json_get(v, "allowed_tools") : v;
		c->allowed = json_get(own, "tools");
		if (json_kind(c->allowed) != JSON_ARRAY)
			return field_wrong(p, own == v ? "tool_choice.tools" : "tool_choice.allowed_tools.tools",
			                   "an array of tools", c->allowed);
		for (size_t i = 0; i < json_len(c->allowed); i++)
			if ((r = field_takes(json_at(c->allowed, i), "tool_choice.tools", "type", TAKES_STRING, p)))
				return r;
		return choice_mode(c, json_get(own, "mode"), "tool_choice.mode", p);
	}
	if (s && strcmp(s, "function") && strcmp(s, "custom"))
		return problem_set(p, 400, "unsupported_field", "tool_choice",
		                   "tool_choice of type \"%.40s\" is not supported by this server", s);
	/* The name is next to the type in the Responses API, in an object named after the type in the other. */
	inside = s && *s == 'c' ? "custom" : "function";
	if (!name && (v = json_get(v, inside)))
		name = json_get(v, "name");
	else
		inside = NULL;
	if (!(c->named = json_str(name, &n)))
		return field_wrong(p,
		                   !inside        ? "tool_choice.name" :
		                   *inside == 'c' ? "tool_choice.custom.name" :
		                                    "tool_choice.function.name",
		                   "a string", name);
	c->use = TOOLS_NAMED;
	return 0;
}

/* ---- tools ---- */

/* Its place in the list, or the list's length. */
static size_t find_tool(const struct json *tools, const char *name)
{
	size_t i = 0;

	while (i < json_len(tools) && strcmp(tool_name(tools, i), name))
		i++;
	return i;
}

static bool has_tool(const struct json *tools, const char *name)
{
	return find_tool(tools, name) < json_len(tools);
}

/* The name by which the model knows the tool that the client names so. */
static const char *flat_name(const struct generation *g, const struct json *tools, const char *name)
{
	for (int i = 0; i < g->tools.kinds.n && !has_tool(tools, name); i++)
		if (!strcmp(g->tools.kinds.kind[i].own, name))
			return g->tools.kinds.kind[i].name;
	return name;
}

/* Applies tool_choice to these tools; where only one may be called, "any" means that one. */
static int settle_choice(struct generation *g, struct chat *c, const struct json *callable, struct problem *p)
{
	if (c->use == TOOLS_NAMED)
		c->named = flat_name(g, c->tools, c->named);
	if (c->use == TOOLS_NAMED && !has_tool(c->tools, c->named))
		return problem_set(p, 400, "invalid_value", c->tool_choice_field,
		                   "%s names \"%.60s\", which is none of the tools", c->tool_choice_field, c->named);
	if (c->allowed && !json_len(callable))
		return problem_set(p, 400, "invalid_value", c->tool_choice_field, "%s allows none of the tools",
		                   c->tool_choice_field);
	if (c->use == TOOLS_ANY && json_len(callable) == 1) {
		c->use = TOOLS_NAMED;
		c->named = tool_name(c->tools, find_tool(c->tools, tool_name(callable, 0)));
	}
	return 0;
}

static int hold_calls(struct generation *g, struct chat *c, struct problem *p)
{
	struct json *callable = tools_callable(c->tools, c->allowed, &g->tools.kinds);
	int r;

	if (!(r = settle_choice(g, c, callable, p)))
		r = structured_calls(g, callable, c->use == TOOLS_NAMED ? c->named : NULL,
		                     c->use == TOOLS_ANY || c->use == TOOLS_NAMED, p);
	json_free(callable);
	return r;
}

int chat_use_tools(struct generation *g, struct chat *c, const struct json **shown, struct problem *p)
{
	int r;

	*shown = NULL;
	if (!json_len(c->tools)) {
		if (c->use == TOOLS_ANY || c->use == TOOLS_NAMED)
			return problem_set(p, 400, "invalid_value", c->tool_choice_field,
			                   "%s wants a call, and there are no tools", c->tool_choice_field);
		return 0;
	}
	if ((r = tools_check(c->tools, p)))
		return r;
	if (c->use == TOOLS_NONE)
		return 0;
	if (!template_uses(served_template(g->served, true), "tools"))
		return problem_set(p, 400, "unsupported_field", "tools",
		                   "the chat template of this model takes no tools");
	g->tools.list = *shown = c->tools;
	if (g->x && (g->tools.shown = tools_fit(&g->x->model->tool_needs, c->tools)))
		*shown = g->tools.shown;
	g->tools.dialects = dialects_of(generation_template(g));
	return hold_calls(g, c, p);
}

/* ---- what the answer begins with ---- */

static int lead_text(struct generation *g, const struct chat *c, struct tokens *out, struct problem *p)
{
	const struct dialect *d = dialect_taught(generation_template(g));
	struct text_range name = { 0, 0 };
	const char *at;
	struct buf b;
	struct err err;
	int r;

	if (!d)
		return problem_set(p, 400, "unsupported_field", c->tool_choice_field,
		                   "%s cannot ask for a call: how this model writes calls is not known",
		                   c->tool_choice_field);
	if (c->use == TOOLS_NAMED && strpbrk(c->named, "<>\"\\\n"))
		return problem_set(p, 400, "invalid_value", c->tool_choice_field,
		                   "%s: a name with < > \" \\ or a line break", c->tool_choice_field);
	buf_init(&b);
	if (g->thoughts.open)
		buf_puts(&b, g->thoughts.speech->turn ? g->thoughts.speech->turn : "\n\n");
	d->lead(&b, c->use == TOOLS_NAMED ? c->named : NULL);
	/* The name is the client's, the rest is ours. */
	if (c->use == TOOLS_NAMED && (at = strstr(b.p, c->named)))
		name = (struct text_range){ (size_t)(at - b.p), (size_t)(at - b.p) + strlen(c->named) };
	r = tokenizer_encode_ranges(g->served->tokenizer, b.p, b.n, TOKENIZE_SPECIAL, &name, name.end > 0, out, &err);
	buf_fini(&b);
	return r ? problem_set(p, 400, "invalid_value", c->tool_choice_field, "%s: %s", c->tool_choice_field, err.msg) :
	           0;
}

/* Sets the tokens that end a thought which is too long: its end tag, and the beginning of the content where the form has
 * one; with tools the model chooses what follows. */
static void end_of_thought(struct led *l, const struct tokenizer *t, const struct speech *how, bool tools,
                           int32_t close)
{
	struct buf b;

	buf_init(&b);
	buf_printf(&b, "%s%s%s%s", how == &speech_plain ? "\n" : "", how->think_close, how->turn ? how->turn : "",
	           how->content_open && !tools ? how->content_open : "");
	if (tokenizer_encode(t, b.p, b.n, TOKENIZE_SPECIAL, &l->end, NULL))
		l->end.n = 0;
	buf_fini(&b);
	for (size_t i = 0; i < l->end.n; i++)
		if (l->end.id[i] == close)
			return;
	l->end.n = 0;
	tokens_put(&l->end, close);
}

int chat_set_lead(struct generation *g, const struct chat *c, struct problem *p)
{
	const struct tokenizer *t = g->served->tokenizer;
	const struct thoughts *thoughts = &g->thoughts;
	struct led *l = &g->led;
	const char *open = thoughts->speech->think_open, *close_tag = thoughts->speech->think_close;
	int32_t close = tokenizer_find(t, close_tag, strlen(close_tag));
	bool call = g->tools.list && (c->use == TOOLS_ANY || c->use == TOOLS_NAMED), thinks;
	int r;

	if (tokenizer_encode(t, open, strlen(open), TOKENIZE_SPECIAL, &l->open, NULL))
		l->open.n = 0;
	/* Text that ordinary tokens spell may be spelled by others. */
	if (!l->open.n || !tokenizer_is_added(t, l->open.id[0]))
		l->open.n = 0;
	/* Stop strings end the answer, not the thought before it: the engine must know which is which. */
	thinks = close >= 0 && (thoughts->open || (thoughts->may_open && l->open.n));
	if (c->budget < 0 && !call && !(g->params.n_stop && thinks))
		return 0;
	/* Without a token that ends thoughts, a thought that the prompt begins cannot be ended.  A thought that the model
	 * begins by itself is not bounded, and the reply says so; a budget of 0 renders the prompt without one, and a forced
	 * call comes first. */
	if (close < 0 && thoughts->open && (call || (c->budget >= 0 && speech_thinks(generation_template(g)))))
		return problem_set(p, 400, "unsupported_field", call ? c->tool_choice_field : c->budget_field,
		                   "%s: thinking cannot be ended, because %s is not a token of this model",
		                   call ? c->tool_choice_field : c->budget_field, close_tag);
	if (close < 0 && c->budget > 0 && !call && speech_thinks(generation_template(g)))
		warnings_add(&g->params.warnings.ignored, NULL, c->budget_field);
	if (close < 0 && !call)
		return 0;
	l->lead = (struct lead){ .thinking = thoughts->open,
		                 .open = call || !l->open.n ? -1 : l->open.id[0],
		                 .opens = l->open.id + 1,
		                 .n_opens = l->open.n ? (int)l->open.n - 1 : 0,
		                 .reopens = thoughts->speech->reopens,
		                 .close = close,
		                 .think_max = c->budget > INT32_MAX || close < 0 ? -1 : (int)c->budget };
	if (!l->lead.n_opens)
		l->lead.opens = NULL;
	if (c->budget >= 0 && close >= 0)
		end_of_thought(l, t, thoughts->speech, g->tools.list, close);
	if (call) {
		if ((r = lead_text(g, c, &l->then, p)))
			return r;
		if (c->use == TOOLS_NAMED)
			g->params.parallel = false;
	}
	l->lead.end = l->end.id;
	l->lead.n_end = (int)l->end.n;
	l->lead.then = l->then.id;
	l->lead.n_then = (int)l->then.n;
	l->on = true;
	return 0;
}
