/* chat.c - see chat.h. */
#include "server/chat.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "server/inside.h"
#include "server/messages.h"
#include "server/routes.h"
#include "server/structured.h"

void chat_init(struct chat *c)
{
	*c = (struct chat){ .think = -1,
		            .budget = -1,
		            .add_generation_prompt = true,
		            .tool_choice_field = "tool_choice",
		            .effort_field = "reasoning_effort",
		            .budget_field = "thinking_budget" };
	buf_init(&c->messages);
}

void chat_fini(struct chat *c)
{
	buf_fini(&c->messages);
}

int chat_model(struct generation *g, const struct json *body, struct problem *p)
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

int chat_body(struct generation *g, const char *bytes, size_t n, const struct field *const *tables, chat_step *read,
              chat_step *make, struct problem *p)
{
	struct chat c;
	int r;

	if (!(g->body = body_parse(bytes, n, p)))
		return p->status;
	generation_prompts(g, 1);
	chat_init(&c);
	if (!(r = fields_check(g->body, NULL, tables, &g->params.unknown, p)) && !(r = chat_model(g, g->body, p)) &&
	    !(r = read(g, &c, p)))
		r = make(g, &c, p);
	chat_fini(&c);
	return r;
}

/* ---- tools ---- */

static const char *tool_name(const struct json *tools, size_t i)
{
	size_t n;

	return json_str(json_get(json_get(json_at(tools, i), "function"), "name"), &n);
}

/* Sets g->tools, and *shown to what the template is to see. */
static int use_tools(struct generation *g, struct chat *c, const struct json **shown, struct problem *p)
{
	bool found = c->use != TOOLS_NAMED;
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
	for (size_t i = 0; i < json_len(c->tools) && !found; i++)
		found = !strcmp(tool_name(c->tools, i), c->named);
	if (!found)
		return problem_set(p, 400, "invalid_value", c->tool_choice_field,
		                   "%s names \"%.60s\", which is none of the tools", c->tool_choice_field, c->named);
	if (c->use == TOOLS_NONE)
		return 0;
	if (!template_uses(g->served->tmpl, "tools"))
		return problem_set(p, 400, "unsupported_field", "tools",
		                   "the chat template of this model takes no tools");
	/* Of one tool, any is that one. */
	if (c->use == TOOLS_ANY && json_len(c->tools) == 1) {
		c->use = TOOLS_NAMED;
		c->named = tool_name(c->tools, 0);
	}
	g->tools = *shown = c->tools;
	g->dialects = dialects_of(g->served->tmpl);
	return structured_calls(g, c->use == TOOLS_NAMED ? c->named : NULL,
	                        c->use == TOOLS_ANY || c->use == TOOLS_NAMED, p);
}

/* ---- thinking ---- */

/* Tokens of thought that an effort stands for where the template does not know it;
 * each about four times the one before.  -1: no bound. */
static int64_t budget_of(const char *effort)
{
	return !strcmp(effort, "minimal") ? 256 : !strcmp(effort, "low") ? 1024 : !strcmp(effort, "medium") ? 4096 : -1;
}

