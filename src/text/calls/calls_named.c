/* calls_named.c - calls whose name comes before their arguments, and these are JSON:
 *
 *     [TOOL_CALLS]NAME[ARGS]{...}                     Mistral; [CALL_ID]ID may stand before [ARGS]
 *     <|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{...}<|tool_call_end|>      Kimi
 *     TAG NAME SEP {...} TAG, and TAG function SEP NAME, a fence with {...} TAG          DeepSeek V3.1, and R1 and V3
 *     <function=NAME>{...}</function>                 Functionary and Llama's own; in <tool_call> Nemotron's
 *     <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>     Harmony (gpt-oss)
 *
 * Arguments are passed on as they are written. */
#include <string.h>

#include "text/calls/dialect.h"

enum { NAME_BYTES_MAX = 200, HEAD_BYTES_MAX = 600, FENCE_BYTES_MAX = 20 };

struct named_form {
	const char *prefix; /* of the name, which is left off */
	const char *end;    /* after the name and whatever belongs to it: the arguments follow */
	const char *cut;    /* characters that end the name before that */
	const char *close;  /* after the arguments; may be missing at the end */
	bool kind_first;    /* "function" and the separator may come before the name, a fence around the arguments */
	bool endless;       /* `end` may be missing before a brace */
	const char *wrap;   /* after that, and may be missing too; NULL: nothing is */
	bool known;         /* only a tool's name is one */
	bool numbered; /* the name stands in an id, which may be spelled otherwise: functions_NAME_0, functionsNAME0 */
};

enum { HEAD, ARGUMENTS, TAIL }; /* stages */

struct head {
	const char *name;
	size_t n_name, at; /* the arguments begin at `at` */
};

static bool name_char(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || strchr("_-.:/", c) ||
	       (unsigned char)c >= 0x80;
}

/* The tool whose name stands in an id, where the id itself is none. */
static void name_in_id(const struct split *s, struct head *h)
{
	static const char word[] = "functions";
	const char *p = h->name;
	size_t n = h->n_name;

	if (split_knows(s, p, n))
		return;
	if (text_match(p, n, word) == CALL_YES) {
		p += strlen(word);
		n -= strlen(word);
	}
	if (n && *p == '_')
		p++, n--;
	while (n && p[n - 1] >= '0' && p[n - 1] <= '9')
		n--;
	if (n && p[n - 1] == '_')
		n--;
	if (n && split_knows(s, p, n)) {
		h->name = p;
		h->n_name = n;
	}
}

/* The length of the name that a head of n bytes begins with.  A tool's name may have blanks and colons in it.  0: the head
 * begins with no name. */
static size_t name_length(const struct split *s, const struct named_form *f, const char *p, size_t n)
{
	size_t own = split_prefix(s, p, n), len = 0;

	if (own && (own == n || p[own] == ' ' || strchr(f->cut, p[own])))
		return own;
	while (len < n && name_char(p[len]) && !strchr(f->cut, p[len]))
		len++;
	return len > NAME_BYTES_MAX || (len < n && p[len] != ' ' && !strchr(f->cut, p[len])) ? 0 : len;
}

/* Reads the text between the open tag and the arguments. */
static enum verdict read_head(const struct split *s, const struct named_form *f, const char *p, size_t n, bool over,
                              struct head *h)
{
	const char *end = memmem(p, n, f->end, strlen(f->end)), *brace = f->endless ? memchr(p, '{', n) : NULL;
	bool early = brace && (!end || brace < end);
	enum verdict close;
	size_t used, len;

