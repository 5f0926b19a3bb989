/* test_template.c - what the comparison with Jinja2 cannot show: bounds on hostile
 * templates, errors at load, origins of the output, use from several threads. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/jinja/template.h"

static int failed;

static void fail(const char *fmt, ...)
{
	va_list ap;

	failed++;
	va_start(ap, fmt);
	fputs("FAIL ", stdout);
	vprintf(fmt, ap);
	putchar('\n');
	va_end(ap);
}

static const char messages_text[] =
	"[{\"role\": \"system\", \"content\": \"Sys\"},"
	" {\"role\": \"user\", \"content\": \" AAA,BBB \", \"n\": 5, \"l\": [\"p\", \"q\"]},"
	" {\"role\": \"assistant\", \"content\": \"<think>\\nhm\\n</think>\\nC\\u00e9C\", \"a\": {\"k\": \"v\"}}]";

static int render(const char *src, size_t n, const struct template_limits *lim, struct template_output *out,
                  struct err *err)
{
	struct json *messages = json_parse(messages_text, strlen(messages_text), 0, err);
	struct json *tools = json_parse("[{\"name\": \"f\"}]", 15, 0, err);
	struct json *extra = json_parse("{\"x\": \"XX\", \"t\": true}", 23, 0, err);
	struct template_input in = { .messages = messages, .tools = tools, .extra = extra, .bos_token = "<s>" };
	struct template *t;
	int code = template_open(&t, src, n, lim, err);

	if (!code)
		code = template_render(t, &in, out, err);
	template_close(t);
	json_free(messages);
	json_free(tools);
	json_free(extra);
	return code;
}

/* ---- bounds ---- */

static void bomb(const char *name, const char *src, size_t n, int want)
{
	/* Small enough that all of them together take about a second. */
	const struct template_limits lim = { .steps_max = 2000000, .memory_max = 32 << 20, .output_max = 1 << 20 };
	struct template_output out;
	struct err err = { 0 };
	int code;

	template_output_init(&out);
	code = render(src, n, &lim, &out, &err);
	if (code != want)
		fail("bomb %s: gave %d (%s), expected %d", name, code, code ? err.msg : "a text", want);
	else if (!strstr(err.msg, "template line "))
		fail("bomb %s: no line in \"%s\"", name, err.msg);
	template_output_fini(&out);
}

static void bomb_text(const char *src)
{
	bomb(src, src, strlen(src), E_LIMIT);
}

/* head, then unit n times, then tail n times */
static void bomb_nested(const char *head, const char *unit, size_t n, const char *middle, const char *tail, int want)
{
	struct buf b;

	buf_init(&b);
	buf_puts(&b, head);
	for (size_t i = 0; i < n; i++)
		buf_puts(&b, unit);
	buf_puts(&b, middle);
	for (size_t i = 0; i < n; i++)
		buf_puts(&b, tail);
	bomb(unit, b.p, b.n, want);
	buf_fini(&b);
}

