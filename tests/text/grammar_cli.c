/* grammar_cli.c - the grammar compiler for tests in Python.
 *
 * Each line of standard input is {"schema": S, "texts": ["...", ...]}; for each
 * comes a line: {"error": message, "code": name} or {"ok": [...]}: whether each text
 * is a whole value, every beginning of it having been allowed.  {"schema": S,
 * "walks": N, "seed": K} instead writes N random texts that byte by byte follow
 * what is allowed, to their end; null for one that finds none.
 * {"gbnf": TEXT, ...}, {"regex": TEXT, ...} and {"choice": [...], ...}: the same of those.
 * {"tools": T, "form": "json", "tagged", "llama" or "python", ...}: the same of calls, and
 * "calls": what is read out of each walk, a list of [name, arguments, malformed].  "form" may be any other dialect of the
 * list `spelled`; "marks", a set of bits, says which of its marks are tokens.  {"forms": true}: all names of forms. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/rng.h"
#include "text/calls/dialect.h"
#include "text/grammar/tables.h"

/* Forms that are spelled by a table. */
static const struct {
	const char *name;
	const struct dialect *d;
} spelled[] = {
	{ "mistral", &dialect_mistral },
	{ "kimi", &dialect_kimi },
	{ "deepseek", &dialect_deepseek },
	{ "deepseek fenced", &dialect_deepseek_fenced },
	{ "functionary", &dialect_functionary },
	{ "harmony", &dialect_harmony },
	{ "harmony role", &dialect_harmony_role },
	{ "glm", &dialect_glm },
	{ "glm tight", &dialect_glm_tight },
	{ "minimax", &dialect_minimax },
	{ "seed", &dialect_seed },
	{ "dsml", &dialect_dsml },
	{ "dsml calls", &dialect_dsml_calls },
	{ "lfm", &dialect_lfm },
	{ "olmo", &dialect_olmo },
	{ "gemma", &dialect_gemma },
	{ "list mistral", &dialect_list_mistral },
	{ "list granite", &dialect_list_granite },
	{ "list nemotron", &dialect_list_nemotron },
	{ "list apriel", &dialect_list_apriel },
	{ "list cohere", &dialect_list_cohere },
	{ "list apertus", &dialect_list_apertus },
};
enum { N_SPELLED = sizeof spelled / sizeof *spelled };

/* The form that a request names. */
struct way {
	enum calls_form form;
	const struct dialect *d; /* of a form that is spelled; NULL: it is one of the four */
	struct call_marks marks;
};

static struct way way_of(const struct json *j)
{
	static const char *const four[] = {
		[CALLS_JSON] = "json", [CALLS_TAGGED] = "tagged", [CALLS_LLAMA] = "llama", [CALLS_PYTHON] = "python"
	};
	struct way w = { .form = CALLS_JSON };
	int64_t marks = -1;
	size_t n;
	const char *name = json_str(json_get(j, "form"), &n);

	for (int i = 0; name && i < 4; i++)
		if (!strcmp(name, four[i]))
			w.form = (enum calls_form)i;
	for (int i = 0; name && i < N_SPELLED; i++)
		if (!strcmp(name, spelled[i].name))
			w.d = spelled[i].d;
	json_to_int(json_get(j, "marks"), &marks);
	for (int i = 0; w.d && w.d->marks[i] && w.marks.n < MARKS_MOST; i++)
		if (marks >> i & 1)
			w.marks.text[w.marks.n++] = w.d->marks[i];
	return w;
}

static void put_forms(struct buf *out)
{
	buf_puts(out, "[\"json\",\"tagged\",\"llama\",\"python\"");
	for (int i = 0; i < N_SPELLED; i++)
		buf_printf(out, ",\"%s\"", spelled[i].name);
	buf_puts(out, "]");
}

/* Byte by byte, then once more in pieces from a place that was gone back to.  "null": no,
 * but there was no room for all ways to read it. */
