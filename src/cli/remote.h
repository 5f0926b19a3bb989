/* remote.h - an answer from a server with the OpenAI API, this one or another, for
 * `weft run --url`.
 *
 * HTTP and TLS are libcurl's, which is looked for when it is needed: a server or a
 * terminal that runs its own model starts without it. */
#ifndef CLI_REMOTE_H
#define CLI_REMOTE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/json.h"
#include "cli/cli.h"

struct remote;

struct remote_answer {
	/* As it comes. */
	void (*thinking)(void *arg, const char *p, size_t n);
	void (*content)(void *arg, const char *p, size_t n);
	void (*progress)(void *arg, int done, int total);
	void *arg;
	const volatile sig_atomic_t *stop; /* not 0: give up */
	/* Filled in. */
	bool stopped, cut;                /* by *stop; at the limit of tokens */
	int n_prompt, n_cached, n_output; /* -1: the server did not say */
	double first, whole;              /* seconds until the first piece and until the end */
};

/* url is http(s)://HOST[:PORT][/v1], or unix:/path.  Without o->load.model the server's list is
 * read: the model is the one named wish, if it lists one of that name, else its first.  wish may
 * be NULL.  Only options that were given are sent. */
int remote_open(struct remote **out, const struct options *o, const char *wish, struct err *err);
void remote_close(struct remote *r);
const char *remote_model(const struct remote *r);
/* The address, with /v1 where it was given without a path; the most tokens of the model's context, -1 where the server does not say. */
const char *remote_base(const struct remote *r);
int remote_context(const struct remote *r);
/* Whether the model takes images, if the server's list of models says so. */
enum sees remote_sees(const struct remote *r);

/* messages: an array. */
int remote_ask(struct remote *r, const struct json *messages, struct remote_answer *a, struct err *err);

#endif