static void test_bombs(void)
{
	static const char *const texts[] = {
		/* time */
		"{% for i in range(10 ** 9) %}{% endfor %}",
		"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
		"{% for i in range(99999) %}{% for j in range(99999) %}{{ '' }}{% endfor %}{% endfor %}",
		"{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
		"{% set x = 'a' * 100000 %}{% for i in range(99999) %}{% if x.count('b') %}{% endif %}{% endfor %}",
		"{% set x = 'a' * 100000 %}{% for i in range(99999) %}{% if x.rfind('ab') %}{% endif %}{% endfor %}",
		"{% set x = 'a' * 100000 %}{% for i in range(99999) %}{% if x.strip('ba') %}{% endif %}{% endfor %}",
		"{% set x = 'é' * 100000 %}{% for i in range(99999) %}{% if x[99998] %}{% endif %}{% endfor %}",
		"{% set x = 'é' * 100000 %}{% for i in range(99999) %}{% if x[::-1] %}{% endif %}{% endfor %}",
		"{% set x = 'A' * 100000 %}{% for i in range(99999) %}{% if x.isupper() %}{% endif %}{% endfor %}",
		"{% set x = range(99999)|list %}{% for i in x %}{% if x == x + [1] %}{% endif %}{% endfor %}",
		"{% set x = range(99999)|list %}{% for i in x %}{% if -1 in x %}{% endif %}{% endfor %}",
		"{% set x = range(99999)|list %}{% for i in x %}{% if x|sort(reverse=true) %}{% endif %}{% endfor %}",
		"{{ (range(99999)|list * 100)|sum }}",
		/* memory and output */
		"{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
		"{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = ns.s.replace('a', ns.s) %}{% endfor %}",
		"{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = ns.s.join(ns.s) %}{% endfor %}",
		"{% set ns = namespace(s=[1]) %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
		"{% set ns = namespace(s=[1]) %}{% for i in range(100) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
		"{% set ns = namespace(s={}) %}{% for i in range(60) %}{% set ns.s = {'a': ns.s, 'b': ns.s} %}{% endfor %}{{ ns.s|tojson }}",
		"{{ 'a' * 10 ** 12 }}",
		"{{ [1] * 10 ** 12 }}",
		"{{ 'ab' * (2 ** 62) }}",
		"{{ [1, 2] * (2 ** 62) }}",
		"{{ '%999999999d' % 1 }}",
		"{{ '%.999999999f' % 1 }}",
		"{{ 'a'.center(10 ** 12) }}",
		"{{ '1'.zfill(10 ** 12) }}",
		"{{ 'a\nb'|indent(10 ** 10) }}",
		"{{ [[1]]|tojson(indent=10 ** 10) }}",
		"{{ [1]|batch(10 ** 12, 0)|list }}",
		"{{ strftime_now('%99999d') }}",
		"{% for i in range(99999) %}{{ 'aaaaaaaaaaaaaaaaaaaaaaaa' }}{% endfor %}",
		"{% macro m() %}{{ 'a' * 100000 }}{% endmacro %}{% for i in range(999) %}{{ m() }}{% endfor %}",
		/* depth */
		"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
		"{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
		"{% macro m() %}{{ caller() }}{% endmacro %}{% macro n() %}{% call m() %}{{ n() }}{% endcall %}{% endmacro %}{{ n() }}",
		"{% macro m(x=m2()) %}{% endmacro %}{% macro m2() %}{{ m() }}{% endmacro %}{{ m() }}",
		"{% set ns = namespace(a=1) %}{% for i in range(99999) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a }}",
		"{% set ns = namespace(a=1) %}{% for i in range(99999) %}{% set ns.a = {'k': ns.a} %}{% endfor %}{{ ns.a|tojson }}",
		"{% set ns = namespace(a=1, b=1) %}{% for i in range(9999) %}{% set ns.a = [ns.a] %}{% set ns.b = [ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
		"{% set ns = namespace(a=[1], b=[2]) %}{% for i in range(9999) %}{% set ns.a = [ns.a] %}{% set ns.b = [ns.b] %}{% endfor %}{{ ns.a < ns.b }}",
		"{% set ns = namespace(a=[1]) %}{% for i in range(9999) %}{% set ns.a = ns.a|map('string') %}{% endfor %}{{ ns.a|list }}",
		"{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
		"{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns.a == [[ns.a]] }}{{ ns.a }}",
	};

	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		bomb_text(texts[i]);
	bomb_nested("{{ ", "(", 100000, "1", ")", E_LIMIT);
	bomb_nested("{{ ", "[", 100000, "1", "]", E_LIMIT);
	bomb_nested("{{ ", "{1:", 100000, "1", "}", E_LIMIT);
	bomb_nested("{{ ", "f(", 100000, "1", ")", E_LIMIT);
	bomb_nested("{{ a", "[a", 100000, "", "]", E_LIMIT);
	bomb_nested("{{ ", "not ", 100000, "1 }}", "", E_LIMIT);
	bomb_nested("{{ ", "- ", 100000, "1 }}", "", E_LIMIT);
	bomb_nested("{{ 1", "+ 1", 100000, " }}", "", E_LIMIT);
	bomb_nested("{{ 1", "|string", 100000, " }}", "", E_LIMIT);
	bomb_nested("{{ x", ".a", 100000, " }}", "", E_LIMIT);
	bomb_nested("{{ x", "[0]", 100000, " }}", "", E_LIMIT);
	bomb_nested("{{ range", "()", 100000, " }}", "", E_LIMIT);
	bomb_nested("{{ 1", " is odd() == 1", 100000, " }}", "", E_LIMIT);
	bomb_nested("{{ 1", " and 1", 100000, " }}", "", E_LIMIT);
	bomb_nested("{{ 1", " if 1 else 1", 100000, " }}", "", E_LIMIT);
	bomb_nested("{{ 1", " if 1", 100000, " }}", "", E_LIMIT);
	bomb_nested("", "{% if 1 %}", 50000, "", "{% endif %}", E_LIMIT);
	bomb_nested("", "{% for a in b %}", 30000, "", "{% endfor %}", E_LIMIT);
	bomb_nested("", "{% set x %}", 30000, "", "{% endset %}", E_LIMIT);
	bomb_nested("", "{% macro a() %}", 30000, "", "{% endmacro %}", E_LIMIT);
	bomb_nested("{% for ", "(", 90, "a", ")", E_FORMAT);
	bomb_nested("", "x", (1 << 20) + 1, "", "", E_LIMIT);
}

