/* gate.c - see gate.h. */
#include "server/http/gate.h"

#include <string.h>
#include <strings.h>

/* The part of a list that begins at *at; *at moves to the next.  p NULL: there is none. */
static struct http_slice listed(const char **at)
{
	size_t n = strcspn(*at, ",");
	struct http_slice s = { n || **at ? *at : NULL, n };

	*at += n + ((*at)[n] == ',');
	return s;
}

static bool same(struct http_slice a, struct http_slice b)
{
	return a.n == b.n && !strncasecmp(a.p, b.p, a.n);
}

/* Host and port of an origin: the part behind its scheme. */
static struct http_slice authority(struct http_slice origin)
{
	const char *at = origin.n ? memmem(origin.p, origin.n, "://", 3) : NULL;

	return at ? (struct http_slice){ at + 3, (size_t)(origin.p + origin.n - at - 3) } :
	            (struct http_slice){ "", 0 };
}

static bool is_listed(const char *origins, struct http_slice origin)
{
	struct http_slice one;

	if (!origins || !origin.n)
		return false;
	if (!strcmp(origins, "*"))
		return true;
	while ((one = listed(&origins)).p)
		if (same(one, origin))
			return true;
	return false;
}

/* The host of "host", "host:port", "[v6]" and "[v6]:port". */
static struct http_slice host_of(struct http_slice h)
{
	const char *end = h.n ? memchr(h.p, h.p[0] == '[' ? ']' : ':', h.n) : NULL;

	if (!end)
		return h;
	return (struct http_slice){ h.p, (size_t)(end - h.p) + (h.p[0] == '[') };
}

static bool ends(struct http_slice s, const char *with)
{
	size_t n = strlen(with);

	return s.n >= n && !strncasecmp(s.p + s.n - n, with, n);
}

/* 127.x.y.z and nothing else: a name may begin with 127. as well. */
static bool is_127(struct http_slice s)
{
	if (s.n < 4 || memcmp(s.p, "127.", 4))
		return false;
	for (size_t i = 0; i < s.n; i++)
		if (s.p[i] != '.' && (s.p[i] < '0' || s.p[i] > '9'))
			return false;
	return true;
}

static bool names_us(struct http_slice host)
{
	return http_slice_is(host, "[::1]") || http_slice_is(host, "::1") || is_127(host) ||
	       (host.n == 9 && ends(host, "localhost")) || ends(host, ".localhost");
}

bool gate_is_local(const char *host)
{
	return names_us((struct http_slice){ host, strlen(host) });
}

bool gate_allows(const struct gate *g, const struct http *h)
{
	return is_listed(g->origins, http_field(h, "origin"));
}

/* The host of an origin that was allowed may stand in Host: a proxy that passes it on. */
static bool host_is_listed(const char *origins, struct http_slice host)
{
	struct http_slice one;

	while (origins && (one = listed(&origins)).p)
		if (http_slice_is(one, "*") || same(host_of(authority(one)), host))
			return true;
	return false;
}

static bool is_type(const struct http *h, const char *type)
{
	struct http_slice v = http_field(h, "content-type");
	size_t n = strlen(type);

	return v.n >= n && !strncasecmp(v.p, type, n) && (v.n == n || strchr("; \t", v.p[n]));
}

int gate_check(const struct gate *g, const struct http *h, struct problem *p)
{
	struct http_slice origin = http_field(h, "origin"), host = http_field(h, "host");

	if (g->local && host.n && !names_us(host_of(host)) && !host_is_listed(g->origins, host_of(host)))
		return problem_set(
			p, 403, "foreign_host", NULL,
			"Host is %.*s, and this server answers to its own machine alone: ask localhost, or start it with "
			"--cors-origin and that name's origin",
			(int)(host.n < 100 ? host.n : 100), host.p);
	if (origin.n && !gate_allows(g, h) && !same(authority(origin), host))
		return problem_set(
			p, 403, "foreign_origin", NULL,
			"pages of %.*s may not use this server; it is started with --cors-origin for those that may",
			(int)(origin.n < 100 ? origin.n : 100), origin.p);
	return 0;
}

int gate_body(const struct http *h, bool form, struct problem *p)
{
	bool is_form = is_type(h, "multipart/form-data");

	if (form && !is_form)
		return problem_set(p, 415, NULL, NULL,
		                   "a body is a form: send it with Content-Type: multipart/form-data");
	if (!form && (is_form || is_type(h, "text/plain")))
		return problem_set(p, 415, NULL, NULL, "a body is JSON: send it with Content-Type: application/json");
	return 0;
}
