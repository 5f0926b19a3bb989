/* test_held.c [TEMPLATES] - calls of every dialect held to the tools' schemas: what a walk through the grammar writes
 * is read back as calls of these tools with arguments that their schemas allow; what a template writes of a call in
 * its history is what the grammar lets a model say; and what no schema allows is refused. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/allowance.h"
#include "base/file.h"
#include "base/rng.h"
#include "../check.h"
#include "text/calls/dialect.h"

static const struct dialect *const dialects[] = {
	&dialect_mistral,      &dialect_kimi,         &dialect_deepseek,      &dialect_deepseek_fenced,
	&dialect_functionary,  &dialect_harmony,      &dialect_harmony_role,  &dialect_glm,
	&dialect_glm_tight,    &dialect_minimax,      &dialect_seed,          &dialect_dsml,
	&dialect_dsml_calls,   &dialect_lfm,          &dialect_olmo,          &dialect_gemma,
	&dialect_list_mistral, &dialect_list_granite, &dialect_list_nemotron, &dialect_list_apriel,
	&dialect_list_cohere,  &dialect_list_apertus,
};
enum { N_DIALECT = sizeof dialects / sizeof *dialects };

static const char tools_text[] =
	"[{\"type\":\"function\",\"function\":{\"name\":\"get\",\"description\":\"d\",\"parameters\":{\"type\":\"object\",\"properties\":{"
	"\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":14},"
	"\"unit\":{\"enum\":[\"c\",\"f\"]}},\"required\":[\"city\"],\"additionalProperties\":false}}},"
	"{\"type\":\"function\",\"function\":{\"name\":\"get_all\",\"description\":\"d\",\"parameters\":{\"type\":\"object\",\"properties\":{"
	"\"flag\":{\"type\":\"boolean\"},\"list\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"maxItems\":3},"
	"\"deep\":{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"number\"},\"y z\":{\"type\":\"string\"}},"
	"\"required\":[\"x\"],\"additionalProperties\":false},\"none\":{\"type\":\"null\"}},"
	"\"required\":[\"flag\"],\"additionalProperties\":false}}},"
	"{\"type\":\"function\",\"function\":{\"name\":\"now\",\"description\":\"d\",\"parameters\":{\"type\":\"object\",\"properties\":{},"
	"\"additionalProperties\":false}}},"
	"{\"type\":\"function\",\"function\":{\"name\":\"log\",\"description\":\"d\",\"parameters\":{\"type\":\"object\",\"properties\":{"
	"\"text\":{\"type\":\"string\",\"maxLength\":20},\"meta\":{\"type\":\"object\",\"additionalProperties\":"
	"{\"type\":\"integer\"}}},\"required\":[\"text\"],\"additionalProperties\":false}}}]";

static struct json *tools;

static void marks_of(const struct dialect *d, struct call_marks *m)
{
	m->n = 0;
	for (const char *const *t = d->marks; *t && m->n < MARKS_MOST; t++)
		m->text[m->n++] = *t;
}

static struct grammar *held(const struct dialect *d, const struct call_marks *m, bool several)
{
	struct grammar *g;
	struct err err;

	CHECK(!grammar_compile_spelled(tools, d->held, m, NULL, several, &g, &err), "%s: %s", d->name, err.msg);
	return g;
}

/* ---- walks ---- */

static const char *byte_of(void *ctx, int32_t id, size_t *n)
{
	static char all[256];

	all[id] = (char)id;
	*n = 1;
	return &all[id];
}

struct rng {
	uint64_t seed, at;
};

static uint64_t rng_u64(struct rng *r)
{
	return rng_bits(r->seed, r->at++, 0);
}

