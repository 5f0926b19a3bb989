/* web.h - the page that a browser gets from the server: files of this folder, in the program, and with them the
 * libraries that read markdown and PDF, where the build found them (meson.build).  docs/page.md has the tour. */
#ifndef WEB_WEB_H
#define WEB_WEB_H

#include <stddef.h>

struct web_file {
	const char *name; /* "" for the page itself, which is asked for as "/"; else behind "/page/": "page.css" */
	const char *type; /* Content-Type */
	const char *tag;  /* of its bytes, for ETag */
	struct {
		const unsigned char *p;
		size_t n;
	} form[2]; /* plain, with p NULL for a library; compressed with gzip */
};
extern const struct web_file web_files[]; /* ends with name NULL */

#endif
