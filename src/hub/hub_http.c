/* hub_http.c - see hub_http.h. */
#include "hub/hub_http.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/libcurl.h"
#include "hub/names.h"

enum {
	CONNECT_SECONDS = 15,
	SLOW_BYTES = 500, /* a second: less for SLOW_SECONDS is a connection that died */
	SLOW_SECONDS = 30,
	HOPS_MAX = 10,
	TRIES_MAX = 5,
	HEADERS_MAX = 64 << 10, /* bytes of an answer's header lines and trailers; servers' own limits are 8 to 64 KB */
	TELL_SECONDS = 3,       /* waits as long as this are said */
};

struct hub_http {
	CURLcode (*global_init)(long);
	CURL *(*easy_init)(void);
	CURLcode (*easy_setopt)(CURL *, CURLoption, ...);
	CURLcode (*easy_perform)(CURL *);
	void (*easy_cleanup)(CURL *);
	const char *(*easy_strerror)(CURLcode);
	struct curl_slist *(*slist_append)(struct curl_slist *, const char *);
	void (*slist_free_all)(struct curl_slist *);
	const struct hub_place *place;
	void (*say)(void *arg, const char *line);
	void *arg;
	pthread_mutex_t lock; /* for what follows */
	pthread_cond_t stopping;
	char warning[256]; /* the last that was said */
	atomic_bool stop;
};

struct hub_line {
	struct hub_http *http;
	CURL *curl;
};

static int load(struct hub_http *h, struct err *err)
{
	const struct libcurl_function functions[] = {
		{ "curl_global_init", &h->global_init },   { "curl_easy_init", &h->easy_init },
		{ "curl_easy_setopt", &h->easy_setopt },   { "curl_easy_perform", &h->easy_perform },
		{ "curl_easy_cleanup", &h->easy_cleanup }, { "curl_easy_strerror", &h->easy_strerror },
		{ "curl_slist_append", &h->slist_append }, { "curl_slist_free_all", &h->slist_free_all },
	};
	int rc = libcurl_open(functions, sizeof functions / sizeof *functions, "fetching a model", err);

	if (!rc && h->global_init(CURL_GLOBAL_DEFAULT))
		rc = err_set(err, E_IO, "libcurl does not start");
	return rc;
}

int hub_http_open(struct hub_http **out, const struct hub_place *place, void (*say)(void *, const char *), void *arg,
                  struct err *err)
{
	struct hub_http *h = xcalloc(1, sizeof *h);
	pthread_condattr_t attr;

	h->place = place;
	h->say = say;
	h->arg = arg;
	pthread_mutex_init(&h->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&h->stopping, &attr);
	pthread_condattr_destroy(&attr);
	*out = h;
	if (!load(h, err))
		return 0;
	hub_http_close(h);
	*out = NULL;
	return err->code;
}

void hub_http_close(struct hub_http *h)
{
	if (!h)
		return;
	pthread_mutex_destroy(&h->lock);
	pthread_cond_destroy(&h->stopping);
	free(h);
}

void hub_http_stop(struct hub_http *h)
{
	pthread_mutex_lock(&h->lock);
	atomic_store(&h->stop, true);
	pthread_cond_broadcast(&h->stopping);
	pthread_mutex_unlock(&h->lock);
}

bool hub_http_stopped(const struct hub_http *h)
{
	return atomic_load(&h->stop);
}

static void say(struct hub_http *h, const char *line)
{
	if (!h->say)
		return;
	pthread_mutex_lock(&h->lock);
	h->say(h->arg, line);
	pthread_mutex_unlock(&h->lock);
}

int hub_http_wait(struct hub_http *h, const struct hub_head *head, int tries, const char *what, struct err *err)
{
	int seconds = hub_wait(head, tries);
	struct timespec until;
	char line[400], answered[32];

	if (seconds >= TELL_SECONDS) {
		snprintf(answered, sizeof answered, "the hub answered %d", head->status);
		snprintf(line, sizeof line, "%.200s: %s; trying again in %d s", what,
		         head->status == 429 ? "the hub limits how much is asked for" :
		         head->status >= 400 ? answered :
		         head->status        ? "the connection was lost" :
		                               "the hub cannot be reached",
		         seconds);
		say(h, line);
	}
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += seconds;
	pthread_mutex_lock(&h->lock);
	while (!atomic_load(&h->stop) && !pthread_cond_timedwait(&h->stopping, &h->lock, &until))
		;
	pthread_mutex_unlock(&h->lock);
	return atomic_load(&h->stop) ? err_set(err, E_GONE, "%s: ended", what) : 0;
}

