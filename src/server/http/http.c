/* http.c - see http.h.  RFC 9110 (semantics) and RFC 9112 (messages) by section. */
#include "server/http/http.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"

enum { START, LINE, FIELDS, HEAD_DONE, BODY, CHUNK_SIZE, CHUNK_DATA, CHUNK_END, TRAILER, FINISHED, BAD };

void http_init(struct http *h, const struct http_limits *limits)
{
	memset(h, 0, sizeof *h);
	h->limits = *limits;
	h->head_cap = limits->head_max;
	buf_init(&h->head);
	h->length = -1;
}

void http_fini(struct http *h)
{
	buf_fini(&h->head);
}

void http_reset(struct http *h)
{
	struct http_limits limits = h->limits;

	http_fini(h);
	http_init(h, &limits);
}

bool http_idle(const struct http *h)
{
	return h->state == START && h->head.n == 0;
}

static enum http_status refuse(struct http *h, int code, const char *why)
{
	h->state = BAD;
	h->code = code;
	h->why = why;
	return HTTP_BAD;
}

bool http_slice_is(struct http_slice s, const char *text)
{
	return s.n == strlen(text) && (!s.n || memcmp(s.p, text, s.n) == 0);
}

static bool slice_is_nocase(struct http_slice s, const char *text)
{
	return s.n == strlen(text) && strncasecmp(s.p, text, s.n) == 0;
}

/* tchar of RFC 9110, 5.6.2. */
static bool is_token(unsigned char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c && strchr("!#$%&'*+-.^_`|~", c));
}

