/* Vocabularies that are not byte-level: SentencePiece's pairs by merges and by score, Unigram, WordPiece; their
 * normalizers, pre-tokenizers and decoders, as tokenizer.json has them. Small ones written here, ids worked out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "text/tokens/detok.h"
#include "text/tokens/tokenizer.h"

#define ADDED                                                                                       \
	"\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true,\"normalized\":false}," \
	"{\"id\":1,\"content\":\"<s>\",\"special\":true,\"normalized\":false},"                     \
	"{\"id\":2,\"content\":\"<t>\",\"special\":false,\"normalized\":false,\"rstrip\":true}],"
#define SPACES "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"▁\"}"
#define DECODER                                                                                                     \
	"\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"▁\"},"  \
	"\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \"," \
	"\"start\":1,\"stop\":0}]},"

/* 0 <unk> 1 <s> 2 <t> 3 ▁ 4 a 5 b 6 ab 7 ▁ab 8 <0xC3> 9 <0xA9> 10 <0xE2> */
#define WORDS \
	"{\"<unk>\":0,\"<s>\":1,\"<t>\":2,\"▁\":3,\"a\":4,\"b\":5,\"ab\":6,\"▁ab\":7,\"<0xC3>\":8,\"<0xA9>\":9,\"<0xE2>\":10}"

static const char by_merges[] =
	"{" ADDED
	"\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"▁\"}," SPACES
	"]}," DECODER "\"post_processor\":{\"type\":\"RobertaProcessing\",\"cls\":[\"<s>\",1],\"sep\":[\"<unk>\",0]},"
	"\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"fuse_unk\":true,\"unk_token\":\"<unk>\",\"vocab\":" WORDS
	",\"merges\":[\"a b\",\"▁ ab\"]}}";

/* Merges lead to "<s>", which is special: 3 < 4 s 5 > 6 s>. */
static const char to_special[] =
	"{" ADDED "\"normalizer\":" SPACES "," DECODER
	"\"model\":{\"type\":\"BPE\",\"vocab\":{\"<unk>\":0,\"<s>\":1,\"<t>\":2,\"<\":3,\"s\":4,\">\":5,\"s>\":6},"
	"\"merges\":[\"s >\",\"< s>\"]}}";

/* The same by score: "ab" is joined before "▁a", which is no token at all. */
static const char by_score[] =
	"{" ADDED "\"normalizer\":" SPACES "," DECODER
	"\"model\":{\"type\":\"ScoredBPE\",\"byte_fallback\":true,\"unk_id\":0,"
	"\"vocab\":[[\"<unk>\",0],[\"<s>\",0],[\"<t>\",0],[\"▁\",-3],[\"a\",-4],[\"b\",-5],[\"ab\",-1],[\"▁ab\",-2],"
	"[\"<0xC3>\",0],[\"<0xA9>\",0],[\"<0xE2>\",0]]}}";

/* 3 ▁ 4 a 5 b 6 ab 7 ▁a: "▁ab" is ▁a b (-3) before ▁ ab (-4) and ▁ a b (-6). */
static const char unigram[] =
	"{" ADDED "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"▁\",\"prepend_scheme\":\"first\"},"
	"\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"▁\",\"prepend_scheme\":\"first\"},"
	"\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"<s>\",0],[\"<t>\",0],[\"▁\",-2],[\"a\",-2],"
	"[\"b\",-2],[\"ab\",-2],[\"▁a\",-1]]}}";

/* 3 un 4 ##able 5 ##a 6 able 7 . 8 你 */
static const char wordpiece[] =
	"{" ADDED "\"normalizer\":{\"type\":\"BertNormalizer\"},\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"
	"\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true},"
	"\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"<unk>\",\"vocab\":{\"<unk>\":0,\"<s>\":1,\"<t>\":2,\"un\":3,"
	"\"##able\":4,\"##a\":5,\"able\":6,\".\":7,\"你\":8}}}";

static struct tokenizer *open_of(const char *json)
{
	struct tokenizer *t;
	struct err err;

