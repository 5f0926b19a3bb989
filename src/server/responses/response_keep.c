/* response_keep.c - see response_keep.h. */
#include "server/responses/response_keep.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "server/chat/chat.h"
#include "server/chat/generate.h"
#include "server/inside.h"
#include "server/responses/response_tell.h"
#include "server/routes.h"

enum { PIECE_BYTES = 16 << 10 }; /* of events, to a follower at once */

struct follower {
	struct follower *next;
	struct background *of;
	struct exchange *x;
	bool streams; /* it wants events, and not only the response as it began */
	size_t at;    /* of the events: what comes next */
	size_t skip;  /* events from there on that it does not want */
	struct event *tick;
	bool sent; /* since the last tick */
};

struct background {
	struct background *next; /* in backgrounds, while it runs */
	struct exchange *x;      /* whose work it is; NULL: it is over */
	struct follower *followers;
	char id[48];
	int key;
	bool streams, dropped; /* its events are kept; were, until there was no room */
	struct buf begun;      /* the response as it began */
	struct response_end end;
	struct buf events;
};

/* ---- followers ---- */

size_t events_after(const char *p, size_t len, size_t *n)
{
	const char *at = p, *end = p + len;

	while (*n && at < end) {
		const char *next = memmem(at, (size_t)(end - at), "\n\n", 2);

		at = next ? next + 2 : end;
		--*n;
	}
	return (size_t)(at - p);
}

static void free_background(struct background *b, struct backgrounds *all)
{
	all->bytes -= b->events.n;
	buf_fini(&b->events);
	buf_fini(&b->begun);
	buf_fini(&b->end.object);
	free(b);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	static const char sign[] = ": keep-alive\n\n";
	struct follower *f = arg;

	server_turn(f->x->srv);
	(void)fd;
	(void)what;
	if (!f->sent && conn_has_room(f->x->conn))
		conn_stream(f->x->conn, sign, sizeof sign - 1);
	f->sent = false;
}

static struct follower *new_follower(struct background *b, bool streams, size_t skip)
{
	struct follower *f = xcalloc(1, sizeof *f);

	f->of = b;
	f->streams = streams;
	f->skip = skip;
	f->next = b->followers;
	b->followers = f;
	return f;
}

