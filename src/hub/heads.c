/* heads.c - see heads.h. */
#include "hub/heads.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "hub/names.h"

enum { WAIT_MAX = 600 }; /* seconds; the hub's windows have 300 */

void hub_head_reset(struct hub_head *h)
{
	struct buf location = h->location, link = h->link;

	buf_reset(&location);
	buf_reset(&link);
	*h = (struct hub_head){ .length = -1, .linked_size = -1, .left = -1, .seconds = -1, .retry_after = -1 };
	h->location = location;
	h->link = link;
}

void hub_head_init(struct hub_head *h)
{
	buf_init(&h->location);
	buf_init(&h->link);
	hub_head_reset(h);
}

void hub_head_fini(struct hub_head *h)
{
	buf_fini(&h->location);
	buf_fini(&h->link);
}

/* A whole number without a sign, or -1. */
static int64_t number(const char *s)
{
	char *end;
	long long v;

	if (!isdigit((unsigned char)*s))
		return -1;
	v = strtoll(s, &end, 10);
	return *end || strlen(s) > 18 ? -1 : v;
}

/* The number behind NAME= in '"api";r=490;t=200'. */
static int64_t member(const char *s, char name)
{
	for (; (s = strchr(s, ';')); s++) {
		const char *p = s + 1 + strspn(s + 1, " \t");

		if (*p != name)
			continue;
		p += 1 + strspn(p + 1, " \t");
		if (*p == '=' && isdigit((unsigned char)p[1 + strspn(p + 1, " \t")]))
			return strtoll(p + 1, NULL, 10);
	}
	return -1;
}

/* What is between quotes, W/ before them left out. */
static void put_etag(char *out, size_t size, const char *v)
{
	size_t n;

	if (!strncasecmp(v, "W/", 2))
		v += 2;
	n = strlen(v);
	if (n >= 2 && v[0] == '"' && v[n - 1] == '"') {
		v++;
		n -= 2;
	}
	snprintf(out, size, "%.*s", (int)n, v);
}

static void take(struct hub_head *h, const char *name, const char *v)
{
	static const struct {
		const char *name;
		size_t at, size;
	} texts[] = {
		{ "x-repo-commit", offsetof(struct hub_head, commit), sizeof h->commit },
		{ "x-error-code", offsetof(struct hub_head, code), sizeof h->code },
		{ "x-error-message", offsetof(struct hub_head, message), sizeof h->message },
		{ "x-hf-warning", offsetof(struct hub_head, warning), sizeof h->warning },
		{ "content-range", offsetof(struct hub_head, range), sizeof h->range },
	};

	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		if (!strcasecmp(name, texts[i].name))
			snprintf((char *)h + texts[i].at, texts[i].size, "%s", v);
	if (!strcasecmp(name, "etag")) {
		put_etag(h->etag, sizeof h->etag, v);
	} else if (!strcasecmp(name, "x-linked-etag")) {
		put_etag(h->linked_etag, sizeof h->linked_etag, v);
	} else if (!strcasecmp(name, "content-length")) {
		h->length = number(v);
	} else if (!strcasecmp(name, "x-linked-size")) {
		h->linked_size = number(v);
	} else if (!strcasecmp(name, "retry-after")) {
		h->retry_after = number(v);
	} else if (!strcasecmp(name, "ratelimit")) {
		h->left = member(v, 'r');
		h->seconds = member(v, 't');
	} else if (!strcasecmp(name, "location") || !strcasecmp(name, "link")) {
		struct buf *b = tolower((unsigned char)name[1]) == 'o' ? &h->location : &h->link;

		if (b->n)
			buf_puts(b, ", ");
		buf_puts(b, v);
	}
}

void hub_head_line(struct hub_head *h, const char *line, size_t n)
{
	char text[8192], *colon, *v;

	while (n && strchr("\r\n \t", line[n - 1]))
		n--;
	if (n >= sizeof text || memchr(line, 0, n))
		return;
	memcpy(text, line, n);
	text[n] = 0;
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)text[i] < 32 || text[i] == 127)
			text[i] = '?';
	if (!strncmp(text, "HTTP/", 5)) {
		hub_head_reset(h);
		v = strchr(text, ' ');
		h->status = v ? atoi(v + 1) : 0;
		return;
	}
	if (!(colon = strchr(text, ':')))
		return;
	*colon = 0;
	v = colon + 1 + strspn(colon + 1, " \t");
	take(h, text, v);
}

/* ---- a file ---- */

static int fill(const struct hub_head *h, bool redirect, struct hub_file *out, struct err *err)
{
	const char *etag = *h->linked_etag ? h->linked_etag : h->etag;

	if (!hub_is_hex(h->commit, HUB_COMMIT))
		return err_set(err, E_FORMAT,
		               "the answer is not the hub's (it has no X-Repo-Commit): a portal or proxy that wants a "
		               "login?");
	out->size = h->linked_size >= 0 ? h->linked_size : redirect ? -1 : h->length;
	if (out->size < 0)
		return err_set(err, E_FORMAT, "the hub's answer does not say how large the file is");
	if (!hub_is_digest(etag))
		return err_set(err, E_FORMAT, "the hub's answer has an ETag that is not a digest: '%.40s'", etag);
	snprintf(out->commit, sizeof out->commit, "%s", h->commit);
	snprintf(out->digest, sizeof out->digest, "%s", etag);
	return 0;
}

