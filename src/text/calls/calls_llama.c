/* calls_llama.c - calls as the Llama 3.1, 3.2 and 3.3 templates teach them: the
 * whole answer is
 *
 *     {"name": NAME, "parameters": {...}}
 *
 * or several of these with ';' between them, after <|python_tag|> or not. */
#include <string.h>

#include "text/calls/dialect.h"

static const char *const keys[] = { "\"parameters\"", "\"arguments\"", NULL };
/* Texts that may come before the call, and after it: Llama 4 has tags of its own, and small models write a fence. */
static const char *const before[] = { "<|python_tag|>", "<|python_start|>", "```json\n", NULL };
static const char *const behind[] = { "<|python_end|>", "```", NULL };

/* Whether the text begins with a member of list; MAYBE while more bytes decide. */
static enum verdict one_of(const char *const *list, const char *p, size_t n, const char **found)
{
	bool maybe = false;

	for (; *list; list++) {
		enum verdict v = text_match(p, n, *list);

		*found = *list;
		if (v == CALL_YES)
			return v;
		maybe |= v == CALL_MAYBE;
	}
	return maybe ? CALL_MAYBE : CALL_NO;
}

/* Bytes of blanks, the tag and blanks.  MAYBE: the text ends within the tag. */
static enum verdict skip_tag(const char *p, size_t n, size_t *at)
{
	enum verdict v;

	*at = blanks(p, n);
	if (*at == n)
		return CALL_MAYBE;
	if (p[*at] == '<' || p[*at] == '`') {
		const char *found;

		if ((v = one_of(before, p + *at, n - *at, &found)) != CALL_YES)
			return v;
		*at += strlen(found);
		*at += blanks(p + *at, n - *at);
	}
	return *at < n ? CALL_YES : CALL_MAYBE;
}

/* Other answers in JSON should not wait for their end: is the first key, or its
 * part that is there, one of a call's? */
static bool own_key(const char *p, size_t n)
{
	static const char *const own[] = { "\"name\"", "\"type\"", "\"parameters\"", "\"arguments\"",
		                           "'name'",   "'type'",   "'parameters'",   "'arguments'" };
	size_t at = blanks(p, n);

	for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
		size_t len = strlen(own[i]);

		if (!memcmp(p + at, own[i], n - at < len ? n - at : len))
			return true;
	}
	return false;
}

static enum verdict begins(const struct split *s, const struct dialect *d, const char *p, size_t n, bool over)
{
	const char *name;
	size_t n_name, at, k;
	enum verdict v = skip_tag(p, n, &at);

	(void)over;
	if (v != CALL_YES)
		return v;
	if (p[at] != '{')
		return CALL_NO;
	v = json_call_head(p + at, n - at, keys, &name, &n_name, &k);
	if (v != CALL_NO || !own_key(p + at + 1, n - at - 1))
		return v;
	if (!(k = json_extent(p + at, n - at)))
		return CALL_MAYBE;
	return json_call_whole((struct split *)s, p + at, k, keys, false) ? CALL_YES : CALL_NO;
}

static enum progress read_call(struct split *s, bool over)
{
	const char *end;
	size_t at;

	if (!s->call.stage) {
		skip_tag(s->held.p, s->held.n, &at);
		split_drop(s, at);
	}
	if (json_call_read(s, keys, over) == CALL_MORE)
		return CALL_MORE;
	/* Only blanks may follow, or ';' and another one. */
	at = blanks(s->held.p, s->held.n);
	if (at == s->held.n)
		return over ? CALL_DONE : CALL_MORE;
	switch (one_of(behind, s->held.p + at, s->held.n - at, &end)) {
	case CALL_YES: split_drop(s, at + strlen(end)); return CALL_DONE;
	case CALL_MAYBE:
		if (!over)
			return CALL_MORE;
		break;
	case CALL_NO: break;
	}
	if (s->held.p[at] == ';') {
		split_drop(s, at + 1);
		s->content_begun = false; /* a call may begin here, too */
	} else {
		s->malformed = true;
	}
	return CALL_DONE;
}

static void lead(struct buf *out, const char *function)
{
	buf_puts(out, "{\"name\":");
	if (function)
		buf_printf(out, " \"%s\", \"parameters\":", function);
}

const struct dialect dialect_llama = {
	.name = "llama",
	.open = "",
	.begins = begins,
	.read = read_call,
	.lead = lead,
};
