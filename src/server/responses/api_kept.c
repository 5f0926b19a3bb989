/* api_kept.c - GET and DELETE /v1/responses/{id} and paths below it: answers that are kept (response_store.h), or run in the
 * background (response_keep.h). */
#include <stdlib.h>
#include <string.h>

#include "server/inside.h"
#include "server/responses/response_items.h"
#include "server/responses/response_keep.h"
#include "server/routes.h"

static void none(struct exchange *x)
{
	struct problem p;

	problem_set(&p, 404, "response_not_found", NULL, "there is no response \"%.60s\" here, or no longer",
	            x->rest.p);
	exchange_refuse(x, &p);
}

/* Whether the id is that of a response: conversations are kept in the same store. */
static bool is_response(const struct exchange *x)
{
	return !strncmp(x->rest.p, "resp_", 5);
}

static void reply(struct exchange *x, struct buf *b)
{
	buf_putc(b, '\n');
	exchange_reply(x, 200, "application/json", b->p, b->n);
}

/* GET /v1/responses/{id}/input_items. */
static void get_items(struct exchange *x)
{
	struct json *items;
	struct problem p;
	struct buf b;

	buf_init(&b);
	if (!is_response(x) || !response_store_get(&x->srv->responses, x->rest.p, x->from.key, KEPT_ITEMS, &b)) {
		none(x);
	} else {
		items = items_parse(&b);
		buf_reset(&b);
		if (items_page(x, items, &b, &p))
			exchange_refuse(x, &p);
		else
			exchange_reply_whole(x, 200, "application/json", &b);
		json_free(items);
	}
	buf_fini(&b);
}

/* The events after number starting_after; *from: how many come before them. */
static int read_start(const struct exchange *x, size_t *from, struct problem *p)
{
	size_t n;
	const char *s = exchange_query(x, "starting_after", &n);

	*from = 0;
	for (size_t i = 0; s && i < n; i++) {
		if (s[i] < '0' || s[i] > '9' || n > 9)
			return problem_set(p, 400, "invalid_value", "starting_after",
			                   "starting_after must be the sequence_number of an event");
		*from = *from * 10 + (size_t)(s[i] - '0');
	}
	*from += s != NULL;
	return 0;
}

static void get_stream(struct exchange *x, struct background *b)
{
	struct problem p;
	struct buf events;
	size_t from;

	buf_init(&events);
	if (read_start(x, &from, &p)) {
		exchange_refuse(x, &p);
	} else if (b && background_streams(b)) {
		background_follow(x, b, from);
	} else if (!b && (!is_response(x) ||
	                  !response_store_get(&x->srv->responses, x->rest.p, x->from.key, KEPT_EVENTS, &events))) {
		none(x);
	} else if (!events.n) {
		problem_set(
			&p, 400, "unsupported_value", "stream",
			"the events of this response are not kept: it was not made with background and stream, or they "
			"were too large");
		exchange_refuse(x, &p);
	} else {
		buf_drop(&events, events_after(events.p, events.n, &from));
		exchange_reply_whole(x, 200, "text/event-stream; charset=utf-8", &events);
	}
	buf_fini(&events);
}

static void get(struct exchange *x)
{
	static const char list[] = "/input_items";
	size_t n = x->rest.n, len = sizeof list - 1, n_stream;
	const char *stream = exchange_query(x, "stream", &n_stream);
	struct background *behind;
	struct buf b;

	if (n > len && !memcmp(x->rest.p + n - len, list, len)) {
		x->rest.p[x->rest.n -= len] = 0;
		get_items(x);
		return;
	}
	behind = background_find(&x->srv->backgrounds, x->rest.p, x->from.key);
	if (stream && n_stream == 4 && !memcmp(stream, "true", 4)) {
		get_stream(x, behind);
		return;
	}
	buf_init(&b);
	if (behind) {
		background_put(behind, &b);
		reply(x, &b);
	} else if (is_response(x) && response_store_get(&x->srv->responses, x->rest.p, x->from.key, KEPT_OBJECT, &b)) {
		reply(x, &b);
	} else {
		none(x);
	}
	buf_fini(&b);
}

/* A response that runs in the background ends, and is in the store. */
static void end_background(struct exchange *x)
{
	if (background_find(&x->srv->backgrounds, x->rest.p, x->from.key))
		exchange_cancel(x->srv, x->rest.p, x->rest.n, x->from.key);
}

static void drop(struct exchange *x)
{
	struct buf b;

	end_background(x);
	if (!is_response(x) || !response_store_drop(&x->srv->responses, x->rest.p, x->from.key)) {
		none(x);
		return;
	}
	buf_init(&b);
	buf_puts(&b, "{\"id\":");
	json_put_cstr(&b, x->rest.p);
	buf_puts(&b, ",\"object\":\"response\",\"deleted\":true}\n");
	exchange_reply(x, 200, "application/json", b.p, b.n);
	buf_fini(&b);
}

/* POST /v1/responses/{id}/cancel: one that has ended is returned as it is; other paths behind the id. */
static void cancel(struct exchange *x)
{
	static const char end[] = "/cancel";
	size_t n = x->rest.n, len = sizeof end - 1;
	struct problem p;
	struct buf b;

	if (n <= len || memcmp(x->rest.p + n - len, end, len)) {
		problem_set(&p, 404, NULL, NULL, "there is nothing to be posted at /v1/responses/%.60s", x->rest.p);
		exchange_refuse(x, &p);
		return;
	}
	x->rest.p[x->rest.n -= len] = 0;
	end_background(x);
	buf_init(&b);
	if (is_response(x) && response_store_get(&x->srv->responses, x->rest.p, x->from.key, KEPT_OBJECT, &b))
		reply(x, &b);
	else
		none(x);
	buf_fini(&b);
}

static void compact(struct exchange *x)
{
	struct problem p;

	problem_set(
		&p, 404, "unsupported", NULL,
		"this server compacts no conversations: send the whole of it, for what was computed before is kept");
	exchange_refuse(x, &p);
}

const struct endpoint response_cancel_endpoint = { .ready = cancel };
const struct endpoint response_compact_endpoint = { .ready = compact };
const struct endpoint response_get_endpoint = {
	.ready = get, .wake = follower_wake, .drop = follower_drop, .abandon = follower_drop
};
const struct endpoint response_drop_endpoint = { .ready = drop };
