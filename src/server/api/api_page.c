/* api_page.c - the page that a browser gets: files in the program, as they are.
 *
 * They need no API key, since they say nothing that is not in the source; what
 * the page then asks for needs it. */
#include <string.h>

#include "server/inside.h"
#include "server/routes.h"
#include "web/web.h"

/* Everything comes from this server; nothing is written into the page as code or style, and where the browser knows
 * Trusted Types, HTML may be made of text by DOMPurify alone.  Pictures and sounds that a person attaches are blobs.  No other page
 * may put it into a frame. */
static const char header[] =
	"Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; media-src blob:; "
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
	"require-trusted-types-for 'script'; trusted-types dompurify\r\n"
	"X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-cache\r\n";

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
		conn_reply(x->conn, 200, f->type, header, (const char *)f->p, f->n);
	exchange_end(x);
}

const struct endpoint page_endpoint = { .ready = ready };
