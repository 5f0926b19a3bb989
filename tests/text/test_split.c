/* The splitter and the dialects of calls: the same however the text is cut. */
#include <stdio.h>
#include <string.h>

#include "text/calls/dialect.h"
#include "text/calls/split.h"

static int failed;

static const char tools_text[] =
	"[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{"
	"\"i\":{\"type\":\"integer\"},\"s\":{\"type\":\"string\"},\"o\":{\"type\":\"object\"},"
	"\"b\":{\"type\":\"boolean\"},\"e\":{\"enum\":[1,\"x\"]},\"m\":{\"anyOf\":[{\"type\":\"number\"},{\"type\":\"null\"}]},"
	"\"t\":{\"type\":[\"string\",\"null\"]}}}}}]";

#define CALL(args) "<tool_call>\n<function=f>\n" args "</function>\n</tool_call>"
#define ARG(k, v) "<parameter=" k ">\n" v "\n</parameter>\n"
#define LLAMA "Environment: ipython"
#define PYTHON "[func_name1("

static const struct {
	const char *template; /* what it says; NULL: the tags are read */
	bool thinking, tools;
	const char *text, *thought, *content;
	const char *calls; /* "name arguments;" of each; without ';' when it is not whole */
	bool malformed;
} table[] = {
	{ NULL, false, false, "plain", "", "plain", "" },
	{ NULL, false, false, " two  words\n", "", " two  words\n", "" },
	{ NULL, false, true, " two  words\n", "", " two  words\n", "" },
	{ NULL, true, false, "hm\n</think>\n\nyes", "hm", "yes", "" },
	{ NULL, true, false, "\nhm\n\nhm </think>yes\n", "hm\n\nhm", "yes\n", "" },
	{ NULL, true, false, "never ends\n", "never ends", "", "" },
	{ NULL, true, false, "a </thin b", "a </thin b", "", "" },
	{ NULL, true, false, "</think>\n\nyes", "", "yes", "" },
	{ NULL, true, false, "a</think>b</think>c", "a", "b</think>c", "" },
	{ NULL, false, false, "<think>\nhm\n</think>\n\nyes", "hm", "yes", "" },
	{ NULL, false, false, "\n <think>hm</think>yes", "hm", "yes", "" },
	{ NULL, false, false, "a <think>b</think>", "", "a <think>b</think>", "" },
	{ NULL, false, false, "<thing>", "", "<thing>", "" },
	{ NULL, false, false, "<thi", "", "<thi", "" },
	{ NULL, false, false, "  Hello.", "", "  Hello.", "" },
	{ NULL, false, false, "\n<think>a </ think> c\n\n</think>\n\nb <think>d</think>", "a </ think> c",
	  "b <think>d</think>", "" },
	{ NULL, true, false, "a </thi", "a </thi", "", "" },
	{ NULL, true, false, "</think>", "", "", "" },
	{ NULL, true, false, "a <</think>b</think>", "a <", "b</think>", "" },
	{ NULL, false, false, CALL(""), "", CALL(""), "" },
	{ NULL, false, true, CALL(""), "", "", "f {};" },
	{ NULL, false, true, "So:\n\n" CALL(ARG("i", "5") ARG("s", "5")), "", "So:", "f {\"i\":5,\"s\":\"5\"};" },
	{ NULL, false, true, CALL(ARG("s", "a\nb\n")), "", "", "f {\"s\":\"a\\nb\\n\"};" },
	{ NULL, false, true, CALL(ARG("s", "x <b> \"y\" \xc3\xa9\xe2\x82\xac </par")), "", "",
	  "f {\"s\":\"x <b> \\\"y\\\" \xc3\xa9\xe2\x82\xac </par\"};" },
	{ NULL, false, true, CALL(ARG("s", "")), "", "", "f {\"s\":\"\"};" },
	{ NULL, false, true, CALL("<parameter=s></parameter>"), "", "", "f {\"s\":\"\"};" },
	{ NULL, false, true, CALL(ARG("o", "{\"x\": [1.0, null]}")), "", "", "f {\"o\":{\"x\":[1.0,null]}};" },
	{ NULL, false, true, CALL(ARG("i", "five")), "", "", "f {\"i\":\"five\"};" },
	{ NULL, false, true, CALL(ARG("i", "null")), "", "", "f {\"i\":null};" },
	{ NULL, false, true, CALL(ARG("b", "True") ARG("b", "false")), "", "", "f {\"b\":true,\"b\":false};" },
	{ NULL, false, true, CALL(ARG("e", "1") ARG("e", "x") ARG("e", "2.5")), "", "",
	  "f {\"e\":1,\"e\":\"x\",\"e\":\"2.5\"};" },
	{ NULL, false, true, CALL(ARG("m", "None") ARG("m", "1e3")), "", "", "f {\"m\":null,\"m\":1e3};" },
	{ NULL, false, true, CALL(ARG("t", "null") ARG("t", "12")), "", "", "f {\"t\":null,\"t\":\"12\"};" },
	{ NULL, false, true, CALL(ARG("z", "7")), "", "", "f {\"z\":\"7\"};" },
	{ NULL, false, true, CALL("") "\n" CALL(ARG("i", "1")), "", "", "f {};f {\"i\":1};" },
	{ NULL, false, true, CALL("") "\nand so", "", "and so", "f {};" },
	{ NULL, false, true, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"i\": 1}}\n</tool_call>", "", "",
	  "f {\"i\": 1};" },
	{ NULL, false, true, "<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"</tool_call>}\\\"\"}}</tool_call>", "",
	  "", "f {\"s\":\"</tool_call>}\\\"\"};" },
	{ NULL, false, true, "<tool_call>{\"arguments\": {\"i\": 1}, \"name\": \"f\"}</tool_call>x", "", "x",
	  "f {\"i\":1};" },
	{ NULL, false, true, "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"i\\\": 1}\"}</tool_call>", "", "",
	  "f {\"i\":1};" },
	{ NULL, false, true, "<tool_call>{\"name\": \"f\"}</tool_call>", "", "", "f {};" },
	{ NULL, false, true, "<tool_call>{\"name\": 5}</tool_call>", "", "<tool_call>{\"name\": 5}</tool_call>", "",
	  true },
	{ NULL, false, true, "<tool_call>{\"name\": \"f\", \"arguments\": {i: 1}}</tool_call>", "", "", "f {i: 1};",
	  true },
	{ NULL, false, true, "<tool_call>{\"name\": \"f\", \"arguments\": {\"i\": [1", "", "", "f {\"i\": [1", true },
	/* A member behind the arguments, which is an id for the most part; what is none is content. */
	{ NULL, false, true, "<tool_call>{\"name\": \"f\", \"arguments\": {}, \"x\": 1}</tool_call>", "", "", "f {};",
	  false },
	{ NULL, false, true, "<tool_call>{\"name\": \"f\", \"arguments\": {}, \"x\": ]}</tool_call>", "",
	  ", \"x\": ]}</tool_call>", "f {};", true },
	{ NULL, false, true, "<tool_call>{\"name\": \"f\", \"arguments\": {}, x}</tool_call>", "", ", x}</tool_call>",
	  "f {};", true },
	{ NULL, false, true, "a <tool_call>junk</tool_call> b", "", "a <tool_call>junk</tool_call> b", "", true },
	{ NULL, false, true, "a <tool_call>junk", "", "a <tool_call>junk", "", true },
	{ NULL, false, true, "<tool_call>\n<function=f>\n</function>", "", "", "f {};" },
	{ NULL, false, true, "<tool_call>\n<function=f>\n<par", "", "<tool_call>\n<function=f>\n<par", "", true },
	{ NULL, false, true, "<tool_call>\n<function=f>\n<parameter=i>\n5", "", "", "f {\"i\":5", true },
	{ NULL, false, true, "<tool_call>\n<function=f>\n<parameter=s>\n5\n</para", "", "", "f {\"s\":\"5\\n</para",
	  true },
	{ NULL, false, true, CALL(ARG("i", "1") "well\n"), "", "well\n</function>\n</tool_call>", "f {\"i\":1};",
	  true },
	{ NULL, false, true, CALL("") "<tool_call><tool_call>\n" CALL(""), "", "<tool_call><tool_call>", "f {};f {};",
	  true },
	{ NULL, false, true, "a < b <tool b \n", "", "a < b <tool b \n", "" },
	{ NULL, false, true, "{\"name\": \"f\", \"parameters\": {}}", "", "{\"name\": \"f\", \"parameters\": {}}", "" },
	{ NULL, true, true, "hm</think>\n\n" CALL(""), "hm", "", "f {};" },
	{ NULL, true, true, "<tool_call></think>x", "<tool_call>", "x", "" },

	{ LLAMA, false, true, "{\"name\": \"f\", \"parameters\": {\"i\": 1}}", "", "", "f {\"i\": 1};" },
	{ LLAMA, false, true,
	  " <|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"arguments\": {\"a\": \"}\"}}\n",
	  "", "", "f {};g {\"a\": \"}\"};" },
	{ LLAMA, false, true, "{\"parameters\": {\"i\": 1}, \"name\": \"f\"}", "", "", "f {\"i\":1};" },
	{ LLAMA, false, true, "{\"answer\": 42, \"more\": {}}", "", "{\"answer\": 42, \"more\": {}}", "" },
	{ LLAMA, false, true, "So {\"name\": \"f\", \"parameters\": {}}", "",
	  "So {\"name\": \"f\", \"parameters\": {}}", "" },
	{ LLAMA, false, true, "{\"name\": \"f\", \"parameters\": {}} ok?", "", "ok?", "f {};", true },
	{ LLAMA, false, true, "{\"name\": \"f\", \"parameters\": {\"i\"", "", "", "f {\"i\"", true },
	{ LLAMA, false, true, "Hello.", "", "Hello.", "" },
	{ LLAMA, false, true, "<b>Hello</b>", "", "<b>Hello</b>", "" },
	{ LLAMA, false, true, "<|python_tag|>f.call(s=\"a \\\"b\\\"\", i=3)", "", "",
	  "f {\"s\":\"a \\\"b\\\"\",\"i\":3};" },
	{ LLAMA, false, false, "{\"name\": \"f\", \"parameters\": {}}", "", "{\"name\": \"f\", \"parameters\": {}}",
	  "" },

	{ PYTHON, false, true, "[f(i=1, b=True, o={'x': [1, None,], \"y\": -2.5}), f()]", "", "",
	  "f {\"i\":1,\"b\":true,\"o\":{\"x\":[1,null],\"y\":-2.5}};f {};" },
	{ PYTHON, false, true, "[f(s='it\\'s\\n\\x')]\n", "", "", "f {\"s\":\"it's\\n\\\\x\"};" },
	{ PYTHON, false, true, "[g(i=1)]", "", "[g(i=1)]", "" },
	{ PYTHON, false, true, "[1, 2, 3]", "", "[1, 2, 3]", "" },
	{ PYTHON, false, true, "[f(i=1), see", "", "[f(i=1), see", "" },
	{ PYTHON, false, true, "f is (a) function", "", "f is (a) function", "" },
};

