/* Unit and property tests of the tokenizer, the detokeniser and the stop strings. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/allowance.h"
#include "base/rng.h"
#include "text/tokens/detok.h"
#include "text/tokens/nfc.h"
#include "text/tokens/pretok.h"
#include "text/tokens/recent.h"
#include "text/tokens/stops.h"
#include "text/tokens/tokenizer.h"
#include "toy_tokenizer.h"

#define SPECIALS                                                                       \
	"{\"id\":300,\"content\":\"<|end|>\",\"special\":true,\"normalized\":false},"  \
	"{\"id\":301,\"content\":\"<|end|>!\",\"special\":true,\"normalized\":false}," \
	"{\"id\":302,\"content\":\"<think>\",\"special\":false,\"normalized\":false}"

static uint64_t draws;

static uint32_t draw(uint32_t n)
{
	return (uint32_t)(rng_bits(1, draws++, 7) % n);
}

static int open_toy(struct tokenizer **t, const struct toy *toy, struct err *err)
{
	struct buf b;
	int e;

	buf_init(&b);
	toy_write(&b, toy);
	e = tokenizer_open(t, b.p, b.n, err);
	buf_fini(&b);
	return e;
}

static struct tokenizer *toy(struct toy parts)
{
	struct tokenizer *t;
	struct err err;

	if (open_toy(&t, &parts, &err))
		fail_msg("%s", err.msg);
	return t;
}

/* Checks the ids of text, given as "1 2 3". */
static void expect_ranges(const struct tokenizer *t, const char *text, unsigned flags, const struct text_range *user,
                          size_t n_user, const char *want)
{
	struct tokens v;
	struct buf b;
	struct err err;

	tokens_init(&v);
	buf_init(&b);
	if (tokenizer_encode_ranges(t, text, strlen(text), flags, user, n_user, &v, &err))
		fail_msg("%s", err.msg);
	for (size_t i = 0; i < v.n; i++)
		buf_printf(&b, "%s%d", i ? " " : "", v.id[i]);
	assert_string_equal(b.p, want);
	tokens_fini(&v);
	buf_fini(&b);
}

static void expect(const struct tokenizer *t, const char *text, unsigned flags, const char *want)
{
	expect_ranges(t, text, flags, NULL, 0, want);
}

static void test_merging(void **state)
{
	static const char *const merges[] = {
		"\"h e\",\"l l\",\"he ll\",\"hell o\",\"Ġ w\"",
		"[\"h\",\"e\"],[\"l\",\"l\"],[\"he\",\"ll\"],[\"hell\",\"o\"],[\"Ġ\",\"w\"]",
	};

	for (int i = 0; i < 2; i++) {
		struct tokenizer *t = toy((struct toy){ .merges = merges[i] });

		expect(t, "hello", 0, "259");
		expect(t, "hello world", 0, "259 260 111 114 108 100");
		expect(t, "hell helo", 0, "258 32 256 108 111");
		expect(t, "llll", 0, "257 257");
		expect(t, "lll", 0, "257 108"); /* the leftmost pair first */
		expect(t, "", 0, "");
		tokenizer_close(t);
	}
	/* Rank decides, not length: "b c" before "a b". */
	struct tokenizer *t = toy(
		(struct toy){ .vocab = ",\"ab\":256,\"bc\":257,\"abc\":258", .merges = "\"b c\",\"a b\"" });

	expect(t, "abc", 0, "97 257");
	tokenizer_close(t);
	t = toy((struct toy){ .vocab = ",\"ab\":256,\"bc\":257,\"abc\":258",
	                      .merges = "\"b c\",\"a b\"",
	                      .model = "\"ignore_merges\":true," });
	expect(t, "abc", 0, "258");
	expect(t, "abcb", 0, "97 257 98");
	tokenizer_close(t);
}

static void test_added(void **state)
{
	struct tokenizer *t = toy((struct toy){ .added = SPECIALS });

	expect(t, "a<|end|>b", TOKENIZE_SPECIAL, "97 300 98");
	expect(t, "<|end|>!<|end|>", TOKENIZE_SPECIAL, "301 300"); /* the longest */
	expect(t, "<|end|><|end", TOKENIZE_SPECIAL, "300 60 124 101 110 100");
	expect(t, "<<|end|>", TOKENIZE_SPECIAL, "60 300");
	expect(t, "<think><|end|>", 0, "302 60 124 101 110 100 124 62");
	assert_int_equal(tokenizer_size(t), 303);
	assert_true(tokenizer_is_special(t, 300));
	assert_false(tokenizer_is_special(t, 302));
	assert_false(tokenizer_is_special(t, 97));
	assert_false(tokenizer_is_special(t, -1));
	assert_false(tokenizer_is_special(t, 303));
	assert_int_equal(tokenizer_find(t, "<|end|>", 7), 300);
	assert_int_equal(tokenizer_find(t, " w", 2), 260);
	assert_int_equal(tokenizer_find(t, "Ġw", 3), -1);
	assert_int_equal(tokenizer_find(t, "nothing", 7), -1);

	size_t n;

	assert_null(tokenizer_token_bytes(t, 261, &n)); /* a hole */
	assert_null(tokenizer_token_bytes(t, 303, &n));
	assert_null(tokenizer_token_bytes(t, -1, &n));
	assert_memory_equal(tokenizer_token_bytes(t, 260, &n), " w", 2);
	assert_int_equal(n, 2);
	tokenizer_close(t);
}

