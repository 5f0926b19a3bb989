/* api_conversations.c - /v1/conversations: lists of items that responses begin with and add to, kept in the store of responses
 * (response_store.h).
 *
 * All of it happens on a worker: items are read and written as JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "server/chat/fields.h"
#include "server/inside.h"
#include "server/responses/response_items.h"
#include "server/routes.h"

enum { ITEMS_AT_ONCE = 20, METADATA_MAX = 16, METADATA_KEY = 64, METADATA_VALUE = 512 };

/* x->work: the body of the reply. */
static struct buf *reply_of(struct exchange *x)
{
	struct buf *b = xcalloc(1, sizeof *b);

	buf_init(b);
	x->work = b;
	return b;
}

static void ready(struct exchange *x)
{
	exchange_reply_whole(x, 200, "application/json", x->work);
}

static void drop_reply(struct exchange *x)
{
	struct buf *b = x->work;

	if (b)
		buf_fini(b);
	free(b);
	x->work = NULL;
}

static struct response_store *store_of(const struct exchange *x)
{
	return &x->srv->responses;
}

/* ---- reading ---- */

/* What the path names below /v1/conversations/. */
struct named {
	char id[64];
	bool items;       /* /items follows */
	const char *item; /* the id behind it, or NULL */
};

static int missing(const char *id, struct problem *p)
{
	return problem_set(p, 404, "conversation_not_found", NULL,
	                   "there is no conversation \"%.60s\" here, or no longer", id);
}

static int read_path(const struct exchange *x, struct named *w, struct problem *p)
{
	const char *rest = x->rest.p, *at = rest + strcspn(rest, "/");

	*w = (struct named){ .items = !strcmp(at, "/items") || !strncmp(at, "/items/", 7) };
	if (at[0] && !w->items)
		return problem_set(p, 404, NULL, NULL, "there is nothing at /v1/conversations/%.100s", rest);
	if (at[0] && at[6])
		w->item = at + 7;
	snprintf(w->id, sizeof w->id, "%.*s", (int)(at - rest < 64 ? at - rest : 63), rest);
	return strncmp(w->id, "conv_", 5) != 0 ? missing(w->id, p) : 0;
}

static int check_metadata(const struct json *v, struct problem *p)
{
	struct json_cursor k;
	const struct json *value;
	const char *key;
	char at[120];

	if (json_kind(v) == JSON_NULL)
		return 0;
	if (json_kind(v) != JSON_OBJECT || json_len(v) > METADATA_MAX)
		return field_wrong(p, "metadata", "an object of at most 16 strings", v);
	for (k = json_first(v); json_next(&k, &key, &value);) {
		size_t n = 0;

		snprintf(at, sizeof at, "metadata.%.80s", key);
		if (strlen(key) > METADATA_KEY || !json_str(value, &n) || n > METADATA_VALUE)
			return field_wrong(p, at, "a string of at most 512 bytes, with a name of at most 64", value);
	}
	return 0;
}

/* What of items is read before a response begins with them. */
static int check_items(const struct json *v, struct problem *p)
{
	char at[60];

	if (json_kind(v) != JSON_ARRAY)
		return field_wrong(p, "items", "an array of items", v);
	if (json_len(v) > ITEMS_AT_ONCE)
		return problem_set(p, 400, "invalid_value", "items", "items are %zu, and at most %d are taken at once",
		                   json_len(v), ITEMS_AT_ONCE);
	for (size_t i = 0; i < json_len(v); i++) {
		const struct json *item = json_at(v, i), *type = json_get(item, "type");
		size_t n;

		snprintf(at, sizeof at, "items[%zu]", i);
		if (json_kind(item) != JSON_OBJECT)
			return field_wrong(p, at, "an object", item);
		snprintf(at, sizeof at, "items[%zu].type", i);
		if (json_kind(type) != JSON_NULL && !json_str(type, &n))
			return field_wrong(p, at, "a string", type);
		snprintf(at, sizeof at, "items[%zu].role", i);
		if (json_kind(type) == JSON_NULL && !json_str(json_get(item, "role"), &n))
			return field_wrong(p, at, "a string, in an item without a type", json_get(item, "role"));
	}
	return 0;
}

