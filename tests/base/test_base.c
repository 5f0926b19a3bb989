/* Unit tests of src/base. */
#include <assert.h>
#include <pthread.h>
#include <stdarg.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "base/base64.h"
#include "base/buf.h"
#include "base/cpu.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/json.h"
#include "base/pool.h"
#include "base/rng.h"
#include "base/utf8.h"

static void test_err(void **state)
{
	struct err e;

	assert_int_equal(err_set(&e, E_FORMAT, "%d is not %d", 3, 4), E_FORMAT);
	assert_int_equal(err_prefix(&e, "file %s", "x"), E_FORMAT);
	assert_string_equal(e.msg, "file x: 3 is not 4");
	assert_int_equal(err_set(NULL, E_IO, "nobody reads"), E_IO);
	err_set(&e, E_FORMAT, "type \"%s\"", "a\nb\x1b[2J\x7f\tc");
	assert_string_equal(e.msg, "type \"a?b?[2J??c\"");
	err_prefix(&e, "file %s", "x\r");
	assert_string_equal(e.msg, "file x?: type \"a?b?[2J??c\"");
}

static void test_buf(void **state)
{
	struct buf b;

	buf_init(&b);
	assert_string_equal(b.p, "");
	for (int i = 0; i < 1000; i++)
		buf_printf(&b, "%03d", i);
	assert_int_equal(b.n, 3000);
	assert_memory_equal(b.p + 2997, "999", 4);
	buf_drop(&b, 2997);
	assert_string_equal(b.p, "999");
	buf_fini(&b);
}

static void test_arena(void **state)
{
	struct arena a;
	unsigned char *p[200];

	arena_init(&a);
	for (int i = 0; i < 200; i++) {
		p[i] = arena_alloc(&a, (size_t)i * 37 % 9000 + 1);
		assert_int_equal((uintptr_t)p[i] % 16, 0);
		memset(p[i], i, (size_t)i * 37 % 9000 + 1);
	}
	for (int i = 0; i < 200; i++)
		assert_int_equal(p[i][(size_t)i * 37 % 9000], i);
	assert_string_equal(arena_printf(&a, "%s-%d", "x", 7), "x-7");
	arena_fini(&a);
}

static struct json *parse(const char *s)
{
	return json_parse(s, strlen(s), 0, NULL);
}

/* The examples of RFC 4648, section 10, and what it leaves to the reader. */
static void test_base64(void **state)
{
	static const struct {
		const char *text, *bytes;
	} good[] = {
		{ "", "" },
		{ "Zg==", "f" },
		{ "Zm8=", "fo" },
		{ "Zm9v", "foo" },
		{ "Zm9vYg==", "foob" },
		{ "Zm9vYmE", "fooba" },
		{ "Zm9v\r\nYmFy\n", "foobar" },
		{ "+/-_", "\xfb\xff\xbf" },
	};
	static const struct {
		const char *text;
		size_t bad;
	} wrong[] = { { "Zm*v", 2 }, { "A", 1 }, { "Zm9vA===", 8 }, { "Zm=v", 2 }, { " Zm9v", 0 } };
	uint8_t out[32];
	size_t bad;

	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		int64_t n = base64_decode(out, good[i].text, strlen(good[i].text), &bad);

		assert_int_equal(n, strlen(good[i].bytes));
		assert_memory_equal(out, good[i].bytes, (size_t)n);
	}
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		assert_int_equal(base64_decode(out, wrong[i].text, strlen(wrong[i].text), &bad), -1);
		assert_int_equal(bad, wrong[i].bad);
	}
}