/* Text does not go on for ever: what may end it is preferred, in a third of the steps. */
static uint8_t pick(const uint32_t *mask, struct rng *r)
{
	static const char ends[] = "\"<\n}])>,\xF8\xF9\xFA\xFB\xFC";
	uint8_t can[256], some[256];
	int n = 0, n_some = 0;

	for (int i = 0; i < 256; i++) {
		if (!(mask[i / 32] >> i % 32 & 1))
			continue;
		can[n++] = (uint8_t)i;
		if (i && strchr(ends, i))
			some[n_some++] = (uint8_t)i;
	}
	CHECK(n, "nothing may follow");
	if (n_some && rng_u64(r) % 3 == 0)
		return some[rng_u64(r) % (uint64_t)n_some];
	return can[rng_u64(r) % (uint64_t)n];
}

static void put_spelled(struct buf *b, uint8_t c, const struct call_marks *m)
{
	if (c >= MARK_FIRST)
		buf_puts(b, m->text[c - MARK_FIRST]);
	else
		buf_putc(b, (char)c);
}

/* Is the object what that tool's schema allows? */
static bool fits(const char *name, size_t n, const struct json *arguments)
{
	for (size_t i = 0; i < json_len(tools); i++) {
		const struct json *f = json_get(json_at(tools, i), "function");
		size_t len;
		const char *own = json_str(json_get(f, "name"), &len);
		struct grammar *g;
		struct matcher *m;
		struct buf b;
		bool yes;

		if (len != n || memcmp(own, name, n) != 0)
			continue;
		CHECK(!grammar_compile(json_get(f, "parameters"), &g, NULL), "its own schema");
		m = matcher_new(g);
		buf_init(&b);
		json_put(&b, arguments);
		yes = matcher_put(m, b.p, b.n) && matcher_complete(m);
		buf_fini(&b);
		matcher_free(m);
		grammar_unref(g);
		return yes;
	}
	return false;
}

/* All that the text holds are whole calls of these tools. */
static int read_back(const struct dialect *d, const struct buf *text)
{
	const struct dialect *const list[] = { d, NULL };
	const char *name = NULL;
	struct split s;
	size_t n_name = 0;
	struct buf args;
	int n;

	buf_init(&args);
	split_init(&s, false, tools, list);
	split_put(&s, text->p, text->n);
	split_end(&s);
	CHECK(!s.malformed && s.n_call == s.n_whole && s.n_call, "%s: %d of %d whole: %.*s", d->name, s.n_whole,
	      s.n_call, (int)text->n, text->p);
	for (int i = 0; i < s.n_piece; i++) {
		const struct piece *p = &s.piece[i];
		const char *at = s.text.p + p->at;
		struct json *j;

		CHECK(p->kind != PIECE_CONTENT && p->kind != PIECE_THINKING, "%s: content \"%.*s\" of %.*s", d->name,
		      (int)p->n, at, (int)text->n, text->p);
		if (p->kind == PIECE_CALL) {
			name = at;
			n_name = p->n;
			buf_reset(&args);
		} else if (p->kind == PIECE_ARGUMENTS) {
			buf_put(&args, at, p->n);
		} else {
			j = json_parse(args.p, args.n, 0, NULL);
			CHECK(j && fits(name, n_name, j), "%s: %.*s(%.*s) of %.*s", d->name, (int)n_name, name,
			      (int)args.n, args.p, (int)text->n, text->p);
			json_free(j);
		}
	}
	n = s.n_call;
	split_fini(&s);
	buf_fini(&args);
	return n;
}

