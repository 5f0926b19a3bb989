/* conn.c - see conn.h. */
#include "server/http/conn.h"

#include <assert.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/system.h"
#include "server/inside.h"

static const int64_t MS = 1000000;

static struct evbuffer *input(const struct conn *c)
{
	return bufferevent_get_input(c->bev);
}
static struct evbuffer *output(const struct conn *c)
{
	return bufferevent_get_output(c->bev);
}
static size_t waiting_out(const struct conn *c)
{
	return evbuffer_get_length(output(c));
}

bool conn_has_room(const struct conn *c)
{
	return waiting_out(c) <= CONN_MARK;
}

/* ---- deadlines ---- */

/* When the client counts as not reading; 0: nothing waits for it.  While an
 * answer is made it must keep up; the rest of a whole one may drain slowly. */
static int64_t stall_due(const struct conn *c)
{
	int64_t stall = (int64_t)c->srv->opts.stall_ms * MS;

	if (!waiting_out(c))
		return 0;
	if (c->state == CONN_ANSWER && c->behind_since && c->behind_since < c->moved)
		return c->behind_since + stall;
	return c->moved + stall;
}

/* When this connection must be looked at again; 0: never.  Idle time is counted from when the last
 * answer had been sent completely. */
static int64_t due(const struct conn *c)
{
	int64_t stall = stall_due(c);

	if (c->state == CONN_ANSWER || c->state == CONN_FLUSH || (c->state == CONN_IDLE && stall))
		return stall;
	if (c->state == CONN_IDLE && c->moved) {
		int64_t idle = c->moved + (int64_t)c->srv->opts.idle_ms * MS;

		return idle > c->deadline ? idle : c->deadline;
	}
	return stall && stall < c->deadline ? stall : c->deadline;
}

static void arm(struct conn *c)
{
	int64_t at = due(c), left;
	struct timeval tv;

	if (!at) {
		event_del(c->timer);
		return;
	}
	left = at - clock_monotonic_ns();
	/* Up to the next millisecond, so that a timer never fires just too early. */
	left = left < 0 ? 0 : left + MS;
	tv.tv_sec = left / 1000000000;
	tv.tv_usec = left % 1000000000 / 1000;
	event_add(c->timer, &tv);
}

/* States that a stopping server waits for. */
static bool busy(enum conn_state state)
{
	return state >= CONN_ANSWER;
}

static void set_state(struct conn *c, enum conn_state state, int ms)
{
	c->srv->conns.n_busy += busy(state) - busy(c->state);
	c->state = state;
	c->deadline = clock_monotonic_ns() + (int64_t)ms * MS;
	arm(c);
}

/* Answers without an exchange.  The connection closes when c->last says so.  known:
 * method and path may be read (http.h says when). */
static void answer_problem(struct conn *c, const struct problem *p, bool known)
{
	char own[24], id[REQUEST_ID_MAX];
	struct buf b, extra;

	random_id(own);
	request_id(known || c->state == CONN_BODY ? &c->http : NULL, own, id);
	buf_init(&b);
	buf_init(&extra);
	problem_put(&b, p);
	buf_printf(&extra, "x-request-id: %s\r\n", id);
	if (p->shape == SHAPE_ANTHROPIC)
		buf_printf(&extra, "request-id: %s\r\n", id);
	if (*p->allow)
		buf_printf(&extra, "Allow: %s\r\n", p->allow);
	if (p->status == 401)
		buf_puts(&extra, "WWW-Authenticate: Bearer\r\n");
	if (p->retry_after)
		buf_printf(&extra, "Retry-After: %d\r\n", p->retry_after);
	conn_reply(c, p->status, "application/json", extra.p, b.p, b.n);
	buf_fini(&b);
	buf_fini(&extra);
	access_log_refused(c->peer, id, known ? &c->http : NULL, p);
	conn_next(c);
}