/* The reply begins; for a client that asked for no stream it is whole. */
static void begin_reply(struct exchange *x)
{
	struct follower *f = x->work;
	int ms = x->srv->opts.keep_alive_ms;
	struct timeval every = { ms / 1000, ms % 1000 * 1000 };
	struct buf extra;

	buf_init(&extra);
	if (x->warned.n)
		buf_printf(&extra, "x-weft-warning: %s\r\n", x->warned.p);
	if (f->streams)
		buf_puts(&extra, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n");
	if (!f->streams)
		conn_reply(x->conn, 200, "application/json", extra.p, f->of->begun.p, f->of->begun.n);
	else if (!x->waited.began)
		conn_stream_begin(x->conn, "text/event-stream; charset=utf-8", extra.p);
	x->status = 200;
	buf_fini(&extra);
	if (f->streams && ms && !(f->tick = event_new(x->srv->base, -1, EV_PERSIST, on_tick, f)))
		fault_no_memory();
	if (f->tick)
		event_add(f->tick, &every);
}

static void tell_dropped(struct exchange *x, const struct background *b)
{
	struct buf out;

	buf_init(&out);
	event_named(&out, "error");
	buf_printf(&out,
	           "{\"type\":\"error\",\"code\":\"events_dropped\",\"message\":\"there is no room for the events of "
	           "response %s, which goes on without them: fetch it once it has ended\",\"param\":null}",
	           b->id);
	event_end(&out);
	conn_stream(x->conn, out.p, out.n);
	buf_fini(&out);
}

void follower_wake(struct exchange *x)
{
	struct follower *f = x->work;
	const struct background *b;

	if (!f)
		return; /* late, for the exchange that was here before */
	b = f->of;
	if (x->status == 0)
		begin_reply(x);
	if (!f->streams) {
		exchange_end(x);
		return;
	}
	if (f->skip)
		f->at += events_after(b->events.p + f->at, b->events.n - f->at, &f->skip);
	while (f->at < b->events.n && conn_has_room(x->conn)) {
		size_t n = b->events.n - f->at;

		n = n > PIECE_BYTES ? PIECE_BYTES : n;
		conn_stream(x->conn, b->events.p + f->at, n);
		f->at += n;
		f->sent = true;
	}
	if (b->dropped)
		tell_dropped(x, b);
	if (b->dropped || (!b->x && f->at == b->events.n)) {
		conn_stream_end(x->conn);
		exchange_end(x);
	}
}

void background_follow(struct exchange *x, struct background *b, size_t n)
{
	struct follower *f = new_follower(b, true, n);

	f->x = x;
	x->work = f;
	follower_wake(x);
}

void follower_drop(struct exchange *x)
{
	struct follower *f = x->work, **at;
	struct background *b;

	if (!f)
		return;
	b = f->of;
	for (at = &b->followers; *at != f; at = &(*at)->next)
		;
	*at = f->next;
	if (f->tick)
		event_free(f->tick);
	free(f);
	x->work = NULL;
	if (!b->x && !b->followers)
		free_background(b, &x->srv->backgrounds);
}

static void wake_followers(const struct background *b)
{
	for (struct follower *f = b->followers; f; f = f->next)
		if (f->x) /* it has none if a fault came before the client's exchange */
			exchange_notify(f->x);
}

/* ---- in the background ---- */

static const struct endpoint follow_endpoint = { .wake = follower_wake,
	                                         .drop = follower_drop,
	                                         .abandon = follower_drop };
static const struct route follow_route = { .path = "/v1/responses", .post = true, .endpoint = &follow_endpoint };

struct background *background_find(const struct backgrounds *all, const char *id, int key)
{
	for (struct background *b = all->first; b; b = b->next)
		if (b->key == key && !strcmp(b->id, id))
			return b;
	return NULL;
}

bool background_streams(const struct background *b)
{
	return b->streams && !b->dropped;
}

void background_put(const struct background *b, struct buf *out)
{
	struct generation *g = b->x->work;

	response_put(g, g->choice[0].started ? "in_progress" : "queued", NULL, out);
}

static int judge(const struct exchange *x, struct problem *p)
{
	const struct backgrounds *all = &x->srv->backgrounds;
	int own = 0, left = BACKGROUND_MAX - all->n;

	for (const struct background *b = all->first; b; b = b->next)
		own += !strcmp(b->x->from.client, x->from.client);
	if (!left)
		problem_set(p, 503, "overloaded", NULL, "%d responses are in the background, which are the most",
		            BACKGROUND_MAX);
	else if (own && own >= left)
		problem_set(p, 429, "client_over_share", NULL,
		            "%d responses of this client are in the background, which is its share", own);
	else
		return 0;
	p->retry_after = 1;
	return p->status;
}

static struct background *new_background(struct exchange *x)
{
	struct generation *g = x->work;
	struct background *b = xcalloc(1, sizeof *b);
	struct backgrounds *all = &x->srv->backgrounds;

	b->x = x;
	b->key = x->from.key;
	b->streams = g->params.stream;
	snprintf(b->id, sizeof b->id, "resp_%s", x->id);
	buf_init(&b->begun);
	buf_init(&b->end.object);
	buf_init(&b->events);
	b->next = all->first;
	all->first = b;
	all->n++;
	return b;
}

void background_ready(struct exchange *x)
{
	struct generation *g = x->work;
	struct responses *own = g->own;
	struct follower *f;
	struct problem p;

	if (!own->wants_background) {
		generation_ready(x);
		return;
	}
	if (judge(x, &p) || generation_start(x, &p)) {
		exchange_refuse(x, &p); /* drop cancels what was started */
		return;
	}
	own->behind = new_background(x);
	own->end = &own->behind->end;
	response_put(g, "queued", NULL, &own->behind->begun);
	f = new_follower(own->behind, g->params.stream, 0);
	f->x = exchange_detach(x, &follow_route);
	f->x->work = f;
	x->status = 200; /* that of the reply, for the log */
	/* A fault from here on is of one of the two alone: the reply begins in a step of the other. */
	exchange_notify(f->x);
	if (g->params.stream)
		generation_stream(g);
}

void background_events(struct generation *g, const char *p, size_t n)
{
	struct background *b = ((struct responses *)g->own)->behind;
	struct backgrounds *all = &g->x->srv->backgrounds;

	if (b->dropped)
		return;
	if (all->bytes + n > g->x->srv->responses.bytes_max) {
		b->dropped = true;
		all->bytes -= b->events.n;
		buf_fini(&b->events);
	} else {
		all->bytes += n;
		buf_put(&b->events, p, n);
	}
	wake_followers(b);
}

void background_failed(struct generation *g, const struct problem *p)
{
	struct background *b = ((struct responses *)g->own)->behind;
	bool cancelled = p->status == STATUS_CANCELLED;

	response_put(g, cancelled ? "cancelled" : "failed", cancelled ? NULL : p, &b->end.object);
}

/* A fault ended it, and the rest of its work is not to be read: the response as it began, but for what says that it failed. */
static void put_faulted(struct background *b)
{
	struct json *j = json_parse(b->begun.p, b->begun.n, 200, NULL);
	struct json_cursor k;
	const struct json *v;
	const char *key;

	buf_puts(&b->end.object,
	         "{\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"a fault of the server "
	         "ended this response\"}");
	for (k = json_first(j); json_next(&k, &key, &v);) {
		if (!strcmp(key, "status") || !strcmp(key, "error"))
			continue;
		buf_putc(&b->end.object, ',');
		json_put_cstr(&b->end.object, key);
		buf_putc(&b->end.object, ':');
		json_put(&b->end.object, v);
	}
	buf_putc(&b->end.object, '}');
	json_free(j);
}

static void background_over(struct background *b, const struct generation *g, struct server *s)
{
	const struct responses *own = g ? g->own : NULL;
	struct background **at = &s->backgrounds.first;
	struct buf none;

	buf_init(&none);
	if (!b->end.object.n)
		put_faulted(b);
	response_store_put(&s->responses, b->id, b->key,
	                   (const struct buf *[N_KEPT]){ &b->end.object, own && b->end.whole ? &own->history : &none,
	                                                 own ? &own->items : &none, own ? &own->tools : &none,
	                                                 &b->events });
	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	s->backgrounds.n--;
	b->x = NULL;
	wake_followers(b);
	if (!b->followers)
		free_background(b, &s->backgrounds);
}

void background_drop(struct exchange *x)
{
	struct background *b = x->srv->backgrounds.first;

	while (b && b->x != x)
		b = b->next;
	if (b)
		background_over(b, x->work, x->srv);
	generation_drop(x);
}