int http_hex_value(unsigned char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

static struct http_slice slice(const struct http *h, size_t at, size_t n)
{
	return (struct http_slice){ h->head.p + at, n };
}

struct http_slice http_field(const struct http *h, const char *name)
{
	for (int i = 0; i < h->n_field; i++) {
		const struct http_field *f = &h->field[i];

		if (slice_is_nocase(slice(h, f->name, f->n_name), name))
			return slice(h, f->value, f->n_value);
	}
	return (struct http_slice){ 0 };
}

int http_unescape(struct http_slice s, struct buf *out, size_t *bad)
{
	for (size_t i = 0; i < s.n; i++) {
		int c = (unsigned char)s.p[i], hi, lo;

		if (c == '%') {
			hi = s.n - i < 3 ? -1 : http_hex_value((unsigned char)s.p[i + 1]);
			lo = s.n - i < 3 ? -1 : http_hex_value((unsigned char)s.p[i + 2]);
			c = hi < 0 || lo < 0 ? 0 : hi * 16 + lo;
		}
		if (!c) {
			*bad = i;
			return E_FORMAT;
		}
		buf_putc(out, c);
		i += s.p[i] == '%' ? 2 : 0;
	}
	return 0;
}

/* The target's forms (RFC 9112, 3.2): origin, absolute (http or https, whose
 * authority is skipped), and "*". */
static enum http_status read_target(struct http *h, struct http_slice t)
{
	const char *mark;
	size_t skip = 0;

	for (size_t i = 0; i < t.n; i++) {
		unsigned char c = (unsigned char)t.p[i];

		if (c <= 0x20 || c >= 0x7f || c == '#' || c == '"' || c == '<' || c == '>' || c == '\\' || c == '^' ||
		    c == '`' || c == '{' || c == '|' || c == '}')
			return refuse(h, 400, "the request target holds a byte that must be percent-encoded");
	}
	if (t.n >= 7 && strncasecmp(t.p, "http://", 7) == 0)
		skip = 7;
	else if (t.n >= 8 && strncasecmp(t.p, "https://", 8) == 0)
		skip = 8;
	if (skip) {
		while (skip < t.n && t.p[skip] != '/' && t.p[skip] != '?')
			skip++;
		if (skip == t.n)
			t = (struct http_slice){ "/", 1 };
		else
			t = (struct http_slice){ t.p + skip, t.n - skip };
	}
	if (!http_slice_is(t, "*") && (!t.n || t.p[0] != '/'))
		return refuse(h, 400, "the request target is not a path");
	h->path = t;
	if ((mark = memchr(t.p, '?', t.n))) {
		h->path.n = (size_t)(mark - t.p);
		h->query = (struct http_slice){ mark + 1, t.n - h->path.n - 1 };
	}
	return HTTP_MORE;
}

/* method SP target SP HTTP/1.x, exactly (RFC 9112, 3). */
static enum http_status read_request_line(struct http *h, struct http_slice l)
{
	size_t m = 0, t, v;

	while (m < l.n && is_token((unsigned char)l.p[m]))
		m++;
	if (m == 0 || m == l.n || l.p[m] != ' ')
		return refuse(h, 400, "the request line does not begin with a method and a space");
	h->method = (struct http_slice){ l.p, m };
	for (t = m + 1; t < l.n && l.p[t] != ' '; t++)
		;
	if (t - m - 1 > h->limits.target_max)
		return refuse(h, 414, "the request target is too long");
	if (t == l.n)
		return refuse(h, 400, "the request line names no protocol version");
	v = l.n - t - 1;
	if (v != 8 || memcmp(l.p + t + 1, "HTTP/", 5) != 0 || l.p[t + 7] != '.' || l.p[t + 6] < '0' ||
	    l.p[t + 6] > '9' || l.p[t + 8] < '0' || l.p[t + 8] > '9')
		return refuse(h, 400, "the request line does not end with an HTTP version");
	if (l.p[t + 6] != '1')
		return refuse(h, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
	h->minor = l.p[t + 8] == '0' ? 0 : 1;
	return read_target(h, (struct http_slice){ l.p + m + 1, t - m - 1 });
}

static enum http_status read_field(struct http *h, size_t at, size_t n, bool keep)
{
	const char *p = h->head.p + at;
	size_t name = 0, v, end = n;

	if (p[0] == ' ' || p[0] == '\t')
		return refuse(h, 400, "a header line is folded");
	while (name < n && is_token((unsigned char)p[name]))
		name++;
	if (name == 0 || name == n || p[name] != ':')
		return refuse(h, 400, "a header line is not a name, a colon at once, and a value");
	for (v = name + 1; v < n && (p[v] == ' ' || p[v] == '\t'); v++)
		;
	while (end > v && (p[end - 1] == ' ' || p[end - 1] == '\t'))
		end--;
	for (size_t i = v; i < end; i++) {
		unsigned char c = (unsigned char)p[i];

		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return refuse(h, 400, "a header value holds a control byte");
	}
	if (!keep)
		return HTTP_MORE;
	if (h->n_field == HTTP_HEADERS_MAX)
		return refuse(h, 431, "too many header fields");
	h->field[h->n_field++] = (struct http_field){ (uint32_t)at, (uint32_t)name, (uint32_t)(at + v),
		                                      (uint32_t)(end - v) };
	return HTTP_MORE;
}

static enum http_status read_length(struct http *h, struct http_slice v)
{
	int64_t n = 0;

	if (h->length >= 0)
		return refuse(h, 400, "more than one Content-Length");
	if (!v.n)
		return refuse(h, 400, "Content-Length is empty");
	for (size_t i = 0; i < v.n; i++) {
		if (v.p[i] < '0' || v.p[i] > '9')
			return refuse(h, 400, "Content-Length is not a number");
		if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, v.p[i] - '0', &n))
			return refuse(h, 413, "Content-Length is larger than the limit of a body");
	}
	h->length = n;
	return HTTP_MORE;
}

/* host[:port] of RFC 3986: the parts that matter for request smuggling. */
static bool host_valid(struct http_slice v)
{
	for (size_t i = 0; i < v.n; i++)
		if (!is_token((unsigned char)v.p[i]) && !strchr("[]:(),;=", v.p[i]))
			return false;
	return true;
}

