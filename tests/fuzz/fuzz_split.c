/* An answer's text into thinking, content and calls: cutting it elsewhere changes
 * nothing, and what came out can be sent.  The first byte seeds the cuts and says
 * whether tools and an open thought are there. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/split.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char tools_text[] =
	"[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{"
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

static void same(const struct buf *a, const struct buf *b)
{
	if (a->n != b->n || memcmp(a->p, b->p, a->n))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct json *tools;
	struct split whole, cut;

	if (!tools)
		tools = json_parse(tools_text, sizeof tools_text - 1, 0, NULL);
	if (!size)
		return 0;
	split_init(&whole, data[0] & 1, data[0] & 2 ? tools : NULL);
	split_init(&cut, data[0] & 1, data[0] & 2 ? tools : NULL);
	run(&whole, (const char *)data + 1, size - 1, 0);
	run(&cut, (const char *)data + 1, size - 1, 1 + data[0] * 2654435761u);
	same(&whole.thinking, &cut.thinking);
	same(&whole.content, &cut.content);
	/* Ids are random, but of one length. */
	if (whole.n_call != cut.n_call || whole.calls.n != cut.calls.n)
		abort();
	if (whole.n_call) {
		struct buf b;
		struct json *j;

		buf_init(&b);
		buf_printf(&b, "[%s]", whole.calls.p);
		if (!(j = json_parse(b.p, b.n, 0, NULL)) || (int)json_len(j) != whole.n_call)
			abort();
		json_free(j);
		buf_fini(&b);
	}
	split_fini(&whole);
	split_fini(&cut);
	return 0;
}