static void refuse(struct conn *c, int code, const char *why)
{
	struct problem p;

	problem_set(&p, code, NULL, NULL, "%s", why);
	p.shape = c->route ? c->route->shape : SHAPE_OPENAI;
	c->last = true;
	answer_problem(c, &p, false);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct conn *c = arg;
	int64_t now = clock_monotonic_ns(), at = due(c);

	server_turn(c->srv);
	(void)fd;
	(void)what;
	if (!at)
		return;
	if (at > now) {
		arm(c);
		return;
	}
	if (stall_due(c) && stall_due(c) <= now) {
		metrics_stalled(&c->srv->metrics);
		log_info("%s: gave up a client that does not read: %zu bytes wait", c->peer, waiting_out(c));
		conn_close(c, CAUSE_STALL);
	} else if (c->state == CONN_HEAD || c->state == CONN_BODY) {
		metrics_timeout(&c->srv->metrics);
		refuse(c, 408,
		       c->state == CONN_HEAD ? "the header of the request did not come in time" :
		                               "the body of the request did not come in time");
	} else {
		conn_close(c, CAUSE_LEFT);
	}
}

/* ---- the reply ---- */

static void on_output(struct evbuffer *b, const struct evbuffer_cb_info *info, void *arg)
{
	struct conn *c = arg;
	size_t now = info->orig_size + info->n_added - info->n_deleted;

	(void)b;
	if (info->n_deleted || !info->orig_size)
		c->moved = clock_monotonic_ns();
	if (now <= CONN_MARK)
		c->behind_since = 0;
	else if (!c->behind_since)
		c->behind_since = clock_monotonic_ns();
	if (!now && c->state == CONN_IDLE)
		arm(c); /* idle from here on */
}

static void put(struct conn *c, const char *p, size_t n)
{
	if (!n)
		return;
	bufferevent_write(c->bev, p, n);
	if (!event_pending(c->timer, EV_TIMEOUT, NULL))
		arm(c);
}

