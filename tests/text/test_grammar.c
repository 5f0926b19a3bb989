/* test_grammar.c - the grammar compiler, walks and masks.
 *
 * The schemas' meaning is tested against the official suite and a validator
 * (schema_suite.py, schema_walks.py).  Here: that a mask says of every token what
 * the walk would say of its bytes, wherever the walk stands and however it came
 * there; what text must come; what is refused, by name; what schemas made to hurt cost; white space.
 *
 * test_grammar --bench: what masks cost at 248,000 tokens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "made_vocab.h"
#include "../check.h"
#include "text/grammar/grammar.h"

static int compile(const char *schema, struct grammar **g, struct err *err)
{
	int64_t begin = clock_monotonic_ns();

	struct json *j = json_parse(schema, strlen(schema), 4000, err);
	int rc;

	CHECK(j, "%.200s: %s", schema, err->msg);
	rc = grammar_compile(j, g, err);
	json_free(j);
	if (getenv("GRAMMAR_TIMES"))
		printf("%8.1f ms %3d %.100s\n", (double)(clock_monotonic_ns() - begin) / 1e6, rc, schema);
	return rc;
}

static struct grammar *made(const char *schema)
{
	struct grammar *g;
	struct err err;

	CHECK(!compile(schema, &g, &err), "%s: %s", schema, err.msg);
	return g;
}

static const char *const schemas[] = {
	"{}",
	"{\"type\":\"object\"}",
	"{\"type\":\"string\",\"maxLength\":7,\"minLength\":3}",
	"{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":40}}",
	"{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"na\":{\"type\":\"integer\"},\"list\":{\"type\":"
	"\"array\",\"items\":{\"$ref\":\"#\"},\"maxItems\":2}},\"required\":[\"name\"]}",
	"{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[\"x\",\"xy\",1,12,null]},\"b\":{\"type\":\"number\",\"minimum\":0,"
	"\"maximum\":12.5}},\"additionalProperties\":false,\"required\":[\"a\",\"b\"]}",
	"{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"in\"},\"v\":{\"type\":\"integer\"}},\"required\":"
	"[\"kind\",\"v\"],\"additionalProperties\":false},{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"int\"},\"v\":"
	"{\"type\":\"string\"}},\"required\":[\"kind\",\"v\"]},{\"type\":\"string\"},{\"type\":\"string\",\"pattern\":\"^a+$\"}]}",
	"{\"type\":\"object\",\"patternProperties\":{\"^s\":{\"type\":\"string\",\"pattern\":\"^[a-z]{2,5}$\"},\"^n\":{\"type\":"
	"\"integer\"}},\"additionalProperties\":{\"type\":\"boolean\"},\"minProperties\":1,\"maxProperties\":3}",
	"{\"type\":\"string\",\"format\":\"date-time\"}",
	"calls tagged",
	"calls json",
	"calls llama",
	"calls python",
	"gbnf root ::= value\nvalue ::= object | array | string | number | (\"true\" | \"null\") ws\n"
	"object ::= \"{\" ws (string \":\" ws value (\",\" ws string \":\" ws value)*)? \"}\" ws\n"
	"array ::= \"[\" ws (value (\",\" ws value)*)? \"]\" ws\n"
	"string ::= \"\\\"\" ([^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{4}))* \"\\\"\" ws\n"
	"number ::= \"-\"? [0-9]+ (\".\" [0-9]+)? ws\nws ::= ([ \\t\\n] ws)?\n",
	"gbnf root ::= term (\"+\" term)*\nterm ::= [a-z]+ | [0-9]{1,3} | \"(\" root \")\" | \"-\" term\n",
	"gbnf root ::= \"a\" root (\"b\" | \"c\" root)? | .?\n", /* many ways to read one text */
	"regex (foo|ba[rz])+\\s?\\d{2,4}.*",
};
enum { N_SCHEMA = sizeof schemas / sizeof *schemas };

static const char tools[] =
	"[{\"type\":\"function\",\"function\":{\"name\":\"write\",\"parameters\":{\"type\":\"object\",\"properties\":{\"path\":{\"type\":"
	"\"string\"},\"text\":{\"type\":\"string\"},\"mode\":{\"enum\":[\"new\",\"append\"]},\"line\":{\"type\":\"integer\"}},\"required\":"
	"[\"path\",\"text\"],\"additionalProperties\":false}}},{\"type\":\"function\",\"function\":{\"name\":\"free\"}}]";

/* A schema, rules, an expression, or the tools in one form or the other. */
static struct grammar *made_of(const char *schema)
{
	struct json *j;
	struct grammar *g;
	struct err err;