/* Bytes of every length, line ends anywhere, against digits that are taken one by one. */
static void test_base64_long(void **state)
{
	static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	uint8_t bytes[300], out[310];
	size_t bad;

	(void)state;
	for (size_t n = 0; n < sizeof bytes; n++) {
		char text[900] = "";
		size_t k = 0, breaks = n % 3;

		for (size_t i = 0; i < n; i++)
			bytes[i] = (uint8_t)rng_bits(7, n, i);
		for (size_t bit = 0; bit < 8 * n; bit += 6) {
			unsigned v = (unsigned)bytes[bit / 8] << 8 | (bit / 8 + 1 < n ? bytes[bit / 8 + 1] : 0u);

			text[k++] = digit[v >> (10 - bit % 8) & 63];
			if (breaks && !(rng_bits(8, n, bit) % (breaks * 8)))
				text[k++] = '\n';
		}
		assert_int_equal(base64_decode(out, text, k, &bad), n);
		assert_memory_equal(out, bytes, n);
		if (!n)
			continue;
		text[n / 2] = (char)(0x80 + n % 64);
		assert_int_equal(base64_decode(out, text, k, &bad), -1);
		assert_int_equal(bad, n / 2);
	}
}

/* A string that is copied at once stands where it would among what json-c reads byte by byte. */
static void test_json_long_strings(void **state)
{
	size_t n, sizes[] = { 0, 63, 4094, 4095, 4096, 4097, 65535, 65536, 200000 };

	(void)state;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		for (size_t at = 0; at < 5; at++) {
			char *s = xmalloc(sizes[i] + 8);
			struct buf text, again;
			struct json *j;

			for (size_t k = 0; k < sizes[i]; k++)
				s[k] = (char)('!' + k % 90);
			for (size_t k = 0; k < sizes[i]; k++)
				if (s[k] == '"' || s[k] == '\\')
					s[k] = ' ';
			memcpy(s + sizes[i], "\xC3\xA9", 3);
			buf_init(&text);
			buf_init(&again);
			buf_printf(&text, "[1,{\"%s\":\"%s\",\"k\\\"\":[\"%s\",\"\\u00e9%s\",\"%s\\\\\"]},\"%s\"]",
			           at == 0 ? s : "a", at == 1 ? s : "b", at == 2 ? s : "c", at == 3 ? s : "d",
			           at == 4 ? s : "e", s);
			j = parse(text.p);
			assert_non_null(j);
			json_put(&again, j);
			assert_string_equal(json_str(json_at(j, 2), &n), s);
			assert_int_equal(n, sizes[i] + 2);
			json_free(j);
			for (char *e; (e = memmem(text.p, text.n, "\\u00e9", 6));) { /* is written as itself */
				memcpy(e, "\xC3\xA9", 2);
				memmove(e + 2, e + 6, text.n - (size_t)(e + 6 - text.p));
				text.n -= 4;
			}
			assert_int_equal(again.n, text.n);
			assert_memory_equal(again.p, text.p, text.n);
			buf_fini(&text);
			buf_fini(&again);
			free(s);
		}
}

/* Strings whose slashes are escaped, as PHP writes base64, beside other escapes. */
static void test_json_slashes(void **state)
{
	static const char *const part[][2] = { { "\\/", "/" },
		                               { "/", "/" },
		                               { "abcdefg", "abcdefg" },
		                               { "\\\\/", "\\/" },
		                               { "\\\\", "\\" },
		                               { "\\\"", "\"" },
		                               { "\\u002f", "/" },
		                               { "\\n\\/", "\n/" },
		                               { "\xC3\xA9", "\xC3\xA9" },
		                               { "\\ud836\\udea8\\/", "\xF0\x9D\xAA\xA8/" } };
	uint64_t seed = 7;
	size_t n;

	(void)state;
	for (int i = 0; i < 400; i++) {
		int parts = 1 << i % 14, kinds = i % 3 ? 3 : 10;
		struct buf text, want;
		struct json *j;
		struct err err;

		buf_init(&text);
		buf_init(&want);
		buf_puts(&text, "[\"");
		for (int k = 0; k < parts; k++) {
			int which = (int)((seed = seed * 6364136223846793005u + 1442695040888963407u) >> 40) % kinds;

			buf_puts(&text, part[which][0]);
			buf_puts(&want, part[which][1]);
		}
		buf_puts(&text, "\",\"\\/\"]");
		j = parse(text.p);
		assert_non_null(j);
		assert_memory_equal(json_str(json_at(j, 0), &n), want.p, want.n);
		assert_int_equal(n, want.n);
		assert_string_equal(json_str(json_at(j, 1), &n), "/");
		json_free(j);
		/* A slash outside a string, and an error's place in the text as it came. */
		n = text.n - 1;
		buf_puts(&text, "\\/");
		assert_null(json_parse(text.p, text.n, 0, &err));
		text.n = n;
		buf_printf(&text, ",\\/1]");
		assert_null(json_parse(text.p, text.n, 0, &err));
		text.n = n;
		buf_printf(&text, " x]");
		assert_null(json_parse(text.p, text.n, 0, &err));
		buf_reset(&want);
		buf_printf(&want, "at byte %zu", n + 1);
		if (!strstr(err.msg, want.p))
			fail_msg("\"%s\", not \"%s\"", err.msg, want.p);
		buf_fini(&text);
		buf_fini(&want);
	}
}