/* Does the comma-separated list v hold the token? */
static bool list_has(struct http_slice v, const char *token)
{
	size_t i = 0;

	while (i < v.n) {
		size_t from, to;

		while (i < v.n && strchr(" \t,", v.p[i]))
			i++;
		for (from = i; i < v.n && v.p[i] != ','; i++)
			;
		for (to = i; to > from && strchr(" \t", v.p[to - 1]); to--)
			;
		if (slice_is_nocase((struct http_slice){ v.p + from, to - from }, token))
			return true;
	}
	return false;
}

/* The fields that decide where the message ends, and which side continues. */
static enum http_status frame(struct http *h)
{
	int hosts = 0, codings = 0;
	bool closing = false;

	for (int i = 0; i < h->n_field; i++) {
		struct http_slice name = slice(h, h->field[i].name, h->field[i].n_name);
		struct http_slice v = slice(h, h->field[i].value, h->field[i].n_value);

		if (slice_is_nocase(name, "content-length")) {
			if (read_length(h, v) == HTTP_BAD)
				return HTTP_BAD;
		} else if (slice_is_nocase(name, "transfer-encoding")) {
			if (codings++)
				return refuse(h, 400, "more than one Transfer-Encoding");
			if (!v.n)
				return refuse(h, 400, "Transfer-Encoding is empty");
			if (!slice_is_nocase(v, "chunked"))
				return refuse(h, 501, "a transfer coding other than chunked");
			h->chunked = true;
		} else if (slice_is_nocase(name, "host")) {
			if (hosts++)
				return refuse(h, 400, "more than one Host");
			if (!host_valid(v))
				return refuse(h, 400, "Host is not a host and port");
		} else if (slice_is_nocase(name, "connection")) {
			closing |= list_has(v, "close");
		} else if (slice_is_nocase(name, "expect")) {
			if (!slice_is_nocase(v, "100-continue"))
				return refuse(h, 417, "an expectation other than 100-continue");
			h->expect_continue = h->minor == 1;
		}
	}
	if (h->chunked && h->length >= 0)
		return refuse(h, 400, "Content-Length with Transfer-Encoding");
	if (h->chunked && h->minor == 0)
		return refuse(h, 400, "Transfer-Encoding in HTTP/1.0");
	if (h->minor == 1 && !hosts)
		return refuse(h, 400, "HTTP/1.1 without Host");
	/* The length alone decides, before a byte of the body is read. */
	if (h->length > h->limits.body_max)
		return refuse(h, 413, "Content-Length is larger than the limit of a body");
	h->keep_alive = h->minor == 1 && !closing;
	return HTTP_HEAD;
}

/* Takes bytes into head up to and with one LF.  1 when a line is complete: it is
 * head[line .. head.n - 2).  0: more is needed.  -1: refused.  Byte by byte, so
 * that what is refused first does not depend on how the bytes were cut. */
static int take_line(struct http *h, const char *p, size_t n, size_t *used)
{
	while (*used < n) {
		char c = p[(*used)++];
		bool after_cr = h->head.n > h->line && h->head.p[h->head.n - 1] == '\r';

		if (c == 0)
			refuse(h, 400, "a NUL byte in the header");
		else if (c == '\n' && !after_cr)
			refuse(h, 400, "a line ends with LF and no CR");
		else if (c != '\n' && after_cr)
			refuse(h, 400, "a CR that ends no line");
		else if (h->state == LINE && h->head.n >= h->limits.target_max + 64)
			/* 64: room for the method and the version */
			refuse(h, 414, "the request line is too long");
		else if (h->head.n >= h->head_cap)
			refuse(h, 431, "the header is too large");
		if (h->state == BAD)
			return -1;
		buf_putc(&h->head, c);
		if (c == '\n')
			return 1;
	}
	return 0;
}

/* head may have moved while it grew: then the first line is cut again. */
static void recut(struct http *h)
{
	const char *lf = memchr(h->head.p, '\n', h->head.n);

	assert(lf);
	read_request_line(h, (struct http_slice){ h->head.p, (size_t)(lf - h->head.p) - 1 });
}

