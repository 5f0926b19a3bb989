/* api_sleep.c - POST /sleep and /wake_up, GET /is_sleeping: vLLM's, for one model (?model=NAME) or for all.
 *
 * A model that sleeps takes no memory and no requests.  Its kept prefixes are on disk, whatever the level. */
#include "server/inside.h"
#include "server/routes.h"

struct look {
	int n, awake, fixed; /* fixed: always loaded */
};

static void look(void *arg, const struct known_model *m)
{
	struct look *l = arg;

	l->n++;
	l->awake += !m->asleep || m->phase != KNOWN_ON_DISK;
	l->fixed += !m->source.open;
}

/* Looks at the model that ?model= names, or at all where it names none.  Not 0: *p's status. */
static int look_at(const struct exchange *x, struct buf *name, bool *given, struct look *l, struct problem *p)
{
	int r = known_name(x, name, given, p);

	if (!r && *given)
		r = known_one(x->srv, name->p, name->n, look, l, p);
	else if (!r)
		known_each(x->srv, look, l);
	return r;
}

static void set(struct exchange *x, bool asleep)
{
	struct look l = { 0 };
	struct problem p;
	struct buf name;
	bool given;
	int r;

	buf_init(&name);
	if (!(r = look_at(x, &name, &given, &l, &p)) && l.fixed == l.n)
		r = problem_set(
			&p, 400, "unsupported", "model",
			"a server of one model keeps it loaded: docs/several-models.md says how to serve models that "
			"can be unloaded");
	if (!r)
		known_sleep(x->srv, given ? name.p : NULL, name.n, asleep);
	buf_fini(&name);
	if (r)
		exchange_refuse(x, &p);
	else
		exchange_reply(x, 200, "application/json", "{}\n", 3);
}

static void go_to_sleep(struct exchange *x)
{
	set(x, true);
}

static void wake(struct exchange *x)
{
	set(x, false);
}

static void is_sleeping(struct exchange *x)
{
	struct look l = { 0 };
	struct problem p;
	struct buf name;
	bool given;
	int r;

	buf_init(&name);
	r = look_at(x, &name, &given, &l, &p);
	buf_reset(&name);
	buf_printf(&name, "{\"is_sleeping\":%s}\n", l.awake ? "false" : "true");
	if (r)
		exchange_refuse(x, &p);
	else
		exchange_reply(x, 200, "application/json", name.p, name.n);
	buf_fini(&name);
}

const struct endpoint sleep_endpoint = { .ready = go_to_sleep };
const struct endpoint wake_up_endpoint = { .ready = wake };
const struct endpoint is_sleeping_endpoint = { .ready = is_sleeping };