static void test_added_flags(void **state)
{
	struct tokenizer *t = toy((struct toy){
		.added = "{\"id\":300,\"content\":\"<m>\",\"special\":true,\"lstrip\":true,\"rstrip\":true},"
			 "{\"id\":301,\"content\":\"ab\",\"single_word\":true}" });

	expect(t, "x \t<m>\n y", TOKENIZE_SPECIAL, "120 300 121");
	expect(t, "  <m>", TOKENIZE_SPECIAL, "300");
	expect(t, "<m> <m>", TOKENIZE_SPECIAL, "300 300");
	expect(t, "x\u3000<m>", TOKENIZE_SPECIAL, "120 300");
	expect(t, "ab ab, ab", TOKENIZE_SPECIAL, "301 32 301 44 32 301");
	expect(t, "abab aab abé", TOKENIZE_SPECIAL, "97 98 97 98 32 97 97 98 32 97 98 195 169");
	tokenizer_close(t);
	/* A normalised token is found in normalised text, also when the file spells it otherwise. */
	t = toy((struct toy){
		.normalizer = "{\"type\":\"NFC\"}",
		.added = "{\"id\":300,\"content\":\"<e\u0301>\",\"special\":true,\"normalized\":true},"
			 "{\"id\":301,\"content\":\"<o\u0301>\",\"special\":true,\"normalized\":false}" });
	expect(t, "e\u0301<e\u0301>", TOKENIZE_SPECIAL, "195 169 300");
	expect(t, "<\u00e9>", TOKENIZE_SPECIAL, "300");
	expect(t, "<\u00f3><o\u0301>", TOKENIZE_SPECIAL, "60 195 179 62 301");
	tokenizer_close(t);
}

static void test_ranges(void **state)
{
	struct tokenizer *t = toy((struct toy){ .added = SPECIALS });
	const char *text = "<|end|><|end|>";

	/* Each range of each length against the two tokens at [0, 7) and [7, 14). */
	for (size_t a = 0; a <= 14; a++) {
		for (size_t b = a; b <= 14; b++) {
			struct text_range r = { a, b };
			struct tokens v;
			int want = 2, got = 0;

			if (a < b)
				want = (a >= 7 || b <= 0) + (b <= 7 || a >= 14);
			tokens_init(&v);
			assert_int_equal(tokenizer_encode_ranges(t, text, 14, TOKENIZE_SPECIAL, &r, 1, &v, NULL), 0);
			for (size_t i = 0; i < v.n; i++)
				got += v.id[i] == 300;
			assert_int_equal(got, want);
			tokens_fini(&v);
		}
	}
	/* What one side begins the other cannot end; a token that is not special may stand. */
	expect_ranges(t, "<|end|><think>", TOKENIZE_SPECIAL, &(struct text_range){ 5, 14 }, 1,
	              "60 124 101 110 100 124 62 302");
	/* The longer token touches the range, the shorter does not. */
	expect_ranges(t, "<|end|>!", TOKENIZE_SPECIAL, &(struct text_range){ 7, 8 }, 1, "300 33");
	struct text_range many[] = { { 0, 0 }, { 3, 3 }, { 7, 7 }, { 9, 10 } };

	expect_ranges(t, text, TOKENIZE_SPECIAL, many, 4, "300 60 124 101 110 100 124 62");
	struct text_range wrong[] = { { 4, 5 }, { 3, 4 } };
	struct tokens v;
	struct err err;

	tokens_init(&v);
	assert_int_equal(tokenizer_encode_ranges(t, text, 14, 0, wrong, 2, &v, &err), E_ARG);
	wrong[0].end = 15;
	assert_int_equal(tokenizer_encode_ranges(t, text, 14, 0, wrong, 1, &v, &err), E_ARG);
	tokens_fini(&v);
	tokenizer_close(t);

	/* Ranges are of the text as given, matches of the normalised one. */
	t = toy((struct toy){ .normalizer = "{\"type\":\"NFC\"}",
	                      .added = "{\"id\":300,\"content\":\"<m>\",\"special\":true,\"normalized\":true}" });
	const char *marks = "e\u0301e\u0301e\u0301<m>e\u0301<m>"; /* tokens at [9, 12) and [15, 18) */

	expect_ranges(t, marks, TOKENIZE_SPECIAL, &(struct text_range){ 0, 9 }, 1,
	              "195 169 195 169 195 169 300 195 169 300");
	expect_ranges(t, marks, TOKENIZE_SPECIAL, &(struct text_range){ 11, 15 }, 1,
	              "195 169 195 169 195 169 60 109 62 195 169 300");
	expect_ranges(t, marks, TOKENIZE_SPECIAL, &(struct text_range){ 12, 16 }, 1,
	              "195 169 195 169 195 169 300 195 169 60 109 62");
	tokenizer_close(t);
}

