/* pretok.c - see pretok.h. */
#include "text/tokens/pretok.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "base/clock.h"
#include "base/fault.h"

enum {
	STAGES_MAX = 16,
	DEPTH_MAX = 8,         /* of Sequence in Sequence */
	PATTERN_MAX = 1 << 14, /* bytes; o200k's has 400 */
	/* Steps of one match: 10 million is PCRE2's own default, and a run of letters
	 * costs the known patterns a few steps per byte of it. */
	STEPS_MIN = 10000000,
	STEPS_PER_BYTE = 16,
	JIT_STACK_MIN = 32 << 10,
	JIT_STACK_MAX = 1 << 20,
	HEAP_KIB_MAX = 64 << 10, /* of the interpreter, where there is no JIT */
	/* The step limit sees no loop inside the JIT that cannot backtrack, so a look-ahead
	 * over the rest of the text is caught by the clock.  Known patterns need 0.1 s per MB. */
	SECONDS_MIN = 10,
	SECONDS_PER_MB = 4,
	CLOCK_EVERY = 64, /* matches between looks at the clock */
};

/* GPT-2's expression, which ByteLevel with use_regex stands for. */
static const char gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* Unicode's White_Space; PCRE2's own \s has U+180E besides. */
#define WHITE_SPACE "\\t-\\r\\x{20}\\x{85}\\p{Z}"

enum behavior { REMOVED, ISOLATED, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT, CONTIGUOUS };

struct stage {
	pcre2_code *re; /* NULL: a stage that changes pieces: */
	char meta[8];   /* Metaspace's character in place of each space; "": a space is put in front */
	enum { NEVER, FIRST, ALWAYS } prepend; /* it, before a piece that has none there */
	bool jit;
	bool invert;
	enum behavior behavior;
};

struct pretok {
	struct stage stage[STAGES_MAX];
	int n;
	bool byte_level; /* seen; nothing may follow it */
};

struct pretok_run {
	const struct pretok *p;
	pcre2_match_data *match[STAGES_MAX];
	struct buf spaced[STAGES_MAX];
	pcre2_match_context *ctx;
	pcre2_jit_stack *stack;
	pretok_fn *fn;
	void *fn_ctx;
	struct err *err;
	const char *text;
	size_t n_text;
	bool first; /* the text at hand begins the whole */
	int64_t deadline;
	unsigned n_match;
};

/* ---- expressions ---- */

struct scan {
	const char *p;
	size_t n, i;
	struct buf *out;
	struct err *err;
};

static int lacking(const struct scan *s, size_t at, const char *what)
{
	return err_set(s->err, E_UNSUPPORTED, "regex: %s at byte %zu of \"%.100s\" is not done", what, at, s->p);
}

static bool starts(const struct scan *s, const char *word)
{
	size_t n = strlen(word);

	return s->n - s->i >= n && !memcmp(s->p + s->i, word, n);
}

/* A backslash and what belongs to it.  Only escapes that mean the same in both
 * dialects, or can be made to, pass. */
