/* calls_list.c - calls as a JSON array of objects behind a tag:
 *
 *     [TOOL_CALLS][{"name": NAME, "arguments": {...}, "id": ID}, ...]         Mistral until 2024
 *     <|tool_call|>[{"name": NAME, "arguments": {...}}]                       Granite 3
 *     <TOOLCALL>[...]</TOOLCALL>                                              Nemotron 2
 *     <tool_calls>[...]</tool_calls>                                          Apriel
 *     <|START_ACTION|>[{"tool_name": NAME, "parameters": {...}}]<|END_ACTION|>  Command R
 *     <|tools_prefix|>[{"NAME": {...}}, ...]<|tools_suffix|>                  Apertus
 *
 * A call is reported when its object is complete; an object alone, without brackets, is one, too. */
#include <string.h>

#include "text/calls/dialect.h"

struct list_form {
	const char *close;                           /* "": nothing follows the array */
	const char *name, *arguments, *or_arguments; /* members; name NULL: the one member is called as the function */
	const char *lead, *lead_name;                /* what a call begins with: before the name, and after it */
};

enum { OPENING, OBJECTS, CLOSING }; /* stages */

/* Name and arguments of an object; false: it is not a call. */
static bool parts(const struct list_form *f, const struct json *j, const char **name, size_t *n,
                  const struct json **arguments)
{
	struct json_cursor c = json_first(j);

	if (json_kind(j) != JSON_OBJECT)
		return false;
	if (!f->name)
		return json_len(j) == 1 && json_next(&c, name, arguments) && (*n = strlen(*name), *n > 0);
	if (!(*name = json_str(json_get(j, f->name), n)) && json_get(j, "function"))
		return parts(f, json_get(j, "function"), name, n, arguments);
	*arguments = json_get(j, f->arguments);
	if (!*arguments)
		*arguments = json_get(j, f->or_arguments);
	return *name && *n;
}

static bool put_object(struct split *s, const struct list_form *f, const char *p, size_t n, bool put)
{
	struct json *j = json_mended(p, n), *inner = NULL;
	const struct json *arguments = NULL;
	const char *name, *text;
	size_t n_name, len;
	struct buf b;
	bool good = parts(f, j, &name, &n_name, &arguments);

	if (good && (text = json_str(arguments, &len)) && (inner = json_mended(text, len)))
		arguments = inner;
	good = good && (json_kind(arguments) == JSON_OBJECT || json_kind(arguments) == JSON_NULL);
	if (good && put) {
		buf_init(&b);
		if (json_kind(arguments) == JSON_OBJECT)
			json_put(&b, arguments);
		else
			buf_puts(&b, "{}");
		split_call(s, name, n_name);
		split_piece(s, PIECE_ARGUMENTS, b.p, b.n);
		split_piece(s, PIECE_CALL_END, "", 0);
		buf_fini(&b);
	}
	json_free(inner);
	json_free(j);
	return good;
}

/* The first object says whether it is a list of calls. */
static enum verdict begins(const struct split *s, const struct dialect *d, const char *p, size_t n, bool over)
{
	size_t at = blanks(p, n), k;

	(void)over;
	if (at < n && p[at] == '[')
		at += 1 + blanks(p + at + 1, n - at - 1);
	if (at == n)
		return CALL_MAYBE;
	if (p[at] != '{')
		return CALL_NO;
	if (!(k = json_extent(p + at, n - at)))
		return CALL_MAYBE;
	return put_object((struct split *)s, d->form, p + at, k, false) ? CALL_YES : CALL_NO;
}

static bool stop(struct split *s, bool bad, enum progress *end)
{
	s->malformed |= bad;
	*end = CALL_DONE;
	return false;
}

/* Objects with commas between, up to the bracket.  False: *end says how it ended. */
static bool objects(struct split *s, const struct list_form *f, bool over, enum progress *end)
{
	size_t at = blanks(s->held.p, s->held.n), n = s->held.n - at, k;
	const char *p = s->held.p + at;

	if (!n) {
		*end = CALL_MORE;
		/* All objects are there: a bracket may be missing. */
		return over ? stop(s, false, end) : false;
	}
	if (*p == '{') {
		if (!(k = json_extent(p, n))) {
			*end = CALL_MORE;
			return over ? stop(s, true, end) : false;
		}
		if (!put_object(s, f, p, k, true))
			return stop(s, true, end);
		split_drop(s, at + k);
		return true;
	}
	if (s->call.depth && (*p == ',' || *p == ']')) {
		s->call.depth = *p == ',';
		split_drop(s, at + 1);
		if (!s->call.depth)
			s->call.stage = CLOSING;
		return true;
	}
	s->call.stage = CLOSING;
	s->malformed |= s->call.depth > 0;
	return true;
}

static enum progress closing(struct split *s, const struct list_form *f, bool over)
{
	size_t at = blanks(s->held.p, s->held.n);
	enum verdict v;

