/* guard.c - faults on the engine's thread that end one request.
 *
 * Much of a step is work on one request's own data: what its logits are shown to,
 * its mask, its sampler, text and outbox.  A fault there (fault.h) ends that request
 * with an error; the step goes on and settles its rows like any.  What several share
 * (scheduler, caches, prefix store, drafters) is outside: a fault there still ends
 * the program. */
#include <stdatomic.h>

#include "base/fault.h"
#include "engine/core.h"

void request_break(struct request *r, int code)
{
	r->broken = true;
	r->drafts.n = 0;
	err_set(&r->err, code, "%s", fault_words(code));
	verify_end(r, FINISH_ERROR);
}

bool request_guard(struct request *r, void (*fn)(void *arg), void *arg)
{
	if (r->broken)
		return false;
	if (fault_guard(fn, arg))
		return true;
	request_break(r, fault_code());
	return false;
}

/* Requests that were given up.  Their memory stays reachable, so that a search for leaks does not report it. */
static _Atomic(struct request *) given_up;

void request_give_up(struct request *r)
{
	r->next = atomic_load(&given_up);
	while (!atomic_compare_exchange_weak(&given_up, &r->next, r))
		;
}
