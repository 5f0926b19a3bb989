/* split.h - an answer's text as it comes, parted into thinking, content and calls.
 *
 * Understands <think> ... </think>, and, when the request named tools, calls in
 * the two forms that follow <tool_call>: XML-like (<function=NAME>
 * <parameter=KEY> value </parameter> </function>) and a JSON object with name
 * and arguments.  A call that cannot be read stays text.  However the text is
 * cut, the parts are the same.  Blanks between the parts belong to none. */
#ifndef SERVER_SPLIT_H
#define SERVER_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/json.h"

enum split_state { SPLIT_START, SPLIT_THINK, SPLIT_TEXT, SPLIT_CALL };

struct split {
	enum split_state state;
	bool skip_blanks;               /* at the beginning of a part */
	const struct json *tools;       /* NULL: calls are not looked for */
	struct buf held;                /* may yet turn out to be a tag, or blanks before one */
	bool indexed;                   /* calls get an "index", as in a stream; the caller's to set */
	int n_call;
	/* What came out; the caller takes it and resets the buffers. */
	struct buf thinking, content;
	struct buf calls;               /* elements of a tool_calls array, separated by ',' */
};

/* thinking: the prompt ends inside <think>. */
void split_init(struct split *s, bool thinking, const struct json *tools);
void split_fini(struct split *s);

void split_put(struct split *s, const char *p, size_t n);
void split_end(struct split *s);

/* Does the prompt p[0..n) end with an open <think>? */
bool split_opens(const char *p, size_t n);

#endif
