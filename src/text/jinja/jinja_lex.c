/* jinja_lex.c - template text to tokens.
 *
 * Jinja's own rules for white space are here: one newline at the end of the
 * source is dropped, a newline after a tag is dropped (trim_blocks), blanks
 * between a line's start and a tag are dropped (lstrip_blocks), and - and + inside
 * the delimiters override both.  The whole source is lexed before parsing. */
#include "text/jinja/jinja.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"

struct lexer {
	struct jcompile *c;
	const char *p; /* newlines are \n alone */
	size_t n, at;
	int line;
	bool line_starting; /* what was consumed last ended with a newline */
	char *stack;        /* closing brackets that are due */
	size_t depth, cap_depth;
};

static struct token *push(struct lexer *x, enum tkind kind)
{
	struct jcompile *c = x->c;

	if (c->n_tok == c->cap_tok) {
		struct token *old = c->tok;

		c->cap_tok = c->cap_tok ? c->cap_tok * 2 : 256;
		c->tok = arena_alloc(&c->t->mem, size_mul(c->cap_tok, sizeof *c->tok));
		if (c->n_tok)
			memcpy(c->tok, old, c->n_tok * sizeof *old);
	}
	c->tok[c->n_tok] = (struct token){ .kind = kind, .line = x->line };
	return &c->tok[c->n_tok++];
}

static int count_lines(const char *p, size_t n)
{
	int lines = 0;

	for (const char *end = p + n; (p = memchr(p, '\n', (size_t)(end - p))); p++)
		lines++;
	return lines;
}

static bool looking_at(const struct lexer *x, size_t at, const char *s)
{
	size_t n = strlen(s);

	return x->n - at >= n && !memcmp(x->p + at, s, n);
}

static size_t skip_space(const struct lexer *x, size_t at)
{
	size_t k;

	while (at < x->n && (k = space_at(x->p + at, x->n - at)))
		at += k;
	return at;
}

/* Moves to `to`, counting lines. */
static void advance(struct lexer *x, size_t to)
{
	if (to > x->at) {
		x->line += count_lines(x->p + x->at, to - x->at);
		x->line_starting = x->p[to - 1] == '\n';
	}
	x->at = to;
}

/* Template text [x->at, end) before a tag whose sign is given; sign 0 and
 * lstrip mean that blanks back to the line's start go. */
static void put_data(struct lexer *x, size_t end, int sign, bool lstrip)
{
	size_t start = x->at, stop = end, k;
	struct token *t;

	if (sign == '-') {
		while (stop > start && (k = space_before(x->p + start, stop - start)))
			stop -= k;
	} else if (sign != '+' && lstrip) {
		const char *nl = memrchr(x->p + start, '\n', end - start);
		size_t line = nl ? (size_t)(nl - x->p) + 1 : start;

		if ((nl || x->line_starting) && skip_space(x, line) >= end)
			stop = line;
	}
	if (stop > start) {
		t = push(x, T_DATA);
		t->p = x->p + start;
		t->n = stop - start;
	}
	advance(x, end);
}

static int sign_at(const struct lexer *x, size_t at)
{
	return at < x->n && (x->p[at] == '-' || x->p[at] == '+') ? x->p[at] : 0;
}

/* End of "{% raw %}" when one is at `at`, else 0. */
static size_t raw_begin(const struct lexer *x, size_t at)
{
	if (!looking_at(x, at, "{%"))
		return 0;
	at += 2;
	if (sign_at(x, at))
		at++;
	at = skip_space(x, at);
	if (!looking_at(x, at, "raw"))
		return 0;
	at = skip_space(x, at + 3);
	if (looking_at(x, at, "-%}"))
		return skip_space(x, at + 3);
	return looking_at(x, at, "%}") ? at + 2 : 0;
}

/* After a "%}" or "#}" at `at` (its sign included): where text goes on. */
static size_t tag_end(const struct lexer *x, size_t at, const char *close)
{
	if (x->p[at] == '-')
		return skip_space(x, at + 3);
	if (x->p[at] == '+')
		return at + 3;
	at += strlen(close);
	return at < x->n && x->p[at] == '\n' ? at + 1 : at;
}