static void walks(const struct dialect *d, int times)
{
	struct vocab *v = vocab_new(256, byte_of, NULL);
	struct call_marks m;
	struct grammar *g;
	struct buf text;
	struct rng r;
	int most = 0;

	marks_of(d, &m);
	g = held(d, &m, true);
	buf_init(&text);
	for (int i = 0; i < times; i++) {
		struct matcher *w = matcher_new(g);
		int n;

		r = (struct rng){ 77 + (uint64_t)i, 0 };
		buf_reset(&text);
		buf_puts(&text, d->open);
		if (d->opened) {
			CHECK(matcher_put(w, d->opened, strlen(d->opened)), "%s", d->name);
		}
		for (n = 0; n < 3000 && !matcher_complete(w); n++) {
			uint8_t c = pick(matcher_mask(w, v), &r);

			CHECK(matcher_put(w, (const char *)&c, 1), "%s: the mask had %02x after %.*s", d->name, c,
			      (int)text.n, text.p);
			put_spelled(&text, c, &m);
		}
		if (matcher_complete(w)) {
			n = read_back(d, &text);
			most = n > most ? n : most;
		}
		matcher_free(w);
	}
	CHECK(most, "%s: no walk ended", d->name);
	CHECK(most > 1 || !d->held->between, "%s: never two calls", d->name);
	buf_fini(&text);
	grammar_unref(g);
	vocab_free(v);
}

/* ---- what templates write ---- */

/* text as a model whose marks are tokens says it. */
static void as_tokens(struct buf *out, const char *p, size_t n, const struct call_marks *m)
{
	while (n) {
		size_t len = 1;
		int i = 0;

		while (i < m->n && (n < strlen(m->text[i]) || memcmp(p, m->text[i], strlen(m->text[i])) != 0))
			i++;
		if (i < m->n)
			len = strlen(m->text[i]);
		buf_putc(out, i < m->n ? (char)(MARK_FIRST + i) : *p);
		p += len;
		n -= len;
	}
}

/* The beginning of text[0..n) as a whole answer. */
static bool takes(struct grammar *g, const struct dialect *d, const char *p, size_t n, const struct call_marks *m)
{
	struct matcher *w = matcher_new(g);
	struct buf b;
	size_t i = 0;

	buf_init(&b);
	as_tokens(&b, p, n, m);
	if (d->opened)
		matcher_put(w, d->opened, strlen(d->opened));
	while (i < b.n && !matcher_complete(w) && matcher_put(w, b.p + i, 1))
		i++;
	n = matcher_complete(w);
	if (!n)
		fprintf(stderr, "%s: refused at byte %zu: %.*s\n", d->name, i, (int)b.n, b.p);
	buf_fini(&b);
	matcher_free(w);
	return n;
}

static void refuses(const struct dialect *d)
{
	struct call_marks m;
	struct grammar *g;
	struct buf b;

	marks_of(d, &m);
	g = held(d, &m, false);
	buf_init(&b);
	d->lead(&b, "nosuch");
	CHECK(strstr(b.p, d->open), "%s: its lead is no call: %s", d->name, b.p);
	{
		struct matcher *w = matcher_new(g);
		const char *at = strstr(b.p, d->open) + strlen(d->open);
		struct buf t;

		buf_init(&t);
		as_tokens(&t, at, strlen(at), &m);
		CHECK(!matcher_put(w, t.p, t.n), "%s: a tool that is none", d->name);
		buf_reset(&t);
		buf_reset(&b);
		d->lead(&b, "get");
		at = strstr(b.p, d->open) + strlen(d->open);
		as_tokens(&t, at, strlen(at), &m);
		CHECK(matcher_put(w, t.p, t.n), "%s: what it is made to say is not what it is held to: %s", d->name,
		      b.p);
		buf_fini(&t);
		matcher_free(w);
	}
	buf_fini(&b);
	grammar_unref(g);
}

/* Templates want arguments as objects or as text, ids of one kind or another, results behind calls or not. */
enum { TEXT_ARGUMENTS = 1, NAMED_ID = 2, CALL_LAST = 4, VARIANTS = 8 };

static const char talk[] =
	"[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":%s,\"tool_calls\":[{\"id\":\"%s\","
	"\"type\":\"function\",\"function\":{\"name\":\"get\",\"arguments\":%s}}]}%s]";
static const char result[] =
	",{\"role\":\"tool\",\"tool_call_id\":\"abcDEF123\",\"name\":\"get\",\"content\":\"warm\"}";