static enum http_status head_complete(struct http *h)
{
	recut(h);
	if (frame(h) == HTTP_BAD)
		return HTTP_BAD;
	h->state = HEAD_DONE;
	return HTTP_HEAD;
}

static enum http_status feed_head(struct http *h, const char *p, size_t n, size_t *used)
{
	for (;;) {
		int r = take_line(h, p, n, used);
		size_t len = h->head.n - h->line - 2;

		if (r < 0)
			return HTTP_BAD;
		if (r == 0)
			return HTTP_MORE;
		if (h->state == LINE) {
			if (read_request_line(h, slice(h, h->line, len)) == HTTP_BAD)
				return HTTP_BAD;
			h->state = FIELDS;
		} else if (len == 0) {
			return head_complete(h);
		} else if (read_field(h, h->line, len, true) == HTTP_BAD) {
			return HTTP_BAD;
		}
		h->line = h->head.n;
	}
}

/* One byte of "size [; extension] CRLF" (RFC 9112, 7.1). */
static enum http_status feed_chunk_size(struct http *h, unsigned char c)
{
	int v = http_hex_value(c);

	if (++h->line_n > HTTP_CHUNK_LINE_MAX)
		return refuse(h, 400, "the line of a chunk size is too long");
	/* digits: 0.. while digits come, -1 inside the extension, -2 after CR */
	if (h->digits == -2) {
		if (c != '\n')
			return refuse(h, 400, "a CR that ends no line");
		h->line_n = 0;
		h->digits = 0;
		if (h->left > 0) {
			h->state = CHUNK_DATA;
		} else {
			h->state = TRAILER;
			h->line = h->head.n;
			/* The trailer is checked and dropped; it may be as large as a head. */
			h->head_cap += h->head.n;
		}
		return HTTP_MORE;
	}
	if (c == '\r') {
		if (h->digits == 0)
			return refuse(h, 400, "a chunk without a size");
		h->digits = -2;
		return HTTP_MORE;
	}
	if (h->digits == -1) {
		if ((c < 0x20 && c != '\t') || c >= 0x7f)
			return refuse(h, 400, "a chunk extension holds a control byte");
		return HTTP_MORE;
	}
	if (v >= 0) {
		/* 15 digits keep the sum far below 2^63. */
		if (++h->digits > 15)
			return refuse(h, 400, "a chunk size has too many digits");
		h->left = h->left * 16 + v;
		if (h->body_n + h->left > h->limits.body_max)
			return refuse(h, 413, "the chunks are larger than the limit of a body");
		return HTTP_MORE;
	}
	if (c == ';' && h->digits > 0) {
		h->digits = -1;
		return HTTP_MORE;
	}
	return refuse(h, 400, "a chunk size is not a hexadecimal number");
}

static enum http_status feed_trailer(struct http *h, const char *p, size_t n, size_t *used)
{
	int r = take_line(h, p, n, used);
	size_t len = h->head.n - h->line - 2;

	if (r < 0)
		return HTTP_BAD;
	if (r == 0)
		return HTTP_MORE;
	if (len && read_field(h, h->line, len, false) == HTTP_BAD)
		return HTTP_BAD;
	h->line = h->head.n;
	if (len == 0) {
		recut(h);
		h->state = FINISHED;
	}
	return HTTP_MORE;
}

static void take_body(struct http *h, const char *p, size_t n, size_t *used, struct buf *body)
{
	size_t take = n - *used;

	if ((int64_t)take > h->left)
		take = (size_t)h->left;
	buf_put(body, p + *used, take);
	*used += take;
	h->left -= (int64_t)take;
	h->body_n += (int64_t)take;
}

