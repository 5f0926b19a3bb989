/* remote.c - see remote.h. */
#include "cli/remote.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/libcurl.h"

enum {
	REPLY_MAX = 1 << 20, /* bytes of an error, a list of models, or one event */
	CONNECT_SECONDS = 20,
};

/* The part of libcurl that is used. */
struct curl_lib {
	CURL *(*easy_init)(void);
	CURLcode (*easy_setopt)(CURL *, CURLoption, ...);
	CURLcode (*easy_perform)(CURL *);
	CURLcode (*easy_getinfo)(CURL *, CURLINFO, ...);
	void (*easy_cleanup)(CURL *);
	const char *(*easy_strerror)(CURLcode);
	struct curl_slist *(*slist_append)(struct curl_slist *, const char *);
	void (*slist_free_all)(struct curl_slist *);
};

struct remote {
	struct curl_lib lib;
	const struct options *o;
	CURL *curl;
	struct curl_slist *header;
	char *base, *socket, *model; /* base: with the path */
	int context;                 /* of the model; -1: not known */
	enum sees sees;

	/* State of the exchange under way. */
	struct remote_answer *a; /* NULL: the whole reply goes into line */
	struct buf line;
	bool too_long;
	struct err *err; /* what an event of the stream said */
	bool failed;
	int64_t t_begin, t_first;
};

static int load(struct curl_lib *l, struct err *err)
{
	const struct libcurl_function functions[] = {
		{ "curl_easy_init", &l->easy_init },       { "curl_easy_setopt", &l->easy_setopt },
		{ "curl_easy_perform", &l->easy_perform }, { "curl_easy_getinfo", &l->easy_getinfo },
		{ "curl_easy_cleanup", &l->easy_cleanup }, { "curl_easy_strerror", &l->easy_strerror },
		{ "curl_slist_append", &l->slist_append }, { "curl_slist_free_all", &l->slist_free_all },
	};

	return libcurl_open(functions, sizeof functions / sizeof *functions, "--url", err);
}

/* ---- what comes ---- */

static void take_text(struct remote *r, const struct json *v, void (*to)(void *, const char *, size_t))
{
	size_t n;
	const char *s = json_str(v, &n);

	if (!s || !n)
		return;
	if (!r->t_first)
		r->t_first = clock_monotonic_ns();
	to(r->a->arg, s, n);
}

static void take_usage(struct remote_answer *a, const struct json *u)
{
	int64_t n;

	if (!json_to_int(json_get(u, "prompt_tokens"), &n))
		a->n_prompt = (int)n;
	if (!json_to_int(json_get(u, "completion_tokens"), &n))
		a->n_output = (int)n;
	if (!json_to_int(json_get(json_get(u, "prompt_tokens_details"), "cached_tokens"), &n))
		a->n_cached = (int)n;
}

/* The message of an error, in whichever of the usual shapes; NULL when there is none. */
static const char *error_text(const struct json *j)
{
	const struct json *e = json_get(j, "error");
	size_t n;
	const char *s = json_str(json_get(e, "message"), &n);

	if (!s)
		s = json_str(e, &n);
	if (!s)
		s = json_str(json_get(j, "message"), &n);
	return s ? s : json_str(json_get(j, "detail"), &n);
}

static void take_event(struct remote *r, const char *p, size_t n)
{
	struct json *j = json_parse(p, n, 0, NULL);
	const struct json *choice = json_at(json_get(j, "choices"), 0), *delta = json_get(choice, "delta");
	const struct json *progress = json_get(j, "prompt_progress");
	int64_t done, total;
	size_t len;
	const char *s;

	if (json_kind(json_get(j, "error")) != JSON_NULL) {
		s = error_text(j);
		err_set(r->err, E_IO, "the server says: %.400s", s ? s : "an error without a message");
		r->failed = true;
	}
	take_text(r, json_get(delta, "reasoning_content"), r->a->thinking);
	if (json_kind(json_get(delta, "reasoning_content")) == JSON_NULL)
		take_text(r, json_get(delta, "reasoning"), r->a->thinking);
	take_text(r, json_get(delta, "content"), r->a->content);
	if ((s = json_str(json_get(choice, "finish_reason"), &len)))
		r->a->cut = !strcmp(s, "length");
	if (!json_to_int(json_get(progress, "processed"), &done) && !json_to_int(json_get(progress, "total"), &total))
		r->a->progress(r->a->arg, (int)done, (int)total);
	if (json_kind(json_get(j, "usage")) == JSON_OBJECT)
		take_usage(r->a, json_get(j, "usage"));
	json_free(j);
}

