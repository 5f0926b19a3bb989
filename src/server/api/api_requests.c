/* api_requests.c - GET /v1/requests: what is under way; DELETE /v1/requests/{id}: cancels what is named so.
 *
 * The name is the request's x-request-id or the id of its answer.  Only what came
 * with the same API key is found; without keys, an id that we made up is not to
 * be guessed, and one that a client made up is the client's to choose well. */
#include "base/clock.h"
#include "server/chat/generate.h"
#include "server/inside.h"
#include "server/routes.h"

/* ---- those under way ---- */

static const char *stage_of(const struct choice *c)
{
	return c->done ? "done" : !c->started ? "waiting" : c->usage.output ? "decode" : "prefill";
}

static void put_choice(struct buf *b, const struct generation *g, const struct choice *c)
{
	buf_printf(b,
	           ",\"state\":\"%s\",\"prompt_tokens\":%d,\"cached_tokens\":%d,\"output_tokens\":%d,\"max_tokens\":",
	           stage_of(c), c->usage.prompt, c->usage.cached, c->usage.output);
	if (g->params.max_tokens < 0)
		buf_puts(b, "null");
	else
		buf_printf(b, "%lld", (long long)g->params.max_tokens);
}

/* c NULL: none is known yet.  A worker may be writing to the rest of x. */
static void put_row(struct buf *b, const struct exchange *x, const struct choice *c, int64_t now)
{
	buf_puts(b, b->p[b->n - 1] == '[' ? "{\"id\":" : ",\n{\"id\":");
	json_put_cstr(b, x->request_id);
	buf_puts(b, ",\"path\":");
	json_put_cstr(b, x->route->path);
	buf_puts(b, ",\"age_seconds\":");
	json_put_double(b, (double)(now - x->t_begin) / 1e9);
	if (c) {
		buf_puts(b, ",\"client\":");
		json_put_cstr(b, x->from.client);
		buf_printf(b, ",\"choice\":%d", c->index);
		put_choice(b, x->work, c);
	} else {
		buf_puts(b, ",\"state\":\"preparing\"");
	}
	buf_putc(b, '}');
}

/* A row for each choice, for it is these that the engine runs. */
static void put_rows(struct buf *b, const struct exchange *x, int64_t now)
{
	const struct generation *g = generation_running(x);

	if (x->stage == PREPARING)
		put_row(b, x, NULL, now);
	else if (g)
		for (int i = 0; i < g->n_choice; i++)
			if (!g->choice[i].done)
				put_row(b, x, &g->choice[i], now);
}

static void list_ready(struct exchange *x)
{
	const struct server *s = x->srv;
	int64_t now = clock_monotonic_ns();
	struct buf b;

	buf_init(&b);
	buf_puts(&b, "{\"object\":\"list\",\"data\":[");
	for (size_t i = 0; i < s->exchanges.n; i++) {
		const struct exchange *one = s->exchanges.v[i];

		if ((one->conn || one->detached) && one->from.key == x->from.key &&
		    one->route->endpoint->wake == generation_wake)
			put_rows(&b, one, now);
	}
	buf_puts(&b, "]}\n");
	exchange_reply_whole(x, 200, "application/json", &b);
}

const struct endpoint requests_list_endpoint = { .ready = list_ready };

/* ---- cancelling ---- */

static void ready(struct exchange *x)
{
	int n = exchange_cancel(x->srv, x->rest.p, x->rest.n, x->from.key);
	struct problem p;
	struct buf b;

	if (!n) {
		problem_set(&p, 404, "request_not_found", NULL, "no request of that name is under way");
		exchange_refuse(x, &p);
		return;
	}
	buf_init(&b);
	buf_puts(&b, "{\"id\":");
	json_put_str(&b, x->rest.p, x->rest.n);
	buf_printf(&b, ",\"object\":\"request\",\"cancelled\":%d}\n", n);
	exchange_reply(x, 200, "application/json", b.p, b.n);
	buf_fini(&b);
}

const struct endpoint requests_endpoint = { .ready = ready };