	if (early)
		end = brace;
	/* A head that is too long is too long however the text is cut. */
	if ((end ? (size_t)(end - p) : n - text_partial(p, n, f->end)) > HEAD_BYTES_MAX)
		return CALL_NO;
	if (!end)
		return over ? CALL_NO : CALL_MAYBE;
	used = (size_t)(end - p) + (early ? 0 : strlen(f->end));
	h->name = p + blanks(p, (size_t)(end - p));
	len = (size_t)(end - h->name);
	if (f->kind_first && len == 8 && !memcmp(h->name, "function", 8)) {
		h->name = p + used;
		end = memchr(h->name, '\n', n - used);
		if ((end ? (size_t)(end - h->name) : n - used) > NAME_BYTES_MAX)
			return CALL_NO;
		if (!end)
			return over ? CALL_NO : CALL_MAYBE;
		len = (size_t)(end - h->name);
		used = (size_t)(end - p);
	}
	if (len > strlen(f->prefix) && !memcmp(h->name, f->prefix, strlen(f->prefix))) {
		h->name += strlen(f->prefix);
		len -= strlen(f->prefix);
	}
	if (!(h->n_name = name_length(s, f, h->name, len)))
		return CALL_NO;
	if ((early || f->known) && !split_knows(s, h->name, h->n_name))
		return CALL_NO;
	if (f->numbered)
		name_in_id(s, h);
	used += blanks(p + used, n - used);
	if (f->kind_first && used < n && p[used] == '`') {
		brace = memchr(p + used, '{', n - used);
		if ((brace ? (size_t)(brace - (p + used)) : n - used) > FENCE_BYTES_MAX)
			return CALL_NO;
		if (!brace)
			return over ? CALL_NO : CALL_MAYBE;
		used = (size_t)(brace - p);
	}
	h->at = used;
	if (used == n)
		return over ? CALL_YES : CALL_MAYBE;
	close = p[used] == '{' ? CALL_YES : text_match(p + used, n - used, f->close);
	return close == CALL_MAYBE && over ? CALL_NO : close;
}

static enum verdict begins(const struct split *s, const struct dialect *d, const char *p, size_t n, bool over)
{
	struct head h;

	return read_head(s, d->form, p, n, over, &h);
}

/* Reads the closing tag, and a fence before it; other text there is content. */
static enum progress tail(struct split *s, const struct named_form *f, bool over)
{
	size_t at = blanks(s->held.p, s->held.n);
	enum verdict v;

	if (f->kind_first) {
		v = text_match(s->held.p + at, s->held.n - at, "```");
		if (v == CALL_MAYBE && !over)
			return CALL_MORE;
		if (v == CALL_YES) {
			at += 3;
			at += blanks(s->held.p + at, s->held.n - at);
		}
	}
	v = text_match(s->held.p + at, s->held.n - at, f->close);
	if (v == CALL_MAYBE && !over && *f->close)
		return CALL_MORE;
	if (v != CALL_YES)
		return CALL_DONE;
	at += strlen(f->close);
	if (f->wrap) {
		size_t more = at + blanks(s->held.p + at, s->held.n - at);

		v = text_match(s->held.p + more, s->held.n - more, f->wrap);
		if (v == CALL_MAYBE && !over)
			return CALL_MORE;
		at = v == CALL_YES ? more + strlen(f->wrap) : at;
	}
	split_drop(s, at);
	return CALL_DONE;
}

static enum progress read_call(struct split *s, bool over)
{
	const struct named_form *f = s->dialect->form;
	struct head h;

	if (s->call.stage == HEAD) {
		read_head(s, f, s->held.p, s->held.n, over, &h);
		split_call(s, h.name, h.n_name);
		split_drop(s, h.at);
		s->call.stage = ARGUMENTS;
		/* A function that takes nothing may be called without any. */
		if (!s->held.n) {
			split_piece(s, PIECE_ARGUMENTS, "{", 1);
			s->malformed = true;
			return CALL_DONE;
		}
		if (*s->held.p != '{') {
			split_piece(s, PIECE_ARGUMENTS, "{}", 2);
			split_piece(s, PIECE_CALL_END, "", 0);
			s->call.stage = TAIL;
		}
	}
	if (s->call.stage == ARGUMENTS) {
		if (json_arguments_read(s, over) == CALL_MORE)
			return CALL_MORE;
		if (!s->call.mend.closed)
			return CALL_DONE;
		s->call.stage = TAIL;
	}
	return tail(s, f, over);
}