static void take(struct split *s, struct buf *thought, struct buf *content, struct buf *calls)
{
	for (int i = 0; i < s->n_piece; i++) {
		const struct piece *p = &s->piece[i];
		struct buf *to = p->kind == PIECE_THINKING ? thought : p->kind == PIECE_CONTENT ? content : calls;

		buf_put(to, s->text.p + p->at, p->n);
		if (p->kind == PIECE_CALL)
			buf_putc(calls, ' ');
		if (p->kind == PIECE_CALL_END)
			buf_putc(calls, ';');
	}
	split_taken(s);
}

static void run(size_t i, size_t step, const struct json *tools)
{
	const char *text = table[i].text;
	size_t n = strlen(text);
	struct buf thought, content, calls;
	struct template *t;
	struct split s;
	struct err err;

	template_open(&t, table[i].template ? table[i].template : "", table[i].template ? strlen(table[i].template) : 0,
	              NULL, &err);
	buf_init(&thought);
	buf_init(&content);
	buf_init(&calls);
	split_init(&s, table[i].thinking, table[i].tools ? tools : NULL, dialects_of(t));
	for (size_t at = 0; at < n; at += step) {
		split_put(&s, text + at, at + step > n ? n - at : step);
		take(&s, &thought, &content, &calls);
	}
	split_end(&s);
	take(&s, &thought, &content, &calls);
	if (strcmp(thought.p, table[i].thought) || strcmp(content.p, table[i].content) ||
	    strcmp(calls.p, table[i].calls) || s.malformed != table[i].malformed) {
		printf("\"%s\" cut at %zu: thought \"%s\", content \"%s\", calls \"%s\"%s\n", text, step, thought.p,
		       content.p, calls.p, s.malformed ? ", malformed" : "");
		failed++;
	}
	template_close(t);
	buf_fini(&thought);
	buf_fini(&content);
	buf_fini(&calls);
	split_fini(&s);
}