/* false: this template cannot render it. */
static bool render(const struct template *t, int how, struct template_output *out)
{
	static const char object[] = "{\"city\": \"Lima\", \"days\": 3, \"unit\": \"c\"}";
	char messages[1000];
	struct template_input in = {
		.tools = tools, .add_generation_prompt = !(how & CALL_LAST), .bos_token = "", .eos_token = ""
	};
	struct json *j;
	struct buf quoted;
	bool good;

	buf_init(&quoted);
	json_put_str(&quoted, object, strlen(object));
	buf_putc(&quoted, 0);
	snprintf(messages, sizeof messages, talk, how & CALL_LAST ? "null" : "\"\"",
	         how & NAMED_ID ? "functions.get:0" : "abcDEF123", how & TEXT_ARGUMENTS ? quoted.p : object,
	         how & CALL_LAST ? "" : result);
	buf_fini(&quoted);
	in.messages = j = json_parse(messages, strlen(messages), 0, NULL);
	CHECK(j, "the conversation");
	good = !template_render(t, &in, out, NULL);
	json_free(j);
	/* Arguments in a string, where the template wants them parsed, are no call that a model should repeat. */
	return good && memmem(out->text.p, out->text.n, "Lima", 4) &&
	       !memmem(out->text.p, out->text.n, "\\\"city", 6) && !memmem(out->text.p, out->text.n, "{{\"city", 7);
}

static int one_template(const char *path, const char *name)
{
	const struct dialect *d;
	struct template_output out;
	struct template *t = NULL;
	struct call_marks m;
	struct buf file;
	struct err err;
	int seen = 0;
	bool other = false; /* its calls open as another dialect's */

	buf_init(&file);
	CHECK(!file_read(path, 1 << 20, &file, &err), "%s", err.msg);
	if (template_open(&t, file.p, file.n, NULL, &err) || !(d = dialect_taught(t)) || !d->held) {
		template_close(t);
		buf_fini(&file);
		return 0;
	}
	marks_of(d, &m);
	for (int how = 0; how < VARIANTS; how++) {
		const char *at, *end, *best = NULL;

		d = dialect_taught(t);
		template_output_init(&out);
		if (render(t, how, &out)) {
			struct grammar *g = held(d, &m, true);

			/* The last place before the arguments where a call opens. */
			end = memmem(out.text.p, out.text.n, "Lima", 4);
			for (const struct dialect *const *l = dialects_of(t); *l; l++)
				for (at = out.text.p; (at = strstr(at, (*l)->open)) && at < end; at++) {
					other |= *(*l)->open && (*l)->held && strcmp((*l)->open, d->open) != 0;
					if ((*l)->held == d->held && (!best || at > best)) {
						best = at;
						d = *l;
					}
				}
			if (best) {
				at = best + strlen(d->open);
				CHECK(takes(g, d, at, (size_t)(out.text.p + out.text.n - at), &m),
				      "%s: what the template writes is refused", name);
				seen = 1;
			}
			grammar_unref(g);
		}
		template_output_fini(&out);
	}
	CHECK(seen || !other, "%s: is to call as %s, and its history does otherwise", name, dialect_taught(t)->open);
	if (!seen)
		printf("%s: %s, but no call of its history was found\n", name, d->name);
	template_close(t);
	buf_fini(&file);
	return seen;
}

