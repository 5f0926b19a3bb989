/* test_allowance.c - what constraints may cost a request: steps, memory, and an end when nobody waits.
 *
 * Steps are counted (base/allowance.h), so nothing here depends on the machine's speed. */
#include <stdatomic.h>
#include <string.h>

#include "../check.h"
#include "base/buf.h"
#include "base/allowance.h"
#include "text/grammar/grammar.h"

static struct json *parsed(const struct buf *b)
{
	struct err err;
	struct json *j = json_parse(b->p, b->n, 0, &err);

	CHECK(j, "%s", err.msg);
	return j;
}

/* n tools with the same parameters. */
static struct json *tools(int n, const char *parameters)
{
	struct json *j;
	struct buf b;

	buf_init(&b);
	for (int i = 0; i < n; i++)
		buf_printf(&b, "%s{\"type\":\"function\",\"function\":{\"name\":\"tool_%d\",\"parameters\":%s}}",
		           i ? "," : "[", i, parameters);
	buf_putc(&b, ']');
	j = parsed(&b);
	buf_fini(&b);
	return j;
}

static uint64_t spent(const struct allowance *w)
{
	return ALLOWANCE_STEPS - w->left;
}

/* By enum calls_form. */
static const char *const forms[] = { "{\"name\": \"tool_%d\", \"arguments\": {\"path\": \"x\"}}",
	                             "<function=tool_%d>\n<parameter=path>\nx\n</parameter>\n</function>",
	                             "{\n\t \"name\":\"tool_%d\",\n\"parameters\":{\"path\": \"x\"}\n}",
	                             "[tool_%d(path=\"x\")]" };

static bool calls(struct grammar *g, const char *form, int i)
{
	struct matcher *m = matcher_new(g);
	struct buf text;
	bool yes;

	buf_init(&text);
	buf_printf(&text, form, i);
	yes = matcher_put(m, text.p, text.n) && matcher_complete(m);
	buf_fini(&text);
	matcher_free(m);
	return yes;
}

/* An agent's tools, however many they are: each can be called, for little. */
static void test_many_tools(void)
{
	static const char *const parameters[] = {
		"{\"type\":\"object\"}",
		"{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"},\"line\":{\"type\":\"integer\"},"
		"\"mode\":{\"enum\":[\"a\",\"b\"]}},\"required\":[\"path\"]}",
		"{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"},\"line\":{\"type\":\"integer\"}},"
		"\"required\":[\"path\"],\"additionalProperties\":false}",
	};
	enum { TOOLS = 1000, STEPS = 10000000, BYTES = 32 << 20 };

	for (int k = 0; k < 3; k++) {
		struct json *j = tools(TOOLS, parameters[k]);

		for (int form = 0; form < 4; form++) {
			struct grammar *g;
			struct allowance w;
			struct err err;

			allowance_begin(&w, 0, NULL);
			CHECK(!grammar_compile_calls(j, (enum calls_form)form, NULL, true, &g, &err), "form %d: %s",
			      form, err.msg);
			allowance_end();
			CHECK(spent(&w) < STEPS, "parameters %d, form %d: %llu steps", k, form,
			      (unsigned long long)spent(&w));
			CHECK(grammar_bytes(g) < BYTES, "parameters %d, form %d: %zu bytes", k, form, grammar_bytes(g));
			for (int i = 0; i < TOOLS; i += 37)
				CHECK(calls(g, forms[form], i), "parameters %d, form %d: tool %d", k, form, i);
			CHECK(!calls(g, forms[form], TOOLS), "there is no such tool");
			grammar_unref(g);
		}
		json_free(j);
	}
}

/* Each of them is too much, or nearly; together they get what one request gets. */
static void test_one_allowance(void)
{
	struct json *j = tools(300, "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":"
	                            "\"^(a|b)*a(a|b){20}$\"}}}");
	struct grammar *g;
	struct allowance w;
	struct err err;

	allowance_begin(&w, 0, NULL);
	CHECK(grammar_compile_calls(j, CALLS_JSON, NULL, true, &g, &err) == E_LIMIT && !g, "all of it was made");
	CHECK(strstr(err.msg, "too much work") && allowance_why(), "%s", err.msg);
	allowance_end();
	json_free(j);
}