/* An error behind, in, or before a long string names its byte. */
static void test_json_long_errors(void **state)
{
	enum { N = 5000 };
	static const struct {
		const char *before, *after, *why;
	} bad[] = {
		{ "[\"", "\" 1]", "at byte 5004" },
		{ "[\"", "\n\"]", "control character in a string, at byte 5002" },
		{ "[\"", "\xff\"]", "invalid UTF-8 at byte 5002" },
		{ "[\"", "", "ends after 5002 bytes" },
		{ "[\"", "\\", "at byte 5003" },
		{ "[\"", "\"", "ends after 5003 bytes" },
		{ "{\"", "\"}", "at byte 5003" },
		{ "[1 \"", "\"]", "at byte 3" },
		{ "1 \"", "\"", "at byte 2" },
		{ "1 \"", "\\", "at byte 2" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct buf b;
		struct err err;

		buf_init(&b);
		buf_puts(&b, bad[i].before);
		for (int k = 0; k < N; k++)
			buf_putc(&b, 'x');
		buf_puts(&b, bad[i].after);
		assert_null(json_parse(b.p, b.n, 0, &err));
		if (!strstr(err.msg, bad[i].why))
			fail_msg("%zu: \"%s\", not \"%s\"", i, err.msg, bad[i].why);
		buf_fini(&b);
	}
}

static void test_json_values(void **state)
{
	struct json *j = parse(
		"{\"i\":-9223372036854775808,\"d\":1.0,\"e\":1e3,\"n\":null,\"s\":\"a\\u0000b\",\"l\":[1,[2]]}");
	struct json_cursor c;
	const struct json *v;
	const char *key, *s;
	int64_t i;
	double d;
	size_t n, count = 0;
	struct buf b;

	assert_non_null(j);
	assert_int_equal(json_to_int(json_get(j, "i"), &i), 0);
	assert_true(i == INT64_MIN);
	assert_int_equal(json_to_int(json_get(j, "d"), &i), E_ARG);
	assert_int_equal(json_to_double(json_get(j, "d"), &d), 0);
	assert_string_equal(json_number_text(json_get(j, "d")), "1.0");
	assert_string_equal(json_number_text(json_get(j, "e")), "1e3");
	assert_null(json_get(j, "absent"));
	assert_non_null(json_get(j, "n"));
	assert_int_equal(json_kind(json_get(j, "n")), JSON_NULL);
	s = json_str(json_get(j, "s"), &n);
	assert_int_equal(n, 3);
	assert_memory_equal(s, "a\0b", 3);
	assert_int_equal(json_len(json_get(j, "l")), 2);
	for (c = json_first(j); json_next(&c, &key, &v);)
		count++;
	assert_int_equal(count, 6);
	buf_init(&b);
	json_put(&b, j);
	assert_string_equal(
		b.p, "{\"i\":-9223372036854775808,\"d\":1.0,\"e\":1e3,\"n\":null,\"s\":\"a\\u0000b\",\"l\":[1,[2]]}");
	buf_fini(&b);
	json_free(j);
}

/* Of a value that two have, one frees its own piece by piece, as a request does, and the other's stays whole. */
static void test_json_building(void **state)
{
	struct json *j = parse("{\"a\":{\"x\":[1.0,{\"y\":null}]},\"b\":2,\"c\":[[7]]}");
	struct json *own = json_copy(j), *list = json_new_array(), *shared, *whole;
	struct allowance w;
	struct buf b;

	json_set_cstr(own, "b", "two");
	json_drop(own, "c");
	json_set(own, "d", json_share(json_get(j, "n")));
	json_set_bool(own, "e", true);
	json_add(list, own);
	json_add(list, json_copy(json_get(json_get(j, "a"), "x")));
	json_add(list, json_share(json_get(j, "c")));
	json_add(list, json_new_int(INT64_MIN));
	json_add(list, json_new_bytes("\xC3\xA4\xFF\xE2\x82", 5));
	json_add(list, json_new_array());
	json_add(list, json_new_array());
	json_cut(list, 5);
	json_cut(list, 6);
	buf_init(&b);
	json_put(&b, list);
	assert_string_equal(
		b.p, "[{\"a\":{\"x\":[1.0,{\"y\":null}]},\"b\":\"two\",\"d\":null,\"e\":true},"
		     "[1.0,{\"y\":null}],[[7]],-9223372036854775808,\"\xC3\xA4\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"]");
	buf_reset(&b);
	allowance_begin(&w, 0, NULL);
	json_free(list);
	json_put(&b, j);
	assert_string_equal(b.p, "{\"a\":{\"x\":[1.0,{\"y\":null}]},\"b\":2,\"c\":[[7]]}");
	/* j's containers have, or had, other owners, which a copy of the whole has not. */
	shared = json_share(json_get(j, "a"));
	whole = json_copy_whole(j);
	json_free(shared);
	buf_reset(&b);
	json_free(j);
	json_put(&b, whole);
	assert_string_equal(b.p, "{\"a\":{\"x\":[1.0,{\"y\":null}]},\"b\":2,\"c\":[[7]]}");
	json_free(whole);
	allowance_end();
	allowance_settle(&w);
	buf_fini(&b);
}

static void test_json_refuses(void **state)
{
	static const char *const bad[] = { "",          " ",          "{",        "[1,]", "nul",   "NaN", "[Infinity]",
		                           "-Infinity", "{\"a\":1}x", "\"\xff\"", "'a'",  "[1 2]", "01",  "\"\n\"" };
	struct err e;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		e.msg[0] = 0;
		if (json_parse(bad[i], strlen(bad[i]), 0, &e))
			fail_msg("accepted: %s", bad[i]);
		assert_true(strncmp(e.msg, "JSON", 4) == 0);
	}
	assert_null(json_parse("[[[[1]]]]", 9, 3, &e));
	assert_non_null(parse("null"));
	json_free(parse("null"));
	/* A word inside a string is only text. */
	struct json *ok = parse("[\"NaN 99999999999999999999\", 12]");
	assert_non_null(ok);
	json_free(ok);
	struct json *num = parse("12");
	assert_non_null(num);
	json_free(num);
}

