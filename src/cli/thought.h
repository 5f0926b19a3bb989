/* thought.h - a model's text parted into thinking and answer, as it comes.
 *
 *     <think> ... </think> answer
 *
 * The opening tag may stand in the prompt already.  For `weft run`. */
#ifndef CLI_THOUGHT_H
#define CLI_THOUGHT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

typedef void thought_fn(void *arg, const char *p, size_t n);

struct thought {
	enum { THOUGHT_BEGIN, THOUGHT_INSIDE, THOUGHT_AFTER, THOUGHT_ANSWER } state;
	struct buf held;        /* what may become a tag, or the space around one */
	thought_fn *thinking, *answer;
	void *arg;
};

/* Does a prompt end in an opening tag that was not closed? */
bool thought_opened(const char *prompt, size_t n);

void thought_init(struct thought *t, bool opened, thought_fn *thinking, thought_fn *answer, void *arg);
void thought_fini(struct thought *t);
void thought_put(struct thought *t, const char *p, size_t n);
void thought_flush(struct thought *t);
#endif
