/* image_hosts.c - see image_hosts.h.
 *
 * libcurl's own parser reads the URL once, and what it made of it is both compared with the list and connected to: there are no two
 * readings that could differ. */
#include "server/images/image_hosts.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "base/libcurl.h"

/* HEADERS_MAX: bytes of all header lines and trailers, which the library keeps; servers' own limits are 8 to 64 KB. */
enum {
	URL_MAX = 8192,
	HEADERS_MAX = 64 << 10,
	CONNECT_SECONDS = 10,
	LOOK_MS = 10,
	SLOW_BYTES = 1000,
	SLOW_SECONDS = 15
};

/* The part of libcurl that is used. */
struct curl_calls {
	CURLcode (*global_init)(long);
	CURL *(*easy_init)(void);
	CURLcode (*easy_setopt)(CURL *, CURLoption, ...);
	CURLcode (*easy_getinfo)(CURL *, CURLINFO, ...);
	void (*easy_cleanup)(CURL *);
	const char *(*easy_strerror)(CURLcode);
	CURLM *(*multi_init)(void);
	CURLMcode (*multi_add_handle)(CURLM *, CURL *);
	CURLMcode (*multi_perform)(CURLM *, int *);
	CURLMcode (*multi_poll)(CURLM *, struct curl_waitfd *, unsigned, int, int *);
	CURLMsg *(*multi_info_read)(CURLM *, int *);
	CURLMcode (*multi_remove_handle)(CURLM *, CURL *);
	CURLMcode (*multi_cleanup)(CURLM *);
	CURLU *(*url)(void);
	CURLUcode (*url_set)(CURLU *, CURLUPart, const char *, unsigned);
	CURLUcode (*url_get)(const CURLU *, CURLUPart, char **, unsigned);
	void (*url_cleanup)(CURLU *);
	void (*free)(void *);
};

static int load(struct curl_calls *c, struct err *err)
{
	const struct libcurl_function functions[] = {
		{ "curl_global_init", &c->global_init },
		{ "curl_easy_init", &c->easy_init },
		{ "curl_easy_setopt", &c->easy_setopt },
		{ "curl_easy_getinfo", &c->easy_getinfo },
		{ "curl_easy_cleanup", &c->easy_cleanup },
		{ "curl_easy_strerror", &c->easy_strerror },
		{ "curl_multi_init", &c->multi_init },
		{ "curl_multi_add_handle", &c->multi_add_handle },
		{ "curl_multi_perform", &c->multi_perform },
		{ "curl_multi_poll", &c->multi_poll },
		{ "curl_multi_info_read", &c->multi_info_read },
		{ "curl_multi_remove_handle", &c->multi_remove_handle },
		{ "curl_multi_cleanup", &c->multi_cleanup },
		{ "curl_url", &c->url },
		{ "curl_url_set", &c->url_set },
		{ "curl_url_get", &c->url_get },
		{ "curl_url_cleanup", &c->url_cleanup },
		{ "curl_free", &c->free },
	};
	int rc = libcurl_open(functions, sizeof functions / sizeof *functions, "--image-host", err);

	if (!rc && c->global_init(CURL_GLOBAL_DEFAULT))
		rc = err_set(err, E_IO, "libcurl does not start");
	return rc;
}

/* ---- the list ---- */

static bool is_name(const char *s)
{
	return *s && *s != ':' && !strpbrk(s, "/@?# \t");
}

int image_hosts_open(struct image_hosts *h, const char *const *host, int n, struct err *err)
{
	*h = (struct image_hosts){ .host = host, .n = n };
	for (int i = 0; i < n; i++)
		if (!is_name(host[i]))
			return err_set(err, E_ARG, "--image-host %s: no name of a host, or name and port (NAME:PORT)",
			               host[i]);
	if (!n)
		return 0;
	h->curl = xcalloc(1, sizeof *h->curl);
	return load(h->curl, err);
}

void image_hosts_close(struct image_hosts *h)
{
	free(h->curl); /* the library stays: a thread of its own may still be looking for a name */
	*h = (struct image_hosts){ 0 };
}

static bool begins(const char *url, size_t n, const char *with)
{
	return n >= strlen(with) && !strncasecmp(url, with, strlen(with));
}

