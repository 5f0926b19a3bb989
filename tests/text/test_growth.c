/* test_growth.c - every compiler of constraints against a naive reading, at sizes that cross every
 * boundary at which an array of a compiler grows.
 *
 * The texts are random; so are the languages.  What a naive reading takes the grammar must take, and
 * nothing else.  Built with the address sanitizer this also finds a write to an array that has moved. */
#include <stdlib.h>
#include <string.h>

#include "../check.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "made_vocab.h"
#include "text/grammar/grammar.h"

static bool takes(struct grammar *g, const char *p, size_t n)
{
	struct matcher *m = matcher_new(g);
	bool yes = true;

	for (size_t i = 0; i < n && yes; i++)
		yes = matcher_put(m, p + i, 1);
	yes = yes && matcher_complete(m);
	matcher_free(m);
	return yes;
}

/* ---- lists of strings ---- */

struct words {
	char *p[3000];
	int n;
};

static bool words_have(const struct words *w, const char *p, size_t n)
{
	for (int i = 0; i < w->n; i++)
		if (strlen(w->p[i]) == n && !memcmp(w->p[i], p, n))
			return true;
	return false;
}

/* Up to n words, each once, of min to max letters.  A small alphabet makes words that begin others. */
static void words_make(struct words *w, int n, int min, int max, int letters, uint64_t *seed)
{
	w->n = 0;
	for (int i = 0; i < n; i++) {
		int len = min + (int)made_dice(seed, (uint64_t)(max - min + 1));
		char *p = xmalloc((size_t)len + 1);

		for (int k = 0; k < len; k++)
			p[k] = (char)('a' + made_dice(seed, (uint64_t)letters));
		p[len] = 0;
		if (words_have(w, p, (size_t)len))
			free(p);
		else
			w->p[w->n++] = p;
	}
}

static void words_fini(struct words *w)
{
	for (int i = 0; i < w->n; i++)
		free(w->p[i]);
}

/* `[` "a", "b" `]` */
static void words_json(const struct words *w, struct buf *out)
{
	buf_putc(out, '[');
	for (int i = 0; i < w->n; i++)
		buf_printf(out, "%s\"%s\"", i ? "," : "", w->p[i]);
	buf_putc(out, ']');
}

enum kind { CHOICE, ENUM, RULES, REGEX, NAMES, KEYS, N_KIND };

static struct grammar *tools_of(const struct words *w, enum kind kind, enum calls_form form)
{
	struct grammar *g;
	struct buf s;
	struct err err;
	struct json *j;

	buf_init(&s);
	buf_putc(&s, '[');
	for (int i = 0; i < w->n; i++)
		if (kind == NAMES)
			buf_printf(
				&s,
				"%s{\"function\":{\"name\":\"%s\",\"parameters\":{\"type\":\"object\",\"properties\":{},"
				"\"additionalProperties\":false}}}",
				i ? "," : "", w->p[i]);
	if (kind == KEYS) {
		buf_puts(
			&s,
			"{\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{");
		for (int i = 0; i < w->n; i++)
			buf_printf(&s, "%s\"%s\":{\"type\":\"null\"}", i ? "," : "", w->p[i]);
		buf_puts(&s, "}}}}");
	}
	buf_putc(&s, ']');
	j = json_parse(s.p, s.n, 0, &err);
	CHECK(j, "%s", err.msg);
	CHECK(!grammar_compile_calls(j, form, NULL, false, &g, &err), "%s", err.msg);
	json_free(j);
	buf_fini(&s);
	return g;
}

static struct grammar *list_of(const struct words *w, enum kind kind)
{
	struct grammar *g = NULL;
	struct json *j;
	struct err err;
	struct buf s;
	int rc;

	buf_init(&s);
	if (kind == CHOICE || kind == ENUM) {
		buf_puts(&s, kind == ENUM ? "{\"enum\":" : "");
		words_json(w, &s);
		buf_puts(&s, kind == ENUM ? "}" : "");
		j = json_parse(s.p, s.n, 0, &err);
		CHECK(j, "%s", err.msg);
		rc = kind == ENUM ? grammar_compile(j, &g, &err) : grammar_compile_choice(j, &g, &err);
		json_free(j);
	} else {
		buf_puts(&s, kind == RULES ? "root ::= " : "(");
		for (int i = 0; i < w->n; i++)
			buf_printf(&s, kind == RULES ? "%s\"%s\"" : "%s%s", i ? "|" : "", w->p[i]);
		buf_puts(&s, kind == RULES ? "" : ")");
		rc = kind == RULES ? grammar_compile_gbnf(s.p, s.n, &g, &err) :
		                     grammar_compile_regex(s.p, s.n, &g, &err);
	}
	CHECK(!rc, "%d words as %d: %s", w->n, kind, err.msg);
	buf_fini(&s);
	return g;
}