static void test_around(void **state)
{
	struct tokenizer *t = toy((struct toy){
		.added = SPECIALS,
		.post = "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},{\"type\":\"TemplateProcessing\",\"single\":["
			"{\"SpecialToken\":{\"id\":\"<|end|>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
			"{\"SpecialToken\":{\"id\":\"<|end|>!\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":{"
			"\"<|end|>\":{\"id\":\"<|end|>\",\"ids\":[300],\"tokens\":[\"<|end|>\"]},"
			"\"<|end|>!\":{\"id\":\"<|end|>!\",\"ids\":[301],\"tokens\":[\"<|end|>!\"]}}}]}" });
	size_t n;

	expect(t, "a", TOKENIZE_AROUND, "300 97 301");
	expect(t, "a", 0, "97");
	assert_int_equal(*tokenizer_prefix(t, &n), 300);
	assert_int_equal(n, 1);
	assert_int_equal(*tokenizer_suffix(t, &n), 301);
	tokenizer_close(t);
}

static void test_bad_text(void **state)
{
	struct tokenizer *t = toy((struct toy){ 0 });
	struct tokens v;
	struct err err;

	tokens_init(&v);
	tokens_put(&v, 5);
	assert_int_equal(tokenizer_encode(t, "ab\xFFz", 4, 0, &v, &err), E_ARG);
	assert_non_null(strstr(err.msg, "byte 2"));
	assert_non_null(strstr(err.msg, "0xFF"));
	assert_int_equal(tokenizer_encode(t, "a\xE2\x82", 3, 0, &v, &err), E_ARG);
	assert_int_equal(v.n, 1);
	tokens_fini(&v);
	tokenizer_close(t);
}

/* Pieces as bytes in brackets. */
static void put_piece(void *ctx, const char *p, size_t n)
{
	buf_printf(ctx, "[%.*s]", (int)n, p);
}

static void expect_pieces(const char *pre, const char *text, const char *want)
{
	struct err err = { 0 };
	struct json *j = json_parse(pre, strlen(pre), 0, &err);
	struct pretok_run *r;
	struct pretok *p;
	struct buf b;

	if (pretok_open(&p, j, &err))
		fail_msg("%s", err.msg);
	json_free(j);
	r = pretok_run_new(p, strlen(text));
	buf_init(&b);
	assert_int_equal(pretok_split(r, text, strlen(text), true, put_piece, &b, &err), 0);
	assert_string_equal(b.p, want);
	buf_fini(&b);
	pretok_run_free(r);
	pretok_close(p);
}

#define SPLIT_AS(pattern, behavior, invert)                                                  \
	"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":" pattern \
	",\"behavior\":\"" behavior "\",\"invert\":" invert                                  \
	"},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}"

static void test_pieces(void **state)
{
	const char *dash = "the-final--countdown", *text = "-the-final--countdown-";

	expect_pieces(SPLIT_AS("{\"String\":\"-\"}", "Removed", "false"), dash, "[the][final][countdown]");
	expect_pieces(SPLIT_AS("{\"String\":\"-\"}", "Isolated", "false"), dash, "[the][-][final][-][-][countdown]");
	expect_pieces(SPLIT_AS("{\"String\":\"-\"}", "MergedWithPrevious", "false"), dash,
	              "[the-][final-][-][countdown]");
	expect_pieces(SPLIT_AS("{\"String\":\"-\"}", "MergedWithNext", "false"), dash, "[the][-final][-][-countdown]");
	expect_pieces(SPLIT_AS("{\"String\":\"-\"}", "Contiguous", "false"), dash, "[the][-][final][--][countdown]");
	expect_pieces(SPLIT_AS("{\"String\":\"-\"}", "MergedWithPrevious", "false"), text,
	              "[-][the-][final-][-][countdown-]");
	expect_pieces(SPLIT_AS("{\"String\":\"-\"}", "MergedWithNext", "false"), text,
	              "[-the][-final][-][-countdown][-]");
	expect_pieces(SPLIT_AS("{\"Regex\":\"[a-z]+\"}", "Removed", "true"), dash, "[the][final][countdown]");
	expect_pieces(SPLIT_AS("{\"Regex\":\"\\\\s+$\"}", "Isolated", "false"), "a \nb  ", "[a][ ][\nb][  ]");
	expect_pieces("{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":true}", "it's 12 é!",
	              "[ it]['s][ 12][ é][!]");
	expect_pieces("{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":true},"
	              "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}]}",
	              "a 12b", "[a][ ][1][2][b]");
	/* U+180E is no white space, U+0085 is; the long s is an s. */
	expect_pieces(SPLIT_AS("{\"Regex\":\"\\\\s+|(?i:'s)\"}", "Isolated", "false"), "a\u180eb\xC2\x85\u3000c'ſ'S",
	              "[a\u180eb][\xC2\x85\u3000][c]['ſ]['S]");
}