bool image_host_url(const char *url, size_t n)
{
	return begins(url, n, "http:") || begins(url, n, "https:");
}

static bool listed(const struct image_hosts *h, const char *name, const char *port, bool usual)
{
	size_t n = strlen(name);

	for (int i = 0; i < h->n; i++) {
		const char *at = h->host[i];

		if (strncasecmp(at, name, n))
			continue;
		if (at[n] ? at[n] == ':' && !strcmp(at + n + 1, port) : usual)
			return true;
	}
	return false;
}

/* ---- the URL ---- */

/* "name:port" of what u was parsed to, if its host is listed. */
static int check_url(const struct image_hosts *h, CURLU *u, char *where, size_t where_size, struct err *err)
{
	const struct curl_calls *c = h->curl;
	char *scheme = NULL, *name = NULL, *port = NULL, *user = NULL;
	bool usual, good;
	int rc = 0;

	c->url_get(u, CURLUPART_SCHEME, &scheme, 0);
	c->url_get(u, CURLUPART_HOST, &name, 0);
	c->url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT);
	c->url_get(u, CURLUPART_USER, &user, 0);
	good = scheme && name && port && (!strcmp(scheme, "http") || !strcmp(scheme, "https"));
	usual = good && !strcmp(port, strcmp(scheme, "http") ? "443" : "80");
	if (!good || user)
		rc = err_set(err, E_ARG, "a URL %s", good ? "with a name and password in it" : "without a host");
	else if (!listed(h, name, port, usual))
		rc = err_set(err, E_ARG, "a URL of the host %.100s, port %s, which --image-host does not list", name,
		             port);
	else
		snprintf(where, where_size, "%.100s:%s", name, port);
	c->free(scheme);
	c->free(name);
	c->free(port);
	c->free(user);
	return rc;
}

static int parse(const struct image_hosts *h, const char *url, size_t n, CURLU **out, char *where, size_t where_size,
                 struct err *err)
{
	const struct curl_calls *c = h->curl;
	char text[URL_MAX + 1];
	CURLUcode bad;
	CURLU *u;
	int rc;

	if (n > URL_MAX || memchr(url, 0, n))
		return err_set(err, E_ARG, "a URL of %zu bytes, of which %d are the most, or with a zero byte in it", n,
		               URL_MAX);
	memcpy(text, url, n);
	text[n] = 0;
	if (!(u = c->url()))
		return err_set(err, E_FULL, "no memory for a URL");
	bad = c->url_set(u, CURLUPART_URL, text, 0);
	rc = bad ? err_set(err, E_ARG, "no URL that can be read (%d of libcurl's errors)", (int)bad) :
	           check_url(h, u, where, where_size, err);
	if (rc)
		c->url_cleanup(u);
	else
		*out = u;
	return rc;
}

/* ---- fetching ---- */

struct fetched {
	uint8_t *p;
	size_t n, cap, n_header;
	int rc; /* why no more is taken */
	struct err *err;
};

static bool grow(struct fetched *f, size_t need)
{
	size_t cap = f->cap ? 2 * f->cap : 1 << 16;
	uint8_t *p;

	cap = cap < need ? need : cap;
	if (need <= f->cap)
		return true;
	if (!(p = try_malloc(cap)))
		return false;
	if (f->n)
		memcpy(p, f->p, f->n);
	free(f->p);
	f->p = p;
	f->cap = cap;
	return true;
}

static size_t on_data(char *p, size_t one, size_t n, void *arg)
{
	struct fetched *f = arg;

	n *= one;
	if (n > IMAGE_FETCH_MAX - f->n)
		f->rc = err_set(f->err, E_LIMIT, "a picture of more than %d bytes", IMAGE_FETCH_MAX);
	else if (!allowance_spend(n / 16))
		f->rc = err_set(f->err, E_LIMIT, "%s", allowance_why());
	else if (!grow(f, f->n + n))
		f->rc = err_set(f->err, E_FULL, "no memory for a picture of %zu bytes", f->n + n);
	if (f->rc)
		return n + 1; /* which ends the transfer */
	memcpy(f->p + f->n, p, n);
	f->n += n;
	return n;
}