/* What is long but flat, or deep within reason, must work. */
static void test_large(void)
{
	static const struct {
		const char *head, *unit, *tail;
		size_t n;
	} cases[] = {
		{ "{% if x == 1 %}", "{% elif x == 2 %}", "{% endif %}", 20000 },
		{ "{{ [", "1,", "]|length }}", 100000 },
		{ "{{ x", " ~ x", " }}", 100000 },
		{ "{{ 1", " + 1", " }}", 300 },
		{ "", "{{ x }}", "", 100000 },
		{ "", "{% set x = x %}", "", 50000 },
		{ "{% for i in range(50000) %}", "{{ i }}", "{% endfor %}", 1 },
		{ "{% set ns = namespace(o='') %}{% for i in range(50000) %}",
		  "{% set ns.o = ns.o ~ messages[1].content ~ i %}", "{% endfor %}{{ ns.o }}", 1 },
	};
	struct template_output out;
	struct err err = { 0 };
	struct buf b;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		buf_init(&b);
		buf_puts(&b, cases[i].head);
		for (size_t k = 0; k < cases[i].n; k++)
			buf_puts(&b, cases[i].unit);
		buf_puts(&b, cases[i].tail);
		template_output_init(&out);
		if (render(b.p, b.n, NULL, &out, &err))
			fail("large %s: %s", cases[i].unit, err.msg);
		template_output_fini(&out);
		buf_fini(&b);
	}
}

/* ---- errors at load ---- */

static void refused(const char *src, int code, const char *what)
{
	struct template *t;
	struct err err = { 0 };
	int got = template_open(&t, src, strlen(src), NULL, &err);

	if (!got || t)
		fail("%s: opened", src);
	else if (got != code || !strstr(err.msg, what))
		fail("%s: gave %d \"%s\", expected %d \"%s\"", src, got, err.msg, code, what);
	template_close(t);
}

