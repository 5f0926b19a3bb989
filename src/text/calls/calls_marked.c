/* calls_marked.c - calls between marks, an argument between marks of its own:
 *
 *     <tool_call>NAME <arg_key>KEY</arg_key> <arg_value>value</arg_value> </tool_call>           GLM
 *     <minimax:tool_call><invoke name="NAME"><parameter name="KEY">value</parameter></invoke></minimax:tool_call>
 *     <seed:tool_call><function=NAME><parameter=KEY>value</parameter></function></seed:tool_call>
 *     <DSML function_calls><DSML invoke name="NAME"><DSML parameter name="KEY" string="true">value ...    DeepSeek V3.2
 *
 * An argument is reported when it is complete; what its bare text becomes is decided by the tool's schema. */
#include <string.h>

#include "text/calls/dialect.h"

struct marks {
	const char *name,
		*name_end;         /* before and after the function's name; name_end "": a line break or '<' ends it */
	const char *key, *key_end; /* of an argument; attributes may follow key_end's text, up to '>' */
	const char *value, *value_end;
	const char *end;   /* of the function; "": it ends with the call */
	const char *close; /* of the call */
	bool attributes;
};

enum { FUNCTION, ARGUMENTS, AFTER }; /* stages */
enum { NAME_BYTES_MAX = 200 };

static size_t name_length(const struct marks *m, const char *p, size_t n, bool *whole)
{
	size_t k = 0;

	if (*m->name_end)
		return text_until(p, n, m->name_end, whole);
	while (k < n && p[k] != '\n' && p[k] != '<')
		k++;
	*whole = k < n;
	n = k;
	while (n && strchr(" \t\r", p[n - 1]))
		n--;
	return n;
}

/* A function's beginning: *at is where its name is, *n_name how long it is, *used where what follows begins. */
static enum verdict head(const struct marks *m, const char *p, size_t n, bool over, size_t *at, size_t *n_name,
                         size_t *used)
{
	enum verdict v;
	bool whole;

	*at = blanks(p, n);
	v = text_match(p + *at, n - *at, m->name);
	if (v != CALL_YES)
		return v == CALL_MAYBE && !over ? CALL_MAYBE : CALL_NO;
	*at += strlen(m->name);
	*n_name = name_length(m, p + *at, n - *at, &whole);
	if (*n_name > NAME_BYTES_MAX || memchr(p + *at, '{', *n_name) || memchr(p + *at, '\n', *n_name) ||
	    (whole && !*n_name))
		return CALL_NO;
	*used = *at + *n_name + strlen(m->name_end);
	return whole ? CALL_YES : over ? CALL_NO : CALL_MAYBE;
}

/* A call whose first argument has lost the mark before its key: bytes of the function's name, or 0.  The name is that
 * of a tool, what is left of p[0..n) the name of one of its arguments. */
static size_t lost_key(const struct split *s, const char *p, size_t n)
{
	size_t len = split_prefix(s, p, n), at = len + blanks(p + len, n - len);
	struct buf key;
	bool known;

	if (!len || at == n)
		return 0;
	buf_init(&key);
	buf_put(&key, p + at, n - at);
	known = argument_named(split_parameters(s, p, len), key.p);
	buf_fini(&key);
	return known ? len : 0;
}

/* The mark before the first key is missing, or is the call's own once more. */
static enum verdict begins_without_mark(const struct split *s, const struct dialect *d, const char *p, size_t n,
                                        size_t at, size_t n_name)
{
	const struct marks *m = d->form;
	const char *next = p + at + n_name;
	size_t left = n - at - n_name;
	bool end;

	if (*m->name_end || n_name == 0)
		return CALL_NO;
	if (text_match(next, left, m->key_end) == CALL_YES)
		return lost_key(s, p + at, n_name) ? CALL_YES : CALL_NO;
	if (text_match(next, left, d->open) != CALL_YES || !split_knows(s, p + at, n_name))
		return text_match(next, left, m->key_end) == CALL_MAYBE ||
		                       text_match(next, left, d->open) == CALL_MAYBE ?
		               CALL_MAYBE :
		               CALL_NO;
	next += strlen(d->open);
	left -= strlen(d->open);
	left = text_until(next, left, m->key_end, &end);
	if (left > NAME_BYTES_MAX || memchr(next, '\n', left))
		return CALL_NO;
	return end ? CALL_YES : CALL_MAYBE;
}

/* Arguments as one object, in place of marks. */
static enum verdict whole_object(const char *p, size_t n, size_t *used)
{
	struct json *j;
	bool good;