	if (!strncmp(schema, "gbnf ", 5)) {
		CHECK(!grammar_compile_gbnf(schema + 5, strlen(schema) - 5, &g, &err), "%s: %s", schema, err.msg);
		return g;
	}
	if (!strncmp(schema, "regex ", 6)) {
		CHECK(!grammar_compile_regex(schema + 6, strlen(schema) - 6, &g, &err), "%s: %s", schema, err.msg);
		return g;
	}
	if (strncmp(schema, "calls ", 6))
		return made(schema);
	j = json_parse(tools, strlen(tools), 0, NULL);
	CHECK(!grammar_compile_calls(j,
	                             schema[6] == 't' ? CALLS_TAGGED :
	                             schema[6] == 'l' ? CALLS_LLAMA :
	                             schema[6] == 'p' ? CALLS_PYTHON :
	                                                CALLS_JSON,
	                             NULL, true, &g, &err),
	      "%s", err.msg);
	json_free(j);
	return g;
}

/* ---- masks ---- */

/* The truth: each token on its own. */
static void check_mask(struct matcher *m, const struct vocab *v, const struct made_vocab *t)
{
	const uint32_t *mask = matcher_mask(m, v);

	for (int i = 0; i < t->n; i++) {
		bool in = mask[i / 32] >> (i % 32) & 1, can = t->len[i] && matcher_put(m, t->p[i], t->len[i]);

		if (can)
			matcher_back(m, 1);
		CHECK(in == can, "token %d (%.*s): mask %d, walk %d", i, (int)t->len[i], t->p[i], in, can);
	}
}

/* ---- text that must come ---- */

static int no_choice(void *arg, const char *text, size_t n_text, const uint8_t *may, int n)
{
	CHECK(n >= 2 && n <= MATCHER_CHOICES_MAX, "%d bytes to choose from", n);
	return -1;
}

static int any_choice(void *arg, const char *text, size_t n_text, const uint8_t *may, int n)
{
	return may[made_dice(arg, (uint64_t)n)];
}

/* The bytes that may come next; *one: the last of them. */
static int bytes_next(struct matcher *m, char *one)
{
	int n = 0;

	for (int c = 0; c < 256; c++) {
		char byte = (char)c;

		if (!matcher_put(m, &byte, 1))
			continue;
		matcher_back(m, 1);
		*one = byte;
		n++;
	}
	return n;
}

/* Each byte of it is the only one that may come, and behind it there are others, or the end; looking changes nothing. */
static void check_ahead(struct matcher *m, const struct vocab *v, const struct made_vocab *t, uint64_t *seed)
{
	size_t words = (size_t)(t->n + 31) / 32, most = 1 + made_dice(seed, 40), n, guess;
	uint32_t *before = xmalloc(words * sizeof *before);
	char text[64], more[64], one = 0;

	memcpy(before, matcher_mask(m, v), words * sizeof *before);
	n = matcher_ahead(m, text, most, no_choice, NULL);
	guess = matcher_ahead(m, more, most, any_choice, seed);
	CHECK(n <= guess && guess <= most && !memcmp(text, more, n), "%zu bytes, %zu of a guess", n, guess);
	CHECK(!memcmp(before, matcher_mask(m, v), words * sizeof *before), "another mask after looking ahead");
	CHECK(!guess || matcher_put(m, more, guess), "the guess %.*s", (int)guess, more);
	matcher_back(m, guess > 0);
	for (size_t i = 0; i < n; i++) {
		CHECK(!matcher_complete(m) && bytes_next(m, &one) == 1 && one == text[i], "byte %zu of %.*s", i, (int)n,
		      text);
		CHECK(matcher_put(m, text + i, 1), "byte %zu", i);
	}
	CHECK(n == most || matcher_complete(m) || bytes_next(m, &one) != 1 || (uint8_t)one >= MARK_FIRST,
	      "behind %.*s only %c may come", (int)n, text, one);
	matcher_back(m, (int)n);
	free(before);
}

static int any_of(const uint32_t *mask, int n, uint64_t *s)
{
	int at = (int)made_dice(s, (uint64_t)n);

	for (int i = 0; i < n; i++, at = (at + 1) % n)
		if (mask[at / 32] >> (at % 32) & 1)
			return at;
	return -1;
}

static void test_masks(uint64_t seed, int n_token)
{
	struct made_vocab t = made_vocab(n_token, seed);
	struct vocab *v = vocab_new(t.n, made_bytes, &t);

	for (int k = 0; k < N_SCHEMA; k++) {
		struct grammar *g = made_of(schemas[k]);
		struct matcher *m = matcher_new(g);
		int depth = 0;

		grammar_unref(g); /* the walk holds it */
		for (int i = 0; i < 60; i++) {
			const uint32_t *mask = matcher_mask(m, v);
			int id = any_of(mask, t.n, &seed);

			if (i % 3 == 0)
				check_mask(m, v, &t);
			if (i % 3 == 1)
				check_ahead(m, v, &t, &seed);
			if (id < 0) {
				CHECK(matcher_complete(m), "nothing may follow");
				CHECK(matcher_whole(m), "complete, not whole, and nothing may follow");
			}
			if (id < 0 || !made_dice(&seed, 6)) {
				int back = depth ? (int)made_dice(&seed, (uint64_t)depth + 1) : 0;

				matcher_back(m, back);
				depth -= back;
				continue;
			}
			CHECK(matcher_put(m, t.p[id], t.len[id]), "the mask's own token");
			depth++;
			if (!made_dice(&seed, 10)) {
				struct matcher *c = matcher_copy(m);

				CHECK(!memcmp(matcher_mask(m, v), matcher_mask(c, v), (size_t)(t.n + 31) / 32 * 4),
				      "a copy's mask");
				matcher_free(m);
				m = c;
			}
		}
		matcher_free(m);
	}
	vocab_free(v);
	made_vocab_fini(&t);
}

