/* exchange.h - one request and its answer.
 *
 * The way of an exchange: conn.c reads a request and asks exchange_route
 * which endpoint answers it.  With the body complete, exchange_begin gives it to a worker
 * (its endpoint's prep: parsing, templating, tokenising), then ready runs on the IO
 * thread; it replies, or starts work in the engine and replies as wake is
 * called.  exchange_end closes it.
 *
 * Exchanges are recycled and their memory is not given back before the server is
 * closed, so a wake-up that comes late finds an exchange at rest, not freed
 * memory.  Everything here runs on the IO thread but what says otherwise. */
#ifndef SERVER_EXCHANGE_H
#define SERVER_EXCHANGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/digest.h"
#include "server/http/access.h"
#include "server/http/clients.h"
#include "server/http/http.h"
#include "server/http/metrics.h"
#include "server/http/problem.h"

struct conn;
struct event;
struct server;
struct exchange;
struct generation;
struct choice;
struct json;
struct known_model;

/* What answers one or several routes (routes.c).  An API's file has one for each thing that it does. */
struct endpoint {
	/* ---- the way of an exchange ---- */

	/* Worker thread, may take long; its work is charged to the request's allowance (base/allowance.h), and
	 * stops when x->gone says that the client has left.  NULL: nothing to do there. */
	void (*prep)(struct exchange *x);
	void (*ready)(struct exchange *x);
	/* Events wait in the engine, or the connection has room again.  NULL when
	 * ready always ends the exchange. */
	void (*wake)(struct exchange *x);
	/* The exchange is over, for whatever reason: release x->work. */
	void (*drop)(struct exchange *x);
	/* After a fault: cancels work that other threads do for x->work, and reads nothing else of
	 * it.  NULL: no other thread works for it. */
	void (*abandon)(struct exchange *x);
	/* Ends a running exchange early, with p as its error.  NULL: exchange_refuse does. */
	void (*stop)(struct exchange *x, const struct problem *p);

	/* ---- for those that have the engine write or tokenise (chat/generate.h): how they read and tell ---- */

	const char *id_prefix;
	const char *stream_type; /* of its streams; NULL: text/event-stream */
	/* What keeps a quiet stream alive where stream_type is set; NULL: nothing.  Without stream_type it is a comment. */
	const char *keep_alive;
	bool first_when_started; /* first waits for the engine to begin, since it tells how much of the prompt was cached */
	bool resumes;            /* its streams can be continued elsewhere (chat/journal.h) */
	bool takes_texts;        /* it makes vectors or scores of texts, and no text (api/texts.h) */
	bool any_length;         /* the prompt is only looked at: it may be too long to be answered */
	/* Allocates the endpoint's own state of a request; NULL: it has none. */
	void *(*own_new)(void);
	void (*own_free)(void *own);
	/* Worker: reads the body, which it takes over, into g->params and g->prompts.  Returns 0 or *p's status. */
	int (*read)(struct generation *g, struct json *body, struct problem *p);
	void (*open)(struct generation *g, struct choice *c);
	/* IO thread.  A token came, with the text it made certain. */
	void (*token)(struct generation *g, struct choice *c, const struct event *ev);
	/* No more will come; c->finish says why. */
	void (*end)(struct generation *g, struct choice *c);
	/* Streams: appends events, each with event_begin and event_end.  first: before
	 * anything else of this choice; delta: what waits in the choice, if anything;
	 * last: with the reason of the end. */
	void (*first)(struct generation *g, struct choice *c, struct buf *out);
	void (*delta)(struct generation *g, struct choice *c, struct buf *out);
	void (*last)(struct generation *g, struct choice *c, struct buf *out);
	/* Streams: how much of the prompt is computed, for clients that ask.  NULL: not told. */
	void (*progress)(struct generation *g, struct choice *c, const struct event *ev, struct buf *out);
	/* Streams: the last events, after all choices. */
	void (*close)(struct generation *g, struct buf *out);
	/* Streams: the last event of one that fails.  NULL: the error as a bare object. */
	void (*error)(struct generation *g, const struct problem *p, struct buf *out);
	/* Work without a connection (exchange_detach): events of its stream, and that it fails, with p.  NULL: it has none. */
	void (*apart_events)(struct generation *g, const char *p, size_t n);
	void (*apart_failed)(struct generation *g, const struct problem *p);
	/* Not streams: the whole body. */
	void (*whole)(struct generation *g, struct buf *out);
	/* The whole reply to a request without a prompt, which only asks that the model is loaded.  NULL: every request has a
	 * prompt. */
	void (*nothing)(struct generation *g, struct buf *out);
};

struct route {
	const char *path;
	bool prefix;    /* path is the beginning: the rest is x->rest */
	bool exact;     /* the path has no other spelling, so that a rule of a proxy can close it */
	bool post, del; /* POST or DELETE; else GET and HEAD */
	bool open;      /* needs no API key */
	bool form;      /* a body is multipart/form-data; else JSON */
	enum error_shape shape;
	const struct endpoint *endpoint;
};

extern const struct route routes[]; /* routes.c; ends with path NULL */

enum exchange_state { AT_REST, PREPARING, RUNNING };

