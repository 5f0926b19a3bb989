/* An answer's text into thinking, content and calls: cutting it elsewhere changes
 * nothing, and calls are JSON.  The first byte seeds the cuts and says whether tools
 * and an open thought are there, and, from its third bit on, which dialects are spoken. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/calls/dialect.h"
#include "text/calls/split.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char tools_text[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{"
				 "\"i\":{\"type\":\"integer\"},\"s\":{\"type\":\"string\"}}}}}]";

static void run(struct split *s, const char *p, size_t n, uint32_t cut)
{
	size_t at = 0;

	while (at < n) {
		size_t len = n - at;

		if (cut) {
			cut = cut * 1664525 + 1013904223;
			if (len > (cut >> 20) % 13 + 1)
				len = (cut >> 20) % 13 + 1;
		}
		split_put(s, p + at, len);
		at += len;
	}
	split_end(s);
}

/* The pieces joined: 't' thinking, 'c' content, 'n' name, 'a' arguments, 'e' end. */
static void join(const struct split *s, struct buf *out)
{
	int last = -1;

	for (int i = 0; i < s->n_piece; i++) {
		const struct piece *p = &s->piece[i];

		if ((int)p->kind != last || p->kind == PIECE_CALL)
			buf_putc(out, "\1\2\3\4\5"[p->kind]);
		last = (int)p->kind;
		buf_put(out, s->text.p + p->at, p->n);
	}
}

/* What is whole and not malformed is JSON. */
static void check(const struct split *s)
{
	for (int i = 0; i + 1 < s->n_piece; i++) {
		struct json *j;

		if (s->piece[i].kind == PIECE_CALL && s->piece[i + 1].kind != PIECE_ARGUMENTS)
			abort();
		if (s->malformed || s->piece[i].kind != PIECE_ARGUMENTS || s->piece[i + 1].kind != PIECE_CALL_END)
			continue;
		j = json_parse(s->text.p + s->piece[i].at, s->piece[i].n, 200, NULL);
		if (json_kind(j) != JSON_OBJECT)
			abort();
		json_free(j);
	}
	if (s->n_whole > s->n_call || (s->n_whole < s->n_call && !s->malformed))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const says[] = {
		"<function=",
		"<tool_call>",
		"Environment: ipython",
		"[func_name1(",
		"<|channel|>commentary",
		"<|tool_call>",
		"<minimax:tool_call>",
		"<seed:tool_call>",
		"\xef\xbd\x9c"
		"DSML\xef\xbd\x9c",
		"tool\xe2\x96\x81"
		"call\xe2\x96\x81"
		"begin",
		"<|tool_call_begin|>",
		"<arg_key>",
		"</arg_key><arg_value>",
		"[ARGS]",
		"[TOOL_CALLS]",
		"<|START_ACTION|>",
		"<|tools_prefix|>",
		"<|tool_call_start|>",
		"<TOOLCALL>",
		"<|tool_call|>",
		"<tool_calls>",
		"<function_calls>invoke",
		"<function=example_function_name>{",
	};
	enum { N = sizeof says / sizeof *says };
	static struct template *t[N];
	const struct dialect *const *spoken;
	static struct json *tools;
	struct split whole, cut;
	struct buf a, b;

	if (!tools)
		tools = json_parse(tools_text, sizeof tools_text - 1, 0, NULL);
	for (int i = 0; i < N && !t[i]; i++)
		template_open(&t[i], says[i], strlen(says[i]), NULL, NULL);
	if (!size)
		return 0;
	buf_init(&a);
	buf_init(&b);
	spoken = dialects_of(t[(data[0] >> 2) % N]);
	split_init(&whole, data[0] & 1, data[0] & 2 ? tools : NULL, spoken);
	split_init(&cut, data[0] & 1, data[0] & 2 ? tools : NULL, spoken);
	run(&whole, (const char *)data + 1, size - 1, 0);
	run(&cut, (const char *)data + 1, size - 1, 1 + data[0] * 2654435761u);
	check(&whole);
	check(&cut);
	join(&whole, &a);
	join(&cut, &b);
	if (a.n != b.n || memcmp(a.p, b.p, a.n) || whole.malformed != cut.malformed)
		abort();
	split_fini(&whole);
	split_fini(&cut);
	buf_fini(&a);
	buf_fini(&b);
	return 0;
}