/* The body, of which those fields are known; NULL with *p filled. */
static struct json *read_fields(struct exchange *x, const struct field *fields, struct problem *p)
{
	const struct field *const tables[] = { fields, NULL };
	struct json *body = body_parse(x->body.n ? x->body.p : "{}", x->body.n ? x->body.n : 2, p);
	struct warnings w;

	if (!body)
		return NULL;
	warnings_init(&w);
	if (fields_check(body, NULL, tables, &w, p) || check_metadata(json_get(body, "metadata"), p)) {
		json_free(body);
		body = NULL;
	}
	warnings_put(&w, &x->warned);
	warnings_fini(&w);
	return body;
}

/* ---- conversations ---- */

static void put_conversation(const char *id, long long created, const struct json *metadata, struct buf *out)
{
	buf_puts(out, "{\"id\":");
	json_put_cstr(out, id);
	buf_printf(out, ",\"object\":\"conversation\",\"created_at\":%lld,\"metadata\":", created);
	if (json_kind(metadata) == JSON_OBJECT)
		json_put(out, metadata);
	else
		buf_puts(out, "{}");
	buf_putc(out, '}');
}

static int too_large(const struct exchange *x, struct problem *p)
{
	return problem_set(p, 413, "conversation_too_large", NULL,
	                   "the conversation has no room in the store of %zu bytes (--tune response-store-bytes)",
	                   store_of(x)->bytes_max);
}

static void create(struct exchange *x)
{
	static const struct field fields[] = { { "items" }, { "metadata" }, { NULL } };
	struct buf *out = reply_of(x), kept, none;
	struct json *body = read_fields(x, fields, &x->problem), *items;
	char random[24], id[32];

	if (!body)
		return;
	buf_init(&kept);
	buf_init(&none);
	if (json_kind(json_get(body, "items")) == JSON_NULL || !check_items(json_get(body, "items"), &x->problem)) {
		random_id(random);
		snprintf(id, sizeof id, "conv_%s", random);
		items = items_of(json_get(body, "items"));
		items_put(items, &kept);
		json_free(items);
		put_conversation(id, (long long)time(NULL), json_get(body, "metadata"), out);
		response_store_put(store_of(x), id, x->from.key,
		                   (const struct buf *[N_KEPT]){ out, &none, &kept, &none, &none });
		if (!response_store_get(store_of(x), id, x->from.key, KEPT_TOOLS, &none))
			too_large(x, &x->problem);
	}
	buf_fini(&kept);
	buf_fini(&none);
	json_free(body);
}

static void update(struct exchange *x, const char *id, struct buf *out)
{
	static const struct field fields[] = { { "metadata" }, { NULL } };
	struct json *body = read_fields(x, fields, &x->problem), *j;
	struct buf old;
	int64_t created = 0;
	bool done = false;

	if (!body)
		return;
	buf_init(&old);
	if (json_kind(json_get(body, "metadata")) != JSON_OBJECT)
		field_wrong(&x->problem, "metadata", "an object of strings", json_get(body, "metadata"));
	/* Again where another request changed it meanwhile. */
	while (!x->problem.status && !done) {
		buf_reset(&old);
		buf_reset(out);
		if (!response_store_get(store_of(x), id, x->from.key, KEPT_OBJECT, &old)) {
			missing(id, &x->problem);
			break;
		}
		j = json_parse(old.p, old.n, 0, NULL);
		json_to_int(json_get(j, "created_at"), &created);
		put_conversation(id, (long long)created, json_get(body, "metadata"), out);
		json_free(j);
		done = response_store_replace(store_of(x), id, x->from.key, KEPT_OBJECT, &old, out);
	}
	buf_fini(&old);
	json_free(body);
}

/* ---- items ---- */

static void add_items(struct exchange *x, const char *id, struct buf *out)
{
	static const struct field fields[] = { { "items" }, { NULL } };
	struct json *body = read_fields(x, fields, &x->problem), *items;
	struct buf kept;

	if (!body)
		return;
	buf_init(&kept);
	if (!check_items(json_get(body, "items"), &x->problem)) {
		items = items_of(json_get(body, "items"));
		items_put(items, &kept);
		if (!response_store_get(store_of(x), id, x->from.key, KEPT_OBJECT, out))
			missing(id, &x->problem);
		else if (kept.n && !response_store_append(store_of(x), id, x->from.key, KEPT_ITEMS, &kept))
			too_large(x, &x->problem);
		buf_reset(out);
		items_put_list(items, 0, json_len(items), true, out);
		json_free(items);
	}
	buf_fini(&kept);
	json_free(body);
}