/* One line of a stream, without its end. */
static void take_line(struct remote *r, const char *p, size_t n)
{
	if (n && p[n - 1] == '\r')
		n--;
	if (n < 5 || memcmp(p, "data:", 5))
		return;
	for (p += 5, n -= 5; n && *p == ' '; p++)
		n--;
	take_event(r, p, n);
}

static size_t on_data(char *p, size_t size, size_t count, void *arg)
{
	struct remote *r = arg;
	size_t n = size * count;
	long status = 0;
	char *end;

	r->lib.easy_getinfo(r->curl, CURLINFO_RESPONSE_CODE, &status);
	if (r->line.n + n > REPLY_MAX) {
		r->too_long = true;
		return 0;
	}
	buf_put(&r->line, p, n);
	if (!r->a || status != 200)
		return n;
	while ((end = memchr(r->line.p, '\n', r->line.n))) {
		take_line(r, r->line.p, (size_t)(end - r->line.p));
		buf_drop(&r->line, (size_t)(end - r->line.p) + 1);
	}
	return n;
}

static int on_wait(void *arg, curl_off_t total_in, curl_off_t in, curl_off_t total_out, curl_off_t out)
{
	struct remote *r = arg;

	(void)total_in;
	(void)in;
	(void)total_out;
	(void)out;
	return r->a && r->a->stop && *r->a->stop;
}

/* ---- asking ---- */

/* One exchange; body NULL: GET. */
static int perform(struct remote *r, const char *path, const struct buf *body, struct err *err)
{
	struct curl_lib *l = &r->lib;
	struct buf url, where; /* where: for messages, as it was typed */
	struct json *j;
	const char *s;
	CURLcode code;
	long status = 0;
	int rc = 0;

	buf_init(&url);
	buf_init(&where);
	buf_printf(&url, "%s%s", r->base, path);
	if (r->socket)
		buf_printf(&where, "unix:%s, /v1%s", r->socket, path);
	else
		buf_puts(&where, url.p);
	buf_reset(&r->line);
	r->too_long = r->failed = false;
	r->err = err;
	r->t_begin = clock_monotonic_ns();
	r->t_first = 0;
	l->easy_setopt(r->curl, CURLOPT_URL, url.p);
	if (body) {
		l->easy_setopt(r->curl, CURLOPT_POSTFIELDSIZE, (long)body->n);
		l->easy_setopt(r->curl, CURLOPT_POSTFIELDS, body->p);
	} else {
		l->easy_setopt(r->curl, CURLOPT_HTTPGET, 1L);
	}
	code = l->easy_perform(r->curl);
	l->easy_getinfo(r->curl, CURLINFO_RESPONSE_CODE, &status);
	if (code == CURLE_ABORTED_BY_CALLBACK)
		r->a->stopped = true;
	else if (r->too_long)
		rc = err_set(err, E_LIMIT, "%s: more than %d bytes where less was expected", where.p, REPLY_MAX);
	else if (code)
		rc = err_set(err, E_IO, "%s: %s%s", where.p,
		             status == 200 && r->a ? "the connection was lost before the end of the answer" :
		                                     l->easy_strerror(code),
		             code == CURLE_COULDNT_CONNECT ? "; is it running? `weft serve` starts one" : "");
	else if (status != 200) {
		j = json_parse(r->line.p, r->line.n, 0, NULL);
		s = error_text(j);
		rc = err_set(err, E_IO, "%s answered %ld%s%.400s", where.p, status, s ? ": " : "", s ? s : "");
		json_free(j);
	} else if (r->failed) {
		rc = err->code;
	}
	buf_fini(&url);
	buf_fini(&where);
	return rc;
}

static void put_number(struct buf *b, bool set, const char *name, double v)
{
	if (!set)
		return;
	buf_printf(b, ",\"%s\":", name);
	json_put_double(b, v);
}

