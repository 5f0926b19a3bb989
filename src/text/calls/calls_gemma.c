/* calls_gemma.c - calls as the Gemma 4 templates teach them:
 *
 *     <|tool_call>call:NAME{key:<|"|>text<|"|>,n:5,list:[true,null],o:{k:1.5}}<tool_call|>
 *
 * Keys are bare, strings are between marks of their own; a call is reported when it is complete.  Models also write
 * strings as JSON, Python or JavaScript do, '=' for ':', and parentheses for the outer braces; they leave out the mark
 * before a string, and "call" or "call:". */
#include <string.h>

#include "text/calls/dialect.h"

enum { NEST_MAX = 32, NAME_BYTES_MAX = 200 };

static const char quote[] = "<|\"|>", call_end[] = "<tool_call|>", word[] = "call:";

struct reader {
	const char *p, *end;
	bool cut; /* the text ended where more was expected */
};

static bool at_end(struct reader *r)
{
	r->p += blanks(r->p, (size_t)(r->end - r->p));
	if (r->p < r->end)
		return false;
	r->cut = true;
	return true;
}

static bool gemma_char(struct reader *r, char c)
{
	if (at_end(r) || *r->p != c)
		return false;
	r->p++;
	return true;
}

static bool take_quote(struct reader *r)
{
	size_t left = (size_t)(r->end - r->p), len = sizeof quote - 1;

	if (left < len && !memcmp(r->p, quote, left))
		r->cut = true;
	if (left < len || memcmp(r->p, quote, len))
		return false;
	r->p += len;
	return true;
}

/* A string as Python or JavaScript has it: up to its quotation mark before what may follow a value, or to the mark that
 * should have opened it. */
static bool single_quoted(struct reader *r, struct buf *out)
{
	const char with = *r->p, *from = ++r->p;

	for (; r->p < r->end; r->p++) {
		size_t left = (size_t)(r->end - r->p), len = sizeof quote - 1, k;

		if (*r->p == '<' && left < len && !memcmp(r->p, quote, left))
			break;
		if (*r->p == '<' && left >= len && !memcmp(r->p, quote, len)) {
			k = (size_t)(r->p - from);
			json_put_str(out, from, k - (k && from[k - 1] == with));
			r->p += len;
			return true;
		}
		if (*r->p != with || (k = 1 + blanks(r->p + 1, left - 1)) > left)
			continue;
		if (k == left)
			break;
		if (strchr(",]})", r->p[k])) {
			json_put_str(out, from, (size_t)(r->p - from));
			r->p++;
			return true;
		}
	}
	r->cut = true;
	return false;
}

/* Text up to the next mark; or a string as JSON has it, which models write as well. */
static bool string(struct reader *r, struct buf *out)
{
	const char *at;

	if (at_end(r))
		return false;
	if (*r->p == '"') {
		size_t n = json_extent(r->p, (size_t)(r->end - r->p));

		r->cut |= !n;
		buf_put(out, r->p, n);
		r->p += n;
		return n > 0;
	}
	if (*r->p == '\'' || *r->p == '`')
		return single_quoted(r, out);
	if (!take_quote(r))
		return false;
	if (!(at = memmem(r->p, (size_t)(r->end - r->p), quote, sizeof quote - 1))) {
		r->cut = true;
		return false;
	}
	json_put_str(out, r->p, (size_t)(at - r->p));
	r->p = at + sizeof quote - 1;
	return true;
}

static bool value(struct reader *r, struct buf *out, int depth);

static bool key(struct reader *r, struct buf *out)
{
	const char *from;

	if (at_end(r))
		return false;
	if (*r->p == '<' || *r->p == '"')
		return string(r, out) && (gemma_char(r, ':') || gemma_char(r, '='));
	for (from = r->p; r->p < r->end && *r->p != ':' && *r->p != '=' && !strchr("{}[],)", *r->p);)
		r->p++;
	json_put_str(out, from, (size_t)(r->p - from));
	return r->p > from && (gemma_char(r, ':') || gemma_char(r, '='));
}

static bool container(struct reader *r, struct buf *out, int depth)
{
	char open = *r->p++, close = open == '[' ? ']' : open == '(' ? ')' : '}';

	buf_putc(out, open == '(' ? '{' : open);
	for (int i = 0; !gemma_char(r, close); i++) {
		if (r->cut || (i && !gemma_char(r, ',')))
			return false;
		if (i)
			buf_putc(out, ',');
		if (open != '[') {
			if (!key(r, out))
				return false;
			buf_putc(out, ':');
		}
		if (!value(r, out, depth + 1))
			return false;
	}
	buf_putc(out, open == '(' ? '}' : close);
	return true;
}

/* The mark that ends a string at `from` which none began: it is before any bracket, and no value could begin there. The
 * reader goes past it.  NULL: there is none, or (r->cut) what comes may yet bring one. */
