/* prefix_calls.c - engine_prefix_*: questions and orders to the prefix store from
 * other threads.  Each waits in a list until the engine's thread is between two
 * steps. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/fault.h"
#include "engine/core.h"

struct command {
	void (*run)(struct engine *e, struct command *c);
	struct command *next;
	bool done;
	int rc;
	/* Arguments of the call; its results. */
	const struct prefix_spot *spot;
	bool pin;
	void (*fn)(void *arg, const struct prefix_item *item);
	void *arg;
	int dropped;
	struct prefix_report *report;
	struct err *err;
};

bool commands_wait(const struct inbox *b)
{
	return b->command != NULL;
}

void commands_run(struct engine *e)
{
	struct command *c, *next;

	pthread_mutex_lock(&e->inbox.lock);
	c = e->inbox.command;
	e->inbox.command = NULL;
	pthread_mutex_unlock(&e->inbox.lock);
	if (!c)
		return;
	for (struct command *k = c; k; k = k->next)
		k->run(e, k);
	engine_show_stats(e);
	pthread_mutex_lock(&e->inbox.lock);
	for (; c; c = next) {
		next = c->next; /* c is its caller's, which may return once it is done */
		c->done = true;
	}
	pthread_cond_broadcast(&e->inbox.answered);
	pthread_mutex_unlock(&e->inbox.lock);
}

static int command(struct engine *e, struct command *c)
{
	struct command **at = &e->inbox.command;

	if (e->opts.by_hand) {
		c->run(e, c);
		engine_show_stats(e);
		return c->rc;
	}
	pthread_mutex_lock(&e->inbox.lock);
	if (e->inbox.closing) {
		c->rc = err_set(c->err, E_GONE, "the engine is closing");
	} else {
		while (*at)
			at = &(*at)->next;
		*at = c;
		pthread_cond_signal(&e->inbox.wake);
		while (!c->done)
			pthread_cond_wait(&e->inbox.answered, &e->inbox.lock);
	}
	pthread_mutex_unlock(&e->inbox.lock);
	return c->rc;
}

/* ---- the orders ---- */

/* The spot's tokens, those of spans by the ids of their rows; to be freed. */
static int32_t *ids_of(struct engine *e, const struct prefix_spot *s)
{
	int32_t *tok = xmalloc(size_mul((size_t)s->n + 1, sizeof *tok));

	if (s->n)
		memcpy(tok, s->tok, (size_t)s->n * sizeof *tok);
	brought_ids(e, s->span, s->n_span, tok);
	return tok;
}

/* A mark that no salt of a client begins with: theirs get another one in front. */
enum { OURS = 1 };

char *prefix_salt(const char *salt, const struct adapter_mix *adapters)
{
	struct buf b;
	char *out;

	buf_init(&b);
	for (int i = 0; adapters && i < adapters->n; i++) {
		char hex[2 * sizeof(struct digest) + 1], scale[2 * sizeof(float) + 1];

		hex_put(hex, adapters->part[i].of->digest.b, sizeof(struct digest));
		hex_put(scale, (const uint8_t *)&adapters->part[i].scale, sizeof(float));
		buf_printf(&b, "%c%s*%s", i ? '+' : OURS, hex, scale);
	}
	if (b.n)
		buf_putc(&b, ' ');
	else if (salt && *salt == OURS)
		buf_putc(&b, OURS);
	buf_puts(&b, salt ? salt : "");
	out = xstrndup(b.p, b.n);
	buf_fini(&b);
	return out;
}

int adapters_of_ask(struct adapter_mix *out, const struct ask_adapters *a, struct err *err)
{
	out->n = 0;
	for (int i = 0; i < a->n; i++) {
		if (a->scale[i] == 0)
			continue;
		if (out->n == ADAPTERS_MIX)
			return err_set(err, E_ARG, "more than %d adapters at once", ADAPTERS_MIX);
		out->part[out->n].of = a->of[i];
		out->part[out->n++].scale = a->scale[i];
	}
	return 0;
}

/* NULL: of all salts.  With adapters that no request can have it is that of none. */
static char *salt_of(const struct prefix_spot *s)
{
	struct adapter_mix mix = { 0 };

	adapters_of_ask(&mix, &s->adapters, NULL);
	return s->salt || mix.n ? prefix_salt(s->salt, &mix) : NULL;
}

static struct prefix_node *find_spot(struct engine *e, const struct prefix_spot *s)
{
	int32_t *tok = ids_of(e, s);
	char *salt = salt_of(s);
	struct prefix_node *node = prefix_at(&e->prefix, s->id, salt, tok, s->n);

	free(tok);
	free(salt);
	return node;
}

struct sight {
	struct command *c;
	const struct prefix_item *item;
};

static void look(void *arg)
{
	const struct sight *s = arg;

	s->c->fn(s->c->arg, s->item);
}

/* A fault in the caller's callback ends the call alone. */
static void show(void *arg, const struct prefix_item *item)
{
	struct command *c = arg;

	if (!c->rc && !fault_guard(look, &(struct sight){ c, item }))
		c->rc = err_set(c->err, fault_code(), "%s", fault_words(fault_code()));
}

static void run_walk(struct engine *e, struct command *c)
{
	prefix_walk(&e->prefix, engine_now(e), show, c);
}

static void run_drop(struct engine *e, struct command *c)
{
	struct prefix_node *node;
	const char *salt;
	int32_t *tok;
	int n;

	if (!c->spot->id && !c->spot->n) {
		char *all = salt_of(c->spot);

		draft_drop(e, all, NULL, 0);
		c->dropped = prefix_drop(&e->prefix, NULL, all);
		free(all);
		return;
	}
	node = find_spot(e, c->spot);
	if (node) {
		tok = prefix_path(node, &salt, &n);
		draft_drop(e, salt, tok, n);
		c->dropped = prefix_drop(&e->prefix, node, NULL);
		free(tok);
	} else if (c->spot->id) {
		c->rc = E_MISSING;
	}
}

static void run_pin(struct engine *e, struct command *c)
{
	c->rc = prefix_pin(&e->prefix, find_spot(e, c->spot), c->pin, c->err);
}

static void run_explain(struct engine *e, struct command *c)
{
	int32_t *tok = ids_of(e, c->spot);
	char *salt = salt_of(c->spot);

	reuse_explain(e, salt, tok, c->spot->n, c->report);
	free(tok);
	free(salt);
}

int engine_prefix_walk(struct engine *e, void (*fn)(void *arg, const struct prefix_item *item), void *arg)
{
	struct command c = { .run = run_walk, .fn = fn, .arg = arg };

	return command(e, &c);
}

int engine_prefix_drop(struct engine *e, const struct prefix_spot *spot, int *dropped)
{
	struct command c = { .run = run_drop, .spot = spot };
	int rc = command(e, &c);

	*dropped = c.dropped;
	return rc;
}

int engine_prefix_pin(struct engine *e, const struct prefix_spot *spot, bool pin, struct err *err)
{
	struct command c = { .run = run_pin, .spot = spot, .pin = pin, .err = err };

	return command(e, &c);
}

int engine_prefix_explain(struct engine *e, const struct prefix_spot *prompt, struct prefix_report *out)
{
	struct command c = { .run = run_explain, .spot = prompt, .report = out };

	memset(out, 0, sizeof(*out));
	return command(e, &c);
}