struct hub_line *hub_line_open(struct hub_http *http)
{
	struct hub_line *line = xcalloc(1, sizeof *line);

	line->http = http;
	return line;
}

void hub_line_close(struct hub_line *line)
{
	if (line && line->curl)
		line->http->easy_cleanup(line->curl);
	free(line);
}

/* ---- one request ---- */

struct asked {
	struct hub_http *http;
	struct hub_head *head;
	const struct hub_sink *sink;
	size_t n_header;
	bool ended, flooded;
};

static size_t on_header(char *p, size_t one, size_t n, void *arg)
{
	struct asked *a = arg;

	n *= one;
	a->n_header += n;
	if (a->n_header > HEADERS_MAX) {
		a->flooded = true;
		return n + 1;
	}
	hub_head_line(a->head, p, n);
	return n;
}

static size_t on_data(char *p, size_t one, size_t n, void *arg)
{
	struct asked *a = arg;

	if (hub_http_stopped(a->http) || !a->sink->put(a->sink->arg, a->head, p, one * n)) {
		a->ended = true;
		return 0;
	}
	return one * n;
}

static bool ignore(void *arg, const struct hub_head *head, const void *p, size_t n)
{
	(void)arg;
	(void)head;
	(void)p;
	(void)n;
	return true;
}

static void set_request(struct hub_line *line, const char *method, const char *url, int64_t from, int64_t to,
                        struct asked *a, struct curl_slist *headers)
{
	struct hub_http *h = line->http;
	CURL *e = line->curl;
	char range[64];

	h->easy_setopt(e, CURLOPT_URL, url);
	h->easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
	h->easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
	h->easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	h->easy_setopt(e, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
	h->easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, (long)SLOW_BYTES);
	h->easy_setopt(e, CURLOPT_LOW_SPEED_TIME, (long)SLOW_SECONDS);
	h->easy_setopt(e, CURLOPT_USERAGENT, "weft");
	h->easy_setopt(e, CURLOPT_HTTPHEADER, headers);
	h->easy_setopt(e, CURLOPT_WRITEFUNCTION, on_data);
	h->easy_setopt(e, CURLOPT_WRITEDATA, a);
	h->easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
	h->easy_setopt(e, CURLOPT_HEADERDATA, a);
	h->easy_setopt(e, CURLOPT_NOBODY, strcmp(method, "HEAD") ? 0L : 1L);
	if (strcmp(method, "HEAD") != 0)
		h->easy_setopt(e, CURLOPT_HTTPGET, 1L);
	snprintf(range, sizeof range, to >= 0 ? "%lld-%lld" : "%lld-", (long long)from, (long long)to);
	h->easy_setopt(e, CURLOPT_RANGE, from >= 0 ? range : NULL);
}

/* The name and port of a URL, for messages: the rest may be a secret. */
static void put_host(char *out, size_t size, const char *url)
{
	const char *at = strstr(url, "://");

	at = at ? at + 3 : url;
	snprintf(out, size, "%.*s", (int)strcspn(at, "/?#"), at);
}

static void pass_warning(struct hub_http *h, const struct hub_head *head)
{
	bool same;

	pthread_mutex_lock(&h->lock);
	same = !strcmp(h->warning, head->warning);
	snprintf(h->warning, sizeof h->warning, "%s", head->warning);
	pthread_mutex_unlock(&h->lock);
	if (!same && *head->warning)
		say(h, head->warning);
}

