/* gate.h - which web pages may reach the server.
 *
 * A browser sends a page's requests to any address that its machine can reach, this server's
 * included, whatever the page's origin.  Three things tell them from a program's: Origin, which
 * pages of elsewhere cannot leave out; Host, which still names the page's own server where a
 * name was rebound to this address; and the content types that a page may send without asking
 * first.  Nothing here replaces an API key: programs write what they like.
 *
 * IO thread; nothing is kept. */
#ifndef SERVER_GATE_H
#define SERVER_GATE_H

#include <stdbool.h>

#include "server/http/http.h"
#include "server/http/problem.h"

struct gate {
	const char *origins; /* "*", or origins separated by commas, whose pages may ask; NULL: none but our own */
	bool local;          /* a port that only this machine reaches: Host must name it too */
};

/* Is this what an address of this machine alone is written as (localhost, 127.x, ::1)? */
bool gate_is_local(const char *host);

/* May a page of this request's origin read the reply?  Our own pages need no permission. */
bool gate_allows(const struct gate *g, const struct http *h);

/* 0, or *p's status: 403 for a page of elsewhere or a Host that is not ours. */
int gate_check(const struct gate *g, const struct http *h, struct problem *p);
/* 0, or *p's status: 415 for a body of a type that pages send unasked, but for forms where a route wants one. */
int gate_body(const struct http *h, bool form, struct problem *p);

#endif
