/* The splitter: thinking, content and calls, the same however the text is cut. */
#include <stdio.h>
#include <string.h>

#include "server/split.h"

static int failed;

static const char tools_text[] =
	"[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{"
	"\"i\":{\"type\":\"integer\"},\"s\":{\"type\":\"string\"},\"o\":{\"type\":\"object\"}}}}}]";

#define CALL(args) "<tool_call>\n<function=f>\n" args "</function>\n</tool_call>"
#define ARG(k, v) "<parameter=" k ">\n" v "\n</parameter>\n"

static const struct {
	bool thinking, tools;
	const char *text, *thought, *content, *calls;   /* calls: "name arguments;" of each */
} table[] = {
	{ false, false, "plain", "", "plain", "" },
	{ false, false, " two  words\n", "", " two  words\n", "" },
	{ true, false, "hm\n</think>\n\nyes", "hm", "yes", "" },
	{ true, false, "\nhm\n\nhm </think>yes\n", "hm\n\nhm", "yes\n", "" },
	{ true, false, "never ends\n", "never ends", "", "" },
	{ true, false, "a </thin b", "a </thin b", "", "" },
	{ true, false, "</think>\n\nyes", "", "yes", "" },
	{ true, false, "a</think>b</think>c", "a", "b</think>c", "" },
	{ false, false, "<think>\nhm\n</think>\n\nyes", "hm", "yes", "" },
	{ false, false, "\n <think>hm</think>yes", "hm", "yes", "" },
	{ false, false, "a <think>b</think>", "", "a <think>b</think>", "" },
	{ false, false, "<thing>", "", "<thing>", "" },
	{ false, false, "<thi", "", "<thi", "" },
	{ false, false, CALL(""), "", CALL(""), "" },
	{ false, true, CALL(""), "", "", "f {};" },
	{ false, true, "So:\n\n" CALL(ARG("i", "5") ARG("s", "5")), "", "So:", "f {\"i\":5,\"s\":\"5\"};" },
	{ false, true, CALL(ARG("s", "a\nb\n")), "", "", "f {\"s\":\"a\\nb\\n\"};" },
	{ false, true, CALL(ARG("s", "x <b> y")), "", "", "f {\"s\":\"x <b> y\"};" },
	{ false, true, CALL(ARG("o", "{\"x\": [1.0, null]}")), "", "", "f {\"o\":{\"x\":[1.0,null]}};" },
	{ false, true, CALL(ARG("i", "five")), "", "", "f {\"i\":\"five\"};" },
	{ false, true, CALL(ARG("i", "null")), "", "", "f {\"i\":null};" },
	{ false, true, CALL(ARG("z", "7")), "", "", "f {\"z\":\"7\"};" },
	{ false, true, CALL("") "\n" CALL(ARG("i", "1")), "", "", "f {};f {\"i\":1};" },
	{ false, true, CALL("") "\nand so", "", "and so", "f {};" },
	{ false, true, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"i\": 1}}\n</tool_call>", "", "", "f {\"i\":1};" },
	{ false, true, "<tool_call>{\"name\": \"f\"}</tool_call>", "", "", "f {};" },
	{ false, true, "<tool_call>{\"name\": 5}</tool_call>", "", "<tool_call>{\"name\": 5}</tool_call>", "" },
	{ false, true, "a <tool_call>junk</tool_call> b", "", "a <tool_call>junk</tool_call> b", "" },
	{ false, true, "a <tool_call>junk", "", "a <tool_call>junk", "" },
	{ false, true, "<tool_call>\n<function=f>\n</function>", "", "", "f {};" },
	{ false, true, "<tool_call>\n<function=f>\n<parameter=i>\n5", "", "<tool_call>\n<function=f>\n<parameter=i>\n5", "" },
	{ false, true, "a < b <tool b \n", "", "a < b <tool b \n", "" },
	{ true, true, "hm</think>\n\n" CALL(""), "hm", "", "f {};" },
	{ true, true, "<tool_call></think>x", "<tool_call>", "x", "" },
};

static void run(size_t i, size_t step, const struct json *tools)
{
	const char *text = table[i].text;
	size_t n = strlen(text);
	struct split s;
	struct buf thought, content, calls;

	buf_init(&thought);
	buf_init(&content);
	buf_init(&calls);
	split_init(&s, table[i].thinking, table[i].tools ? tools : NULL);
	for (size_t at = 0; at <= n; at += step) {
		if (at + step > n) {
			split_put(&s, text + at, n - at);
			split_end(&s);
		} else {
			split_put(&s, text + at, step);
		}
		buf_put(&thought, s.thinking.p, s.thinking.n);
		buf_put(&content, s.content.p, s.content.n);
		if (s.calls.n) {
			buf_putc(&calls, calls.n ? ',' : '[');
			buf_put(&calls, s.calls.p, s.calls.n);
		}
		buf_reset(&s.thinking);
		buf_reset(&s.content);
		buf_reset(&s.calls);
	}
	struct buf got;
	struct json *j = NULL;

	buf_init(&got);
	if (calls.n) {
		buf_putc(&calls, ']');
		j = json_parse(calls.p, calls.n, 0, NULL);
	}
	for (size_t k = 0; k < json_len(j); k++) {
		const struct json *f = json_get(json_at(j, k), "function");
		size_t len;

		buf_printf(&got, "%s ", json_str(json_get(f, "name"), &len));
		buf_printf(&got, "%s;", json_str(json_get(f, "arguments"), &len));
	}
	if (strcmp(thought.p, table[i].thought) || strcmp(content.p, table[i].content) || strcmp(got.p, table[i].calls)) {
		printf("\"%s\" cut at %zu: thought \"%s\", content \"%s\", calls \"%s\"\n", text, step, thought.p, content.p,
		       got.p);
		failed++;
	}
	json_free(j);
	buf_fini(&got);
	buf_fini(&thought);
	buf_fini(&content);
	buf_fini(&calls);
	split_fini(&s);
}

int main(void)
{
	static const size_t steps[] = { 100000, 1, 2, 3, 7 };
	struct json *tools = json_parse(tools_text, sizeof tools_text - 1, 0, NULL);

	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		for (size_t k = 0; k < sizeof steps / sizeof *steps; k++)
			run(i, steps[k], tools);
	if (!split_opens("a<think>\n", 9) || split_opens("<think>\n\n</think>\n", 18) || split_opens("", 0)) {
		printf("split_opens\n");
		failed++;
	}
	json_free(tools);
	return failed != 0;
}
