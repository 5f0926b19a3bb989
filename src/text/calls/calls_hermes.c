/* calls_hermes.c - calls as Hermes and the Qwen2.5 and Qwen3 templates teach them:
 *
 *     <tool_call>
 *     {"name": NAME, "arguments": {...}}
 *     </tool_call>
 *
 * In that order the arguments are passed on as they are written; in another one
 * the call is read when it is whole. */
#include <string.h>

#include "text/calls/dialect.h"

static const char *const keys[] = { "\"arguments\"", "\"parameters\"", NULL };
static const char call_end[] = "</tool_call>";

static enum verdict begins(const struct split *s, const struct dialect *d, const char *p, size_t n, bool over)
{
	const char *name;
	size_t n_name, at = blanks(p, n), k;
	enum verdict v;

	if (at == n)
		return CALL_MAYBE;
	if (p[at] != '{')
		return CALL_NO;
	v = json_call_head(p + at, n - at, keys, &name, &n_name, &k);
	if (v != CALL_NO)
		return v;
	if (!(k = json_extent(p + at, n - at)))
		return CALL_MAYBE;
	(void)over;
	return json_call_whole((struct split *)s, p + at, k, keys, false) ? CALL_YES : CALL_NO;
}

/* Up to the closing tag, which may be missing at the end of the text. */
static enum progress tail(struct split *s, bool over)
{
	size_t at = blanks(s->held.p, s->held.n), n = s->held.n - at, len = strlen(call_end);

	if (n < len && !memcmp(s->held.p + at, call_end, n) && !over)
		return CALL_MORE;
	if (n >= len && !memcmp(s->held.p + at, call_end, len))
		split_drop(s, at + len);
	else if (n)
		s->malformed = true;
	return CALL_DONE;
}

static enum progress read_call(struct split *s, bool over)
{
	if (!s->call.stage)
		split_drop(s, blanks(s->held.p, s->held.n));
	return json_call_read(s, keys, over) == CALL_MORE ? CALL_MORE : tail(s, over);
}

static void lead(struct buf *out, const char *function)
{
	buf_puts(out, "<tool_call>\n{\"name\":");
	if (function)
		buf_printf(out, " \"%s\", \"arguments\":", function);
}

const struct dialect dialect_hermes = {
	.name = "hermes",
	.open = "<tool_call>",
	.begins = begins,
	.read = read_call,
	.lead = lead,
};
