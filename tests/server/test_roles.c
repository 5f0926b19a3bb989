/* Conversations that templates refuse or cut, rewritten to what they take: against small templates that have one
 * whim each, and against published ones where their folder is there (test_roles [FOLDER]). */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "server/chat/roles.h"
#include "server/chat/shown_tools.h"

static int failed;

#define TURNS \
	"{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls %}[{{ c.function.name }}]{% endfor %}"
#define END "</>{% endfor %}"

/* A template with one whim; a conversation; what it is rendered as once it fits. */
static const struct {
	const char *template, *messages, *text;
} table[] = {
	/* takes everything: nothing changes */
	{ TURNS END,
	  "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"system\",\"content\":\"t\"}]",
	  "<system>s</><user>u</><system>t</>" },
	/* a system message only at the beginning */
	{ TURNS "{% if m.role == 'system' and not loop.first %}{{ raise_exception('first') }}{% endif %}" END,
	  "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"system\",\"content\":\"t\"},{\"role\":\"user\",\"content\":\"u\"},"
	  "{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"system\",\"content\":\"r\"},{\"role\":\"user\",\"content\":\"v\"}]",
	  "<system>s\n\nt</><user>u</><assistant>a</><user><system-reminder>\nr\n</system-reminder></><user>v</>" },
	/* a later one is left out in silence */
	{ "{% for m in messages %}{% if loop.first or m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endif %}" END,
	  "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"system\",\"content\":\"r\"}]",
	  "<user>u</><assistant>a</><user><system-reminder>\nr\n</system-reminder></>" },
	/* all of them are gathered at the beginning */
	{ "{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}{% endif %}{% endfor %}"
	  "{% for m in messages %}{% if m.role != 'system' %}<{{ m.role }}>{{ m.content }}</>{% endif %}{% endfor %}",
	  "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"system\",\"content\":\"r\"}]",
	  "s<user>u</><user><system-reminder>\nr\n</system-reminder></>" },
	/* none at all */
	{ TURNS
	  "{% if m.role == 'system' %}{{ raise_exception('none') }}{% endif %}{% if m.role != 'assistant' and not loop.first and "
	  "messages[loop.index0 - 1].role != 'assistant' %}{{ raise_exception('alternate') }}{% endif %}" END,
	  "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"a\"},"
	  "{\"role\":\"user\",\"content\":\"v\"},{\"role\":\"system\",\"content\":\"r\"}]",
	  "<user>s\n\nu</><assistant>a</><user>v\n\n<system-reminder>\nr\n</system-reminder></>" },
	/* nobody but the system */
	{ TURNS END, "[{\"role\":\"system\",\"content\":\"s\"}]", "<user>s</>" },
	/* between a call and its result, and no user after a result */
	{ TURNS
	  "{% if m.role == 'system' and not loop.first %}{{ raise_exception('first') }}{% endif %}{% if m.role == 'user' and not "
	  "loop.first and messages[loop.index0 - 1].role == 'tool' %}{{ raise_exception('after a tool') }}{% endif %}" END,
	  "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\","
	  "\"arguments\":{}}}]},{\"role\":\"system\",\"content\":\"r\"},{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"x\"}]",
	  "<user>u</><assistant>[f]</><tool>x\n\n<system-reminder>\nr\n</system-reminder></>" },
	{ TURNS "{% if m.role == 'system' and not loop.first %}{{ raise_exception('first') }}{% endif %}" END,
	  "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\","
	  "\"arguments\":{}}}]},{\"role\":\"system\",\"content\":\"r\"},{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"x\"}]",
	  "<user>u</><assistant>[f]</><tool>x</><user><system-reminder>\nr\n</system-reminder></>" },
	/* one call in a message: several become several messages, each with its result */
	{ "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.tool_calls %}[{{ m.tool_calls[0].function.name }}]{% endif %}" END,
	  "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"c\",\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\","
	  "\"arguments\":{}}},{\"id\":\"2\",\"function\":{\"name\":\"g\",\"arguments\":{}}}]},{\"role\":\"tool\",\"tool_call_id\":\"2\",\"content\":\"y\"},"
	  "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"x\"},{\"role\":\"user\",\"content\":\"v\"}]",
	  "<user>u</><assistant>c[f]</><tool>x</><assistant>[g]</><tool>y</><user>v</>" },
	/* ids of nine letters or digits */
	{ TURNS
	  "{% for c in m.tool_calls %}{% if c.id | length != 9 %}{{ raise_exception('nine') }}{% endif %}{{ c.id }}{% endfor %}"
	  "{% if m.role == 'tool' and m.tool_call_id | length != 9 %}{{ raise_exception('nine') }}{% endif %}{{ m.tool_call_id }}" END,
	  "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"call_1\",\"function\":{\"name\":\"f\","
	  "\"arguments\":{}}},{\"id\":\"abc012DEF\",\"function\":{\"name\":\"g\",\"arguments\":{}}}]},{\"role\":\"tool\",\"tool_call_id\":\"call_1\","
	  "\"content\":\"x\"},{\"role\":\"tool\",\"tool_call_id\":\"abc012DEF\",\"content\":\"y\"}]",
	  "<user>u</><assistant>[f][g]#abc012DEF</><tool>x#</><tool>yabc012DEF</>" },
	/* arguments that are objects */
	{ TURNS "{% for c in m.tool_calls %}{{ c.function.arguments.items() | list }}{% endfor %}" END,
	  "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\","
	  "\"arguments\":\"{\\\"a\\\":\"}}]}]",
	  "<user>u</><assistant>[f][('arguments', '{\"a\":')]</>" },
	/* thoughts under another name */
	{ "{% for message in messages %}<{{ message.role }}>{% if message.thinking %}({{ message.thinking }}){% endif %}{{ message.content }}" END,
	  "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"a\",\"reasoning_content\":\"hm\"},"
	  "{\"role\":\"assistant\",\"content\":\"b\",\"reasoning_content\":\"ah\",\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\","
	  "\"arguments\":{}}}]}]",
	  "<user>u</><assistant>(hm)a</><assistant>(ah\n\nb)</>" },
};