/* Integers beyond 64 bits are integers whose digits are kept; a byte order mark in front is left out. */
static void test_json_large(void **state)
{
	static const char *const whole[] = {
		"9223372036854775808",   "-9223372036854775809",
		"18446744073709551615",  "1000000000000000019884624838656",
		"123456789012345678901", "99999999999999999999999999999999999999999999999999"
	};

	for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
		struct json *j;
		struct buf in, out;
		int64_t v;
		double d;

		buf_init(&in);
		buf_init(&out);
		buf_printf(&in, "{\"a\":[1,\"%s\",{\"b\":%s}],\"c\":%s,\"d\":1e3}", whole[i], whole[i], whole[i]);
		j = parse(in.p);
		assert_non_null(j);
		assert_int_equal(json_kind(json_get(j, "c")), JSON_INT);
		assert_int_equal(json_kind(json_get(j, "d")), JSON_DOUBLE);
		assert_int_equal(json_to_int(json_get(j, "c"), &v), E_ARG);
		assert_int_equal(json_to_whole(json_get(j, "c"), &v), E_ARG);
		assert_int_equal(json_to_double(json_get(j, "c"), &d), 0);
		assert_true(d == strtod(whole[i], NULL));
		assert_string_equal(json_number_text(json_get(j, "c")), whole[i]);
		json_put(&out, j);
		assert_string_equal(out.p, in.p);
		buf_fini(&in);
		buf_fini(&out);
		json_free(j);
	}
	struct json *j = parse("\xEF\xBB\xBF{\"a\":[4096.0,3e0,0.5,9223372036854775807]}");
	int64_t v = 0;

	assert_non_null(j);
	assert_int_equal(json_to_whole(json_at(json_get(j, "a"), 0), &v), 0);
	assert_int_equal(v, 4096);
	assert_int_equal(json_to_whole(json_at(json_get(j, "a"), 1), &v), 0);
	assert_int_equal(v, 3);
	assert_int_equal(json_to_whole(json_at(json_get(j, "a"), 2), &v), E_ARG);
	assert_int_equal(json_to_int(json_at(json_get(j, "a"), 3), &v), 0);
	assert_true(v == INT64_MAX);
	json_free(j);
}

