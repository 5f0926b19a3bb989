/* bench_serve.c - `weft bench serve URL`: sends the load of bench_load.c to any
 * server with the OpenAI API and measures what a client sees.
 *
 * Each request has a connection of its own; answers are streamed.  Times count
 * from the moment the plan has for a request, so a server (or a machine) that
 * makes the sender late is not let off. */
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/http_struct.h>
#include <math.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/json.h"
#include "bench/bench_load.h"

/* One request on its way. */
struct shot {
	struct bench *b;
	int i;
	struct evhttp_connection *conn; /* NULL: not sent, or over */
	struct event *leave;            /* timer of one that leaves before the first piece */
	struct buf line;                /* of the part of the stream that came */
	int pieces;
	int64_t t_last; /* clock of the last piece */
	bool usage;     /* the server counted */
};

struct bench {
	const struct options *o;
	struct load load;
	struct shot *shot;
	struct load_result *result;
	struct samples gaps;
	struct event_base *base;
	struct event *next, *stop;
	struct evhttp_uri *uri;
	char address[1025]; /* NI_MAXHOST of RFC 3493 */
	int port;
	char *path, *host;
	int64_t start;
	int n_sent, n_over;
	bool terminal; /* standard error is one */
	bool stopped;  /* by Ctrl-C */
};

/* ---- progress, on standard error ---- */

/* At a terminal one line that is written over, for each request that is over; elsewhere a line for each tenth of all. */
static void show_progress(const struct bench *b)
{
	double seconds = (double)(clock_monotonic_ns() - b->start) / 1e9;
	int tenth = b->load.n / 10;

	if (b->terminal)
		fprintf(stderr, "\r%d of %d sent, %d over, %.0f s ", b->n_sent, b->load.n, b->n_over, seconds);
	else if (tenth && b->n_over % tenth == 0)
		fprintf(stderr, "%d of %d requests are over, %.1f s\n", b->n_over, b->load.n, seconds);
	if (b->terminal && b->n_over == b->load.n)
		fputc('\n', stderr);
}

/* ---- the end of a request ---- */

static void close_later(evutil_socket_t fd, short what, void *arg)
{
	struct shot *s = arg;

	(void)fd;
	(void)what;
	if (s->conn)
		evhttp_connection_free(s->conn);
	s->conn = NULL;
	s->b->n_over++;
	show_progress(s->b);
	if (s->b->n_over == s->b->load.n)
		event_base_loopbreak(s->b->base);
}

static void over(struct shot *s, enum outcome how)
{
	struct load_result *r = &s->b->result[s->i];
	struct timeval now = { 0, 0 };

	if (r->whole_ns)
		return;
	r->outcome = how;
	r->whole_ns = clock_monotonic_ns() - s->b->start - s->b->load.req[s->i].at_ns;
	if (!s->usage)
		r->output = s->pieces;
	buf_fini(&s->line);
	if (s->leave)
		event_free(s->leave);
	s->leave = NULL;
	/* Not here: this may be a call from the connection itself. */
	event_base_once(s->b->base, -1, EV_TIMEOUT, close_later, s, &now);
}

static void on_leave(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	over(arg, OUT_ABORTED);
}

/* ---- the stream ---- */

static bool has_text(const struct json *choice)
{
	static const char *const names[] = { "content", "reasoning_content", "reasoning", "refusal" };
	const struct json *delta = json_get(choice, "delta");
	size_t n = 0;

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (json_str(json_get(delta, names[i]), &n) && n)
			return true;
	return (json_str(json_get(choice, "text"), &n) && n) || json_len(json_get(delta, "tool_calls"));
}

static void piece(struct shot *s)
{
	struct load_result *r = &s->b->result[s->i];
	int64_t now = clock_monotonic_ns();

	if (!r->first_ns)
		r->first_ns = now - s->b->start - s->b->load.req[s->i].at_ns;
	else
		samples_add(&s->b->gaps, (double)(now - s->t_last) / 1e9);
	s->t_last = now;
	s->pieces++;
}

