/* markdown.h - an answer's markdown as a terminal shows it, while it comes.
 *
 * Headings and **bold** are bold, *this* is italic, `code` and fenced blocks are coloured, items of lists get a bullet; a table
 * is drawn once the line after it has begun (markdown_table.h).  All else is shown as it comes and as it is.  However the text
 * is cut, what is written is the same.  One thread. */
#ifndef CLI_MARKDOWN_H
#define CLI_MARKDOWN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct markdown {
	int columns;  /* of the terminal; 0: not known.  The caller's, at any time */
	char held[8]; /* what may yet become a mark */
	int n_held;
	char last;   /* of the line, before what is held; 0: nothing */
	bool inside; /* of a line: what marks its kind has passed */
	bool fence, fence_line, bold, italic, code;
	int heading;     /* its level; 0: none */
	struct buf rows; /* lines of what is a table, or may become one; p NULL: none yet */
	int n_rows;      /* whole ones */
	bool row;        /* the last of them has begun */
};

/* Appends p[0..n), of which control characters were taken out, to out. */
void markdown_put(struct markdown *m, const char *p, size_t n, struct buf *out);
/* The text is over: what was held, and every colour off.  m is as new. */
void markdown_end(struct markdown *m, struct buf *out);

#endif
