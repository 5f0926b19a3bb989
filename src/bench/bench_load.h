/* bench_load.h - the load of `weft bench serve`, and what came of it: no sockets.
 *
 * The load is open: requests come when the plan says, whether or not earlier ones
 * were answered, as clients of a real service do.  The whole plan is a function
 * of the seed and the options. */
#ifndef BENCH_BENCH_LOAD_H
#define BENCH_BENCH_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "cli/cli.h"

struct load_request {
	int64_t at_ns;           /* after the start */
	int prefix;              /* which of the shared beginnings; -1: none */
	int prefix_words, words; /* of the beginning, and of its own */
	int max_tokens;
	int abort_after; /* pieces of the answer after which the client leaves; -1: it stays */
};

struct load {
	uint64_t seed;
	struct load_request *req;
	int n;
};

/* From the options of `weft bench serve`. */
void load_plan(struct load *l, const struct bench_serve_options *o);
void load_free(struct load *l);
/* The prompt's text of request i, appended. */
void load_text(const struct load *l, int i, struct buf *out);

enum outcome { OUT_OK, OUT_ABORTED, OUT_REFUSED, OUT_FAILED, OUTCOMES };

struct load_result {
	enum outcome outcome;
	int status;                     /* of HTTP; 0: none came */
	int64_t late_ns;                /* was sent so long after its time: our own delay */
	int64_t first_ns, whole_ns;     /* since its time in the plan; first 0: nothing came */
	int64_t prompt, cached, output; /* tokens by the server's account; output by pieces where it gives none */
	char error[160];                /* of the first piece of a reply that is none, or of the connection */
};

struct samples {
	double *v; /* seconds */
	size_t n, cap;
};
void samples_add(struct samples *s, double v);
void samples_free(struct samples *s);

/* gaps: between the pieces of answers, of all requests. */
void load_report(const struct load *l, const struct load_result *result, struct samples *gaps, int64_t took_ns,
                 bool as_json, const char *url, struct buf *out);

#endif