/* Two dialects of one name differ in what is around the calls: the template's own is begun, and held to. */
static void taught(void)
{
	static const char *const table[][2] = {
		{ "{{ '<' + mark + 'function_calls>' }} \xef\xbd\x9c"
		  "DSML\xef\xbd\x9c",
		  "<\xef\xbd\x9c"
		  "DSML\xef\xbd\x9c"
		  "function_calls>" },
		{ "{{ '<' + mark + 'tool_calls>' }} \xef\xbd\x9c"
		  "DSML\xef\xbd\x9c",
		  "<\xef\xbd\x9c"
		  "DSML\xef\xbd\x9c"
		  "tool_calls>" },
		{ "<arg_key>k</arg_key><arg_value>v</arg_value>", "<tool_call>get<" },
		{ "<arg_key>k</arg_key>\n<arg_value>v</arg_value>", "<tool_call>get\n" },
	};

	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		struct template *t;
		struct buf b;
		const char *want = table[i][1];

		CHECK(!template_open(&t, table[i][0], strlen(table[i][0]), NULL, NULL), "%s", table[i][0]);
		buf_init(&b);
		dialect_taught(t)->lead(&b, "get");
		buf_puts(&b, "<");
		CHECK(!strncmp(b.p, want, strlen(want)), "%s: begins a call with %s", table[i][0], b.p);
		CHECK(!strncmp(want, dialects_of(t)[0]->open, strlen(dialects_of(t)[0]->open)), "%s", table[i][0]);
		buf_fini(&b);
		template_close(t);
	}
}

/* An agent's thousand tools: prepared for little in every dialect, and not by holding their arguments to nothing. */
static void many_tools(const struct dialect *d)
{
	enum { TOOLS = 1000, STEPS = 4000000, BYTES = 32 << 20 };
	struct json *few = tools;
	struct allowance w;
	struct call_marks m;
	struct grammar *g;
	struct buf b;
	clock_t begun;

	buf_init(&b);
	for (int i = 0; i < TOOLS; i++)
		buf_printf(
			&b,
			"%s{\"type\":\"function\",\"function\":{\"name\":\"tool_%d\",\"parameters\":{\"type\":\"object\","
			"\"properties\":{\"path\":{\"type\":\"string\"},\"line\":{\"type\":\"integer\"},\"key_%d\":{"
			"\"enum\":[\"a\",\"b\"]}},\"required\":[\"path\"],\"additionalProperties\":false}}}",
			i ? "," : "[", i, i);
	buf_putc(&b, ']');
	tools = json_parse(b.p, b.n, 0, NULL);
	buf_fini(&b);
	marks_of(d, &m);
	allowance_begin(&w, 0, NULL);
	begun = clock();
	g = held(d, &m, true);
	if (getenv("GRAMMAR_TIMES"))
		printf("%-20s %5.1f ms, %llu steps, %.1f MB\n", d->name,
		       1e3 * (double)(clock() - begun) / CLOCKS_PER_SEC, (unsigned long long)(ALLOWANCE_STEPS - w.left),
		       (double)grammar_bytes(g) / 1e6);
	CHECK(ALLOWANCE_STEPS - w.left < STEPS, "%s: %llu steps", d->name,
	      (unsigned long long)(ALLOWANCE_STEPS - w.left));
	allowance_end();
	CHECK(grammar_bytes(g) < BYTES, "%s: %zu bytes", d->name, grammar_bytes(g));
	grammar_unref(g);
	json_free(tools);
	tools = few;
}