/* However a text is cut, the walk comes to the same mask. */
static void test_cuts(void)
{
	static const char text[] =
		"{\"name\": \"x\\u00e9 \xE2\x82\xAC\", \"na\": 12, \"list\": [{\"name\": \"\"}], \"other\": [1, {}]}";
	struct made_vocab t = made_vocab(2000, 5);
	struct vocab *v = vocab_new(t.n, made_bytes, &t);
	struct grammar *g = made(schemas[4]);
	size_t n = strlen(text);
	uint64_t seed = 77;

	for (size_t cut = 1; cut < n; cut++) {
		struct matcher *a = matcher_new(g), *b = matcher_new(g);

		for (size_t i = 0; i < cut; i++)
			CHECK(matcher_put(a, text + i, 1), "byte %zu", i);
		for (size_t i = 0; i < cut;) {
			size_t k = 1 + made_dice(&seed, 9);

			k = k < cut - i ? k : cut - i;
			CHECK(matcher_put(b, text + i, k), "byte %zu", i);
			i += k;
		}
		CHECK(!memcmp(matcher_mask(a, v), matcher_mask(b, v), (size_t)(t.n + 31) / 32 * 4), "cut at %zu", cut);
		CHECK(!matcher_complete(a), "complete at %zu of %zu", cut, n);
		matcher_free(a);
		matcher_free(b);
	}
	grammar_unref(g);
	vocab_free(v);
	made_vocab_fini(&t);
}

/* ---- texts ---- */

static bool takes(const char *schema, const char *text)
{
	struct grammar *g = made_of(schema);
	struct matcher *m = matcher_new(g);
	bool yes = true;

	grammar_unref(g);
	for (; *text && yes; text++)
		yes = matcher_put(m, text, 1);
	yes = yes && matcher_complete(m);
	matcher_free(m);
	return yes;
}