int hub_ask(struct hub_line *line, const char *method, const char *url, int64_t from, int64_t to, struct hub_head *head,
            const struct hub_sink *sink, struct err *err)
{
	static const struct hub_sink nowhere = { .put = ignore };
	struct hub_http *h = line->http;
	struct asked a = { .http = h, .head = head, .sink = sink ? sink : &nowhere };
	struct curl_slist *headers = h->slist_append(NULL, "Accept-Encoding: identity");
	char host[200];
	CURLcode got;

	if (!line->curl && !(line->curl = h->easy_init()))
		return err_set(err, E_IO, "libcurl gives no connection");
	if (h->place->token && hub_same_origin(url, h->place->endpoint)) {
		struct buf b;

		buf_init(&b);
		buf_printf(&b, "Authorization: Bearer %s", h->place->token);
		headers = h->slist_append(headers, b.p);
		buf_fini(&b);
	}
	hub_head_reset(head);
	set_request(line, method, url, from, to, &a, headers);
	got = h->easy_perform(line->curl);
	h->easy_setopt(line->curl, CURLOPT_HTTPHEADER, NULL);
	h->slist_free_all(headers);
	put_host(host, sizeof host, url);
	if (a.flooded)
		return err_set(err, E_LIMIT, "%s: header lines of more than %d bytes", host, HEADERS_MAX);
	if (a.ended)
		return err_set(err, E_GONE, "%s: ended", host);
	if (got)
		return err_set(err, E_IO, "%s: %s", host, h->easy_strerror(got));
	pass_warning(h, head);
	return 0;
}

/* ---- the API ---- */

struct body {
	struct buf *b;
	size_t max;
	bool full;
};

static bool put_body(void *arg, const struct hub_head *head, const void *p, size_t n)
{
	struct body *body = arg;

	(void)head;
	if (n > body->max - body->b->n) {
		body->full = true;
		return false;
	}
	buf_put(body->b, p, n);
	return true;
}

/* Whether another try may help after rc and the head; waits before it. */
static bool again(struct hub_line *line, int rc, const struct hub_head *head, int tries, const char *what,
                  struct err *err)
{
	struct err ended;

	if (tries >= TRIES_MAX || (rc ? rc != E_IO : !hub_may_retry(head->status)))
		return false;
	return !hub_http_wait(line->http, head, tries, what, rc ? &ended : err);
}

int hub_get(struct hub_line *line, const char *url, const char *what, size_t max, struct hub_head *head,
            struct buf *body, struct err *err)
{
	struct body to = { .b = body, .max = max };
	const struct hub_sink sink = { .put = put_body, .arg = &to };
	struct buf at;
	int rc, hops = 0;

	buf_init(&at);
	buf_puts(&at, url);
	for (int tries = 0;; tries++) {
		buf_reset(body);
		rc = hub_ask(line, "GET", at.p, -1, -1, head, &sink, err);
		if (!rc && head->status >= 300 && head->status < 400 && head->location.p[0] == '/' &&
		    head->location.p[1] != '/' && hops++ < HOPS_MAX) {
			struct buf to_url;

			buf_init(&to_url);
			hub_put_relative(&to_url, at.p, head->location.p);
			buf_fini(&at);
			at = to_url;
			tries--;
			continue;
		}
		if (!again(line, rc, head, tries, what, err))
			break;
	}
	buf_fini(&at);
	if (to.full)
		return err_set(err, E_LIMIT, "%s: the hub's answer is larger than %zu bytes", what, max);
	if (rc)
		return err_prefix(err, "%s", what);
	return head->status == 200 ? 0 : hub_head_error(head, line->http->place->token != NULL, what, err);
}

int hub_locate(struct hub_line *line, const char *url, const char *what, struct hub_file *out, struct err *err)
{
	struct hub_head head;
	struct buf at;
	enum hub_step step = HUB_REFUSED;
	int rc = 0, hops = 0;

	hub_head_init(&head);
	buf_init(&at);
	buf_puts(&at, url);
	for (int tries = 0;; tries++) {
		rc = hub_ask(line, "HEAD", at.p, -1, -1, &head, NULL, err);
		if (again(line, rc, &head, tries, what, err))
			continue;
		if (rc)
			break;
		if (hub_may_retry(head.status) || head.status >= 400) {
			rc = hub_head_error(&head, line->http->place->token != NULL, what, err);
			break;
		}
		step = hub_file_step(&head, at.p, out, err);
		if (step != HUB_FOLLOW) {
			rc = step == HUB_REFUSED ? err_prefix(err, "%s", what) : 0;
			break;
		}
		if (hops++ == HOPS_MAX) {
			rc = err_set(err, E_FORMAT, "%s: the hub redirects without an end", what);
			break;
		}
		buf_reset(&at);
		buf_put(&at, out->url.p, out->url.n);
		tries = -1;
	}
	if (!rc && step == HUB_DONE) {
		buf_reset(&out->url);
		buf_put(&out->url, at.p, at.n);
	}
	buf_fini(&at);
	hub_head_fini(&head);
	return rc;
}