/* A strict tool that the form of calls cannot hold is refused by name; another is free. */
static void strict_tools(const struct dialect *d)
{
	static const struct {
		const char *parameters;
		bool python; /* Python's forms cannot either */
	} table[] = {
		{ "{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"b\":{\"type\":\"boolean\"}},\"required\":[\"b\"]},"
		  "{\"type\":\"object\",\"properties\":{\"c\":{\"type\":\"boolean\"}},\"required\":[\"c\"]}]}",
		  true },
		{ "{\"type\":\"object\",\"patternProperties\":{\"^x\":{\"type\":\"integer\"}}}", true },
		{ "{\"type\":\"object\",\"properties\":{\"a<b\":{}},\"required\":[\"a<b\"]}", true },
		{ "{\"type\":\"object\",\"properties\":{\"\":{}},\"required\":[\"\"]}", true },
		{ "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":\"%s\"},\"n\":{\"enum\":[5]}},"
		  "\"required\":[\"a\",\"n\"],\"additionalProperties\":false}",
		  false },
		{ "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":\"x\\u0000\"}},\"required\":[\"a\"]}", false },
	};
	bool marked = d->held->spell == SPELL_MARKED;
	struct json *few = tools;

	if (d->held->spell == SPELL_JSON || d->held->spell == SPELL_GEMMA)
		return;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		for (int strict = 0; strict < 2; strict++) {
			char parameters[400], text[800];
			struct call_marks m = { .n = 0 };
			struct grammar *g = NULL;
			struct err err = { 0 };
			int rc;

			snprintf(parameters, sizeof parameters, table[i].parameters,
			         marked ? d->held->value_end : "</parameter>");
			snprintf(
				text, sizeof text,
				"[{\"type\":\"function\",\"function\":{\"name\":\"get\",\"strict\":%s,\"parameters\":%s}}]",
				strict ? "true" : "false", parameters);
			tools = json_parse(text, strlen(text), 0, NULL);
			CHECK(tools, "%s", text);
			rc = grammar_compile_spelled(tools, d->held, &m, NULL, true, &g, &err);
			CHECK(rc == (strict && (marked || table[i].python) ? E_UNSUPPORTED : 0), "%s: %d %s: %s",
			      d->name, rc, err.msg, text);
			CHECK(!rc || strstr(err.msg, "\"get\" is strict"), "%s", err.msg);
			grammar_unref(g);
			json_free(tools);
		}
	tools = few;
}

/* ---- random values ---- */

/* Texts that end a value, a string or a call in some dialect. */
static const char *const hard[] = {
	"</parameter>",
	"</function>",
	"</tool_call>",
	"<parameter=k>",
	"</arg_value>",
	"<arg_key>",
	"</invoke>",
	"</seed:tool_call>",
	"</minimax:tool_call>",
	"<\xef\xbd\x9c"
	"DSML\xef\xbd\x9c"
	"parameter name=\"k\"",
	"</\xef\xbd\x9c"
	"DSML\xef\xbd\x9c"
	"parameter>",
	"<|tool_call_end|>",
	"</function_calls>",
	"<|call|>",
	"[ARGS]",
	"</TOOLCALL>",
	"\"",
	"'",
	"\\",
	"]",
	"}",
	")",
	",",
	"=",
	"{",
	"[",
	"\n",
	" ",
	"5",
	"-1.5",
	"true",
	"null",
	"None",
	"a",
	"\xc3\xa9",
	"\xf0\x9f\x98\x80",
};
enum { N_HARD = sizeof hard / sizeof *hard };
static const char *const keys[] = { "k", "edits", "file_path", "n" };

static void random_value(struct rng *r, struct buf *out, int depth)
{
	static const char *const scalars[] = { "true", "false", "null", "0", "-7", "12", "2.5", "1000000" };
	uint64_t kind = rng_u64(r) % (depth > 1 ? 5 : 8), n = rng_u64(r) % 4;
	struct buf text;

	if (kind < 2) {
		buf_puts(out, scalars[rng_u64(r) % 8]);
		return;
	}
	if (kind < 5) {
		buf_init(&text);
		for (uint64_t i = 0; i < n; i++)
			buf_printf(&text, "%s%s", hard[rng_u64(r) % N_HARD], rng_u64(r) % 2 ? " x " : "");
		json_put_str(out, text.p ? text.p : "", text.n);
		buf_fini(&text);
		return;
	}
	buf_putc(out, kind < 7 ? '[' : '{');
	for (uint64_t i = 0; i < n; i++) {
		if (i)
			buf_putc(out, ',');
		if (kind == 7)
			buf_printf(out, "\"%s\":", keys[i]);
		random_value(r, out, depth + 1);
	}
	buf_putc(out, kind < 7 ? ']' : '}');
}