	if (!n || *p != '{')
		return n ? CALL_NO : CALL_MAYBE;
	if (!(*used = json_extent(p, n)))
		return CALL_MAYBE;
	j = json_mended(p, *used);
	good = json_kind(j) == JSON_OBJECT;
	json_free(j);
	return good ? CALL_YES : CALL_NO;
}

/* The arguments of a call, whole: as they are written where that is JSON. */
static void put_object(struct split *s, const char *p, size_t n)
{
	struct json *j = json_parse(p, n, 200, NULL);
	struct buf b;

	buf_init(&b);
	if (!j && (j = json_mended(p, n))) {
		json_put(&b, j);
		p = b.p;
		n = b.n;
	}
	split_piece(s, PIECE_ARGUMENTS, p, n);
	split_piece(s, PIECE_CALL_END, "", 0);
	buf_fini(&b);
	json_free(j);
}

/* The name and, so that talk of calls is none, an argument or the end behind it. */
static enum verdict begins(const struct split *s, const struct dialect *d, const char *p, size_t n, bool over)
{
	const struct marks *m = d->form;
	size_t at, n_name, used, object;
	enum verdict v = head(m, p, n, over, &at, &n_name, &used), key, end, stray;

	if (v != CALL_YES)
		return v;
	if ((v = begins_without_mark(s, d, p, n, at, n_name)) == CALL_YES)
		return v;
	used += blanks(p + used, n - used);
	if (*m->name && used < n && p[used] == '{')
		return whole_object(p + used, n - used, &object);
	key = text_match(p + used, n - used, m->key);
	end = text_match(p + used, n - used, *m->end ? m->end : m->close);
	if (key == CALL_YES || end == CALL_YES)
		return CALL_YES;
	stray = *m->name_end || !split_knows(s, p + at, n_name) ? CALL_NO :
	                                                          text_match(p + used, n - used, m->value_end);
	if (stray == CALL_YES)
		return CALL_YES;
	return !over && (stray == CALL_MAYBE || v == CALL_MAYBE || key == CALL_MAYBE || end == CALL_MAYBE) ?
	               CALL_MAYBE :
	               CALL_NO;
}

static void end_function(struct split *s)
{
	split_piece(s, PIECE_ARGUMENTS, s->call.n_argument ? "}" : "{}", s->call.n_argument ? 1 : 2);
	split_piece(s, PIECE_CALL_END, "", 0);
	s->call.n_argument = 0;
}

static void put_argument(struct split *s, const char *key, size_t n_key, unsigned kinds, const char *p, size_t n)
{
	struct buf b;

	buf_init(&b);
	buf_putc(&b, s->call.n_argument++ ? ',' : '{');
	json_put_str(&b, key, n_key);
	buf_putc(&b, ':');
	bare_value_put(&b, kinds, p, n);
	split_piece(s, PIECE_ARGUMENTS, b.p, b.n);
	buf_fini(&b);
}

/* Kinds that an argument may have, by its attribute, or else by its schema. */
static unsigned kinds_of(const struct split *s, const char *key, size_t n_key, const char *attributes, size_t n)
{
	static const unsigned any = 1u << JSON_INT | 1u << JSON_DOUBLE | 1u << JSON_BOOL | 1u << JSON_NULL |
	                            1u << JSON_ARRAY | 1u << JSON_OBJECT;
	unsigned kinds;
	struct buf k;

	if (memmem(attributes, n, "string=\"true\"", 13))
		return 1u << JSON_STRING;
	buf_init(&k);
	buf_put(&k, key, n_key);
	kinds = argument_kinds(split_parameters(s, s->call.name.p, s->call.name.n), k.p);
	buf_fini(&k);
	return !kinds && memmem(attributes, n, "string=\"false\"", 14) ? any : kinds;
}

/* Behind a mark that models write more than once. */
static const char *past_marks(const char *p, const char *end, const char *mark)
{
	while (text_match(p, (size_t)(end - p), mark) == CALL_YES)
		p += strlen(mark);
	return p;
}

/* Where the value at p[0..n) ends; NULL: more is needed. */
static const char *value_stop(struct split *s, const struct marks *m, const char *p, size_t n, bool over)
{
	const char *const follow[] = { m->key, *m->end ? m->end : m->close, m->close, NULL };
	const struct value_form f = { m->value_end, follow };
	size_t len;
	enum verdict v = value_json(&f, s->call.kinds, &s->call.value, p, n, &len);

	if (v == CALL_NO || (v == CALL_MAYBE && over))
		v = value_text(&f, s->call.kinds, p, n, over, &len);
	return v == CALL_YES ? p + len : NULL;
}

