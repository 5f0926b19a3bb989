/* response_items.c - see response_items.h. */
#include "server/responses/response_items.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parts of a message with one text. */
static struct json *one_part(const char *type, const struct json *text)
{
	struct json *parts = json_new_array(), *part = json_new_object();

	json_set_cstr(part, "type", type);
	json_set(part, "text", json_share(text));
	json_add(parts, part);
	return parts;
}

static void set_id(struct json *item, const char *prefix)
{
	char random[24], id[40];

	random_id(random);
	snprintf(id, sizeof id, "%s_%s", prefix, random);
	json_set_cstr(item, "id", id);
}

/* An item of the request as it is listed: with an id, and text in parts. */
static struct json *listed_item(const struct json *item)
{
	const struct json *content = json_get(item, "content"), *role = json_get(item, "role"), *v;
	struct json *out = json_new_object();
	struct json_cursor k;
	const char *key;
	size_t n;
	const char *s = json_str(role, &n);
	bool text = json_kind(content) == JSON_STRING;

	if (json_kind(json_get(item, "id")) == JSON_NULL)
		set_id(out, role ? "msg" : "item");
	if (json_kind(json_get(item, "type")) == JSON_NULL)
		json_set_cstr(out, "type", "message");
	if (json_kind(json_get(item, "status")) == JSON_NULL)
		json_set_cstr(out, "status", "completed");
	for (k = json_first(item); json_next(&k, &key, &v);)
		if (json_kind(v) != JSON_NULL && !(text && !strcmp(key, "content")))
			json_set(out, key, json_share(v));
	if (text)
		json_set(out, "content",
		         one_part(s && !strcmp(s, "assistant") ? "output_text" : "input_text", content));
	return out;
}

struct json *items_of(const struct json *input)
{
	struct json *out = json_new_array(), *message;

	if (json_kind(input) == JSON_STRING) {
		message = json_new_object();
		set_id(message, "msg");
		json_set_cstr(message, "type", "message");
		json_set_cstr(message, "status", "completed");
		json_set_cstr(message, "role", "user");
		json_set(message, "content", one_part("input_text", input));
		json_add(out, message);
	}
	for (size_t i = 0; json_kind(input) == JSON_ARRAY && i < json_len(input); i++)
		json_add(out, listed_item(json_at(input, i)));
	return out;
}

void items_put(const struct json *items, struct buf *out)
{
	for (size_t i = 0; i < json_len(items); i++) {
		if (out->n)
			buf_putc(out, ',');
		json_put(out, json_at(items, i));
	}
}

struct json *items_parse(const struct buf *kept)
{
	struct json *items;
	struct buf b;

	buf_init(&b);
	buf_printf(&b, "[%s]", kept->n ? kept->p : "");
	items = json_parse(b.p, b.n, 200, NULL);
	buf_fini(&b);
	return items;
}

const char *item_id(const struct json *item)
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

void items_put_list(const struct json *items, size_t from, size_t to, bool rising, struct buf *out)
{
	size_t n = json_len(items);

	buf_puts(out, "{\"object\":\"list\",\"data\":[");
	for (size_t i = from; i < to; i++) {
		if (i > from)
			buf_putc(out, ',');
		json_put(out, json_at(items, rising ? i : n - 1 - i));
	}
	buf_putc(out, ']');
	put_id(out, "first_id", from < to ? json_at(items, rising ? from : n - 1 - from) : NULL);
	put_id(out, "last_id", from < to ? json_at(items, rising ? to - 1 : n - to) : NULL);
	buf_printf(out, ",\"has_more\":%s}\n", to < n ? "true" : "false");
}

int items_page(const struct exchange *x, const struct json *items, struct buf *out, struct problem *p)
{
	enum { LIMIT = 20, LIMIT_MAX = 100 };
	const char *limit, *order, *after;
	size_t n_limit = 0, n_order = 0, n_after = 0, n = json_len(items), from = 0, to;
	long most = LIMIT;
	bool rising;

	limit = exchange_query(x, "limit", &n_limit);
	order = exchange_query(x, "order", &n_order);
	after = exchange_query(x, "after", &n_after);
	if (limit)
		most = strtol(limit, NULL, 10);
	rising = order && n_order == 3 && !memcmp(order, "asc", 3);
	if (most < 1 || most > LIMIT_MAX || (order && !rising && (n_order != 4 || memcmp(order, "desc", 4))))
		return problem_set(p, 400, "invalid_value", most < 1 || most > LIMIT_MAX ? "limit" : "order",
		                   "limit must be from 1 to %d, order asc or desc", LIMIT_MAX);
	for (size_t i = 0; after && i < n; i++) {
		const char *id = item_id(json_at(items, rising ? i : n - 1 - i));

		if (strlen(id) == n_after && !memcmp(id, after, n_after))
			from = i + 1;
	}
	to = n - from > (size_t)most ? from + (size_t)most : n;
	items_put_list(items, from, to, rising, out);
	return 0;
}
