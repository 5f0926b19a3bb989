/* dialect.c - the list of dialects, and what those written in JSON share. */
#include "text/calls/dialect.h"

#include <string.h>

/* ---- the list ---- */

/* Models mix up the two that begin with <tool_call>, so both are read. */
#define LIST(...)                       \
	(const struct dialect *const[]) \
	{                               \
		__VA_ARGS__, NULL       \
	}
#define TAGGED_ALSO &dialect_tagged_bare, &dialect_wrapped_json, &dialect_tagged_json
static const struct dialect *const tagged[] = { &dialect_tagged, &dialect_hermes, TAGGED_ALSO, NULL };

/* A template that says `mark` teaches list[0]; the first that fits. */
static const struct {
	const char *mark, *but_not;
	const struct dialect *const *list;
} taught[] = {
	{ "<|channel|>commentary", NULL,
	  LIST(&dialect_harmony, &dialect_harmony_role, &dialect_harmony_analysis, &dialect_harmony_bare) },
	{ "<|tool_call>", NULL, LIST(&dialect_gemma) },
	{ "<minimax:tool_call>", NULL, LIST(&dialect_minimax) },
	{ "<seed:tool_call>", NULL, LIST(&dialect_seed) },
	{ "\xef\xbd\x9c"
	  "DSML\xef\xbd\x9c",
	  "function_calls>", LIST(&dialect_dsml_calls, &dialect_dsml, &dialect_dsml_calls_bare) },
	{ "\xef\xbd\x9c"
	  "DSML\xef\xbd\x9c",
	  NULL, LIST(&dialect_dsml, &dialect_dsml_calls, &dialect_dsml_bare) },
	{ "tool\xe2\x96\x81"
	  "call\xe2\x96\x81"
	  "begin",
	  "```json", LIST(&dialect_deepseek, &dialect_deepseek_fenced) },
	{ "tool\xe2\x96\x81"
	  "call\xe2\x96\x81"
	  "begin",
	  NULL, LIST(&dialect_deepseek_fenced, &dialect_deepseek) },
	{ "<|tool_call_begin|>", NULL, LIST(&dialect_kimi) },
	{ "</arg_key><arg_value>", NULL, LIST(&dialect_glm_tight, &dialect_glm_json, &dialect_hermes) },
	{ "<arg_key>", NULL, LIST(&dialect_glm, &dialect_glm_json, &dialect_hermes) },
	{ "[ARGS]", NULL, LIST(&dialect_mistral, &dialect_list_mistral) },
	{ "[TOOL_CALLS]", NULL, LIST(&dialect_list_mistral, &dialect_mistral) },
	{ "<|START_ACTION|>", NULL, LIST(&dialect_list_cohere) },
	{ "<|tools_prefix|>", NULL, LIST(&dialect_list_apertus) },
	{ "<|tool_call_start|>", NULL, LIST(&dialect_lfm) },
	{ "<|tool_list_start|>", NULL, LIST(&dialect_lfm) },
	{ "List of tools: [", "<tool_call>", LIST(&dialect_lfm) },
	{ "<TOOLCALL>", NULL, LIST(&dialect_list_nemotron) },
	{ "<|tool_call|>", NULL, LIST(&dialect_list_granite) },
	{ "<tool_calls>", NULL, LIST(&dialect_list_apriel) },
	{ "<function_calls>", "invoke", LIST(&dialect_olmo) },
	{ "<tool_call>", "<function=", LIST(&dialect_hermes, &dialect_tagged, TAGGED_ALSO) },
	{ "<function=example_function_name>{", NULL, LIST(&dialect_functionary, &dialect_tagged) },
	{ "<function=", NULL, LIST(&dialect_tagged, &dialect_hermes, TAGGED_ALSO) },
	{ "Environment: ipython", NULL, LIST(&dialect_llama, &dialect_python, &dialect_tagged_json) },
	{ "[func_name1(", NULL, LIST(&dialect_python) },
};

static const struct dialect *const *lookup(const struct template *t)
{
	for (size_t i = 0; i < sizeof taught / sizeof *taught; i++)
		if (template_says(t, taught[i].mark) && !(taught[i].but_not && template_says(t, taught[i].but_not)))
			return taught[i].list;
	return NULL;
}

const struct dialect *const *dialects_of(const struct template *t)
{
	const struct dialect *const *list = lookup(t);

	return list ? list : tagged;
}