/* A header line, of whatever response, or a trailer. */
static size_t on_header(char *p, size_t one, size_t n, void *arg)
{
	struct fetched *f = arg;

	(void)p;
	n *= one;
	f->n_header += n;
	if (f->n_header <= HEADERS_MAX)
		return n;
	f->rc = err_set(f->err, E_LIMIT, "header lines of more than %d bytes", HEADERS_MAX);
	return n + 1;
}

static void set_up(const struct curl_calls *c, CURL *e, CURLU *u, struct fetched *f)
{
	c->easy_setopt(e, CURLOPT_CURLU, u);
	c->easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
	c->easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
	c->easy_setopt(e, CURLOPT_PROXY, "");
	c->easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	c->easy_setopt(e, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
	c->easy_setopt(e, CURLOPT_TIMEOUT, (long)IMAGE_FETCH_SECONDS);
	c->easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, (long)SLOW_BYTES);
	c->easy_setopt(e, CURLOPT_LOW_SPEED_TIME, (long)SLOW_SECONDS);
	c->easy_setopt(e, CURLOPT_USERAGENT, "weft");
	c->easy_setopt(e, CURLOPT_WRITEFUNCTION, on_data);
	c->easy_setopt(e, CURLOPT_WRITEDATA, f);
	c->easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
	c->easy_setopt(e, CURLOPT_HEADERDATA, f);
}

/* CURLE_OK, or why not; stops when the allowance does. */
static CURLcode run(const struct curl_calls *c, CURLM *m, CURL *e, struct fetched *f)
{
	CURLcode code = CURLE_FAILED_INIT;
	int running = 1, left;
	const CURLMsg *said;

	if (c->multi_add_handle(m, e))
		return code;
	while (!c->multi_perform(m, &running) && running && !f->rc) {
		if (!allowance_spend(0))
			f->rc = err_set(f->err, E_LIMIT, "%s", allowance_why());
		else
			c->multi_poll(m, NULL, 0, LOOK_MS, NULL);
	}
	while ((said = c->multi_info_read(m, &left)))
		if (said->msg == CURLMSG_DONE)
			code = said->data.result;
	c->multi_remove_handle(m, e);
	return code;
}

/* The library does not say that it found no descriptor, which is not the host's fault. */
static bool descriptors_gone(void)
{
	int fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	return fd < 0 && (errno == EMFILE || errno == ENFILE);
}

static int why_not(const struct curl_calls *c, CURLcode code, const char *where, struct err *err)
{
	if (descriptors_gone())
		return err_set(err, E_FULL, "%s: %s", where, strerror(EMFILE));
	/* The library's word for a line beyond its own limit, too. */
	if (code == CURLE_OUT_OF_MEMORY)
		return err_set(err, E_IO, "%s: a header line that is too long, or no memory for one", where);
	return err_set(err, E_IO, "%s: %s", where, c->easy_strerror(code));
}

static int fetch(const struct curl_calls *c, CURLU *u, const char *where, struct fetched *f)
{
	CURL *e = c->easy_init();
	CURLM *m = c->multi_init();
	long status = 0;
	CURLcode code;

	if (!e || !m) {
		f->rc = err_set(f->err, E_FULL, "no memory for a connection");
	} else {
		set_up(c, e, u, f);
		code = run(c, m, e, f);
		c->easy_getinfo(e, CURLINFO_RESPONSE_CODE, &status);
		if (!f->rc && code)
			f->rc = why_not(c, code, where, f->err);
		else if (!f->rc && status != 200)
			f->rc = err_set(f->err, E_IO, "%s answered with status %ld%s", where, status,
			                status / 100 == 3 ? ", and redirects are not followed" : "");
	}
	if (e)
		c->easy_cleanup(e);
	if (m)
		c->multi_cleanup(m);
	return f->rc;
}

int image_host_read(const struct image_hosts *h, const char *url, size_t n, uint8_t **bytes, size_t *n_bytes,
                    struct err *err)
{
	struct fetched f = { .err = err };
	char where[128];
	CURLU *u;
	int rc = parse(h, url, n, &u, where, sizeof where, err);

	if (rc)
		return rc;
	rc = fetch(h->curl, u, where, &f);
	h->curl->url_cleanup(u);
	if (rc) {
		free(f.p);
		return rc;
	}
	*bytes = f.p;
	*n_bytes = f.n;
	return 0;
}
