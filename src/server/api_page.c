/* api_page.c - the page that a browser gets: files in the program, as they are.
 *
 * They need no API key, since they say nothing that is not in the source; what
 * the page then asks for needs it. */
#include <assert.h>
#include <string.h>

#include "server/inside.h"
#include "server/routes.h"
#include "web/web.h"

/* Everything comes from this server and nothing is written into the page as code
 * or style; no other page may put it into a frame. */
static const char header[] =
	"Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
	"X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-cache\r\n";

static void ready(struct exchange *x)
{
	const struct web_file *f = web_files;

	while (f->path && strcmp(f->path, x->route->path))
		f++;
	assert(f->path);
	x->status = 200;
	if (x->conn)
		conn_reply(x->conn, 200, f->type, header, (const char *)f->p, f->n);
	exchange_end(x);
}

const struct api page_api = { .ready = ready };
