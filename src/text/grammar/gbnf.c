/* gbnf.c - grammars as llama.cpp's clients write them:
 *
 *     root ::= item ("," item)*        # a comment
 *     item ::= [a-z]+ | "(" root ")" | "x"{2,4} | .
 *
 * Read into rules (rules.h).  A rule ends with its line, but for what is in
 * parentheses or behind a | or ::=, and a line that begins with | goes on. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/grammar/pattern.h"
#include "text/grammar/rules.h"

/* ---- rules ---- */

void rules_init(struct rules *r, const char *text, size_t n)
{
	memset(r, 0, sizeof *r);
	r->text = text;
	r->n_text = n;
	arena_init(&r->a);
}

void rules_fini(struct rules *r)
{
	free(r->expr);
	free(r->rule);
	free(r->range);
	arena_fini(&r->a);
}

int rules_add(struct rules *r, const char *name, size_t n, size_t at)
{
	if (r->n_rule == r->cap_rule) {
		r->cap_rule = r->cap_rule ? 2 * r->cap_rule : 32;
		r->rule = xrealloc(r->rule, size_mul((size_t)r->cap_rule, sizeof *r->rule));
	}
	r->rule[r->n_rule] = (struct rule){ .name = arena_strndup(&r->a, name, n), .n_name = n, .at = at, .body = -1 };
	return r->n_rule++;
}

int rules_named(struct rules *r, const char *name, size_t n, size_t at)
{
	for (int i = 0; i < r->n_rule; i++)
		if (r->rule[i].n_name == n && !memcmp(r->rule[i].name, name, n))
			return i;
	return r->n_rule == RULES_MAX ? -1 : rules_add(r, name, n, at);
}

int expr_new(struct rules *r, enum expr_kind kind, size_t at)
{
	if (r->n_expr == EXPRS_MAX)
		return -1;
	if (r->n_expr == r->cap_expr) {
		r->cap_expr = r->cap_expr ? 2 * r->cap_expr : 64;
		r->expr = xrealloc(r->expr, size_mul((size_t)r->cap_expr, sizeof *r->expr));
	}
	r->expr[r->n_expr] = (struct expr){ .kind = kind, .first = -1, .next = -1, .at = at };
	return r->n_expr++;
}

int expr_text(struct rules *r, const char *p, size_t n)
{
	int e = expr_new(r, EXPR_TEXT, 0);

	if (e >= 0) {
		r->expr[e].p = arena_strndup(&r->a, p, n);
		r->expr[e].n = n;
	}
	return e;
}

