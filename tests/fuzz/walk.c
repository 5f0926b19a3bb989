/* walk.c - see walk.h. */
#include "walk.h"

#include <stdlib.h>
#include <string.h>

/* Tokens: all bytes, and some longer pieces. */
static const char *token(void *ctx, int32_t id, size_t *n)
{
	static const char *const more[] = { "ab", "aab", "\",", "{\"", "\": ", "  ", "12", "\n\n", "abab", "name" };
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
enum { N_TOKEN = 266 };

static void check_mask(struct matcher *m, const struct vocab *v)
{
	uint32_t mask[(N_TOKEN + 31) / 32];

	memcpy(mask, matcher_mask(m, v), sizeof mask);
	for (int i = 0; i < N_TOKEN; i++) {
		size_t n;
		const char *p = token(NULL, i, &n);
		bool in = mask[i / 32] >> i % 32 & 1, can = matcher_put(m, p, n);

		if (can)
			matcher_back(m, 1);
		if (in && !can)
			abort();
	}
}

void walk_grammar(struct grammar *g, const char *text, size_t size)
{
	static struct vocab *v;
	struct matcher *m = matcher_new(g);

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
}
