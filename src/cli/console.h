/* console.h - messages typed or pasted at a terminal.
 *
 * Lines are edited with libedit, as in a shell: arrows, Ctrl-R searches what was typed before.
 * Text that a terminal says was pasted (bracketed paste) is one piece, whatever line ends it has.
 * A line that ends in a backslash goes on in the next, and so does all between two lines of """. */
#ifndef CLI_CONSOLE_H
#define CLI_CONSOLE_H

#include "base/buf.h"
#include "base/err.h"

struct console;

/* On standard input and output, which must be terminals.  interrupted is called for Ctrl-C.
 * What is typed is kept in the file of history over runs; NULL: it is not. */
int console_open(struct console **out, const char *history, void (*interrupted)(void), struct err *err);
void console_close(struct console *c);

/* The next message into out: 1; 0 at the end of input; -1 when Ctrl-C took it away. */
int console_read(struct console *c, struct buf *out);

#endif