/* What a request can have an answer begin with is the beginning of a call. */
static void lead(const char *template, const char *name, const char *rest, const char *want, const struct json *tools)
{
	struct template *t;
	struct buf b, calls;
	struct split s;
	struct err err;

	template_open(&t, template, strlen(template), NULL, &err);
	buf_init(&b);
	buf_init(&calls);
	dialect_taught(t)->lead(&b, name);
	buf_puts(&b, rest);
	split_init(&s, false, tools, dialects_of(t));
	split_put(&s, b.p, b.n);
	split_end(&s);
	take(&s, &calls, &calls, &calls);
	if (strcmp(calls.p, want)) {
		printf("\"%s\": \"%s\"\n", b.p, calls.p);
		failed++;
	}
	split_fini(&s);
	buf_fini(&b);
	buf_fini(&calls);
	template_close(t);
}

/* ---- the toy of docs/add-a-dialect.md: "@NAME{arguments}" ---- */

static enum verdict toy_begins(const struct split *s, const struct dialect *d, const char *p, size_t n, bool over)
{
	const char *brace = memchr(p, '{', n);

	(void)over;
	if (!brace)
		return n && memchr(p, ' ', n) ? CALL_NO : CALL_MAYBE;
	return split_knows(s, p, (size_t)(brace - p)) ? CALL_YES : CALL_NO;
}

