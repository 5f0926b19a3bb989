/* calls_tagged.c - calls as the Qwen3.5 and Qwen3-Coder templates teach them:
 *
 *     <tool_call>
 *     <function=NAME>
 *     <parameter=KEY>
 *     value
 *     </parameter>
 *     </function>
 *     </tool_call>
 *
 * Values are bare text; what they become is decided by the tool's schema.  A value
 * that can only be a string is passed on as it comes, others when they are whole. */
#include <string.h>

#include "base/utf8.h"
#include "text/calls/dialect.h"

enum { NAME_MAX_BYTES = 200, STRAY_BYTES_MAX = 400 };
enum { NAME, BETWEEN, STRING, OTHER, AFTER }; /* stages */

static const char function_tag[] = "<function=", function_end[] = "</function>";
static const char parameter_tag[] = "<parameter=", parameter_end[] = "</parameter>", call_end[] = "</tool_call>";

static enum verdict literal(const char *p, size_t n, const char *text)
{
	size_t len = strlen(text);

	if (n < len)
		return memcmp(p, text, n) ? CALL_NO : CALL_MAYBE;
	return memcmp(p, text, len) ? CALL_NO : CALL_YES;
}

/* "TAG name >": *name and its length, and *used.  NO: it is none. */
static enum verdict tag_name(const char *p, size_t n, const char *tag, const char **name, size_t *len, size_t *used)
{
	enum verdict v = literal(p, n, tag);
	const char *end;

	if (v != CALL_YES)
		return v;
	*name = p + strlen(tag);
	n -= strlen(tag);
	end = memchr(*name, '>', n);
	*len = end ? (size_t)(end - *name) : n;
	if (*len > NAME_MAX_BYTES || memchr(*name, '\n', *len) || memchr(*name, '<', *len) || (end && !*len))
		return CALL_NO;
	*used = (size_t)(*name - p) + *len + 1;
	return end ? CALL_YES : CALL_MAYBE;
}

/* Bytes of words that a model puts where none belong: up to the next tag.  MAYBE: it may yet come. */
static enum verdict stray_words(const char *p, size_t n, size_t *len)
{
	const char *tag = memchr(p, '<', n);

	*len = tag ? (size_t)(tag - p) : n;
	if (*len > STRAY_BYTES_MAX || (*len && strchr("{[", *p)))
		return CALL_NO;
	return tag ? CALL_YES : CALL_MAYBE;
}

/* One that is known by its first tag and the next, so that talk of calls is none. */
static enum verdict begins(const struct split *s, const struct dialect *d, const char *p, size_t n, bool over)
{
	const char *name;
	size_t len = 0, used, at = blanks(p, n), words;
	enum verdict v = stray_words(p + at, n - at, &words), w;

	(void)d;
	(void)over;
	if (v != CALL_YES)
		return v;
	at += words;
	v = tag_name(p + at, n - at, function_tag, &name, &len, &used);
	/* Behind words it must be a tool's name. */
	if (v == CALL_YES && words && !split_knows(s, name, len))
		return CALL_NO;
	if (v != CALL_YES)
		return v;
	at += used;
	at += blanks(p + at, n - at);
	v = literal(p + at, n - at, parameter_tag);
	w = literal(p + at, n - at, function_end);
	if (v == CALL_YES || w == CALL_YES)
		return CALL_YES;
	return v == CALL_MAYBE || w == CALL_MAYBE ? CALL_MAYBE : CALL_NO;
}

/* A whole value that need not be a string. */
static void put_other(struct split *s, const char *p, size_t n)
{
	struct buf b;

	buf_init(&b);
	bare_value_put(&b, s->call.kinds, p, n);
	split_piece(s, PIECE_ARGUMENTS, b.p, b.n);
	buf_fini(&b);
}

/* ---- reading ---- */

static enum progress broken(struct split *s)
{
	s->malformed = true;
	return CALL_DONE;
}

static void put_key(struct split *s, const char *key, size_t n)
{
	struct buf b;

	buf_init(&b);
	if (s->call.n_argument++)
		buf_putc(&b, ',');
	json_put_str(&b, key, n);
	buf_putc(&b, ':');
	split_piece(s, PIECE_ARGUMENTS, b.p, b.n);
	buf_fini(&b);
}

/* Part of a string, without its quotes. */
static void put_part(struct split *s, const char *p, size_t n)
{
	struct buf b;

	buf_init(&b);
	json_put_inside(&b, p, n);
	split_piece(s, PIECE_ARGUMENTS, b.p, b.n);
	buf_fini(&b);
}

static void finish(struct split *s)
{
	split_piece(s, PIECE_ARGUMENTS, "}", 1);
	split_piece(s, PIECE_CALL_END, "", 0);
}