static bool tag_closes(const struct lexer *x, size_t at, const char *close)
{
	if (sign_at(x, at))
		at++;
	return looking_at(x, at, close);
}

static void lex_raw(struct lexer *x)
{
	for (size_t at = x->at; at < x->n; at++) {
		size_t i = at;
		int sign;

		if (!looking_at(x, at, "{%"))
			continue;
		i += 2;
		sign = sign_at(x, i);
		if (sign)
			i++;
		i = skip_space(x, i);
		if (!looking_at(x, i, "endraw"))
			continue;
		i = skip_space(x, i + 6);
		if (!tag_closes(x, i, "%}"))
			continue;
		put_data(x, at, sign, true);
		advance(x, tag_end(x, i, "%}"));
		return;
	}
	jc_fail(x->c, E_FORMAT, x->line, "{%% raw %%} without {%% endraw %%}");
}

static void lex_comment(struct lexer *x)
{
	for (size_t at = x->at; at < x->n; at++) {
		if (tag_closes(x, at, "#}")) {
			advance(x, tag_end(x, at, "#}"));
			return;
		}
	}
	jc_fail(x->c, E_FORMAT, x->line, "comment without end");
}

/* ---- inside of a tag ---- */

static const struct {
	const char *s;
	enum tkind kind;
} operators[] = {
	{ "//", T_FLOORDIV }, { "**", T_POW },   { "==", T_EQ },      { "!=", T_NE },      { ">=", T_GE },
	{ "<=", T_LE },       { "+", T_ADD },    { "-", T_SUB },      { "/", T_DIV },      { "*", T_MUL },
	{ "%", T_MOD },       { "~", T_TILDE },  { "[", T_LBRACKET }, { "]", T_RBRACKET }, { "(", T_LPAREN },
	{ ")", T_RPAREN },    { "{", T_LBRACE }, { "}", T_RBRACE },   { ">", T_GT },       { "<", T_LT },
	{ "=", T_ASSIGN },    { ".", T_DOT },    { ":", T_COLON },    { "|", T_PIPE },     { ",", T_COMMA },
	{ ";", T_SEMICOLON },
};

static void balance(struct lexer *x, char c)
{
	char due;

	if (c == '(' || c == '[' || c == '{') {
		if (x->depth == x->cap_depth)
			jc_fail(x->c, E_LIMIT, x->line, "brackets nested more than %zu deep", x->cap_depth);
		x->stack[x->depth++] = c == '(' ? ')' : c == '[' ? ']' : '}';
	} else if (c == ')' || c == ']' || c == '}') {
		if (!x->depth)
			jc_fail(x->c, E_FORMAT, x->line, "unexpected '%c'", c);
		due = x->stack[--x->depth];
		if (due != c)
			jc_fail(x->c, E_FORMAT, x->line, "unexpected '%c', expected '%c'", c, due);
	}
}

static bool digit(int c)
{
	return c >= '0' && c <= '9';
}

/* Digits with single underscores between them; returns the end. */
static size_t digits_end(const struct lexer *x, size_t at)
{
	while (at < x->n && (digit(x->p[at]) ||
	                     (x->p[at] == '_' && at + 1 < x->n && digit(x->p[at + 1]) && at && digit(x->p[at - 1]))))
		at++;
	return at;
}