static void test_refused(void **state)
{
	static const struct {
		struct toy toy;
		const char *says;
	} c[] = {
		{ { .model = "\"dropout\":0.1," }, "dropout" },
		{ { .model = "\"continuing_subword_prefix\":\"##\"," }, "continuing_subword_prefix" },
		{ { .model = "\"end_of_word_suffix\":\"</w>\"," }, "end_of_word_suffix" },
		{ { .normalizer = "{\"type\":\"Nmt\"}" }, "Nmt" },
		{ { .normalizer = "{\"type\":\"Prepend\"}" }, "text of at most" },
		{ { .normalizer = "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAE\"}" }, "in 2" },
		{ { .normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Nmt\"}]}" },
		  "Nmt" },
		{ { .normalizer = "[]" }, "normalizer" },
		{ { .pre = "null" }, "pre_tokenizer" },
		{ { .pre = "{\"type\":\"Metaspace\"}" }, "ByteLevel is not in the pre_tokenizer" },
		{ { .pre = "{\"type\":\"Metaspace\",\"prepend_scheme\":\"last\"}" }, "last" },
		{ { .pre = "{\"type\":\"Digits\"}" }, "ByteLevel" },
		{ { .pre = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},{\"type\":\"Digits\"}]}" },
		  "after ByteLevel" },
		{ { .pre = SPLIT_AS("{\"Regex\":\"a\"}", "Sideways", "false") }, "Sideways" },
		{ { .pre = SPLIT_AS("{\"Glob\":\"a\"}", "Isolated", "false") }, "pattern" },
		{ { .pre = SPLIT_AS("{\"String\":\"\"}", "Isolated", "false") }, "pattern" },
		{ { .pre = TOY_SPLIT("a*") }, "nothing at all" },
		{ { .pre = TOY_SPLIT("(a") }, "regex" },
		{ { .pre = TOY_SPLIT("[a") }, "without end" },
		{ { .pre = TOY_SPLIT("[a[b]]") }, "set in a set" },
		{ { .pre = TOY_SPLIT("[a&&b]") }, "&&" },
		{ { .pre = TOY_SPLIT("\\\\p{N}{1,3}+") }, "}+" },
		{ { .pre = TOY_SPLIT("a\\\\Kb") }, "\\K" },
		{ { .pre = TOY_SPLIT("\\\\h") }, "\\h" },
		{ { .pre = TOY_SPLIT("(a)\\\\1") }, "\\1" },
		{ { .pre = TOY_SPLIT("(?R)a") }, "(?" },
		{ { .pre = TOY_SPLIT("(*ANY)a") }, "(*" },
		{ { .pre = TOY_SPLIT("\\\\p{Nothing}") }, "regex" },
		{ { .post = "{\"type\":\"BertProcessing\"}" }, "cls" },
		{ { .model = "\"type\":\"Words\"," }, "Words" },
		{ { .post = "{\"type\":\"TemplateProcessing\",\"single\":[]}" }, "Sequence" },
		{ { .post = "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}},{\"Sequence\":{}}],"
		            "\"special_tokens\":{\"x\":{\"ids\":[999]}}}" },
		  "not a token" },
		{ { .decoder = "null" }, "decoder" },
		{ { .decoder = "{\"type\":\"WordPiece\"}" }, "in the pre_tokenizer and not in the decoder" },
		{ { .decoder = "{\"type\":\"CTC\"}" }, "CTC" },
		{ { .vocab = ",\"zz\":97" }, "two tokens" },
		{ { .vocab = ",\"zz\":-1" }, "outside" },
		{ { .vocab = ",\"zz\":1048576" }, "outside" },
		{ { .vocab = ",\"zz\":\"5\"" }, "integer" },
		{ { .merges = "\"q x\"" }, "result" },
		{ { .merges = "\"hee l\"" }, "left half" },
		{ { .merges = "\"h\"" }, "no space" },
		{ { .merges = "[\"h\"]" }, "merges[0]" },
		{ { .merges = "[\"h\", 3]" }, "merges[0]" },
		{ { .merges = "\"h e\", 3" }, "merges[1]" },
		{ { .merges = "\" e\"" }, "left half" },
		{ { .merges = "\"h  e\"" }, "alphabet" },
		{ { .added = "{\"id\":97,\"content\":\"b\"}" }, "another token" },
		{ { .added = "{\"id\":300,\"content\":\"xx\"},{\"id\":300,\"content\":\"yy\"}" }, "another token" },
		{ { .added = "{\"id\":300,\"content\":\"xx\"},{\"id\":301,\"content\":\"xx\"}" }, "twice" },
		{ { .added = "{\"id\":2000000,\"content\":\"xx\"}" }, "outside" },
		{ { .added = "{\"id\":-2,\"content\":\"xx\"}" }, "outside" },
		{ { .added = "{\"id\":300}" }, "content" },
		{ { .added = "{\"id\":300,\"content\":\"xx\",\"special\":1}" }, "special" },
		{ { .added = "7" }, "added_tokens[0]" },
	};

	for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
		struct tokenizer *t = NULL;
		struct err err = { 0 };

		if (!open_toy(&t, &c[i].toy, &err) || !strstr(err.msg, c[i].says) || t)
			fail_msg("case %zu: \"%s\" does not say \"%s\"", i, err.msg, c[i].says);
	}
}