static const struct json *find_item(const struct json *items, const char *id)
{
	for (size_t i = 0; i < json_len(items); i++)
		if (!strcmp(item_id(json_at(items, i)), id))
			return json_at(items, i);
	return NULL;
}

static int missing_item(const struct named *w, struct problem *p)
{
	return problem_set(p, 404, "item_not_found", NULL, "the conversation \"%.60s\" has no item \"%.60s\"", w->id,
	                   w->item);
}

/* Takes one item out; the reply is the conversation. */
static void drop_item(struct exchange *x, const struct named *w, struct buf *out)
{
	struct buf old, left;
	bool done = false;

	buf_init(&old);
	buf_init(&left);
	while (!x->problem.status && !done) {
		struct json *items;
		const struct json *gone;

		buf_reset(&old);
		buf_reset(&left);
		if (!response_store_get(store_of(x), w->id, x->from.key, KEPT_ITEMS, &old)) {
			missing(w->id, &x->problem);
			break;
		}
		items = items_parse(&old);
		if (!(gone = find_item(items, w->item)))
			missing_item(w, &x->problem);
		for (size_t i = 0; i < json_len(items); i++) {
			if (json_at(items, i) == gone)
				continue;
			if (left.n)
				buf_putc(&left, ',');
			json_put(&left, json_at(items, i));
		}
		json_free(items);
		done = gone && response_store_replace(store_of(x), w->id, x->from.key, KEPT_ITEMS, &old, &left);
	}
	if (!x->problem.status && !response_store_get(store_of(x), w->id, x->from.key, KEPT_OBJECT, out))
		missing(w->id, &x->problem);
	buf_fini(&old);
	buf_fini(&left);
}

static void get_items(struct exchange *x, const struct named *w, struct buf *out)
{
	struct json *items;
	const struct json *one;
	struct buf kept;

	buf_init(&kept);
	if (!response_store_get(store_of(x), w->id, x->from.key, KEPT_ITEMS, &kept)) {
		missing(w->id, &x->problem);
	} else {
		items = items_parse(&kept);
		if (!w->item)
			items_page(x, items, out, &x->problem);
		else if ((one = find_item(items, w->item)))
			json_put(out, one);
		else
			missing_item(w, &x->problem);
		json_free(items);
	}
	buf_fini(&kept);
}

/* ---- routes ---- */

static void get(struct exchange *x)
{
	struct buf *out = reply_of(x);
	struct named w;

	if (read_path(x, &w, &x->problem))
		return;
	if (w.items)
		get_items(x, &w, out);
	else if (!response_store_get(store_of(x), w.id, x->from.key, KEPT_OBJECT, out))
		missing(w.id, &x->problem);
}

static void post(struct exchange *x)
{
	struct buf *out = reply_of(x);
	struct named w;

	if (read_path(x, &w, &x->problem))
		return;
	if (w.item)
		problem_set(&x->problem, 404, NULL, NULL, "there is nothing to be posted at an item");
	else if (w.items)
		add_items(x, w.id, out);
	else
		update(x, w.id, out);
}

static void drop(struct exchange *x)
{
	struct buf *out = reply_of(x);
	struct named w;

	if (read_path(x, &w, &x->problem))
		return;
	if (w.item) {
		drop_item(x, &w, out);
	} else if (w.items) {
		problem_set(&x->problem, 404, NULL, NULL, "items are deleted one by one: /items/ID");
	} else if (!response_store_drop(store_of(x), w.id, x->from.key)) {
		missing(w.id, &x->problem);
	} else {
		buf_puts(out, "{\"id\":");
		json_put_cstr(out, w.id);
		buf_puts(out, ",\"object\":\"conversation.deleted\",\"deleted\":true}");
	}
}

const struct endpoint conversation_create_endpoint = { .prep = create, .ready = ready, .drop = drop_reply };
const struct endpoint conversation_get_endpoint = { .prep = get, .ready = ready, .drop = drop_reply };
const struct endpoint conversation_post_endpoint = { .prep = post, .ready = ready, .drop = drop_reply };
const struct endpoint conversation_drop_endpoint = { .prep = drop, .ready = ready, .drop = drop_reply };