static struct template *open_template(const char *text, size_t n)
{
	struct template *t = NULL;
	struct err err;

	if (template_open(&t, text, n, NULL, &err))
		printf("a template of this test: %s\n", err.msg);
	return t;
}

/* Declared in every conversation; NULL: none is. */
static const char *shown_tools;

/* The text of messages[0..n), rewritten to what r says (NULL: as they are); false: refused. */
static bool render(const struct served *d, const struct roles *r, const char *messages, bool prompt, struct buf *out)
{
	struct json *j = json_parse(messages, strlen(messages), 200, NULL);
	struct json *t = shown_tools ? json_parse(shown_tools, strlen(shown_tools), 200, NULL) : NULL;
	struct template_input in = {
		.tools = t, .add_generation_prompt = prompt, .bos_token = d->bos_token, .eos_token = d->eos_token
	};
	struct template_output o;
	struct err err;
	int rc;

	if (r) {
		struct json *whole = j;

		j = roles_fit(r, whole);
		json_free(whole);
	}
	in.messages = j;
	template_output_init(&o);
	rc = template_render(d->tmpl, &in, &o, &err);
	buf_reset(out);
	buf_put(out, rc ? err.msg : o.text.p, rc ? strlen(err.msg) : o.text.n);
	template_output_fini(&o);
	json_free(j);
	json_free(t);
	return !rc;
}

/* '#' stands for the nine characters of an id. */
static bool alike(const char *text, const char *want)
{
	for (; *want; text++, want++) {
		if (*want == '#' && strlen(text) < 9)
			return false;
		if (*want == '#')
			text += 8;
		else if (*text != *want)
			return false;
	}
	return !*text;
}

static void whims(void)
{
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		struct served d = { .tmpl = open_template(table[i].template, strlen(table[i].template)),
			            .bos_token = "",
			            .eos_token = "" };
		struct roles r;
		struct buf b;

		buf_init(&b);
		roles_try(&r, &d, false);
		if (!render(&d, &r, table[i].messages, false, &b) || !alike(b.p, table[i].text)) {
			printf("case %zu: \"%s\", not \"%s\"\n", i, b.p, table[i].text);
			failed++;
		}
		buf_fini(&b);
		template_close((struct template *)d.tmpl);
	}
}

/* ---- published templates ---- */

#define MEMBER(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"
#define CALLER(id)                                                               \
	"{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"" id \
	"\",\"type\":\"function\",\"function\":{\"name\":\"look\","              \
	"\"arguments\":{\"a\":1}}}]}"
#define ANSWER(id, text) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"name\":\"look\",\"content\":\"" text "\"}"

