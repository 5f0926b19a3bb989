/* conn.h - a client's connection: bytes to requests, replies to bytes.
 *
 * Reading stays armed in every state.  While a request is being answered the
 * input may hold a little of the next (CONN_AHEAD); more closes the connection
 * and cancels.  Output that the client does not take is bounded: above
 * CONN_MARK output is added only to finish, and a client that stays there is
 * given up.  IO thread only. */
#ifndef SERVER_CONN_H
#define SERVER_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "server/http/http.h"
#include "server/http/metrics.h"

enum {
	CONN_AHEAD = 64 << 10,  /* bytes of following requests kept during an answer */
	CONN_MARK = 64 << 10,   /* bytes of waiting output above which a stream pauses */
	CONN_SNDBUF = 64 << 10, /* the kernel's part of the output, per connection (it doubles this) */
	CONN_LINGER_MS = 3000,  /* after a reply that closes: time for the client to read it and stop sending */
};

struct bufferevent;
struct event;
struct exchange;
struct problem;
struct route;
struct server;

enum conn_state {
	CONN_IDLE, /* no byte of a request yet */
	CONN_HEAD,
	CONN_BODY,   /* reading one */
	CONN_ANSWER, /* an exchange runs; input waits */
	CONN_FLUSH,  /* the last reply is on its way out */
	CONN_LINGER, /* our side is shut; input is thrown away until the client closes */
};

struct conn {
	struct server *srv;
	struct conn *prev, *next;
	struct bufferevent *bev;
	struct event *timer;
	struct http http;
	struct buf body;
	size_t body_counted;       /* of body, in the server's sum */
	const struct route *route; /* of the request being read */
	struct exchange *x;        /* running; NULL in other states than CONN_ANSWER */
	enum conn_state state;
	int key;                              /* of the request whose body is being read; see clients.h */
	bool counted;                         /* among connections_max; else it was one too many */
	bool last;                            /* close after this reply */
	bool eof;                             /* the client sends no more */
	bool head_only, chunked, request_1_0; /* of the reply being written */
	bool cors;                            /* the request came from an origin that may read the reply */
	bool reading;                         /* inside conn_read */
	int64_t deadline;                     /* clock: of idle, header, body or linger */
	int64_t behind_since;                 /* clock: output has been above the mark since; 0: it is not */
	int64_t moved;                        /* clock: the client last took bytes, or had none to take */
	char peer[64];
};

/* Takes an accepted socket.  counted false: one too many, told so and closed. */
void conn_open(struct server *s, int fd, const char *peer, bool counted);
/* Closes at once; what runs for it is cancelled, because of why. */
void conn_close(struct conn *c, enum cause why);
/* Refuses those requests named id, with this key, whose body is still coming in. */
int conn_cancel(struct server *s, const char *id, size_t n, int key, const struct problem *p);

/* A whole reply: extra holds further header lines, each with CRLF, or is NULL. */
void conn_reply(struct conn *c, int code, const char *type, const char *extra, const char *p, size_t n);
/* conn_reply with a body of any length that is moved out of the caller's buffer instead of copied. */
void conn_reply_whole(struct conn *c, int code, const char *type, const char *extra, struct buf *body);
/* A reply of unknown length, in pieces. */
void conn_stream_begin(struct conn *c, const char *type, const char *extra);
void conn_stream(struct conn *c, const char *p, size_t n);
void conn_stream_end(struct conn *c);
/* The reply is complete: on to the next request, or close. */
void conn_next(struct conn *c);

bool conn_has_room(const struct conn *c);

#endif