static void count(const struct json *usage, struct shot *s)
{
	struct load_result *r = &s->b->result[s->i];

	if (json_kind(usage) != JSON_OBJECT)
		return;
	s->usage = true;
	json_to_int(json_get(usage, "prompt_tokens"), &r->prompt);
	json_to_int(json_get(usage, "completion_tokens"), &r->output);
	json_to_int(json_get(json_get(usage, "prompt_tokens_details"), "cached_tokens"), &r->cached);
}

static void take_line(struct shot *s)
{
	const char *p = s->line.p;
	struct json *j;

	if (strncmp(p, "data:", 5) || !(j = json_parse(p + 5, strlen(p + 5), 0, NULL)))
		return; /* comments, event names, [DONE] */
	if (json_get(j, "error") && !*s->b->result[s->i].error)
		snprintf(s->b->result[s->i].error, sizeof s->b->result[s->i].error, "%s", p + 5);
	if (has_text(json_at(json_get(j, "choices"), 0)))
		piece(s);
	count(json_get(j, "usage"), s);
	json_free(j);
}

static void on_chunk(struct evhttp_request *req, void *arg)
{
	struct shot *s = arg;
	struct load_result *r = &s->b->result[s->i];
	struct evbuffer *in = evhttp_request_get_input_buffer(req);
	char bytes[4096];
	int n, limit = s->b->load.req[s->i].abort_after;

	r->status = evhttp_request_get_response_code(req);
	while (!r->whole_ns && (n = evbuffer_remove(in, bytes, sizeof bytes)) > 0) {
		for (int i = 0; i < n && !r->whole_ns; i++) {
			if (bytes[i] != '\n') {
				buf_putc(&s->line, bytes[i]);
				continue;
			}
			buf_putc(&s->line, 0);
			take_line(s);
			buf_reset(&s->line);
			if (limit > 0 && s->pieces >= limit)
				over(s, OUT_ABORTED);
		}
	}
}

static void on_done(struct evhttp_request *req, void *arg)
{
	struct shot *s = arg;
	struct load_result *r = &s->b->result[s->i];
	int status = req ? evhttp_request_get_response_code(req) : 0;

	if (r->whole_ns)
		return;
	r->status = status;
	if (status == 200 && !*r->error) {
		over(s, OUT_OK);
		return;
	}
	buf_putc(&s->line, 0);
	if (!status)
		snprintf(r->error, sizeof r->error, "no reply (connection refused, closed or timed out)");
	else if (!*r->error)
		snprintf(r->error, sizeof r->error, "%d: %s", status, s->line.p);
	over(s, status == 429 || status == 503 ? OUT_REFUSED : OUT_FAILED);
}

/* ---- sending ---- */

static void put_body(const struct bench *b, int i, struct buf *body)
{
	const struct load_request *r = &b->load.req[i];
	struct buf text;

	buf_init(&text);
	load_text(&b->load, i, &text);
	buf_putc(body, '{');
	if (b->o->load.model) {
		buf_puts(body, "\"model\":");
		json_put_cstr(body, b->o->load.model);
		buf_putc(body, ',');
	}
	buf_puts(body, b->o->bench_serve.completions ? "\"prompt\":" : "\"messages\":[{\"role\":\"user\",\"content\":");
	json_put_str(body, text.p, text.n);
	buf_printf(body, "%s,\"max_tokens\":%d,\"stream\":true,\"stream_options\":{\"include_usage\":true}",
	           b->o->bench_serve.completions ? "" : "}]", r->max_tokens);
	if (b->o->bench_serve.user) {
		buf_puts(body, ",\"user\":");
		json_put_cstr(body, b->o->bench_serve.user);
	}
	if (b->o->bench_serve.ignore_eos)
		buf_puts(body, ",\"ignore_eos\":true");
	if (b->o->load.answer.temperature_set) {
		buf_puts(body, ",\"temperature\":");
		json_put_double(body, b->o->load.answer.temperature);
	}
	buf_putc(body, '}');
	buf_fini(&text);
}

