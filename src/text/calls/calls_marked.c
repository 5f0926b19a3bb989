/* calls_marked.c - calls between marks, an argument between marks of its own:
 *
 *     <tool_call>NAME <arg_key>KEY</arg_key> <arg_value>value</arg_value> </tool_call>           GLM
 *     <minimax:tool_call><invoke name="NAME"><parameter name="KEY">value</parameter></invoke></minimax:tool_call>
 *     <seed:tool_call><function=NAME><parameter=KEY>value</parameter></function></seed:tool_call>
 *     <DSML function_calls><DSML invoke name="NAME"><DSML parameter name="KEY" string="true">value ...    DeepSeek V3.2
 *
 * An argument is told when it is whole; what its bare text becomes is decided by the tool's schema. */
#include <string.h>

#include "text/calls/dialect.h"

struct marks {
	const char *name,
		*name_end;         /* before and after the function's name; name_end "": a line break or '<' ends it */
	const char *key, *key_end; /* of an argument; after key_end's text up to '>' may stand attributes */
	const char *value, *value_end;
	const char *end;   /* of the function; "": it ends with the call */
	const char *close; /* of the call */
	bool attributes;
};

enum { FUNCTION, ARGUMENTS, AFTER }; /* stages */
enum { NAME_BYTES_MAX = 200 };

static size_t name_length(const struct marks *m, const char *p, size_t n, bool *whole)
{
	const char *at = *m->name_end ? memmem(p, n, m->name_end, strlen(m->name_end)) : NULL;
	size_t k = 0;

	if (*m->name_end) {
		*whole = at != NULL;
		return at ? (size_t)(at - p) : n;
	}
	while (k < n && p[k] != '\n' && p[k] != '<')
		k++;
	*whole = k < n;
	return k - (k && p[k - 1] == '\r');
}

/* A function's beginning: *at is where its name stands, *n_name how long it is, *used where what follows begins. */
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

/* The name and, so that talk of calls is none, an argument or the end behind it. */
static enum verdict begins(const struct split *s, const struct dialect *d, const char *p, size_t n, bool over)
{
	const struct marks *m = d->form;
	size_t at, n_name, used;
	enum verdict v = head(m, p, n, over, &at, &n_name, &used), key, end;

	(void)s;
	if (v != CALL_YES)
		return v;
	used += blanks(p + used, n - used);
	key = text_match(p + used, n - used, m->key);
	end = text_match(p + used, n - used, *m->end ? m->end : m->close);
	if (key == CALL_YES || end == CALL_YES)
		return CALL_YES;
	return !over && (key == CALL_MAYBE || end == CALL_MAYBE) ? CALL_MAYBE : CALL_NO;
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

/* What an argument may be: as its attribute says, or its schema. */
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

/* One argument at p[0..n), which begins with its mark.  Returns the bytes it takes; 0: more is needed. */
static size_t argument(struct split *s, const struct marks *m, const char *p, size_t n)
{
	const char *key = p + strlen(m->key), *end = memmem(key, n - strlen(m->key), m->key_end, strlen(m->key_end)),
		   *value, *stop;
	const char *attributes = end ? end + strlen(m->key_end) : NULL, *tag = attributes;
	size_t len;

	if (end && m->attributes && !(tag = memchr(attributes, '>', (size_t)(p + n - attributes))))
		return 0;
	if (!end)
		return 0;
	value = tag + m->attributes;
	if (*m->value) {
		value += blanks(value, (size_t)(p + n - value));
		if ((size_t)(p + n - value) < strlen(m->value))
			return 0;
		value += strlen(m->value);
	}
	if (!(stop = memmem(value, (size_t)(p + n - value), m->value_end, strlen(m->value_end))))
		return 0;
	len = (size_t)(stop - value);
	/* A line break after the mark and before the next belong to the form. */
	if (len && *value == '\n')
		value++, len--;
	if (len && value[len - 1] == '\n')
		len--;
	put_argument(s, key, (size_t)(end - key),
	             kinds_of(s, key, (size_t)(end - key), attributes, (size_t)(tag - attributes)), value, len);
	return (size_t)(stop - p) + strlen(m->value_end);
}

/* False: *end says how it stands. */
static bool arguments(struct split *s, const struct marks *m, bool over, enum progress *end)
{
	size_t at = blanks(s->held.p, s->held.n), n = s->held.n - at, used;
	const char *p = s->held.p + at, *stop = *m->end ? m->end : m->close;
	enum verdict key = text_match(p, n, m->key), over_now = text_match(p, n, stop);

	*end = CALL_MORE;
	if (over_now == CALL_YES) {
		end_function(s);
		split_drop(s, at + (*m->end ? strlen(m->end) : 0));
		s->call.stage = AFTER;
		return true;
	}
	if (key == CALL_YES && (used = argument(s, m, p, n))) {
		split_drop(s, at + used);
		return true;
	}
	if (!over && (key != CALL_NO || over_now == CALL_MAYBE))
		return false;
	/* It breaks off: what there was of its arguments stays. */
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
	size_t at = 0, n_name = 0, used = 0;

	head(m, s->held.p, s->held.n, over, &at, &n_name, &used);
	split_call(s, s->held.p + at, n_name);
	split_drop(s, used);
	s->call.stage = ARGUMENTS;
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