static void test_texts(void)
{
	static const char many[] = "{\n                                         \"a\":1}";
	static const struct {
		const char *schema, *text;
		bool yes;
	} c[] = {
		{ "{}", "{\"a\": [1, 2.5e3, \"x\"]}", true },
		{ "{}", "\n1", false },
		{ "{}", " 1", false },
		{ "{}", "1 ", false },
		{ "{}", "[1 ,2]", false },
		{ "{}", "[1,  2]", false },
		{ "{}", "[ 1, 2 ]", true },
		{ "{}", "{\n  \"a\": 1,\n  \"b\": [\n    1\n  ]\n}", true },
		{ "{}", "{\"a\" :1}", false },
		{ "{}", "{\"a\":  1}", false },
		{ "{}", "{\"a\":\n1}", false },
		{ "{}", many, false },
		{ "{}", many + 1, false },
		{ "{}", "[\t1]", false },
		{ "{}", "01", false },
		{ "{}", "-", false },
		{ "{}", "1.", false },
		{ "{}", "1e999", false },
		{ "{}", "1e99", true },
		{ "{}", "\"\\ud83d\\ude00\"", true },
		{ "{}", "\"\\ud83d\"", false },
		{ "{}", "\"\\ude00\"", false },
		{ "{}", "\"\xC0\x80\"", false },
		{ "{}", "\"\xED\xA0\x80\"", false },
		{ "{}", "\"\xF0\x9F\x98\x80\"", true },
		{ "{}", "\"\n\"", false },
		{ "{}", "[1,]", false },
		{ "{}", "{,}", false },
		{ "{}", "nul", false },
		{ "{}", "[[[]]]", true },
		{ "{\"type\":\"integer\"}", "1.0", false },
		{ "{\"type\":\"integer\"}", "-0", true },
		{ "{\"type\":\"integer\"}", "123456789012345678", true },
		{ "{\"type\":\"integer\"}", "1234567890123456789", false },
		{ "{\"type\":\"string\",\"maxLength\":2}", "\"\\u0041\xE2\x82\xAC\"", true },
		{ "{\"type\":\"string\",\"maxLength\":2}", "\"\\ud83d\\ude00ab\"", false },
		{ "{\"type\":\"string\",\"pattern\":\"^\\\\d{4}(-x)?$\"}", "\"1234-x\"", true },
		{ "{\"type\":\"string\",\"pattern\":\"a|^b$\"}", "\"xxa\"", true },
		{ "{\"type\":\"string\",\"pattern\":\"a|^b$\"}", "\"b\"", true },
		{ "{\"type\":\"string\",\"pattern\":\"a|^b$\"}", "\"bc\"", false },
		{ "{\"type\":\"string\",\"pattern\":\"\\\"\"}", "\"\\\"\"", true },
		/* Members come in the schema's order. */
		{ "{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}}}", "{\"a\":1,\"b\":2,\"c\":3}", true },
		{ "{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}}}", "{\"b\":1,\"a\":2}", false },
		{ "{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}}}", "{\"c\":1,\"a\":2}", false },
		{ "{\"type\":\"object\",\"properties\":{\"a\":{}}}", "{\"a\":1,\"a\":2}", false },
		{ "{\"type\":\"object\",\"properties\":{\"a\":{}}}", "{\"\\u0061\":1}", false },
		{ "{\"not\":{\"const\":1}}", "1.0", false },
		{ "{\"not\":{\"const\":1}}", "1.5", true },
		{ "{\"not\":{\"const\":0}}", "-0", false },
		{ "{\"oneOf\":[{\"type\":\"number\"},{\"type\":\"integer\"}]}", "1e0", false },
		{ "{\"type\":\"string\",\"nullable\":true}", "null", true },
		{ "{\"type\":\"string\",\"format\":\"date\"}", "\"2000-02-29\"", true },
		{ "{\"type\":\"string\",\"format\":\"date\"}", "\"1900-02-29\"", false },
		{ "{\"type\":\"string\",\"format\":\"uuid\"}", "\"123e4567-e89b-12d3-a456-426614174000\"", true },
		{ "{\"type\":\"string\",\"format\":\"ipv6\"}", "\"::ffff:12\"", true },
		{ "{\"type\":\"string\",\"format\":\"duration\"}", "\"P1Y2M3DT4H5M6S\"", true },
		{ "{\"type\":\"string\",\"format\":\"password\"}", "\"anything\"", true },
		/* Rules: a line goes on in parentheses, behind | and with |; a loop is of its own alternative alone. */
		{ "gbnf # c\nroot ::= x-1\n  | (\"b\"\n  \"c\") # c\n\nx-1::=[a]", "bc", true },
		{ "gbnf root ::= (\"a\"* | \"b\")", "aab", false },
		{ "gbnf root ::= \"a\" root \"b\" | \"\"", "aaabbb", true },
		{ "gbnf root ::= \"a\" root \"b\" | \"\"", "aabbb", false },
		{ "gbnf root ::= [^\\u00e4-\\U0001F600\\]]{2}", "a\xC3\xA3", true },
		{ "gbnf root ::= [^\\u00e4-\\U0001F600\\]]", "\xC3\xA4", false },
		{ "gbnf root ::= [^\\u00e4-\\U0001F600\\]]", "]", false },
		{ "gbnf root ::= [a-]", "-", true },
		{ "gbnf root ::= .", "\n", true },
		{ "gbnf root ::= \"\\x41\\n\\\\\"", "A\n\\", true },
		{ "gbnf root ::= \"a\"{,2}", "aaa", false },
		{ "gbnf root ::= (\"a\" | root-b)*\nroot-b ::= \"b\" root \"c\"", "abacabbcc", true },
		{ "regex ^a|b$", "b", true },
		{ "regex a|b", "ab", false },
		{ "regex \"\\n\\u00e9", "\"\n\xC3\xA9", true },
		{ "regex .", "\n", false },
	};

	for (size_t i = 0; i < sizeof c / sizeof *c; i++)
		CHECK(takes(c[i].schema, c[i].text) == c[i].yes, "%s: %s", c[i].schema, c[i].text);
}

/* Line breaks before a value, where they are asked for. */
static void test_restart(void)
{
	struct grammar *g = made("{}");
	struct matcher *m = matcher_new(g);

	grammar_unref(g);
	CHECK(matcher_put(m, "1", 1) && !matcher_put(m, "\n", 1), "no break");
	matcher_restart(m, 2, true);
	CHECK(!matcher_complete(m) && matcher_put(m, "\n\n", 2) && !matcher_put(m, "\n", 1) && matcher_put(m, "2", 1),
	      "two breaks");
	CHECK(matcher_complete(m), "2 is a value");
	CHECK(matcher_put(m, "\n", 1) && matcher_whole(m) && !matcher_put(m, "\n", 1), "one break after it");
	matcher_back(m, 4);
	CHECK(matcher_complete(m) && matcher_put(m, "2", 1), "1 and then 12");
	matcher_free(m);
}

/* ---- refusals ---- */