/* Appends the options that were given, and nothing else: other servers know other fields. */
static void put_options(struct buf *b, const struct options *o)
{
	put_number(b, o->load.answer.temperature_set, "temperature", o->load.answer.temperature);
	put_number(b, o->load.answer.top_p_set, "top_p", o->load.answer.top_p);
	put_number(b, o->load.answer.min_p_set, "min_p", o->load.answer.min_p);
	put_number(b, o->load.answer.top_k_set, "top_k", o->load.answer.top_k);
	put_number(b, o->load.answer.repetition_set, "repetition_penalty", o->load.answer.repetition_penalty);
	put_number(b, o->load.answer.presence_penalty != 0, "presence_penalty", o->load.answer.presence_penalty);
	put_number(b, o->load.answer.frequency_penalty != 0, "frequency_penalty", o->load.answer.frequency_penalty);
	if (o->max_tokens >= 0)
		buf_printf(b, ",\"max_tokens\":%d", o->max_tokens);
	if (o->seed >= 0)
		buf_printf(b, ",\"seed\":%lld", (long long)o->seed);
	if (o->load.answer.template_args)
		buf_printf(b, ",\"chat_template_kwargs\":%s", o->load.answer.template_args);
	else if (o->load.answer.think != THINK_DEFAULT)
		buf_printf(b, ",\"chat_template_kwargs\":{\"enable_thinking\":%s}",
		           o->load.answer.think == THINK_ON ? "true" : "false");
}