static enum progress toy_read(struct split *s, bool over)
{
	if (!s->call.stage) {
		size_t n = strcspn(s->held.p, "{");

		split_call(s, s->held.p, n);
		split_drop(s, n);
		s->call.stage = 1;
	}
	size_t n = json_extent(s->held.p, s->held.n), some = n ? n : over ? s->held.n : 0;

	if (!n && !over)
		return CALL_MORE;
	split_piece(s, PIECE_ARGUMENTS, s->held.p, some);
	split_drop(s, some);
	if (n)
		split_piece(s, PIECE_CALL_END, "", 0);
	s->malformed |= !n;
	return CALL_DONE;
}

static const struct dialect toy = { .name = "toy", .open = "@", .begins = toy_begins, .read = toy_read };

static void test_toy(const struct json *tools)
{
	static const struct dialect *const list[] = { &toy, NULL };
	static const struct {
		const char *text, *want;
		bool malformed;
	} cases[] = {
		{ "Hi @f{\"a\": \"}\"} and @f{}", "Hif {\"a\": \"}\"};andf {};", false },
		{ "me@home @ f{", "me@home @ f{", true },
		{ "@f{\"a", "f {\"a", true },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		for (size_t step = 1; step < 9; step++) {
			const char *text = cases[i].text;
			struct buf out;
			struct split s;

			buf_init(&out);
			split_init(&s, false, tools, list);
			for (size_t at = 0, n = strlen(text); at < n; at += step)
				split_put(&s, text + at, at + step > n ? n - at : step);
			split_end(&s);
			take(&s, &out, &out, &out);
			if (strcmp(out.p, cases[i].want) || s.malformed != cases[i].malformed) {
				printf("toy: \"%s\" cut at %zu: \"%s\"\n", text, step, out.p);
				failed++;
			}
			split_fini(&s);
			buf_fini(&out);
		}
	}
}

/* What can be told is told, whatever is still to come. */
static void early(const char *template, const char *text, const char *want, const struct json *tools)
{
	struct template *t;
	struct buf calls;
	struct split s;
	struct err err;

	template_open(&t, template, strlen(template), NULL, &err);
	buf_init(&calls);
	split_init(&s, false, tools, dialects_of(t));
	split_put(&s, text, strlen(text));
	take(&s, &calls, &calls, &calls);
	if (strcmp(calls.p, want)) {
		printf("early: \"%s\": \"%s\"\n", text, calls.p);
		failed++;
	}
	split_fini(&s);
	buf_fini(&calls);
	template_close(t);
}

int main(void)
{
	static const size_t steps[] = { 100000, 1, 2, 3, 7 };
	struct json *tools = json_parse(tools_text, sizeof tools_text - 1, 0, NULL);

	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		for (size_t k = 0; k < sizeof steps / sizeof *steps; k++)
			run(i, steps[k], tools);
	lead("<function=", NULL, "=f>\n</function>", "f {};", tools);
	lead("<function=", "f", "</function>", "f {};", tools);
	lead("<tool_call>", NULL, " \"f\", \"arguments\": {}}", "f {};", tools);
	lead("<tool_call>", "f", " {}}", "f {};", tools);
	lead(LLAMA, NULL, " \"f\", \"parameters\": {}}", "f {};", tools);
	lead(LLAMA, "f", " {}}", "f {};", tools);
	lead(PYTHON, NULL, "f(i=1)]", "f {\"i\":1};", tools);
	lead(PYTHON, "f", "i=1)]", "f {\"i\":1};", tools);
	test_toy(tools);
	early("<function=", "<tool_call>\n<function=f>\n<parameter=s>\nabc de", "f {\"s\":\"abc de", tools);
	early("<tool_call>", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"abc", "f {\"s\": \"abc", tools);
	early(LLAMA, "{\"name\": \"f\", \"parameters\": {\"s\": \"abc", "f {\"s\": \"abc", tools);
	early(LLAMA, "{\"answer\": 4", "{\"answer\": 4", tools);
	early("<function=", "So <b", "So <b", tools);
	if (!split_opens(&speech_plain, "a<think>\n", 9) || split_opens(&speech_plain, "<think>\n\n</think>\n", 18) ||
	    split_opens(&speech_plain, "", 0)) {
		printf("split_opens\n");
		failed++;
	}
	json_free(tools);
	return failed != 0;
}
