/* calls_python.c - calls written as Python, which are the whole answer:
 *
 *     [NAME(key=value, ...), NAME(...)]               Llama 3.2 and 4, when asked for it
 *     <|python_tag|>NAME.call(key="value", ...)       Llama 3.1, of functions it was trained on
 *     <|tool_call_start|>[NAME(key=value, ...)]<|tool_call_end|>      LFM2; and Olmo 3 between its own tags
 *
 * Values are Python's literals and become JSON when a call is whole. */
#include <string.h>

#include "text/calls/dialect.h"

enum { NEST_MAX = 32, NAME_MAX_BYTES = 200 };

static const char python_tag[] = "<|python_tag|>";

struct reader {
	const char *p, *end;
	bool cut; /* the text ended where more was expected */
};

static void skip(struct reader *r)
{
	r->p += blanks(r->p, (size_t)(r->end - r->p));
}

static bool at_end(struct reader *r)
{
	if (r->p < r->end)
		return false;
	r->cut = true;
	return true;
}

static bool python_char(struct reader *r, char c)
{
	skip(r);
	if (at_end(r) || *r->p != c)
		return false;
	r->p++;
	return true;
}

static bool word_char(char c, bool first)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
	       (!first && ((c >= '0' && c <= '9') || c == '-'));
}

/* A name, with dots and dashes for functions. */
static size_t word(struct reader *r, const char **name, bool dots)
{
	skip(r);
	*name = r->p;
	while (r->p < r->end && (word_char(*r->p, r->p == *name) || (dots && *r->p == '.' && r->p > *name)))
		r->p++;
	if (r->p == r->end)
		r->cut = true;
	return (size_t)(r->p - *name);
}

static bool value(struct reader *r, struct buf *out, int depth);

/* \uXXXX, and what follows it of a pair; returns its bytes, 0: it is none. */
static size_t unicode(const char *p, size_t n, struct buf *out)
{
	char quoted[16];
	struct json *j;
	const char *text;
	size_t len, used = n >= 12 && p[6] == '\\' && p[7] == 'u' && (p[2] == 'd' || p[2] == 'D') ? 12 : 6;

	if (n < used)
		return 0;
	quoted[0] = '"';
	memcpy(quoted + 1, p, used);
	quoted[used + 1] = '"';
	j = json_parse(quoted, used + 2, 0, NULL);
	text = json_str(j, &len);
	if (text)
		buf_put(out, text, len);
	json_free(j);
	return text ? used : 0;
}

/* Its escapes that neither knows keep their backslash, as in Python. */
static bool string(struct reader *r, struct buf *out)
{
	char quote = *r->p++;
	struct buf text;

	buf_init(&text);
	while (r->p < r->end && *r->p != quote) {
		if (*r->p == '\\' && r->p + 1 < r->end) {
			static const char from[] = "nrtbf/\\'\"", to[] = "\n\r\t\b\f/\\'\"";
			const char *k = strchr(from, r->p[1]);
			size_t used = r->p[1] == 'u' ? unicode(r->p, (size_t)(r->end - r->p), &text) : 0;

			r->p += used;
			if (used)
				continue;

			if (k && *k) {
				buf_putc(&text, to[k - from]);
				r->p += 2;
				continue;
			}
		}
		buf_putc(&text, *r->p++);
	}
	json_put_str(out, text.p, text.n);
	buf_fini(&text);
	return python_char(r, quote);
}

/* [v, ...], which may be a tuple, or {k: v, ...} */
static bool container(struct reader *r, struct buf *out, int depth)
{
	char open = *r->p++, close = open == '[' ? ']' : open == '(' ? ')' : '}';

	buf_putc(out, open == '(' ? '[' : open);
	for (int i = 0; !python_char(r, close); i++) {
		if (r->cut || (i && (!python_char(r, ',') || r->cut)))
			return false;
		if (i && python_char(r, close)) /* a comma may end the list */
			break;
		if (i)
			buf_putc(out, ',');
		if (open == '{') {
			skip(r);
			if (at_end(r) || (*r->p != '"' && *r->p != '\'') || !string(r, out) || !python_char(r, ':'))
				return false;
			buf_putc(out, ':');
		}
		if (!value(r, out, depth + 1))
			return false;
	}
	buf_putc(out, open == '(' ? ']' : close);
	return true;
}