static void lead_of(const struct dialect *d, struct buf *out, const char *function, const char *before,
                    const char *after)
{
	const struct named_form *f = d->form;

	buf_printf(out, "%s%s%s", before, d->open, f->prefix);
	if (function)
		buf_printf(out, "%s%s", function, after);
}

#define BAR "\xef\xbd\x9c" /* of DeepSeek's tokens */
#define DASH "\xe2\x96\x81"
#define DS(a, b, c) "<" BAR a DASH b DASH c BAR ">"

static const char *const kimi_noise[] = { "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>",
	                                  "<|tool_call_section_begin|>", "<|tool_call_section_end|>", NULL };
static const char *const kimi_breaks[] = { "<|tool_calls_section_begin|>", "<|tool_call_section_begin|>",
	                                   "<|tool_call_begin|>", NULL };
static const struct speech kimi = {
	.think_open = "<think>", .think_close = "</think>", .noise = kimi_noise, .breaks = kimi_breaks
};
static const char *const deepseek_noise[] = { DS("tool", "calls", "begin"), DS("tool", "calls", "end"), NULL };
static const char *const deepseek_breaks[] = { DS("tool", "calls", "begin"), DS("tool", "call", "begin"), NULL };
static const struct speech deepseek = {
	.think_open = "<think>", .think_close = "</think>", .noise = deepseek_noise, .breaks = deepseek_breaks
};
static const char *const mistral_noise[] = { NULL };
const struct speech speech_brackets = {
	.think_open = "[THINK]", .think_close = "[/THINK]", .reopens = true, .noise = mistral_noise
};
static const char *const harmony_noise[] = {
	"<|start|>assistant",
	"<|channel|>final<|message|>",
	"<|channel|>commentary<|message|>",
	"<|channel|>final <|constrain|>json<|message|>",
	"<|end|>",
	"<|return|>",
	"<|call|>",
	NULL,
};
static const struct speech harmony = { .think_open = "<|channel|>analysis<|message|>",
	                               .think_close = "<|end|>",
	                               .reopens = true,
	                               .noise = harmony_noise,
	                               .content_open = "<|channel|>final<|message|>",
	                               .turn = "<|start|>assistant" };

static const struct named_form mistral_form = {
	.prefix = "", .end = "[ARGS]", .cut = "[", .close = "", .endless = true
};
static const struct named_form kimi_form = { .prefix = "functions.",
	                                     .end = "<|tool_call_argument_begin|>",
	                                     .cut = ":!",
	                                     .close = "<|tool_call_end|>",
	                                     .numbered = true };
static const struct named_form deepseek_form = { .prefix = "",
	                                         .end = "<" BAR "tool" DASH "sep" BAR ">",
	                                         .cut = "",
	                                         .close = DS("tool", "call", "end"),
	                                         .kind_first = true };
static const struct named_form functionary_form = { .prefix = "", .end = ">", .cut = "", .close = "</function>" };
static const struct named_form tagged_json_form = {
	.prefix = "", .end = ">", .cut = "", .close = "</function>", .known = true
};
static const struct named_form wrapped_json_form = {
	.prefix = "<function=", .end = ">", .cut = "", .close = "</function>", .wrap = "</tool_call>", .known = true
};
static const struct named_form harmony_form = {
	.prefix = "functions.", .end = "<|message|>", .cut = "<", .close = "<|call|>"
};

/* ---- held to schemas ---- */

#define SEP "<" BAR "tool" DASH "sep" BAR ">"
static const struct calls_spelling mistral_held = { .behind = { "[ARGS]", "[CALL_ID]\2[ARGS]" } };
static const struct calls_spelling kimi_held = { .head = { "functions." },
	                                         .behind = { ":\1<|tool_call_argument_begin|>" },
	                                         .last = "<|tool_call_end|>" };
static const struct calls_spelling deepseek_held = { .behind = { SEP }, .last = DS("tool", "call", "end") };
static const struct calls_spelling deepseek_fenced_held = { .head = { "function" SEP },
	                                                    .behind = { "\n```json\n" },
	                                                    .last = "\n```" DS("tool", "call", "end") };
