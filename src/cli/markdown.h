/* markdown.h - an answer's markdown as a terminal shows it, while it comes.
 *
 * Headings and **bold** are bold, `code` and fenced blocks coloured, items of lists get a bullet; all else stays as it is.
 * However the text is cut, what is written is the same.  One thread. */
#ifndef CLI_MARKDOWN_H
#define CLI_MARKDOWN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct markdown {
	char held[8]; /* what may yet become a mark */
	int n_held;
	bool inside; /* of a line: what marks its kind has passed */
	bool fence, fence_line, bold, code, heading;
};

/* Appends p[0..n), of which control characters were taken out, to out. */
void markdown_put(struct markdown *m, const char *p, size_t n, struct buf *out);
/* The text is over: what was held, and every colour off.  m is as new. */
void markdown_end(struct markdown *m, struct buf *out);

#endif