/* Conversations as agents send them, and the words that the prompt must hold in this order. */
static const struct {
	const char *messages, *words;
	bool tools;
} talks[] = {
	{ MEMBER("system", "wone") "," MEMBER("user", "wtwo"), "wone wtwo", false },
	{ MEMBER("system", "wone") "," MEMBER("system", "wtwo") "," MEMBER("user", "wthree"), "wone wtwo wthree",
	  false },
	{ MEMBER("user", "wone") "," MEMBER("system", "wtwo"), "wone wtwo", false },
	{ MEMBER("system", "wone") "," MEMBER("user", "wtwo") "," MEMBER("assistant", "wthree") "," MEMBER(
		  "system", "wfour") "," MEMBER("user", "wfive"),
	  "wone wtwo wthree wfour wfive", false },
	{ MEMBER("user", "wone") "," MEMBER("assistant", "wtwo") "," MEMBER("user", "wthree") "," MEMBER("system",
	                                                                                                 "wfour"),
	  "wone wtwo wthree wfour", false },
	{ MEMBER("user", "wone") "," MEMBER("system", "wtwo") "," MEMBER("assistant", "wthree") "," MEMBER(
		  "system", "wfour") "," MEMBER("system", "wfive") "," MEMBER("user", "wsix"),
	  "wone wtwo wthree wfour wfive wsix", false },
	{ MEMBER("system", "wone"), "wone", false },
	{ MEMBER("user", "wone") "," MEMBER("user", "wtwo") "," MEMBER("assistant", "wthree") "," MEMBER("user",
	                                                                                                 "wfour"),
	  "wone wtwo wthree wfour", false },
	{ MEMBER("system", "wone") "," MEMBER("user", "wtwo") "," CALLER("call_0123456789ab") "," ANSWER(
		  "call_0123456789ab", "wthree") "," MEMBER("system", "wfour"),
	  "wone wtwo wthree wfour", true },
	{ MEMBER("system", "wone") "," MEMBER("user", "wtwo") "," CALLER("call_0123456789ab") "," ANSWER(
		  "call_0123456789ab",
		  "wthree") "," MEMBER("assistant", "wfour") "," MEMBER("system", "wfive") "," MEMBER("user", "wsix"),
	  "wone wtwo wthree wfour wfive wsix", true },
};

/* ---- tools ---- */

#define FUNCTION(members) "[{\"type\":\"function\",\"function\":{\"name\":\"f\"" members "}}]"
#define WITH(properties) ",\"parameters\":{\"type\":\"object\",\"properties\":" properties "}"

/* Functions as clients declare them. */
static const char *const declared[] = {
	FUNCTION(",\"description\":\"d\"" WITH("{\"a\":{\"type\":\"string\",\"description\":\"x\"}}")),
	FUNCTION(""),
	FUNCTION(",\"description\":null,\"parameters\":null"),
	FUNCTION(",\"description\":\"d\""),
	FUNCTION(",\"description\":\"d\",\"parameters\":{}"),
	FUNCTION(",\"parameters\":{\"type\":\"object\"}"),
	FUNCTION(WITH("{}")),
	FUNCTION(WITH("{\"a\":{\"type\":\"integer\"},\"b\":{\"enum\":[\"x\",1]}}")),
	FUNCTION(",\"description\":\"d\"" WITH("{\"a\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}}")),
};

/* Renders a question with these tools, as what the template needs of them says (NULL: as they are). */
static bool render_tools(const struct served *d, const struct tool_needs *needs, const char *tools, struct buf *out)
{
	static const char question[] = "[{\"role\":\"user\",\"content\":\"q\"}]";
	struct json *messages = json_parse(question, strlen(question), 200, NULL);
	struct json *list = json_parse(tools, strlen(tools), 200, NULL), *fit = needs ? tools_fit(needs, list) : NULL;
	struct template_input in = { .messages = messages,
		                     .tools = fit ? fit : list,
		                     .add_generation_prompt = true,
		                     .bos_token = d->bos_token,
		                     .eos_token = d->eos_token };
	struct template_output o;
	struct err err;
	int rc;

	template_output_init(&o);
	rc = template_render(d->tmpl, &in, &o, &err);
	buf_reset(out);
	buf_put(out, rc ? err.msg : o.text.p, rc ? strlen(err.msg) : o.text.n);
	template_output_fini(&o);
	json_free(messages);
	json_free(list);
	json_free(fit);
	return !rc;
}

/* A template that takes a function with all members takes every declared one, once it has what the template needs; one
 * that needs nothing is shown what was declared. */
static void published_tools(const char *name, const struct served *d, int *n)
{
	struct tool_needs needs;
	struct buf b, plain;

	buf_init(&b);
	buf_init(&plain);
	tool_needs_try(&needs, d);
	for (size_t i = 0; render_tools(d, NULL, declared[0], &b) && i < sizeof declared / sizeof *declared; i++) {
		bool takes = render_tools(d, NULL, declared[i], &plain);

		++*n;
		if (!render_tools(d, &needs, declared[i], &b) || (takes && !needs.description && !needs.parameters &&
		                                                  !needs.property_details && strcmp(b.p, plain.p))) {
			printf("%s, tools %zu: %.600s\n", name, i, b.p);
			failed++;
		}
	}
	buf_fini(&b);
	buf_fini(&plain);
}