/* Escaped surrogate pairs, also after an escaped backslash; lone halves become U+FFFD. */
static void test_json_pairs(void **state)
{
	static const struct {
		const char *in, *out;
	} t[] = {
		{ "\"\\ud836\\udea8\"", "\xF0\x9D\xAA\xA8" },
		{ "\"a\\ud83d\\ude00b\\u00e9\"", "a\xF0\x9F\x98\x80"
		                                 "b\xC3\xA9" },
		{ "\"\\\\ud836\\\\udea8\"", "\\ud836\\udea8" },
		{ "\"\\ud836 \"", "\xEF\xBF\xBD " },
		{ "\"\\ud83d\\ude00\\uD83D\\uDE00\"", "\xF0\x9F\x98\x80\xF0\x9F\x98\x80" },
	};

	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		struct json *j = parse(t[i].in);

		assert_non_null(j);
		assert_string_equal(json_str(j, NULL), t[i].out);
		json_free(j);
	}
}

static void test_json_double(void **state)
{
	static const struct {
		double v;
		const char *s;
	} t[] = { { 0.1, "0.1" }, { 1, "1" }, { 1e300, "1e+300" }, { 1.0 / 3, "0.3333333333333333" } };
	struct buf b;

	buf_init(&b);
	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		buf_reset(&b);
		json_put_double(&b, t[i].v);
		assert_string_equal(b.p, t[i].s);
	}
	buf_fini(&b);
}

static void test_utf8(void **state)
{
	uint32_t cp, back;
	char s[4];

	for (cp = 0; cp <= 0x10FFFF; cp++) {
		if (cp >= 0xD800 && cp <= 0xDFFF)
			continue;
		int n = utf8_encode(cp, s);

		assert_int_equal(utf8_decode(s, (size_t)n, &back), n);
		assert_int_equal(back, cp);
		for (int k = 1; k < n; k++) {
			assert_int_equal(utf8_decode(s, (size_t)k, &back), 0);
			assert_int_equal(utf8_incomplete_tail(s, (size_t)k), k);
		}
		assert_int_equal(utf8_incomplete_tail(s, (size_t)n), 0);
	}
	assert_int_equal(utf8_valid("ab\xC0\x80", 4), 2);         /* overlong */
	assert_int_equal(utf8_valid("\xED\xA0\x80", 3), 0);       /* surrogate */
	assert_int_equal(utf8_valid("\xF4\x90\x80\x80", 4), 0);   /* above U+10FFFF */
	assert_int_equal(utf8_incomplete_tail("\xED\xA0", 2), 0); /* can never complete */
}

struct sum {
	atomic_long total;
	atomic_int calls[1000];
};

static void add(void *ctx, int part)
{
	struct sum *s = ctx;

	atomic_fetch_add(&s->total, part);
	atomic_fetch_add(&s->calls[part], 1);
}