static const char *accepts(struct grammar *g, const char *p, size_t n)
{
	struct matcher *m = matcher_new(g), *c;
	size_t i = 0, k;
	bool yes, again, full;

	while (i < n && matcher_put(m, p + i, 1))
		i++;
	yes = i == n && matcher_complete(m);
	k = i / 2;
	matcher_back(m, (int)(i - k));
	c = matcher_copy(m);
	again = (k == n || matcher_put(c, p + k, n - k)) && matcher_complete(c);
	full = m->full || c->full;
	if (again != yes && !full) {
		fprintf(stderr, "in pieces %d, byte by byte %d: %.*s\n", again, yes, (int)n, p);
		abort();
	}
	matcher_free(c);
	matcher_free(m);
	return yes ? "true" : full ? "null" : "false";
}

/* Random bytes of those allowed; when it takes long, those that end things first. */
static bool walk(struct grammar *g, const struct way *w, uint64_t seed, uint64_t most, struct buf *out)
{
	static const char ends[] = "\xF8\xF9\xFA\xFB\xFC\xFD\xFE\"}],:e0123456789abcnulltrfs\\{[</>\npm";
	static const char *const four[] = { "\n</parameter>\n", "\n</function>", "</function>" };
	const char *tags[] = { four[0], four[1], four[2] };
	struct matcher *m = matcher_new(g);

	if (w->d) {
		const struct calls_spelling *sp = w->d->held;

		tags[0] = sp->value_end ? sp->value_end : "";
		tags[1] = sp->end ? sp->end : "";
		tags[2] = sp->last ? sp->last : "";
		buf_puts(out, w->d->open);
		if (w->d->opened && !matcher_put(m, w->d->opened, strlen(w->d->opened)))
			abort();
	}

	for (uint64_t at = 0; !matcher_whole(m); at++) {
		char allowed[256], b;
		int n = 0;

		if (matcher_complete(m) && rng_bits(seed, at, 1) % 3 == 0)
			break;
		/* Bare text ends with what nobody meets by chance. */
		if (rng_bits(seed, at, 6) % 6 == 0) {
			const char *tag = tags[rng_bits(seed, at, 7) % 3];

			if (*tag && matcher_put(m, tag, strlen(tag))) {
				buf_puts(out, tag);
				continue;
			}
		}
		for (int c = 0; c < 256; c++) {
			b = (char)c;
			if (matcher_put(m, &b, 1)) {
				matcher_back(m, 1);
				allowed[n++] = b;
			}
		}
		if (!n) {
			fprintf(stderr, "nothing may follow: %s\n", out->p);
			abort();
		}
		b = allowed[rng_bits(seed, at, 2) % (uint64_t)n];
		if (at > 40 || rng_bits(seed, at, 3) % 2) {
			char end[sizeof ends];
			int n_end = 0;

			for (const char *e = ends; *e; e++)
				if (memchr(allowed, *e, (size_t)n))
					end[n_end++] = *e;
			if (n_end)
				b = end[rng_bits(seed, at, 4) % (uint64_t)n_end];
			/* The sooner of two ends, as often as not. */
			if (n_end && rng_bits(seed, at, 5) % 2)
				b = end[0];
		}
		matcher_put(m, &b, 1);
		if ((unsigned char)b >= MARK_FIRST)
			buf_puts(out, w->marks.text[(unsigned char)b - MARK_FIRST]);
		else
			buf_putc(out, b);
		if (at > most) { /* by chance alone some patterns hardly end */
			matcher_free(m);
			return false;
		}
	}
	matcher_free(m);
	return true;
}