/* Texts that are not a tokenizer at all, and every truncation of one that is. */
static void test_hostile(void **state)
{
	static const char *const whole[] = { "",    "null",           "[]",
		                             "{}",  "{\"model\":[]}", "{\"model\":{\"type\":\"Unigram\"}}",
		                             "\xFF" };
	struct tokenizer *t;
	struct err err;
	struct buf b;

	for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
		assert_int_not_equal(tokenizer_open(&t, whole[i], strlen(whole[i]), &err), 0);
	static const char few[] = "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"decoder\":{\"type\":\"ByteLevel\"},"
				  "\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}";

	assert_int_equal(tokenizer_open(&t, few, sizeof few - 1, &err), E_UNSUPPORTED);
	assert_non_null(strstr(err.msg, "byte 0x00"));
	buf_init(&b);
	for (int i = 0; i < 5000; i++)
		buf_puts(&b, "{\"normalizer\":[");
	assert_int_not_equal(tokenizer_open(&t, b.p, b.n, &err), 0);
	buf_reset(&b);
	toy_write(&b, &(struct toy){ .added = SPECIALS });
	for (size_t n = 0; n < b.n; n += 13)
		assert_int_not_equal(tokenizer_open(&t, b.p, n, &err), 0);
	buf_fini(&b);
}

/* Patterns that would run for ages give up, and say where. */
static void test_step_limit(void **state)
{
	static const char *const re[] = { "(?:(?:a+)+)+b|c", "(?:a|a|aa)+$b|c", "(?:a?){40}a{40}b|c" };

	for (size_t i = 0; i < sizeof re / sizeof *re; i++) {
		char pre[300];
		struct allowance a;
		atomic_bool gone = true;
		struct tokens v;
		struct err err = { 0 };
		int e;

		snprintf(pre, sizeof pre, TOY_SPLIT("%s"), re[i]);
		struct tokenizer *t = toy((struct toy){ .pre = pre });

		tokens_init(&v);
		e = tokenizer_encode(t, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 60, 0, &v,
		                     &err);
		if (e)
			assert_non_null(strstr(err.msg, "gave up at byte 0 of 60"));
		assert_int_equal(v.n, e ? 0 : 60);
		tokens_reset(&v);
		/* No match is begun for a request that nobody waits for. */
		allowance_begin(&a, 60, &gone);
		assert_int_equal(tokenizer_encode(t, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 60,
		                                  0, &v, &err),
		                 E_LIMIT);
		allowance_end();
		assert_non_null(strstr(err.msg, "nothing waits"));
		tokens_fini(&v);
		tokenizer_close(t);
	}
}

static size_t random_text(char *p, size_t max)
{
	static const uint32_t top[] = { 0x80, 0x80, 0x80, 0x250, 0x3000, 0xA000, 0x11000, 0x110000 };
	static const char *const word[] = { "hello", " world", "hello hello", "<|end|>", "<think>", "  \n", "llllll" };
	size_t n = 0, want = draw((uint32_t)max - 40);

	while (n < want) {
		if (draw(4)) {
			uint32_t cp = draw(top[draw(8)]);

			if (cp < 0xD800 || cp > 0xDFFF)
				n += (size_t)utf8_encode(cp, p + n);
		} else {
			const char *w = word[draw(7)];

			memcpy(p + n, w, strlen(w));
			n += strlen(w);
		}
	}
	return n;
}