/* Of rules: which, and where. */
static void test_rule_refusals(void)
{
	static const struct {
		const char *text;
		int code;
		const char *says;
	} c[] = {
		{ "", E_MISSING, "no rule \"root\"" },
		{ "a ::= \"x\"", E_MISSING, "no rule \"root\"" },
		{ "root ::= \"x\"\n  | no-such", E_MISSING, "line 2, column 5: there is no rule \"no-such\"" },
		{ "root ::= a\n\na ::= b\nb ::= a \"x\" | \"y\"", E_UNSUPPORTED, "it begins with itself" },
		{ "root ::= \"x\"? root \"y\" | \"z\"", E_UNSUPPORTED,
		  "rule \"root\", line 1, column 1: it begins with itself" },
		{ "root ::= \"a\" root", E_FORMAT, "no text fulfils it" },
		{ "root ::= []", E_FORMAT, "no text fulfils it" },
		{ "root ::= \"a", E_FORMAT, "line 1, column 12" },
		{ "root ::= [a", E_FORMAT, "rule \"root\"" },
		{ "root ::= \"\xC3\xA9\" ]", E_FORMAT, "column 14: nothing that is known" },
		{ "root ::= (\"a\"", E_FORMAT, "without )" },
		{ "root ::= \"a\")", E_FORMAT, "a ) too many" },
		{ "root ::= [b-a]", E_FORMAT, "out of order" },
		{ "root ::= \"a\"{2,1}", E_FORMAT, "out of order" },
		{ "root ::= \"a\"{1,99999}", E_LIMIT, "10000" },
		{ "root ::= \"\\q\"", E_FORMAT, "no escape" },
		{ "root ::= \"\\ud800\"", E_FORMAT, "no character" },
		{ "root ::= <think> \"a\"", E_UNSUPPORTED, "tokens" },
		{ "root ::= !<[12]>", E_UNSUPPORTED, "tokens" },
		{ "root ::= \"a\"\nroot ::= \"b\"", E_FORMAT, "line 2, column 1: the rule was given before" },
		{ "start: \"a\"", E_FORMAT, "GBNF" },
		{ "root ::= %regex", E_FORMAT, "GBNF" },
	};
	struct grammar *g;
	struct err err;
	struct buf s;

	for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
		int rc = grammar_compile_gbnf(c[i].text, strlen(c[i].text), &g, &err);

		CHECK(rc == c[i].code && !g && strstr(err.msg, c[i].says), "%s: %d: %s", c[i].text, rc,
		      rc ? err.msg : "taken");
	}
	/* Made to take memory or time: an answer soon, whichever. */
	static const char *const hostile[] = { "((\"a\"{10000}){10000})", "[ab]* \"a\" [ab]{25}",
		                               "(root \"x\" | \"y\")",    "((((\"a\"?)*)*)*)*{50}{50}{50}",
		                               "(\"b\" root){9999}",      "(. \"b\"?){5000}" };
	buf_init(&s);
	for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
		buf_reset(&s);
		buf_printf(&s, "root ::= \"z\" | \"a\" %s", hostile[i]);
		int rc = grammar_compile_gbnf(s.p, s.n, &g, &err);

		CHECK(!rc || rc == E_LIMIT || rc == E_FORMAT, "%s: %s", hostile[i], err.msg);
		grammar_unref(g);
	}
	/* Each rule twice the next: as words, and as rules that hold themselves. */
	for (int words = 0; words < 2; words++) {
		buf_reset(&s);
		buf_puts(&s, words ? "root ::= r0\n" : "root ::= \"(\" root \")\" | r0\n");
		for (int i = 0; i < 60; i++)
			buf_printf(&s, "r%d ::= r%d r%d | r%d\n", i, i + 1, i + 1, i + 1);
		buf_puts(&s, words ? "r60 ::= \"x\"?\n" : "r60 ::= \"[\" root \"]\" | \"\"\n");
		CHECK(grammar_compile_gbnf(s.p, s.n, &g, &err) == E_LIMIT, "2 to the 60: %s", err.msg);
	}
	/* Deep, and many. */
	for (int deep = 0; deep < 2; deep++) {
		buf_reset(&s);
		for (int i = 0; i < 1900; i++)
			buf_printf(&s, deep ? "r%d ::= r%d \"x\" root? | \"y\"\n" : "r%d ::= \"x\" | r%d root\n", i,
			           i + 1);
		buf_puts(&s, "r1900 ::= \"z\"\nroot ::= \"a\" | \"b\" r0\n");
		int rc = grammar_compile_gbnf(s.p, s.n, &g, &err);

		CHECK(rc == E_LIMIT, "%d: %s", rc, rc ? err.msg : "taken");
	}
	buf_reset(&s);
	buf_puts(&s, "root ::= ");
	for (int i = 0; i < 300; i++)
		buf_putc(&s, '(');
	CHECK(grammar_compile_gbnf(s.p, s.n, &g, &err) == E_LIMIT, "300 groups: %s", err.msg);
	buf_fini(&s);
	CHECK(grammar_compile_regex("a^b", 3, &g, &err) == E_UNSUPPORTED &&
	              grammar_compile_regex("(a", 2, &g, &err) == E_FORMAT &&
	              grammar_compile_regex("[]", 2, &g, &err) == E_FORMAT,
	      "%s", err.msg);
}