/* As the server reads it: a list of [name, arguments, malformed]. */
static void put_calls(const struct json *tools, const struct way *w, const struct buf *text, struct buf *out)
{
	static const struct dialect *const all[] = { [CALLS_JSON] = &dialect_hermes,
		                                     [CALLS_TAGGED] = &dialect_tagged,
		                                     [CALLS_LLAMA] = &dialect_llama,
		                                     [CALLS_PYTHON] = &dialect_python };
	const struct dialect *const list[] = { w->d ? w->d : all[w->form], NULL };
	bool tags = !w->d && *list[0]->open, ended = true;
	struct buf arguments;
	struct split s;
	int n = 0;

	buf_init(&arguments);
	split_init(&s, false, tools, list);
	split_put(&s, "<tool_call>\n", tags ? 12 : 0);
	split_put(&s, text->p, text->n);
	split_put(&s, "\n</tool_call>", tags ? 13 : 0);
	split_end(&s);
	buf_putc(out, '[');
	for (int i = 0; i < s.n_piece; i++) {
		const char *p = s.text.p + s.piece[i].at;

		if (s.piece[i].kind == PIECE_CALL) {
			buf_puts(out, n++ ? ",[" : "[");
			json_put_str(out, p, s.piece[i].n);
			ended = false;
		} else if (s.piece[i].kind == PIECE_ARGUMENTS) {
			buf_put(&arguments, p, s.piece[i].n);
		} else if (s.piece[i].kind == PIECE_CALL_END) {
			buf_putc(out, ',');
			json_put_str(out, arguments.p, arguments.n);
			buf_puts(out, s.malformed ? ",true]" : ",false]");
			buf_reset(&arguments);
			ended = true;
		} else { /* text, where there should be none */
			s.malformed = true;
		}
	}
	buf_puts(out, !ended ? ",\"\",true]]" : !n ? "[\"\",\"\",true]]" : "]");
	split_fini(&s);
	buf_fini(&arguments);
}

int main(void)
{
	char *line = NULL;
	size_t cap = 0;
	ssize_t len;

	while ((len = getline(&line, &cap, stdin)) > 0) {
		struct err err = { 0 };
		struct json *j = json_parse(line, (size_t)len, 0, &err);
		const struct json *texts = json_get(j, "texts");
		struct grammar *g = NULL;
		struct buf out;
		int64_t walks = 0, seed = 0;
		const struct json *tools = json_get(j, "tools");
		struct buf calls;
		struct way w = way_of(j);
		size_t n_rules = 0, n_regex = 0;
		const char *rules = json_str(json_get(j, "gbnf"), &n_rules),
			   *regex = json_str(json_get(j, "regex"), &n_regex);
		int rc = !j                    ? err.code :
		         rules                 ? grammar_compile_gbnf(rules, n_rules, &g, &err) :
		         regex                 ? grammar_compile_regex(regex, n_regex, &g, &err) :
		         json_get(j, "choice") ? grammar_compile_choice(json_get(j, "choice"), &g, &err) :
		         tools && w.d ? grammar_compile_spelled(tools, w.d->held, &w.marks, NULL, true, &g, &err) :
		         tools        ? grammar_compile_calls(tools, w.form, NULL, true, &g, &err) :
		                        grammar_compile(json_get(j, "schema"), &g, &err);

		buf_init(&calls);
		buf_init(&out);
		if (json_get(j, "forms")) {
			put_forms(&out);
		} else if (rc) {
			buf_puts(&out, "{\"error\":");
			json_put_cstr(&out, err.msg);
			buf_printf(&out, ",\"code\":\"%s\"}", err_name(rc));
		} else {
			json_to_int(json_get(j, "walks"), &walks);
			json_to_int(json_get(j, "seed"), &seed);
			buf_puts(&out, "{\"ok\":[");
			for (size_t i = 0; i < json_len(texts); i++) {
				size_t n;
				const char *p = json_str(json_at(texts, i), &n);

				buf_puts(&out, i ? "," : "");
				buf_puts(&out, accepts(g, p, n));
			}
			buf_puts(&out, "],\"walks\":[");
			for (int64_t i = 0; i < walks; i++) {
				struct buf text;

				buf_init(&text);
				buf_puts(&out, i ? "," : "");
				if (walk(g, &w, (uint64_t)(seed * 1000 + i), rules ? 60 : 1500, &text)) {
					json_put_str(&out, text.p, text.n);
					buf_puts(&calls, calls.n ? "," : "");
					if (tools)
						put_calls(tools, &w, &text, &calls);
				} else {
					buf_puts(&out, "null");
				}
				buf_fini(&text);
			}
			buf_puts(&out, "]");
			if (tools)
				buf_printf(&out, ",\"calls\":[%s]", calls.p);
			buf_putc(&out, '}');
		}
		puts(out.p);
		fflush(stdout);
		buf_fini(&out);
		buf_fini(&calls);
		grammar_unref(g);
		json_free(j);
	}
	free(line);
	return 0;
}
