/* roles.c - see roles.h. */
#include "server/chat/roles.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "base/digest.h"

/* Around the text of a system message that is told as the user's. */
static const char marked_open[] = "<system-reminder>\n", marked_close[] = "\n</system-reminder>";
static const char apart[] = "\n\n";

enum { ID_CHARS = 9 };

struct json *messages_instead(struct json *messages, struct buf *b)
{
	struct json *other = json_parse(b->p, b->n, 200, NULL);

	buf_reset(b);
	if (!other)
		return messages;
	json_free(messages);
	return other;
}

/* ---- trying a template ---- */

/* A tool for the templates that show nothing without tools. */
static const char a_tool[] =
	"[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":{\"type\":"
	"\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"description\":\"a\"}},\"required\":[\"a\"]}}}]";

/* Renders messages; tools: NULL, or JSON.  True: it does, and the words stand in the text in this order (NULL ends
 * them). */
static bool shows(const struct served *d, const struct template *tmpl, const char *tools, const char *messages,
                  const char *const *words)
{
	struct json *j = json_parse(messages, strlen(messages), 0, NULL);
	struct json *t = tools ? json_parse(tools, strlen(tools), 0, NULL) : NULL;
	struct template_input in = { .messages = j,
		                     .tools = t,
		                     .extra = d->template_args,
		                     .add_generation_prompt = true,
		                     .bos_token = d->bos_token,
		                     .eos_token = d->eos_token };
	struct template_output o;
	const char *at;
	bool good;

	template_output_init(&o);
	good = !template_render(tmpl, &in, &o, NULL);
	at = o.text.p;
	for (; good && *words; words++)
		good = (at = strstr(at, *words)) != NULL;
	template_output_fini(&o);
	json_free(j);
	json_free(t);
	return good;
}

#define SHOWS(messages, ...) shows(d, tmpl, tools, "[" messages "]", (const char *const[]){ __VA_ARGS__, NULL })
#define SAYS(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"
#define CALL(id, name, arguments) \
	"{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"arguments\":" arguments "}}"
#define CALLS(list) "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[" list "]}"
#define RESULT(id, text) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"" text "\"}"
#define ID1 "abcde1234"
#define ID2 "abcde5678"

void roles_try(struct roles *r, const struct served *d, bool for_tools)
{
	const struct template *tmpl = served_template(d, for_tools);
	const char *tools = shows(d, tmpl, NULL, "[" SAYS("user", "qone") "]", (const char *const[]){ "qone", NULL }) ?
	                            NULL :
	                            a_tool;
	bool has_calls = SHOWS(SAYS("user", "qone") "," CALLS(CALL(ID1, "fone", "{}")) "," RESULT(ID1, "rone"), "qone",
	                       "rone");

	*r = (struct roles){ .calls = true, .text_arguments = true, .long_ids = true, .after_tool = true };
	/* Shown in its place, also when more was said: some show it with the newest question, and keep no prefix. */
	r->system = SHOWS(SAYS("system", "sone") "," SAYS("user", "qone"), "sone", "qone") &&
	            SHOWS(SAYS("system", "sone") "," SAYS("user", "qone") "," SAYS("assistant",
	                                                                           "aone") "," SAYS("user", "qtwo"),
	                  "sone", "qone", "aone", "qtwo");
	r->several = SHOWS(SAYS("system", "sone") "," SAYS("system", "stwo") "," SAYS("user", "qone"), "sone", "stwo",
	                   "qone");
	r->later = SHOWS(SAYS("system", "sone") "," SAYS("user", "qone") "," SAYS("assistant", "aone") "," SAYS(
				 "system", "stwo") "," SAYS("user", "qtwo"),
	                 "qone", "aone", "stwo", "qtwo");
	r->repeat = SHOWS(
		SAYS("user", "qone") "," SAYS("user", "qtwo") "," SAYS("assistant", "aone") "," SAYS("user", "qthr"),
		"qone", "qtwo", "aone", "qthr");
	r->after_assistant = SHOWS(SAYS("user", "qone") "," SAYS("assistant", "aone") "," SAYS(
					   "assistant", "atwo") "," SAYS("user", "qtwo"),
	                           "aone", "atwo", "qtwo");
	r->thinking = template_says(tmpl, "message.thinking") && !template_says(tmpl, "reasoning_content");
	/* A template that shows no calls at all is not judged by how it shows them. */
	if (!has_calls)
		return;
	r->after_tool = SHOWS(SAYS("user", "qone") "," CALLS(CALL(ID1, "fone", "{}")) "," RESULT(ID1, "rone") "," SAYS(
				      "user", "qtwo"),
	                      "rone", "qtwo");
	r->text_arguments = SHOWS(SAYS("user", "qone") "," CALLS(CALL(ID1, "fone", "\"a\"")) "," RESULT(ID1, "rone"),
	                          "qone", "rone");
	r->long_ids = SHOWS(SAYS("user", "qone") "," CALLS(CALL("call_abcdefghijk", "fone", "{}")) "," RESULT(
				    "call_abcdefghijk", "rone"),
	                    "qone", "rone");
	r->calls = !SHOWS(SAYS("user", "qone") "," CALLS(CALL(ID1, "fone", "{}")) "," RESULT(ID1, "rone"), "fone",
	                  "rone") ||
	           SHOWS(SAYS("user", "qone") "," CALLS(CALL(ID1, "fone", "{}") "," CALL(ID2, "ftwo", "{}")) "," RESULT(
				 ID1, "rone") "," RESULT(ID2, "rtwo"),
	                 "fone", "ftwo", "rone", "rtwo");
}

/* ---- members of messages ---- */

static bool is_role(const struct json *m, const char *name)
{
	size_t n;
	const char *role = json_str(json_get(m, "role"), &n);

	return role && !strcmp(role, name);
}

static void put_text(struct buf *b, const struct json *m)
{
	size_t n;
	const char *s = json_str(json_get(m, "content"), &n);

	if (s)
		buf_put(b, s, n);
}

/* An object, but for one of its members: value NULL leaves it out. */
static void put_but(struct buf *b, const struct json *object, const char *name, const char *value)
{
	struct json_cursor c = json_first(object);
	const struct json *v;
	const char *key;
	int count = 0;

	buf_putc(b, '{');
	while (json_next(&c, &key, &v)) {
		if (!strcmp(key, name) && !value)
			continue;
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

/* ---- the order of roles ---- */

/* A message of the new list: an old one, with another content if `changed`, or a new one of the user (m NULL). */
struct turn_out {
	const struct json *m;
	bool changed;
	struct buf text;
};

struct fitting {
	const struct roles *r;
	struct turn_out *out;
	size_t n;
	struct buf later; /* of system messages between a call and its results: told after them */
	bool in_calls;
};

static struct turn_out *add_turn(struct fitting *f, const struct json *m)
{
	struct turn_out *t = &f->out[f->n++];

	t->m = m;
	buf_init(&t->text);
	return t;
}

static bool last_is(const struct fitting *f, const char *role)
{
	const struct turn_out *t = f->n ? &f->out[f->n - 1] : NULL;

	return t && (t->m ? is_role(t->m, role) : !strcmp(role, "user"));
}

/* More text at the end of a message. */
static void append(struct turn_out *t, const char *p, size_t n)
{
	if (!t->changed && t->m)
		put_text(&t->text, t->m);
	t->changed = true;
	if (t->text.n && n)
		buf_puts(&t->text, apart);
	buf_put(&t->text, p, n);
}

/* Text that is the user's turn, or a part of one where the template takes no further turn. */
static void put_user(struct fitting *f, const char *p, size_t n)
{
	bool join = (last_is(f, "user") && !f->r->repeat) || (last_is(f, "tool") && !f->r->after_tool);

	append(join ? &f->out[f->n - 1] : add_turn(f, NULL), p, n);
}

static void put_marked(struct fitting *f, const struct json *m)
{
	struct buf b;

	buf_init(&b);
	buf_puts(&b, marked_open);
	put_text(&b, m);
	buf_puts(&b, marked_close);
	if (f->in_calls) {
		if (f->later.n)
			buf_puts(&f->later, apart);
		buf_put(&f->later, b.p, b.n);
	} else {
		put_user(f, b.p, b.n);
	}
	buf_fini(&b);
}

static void end_calls(struct fitting *f)
{
	f->in_calls = false;
	if (f->later.n)
		put_user(f, f->later.p, f->later.n);
	buf_reset(&f->later);
}

/* The messages of the system at the beginning; returns how many there are. */
static size_t put_systems(struct fitting *f, const struct json *messages)
{
	size_t k = 0, n = json_len(messages);
	bool alone;

	while (is_role(json_at(messages, k), "system"))
		k++;
	alone = k == n; /* a prompt needs a user's message: then the last of these is one */
	for (size_t i = 0; i < k - (alone && k); i++) {
		struct buf b;

		buf_init(&b);
		put_text(&b, json_at(messages, i));
		if (!f->r->system)
			put_user(f, b.p, b.n);
		else if (i && !f->r->several)
			append(&f->out[0], b.p, b.n);
		else
			add_turn(f, json_at(messages, i));
		buf_fini(&b);
	}
	if (alone && k) {
		struct buf b;

		buf_init(&b);
		put_text(&b, json_at(messages, k - 1));
		put_user(f, b.p, b.n);
		buf_fini(&b);
	}
	return k;
}

static void put_message(struct fitting *f, const struct json *m)
{
	struct buf b;

	if (is_role(m, "system") && !f->r->later) {
		put_marked(f, m);
		return;
	}
	if (!is_role(m, "tool"))
		end_calls(f);
	buf_init(&b);
	put_text(&b, m);
	if (is_role(m, "user") && ((last_is(f, "user") && !f->r->repeat) || (last_is(f, "tool") && !f->r->after_tool)))
		append(&f->out[f->n - 1], b.p, b.n);
	else if (is_role(m, "assistant") && last_is(f, "assistant") && !f->r->after_assistant && f->out[f->n - 1].m &&
	         !json_len(json_get(m, "tool_calls")) && !json_len(json_get(f->out[f->n - 1].m, "tool_calls")))
		append(&f->out[f->n - 1], b.p, b.n);
	else
		add_turn(f, m);
	buf_fini(&b);
	f->in_calls = (is_role(m, "assistant") && json_len(json_get(m, "tool_calls"))) ||
	              (f->in_calls && is_role(m, "tool"));
}

static void put_turns(struct buf *b, struct fitting *f)
{
	struct buf text;

	buf_init(&text);
	buf_putc(b, '[');
	for (size_t i = 0; i < f->n; i++) {
		struct turn_out *t = &f->out[i];

		if (i)
			buf_putc(b, ',');
		buf_reset(&text);
		json_put_str(&text, t->text.p, t->text.n);
		if (!t->m)
			buf_printf(b, "{\"role\":\"user\",\"content\":%s}", text.p);
		else if (t->changed)
			put_but(b, t->m, "content", text.p);
		else
			json_put(b, t->m);
		buf_fini(&t->text);
	}
	buf_putc(b, ']');
	buf_fini(&text);
}

static struct json *fit_turns(const struct roles *r, struct json *messages)
{
	struct fitting f = { .r = r, .out = xcalloc(json_len(messages) + 2, sizeof *f.out) };
	struct buf b;

	buf_init(&f.later);
	buf_init(&b);
	for (size_t i = put_systems(&f, messages); i < json_len(messages) && allowance_spend(1); i++)
		put_message(&f, json_at(messages, i));
	end_calls(&f);
	put_turns(&b, &f);
	messages = messages_instead(messages, &b);
	buf_fini(&b);
	buf_fini(&f.later);
	free(f.out);
	return messages;
}

/* ---- calls ---- */

/* A call with arguments that are an object: where they are text that is not JSON, as of a call that broke off, one
 * whose only argument it is. */
static void put_object_call(struct buf *b, const struct json *call)
{
	const struct json *f = json_get(call, "function");
	struct buf arguments, function;
	size_t n;
	const char *text = json_str(json_get(f, "arguments"), &n);

	if (!text) {
		json_put(b, call);
		return;
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

/* Nine letters and digits that stand for an id; ids that are such stay.  Appends them as a JSON string. */
static void put_short_id(struct buf *b, const struct json *id)
{
	static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
	size_t n = 0;
	const char *s = json_str(id, &n);
	struct digest d;
	struct sha256 h;

	if (s && n == ID_CHARS && strspn(s, digits) == n) {
		json_put(b, id);
		return;
	}
	sha256_init(&h);
	sha256_field(&h, s ? s : "", s ? n : 0);
	sha256_end(&h, &d);
	buf_putc(b, '"');
	for (int i = 0; i < ID_CHARS; i++)
		buf_putc(b, digits[d.b[i] % (sizeof digits - 1)]);
	buf_putc(b, '"');
}

/* A call as the template takes it. */
static void put_call(const struct roles *r, struct buf *b, const struct json *call)
{
	struct buf own, id;
	struct json *made;

	buf_init(&own);
	buf_init(&id);
	if (r->text_arguments)
		json_put(&own, call);
	else
		put_object_call(&own, call);
	if (r->long_ids) {
		buf_put(b, own.p, own.n);
	} else {
		put_short_id(&id, json_get(call, "id"));
		made = json_parse(own.p, own.n, 200, NULL);
		buf_reset(&own);
		put_but(&own, made, "id", NULL);
		buf_printf(b, "{\"id\":%s", id.p);
		if (own.n > 2) {
			buf_putc(b, ',');
			buf_put(b, own.p + 1, own.n - 1);
		} else {
			buf_putc(b, '}');
		}
		json_free(made);
	}
	buf_fini(&own);
	buf_fini(&id);
}

/* Calls [from, to) of a message. */
static void put_calls(const struct roles *r, struct buf *b, const struct json *m, size_t from, size_t to)
{
	const struct json *calls = json_get(m, "tool_calls");
	struct buf list;

	buf_init(&list);
	buf_putc(&list, '[');
	for (size_t i = from; i < to; i++) {
		if (i > from)
			buf_putc(&list, ',');
		put_call(r, &list, json_at(calls, i));
	}
	buf_putc(&list, ']');
	put_but(b, m, "tool_calls", list.p);
	buf_fini(&list);
}

static void put_result(const struct roles *r, struct buf *b, const struct json *m)
{
	struct buf id;

	if (r->long_ids) {
		json_put(b, m);
		return;
	}
	buf_init(&id);
	put_short_id(&id, json_get(m, "tool_call_id"));
	put_but(b, m, "tool_call_id", id.p);
	buf_fini(&id);
}

static bool same_id(const struct json *a, const struct json *b)
{
	size_t n, m;
	const char *s = json_str(a, &n), *t = json_str(b, &m);

	return s && t && n == m && !memcmp(s, t, n);
}

/* A message with several calls, and the results behind it, as one message for each call with its result behind it.
 * Returns how many messages were read. */
static size_t put_apart(const struct roles *r, struct buf *b, const struct json *messages, size_t at)
{
	const struct json *m = json_at(messages, at), *calls = json_get(m, "tool_calls");
	size_t end = at + 1;
	struct json *rest;
	struct buf own;

	while (is_role(json_at(messages, end), "tool"))
		end++;
	buf_init(&own);
	put_but(&own, m, "content", "\"\"");
	rest = json_parse(own.p, own.n, 200, NULL);
	buf_reset(&own);
	put_but(&own, rest, "reasoning_content", NULL);
	json_free(rest);
	rest = json_parse(own.p, own.n, 200, NULL);
	for (size_t i = 0; i < json_len(calls); i++) {
		const struct json *id = json_get(json_at(calls, i), "id");

		if (i)
			buf_putc(b, ',');
		put_calls(r, b, i ? rest : m, i, i + 1);
		for (size_t k = at + 1; k < end; k++) {
			const struct json *of = json_get(json_at(messages, k), "tool_call_id");

			/* Results that do not say whose they are come in the order of the calls. */
			if (json_kind(of) == JSON_NULL ? k - at - 1 != i : !same_id(of, id))
				continue;
			buf_putc(b, ',');
			put_result(r, b, json_at(messages, k));
		}
	}
	json_free(rest);
	buf_fini(&own);
	return end - at;
}

/* A thought under the name that the template looks for.  Such a template takes a thought or a text with calls, not
 * both: then the text follows the thought. */
static void put_thinking(struct buf *b, const struct json *m)
{
	const struct json *thought = json_get(m, "reasoning_content");
	bool joined = json_len(json_get(m, "tool_calls")) > 0;
	struct buf own, text;
	struct json *rest;
	size_t n = 0;
	const char *s = json_str(thought, &n);

	if (!s || !n || json_get(m, "thinking")) {
		json_put(b, m);
		return;
	}
	buf_init(&own);
	buf_init(&text);
	buf_put(&text, s, n);
	put_but(&own, m, "reasoning_content", NULL);
	if (joined && json_str(json_get(m, "content"), &n) && n) {
		buf_puts(&text, apart);
		put_text(&text, m);
	}
	rest = json_parse(own.p, own.n, 200, NULL);
	buf_reset(&own);
	if (joined)
		put_but(&own, rest, "content", "\"\"");
	else
		json_put(&own, rest);
	json_free(rest);
	buf_put(b, own.p, own.n - 1);
	buf_puts(b, ",\"thinking\":");
	json_put_str(b, text.p, text.n);
	buf_putc(b, '}');
	buf_fini(&own);
	buf_fini(&text);
}

static struct json *fit_calls(const struct roles *r, struct json *messages)
{
	struct buf b;

	buf_init(&b);
	buf_putc(&b, '[');
	for (size_t i = 0; i < json_len(messages);) {
		const struct json *m = json_at(messages, i);
		size_t n = json_len(json_get(m, "tool_calls"));

		if (i)
			buf_putc(&b, ',');
		if (n > 1 && !r->calls) {
			i += put_apart(r, &b, messages, i);
			continue;
		}
		if (n)
			put_calls(r, &b, m, 0, n);
		else if (is_role(m, "tool"))
			put_result(r, &b, m);
		else
			json_put(&b, m);
		i++;
	}
	buf_putc(&b, ']');
	messages = messages_instead(messages, &b);
	buf_fini(&b);
	return messages;
}

static struct json *fit_thoughts(struct json *messages)
{
	struct buf b;

	buf_init(&b);
	buf_putc(&b, '[');
	for (size_t i = 0; i < json_len(messages); i++) {
		if (i)
			buf_putc(&b, ',');
		put_thinking(&b, json_at(messages, i));
	}
	buf_putc(&b, ']');
	messages = messages_instead(messages, &b);
	buf_fini(&b);
	return messages;
}

struct json *roles_fit(const struct roles *r, struct json *messages)
{
	messages = fit_turns(r, messages);
	if (!r->calls || !r->text_arguments || !r->long_ids)
		messages = fit_calls(r, messages);
	return r->thinking ? fit_thoughts(messages) : messages;
}