static void fire(struct bench *b, int i)
{
	struct shot *s = &b->shot[i];
	struct load_request *r = &b->load.req[i];
	struct evhttp_request *req = evhttp_request_new(on_done, s);
	struct evkeyvalq *head = evhttp_request_get_output_headers(req);
	struct timeval soon = { 0, 20000 }; /* 20 ms: sent, and for most servers not yet answered */
	struct buf body;

	*s = (struct shot){ .b = b, .i = i };
	buf_init(&s->line);
	s->conn = evhttp_connection_base_new(b->base, NULL, b->address, (ev_uint16_t)b->port);
	if (!req || !s->conn)
		fault_abort();
	evhttp_connection_set_timeout(s->conn, b->o->bench_serve.timeout);
	evhttp_request_set_chunked_cb(req, on_chunk);
	evhttp_add_header(head, "Host", b->host);
	evhttp_add_header(head, "Content-Type", "application/json");
	evhttp_add_header(head, "Connection", "close");
	if (b->o->remote.api_key) {
		struct buf key;

		buf_init(&key);
		buf_printf(&key, "Bearer %s", b->o->remote.api_key);
		evhttp_add_header(head, "Authorization", key.p);
		buf_fini(&key);
	}
	buf_init(&body);
	put_body(b, i, &body);
	evbuffer_add(evhttp_request_get_output_buffer(req), body.p, body.n);
	buf_fini(&body);
	b->result[i].late_ns = clock_monotonic_ns() - b->start - r->at_ns;
	if (r->abort_after == 0) {
		s->leave = evtimer_new(b->base, on_leave, s);
		event_add(s->leave, &soon);
	}
	if (evhttp_make_request(s->conn, req, EVHTTP_REQ_POST, b->path))
		over(s, OUT_FAILED);
}

static void on_next(evutil_socket_t fd, short what, void *arg)
{
	struct bench *b = arg;
	struct timeval tv;
	int64_t left = 0;

	(void)fd;
	(void)what;
	while (b->n_sent < b->load.n && (left = b->load.req[b->n_sent].at_ns - (clock_monotonic_ns() - b->start)) <= 0)
		fire(b, b->n_sent++);
	if (b->n_sent == b->load.n)
		return;
	tv = (struct timeval){ left / 1000000000, left % 1000000000 / 1000 + 1 };
	event_add(b->next, &tv);
}

/* Ctrl-C: what has come so far is still reported. */
static void on_stop(evutil_socket_t fd, short what, void *arg)
{
	struct bench *b = arg;

	(void)fd;
	(void)what;
	b->stopped = true;
	event_base_loopbreak(b->base);
}

/* ---- begin and end ---- */

static int read_url(struct bench *b, const char *url, struct err *err)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM }, *ai;
	const char *scheme, *path;
	struct buf s;
	int r;

	b->uri = evhttp_uri_parse(url);
	scheme = b->uri ? evhttp_uri_get_scheme(b->uri) : NULL;
	if (!scheme || strcmp(scheme, "http") || !evhttp_uri_get_host(b->uri))
		return err_set(err, E_ARG, "'%s' is not a URL like http://127.0.0.1:8080 (TLS is not spoken)", url);
	b->port = evhttp_uri_get_port(b->uri) < 0 ? 80 : evhttp_uri_get_port(b->uri);
	buf_init(&s);
	buf_printf(&s, "%s:%d", evhttp_uri_get_host(b->uri), b->port);
	b->host = buf_take(&s);
	path = evhttp_uri_get_path(b->uri);
	r = (int)strlen(path);
	while (r && path[r - 1] == '/')
		r--;
	/* With or without the /v1 that clients' base URLs end with. */
	if (r >= 3 && !memcmp(path + r - 3, "/v1", 3))
		r -= 3;
	buf_printf(&s, "%.*s/v1/%s", r, path, b->o->bench_serve.completions ? "completions" : "chat/completions");
	b->path = buf_take(&s);
	r = getaddrinfo(evhttp_uri_get_host(b->uri), NULL, &hints, &ai);
	if (r)
		return err_set(err, E_IO, "host \"%s\": %s", evhttp_uri_get_host(b->uri), gai_strerror(r));
	r = getnameinfo(ai->ai_addr, ai->ai_addrlen, b->address, sizeof b->address, NULL, 0, NI_NUMERICHOST);
	freeaddrinfo(ai);
	return r ? err_set(err, E_IO, "host \"%s\": %s", evhttp_uri_get_host(b->uri), gai_strerror(r)) : 0;
}