static void test_round_trip(void **state)
{
	struct tokenizer *t = toy((struct toy){ .added = SPECIALS });
	char text[600];
	struct tokens v;
	struct buf b, one;
	struct err err;

	tokens_init(&v);
	buf_init(&b);
	buf_init(&one);
	for (int i = 0; i < 3000; i++) {
		size_t n = random_text(text, sizeof text);
		struct detok d;

		tokens_reset(&v);
		if (tokenizer_encode(t, text, n, draw(2), &v, &err))
			fail_msg("%s", err.msg);
		buf_reset(&b);
		tokenizer_decode(t, v.id, v.n, false, &b);
		assert_int_equal(b.n, n);
		assert_memory_equal(b.p, text, n);
		/* Fed one by one: every increment is whole characters, together they are the text. */
		detok_init(&d, t, false);
		buf_reset(&b);
		for (size_t k = 0; k < v.n; k++) {
			buf_reset(&one);
			detok_put(&d, v.id[k], &one);
			assert_int_equal(utf8_valid(one.p, one.n), one.n);
			buf_put(&b, one.p, one.n);
		}
		detok_flush(&d, &b);
		assert_int_equal(b.n, n);
		assert_memory_equal(b.p, text, n);
	}
	buf_fini(&one);
	buf_fini(&b);
	tokens_fini(&v);
	tokenizer_close(t);
}

/* Any tokens, mostly no text at all: the same for every way of feeding, always
 * valid, and for whole bytes the known answers. */
static void test_detok_bytes(void **state)
{
	static const struct {
		const char *bytes, *text;
	} c[] = {
		{ "a\xE2\x82", "a\uFFFD" },
		{ "\xE2\x82"
		  "a",
		  "\uFFFDa" },
		{ "\xF0\x9F\x98\x80", "\U0001F600" },
		{ "\xF0\x9F\xE2\x82\xAC", "\uFFFD€" },
		{ "\x80\x80", "\uFFFD\uFFFD" },
		{ "\xC0\xAF", "\uFFFD\uFFFD" },
		{ "\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD" },
		{ "\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD" },
		{ "\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
		  "A",
		  "\uFFFD\uFFFD\uFFFD\uFFFDA" }, /* Unicode standard, table 3-11 */
	};
	/* One long token of hard bytes, to compare a token's inside with single bytes: E1 80 E2 F0 91 92 F1 BF 41. */
	struct tokenizer *t = toy(
		(struct toy){ .added = SPECIALS, .merges = "", .vocab = ",\"á\u0122âð\u0133\u0134ñ¿A\":256" });
	struct buf a, b;
	struct detok d;
	size_t n;

	buf_init(&a);
	buf_init(&b);
	for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
		detok_init(&d, t, true);
		buf_reset(&b);
		for (const char *p = c[i].bytes; *p; p++) {
			detok_put(&d, (unsigned char)*p, &b);
			detok_put(&d, 300, &b); /* skipped: does not part the bytes */
		}
		detok_flush(&d, &b);
		assert_string_equal(b.p, c[i].text);
	}
	assert_non_null(tokenizer_token_bytes(t, 256, &n));
	assert_int_equal(n, 9);
	for (int i = 0; i < 5000; i++) {
		int32_t id[12];
		struct detok bytes;

		detok_init(&d, t, false);
		detok_init(&bytes, t, false);
		buf_reset(&a);
		buf_reset(&b);
		for (int k = 0; k < 12; k++) {
			id[k] = draw(4) ? (int32_t)(0x80 + draw(0x80)) : draw(3) ? 256 : 301;
			const char *p = tokenizer_token_bytes(t, id[k], &n);

			detok_put(&d, id[k], &b);
			assert_int_equal(utf8_valid(b.p, b.n), b.n);
			for (size_t m = 0; m < n; m++)
				detok_put(&bytes, (unsigned char)p[m], &a);
		}
		detok_flush(&d, &b);
		detok_flush(&bytes, &a);
		assert_int_equal(a.n, b.n);
		assert_memory_equal(a.p, b.p, a.n);
	}
	/* Ids that are no tokens leave no text. */
	detok_init(&d, t, false);
	buf_reset(&b);
	detok_put(&d, -1, &b);
	detok_put(&d, 299, &b);
	detok_put(&d, 1 << 30, &b);
	detok_flush(&d, &b);
	assert_int_equal(b.n, 0);
	buf_fini(&a);
	buf_fini(&b);
	tokenizer_close(t);
}

static void test_nfc_source(void **state)
{
	struct nfc f;
	size_t from, to;

	nfc_init(&f);
	assert_false(nfc_run(&f, "plain é 漢字 한글", strlen("plain é 漢字 한글")));
	assert_true(nfc_run(&f, "ae\u0301be\u0301", 8)); /* a | e ´ | b | e ´ -> a é b é */
	assert_string_equal(f.out.p, "aébé");
	nfc_source(&f, 0, 1, &from, &to);
	assert_int_equal(from, 0);
	assert_int_equal(to, 1);
	nfc_source(&f, 1, 3, &from, &to);
	assert_int_equal(from, 1);
	assert_int_equal(to, 4);
	nfc_source(&f, 3, 4, &from, &to);
	assert_int_equal(from, 4);
	assert_int_equal(to, 5);
	nfc_source(&f, 3, 6, &from, &to);
	assert_int_equal(from, 4);
	assert_int_equal(to, 8);
	/* Marks are put in order, and stay in order within a class; long runs cost linear time. */
	assert_true(nfc_run(&f, "x\u0301\u0323\u0300", 7));
	assert_string_equal(f.out.p, "x\u0323\u0301\u0300");
	struct buf b;

	buf_init(&b);
	buf_putc(&b, 'x');
	for (int i = 0; i < 200000; i++)
		buf_puts(&b, "\u0301\u0323");
	assert_true(nfc_run(&f, b.p, b.n));
	assert_int_equal(f.out.n, b.n);
	buf_fini(&b);
	nfc_fini(&f);
}

