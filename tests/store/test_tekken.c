/* Tests of store/hf/tekken.h and store/hf/tiktoken.h: the tokenizer that a tekken.json or tiktoken.model becomes gives the ids of a naive encoder by ranks, its
 * special tokens have the ids below, and a file that is wrong is refused by the key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "folder.h"
#include "store/store.h"
#include "store/hf/tekken.h"
#include "store/hf/tiktoken.h"
#include "text/tokens/detok.h"
#include "text/tokens/tokenizer.h"

enum { PLAIN = 600, SPECIAL = 30, TOKEN_BYTES = 12 };
#define PATTERN "[a-z]+| ?[^ a-z]+| +"

/* The 256 bytes, then joins of two earlier ones, each text once. */
struct vocab {
	uint8_t p[PLAIN][TOKEN_BYTES];
	size_t n[PLAIN];
};

static int find(const struct vocab *v, const uint8_t *p, size_t n)
{
	for (int i = 0; i < PLAIN; i++)
		if (v->n[i] == n && !memcmp(v->p[i], p, n))
			return i;
	return -1;
}

static void make_vocab(struct vocab *v)
{
	static const char *const seed[] = { "ab", "cd", "<s", "<s>", "\xC3\xA4", " \xC3", "zz", "  " };
	uint64_t k = 0;

	memset(v, 0, sizeof(*v));
	for (int i = 0; i < PLAIN;) {
		uint8_t text[2 * TOKEN_BYTES] = { (uint8_t)i };
		size_t n = 1;

		if (i >= 256 && i < 256 + 8) {
			n = strlen(seed[i - 256]);
			memcpy(text, seed[i - 256], n);
		} else if (i >= 256) {
			uint64_t dice = rng_bits(1, k++, 0);
			/* Letters mostly, and what is already joined. */
			int a = dice & 1 ? 'a' + (int)(dice >> 8) % 4 : 256 + (int)((dice >> 8) % (uint64_t)(i - 256));
			int b = dice & 2 ? 'a' + (int)((dice >> 40) % 4) :
			                   256 + (int)((dice >> 40) % (uint64_t)(i - 256));

			a = a < 0 ? 'a' : a;
			n = v->n[a] + v->n[b];
			memcpy(text, v->p[a], v->n[a]);
			memcpy(text + v->n[a], v->p[b], v->n[b]);
		}
		if (n > TOKEN_BYTES || find(v, text, n) >= 0)
			continue;
		memcpy(v->p[i], text, n);
		v->n[i++] = n;
	}
}

static void put_base64(struct buf *out, const uint8_t *p, size_t n)
{
	static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (size_t i = 0; i < n; i += 3) {
		uint32_t w = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) |
		             (i + 2 < n ? p[i + 2] : 0);

		buf_printf(out, "%c%c%c%c", digit[w >> 18], digit[w >> 12 & 63], i + 1 < n ? digit[w >> 6 & 63] : '=',
		           i + 2 < n ? digit[w & 63] : '=');
	}
}

/* special NULL: as files from before v7 have it. */
static void make_file(const struct vocab *v, const char *special, struct buf *out)
{
	buf_printf(out,
	           "{\"config\":{\"pattern\":\"" PATTERN "\",\"num_vocab_tokens\":%d,\"default_vocab_size\":%d,"
	           "\"default_num_special_tokens\":%d,\"version\":\"v7\"},\"vocab\":[",
	           PLAIN + 1, PLAIN + SPECIAL, SPECIAL);
	for (int i = 0; i < PLAIN; i++) {
		buf_printf(out, "{\"rank\":%d,\"token_bytes\":\"", i);
		put_base64(out, v->p[i], v->n[i]);
		buf_puts(out, "\",\"token_str\":null},");
	}
	/* One more than the vocabulary's size lets in. */
	buf_printf(out, "{\"rank\":%d,\"token_bytes\":\"YWFhYWFhYWFhYWFh\"}]", PLAIN);
	if (special)
		buf_printf(out, ",\"special_tokens\":[%s]", special);
	buf_putc(out, '}');
}