const struct dialect *dialect_taught(const struct template *t)
{
	const struct dialect *const *list = lookup(t);

	return list ? list[0] : NULL;
}

/* The marks of thoughts that are looked for in templates that teach no calls, or no known ones. */
static const struct speech *const thinking[] = { &speech_plain, &speech_brackets, &speech_inner };

const struct speech *speech_of(const struct template *t)
{
	const struct dialect *d = dialect_taught(t);

	if (d && d->speech)
		return d->speech;
	for (size_t i = 0; i < sizeof thinking / sizeof *thinking; i++)
		if (template_says(t, thinking[i]->think_open))
			return thinking[i];
	return &speech_plain;
}

bool speech_thinks(const struct template *t)
{
	return template_says(t, speech_of(t)->think_open);
}

/* ---- JSON ---- */

/* The end of a string that begins with the quotation mark p[0]; 0: it does not end. */
static size_t string_end(const char *p, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		if (p[i] == '\\')
			i++;
		else if (p[i] == *p)
			return i + 1;
	}
	return 0;
}

bool extent_put(struct extent *x, const char *p, size_t n)
{
	for (; x->at < n && !x->ended; x->at++) {
		char c = p[x->at];

		if (x->escaped) {
			x->escaped = false;
		} else if (x->quote) {
			x->escaped = c == '\\';
			x->quote = c == x->quote ? 0 : x->quote;
			x->ended = !x->quote && !x->depth;
		} else if (c == '"' || c == '\'') {
			x->quote = c;
		} else if (c == '{' || c == '[') {
			x->depth++;
		} else {
			x->depth -= (c == '}' || c == ']') && x->depth;
			x->ended = !x->depth;
		}
	}
	return x->ended;
}

size_t json_extent(const char *p, size_t n)
{
	struct extent x = { 0 };

	return extent_put(&x, p, n) ? x.at : 0;
}

/* Where the comparison of p with the head is: at the head's end, or at a difference. */
static enum verdict literal(const char *p, size_t n, size_t *at, const char *text)
{
	size_t len = strlen(text);

	*at += blanks(p + *at, n - *at);
	if (n - *at < len)
		return memcmp(p + *at, text, n - *at) ? CALL_NO : CALL_MAYBE;
	if (memcmp(p + *at, text, len))
		return CALL_NO;
	*at += len;
	return CALL_YES;
}

enum verdict json_call_head(const char *p, size_t n, const char *const *keys, const char **name, size_t *n_name,
                            size_t *at)
{
	enum verdict v;
	size_t k;

	*at = 0;
	if ((v = literal(p, n, at, "{")) != CALL_YES || (v = literal(p, n, at, "\"name\"")) != CALL_YES ||
	    (v = literal(p, n, at, ":")) != CALL_YES || (v = literal(p, n, at, "\"")) != CALL_YES)
		return v;
	if (!(k = string_end(p + *at - 1, n - *at + 1)))
		return CALL_MAYBE;
	*name = p + *at;
	*n_name = k - 2;
	*at += k - 1;
	/* A name that needs unescaping goes the other way. */
	if (!*n_name || memchr(*name, '\\', *n_name))
		return CALL_NO;
	if ((v = literal(p, n, at, ",")) != CALL_YES)
		return v;
	for (size_t from = *at, some = 0;; keys++) {
		if (!*keys)
			return some ? CALL_MAYBE : CALL_NO;
		*at = from;
		v = literal(p, n, at, *keys);
		if (v == CALL_YES)
			break;
		some |= v == CALL_MAYBE;
	}
	if ((v = literal(p, n, at, ":")) != CALL_YES || (v = literal(p, n, at, "{")) != CALL_YES)
		return v;
	--*at;
	return CALL_YES;
}

/* Stages of a call in JSON: its head, the arguments as they come, the end of the object
 * around them, what follows. */
enum { HEAD, ARGUMENTS, CLOSING, TAIL };

enum verdict text_match(const char *p, size_t n, const char *text)
{
	size_t len = strlen(text);

	if (n < len)
		return memcmp(p, text, n) ? CALL_NO : CALL_MAYBE;
	return memcmp(p, text, len) ? CALL_NO : CALL_YES;
}

size_t text_partial(const char *p, size_t n, const char *tag)
{
	size_t most = strlen(tag) - 1;

	for (size_t k = n < most ? n : most; k; k--)
		if (!memcmp(p + n - k, tag, k))
			return k;
	return 0;
}

