/* Grammars of rules, and regular expressions.  What compiles is walked by the input's
 * own bytes, and never stands where nothing may follow; what a mask allows is taken. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/grammar/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Tokens: all bytes, and some longer pieces. */
static const char *token(void *ctx, int32_t id, size_t *n)
{
	static const char *const more[] = { "ab", "aab", "\",", "{\"", "  ", "12", "\n\n", "abab" };
	static char bytes[256];

	(void)ctx;
	if (id >= 256) {
		*n = strlen(more[id - 256]);
		return more[id - 256];
	}
	bytes[id] = (char)id;
	*n = 1;
	return &bytes[id];
}
enum { N_TOKEN = 264 };

static void check_mask(struct matcher *m, const struct vocab *v)
{
	const uint32_t *mask = matcher_mask(m, v);

	for (int i = 0; i < N_TOKEN; i++) {
		size_t n;
		const char *p = token(NULL, i, &n);

		if (!(mask[i / 32] >> i % 32 & 1))
			continue;
		if (!matcher_put(m, p, n))
			abort();
		matcher_back(m, 1);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data + 1;
	struct grammar *g;
	struct matcher *m;
	static struct vocab *v;
	struct err err;

	if (!size)
		return 0;
	size--;
	if (*data % 4 == 3 ? grammar_compile_regex(text, size, &g, &err) : grammar_compile_gbnf(text, size, &g, &err))
		return 0;
	m = matcher_new(g);
	grammar_unref(g);
	v = v ? v : vocab_new(N_TOKEN, token, NULL);
	for (size_t i = 0; i < size && i < 300 && !matcher_whole(m); i++) {
		int c = 0;

		if (i % 16 == 0)
			check_mask(m, v);
		/* The next byte of the input that may come, or any. */
		if (matcher_put(m, text + i, 1))
			continue;
		for (; c < 256; c++) {
			char b = (char)(c + text[i]);

			if (matcher_put(m, &b, 1))
				break;
		}
		if (c == 256 && !matcher_complete(m))
			abort();
		if (c == 256)
			break;
	}
	matcher_free(m);
	return 0;
}