static struct tokenizer *open_file(const struct buf *file)
{
	struct tokenizer *t = NULL;
	struct buf json;
	struct err err;

	buf_init(&json);
	if (tekken_tokenizer(file->p, file->n, &json, &err) || tokenizer_open(&t, json.p, json.n, &err))
		fail_msg("%s", err.msg);
	buf_fini(&json);
	return t;
}

/* One piece: it whole, or the neighbours of the lowest rank joined, the leftmost first, until none are a token. */
static void naive_piece(const struct vocab *v, const uint8_t *p, size_t n, struct tokens *out)
{
	size_t end[256], k = n;
	int whole = find(v, p, n);

	if (whole >= 0) {
		tokens_put(out, SPECIAL + whole);
		return;
	}
	for (size_t i = 0; i < n; i++)
		end[i] = i + 1;
	for (;;) {
		int best = PLAIN;
		size_t at = 0;

		for (size_t i = 0; i + 1 < k; i++) {
			size_t from = i ? end[i - 1] : 0;
			int id = find(v, p + from, end[i + 1] - from);

			if (id >= 0 && id < best) {
				best = id;
				at = i;
			}
		}
		if (best == PLAIN)
			break;
		memmove(end + at, end + at + 1, (k - at - 1) * sizeof(*end));
		k--;
	}
	for (size_t i = 0; i < k; i++) {
		size_t from = i ? end[i - 1] : 0;

		tokens_put(out, SPECIAL + find(v, p + from, end[i] - from));
	}
}

static bool letter(uint8_t c)
{
	return c >= 'a' && c <= 'z';
}

/* PATTERN by hand. */
static size_t naive_end(const uint8_t *p, size_t n)
{
	size_t i = 0;

	if (letter(p[0])) {
		while (i < n && letter(p[i]))
			i++;
		return i;
	}
	if (p[0] != ' ' || (n > 1 && p[1] != ' ' && !letter(p[1]))) {
		for (i = 1; i < n && p[i] != ' ' && !letter(p[i]); i++)
			;
		return i;
	}
	while (i < n && p[i] == ' ')
		i++;
	return i;
}

static size_t random_text(uint64_t seed, char *out, size_t most)
{
	static const char *const part[] = { "a",
		                            "b",
		                            "c",
		                            "d",
		                            "ab",
		                            "z",
		                            " ",
		                            "  ",
		                            "\xC3\xA4",
		                            "<s>",
		                            "</s>",
		                            "[INST]",
		                            "1",
		                            "\n",
		                            "\xE2\x82\xAC",
		                            "\xF0\x9F\x98\x80",
		                            "abcd",
		                            "dcba",
		                            "ccc",
		                            "<" };
	size_t n = 0, k = rng_bits(seed, 0, 1) % 60;

	for (size_t i = 0; i < k; i++) {
		const char *s = part[rng_bits(seed, i + 1, 2) % (sizeof(part) / sizeof(*part))];

		if (n + strlen(s) > most)
			break;
		memcpy(out + n, s, strlen(s));
		n += strlen(s);
	}
	return n;
}

static void test_naive(void **state)
{
	struct vocab v;
	struct tokenizer *t;
	struct buf file, whole, parts;
	struct err err;
	char text[256];

	make_vocab(&v);
	buf_init(&file);
	buf_init(&whole);
	buf_init(&parts);
	make_file(&v, NULL, &file);
	t = open_file(&file);
	assert_int_equal(tokenizer_size(t), PLAIN + SPECIAL);
	for (uint64_t i = 0; i < 4000; i++) {
		size_t n = random_text(i, text, sizeof(text));
		struct tokens want, got;
		struct detok d;

		tokens_init(&want);
		tokens_init(&got);
		for (size_t at = 0; at < n;) {
			size_t len = naive_end((uint8_t *)text + at, n - at);

			naive_piece(&v, (uint8_t *)text + at, len, &want);
			at += len;
		}
		/* Text of a user spells special tokens and makes none. */
		if (tokenizer_encode(t, text, n, 0, &got, &err))
			fail_msg("%s", err.msg);
		assert_int_equal(got.n, want.n);
		if (got.n)
			assert_memory_equal(got.id, want.id, got.n * sizeof(*got.id));
		buf_reset(&whole);
		buf_reset(&parts);
		tokenizer_decode(t, got.id, got.n, false, &whole);
		assert_int_equal(whole.n, n);
		if (n)
			assert_memory_equal(whole.p, text, n);
		detok_init(&d, t, false);
		for (size_t k = 0; k < got.n; k++) {
			detok_put(&d, got.id[k], &parts);
			assert_int_equal(utf8_valid(parts.p, parts.n), parts.n);
		}
		detok_flush(&d, &parts);
		assert_int_equal(parts.n, n);
		if (n)
			assert_memory_equal(parts.p, text, n);
		tokens_fini(&want);
		tokens_fini(&got);
	}
	tokenizer_close(t);
	buf_fini(&file);
	buf_fini(&whole);
	buf_fini(&parts);
}