static const char *closed(struct reader *r, const char *from)
{
	const char *end = from, *at, *before;

	while (end < r->end && !strchr("]})", *end))
		end++;
	if (!(at = memmem(from, (size_t)(end - from), quote, sizeof quote - 1))) {
		r->cut |= end == r->end;
		return NULL;
	}
	for (before = at; before > from && strchr(" \n", before[-1]);)
		before--;
	if (before == from || strchr(":=,", before[-1]))
		return NULL;
	r->p = at + sizeof quote - 1;
	return at;
}

static bool value(struct reader *r, struct buf *out, int depth)
{
	const char *from, *at;
	struct json *j;

	if (at_end(r) || depth > NEST_MAX)
		return false;
	if (strchr("<\"'`", *r->p))
		return string(r, out);
	if (*r->p == '{' || *r->p == '[')
		return container(r, out, depth);
	for (from = r->p; r->p < r->end && !strchr(",]})", *r->p);)
		r->p++;
	if (r->p == r->end) {
		r->cut = true;
		return false;
	}
	/* A number, true, false or null; a bare word is a string. */
	if ((j = json_parse(from, (size_t)(r->p - from), 0, NULL)))
		json_put(out, j);
	else if ((at = closed(r, from)))
		json_put_str(out, from, (size_t)(at - from));
	else if (!r->cut)
		json_put_str(out, from, (size_t)(r->p - from));
	json_free(j);
	return !r->cut;
}

/* Strings as JSON has them were passed on as they are written, and may be none. */
static bool is_object(const struct buf *b)
{
	struct json *j = json_parse(b->p, b->n, 0, NULL);
	bool good = json_kind(j) == JSON_OBJECT;

	json_free(j);
	return good;
}

static enum verdict gemma_whole(const struct split *s, const char *p, size_t n, const char **name, size_t *n_name,
                                struct buf *out, size_t *used)
{
	struct reader r = { p, p + n, false };
	enum verdict v = text_match(p, n, word);
	bool good;

	if (v == CALL_MAYBE)
		return v;
	if (v == CALL_YES)
		r.p += sizeof word - 1;
	else
		r.p += n && (*p == ':' || *p == '-');
	for (*name = r.p; r.p < r.end && *r.p != '{' && *r.p != '(';)
		r.p++;
	*n_name = (size_t)(r.p - *name);
	if (*n_name > NAME_BYTES_MAX || memchr(*name, '<', *n_name) || memchr(*name, '\n', *n_name))
		return CALL_NO;
	if (r.p == r.end)
		return CALL_MAYBE;
	/* Without the word before it, it is known by its name. */
	if (v == CALL_NO && !split_knows(s, *name, *n_name))
		return CALL_NO;
	good = *n_name && container(&r, out, 0) && is_object(out);
	*used = (size_t)(r.p - p);
	return good ? CALL_YES : r.cut ? CALL_MAYBE : CALL_NO;
}

static enum verdict begins(const struct split *s, const struct dialect *d, const char *p, size_t n, bool over)
{
	const char *name;
	size_t n_name, used;
	enum verdict v;
	struct buf b;

	(void)d;
	(void)over;
	buf_init(&b);
	v = gemma_whole(s, p, n, &name, &n_name, &b, &used);
	buf_fini(&b);
	return v;
}

static enum progress read_call(struct split *s, bool over)
{
	size_t n_name = 0, used = 0;
	const char *name = NULL;
	enum verdict v;
	struct buf b;

	if (!s->call.stage) {
		buf_init(&b);
		gemma_whole(s, s->held.p, s->held.n, &name, &n_name, &b, &used);
		split_call(s, name, n_name);
		split_piece(s, PIECE_ARGUMENTS, b.p, b.n);
		split_piece(s, PIECE_CALL_END, "", 0);
		split_drop(s, used);
		buf_fini(&b);
		s->call.stage = 1;
	}
	v = text_match(s->held.p, s->held.n, call_end);
	if (v == CALL_MAYBE && !over)
		return CALL_MORE;
	if (v == CALL_YES)
		split_drop(s, sizeof call_end - 1);
	return CALL_DONE;
}

static void lead(struct buf *out, const char *function)
{
	buf_puts(out, "<|tool_call>call:");
	if (function)
		buf_printf(out, "%s{", function);
}

static const char *const noise[] = { "<|tool_response>", "<turn|>", NULL };
static const struct speech gemma = {
	.think_open = "<|channel>thought", .think_close = "<channel|>", .reopens = true, .noise = noise
};
static const struct calls_spelling held = {
	.spell = SPELL_GEMMA, .head = { "call:" }, .last = "<tool_call|>", .quote = quote
};
static const char *const marks[] = { quote, call_end, NULL };

const struct dialect dialect_gemma = {
	.name = "gemma",
	.open = "<|tool_call>",
	.begins = begins,
	.read = read_call,
	.lead = lead,
	.speech = &gemma,
	.held = &held,
	.marks = marks,
};