static int use_effort(const struct generation *g, struct chat *c, struct problem *p)
{
	static const char *const efforts[] = { "none", "minimal", "low", "medium", "high", "xhigh", "max" };
	const struct template *t = g->served->tmpl;
	size_t i = 0;

	if (!c->effort || template_uses(t, "reasoning_effort"))
		return 0;
	while (i < 7 && strcmp(c->effort, efforts[i]))
		i++;
	if (i == 7)
		return problem_set(p, 400, "invalid_value", c->effort_field,
		                   "%s must be none, minimal, low, medium, high, xhigh or max; found \"%.40s\"",
		                   c->effort_field, c->effort);
	if (!template_uses(t, "enable_thinking") && !template_says(t, "<think>"))
		return problem_set(p, 400, "unsupported_field", c->effort_field,
		                   "%s: this model's chat template knows no thinking", c->effort_field);
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
 * over them its own.  Of a repeated name the last value counts. */
static struct json *variables(const struct generation *g, const struct chat *c)
{
	struct json *out;
	struct buf b;

	buf_init(&b);
	buf_putc(&b, '{');
	put_members(&b, g->served->template_args);
	if (c->effort && template_uses(g->served->tmpl, "reasoning_effort")) {
		buf_printf(&b, "%s\"reasoning_effort\":", b.n > 1 ? "," : "");
		json_put_cstr(&b, c->effort);
	}
	if (c->think >= 0 && template_uses(g->served->tmpl, "enable_thinking"))
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
		if (!template_uses(g->served->tmpl, key))
			field_unknown(&g->params.unknown, "chat_template_kwargs", key);
}

/* ---- what the answer begins with ---- */

static int lead_text(struct generation *g, const struct chat *c, struct tokens *out, struct problem *p)
{
	const struct dialect *d = dialect_taught(g->served->tmpl);
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
	if (g->thinking)
		buf_puts(&b, "\n\n");
	d->lead(&b, c->use == TOOLS_NAMED ? c->named : NULL);
	/* The name is the client's, the rest is ours. */
	if (c->use == TOOLS_NAMED && (at = strstr(b.p, c->named)))
		name = (struct text_range){ (size_t)(at - b.p), (size_t)(at - b.p) + strlen(c->named) };
	r = tokenizer_encode_ranges(g->served->tokenizer, b.p, b.n, TOKENIZE_SPECIAL, &name, name.end > 0, out, &err);
	buf_fini(&b);
	return r ? problem_set(p, 400, "invalid_value", c->tool_choice_field, "%s: %s", c->tool_choice_field, err.msg) :
	           0;
}

static int set_lead(struct generation *g, const struct chat *c, struct problem *p)
{
	const struct tokenizer *t = g->served->tokenizer;
	static const char end[] = "\n</think>";
	int32_t open = tokenizer_find(t, "<think>", 7), close = tokenizer_find(t, "</think>", 8);
	bool call = g->tools && (c->use == TOOLS_ANY || c->use == TOOLS_NAMED);
	int r;

	if (c->budget < 0 && !call)
		return 0;
	if (close < 0 && (c->budget >= 0 || g->thinking)) {
		/* What never thinks needs no bound. */
		if (!template_says(g->served->tmpl, "<think>") && !call)
			return 0;
		return problem_set(p, 400, "unsupported_field", call ? c->tool_choice_field : c->budget_field,
		                   "%s: thinking cannot be ended, for </think> is no token of this model",
		                   call ? c->tool_choice_field : c->budget_field);
	}
	g->lead = (struct lead){ .thinking = g->thinking,
		                 .open = call ? -1 : open,
		                 .close = close,
		                 .think_max = c->budget > INT32_MAX ? -1 : (int)c->budget };
	if (c->budget >= 0) {
		if (tokenizer_encode(t, end, sizeof end - 1, TOKENIZE_SPECIAL, &g->lead_end, NULL))
			g->lead_end.n = 0;
		if (!g->lead_end.n || g->lead_end.id[g->lead_end.n - 1] != close) {
			g->lead_end.n = 0;
			tokens_put(&g->lead_end, close);
		}
	}
	if (call) {
		if ((r = lead_text(g, c, &g->lead_then, p)))
			return r;
		if (c->use == TOOLS_NAMED)
			g->params.parallel = false;
	}
	g->lead.end = g->lead_end.id;
	g->lead.n_end = (int)g->lead_end.n;
	g->lead.then = g->lead_then.id;
	g->lead.n_then = (int)g->lead_then.n;
	g->led = true;
	return 0;
}

/* ---- the prompt ---- */

/* Parses what was appended to b; NULL would be our own mistake, and then the
 * messages stay as they are. */
static struct json *instead(struct json *messages, struct buf *b)
{
	struct json *other = json_parse(b->p, b->n, 200, NULL);

	buf_reset(b);
	if (!other)
		return messages;
	json_free(messages);
	return other;
}

/* What the conversation is to be rendered as: without lines that mean nothing, and
 * with the turns that are ours as they were.  Takes messages, gives others. */
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
		messages = instead(messages, &b);
	context.key = g->x->key;
	if (s->opts.turn_replay && g->params.turn_replay) {
		past_fini(&g->past);
		past_read(&g->past, s->turns, s->opts.turn_replay, &context, messages);
		if (g->past.n_turn) {
			past_restore(&g->past, messages, &b);
			messages = instead(messages, &b);
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
	if (messages && !template_render(g->served->tmpl, &blank, &o, NULL))
		past_splice(&g->past, out, &o, g->served->tokenizer);
	template_output_fini(&o);
	json_free(messages);
}

static bool is_system(const struct json *m)
{
	size_t n;
	const char *role = json_str(json_get(m, "role"), &n);

	return role && !strcmp(role, "system");
}

/* messages with those of the system at the beginning made one; frees what it does
 * not return. */
static struct json *join_systems(struct json *messages)
{
	struct json *joined;
	struct buf text, b;
	size_t k = 0, n;

	while (is_system(json_at(messages, k)))
		k++;
	if (k < 2)
		return messages;
	buf_init(&text);
	buf_init(&b);
	for (size_t i = 0; i < k; i++) {
		const char *s = json_str(json_get(json_at(messages, i), "content"), &n);

		if (i)
			buf_puts(&text, "\n\n");
		buf_put(&text, s ? s : "", s ? n : 0);
	}
	buf_puts(&b, "[{\"role\":\"system\",\"content\":");
	json_put_str(&b, text.p, text.n);
	buf_putc(&b, '}');
	for (; k < json_len(messages); k++) {
		buf_putc(&b, ',');
		json_put(&b, json_at(messages, k));
	}
	buf_putc(&b, ']');
	joined = json_parse(b.p, b.n, 200, NULL);
	buf_fini(&text);
	buf_fini(&b);
	json_free(messages);
	return joined;
}

static bool renders(const struct served *d, const char *messages)
{
	struct json *j = json_parse(messages, strlen(messages), 0, NULL);
	struct template_input in = { .messages = j,
		                     .extra = d->template_args,
		                     .add_generation_prompt = true,
		                     .bos_token = d->bos_token,
		                     .eos_token = d->eos_token };
	struct template_output o;
	bool good;

	template_output_init(&o);
	good = !template_render(d->tmpl, &in, &o, NULL);
	template_output_fini(&o);
	json_free(j);
	return good;
}

bool chat_one_system(const struct served *d)
{
	return renders(d, "[{\"role\":\"system\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\"}]") &&
	       !renders(d, "[{\"role\":\"system\",\"content\":\"a\"},{\"role\":\"system\",\"content\":\"a\"},"
	                   "{\"role\":\"user\",\"content\":\"b\"}]");
}

bool chat_object_arguments(const struct served *d)
{
#define WITH(arguments)                                                                                                  \
	"[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"1\"," \
	"\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":" arguments                                    \
	"}}]},{\"role\":\"tool\",\"tool_call_id\":\"1\","                                                                \
	"\"content\":\"b\"}]"
	return renders(d, WITH("{\"a\":1}")) && !renders(d, WITH("\"a\""));
#undef WITH
}

