/* api_page.c - the page that a browser gets: files in the program, as they are.
 *
 * They need no API key, since they say nothing that is not in the source; what
 * the page then asks for needs it. */
#include <stdio.h>
#include <string.h>

#include "server/inside.h"
#include "server/routes.h"
#include "web/web.h"

/* Everything comes from this server; nothing is written into the page as code or style, and where the browser knows
 * Trusted Types, HTML may be made of text by DOMPurify alone, and workers of two files alone.  Pictures and sounds that a
 * person attaches are blobs.  No other page may put it into a frame. */
static const char policy[] =
	"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; media-src blob:; "
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
	"require-trusted-types-for 'script'; trusted-types dompurify worker";

/* A worker has the policy that its own file came with. */
static const struct {
	const char *name, *policy;
} workers[] = {
	/* reads documents of strangers: it loads its libraries, and reaches nothing else */
	{ "reader.js", "default-src 'none'; script-src 'self'" },
	/* asks the MCP servers that a person has named, wherever they are; so the page itself need not be let out */
	{ "mcp.js", "default-src 'none'; connect-src http: https:" },
};

static const char *policy_of(const struct web_file *f)
{
	for (size_t i = 0; i < sizeof workers / sizeof *workers; i++)
		if (!strcmp(workers[i].name, f->name))
			return workers[i].policy;
	return policy;
}

static const char header[] =
	"X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-cache\r\n"
	"Vary: Accept-Encoding\r\n";

enum { PLAIN, GZIP };

/* Where the text begins in a field's value; NULL: it is not in it. */
static const char *found(struct http_slice field, const char *text)
{
	size_t n = strlen(text);

	for (const char *p = field.p; p && (size_t)(field.p + field.n - p) >= n; p++)
		if (!memcmp(p, text, n))
			return p;
	return NULL;
}

/* gzip, unless the field has it with a quality of 0. */
static bool takes_gzip(struct http_slice accepts)
{
	const char *at = found(accepts, "gzip"), *end = accepts.p + accepts.n;

	if (!at)
		return false;
	at += strlen("gzip");
	while (at < end && *at == ' ')
		at++;
	if (at == end || *at != ';')
		return true;
	while (at < end && *at != ',')
		if (*at >= '1' && *at <= '9')
			return true;
		else
			at++;
	return false;
}

/* The file, or 304 for a client that has it; the status.  A library is sent compressed whatever the request says: only
 * browsers read it, and all of them can, also behind a proxy that takes the field away. */
static int send_file(struct conn *c, const struct web_file *f)
{
	int form = !f->form[PLAIN].p || takes_gzip(http_field(&c->http, "accept-encoding")) ? GZIP : PLAIN;
	char tag[40];
	struct buf extra;
	int status;

	snprintf(tag, sizeof tag, "\"%s%s\"", f->tag, form == GZIP ? "-gzip" : "");
	status = found(http_field(&c->http, "if-none-match"), tag) ? 304 : 200;
	buf_init(&extra);
	buf_printf(&extra, "Content-Security-Policy: %s\r\n%sETag: %s\r\n%s", policy_of(f), header, tag,
	           form == GZIP ? "Content-Encoding: gzip\r\n" : "");
	if (status == 304)
		c->head_only = true; /* it has the fields of the 200, and no body */
	conn_reply(c, status, f->type, extra.p, (const char *)f->form[form].p, f->form[form].n);
	buf_fini(&extra);
	return status;
}

/* "" is "/", any other the name behind "/page/". */
static void ready(struct exchange *x)
{
	const char *name = x->route->prefix ? x->rest.p : "";
	const struct web_file *f = web_files;
	struct problem p;

	while (f->name && strcmp(f->name, name))
		f++;
	if (!f->name || (x->route->prefix && !*name)) {
		problem_set(&p, 404, NULL, NULL, "the page has no such file");
		exchange_refuse(x, &p);
		return;
	}
	x->status = 200;
	if (x->conn)
		x->status = send_file(x->conn, f);
	exchange_end(x);
}

const struct endpoint page_endpoint = { .ready = ready };