static void put_date(struct buf *b)
{
	static const char day[][4] = { "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat" };
	static const char month[][4] = { "Jan", "Feb", "Mar", "Apr", "May", "Jun",
		                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec" };
	time_t now = time(NULL);
	struct tm t;

	gmtime_r(&now, &t); /* by hand: strftime would follow the locale */
	buf_printf(b, "Date: %s, %02d %s %d %02d:%02d:%02d GMT\r\n", day[t.tm_wday], t.tm_mday, month[t.tm_mon],
	           t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
}

static void put_cors(const struct conn *c, struct buf *b)
{
	struct http_slice origin = http_field(&c->http, "origin"),
			  want = http_field(&c->http, "access-control-request-headers");

	buf_printf(
		b,
		"Access-Control-Allow-Origin: %.*s\r\nVary: Origin\r\n"
		"Access-Control-Expose-Headers: x-request-id, request-id, x-weft-warning, x-weft-waited, Retry-After\r\n",
		(int)origin.n, origin.p);
	if (!http_slice_is(c->http.method, "OPTIONS"))
		return;
	buf_puts(b, "Access-Control-Allow-Methods: GET, HEAD, POST, DELETE\r\nAccess-Control-Max-Age: 86400\r\n");
	if (want.n)
		buf_printf(b, "Access-Control-Allow-Headers: %.*s\r\n", (int)want.n, want.p);
}

static void put_head(struct conn *c, struct buf *b, int code, const char *type, const char *extra)
{
	buf_printf(b, "HTTP/1.1 %d %s\r\n", code, http_reason(code));
	put_date(b);
	buf_printf(b, "Content-Type: %s\r\n", type);
	if (c->x)
		buf_printf(b, "x-request-id: %s\r\n", c->x->request_id);
	if (c->x && c->x->route->shape == SHAPE_ANTHROPIC) /* its clients look for this name */
		buf_printf(b, "request-id: %s\r\n", c->x->request_id);
	if (c->x && *c->x->waited.header)
		buf_printf(b, "x-weft-waited: %s\r\n", c->x->waited.header);
	if (c->cors)
		put_cors(c, b);
	else if (c->srv->opts.cors_origin)
		buf_puts(b, "Vary: Origin\r\n"); /* or a cache would give this to those who are let in */
	if (extra)
		buf_puts(b, extra);
	if (c->srv->stopping)
		c->last = true;
	if (c->last)
		buf_puts(b, "Connection: close\r\n");
}

static void put_reply_head(struct conn *c, int code, const char *type, const char *extra, size_t n)
{
	struct buf b;

	buf_init(&b);
	put_head(c, &b, code, type, extra);
	buf_printf(&b, "Content-Length: %zu\r\n\r\n", n);
	put(c, b.p, b.n);
	buf_fini(&b);
	metrics_reply(&c->srv->metrics, code);
}

void conn_reply(struct conn *c, int code, const char *type, const char *extra, const char *p, size_t n)
{
	put_reply_head(c, code, type, extra, n);
	if (!c->head_only)
		put(c, p, n);
}

static void free_body(const void *p, size_t n, void *arg)
{
	(void)n;
	(void)arg;
	free((void *)(uintptr_t)p);
}

void conn_reply_whole(struct conn *c, int code, const char *type, const char *extra, struct buf *body)
{
	size_t n = body->n;
	char *p;

	put_reply_head(c, code, type, extra, n);
	if (c->head_only || !n)
		return;
	p = buf_take(body);
	if (evbuffer_add_reference(output(c), p, n, free_body, NULL)) {
		free(p);
		fault_no_memory();
	}
	if (!event_pending(c->timer, EV_TIMEOUT, NULL))
		arm(c);
}

void conn_stream_begin(struct conn *c, const char *type, const char *extra)
{
	struct buf b;

	/* HTTP/1.0 has no chunks: the end is where the connection ends. */
	c->chunked = !c->request_1_0;
	if (!c->chunked)
		c->last = true;
	buf_init(&b);
	put_head(c, &b, 200, type, extra);
	buf_puts(&b, c->chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
	put(c, b.p, b.n);
	buf_fini(&b);
	metrics_reply(&c->srv->metrics, 200);
}

void conn_stream(struct conn *c, const char *p, size_t n)
{
	char size[24];

	if (!n)
		return;
	if (c->chunked)
		put(c, size, (size_t)snprintf(size, sizeof size, "%zx\r\n", n));
	put(c, p, n);
	if (c->chunked)
		put(c, "\r\n", 2);
}

void conn_stream_end(struct conn *c)
{
	if (c->chunked)
		put(c, "0\r\n\r\n", 5);
}

/* ---- the request ---- */

static void forget_body(struct conn *c)
{
	c->srv->conns.body_bytes -= (int64_t)c->body_counted;
	c->body_counted = 0;
}

/* The header is complete: which endpoint answers, and is the body wanted at all? */
static void head_complete(struct conn *c)
{
	struct problem p;
	bool body = c->http.chunked || c->http.length > 0;

	c->head_only = http_slice_is(c->http.method, "HEAD");
	c->request_1_0 = c->http.minor == 0;
	c->last = !c->http.keep_alive;
	c->cors = gate_allows(&c->srv->gate, &c->http);
	c->route = exchange_route(c->srv, &c->http, &p);
	if (!c->route) {
		/* A body that no route reads is not received to its end. */
		if (body)
			c->last = true;
		answer_problem(c, &p, true);
		return;
	}
	clients_admit(&c->srv->clients, &c->http, &c->key);
	if (c->http.expect_continue && body)
		put(c, "HTTP/1.1 100 Continue\r\n\r\n", 25);
	set_state(c, CONN_BODY, c->srv->opts.body_ms);
}

/* Counts what the body grew by.  False: all bodies together are too much. */
static bool count_body(struct conn *c)
{
	/* Four bodies of the largest size at once; more is an attack or a mistake. */
	int64_t one = c->srv->opts.body_max, most = one > INT64_MAX / 4 ? INT64_MAX : 4 * one;

	c->srv->conns.body_bytes += (int64_t)(c->body.n - c->body_counted);
	c->body_counted = c->body.n;
	return c->srv->conns.body_bytes <= most;
}

static void body_complete(struct conn *c)
{
	if (c->srv->stopping && c->route->endpoint->prep) {
		struct problem p;

		problem_stopping(&p);
		answer_problem(c, &p, true);
		return;
	}
	/* From here on the body belongs to the exchange, which counts it. */
	c->body_counted = 0;
	set_state(c, CONN_ANSWER, 0);
	exchange_begin(c, c->route, &c->body);
}

/* Arguments of the parser, which runs within a guard since bodies are the largest allocations here. */
struct feeding {
	struct conn *c;
	const char *p;
	size_t n, used;
	enum http_status status;
};

static void feed(void *arg)
{
	struct feeding *f = arg;

	f->status = http_feed(&f->c->http, f->p, f->n, &f->used, &f->c->body);
}

/* Feeds the parser one stretch of input.  False: nothing more can be done now. */
static bool read_some(struct conn *c)
{
	struct evbuffer_iovec v = { .iov_base = "" };
	struct feeding f;
	enum http_status status;
	size_t used;

	evbuffer_peek(input(c), -1, NULL, &v, 1);
	if (!v.iov_len && c->state != CONN_BODY)
		return false;
	f = (struct feeding){ c, v.iov_base, v.iov_len, 0, HTTP_BAD };
	if (!fault_guard(feed, &f)) {
		/* The body is as it was before it grew; nothing else of the server's was touched. */
		c->srv->metrics.faults++;
		refuse(c, 503, "there is no memory for the body of this request");
		return false;
	}
	status = f.status;
	used = f.used;
	if (used)
		evbuffer_drain(input(c), used);
	if (c->state == CONN_IDLE && !http_idle(&c->http))
		set_state(c, CONN_HEAD, c->srv->opts.head_ms);
	switch (status) {
	case HTTP_MORE:
		if (!count_body(c)) {
			refuse(c, 503, "too many request bodies are being received; try again later");
			return false;
		}
		return used > 0;
	case HTTP_HEAD: head_complete(c); return true;
	case HTTP_DONE:
		if (!count_body(c)) {
			refuse(c, 503, "too many request bodies are being received; try again later");
			return false;
		}
		body_complete(c);
		return true;
	default: refuse(c, c->http.code, c->http.why); return false;
	}
}

static void conn_read(struct conn *c)
{
	c->reading = true;
	while (c->state <= CONN_BODY && conn_has_room(c) && read_some(c))
		;
	c->reading = false;
}

void conn_next(struct conn *c)
{
	c->x = NULL;
	forget_body(c);
	buf_fini(&c->body); /* a large body's memory is given back */
	http_reset(&c->http);
	c->route = NULL;
	c->head_only = c->chunked = c->cors = false;
	if (c->last || c->srv->stopping) {
		set_state(c, CONN_FLUSH, 0);
		if (!waiting_out(c))
			bufferevent_trigger(c->bev, EV_WRITE, BEV_TRIG_DEFER_CALLBACKS);
		return;
	}
	set_state(c, CONN_IDLE, c->srv->opts.idle_ms);
	if (!c->reading && evbuffer_get_length(input(c)))
		bufferevent_trigger(c->bev, EV_READ, BEV_TRIG_IGNORE_WATERMARKS | BEV_TRIG_DEFER_CALLBACKS);
}

/* ---- events ---- */

static void on_read(struct bufferevent *bev, void *arg)
{
	struct conn *c = arg;

	server_turn(c->srv);
	(void)bev;
	if (c->state == CONN_FLUSH || c->state == CONN_LINGER) {
		evbuffer_drain(input(c), evbuffer_get_length(input(c)));
		return;
	}
	conn_read(c);
	if (c->state == CONN_FLUSH)
		evbuffer_drain(input(c), evbuffer_get_length(input(c)));
	else if (evbuffer_get_length(input(c)) > CONN_AHEAD) {
		/* To stop reading would hide that the client leaves; to read on has no bound. */
		log_info("%s: closed: more than %d bytes sent ahead of the answer", c->peer, CONN_AHEAD);
		conn_close(c, CAUSE_LEFT);
	}
}

static void on_write(struct bufferevent *bev, void *arg)
{
	struct conn *c = arg;

	server_turn(c->srv);
	(void)bev;
	if (c->state == CONN_FLUSH && !waiting_out(c) && c->eof) {
		conn_close(c, CAUSE_LEFT);
	} else if (c->state == CONN_FLUSH && !waiting_out(c)) {
		shutdown(bufferevent_getfd(c->bev), SHUT_WR);
		set_state(c, CONN_LINGER, CONN_LINGER_MS);
	} else if (c->x) {
		exchange_room(c->x);
	} else if (c->state <= CONN_BODY && evbuffer_get_length(input(c))) {
		conn_read(c);
	}
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
	struct conn *c = arg;

	server_turn(c->srv);
	(void)bev;
	/* A client that shuts its side has left, but may still read what is on its way. */
	if ((what & BEV_EVENT_EOF) && !c->x && waiting_out(c) && c->state != CONN_LINGER) {
		c->last = c->eof = true;
		set_state(c, CONN_FLUSH, 0);
		return;
	}
	conn_close(c, CAUSE_LEFT);
}

void conn_open(struct server *s, int fd, const char *peer, bool counted)
{
	struct conn *c = xcalloc(1, sizeof *c);
	struct http_limits limits = { .head_max = 32 << 10, .target_max = 8 << 10, .body_max = s->opts.body_max };
	int one = 1, sndbuf = CONN_SNDBUF;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	/* So that what a slow reader owes is ours to count, not hidden in the kernel. */
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof sndbuf);
	/* A client whose network is gone says nothing; probes find out. */
	system_keep_alive(fd, 30);
	c->srv = s;
	c->counted = counted;
	snprintf(c->peer, sizeof c->peer, "%s", peer);
	http_init(&c->http, &limits);
	buf_init(&c->body);
	c->bev = bufferevent_socket_new(s->base, fd, BEV_OPT_CLOSE_ON_FREE);
	c->timer = evtimer_new(s->base, on_timer, c);
	if (!c->bev || !c->timer)
		fault_abort();
	c->next = s->conns.first;
	if (c->next)
		c->next->prev = c;
	s->conns.first = c;
	*(counted ? &s->conns.n : &s->conns.n_refused) += 1;
	evbuffer_add_cb(output(c), on_output, c);
	bufferevent_setcb(c->bev, on_read, on_write, on_event, c);
	bufferevent_setwatermark(c->bev, EV_WRITE, CONN_MARK / 2, 0);
	set_state(c, CONN_IDLE, s->opts.idle_ms);
	bufferevent_enable(c->bev, EV_READ | EV_WRITE);
	if (!counted)
		refuse(c, 503, "too many connections; try again later");
}

void conn_close(struct conn *c, enum cause why)
{
	struct server *s = c->srv;

	if (c->x)
		exchange_leave(c->x, why);
	else if (c->state == CONN_BODY)
		metrics_cancelled(&s->metrics, why, LEFT_BODY);
	s->conns.n_busy -= busy(c->state);
	forget_body(c);
	if (c->prev)
		c->prev->next = c->next;
	else
		s->conns.first = c->next;
	if (c->next)
		c->next->prev = c->prev;
	*(c->counted ? &s->conns.n : &s->conns.n_refused) -= 1;
	event_free(c->timer);
	bufferevent_free(c->bev);
	http_fini(&c->http);
	buf_fini(&c->body);
	free(c);
	server_conn_gone(s);
}

int conn_cancel(struct server *s, const char *id, size_t n, int key, const struct problem *p)
{
	int count = 0;

	for (struct conn *c = s->conns.first; c; c = c->next) {
		struct http_slice given;

		if (c->state != CONN_BODY || c->key != key || !c->route->endpoint->prep)
			continue;
		given = http_field(&c->http, "x-request-id");
		if (given.n != n || memcmp(given.p, id, n))
			continue;
		metrics_cancelled(&s->metrics, CAUSE_DELETE, LEFT_BODY);
		c->last = true;
		answer_problem(c, p, false);
		count++;
	}
	return count;
}
