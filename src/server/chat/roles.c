/* roles.c - see roles.h. */
#include "server/chat/roles.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "base/digest.h"
#include "server/chat/messages.h"

/* Around the text of a system message that is told as the user's. */
static const char marked_open[] = "<system-reminder>\n", marked_close[] = "\n</system-reminder>";
static const char apart[] = "\n\n";

enum { ID_CHARS = 9 };

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

/* A message with another value, which is taken over, of a member that it has. */
static struct json *with(const struct json *m, const char *name, struct json *value)
{
	struct json *out = json_copy(m);

	if (json_get(m, name))
		json_set(out, name, value);
	else
		json_free(value);
	return out;
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

/* Frees what was gathered of the turns. */
static struct json *join_turns(struct fitting *f)
{
	struct json *out = json_new_array();

	for (size_t i = 0; i < f->n; i++) {
		struct turn_out *t = &f->out[i];

		allowance_spend(0);
		if (!t->m)
			json_add(out, message_new("user", t->text.p, t->text.n));
		else if (t->changed)
			json_add(out, with(t->m, "content", json_new_str(t->text.p, t->text.n)));
		else
			json_add(out, json_share(t->m));
		buf_fini(&t->text);
	}
	return out;
}

static struct json *fit_turns(const struct roles *r, const struct json *messages)
{
	struct fitting f = { .r = r, .out = xcalloc(json_len(messages) + 2, sizeof *f.out) };
	struct json *out;

	buf_init(&f.later);
	for (size_t i = put_systems(&f, messages); i < json_len(messages) && allowance_spend(1); i++)
		put_message(&f, json_at(messages, i));
	end_calls(&f);
	out = join_turns(&f);
	buf_fini(&f.later);
	free(f.out);
	return out;
}

/* ---- calls ---- */

/* A function with arguments that are an object: where they are text that is not JSON, as of a call that broke off, one
 * whose only argument it is. */
static struct json *with_object(const struct json *function)
{
	size_t n;
	const char *text = json_str(json_get(function, "arguments"), &n);
	struct json *arguments;

	if (!text)
		return json_share(function);
	arguments = json_new_object();
	if (strspn(text, " \n\t") != n)
		json_set_str(arguments, "arguments", text, n);
	return with(function, "arguments", arguments);
}

/* Nine letters and digits that stand for an id; ids that are such stay. */
static struct json *short_id(const struct json *id)
{
	static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
	char text[ID_CHARS];
	size_t n = 0;
	const char *s = json_str(id, &n);
	struct digest d;
	struct sha256 h;

	if (s && n == ID_CHARS && strspn(s, digits) == n)
		return json_share(id);
	sha256_init(&h);
	sha256_field(&h, s ? s : "", s ? n : 0);
	sha256_end(&h, &d);
	for (int i = 0; i < ID_CHARS; i++)
		text[i] = digits[d.b[i] % (sizeof digits - 1)];
	return json_new_str(text, ID_CHARS);
}

/* A call as the template takes it. */
static struct json *fit_call(const struct roles *r, const struct json *call)
{
	struct json_cursor c = json_first(call);
	struct json *out = json_new_object();
	const struct json *v;
	const char *key;

	if (!r->long_ids)
		json_set(out, "id", short_id(json_get(call, "id")));
	while (json_next(&c, &key, &v)) {
		if (!r->text_arguments && !strcmp(key, "function"))
			json_set(out, key, with_object(v));
		else if (r->long_ids || strcmp(key, "id"))
			json_set(out, key, json_share(v));
	}
	return out;
}

/* A message with calls [from, to) of m. */
static struct json *with_calls(const struct roles *r, const struct json *m, size_t from, size_t to)
{
	const struct json *calls = json_get(m, "tool_calls");
	struct json *list = json_new_array();

	for (size_t i = from; i < to; i++)
		json_add(list, fit_call(r, json_at(calls, i)));
	return with(m, "tool_calls", list);
}

static struct json *fit_result(const struct roles *r, const struct json *m)
{
	return r->long_ids ? json_share(m) : with(m, "tool_call_id", short_id(json_get(m, "tool_call_id")));
}

static bool same_id(const struct json *a, const struct json *b)
{
	size_t n, m;
	const char *s = json_str(a, &n), *t = json_str(b, &m);

	return s && t && n == m && !memcmp(s, t, n);
}

/* A message with several calls, and the results behind it, as one message for each call with its result behind it.
 * Returns how many messages were read. */
static size_t put_apart(const struct roles *r, struct json *out, const struct json *messages, size_t at)
{
	const struct json *m = json_at(messages, at), *calls = json_get(m, "tool_calls");
	struct json *rest = with(m, "content", json_new_str("", 0));
	size_t end = at + 1;

	while (is_role(json_at(messages, end), "tool"))
		end++;
	json_drop(rest, "reasoning_content");
	for (size_t i = 0; i < json_len(calls); i++) {
		const struct json *id = json_get(json_at(calls, i), "id");

		json_add(out, with_calls(r, i ? rest : m, i, i + 1));
		for (size_t k = at + 1; k < end; k++) {
			const struct json *of = json_get(json_at(messages, k), "tool_call_id");

			/* Results that do not say whose they are come in the order of the calls. */
			if (json_kind(of) == JSON_NULL ? k - at - 1 == i : same_id(of, id))
				json_add(out, fit_result(r, json_at(messages, k)));
		}
	}
	json_free(rest);
	return end - at;
}

/* A thought under the name that the template looks for.  Such a template takes a thought or a text with calls, not
 * both: then the text follows the thought. */
static struct json *fit_thought(const struct json *m)
{
	const struct json *thought = json_get(m, "reasoning_content");
	bool joined = json_len(json_get(m, "tool_calls")) > 0;
	struct json *out;
	struct buf text;
	size_t n = 0;
	const char *s = json_str(thought, &n);

	if (!s || !n || json_get(m, "thinking"))
		return json_share(m);
	buf_init(&text);
	buf_put(&text, s, n);
	if (joined && json_str(json_get(m, "content"), &n) && n) {
		buf_puts(&text, apart);
		put_text(&text, m);
	}
	out = joined ? with(m, "content", json_new_str("", 0)) : json_copy(m);
	json_drop(out, "reasoning_content");
	json_set_str(out, "thinking", text.p, text.n);
	buf_fini(&text);
	return out;
}

static struct json *fit_calls(const struct roles *r, const struct json *messages)
{
	struct json *out = json_new_array();

	for (size_t i = 0; i < json_len(messages) && allowance_spend(0);) {
		const struct json *m = json_at(messages, i);
		size_t n = json_len(json_get(m, "tool_calls"));

		if (n > 1 && !r->calls) {
			i += put_apart(r, out, messages, i);
			continue;
		}
		json_add(out, n ? with_calls(r, m, 0, n) : is_role(m, "tool") ? fit_result(r, m) : json_share(m));
		i++;
	}
	return out;
}

static struct json *fit_thoughts(const struct json *messages)
{
	struct json *out = json_new_array();

	for (size_t i = 0; i < json_len(messages) && allowance_spend(0); i++)
		json_add(out, fit_thought(json_at(messages, i)));
	return out;
}

struct json *roles_fit(const struct roles *r, const struct json *messages)
{
	struct json *out = fit_turns(r, messages), *before = out;

	if (!r->calls || !r->text_arguments || !r->long_ids) {
		out = fit_calls(r, before);
		json_free(before);
		before = out;
	}
	if (r->thinking) {
		out = fit_thoughts(before);
		json_free(before);
	}
	return out;
}