/* One argument at p[0..n), which begins with its mark.  Returns the bytes it takes; 0: more is needed. */
static size_t argument(struct split *s, const struct marks *m, const char *p, size_t n, bool over)
{
	const char *key = past_marks(p, p + n, m->key),
		   *end = memmem(key, (size_t)(p + n - key), m->key_end, strlen(m->key_end)), *value, *stop;
	const char *attributes = end ? end + strlen(m->key_end) : NULL, *tag = attributes;
	size_t len;

	if (end && m->attributes && !(tag = memchr(attributes, '>', (size_t)(p + n - attributes))))
		return 0;
	if (!end)
		return 0;
	value = tag + m->attributes;
	if (*m->value) {
		value = past_marks(value, p + n, m->key_end);
		value += blanks(value, (size_t)(p + n - value));
		if ((size_t)(p + n - value) < strlen(m->value))
			return 0;
		value += strlen(m->value);
	}
	/* Once for an argument, however many pieces it comes in: depth tells that it was done. */
	if (!s->call.depth)
		s->call.kinds = kinds_of(s, key, (size_t)(end - key), attributes, (size_t)(tag - attributes));
	s->call.depth = 1;
	if (!(stop = value_stop(s, m, value, (size_t)(p + n - value), over)))
		return 0;
	len = (size_t)(stop - value);
	/* A line break after the mark and before the next belong to the form, but where strings are marked as such. */
	if (!m->attributes && len && *value == '\n')
		value++, len--;
	if (!m->attributes && len && value[len - 1] == '\n')
		len--;
	put_argument(s, key, (size_t)(end - key), s->call.kinds, value, len);
	s->call.value = (struct extent){ 0 };
	s->call.depth = 0;
	return (size_t)(stop - p) + strlen(m->value_end);
}

/* False: *end says how it ended. */
static bool arguments(struct split *s, const struct marks *m, bool over, enum progress *end)
{
	size_t at = blanks(s->held.p, s->held.n), n = s->held.n - at, used;
	const char *p = s->held.p + at, *stop = *m->end ? m->end : m->close;
	enum verdict key = text_match(p, n, m->key), over_now = text_match(p, n, stop);

	*end = CALL_MORE;
	if (!s->call.n_argument && whole_object(p, n, &used) == CALL_YES) {
		put_object(s, p, used);
		split_drop(s, at + used);
		s->call.in_string = true; /* the object is there, and the end of the call is waited for */
		return true;
	}
	if (s->call.in_string) {
		if (over_now == CALL_MAYBE && !over)
			return false;
		split_drop(s, over_now == CALL_YES ? at + strlen(stop) : 0);
		s->call.in_string = false;
		s->call.stage = AFTER;
		return true;
	}
	if (over_now == CALL_YES) {
		end_function(s);
		split_drop(s, at + (*m->end ? strlen(m->end) : 0));
		s->call.stage = AFTER;
		return true;
	}
	if (key == CALL_YES && (used = argument(s, m, p, n, over))) {
		split_drop(s, at + used);
		return true;
	}
	if (!over && (key != CALL_NO || over_now == CALL_MAYBE))
		return false;
	/* The call breaks off: the arguments read so far are kept. */
	if (!s->call.n_argument)
		split_piece(s, PIECE_ARGUMENTS, "{", 1);
	if (!over)
		end_function(s);
	s->malformed = true;
	*end = CALL_DONE;
	return false;
}

static void begin_function(struct split *s, const struct marks *m, bool over)
{
	size_t at = 0, n_name = 0, used = 0, blank;

	head(m, s->held.p, s->held.n, over, &at, &n_name, &used);
	if (!*m->name_end && text_match(s->held.p + at + n_name, s->held.n - at - n_name, m->key_end) == CALL_YES)
		used = at + (n_name = lost_key(s, s->held.p + at, n_name));
	split_call(s, s->held.p + at, n_name);
	split_drop(s, used);
	s->call.stage = ARGUMENTS;
	blank = blanks(s->held.p, s->held.n);
	/* The end of an argument, where there is none. */
	if (!*m->name_end && text_match(s->held.p, s->held.n, m->value_end) == CALL_YES) {
		split_drop(s, strlen(m->value_end));
		return;
	}
	if (text_match(s->held.p, s->held.n, s->dialect->open) == CALL_YES && !*m->name_end)
		split_drop(s, strlen(s->dialect->open));
	else if (used != at + n_name || *m->name_end || blank == s->held.n || s->held.p[blank] == '<')
		return;
	split_drop(s, blanks(s->held.p, s->held.n));
	split_put_back(s, m->key);
}