static int translate_escape(struct scan *s, bool in_class)
{
	size_t at = s->i++;
	char c = s->i < s->n ? s->p[s->i] : 0, what[] = "\\?";

	what[1] = c;
	s->i++;
	if (c == 's')
		buf_puts(s->out, in_class ? WHITE_SPACE : "[" WHITE_SPACE "]");
	else if (c == 'S' && !in_class)
		buf_puts(s->out, "[^" WHITE_SPACE "]");
	else if (c == 'v')
		buf_puts(s->out, "\\x0B");
	else if (c == 'u') {
		for (int k = 0; k < 4; k++)
			if (s->i + (size_t)k >= s->n || !strchr("0123456789abcdefABCDEF", s->p[s->i + (size_t)k]))
				return lacking(s, at, "\\u without 4 hexadecimal digits");
		buf_printf(s->out, "\\x{%.4s}", s->p + s->i);
		s->i += 4;
	} else if (c && strchr("pPx", c)) {
		/* The braces belong to it; elsewhere a brace ends a repeat. */
		const char *end = starts(s, "{") ? memchr(s->p + s->i, '}', s->n - s->i) : NULL;
		size_t len = end ? (size_t)(end - (s->p + s->i)) + 1 : 0;

		buf_put(s->out, what, 2);
		buf_put(s->out, s->p + s->i, len);
		s->i += len;
	} else if (c && (strchr("SdDrntf", c) || (c >= ' ' && c < 0x7F && c != '_' && !(c >= '0' && c <= '9') &&
	                                          !((c | 32) >= 'a' && (c | 32) <= 'z')))) {
		buf_put(s->out, what, 2);
	} else {
		return lacking(s, at, c > ' ' && c < 0x7F ? what : "a backslash");
	}
	return 0;
}

static int translate_class(struct scan *s)
{
	size_t at = s->i;
	int e;

	buf_putc(s->out, s->p[s->i++]);
	if (s->i < s->n && s->p[s->i] == '^')
		buf_putc(s->out, s->p[s->i++]);
	if (s->i < s->n && s->p[s->i] == ']')
		return lacking(s, at, "a set that begins with ]");
	while (s->i < s->n) {
		char c = s->p[s->i];

		if (c == '[')
			return lacking(s, s->i, "a set in a set");
		if (starts(s, "&&"))
			return lacking(s, s->i, "&& in a set");
		if (c == '\\') {
			if ((e = translate_escape(s, true)))
				return e;
			continue;
		}
		buf_putc(s->out, c);
		s->i++;
		if (c == ']')
			return 0;
	}
	return lacking(s, at, "a set without end");
}

int pretok_translate(const char *re, size_t n, struct buf *out, struct err *err)
{
	static const char *const group[] = { "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)", "(?-i:" };
	struct scan s = { re, n, 0, out, err };
	int e = 0;

	if (n > PATTERN_MAX)
		return err_set(err, E_LIMIT, "regex: %zu bytes, more than %d", n, PATTERN_MAX);
	if (memchr(re, 0, n))
		return err_set(err, E_UNSUPPORTED, "regex: holds a 0 byte");
	while (s.i < n && !e) {
		if (re[s.i] == '\\') {
			e = translate_escape(&s, false);
			continue;
		}
		if (re[s.i] == '[') {
			e = translate_class(&s);
			continue;
		}
		if (starts(&s, "(*"))
			return lacking(&s, s.i, "(*");
		if (starts(&s, "(?")) {
			size_t k = 0;

			while (k < sizeof group / sizeof *group && !starts(&s, group[k]))
				k++;
			if (k == sizeof group / sizeof *group)
				return lacking(&s, s.i, "this kind of (?");
			buf_puts(out, group[k]);
			s.i += strlen(group[k]);
			continue;
		}
		/* Possessive in one dialect, a repeated repeat in the other. */
		if (starts(&s, "}+"))
			return lacking(&s, s.i, "}+");
		buf_putc(out, re[s.i++]);
	}
	return e;
}

static int compile(const char *re, size_t n, bool plain, pcre2_code **out, struct err *err)
{
	uint32_t flags = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
	pcre2_compile_context *ctx;
	PCRE2_SIZE at;
	struct buf b;
	int e = 0, code;

	*out = NULL;
	buf_init(&b);
	if (plain)
		buf_put(&b, re, n);
	else
		e = pretok_translate(re, n, &b, err);
	if (e) {
		buf_fini(&b);
		return e;
	}
	/* In Oniguruma ^ and $ always mean lines, and only \n ends one. */
	flags = plain ? PCRE2_UTF | PCRE2_LITERAL : flags | PCRE2_MULTILINE;
	if (!(ctx = pcre2_compile_context_create(NULL)))
		fault_no_memory();
	pcre2_set_newline(ctx, PCRE2_NEWLINE_LF);
	*out = pcre2_compile((PCRE2_SPTR)b.p, b.n, flags, &code, &at, ctx);
	pcre2_compile_context_free(ctx);
	buf_fini(&b);
	if (!*out) {
		char msg[128];

		pcre2_get_error_message(code, (PCRE2_UCHAR *)msg, sizeof msg);
		return err_set(err, E_UNSUPPORTED, "regex: %s, in \"%.200s\"", msg, re);
	}
	return 0;
}

