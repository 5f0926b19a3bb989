/* health.c - GET /health: is the server up, and do the engine and the workers move?  GET /version: which weft is it?  GET
 * /load: how many requests has it?
 *
 * While there is work, the age of the last step (or of the work, when that is
 * younger) is what tells whether the engine is stuck: a process whose engine
 * hangs answers HTTP as well as ever. */
#include "base/file.h"
#include "server/inside.h"
#include "server/routes.h"

/* The sums for all models that are loaded. */
struct engines {
	int running, waiting;
	bool device_lost;
	int64_t stuck_ns;
	const char *name; /* of the model of requests that name none */
};

static void look(void *arg, const struct known_model *m)
{
	struct engines *all = arg;
	struct engine_stats e;

	if (!all->name)
		all->name = m->about.name;
	all->waiting += m->waiting;
	if (m->phase != KNOWN_LOADED)
		return;
	engine_stats(m->served.engine, &e);
	all->running += e.running;
	all->waiting += e.waiting;
	all->device_lost |= e.device_lost;
	all->stuck_ns = e.stuck_ns > all->stuck_ns ? e.stuck_ns : all->stuck_ns;
}

static void ready(struct exchange *x)
{
	struct server *s = x->srv;
	struct engines e = { 0 };
	struct workers_stats w;
	const char *status = "ok";
	struct buf b;

	known_each(s, look, &e);
	workers_stats(s, &w);
	if (file_lost())
		status = "model lost";
	else if (e.device_lost)
		status = "device lost";
	else if (e.stuck_ns > (int64_t)s->opts.stuck_ms * 1000000 || w.oldest_ns > (int64_t)s->opts.stuck_ms * 1000000)
		status = "stuck";
	else if (s->stopping)
		status = "stopping";
	buf_init(&b);
	buf_printf(&b, "{\"status\":\"%s\",\"model\":", status);
	json_put_cstr(&b, e.name ? e.name : "");
	buf_printf(&b, ",\"running\":%d,\"waiting\":%d,\"preparing\":%d,\"preparing_seconds\":", e.running,
	           e.waiting + w.waiting, w.working);
	if (w.working)
		json_put_double(&b, (double)w.oldest_ns / 1e9);
	else
		buf_puts(&b, "null");
	buf_puts(&b, ",\"last_step_seconds\":");
	if (e.stuck_ns)
		json_put_double(&b, (double)e.stuck_ns / 1e9);
	else
		buf_puts(&b, "null");
	buf_puts(&b, "}\n");
	exchange_reply(x, *status == 'o' ? 200 : 503, "application/json", b.p, b.n);
	buf_fini(&b);
}

/* As vLLM's. */
static void version(struct exchange *x)
{
	struct buf b;

	buf_init(&b);
	buf_puts(&b, "{\"version\":");
	json_put_cstr(&b, x->srv->opts.version);
	buf_puts(&b, "}\n");
	exchange_reply(x, 200, "application/json", b.p, b.n);
	buf_fini(&b);
}

/* As vLLM's: how many requests are under way, with those that wait. */
static void load(struct exchange *x)
{
	struct engines e = { 0 };
	struct workers_stats w;
	struct buf b;

	known_each(x->srv, look, &e);
	workers_stats(x->srv, &w);
	buf_init(&b);
	buf_printf(&b, "{\"server_load\":%d}\n", e.running + e.waiting + w.waiting + w.working);
	exchange_reply(x, 200, "application/json", b.p, b.n);
	buf_fini(&b);
}

const struct endpoint version_endpoint = { .ready = version };
const struct endpoint load_endpoint = { .ready = load };
const struct endpoint health_endpoint = { .ready = ready };
