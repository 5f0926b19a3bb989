/* access.h - one line in the log for each request, when it is over.
 *
 * INFO for what gives the engine work, DEBUG for the rest (probes and scrapes
 * come every few seconds).  Text of a prompt is logged only if
 * --log-prompts asks for it. */
#ifndef SERVER_ACCESS_H
#define SERVER_ACCESS_H

#include <stddef.h>
#include <stdint.h>

struct exchange;
struct http;
struct problem;

/* Facts about a finished answer, for the access log; 0 where unknown. */
struct access {
	const char *finish; /* "stop", "cancelled" ...; NULL: by the status */
	char why[640];      /* of an error or a cancel; "": nothing to say */
	int n_prompt, n_cached, n_output;
	int64_t queue_ns, first_ns; /* waiting for the engine; until the first token */
	double rate;                /* tokens per second after the first; 0: unknown */
};

/* IO thread, before x is put to rest. */
void access_log(const struct exchange *x);

/* A request that was answered with p before it was one: no such path, no key, a body
 * too large, no HTTP.  h NULL: its method and path are not known. */
void access_log_refused(const char *peer, const char *id, const struct http *h, const struct problem *p);

/* Logs a prompt's text p[0..n), for --log-prompts. */
void access_log_prompt(const struct exchange *x, const char *p, size_t n);

#endif
