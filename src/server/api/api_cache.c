/* api_cache.c - /v1/cache: what is kept of prompts, why one would miss, and orders
 * about it.
 *
 * A prompt is given as the body of a request to any endpoint; a place in the tree by
 * that, or by a node's id.  The engine answers between two steps, so all of it
 * happens on a worker. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "server/chat/generate.h"
#include "server/inside.h"
#include "server/routes.h"

/* ---- the tree ---- */

struct tree {
	struct buf out;
	int n;
};

static void put_seconds(struct buf *out, const char *name, int64_t ns)
{
	buf_printf(out, ",\"%s\":", name);
	json_put_double(out, (double)ns / 1e9);
}

static void put_node(void *arg, const struct prefix_item *item)
{
	struct tree *t = arg;

	/* No text: whose prompts these are, the asker need not know. */
	buf_printf(&t->out, "%s{\"id\":%llu,\"parent\":", t->n++ ? ",\n" : "", (unsigned long long)item->id);
	if (item->parent)
		buf_printf(&t->out, "%llu", (unsigned long long)item->parent);
	else
		buf_puts(&t->out, "null");
	buf_printf(&t->out,
	           ",\"begin\":%d,\"end\":%d,\"place\":\"%s\",\"salted\":%s,\"state\":%s,\"on_disk\":%s,"
	           "\"pinned\":%s,\"evicted\":%s,\"bytes\":%zu,\"hits\":%d",
	           item->begin, item->end, place_name(item->kind), item->salt && *item->salt ? "true" : "false",
	           item->has_state ? "true" : "false", item->on_disk ? "true" : "false",
	           item->pinned ? "true" : "false", item->lost ? "true" : "false", item->bytes, item->hits);
	put_seconds(&t->out, "age_seconds", item->age_ns);
	put_seconds(&t->out, "idle_seconds", item->idle_ns);
	buf_putc(&t->out, '}');
}

static int gone(struct problem *p)
{
	return problem_stopping(p);
}

static void tree_prep(struct exchange *x)
{
	struct tree *t = xcalloc(1, sizeof *t);
	struct engine_stats e;
	int rc;

	x->work = t;
	buf_init(&t->out);
	if (known_ask(x, &x->problem))
		return;
	engine_stats(x->model->served.engine, &e);
	buf_printf(&t->out,
	           "{\"object\":\"cache\",\"bytes\":%zu,\"bytes_max\":%zu,\"states\":%d,\"hits\":%lld,"
	           "\"evicted\":%lld,\"disk\":",
	           e.prefix.bytes, e.prefix.bytes_max, e.prefix.entries, (long long)e.prefix.hits,
	           (long long)e.prefix.evicted);
	/* Prefixes on disk have no node until a request wants them. */
	if (e.disk.on)
		buf_printf(&t->out, "{\"snapshots\":%lld,\"pages\":%lld,\"bytes\":%llu,\"bytes_max\":%llu}",
		           (long long)e.disk.snaps, (long long)e.disk.pages, (unsigned long long)e.disk.bytes,
		           (unsigned long long)e.disk.bytes_max);
	else
		buf_puts(&t->out, "null");
	buf_puts(&t->out, ",\"nodes\":[");
	rc = engine_prefix_walk(x->model->served.engine, put_node, t);
	if (rc == E_FAULT || rc == E_MEMORY)
		fault_as(rc); /* what was this request's own fault there is so here */
	if (rc)
		gone(&x->problem);
	buf_puts(&t->out, "]}\n");
}

static void tree_ready(struct exchange *x)
{
	struct tree *t = x->work;

	exchange_reply_whole(x, 200, "application/json", &t->out);
}

static void tree_drop(struct exchange *x)
{
	struct tree *t = x->work;

	if (t)
		buf_fini(&t->out);
	free(t);
}

const struct endpoint cache_tree_endpoint = { .prep = tree_prep, .ready = tree_ready, .drop = tree_drop };

/* ---- a node's text ---- */

struct told_node {
	uint64_t id;
	bool there;
	int begin, end;
	struct tokens tokens; /* of its run */
	struct buf out;
};

/* Engine's thread: takes no longer than the copy. */
static void find_node(void *arg, const struct prefix_item *item)
{
	struct told_node *t = arg;

	if (item->id != t->id)
		return;
	t->there = true;
	t->begin = item->begin;
	t->end = item->end;
	for (int i = 0; i < item->end - item->begin; i++)
		tokens_put(&t->tokens, item->tok[i]);
}

static void put_text(struct buf *out, const struct tokenizer *tok, const struct tokens *ids)
{
	struct buf text;
	size_t n;

	buf_init(&text);
	for (size_t i = 0; i < ids->n; i++) {
		const char *p = tokenizer_token_bytes(tok, ids->id[i], &n);

		if (p)
			buf_put(&text, p, n);
	}
	json_put_str(out, text.p ? text.p : "", text.n);
	buf_fini(&text);
}

