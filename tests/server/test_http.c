/* The HTTP parser against a table of what it must read and what it must refuse,
 * each fed whole and byte by byte. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/http/http.h"

static const struct http_limits limits = { .head_max = 32 << 10, .target_max = 8 << 10, .body_max = 1000 };
static int failed;

#define H "Host: h\r\n"

static const struct {
	const char *what, *bytes;
	size_t n;         /* 0: strlen */
	int code;         /* 0: accepted */
	const char *body; /* of an accepted one */
} table[] = {
	{ "plain GET", "GET /a HTTP/1.1\r\n" H "\r\n", 0, 0, "" },
	{ "length", "POST /a HTTP/1.1\r\n" H "Content-Length: 3\r\n\r\nabc", 0, 0, "abc" },
	{ "chunked",
	  "POST /a HTTP/1.1\r\n" H "Transfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n0A;n=v\r\n0123456789\r\n0\r\n\r\n", 0,
	  0, "abc0123456789" },
	{ "trailer", "POST /a HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: y\r\nZ: 1\r\n\r\n",
	  0, 0, "a" },
	{ "empty line first", "\r\nGET /a HTTP/1.1\r\n" H "\r\n", 0, 0, "" },
	{ "1.0 without Host", "GET /a HTTP/1.0\r\n\r\n", 0, 0, "" },
	{ "absolute form", "GET http://x:1/a HTTP/1.1\r\n" H "\r\n", 0, 0, "" },
	{ "blanks around a value", "GET /a HTTP/1.1\r\nHost:\t h \t\r\nX:\r\n\r\n", 0, 0, "" },
	{ "asterisk", "OPTIONS * HTTP/1.1\r\n" H "\r\n", 0, 0, "" },

	{ "two equal lengths", "POST /a HTTP/1.1\r\n" H "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 0, 400,
	  0 },
	{ "two lengths", "POST /a HTTP/1.1\r\n" H "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc", 0, 400, 0 },
	{ "list of lengths", "POST /a HTTP/1.1\r\n" H "Content-Length: 3, 3\r\n\r\nabc", 0, 400, 0 },
	{ "signed length", "POST /a HTTP/1.1\r\n" H "Content-Length: +3\r\n\r\nabc", 0, 400, 0 },
	{ "negative length", "POST /a HTTP/1.1\r\n" H "Content-Length: -3\r\n\r\nabc", 0, 400, 0 },
	{ "hexadecimal length", "POST /a HTTP/1.1\r\n" H "Content-Length: 0x3\r\n\r\nabc", 0, 400, 0 },
	{ "empty length", "POST /a HTTP/1.1\r\n" H "Content-Length:\r\n\r\nabc", 0, 400, 0 },
	{ "length over the limit", "POST /a HTTP/1.1\r\n" H "Content-Length: 1001\r\n\r\n", 0, 413, 0 },
	{ "length over 64 bits", "POST /a HTTP/1.1\r\n" H "Content-Length: 99999999999999999999\r\n\r\n", 0, 413, 0 },
	{ "length and chunked",
	  "POST /a HTTP/1.1\r\n" H "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0, 400, 0 },
	{ "chunked and length",
	  "POST /a HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 0, 400, 0 },
	{ "chunked twice",
	  "POST /a HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0, 400,
	  0 },
	{ "gzip coding", "POST /a HTTP/1.1\r\n" H "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 0, 501, 0 },
	{ "identity coding", "POST /a HTTP/1.1\r\n" H "Transfer-Encoding: identity\r\n\r\n", 0, 501, 0 },
	{ "disguised coding", "POST /a HTTP/1.1\r\n" H "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", 0, 501, 0 },
	{ "chunked in 1.0", "POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0, 400, 0 },
	{ "blank before the colon", "GET /a HTTP/1.1\r\nHost : h\r\n\r\n", 0, 400, 0 },
	{ "folded line", "GET /a HTTP/1.1\r\n" H "X: 1\r\n\t2\r\n\r\n", 0, 400, 0 },
	{ "folded first line", "GET /a HTTP/1.1\r\n X: 1\r\n" H "\r\n", 0, 400, 0 },
	{ "line feeds alone", "GET /a HTTP/1.1\nHost: h\n\n", 0, 400, 0 },
	{ "line feed in a header", "GET /a HTTP/1.1\r\nHost: h\nX: y\r\n\r\n", 0, 400, 0 },
	{ "carriage return in a header", "GET /a HTTP/1.1\r\nHost: h\rX: y\r\n\r\n", 0, 400, 0 },
	{ "NUL in a value", "GET /a HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n", 38, 400, 0 },
	{ "control byte in a value", "GET /a HTTP/1.1\r\nHost: h\r\nX: a\x01\r\n\r\n", 0, 400, 0 },
	{ "control byte in a name", "GET /a HTTP/1.1\r\nHost: h\r\nX\x7f: a\r\n\r\n", 0, 400, 0 },
	{ "empty name", "GET /a HTTP/1.1\r\nHost: h\r\n: a\r\n\r\n", 0, 400, 0 },
	{ "no colon", "GET /a HTTP/1.1\r\nHost: h\r\nX\r\n\r\n", 0, 400, 0 },
	{ "no Host", "GET /a HTTP/1.1\r\n\r\n", 0, 400, 0 },
	{ "two Hosts", "GET /a HTTP/1.1\r\n" H H "\r\n", 0, 400, 0 },
	{ "odd Host", "GET /a HTTP/1.1\r\nHost: a b\r\n\r\n", 0, 400, 0 },
	{ "HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0, 505, 0 },
	{ "HTTP/0.9", "GET /a\r\n", 0, 400, 0 },
	{ "two blanks", "GET  /a HTTP/1.1\r\n" H "\r\n", 0, 400, 0 },
	{ "blank at the end", "GET /a HTTP/1.1 \r\n" H "\r\n", 0, 400, 0 },
	{ "lower-case version", "GET /a http/1.1\r\n" H "\r\n", 0, 400, 0 },
	{ "no path", "GET a HTTP/1.1\r\n" H "\r\n", 0, 400, 0 },
	{ "eight-bit target", "GET /\xc3\xa4 HTTP/1.1\r\n" H "\r\n", 0, 400, 0 },
	{ "odd method", "G(T /a HTTP/1.1\r\n" H "\r\n", 0, 400, 0 },
	{ "TLS hello", "\x16\x03\x01\x02", 4, 0, NULL },
	{ "0x chunk", "POST /a HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n", 0, 400, 0 },
	{ "blank in a chunk size", "POST /a HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n3 \r\nabc\r\n0\r\n\r\n",
	  0, 400, 0 },
	{ "signed chunk size", "POST /a HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n+3\r\nabc\r\n0\r\n\r\n", 0,
	  400, 0 },
	{ "no chunk size", "POST /a HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n\r\n", 0, 400, 0 },
	{ "chunk size and LF", "POST /a HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n", 0, 400,
	  0 },
	{ "chunk too long", "POST /a HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", 0, 400,
	  0 },
	{ "LF in an extension", "POST /a HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n3;\n\r\nabc\r\n0\r\n\r\n",
	  0, 400, 0 },
	{ "chunk over the limit", "POST /a HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n3E9\r\n", 0, 413, 0 },
	{ "huge chunk", "POST /a HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n", 0, 413, 0 },
	{ "many zeros", "POST /a HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n00000000000000000003\r\n", 0, 400,
	  0 },
	{ "folded trailer", "POST /a HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n z\r\n\r\n", 0,
	  400, 0 },
	{ "other expectation", "POST /a HTTP/1.1\r\n" H "Expect: tea\r\n\r\n", 0, 417, 0 },
};

static enum http_status feed(struct http *h, const char *p, size_t n, size_t step, struct buf *body)
{
	size_t at = 0;

	for (;;) {
		size_t len = n - at < step ? n - at : step, used;
		enum http_status s = http_feed(h, p + at, len, &used, body);

		at += used;
		if (s == HTTP_DONE || s == HTTP_BAD)
			return s;
		if (s == HTTP_MORE && at == n)
			return s;
	}
}

static void one(size_t i, size_t step)
{
	const char *p = table[i].bytes;
	size_t n = table[i].n ? table[i].n : strlen(p);
	enum http_status s, want = table[i].code ? HTTP_BAD : table[i].body ? HTTP_DONE : HTTP_MORE;
	struct http h;
	struct buf body;

	http_init(&h, &limits);
	buf_init(&body);
	s = feed(&h, p, n, step, &body);
	if (s != want || h.code != table[i].code) {
		printf("%s, cut at %zu: status %d code %d (%s), expected %d code %d\n", table[i].what, step, s, h.code,
		       h.why ? h.why : "", want, table[i].code);
		failed++;
	} else if (s == HTTP_DONE && strcmp(body.p, table[i].body)) {
		printf("%s, cut at %zu: body \"%s\"\n", table[i].what, step, body.p);
		failed++;
	}
	http_fini(&h);
	buf_fini(&body);
}

static void expect(const char *what, int ok)
{
	if (!ok) {
		printf("%s\n", what);
		failed++;
	}
}

/* A head of n fields of the given size each: the code, 0 for accepted. */
static int many_fields(int n, int size)
{
	struct http h;
	struct buf b, body;
	int code;

	http_init(&h, &limits);
	buf_init(&b);
	buf_init(&body);
	buf_puts(&b, "GET / HTTP/1.1\r\nHost: h\r\n");
	for (int i = 1; i < n; i++)
		buf_printf(&b, "X%d: %0*d\r\n", i, size, 0);
	buf_puts(&b, "\r\n");
	feed(&h, b.p, b.n, 777, &body);
	code = h.code;
	buf_fini(&b);
	buf_fini(&body);
	http_fini(&h);
	return code;
}

static int long_target(int n, bool end)
{
	struct http h;
	struct buf b, body;
	int code;

	http_init(&h, &limits);
	buf_init(&b);
	buf_init(&body);
	buf_printf(&b, "GET /%0*d", n - 1, 0);
	if (end)
		buf_puts(&b, " HTTP/1.1\r\nHost: h\r\n\r\n");
	feed(&h, b.p, b.n, 1000, &body);
	code = h.code;
	buf_fini(&b);
	buf_fini(&body);
	http_fini(&h);
	return code;
}

static void head_values(void)
{
	static const char text[] = "POST http://x/v1/m%2Fq?a=1&b HTTP/1.1\r\nHost: h\r\nconTENT-type:  text/x \r\n"
				   "Expect: 100-Continue\r\nConnection: x, Close\r\nContent-Length: 2\r\n\r\nhiGET";
	struct http h;
	struct buf body, path;
	size_t used, at, bad = 0;

	http_init(&h, &limits);
	buf_init(&body);
	buf_init(&path);
	expect("fresh parser is idle", http_idle(&h));
	expect("head", http_feed(&h, text, sizeof text - 1, &used, &body) == HTTP_HEAD);
	at = used;
	expect("method", http_slice_is(h.method, "POST"));
	expect("path", http_slice_is(h.path, "/v1/m%2Fq"));
	expect("query", http_slice_is(h.query, "a=1&b"));
	expect("unescaped", http_unescape(h.path, &path, &bad) == 0 && !strcmp(path.p, "/v1/m/q"));
	expect("field", http_slice_is(http_field(&h, "content-type"), "text/x"));
	expect("absent field", !http_field(&h, "accept").p);
	expect("flags", h.expect_continue && !h.keep_alive && h.length == 2 && !h.chunked && h.minor == 1);
	expect("done", http_feed(&h, text + at, sizeof text - 1 - at, &used, &body) == HTTP_DONE);
	expect("body", !strcmp(body.p, "hi"));
	expect("the rest is left", !strcmp(text + at + used, "GET"));
	http_reset(&h);
	expect("idle again", http_idle(&h));
	expect("bad escape", http_unescape((struct http_slice){ "a%20%0", 6 }, &path, &bad) != 0 && bad == 4);
	expect("zero escape", http_unescape((struct http_slice){ "a%00", 4 }, &path, &bad) != 0 && bad == 1);
	http_fini(&h);
	buf_fini(&body);
	buf_fini(&path);
}

int main(void)
{
	static const size_t steps[] = { 100000, 1, 2, 7 };

	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
			one(i, steps[s]);
	expect("100 fields", many_fields(100, 10) == 0);
	expect("101 fields", many_fields(101, 10) == 431);
	expect("header of 40 KB", many_fields(50, 800) == 431);
	expect("header of 30 KB", many_fields(50, 600) == 0);
	expect("target of 8 KB", long_target(8 << 10, true) == 0);
	expect("target too long", long_target((8 << 10) + 1, true) == 414);
	expect("target too long, no end", long_target(9 << 10, false) == 414);
	head_values();
	if (failed)
		printf("%d failed\n", failed);
	return failed != 0;
}
