/* health.c - GET /health: is the server up, and do the engine and the workers move?
 *
 * While there is work, the age of the last step (or of the work, when that is
 * younger) is what tells whether the engine is stuck: a process whose engine
 * hangs answers HTTP as well as ever. */
#include "base/file.h"
#include "server/inside.h"
#include "server/routes.h"

static void ready(struct exchange *x)
{
	struct server *s = x->srv;
	struct engine_stats e;
	struct workers_stats w;
	const char *status = "ok";
	struct buf b;

	engine_stats(known_default(s)->served.engine, &e);
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
	json_put_cstr(&b, known_default(s)->served.name);
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

const struct endpoint health_endpoint = { .ready = ready };
