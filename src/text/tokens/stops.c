/* stops.c - see stops.h.  One Knuth-Morris-Pratt matcher per stop string. */
#include "text/tokens/stops.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"

struct stop {
	char *p;
	uint16_t *fail; /* fail[k]: the longest border of p[0..k) */
	size_t n;
	size_t matched; /* the text ends in p[0..matched) */
};

static void stop_open(struct stop *st, const char *p, size_t n)
{
	*st = (struct stop){ xstrndup(p, n), xcalloc(n + 1, sizeof *st->fail), n, 0 };
	for (size_t i = 1, k = 0; i < n; i++) {
		while (k && p[i] != p[k])
			k = st->fail[k];
		k += p[i] == p[k];
		st->fail[i + 1] = (uint16_t)k;
	}
}

/* True when the stop is complete with this byte. */
static bool stop_step(struct stop *st, char c)
{
	size_t k = st->matched;

	while (k && c != st->p[k])
		k = st->fail[k];
	st->matched = k + (c == st->p[k]);
	return st->matched == st->n;
}

int stops_init(struct stops *s, const char *const *text, const size_t *len, int n, struct err *err)
{
	*s = (struct stops){ .hit = -1 };
	buf_init(&s->held);
	if (n > STOPS_MAX)
		return err_set(err, E_LIMIT, "stop: %d strings, more than %d", n, STOPS_MAX);
	if (n)
		s->stop = xcalloc((size_t)n, sizeof *s->stop);
	for (int i = 0; i < n; i++) {
		int e = 0;

		if (!len[i])
			e = err_set(err, E_ARG, "stop[%d]: must not be empty", i);
		else if (len[i] > STOP_BYTES_MAX)
			e = err_set(err, E_LIMIT, "stop[%d]: %zu bytes, more than %d", i, len[i], STOP_BYTES_MAX);
		else if (utf8_valid(text[i], len[i]) < len[i])
			e = err_set(err, E_ARG, "stop[%d]: invalid UTF-8 at byte %zu", i, utf8_valid(text[i], len[i]));
		if (e) {
			stops_fini(s);
			return e;
		}
		stop_open(&s->stop[s->n++], text[i], len[i]);
	}
	return 0;
}

void stops_fini(struct stops *s)
{
	for (int i = 0; i < s->n; i++) {
		free(s->stop[i].p);
		free(s->stop[i].fail);
	}
	free(s->stop);
	buf_fini(&s->held);
	*s = (struct stops){ .hit = -1 };
	buf_init(&s->held);
}

void stops_reset(struct stops *s)
{
	for (int i = 0; i < s->n; i++)
		s->stop[i].matched = 0;
	buf_reset(&s->held);
	s->hit = -1;
}

bool stops_put(struct stops *s, const char *text, size_t n, struct buf *out)
{
	size_t keep = 0;

	if (s->hit >= 0 || !s->n) {
		if (s->hit < 0)
			buf_put(out, text, n);
		return s->hit >= 0;
	}
	for (size_t i = 0; i < n; i++) {
		for (int k = 0; k < s->n; k++)
			if (stop_step(&s->stop[k], text[i]) && (s->hit < 0 || s->stop[k].n > s->stop[s->hit].n))
				s->hit = k;
		if (s->hit >= 0) {
			buf_put(&s->held, text, i + 1);
			buf_put(out, s->held.p, s->held.n - s->stop[s->hit].n);
			buf_reset(&s->held);
			return true;
		}
	}
	for (int k = 0; k < s->n; k++)
		if (s->stop[k].matched > keep)
			keep = s->stop[k].matched;
	buf_put(&s->held, text, n);
	buf_put(out, s->held.p, s->held.n - keep);
	buf_drop(&s->held, s->held.n - keep);
	return false;
}

void stops_flush(struct stops *s, struct buf *out)
{
	if (s->hit < 0)
		buf_put(out, s->held.p, s->held.n);
	buf_reset(&s->held);
}
