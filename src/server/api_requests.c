/* api_requests.c - DELETE /v1/requests/{id}: cancels what is named so.
 *
 * The name is the request's x-request-id or the id of its answer.  Only what came
 * with the same API key is found; without keys, an id that we made up is not to
 * be guessed, and one that a client made up is the client's to choose well. */
#include "server/inside.h"
#include "server/routes.h"

static void ready(struct exchange *x)
{
	int n = exchange_cancel(x->srv, x->rest.p, x->rest.n, x->key);
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

const struct api requests_api = { .ready = ready };