/* What the contract of stops.h says, done slowly: the first end of a stop, of those
 * there the longest. */
static size_t cut_slowly(const char *p, size_t n, const char *const *stop, const size_t *len, int n_stop, int *hit)
{
	*hit = -1;
	for (size_t end = 1; end <= n; end++) {
		for (int k = 0; k < n_stop; k++)
			if (len[k] <= end && !memcmp(p + end - len[k], stop[k], len[k]) &&
			    (*hit < 0 || len[k] > len[*hit]))
				*hit = k;
		if (*hit >= 0)
			return end - len[*hit];
	}
	return n;
}

static void test_stops(void **state)
{
	struct stops s;
	struct buf b;
	struct err err;

	buf_init(&b);
	for (int round = 0; round < 5000; round++) {
		char text[40], stop_text[3][6];
		const char *stop[3];
		size_t len[3], n = 1 + draw(39), at = 0, want;
		int n_stop = (int)draw(4), hit;
		bool found = false;

		for (size_t i = 0; i < n; i++)
			text[i] = "ab"[draw(2)];
		for (int k = 0; k < n_stop; k++) {
			len[k] = 1 + draw(6);
			for (size_t i = 0; i < len[k]; i++)
				stop_text[k][i] = "ab"[draw(2)];
			stop[k] = stop_text[k];
		}
		want = cut_slowly(text, n, stop, len, n_stop, &hit);
		assert_int_equal(stops_init(&s, stop, len, n_stop, &err), 0);
		buf_reset(&b);
		while (at < n) {
			size_t step = 1 + draw((uint32_t)(n - at));

			found = stops_put(&s, text + at, step, &b);
			at += step;
			/* Nothing is held that no stop begins with. */
			if (!found && !n_stop)
				assert_int_equal(b.n, at);
		}
		assert_int_equal(found, hit >= 0);
		stops_flush(&s, &b);
		assert_int_equal(b.n, want);
		assert_memory_equal(b.p, text, want);
		if (hit >= 0)
			assert_int_equal(len[s.hit], len[hit]);
		stops_reset(&s);
		assert_int_equal(s.hit, -1);
		stops_fini(&s);
	}
	assert_int_equal(stops_init(&s, (const char *const[]){ "" }, (size_t[]){ 0 }, 1, &err), E_ARG);
	assert_int_equal(stops_init(&s, (const char *const[]){ "\x80" }, (size_t[]){ 1 }, 1, &err), E_ARG);
	assert_int_equal(stops_init(&s, NULL, NULL, STOPS_MAX + 1, &err), E_LIMIT);
	stops_fini(&s);
	buf_fini(&b);
}

/* The ids of text with an allowance, and what they cost. */
static uint64_t encode_charged(const struct tokenizer *t, const char *text, size_t n, unsigned flags, struct tokens *v)
{
	struct allowance w;
	uint64_t before;
	struct err err;

	allowance_begin(&w, n, NULL);
	before = allowance_left();
	tokens_reset(v);
	if (tokenizer_encode(t, text, n, flags, v, &err))
		fail_msg("%s", err.msg);
	before -= allowance_left();
	allowance_end();
	return before;
}

static void same_tokens(const struct tokens *a, const struct tokens *b)
{
	assert_int_equal(a->n, b->n);
	assert_memory_equal(a->id, b->id, a->n * sizeof *a->id);
}

