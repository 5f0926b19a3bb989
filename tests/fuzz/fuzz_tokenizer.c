/* A tokenizer.json, a 0 byte and a text: what opens must encode the text, or refuse
 * it, within bounds, and its tokens must decode the same in one go and one by one.
 * Input that begins with # is parts for the toy tokenizer instead, each ended by a 0
 * byte, so that the fuzzer need not keep 256 entries of a vocabulary intact. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/tokens/detok.h"
#include "text/tokens/stops.h"
#include "text/tokens/tokenizer.h"
#include "../text/toy_tokenizer.h"
#include "mutate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

const char *mutate_choice(unsigned i, const char **key)
{
	static const char *const types[] = {
		"\"BPE\"",          "\"WordPiece\"", "\"Unigram\"",   "\"WordLevel\"",
		"\"Sequence\"",     "\"ByteLevel\"", "\"Metaspace\"", "\"Split\"",
		"\"Digits\"",       "\"Replace\"",   "\"Strip\"",     "\"Fuse\"",
		"\"ByteFallback\"", "\"Prepend\"",   "\"NFC\"",       "\"TemplateProcessing\""
	};

	*key = "type";
	return types[i % (sizeof types / sizeof *types)];
}

/* Feeding token by token must give what the whole gives, in whole characters. */
static void check_decode(const struct tokenizer *t, const struct tokens *v, struct buf *whole)
{
	struct detok d;
	struct buf b;

	buf_init(&b);
	detok_init(&d, t, false);
	for (size_t i = 0; i < v->n; i++) {
		if (v->id[i] < 0 || v->id[i] >= tokenizer_size(t))
			abort();
		detok_put(&d, v->id[i], &b);
		if (utf8_valid(b.p, b.n) < b.n)
			abort();
	}
	detok_flush(&d, &b);
	if (b.n != whole->n || memcmp(b.p, whole->p, b.n))
		abort();
	buf_fini(&b);
}

static void check_stops(const char *text, size_t n, const struct buf *from)
{
	const char *stop[2] = { text, text + n / 2 };
	size_t len[2] = { n / 2, n - n / 2 };
	struct stops s;
	struct buf out;

	if (stops_init(&s, stop, len, 2, NULL))
		return;
	buf_init(&out);
	for (size_t i = 0; i < from->n; i++)
		stops_put(&s, from->p + i, 1, &out);
	stops_flush(&s, &out);
	if (out.n > from->n || memcmp(out.p, from->p, out.n) || (s.hit < 0 && out.n != from->n))
		abort();
	buf_fini(&out);
	stops_fini(&s);
}

/* The next part of p[*at..n), NULL when it is empty or not ended. */
static const char *part(const char *p, size_t n, size_t *at)
{
	const char *s = p + *at, *end = memchr(s, 0, n - *at);

	if (!end)
		return NULL;
	*at = (size_t)(end - p) + 1;
	return end > s ? s : NULL;
}

static void check(const char *json, size_t n_json, const char *text, size_t n)
{
	struct text_range user = { n / 3, n - n / 3 };
	struct tokenizer *t;
	struct tokens v;
	struct buf b;

	if (tokenizer_open(&t, json, n_json, NULL))
		return;
	tokens_init(&v);
	buf_init(&b);
	for (unsigned flags = 0; flags < 4; flags++) {
		tokens_reset(&v);
		if (tokenizer_encode_ranges(t, text, n, flags, &user, flags & 1, &v, NULL))
			continue;
		buf_reset(&b);
		tokenizer_decode(t, v.id, v.n, false, &b);
		check_decode(t, &v, &b);
		check_stops(text, n, &b);
	}
	buf_fini(&b);
	tokens_fini(&v);
	tokenizer_close(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *p = (const char *)data;
	size_t at = 1;

	if (size && p[0] == '#') {
		struct toy toy = { 0 };
		struct buf b;

		toy.pre = part(p, size, &at);
		toy.added = part(p, size, &at);
		toy.normalizer = part(p, size, &at);
		toy.post = part(p, size, &at);
		toy.model = part(p, size, &at);
		toy.vocab = part(p, size, &at);
		toy.merges = part(p, size, &at);
		toy.decoder = part(p, size, &at);
		buf_init(&b);
		toy_write(&b, &toy);
		check(b.p, b.n, p + at, size - at);
		buf_fini(&b);
	} else {
		for (at = 0; at < size && p[at]; at++)
			;
		check(p, at, p + at + (at < size), size - at - (at < size));
	}
	return 0;
}