int rules_fail(const struct rules *r, int rule, size_t at, struct err *err, int code, const char *fmt, ...)
{
	size_t line = 1, column = 1;
	char what[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	for (size_t i = 0; r->text && i < at && i < r->n_text; i++) {
		line += r->text[i] == '\n';
		column = r->text[i] == '\n' ? 1 : column + ((r->text[i] & 0xC0) != 0x80);
	}
	if (rule < 0)
		return err_set(err, code, "line %zu, column %zu: %s", line, column, what);
	return err_set(err, code, "rule \"%.60s\", line %zu, column %zu: %s", r->rule[rule].name, line, column, what);
}

/* ---- reading ---- */

struct reader {
	struct rules *r;
	const char *p;
	size_t n, at;
	int rule; /* that is being read; -1: none */
	int depth;
	struct err *err;
};

static int bad(const struct reader *g, const char *what)
{
	return rules_fail(g->r, g->rule, g->at, g->err, E_FORMAT, "%s", what);
}

static int unsupported(const struct reader *g, const char *what)
{
	return rules_fail(g->r, g->rule, g->at, g->err, E_UNSUPPORTED, "%s are not supported", what);
}

static int too_many(const struct reader *g, const char *what)
{
	return rules_fail(g->r, g->rule, g->at, g->err, E_LIMIT, "%s", what);
}

static char peek(const struct reader *g)
{
	return g->at < g->n ? g->p[g->at] : 0;
}

static bool eat(struct reader *g, char c)
{
	if (g->at == g->n || g->p[g->at] != c)
		return false;
	g->at++;
	return true;
}

/* Blanks and comments; line breaks too, or up to one. */
static void skip(struct reader *g, bool lines)
{
	while (g->at < g->n) {
		char c = g->p[g->at];

		if (c == '#')
			while (g->at < g->n && g->p[g->at] != '\n')
				g->at++;
		else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r')))
			g->at++;
		else
			return;
	}
}

static bool name_char(char c)
{
	return isalnum((unsigned char)c) || c == '-' || c == '_' || c == '.';
}

static size_t name_length(const struct reader *g)
{
	size_t n = 0;

	/* A dot is part of a name, but does not begin one: it is any character. */
	while (g->at + n < g->n && name_char(g->p[g->at + n]) && (n || g->p[g->at] != '.'))
		n++;
	return n;
}

static int hex(struct reader *g, int n, uint32_t *out)
{
	for (*out = 0; n; n--, g->at++) {
		int c = tolower((unsigned char)peek(g));

		if (!isxdigit(c))
			return bad(g, "no hexadecimal digit");
		*out = *out * 16 + (uint32_t)(isdigit(c) ? c - '0' : c - 'a' + 10);
	}
	return 0;
}

/* One character of a literal or a class. */
static int character(struct reader *g, uint32_t *cp)
{
	static const char from[] = "trn\\\"[]-^/'", to[] = "\t\r\n\\\"[]-^/'";
	const char *k;
	int n, rc;
	char c;

	if (g->at == g->n || *(g->p + g->at) == '\n')
		return bad(g, "the line ends inside of a text or a class");
	if (!eat(g, '\\')) {
		if (!(n = utf8_decode(g->p + g->at, g->n - g->at, cp)))
			return bad(g, "invalid UTF-8");
		g->at += (size_t)n;
		return 0;
	}
	c = peek(g);
	if (c && (k = strchr(from, c))) {
		*cp = (uint32_t)(unsigned char)to[k - from];
		g->at++;
		return 0;
	}
	if (c != 'x' && c != 'u' && c != 'U')
		return bad(g, "no escape that is known");
	g->at++;
	rc = hex(g, c == 'x' ? 2 : c == 'u' ? 4 : 8, cp);
	if (!rc && (*cp > 0x10FFFF || (*cp >= 0xD800 && *cp < 0xE000)))
		return bad(g, "no character");
	return rc;
}

static int read_text(struct reader *g, int e)
{
	struct buf text;
	char utf8[4];
	uint32_t cp;
	int rc = 0;

	buf_init(&text);
	while (!rc && !eat(g, '"'))
		if (!(rc = character(g, &cp)))
			buf_put(&text, utf8, (size_t)utf8_encode(cp, utf8));
	if (!rc) {
		g->r->expr[e].p = arena_strndup(&g->r->a, text.p ? text.p : "", text.n);
		g->r->expr[e].n = text.n;
	}
	buf_fini(&text);
	return rc;
}

void expr_range(struct rules *r, int e, uint32_t lo, uint32_t hi)
{
	if (!r->expr[e].n_range)
		r->expr[e].range = r->n_range;
	if (r->n_range == r->cap_range) {
		r->cap_range = r->cap_range ? 2 * r->cap_range : 64;
		r->range = xrealloc(r->range, size_mul((size_t)r->cap_range, sizeof *r->range));
	}
	r->range[r->n_range].lo = lo;
	r->range[r->n_range++].hi = hi;
	r->expr[e].n_range++;
}

static int by_low(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* Replaces the ranges of e by their complement. */
static void invert(struct rules *r, int e)
{
	int from = r->expr[e].range, n = r->expr[e].n_range;
	uint32_t next = 0;

	if (n) /* of [^] there is none, and perhaps no array */
		qsort(r->range + from, (size_t)n, sizeof *r->range, by_low);
	r->expr[e].range = r->n_range;
	r->expr[e].n_range = 0;
	for (int i = from; i < from + n; i++) {
		uint32_t lo = r->range[i].lo, hi = r->range[i].hi;

		if (lo > next)
			expr_range(r, e, next, lo - 1);
		if (hi + 1 > next)
			next = hi + 1;
	}
	if (next <= 0x10FFFF)
		expr_range(r, e, next, 0x10FFFF);
}

static int read_class(struct reader *g, int e)
{
	bool others = eat(g, '^');
	uint32_t lo, hi;
	int rc;

	g->r->expr[e].range = g->r->n_range;
	while (!eat(g, ']')) {
		if ((rc = character(g, &lo)))
			return rc;
		hi = lo;
		if (peek(g) == '-' && g->at + 1 < g->n && g->p[g->at + 1] != ']') {
			g->at++;
			if ((rc = character(g, &hi)))
				return rc;
		}
		if (hi < lo)
			return bad(g, "a range out of order");
		if (g->r->n_range >= EXPRS_MAX)
			return too_many(g, "too many ranges");
		expr_range(g->r, e, lo, hi);
	}
	if (others)
		invert(g->r, e);
	return 0;
}

static int read_count(struct reader *g, int32_t *out)
{
	if (!isdigit((unsigned char)peek(g)))
		return bad(g, "no number of repetitions");
	for (*out = 0; isdigit((unsigned char)peek(g)); g->at++) {
		*out = *out * 10 + (peek(g) - '0');
		if (*out > RULES_REPEAT_MAX)
			return too_many(g, "more than 10000 repetitions");
	}
	return 0;
}

/* Reads the repetition behind an element; 1: there is one. */
static int read_repeat(struct reader *g, int32_t *min, int32_t *max)
{
	int rc;

	*min = 0;
	*max = -1;
	if (eat(g, '*'))
		return 1;
	if (eat(g, '+')) {
		*min = 1;
		return 1;
	}
	if (eat(g, '?')) {
		*max = 1;
		return 1;
	}
	if (!eat(g, '{'))
		return 0;
	skip(g, false);
	if (peek(g) != ',' && (rc = read_count(g, min)))
		return rc;
	skip(g, false);
	*max = *min;
	if (eat(g, ',')) {
		skip(g, false);
		*max = -1;
		if (peek(g) != '}' && (rc = read_count(g, max)))
			return rc;
		skip(g, false);
	}
	if (!eat(g, '}'))
		return bad(g, "a repetition without }");
	return *max >= 0 && *max < *min ? bad(g, "a repetition out of order") : 1;
}

static int read_alternatives(struct reader *g, bool inside);

/* < 0: an error. */
static int read_element(struct reader *g)
{
	size_t at = g->at;
	int e, rc = 0, rule;
	char c = peek(g);

	if (c == '<' || c == '!')
		return unsupported(g, "tokens (<...> and !<...>)");
	if (eat(g, '(')) {
		if (g->depth++ == RULES_DEPTH_MAX)
			return too_many(g, "groups nested more than 200 deep");
		skip(g, true);
		e = read_alternatives(g, true);
		g->depth--;
		if (e < 0)
			return e;
		return eat(g, ')') ? e : bad(g, "a group without )");
	}
	e = expr_new(g->r, c == '"' ? EXPR_TEXT : c == '[' || c == '.' ? EXPR_CLASS : EXPR_RULE, at);
	if (e < 0)
		return too_many(g, "more than 100000 elements");
	if (eat(g, '"')) {
		rc = read_text(g, e);
	} else if (eat(g, '[')) {
		rc = read_class(g, e);
	} else if (eat(g, '.')) {
		g->r->expr[e].range = g->r->n_range;
		expr_range(g->r, e, 0, 0x10FFFF);
	} else {
		size_t n = name_length(g);

		if (!n)
			return bad(
				g,
				"nothing that is known (this reads GBNF: \"text\", [class], ., (group), the name of a rule)");
		if ((rule = rules_named(g->r, g->p + at, n, at)) < 0)
			return too_many(g, "more than 2000 rules");
		g->r->expr[e].rule = rule;
		g->at += n;
	}
	return rc ? rc : e;
}

/* Is there a name and ::= here? */
static bool at_rule(const struct reader *g)
{
	struct reader t = *g;
	size_t n = name_length(&t);

	t.at += n;
	skip(&t, false);
	return n && t.n - t.at >= 3 && !memcmp(t.p + t.at, "::=", 3);
}

/* After ::= and |: what follows may be on another line, unless that is a rule of its own. */
static void skip_on(struct reader *g)
{
	size_t at = g->at;

	skip(g, true);
	if (at_rule(g))
		g->at = at;
	skip(g, false);
}

/* e is the last that is in `of`, behind `last` (-1: the first); returns e. */
static int append(struct reader *g, int of, int last, int e)
{
	if (last < 0)
		g->r->expr[of].first = e;
	else
		g->r->expr[last].next = e;
	return e;
}

static int read_sequence(struct reader *g, bool inside)
{
	int seq = expr_new(g->r, EXPR_SEQ, g->at), last = -1, e, rc;

	if (seq < 0)
		return too_many(g, "more than 100000 elements");
	while (g->at < g->n && !strchr("|)\n\r", peek(g)) && !(inside && at_rule(g))) {
		int32_t min, max;

		if ((e = read_element(g)) < 0)
			return e;
		for (int k = 0; (rc = read_repeat(g, &min, &max)) > 0; k++) {
			int again = expr_new(g->r, EXPR_REPEAT, g->r->expr[e].at);

			if (again < 0 || k == 8)
				return too_many(g, again < 0 ? "more than 100000 elements" :
				                               "more than 8 repetitions of repetitions");
			g->r->expr[again].first = e;
			g->r->expr[again].min = min;
			g->r->expr[again].max = max;
			e = again;
		}
		if (rc < 0)
			return rc;
		last = append(g, seq, last, e);
		skip(g, inside);
	}
	return seq;
}

static int read_alternatives(struct reader *g, bool inside)
{
	int alt = expr_new(g->r, EXPR_ALT, g->at), last = -1;

	if (alt < 0)
		return too_many(g, "more than 100000 elements");
	for (;;) {
		int seq = read_sequence(g, inside);
		size_t at;

		if (seq < 0)
			return seq;
		last = append(g, alt, last, seq);
		at = g->at;
		skip(g, true);
		if (!eat(g, '|')) {
			g->at = inside ? g->at : at;
			return alt;
		}
		skip_on(g);
	}
}

static int read_rule(struct reader *g)
{
	size_t at = g->at, n = name_length(g);
	int body;

	g->rule = -1;
	if (!n)
		return bad(g, "no rule (this reads GBNF: NAME ::= ...)");
	if ((g->rule = rules_named(g->r, g->p + at, n, at)) < 0)
		return too_many(g, "more than 2000 rules");
	if (g->r->rule[g->rule].body >= 0)
		return bad(g, "the rule was given before");
	g->r->rule[g->rule].at = at;
	g->at += n;
	skip(g, false);
	if (g->n - g->at < 3 || memcmp(g->p + g->at, "::=", 3))
		return bad(g, "no ::= after the name (this reads GBNF: NAME ::= ...)");
	g->at += 3;
	skip_on(g);
	if ((body = read_alternatives(g, false)) < 0)
		return body;
	g->r->rule[g->rule].body = body;
	if (g->at < g->n && peek(g) != '\n' && peek(g) != '\r')
		return bad(g, "a ) too many");
	skip(g, true);
	return 0;
}

/* ---- grammars ---- */

/* Frees the rules; rc: what went wrong before. */
static int finish(struct rules *r, int root, struct dfa_pool *p, struct grammar **out, int rc, struct err *err)
{
	struct grammar *g = xcalloc(1, sizeof *g);

	*out = NULL;
	atomic_init(&g->refs, 1);
	if (!rc)
		rc = net_make(r, root, p, g, err);
	rules_fini(r);
	if (rc) {
		free(g);
		dfa_pool_fini(p);
		return rc;
	}
	g->pool = *p;
	*out = g;
	return 0;
}

int grammar_compile_gbnf(const char *text, size_t n, struct grammar **out, struct err *err)
{
	struct dfa_pool pool;
	struct rules r;
	struct reader g = { .r = &r, .p = text, .n = n, .rule = -1, .err = err };
	int root = -1, rc = 0;

	dfa_pool_init(&pool);
	rules_init(&r, text, n);
	if (n >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) /* a byte order mark */
		g.at = 3;
	if (n > GBNF_BYTES_MAX)
		rc = err_set(err, E_LIMIT, "a grammar of %zu bytes; at most %d are read", n, GBNF_BYTES_MAX);
	skip(&g, true);
	while (!rc && g.at < n)
		rc = read_rule(&g);
	for (int i = 0; i < r.n_rule && !rc; i++) {
		if (r.rule[i].body < 0)
			rc = rules_fail(&r, -1, r.rule[i].at, err, E_MISSING, "there is no rule \"%.60s\"",
			                r.rule[i].name);
		else if (!strcmp(r.rule[i].name, "root"))
			root = i;
	}
	if (!rc && root < 0)
		rc = err_set(err, E_MISSING, "there is no rule \"root\"");
	return finish(&r, root, &pool, out, rc, err);
}

/* A rule that is one word. */
static int word_rule(struct rules *r, const struct dfa *d)
{
	int e = expr_new(r, EXPR_WORD, 0), rule = rules_named(r, "root", 4, 0);

	r->expr[e].d = d;
	r->rule[rule].body = e;
	return rule;
}

int grammar_compile_regex(const char *re, size_t n, struct grammar **out, struct err *err)
{
	struct dfa_pool pool;
	struct dfa *d = NULL;
	struct rules r;
	int rc;

	dfa_pool_init(&pool);
	rules_init(&r, NULL, 0);
	rc = pattern_compile_text(&pool, re, n, &d, err);
	if (!rc && !d)
		rc = err_set(err, E_LIMIT, "%s", pool.why);
	return finish(&r, rc ? -1 : word_rule(&r, d), &pool, out, rc, err);
}

int grammar_compile_choice(const struct json *list, struct grammar **out, struct err *err)
{
	enum { CHOICES_MAX = 10000 };
	struct dfa_pool pool;
	struct dfa *d = NULL;
	struct rules r;
	struct nfa f;
	int rc = 0;

	dfa_pool_init(&pool);
	rules_init(&r, NULL, 0);
	nfa_init(&f);
	if (json_kind(list) != JSON_ARRAY || !json_len(list))
		rc = err_set(err, E_FORMAT, "an array of strings is needed, of one at least");
	else if (json_len(list) > CHOICES_MAX)
		rc = err_set(err, E_LIMIT, "%zu choices; at most %d are allowed", json_len(list), CHOICES_MAX);
	for (size_t i = 0; i < json_len(list) && !rc; i++) {
		size_t n;
		const char *p = json_str(json_at(list, i), &n);

		if (p)
			nfa_accept(&f, nfa_text(&f, 0, p, n), 0);
		else
			rc = err_set(err, E_FORMAT, "choice %zu is not a string", i);
		if (f.n_edge > NFA_EDGES_MAX)
			rc = err_set(err, E_LIMIT, "choices of more than %d bytes in all", NFA_EDGES_MAX);
	}
	if (!rc && !(d = dfa_from_nfa(&pool, &f)))
		rc = err_set(err, E_LIMIT, "%s", pool.why);
	nfa_fini(&f);
	return finish(&r, rc ? -1 : word_rule(&r, d), &pool, out, rc, err);
}