	if (tokenizer_open(&t, json, strlen(json), &err))
		fail_msg("%s", err.msg);
	return t;
}

/* ids ends with -1; back NULL: the text itself.  Fed one by one the text is the same. */
static void expect(const struct tokenizer *t, const char *text, unsigned flags, const char *back, const int32_t *ids)
{
	struct tokens v;
	struct detok d;
	struct buf whole, one;
	struct err err;

	tokens_init(&v);
	buf_init(&whole);
	buf_init(&one);
	assert_int_equal(tokenizer_encode(t, text, strlen(text), flags, &v, &err), 0);
	for (size_t i = 0; i < v.n; i++)
		if (ids[i] != v.id[i])
			fail_msg("\"%s\": id %zu is %d, %d is wanted", text, i, v.id[i], ids[i]);
	assert_int_equal(ids[v.n], -1);
	tokenizer_decode(t, v.id, v.n, true, &whole);
	assert_string_equal(whole.p, back ? back : text);
	detok_init(&d, t, true);
	for (size_t i = 0; i < v.n; i++)
		detok_put(&d, v.id[i], &one);
	detok_flush(&d, &one);
	assert_string_equal(one.p, whole.p);
	buf_fini(&one);
	buf_fini(&whole);
	tokens_fini(&v);
}
#define IDS(...) ((const int32_t[]){ __VA_ARGS__, -1 })

static void test_merges_to_special(void **state)
{
	struct tokenizer *t = open_of(to_special);
	char many[40 * 3 + 1] = "";
	struct tokens v;
	struct err err;

	expect(t, "<s>", 0, NULL, IDS(3, 6));
	expect(t, "<s>", TOKENIZE_SPECIAL, "", IDS(1));
	for (int i = 0; i < 40; i++) /* a long piece is joined in another way */
		strcat(many, "<s>");
	tokens_init(&v);
	assert_int_equal(tokenizer_encode(t, many, strlen(many), 0, &v, &err), 0);
	assert_int_equal(v.n, 80);
	tokens_fini(&v);
	tokenizer_close(t);
}

static void test_merges(void **state)
{
	struct tokenizer *t = open_of(by_merges);

	expect(t, "ab", 0, NULL, IDS(7));
	expect(t, "ab ab", 0, NULL, IDS(7, 7));
	expect(t, "a b", 0, NULL, IDS(3, 4, 3, 5));
	expect(t, "ab", TOKENIZE_AROUND, NULL, IDS(1, 7, 0));
	expect(t, "aé", 0, NULL, IDS(3, 4, 8, 9));        /* its bytes */
	expect(t, "axyb", 0, " ab" + 1, IDS(3, 4, 0, 5)); /* one unknown for both */
	expect(t, "a<s>b", TOKENIZE_SPECIAL, "a b", IDS(3, 4, 1, 3, 5));
	expect(t, "a<t>  b", 0, "a<t> b", IDS(3, 4, 2, 3, 5)); /* rstrip takes the spaces in */
	assert_int_equal(tokenizer_find(t, " ab", 3), 7);
	assert_int_equal(tokenizer_find(t, "<s>", 3), 1);
	tokenizer_close(t);
}

/* Gemma's files have runs of spaces among the added tokens, spelled as the vocabulary does: they stand for spaces in a
 * text, while a special token's content stays. */
static void test_added_spaces(void **state)
{
	static const char file[] =
		"{\"added_tokens\":[{\"id\":0,\"content\":\"<▁>\",\"special\":true,\"normalized\":false},"
		"{\"id\":2,\"content\":\"▁▁\",\"special\":false,\"normalized\":false}],"
		"\"normalizer\":" SPACES ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\","
		"\"pattern\":{\"String\":\"▁\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]},"
		"\"model\":{\"type\":\"BPE\",\"vocab\":{\"<▁>\":0,\"▁\":1,\"▁▁\":2,\"a\":3},\"merges\":[\"▁ ▁\"]}}";
	struct tokenizer *t = open_of(file);
	size_t n;

	expect(t, "a  a", 0, NULL, IDS(3, 2, 3));
	expect(t, "a▁▁a", 0, "a  a", IDS(3, 2, 3)); /* found in the text as it is written */
	assert_memory_equal(tokenizer_token_bytes(t, 0, &n), "<▁>", 5);
	assert_int_equal(n, 5);
	assert_int_equal(tokenizer_find(t, "  ", 2), 2);
	tokenizer_close(t);
}