static void test_special(void **state)
{
	static const char named[] =
		"{\"rank\":1,\"token_str\":\"<s>\",\"is_control\":true},{\"rank\":0,\"token_str\":\"<unk>\"},"
		"{\"rank\":2,\"token_str\":\"[THINK]\",\"is_control\":false}";
	struct vocab v;
	struct tokenizer *t;
	struct tokens ids;
	struct buf file;
	struct err err;
	size_t n;

	make_vocab(&v);
	buf_init(&file);
	tokens_init(&ids);
	make_file(&v, named, &file);
	t = open_file(&file);
	assert_int_equal(tokenizer_find(t, "<s>", 3), 1);
	assert_int_equal(tokenizer_find(t, "[THINK]", 7), 2);
	assert_int_equal(tokenizer_find(t, "<SPECIAL_3>", 11), 3);
	assert_true(tokenizer_is_special(t, 1));
	assert_false(tokenizer_is_special(t, 2));
	assert_true(tokenizer_is_special(t, SPECIAL - 1));
	assert_false(tokenizer_is_special(t, SPECIAL));
	assert_memory_equal(tokenizer_token_bytes(t, 1, &n), "<s>", 3);
	assert_int_equal(n, 3);
	assert_int_equal(*tokenizer_prefix(t, &n), 1);
	assert_int_equal(n, 1);
	assert_int_equal(tokenizer_encode(t, "<s>a", 4, TOKENIZE_SPECIAL, &ids, &err), 0);
	assert_int_equal(ids.n, 2);
	assert_int_equal(ids.id[0], 1);
	assert_int_equal(ids.id[1], SPECIAL + 'a');
	tokens_reset(&ids);
	assert_int_equal(tokenizer_encode(t, "<s>", 3, TOKENIZE_AROUND, &ids, &err), 0);
	assert_int_equal(ids.n, 4); /* the expression cuts it */
	assert_int_equal(ids.id[0], 1);
	assert_int_equal(ids.id[1], SPECIAL + '<');
	tokenizer_close(t);
	tokens_fini(&ids);
	buf_fini(&file);
}

/* In a folder it stands for tokenizer.json where there is none. */
static void test_folder(void **state)
{
	struct vocab v;
	struct buf file, out;
	struct store *st;
	struct err err;
	char *dir = folder_new();

	make_vocab(&v);
	buf_init(&file);
	buf_init(&out);
	make_file(&v, NULL, &file);
	folder_puts(dir, "config.json", "{\"model_type\":\"llama\"}");
	folder_put(dir, "tekken.json", file.p, file.n);
	folder_put_tensors(dir, "model.safetensors", "{}", 0);
	if (store_open(&st, dir, &err))
		fail_msg("%s", err.msg);
	assert_string_equal(json_str(json_get(st->tokenizer_config, "bos_token"), NULL), "<s>");
	assert_string_equal(json_str(json_get(st->tokenizer_config, "eos_token"), NULL), "</s>");
	assert_non_null(strstr(store_place(st, "tokenizer.json"), "/tekken.json"));
	assert_int_equal(store_document(st, "tokenizer.json", &out, &err), 0);
	assert_int_equal(store_document(st, "generation_config.json", &out, &err), E_MISSING);
	folder_puts(dir, "tokenizer.json", "{}");
	buf_reset(&out);
	assert_int_equal(store_document(st, "tokenizer.json", &out, &err), 0);
	assert_int_equal(out.n, 2);
	assert_non_null(strstr(store_place(st, "tokenizer.json"), "/tokenizer.json"));
	store_close(st);
	folder_remove(dir);
	buf_fini(&file);
	buf_fini(&out);
}