int pretok_compile(const char *re, size_t n, struct pcre2_real_code_8 **out, struct err *err)
{
	return compile(re, n, false, out, err);
}

/* Compiles re[0..n) into a new stage; plain means no expression but the bytes. */
static int add_regex(struct pretok *p, const char *re, size_t n, bool plain, enum behavior behavior, bool invert,
                     struct err *err)
{
	struct stage *st;
	uint32_t empty;
	int e;

	if (p->n == STAGES_MAX)
		return err_set(err, E_LIMIT, "more than %d stages", STAGES_MAX);
	st = &p->stage[p->n];
	if ((e = compile(re, n, plain, &st->re, err)))
		return e;
	p->n++; /* from here pretok_close frees it */
	st->behavior = behavior;
	st->invert = invert;
	pcre2_pattern_info(st->re, PCRE2_INFO_MATCHEMPTY, &empty);
	if (empty)
		return err_set(err, E_UNSUPPORTED, "regex: can match nothing at all: \"%.200s\"", re);
	st->jit = !pcre2_jit_compile(st->re, PCRE2_JIT_COMPLETE);
	return 0;
}

/* ---- loading ---- */

static int add_split(struct pretok *p, const struct json *j, struct err *err)
{
	static const char *const name[] = { "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
		                            "Contiguous" };
	const struct json *pattern = json_get(j, "pattern");
	const char *behavior, *s;
	bool invert;
	size_t n, k = 0;
	int e;

	if ((e = json_get_str(j, "behavior", "", &behavior, err)) ||
	    (e = json_get_bool(j, "invert", false, &invert, err)))
		return err_prefix(err, "Split");
	while (k < sizeof name / sizeof *name && strcmp(behavior, name[k]))
		k++;
	if (k == sizeof name / sizeof *name)
		return err_set(err, E_UNSUPPORTED, "Split behavior \"%.40s\" is not done", behavior);
	if ((s = json_str(json_get(pattern, "Regex"), &n)))
		e = add_regex(p, s, n, false, (enum behavior)k, invert, err);
	else if ((s = json_str(json_get(pattern, "String"), &n)) && n)
		e = add_regex(p, s, n, true, (enum behavior)k, invert, err);
	else
		return err_set(err, E_FORMAT, "Split: pattern must be {\"Regex\": text} or {\"String\": text}");
	return e ? err_prefix(err, "Split") : 0;
}

static int add_byte_level(struct pretok *p, const struct json *j, struct err *err)
{
	bool space, regex;
	int e;

	if ((e = json_get_bool(j, "add_prefix_space", true, &space, err)) ||
	    (e = json_get_bool(j, "use_regex", true, &regex, err)))
		return err_prefix(err, "ByteLevel");
	if (space) {
		if (p->n == STAGES_MAX)
			return err_set(err, E_LIMIT, "more than %d stages", STAGES_MAX);
		p->stage[p->n++] = (struct stage){ 0 };
	}
	if (regex && (e = add_regex(p, gpt2_pattern, strlen(gpt2_pattern), false, ISOLATED, false, err)))
		return e;
	p->byte_level = true;
	return 0;
}