static void lex_number(struct lexer *x)
{
	size_t at = x->at, end = digits_end(x, at), frac, n = 0;
	bool is_float = false;
	char text[64];
	struct token *t;
	int base = 10;

	/* A number after a dot is an index (x.0.1), never a fraction. */
	if (!at || x->p[at - 1] != '.') {
		if (end + 1 < x->n && x->p[end] == '.' && digit(x->p[end + 1])) {
			end = digits_end(x, end + 1);
			is_float = true;
		}
		frac = end;
		if (frac < x->n && (x->p[frac] | 32) == 'e') {
			frac++;
			if (frac < x->n && (x->p[frac] == '+' || x->p[frac] == '-'))
				frac++;
			if (frac < x->n && digit(x->p[frac])) {
				end = digits_end(x, frac);
				is_float = true;
			}
		}
	}
	if (!is_float && x->p[at] == '0') {
		int c = at + 1 < x->n ? x->p[at + 1] | 32 : 0;

		base = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
		if (base != 10) {
			for (end = at + 2;
			     end < x->n && (x->p[end] == '_' || digit(x->p[end]) ||
			                    (base == 16 && (x->p[end] | 32) >= 'a' && (x->p[end] | 32) <= 'f'));
			     end++)
				;
		} else { /* zeros only: "012" is the two numbers 0 and 12 */
			for (end = at + 1; end < x->n && x->p[end] == '0'; end++)
				;
		}
	}
	for (size_t i = at; i < end; i++) {
		if (n + 1 == sizeof text)
			jc_fail(x->c, E_LIMIT, x->line, "number of more than %zu digits", sizeof text - 1);
		if (x->p[i] != '_')
			text[n++] = x->p[i];
	}
	text[n] = 0;
	t = push(x, is_float ? T_FLOAT : T_INT);
	t->p = x->p + at;
	t->n = end - at;
	if (is_float)
		parse_float(text, n, &t->d);
	else if (!parse_int(text, n, base, &t->i))
		jc_fail(x->c, E_UNSUPPORTED, x->line, "integer %s: not a number, or beyond 64 bits", text);
	advance(x, end);
}

static bool word_char(const char *p, size_t n, int *len)
{
	uint32_t cp;
	utf8proc_category_t cat;

	*len = 1;
	if ((unsigned char)*p < 0x80)
		return ((*p | 32) >= 'a' && (*p | 32) <= 'z') || digit(*p) || *p == '_';
	*len = utf8_decode(p, n, &cp);
	cat = utf8proc_category((utf8proc_int32_t)cp);
	/* letters, marks, numbers, connectors */
	return cat >= UTF8PROC_CATEGORY_LU && cat <= UTF8PROC_CATEGORY_PC;
}

static void lex_name(struct lexer *x)
{
	size_t end = x->at;
	struct token *t;
	int len;

	while (end < x->n && word_char(x->p + end, x->n - end, &len))
		end += (size_t)len;
	t = push(x, T_NAME);
	t->p = x->p + x->at;
	t->n = end - x->at;
	t->name = jc_name(x->c, t->p, t->n);
	advance(x, end);
}

static int hex_digit(int c)
{
	return digit(c) ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* Python's string escapes over p[0..n); out has room for n bytes. */
static size_t unescape(struct lexer *x, const char *p, size_t n, char *out)
{
	static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
	size_t o = 0, i = 0;

	while (i < n) {
		const char *plain;
		uint32_t cp = 0;
		int digits, k;

		if (p[i] != '\\' || i + 1 == n) {
			out[o++] = p[i++];
			continue;
		}
		i++;
		plain = strchr(from, p[i]);
		if (plain && p[i]) {
			out[o++] = to[plain - from];
			i++;
			continue;
		}
		if (p[i] == '\n') {
			i++;
			continue;
		}
		if (p[i] >= '0' && p[i] <= '7') {
			for (k = 0; k < 3 && i < n && p[i] >= '0' && p[i] <= '7'; k++)
				cp = cp * 8 + (uint32_t)(p[i++] - '0');
		} else if (p[i] == 'x' || p[i] == 'u' || p[i] == 'U') {
			digits = p[i] == 'x' ? 2 : p[i] == 'u' ? 4 : 8;
			i++;
			for (k = 0; k < digits; k++, i++) {
				int h = i < n ? hex_digit(p[i]) : -1;

				if (h < 0 || cp > 0x10FFFFF)
					jc_fail(x->c, E_FORMAT, x->line, "truncated escape in string");
				cp = cp << 4 | (uint32_t)h;
			}
			if (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000))
				jc_fail(x->c, E_UNSUPPORTED, x->line, "escape U+%04X in string: not a character", cp);
		} else if (p[i] == 'N') {
			jc_fail(x->c, E_UNSUPPORTED, x->line, "\\N escape in string");
		} else { /* an unknown escape stays, backslash and all */
			out[o++] = '\\';
			continue;
		}
		o += (size_t)utf8_encode(cp, out + o);
	}
	return o;
}