static void test_scores(void **state)
{
	struct tokenizer *t = open_of(by_score);

	expect(t, "ab", 0, NULL, IDS(6));
	expect(t, " ab", 0, "ab", IDS(7));
	expect(t, "  ab", 0, " ab", IDS(3, 7));
	expect(t, "aé", 0, NULL, IDS(4, 8, 9));
	/* What spells a special token is text: neither by itself nor pair by pair does it become one. */
	expect(t, "<s>", 0, "", IDS(0, 0, 0));
	tokenizer_close(t);
}

static void test_unigram(void **state)
{
	struct tokenizer *t = open_of(unigram);

	expect(t, "ab", 0, NULL, IDS(7, 5));
	expect(t, "ab ab", 0, NULL, IDS(7, 5, 7, 5));
	expect(t, "aab", 0, NULL, IDS(7, 6)); /* ▁a ab: -3 */
	expect(t, "axyb", 0, "ab", IDS(7, 0, 5));
	expect(t, "<t>ab", 0, NULL, IDS(2, 6)); /* not the first any more */
	tokenizer_close(t);
}

static void test_wordpiece(void **state)
{
	struct tokenizer *t = open_of(wordpiece);

	expect(t, "Unable.", 0, "unable.", IDS(3, 4, 7));
	expect(t, "able  unable", 0, "able unable", IDS(6, 3, 4));
	expect(t, "ÚNable", 0, "unable", IDS(3, 4)); /* accents go */
	expect(t, "你able", 0, "你 able", IDS(8, 6));
	expect(t, "unablex able", 0, "able", IDS(0, 6));
	tokenizer_close(t);
}

/* No special token where a byte of the user's is, also where normalising moved it. */
static void test_ranges(void **state)
{
	static const char json[] =
		"{\"added_tokens\":[{\"id\":1,\"content\":\"<s>\",\"special\":true,\"normalized\":true}],\"normalizer\":{"
		"\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Lowercase\"}," SPACES "]}," DECODER
		"\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"vocab\":" WORDS
		",\"merges\":[]}}";
	struct tokenizer *t = open_of(json);
	const char text[] = "a  <S> b<S>";
	struct text_range user = { 9, 10 };
	struct tokens v;
	struct err err;

	expect(t, text, TOKENIZE_SPECIAL, "a   b", IDS(4, 3, 3, 1, 3, 5, 1));
	tokens_init(&v);
	assert_int_equal(tokenizer_encode_ranges(t, text, strlen(text), TOKENIZE_SPECIAL, &user, 1, &v, &err), 0);
	assert_int_equal(v.n, 7);
	assert_int_equal(v.id[3], 1);
	assert_int_equal(v.id[6], 0); /* "<s>" is nothing that the vocabulary has */
	tokens_fini(&v);
	tokenizer_close(t);
}

/* Every truncation of each is refused without harm. */
static void test_truncated(void **state)
{
	const char *const all[] = { by_merges, by_score, unigram, wordpiece };

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		for (size_t n = 0; n < strlen(all[i]); n++) {
			struct tokenizer *t = NULL;
			struct err err = { 0 };
			char *copy = malloc(n + 1);

			memcpy(copy, all[i], n);
			assert_int_not_equal(tokenizer_open(&t, copy, n, &err), 0);
			assert_null(t);
			free(copy);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_merges),       cmocka_unit_test(test_merges_to_special),
		cmocka_unit_test(test_added_spaces), cmocka_unit_test(test_scores),
		cmocka_unit_test(test_unigram),      cmocka_unit_test(test_wordpiece),
		cmocka_unit_test(test_ranges),       cmocka_unit_test(test_truncated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