static void test_refused(void)
{
	refused("a\n\n{{ x|nope }}", E_UNSUPPORTED, "line 3: unknown filter 'nope'");
	refused("{% if no %}\n{{ x is nope }}{% endif %}", E_UNSUPPORTED, "line 2: unknown test 'nope'");
	refused("\n{{ nope(1) }}", E_UNSUPPORTED, "line 2: unknown function 'nope'");
	refused("{% for m in messages %}\n{{ m.nope() }}{% endfor %}", E_UNSUPPORTED, "line 2: unknown method 'nope'");
	refused("{{ x.encode('utf8') }}", E_UNSUPPORTED, "line 1: method 'encode' is not supported");
	refused("{{ x|map('nope') }}", E_UNSUPPORTED, "line 1: unknown filter 'nope'");
	refused("{{ x|select('nope') }}", E_UNSUPPORTED, "line 1: unknown test 'nope'");
	refused("{{ x|selectattr('a', 'nope') }}", E_UNSUPPORTED, "line 1: unknown test 'nope'");
	refused("{{ x\n|groupby('a') }}", E_UNSUPPORTED, "line 2: unknown filter 'groupby'");
	refused("{% frob %}", E_UNSUPPORTED, "line 1: unknown tag 'frob'");
	refused("{% include 'x' %}", E_UNSUPPORTED, "tag 'include' is not supported");
	refused("{% block a %}{% endblock %}", E_UNSUPPORTED, "tag 'block' is not supported");
	refused("{% for a in b recursive %}{% endfor %}", E_UNSUPPORTED, "recursive loops");
	refused("{% for a in b %}{{ loop(a) }}{% endfor %}", E_UNSUPPORTED, "recursive loops");
	refused("{{ 99999999999999999999 }}", E_UNSUPPORTED, "beyond 64 bits");
	refused("{% if x %}\n\n", E_FORMAT, "line 2: unexpected end of template");
	refused("{{ '\xff' }}", E_FORMAT, "invalid UTF-8 at byte 4");
	refused("{{ x", E_FORMAT, "line 1: {{ without end");
}

static void test_accepted(void)
{
	/* A method is unknown only when nothing in the template could be it. */
	static const char *const ok[] = {
		"{% set ns = namespace(f=1) %}{% if no %}{{ ns.f() }}{% endif %}",
		"{% macro m() %}{% endmacro %}{% set ns = namespace() %}{% set ns.go = m %}{{ ns.go() }}",
		"{% if l.append is defined %}{{ l.append(1) }}{% endif %}",
		"{% if 'nope' is filter %}{{ 1 }}{% endif %}",
	};
	struct template_output out;
	struct err err = { 0 };

	for (size_t i = 0; i < sizeof ok / sizeof *ok; i++) {
		template_output_init(&out);
		/* The third reads an attribute of something undefined, which only rendering finds. */
		if (render(ok[i], strlen(ok[i]), NULL, &out, &err) && (i != 2 || !strstr(err.msg, "'l' is undefined")))
			fail("%s: %s", ok[i], err.msg);
		template_output_fini(&out);
	}
}

static void test_inputs(void)
{
	struct json *object = json_parse("{\"messages\": []}", 16, 0, NULL), *list = json_parse("[]", 2, 0, NULL);
	struct template_input in = { .messages = object };
	struct template_output out;
	struct err err = { 0 };
	struct template *t;

	template_output_init(&out);
	if (template_open(&t, "{{ enable_thinking }}{% set q = 1 %}", 36, NULL, &err))
		fail("open: %s", err.msg);
	if (template_render(t, &in, &out, &err) != E_ARG || !strstr(err.msg, "messages: must be an array, is object"))
		fail("messages as object: %s", err.msg);
	in.messages = list;
	in.extra = object;
	if (template_render(t, &in, &out, &err) != E_ARG || !strstr(err.msg, "may not set \"messages\""))
		fail("messages in extra: %s", err.msg);
	in.extra = NULL;
	in.tools = object;
	if (template_render(t, &in, &out, &err) != E_ARG || !strstr(err.msg, "tools: must be an array"))
		fail("tools as object: %s", err.msg);
	in.tools = NULL;
	in.bos_token = "\xc3";
	if (template_render(t, &in, &out, NULL) != E_ARG)
		fail("bos_token of invalid UTF-8 passed");
	in.bos_token = NULL;
	if (template_render(t, &in, &out, &err) || out.text.n || out.n_runs)
		fail("empty output: %zu bytes, %zu runs", out.text.n, out.n_runs);
	if (!template_uses(t, "enable_thinking") || template_uses(t, "q") || template_uses(t, "tools"))
		fail("template_uses");
	template_close(t);
	template_output_fini(&out);
	json_free(object);
	json_free(list);
}

/* ---- origins ---- */

/* want: runs as "text|message" joined by "^"; "u" stands for user text of no message,
 * "-" for the template's own. */