/* ---- tiktoken.model ---- */

static struct tokenizer *open_ranks(const struct vocab *v, const char *config)
{
	struct json *j = json_parse(config, strlen(config), 0, NULL);
	struct tokenizer *t = NULL;
	struct buf file, json;
	struct err err;

	buf_init(&file);
	buf_init(&json);
	for (int i = PLAIN - 1; i >= 0; i--) { /* in any order */
		put_base64(&file, v->p[i], v->n[i]);
		buf_printf(&file, " %d\n", i);
	}
	if (tiktoken_tokenizer(file.p, file.n, PATTERN, j, &json, &err) || tokenizer_open(&t, json.p, json.n, &err))
		fail_msg("%s", err.msg);
	buf_fini(&file);
	buf_fini(&json);
	json_free(j);
	return t;
}

static void test_ranks(void **state)
{
	struct vocab v;
	struct tokenizer *t;
	struct buf back;
	struct err err;
	char text[256];

	make_vocab(&v);
	buf_init(&back);
	t = open_ranks(&v, "{\"added_tokens_decoder\":{\"601\":{\"content\":\"[EOS]\"},\"602\":{\"content\":\"<call>\","
	                   "\"special\":false}}}");
	assert_int_equal(tokenizer_size(t), PLAIN + 256);
	assert_int_equal(tokenizer_find(t, "<|reserved_token_600|>", 22), PLAIN);
	assert_int_equal(tokenizer_find(t, "[EOS]", 5), PLAIN + 1);
	assert_true(tokenizer_is_special(t, PLAIN + 1));
	assert_false(tokenizer_is_special(t, PLAIN + 2));
	for (uint64_t i = 0; i < 2000; i++) {
		size_t n = random_text(i, text, sizeof(text));
		struct tokens want, got;

		tokens_init(&want);
		tokens_init(&got);
		for (size_t at = 0; at < n;) {
			size_t len = naive_end((uint8_t *)text + at, n - at);

			naive_piece(&v, (uint8_t *)text + at, len, &want);
			at += len;
		}
		for (size_t k = 0; k < want.n; k++)
			want.id[k] -= SPECIAL; /* ids are ranks here */
		if (tokenizer_encode(t, text, n, 0, &got, &err))
			fail_msg("%s", err.msg);
		assert_int_equal(got.n, want.n);
		if (got.n)
			assert_memory_equal(got.id, want.id, got.n * sizeof(*got.id));
		buf_reset(&back);
		tokenizer_decode(t, got.id, got.n, false, &back);
		assert_int_equal(back.n, n);
		if (n)
			assert_memory_equal(back.p, text, n);
		tokens_fini(&want);
		tokens_fini(&got);
	}
	tokenizer_close(t);
	buf_fini(&back);
}