static void lex_string(struct lexer *x)
{
	char quote = x->p[x->at];
	size_t start = x->at + 1, end = start;
	struct token *t;
	char *text;

	while (end < x->n && x->p[end] != quote)
		end += x->p[end] == '\\' ? 2 : 1;
	if (end >= x->n)
		jc_fail(x->c, E_FORMAT, x->line, "unexpected char '%c': string without end", quote);
	text = arena_alloc(&x->c->t->mem, end - start + 4);
	t = push(x, T_STRING);
	t->p = text;
	t->n = unescape(x, x->p + start, end - start, text);
	advance(x, end + 1);
}

static void lex_operator(struct lexer *x)
{
	for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
		if (looking_at(x, x->at, operators[i].s)) {
			balance(x, x->p[x->at]);
			push(x, operators[i].kind);
			advance(x, x->at + strlen(operators[i].s));
			return;
		}
	}
	jc_fail(x->c, E_FORMAT, x->line, "unexpected char '%c' (byte 0x%02x)", x->p[x->at] & 0x80 ? '?' : x->p[x->at],
	        (unsigned char)x->p[x->at]);
}

/* One token inside of {{ }} or {% %}. */
static void lex_inner(struct lexer *x)
{
	size_t at = skip_space(x, x->at);
	int len;

	if (at > x->at) {
		advance(x, at);
		return;
	}
	if (digit(x->p[at]))
		lex_number(x);
	else if (x->p[at] == '"' || x->p[at] == '\'')
		lex_string(x);
	else if (word_char(x->p + at, x->n - at, &len))
		lex_name(x);
	else
		lex_operator(x);
}

static void lex_tag(struct lexer *x, bool block)
{
	int line = x->line;

	push(x, block ? T_BLOCK_BEGIN : T_VAR_BEGIN);
	advance(x, x->at + 2 + (sign_at(x, x->at + 2) ? 1 : 0));
	x->depth = 0;
	while (x->at < x->n) {
		if (!x->depth && block && tag_closes(x, x->at, "%}")) {
			push(x, T_BLOCK_END);
			advance(x, tag_end(x, x->at, "%}"));
			return;
		}
		if (!x->depth && !block && (looking_at(x, x->at, "}}") || looking_at(x, x->at, "-}}"))) {
			push(x, T_VAR_END);
			advance(x, x->p[x->at] == '-' ? skip_space(x, x->at + 3) : x->at + 2);
			return;
		}
		lex_inner(x);
	}
	jc_fail(x->c, E_FORMAT, line, "%s without end", block ? "{%" : "{{");
}

/* Newlines to \n, and one at the end dropped. */
static size_t normalize(const char *src, size_t n, char *out)
{
	size_t o = 0;

	for (size_t i = 0; i < n; i++) {
		if (src[i] == '\r') {
			out[o++] = '\n';
			if (i + 1 < n && src[i + 1] == '\n')
				i++;
		} else {
			out[o++] = src[i];
		}
	}
	return o && out[o - 1] == '\n' ? o - 1 : o;
}

void jinja_lex(struct jcompile *c, const char *src, size_t n)
{
	char *text = arena_alloc(&c->t->mem, n + 1);
	struct lexer x = { .c = c, .p = text, .line = 1, .line_starting = true };
	size_t raw;

	x.n = normalize(src, n, text);
	text[x.n] = 0;
	x.cap_depth = (size_t)c->t->lim.nest_max;
	x.stack = arena_alloc(&c->t->mem, x.cap_depth);
	while (x.at < x.n) {
		size_t at = x.at;

		for (; at < x.n; at++)
			if (x.p[at] == '{' && at + 1 < x.n && strchr("{%#", x.p[at + 1]) && x.p[at + 1])
				break;
		if (at >= x.n) {
			struct token *t = push(&x, T_DATA);

			t->p = x.p + x.at;
			t->n = x.n - x.at;
			break;
		}
		raw = raw_begin(&x, at);
		put_data(&x, at, sign_at(&x, at + 2), x.p[at + 1] != '{');
		if (raw) {
			advance(&x, raw);
			lex_raw(&x);
		} else if (x.p[at + 1] == '#') {
			advance(&x, at + 2 + (sign_at(&x, at + 2) ? 1 : 0));
			lex_comment(&x);
		} else {
			lex_tag(&x, x.p[at + 1] == '%');
		}
	}
	push(&x, T_EOF);
}