static bool value(struct reader *r, struct buf *out, int depth)
{
	static const struct {
		const char *python, *json;
	} words[] = {
		{ "True", "true" }, { "False", "false" }, { "None", "null" },
		{ "true", "true" }, { "false", "false" }, { "null", "null" },
	};
	const char *from;
	struct json *j;
	size_t n;

	skip(r);
	if (at_end(r) || depth > NEST_MAX)
		return false;
	if (*r->p == '"' || *r->p == '\'')
		return string(r, out);
	if (*r->p == '[' || *r->p == '{' || *r->p == '(')
		return container(r, out, depth);
	from = r->p;
	while (r->p < r->end && (word_char(*r->p, false) || *r->p == '.' || *r->p == '+'))
		r->p++;
	n = (size_t)(r->p - from);
	if (at_end(r) || !n)
		return false;
	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		if (n == strlen(words[i].python) && !memcmp(from, words[i].python, n)) {
			buf_puts(out, words[i].json);
			return true;
		}
	}
	/* A number, or nothing that we know. */
	if (!(j = json_parse(from, n, 0, NULL)))
		return false;
	json_put(out, j);
	json_free(j);
	return true;
}

/* NAME(key=value, ...).  name loses a ".call" that form adds. */
static bool call(struct reader *r, bool dotted, const char **name, size_t *n_name, struct buf *out)
{
	*n_name = word(r, name, true);
	if (!*n_name || *n_name > NAME_MAX_BYTES)
		return false;
	if (dotted && *n_name > 5 && !memcmp(*name + *n_name - 5, ".call", 5))
		*n_name -= 5;
	else if (dotted)
		return false;
	if (!python_char(r, '('))
		return false;
	buf_putc(out, '{');
	for (int i = 0; !python_char(r, ')'); i++) {
		const char *key;
		size_t n;

		if (r->cut || (i && !python_char(r, ',')))
			return false;
		if (!(n = word(r, &key, false)) || !python_char(r, '='))
			return false;
		if (i)
			buf_putc(out, ',');
		json_put_str(out, key, n);
		buf_putc(out, ':');
		if (!value(r, out, 0))
			return false;
	}
	buf_putc(out, '}');
	return true;
}

/* All calls of p[0..n): YES when they are whole.  With s not NULL: puts them. */
static enum verdict calls(const char *p, size_t n, size_t *used, struct split *s, const struct split *tools)
{
	struct reader r = { p, p + n, false };
	size_t len = sizeof python_tag - 1;
	bool list, good = true;

	skip(&r);
	if (at_end(&r))
		return CALL_MAYBE;
	if (*r.p == '<') {
		size_t left = (size_t)(r.end - r.p);

		if (memcmp(r.p, python_tag, left < len ? left : len))
			return CALL_NO;
		if (left < len)
			return CALL_MAYBE;
		r.p += len;
		skip(&r);
		if (at_end(&r))
			return CALL_MAYBE;
	}
	list = *r.p == '[';
	r.p += list;
	for (int i = 0; good; i++) {
		const char *name;
		size_t n_name;
		struct buf b;

		buf_init(&b);
		good = call(&r, !list, &name, &n_name, &b);
		/* Text that only looks like a call: the function is not among the tools. */
		if (n_name && !r.cut)
			good &= split_knows(tools, name, n_name);
		if (good && s) {
			split_call(s, name, n_name);
			split_piece(s, PIECE_ARGUMENTS, b.p, b.n);
			split_piece(s, PIECE_CALL_END, "", 0);
		}
		buf_fini(&b);
		if (!good || !list)
			break;
		if (python_char(&r, ','))
			continue;
		good = python_char(&r, ']');
		break;
	}
	*used = (size_t)(r.p - p);
	return good ? CALL_YES : r.cut ? CALL_MAYBE : CALL_NO;
}

static enum verdict begins(const struct split *s, const struct dialect *d, const char *p, size_t n, bool over)
{
	size_t used;

	(void)over;
	return calls(p, n, &used, NULL, s);
}

static enum progress read_call(struct split *s, bool over)
{
	size_t used = 0;

