/* huge_pages.h - weights in huge pages, once a model is open.
 *
 * Mapped files come in pages of 4 KB, and a step that reads gigabytes of them waits for
 * their addresses as well: see docs/performance.md, "Huge pages".  So the weights are copied into
 * memory of the process's own behind the program's back (file_map_own), by a thread
 * that gets what processor time nobody else wants, and that lets answers go first. */
#ifndef CLI_HUGE_PAGES_H
#define CLI_HUGE_PAGES_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/engine.h"
#include "store/store.h"

struct huge_pages {
	const struct store *store[2];   /* whose weights; NULL: none */
	struct engine *engine;          /* that reads them */
	size_t spare;                   /* bytes that stay available to others, at least */
	atomic_bool stop;
	bool threaded;
	pthread_t thread;
};

/* Has the system huge pages for whoever asks, is there enough to gain with these stores (the
 * second may be NULL), and would `planned` bytes, their weights among them, leave a sixteenth
 * of the machine's (or the control group's) memory available?  Then from now on h copies;
 * otherwise, as after the end, h does nothing.  now: returns when all is copied.
 * Between two pieces of 32 MB it waits until the engine has nothing to do, but not for
 * more than a second.  Stores and engine must stay until huge_pages_end. */
void huge_pages_begin(struct huge_pages *h, const struct store *a, const struct store *b, struct engine *engine,
                      size_t planned, bool now);
/* Does not wait for more than a piece of 32 MB.  Also of an h of zeros. */
void huge_pages_end(struct huge_pages *h);

#endif