static void origins(const char *src, const char *want)
{
	struct template_output out;
	struct err err = { 0 };
	struct buf got;
	size_t at = 0;

	buf_init(&got);
	template_output_init(&out);
	if (render(src, strlen(src), NULL, &out, &err))
		buf_printf(&got, "error: %s", err.msg);
	for (size_t i = 0; i < out.n_runs; i++) {
		const struct template_run *r = &out.runs[i];

		buf_printf(&got, "%s%.*s|", i ? "^" : "", (int)(r->end - at), out.text.p + at);
		if (r->message >= 0)
			buf_printf(&got, "%d%s", r->message, r->user ? "" : "!");
		else
			buf_puts(&got, r->user ? "u" : "-");
		at = r->end;
	}
	if (strcmp(got.p, want))
		fail("origins of %s\n  got  %s\n  want %s", src, got.p, want);
	template_output_fini(&out);
	buf_fini(&got);
}

static void test_origins(void)
{
	origins("a{{ 'b' }}{{ 1 }}", "ab1|-");
	origins("<{{ messages[1].content }}>", "<|-^ AAA,BBB |1^>|-");
	origins("{{ messages[0].content }}{{ messages[1].role }}", "Sys|0^user|1");
	origins("{{ '<' + messages[0].content + '>' ~ messages[1].role }}", "<|-^Sys|0^>|-^user|1");
	origins("{{ messages[1].content.strip() }}", "AAA,BBB|1");
	origins("{{ ('[' ~ messages[1].content ~ ']')[1:6] }}", " AAA,|1");
	origins("{{ ('[' ~ messages[1].content ~ ']')[::-1] }}", "]|-^ BBB,AAA |1^[|-");
	origins("{{ ('  ' ~ messages[0].content ~ '  ').strip() }}", "Sys|0");
	origins("{{ (' -' ~ messages[0].content ~ '- ')|trim }}", "-|-^Sys|0^-|-");
	origins("{{ messages[1].content.split(',')[1] }}", "BBB |1");
	origins("{{ messages[1].content.split(',')|join('+') }}", " AAA|1^+|-^BBB |1");
	origins("{{ '+'.join(messages[1].content.split(',')) }}", " AAA|1^+|-^BBB |1");
	origins("{{ (messages[0].content ~ '/' ~ messages[1].role).split('/')|join }}", "Sys|0^user|1");
	origins("{{ messages[1].content.replace('A', messages[0].content) }}", " |1^SysSysSys|0^,BBB |1");
	origins("{{ messages[1].content|replace(',', '<>') }}", " AAA|1^<>|-^BBB |1");
	origins("{{ messages[2].content.split('</think>')[-1].lstrip('\\n') }}", "CéC|2");
	origins("{{ messages[2].content.split('</think>')[0].split('<think>')[-1].strip('\\n') }}", "hm|2");
	origins("{{ (messages[0].content ~ 'x')|upper }}", "SYS|0^X|-");
	origins("{{ (messages[0].content ~ 'x').capitalize() }}", "Sys|0^x|-");
	origins("{{ (messages[0].content ~ '\\nb')|indent(2, true) }}", "  |-^Sys|0^\n  b|-");
	origins("{{ '%s:%s' % (messages[0].content, 1) }}", "Sys|0^:1|-");
	origins("{{ '{}!'.format(messages[0].content) }}", "Sys|0^!|-");
	origins("{{ messages[2].a|tojson }}", "{\"k\": \"v\"}|2");
	origins("{{ messages[2].a }}", "{'k': 'v'}|2");
	origins("{{ messages[1].l }}{{ messages[1].l|join }}", "['p', 'q']pq|1");
	origins("{{ messages|map(attribute='role')|list }}", "['system', 'user', 'assistant']|u");
	origins("{{ tools|tojson }}{{ x }}", "[{\"name\": \"f\"}]XX|u");
	origins("{{ {'a': 1}|tojson }}{{ [1, 'b'] }}", "{\"a\": 1}[1, 'b']|-");
	origins("{{ {'a': messages[0].content}|tojson }}", "{\"a\": \"Sys\"}|0");
	origins("{{ [messages[0].content, messages[1].role]|tojson }}", "[\"Sys\", \"user\"]|u");
	origins("{{ messages[1].n }}{{ t }}{{ bos_token }}", "5True<s>|-");
	origins("{% macro m(x) %}({{ x }}){% endmacro %}{{ m(messages[0].content) }}", "(|-^Sys|0^)|-");
	origins("{% set b %}<{{ messages[0].content }}>{% endset %}{{ b[1:] }}", "Sys|0^>|-");
	origins("{% filter upper %}a{{ messages[0].content }}{% endfilter %}", "A|-^SYS|0");
	origins("{% for c in messages[0].content %}{{ c }}.{% endfor %}", "S|0^.|-^y|0^.|-^s|0^.|-");
	origins("{% for k, v in messages[2].a.items() %}{{ k }}={{ v }}{% endfor %}", "k|2^=|-^v|2");
	origins("{{ ('\"' ~ messages[0].content ~ '\"')|from_json }}", "Sys|0");
	origins("{{ ('<' ~ messages[0].content ~ '>')|e }}", "&lt;|-^Sys|0^&gt;|-");
	origins("{{ messages[0].content * 2 }}", "SysSys|0");
	origins("{{ messages[0].content.center(7, '*') }}", "**|-^Sys|0^**|-");
	/* Appending in place leaves the strings before it alone. */
	origins("{% set a = 'p' ~ messages[0].content %}{% set b = a ~ 'q' %}{% set c = a ~ messages[1].role %}"
	        "{{ a }} {{ b }} {{ c }}",
	        "p|-^Sys|0^ p|-^Sys|0^q p|-^Sys|0^user|1");
	origins("{% set a = 'p' ~ 'q' %}{% set b = a ~ 'r' %}{{ b ~ b }}{{ a ~ a }}{{ b }}", "pqrpqrpqpqpqr|-");
	origins("{% set ns = namespace(o='') %}{% for m in messages %}{% set ns.o = ns.o ~ m.role ~ '/' %}{% endfor %}{{ ns.o }}",
	        "system|0^/|-^user|1^/|-^assistant|2^/|-");
}