static void test_pool(void **state)
{
	static struct sum s;

	for (int threads = 1; threads <= 5; threads++) {
		struct pool *p = pool_new(threads);

		for (int round = 0; round < 3000; round++) {
			int n = round * 7 % 100 + (round % 500 == 0 ? 900 : 0);

			memset(&s, 0, sizeof s);
			if (round % 2) {
				int begin[6] = { 0 }; /* runs of any length, none too */

				for (int i = 1; i < threads; i++)
					begin[i] = begin[i - 1] + (int)(rng_bits(1, (uint64_t)round, (uint64_t)i) %
					                                (uint64_t)(n - begin[i - 1] + 1));
				begin[threads] = n;
				pool_run_cut(p, add, &s, begin);
			} else {
				pool_run(p, add, &s, n);
			}
			assert_true(atomic_load(&s.total) == (long)n * (n - 1) / 2);
			for (int i = 0; i < 1000; i++)
				assert_int_equal(atomic_load(&s.calls[i]), i < n);
		}
		pool_free(p);
	}
}

static void test_rng(void **state)
{
	double mean = 0;
	int bucket[16] = { 0 };

	assert_true(rng_bits(1, 2, 3) == rng_bits(1, 2, 3));
	assert_true(rng_bits(1, 2, 3) != rng_bits(1, 3, 2));
	for (int i = 0; i < 160000; i++) {
		double u = rng_uniform(42, (uint64_t)i / 400, (uint64_t)i % 400);

		assert_true(u > 0 && u < 1);
		mean += u;
		bucket[(int)(u * 16)]++;
	}
	mean /= 160000;
	/* Five standard deviations: 5 / sqrt(12 * 160000), and 5 * sqrt(10000). */
	assert_true(mean > 0.5 - 0.0037 && mean < 0.5 + 0.0037);
	for (int i = 0; i < 16; i++)
		assert_in_range(bucket[i], 9500, 10500);
}

static void do_nothing(void *arg)
{
	*(int *)arg += 1;
}
static void do_assert(void *arg)
{
	assert(!*(int *)arg);
}
static void do_overflow(void *arg)
{
	size_mul(SIZE_MAX, *(size_t *)arg);
}

static void do_nested(void *arg)
{
	int zero = 0, one = 1;

	assert_false(fault_guard(do_assert, &one));
	assert_true(fault_guard(do_assert, &zero));
	*(int *)arg = 1;
	assert_false(fault_guard(do_assert, &one));
	do_assert(&one);
}

