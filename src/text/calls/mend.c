/* mend.c - JSON as models write it: nearly.  What is JSON comes out as it is; of the rest, what can be meant in one way only
 * becomes JSON, as it comes:
 *
 *     'a "b"'                 a string between Python's marks
 *     True False None         Python's words
 *     [1, 2,]  {"a": 1,}      a comma before an end
 *     a line break in a string, and a backslash before what needs none, as regular expressions and paths have them
 *
 * The rest is left alone; whether all of it is JSON then tells the parser. */
#include <string.h>

#include "text/calls/dialect.h"

enum { BLANKS_MAX = 64, NEST_MAX = 200 }; /* BLANKS_MAX: most blanks behind a comma that are held back */

static const struct {
	const char *python, *json;
} words[] = { { "True", "true" }, { "False", "false" }, { "None", "null" } };

/* A word of Python's at p; returns its bytes, or 0.  *maybe: more text will tell. */
static size_t python_word(const char *p, size_t n, bool over, bool *maybe, struct buf *out)
{
	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		enum verdict v = text_match(p, n, words[i].python);

		*maybe |= v == CALL_MAYBE && !over;
		if (v != CALL_YES)
			continue;
		buf_puts(out, words[i].json);
		return strlen(words[i].python);
	}
	return 0;
}

/* A comma: it is left off before the end of a list or an object. */
static size_t comma(const char *p, size_t n, bool over, bool *maybe, struct buf *out)
{
	size_t k = 1 + blanks(p + 1, n - 1);

	*maybe = k == n && !over && k <= BLANKS_MAX;
	if (*maybe)
		return 0;
	if (k == n || k > BLANKS_MAX || !strchr("}]", p[k]))
		buf_putc(out, ',');
	return 1;
}

/* Behind a backslash in a string. */
static size_t escape(const char *p, size_t n, bool over, bool *maybe, struct buf *out)
{
	*maybe = n < 2 && !over;
	if (n < 2) {
		buf_put(out, p, *maybe ? 0 : n);
		return *maybe ? 0 : n;
	}
	if (strchr("\"\\/bfnrtu", p[1]) && p[1]) {
		buf_put(out, p, 2);
		return 2;
	}
	if (p[1] == '\'') {
		buf_putc(out, '\'');
		return 2;
	}
	buf_puts(out, "\\\\");
	return 1;
}

static size_t in_string(struct mend *m, const char *p, size_t n, bool over, bool *maybe, struct buf *out)
{
	if (*p == '\\')
		return escape(p, n, over, maybe, out);
	if (*p == m->quote) {
		buf_putc(out, '"');
		m->quote = 0;
	} else if (*p == '"' || (unsigned char)*p < 0x20) {
		json_put_inside(out, p, 1);
	} else {
		buf_putc(out, *p);
	}
	return 1;
}

size_t mend(struct mend *m, const char *p, size_t n, bool over, struct buf *out)
{
	size_t i = 0;

	while (i < n && !m->closed) {
		bool maybe = false;
		size_t used;

		if (m->quote)
			used = in_string(m, p + i, n - i, over, &maybe, out);
		else if (p[i] == ',')
			used = comma(p + i, n - i, over, &maybe, out);
		else
			used = python_word(p + i, n - i, over, &maybe, out);
		if (maybe && !used)
			break;
		if (used) {
			i += used;
			continue;
		}
		if (p[i] == '"' || p[i] == '\'') {
			m->quote = p[i];
			buf_putc(out, '"');
			i++;
			continue;
		}
		m->depth += p[i] == '{' || p[i] == '[';
		m->closed = (p[i] == '}' || p[i] == ']') && (!m->depth || !--m->depth);
		buf_putc(out, p[i++]);
	}
	return i;
}

struct json *json_mended(const char *p, size_t n)
{
	struct json *j = json_parse(p, n, NEST_MAX, NULL);
	struct mend m = { 0 };
	struct buf b;
	size_t at = blanks(p, n);

	if (j || at == n || !strchr("{[", p[at]))
		return j;
	buf_init(&b);
	at += mend(&m, p + at, n - at, true, &b);
	if (m.closed && at + blanks(p + at, n - at) == n)
		j = json_parse(b.p, b.n, NEST_MAX, NULL);
	buf_fini(&b);
	return j;
}