/* An object, but for one of its members. */
static void put_but(struct buf *b, const struct json *object, const char *name, const char *value)
{
	struct json_cursor c = json_first(object);
	const struct json *v;
	const char *key;
	int count = 0;

	buf_putc(b, '{');
	while (json_next(&c, &key, &v)) {
		if (count++)
			buf_putc(b, ',');
		json_put_cstr(b, key);
		buf_putc(b, ':');
		if (!strcmp(key, name))
			buf_puts(b, value);
		else
			json_put(b, v);
	}
	buf_putc(b, '}');
}

/* The calls of a message with arguments that are objects: where they are text, which is
 * no JSON, as of a call that broke off, one whose only argument it is. */
static void put_calls(struct buf *b, const struct json *calls)
{
	for (size_t i = 0; i < json_len(calls); i++) {
		const struct json *call = json_at(calls, i), *f = json_get(call, "function");
		size_t n;
		const char *text = json_str(json_get(f, "arguments"), &n);
		struct buf arguments, function;

		if (i)
			buf_putc(b, ',');
		if (!text) {
			json_put(b, call);
			continue;
		}
		buf_init(&arguments);
		buf_init(&function);
		buf_puts(&arguments, strspn(text, " \n\t") == n ? "{" : "{\"arguments\":");
		if (arguments.n > 1)
			json_put_str(&arguments, text, n);
		buf_putc(&arguments, '}');
		put_but(&function, f, "arguments", arguments.p);
		put_but(b, call, "function", function.p);
		buf_fini(&arguments);
		buf_fini(&function);
	}
}