	if (!*f->close)
		return CALL_DONE;
	v = text_match(s->held.p + at, s->held.n - at, f->close);
	if (v == CALL_MAYBE && !over)
		return CALL_MORE;
	if (v == CALL_YES)
		split_drop(s, at + strlen(f->close));
	return CALL_DONE;
}

static enum progress read_calls(struct split *s, bool over)
{
	const struct list_form *f = s->dialect->form;
	enum progress end = CALL_MORE;

	if (s->call.stage == OPENING) {
		split_drop(s, blanks(s->held.p, s->held.n));
		s->call.depth = *s->held.p == '[';
		split_drop(s, (size_t)s->call.depth);
		s->call.stage = OBJECTS;
	}
	while (s->call.stage == OBJECTS)
		if (!objects(s, f, over, &end))
			return end;
	return closing(s, f, over);
}

static void lead_of(const struct dialect *d, struct buf *out, const char *function)
{
	const struct list_form *f = d->form;

	buf_printf(out, "%s%s", d->open, f->lead);
	if (function)
		buf_printf(out, "%s%s", function, f->lead_name);
}

static const char *const cohere_noise[] = { "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>",
	                                    NULL };
static const struct speech cohere = {
	.think_open = "<|START_THINKING|>", .think_close = "<|END_THINKING|>", .reopens = true, .noise = cohere_noise
};
static const char *const apertus_noise[] = { NULL };
const struct speech speech_inner = {
	.think_open = "<|inner_prefix|>", .think_close = "<|inner_suffix|>", .reopens = true, .noise = apertus_noise
};

#define NAMES "name", "arguments", "parameters"
#define HEAD_NAME "{\"name\": \""
#define HELD(id, what, ...)                                                                        \
	static const struct calls_spelling id##_held = {                                           \
		.spell = SPELL_JSON, .first = "[", .between = ",", .behind = { what }, __VA_ARGS__ \
	};
HELD(mistral, "\", \"arguments\": ", .head = { HEAD_NAME }, .tail = { "}", ", \"id\": \"\2\"}" }, .last = "]")
HELD(granite, "\", \"arguments\": ", .head = { HEAD_NAME }, .tail = { "}" }, .last = "]")
HELD(nemotron, "\", \"arguments\": ", .head = { HEAD_NAME }, .tail = { "}" }, .last = "]</TOOLCALL>")
HELD(apriel, "\", \"arguments\": ", .head = { HEAD_NAME }, .tail = { "}", ", \"id\": \"\3\"}" },
     .last = "]</tool_calls>")
HELD(cohere, "\", \"parameters\": ",
     .head = { "\n    {\"tool_call_id\": \"\1\", \"tool_name\": \"", "\n    {\"tool_name\": \"", "{\"tool_name\": \"" },
     .tail = { "}" }, .last = "\n]<|END_ACTION|>")
HELD(apertus, "\": ", .head = { "{\"" }, .tail = { "}" }, .last = "]<|tools_suffix|>")
static const char *const marks[] = { "</TOOLCALL>", "</tool_calls>", "<|END_ACTION|>", "<|tools_suffix|>", NULL };

#define DIALECT(id, called, tag, how, ...)                             \
	static const struct list_form id##_form = { __VA_ARGS__ };     \
	static void id##_lead(struct buf *out, const char *function)   \
	{                                                              \
		lead_of(&dialect_list_##id, out, function);            \
	}                                                              \
	const struct dialect dialect_list_##id = { .name = called,     \
		                                   .open = tag,        \
		                                   .begins = begins,   \
		                                   .read = read_calls, \
		                                   .lead = id##_lead,  \
		                                   .speech = how,      \
		                                   .form = &id##_form, \
		                                   .held = &id##_held, \
		                                   .marks = marks }

DIALECT(mistral, "mistral list", "[TOOL_CALLS]", NULL, "", NAMES, "[{\"name\": \"", "\", \"arguments\":");
DIALECT(granite, "granite", "<|tool_call|>", NULL, "", NAMES, "[{\"name\": \"", "\", \"arguments\":");
DIALECT(nemotron, "nemotron", "<TOOLCALL>", NULL, "</TOOLCALL>", NAMES, "[{\"name\": \"", "\", \"arguments\":");
DIALECT(apriel, "apriel", "<tool_calls>", NULL, "</tool_calls>", NAMES, "[{\"name\": \"", "\", \"arguments\":");
DIALECT(cohere, "cohere", "<|START_ACTION|>", &cohere, "<|END_ACTION|>", "tool_name", "parameters", "arguments",
        "[{\"tool_name\": \"", "\", \"parameters\":");
DIALECT(apertus, "apertus", "<|tools_prefix|>", &speech_inner, "<|tools_suffix|>", NULL, NULL, NULL, "[{\"", "\":");
