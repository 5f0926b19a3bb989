/* health.c - GET /health: is the server up, and does the engine move?
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
	const char *status = "ok";
	struct buf b;

	engine_stats(s->served.engine, &e);
	if (file_lost())
		status = "model lost";
	else if (e.stuck_ns > (int64_t)s->opts.stuck_ms * 1000000)
		status = "stuck";
	else if (s->stopping)
		status = "stopping";
	buf_init(&b);
	buf_printf(&b, "{\"status\":\"%s\",\"model\":", status);
	json_put_cstr(&b, s->served.name);
	buf_printf(&b, ",\"running\":%d,\"waiting\":%d,\"last_step_seconds\":", e.running, e.waiting);
	if (e.stuck_ns)
		json_put_double(&b, (double)e.stuck_ns / 1e9);
	else
		buf_puts(&b, "null");
	buf_puts(&b, "}\n");
	exchange_reply(x, *status == 'o' ? 200 : 503, "application/json", b.p, b.n);
	buf_fini(&b);
}

const struct api health_api = { .ready = ready };
