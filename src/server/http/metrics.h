/* metrics.h - what the server counts.  IO thread alone, so nothing is locked. */
#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H

#include <stdint.h>

#include "engine/engine.h"

enum { HISTOGRAM_MAX = 24 };

struct histogram {
	const double *bound; /* n upper bounds, rising */
	int n;
	int64_t count[HISTOGRAM_MAX + 1]; /* per interval; the last is above all bounds */
	double sum;
};

/* Where a request was when it was cancelled, and why it was. */
enum left_at { LEFT_BODY, LEFT_PREPARING, LEFT_QUEUED, LEFT_PREFILL, LEFT_DECODE, LEFT_STAGES };
enum cause {
	CAUSE_LEFT,   /* the client closed */
	CAUSE_DELETE, /* DELETE /v1/requests/{id} */
	CAUSE_STALL,  /* the client does not read */
	CAUSE_DEADLINE,
	CAUSE_STOP, /* the server ends */
	CAUSES
};

struct metrics {
	int64_t replies[6]; /* by first digit of the status */
	int64_t cancelled[CAUSES][LEFT_STAGES];
	int64_t stalled, timeouts, refused_connections, faults;
	int64_t continued; /* streams, from the last event that a client had */
	struct histogram first_token, next_token, queue, prefill, decode, inference, whole; /* seconds */
	struct histogram prompt_tokens, output_tokens;
};

void metrics_init(struct metrics *m);

void histogram_add(struct histogram *h, double value, int64_t times);
/* An answer is complete: ev is its DONE. */
void metrics_answer(struct metrics *m, const struct event *ev);

void metrics_reply(struct metrics *m, int status);
void metrics_cancelled(struct metrics *m, enum cause why, enum left_at at);
extern const char *const stage_names[LEFT_STAGES], *const cause_names[CAUSES];
void metrics_stalled(struct metrics *m);
void metrics_timeout(struct metrics *m);
void metrics_refused_connection(struct metrics *m);

#endif
