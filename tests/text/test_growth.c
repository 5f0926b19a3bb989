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

int main(void)
{
	test_words();
	return 0;
}
