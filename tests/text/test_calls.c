/* Answers with calls as models write them, in every dialect (calls.json, which make_calls.py makes): read as meant however the
 * text is cut, and of any beginning of it nothing is lost.  test_calls CALLS.JSON */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "text/calls/dialect.h"
#include "text/calls/split.h"

enum { WHOLE = 1 }; /* stands behind a call that is whole: in no text */

static int failed, n_case;

struct got {
	struct buf thought, content, calls;
};

static void got_init(struct got *g)
{
	buf_init(&g->thought);
	buf_init(&g->content);
	buf_init(&g->calls);
}

static void got_fini(struct got *g)
{
	buf_fini(&g->thought);
	buf_fini(&g->content);
	buf_fini(&g->calls);
}

/* Arguments as compact JSON; what is none as it is. */
static void put_arguments(struct buf *out, const char *p, size_t n)
{
	struct json *j = json_parse(p, n, 200, NULL);

	if (j)
		json_put(out, j);
	else
		buf_put(out, p, n);
	json_free(j);
}

static void take(const struct split *s, struct got *g)
{
	for (int i = 0; i < s->n_piece; i++) {
		const struct piece *p = &s->piece[i];
		const char *text = s->text.p + p->at;

		switch (p->kind) {
		case PIECE_THINKING: buf_put(&g->thought, text, p->n); break;
		case PIECE_CONTENT: buf_put(&g->content, text, p->n); break;
		case PIECE_CALL:
			buf_put(&g->calls, text, p->n);
			buf_putc(&g->calls, ' ');
			break;
		case PIECE_ARGUMENTS: put_arguments(&g->calls, text, p->n); break;
		case PIECE_CALL_END: buf_putc(&g->calls, WHOLE); break;
		}
	}
}

static const char *text_of(const struct json *c, const char *name, size_t *n)
{
	const char *s = json_str(json_get(c, name), n);

	return s ? s : "";
}

/* Reads the first n bytes in steps; returns whether something was malformed. */
static bool read_text(const struct json *c, const struct json *tools, const struct template *t, size_t n, size_t step,
                      struct got *g)
{
	size_t len;
	const char *text = text_of(c, "text", &len);
	bool thinking = false, malformed;
	struct split s;

	json_to_bool(json_get(c, "thinking"), &thinking);
	split_init(&s, thinking, tools, dialects_of(t));
	for (size_t at = 0; at < n; at += step)
		split_put(&s, text + at, at + step > n ? n - at : step);
	split_end(&s);
	take(&s, g);
	malformed = s.malformed;
	split_fini(&s);
	return malformed;
}

static void want_calls(const struct json *c, struct buf *out)
{
	const struct json *calls = json_get(c, "calls");
	size_t n;

	for (size_t i = 0; i < json_len(calls); i++) {
		buf_puts(out, json_str(json_at(json_at(calls, i), 0), &n));
		buf_putc(out, ' ');
		json_put(out, json_at(json_at(calls, i), 1));
		buf_putc(out, WHOLE);
	}
}

static void run(const struct json *c, const struct json *tools, const struct template *t, size_t step)
{
	size_t n;
	const char *text = text_of(c, "text", &n);
	bool malformed;
	struct buf want;
	struct got g;

	got_init(&g);
	buf_init(&want);
	want_calls(c, &want);
	malformed = read_text(c, tools, t, n, step, &g);
	/* Talk of calls may be told of. */
	malformed &= json_len(json_get(c, "calls")) > 0 && !json_get(c, "talk");
	if (malformed || strcmp(g.calls.p, want.p) || strcmp(g.content.p, text_of(c, "content", &n)) ||
	    strcmp(g.thought.p, text_of(c, "thought", &n))) {
		printf("%s, %s, in steps of %zu: %s\n  thought \"%s\", content \"%s\", calls %s%s\n",
		       text_of(c, "dialect", &n), text_of(c, "why", &n), step, text, g.thought.p, g.content.p,
		       g.calls.p, malformed ? ", malformed" : "");
		failed++;
	}
	buf_fini(&want);
	got_fini(&g);
}

/* An answer that is cut anywhere: the calls before the cut are there. */
static void run_cut(const struct json *c, const struct json *tools, const struct template *t)
{
	size_t n, len;
	bool good = true;
	struct buf want;
	struct got g;

	text_of(c, "text", &n);
	buf_init(&want);
	want_calls(c, &want);
	for (size_t first = 1; first < n && good; first++) {
		const char *end;

		got_init(&g);
		read_text(c, tools, t, first, first, &g);
		/* Whole calls are those that were meant; nothing else is said to be whole. */
		end = strrchr(g.calls.p, WHOLE);
		good = !end || !strncmp(want.p, g.calls.p, (size_t)(end - g.calls.p));
		if (!good)
			printf("%s, %s, cut after %zu bytes: calls %s\n", text_of(c, "dialect", &len),
			       text_of(c, "why", &len), first, g.calls.p);
		got_fini(&g);
	}
	failed += !good;
	buf_fini(&want);
}

int main(int argc, char **argv)
{
	static const size_t steps[] = { 100000, 1, 2, 3, 7 };
	struct json *all;
	struct buf text;
	struct err err;

	buf_init(&text);
	if (argc < 2 || file_read(argv[1], 1 << 24, &text, &err) || !(all = json_parse(text.p, text.n, 200, &err))) {
		printf("%s\n", argc < 2 ? "no file" : err.msg);
		return 1;
	}
	for (size_t i = 0; i < json_len(json_get(all, "cases")); i++) {
		const struct json *c = json_at(json_get(all, "cases"), i);
		struct template *t;
		size_t n;
		const char *says = text_of(c, "says", &n);
		struct buf source;

		buf_init(&source);
		buf_printf(&source, "{#%s#}", says);
		if (template_open(&t, source.p, source.n, NULL, &err))
			return 1;
		for (size_t k = 0; k < sizeof steps / sizeof *steps; k++)
			run(c, json_get(all, "tools"), t, steps[k]);
		run_cut(c, json_get(all, "tools"), t);
		n_case++;
		template_close(t);
		buf_fini(&source);
	}
	printf("%d cases, %d failed\n", n_case, failed);
	json_free(all);
	buf_fini(&text);
	return failed > 0;
}
