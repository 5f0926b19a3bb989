/* metrics.c - see metrics.h. */
#include "server/metrics.h"

#include <assert.h>
#include <string.h>

#include "base/json.h"
#include "server/exchange.h"
#include "server/inside.h"

/* Bounds as inference servers of the field use them, so that dashboards fit. */
static const double first_token_bounds[] = { 0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1,
                                             2.5, 5, 7.5, 10, 20, 40, 80, 160, 640 };
static const double next_token_bounds[] = { 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4,
                                            0.5, 0.75, 1, 2.5, 5, 10 };
static const double whole_bounds[] = { 0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120,
                                       240, 480, 960 };

#define HISTOGRAM(bounds) ((struct histogram){ .bound = bounds, .n = sizeof(bounds) / sizeof(bounds[0]) })

void metrics_init(struct metrics *m)
{
	memset(m, 0, sizeof *m);
	m->first_token = HISTOGRAM(first_token_bounds);
	m->next_token = HISTOGRAM(next_token_bounds);
	m->queue = HISTOGRAM(first_token_bounds);
	m->whole = HISTOGRAM(whole_bounds);
}

void histogram_add(struct histogram *h, double seconds, int64_t times)
{
	int i = 0;

	assert(h->n <= HISTOGRAM_MAX);
	while (i < h->n && seconds > h->bound[i])
		i++;
	h->count[i] += times;
	h->sum += seconds * (double)times;
}

void metrics_reply(struct metrics *m, int status) { m->replies[status / 100 % 6]++; }
void metrics_left(struct metrics *m, enum left_at at) { m->left[at]++; }
void metrics_stalled(struct metrics *m) { m->stalled++; }
void metrics_timeout(struct metrics *m) { m->timeouts++; }
void metrics_refused_connection(struct metrics *m) { m->refused_connections++; }

/* ---- the page ---- */

static void put_number(struct buf *b, double v)
{
	json_put_double(b, v);
	buf_putc(b, '\n');
}

static void describe(struct buf *b, const char *name, const char *type, const char *help)
{
	buf_printf(b, "# HELP weft_%s %s\n# TYPE weft_%s %s\n", name, help, name, type);
}

static void counter(struct buf *b, const char *name, const char *help, int64_t v)
{
	describe(b, name, "counter", help);
	buf_printf(b, "weft_%s %lld\n", name, (long long)v);
}

static void gauge(struct buf *b, const char *name, const char *help, double v)
{
	describe(b, name, "gauge", help);
	buf_printf(b, "weft_%s ", name);
	put_number(b, v);
}

static void labelled(struct buf *b, const char *name, const char *label, const char *value, int64_t v)
{
	buf_printf(b, "weft_%s{%s=\"%s\"} %lld\n", name, label, value, (long long)v);
}

static void histogram(struct buf *b, const char *name, const char *help, const struct histogram *h)
{
	int64_t total = 0;

	describe(b, name, "histogram", help);
	for (int i = 0; i <= h->n; i++) {
		total += h->count[i];
		buf_printf(b, "weft_%s_bucket{le=\"", name);
		if (i < h->n)
			json_put_double(b, h->bound[i]);
		else
			buf_puts(b, "+Inf");
		buf_printf(b, "\"} %lld\n", (long long)total);
	}
	buf_printf(b, "weft_%s_sum ", name);
	put_number(b, h->sum);
	buf_printf(b, "weft_%s_count %lld\n", name, (long long)total);
}

static void put_engine(struct buf *b, const struct engine_stats *e)
{
	gauge(b, "requests_running", "Requests that hold a sequence.", e->running);
	gauge(b, "requests_waiting", "Requests in the engine's queue.", e->waiting);
	counter(b, "requests_total", "Requests given to the engine.", e->requests);
	describe(b, "requests_finished_total", "counter", "Requests that ended, by reason.");
	labelled(b, "requests_finished_total", "reason", "stop", e->finished[FINISH_STOP]);
	labelled(b, "requests_finished_total", "reason", "length", e->finished[FINISH_LENGTH]);
	labelled(b, "requests_finished_total", "reason", "cancel", e->finished[FINISH_CANCEL]);
	labelled(b, "requests_finished_total", "reason", "error", e->finished[FINISH_ERROR]);
	counter(b, "steps_total", "Steps of the engine.", e->steps);
	counter(b, "prompt_tokens_total", "Tokens of the prompts of admitted requests.", e->prompt_tokens);
	counter(b, "cached_tokens_total", "Prompt tokens that a kept prefix made unnecessary to compute.",
	        e->cached_tokens);
	counter(b, "output_tokens_total", "Tokens generated.", e->output_tokens);
	gauge(b, "kv_pages", "Pages of keys and values there are.", e->kv_pages);
	gauge(b, "kv_pages_used", "Pages of keys and values in use, by sequences and kept prefixes.", e->kv_pages_used);
	gauge(b, "prefix_bytes", "Bytes of kept prefixes.", (double)e->prefix_bytes);
	gauge(b, "prefix_bytes_max", "Budget of kept prefixes.", (double)e->prefix_bytes_max);
	gauge(b, "prefix_entries", "Kept prefixes.", e->prefix_entries);
}

void metrics_put(struct buf *b, const struct metrics *m, const struct engine_stats *e, const char *model,
                 int connections)
{
	static const char *const class[] = { NULL, NULL, "2xx", NULL, "4xx", "5xx" };
	static const char *const stage[] = { "preparing", "queued", "prefill", "decode" };

	describe(b, "model_info", "gauge", "The model that is served.");
	buf_puts(b, "weft_model_info{model=");
	json_put_cstr(b, model);        /* the same escapes as a label's */
	buf_puts(b, "} 1\n");
	put_engine(b, e);
	gauge(b, "connections", "Open connections.", connections);
	counter(b, "connections_refused_total", "Connections beyond the limit.", m->refused_connections);
	describe(b, "http_replies_total", "counter", "Replies by class of status.");
	for (int i = 0; i < 6; i++)
		if (class[i])
			labelled(b, "http_replies_total", "status", class[i], m->replies[i]);
	describe(b, "clients_left_total", "counter", "Clients that left before their answer was complete, by stage.");
	for (int i = 0; i < LEFT_STAGES; i++)
		labelled(b, "clients_left_total", "stage", stage[i], m->left[i]);
	counter(b, "clients_stalled_total", "Clients given up because they did not read.", m->stalled);
	counter(b, "request_timeouts_total", "Requests that did not arrive in time.", m->timeouts);
	histogram(b, "time_to_first_token_seconds", "From a complete request to its first token.", &m->first_token);
	histogram(b, "inter_token_seconds", "Between the tokens of an answer.", &m->next_token);
	histogram(b, "queue_seconds", "From the engine's inbox to the first step.", &m->queue);
	histogram(b, "request_seconds", "From a complete request to the end of its answer.", &m->whole);
}

static void ready(struct exchange *x)
{
	struct server *s = x->srv;
	struct engine_stats e;
	struct buf b;

	engine_stats(s->served.engine, &e);
	buf_init(&b);
	metrics_put(&b, &s->metrics, &e, s->served.name, s->n_conn);
	exchange_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", b.p, b.n);
	buf_fini(&b);
}

const struct api metrics_api = { .ready = ready };