/* Nobody waits: the next step is the last. */
static void test_gone(void)
{
	static const char *const schemas[] = {
		"{}", "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":3}}}",
		"{\"type\":\"string\",\"pattern\":\"^(a|b)*a(a|b){20}$\"}"
	};
	atomic_bool gone;

	atomic_init(&gone, true);
	for (int i = 0; i < 3; i++) {
		struct json *j = json_parse(schemas[i], strlen(schemas[i]), 0, NULL);
		struct grammar *g;
		struct allowance w;
		struct err err;

		allowance_begin(&w, 0, &gone);
		CHECK(grammar_compile(j, &g, &err) == E_LIMIT && strstr(err.msg, "nothing waits"), "%s: %s", schemas[i],
		      err.msg);
		CHECK(spent(&w) < 1000, "%s: %llu steps", schemas[i], (unsigned long long)spent(&w));
		allowance_end();
		json_free(j);
	}
}

/* References by name cost what the schema is long, once. */
static void test_anchors(void)
{
	enum { REFS = 2000, PARTS = 40000 };
	struct grammar *g;
	struct json *j;
	struct allowance w;
	struct err err;
	struct buf b;

	buf_init(&b);
	buf_puts(&b, "{\"allOf\":[");
	for (int i = 0; i < REFS; i++)
		buf_printf(&b, "%s{\"$ref\":\"#n\"}", i ? "," : "");
	buf_puts(&b, "],\"$defs\":{");
	for (int i = 0; i < PARTS; i++)
		buf_printf(&b, "\"%d\":[],", i);
	buf_puts(
		&b,
		"\"last\":{\"$anchor\":\"n\",\"type\":\"object\"},\"later\":{\"$anchor\":\"n\",\"type\":\"string\"}}}");
	j = parsed(&b);
	allowance_begin(&w, 0, NULL);
	CHECK(!grammar_compile(j, &g, &err), "%s", err.msg);
	CHECK(spent(&w) < 1000000, "%llu steps", (unsigned long long)spent(&w));
	allowance_end();
	/* Of two that are named so the first counts. */
	struct matcher *m = matcher_new(g);
	CHECK(!matcher_put(m, "\"", 1) && matcher_put(m, "{}", 2) && matcher_complete(m), "the anchor leads elsewhere");
	matcher_free(m);
	grammar_unref(g);
	json_free(j);
	/* As many names as references. */
	buf_reset(&b);
	buf_puts(&b, "{\"anyOf\":[");
	for (int i = 0; i < 190; i++)
		buf_printf(&b, "%s{\"$ref\":\"#n%d\"}", i ? "," : "", i);
	buf_puts(&b, "],\"$defs\":{");
	for (int i = 0; i < 190; i++)
		buf_printf(&b, "%s\"%d\":{\"$anchor\":\"n%d\",\"const\":%d}", i ? "," : "", i, i, i);
	buf_puts(&b, "}}");
	j = parsed(&b);
	CHECK(!grammar_compile(j, &g, &err), "%s", err.msg);
	m = matcher_new(g);
	CHECK(matcher_put(m, "189", 3) && matcher_complete(m), "the last name");
	matcher_free(m);
	grammar_unref(g);
	json_free(j);
	buf_fini(&b);
}

/* What is told of a place is short, however deep it is and however long its keys are. */
static void test_long_keys(void)
{
	enum { PARTS = 200, KEY = 30000 };
	struct grammar *g;
	struct json *j;
	struct err err;
	struct buf b;

	buf_init(&b);
	buf_puts(&b, "{\"type\":\"array\",\"items\":{\"$defs\":{},\"properties\":{\"");
	for (int i = 0; i < KEY; i++)
		buf_putc(&b, 'k');
	buf_puts(&b, "\":{\"anyOf\":[");
	for (int i = 0; i < PARTS; i++)
		buf_printf(&b, "%s{\"const\":%d}", i ? "," : "", i);
	buf_puts(&b, "]}}}}");
	j = parsed(&b);
	CHECK(!grammar_compile(j, &g, &err), "%s", err.msg);
	CHECK(grammar_bytes(g) < 128 << 20, "%zu bytes", grammar_bytes(g));
	grammar_unref(g);
	json_free(j);
	buf_fini(&b);
}

/* A class that is repeated makes thousands of sets of one or two states each: they are told apart at once. */
static void test_repeated_class(void)
{
	static const char re[] = "^endrawa`[tuple\\s?\\d{1,4}.*|[^\\W_]{330}?$";
	struct grammar *g;
	struct allowance w;
	struct err err;

	allowance_begin(&w, 0, NULL);
	CHECK(!grammar_compile_regex(re, sizeof re - 1, &g, &err), "%s", err.msg);
	CHECK(spent(&w) < 1500000, "%llu steps", (unsigned long long)spent(&w));
	allowance_end();
	grammar_unref(g);
}

int main(void)
{
	test_repeated_class();
	test_many_tools();
	test_one_allowance();
	test_gone();
	test_anchors();
	test_long_keys();
	return 0;
}