static void test_ranks_errors(void **state)
{
	static const struct {
		const char *text, *config, *says;
	} bad[] = {
		{ "", "{}", "0 lines" },
		{ "\n", "{}", "line 1: is not base64" },
		{ "AA==\n", "{}", "line 1: is not base64" },
		{ "AA== \n", "{}", "line 1: is not base64" },
		{ "AA== -1\n", "{}", "line 1: is not base64" },
		{ "AA== 99999999999999999999\n", "{}", "line 1: is not base64" },
		{ "AA== 0\nAQ== 0\n", "{}", "line 2: rank 0 is beyond the 2 lines, or there twice" },
		{ "AA== 2\nAQ== 0", "{}", "line 1: rank 2" },
		{ "A 0\n", "{}", "rank 0: its 1 digits" },
		{ "AA== 0\r\nAQ== 1", "{\"added_tokens_decoder\":{\"1\":{}}}", "added_tokens_decoder: 1 is none of" },
		{ "AA== 0\r\nAQ== 1", "{\"added_tokens_decoder\":{\"258\":{}}}", "added_tokens_decoder: 258" },
		{ "AA== 0\r\nAQ== 1", "{\"added_tokens_decoder\":{\"x\":{}}}", "added_tokens_decoder: x" },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct json *j = json_parse(bad[i].config, strlen(bad[i].config), 0, NULL);
		struct buf out;
		struct err err;

		buf_init(&out);
		assert_true(tiktoken_tokenizer(bad[i].text, strlen(bad[i].text), "a", j, &out, &err) < 0);
		if (!strstr(err.msg, bad[i].says))
			fail_msg("\"%s\" does not say \"%s\"", err.msg, bad[i].says);
		buf_fini(&out);
		json_free(j);
	}
}

#define CONFIG(all, special) \
	"\"config\":{\"pattern\":\"a\",\"default_vocab_size\":" all ",\"default_num_special_tokens\":" special "}"
#define VOCAB "\"vocab\":[{\"rank\":0,\"token_bytes\":\"AA==\"},{\"rank\":1,\"token_bytes\":\"AQ==\"}]"

static void test_errors(void **state)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "{", "byte" },
		{ "{}", "pattern: missing" },
		{ "{" CONFIG("2", "\"x\"") "," VOCAB "}", "default_num_special_tokens" },
		{ "{" CONFIG("0", "0") "," VOCAB "}", "default_vocab_size: 0" },
		{ "{" CONFIG("9999999", "0") "," VOCAB "}", "default_vocab_size: 9999999" },
		{ "{" CONFIG("2", "2") "," VOCAB "}", "not below the 2" },
		{ "{" CONFIG("4", "1") ",\"special_tokens\":[]," VOCAB "}", "rank 2 of 3" },
		{ "{" CONFIG("3", "1") "," VOCAB "}", "special_tokens: 20, more than the 1" },
		{ "{" CONFIG("3", "1") ",\"special_tokens\":3," VOCAB "}", "special_tokens: must be an array" },
		{ "{" CONFIG("3", "1") ",\"special_tokens\":[{}]," VOCAB "}", "special_tokens[0] token_str" },
		{ "{" CONFIG("3", "1") ",\"special_tokens\":[{\"token_str\":\"x\",\"rank\":5}]," VOCAB "}", "rank: 5" },
		{ "{" CONFIG("2", "0") ",\"special_tokens\":[],\"vocab\":{}}", "vocab: must be an array" },
		{ "{" CONFIG(
			  "2",
			  "0") ",\"special_tokens\":[],\"vocab\":[{\"rank\":0,\"token_bytes\":\"AA==\"},{\"rank\":0}]}",
		  "vocab[1] rank: 0" },
		{ "{" CONFIG(
			  "2",
			  "0") ",\"special_tokens\":[],\"vocab\":[{\"rank\":0,\"token_bytes\":\"AA==\"},{\"rank\":1,\"token_bytes\":5}]}",
		  "rank 1 of 2" },
		{ "{" CONFIG(
			  "2",
			  "0") ",\"special_tokens\":[],\"vocab\":[{\"rank\":0,\"token_bytes\":\"!\"},{\"rank\":1,\"token_bytes\":\"\"}]}",
		  "rank 0, 1 digits, are not base64" },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct buf out;
		struct err err;

		buf_init(&out);
		assert_true(tekken_tokenizer(bad[i].text, strlen(bad[i].text), &out, &err) < 0);
		if (!strstr(err.msg, bad[i].says))
			fail_msg("\"%s\" does not say \"%s\"", err.msg, bad[i].says);
		buf_fini(&out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_naive),  cmocka_unit_test(test_special), cmocka_unit_test(test_folder),
		cmocka_unit_test(test_errors), cmocka_unit_test(test_ranks),   cmocka_unit_test(test_ranks_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
