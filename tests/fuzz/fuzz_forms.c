/* Whatever a request's answer may be held to, through every compiler and within a request's allowance: a choice of
 * the input's lines (held to a naive reading), tools in each form, a schema, rules, an expression.  What compiles is
 * walked by the input's own bytes; what a mask allows is taken, and what it does not is not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allowance.h"
#include "text/calls/dialect.h"
#include "text/grammar/grammar.h"
#include "walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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

/* The lines as a list of strings; those that are no UTF-8 are not in it as they are. */
static struct json *lines(const char *p, size_t n)
{
	struct json *j;
	struct buf b;

	buf_init(&b);
	buf_putc(&b, '[');
	for (size_t at = 0; at <= n;) {
		const char *end = at < n ? memchr(p + at, '\n', n - at) : NULL;
		size_t len = end ? (size_t)(end - p) - at : n - at;

		buf_puts(&b, at ? "," : "");
		json_put_str(&b, p + at, len);
		at += len + 1;
	}
	buf_putc(&b, ']');
	j = json_parse(b.p, b.n, 0, NULL);
	buf_fini(&b);
	return j;
}

static int choice(const char *p, size_t n, struct grammar **g, struct err *err)
{
	struct json *j = lines(p, n);
	int rc = j ? grammar_compile_choice(j, g, err) : E_FORMAT;

	for (size_t i = 0; !rc && i < json_len(j) && i < 50; i++) {
		size_t len;
		const char *one = json_str(json_at(j, i), &len);

		if (len && !takes(*g, one, len))
			abort();
	}
	json_free(j);
	return rc;
}

/* Calls of dialects that are spelled; their marks are no tokens here, and so text. */
static int spelled(int how, const struct json *tools, struct grammar **g, struct err *err)
{
	static const struct dialect *const dialects[] = {
		&dialect_mistral,      &dialect_kimi,        &dialect_deepseek_fenced,
		&dialect_harmony,      &dialect_glm,         &dialect_glm_tight,
		&dialect_minimax,      &dialect_seed,        &dialect_dsml,
		&dialect_lfm,          &dialect_olmo,        &dialect_gemma,
		&dialect_list_mistral, &dialect_list_cohere, &dialect_list_apertus,
		&dialect_functionary,
	};
	const struct dialect *d = dialects[(how >> 1) % (int)(sizeof dialects / sizeof *dialects)];
	struct call_marks marks = { .n = 0 };

	for (int i = 0; how & 0x40 && d->marks[i] && marks.n < MARKS_MOST; i++)
		marks.text[marks.n++] = d->marks[i];
	return grammar_compile_spelled(tools, d->held, &marks, NULL, how & 1, g, err);
}

static int compile(int how, const char *p, size_t n, struct grammar **g, struct err *err)
{
	struct json *j;
	int rc;

	switch (how % 8) {
	case 0: return choice(p, n, g, err);
	case 1: return grammar_compile_gbnf(p, n, g, err);
	case 2: return grammar_compile_regex(p, n, g, err);
	default: break;
	}
	if (!(j = json_parse(p, n, 0, NULL)))
		return E_FORMAT;
	if (how & 0x80)
		rc = spelled(how & 0x7f, j, g, err);
	else
		rc = how % 8 == 3 ? grammar_compile(j, g, err) :
		                    grammar_compile_calls(j, (enum calls_form)(how % 8 - 4), NULL, how & 8, g, err);
	json_free(j);
	return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data + 1;
	struct grammar *g = NULL;
	struct allowance a;
	struct err err;
	int rc;

	if (!size)
		return 0;
	size--;
	allowance_begin(&a, size, NULL);
	a.left = 1000000; /* more runs, and the same ends */
	rc = compile(*data, text, size, &g, &err);
	allowance_end();
	if (rc)
		return 0;
	walk_grammar(g, text, size);
	return 0;
}