/* Before a parameter, or the end of the function.  True: something was taken. */
static bool between(struct split *s, bool over, enum progress *end)
{
	size_t at = blanks(s->held.p, s->held.n), n = s->held.n - at, len, used;
	const char *p = s->held.p + at, *key;
	enum verdict e = literal(p, n, function_end), v = tag_name(p, n, parameter_tag, &key, &len, &used),
		     again = literal(p, n, parameter_end), call = literal(p, n, call_end);

	if (again == CALL_YES) { /* of a parameter that was closed already */
		split_drop(s, at + strlen(parameter_end));
		return true;
	}
	if (e == CALL_YES || call == CALL_YES) {
		split_drop(s, e == CALL_YES ? at + strlen(function_end) : at);
		finish(s);
		s->call.stage = AFTER;
		return true;
	}
	if (v == CALL_YES) {
		struct buf k;

		buf_init(&k);
		buf_put(&k, key, len);
		s->call.kinds = argument_kinds(split_parameters(s, s->call.name.p, s->call.name.n), k.p);
		put_key(s, k.p, k.n);
		buf_fini(&k);
		if (!s->call.kinds || s->call.kinds == 1u << JSON_STRING) {
			split_piece(s, PIECE_ARGUMENTS, "\"", 1);
			s->call.stage = STRING;
		} else {
			s->call.stage = OTHER;
		}
		s->call.value = (struct extent){ 0 };
		s->call.depth = 1; /* the line break after the tag belongs to the form */
		split_drop(s, at + used);
		return true;
	}
	if (!over && (e == CALL_MAYBE || v == CALL_MAYBE || again == CALL_MAYBE || call == CALL_MAYBE)) {
		*end = CALL_MORE;
	} else if (over) {
		/* The call breaks off: the arguments read so far are kept. */
		*end = broken(s);
		split_drop(s, s->held.n);
	} else {
		finish(s); /* the rest is not part of a call */
		*end = broken(s);
	}
	return false;
}

/* Does a call end at p[0..n)? */
static enum verdict ends_call(const char *p, size_t n)
{
	enum verdict v = literal(p, n, function_end);
	size_t at = strlen(function_end);

	if (v != CALL_YES)
		return v;
	at += blanks(p + at, n - at);
	return literal(p + at, n - at, call_end);
}

/* A line that begins another parameter of the tool, or the call's end: then the end of this one was forgotten.  NULL:
 * none is there; *held bytes at the end of the text may yet become one. */
static const char *next_parameter(const struct split *s, size_t *held)
{
	const struct json *parameters = split_parameters(s, s->call.name.p, s->call.name.n);
	const char *at = s->held.p, *end = at + s->held.n;

	*held = 0;
	while (at < end && (at = memchr(at, '\n', (size_t)(end - at)))) {
		const char *name;
		size_t len, used;
		enum verdict v = tag_name(at + 1, (size_t)(end - at) - 1, parameter_tag, &name, &len, &used);
		struct buf key;
		enum verdict e = ends_call(at + 1, (size_t)(end - at) - 1);
		bool own;

		if (v == CALL_MAYBE || e == CALL_MAYBE) {
			*held = (size_t)(end - at);
			return NULL;
		}
		if (e == CALL_YES)
			return at;
		at++;
		if (v == CALL_NO)
			continue;
		buf_init(&key);
		buf_put(&key, name, len);
		own = argument_named(parameters, key.p);
		buf_fini(&key);
		if (own)
			return at - 1;
	}
	return NULL;
}

static const char *const behind_value[] = { parameter_tag, function_end, call_end, NULL };
static const struct value_form value_form = { parameter_end, behind_value };

/* Where a value ends: *skip bytes there belong to the form.  NULL: not yet; *held bytes at the end of the text may be
 * no part of it. */
static const char *value_stop(struct split *s, bool over, size_t *skip, size_t *held)
{
	size_t len, held_line;
	enum verdict v = value_json(&value_form, s->call.stage == OTHER ? s->call.kinds : 0, &s->call.value, s->held.p,
	                            s->held.n, &len);
	const char *next = NULL;

	*held = s->held.n;
	if (v == CALL_MAYBE && !over)
		return NULL;
	if (v != CALL_YES) {
		v = value_text(&value_form, s->call.kinds, s->held.p, s->held.n, over, &len);
		next = next_parameter(s, &held_line);
		*held = v == CALL_MAYBE && s->held.n - len > held_line ? s->held.n - len : held_line;
	}
	*skip = 0;
	if (v != CALL_YES || (next && next < s->held.p + len))
		return next;
	*skip = strlen(parameter_end);
	return s->held.p + len;
}

static void skip_break(struct split *s)
{
	if (s->call.depth && s->held.n) {
		s->call.depth = 0;
		if (*s->held.p == '\n')
			split_drop(s, 1);
	}
}

static bool string(struct split *s, bool over, enum progress *end)
{
	const char *at;
	size_t n, skip, held;

	skip_break(s);
	at = value_stop(s, over, &skip, &held);
	if (at) {
		n = (size_t)(at - s->held.p);
		put_part(s, s->held.p, n && skip && at[-1] == '\n' ? n - 1 : n);
		split_piece(s, PIECE_ARGUMENTS, "\"", 1);
		split_drop(s, n + skip);
		s->call.stage = BETWEEN;
		return true;
	}
	n = s->held.n;
	if (!over) {
		n -= held;
		if (n && s->held.p[n - 1] == '\n')
			n--;
		n -= utf8_incomplete_tail(s->held.p, n);
	}
	put_part(s, s->held.p, n);
	split_drop(s, n);
	*end = over ? broken(s) : CALL_MORE;
	return false;
}