/* Spaces become another character, one may be put in front, and words are cut before it. */
static int add_metaspace(struct pretok *p, const struct json *j, struct err *err)
{
	const char *with, *scheme;
	struct stage *st;
	bool split, space;
	int e;

	if ((e = json_get_str(j, "replacement", "\xE2\x96\x81", &with, err)) ||
	    (e = json_get_bool(j, "add_prefix_space", true, &space, err)) ||
	    (e = json_get_str(j, "prepend_scheme", space ? "always" : "never", &scheme, err)) ||
	    (e = json_get_bool(j, "split", true, &split, err)))
		return err_prefix(err, "Metaspace");
	if (!*with || strlen(with) >= sizeof st->meta)
		return err_set(err, E_FORMAT, "Metaspace replacement \"%.40s\": must be one character", with);
	if (strcmp(scheme, "always") && strcmp(scheme, "first") && strcmp(scheme, "never"))
		return err_set(err, E_UNSUPPORTED, "Metaspace prepend_scheme \"%.40s\" is not done", scheme);
	if (p->n == STAGES_MAX)
		return err_set(err, E_LIMIT, "more than %d stages", STAGES_MAX);
	st = &p->stage[p->n++];
	*st = (struct stage){ .prepend = *scheme == 'a' ? ALWAYS : *scheme == 'f' ? FIRST : NEVER };
	memcpy(st->meta, with, strlen(with) + 1);
	return split ? add_regex(p, with, strlen(with), true, MERGED_WITH_NEXT, false, err) : 0;
}

/* White space is dropped, and BERT's punctuation stands alone. */
static const char white[] = "\\s+", punctuation[] = "[!-/:-@\\[-`{-~\\p{P}]",
		  words[] = "[\\p{L}\\p{M}\\p{N}\\p{Pc}]+|[^\\p{L}\\p{M}\\p{N}\\p{Pc}\\s]+";

/* Types without options of their own that are expressions.  1: it is none of them. */
static int add_fixed(struct pretok *p, const char *type, struct err *err)
{
	int e;

	if (!strcmp(type, "WhitespaceSplit"))
		return add_regex(p, white, strlen(white), false, REMOVED, false, err);
	if (!strcmp(type, "Whitespace"))
		return add_regex(p, words, strlen(words), false, REMOVED, true, err);
	if (!strcmp(type, "Punctuation"))
		return add_regex(p, punctuation, strlen(punctuation), false, ISOLATED, false, err);
	if (strcmp(type, "BertPreTokenizer"))
		return 1;
	e = add_regex(p, white, strlen(white), false, REMOVED, false, err);
	return e ? e : add_regex(p, punctuation, strlen(punctuation), false, ISOLATED, false, err);
}

static int add_stage(struct pretok *p, const struct json *j, int depth, struct err *err)
{
	const char *type;
	bool each;
	int e;

	if (depth > DEPTH_MAX)
		return err_set(err, E_LIMIT, "Sequence nested deeper than %d", DEPTH_MAX);
	if (json_kind(j) != JSON_OBJECT)
		return err_set(err, E_UNSUPPORTED, "must be an object, is %s", json_kind_name(json_kind(j)));
	if ((e = json_get_str(j, "type", "", &type, err)))
		return e;
	if (!strcmp(type, "Sequence")) {
		const struct json *list = json_get(j, "pretokenizers");

		for (size_t i = 0; i < json_len(list); i++)
			if ((e = add_stage(p, json_at(list, i), depth + 1, err)))
				return e;
		return 0;
	}
	if (p->byte_level)
		return err_set(err, E_UNSUPPORTED, "\"%.40s\" after ByteLevel is not done", type);
	if (!strcmp(type, "ByteLevel"))
		return add_byte_level(p, j, err);
	if (!strcmp(type, "Split"))
		return add_split(p, j, err);
	if (!strcmp(type, "Digits")) {
		if ((e = json_get_bool(j, "individual_digits", false, &each, err)))
			return err_prefix(err, "Digits");
		return add_regex(p, "\\p{N}", 5, false, each ? ISOLATED : CONTIGUOUS, false, err);
	}
	if (!strcmp(type, "Metaspace"))
		return add_metaspace(p, j, err);
	e = add_fixed(p, type, err);
	return e <= 0 ? e : err_set(err, E_UNSUPPORTED, "type \"%.40s\" is not done", type);
}