enum { REQUEST_ID_MAX = 132 };

/* That a request waits for its model. */
struct waited {
	struct known_model *on; /* the model, while it waits; under the lock of known_models */
	bool streams;           /* its stream may begin while it waits; as on */
	char why[100];          /* position and reason when it began to wait; as on */
	int64_t ns;             /* how long it waited; the worker's until it is prepared */
	/* IO thread. */
	struct event *tick;          /* NULL: not made yet */
	char header[160], told[200]; /* value of x-weft-waited; last comment of the stream.  Empty: none */
	int64_t told_ns;             /* clock */
	bool began;                  /* the stream has begun */
};

/* Fields of a request's header that http.h does not read. */
struct asked_headers {
	bool cache_report;
	bool anthropic; /* its client speaks that API */
	struct last_event last_event;
};

struct deadline {
	int64_t ns;         /* clock; 0: none */
	struct event *late; /* fires then, while the exchange is prepared; NULL: not made yet */
};

/* The early end of an exchange. */
struct cancel {
	enum cause cause;       /* why, if it does */
	bool by_us;             /* the client is told problem */
	struct problem problem; /* by_us, while it is prepared */
};

/* An exchange in the mailbox; under the server's lock. */
struct mail {
	bool queued, prepared;
	struct exchange *next;
};

struct exchange {
	struct server *srv;
	struct conn *conn; /* NULL: the client left, or does not wait for it (detached) */
	const struct route *route;
	struct buf body, rest; /* rest: decoded path after a prefix route */
	struct buf query;      /* as it came */
	int64_t body_counted;  /* of body, in the server's sum */
	char id[40];           /* random part of the answer's id; also the request id, unless the client gave one */
	char request_id[REQUEST_ID_MAX]; /* the client's, or that of id */
	struct sender from;
	struct asked_headers headers;
	struct access access; /* for the log */
	struct cancel cancel;
	struct digest asked; /* of path and body, where streams have journals */
	bool faulted;        /* prep was broken off */
	bool detached;       /* it goes on without a connection */
	bool heavy;          /* it took much memory */
	struct deadline deadline;
	int64_t t_begin;           /* clock when the request was complete */
	struct known_model *model; /* that it is for; NULL: not chosen yet, or it is about none */
	struct waited waited;      /* for that model */
	void *work;                /* the api's own */
	struct buf warned;         /* for the log: what of the request was not honoured */
	struct problem problem;    /* of prep; status 0: none */
	int status;                /* replied with; 0: not yet */
	enum exchange_state stage;

	atomic_bool gone; /* the client left: prep may stop early */
	struct mail mail;
	struct exchange *next; /* among the workers' jobs, under the server's lock; or at rest */
};

/* One of the query's values, up to the next &, as it came: *n bytes.  NULL: it is not there. */
const char *exchange_query(const struct exchange *x, const char *name, size_t *n);

/* The route that answers this request.  NULL with *p filled: none does (401, 403, 404, 405, 415). */
const struct route *exchange_route(struct server *s, const struct http *h, struct problem *p);

/* A request of c is complete; body is taken over (left empty). */
void exchange_begin(struct conn *c, const struct route *route, struct buf *body);

/* Ends the exchange: the reply is complete, or the client has left. */
void exchange_end(struct exchange *x);
/* The client of x left, or is given up. */
void exchange_leave(struct exchange *x, enum cause why);
/* Fills p for work that ended with E_FAULT or E_MEMORY; returns its status. */
int exchange_fault(struct problem *p, int code);
/* Counts x as cancelled for x->cancel.cause. */
void exchange_cancelled(struct exchange *x, enum left_at at);
/* The work of x, which has begun, goes on without its client.  The connection gets another exchange, for that route and under the
 * names of x, which is to reply; it is returned. */
struct exchange *exchange_detach(struct exchange *x, const struct route *route);
/* Cancels what is named id (by request id, or by the id of the answer) and came
 * with this key; returns how many there were. */
int exchange_cancel(struct server *s, const char *id, size_t n, int key);
/* The connection's output fell below its mark. */
void exchange_room(struct exchange *x);

/* Any thread: have the endpoint's wake called on the IO thread, soon. */
void exchange_notify(void *x);

/* Replies with an error in the API's shape and ends the exchange. */
void exchange_refuse(struct exchange *x, const struct problem *p);
/* Replies with a whole JSON body and ends the exchange. */
void exchange_reply(struct exchange *x, int code, const char *type, const char *p, size_t n);
/* exchange_reply with a body that is moved out of the caller's buffer. */
void exchange_reply_whole(struct exchange *x, int code, const char *type, struct buf *body);

/* 128 bits from the operating system in base 62: not to be guessed. */
void random_id(char out[24]);

/* The client's own id of its request, when it is one that can be sent back as it is;
 * else, and where h is NULL, the other. */
void request_id(const struct http *h, const char *other, char out[REQUEST_ID_MAX]);

/* At the end of the server. */
void exchange_free(struct exchange *x);

/* The IO thread's side of the mailbox: called when it was rung. */
void exchange_deliver(struct server *s);
/* A worker's work on one exchange. */
void exchange_prepare(struct exchange *x);

#endif