static bool text_arguments(const struct json *messages)
{
	for (size_t i = 0; i < json_len(messages); i++) {
		const struct json *calls = json_get(json_at(messages, i), "tool_calls");

		for (size_t k = 0; k < json_len(calls); k++)
			if (json_kind(json_get(json_get(json_at(calls, k), "function"), "arguments")) == JSON_STRING)
				return true;
	}
	return false;
}

/* Takes messages, gives others. */
static struct json *object_arguments(struct json *messages)
{
	struct buf b, calls;

	if (!text_arguments(messages))
		return messages;
	buf_init(&b);
	buf_init(&calls);
	for (size_t i = 0; i < json_len(messages); i++) {
		const struct json *m = json_at(messages, i), *own = json_get(m, "tool_calls");

		buf_putc(&b, i ? ',' : '[');
		if (json_kind(own) != JSON_ARRAY) {
			json_put(&b, m);
			continue;
		}
		buf_reset(&calls);
		buf_putc(&calls, '[');
		put_calls(&calls, own);
		buf_putc(&calls, ']');
		put_but(&b, m, "tool_calls", calls.p);
	}
	buf_putc(&b, ']');
	messages = instead(messages, &b);
	buf_fini(&b);
	buf_fini(&calls);
	return messages;
}

/* ---- an answer that is the rest of the last message ---- */

/* Stands at the end of that message while it is rendered; of characters that nobody
 * else may give a meaning, and no blanks, which templates cut off. */
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
	messages = instead(messages, &b);
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
static bool in_thought(const char *text)
{
	const char *open = NULL, *close = NULL;

	for (const char *at = text; (at = strstr(at, "<think>")); at++)
		open = at;
	for (const char *at = text; (at = strstr(at, "</think>")); at++)
		close = at;
	return open && (!close || close < open);
}

static int render(struct generation *g, struct chat *c, struct prompt *out, struct problem *p)
{
	struct template_input in = {
		.add_generation_prompt = c->add_generation_prompt,
		.bos_token = g->served->bos_token,
		.eos_token = g->served->eos_token,
		.now = (int64_t)time(NULL),
	};
	struct json *messages, *extra;
	const struct json *tools;
	struct err err;
	int r;

	if (!g->served->tmpl)
		return problem_set(
			p, 400, "no_chat_template", NULL,
			"this model has no chat template: use /v1/completions, or start the server with --chat-template");
	if ((r = use_tools(g, c, &tools, p)) || (r = use_effort(g, c, p)))
		return r;
	/* Deeper by what a message wraps around its arguments. */
	messages = json_parse(c->messages.p, c->messages.n, 200, &err);
	if (!messages)
		return problem_set(p, 400, "invalid_value", "messages", "messages: %s", err.msg);
	extra = variables(g, c);
	tell_unused(g, c->kwargs);
	if (g->x && g->x->srv->one_system)
		messages = join_systems(messages);
	if (g->x && g->x->srv->object_arguments)
		messages = object_arguments(messages);
	/* What it goes on from is no turn of ours yet, and what comes will be none. */
	if (c->go_on) {
		g->params.turn_replay = c->add_generation_prompt = in.add_generation_prompt = false;
		if (!(messages = mark_end(g, messages, p))) {
			json_free(extra);
			return p->status;
		}
	}
	messages = recall(g, messages, tools, extra);
	c->n_message = (int)json_len(messages);
	in.messages = messages;
	in.tools = tools;
	in.extra = extra;
	r = prompt_render(out, g->served->tmpl, &in, p);
	if (!r)
		splice(g, &in, out);
	if (!r && c->go_on)
		r = cut_end(out, p);
	json_free(messages);
	json_free(extra);
	return r;
}

int chat_text(struct generation *g, struct chat *c, struct buf *out, struct problem *p)
{
	struct prompt prompt;
	int r;

	prompt_init(&prompt);
	if (!(r = render(g, c, &prompt, p)))
		buf_put(out, prompt.out.text.p, prompt.out.text.n);
	prompt_fini(&prompt);
	return r;
}

static void find_messages(struct generation *g, const struct chat *c, const struct prompt *prompt)
{
	g->n_message = c->n_message;
	g->message_at = xcalloc((size_t)g->n_message + 1, sizeof *g->message_at);
	prompt_messages(prompt, g->served->tokenizer, &g->prompt[0], g->message_at, g->n_message);
}