static void test_refusals(void)
{
	static const struct {
		const char *schema;
		int code;
		const char *says;
	} c[] = {
		{ "3", E_FORMAT, "an object or a boolean" },
		{ "{\"properties\":{\"x/y\":{\"uniqueItems\":true}}}", E_UNSUPPORTED, "/properties/x~1y/uniqueItems" },
		{ "{\"items\":{\"contains\":{}}}", E_UNSUPPORTED, "/items/contains" },
		{ "{\"if\":{},\"then\":false}", E_UNSUPPORTED, "\"if\"" },
		{ "{\"dependentRequired\":{\"a\":[\"b\"]}}", E_UNSUPPORTED, "dependentRequired" },
		{ "{\"unevaluatedProperties\":false}", E_UNSUPPORTED, "unevaluatedProperties" },
		{ "{\"not\":{\"required\":[\"a\"]}}", E_UNSUPPORTED, "/not" },
		{ "{\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}", E_UNSUPPORTED, "/oneOf" },
		{ "{\"$ref\":\"http://x/y\"}", E_UNSUPPORTED, "http://x/y" },
		{ "{\"$ref\":\"#/nowhere\"}", E_MISSING, "#/nowhere" },
		{ "{\"type\":\"strin\"}", E_FORMAT, "strin" },
		{ "{\"type\":\"string\",\"format\":\"regex\"}", E_UNSUPPORTED, "regex" },
		{ "{\"type\":\"string\",\"pattern\":\"(?=a)\"}", E_UNSUPPORTED, "/pattern" },
		{ "{\"type\":\"string\",\"pattern\":\"(a\"}", E_FORMAT, "/pattern" },
		{ "{\"type\":\"string\",\"pattern\":\"\\\\bx\"}", E_UNSUPPORTED, "\\b" },
		{ "{\"type\":\"string\",\"pattern\":\"\\\\Ax\"}", E_UNSUPPORTED, "\\A" },
		{ "{\"type\":\"string\",\"pattern\":\"x\\\\Z\"}", E_UNSUPPORTED, "\\Z" },
		{ "{\"type\":\"string\",\"pattern\":\"[\\\\h]\"}", E_UNSUPPORTED, "\\h" },
		{ "{\"type\":\"string\",\"pattern\":\"[[:digit:]]\"}", E_UNSUPPORTED, "[:alpha:]" },
		{ "{\"type\":\"object\",\"minProperties\":2,\"additionalProperties\":{\"type\":\"null\"}}",
		  E_UNSUPPORTED, "minProperties" },
		{ "{\"type\":\"object\",\"minProperties\":2,\"patternProperties\":{\"^x\":{}},\"additionalProperties\":false}",
		  E_UNSUPPORTED, "minProperties" },
		{ "{\"type\":\"object\",\"minProperties\":2,\"properties\":{\"a\":{}},\"additionalProperties\":false}",
		  E_FORMAT, "no value" },
		{ "{\"type\":\"string\",\"minLength\":-1}", E_FORMAT, "/minLength" },
		{ "false", E_FORMAT, "no value" },
		{ "{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", E_FORMAT, "no value" },
		{ "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", E_FORMAT,
		  "no value" },
		{ "{\"$ref\":\"#\"}", E_FORMAT, "refers to itself" },
		{ "{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", E_FORMAT, "refers to itself" },
		{ "{\"anyOf\":[]}", E_FORMAT, "empty" },
	};

	for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
		struct grammar *g;
		struct err err;
		int rc = compile(c[i].schema, &g, &err);

		CHECK(rc == c[i].code && !g && strstr(err.msg, c[i].says), "%s: %d: %s", c[i].schema, rc,
		      rc ? err.msg : "taken");
	}
}