static void node_prep(struct exchange *x)
{
	struct told_node *t = xcalloc(1, sizeof *t);
	char *end;
	int rc;

	x->work = t;
	tokens_init(&t->tokens);
	buf_init(&t->out);
	if (atomic_load(&x->srv->clients.apart)) {
		problem_set(&x->problem, 403, "not_shown", NULL,
		            "with several API keys, prompts are not shown: they may belong to another client");
		return;
	}
	if (known_ask(x, &x->problem))
		return;
	t->id = strtoull(x->rest.p, &end, 10);
	rc = engine_prefix_walk(x->model->served.engine, find_node, t);
	if (rc == E_FAULT || rc == E_MEMORY)
		fault_as(rc);
	if (rc) {
		gone(&x->problem);
	} else if (!t->there || end != x->rest.p + x->rest.n) {
		problem_set(&x->problem, 404, "not_kept", NULL, "no node of the tree has this id");
	} else {
		buf_printf(&t->out, "{\"object\":\"cache.node\",\"id\":%llu,\"begin\":%d,\"end\":%d,\"text\":",
		           (unsigned long long)t->id, t->begin, t->end);
		put_text(&t->out, x->model->served.tokenizer, &t->tokens);
		buf_puts(&t->out, "}\n");
	}
}

static void node_ready(struct exchange *x)
{
	struct told_node *t = x->work;

	exchange_reply_whole(x, 200, "application/json", &t->out);
}

static void node_drop(struct exchange *x)
{
	struct told_node *t = x->work;

	if (t) {
		tokens_fini(&t->tokens);
		buf_fini(&t->out);
	}
	free(t);
}

const struct endpoint cache_node_endpoint = { .prep = node_prep, .ready = node_ready, .drop = node_drop };

/* ---- a prompt ---- */

/* Whose body this is: messages are also Anthropic's, which are known by a member that
 * chats have not, or by a header that its clients send. */
static const struct endpoint *endpoint_of(const struct exchange *x, const struct json *body)
{
	if (!json_get(body, "messages"))
		return json_get(body, "input") ? &responses_endpoint : &completions_endpoint;
	return x->headers.anthropic || json_get(body, "system") ? &messages_endpoint : &chat_endpoint;
}

/* Reads a body, which is taken over, as its endpoint would: then there is x->problem, or a generation with its tokens.
 * body NULL: it could not be parsed.  one: of one prompt. */
static struct generation *read_prompt(struct exchange *x, struct json *body, bool one)
{
	const struct generation *g;

	if (!body)
		return NULL;
	x->headers.cache_report = true;
	generation_prep_as(x, endpoint_of(x, body), body);
	g = x->work;
	if (one && !x->problem.status && g->prompts.n > 1)
		problem_set(&x->problem, 400, "invalid_value", "prompt",
		            "prompt holds %d prompts; here it is one at a time", g->prompts.n);
	return x->problem.status ? NULL : x->work;
}

static struct prefix_spot spot_of(const struct generation *g)
{
	return (struct prefix_spot){ .salt = g->params.cache_salt,
		                     .adapters = adapters_ask(&g->adapters),
		                     .tok = g->prompts.of[0].id,
		                     .n = (int)g->prompts.of[0].n,
		                     .span = g->images.span,
		                     .n_span = g->images.n_span };
}

static void explain_prep(struct exchange *x)
{
	struct generation *g = read_prompt(x, body_parse(x->body.p, x->body.n, &x->problem), true);
	struct prefix_spot spot;

	if (!g)
		return;
	spot = spot_of(g);
	if (engine_prefix_explain(g->served->engine, &spot, &g->prefix))
		gone(&x->problem);
}

static void explain_ready(struct exchange *x)
{
	struct buf out;

	buf_init(&out);
	generation_explain(x->work, &out);
	buf_putc(&out, '\n');
	generation_reply(x->work, &out);
	buf_fini(&out);
}

const struct endpoint cache_explain_endpoint = {
	.prep = explain_prep,
	.ready = explain_ready,
	.drop = generation_drop,
	.abandon = generation_abandon,
};

/* ---- warming: a generation of no tokens ---- */

static void no_token(struct generation *g, struct choice *c, const struct event *ev)
{
	(void)g;
	(void)c;
	(void)ev;
}

static void no_end(struct generation *g, struct choice *c)
{
	(void)g;
	(void)c;
}

static void warm_whole(struct generation *g, struct buf *out)
{
	generation_explain(g, out);
	buf_putc(out, '\n');
}

static const struct endpoint warmed_endpoint = { .token = no_token, .end = no_end, .whole = warm_whole };

static void warm_prep(struct exchange *x)
{
	struct generation *g = read_prompt(x, body_parse(x->body.p, x->body.n, &x->problem), false);

	if (!g)
		return;
	g->endpoint = &warmed_endpoint;
	g->params.stream = false;
	g->params.n = 1;
	g->params.max_tokens = 0;
}