static bool other(struct split *s, bool over, enum progress *end)
{
	const char *at;
	size_t n, skip, held;

	skip_break(s);
	at = value_stop(s, over, &skip, &held);
	if (!at) {
		*end = CALL_MORE;
		if (over) {
			split_piece(s, PIECE_ARGUMENTS, s->held.p, s->held.n);
			split_drop(s, s->held.n);
			*end = broken(s);
		}
		return false;
	}
	n = (size_t)(at - s->held.p);
	put_other(s, s->held.p, n && skip && at[-1] == '\n' ? n - 1 : n);
	split_drop(s, n + skip);
	s->call.stage = BETWEEN;
	return true;
}

/* Takes the first n held bytes as content. */
static void put_words(struct split *s, size_t n)
{
	split_piece(s, PIECE_CONTENT, s->held.p, n - blanks_at_end(s->held.p, n));
	split_drop(s, n);
}

/* Words at held[at..] between the ends of the function and of its wrapper are content; without a wrapper, or without
 * its end, the call is over before them. */
static enum progress words_before_end(struct split *s, size_t at, bool over)
{
	size_t words;
	enum verdict v = stray_words(s->held.p + at, s->held.n - at, &words);

	if (s->dialect != &dialect_tagged)
		return broken(s);
	if (v == CALL_YES)
		v = literal(s->held.p + at + words, s->held.n - at - words, call_end);
	if (v == CALL_MAYBE && !over)
		return CALL_MORE;
	if (v != CALL_YES)
		return broken(s);
	split_drop(s, at);
	put_words(s, words);
	split_drop(s, strlen(call_end));
	return CALL_DONE;
}

/* The function has ended; its wrapper may be missing at the end of the text. */
static enum progress after(struct split *s, bool over)
{
	size_t at = blanks(s->held.p, s->held.n);
	enum verdict v = literal(s->held.p + at, s->held.n - at, call_end);

	if (v == CALL_MAYBE && !over)
		return CALL_MORE;
	if (v == CALL_YES) {
		split_drop(s, at + strlen(call_end));
		return CALL_DONE;
	}
	return at < s->held.n ? words_before_end(s, at, over) : CALL_DONE;
}

static enum progress read_call(struct split *s, bool over)
{
	const char *name;
	size_t len = 0, used = 0;
	enum progress end = CALL_MORE;
	bool more = true;

	while (more) {
		switch (s->call.stage) {
		case NAME:
			split_drop(s, blanks(s->held.p, s->held.n));
			if (stray_words(s->held.p, s->held.n, &len) == CALL_YES && len)
				put_words(s, len);
			tag_name(s->held.p, s->held.n, function_tag, &name, &len, &used);
			split_call(s, name, len);
			split_drop(s, used);
			split_piece(s, PIECE_ARGUMENTS, "{", 1);
			s->call.stage = BETWEEN;
			break;
		case BETWEEN: more = between(s, over, &end); break;
		case STRING: more = string(s, over, &end); break;
		case OTHER: more = other(s, over, &end); break;
		default: return after(s, over);
		}
	}
	return end;
}

/* Models forget the wrapper's beginning: then the function must be one of the tools. */
static enum verdict begins_bare(const struct split *s, const struct dialect *d, const char *p, size_t n, bool over)
{
	const char *end = memchr(p, '>', n);
	size_t len = end ? (size_t)(end - p) : n;
	enum verdict v, w;

	if (len > NAME_MAX_BYTES || memchr(p, '\n', len) || memchr(p, '<', len) || (end && !split_knows(s, p, len)))
		return CALL_NO;
	if (!end)
		return CALL_MAYBE;
	len++;
	len += blanks(p + len, n - len);
	v = literal(p + len, n - len, parameter_tag);
	w = literal(p + len, n - len, function_end);
	if (v == CALL_YES || w == CALL_YES)
		return CALL_YES;
	return v == CALL_MAYBE || w == CALL_MAYBE ? CALL_MAYBE : CALL_NO;
}

static enum progress read_bare(struct split *s, bool over)
{
	const bool before = s->malformed;

	if (s->call.stage == NAME)
		split_put_back(s, function_tag);
	if (s->call.stage == AFTER && over && !s->held.n)
		return CALL_DONE;
	if (read_call(s, over) == CALL_MORE)
		return CALL_MORE;
	/* Without a wrapper nothing is missing behind it. */
	if (s->call.stage == AFTER)
		s->malformed = before;
	return CALL_DONE;
}

static void lead(struct buf *out, const char *function)
{
	buf_puts(out, "<tool_call>\n<function");
	if (function)
		buf_printf(out, "=%s>\n", function);
}

const struct dialect dialect_tagged = {
	.name = "tagged",
	.open = "<tool_call>",
	.begins = begins,
	.read = read_call,
	.lead = lead,
};
const struct dialect dialect_tagged_bare = {
	.name = "tagged",
	.open = "<function=",
	.begins = begins_bare,
	.read = read_bare,
	.lead = lead,
};
