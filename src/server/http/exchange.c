/* exchange.c - see exchange.h. */
#include "server/http/exchange.h"

#include <assert.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/system.h"
#include "server/inside.h"

void random_id(char out[24])
{
	static const char digit[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
	unsigned char r[22];

	/* 22 digits of base 62 hold 131 bits.  The modulo's bias costs less than one of them. */
	system_random(r, sizeof r);
	for (int i = 0; i < 22; i++)
		out[i] = digit[r[i] % 62];
	out[22] = 0;
}

/* ---- which endpoint answers ---- */

enum { PATH_ROOM = 256 }; /* of a path with doubled slashes; a longer one is none of ours */

/* The path that was meant: base URLs that end with /v1 get another one, and some clients end paths with a slash, or put
 * one behind a base URL that has its own.  Where a slash is left out the path is in room. */
static struct http_slice meant(struct http_slice path, char room[PATH_ROOM])
{
	size_t n = 0;

	if (path.n <= PATH_ROOM && memmem(path.p, path.n, "//", 2)) {
		for (size_t i = 0; i < path.n; i++)
			if (path.p[i] != '/' || !n || room[n - 1] != '/')
				room[n++] = path.p[i];
		path = (struct http_slice){ room, n };
	}
	if (path.n > 7 && !memcmp(path.p, "/v1/v1/", 7)) {
		path.p += 3;
		path.n -= 3;
	}
	if (path.n > 1 && path.p[path.n - 1] == '/')
		path.n--;
	return path;
}

/* path: as it came; meant: as it was meant. */
static bool path_matches(const struct route *r, struct http_slice path, struct http_slice meant)
{
	size_t n = strlen(r->path);

	path = r->exact ? path : meant;
	if (r->prefix)
		return path.n > n && memcmp(path.p, r->path, n) == 0;
	return http_slice_is(path, r->path);
}

/* Answers a preflight request, which a browser sends before a page of another origin may
 * ask: conn.c adds the header lines. */
static void preflight_ready(struct exchange *x)
{
	exchange_reply(x, 200, "text/plain", "", 0);
}

static const struct endpoint preflight_endpoint = { .ready = preflight_ready };
static const struct route preflight = { .path = "OPTIONS", .open = true, .endpoint = &preflight_endpoint };

static bool takes(const struct route *r, const struct http *h)
{
	if (r->post || r->del)
		return http_slice_is(h->method, r->post ? "POST" : "DELETE");
	return http_slice_is(h->method, "GET") || http_slice_is(h->method, "HEAD");
}

static bool begins(struct http_slice path, const char *with)
{
	return path.n > strlen(with) && !memcmp(path.p, with, strlen(with));
}

/* How errors about a path without a route are written: as those of the API that its beginning names. */
static enum error_shape shape_of(struct http_slice path)
{
	if (begins(path, "/v1/messages/"))
		return SHAPE_ANTHROPIC;
	if (begins(path, "/v1beta/"))
		return SHAPE_GEMINI;
	return begins(path, "/api/") ? SHAPE_OLLAMA : SHAPE_OPENAI;
}

const struct route *exchange_route(struct server *s, const struct http *h, struct problem *p)
{
	struct http_slice coded = http_field(h, "content-encoding");
	int key;
	char allow[sizeof p->allow] = "", room[PATH_ROOM];
	struct http_slice path = meant(h->path, room);
	enum error_shape shape = shape_of(path);

	if (gate_check(&s->gate, h, p)) {
		p->shape = shape;
		return NULL;
	}
	if (s->opts.cors_origin && http_slice_is(h->method, "OPTIONS"))
		return &preflight;

	for (const struct route *r = routes; r->path; r++) {
		if (!path_matches(r, h->path, path))
			continue;
		shape = r->shape;
		if (!takes(r, h)) {
			size_t n = strlen(allow);

			snprintf(allow + n, sizeof allow - n, "%s%s", n ? ", " : "",
			         r->post ? "POST" :
			         r->del  ? "DELETE" :
			                   "GET, HEAD");
			continue;
		}
		if (gate_body(h, r->form, p)) {
			p->shape = shape;
			return NULL;
		}
		if (!r->open && clients_admit(&s->clients, h, &key)) {
			problem_set(
				p, 401, "invalid_api_key", NULL,
				"this server wants its API key: Authorization: Bearer KEY, x-api-key: KEY, api-key: KEY or "
				"x-goog-api-key: KEY");
			p->shape = shape;
			return NULL;
		}
		if (coded.n && (coded.n != 8 || strncasecmp(coded.p, "identity", 8))) {
			problem_set(p, 415, NULL, NULL, "bodies are not decoded: send it without Content-Encoding");
			p->shape = shape;
			return NULL;
		}
		if (s->stopping && r->endpoint->prep) {
			problem_stopping(p);
			p->shape = shape;
			return NULL;
		}
		return r;
	}
	if (*allow) {
		problem_set(p, 405, NULL, NULL, "%.*s is not a method of %.*s; it takes %s", (int)h->method.n,
		            h->method.p, (int)(h->path.n < 200 ? h->path.n : 200), h->path.p, allow);
		memcpy(p->allow, allow, sizeof allow);
	} else {
		problem_set(
			p, 404, NULL, NULL,
			"there is nothing at %.*s; paths of the API are /v1/chat/completions, /v1/completions, /v1/responses, "
			"/v1/messages, /v1/embeddings, /v1/models and others of docs/http-api.md",
			(int)(h->path.n < 200 ? h->path.n : 200), h->path.p);
	}
	p->shape = shape;
	return NULL;
}

/* ---- life ---- */

void exchange_free(struct exchange *x)
{
	buf_fini(&x->body);
	buf_fini(&x->rest);
	buf_fini(&x->warned);
	if (x->deadline.late)
		event_free(x->deadline.late);
	if (x->waited.tick)
		event_free(x->waited.tick);
	free(x);
}

static struct exchange *take_exchange(struct server *s)
{
	struct exchanges *all = &s->exchanges;
	struct exchange *x = all->rest;

	if (x) {
		all->rest = x->next;
		x->next = NULL;
		return x;
	}
	x = xcalloc(1, sizeof *x);
	x->srv = s;
	buf_init(&x->body);
	buf_init(&x->rest);
	buf_init(&x->warned);
	buf_init(&x->query);
	if (all->n == all->cap) {
		all->cap = all->cap ? 2 * all->cap : 64;
		all->v = xrealloc(all->v, size_mul(all->cap, sizeof(struct exchange *)));
	}
	all->v[all->n++] = x;
	return x;
}

static void forget_body(struct exchange *x)
{
	x->srv->conns.body_bytes -= x->body_counted;
	x->body_counted = 0;
}

/* ---- a deadline while it is prepared ---- */

static void cancel(struct exchange *x, enum cause why, const struct problem *p);

static void on_late(evutil_socket_t fd, short what, void *arg)
{
	struct exchange *x = arg;
	struct problem p;

	server_turn(x->srv);
	if (x->stage != PREPARING || x->cancel.by_us || !x->conn)
		return;
	problem_set(&p, 504, "deadline", NULL, "the deadline passed while the request was prepared");
	cancel(x, CAUSE_DEADLINE, &p);
}

static void arm_late(struct exchange *x)
{
	int64_t left = x->deadline.ns - clock_monotonic_ns();
	struct timeval tv;

	if (!x->deadline.ns)
		return;
	if (!x->deadline.late)
		x->deadline.late = evtimer_new(x->srv->base, on_late, x);
	if (!x->deadline.late)
		fault_no_memory();
	left = left > 0 ? left : 0;
	tv = (struct timeval){ left / 1000000000, left % 1000000000 / 1000 };
	event_add(x->deadline.late, &tv);
}

static void disarm_late(struct exchange *x)
{
	if (x->deadline.late)
		event_del(x->deadline.late);
}

/* ---- that it waits for its model ----
 *
 * A stream begins while the request waits, once that has taken a second, and comments say what it waits for.  Other replies have a
 * header that tells how long the request waited, and why (docs/several-models.md#requests). */

enum { TICK_S = 1 };

static void on_tick(evutil_socket_t fd, short what, void *arg);

static void arm_tick(struct exchange *x)
{
	struct timeval tv = { TICK_S, 0 };

	if (!x->waited.tick)
		x->waited.tick = evtimer_new(x->srv->base, on_tick, x);
	if (!x->waited.tick)
		fault_no_memory();
	event_add(x->waited.tick, &tv);
}

static void begin_waiting_stream(struct exchange *x, const char *why)
{
	struct waited *w = &x->waited;

	snprintf(w->header, sizeof w->header, "%.1f s so far; %s", (double)(clock_monotonic_ns() - x->t_begin) / 1e9,
	         why);
	conn_stream_begin(x->conn, "text/event-stream; charset=utf-8",
	                  "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n");
	x->status = 200;
	w->began = true;
}

/* Sends a comment if it differs from the last one, or if that was long ago. */
static void tell_waiting(struct exchange *x, const char *name, const char *why)
{
	struct waited *w = &x->waited;
	int64_t now = clock_monotonic_ns();
	struct buf b;

	if (!w->began)
		begin_waiting_stream(x, why);
	buf_init(&b);
	buf_puts(&b, ": waiting for the model ");
	json_put_cstr(&b, name);
	buf_printf(&b, ": %s", why);
	if (conn_has_room(x->conn) && (strncmp(b.p, w->told, sizeof w->told - 1) ||
	                               now - w->told_ns >= x->srv->opts.keep_alive_ms * (int64_t)1000000)) {
		snprintf(w->told, sizeof w->told, "%s", b.p);
		w->told_ns = now;
		buf_puts(&b, "\n\n");
		conn_stream(x->conn, b.p, b.n);
	}
	buf_fini(&b);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct exchange *x = arg;
	struct known_waits k;

	server_turn(x->srv);
	(void)fd;
	(void)what;
	if (x->stage != PREPARING || x->cancel.by_us || !x->conn || !known_waits(x, &k))
		return;
	tell_waiting(x, k.name, k.why);
	arm_tick(x);
}

/* x, which is being prepared, may have begun to wait for a model. */
static void waiting_begin(struct exchange *x)
{
	struct known_waits k;

	if (x->srv->opts.keep_alive_ms && x->conn && known_waits(x, &k))
		arm_tick(x);
}

/* x is prepared: it waits no longer. */
static void waiting_end(struct exchange *x)
{
	struct waited *w = &x->waited;

	if (w->tick)
		event_del(w->tick);
	if (w->ns)
		snprintf(w->header, sizeof w->header, "%.3f s; %s", (double)w->ns / 1e9, w->why);
}

/* For the next request in x. */
static void waiting_reset(struct exchange *x)
{
	struct event *tick = x->waited.tick;

	if (tick)
		event_del(tick);
	x->waited = (struct waited){ .tick = tick };
}

/* Ends a stream that began while x waited, with p as its last event. */
static void waiting_refuse(struct exchange *x, const struct problem *p)
{
	struct buf b;

	buf_init(&b);
	buf_puts(&b, p->shape == SHAPE_ANTHROPIC ? "event: error\ndata: " : "data: ");
	problem_put(&b, p);
	buf_puts(&b, "\n\n");
	conn_stream(x->conn, b.p, b.n);
	conn_stream_end(x->conn);
	buf_fini(&b);
}

static void put_to_rest(struct exchange *x)
{
	struct server *s = x->srv;

	assert(!x->conn);
	disarm_late(x);
	waiting_reset(x);
	if (x->route->endpoint->drop)
		x->route->endpoint->drop(x);
	access_log(x);
	x->work = NULL;
	forget_body(x);
	buf_fini(&x->body);
	buf_fini(&x->rest);
	buf_fini(&x->warned);
	buf_fini(&x->query);
	known_release(x);
	if (x->heavy)
		workers_trim(s);
	x->heavy = x->detached = false;
	x->stage = AT_REST;
	x->next = s->exchanges.rest;
	s->exchanges.rest = x;
}

void request_id(const struct http *h, const char *other, char out[REQUEST_ID_MAX])
{
	struct http_slice v = h ? http_field(h, "x-request-id") : (struct http_slice){ 0 };
	bool good = v.n > 0 && v.n < REQUEST_ID_MAX;

	for (size_t i = 0; good && i < v.n; i++)
		good = v.p[i] > 0x20 && v.p[i] < 0x7f;
	if (good)
		snprintf(out, REQUEST_ID_MAX, "%.*s", (int)v.n, v.p);
	else
		snprintf(out, REQUEST_ID_MAX, "%s", other);
}

const char *exchange_query(const struct exchange *x, const char *name, size_t *n)
{
	size_t len = strlen(name);

	for (const char *p = x->query.n ? x->query.p : NULL; p; p = strchr(p, '&')) {
		p += *p == '&';
		if (strncmp(p, name, len) || p[len] != '=')
			continue;
		*n = strcspn(p + len + 1, "&");
		return p + len + 1;
	}
	return NULL;
}

/* Header x-request-deadline-ms: milliseconds from now.  A value that is not a number is ignored. */
static int64_t read_deadline(const struct http *h, int64_t now)
{
	enum { MS_MAX = 1000000000 }; /* eleven days */
	struct http_slice v = http_field(h, "x-request-deadline-ms");
	int64_t ms = 0;

	for (size_t i = 0; i < v.n; i++) {
		if (v.p[i] < '0' || v.p[i] > '9')
			return 0;
		ms = ms > MS_MAX ? ms : ms * 10 + v.p[i] - '0';
	}
	return v.n ? now + ms * 1000000 : 0;
}

/* ---- faults ---- */

struct call {
	struct exchange *x;
	void (*fn)(struct exchange *x);
};

static void do_call(void *arg)
{
	struct call *c = arg;

	c->fn(c->x);
}

int exchange_fault(struct problem *p, int code)
{
	return problem_set(p, code == E_MEMORY ? 503 : 500, code == E_MEMORY ? "out_of_memory" : "internal_error", NULL,
	                   "%s", fault_words(code));
}

/* Handles a fault in this request's work: cancels it, and tells its client if the reply
 * has not begun; other requests are not affected. */
static void break_down(struct exchange *x)
{
	struct conn *c = x->conn;
	struct problem p;
	struct buf b;

	exchange_fault(&p, fault_code());
	x->srv->metrics.faults++;
	if (x->stage == AT_REST)
		return; /* it had ended before */
	if (x->route->endpoint->abandon)
		x->route->endpoint->abandon(x);
	x->work = NULL;
	x->access.finish = "error";
	snprintf(x->access.why, sizeof x->access.why, "%s", p.message);
	x->conn = NULL;
	if (c && c->x == x && x->status == 0) {
		p.shape = x->route->shape;
		x->status = p.status;
		buf_init(&b);
		problem_put(&b, &p);
		conn_reply(c, p.status, "application/json", NULL, b.p, b.n);
		buf_fini(&b);
		put_to_rest(x);
		conn_next(c);
	} else {
		/* Half of a reply is out: that it breaks off says the rest. */
		put_to_rest(x);
		if (c) {
			c->x = NULL;
			conn_close(c, CAUSE_LEFT);
		}
	}
}

static void guarded(struct exchange *x, void (*fn)(struct exchange *x))
{
	struct call c = { x, fn };

	if (!fault_guard(do_call, &c))
		break_down(x);
}

void exchange_begin(struct conn *c, const struct route *route, struct buf *body)
{
	struct exchange *x = take_exchange(c->srv);
	char room[PATH_ROOM];
	struct http_slice rest = route->exact ? c->http.path : meant(c->http.path, room);

	x->conn = c;
	c->x = x;
	x->route = route;
	x->body = *body;
	x->body_counted = (int64_t)x->body.n;
	buf_init(body);
	x->t_begin = clock_monotonic_ns();
	x->deadline.ns = read_deadline(&c->http, x->t_begin);
	x->status = 0;
	x->problem.status = 0;
	x->model = NULL;
	x->mail.prepared = false;
	x->headers.cache_report = http_slice_is(http_field(&c->http, "x-cache-report"), "1") ||
	                          http_slice_is(http_field(&c->http, "x-cache-report"), "true");
	x->headers.anthropic = http_field(&c->http, "anthropic-version").n > 0;
	x->access = (struct access){ 0 };
	x->cancel.cause = CAUSE_LEFT;
	x->cancel.by_us = x->faulted = false;
	clients_admit(&c->srv->clients, &c->http, &x->from.key);
	x->from.keyed = clients_name(&c->srv->clients, x->from.key, x->from.client);
	if (!x->from.keyed)
		client_name(NULL, 0, c->peer, x->from.client);
	atomic_store(&x->gone, false);
	snprintf(x->from.peer, sizeof x->from.peer, "%s", c->peer);
	x->headers.last_event = last_event_read(http_field(&c->http, "last-event-id"));
	random_id(x->id);
	if (x->headers.last_event.sound)
		snprintf(x->id, sizeof x->id, "%s", x->headers.last_event.answer);
	request_id(&c->http, x->id, x->request_id);
	buf_put(&x->query, c->http.query.p, c->http.query.n);
	if (route->prefix) {
		size_t bad;

		rest.p += strlen(route->path);
		rest.n -= strlen(route->path);
		if (http_unescape(rest, &x->rest, &bad)) {
			struct problem p;

			problem_set(&p, 400, NULL, NULL, "the path holds a bad percent escape at byte %zu",
			            strlen(route->path) + bad);
			exchange_refuse(x, &p);
			return;
		}
	}
	if (route->endpoint->prep) {
		struct problem p;

		x->stage = PREPARING;
		if (workers_give(c->srv, x, &p))
			exchange_refuse(x, &p);
		else
			arm_late(x);
	} else {
		x->stage = RUNNING;
		guarded(x, route->endpoint->ready);
	}
}

struct exchange *exchange_detach(struct exchange *x, const struct route *route)
{
	struct exchange *y = take_exchange(x->srv);

	y->conn = x->conn;
	y->conn->x = y;
	y->route = route;
	y->t_begin = x->t_begin;
	y->deadline.ns = 0;
	y->status = 0;
	y->problem.status = 0;
	y->model = NULL;
	y->headers.cache_report = y->headers.anthropic = y->cancel.by_us = y->faulted = false;
	y->access = (struct access){ 0 };
	y->cancel.cause = CAUSE_LEFT;
	y->from = x->from;
	memcpy(y->request_id, x->request_id, sizeof y->request_id);
	memcpy(y->waited.header, x->waited.header, sizeof y->waited.header);
	y->waited.began = x->waited.began;
	y->warned = x->warned;
	buf_init(&x->warned);
	random_id(y->id);
	atomic_store(&y->gone, false);
	y->stage = RUNNING;
	x->waited.began = false;
	x->conn = NULL;
	x->detached = true;
	return y;
}

void exchange_end(struct exchange *x)
{
	struct conn *c = x->conn;

	x->conn = NULL;
	put_to_rest(x);
	if (c)
		conn_next(c);
}

void exchange_leave(struct exchange *x, enum cause why)
{
	x->conn = NULL;
	if (!x->cancel.by_us)
		x->cancel.cause = why;
	atomic_store(&x->gone, true);
	if (x->stage == PREPARING && !x->cancel.by_us)
		exchange_cancelled(x, LEFT_PREPARING);
	if (x->stage == PREPARING)
		known_wake(x->srv);
	/* If it is at work, the worker's post is the end. */
	if (x->stage != PREPARING || workers_take_back(x->srv, x))
		put_to_rest(x);
}

void exchange_cancelled(struct exchange *x, enum left_at at)
{
	x->access.finish = "cancelled";
	metrics_cancelled(&x->srv->metrics, x->cancel.cause, at);
	if (!*x->access.why)
		snprintf(x->access.why, sizeof x->access.why, "%s while %s", cause_names[x->cancel.cause],
		         stage_names[at]);
}

/* ---- cancelling by name ---- */

static void cancel(struct exchange *x, enum cause why, const struct problem *p)
{
	x->cancel.cause = why;
	x->cancel.by_us = true;
	if (x->stage == PREPARING) {
		/* The worker sees gone and stops early; its post then refuses. */
		atomic_store(&x->gone, true);
		known_wake(x->srv);
		exchange_cancelled(x, LEFT_PREPARING);
		x->cancel.problem = *p;
		if (workers_take_back(x->srv, x))
			exchange_refuse(x, p);
	} else if (x->route->endpoint->stop) {
		x->route->endpoint->stop(x, p);
	} else {
		exchange_refuse(x, p);
	}
}

int exchange_cancel(struct server *s, const char *id, size_t n, int key)
{
	struct problem p;
	int count = 0;

	problem_set(&p, 499, "request_cancelled", NULL, "the request was cancelled by DELETE /v1/requests");
	for (size_t i = 0; i < s->exchanges.n; i++) {
		struct exchange *x = s->exchanges.v[i];

		if (x->stage == AT_REST || x->cancel.by_us || (!x->conn && !x->detached) || x->from.key != key ||
		    !x->route->endpoint->prep)
			continue;
		if ((strlen(x->request_id) == n && !memcmp(x->request_id, id, n)) ||
		    (n >= strlen(x->id) && !memcmp(x->id, id + n - strlen(x->id), strlen(x->id)))) {
			cancel(x, CAUSE_DELETE, &p);
			count++;
		}
	}
	return count + conn_cancel(s, id, n, key, &p);
}

void exchange_room(struct exchange *x)
{
	if (x->stage == RUNNING && x->route->endpoint->wake)
		guarded(x, x->route->endpoint->wake);
}

/* ---- replies ---- */

void exchange_reply(struct exchange *x, int code, const char *type, const char *p, size_t n)
{
	x->status = code;
	if (x->conn)
		conn_reply(x->conn, code, type, NULL, p, n);
	exchange_end(x);
}

void exchange_reply_whole(struct exchange *x, int code, const char *type, struct buf *body)
{
	x->status = code;
	if (x->conn)
		conn_reply_whole(x->conn, code, type, NULL, body);
	exchange_end(x);
}

void exchange_refuse(struct exchange *x, const struct problem *p)
{
	struct problem shaped = *p;
	struct buf b, extra;

	shaped.shape = x->route->shape;
	x->status = x->waited.began ? x->status : p->status;
	snprintf(x->access.why, sizeof x->access.why, "%s", p->message);
	if (x->conn && x->waited.began) {
		x->access.finish = x->access.finish ? x->access.finish : "error";
		waiting_refuse(x, &shaped);
	} else if (x->conn) {
		buf_init(&b);
		buf_init(&extra);
		problem_put(&b, &shaped);
		if (p->retry_after)
			buf_printf(&extra, "Retry-After: %d\r\n", p->retry_after);
		conn_reply(x->conn, p->status, "application/json", extra.p, b.p, b.n);
		buf_fini(&b);
		buf_fini(&extra);
	}
	exchange_end(x);
}

/* ---- the mailbox ---- */

static void post(struct exchange *x)
{
	struct server *s = x->srv;

	/* under the lock */
	if (x->mail.queued)
		return;
	x->mail.queued = true;
	x->mail.next = NULL;
	if (!s->mailbox.first)
		server_ring(s);
	*s->mailbox.tail = x;
	s->mailbox.tail = &x->mail.next;
}

void exchange_notify(void *arg)
{
	struct exchange *x = arg;

	pthread_mutex_lock(&x->srv->lock);
	post(x);
	pthread_mutex_unlock(&x->srv->lock);
}

static void do_prep(void *x)
{
	((struct exchange *)x)->route->endpoint->prep(x);
}

/* Work above either limit leaves memory that is returned to the system. */
enum { HEAVY_BYTES = 256 << 10, HEAVY_STEPS = 4000000 };

void exchange_prepare(struct exchange *x)
{
	struct server *s = x->srv; /* x may be gone once it is posted */
	struct allowance a;
	size_t n = x->body.n;
	uint64_t all;

	allowance_begin(&a, n, &x->gone);
	all = a.left;
	if (!atomic_load(&x->gone) && !fault_guard(do_prep, x)) {
		x->work = NULL; /* half made, and not to be looked at */
		exchange_fault(&x->problem, fault_code());
		x->faulted = true;
	}
	allowance_end();
	if (a.why && !x->problem.status)
		problem_set(&x->problem, 400, "too_much_work", NULL, "%s", a.why);
	x->heavy = n > HEAVY_BYTES || all - a.left > HEAVY_STEPS;
	pthread_mutex_lock(&s->lock);
	x->mail.prepared = true;
	post(x);
	pthread_mutex_unlock(&s->lock);
	allowance_settle(&a);
}

static void deliver(struct exchange *x, bool prepared)
{
	if (x->stage == PREPARING && prepared) {
		x->stage = RUNNING;
		disarm_late(x);
		waiting_end(x);
		forget_body(x);
		x->srv->metrics.faults += x->faulted;
		if (!x->conn)
			put_to_rest(x);
		else if (x->cancel.by_us)
			exchange_refuse(x, &x->cancel.problem);
		else if (x->problem.status)
			exchange_refuse(x, &x->problem);
		else
			guarded(x, x->route->endpoint->ready);
	} else if (x->stage == PREPARING) {
		waiting_begin(x);
	} else if (x->stage == RUNNING && (x->conn || x->detached) && x->route->endpoint->wake) {
		guarded(x, x->route->endpoint->wake);
	}
}

void exchange_deliver(struct server *s)
{
	struct mailbox *mail = &s->mailbox;

	/* One at a time, since what is delivered may post again; and no more than this
	 * before sockets have their turn. */
	for (int n = 0; n < 256; n++) {
		struct exchange *x;
		bool prepared = false;

		pthread_mutex_lock(&s->lock);
		x = mail->first;
		if (x) {
			if (!(mail->first = x->mail.next))
				mail->tail = &mail->first;
			x->mail.queued = false;
			prepared = x->mail.prepared;
			x->mail.prepared = false;
		}
		pthread_mutex_unlock(&s->lock);
		if (!x)
			return;
		deliver(x, prepared);
	}
	server_ring(s);
}
