/* http.h - requests of HTTP/1.0 and 1.1, read strictly.
 *
 * Incremental: bytes are fed as they come, in any cut, and the outcome does not
 * depend on the cut.  Knows nothing of sockets.  What RFC 9112 lets a server
 * either repair or refuse is refused, since two parsers that repair differently
 * are how requests are smuggled past a proxy: a second Content-Length, a length
 * with a transfer coding, LF without CR, folded lines, blanks before the colon,
 * control bytes, odd chunk sizes.  Memory is bounded by struct http_limits.
 * Used by conn.c; one thread at a time. */
#ifndef SERVER_HTTP_H
#define SERVER_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum {
	HTTP_HEADERS_MAX = 100,    /* fields of one request */
	HTTP_CHUNK_LINE_MAX = 256, /* bytes of a chunk's size line: extensions are read over, not kept */
};

struct http_limits {
	size_t head_max;   /* bytes of request line and header, and again of a trailer */
	size_t target_max; /* bytes of the request target */
	int64_t body_max;  /* bytes of the body */
};

struct http_slice {
	const char *p;
	size_t n;
};
struct http_field {
	uint32_t name, n_name, value, n_value;
}; /* offsets into head */

enum http_status {
	HTTP_MORE, /* everything fed was used; more is needed */
	HTTP_HEAD, /* request line and header are complete: look, then feed on */
	HTTP_DONE, /* the message is complete; what is left belongs to the next */
	HTTP_BAD,  /* refused: code and why say how; nothing more can be read */
};

struct http {
	struct http_limits limits;
	/* Valid after HTTP_HEAD, until the next feed, and after HTTP_DONE, until http_reset. */
	struct http_slice method, path, query; /* path begins with '/' (or is "*"); still percent-encoded */
	int minor;                             /* of HTTP/1.x: 0 or 1 */
	int n_field;
	int64_t length; /* Content-Length; -1: none given */
	bool chunked;
	bool keep_alive;      /* the client would send another request */
	bool expect_continue; /* it waits for "100 Continue" before the body */
	/* Valid at HTTP_BAD. */
	int code; /* 400 413 414 417 431 501 505 */
	const char *why;

	/* Private. */
	int state;
	struct buf head;
	size_t head_cap; /* head_max, and more for a trailer */
	size_t line;     /* where the line being read begins */
	size_t line_n;   /* bytes of a chunk's size line so far */
	int64_t left;    /* body bytes to come, of the whole or of the chunk */
	int64_t body_n;  /* body bytes delivered */
	int digits;
	struct http_field field[HTTP_HEADERS_MAX];
};

void http_init(struct http *h, const struct http_limits *limits);
void http_fini(struct http *h);
/* Ready for the next request; gives the head's memory back. */
void http_reset(struct http *h);

/* Reads from p[0..n), stores in *used how many bytes were taken, appends body
 * bytes to body.  Returns HTTP_HEAD once per request, also when there is no body
 * (the next call, even with n 0, then says HTTP_DONE). */
enum http_status http_feed(struct http *h, const char *p, size_t n, size_t *used, struct buf *body);

/* True until the first byte of a request was fed. */
bool http_idle(const struct http *h);

/* The first field of this name (given in lower case), or a slice with p NULL. */
struct http_slice http_field(const struct http *h, const char *name);

/* Decodes %XX of s into out (appended).  0, or E_FORMAT where an escape is none or a byte is 0, at s.p[*bad]. */
int http_unescape(struct http_slice s, struct buf *out, size_t *bad);

bool http_slice_is(struct http_slice s, const char *text);
const char *http_reason(int code); /* "Not Found" ...; "" for codes we never send */

/* The value of a hexadecimal digit; -1: c is none. */
int http_hex_value(unsigned char c);

/* An event of a stream: how many tokens had been said, and which of the events of that number it is, from 1. */
struct stream_place {
	int token, event;
};
static inline bool stream_place_after(struct stream_place a, struct stream_place b)
{
	return a.token != b.token ? a.token > b.token : a.event > b.event;
}

/* The header Last-Event-ID (WHATWG HTML, server-sent events), with which a client asks for the events behind one, whose id is
 * ANSWER.TOKEN.EVENT: chat/journal.h. */
struct last_event {
	bool asked, sound; /* sound: it has the form of an id, and the others are filled */
	char answer[24];   /* random_id's */
	struct stream_place place;
};
/* field: the header's value; n 0: it was not sent. */
struct last_event last_event_read(struct http_slice field);

#endif