/* A strict tool that takes one value of each of some keys, said in one of many ways; out: that object. */
static void random_tool(struct rng *r, struct buf *tool, struct buf *out)
{
	static const char *const around[] = { "%s", "{\"$ref\":\"#/$defs/whole\",\"$defs\":{\"whole\":%s}}",
		                              "{\"anyOf\":[%s]}", "{\"allOf\":[%s,{\"type\":\"object\"}]}" };
	uint64_t n = 1 + rng_u64(r) % 4;
	struct buf members, need, whole, one;

	buf_init(&members);
	buf_init(&need);
	buf_init(&whole);
	buf_putc(out, '{');
	for (uint64_t i = 0; i < n; i++) {
		uint64_t way = rng_u64(r) % 4;

		buf_init(&one);
		random_value(r, &one, 0);
		buf_printf(out, "%s\"%s\":%s", i ? "," : "", keys[i], one.p);
		buf_printf(&need, "%s\"%s\"", i ? "," : "", keys[i]);
		buf_printf(&members,
		           way == 0 ? "%s\"%s\":{\"const\":%s}" :
		           way == 1 ? "%s\"%s\":{\"enum\":[%s]}" :
		           way == 2 ? "%s\"%s\":{\"anyOf\":[{\"const\":%s}]}" :
		                      "%s\"%s\":{\"allOf\":[{\"enum\":[%s]}]}",
		           i ? "," : "", keys[i], one.p);
		buf_fini(&one);
	}
	buf_putc(out, '}');
	buf_printf(&whole, "{\"type\":\"object\",\"properties\":{%s},\"required\":[%s],\"additionalProperties\":false}",
	           members.p, need.p);
	buf_puts(tool, "[{\"type\":\"function\",\"function\":{\"name\":\"get\",\"strict\":true,\"parameters\":");
	{
		const char *with = around[rng_u64(r) % 4], *at = strstr(with, "%s");

		buf_put(tool, with, (size_t)(at - with));
		buf_put(tool, whole.p, whole.n);
		buf_puts(tool, at + 2);
	}
	buf_puts(tool, "}}]");
	buf_fini(&members);
	buf_fini(&need);
	buf_fini(&whole);
}

/* The arguments of the one call in text, which comes in pieces of that many bytes. */
static void arguments_of(const struct dialect *d, const struct buf *text, size_t pieces, struct buf *out)
{
	const struct dialect *const list[] = { d, NULL };
	struct split s;
	struct json *j;
	struct buf args;

	buf_init(&args);
	split_init(&s, false, tools, list);
	for (size_t i = 0; i < text->n; i += pieces)
		split_put(&s, text->p + i, text->n - i < pieces ? text->n - i : pieces);
	split_end(&s);
	for (int i = 0; i < s.n_piece; i++) {
		CHECK(s.piece[i].kind != PIECE_CONTENT, "%s: content \"%.*s\" of %.*s", d->name, (int)s.piece[i].n,
		      s.text.p + s.piece[i].at, (int)text->n, text->p);
		if (s.piece[i].kind == PIECE_ARGUMENTS)
			buf_put(&args, s.text.p + s.piece[i].at, s.piece[i].n);
	}
	CHECK(!s.malformed && s.n_call == 1 && s.n_whole == 1, "%s: %d calls of %.*s", d->name, s.n_call, (int)text->n,
	      text->p);
	j = json_parse(args.p, args.n, 0, NULL);
	CHECK(j, "%s: %.*s", d->name, (int)args.n, args.p);
	json_put(out, j);
	json_free(j);
	split_fini(&s);
	buf_fini(&args);
}