enum http_status http_feed(struct http *h, const char *p, size_t n, size_t *used, struct buf *body)
{
	*used = 0;
	for (;;) {
		switch (h->state) {
		case START:
			/* One empty line before a request is read over (RFC 9112, 2.2). */
			if (*used == n)
				return HTTP_MORE;
			if (h->head.n == 0 && p[*used] == '\r') {
				buf_putc(&h->head, '\r');
				++*used;
				break;
			}
			if (h->head.n == 1) {
				if (p[*used] != '\n')
					return refuse(h, 400, "a CR that ends no line");
				buf_reset(&h->head);
				++*used;
			}
			h->state = LINE;
			break;
		case LINE:
		case FIELDS: {
			enum http_status s = feed_head(h, p, n, used);

			return s;
		}
		case HEAD_DONE:
			h->left = h->length > 0 ? h->length : 0;
			h->state = h->chunked ? CHUNK_SIZE : h->left > 0 ? BODY : FINISHED;
			break;
		case BODY:
			take_body(h, p, n, used, body);
			if (h->left)
				return HTTP_MORE;
			h->state = FINISHED;
			break;
		case CHUNK_SIZE:
			if (*used == n)
				return HTTP_MORE;
			if (feed_chunk_size(h, (unsigned char)p[(*used)++]) == HTTP_BAD)
				return HTTP_BAD;
			break;
		case CHUNK_DATA:
			take_body(h, p, n, used, body);
			if (h->left)
				return HTTP_MORE;
			h->state = CHUNK_END;
			h->line_n = 0;
			break;
		case CHUNK_END:
			if (*used == n)
				return HTTP_MORE;
			if (p[(*used)++] != "\r\n"[h->line_n])
				return refuse(h, 400, "a chunk is longer than its size");
			if (++h->line_n == 2) {
				h->line_n = 0;
				h->state = CHUNK_SIZE;
			}
			break;
		case TRAILER:
			if (*used == n)
				return HTTP_MORE;
			if (feed_trailer(h, p, n, used) == HTTP_BAD)
				return HTTP_BAD;
			break;
		case FINISHED: return HTTP_DONE;
		default: return HTTP_BAD;
		}
	}
}

const char *http_reason(int code)
{
	switch (code) {
	case 100: return "Continue";
	case 200: return "OK";
	case 304: return "Not Modified";
	case 400: return "Bad Request";
	case 401: return "Unauthorized";
	case 404: return "Not Found";
	case 405: return "Method Not Allowed";
	case 408: return "Request Timeout";
	case 413: return "Content Too Large";
	case 414: return "URI Too Long";
	case 415: return "Unsupported Media Type";
	case 417: return "Expectation Failed";
	case 499: return "Client Closed Request";
	case 429: return "Too Many Requests";
	case 431: return "Request Header Fields Too Large";
	case 500: return "Internal Server Error";
	case 501: return "Not Implemented";
	case 504: return "Gateway Timeout";
	case 503: return "Service Unavailable";
	case 505: return "HTTP Version Not Supported";
	default: return "";
	}
}

/* ---- Last-Event-ID ---- */

static bool is_answer(const char *p, size_t n)
{
	static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

	return n > 0 && n < sizeof((struct last_event *)0)->answer && strspn(p, digits) == n;
}

/* The number at *p, which `end` follows; *p is moved behind that.  Negative: there is none. */
static int number(const char **p, char end)
{
	char *to;
	long v = **p >= '0' && **p <= '9' ? strtol(*p, &to, 10) : -1;

	if (v < 0 || v >= INT_MAX || *to != end)
		return -1;
	*p = to + 1;
	return (int)v;
}

struct last_event last_event_read(struct http_slice field)
{
	struct last_event e = { .asked = field.n > 0 };
	char text[64];
	const char *p;
	size_t n;

	if (!field.n || field.n >= sizeof text)
		return e;
	memcpy(text, field.p, field.n);
	text[field.n] = 0;
	n = strcspn(text, ".");
	if (!text[n] || !is_answer(text, n))
		return e;
	memcpy(e.answer, text, n);
	p = text + n + 1;
	e.place.token = number(&p, '.');
	e.place.event = e.place.token < 0 ? -1 : number(&p, 0);
	e.sound = e.place.event >= 0;
	return e;
}