size_t text_until(const char *p, size_t n, const char *text, bool *there)
{
	const char *at = memmem(p, n, text, strlen(text));

	*there = at != NULL;
	return at ? (size_t)(at - p) : n - text_partial(p, n, text);
}

enum progress json_arguments_read(struct split *s, bool over)
{
	size_t from = s->call.arguments.n;
	struct json *j;

	split_drop(s, mend(&s->call.mend, s->held.p, s->held.n, over, &s->call.arguments));
	split_piece(s, PIECE_ARGUMENTS, s->call.arguments.p + from, s->call.arguments.n - from);
	if (!s->call.mend.closed) {
		s->malformed |= over;
		return over ? CALL_DONE : CALL_MORE;
	}
	/* The arguments were passed on as they came, and may be no JSON. */
	j = json_parse(s->call.arguments.p, s->call.arguments.n, 0, NULL);
	s->malformed |= json_kind(j) != JSON_OBJECT;
	json_free(j);
	split_piece(s, PIECE_CALL_END, "", 0);
	return CALL_DONE;
}

/* Members behind the arguments, an id for one, or a comma alone: the bytes up to the end of the object around them,
 * which begin with the comma at p[0].  0: they are none; *maybe: more text will tell. */
static size_t members(const char *p, size_t n, bool *maybe)
{
	size_t at = 1 + blanks(p + 1, n - 1), used;
	struct json *j;
	struct buf b;

	*maybe = at == n;
	if (at == n || !strchr("\"'}", p[at]))
		return 0;
	buf_init(&b);
	buf_putc(&b, '{');
	buf_put(&b, p + 1, n - 1);
	used = json_extent(b.p, b.n);
	*maybe = !used;
	j = used ? json_mended(b.p, used) : NULL;
	buf_fini(&b);
	used = j ? used : 0;
	json_free(j);
	return used;
}

/* From the value of KEY on, up to the end of the object around it. */
static enum progress read_rest(struct split *s, bool over)
{
	const char *p = s->held.p;
	size_t n = s->held.n, i = 0;
	bool maybe;

	if (s->call.stage == CLOSING) {
		i = blanks(p, n);
		maybe = i == n;
		n = maybe ? 0 : p[i] == ',' ? members(p + i, n - i, &maybe) : p[i] == '}';
		if (maybe && !over)
			return CALL_MORE;
		s->malformed |= !n;
		split_drop(s, n ? i + n : 0);
		return CALL_DONE;
	}
	if (json_arguments_read(s, over) == CALL_MORE)
		return CALL_MORE;
	if (!s->call.mend.closed)
		return CALL_DONE; /* it broke off */
	s->call.stage = CLOSING;
	return read_rest(s, over);
}

bool json_call_whole(struct split *s, const char *p, size_t n, const char *const *keys, bool put)
{
	struct json *j = json_mended(p, n), *inner = NULL;
	const struct json *a = NULL;
	const char *name, *text;
	size_t n_name, len;
	struct buf b;
	bool good;

	name = json_str(json_get(j, "name"), &n_name);
	for (; *keys && !a; keys++) {
		char key[24];

		len = strlen(*keys) - 2; /* without its quotes */
		memcpy(key, *keys + 1, len);
		key[len] = 0;
		a = json_get(j, key);
	}
	/* A string that holds the object, as the API itself writes it. */
	if ((text = json_str(a, &len)) && (inner = json_mended(text, len)))
		a = inner;
	good = name && n_name && (json_kind(a) == JSON_OBJECT || json_kind(a) == JSON_NULL);
	if (good && put) {
		buf_init(&b);
		if (a)
			json_put(&b, a);
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

enum progress json_call_read(struct split *s, const char *const *keys, bool over)
{
	const char *name;
	size_t n_name, at;

	if (s->call.stage == HEAD) {
		if (json_call_head(s->held.p, s->held.n, keys, &name, &n_name, &at) == CALL_YES) {
			split_call(s, name, n_name);
			s->call.stage = ARGUMENTS;
		} else {
			at = json_extent(s->held.p, s->held.n);
			json_call_whole(s, s->held.p, at, keys, true);
			s->call.stage = TAIL;
		}
		split_drop(s, at);
	}
	if (s->call.stage != TAIL && read_rest(s, over) == CALL_MORE)
		return CALL_MORE;
	s->call.stage = TAIL;
	return CALL_DONE;
}