static const struct calls_spelling functionary_held = { .behind = { ">" }, .last = "</function>" };
#define IN_CHANNEL(channel)                                                                                          \
	channel " <|constrain|>json<|message|>", channel "<|constrain|>json<|message|>", channel " json<|message|>", \
		channel "<|message|>"
static const struct calls_spelling harmony_held = { .head = { "functions." },
	                                            .behind = { IN_CHANNEL(""), IN_CHANNEL("<|channel|>commentary"),
	                                                        IN_CHANNEL("<|channel|>analysis") },
	                                            .last = "<|call|>" };
static const char *const mistral_marks[] = { "[ARGS]", "[CALL_ID]", NULL };
static const char *const kimi_marks[] = { "<|tool_call_argument_begin|>", "<|tool_call_end|>", NULL };
static const char *const deepseek_marks[] = { SEP, DS("tool", "call", "end"), NULL };
#define deepseek_fenced_marks deepseek_marks
static const char *const functionary_marks[] = { NULL };
static const char *const harmony_marks[] = { "<|channel|>", "<|constrain|>", "<|message|>", "<|call|>", NULL };

#define LEAD(id, before, after)                                       \
	static void id##_lead(struct buf *out, const char *function)  \
	{                                                             \
		lead_of(&dialect_##id, out, function, before, after); \
	}
LEAD(mistral, "", "[ARGS]")
LEAD(kimi, "<|tool_calls_section_begin|>", ":0<|tool_call_argument_begin|>")
LEAD(deepseek, DS("tool", "calls", "begin"), "<" BAR "tool" DASH "sep" BAR ">")
static void deepseek_fenced_lead(struct buf *out, const char *function)
{
	buf_printf(out, "%s%sfunction" SEP, DS("tool", "calls", "begin"), dialect_deepseek_fenced.open);
	if (function)
		buf_printf(out, "%s\n```json\n", function);
}
LEAD(functionary, "", ">")
LEAD(harmony, "", " <|constrain|>json<|message|>")

#define DIALECT(id, called, tag, whose, ...)                                                                          \
	{                                                                                                             \
		.name = called, .open = tag, .begins = begins, .read = read_call, .lead = id##_lead, .speech = whose, \
		.form = &id##_form, .held = &id##_held, .marks = id##_marks, __VA_ARGS__                              \
	}
#define deepseek_fenced_form deepseek_form
const struct dialect dialect_mistral = DIALECT(mistral, "mistral", "[TOOL_CALLS]", &speech_brackets);
const struct dialect dialect_kimi = DIALECT(kimi, "kimi", "<|tool_call_begin|>", &kimi);
const struct dialect dialect_deepseek = DIALECT(deepseek, "deepseek", DS("tool", "call", "begin"), &deepseek);
const struct dialect dialect_deepseek_fenced = DIALECT(deepseek_fenced, "deepseek", DS("tool", "call", "begin"),
                                                       &deepseek);
const struct dialect dialect_functionary = DIALECT(functionary, "functionary", "<function=", NULL);
/* Forms that models of other dialects write now and then; no grammar holds them to these. */
#define STRAY(id, tag)                                                                                        \
	{                                                                                                     \
		.name = "tagged", .open = tag, .begins = begins, .read = read_call, .lead = functionary_lead, \
		.form = &id##_form                                                                            \
	}
const struct dialect dialect_tagged_json = STRAY(tagged_json, "<function=");
const struct dialect dialect_wrapped_json = STRAY(wrapped_json, "<tool_call>");
/* The recipient follows the channel or the role, which the prompt may have said already. */
const struct dialect dialect_harmony = DIALECT(harmony, "harmony", "<|channel|>commentary to=", &harmony);
const struct dialect dialect_harmony_role = DIALECT(harmony, "harmony", "<|start|>assistant to=", &harmony);
const struct dialect dialect_harmony_analysis = DIALECT(harmony, "harmony", "<|channel|>analysis to=", &harmony);
const struct dialect dialect_harmony_bare = DIALECT(harmony, "harmony", " to=functions.", &harmony,
                                                    .opened = "functions.");