/* The text that stands for the word. */
static void wrap(struct buf *out, const char *word, enum kind kind, enum calls_form form)
{
	static const char *const named[] = { "{\"name\": \"%s\", \"arguments\": {}}", "<function=%s>\n</function>",
		                             "{\"name\": \"%s\", \"parameters\": {}}", "[%s()]" };
	static const char *const keyed[] = { "{\"name\": \"f\", \"arguments\": {\"%s\": null}}",
		                             "<function=f>\n<parameter=%s>\nnull\n</parameter>\n</function>",
		                             "{\"name\": \"f\", \"parameters\": {\"%s\": null}}", "[f(%s=None)]" };

	buf_reset(out);
	buf_printf(out,
	           kind == NAMES ? named[form] :
	           kind == KEYS  ? keyed[form] :
	           kind == ENUM  ? "\"%s\"" :
	                           "%s",
	           word);
}

static void check_words(const struct words *w, enum kind kind, enum calls_form form, uint64_t *seed)
{
	struct grammar *g = kind >= NAMES ? tools_of(w, kind, form) : list_of(w, kind);
	struct buf word, text;

	buf_init(&word);
	buf_init(&text);
	for (int i = 0; i < w->n; i++) {
		size_t len = strlen(w->p[i]);

		/* The word, a part of it, one letter more, and one changed. */
		for (int change = 0; change < 4; change++) {
			buf_reset(&word);
			buf_put(&word, w->p[i], change == 1 ? made_dice(seed, len + 1) : len);
			if (change == 2)
				buf_putc(&word, 'a');
			if (change == 3)
				word.p[made_dice(seed, len)] ^= 3;
			buf_putc(&word, 0);
			wrap(&text, word.p, kind, form);
			CHECK(takes(g, text.p, text.n) == words_have(w, word.p, word.n - 1),
			      "%d words, kind %d, form %d: %.300s", w->n, kind, form, text.p);
		}
	}
	buf_fini(&word);
	buf_fini(&text);
	grammar_unref(g);
}

/* Sums of lengths around the powers of two, in one word and in many. */
static void test_words(void)
{
	uint64_t seed = 23;
	bool quick = getenv("WEFT_TEST_QUICK");

	for (int total = 8; total <= (quick ? 600 : 3000); total += total >= 140 ? 97 : quick ? 3 : 1)
		for (int kind = 0; kind < N_KIND; kind++) {
			int len = kind >= NAMES || total % 2 ? 2 + (int)made_dice(&seed, 24) : total,
			    n = total / len + 1;
			int forms = kind >= NAMES ? 4 : 1;
			struct words w;

			if (kind >= NAMES)
				n = n > 40 ? 40 : n;
			words_make(&w, n, 1 + len / 2, len, n > 1 ? 3 : 26, &seed);
			for (int form = 0; form < forms; form++)
				if (forms == 1 || total % 4 == form)
					check_words(&w, kind, (enum calls_form)form, &seed);
			words_fini(&w);
		}
}

/* ---- expressions ---- */

/* A random expression, which is spelled three ways and read naively. */
enum part_kind { LETTERS, SET, SEQUENCE, EITHER, REPEAT };
struct part {
	enum part_kind kind;
	char letters[24]; /* LETTERS; SET: any of them */
	struct part *in[6];
	int n;
	int min, max; /* REPEAT; max -1: any number */
};

static struct part *part_make(int depth, uint64_t *seed)
{
	struct part *p = xcalloc(1, sizeof *p);
	uint64_t dice = made_dice(seed, depth ? 10 : 4);

	p->kind = dice < 3 ? LETTERS : dice < 4 ? SET : dice < 7 ? SEQUENCE : dice < 9 ? EITHER : REPEAT;
	if (p->kind == LETTERS || p->kind == SET) {
		int n = p->kind == SET ? 2 : 1 + (int)made_dice(seed, 20);

		for (int i = 0; i < n; i++)
			p->letters[i] = (char)('a' + made_dice(seed, 3));
		return p;
	}
	p->n = p->kind == REPEAT ? 1 : 2 + (int)made_dice(seed, 4);
	for (int i = 0; i < p->n; i++)
		p->in[i] = part_make(depth - 1, seed);
	p->min = (int)made_dice(seed, 3);
	p->max = made_dice(seed, 3) ? p->min + 1 + (int)made_dice(seed, 3) : -1;
	return p;
}

static void part_free(struct part *p)
{
	for (int i = 0; i < p->n; i++)
		part_free(p->in[i]);
	free(p);
}

/* As an expression, or as rules. */
static void part_spell(const struct part *p, bool rules, struct buf *out)
{
	switch (p->kind) {
	case LETTERS: buf_printf(out, rules ? "\"%s\" " : "%s", p->letters); return;
	case SET: buf_printf(out, "[%s]%s", p->letters, rules ? " " : ""); return;
	case SEQUENCE:
	case EITHER:
	case REPEAT: break;
	}
	buf_putc(out, '(');
	for (int i = 0; i < p->n; i++) {
		if (i && p->kind == EITHER)
			buf_putc(out, '|');
		part_spell(p->in[i], rules, out);
	}
	buf_putc(out, ')');
	if (p->kind == REPEAT && p->max < 0)
		buf_printf(out, "{%d,}", p->min);
	else if (p->kind == REPEAT)
		buf_printf(out, "{%d,%d}", p->min, p->max);
}