/* Allocates a dozen times in several ways; what it has is in arg, so nothing is lost. */
static void do_allocate(void *arg)
{
	void **p = arg;

	for (int i = 0; i < 4; i++) {
		p[3 * i] = xmalloc(10);
		p[3 * i + 1] = xcalloc(3, 5);
		p[3 * i + 2] = xstrdup("text");
	}
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_free(pthread_mutex_t *m)
{
	if (pthread_mutex_trylock(m))
		return false;
	pthread_mutex_unlock(m);
	return true;
}

static void do_locked(void *arg)
{
	fault_locked(&lock, do_assert, arg);
}

/* Broken off while it holds the lock: nobody may go on as if nothing had happened. */
static void do_hold(void *arg)
{
	fault_lock(&lock);
	do_assert(arg);
	fault_unlock(&lock);
}

/* What is within the lock alone may break off, and it is still there. */
static void do_hold_guarded(void *arg)
{
	fault_lock(&lock);
	assert_false(fault_guard(do_assert, arg));
	assert_false(is_free(&lock));
	fault_unlock(&lock);
}

static void test_fault_locks(void **state)
{
	int zero = 0, one = 1, status;
	pid_t child;

	assert_true(fault_guard(do_locked, &zero));
	assert_true(is_free(&lock));
	assert_false(fault_guard(do_locked, &one));
	assert_true(is_free(&lock));
	assert_true(fault_guard(do_hold, &zero));
	assert_true(is_free(&lock));
	assert_true(fault_guard(do_hold_guarded, &one));
	assert_true(is_free(&lock));
	assert_false(fault_guard(do_assert, &one));
	child = fork();
	if (!child) {
		fault_guard(do_hold, &one);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void do_foreign(void *arg)
{
	(void)arg;
	abort();
}

/* An abort that is not this program's own (the allocator's, a library's) ends the process, within a
 * guard too, and says so. */
static void test_fault_foreign(void **state)
{
	char said[500] = "";
	int status, out[2];
	pid_t child;

	assert_int_equal(pipe(out), 0);
	child = fork();
	if (!child) {
		dup2(out[1], STDERR_FILENO);
		fault_install();
		fault_guard(do_foreign, NULL);
		_exit(0);
	}
	close(out[1]);
	assert_true(read(out[0], said, sizeof said - 1) > 0);
	close(out[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	assert_non_null(strstr(said, "aborted outside of any guarded work"));
}

static void *do_in_thread(void *arg)
{
	int one = 1, n = 0;

	for (int i = 0; i < 200; i++) {
		assert(!fault_guard(do_assert, &one));
		assert(fault_guard(do_nothing, &n));
	}
	*(int *)arg = n;
	return NULL;
}

static void test_fault(void **state)
{
	int n = 0, failed = 0;
	size_t two = 2;
	pthread_t thread[4];
	int got[4] = { 0 };
	void *p[12];

	assert_true(fault_guard(do_nothing, &n));
	assert_false(fault_guard(do_overflow, &two));
	assert_int_equal(n, 1);
	n = 0;
	assert_false(fault_guard(do_nested, &n));
	assert_int_equal(n, 1);
	for (int nth = 1; nth < 20; nth++) {
		int have = 0;

		memset(p, 0, sizeof p);
		fault_alloc_at(nth);
		failed += !fault_guard(do_allocate, p);
		fault_alloc_at(0);
		for (int i = 0; i < 12; i++) {
			have += p[i] != NULL;
			free(p[i]);
		}
		assert_int_equal(have, nth <= 12 ? nth - 1 : 12);
	}
	assert_int_equal(failed, 12);
	/* Outside of guards nothing is counted. */
	memset(p, 0, sizeof p);
	fault_alloc_guarded_at(3);
	free(xmalloc(1));
	free(xmalloc(1));
	free(xmalloc(1));
	assert_false(fault_guard(do_allocate, p));
	assert_true(p[1] && !p[2]);
	free(p[0]);
	free(p[1]);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, do_in_thread, &got[i]), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(thread[i], NULL);
		assert_int_equal(got[i], 200);
	}
}

/* A mask leaves a level and those below it, and is taken away again. */
static void test_cpu_mask(void **state)
{
	enum cpu_level best = cpu_detect();

	cpu_mask(CPU_SCALAR);
	assert_int_equal(cpu_detect(), CPU_SCALAR);
	assert_int_equal(cpu_level_next(CPU_SCALAR), CPU_LEVELS);
	for (enum cpu_level l = CPU_SCALAR; l < CPU_LEVELS; l++) {
		cpu_mask(CPU_LEVELS);
		if (!cpu_has(l))
			continue;
		cpu_mask(l);
		for (enum cpu_level k = CPU_SCALAR; k < CPU_LEVELS; k++)
			assert_int_equal(cpu_has(k), cpu_level_includes(l, k));
	}
	cpu_mask(CPU_LEVELS);
	assert_int_equal(cpu_detect(), best);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_err),           cmocka_unit_test(test_buf),
		cmocka_unit_test(test_arena),         cmocka_unit_test(test_base64),
		cmocka_unit_test(test_base64_long),   cmocka_unit_test(test_json_long_strings),
		cmocka_unit_test(test_json_slashes),  cmocka_unit_test(test_json_long_errors),
		cmocka_unit_test(test_json_values),   cmocka_unit_test(test_json_refuses),
		cmocka_unit_test(test_json_large),    cmocka_unit_test(test_json_pairs),
		cmocka_unit_test(test_json_double),   cmocka_unit_test(test_utf8),
		cmocka_unit_test(test_pool),          cmocka_unit_test(test_rng),
		cmocka_unit_test(test_fault),         cmocka_unit_test(test_fault_locks),
		cmocka_unit_test(test_fault_foreign), cmocka_unit_test(test_cpu_mask),
		cmocka_unit_test(test_json_building),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
