/* metrics.c - see metrics.h. */
#include "server/http/metrics.h"

#include <assert.h>
#include <string.h>

/* Bounds as inference servers of the field use them, so that dashboards fit. */
static const double first_token_bounds[] = { 0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
	                                     1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640 };
static const double next_token_bounds[] = { 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15,
	                                    0.2,   0.3,    0.4,   0.5,  0.75,  1,    2.5,   5,   10 };
static const double whole_bounds[] = { 0.05, 0.1, 0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,  10,
	                               15,   20,  30,  40,  50,  60, 120, 240, 480, 960 };
static const double token_bounds[] = { 1,    2,    5,    10,    20,    50,    100,    200,   500,
	                               1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000 };

const char *const stage_names[LEFT_STAGES] = { "body", "preparing", "queued", "prefill", "decode" };
const char *const cause_names[CAUSES] = { "client left", "deleted", "client does not read", "deadline",
	                                  "server stopped" };
#define HISTOGRAM(bounds) ((struct histogram){ .bound = bounds, .n = sizeof(bounds) / sizeof(bounds[0]) })

void metrics_init(struct metrics *m)
{
	memset(m, 0, sizeof *m);
	m->first_token = m->queue = HISTOGRAM(first_token_bounds);
	m->next_token = HISTOGRAM(next_token_bounds);
	m->prefill = m->decode = m->inference = m->whole = HISTOGRAM(whole_bounds);
	m->prompt_tokens = m->output_tokens = HISTOGRAM(token_bounds);
}

void histogram_add(struct histogram *h, double value, int64_t times)
{
	int i = 0;

	assert(h->n <= HISTOGRAM_MAX);
	while (i < h->n && value > h->bound[i])
		i++;
	h->count[i] += times;
	h->sum += value * (double)times;
}

void metrics_answer(struct metrics *m, const struct event *ev)
{
	histogram_add(&m->queue, (double)ev->queue_ns / 1e9, 1);
	histogram_add(&m->prefill, (double)ev->prefill_ns / 1e9, 1);
	histogram_add(&m->decode, (double)ev->decode_ns / 1e9, 1);
	histogram_add(&m->inference, (double)(ev->prefill_ns + ev->decode_ns) / 1e9, 1);
	histogram_add(&m->prompt_tokens, ev->n_prompt, 1);
	histogram_add(&m->output_tokens, ev->n_output, 1);
}

void metrics_reply(struct metrics *m, int status)
{
	m->replies[status / 100 % 6]++;
}
void metrics_cancelled(struct metrics *m, enum cause why, enum left_at at)
{
	m->cancelled[why][at]++;
}
void metrics_stalled(struct metrics *m)
{
	m->stalled++;
}
void metrics_timeout(struct metrics *m)
{
	m->timeouts++;
}
void metrics_refused_connection(struct metrics *m)
{
	m->refused_connections++;
}