/* Some text of it. */
static void part_text(const struct part *p, struct buf *out, uint64_t *seed)
{
	int n = p->kind == REPEAT ? p->min + (int)made_dice(seed, p->max < 0 ? 3 : (uint64_t)(p->max - p->min + 1)) :
	                            p->n;

	if (p->kind == LETTERS)
		buf_puts(out, p->letters);
	else if (p->kind == SET)
		buf_putc(out, p->letters[made_dice(seed, 2)]);
	else if (p->kind == EITHER)
		part_text(p->in[made_dice(seed, (uint64_t)n)], out, seed);
	else
		for (int i = 0; i < n; i++)
			part_text(p->in[p->kind == REPEAT ? 0 : i], out, seed);
}

enum { TEXT_MAX = 400 };
struct places {
	bool at[TEXT_MAX + 1];
};

/* Where p can end that begins at one of `from`. */
static struct places part_ends(const struct part *p, const char *text, size_t n, struct places from)
{
	struct places to = { 0 }, more;
	size_t len = p->kind == SET ? 1 : strlen(p->letters);
	int i = 0;

	switch (p->kind) {
	case LETTERS:
	case SET:
		for (size_t k = 0; k + len <= n; k++)
			if (from.at[k] && (p->kind == SET ? memchr(p->letters, text[k], 2) != NULL :
			                                    !memcmp(text + k, p->letters, len)))
				to.at[k + len] = true;
		return to;
	case SEQUENCE:
		for (i = 0; i < p->n; i++)
			from = part_ends(p->in[i], text, n, from);
		return from;
	case EITHER:
		for (i = 0; i < p->n; i++) {
			more = part_ends(p->in[i], text, n, from);
			for (size_t k = 0; k <= n; k++)
				to.at[k] |= more.at[k];
		}
		return to;
	case REPEAT: break;
	}
	for (i = 0; i < p->min; i++)
		from = part_ends(p->in[0], text, n, from);
	for (to = from; p->max < 0 ? i <= (int)n + p->min : i < p->max; i++) {
		from = part_ends(p->in[0], text, n, from);
		for (size_t k = 0; k <= n; k++)
			to.at[k] |= from.at[k];
	}
	return to;
}

static struct grammar *part_grammar(const struct part *p, int how)
{
	struct grammar *g;
	struct json *j;
	struct err err;
	struct buf s;
	int rc;

	buf_init(&s);
	buf_puts(&s, how == 0 ? "" : how == 1 ? "root ::= " : "{\"type\":\"string\",\"pattern\":\"^(");
	part_spell(p, how == 1, &s);
	buf_puts(&s, how == 2 ? ")$\"}" : "");
	if (how == 2) {
		j = json_parse(s.p, s.n, 0, &err);
		CHECK(j, "%s", err.msg);
		rc = grammar_compile(j, &g, &err);
		json_free(j);
	} else {
		rc = how ? grammar_compile_gbnf(s.p, s.n, &g, &err) : grammar_compile_regex(s.p, s.n, &g, &err);
	}
	CHECK(!rc || rc == E_LIMIT, "%s: %s", s.p, err.msg);
	buf_fini(&s);
	return rc ? NULL : g;
}

static void test_expressions(void)
{
	int rounds = getenv("WEFT_TEST_QUICK") ? 25 : 120, held = 0;
	uint64_t seed = 99;

	for (int round = 0; round < rounds; round++) {
		struct part *p = part_make(1 + round % 5, &seed);

		for (int how = 0; how < 3; how++) {
			struct grammar *g = part_grammar(p, how);

			for (int k = 0; g && k < 12; k++) {
				struct places from = { .at = { true } };
				struct buf s;
				bool want;

				buf_init(&s);
				part_text(p, &s, &seed);
				if (s.n > TEXT_MAX)
					s.n = TEXT_MAX;
				if (s.n && k % 3 == 1)
					s.p[made_dice(&seed, s.n)] = (char)('a' + made_dice(&seed, 3));
				if (s.n && k % 3 == 2)
					s.n = made_dice(&seed, s.n);
				want = part_ends(p, s.p, s.n, from).at[s.n];
				if (how == 2) {
					struct buf quoted;

					buf_init(&quoted);
					json_put_str(&quoted, s.p, s.n);
					buf_fini(&s);
					s = quoted;
				}
				CHECK(takes(g, s.p, s.n) == want, "round %d, spelled %d: \"%.*s\" is %s", round, how,
				      (int)s.n, s.p, want ? "in it" : "not in it");
				held++;
				buf_fini(&s);
			}
			grammar_unref(g);
		}
		part_free(p);
	}
	CHECK(held > rounds * 20, "only %d texts were held to a grammar: the expressions are too large", held);
}

int main(void)
{
	test_words();
	test_expressions();
	return 0;
}