/* Every open request is a descriptor. */
static void raise_descriptors(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r))
		return;
	r.rlim_cur = r.rlim_max;
	setrlimit(RLIMIT_NOFILE, &r);
}

/* A timer rounded up to a millisecond would make every request late by half of one. */
static struct event_base *precise_base(void)
{
	struct event_config *c = event_config_new();
	struct event_base *base;

	if (!c || event_config_set_flag(c, EVENT_BASE_FLAG_PRECISE_TIMER) || !(base = event_base_new_with_config(c)))
		fault_abort();
	event_config_free(c);
	return base;
}

static void bench_requests(struct bench *b)
{
	signal(SIGPIPE, SIG_IGN);
	raise_descriptors();
	b->next = evtimer_new(b->base, on_next, b);
	b->stop = evsignal_new(b->base, SIGINT, on_stop, b);
	if (!b->next || !b->stop)
		fault_abort();
	event_add(b->stop, NULL);
	b->start = clock_monotonic_ns();
	b->terminal = isatty(STDERR_FILENO);
	on_next(-1, 0, b);
	event_base_dispatch(b->base);
	/* Requests that Ctrl-C left unfinished. */
	for (int i = 0; i < b->n_sent; i++) {
		over(&b->shot[i], OUT_ABORTED);
		if (b->shot[i].conn)
			evhttp_connection_free(b->shot[i].conn);
	}
	b->load.n = b->n_sent;
}

int cmd_bench_serve(const struct options *o)
{
	struct bench b = { .o = o };
	struct err err;
	struct buf out;
	int rc, failed = 0;

	rc = read_url(&b, o->remote.url, &err);
	if (!rc) {
		load_plan(&b.load, &o->bench_serve);
		b.base = precise_base();
		b.shot = xcalloc((size_t)b.load.n, sizeof *b.shot);
		b.result = xcalloc((size_t)b.load.n, sizeof *b.result);
		bench_requests(&b);
		for (int i = 0; i < b.load.n; i++)
			failed += b.result[i].outcome == OUT_FAILED;
		if (failed && failed == b.load.n && !o->bench_serve.json) {
			rc = err_set(&err, E_IO, "%s: all %d requests failed: %.300s", o->remote.url, failed,
			             b.result[0].error);
		} else {
			buf_init(&out);
			load_report(&b.load, b.result, &b.gaps, clock_monotonic_ns() - b.start, o->bench_serve.json,
			            o->remote.url, &out);
			fwrite(out.p, 1, out.n, stdout);
			buf_fini(&out);
			rc = failed || b.stopped;
		}
		event_free(b.next);
		event_free(b.stop);
		event_base_free(b.base);
	}
	load_free(&b.load);
	samples_free(&b.gaps);
	free(b.shot);
	free(b.result);
	free(b.path);
	free(b.host);
	if (b.uri)
		evhttp_uri_free(b.uri);
	return rc < 0 ? cli_fail("bench serve", &err) : rc ? EXIT_WORK : 0;
}