/* The text from `from` to `to`, which holds no turn of ours. */
static int tokenize_part(struct generation *g, const struct prompt *prompt, size_t from, size_t to, struct problem *p)
{
	struct text_range *user = xcalloc(prompt->n_user + 1, sizeof *user);
	size_t n = 0;
	int r;

	for (size_t i = 0; i < prompt->n_user; i++) {
		struct text_range u = prompt->user[i];

		if (u.start < to && u.end > from)
			user[n++] = (struct text_range){ u.start > from ? u.start - from : 0,
				                         (u.end < to ? u.end : to) - from };
	}
	r = generation_tokenize(g, 0, prompt->out.text.p + from, to - from, TOKENIZE_SPECIAL, user, n, p);
	free(user);
	return r;
}

static int tokenize(struct generation *g, const struct prompt *prompt, struct problem *p)
{
	size_t at = 0;
	int r;

	for (int i = 0; i < g->past.n_splice; i++) {
		const struct splice *s = &g->past.splice[i];

		if ((r = tokenize_part(g, prompt, at, s->at, p)))
			return r;
		for (size_t k = 0; k < s->turn->n; k++)
			tokens_put(&g->prompt[0], s->turn->id[k]);
		at = s->at + s->n;
	}
	return tokenize_part(g, prompt, at, prompt->out.text.n, p);
}

/* What the answer's turn begins with. */
static void keep_header(struct generation *g, const struct prompt *prompt)
{
	size_t at = prompt->part[MARKS_MAX - 1];

	g->remember = g->past.turns && at && at < prompt->out.text.n;
	if (g->remember)
		g->header = xstrndup(prompt->out.text.p + at, prompt->out.text.n - at);
}

int chat_prompt(struct generation *g, struct chat *c, struct problem *p)
{
	struct prompt prompt;
	int r;

	prompt_init(&prompt);
	if (!(r = render(g, c, &prompt, p)))
		r = tokenize(g, &prompt, p);
	if (!r) {
		keep_header(g, &prompt);
		g->thinking = c->add_generation_prompt && split_opens(prompt.out.text.p, prompt.out.text.n);
		if (c->go_on)
			g->thinking = in_thought(g->prefill);
		g->may_think = !g->thinking && !c->go_on && template_says(g->served->tmpl, "<think>") &&
		               !split_closes(prompt.out.text.p, prompt.out.text.n);
		g->n_mark = prompt_marks(&prompt, g->served->tokenizer, &g->prompt[0], g->mark, g->mark_kind);
		if (g->params.cache_report)
			find_messages(g, c, &prompt);
		r = set_lead(g, c, p);
	}
	prompt_fini(&prompt);
	return r;
}

/* ---- the OpenAI API's body ---- */

const struct field chat_fields[] = {
	{ "messages" },
	{ "tools" },
	{ "tool_choice" },
	{ "parallel_tool_calls" },
	{ "max_completion_tokens" },
	{ "top_logprobs" },
	{ "reasoning_effort" },
	{ "chat_template_kwargs" },
	{ "add_generation_prompt" },
	{ "enable_thinking" },
	{ "thinking_budget" },
	{ "thinking_token_budget" },
	{ "thinking" },
	{ "return_progress" },
	{ "functions", "[]", "use tools" },
	{ "function_call", "\"auto\"|\"none\"", "use tool_choice" },
	{ "audio", "" },
	{ "modalities", "[\"text\"]" },
	{ "prediction", "" },
	{ "web_search_options", "" },
	{ "verbosity", "\"medium\"" },
	{ "reasoning", "", "use reasoning_effort" },
	{ "include_reasoning", "true" },
	{ "chat_template", "" },
	{ "continue_final_message" },
	{ "add_special_tokens", "false" },
	{ "documents", "[]", "use chat_template_kwargs" },
	{ "mm_processor_kwargs", "{}" },
	{ "echo", "false" },
	{ "suffix", "\"\"" },
	{ "moderation", "" },
	/* of the other APIs */
	{ "max_output_tokens", "", "use max_completion_tokens" },
	{ "stop_sequences", "[]", "use stop" },
	{ "system", "", "use a message of that role" },
	{ "input", "", "use messages" },
	{ "instructions", "", "use a message of role system" },
	{ "output_config", "{}", "use reasoning_effort and response_format" },
	{ NULL },
};