bool pretok_byte_level(const struct pretok *p)
{
	return p->byte_level;
}

int pretok_open(struct pretok **out, const struct json *pre, struct err *err)
{
	struct pretok *p = xcalloc(1, sizeof *p);
	int e = json_kind(pre) == JSON_NULL ? 0 : add_stage(p, pre, 0, err);

	*out = NULL;
	if (e) {
		pretok_close(p);
		return err_prefix(err, "pre_tokenizer");
	}
	*out = p;
	return 0;
}

void pretok_close(struct pretok *p)
{
	if (!p)
		return;
	for (int i = 0; i < p->n; i++)
		pcre2_code_free(p->stage[i].re);
	free(p);
}

/* ---- splitting ---- */

struct pretok_run *pretok_run_new(const struct pretok *p, size_t n)
{
	struct pretok_run *r = xcalloc(1, sizeof *r);

	r->p = p;
	r->deadline = clock_monotonic_ns() + (SECONDS_MIN + (int64_t)(n >> 20) * SECONDS_PER_MB) * 1000000000;
	r->ctx = pcre2_match_context_create(NULL);
	/* Where there is no JIT the stack is NULL, and unused. */
	r->stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX, NULL);
	if (!r->ctx)
		fault_no_memory();
	pcre2_jit_stack_assign(r->ctx, NULL, r->stack);
	pcre2_set_heap_limit(r->ctx, HEAP_KIB_MAX);
	for (int i = 0; i < p->n; i++) {
		buf_init(&r->spaced[i]);
		if (p->stage[i].re && !(r->match[i] = pcre2_match_data_create(1, NULL)))
			fault_no_memory();
	}
	return r;
}

void pretok_run_free(struct pretok_run *r)
{
	if (!r)
		return;
	for (int i = 0; i < r->p->n; i++) {
		buf_fini(&r->spaced[i]);
		pcre2_match_data_free(r->match[i]);
	}
	pcre2_jit_stack_free(r->stack);
	pcre2_match_context_free(r->ctx);
	free(r);
}

static int split_from(struct pretok_run *r, int stage, const char *p, size_t n);

/* Pieces of one stage on their way to the next; behaviours that join pieces hold
 * one back. */
struct joiner {
	struct pretok_run *r;
	int stage;
	const char *p;
	size_t start, end; /* held back; start == end: nothing */
	bool held_match, last_match;
};

static int pass_on(struct joiner *j)
{
	size_t start = j->start;

	j->start = j->end;
	return start < j->end ? split_from(j->r, j->stage + 1, j->p + start, j->end - start) : 0;
}

/* The next piece [start, end): part of a match, or between two. */
static int join(struct joiner *j, size_t start, size_t end, bool match)
{
	const struct stage *st = &j->r->p->stage[j->stage];
	bool extend = false;
	int e;

	if (start == end)
		return 0;
	match ^= st->invert;
	switch (st->behavior) {
	case REMOVED:
		if (match)
			return 0;
		break;
	case ISOLATED: break;
	case CONTIGUOUS: extend = match == j->held_match; break;
	case MERGED_WITH_PREVIOUS: extend = match && !j->last_match; break;
	case MERGED_WITH_NEXT: extend = !match && j->held_match; break;
	}
	j->last_match = match;
	if (extend && j->start < j->end) {
		j->end = end;
		if (st->behavior != CONTIGUOUS)
			j->held_match = false;
		return 0;
	}
	if ((e = pass_on(j)))
		return e;
	j->start = start;
	j->end = end;
	j->held_match = match;
	return 0;
}