int remote_ask(struct remote *r, const struct json *messages, struct remote_answer *a, struct err *err)
{
	struct buf body;
	int rc;

	a->stopped = a->cut = false;
	a->n_prompt = a->n_cached = a->n_output = -1;
	buf_init(&body);
	buf_puts(&body, "{\"model\":");
	json_put_cstr(&body, r->model);
	buf_puts(&body, ",\"messages\":");
	json_put(&body, messages);
	buf_puts(&body, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
	put_options(&body, r->o);
	buf_putc(&body, '}');
	r->a = a;
	rc = perform(r, "/chat/completions", &body, err);
	r->a = NULL;
	a->first = r->t_first ? (double)(r->t_first - r->t_begin) / 1e9 : 0;
	a->whole = (double)(clock_monotonic_ns() - r->t_begin) / 1e9;
	buf_fini(&body);
	return rc;
}

/* The name of list[i]; NULL: it has none. */
static const char *listed(const struct json *list, size_t i)
{
	return json_str(json_get(json_at(list, i), "id"), NULL);
}

/* Whether a list of words has one of two; SEES_UNKNOWN: it is not a list. */
static enum sees has_word(const struct json *list, const char *a, const char *b)
{
	for (size_t i = 0; i < json_len(list); i++) {
		const char *s = json_str(json_at(list, i), NULL);

		if (s && (!strcmp(s, a) || !strcmp(s, b)))
			return SEES;
	}
	return json_kind(list) == JSON_ARRAY ? SEES_NOT : SEES_UNKNOWN;
}

/* weft's own list has `capabilities`, llama-server's has them in a second list, gateways have `architecture`. */
static enum sees listed_sees(const struct json *reply, size_t at)
{
	const struct json *model = json_at(json_get(reply, "data"), at);
	enum sees sees = has_word(json_get(model, "capabilities"), "vision", "multimodal");

	if (sees == SEES_UNKNOWN)
		sees = has_word(json_get(json_at(json_get(reply, "models"), at), "capabilities"), "vision",
		                "multimodal");
	if (sees == SEES_UNKNOWN)
		sees = has_word(json_get(json_get(model, "architecture"), "input_modalities"), "image", "vision");
	return sees;
}

static int find_model(struct remote *r, const char *wish, struct err *err)
{
	const struct json *list;
	struct json *j;
	const char *s;
	int64_t context;
	size_t at = 0;
	int rc;

	r->context = -1;
	if (r->o->load.model) {
		r->model = xstrdup(r->o->load.model);
		return 0;
	}
	if ((rc = perform(r, "/models", NULL, err)))
		return rc;
	j = json_parse(r->line.p, r->line.n, 0, NULL);
	list = json_get(j, "data");
	for (size_t i = 1; wish && i < json_len(list); i++)
		if (listed(list, i) && !strcmp(listed(list, i), wish))
			at = i;
	s = listed(list, at);
	if (!json_to_int(json_get(json_at(list, at), "max_model_len"), &context) && context > 0 && context <= INT32_MAX)
		r->context = (int)context;
	r->sees = listed_sees(j, at);
	if (s)
		r->model = xstrdup(s);
	else
		rc = err_set(err, E_FORMAT, "%s/models names no model; --model NAME does",
		             r->socket ? r->socket : r->base);
	json_free(j);
	return rc;
}

/* base and socket from what was typed. */
static int set_url(struct remote *r, const char *url, struct err *err)
{
	size_t n = strlen(url);
	struct buf b;

	if (!strncmp(url, "unix:", 5)) {
		r->socket = xstrdup(url + 5);
		r->base = xstrdup("http://localhost/v1");
		return 0;
	}
	if (strstr(url, "://") && strncmp(url, "http://", 7) && strncmp(url, "https://", 8))
		return err_set(err, E_ARG, "--url %s: an address begins with http://, https:// or unix:", url);
	while (n && url[n - 1] == '/')
		n--;
	buf_init(&b);
	if (!strstr(url, "://"))
		buf_puts(&b, "http://");
	buf_put(&b, url, n);
	/* Servers' own paths are kept; an address alone means the usual one. */
	if (!strchr(strstr(b.p, "//") + 2, '/'))
		buf_puts(&b, "/v1");
	r->base = buf_take(&b);
	return 0;
}

static void add_header(struct remote *r, const char *name, const char *value)
{
	struct buf b;

	buf_init(&b);
	buf_printf(&b, "%s: %s", name, value);
	r->header = r->lib.slist_append(r->header, b.p);
	buf_fini(&b);
}

static int check_args(const char *text, struct err *err)
{
	struct json *j = text ? json_parse(text, strlen(text), 0, NULL) : NULL;
	int rc = 0;

	if (text && json_kind(j) != JSON_OBJECT)
		rc = err_set(err, E_ARG, "--chat-template-args %s: it must be a JSON object", text);
	json_free(j);
	return rc;
}

int remote_open(struct remote **out, const struct options *o, const char *wish, struct err *err)
{
	struct remote *r = xcalloc(1, sizeof *r);
	const char *key = o->remote.api_key ? o->remote.api_key : getenv("WEFT_API_KEY");
	int rc;

	r->o = o;
	buf_init(&r->line);
	if ((rc = check_args(o->load.answer.template_args, err)) || (rc = load(&r->lib, err)) ||
	    (rc = set_url(r, o->remote.url, err)))
		goto fail;
	if (!(r->curl = r->lib.easy_init())) {
		rc = err_set(err, E_IO, "libcurl does not start");
		goto fail;
	}
	add_header(r, "Content-Type", "application/json");
	if (key && *key) {
		struct buf b;

		buf_init(&b);
		buf_printf(&b, "Bearer %s", key);
		add_header(r, "Authorization", b.p);
		buf_fini(&b);
	}
	r->lib.easy_setopt(r->curl, CURLOPT_HTTPHEADER, r->header);
	r->lib.easy_setopt(r->curl, CURLOPT_WRITEFUNCTION, on_data);
	r->lib.easy_setopt(r->curl, CURLOPT_WRITEDATA, r);
	r->lib.easy_setopt(r->curl, CURLOPT_XFERINFOFUNCTION, on_wait);
	r->lib.easy_setopt(r->curl, CURLOPT_XFERINFODATA, r);
	r->lib.easy_setopt(r->curl, CURLOPT_NOPROGRESS, 0L);
	r->lib.easy_setopt(r->curl, CURLOPT_NOSIGNAL, 1L);
	r->lib.easy_setopt(r->curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
	r->lib.easy_setopt(r->curl, CURLOPT_PROTOCOLS_STR, "http,https");
	if (r->socket)
		r->lib.easy_setopt(r->curl, CURLOPT_UNIX_SOCKET_PATH, r->socket);
	if ((rc = find_model(r, wish, err)))
		goto fail;
	*out = r;
	return 0;
fail:
	remote_close(r);
	return rc;
}

void remote_close(struct remote *r)
{
	if (!r)
		return;
	if (r->curl)
		r->lib.easy_cleanup(r->curl);
	if (r->header)
		r->lib.slist_free_all(r->header);
	/* The library stays: it may have threads and handlers of its own. */
	buf_fini(&r->line);
	free(r->base);
	free(r->socket);
	free(r->model);
	free(r);
}

const char *remote_model(const struct remote *r)
{
	return r->model;
}

const char *remote_base(const struct remote *r)
{
	return r->base;
}

int remote_context(const struct remote *r)
{
	return r->context;
}

enum sees remote_sees(const struct remote *r)
{
	return r->sees;
}