/* Schemas made to take memory or time: an answer soon, whichever. */
static void test_hostile(void)
{
	struct buf s;
	struct grammar *g;
	struct err err;

	buf_init(&s);
	/* Each definition needs two of the next, combined. */
	buf_puts(&s, "{\"$ref\":\"#/$defs/0\",\"$defs\":{");
	for (int i = 0; i < 30; i++)
		buf_printf(
			&s,
			"\"%d\":{\"allOf\":[{\"properties\":{\"a\":{\"$ref\":\"#/$defs/%d\"}}},{\"properties\":{\"a\":{\"$ref\":"
			"\"#/$defs/%d\"},\"b%d\":{\"$ref\":\"#/$defs/%d\"}}}]},",
			i, i + 1, (i + 7) % 30, i, (i * 11) % 30);
	buf_puts(&s, "\"30\":{}}}");
	compile(s.p, &g, &err);
	grammar_unref(g);
	/* A hundred alternatives, squared. */
	buf_reset(&s);
	buf_puts(&s, "{\"allOf\":[");
	for (int k = 0; k < 2; k++) {
		buf_puts(&s, k ? ",{\"anyOf\":[" : "{\"anyOf\":[");
		for (int i = 0; i < 100; i++)
			buf_printf(&s, "%s{\"type\":\"object\",\"properties\":{\"k%d\":{\"type\":\"integer\"}}}",
			           i ? "," : "", i + 50 * k);
		buf_puts(&s, "]}");
	}
	buf_puts(&s, "]}");
	CHECK(compile(s.p, &g, &err) == E_LIMIT, "100 times 100 alternatives");
	/* Expressions whose automata explode. */
	static const char *const re[] = { "(a|b)*a(a|b){25}",      "((a{1,50}){1,50}){1,50}",
		                          "^(.{0,9999}){0,9999}$", "(((((((((a*)*)*)*)*)*)*)*)*)*",
		                          "[^a]{1,10000}b",        "(x+x+)+y" };
	for (size_t i = 0; i < sizeof re / sizeof *re; i++) {
		buf_reset(&s);
		buf_printf(&s, "{\"type\":\"string\",\"pattern\":\"%s\"}", re[i]);
		int rc = compile(s.p, &g, &err);

		CHECK(!rc || rc == E_LIMIT, "%s: %s", re[i], err.msg);
		grammar_unref(g);
	}
	CHECK(compile("{\"type\":\"string\",\"pattern\":\"^[ab]\",\"maxLength\":1000000}", &g, &err) == E_LIMIT,
	      "a counted pattern");
	/* Large counts of plain things cost nothing. */
	grammar_unref(made("{\"type\":\"string\",\"minLength\":1000000000,\"maxLength\":2000000000}"));
	grammar_unref(made("{\"type\":\"array\",\"minItems\":1000000000}"));
	/* So do counts beyond every string of a finite set. */
	CHECK(takes("{\"maxLength\":1000000000,\"enum\":[\"q\",7]}", "\"q\""), "a bound above an enum");
	CHECK(takes("{\"maxLength\":70000,\"enum\":[\"q\",7]}", "7"), "a number beside it");
	CHECK(takes("{\"minLength\":2,\"maxLength\":100000,\"enum\":[\"q\",\"\u00e9\u00e9\"]}", "\"\u00e9\u00e9\""),
	      "both bounds");
	CHECK(!takes("{\"minLength\":2,\"maxLength\":100000,\"enum\":[\"q\",\"\u00e9\u00e9\"]}", "\"q\""), "too short");
	CHECK(takes("{\"type\":\"string\",\"pattern\":\"^a{1,4}$\",\"maxLength\":100000}", "\"aaaa\""),
	      "a finite pattern");
	CHECK(!takes("{\"type\":\"string\",\"pattern\":\"^a{1,4}$\",\"maxLength\":100000}", "\"aaaaa\""), "beyond it");
	CHECK(compile("{\"minLength\":100000,\"enum\":[\"q\"]}", &g, &err) == E_FORMAT, "longer than all");
	/* Deep: the parser's own bound of nesting is above ours. */
	for (int depth = 90; depth < 900; depth += 300) {
		buf_reset(&s);
		for (int i = 0; i < depth; i++)
			buf_puts(&s, "{\"anyOf\":[");
		buf_puts(&s, "{}");
		for (int i = 0; i < depth; i++)
			buf_puts(&s, "]}");
		CHECK(!compile(s.p, &g, &err) == (depth < 100), "anyOf %d deep: %s", depth, err.msg);
		grammar_unref(g);
	}
	/* Many properties, each the start of the next. */
	buf_reset(&s);
	buf_puts(&s, "{\"type\":\"object\",\"properties\":{");
	for (int i = 0; i < 1500; i++)
		buf_printf(&s, "%s\"%0*d\":{}", i ? "," : "", 1 + i % 60, i);
	buf_puts(&s, "}}");
	if (compile(s.p, &g, &err))
		CHECK(err.code == E_LIMIT, "1500 properties: %s", err.msg);
	grammar_unref(g);
	buf_fini(&s);
}

/* ---- costs ---- */

/* Of this thread alone, whoever else runs. */
static int64_t spent_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static double us(int64_t from)
{
	return (double)(spent_ns() - from) / 1e3;
}

static int first_choice(void *arg, const char *text, size_t n_text, const uint8_t *may, int n)
{
	return may[0];
}