static int gave_up(struct pretok_run *r, const char *at, const char *why)
{
	/* A piece with a space in front is a copy: then the offset is of the copy. */
	bool inside = at >= r->text && at <= r->text + r->n_text;

	return err_set(r->err, E_LIMIT, "pre_tokenizer: gave up at byte %zu of %zu: %s",
	               inside ? (size_t)(at - r->text) : (size_t)0, r->n_text, why);
}

static int split_regex(struct pretok_run *r, int stage, const char *p, size_t n)
{
	const struct stage *st = &r->p->stage[stage];
	struct joiner j = { r, stage, p, 0, 0, false, false };
	const PCRE2_SIZE *o = pcre2_get_ovector_pointer(r->match[stage]);
	size_t done = 0;
	int e, rc;

	while (done < n) {
		/* A match cannot be stopped, and one of a word of 8 MB takes 20 ms. */
		if (!allowance_spend(1))
			return gave_up(r, p + done, allowance_why());
		rc = st->jit ? pcre2_jit_match(st->re, (PCRE2_SPTR)p, n, done, 0, r->match[stage], r->ctx) :
		               pcre2_match(st->re, (PCRE2_SPTR)p, n, done, PCRE2_NO_UTF_CHECK, r->match[stage], r->ctx);
		if (rc == PCRE2_ERROR_NOMATCH)
			break;
		if (rc < 0 || o[1] <= o[0] || o[0] < done || o[1] > n) {
			char msg[128] = "an empty match";

			if (rc < 0)
				pcre2_get_error_message(rc, (PCRE2_UCHAR *)msg, sizeof msg);
			return gave_up(r, p + done, msg);
		}
		if (++r->n_match % CLOCK_EVERY == 0 && clock_monotonic_ns() > r->deadline)
			return gave_up(r, p + done, "out of time");
		size_t from = o[0], to = o[1];

		if ((e = join(&j, done, from, false)) || (e = join(&j, from, to, true)))
			return e;
		done = to;
	}
	if ((e = join(&j, done, n, false)))
		return e;
	return pass_on(&j);
}

/* A stage that changes a piece makes a copy of it. */
static int change_piece(struct pretok_run *r, int stage, const char *p, size_t n)
{
	const struct stage *st = &r->p->stage[stage];
	struct buf *b = &r->spaced[stage];
	size_t len = strlen(st->meta);

	if (!len && *p == ' ')
		return split_from(r, stage + 1, p, n);
	buf_reset(b);
	if (!len)
		buf_putc(b, ' ');
	for (size_t i = 0; i < n; i++)
		if (len && p[i] == ' ')
			buf_put(b, st->meta, len);
		else
			buf_putc(b, p[i]);
	if (len && (st->prepend == ALWAYS || (st->prepend == FIRST && r->first && p == r->text)) &&
	    (b->n < len || memcmp(b->p, st->meta, len))) {
		buf_reserve(b, len);
		memmove(b->p + len, b->p, b->n + 1);
		memcpy(b->p, st->meta, len);
		b->n += len;
	}
	return split_from(r, stage + 1, b->p, b->n);
}

static int split_from(struct pretok_run *r, int stage, const char *p, size_t n)
{
	if (stage == r->p->n) {
		r->fn(r->fn_ctx, p, n);
		return 0;
	}
	if (r->p->stage[stage].re)
		return split_regex(r, stage, p, n);
	return change_piece(r, stage, p, n);
}

int pretok_split(struct pretok_run *r, const char *text, size_t n, bool first, pretok_fn *fn, void *ctx,
                 struct err *err)
{
	uint64_t steps = STEPS_MIN + (uint64_t)n * STEPS_PER_BYTE;

	if (!n)
		return 0;
	r->first = first;
	r->fn = fn;
	r->fn_ctx = ctx;
	r->err = err;
	r->text = text;
	r->n_text = n;
	pcre2_set_match_limit(r->ctx, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
	return split_from(r, 0, text, n);
}