	(void)over;
	calls(s->held.p, s->held.n, &used, s, s);
	split_drop(s, used);
	return CALL_DONE;
}

/* ---- between tags ---- */

/* All calls of p[0..n), in brackets with commas between, or one to a line, and `close`, which at the end of the text may be
 * missing.  It is looked for behind the calls: in a string it is text.  put: into s. */
static enum verdict enclosed(const char *close, const char *p, size_t n, bool over, struct split *s, bool put,
                             size_t *used)
{
	struct reader r = { p, p + n, false };
	bool list = python_char(&r, '[');
	enum verdict v = CALL_NO;

	r.cut = false;
	for (int count = 0;; count++) {
		const char *name;
		size_t n_name;
		struct buf b;
		bool good;

		skip(&r);
		v = text_match(r.p, (size_t)(r.end - r.p), close);
		if (count && (v == CALL_YES || (r.p == r.end && over)) && !list)
			break;
		if (count && list && python_char(&r, ']')) {
			skip(&r);
			v = text_match(r.p, (size_t)(r.end - r.p), close);
			break;
		}
		if (v == CALL_MAYBE && !over)
			return v;
		if (count && list && !python_char(&r, ','))
			return r.cut && !over ? CALL_MAYBE : CALL_NO;
		buf_init(&b);
		good = call(&r, false, &name, &n_name, &b);
		if (good && put) {
			split_call(s, name, n_name);
			split_piece(s, PIECE_ARGUMENTS, b.p, b.n);
			split_piece(s, PIECE_CALL_END, "", 0);
		}
		buf_fini(&b);
		if (!good)
			return r.cut && !over ? CALL_MAYBE : CALL_NO;
		r.cut = false;
	}
	if (v == CALL_MAYBE && over)
		v = r.p == r.end ? CALL_YES : CALL_NO;
	*used = (size_t)(r.p - p) + (r.p == r.end ? 0 : strlen(close));
	return v;
}

static enum verdict begins_enclosed(const struct split *s, const struct dialect *d, const char *p, size_t n, bool over)
{
	size_t used;

	/* Most of the time the end is not there yet. */
	if (!over && !memmem(p, n, d->form, strlen(d->form)))
		return CALL_MAYBE;
	return enclosed(d->form, p, n, over, (struct split *)s, false, &used);
}

static enum progress read_enclosed(struct split *s, bool over)
{
	size_t used = s->held.n;

	enclosed(s->dialect->form, s->held.p, s->held.n, over, s, true, &used);
	split_drop(s, used);
	return CALL_DONE;
}

static void lead_lfm(struct buf *out, const char *function)
{
	buf_puts(out, "<|tool_call_start|>[");
	if (function)
		buf_printf(out, "%s(", function);
}

static void lead_olmo(struct buf *out, const char *function)
{
	buf_puts(out, "<function_calls>\n");
	if (function)
		buf_printf(out, "%s(", function);
}

static const struct calls_spelling lfm_held = {
	.spell = SPELL_PYTHON, .first = "[", .between = ",", .last = "]<|tool_call_end|>"
};
static const struct calls_spelling olmo_held = {
	.spell = SPELL_PYTHON, .first = "\n", .between = "\n", .last = "\n</function_calls>"
};
static const char *const marks[] = { "<|tool_call_end|>", "</function_calls>", NULL };

const struct dialect dialect_lfm = {
	.name = "lfm",
	.open = "<|tool_call_start|>",
	.begins = begins_enclosed,
	.read = read_enclosed,
	.lead = lead_lfm,
	.form = "<|tool_call_end|>",
	.held = &lfm_held,
	.marks = marks,
};
const struct dialect dialect_olmo = {
	.name = "olmo",
	.open = "<function_calls>",
	.begins = begins_enclosed,
	.read = read_enclosed,
	.lead = lead_olmo,
	.form = "</function_calls>",
	.held = &olmo_held,
	.marks = marks,
};

static void lead(struct buf *out, const char *function)
{
	buf_putc(out, '[');
	if (function)
		buf_printf(out, "%s(", function);
}

const struct dialect dialect_python = {
	.name = "python",
	.open = "",
	.begins = begins,
	.read = read_call,
	.lead = lead,
};