/* Texts of parts that come again between added tokens: the tokens and the cost are those of a tokenizer that remembers none. */
static void test_remembered(void **state)
{
	/* The second puts a blank before the first text alone. */
	const struct toy kinds[] = {
		{ .added = SPECIALS },
		{ .added = SPECIALS,
		  .pre = "{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":\"first\",\"split\":false}",
		  .decoder = "{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":\"first\"}",
		  .vocab = ",\"he\":256,\"\u2581\":261",
		  .merges = "\"h e\"" },
	};
	enum { PARTS = 12 };
	struct buf part[PARTS], text;
	struct tokens v, want;

	tokens_init(&v);
	tokens_init(&want);
	buf_init(&text);
	for (int i = 0; i < PARTS; i++) {
		buf_init(&part[i]);
		for (size_t n = RECENT_TEXT_LEAST - 40 + draw(80) * (uint32_t)(1 + i % 3); part[i].n < n;)
			buf_put(&part[i], &"helo wl  "[draw(9)], 1);
	}
	for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
		struct tokenizer *plain = toy(kinds[kind]), *t = toy(kinds[kind]);

		/* Room for some of the parts. */
		tokenizer_remember(t, 8 * (RECENT_TEXT_LEAST + 200) * 5);
		for (int round = 0; round < 300; round++) {
			unsigned flags = draw(4) ? TOKENIZE_SPECIAL : 0;

			if (!draw(5))
				flags |= TOKENIZE_APART;
			buf_reset(&text);
			for (uint32_t k = draw(4) + 1; k-- > 0;) {
				const struct buf *b = &part[draw(PARTS)];

				buf_put(&text, b->p, b->n);
				if (draw(6))
					buf_puts(&text, draw(2) ? "<|end|>" : "<think>");
			}
			assert_int_equal(
				encode_charged(t, text.p, text.n, flags, &v),
				encode_charged(plain, text.p, text.n, flags & ~(unsigned)TOKENIZE_APART, &want));
			same_tokens(&v, &want);
		}
		tokenizer_close(plain);
		tokenizer_close(t);
	}
	for (int i = 0; i < PARTS; i++)
		buf_fini(&part[i]);
	buf_fini(&text);
	tokens_fini(&v);
	tokens_fini(&want);
}

static bool known(struct recent *r, char *p, uint32_t i, bool first)
{
	struct tokens v;
	uint64_t steps;
	bool found;

	tokens_init(&v);
	memcpy(p, &i, sizeof i);
	if ((found = recent_find(r, p, RECENT_TEXT_LEAST, first, &v, &steps))) {
		assert_int_equal(v.n, 2);
		assert_int_equal(v.id[0], i);
		assert_int_equal(v.id[1], 7);
		assert_int_equal(steps, i + 1);
	}
	tokens_fini(&v);
	return found;
}

static void learn(struct recent *r, char *p, uint32_t i)
{
	memcpy(p, &i, sizeof i);
	recent_put(r, p, RECENT_TEXT_LEAST, false, (int32_t[]){ (int32_t)i, 7 }, 2, i + 1);
}

/* The texts that were used last are known, as many as there is room for. */
static void test_recent(void **state)
{
	enum { ROOM = 10 };
	char p[RECENT_TEXT_LEAST] = { 0 };
	struct recent *r = recent_new(ROOM * (sizeof p + 8));

	for (uint32_t i = 0; i < 30; i++) {
		learn(r, p, i);
		learn(r, p, i);
		assert_true(known(r, p, 0, false));
		assert_false(known(r, p, i, true));
	}
	for (uint32_t i = 1; i < 30; i++)
		assert_int_equal(known(r, p, i, false), i > 30 - ROOM);
	recent_free(r);

	/* And no more than there are places. */
	r = recent_new((size_t)8 << 20);
	for (uint32_t i = 0; i < RECENT_TEXTS + 5; i++)
		learn(r, p, i);
	assert_false(known(r, p, 4, false));
	assert_true(known(r, p, 5, false));
	recent_free(r);

	/* One text does not take all. */
	r = recent_new(2 * sizeof p);
	learn(r, p, 1);
	assert_false(known(r, p, 1, false));
	recent_free(r);
}

static void *encode_many(void *arg)
{
	const struct tokenizer *t = arg;
	struct tokens v;
	uint64_t sum = 0;

	tokens_init(&v);
	for (int i = 0; i < 200; i++) {
		static const char text[] =
			"hello e\u0301 world <|end|> hellohellohellohellohellohellohellohellohellohellohellohellohello";

		tokens_reset(&v);
		if (tokenizer_encode(t, text, sizeof text - 1, TOKENIZE_SPECIAL, &v, NULL))
			return NULL;
		for (size_t k = 0; k < v.n; k++)
			sum = sum * 31 + (uint64_t)v.id[k];
	}
	tokens_fini(&v);
	return (void *)(uintptr_t)(sum | 1);
}

static void test_threads(void **state)
{
	struct tokenizer *t = toy((struct toy){ .added = SPECIALS, .normalizer = "{\"type\":\"NFC\"}" });
	void *want = encode_many(t), *got;
	pthread_t thread[4];

	assert_non_null(want);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, encode_many, t), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(thread[i], &got);
		assert_ptr_equal(got, want);
	}
	tokenizer_close(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_merging),     cmocka_unit_test(test_added),
		cmocka_unit_test(test_added_flags), cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_around),      cmocka_unit_test(test_bad_text),
		cmocka_unit_test(test_pieces),      cmocka_unit_test(test_refused),
		cmocka_unit_test(test_hostile),     cmocka_unit_test(test_step_limit),
		cmocka_unit_test(test_round_trip),  cmocka_unit_test(test_detok_bytes),
		cmocka_unit_test(test_nfc_source),  cmocka_unit_test(test_stops),
		cmocka_unit_test(test_threads),     cmocka_unit_test(test_remembered),
		cmocka_unit_test(test_recent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