/* What a grammar of one value generates is what is read. */
static void random_values(const struct dialect *d, int form, int times)
{
	struct vocab *v = vocab_new(256, byte_of, NULL);
	struct json *few = tools;
	int held_some = 0;

	for (int i = 0; i < times; i++) {
		struct rng r = { 991 + (uint64_t)i, 0 };
		struct call_marks m = { .n = 0 };
		struct buf tool, value, text, got;
		struct grammar *g = NULL;
		struct json *j;
		struct err err = { 0 };
		int rc;

		buf_init(&tool);
		buf_init(&value);
		buf_init(&text);
		random_tool(&r, &tool, &value);
		tools = json_parse(tool.p, tool.n, 0, NULL);
		CHECK(tools, "%.*s", (int)tool.n, tool.p);
		if (form < 0)
			marks_of(d, &m);
		rc = form < 0 ? grammar_compile_spelled(tools, d->held, &m, NULL, false, &g, &err) :
		                grammar_compile_calls(tools, (enum calls_form)form, NULL, false, &g, &err);
		CHECK(!rc || strstr(err.msg, "can be written in it"), "%s: %s: %.*s", d->name, err.msg, (int)tool.n,
		      tool.p);
		if (!rc) {
			struct matcher *w = matcher_new(g);

			held_some++;
			buf_puts(&text, d->open);
			if (d->opened)
				matcher_put(w, d->opened, strlen(d->opened));
			for (int n = 0; n < 5000 && !matcher_complete(w); n++) {
				uint8_t c = pick(matcher_mask(w, v), &r);

				CHECK(matcher_put(w, (const char *)&c, 1), "%s: the mask had %02x", d->name, c);
				put_spelled(&text, c, &m);
			}
			CHECK(matcher_complete(w), "%s: no end: %.*s", d->name, (int)text.n, text.p);
			if (form >= 0 && *d->open)
				buf_puts(&text, "\n</tool_call>");
			j = json_parse(value.p, value.n, 0, NULL);
			buf_reset(&value);
			json_put(&value, j);
			json_free(j);
			for (size_t pieces = 1; pieces <= 100000; pieces *= 100000) {
				buf_init(&got);
				arguments_of(d, &text, pieces, &got);
				CHECK(got.n == value.n && !memcmp(got.p, value.p, got.n),
				      "%s: %.*s is read as %.*s, generated was %.*s", d->name, (int)text.n, text.p,
				      (int)got.n, got.p, (int)value.n, value.p);
				buf_fini(&got);
			}
			matcher_free(w);
			grammar_unref(g);
		}
		json_free(tools);
		buf_fini(&tool);
		buf_fini(&value);
		buf_fini(&text);
	}
	CHECK(held_some > times / 3, "%s: %d of %d", d->name, held_some, times);
	tools = few;
	vocab_free(v);
}

int main(int argc, char **argv)
{
	DIR *folder = argc > 1 ? opendir(argv[1]) : NULL;
	struct dirent *e;
	char path[600];
	int n = 0, times = getenv("WEFT_TEST_QUICK") ? 30 : 200;

	tools = json_parse(tools_text, sizeof tools_text - 1, 0, NULL);
	CHECK(tools, "the tools");
	for (int i = 0; i < N_DIALECT; i++) {
		many_tools(dialects[i]);
		walks(dialects[i], times);
		strict_tools(dialects[i]);
		random_values(dialects[i], -1, times);
		/* It shares its lead with the one before. */
		if (dialects[i] != &dialect_harmony_role)
			refuses(dialects[i]);
	}
	taught();
	random_values(&dialect_hermes, CALLS_JSON, times);
	random_values(&dialect_tagged, CALLS_TAGGED, times);
	random_values(&dialect_llama, CALLS_LLAMA, times);
	random_values(&dialect_python, CALLS_PYTHON, times);
	while (folder && (e = readdir(folder))) {
		if (!strstr(e->d_name, ".jinja"))
			continue;
		snprintf(path, sizeof path, "%s/%s", argv[1], e->d_name);
		n += one_template(path, e->d_name);
	}
	if (folder)
		closedir(folder);
	json_free(tools);
	printf("%d dialects held; calls of %d templates taken%s\n", N_DIALECT, n,
	       folder ? "" : " (no folder of templates)");
	return 0;
}