/* After a function: the call's end, or another function of it. */
static enum progress after(struct split *s, const struct marks *m, bool over)
{
	size_t k = blanks(s->held.p, s->held.n), at, n_name, used;
	enum verdict close = text_match(s->held.p + k, s->held.n - k, m->close), next;

	if (close == CALL_YES) {
		split_drop(s, k + strlen(m->close));
		return CALL_DONE;
	}
	next = *m->end ? head(m, s->held.p, s->held.n, over, &at, &n_name, &used) : CALL_NO;
	if (next == CALL_YES)
		s->call.stage = FUNCTION;
	return next == CALL_YES || (!over && (close == CALL_MAYBE || next == CALL_MAYBE)) ? CALL_MORE : CALL_DONE;
}

static enum progress read_call(struct split *s, bool over)
{
	const struct marks *m = s->dialect->form;
	enum progress end;

	for (;;) {
		if (s->call.stage == FUNCTION)
			begin_function(s, m, over);
		while (s->call.stage == ARGUMENTS)
			if (!arguments(s, m, over, &end))
				return end;
		end = after(s, m, over);
		if (s->call.stage != FUNCTION)
			return end;
	}
}

#define DSML           \
	"\xef\xbd\x9c" \
	"DSML\xef\xbd\x9c"
static const struct marks glm = {
	"", "", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "", "</tool_call>", false
};
static const struct marks glm_tight = {
	"", "", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "", "</tool_call>", false
};
static const struct marks minimax = { "<invoke name=\"", "\">",       "<parameter name=\"",   "\">", "",
	                              "</parameter>",    "</invoke>", "</minimax:tool_call>", false };
static const struct marks seed = { "<function=",   ">",           "<parameter=",       ">",  "",
	                           "</parameter>", "</function>", "</seed:tool_call>", false };
static const struct marks dsml = { "<" DSML "invoke name=\"",
	                           "\">",
	                           "<" DSML "parameter name=\"",
	                           "\"",
	                           "",
	                           "</" DSML "parameter>",
	                           "</" DSML "invoke>",
	                           "</" DSML "function_calls>",
	                           true };
static const struct marks dsml_calls = { "<" DSML "invoke name=\"",
	                                 "\">",
	                                 "<" DSML "parameter name=\"",
	                                 "\"",
	                                 "",
	                                 "</" DSML "parameter>",
	                                 "</" DSML "invoke>",
	                                 "</" DSML "tool_calls>",
	                                 true };

static const char *const no_noise[] = { NULL };
static const struct speech seeds = { .think_open = "<seed:think>", .think_close = "</seed:think>", .noise = no_noise };

#define GLM(id, gap)                                                                                \
	static const struct calls_spelling id##_held = { .spell = SPELL_MARKED,                     \
		                                         .behind = { gap },                         \
		                                         .key = "<arg_key>",                        \
		                                         .key_end = "</arg_key>" gap "<arg_value>", \
		                                         .value_end = "</arg_value>",               \
		                                         .value_gap = gap,                          \
		                                         .end = "</tool_call>" };
GLM(glm, "\n")
GLM(glm_tight, "")
static const struct calls_spelling minimax_held = { .spell = SPELL_MARKED,
	                                            .first = "\n",
	                                            .between = "\n",
	                                            .last = "\n</minimax:tool_call>",
	                                            .head = { "<invoke name=\"" },
	                                            .behind = { "\">\n" },
	                                            .key = "<parameter name=\"",
	                                            .key_end = "\">",
	                                            .value_end = "</parameter>",
	                                            .value_gap = "\n",
	                                            .end = "</invoke>" };
static const struct calls_spelling seed_held = { .spell = SPELL_MARKED,
	                                         .first = "\n",
	                                         .between = "\n",
	                                         .last = "\n</seed:tool_call>",
	                                         .head = { "<function=" },
	                                         .behind = { ">\n" },
	                                         .key = "<parameter=",
	                                         .key_end = ">",
	                                         .value_end = "</parameter>",
	                                         .value_gap = "\n",
	                                         .end = "</function>" };
#define DSML_HELD(id, close)                                                                     \
	static const struct calls_spelling id##_held = { .spell = SPELL_MARKED,                  \
		                                         .first = "\n",                          \
		                                         .between = "\n",                        \
		                                         .last = "\n</" DSML close ">",          \
		                                         .head = { "<" DSML "invoke name=\"" },  \
		                                         .behind = { "\">\n" },                  \
		                                         .key = "<" DSML "parameter name=\"",    \
		                                         .key_end = "\" string=\"true\">",       \
		                                         .key_end_json = "\" string=\"false\">", \
		                                         .value_end = "</" DSML "parameter>",    \
		                                         .value_gap = "\n",                      \
		                                         .end = "</" DSML "invoke>" };