/* Templates that want one member each, and what they are shown. */
static void tool_whims(void)
{
	static const struct {
		const char *template, *tools, *text;
	} whim[] = {
		{ "{% for t in tools %}{{ t | tojson }}{% endfor %}", FUNCTION(""),
		  "{\"type\": \"function\", \"function\": {\"name\": \"f\"}}" },
		{ "{% for t in tools %}{{ t.function.name + ':' + t.function.description }}{% endfor %}",
		  FUNCTION(WITH("{}")), "f:" },
		{ "{% for t in tools %}{{ t.function.parameters.properties.items() | list }}{% endfor %}",
		  FUNCTION(",\"parameters\":{\"title\":\"T\"}"), "[]" },
		{ "{% for t in tools %}{% for k, v in t.function.parameters.properties.items() %}{{ k + v.description }}"
		  "{% endfor %}{% endfor %}",
		  FUNCTION(
			  ",\"description\":\"d\"" WITH("{\"a\":{\"type\":\"string\"},\"b\":{\"description\":\"c\"}}")),
		  "abc" },
	};

	for (size_t i = 0; i < sizeof whim / sizeof *whim; i++) {
		struct served d = { .tmpl = open_template(whim[i].template, strlen(whim[i].template)),
			            .bos_token = "",
			            .eos_token = "" };
		struct tool_needs needs;
		struct buf b;

		buf_init(&b);
		tool_needs_try(&needs, &d);
		if (!render_tools(&d, &needs, whim[i].tools, &b) || strcmp(b.p, whim[i].text)) {
			printf("tools, case %zu: \"%s\", not \"%s\"\n", i, b.p, whim[i].text);
			failed++;
		}
		buf_fini(&b);
		template_close((struct template *)d.tmpl);
	}
}

static bool in_order(const char *text, const char *words)
{
	char word[20];

	while (*words) {
		size_t n = strcspn(words, " ");

		snprintf(word, sizeof word, "%.*s", (int)n, words);
		if (!(text = strstr(text, word)))
			return false;
		text += n;
		words += n + (words[n] == ' ');
	}
	return true;
}

static bool shows_calls(const struct served *d)
{
	struct buf b;
	bool good;

	buf_init(&b);
	good = render(d, NULL, "[" MEMBER("user", "a") "," CALLER("abcde1234") "," ANSWER("abcde1234", "result") "]",
	              true, &b) &&
	       strstr(b.p, "result") && strstr(b.p, "look");
	buf_fini(&b);
	return good;
}

static void published_one(const char *name, const struct served *d, int *n)
{
	static const char plain[] = "[" MEMBER("user", "a") "," MEMBER("assistant", "b") "," MEMBER("user", "c") "]";
	struct roles r;
	struct buf b;
	bool calls;

	buf_init(&b);
	/* Some can show nothing without tools, or without variables of their own. */
	shown_tools = render(d, NULL, plain, true, &b) ? NULL : declared[0];
	if (!render(d, NULL, plain, true, &b)) {
		printf("%s: shows no conversation, with tools or without: %s\n", name, b.p);
		buf_fini(&b);
		shown_tools = NULL;
		return;
	}
	if (shown_tools)
		printf("%s: shows conversations with tools alone\n", name);
	calls = shows_calls(d);
	roles_try(&r, d, false);
	for (size_t i = 0; i < sizeof talks / sizeof *talks; i++) {
		char messages[2000];

		if (talks[i].tools && !calls)
			continue;
		snprintf(messages, sizeof messages, "[%s]", talks[i].messages);
		++*n;
		if (render(d, &r, messages, true, &b) && in_order(b.p, talks[i].words))
			continue;
		printf("%s, conversation %zu: %.600s\n", name, i, b.p);
		failed++;
	}
	shown_tools = NULL;
	buf_fini(&b);
}

static void published(const char *folder)
{
	DIR *dir = opendir(folder);
	struct dirent *e;
	int n = 0, n_tools = 0, n_template = 0;

	if (!dir) {
		printf("skipped: no published templates at %s\n", folder);
		return;
	}
	while ((e = readdir(dir))) {
		struct served d = { .bos_token = "<s>", .eos_token = "</s>" };
		size_t len = strlen(e->d_name);
		struct buf text;
		char path[600];

		if (len < 6 || strcmp(e->d_name + len - 6, ".jinja"))
			continue;
		snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
		buf_init(&text);
		if (!file_read(path, 1 << 20, &text, NULL) && (d.tmpl = open_template(text.p, text.n))) {
			published_one(e->d_name, &d, &n);
			published_tools(e->d_name, &d, &n_tools);
			n_template++;
			template_close((struct template *)d.tmpl);
		} else {
			failed++;
		}
		buf_fini(&text);
	}
	closedir(dir);
	printf("%d conversations and %d declarations of tools with %d published templates\n", n, n_tools, n_template);
}

int main(int argc, char **argv)
{
	whims();
	tool_whims();
	if (argc > 1)
		published(argv[1]);
	printf("%d failed\n", failed);
	return failed > 0;
}
