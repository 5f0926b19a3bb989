/* health.c - GET /health: is the server up, and does the engine move? */
#include "base/clock.h"
#include "server/inside.h"
#include "server/routes.h"

static void ready(struct exchange *x)
{
	struct server *s = x->srv;
	struct engine_stats e;
	struct buf b;

	engine_stats(s->served.engine, &e);
	buf_init(&b);
	buf_puts(&b, "{\"status\":\"ok\",\"model\":");
	json_put_cstr(&b, s->served.name);
	buf_printf(&b, ",\"running\":%d,\"waiting\":%d", e.running, e.waiting);
	/* While there is work, the age of the last step tells whether the engine is stuck. */
	if (e.last_step_ns && e.running) {
		buf_puts(&b, ",\"last_step_seconds\":");
		json_put_double(&b, (double)(clock_monotonic_ns() - e.last_step_ns) / 1e9);
	}
	buf_puts(&b, "}\n");
	exchange_reply(x, 200, "application/json", b.p, b.n);
	buf_fini(&b);
}

const struct api health_api = { .ready = ready };