/* ---- threads ---- */

static const char shared_src[] =
	"{% macro m(x) %}{{ x|string|upper }}{{ 'é'|length }}{% endmacro %}{% for i in range(200) %}{{ m(messages) }}{% endfor %}";

struct job {
	const struct template *t;
	const struct json *messages;
	struct template_output out;
	int code;
};

static void *thread_main(void *arg)
{
	struct job *j = arg;
	struct template_input in = { .messages = j->messages };

	for (int i = 0; i < 20 && !j->code; i++)
		j->code = template_render(j->t, &in, &j->out, NULL);
	return NULL;
}

static void test_threads(void)
{
	struct json *messages = json_parse(messages_text, strlen(messages_text), 0, NULL);
	struct job jobs[4];
	pthread_t threads[4];
	struct template *t;
	struct err err = { 0 };

	if (template_open(&t, shared_src, sizeof shared_src - 1, NULL, &err))
		fail("threads: %s", err.msg);
	for (int i = 0; i < 4; i++) {
		jobs[i] = (struct job){ .t = t, .messages = messages };
		template_output_init(&jobs[i].out);
		if (pthread_create(&threads[i], NULL, thread_main, &jobs[i]))
			abort();
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		if (jobs[i].code || jobs[i].out.text.n != jobs[0].out.text.n ||
		    memcmp(jobs[i].out.text.p, jobs[0].out.text.p, jobs[0].out.text.n))
			fail("thread %d: another text", i);
	}
	for (int i = 0; i < 4; i++)
		template_output_fini(&jobs[i].out);
	template_close(t);
	json_free(messages);
}

int main(void)
{
	test_refused();
	test_accepted();
	test_inputs();
	test_origins();
	test_large();
	test_bombs();
	test_threads();
	printf(failed ? "%d failed\n" : "all passed\n", failed);
	return failed != 0;
}