static void bench_text(const char *name, const char *schema, const char *text, const struct vocab *v,
                       const struct made_vocab *t)
{
	int64_t begin = spent_ns();
	struct grammar *g = made_of(schema);
	double compiled = us(begin), all = 0, most = 0, took = 0, looked = 0;
	struct matcher *m = matcher_new(g);
	size_t n = strlen(text), at = 0, seen = 0;
	char ahead[96];
	int steps = 0;

	while (at < n) {
		int best = -1;

		begin = spent_ns();
		const uint32_t *mask = matcher_mask(m, v);
		double one = us(begin);

		all += one;
		most = one > most ? one : most;
		if (getenv("GRAMMAR_TIMES") && one > 1000)
			printf("%8.0f us before %.30s\n", one, text + at);
		/* The longest token that the text goes on with. */
		for (int i = 0; i < t->n; i++)
			if (t->len[i] && t->len[i] <= n - at && (best < 0 || t->len[i] > t->len[best]) &&
			    mask[i / 32] >> (i % 32) & 1 && !memcmp(t->p[i], text + at, t->len[i]))
				best = i;
		CHECK(best >= 0, "no token for %.20s", text + at);
		begin = spent_ns();
		CHECK(matcher_put(m, t->p[best], t->len[best]), "%.20s", text + at);
		took += us(begin);
		begin = spent_ns();
		seen += matcher_ahead(m, ahead, sizeof ahead, first_choice, NULL);
		looked += us(begin);
		at += t->len[best];
		steps++;
	}
	printf("%-28s compile %7.0f us; %3d steps, mask %6.1f us on average, %7.0f us at most; accept %.2f us; ahead %.2f us, "
	       "%.1f bytes\n",
	       name, compiled, steps, all / steps, most, took / steps, looked / steps, (double)seen / steps);
	matcher_free(m);
	grammar_unref(g);
}

static void bench(void)
{
	enum { TOKENS = 248000 };
	struct made_vocab t = made_vocab(TOKENS, 1);
	int64_t begin = spent_ns();
	struct vocab *v = vocab_new(t.n, made_bytes, &t);
	struct buf tool;

	printf("%d tokens, made up; the trie and any string's masks take %.0f ms once\n", TOKENS, us(begin) / 1e3);
	bench_text("any object", schemas[1],
	           "{\"title\": \"A walk in the park, and more of the same\", \"tags\": [\"one\", \"two\"], "
	           "\"nested\": {\"depth\": 12, \"ok\": true}, \"text\": \""
	           "words words words words words words words\"}",
	           v, &t);
	bench_text("a person, recursive", schemas[4],
	           "{\"name\": \"Ada Lovelace of somewhere\", \"na\": 12, \"list\": [{\"name\": \"b\"}, "
	           "{\"name\": \"another one\"}]}",
	           v, &t);
	bench_text("discriminated anyOf", schemas[6], "{\"kind\": \"int\", \"v\": \"some text of it\"}", v, &t);
	bench_text("counted strings", schemas[3], "[\"thirty nine characters are in this one\", \"and few here\"]", v,
	           &t);
	bench_text("date and time", schemas[8], "\"2026-11-21T12:30:00Z\"", v, &t);
	buf_init(&tool);
	buf_puts(&tool, "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{");
	for (int i = 0; i < 40; i++)
		buf_printf(&tool, "%s\"field_%02d\":{\"type\":[\"string\",\"null\"],\"description\":\"x\"}",
		           i ? "," : "", i);
	buf_puts(&tool, "}}");
	bench_text("40 optional properties", tool.p,
	           "{\"field_03\": \"some words here\", \"field_07\": null, \"field_39\": \"x\"}", v, &t);
	buf_fini(&tool);
	bench_text(
		"calls, tagged", "calls tagged",
		"<function=write>\n<parameter=path>\nsrc/some/file.c\n</parameter>\n<parameter=text>\n"
		"static int twice(int x)\n{\n\treturn 2 * x; /* <b> */\n}\n</parameter>\n<parameter=mode>\nnew\n</parameter>\n</function>",
		v, &t);
	bench_text(
		"calls, tagged, again", "calls tagged",
		"<function=write>\n<parameter=path>\nsrc/some/file.c\n</parameter>\n<parameter=text>\n"
		"static int twice(int x)\n{\n\treturn 2 * x; /* <b> */\n}\n</parameter>\n<parameter=mode>\nnew\n</parameter>\n</function>",
		v, &t);
	bench_text("calls, JSON", "calls json",
	           "{\"name\": \"write\", \"arguments\": {\"path\": \"src/some/file.c\", \"text\": \"static int "
	           "twice(int x)\\n\", \"line\": 12}}",
	           v, &t);
	bench_text("rules: JSON", schemas[13],
	           "{\"title\": \"A walk in the park, and more of the same\", \"tags\": [\"one\", \"two\"], "
	           "\"nested\": {\"depth\": 12, \"ok\": true}, \"text\": \""
	           "words words words words words words words\"}",
	           v, &t);
	bench_text("rules: sums", schemas[14], "abc+(12+some+(words+here))+-x", v, &t);
	bench_text("an expression", schemas[16], "foobarbaz 1234 and some words of free text after it", v, &t);
	vocab_free(v);
	made_vocab_fini(&t);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "--bench")) {
		bench();
		return 0;
	}
	test_texts();
	test_restart();
	test_refusals();
	test_rule_refusals();
	test_cuts();
	for (int i = 0; i < (getenv("WEFT_TEST_QUICK") ? 2 : 8); i++)
		test_masks((uint64_t)i * 7919 + 3, i % 2 ? 20000 : 600);
	test_hostile();
	return 0;
}
