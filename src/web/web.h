/* web.h - the page that a browser gets from the server: files of this folder, in
 * the program.  No build step but their embedding, nothing from elsewhere. */
#ifndef WEB_WEB_H
#define WEB_WEB_H

#include <stddef.h>

struct web_file {
	const char *path; /* as asked for: "/", "/page.css" */
	const char *type; /* Content-Type */
	const unsigned char *p;
	size_t n;
};
extern const struct web_file web_files[]; /* ends with path NULL */

#endif