static int read_choice(struct chat *c, const struct json *body, struct problem *p)
{
	const struct json *v = json_get(body, "tool_choice"), *type, *name;
	const char *s;
	size_t n;

	if (json_kind(v) == JSON_NULL)
		return 0;
	if ((s = json_str(v, &n))) {
		if (!strcmp(s, "auto"))
			c->use = TOOLS_AUTO;
		else if (!strcmp(s, "none"))
			c->use = TOOLS_NONE;
		else if (!strcmp(s, "required"))
			c->use = TOOLS_ANY;
		else
			return field_wrong(p, "tool_choice", "auto, none, required or an object that names a function",
			                   v);
		return 0;
	}
	type = json_get(v, "type");
	name = json_get(json_get(v, "function"), "name");
	if (json_kind(v) == JSON_OBJECT && (s = json_str(type, &n)) && strcmp(s, "function"))
		return problem_set(p, 400, "unsupported_field", "tool_choice",
		                   "tool_choice of type \"%.40s\" is not supported by this server", s);
	if (!(c->named = json_str(name, &n)))
		return field_wrong(p, "tool_choice.function.name", "a string", name);
	c->use = TOOLS_NAMED;
	return 0;
}

/* {"type": "enabled" or "disabled", "budget_tokens": N}, as some servers have it. */
static int read_thinking(struct chat *c, const struct json *body, struct buf *unknown, struct problem *p)
{
	static const struct field known[] = { { "type" }, { "budget_tokens" }, { NULL } };
	static const struct field *const tables[] = { known, NULL };
	const struct json *v;
	const char *type;
	size_t n;
	int r;

	if ((r = field_value(body, "thinking", JSON_OBJECT, &v, p)) || !v ||
	    (r = fields_check(v, "thinking", tables, unknown, p)))
		return r;
	type = json_str(json_get(v, "type"), &n);
	if (!type || (strcmp(type, "enabled") && strcmp(type, "disabled") && strcmp(type, "adaptive")))
		return field_wrong(p, "thinking.type", "enabled, disabled or adaptive", json_get(v, "type"));
	if (strcmp(type, "adaptive"))
		c->think = *type == 'e';
	return field_int(v, "budget_tokens", 0, INT32_MAX, &c->budget, p);
}

/* vLLM's field, or that of Mistral's and DeepSeek's APIs in the last message. */
static int read_go_on(struct chat *c, const struct json *body, struct problem *p)
{
	const struct json *messages = json_get(body, "messages"), *asked = json_get(body, "add_generation_prompt");
	bool prefix = false;
	int r;

	if ((r = field_bool(body, "continue_final_message", &c->go_on, p)))
		return r;
	if (c->go_on && json_kind(asked) == JSON_BOOL && c->add_generation_prompt)
		return problem_set(p, 400, "invalid_value", "continue_final_message",
		                   "continue_final_message and add_generation_prompt cannot both be true");
	if (json_kind(messages) == JSON_ARRAY && json_len(messages))
		json_to_bool(json_get(last_of(messages), "prefix"), &prefix);
	c->go_on |= prefix;
	return 0;
}

int chat_read(struct generation *g, struct chat *c, struct problem *p)
{
	const struct json *body = g->body, *effort;
	bool think = false;
	size_t n;
	int r;

	if ((r = field_value(body, "tools", JSON_ARRAY, &c->tools, p)) || (r = read_choice(c, body, p)) ||
	    (r = field_bool(body, "parallel_tool_calls", &g->params.parallel, p)) ||
	    (r = field_value(body, "chat_template_kwargs", JSON_OBJECT, &c->kwargs, p)) ||
	    (r = field_value(body, "reasoning_effort", JSON_STRING, &effort, p)) ||
	    (r = read_thinking(c, body, &g->params.unknown, p)) ||
	    (r = field_bool(body, "enable_thinking", &think, p)) ||
	    (r = field_int(body, "thinking_token_budget", 0, INT32_MAX, &c->budget, p)) ||
	    (r = field_int(body, "thinking_budget", 0, INT32_MAX, &c->budget, p)) ||
	    (r = field_bool(body, "return_progress", &g->params.progress, p)) ||
	    (r = field_bool(body, "add_generation_prompt", &c->add_generation_prompt, p)) ||
	    (r = read_go_on(c, body, p)))
		return r;
	c->effort = json_str(effort, &n);
	if (json_kind(json_get(body, "enable_thinking")) == JSON_BOOL)
		c->think = think;
	if (c->think >= 0 && g->served->tmpl && !template_uses(g->served->tmpl, "enable_thinking"))
		return problem_set(p, 400, "unsupported_field", "enable_thinking",
		                   "the chat template of this model does not let thinking be turned on or off");
	if ((r = structured_fields(g, body, p)))
		return r;
	return messages_normal(json_get(body, "messages"), &c->messages, p);
}