DSML_HELD(dsml, "function_calls")
DSML_HELD(dsml_calls, "tool_calls")
static const char *const glm_marks[] = {
	"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "</tool_call>", NULL
};
static const char *const other_marks[] = { "</minimax:tool_call>", "</seed:tool_call>", DSML, NULL };

/* Without what is around all calls, of a known tool. */
static enum verdict begins_bare(const struct split *s, const struct dialect *d, const char *p, size_t n, bool over)
{
	const struct marks *m = d->form;
	bool end;
	size_t len = text_until(p, n, m->name_end, &end);

	(void)over;
	if (!end)
		return len > NAME_BYTES_MAX ? CALL_NO : CALL_MAYBE;
	return split_knows(s, p, len) ? CALL_YES : CALL_NO;
}

static enum progress read_bare(struct split *s, bool over)
{
	const struct marks *m = s->dialect->form;

	if (s->call.stage == FUNCTION && !s->call.escaped) {
		split_put_back(s, m->name);
		s->call.escaped = true;
	}
	return read_call(s, over);
}

/* GLM: a name and an object, where marks should be. */
static enum verdict begins_json(const struct split *s, const struct dialect *d, const char *p, size_t n, bool over)
{
	size_t at = blanks(p, n), len = split_prefix(s, p + at, n - at), used;

	(void)d;
	(void)over;
	if (!len)
		return CALL_NO;
	at += len;
	at += blanks(p + at, n - at);
	return whole_object(p + at, n - at, &used);
}

static enum progress read_json(struct split *s, bool over)
{
	static const char close[] = "</tool_call>";
	size_t at = blanks(s->held.p, s->held.n), len = split_prefix(s, s->held.p + at, s->held.n - at), used = 0;
	enum verdict v;

	if (!s->call.stage) {
		split_call(s, s->held.p + at, len);
		at += len;
		at += blanks(s->held.p + at, s->held.n - at);
		whole_object(s->held.p + at, s->held.n - at, &used);
		put_object(s, s->held.p + at, used);
		split_drop(s, at + used);
		s->call.stage = AFTER;
		at = blanks(s->held.p, s->held.n);
	}
	v = text_match(s->held.p + at, s->held.n - at, close);
	if (v == CALL_MAYBE && !over)
		return CALL_MORE;
	if (v == CALL_YES)
		split_drop(s, at + sizeof close - 1);
	return CALL_DONE;
}

static void lead_of(const struct dialect *d, struct buf *out, const char *function)
{
	const struct marks *m = d->form;

	buf_printf(out, "%s%s%s", d->open, *m->name ? "\n" : "", m->name);
	if (function)
		buf_printf(out, "%s%s%s", function, m->name_end, d == &dialect_glm_tight ? "" : "\n");
}

#define DIALECT(id, called, tag, whose, which)                       \
	static void id##_lead(struct buf *out, const char *function) \
	{                                                            \
		lead_of(&dialect_##id, out, function);               \
	}                                                            \
	const struct dialect dialect_##id = { .name = called,        \
		                              .open = tag,           \
		                              .begins = begins,      \
		                              .read = read_call,     \
		                              .lead = id##_lead,     \
		                              .speech = whose,       \
		                              .form = &id,           \
		                              .held = &id##_held,    \
		                              .marks = which }
DIALECT(glm, "glm", "<tool_call>", NULL, glm_marks);
DIALECT(glm_tight, "glm", "<tool_call>", NULL, glm_marks);
DIALECT(minimax, "minimax", "<minimax:tool_call>", NULL, other_marks);
DIALECT(seed, "seed", "<seed:tool_call>", &seeds, other_marks);
DIALECT(dsml, "deepseek tags", "<" DSML "function_calls>", NULL, other_marks);
DIALECT(dsml_calls, "deepseek tags", "<" DSML "tool_calls>", NULL, other_marks);
#define DSML_BARE(id, whole)                                                     \
	const struct dialect dialect_##id = { .name = "deepseek tags",           \
		                              .open = "<" DSML "invoke name=\"", \
		                              .begins = begins_bare,             \
		                              .read = read_bare,                 \
		                              .lead = whole##_lead,              \
		                              .form = &whole }
DSML_BARE(dsml_bare, dsml);
DSML_BARE(dsml_calls_bare, dsml_calls);
const struct dialect dialect_glm_json = {
	.name = "glm", .open = "<tool_call>", .begins = begins_json, .read = read_json, .lead = glm_lead, .form = &glm
};
