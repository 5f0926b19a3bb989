/* api_kept.c - GET and DELETE /v1/responses/{id} and paths below it: answers that are kept (response_store.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "server/inside.h"
#include "server/routes.h"

static void none(struct exchange *x)
{
	struct problem p;

	problem_set(&p, 404, "response_not_found", NULL, "there is no response \"%.60s\" here, or no longer",
	            x->rest.p);
	exchange_refuse(x, &p);
}

static const char *item_id(const struct json *item)
{
	size_t n;
	const char *s = json_str(json_get(item, "id"), &n);

	return s ? s : "";
}

static void put_id(struct buf *out, const char *name, const struct json *item)
{
	buf_printf(out, ",\"%s\":", name);
	if (item)
		json_put_cstr(out, item_id(item));
	else
		buf_puts(out, "null");
}

/* GET /v1/responses/{id}/input_items: limit (20), order (desc), after. */
static void list_items(struct exchange *x, const struct buf *kept)
{
	enum { LIMIT = 20, LIMIT_MAX = 100 };
	const char *limit, *order, *after;
	size_t n_limit = 0, n_order = 0, n_after = 0, n, from = 0, to;
	struct json *items;
	struct buf b;
	long most = LIMIT;
	bool rising;

	limit = exchange_query(x, "limit", &n_limit);
	order = exchange_query(x, "order", &n_order);
	after = exchange_query(x, "after", &n_after);
	if (limit)
		most = strtol(limit, NULL, 10);
	rising = order && n_order == 3 && !memcmp(order, "asc", 3);
	if (most < 1 || most > LIMIT_MAX || (order && !rising && (n_order != 4 || memcmp(order, "desc", 4)))) {
		struct problem p;

		problem_set(&p, 400, "invalid_value", most < 1 || most > LIMIT_MAX ? "limit" : "order",
		            "limit must be from 1 to %d, order asc or desc", LIMIT_MAX);
		exchange_refuse(x, &p);
		return;
	}
	buf_init(&b);
	buf_printf(&b, "[%s]", kept->n ? kept->p : "");
	items = json_parse(b.p, b.n, 200, NULL);
	buf_reset(&b);
	n = json_len(items);
	for (size_t i = 0; after && i < n; i++) {
		const char *id = item_id(json_at(items, rising ? i : n - 1 - i));

		if (strlen(id) == n_after && !memcmp(id, after, n_after))
			from = i + 1;
	}
	to = n - from > (size_t)most ? from + (size_t)most : n;
	buf_puts(&b, "{\"object\":\"list\",\"data\":[");
	for (size_t i = from; i < to; i++) {
		if (i > from)
			buf_putc(&b, ',');
		json_put(&b, json_at(items, rising ? i : n - 1 - i));
	}
	buf_putc(&b, ']');
	put_id(&b, "first_id", from < to ? json_at(items, rising ? from : n - 1 - from) : NULL);
	put_id(&b, "last_id", from < to ? json_at(items, rising ? to - 1 : n - to) : NULL);
	buf_printf(&b, ",\"has_more\":%s}\n", to < n ? "true" : "false");
	exchange_reply(x, 200, "application/json", b.p, b.n);
	json_free(items);
	buf_fini(&b);
}

static void get(struct exchange *x)
{
	static const char list[] = "/input_items";
	size_t n = x->rest.n, len = sizeof list - 1, n_stream;
	bool items = n > len && !memcmp(x->rest.p + n - len, list, len);
	const char *stream = exchange_query(x, "stream", &n_stream);
	struct buf b;

	if (stream && n_stream == 4 && !memcmp(stream, "true", 4)) {
		struct problem p;

		problem_set(&p, 400, "unsupported_field", "stream",
		            "stream is not supported by this server: what is kept comes whole");
		exchange_refuse(x, &p);
		return;
	}
	buf_init(&b);
	if (items)
		x->rest.p[x->rest.n -= len] = 0;
	if (!response_store_get(&x->srv->responses, x->rest.p, x->key, items ? KEPT_ITEMS : KEPT_OBJECT, &b)) {
		none(x);
	} else if (items) {
		list_items(x, &b);
	} else {
		buf_putc(&b, '\n');
		exchange_reply(x, 200, "application/json", b.p, b.n);
	}
	buf_fini(&b);
}

static void drop(struct exchange *x)
{
	struct buf b;

	if (!response_store_drop(&x->srv->responses, x->rest.p, x->key)) {
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

/* POST /v1/responses/{id}/cancel: a kept response has always ended, and is returned as it is; other paths behind the id. */
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
	buf_init(&b);
	if (response_store_get(&x->srv->responses, x->rest.p, x->key, KEPT_OBJECT, &b)) {
		buf_putc(&b, '\n');
		exchange_reply(x, 200, "application/json", b.p, b.n);
	} else {
		none(x);
	}
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
const struct endpoint response_get_endpoint = { .ready = get };
const struct endpoint response_drop_endpoint = { .ready = drop };