/* ---- the answer ---- */

void chat_open(struct generation *g, struct choice *c)
{
	split_init(&c->split, g->thinking, g->tools, g->dialects);
}

void chat_token(struct generation *g, struct choice *c, const struct event *ev)
{
	if (ev->kind == EV_TOKEN && c->split.state == SPLIT_THINK)
		c->n_thinking++;
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

/* The answer as a message in the normal form; NULL when it is not wholly one. */
static struct json *message_of(const struct choice *c)
{
	static const struct {
		enum piece_kind kind;
		const char *name;
	} texts[] = {
		{ PIECE_CONTENT, "content" },
		{ PIECE_THINKING, "reasoning_content" },
	};
	const struct split *s = &c->split;
	struct json *j;
	struct buf b, text;
	int n_call = 0;

	buf_init(&b);
	buf_init(&text);
	buf_puts(&b, "{\"role\":\"assistant\"");
	for (int k = 0; k < 2; k++) {
		buf_reset(&text);
		for (int i = 0; i < s->n_piece; i++)
			if (s->piece[i].kind == texts[k].kind)
				buf_put(&text, s->text.p + s->piece[i].at, s->piece[i].n);
		buf_printf(&b, ",\"%s\":", texts[k].name);
		json_put_str(&b, text.p, text.n);
	}
	buf_puts(&b, ",\"tool_calls\":[");
	for (int i = 0; i < s->n_piece; i++) {
		const char *at = s->text.p + s->piece[i].at;

		if (s->piece[i].kind == PIECE_CALL) {
			buf_printf(&b, "%s{\"function\":{\"name\":", n_call++ ? "," : "");
			json_put_str(&b, at, s->piece[i].n);
			buf_puts(&b, ",\"arguments\":");
		} else if (s->piece[i].kind == PIECE_ARGUMENTS) {
			buf_put(&b, at, s->piece[i].n);
		} else if (s->piece[i].kind == PIECE_CALL_END) {
			buf_puts(&b, "}}");
		}
	}
	buf_puts(&b, "]}");
	j = json_parse(b.p, b.n, 200, NULL);
	buf_fini(&b);
	buf_fini(&text);
	return j;
}

void chat_end(struct generation *g, struct choice *c)
{
	struct json *message;

	if (!c->enough)
		split_end(&c->split);
	else if (c->split.held.n)
		return; /* of the last token, part belongs to what nobody wanted */
	if (!g->remember || !c->said.n || !(message = message_of(c)))
		return;
	past_remember(&g->past, message, g->header, &c->said);
	json_free(message);
}

bool chat_next(struct choice *c, struct piece *out, bool *begins)
{
	const struct split *s = &c->split;

	/* The last piece may have grown. */
	while (c->told < s->n_piece) {
		const struct piece *p = &s->piece[c->told];

		*begins = !c->told_begun;
		if (*begins || c->told_bytes < p->n) {
			*out = (struct piece){ p->kind, p->at + c->told_bytes, p->n - c->told_bytes };
			c->told_bytes = p->n;
			c->told_begun = true;
			return true;
		}
		if (c->told + 1 == s->n_piece)
			return false;
		c->told++;
		c->told_bytes = 0;
		c->told_begun = false;
	}
	return false;
}

const char *chat_call_id(struct choice *c, int k)
{
	while (c->n_id <= k) {
		c->id = xrealloc(c->id, size_mul((size_t)c->n_id + 1, sizeof *c->id));
		random_id(c->id[c->n_id++]);
	}
	return c->id[k];
}

bool chat_calls(const struct choice *c)
{
	return c->split.n_whole && c->finish == FINISH_STOP;
}
