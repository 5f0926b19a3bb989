/* detok.c - see detok.h. */
#include "text/tokens/detok.h"

#include <string.h>

#include "base/utf8.h"

static const char replacement[] = "\xEF\xBF\xBD";

void detok_init(struct detok *d, const struct tokenizer *t, bool skip_special)
{
	*d = (struct detok){ .t = t, .skip_special = skip_special, .strip = tokenizer_begin_strip(t) };
}

/* Length of the longest beginning of a character at p[0..n), of which p[0..n) is
 * known not to be a whole one; at least 1. */
static size_t broken_length(const char *p, size_t n)
{
	for (size_t k = n < 3 ? n : 3; k > 1; k--)
		if (utf8_incomplete_tail(p, k) == k)
			return k;
	return 1;
}

/* Bytes that begin inside a held character. */
static size_t finish_held(struct detok *d, const char *p, size_t n, struct buf *out)
{
	size_t used = 0;
	uint32_t cp;

	while (d->n_held && used < n) {
		d->held[d->n_held] = p[used];
		size_t have = (size_t)d->n_held + 1;

		if (utf8_decode(d->held, have, &cp)) {
			buf_put(out, d->held, have);
			d->n_held = 0;
			used++;
		} else if (utf8_incomplete_tail(d->held, have) == have) {
			d->n_held++;
			used++;
		} else {
			/* The byte begins something new. */
			buf_puts(out, replacement);
			d->n_held = 0;
		}
	}
	return used;
}

void detok_put(struct detok *d, int32_t id, struct buf *out)
{
	size_t n, i, start, tail;
	const char *p = tokenizer_token_bytes(d->t, id, &n);
	uint32_t cp;
	int len;

	if (!p || (d->skip_special && tokenizer_is_special(d->t, id)))
		return;
	for (; n && d->strip && *p == ' '; d->strip--) {
		p++;
		n--;
	}
	if (n)
		d->strip = 0;
	i = start = finish_held(d, p, n, out);
	tail = utf8_incomplete_tail(p + i, n - i);
	n -= tail;
	while (i < n) {
		if ((len = utf8_decode(p + i, n - i, &cp))) {
			i += (size_t)len;
			continue;
		}
		buf_put(out, p + start, i - start);
		buf_puts(out, replacement);
		i += broken_length(p + i, n - i);
		start = i;
	}
	buf_put(out, p + start, n - start);
	if (tail) {
		memcpy(d->held, p + n, tail);
		d->n_held = (int)tail;
	}
}

void detok_flush(struct detok *d, struct buf *out)
{
	if (d->n_held)
		buf_puts(out, replacement);
	d->n_held = 0;
	d->strip = tokenizer_begin_strip(d->t);
}
