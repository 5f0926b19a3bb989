/* prefix_calls.c - engine_prefix_*: questions and orders to the prefix store from
 * other threads.  Each waits in a list until the engine's thread stands between
 * two steps. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "engine/core.h"

struct command {
	void (*run)(struct engine *e, struct command *c);
	struct command *next;
	bool done;
	int rc;
	/* What it is about; what comes back. */
	const struct prefix_spot *spot;
	bool pin;
	void (*fn)(void *arg, const struct prefix_item *item);
	void *arg;
	int dropped;
	struct prefix_report *report;
	struct err *err;
};

bool commands_wait(const struct engine *e)
{
	return e->command != NULL;
}

void commands_run(struct engine *e)
{
	struct command *c, *next;

	pthread_mutex_lock(&e->lock);
	c = e->command;
	e->command = NULL;
	pthread_mutex_unlock(&e->lock);
	if (!c)
		return;
	for (struct command *k = c; k; k = k->next)
		k->run(e, k);
	engine_show_stats(e);
	pthread_mutex_lock(&e->lock);
	for (; c; c = next) {
		next = c->next; /* c is its caller's, who may leave once it is done */
		c->done = true;
	}
	pthread_cond_broadcast(&e->answered);
	pthread_mutex_unlock(&e->lock);
}

static int command(struct engine *e, struct command *c)
{
	struct command **at = &e->command;

	if (e->opts.by_hand) {
		c->run(e, c);
		engine_show_stats(e);
		return c->rc;
	}
	pthread_mutex_lock(&e->lock);
	if (e->closing) {
		c->rc = err_set(c->err, E_GONE, "the engine is closing");
	} else {
		while (*at)
			at = &(*at)->next;
		*at = c;
		pthread_cond_signal(&e->wake);
		while (!c->done)
			pthread_cond_wait(&e->answered, &e->lock);
	}
	pthread_mutex_unlock(&e->lock);
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

static struct prefix_node *find(struct engine *e, const struct prefix_spot *s)
{
	int32_t *tok = ids_of(e, s);
	struct prefix_node *node = prefix_at(&e->prefix, s->id, s->salt, tok, s->n);

	free(tok);
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

/* What the caller does with an item is its own affair, a fault in it too. */
static void show(void *arg, const struct prefix_item *item)
{
	struct command *c = arg;

	if (!c->rc && !fault_guard(look, &(struct sight){ c, item }))
		c->rc = err_set(c->err, E_FAULT, "a fault in the server ended this request");
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
		draft_drop(e, c->spot->salt, NULL, 0);
		c->dropped = prefix_drop(&e->prefix, NULL, c->spot->salt);
		return;
	}
	node = find(e, c->spot);
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
	c->rc = prefix_pin(&e->prefix, find(e, c->spot), c->pin, c->err);
}

static void run_explain(struct engine *e, struct command *c)
{
	int32_t *tok = ids_of(e, c->spot);

	reuse_explain(e, c->spot->salt, tok, c->spot->n, c->report);
	free(tok);
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