const struct endpoint cache_warm_endpoint = {
	.prep = warm_prep,
	.ready = generation_ready,
	.wake = generation_wake,
	.drop = generation_drop,
	.abandon = generation_abandon,
	.stop = generation_stop,
};

/* ---- orders ---- */

struct order {
	int n; /* states it was about */
};

/* {"node": id}, or 0 where the body names none. */
static int read_node(const struct json *body, uint64_t *id, struct problem *p)
{
	int64_t v = 0;
	int r = field_int(body, "node", 1, INT64_MAX, &v, p);

	*id = (uint64_t)v;
	return r;
}

static void pin(struct exchange *x, bool on)
{
	struct prefix_spot spot = { 0 };
	struct json *body = body_parse(x->body.p, x->body.n, &x->problem);
	struct generation *g;
	struct err err;
	int r;

	r = body ? read_node(body, &spot.id, &x->problem) : E_ARG;
	if (!r && spot.id && json_len(body) > 1)
		r = problem_set(&x->problem, 400, "invalid_value", "node", "no other member is accepted with node");
	if (r || spot.id)
		json_free(body);
	if (r)
		return;
	if (!spot.id) {
		g = read_prompt(x, body, true);
		if (!g)
			return;
		spot = spot_of(g);
	} else if (known_ask(x, &x->problem)) {
		return;
	}
	r = engine_prefix_pin(x->model->served.engine, &spot, on, &err);
	if (r == E_GONE)
		gone(&x->problem);
	else if (r)
		problem_set(&x->problem, r == E_MISSING ? 404 : 409, r == E_MISSING ? "not_kept" : "too_many_pins",
		            NULL, "%s", err.msg);
}

static void pin_prep(struct exchange *x)
{
	pin(x, true);
}
static void unpin_prep(struct exchange *x)
{
	pin(x, false);
}

static void done_ready(struct exchange *x)
{
	static const char done[] = "{\"object\":\"cache\",\"done\":true}\n";

	exchange_reply(x, 200, "application/json", done, sizeof done - 1);
}

const struct endpoint cache_pin_endpoint = {
	.prep = pin_prep,
	.ready = done_ready,
	.drop = generation_drop,
	.abandon = generation_abandon,
};
const struct endpoint cache_unpin_endpoint = {
	.prep = unpin_prep,
	.ready = done_ready,
	.drop = generation_drop,
	.abandon = generation_abandon,
};

/* One of {"node": id}, {"cache_salt": "..."} and {"all": true}.  An unknown
 * member is refused, since too much could be dropped without it. */
static int read_drop(const struct json *body, struct prefix_spot *spot, struct problem *p)
{
	static const struct field known[] = { { "node" }, { "cache_salt" }, { "all" }, { NULL } };
	static const struct field *const tables[] = { known, NULL };
	const struct json *salt = NULL;
	struct warnings w;
	bool all = false;
	size_t n;
	int r;

	warnings_init(&w);
	if ((r = fields_check(body, NULL, tables, &w, p)) || (r = read_node(body, &spot->id, p)) ||
	    (r = field_value(body, "cache_salt", JSON_STRING, &salt, p)) || (r = field_bool(body, "all", &all, p)))
		;
	else if (w.unknown.n)
		r = problem_set(p, 400, "unknown_field", NULL, "unknown fields: %s", w.unknown.p);
	else if ((spot->id != 0) + (salt != NULL) + all != 1)
		r = problem_set(p, 400, "missing_field", NULL,
		                "what is to be dropped: one of \"node\", \"cache_salt\" and \"all\": true");
	spot->salt = json_str(salt, &n);
	warnings_fini(&w);
	return r;
}

static void drop_prep(struct exchange *x)
{
	struct json *body = body_parse(x->body.p, x->body.n, &x->problem);
	struct prefix_spot spot = { 0 };
	struct order *o;
	int rc;

	if (!body)
		return;
	x->work = o = xcalloc(1, sizeof *o);
	if (!known_ask(x, &x->problem) && !read_drop(body, &spot, &x->problem)) {
		rc = engine_prefix_drop(x->model->served.engine, &spot, &o->n);
		if (rc == E_MISSING)
			problem_set(
				&x->problem, 404, "not_kept", "node",
				"memory has no node %llu (any more). What is on disk alone has "
				"none: /v1/cache/warm with the prompt brings it into the tree; cache_salt and all reach it as it is",
				(unsigned long long)spot.id);
		else if (rc)
			gone(&x->problem);
	}
	json_free(body);
}

static void drop_ready(struct exchange *x)
{
	const struct order *o = x->work;
	struct buf out;

	buf_init(&out);
	buf_printf(&out, "{\"object\":\"cache\",\"dropped\":%d}\n", o->n);
	exchange_reply(x, 200, "application/json", out.p, out.n);
	buf_fini(&out);
}

static void drop_drop(struct exchange *x)
{
	free(x->work);
}

const struct endpoint cache_drop_endpoint = { .prep = drop_prep, .ready = drop_ready, .drop = drop_drop };