enum hub_step hub_file_step(const struct hub_head *h, const char *asked, struct hub_file *out, struct err *err)
{
	const char *to = h->location.p;

	buf_reset(&out->url);
	if (h->status >= 200 && h->status < 300)
		return fill(h, false, out, err) ? HUB_REFUSED : HUB_DONE;
	if (hub_may_retry(h->status))
		return HUB_RETRY;
	if (h->status < 300 || h->status >= 400) {
		hub_head_error(h, false, "the file", err);
		return HUB_REFUSED;
	}
	if (to[0] == '/' && to[1] != '/') {
		hub_put_relative(&out->url, asked, to);
		return HUB_FOLLOW;
	}
	if (strncmp(to, "https://", 8) != 0 && strncmp(to, "http://", 7) != 0) {
		err_set(err, E_FORMAT, "the hub leads to an address that is not a URL");
		return HUB_REFUSED;
	}
	if (!strncmp(asked, "https://", 8) && strncmp(to, "https://", 8) != 0) {
		err_set(err, E_FORMAT, "the hub leads from https to http, which could be read by others: not followed");
		return HUB_REFUSED;
	}
	buf_puts(&out->url, to);
	return fill(h, true, out, err) ? HUB_REFUSED : HUB_FETCH;
}

/* ---- errors and waits ---- */

int hub_head_error(const struct hub_head *h, bool token, const char *what, struct err *err)
{
	if (!strcmp(h->code, "GatedRepo"))
		return err_set(err, E_UNSUPPORTED,
		               "%s is gated: accept its conditions on its page while you are logged in, then %s", what,
		               token ? "try again (this token's account has not been granted access)" :
		                       "make a token there and set HF_TOKEN (or `hf auth login`)");
	if (h->status == 401 && strstr(h->message, "Invalid credentials"))
		return err_set(err, E_UNSUPPORTED,
		               "the hub does not know the token (HF_TOKEN): it is wrong or expired");
	if (!strcmp(h->code, "RevisionNotFound"))
		return err_set(err, E_MISSING, "%s: no such branch, tag or commit", what);
	if (!strcmp(h->code, "EntryNotFound"))
		return err_set(err, E_MISSING, "%s: no such file", what);
	if (!strcmp(h->code, "RepoNotFound") || h->status == 401 || h->status == 404)
		return err_set(err, E_MISSING, "%s: no such model on the hub, or it is private%s", what,
		               token ? " and the token has no access to it" : " (then set HF_TOKEN)");
	if (h->status == 403 && strstr(h->message, "disabled"))
		return err_set(err, E_UNSUPPORTED, "%s: the hub has disabled access to it", what);
	if (h->status == 403)
		return err_set(err, E_UNSUPPORTED, "%s: the token lacks a permission%s%s", what,
		               *h->message ? ": " : " (read access to public gated repositories)", h->message);
	return err_set(err, E_IO, "%s: the hub answers %d%s%s", what, h->status, *h->message ? ": " : "", h->message);
}

bool hub_may_retry(int status)
{
	return status == 408 || status == 429 || status == 500 || (status >= 502 && status <= 504);
}

int hub_wait(const struct hub_head *h, int tries)
{
	static const int waits[] = { 1, 2, 4, 8, 8 };
	int64_t wait = waits[tries < 4 ? tries : 4];

	if (h->left == 0 && h->seconds >= 0)
		wait = h->seconds + 1;
	else if (h->retry_after >= 0)
		wait = h->retry_after + 1;
	return wait < WAIT_MAX ? (int)wait : WAIT_MAX;
}

bool hub_next(const char *link, struct buf *out)
{
	while ((link = strchr(link, '<'))) {
		const char *end = strchr(link, '>'), *next = end ? strchr(end, '<') : NULL, *rel;

		if (!end)
			return false;
		rel = strstr(end, "rel=");
		if (rel && (!next || rel < next) && !strncmp(rel + 4 + (rel[4] == '"'), "next", 4)) {
			buf_put(out, link + 1, (size_t)(end - link - 1));
			return true;
		}
		link = end;
	}
	return false;
}

enum hub_range hub_range_step(const struct hub_head *h, int64_t asked, int64_t total)
{
	int64_t from, to, all;

	if (h->status == 200)
		return asked ? HUB_WHOLE : HUB_APPEND;
	if (h->status == 416)
		return asked == total ? HUB_COMPLETE : HUB_RESTART;
	if (h->status == 400 || h->status == 401 || h->status == 403)
		return HUB_NEW_LOCATION;
	if (h->status != 206)
		return HUB_RESTART;
	if (sscanf(h->range, "bytes %" SCNd64 "-%" SCNd64 "/%" SCNd64, &from, &to, &all) == 3)
		return from == asked && all == total ? HUB_APPEND : HUB_RESTART;
	if (sscanf(h->range, "bytes %" SCNd64 "-%" SCNd64 "/*", &from, &to) == 2)
		return from == asked ? HUB_APPEND : HUB_RESTART;
	return HUB_RESTART;
}
